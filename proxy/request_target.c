/* Request targets and authorities: read once, into the one form in which they are judged, dialled,
 * written upstream and recorded.
 *
 * h1 and the HTTP/2 side bring the text; admit compares what comes out. */
#include "proxy/request_target.h"

#include "base/strbuf.h"
#include "proxy/chars_int.h"

/* One to five digits without leading zero, at most 65535. */
static bool authority_port_decode(struct slice s, uint16_t *port)
{
	uint64_t v;

	if (s.len > 5 || !slice_to_u64(s, &v) || s.p[0] == '0' || v > UINT16_MAX)
		return false;
	*port = (uint16_t)v;
	return true;
}

/* Splits at the colon of the port; *port.p is NULL without one. */
static int authority_split(struct slice s, struct slice *host, struct slice *port)
{
	size_t n = slice_find_char(s, s.len > 0 && s.p[0] == '[' ? ']' : ':');

	if (s.len > 0 && s.p[0] == '[') {
		if (n == s.len)
			return E_SYNTAX;
		n++;
	}
	*host = slice_first(s, n);
	*port = (struct slice){NULL, 0};
	if (n == s.len)
		return 0;
	if (s.p[n] != ':')
		return E_SYNTAX;
	*port = slice_from(s, n + 1);
	return 0;
}

static void authority_clear(struct authority *a)
{
	a->is_addr = false;
	a->has_port = false;
	a->port = 0;
	a->addr = (struct netaddr){{0}};
	a->name_len = 0;
	a->name[0] = '\0';
}

int authority_decode(struct slice s, struct authority *out)
{
	struct slice host, port;
	int ret = authority_split(s, &host, &port);

	if (ret < 0)
		return ret;
	authority_clear(out);
	if (port.p) {
		if (!authority_port_decode(port, &out->port))
			return E_SYNTAX;
		out->has_port = true;
	}
	switch (netaddr_parse_host(host, &out->addr)) {
	case HOST_ADDRESS:
		out->is_addr = true;
		out->name_len = netaddr_text(&out->addr, out->name);
		return 0;
	case HOST_NAME:
		return hostname_normal(host, out->name, &out->name_len);
	case HOST_INVALID:
		break;
	}
	return E_SYNTAX;
}

bool authority_same(const struct authority *a, const struct authority *b, uint16_t default_port)
{
	uint16_t port_a = a->has_port ? a->port : default_port;
	uint16_t port_b = b->has_port ? b->port : default_port;

	return port_a == port_b && a->is_addr == b->is_addr &&
		slice_eq(authority_name(a), authority_name(b));
}

size_t authority_text(
	const struct authority *a, uint16_t default_port, char buf[AUTHORITY_TEXT_MAX])
{
	bool brackets = a->is_addr && !netaddr_is_v4(&a->addr);
	struct strbuf b;

	/* Written twice for each request: no printf. */
	strbuf_init_fixed(&b, buf, AUTHORITY_TEXT_MAX);
	if (brackets)
		strbuf_char(&b, '[');
	strbuf_add(&b, authority_name(a));
	if (brackets)
		strbuf_char(&b, ']');
	if (a->has_port && a->port != default_port) {
		strbuf_char(&b, ':');
		strbuf_u64(&b, a->port);
	}
	buf[b.len] = '\0';
	return b.len;
}

/* Takes "user:password@" off. Only the bytes of RFC 3986: a second '@' or a backslash would split
 * differently elsewhere. */
static int target_userinfo_drop(struct slice *authority, bool *userinfo)
{
	size_t at = slice_find_char(*authority, '@');

	*userinfo = at < authority->len;
	if (!*userinfo)
		return 0;
	for (size_t i = 0; i < at; i++) {
		if ((char_classes[(uint8_t)authority->p[i]] & CHAR_USERINFO) == 0)
			return E_SYNTAX;
	}
	*authority = slice_from(*authority, at + 1);
	return 0;
}

static void target_path_set(struct request_target *t, struct slice path_query)
{
	size_t n = slice_find_char(path_query, '?');

	t->path_query = path_query;
	t->path = slice_first(path_query, n);
	t->query = n < path_query.len ? slice_from(path_query, n + 1) : SLICE_EMPTY;
}

static bool target_scheme_is(struct slice target, struct slice scheme)
{
	return target.len >= scheme.len && slice_ieq(slice_first(target, scheme.len), scheme);
}

static int target_absolute_decode(bool options, struct slice target, struct request_target *out)
{
	struct slice rest, authority;
	size_t n;
	int ret;

	out->form = TARGET_ABSOLUTE;
	if (target_scheme_is(target, SLICE("http://")))
		rest = slice_from(target, sizeof("http://") - 1);
	else if (target_scheme_is(target, SLICE("https://")))
		rest = slice_from(target, sizeof("https://") - 1);
	else
		return E_SYNTAX;
	out->https = target.p[4] != ':';
	/* "http://host?query" cannot be written in origin-form without a copy, and no client sends
	 * it to a proxy: its '?' stays in the authority, where it is refused. */
	n = slice_find_char(rest, '/');
	authority = slice_first(rest, n);
	rest = slice_from(rest, n);
	ret = target_userinfo_drop(&authority, &out->userinfo);
	if (ret == 0)
		ret = authority_decode(authority, &out->authority);
	if (ret < 0)
		return ret;
	if (rest.len == 0)
		rest = options ? SLICE("*") : SLICE("/");
	target_path_set(out, rest);
	return 0;
}

int request_target_decode(struct slice method, struct slice target, struct request_target *out)
{
	const char *end = target.p + target.len;
	bool options = slice_eq(method, SLICE("OPTIONS"));

	out->https = false;
	out->userinfo = false;
	if (slice_eq(method, SLICE("CONNECT"))) {
		int ret = authority_decode(target, &out->authority);

		out->form = TARGET_AUTHORITY;
		out->path_query = out->path = out->query = SLICE_EMPTY;
		return ret == 0 && !out->authority.has_port ? E_SYNTAX : ret;
	}
	if (target.len == 0 || chars_find_below(target.p, end, '!') != end ||
		memchr(target.p, '#', target.len))
		return E_SYNTAX;
	if (target.p[0] != '/' && !(options && slice_eq(target, SLICE("*"))))
		return target_absolute_decode(options, target, out);
	authority_clear(&out->authority);
	out->form = target.p[0] == '/' ? TARGET_ORIGIN : TARGET_ASTERISK;
	target_path_set(out, target);
	return 0;
}

int request_target_decode_url(struct slice url, struct request_target *out)
{
	int ret = request_target_decode(SLICE("GET"), url, out);

	if (ret == 0 && (out->form != TARGET_ABSOLUTE || out->userinfo))
		ret = E_VALUE;
	if (ret == 0 && !out->authority.has_port) {
		out->authority.has_port = true;
		out->authority.port = out->https ? 443 : 80;
	}
	return ret;
}
