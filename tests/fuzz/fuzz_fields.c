/* Field names, values and lists against definitions written the slow way.
 *
 * The first line of an input is a name, the rest a value. */
#include <strings.h>

#include "proxy/fields.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

#define MEMBERS_MAX 512

static const char *const names[FIELD_ID_MAX] = {
#define X(id, name) [FIELD_##id] = (name),
	FIELD_TABLE(X)
#undef X
};

static void name_check(struct slice name)
{
	enum field_id want = FIELD_OTHER;
	bool ok = name.len > 0;

	for (int id = FIELD_OTHER + 1; id < FIELD_ID_MAX; id++) {
		if (strlen(names[id]) == name.len && strncasecmp(names[id], name.p, name.len) == 0)
			want = (enum field_id)id;
	}
	REQUIRE(field_id_find(name) == want);
	for (size_t i = 0; i < name.len; i++) {
		if (name.p[i] <= ' ' || name.p[i] == 0x7f ||
			strchr("\"(),/:;<=>?@[\\]{}", name.p[i]))
			ok = false;
	}
	REQUIRE(field_name_ok(name) == ok);
	REQUIRE(want == FIELD_OTHER || ok);
}

static size_t members_read(struct slice value, struct slice *members)
{
	struct slice rest = value, member;
	size_t n = 0;

	while (field_list_next(&rest, &member)) {
		REQUIRE(member.len > 0 && member.p >= value.p);
		REQUIRE(member.p + member.len <= value.p + value.len);
		REQUIRE(member.p + member.len <= rest.p);
		REQUIRE(slice_eq(member, slice_trim(member)));
		if (n < MEMBERS_MAX)
			members[n++] = member;
	}
	REQUIRE(rest.len == 0);
	return n;
}

static void value_check(struct slice value)
{
	static struct slice members[MEMBERS_MAX], again[MEMBERS_MAX];
	static struct fields f;
	char text[4096];
	size_t n, len = 0;
	bool ok = true;

	for (size_t i = 0; i < value.len; i++) {
		uint8_t c = (uint8_t)value.p[i];

		ok = ok && (c == '\t' || (c >= ' ' && c != 0x7f));
	}
	REQUIRE(field_value_ok(value) == ok);
	if (value.len > sizeof(text) / 2)
		return;
	n = members_read(value, members);
	f.n = 1;
	f.seen = UINT64_C(1) << FIELD_CONNECTION;
	f.v[0] = (struct field){SLICE("connection"), value, FIELD_CONNECTION};
	REQUIRE(fields_find(&f, FIELD_CONNECTION) == &f.v[0] && !fields_find(&f, FIELD_HOST));
	REQUIRE(fields_count(&f, FIELD_CONNECTION) == 1 && fields_count(&f, FIELD_HOST) == 0);
	for (size_t i = 0; i < n; i++) {
		REQUIRE(fields_list_has(&f, FIELD_CONNECTION, members[i]));
		if (i > 0)
			text[len++] = ',';
		memcpy(text + len, members[i].p, members[i].len);
		len += members[i].len;
	}
	/* A member whose quotes never close takes the rest with it, and is the last. */
	REQUIRE(members_read(slice_make(text, len), again) == n);
	for (size_t i = 0; i < n; i++)
		REQUIRE(slice_eq(members[i], again[i]));
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	struct slice in = slice_make((const char *)p, len);
	size_t n = slice_find_char(in, '\n');

	name_check(slice_first(in, n));
	value_check(slice_from(in, n < len ? n + 1 : len));
	return 0;
}
