/* Request targets: what is accepted comes out in one form, and that form is accepted as itself.
 *
 * An input is a method, a blank and a target. */
#include <stdio.h>

#include "proxy/request_target.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

static void slice_check(struct slice part, struct slice in)
{
	REQUIRE(part.len == 0 || slice_eq(part, SLICE("/")) || slice_eq(part, SLICE("*")) ||
		(part.p >= in.p && part.p + part.len <= in.p + in.len));
}

static void authority_check(const struct authority *a)
{
	char text[AUTHORITY_TEXT_MAX], name[HOSTNAME_MAX + 1];
	struct authority again;
	struct netaddr addr;
	size_t len;

	REQUIRE(a->name_len > 0 && a->name_len == strlen(a->name));
	REQUIRE(a->has_port == (a->port != 0));
	if (a->is_addr) {
		REQUIRE(netaddr_parse(authority_name(a), &addr) && netaddr_eq(&addr, &a->addr));
	} else {
		REQUIRE(hostname_normal(authority_name(a), name, &len) == 0);
		REQUIRE(strcmp(name, a->name) == 0);
		/* A name that somebody would read as an address must not pass as a name. */
		REQUIRE(netaddr_parse_host(authority_name(a), &addr) == HOST_NAME);
	}
	len = authority_text(a, 0, text);
	REQUIRE(len == strlen(text));
	REQUIRE(authority_decode(slice_make(text, len), &again) == 0);
	REQUIRE(authority_same(a, &again, 0) && again.has_port == a->has_port);
	REQUIRE(strcmp(a->name, again.name) == 0);
}

static void target_check(struct slice method, struct slice target, const struct request_target *t)
{
	static char text[1U << 16];
	static struct request_target again;
	char authority[AUTHORITY_TEXT_MAX];
	int n;

	slice_check(t->path_query, target);
	slice_check(t->path, target);
	slice_check(t->query, target);
	REQUIRE(t->form == TARGET_AUTHORITY || t->path_query.len > 0);
	REQUIRE(t->path_query.len == 0 || t->path_query.p[0] == '/' || t->path_query.p[0] == '*');
	if (slice_find_char(t->path_query, '?') < t->path_query.len)
		REQUIRE(t->path.len + 1 + t->query.len == t->path_query.len);
	else
		REQUIRE(t->path.len == t->path_query.len && t->query.len == 0);
	REQUIRE(slice_find_char(t->path, '?') == t->path.len);
	REQUIRE(t->form != TARGET_ABSOLUTE ||
		t->https == (target.p[4] == 's' || target.p[4] == 'S'));
	if (t->form == TARGET_ORIGIN || t->form == TARGET_ASTERISK) {
		REQUIRE(slice_eq(t->path_query, target) && t->authority.name_len == 0);
		return;
	}
	authority_check(&t->authority);
	authority_text(&t->authority, 0, authority);
	if (t->path_query.len > sizeof(text) / 2)
		return;
	if (t->form == TARGET_AUTHORITY)
		n = snprintf(text, sizeof(text), "%s", authority);
	else
		n = snprintf(text, sizeof(text), "http%s://%s%.*s", t->https ? "s" : "", authority,
			SLICE_FMT(
				slice_eq(t->path_query, SLICE("*")) ? SLICE_EMPTY : t->path_query));
	REQUIRE(request_target_decode(method, slice_make(text, (size_t)n), &again) == 0);
	REQUIRE(again.form == t->form && again.https == t->https && !again.userinfo);
	REQUIRE(authority_same(&t->authority, &again.authority, 0));
	REQUIRE(slice_eq(t->path_query, again.path_query) && slice_eq(t->path, again.path));
	REQUIRE(slice_eq(t->query, again.query));
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	static struct request_target t;
	struct slice target = slice_make((const char *)p, len);
	struct slice method = slice_cut(&target, ' ');

	if (!target.p)
		target = SLICE_EMPTY;
	if (request_target_decode(method, target, &t) == 0)
		target_check(method, target, &t);
	if (authority_decode(target, &t.authority) == 0)
		authority_check(&t.authority);
	return 0;
}
