/* Puts URL and key around what is asked. Before it: lifecycle, or ctl/platform; after it:
 * proxy/fetch, and lifecycle_doc reads the content. */
#include "control/lifecycle_api.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/secmem.h"
#include "base/strbuf.h"
#include "proxy/proxy.h"

#define API_KEY_FIELD "OPEN-SANDBOX-API-KEY: "

int lifecycle_api_init(struct lifecycle_api *a, const char *url)
{
	struct slice text = slice_str(url);
	struct request_target target;
	int ret = lifecycle_url_decode(&text, &target);

	if (ret < 0)
		return ret;
	a->url = xstrdup(url);
	a->url[text.len] = '\0';
	a->https = target.https;
	a->authority = target.authority;
	return 0;
}

void lifecycle_api_fini(struct lifecycle_api *a)
{
	if (a->key)
		secmem_release(a->px->secmem, a->key);
	free(a->url);
	a->key = a->url = NULL;
}

int lifecycle_api_read_key(struct lifecycle_api *a, int fd, const char *name, struct errmsg *msg)
{
	const size_t before = sizeof(API_KEY_FIELD) - 1;
	char *line = secmem_alloc(a->px->secmem, before + LIFECYCLE_KEY_MAX + sizeof("\r\n"));
	struct strbuf text;
	struct slice key;
	int ret;

	if (!line)
		return errmsg_set(msg, -ENOMEM, "%s: no locked memory for the API's key", name);
	strbuf_init_fixed(&text, line + before, LIFECYCLE_KEY_MAX + 1);
	(void)lseek(fd, 0, SEEK_SET); /* a pipe has no beginning */
	ret = strbuf_read_fd(&text, fd);
	key = slice_strip(strbuf_slice(&text));
	if (ret == 0 && (key.len == 0 || !field_value_ok(key)))
		ret = E_VALUE;
	if (ret < 0) {
		secmem_release(a->px->secmem, line);
		return errmsg_set(msg, ret,
			"%s: %s: expected one line of at most %d bytes, the API's key", name,
			err_text(ret), LIFECYCLE_KEY_MAX);
	}
	memcpy(line, API_KEY_FIELD, before);
	memmove(line + before, key.p, key.len);
	memcpy(line + before + key.len, "\r\n", sizeof("\r\n"));
	secmem_release(a->px->secmem, a->key);
	a->key = line;
	return 0;
}

struct fetch *lifecycle_api_get(
	const struct lifecycle_api *a, struct slice id, const char *more, fetch_cb done, void *arg)
{
	struct fetch_request r = {
		.method = "GET",
		.admit = a->admit,
		.fields = SLICE("Accept: application/json\r\n"),
		.secret = a->key ? slice_str(a->key) : SLICE_EMPTY,
		.answer_max = a->answer_max,
		.timeout_ms = LIFECYCLE_TIMEOUT_MS,
	};
	struct strbuf url;
	struct fetch *f;

	strbuf_init(&url, FETCH_LINES_MAX);
	strbuf_printf(&url, "%s/v1/sandboxes%s%.*s%s", a->url, id.len > 0 ? "/" : "", SLICE_FMT(id),
		more);
	r.url = strbuf_slice(&url);
	f = fetch_start(a->px, &r, done, arg);
	strbuf_fini(&url);
	return f;
}

const char *lifecycle_why(const struct fetch_answer *answer, struct errmsg *msg)
{
	char text[LIFECYCLE_ERROR_MAX];

	if (answer->err)
		(void)errmsg_set(msg, 0, "%s", answer->why);
	else
		(void)errmsg_set(msg, 0, "%d %s", answer->status,
			lifecycle_error_text(answer->content, text));
	return msg->text;
}

int lifecycle_api_check(const struct fetch_answer *answer, struct errmsg *msg)
{
	struct slice type = fetch_field(answer, SLICE("Content-Type"));

	if (answer->err || answer->status != 200) {
		(void)lifecycle_why(answer, msg);
		return E_VALUE;
	}
	if (!slice_ieq(slice_trim(slice_cut(&type, ';')), SLICE("application/json")))
		return errmsg_set(msg, E_SYNTAX, "the answer is no JSON object");
	return 0;
}

uint64_t lifecycle_retry_after_ms(const struct fetch_answer *answer)
{
	uint64_t s = 0;

	if (!slice_to_u64(fetch_field(answer, SLICE("Retry-After")), &s))
		return 0;
	return (s < LIFECYCLE_RETRY_AFTER_S ? s : LIFECYCLE_RETRY_AFTER_S) * 1000;
}
