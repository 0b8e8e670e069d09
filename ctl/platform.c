/* Options and environment to lifecycle_api, and URL and token around what sidecars are asked.
 * Before it: watch, watch_box, sandboxes_cmd; after it: lifecycle_api, proxy/fetch. */
#include "ctl/platform.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/secmem.h"
#include "ctl/command.h"
#include "ctl/environment.h"

#define PLATFORM_URL_MAX 4096 /* of a sidecar, and of the filters */

struct sidecar {
	char *headers; /* whole lines, in locked memory */
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

static const char *platform_setting(const char *option, const char *variable)
{
	const char *text = option ? option : environment_get(environ, variable);

	return text && text[0] ? text : NULL;
}

/* As one value of a query: everything but what never has a meaning there. percent: `%` as it is
 * written at this place. */
static void filter_encode(struct strbuf *out, struct slice s, const char *percent)
{
	for (size_t i = 0; i < s.len; i++) {
		char c = ascii_lower(s.p[i]);

		if (ascii_digit(c) || (c >= 'a' && c <= 'z') || c == '-' || c == '.' || c == '_')
			strbuf_char(out, s.p[i]);
		else
			strbuf_printf(out, "%s%02X", percent, (unsigned char)s.p[i]);
	}
}

/* Metadata is one query string, `NAME=VALUE&...`, inside one parameter of the other. */
static int platform_filter(struct platform *a, struct errmsg *msg)
{
	strbuf_init(&a->filter, PLATFORM_URL_MAX);
	for (size_t i = 0; a->o->states[i]; i++) {
		strbuf_str(&a->filter, "&state=");
		filter_encode(&a->filter, slice_str(a->o->states[i]), "%");
	}
	for (size_t i = 0; a->o->metadata[i]; i++) {
		struct slice value = slice_str(a->o->metadata[i]);
		struct slice name = slice_cut(&value, '=');

		if (!value.p || name.len == 0)
			return errmsg_set(msg, E_VALUE, "--metadata %.60s: expected NAME=VALUE",
				a->o->metadata[i]);
		strbuf_str(&a->filter, i ? "%26" : "&metadata=");
		filter_encode(&a->filter, name, "%25");
		strbuf_str(&a->filter, "%3D");
		filter_encode(&a->filter, value, "%25");
	}
	return a->filter.full ? errmsg_set(msg, E_LIMIT, "the filters are too long") : 0;
}

int platform_read_key(struct platform *a, struct errmsg *msg)
{
	const char *path = platform_setting(a->o->key_file, "OPENSANDBOX_API_KEY_FILE");
	int fd, ret;

	if (!path)
		return 0;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errmsg_set(
			msg, -errno, "%s: %s: expected the API's key", path, err_text(-errno));
	ret = lifecycle_api_read_key(&a->api, fd, path, msg);
	(void)close(fd);
	return ret;
}

int platform_open(struct platform *a, const struct platform_options *o, struct errmsg *msg)
{
	const char *url = platform_setting(o->url, "OPENSANDBOX_URL");
	int ret;

	*a = (struct platform){.o = o};
	if (!url || lifecycle_api_init(&a->api, url) < 0)
		return errmsg_set(msg, E_VALUE,
			"\"%.100s\": expected the URL of the lifecycle API (--url or "
			"OPENSANDBOX_URL), like https://opensandbox.example",
			url ? url : "");
	ret = platform_filter(a, msg);
	if (ret == 0)
		ret = caller_open(
			&a->caller, platform_setting(o->ca_file, "OPENSANDBOX_CA_FILE"), msg);
	a->api.px = a->caller.px;
	a->api.answer_max = LIFECYCLE_DOC_MAX;
	if (ret == 0)
		ret = platform_read_key(a, msg);
	return ret;
}

void platform_close(struct platform *a)
{
	lifecycle_api_fini(&a->api);
	caller_close(&a->caller);
	strbuf_fini(&a->filter);
}

struct fetch *platform_list(struct platform *a, unsigned page, fetch_cb done, void *arg)
{
	struct strbuf query;
	struct fetch *f;

	strbuf_init(&query, 2 * PLATFORM_URL_MAX);
	strbuf_printf(&query, "?page=%u&pageSize=%d", page, LIFECYCLE_PAGE_MAX);
	strbuf_add(&query, strbuf_slice(&a->filter));
	f = lifecycle_api_get(&a->api, SLICE_EMPTY, strbuf_cstr(&query), done, arg);
	strbuf_fini(&query);
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
		slice_eq(authority_name(to), authority_name(&a->api.authority));

	for (size_t i = 0; !found && a->o->hosts[i]; i++)
		found = place_is_host(to, a->o->hosts[i]);
	return found;
}

int sidecar_new(struct platform *a, struct slice answer, struct sidecar **out, struct errmsg *msg)
{
	struct lifecycle_endpoint e;
	char host[AUTHORITY_TEXT_MAX];
	struct sidecar *p = NULL;
	bool https;
	int ret = lifecycle_endpoint_decode(answer, &e, msg);

	*out = NULL;
	if (ret < 0)
		return ret;
	if (!place_is_allowed(a, &e.authority)) {
		ret = errmsg_set(msg, E_VALUE,
			"the endpoint is at %s: expected the API's own host, loopback, or a host "
			"that --endpoint-host names",
			e.authority.name);
		goto out;
	}
	/* Like the platform's own clients, with the API's scheme; nearby there is none. */
	https = a->api.https && !place_is_loopback(&e.authority);
	(void)authority_text(&e.authority, https ? 443 : 80, host);
	p = xcalloc(1, sizeof(*p));
	(void)snprintf(p->url, sizeof(p->url), "http%s://%s%s", https ? "s" : "", host, e.prefix);
	p->headers = secmem_alloc(a->caller.mem, e.headers_len + 1);
	if (!p->headers) {
		ret = errmsg_set(msg, E_FULL, "no locked memory for a token");
		goto out;
	}
	memcpy(p->headers, e.headers, e.headers_len);
	*out = p;
	p = NULL;
out:
	free(p);
	explicit_bzero(&e, sizeof(e));
	return ret;
}

void sidecar_free(struct platform *a, struct sidecar *p)
{
	if (p)
		secmem_release(a->caller.mem, p->headers);
	free(p);
}

struct fetch *sidecar_ask(struct platform *a, const struct sidecar *s,
	const struct sidecar_question *q, fetch_cb done, void *arg)
{
	struct fetch_request r = {.method = q->method,
		.secret = slice_str(s->headers),
		.content_type = q->content.p ? "application/json" : NULL,
		.content = q->content,
		.answer_max = SIDECAR_ANSWER_MAX,
		.timeout_ms = strcmp(q->method, "GET") == 0 ? SIDECAR_MS : SIDECAR_CHANGE_MS};
	struct strbuf url;
	struct fetch *f;

	strbuf_init(&url, PLATFORM_URL_MAX);
	strbuf_printf(&url, "%s%s", s->url, q->path);
	r.url = strbuf_slice(&url);
	f = fetch_start(a->caller.px, &r, done, arg);
	strbuf_fini(&url);
	return f;
}
