/* Puts URL, key and token around what is asked. Before it: watch, watch_box, sandboxes_cmd; after
 * it: proxy/fetch. */
#include "ctl/platform.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/secmem.h"
#include "base/strbuf.h"
#include "ctl/command.h"
#include "ctl/environment.h"

#define API_URL_MAX 4096
#define API_KEY_MAX 4096
#define API_KEY_NAME "OPEN-SANDBOX-API-KEY: "

struct sidecar {
	struct slice headers; /* in locked memory */
	char url[AUTHORITY_TEXT_MAX + LIFECYCLE_PREFIX_MAX + 8];
};

static int platform_add(const char **list, const char *text)
{
	size_t n = 0;

	while (list[n])
		n++;
	if (n == PLATFORM_LIST_MAX) {
		command_complain("\"%.60s\": more than %d", text, PLATFORM_LIST_MAX);
		return E_LIMIT;
	}
	list[n] = text;
	return 1;
}

int platform_option(struct platform_options *o, int c, const char *text)
{
	switch (c) {
	case PLATFORM_URL:
		o->url = text;
		return 1;
	case PLATFORM_KEY:
		o->key_file = text;
		return 1;
	case PLATFORM_CA:
		o->ca_file = text;
		return 1;
	case PLATFORM_STATE:
		return platform_add(o->states, text);
	case PLATFORM_METADATA:
		return platform_add(o->metadata, text);
	case PLATFORM_HOST:
		return platform_add(o->hosts, text);
	default:
		return 0;
	}
}

static const char *api_option(const char *option, const char *variable)
{
	const char *text = option ? option : environment_get(environ, variable);

	return text && text[0] ? text : NULL;
}

/* As one value of a query: everything but what never has a meaning there. */
static void api_encode(struct strbuf *out, struct slice s)
{
	for (size_t i = 0; i < s.len; i++) {
		char c = ascii_lower(s.p[i]);

		if (ascii_digit(c) || (c >= 'a' && c <= 'z') || c == '-' || c == '.' || c == '_')
			strbuf_char(out, s.p[i]);
		else
			strbuf_printf(out, "%%%02X", (unsigned char)s.p[i]);
	}
}

/* Metadata is one query string inside one parameter of the other. */
static int api_filter(struct platform *a, struct errmsg *msg)
{
	struct strbuf inner;

	strbuf_init(&a->filter, API_URL_MAX);
	strbuf_init(&inner, API_URL_MAX);
	for (size_t i = 0; a->o->states[i]; i++) {
		strbuf_str(&a->filter, "&state=");
		api_encode(&a->filter, slice_str(a->o->states[i]));
	}
	for (size_t i = 0; a->o->metadata[i]; i++) {
		struct slice value = slice_str(a->o->metadata[i]);
		struct slice name = slice_cut(&value, '=');

		if (!value.p || name.len == 0)
			return errmsg_set(msg, E_VALUE, "--metadata %.60s: expected NAME=VALUE",
				a->o->metadata[i]);
		strbuf_str(&inner, i ? "&" : "");
		api_encode(&inner, name);
		strbuf_char(&inner, '=');
		api_encode(&inner, value);
	}
	if (inner.len > 0) {
		strbuf_str(&a->filter, "&metadata=");
		api_encode(&a->filter, strbuf_slice(&inner));
	}
	strbuf_fini(&inner);
	return a->filter.full ? errmsg_set(msg, E_LIMIT, "the filters are too long") : 0;
}

static int platform_key(struct platform *a, struct errmsg *msg)
{
	const char *path = api_option(a->o->key_file, "OPENSANDBOX_API_KEY_FILE");
	struct strbuf text;
	struct slice key;
	char *line = NULL;
	int ret;

	if (!path)
		return 0;
	strbuf_init(&text, API_KEY_MAX);
	text.wipe = true;
	ret = strbuf_read_file(&text, path);
	key = slice_strip(strbuf_slice(&text));
	if (ret < 0)
		(void)errmsg_set(msg, ret, "%s: %s: expected the API's key", path, err_text(ret));
	else if (key.len == 0 || !field_value_ok(key))
		ret = errmsg_set(msg, E_VALUE, "%s: expected one line, the API's key", path);
	else
		line = secmem_alloc(a->caller.mem, sizeof(API_KEY_NAME "\r\n") + key.len);
	if (ret == 0 && !line)
		ret = errmsg_set(msg, E_FULL, "no locked memory for the key");
	if (line) {
		memcpy(line, API_KEY_NAME, sizeof(API_KEY_NAME) - 1);
		memcpy(line + sizeof(API_KEY_NAME) - 1, key.p, key.len);
		memcpy(line + sizeof(API_KEY_NAME) - 1 + key.len, "\r\n", 3);
		a->key = line;
	}
	strbuf_fini(&text);
	return ret;
}

bool platform_is_url(const char *text)
{
	struct request_target target;

	return request_target_decode(SLICE("GET"), slice_str(text), &target) == 0 &&
		target.form == TARGET_ABSOLUTE && !target.userinfo;
}

int platform_open(struct platform *a, const struct platform_options *o, struct errmsg *msg)
{
	const char *url = api_option(o->url, "OPENSANDBOX_URL");
	struct request_target target;
	size_t len;
	int ret;

	*a = (struct platform){.o = o};
	if (!url || !platform_is_url(url) ||
		request_target_decode(SLICE("GET"), slice_str(url), &target) < 0 ||
		target.query.len > 0)
		return errmsg_set(msg, E_VALUE,
			"\"%.100s\": expected the URL of the lifecycle API (--url or "
			"OPENSANDBOX_URL), like https://opensandbox.example",
			url ? url : "");
	a->url = xstrdup(url);
	for (len = strlen(url); a->url[len - 1] == '/'; len--)
		a->url[len - 1] = '\0';
	a->https = target.https;
	a->authority = target.authority;
	ret = api_filter(a, msg);
	if (ret == 0)
		ret = caller_open(&a->caller, api_option(o->ca_file, "OPENSANDBOX_CA_FILE"), msg);
	if (ret == 0)
		ret = platform_key(a, msg);
	return ret;
}

void platform_close(struct platform *a)
{
	secmem_release(a->caller.mem, a->key);
	caller_close(&a->caller);
	strbuf_fini(&a->filter);
	free(a->url);
}

/* r: without a target. Frees url. */
static struct fetch *api_start(struct platform *a, struct strbuf *url,
	const struct fetch_request *r, fetch_cb done, void *arg)
{
	struct fetch_request whole = *r;
	struct request_target target;
	struct fetch *f = NULL;

	whole.target = &target;
	if (!url->full &&
		request_target_decode(slice_str(r->method), strbuf_slice(url), &target) == 0 &&
		target.form == TARGET_ABSOLUTE)
		f = fetch_start(a->caller.px, &whole, done, arg);
	strbuf_fini(url);
	return f;
}

struct fetch *platform_get(struct platform *a, const char *path, fetch_cb done, void *arg)
{
	struct fetch_request r = {.method = "GET",
		.secret = a->key ? slice_str(a->key) : SLICE_EMPTY,
		.answer_max = LIFECYCLE_DOC_MAX,
		.timeout_ms = PLATFORM_MS};
	struct strbuf url;

	strbuf_init(&url, 3 * API_URL_MAX);
	strbuf_printf(&url, "%s%s", a->url, path);
	return api_start(a, &url, &r, done, arg);
}

struct fetch *platform_list(struct platform *a, unsigned page, fetch_cb done, void *arg)
{
	struct strbuf path;
	struct fetch *f;

	strbuf_init(&path, 2 * API_URL_MAX);
	strbuf_printf(&path, "/v1/sandboxes?page=%u&pageSize=%d", page, LIFECYCLE_PAGE_MAX);
	strbuf_add(&path, strbuf_slice(&a->filter));
	f = platform_get(a, strbuf_cstr(&path), done, arg);
	strbuf_fini(&path);
	return f;
}

static bool place_is_loopback(const struct authority *to)
{
	return to->is_addr ? netaddr_class(&to->addr) == ADDR_LOOPBACK
			   : slice_eq(authority_name(to), SLICE("localhost"));
}

/* A text of --endpoint-host: a name, an address or a block of addresses. */
static bool place_is_host(const struct authority *to, const char *host)
{
	struct authority named;
	struct netcidr block;

	if (netcidr_parse(slice_str(host), &block))
		return to->is_addr && netcidr_contains(&block, &to->addr);
	return authority_decode(slice_str(host), &named) == 0 &&
		slice_eq(authority_name(&named), authority_name(to));
}

static bool place_is_allowed(const struct platform *a, const struct authority *to)
{
	bool found = place_is_loopback(to) ||
		slice_eq(authority_name(to), authority_name(&a->authority));

	for (size_t i = 0; !found && a->o->hosts[i]; i++)
		found = place_is_host(to, a->o->hosts[i]);
	return found;
}

int sidecar_new(struct platform *a, struct slice answer, struct sidecar **out, struct errmsg *msg)
{
	struct lifecycle_endpoint e;
	char host[AUTHORITY_TEXT_MAX];
	struct sidecar *p;
	char *headers;
	bool https;
	int ret = lifecycle_endpoint_decode(answer, &e, msg);

	*out = NULL;
	if (ret < 0)
		return ret;
	headers = place_is_allowed(a, &e.authority) ? secmem_alloc(a->caller.mem, e.headers_len + 1)
						    : NULL;
	if (headers) {
		/* Like the platform's own clients, with the API's scheme; nearby there is none. */
		https = a->https && !place_is_loopback(&e.authority);
		(void)authority_text(&e.authority, https ? 443 : 80, host);
		p = xcalloc(1, sizeof(*p));
		(void)snprintf(
			p->url, sizeof(p->url), "http%s://%s%s", https ? "s" : "", host, e.prefix);
		memcpy(headers, e.headers, e.headers_len);
		p->headers = slice_make(headers, e.headers_len);
		*out = p;
	} else if (place_is_allowed(a, &e.authority)) {
		ret = errmsg_set(msg, E_FULL, "no locked memory for a token");
	} else {
		ret = errmsg_set(msg, E_VALUE,
			"the endpoint is at %s: expected the API's own host, loopback, or a host "
			"that --endpoint-host names",
			e.authority.name);
	}
	explicit_bzero(&e, sizeof(e));
	return ret;
}

void sidecar_free(struct platform *a, struct sidecar *p)
{
	if (p)
		secmem_release(a->caller.mem, (char *)(uintptr_t)p->headers.p);
	free(p);
}

struct fetch *sidecar_ask(struct platform *a, const struct sidecar *s,
	const struct sidecar_question *q, fetch_cb done, void *arg)
{
	struct fetch_request r = {.method = q->method,
		.secret = s->headers,
		.content_type = q->content.p ? "application/json" : NULL,
		.content = q->content,
		.answer_max = SIDECAR_ANSWER_MAX,
		.timeout_ms = strcmp(q->method, "GET") == 0 ? SIDECAR_MS : SIDECAR_CHANGE_MS};
	struct strbuf url;

	strbuf_init(&url, API_URL_MAX);
	strbuf_printf(&url, "%s%s", s->url, q->path);
	return api_start(a, &url, &r, done, arg);
}

const char *platform_why(const struct fetch_answer *answer, struct errmsg *msg)
{
	char buf[LIFECYCLE_ERROR_MAX];

	if (answer->err)
		(void)errmsg_set(msg, 0, "%s", answer->why);
	else
		(void)errmsg_set(msg, 0, "%d %s", answer->status,
			lifecycle_error_text(answer->content, buf));
	return msg->text;
}
