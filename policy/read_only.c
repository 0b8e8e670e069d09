/* What is a read, and whether a write may go to a name and an address.
 *
 * The parsers (HTTP/1, HTTP/2) gather the facts, admit asks here, nobody else decides. The sets of
 * write hosts are in write_hosts.c. docs/read-only.md states the same in words; its table is the
 * test of this file. */
#include "policy/read_only.h"

#define READ_ONLY_NAME_MAX 32 /* longer field and parameter names are none of ours */

static bool read_only_is_git_fetch(const struct read_request *r)
{
	struct slice type = slice_strip(r->content_type);

	return slice_eq(r->method, SLICE("POST")) &&
		slice_ends(r->path, SLICE("/git-upload-pack")) && r->query.len == 0 &&
		slice_ieq(type, SLICE("application/x-git-upload-pack-request")) && !r->trailers &&
		!r->upgrade && !r->override_field;
}

static char read_only_unescape(struct slice *s)
{
	char c = s->p[0];
	size_t used = 1;

	if (c == '%' && s->len >= 3 && ascii_hex(s->p[1]) >= 0 && ascii_hex(s->p[2]) >= 0) {
		c = (char)(ascii_hex(s->p[1]) << 4 | ascii_hex(s->p[2]));
		used = 3;
	} else if (c == '+') {
		c = ' ';
	}
	*s = slice_from(*s, used);
	return c;
}

/* The parameter name as an origin would see it. PHP drops spaces in front, reads a dot or a space
 * as `_` and ends a name at `[` and at NUL; all of that must find `_method` too. */
static bool read_only_is_method_param(struct slice name)
{
	char plain[READ_ONLY_NAME_MAX];
	size_t n = 0;

	while (name.len > 0 && n < sizeof(plain)) {
		char c = read_only_unescape(&name);

		if (n == 0 && (c == ' ' || (c >= '\t' && c <= '\r')))
			continue;
		if (c == '\0' || c == '[')
			break;
		plain[n++] = c == '.' || c == ' ' ? '_' : c;
	}
	return slice_ieq(slice_make(plain, n), SLICE("_method"));
}

/* `;` separates parameters for some origins, and a second `?` does for careless ones. */
static bool read_only_query_overrides(struct slice query)
{
	size_t start = 0;

	for (size_t i = 0; i <= query.len; i++) {
		struct slice param;

		if (i < query.len && query.p[i] != '&' && query.p[i] != ';' && query.p[i] != '?')
			continue;
		param = slice_make(query.p + start, i - start);
		if (read_only_is_method_param(slice_first(param, slice_find_char(param, '='))))
			return true;
		start = i + 1;
	}
	return false;
}

enum reason read_only_check(const struct read_request *r, bool git_fetch)
{
	if (!slice_eq(r->method, SLICE("GET")) && !slice_eq(r->method, SLICE("HEAD")) &&
		!slice_eq(r->method, SLICE("OPTIONS")))
		return git_fetch && read_only_is_git_fetch(r) ? REASON_GIT_FETCH
							      : REASON_METHOD_NOT_READ;
	if (r->override_field || read_only_query_overrides(r->query))
		return REASON_METHOD_OVERRIDE;
	/* Trailers are content that comes late. */
	if (r->content || r->trailers)
		return REASON_READ_WITH_CONTENT;
	if (r->upgrade)
		return REASON_READ_WITH_UPGRADE;
	return REASON_ALLOWED;
}

bool read_only_is_override(struct slice field_name)
{
	static const struct slice names[] = {
		{"x-http-method-override", 22}, {"x-method-override", 17}, {"x-http-method", 13},
		{"x-original-method", 17}, {"x-original-url", 14}, {"x-rewrite-url", 13},
		{"-method", 7}, /* `_method` */
	};

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (slice_ieq_name(field_name, names[i]))
			return true;
	return false;
}

enum reason read_only_write_check(const struct write_hosts *w, const struct policy *p,
	const struct private_names *priv, struct slice name, const struct netaddr *a, uint16_t port)
{
	char text[NETADDR_TEXT_MAX];
	enum addr_class class = a ? netaddr_class(a) : ADDR_PUBLIC;
	enum write_match match;

	if (name.len > 0) {
		match = write_hosts_match(w, name);
	} else {
		REQUIRE(a);
		match = write_hosts_match(w, slice_make(text, netaddr_text(a, text)));
	}
	if (match == WRITE_EXACT)
		return REASON_WRITE_HOST;
	if (class == ADDR_PRIVATE && (name.len == 0 || private_names_has(priv, name)) &&
		policy_addr_rule_allows(p, a, port))
		return REASON_WRITE_PRIVATE;
	/* A wildcard stands for names that their owner can point anywhere. */
	if (match == WRITE_WILDCARD)
		return class == ADDR_PUBLIC ? REASON_WRITE_HOST : REASON_REBINDING_WRITE;
	return class == ADDR_PRIVATE && name.len > 0 ? REASON_REBINDING_WRITE
						     : REASON_METHOD_NOT_READ;
}

bool read_only_needs_address(
	const struct write_hosts *w, const struct private_names *priv, struct slice name)
{
	switch (write_hosts_match(w, name)) {
	case WRITE_EXACT:
		return false;
	case WRITE_WILDCARD:
		return true;
	case WRITE_NO:
		break;
	}
	return private_names_has(priv, name);
}
