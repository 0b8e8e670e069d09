/* Header fields: names that have a number, lookups in a table of fields, comma-separated lists.
 *
 * h1 and the HTTP/2 side fill the tables; admit, rewrite and relay look into them. */
#include "proxy/fields.h"

#include "proxy/chars_int.h"

#define T CHAR_TOKEN
#define U CHAR_USERINFO

const uint8_t char_classes[256] = {
	['0' ... '9'] = T | U,
	['A' ... 'Z'] = T | U,
	['a' ... 'z'] = T | U,
	['-'] = T | U,
	['.'] = T | U,
	['_'] = T | U,
	['~'] = T | U,
	['!'] = T | U,
	['$'] = T | U,
	['%'] = T | U,
	['&'] = T | U,
	['\''] = T | U,
	['*'] = T | U,
	['+'] = T | U,
	['#'] = T,
	['^'] = T,
	['`'] = T,
	['|'] = T,
	['('] = U,
	[')'] = U,
	[','] = U,
	[';'] = U,
	['='] = U,
	[':'] = U,
};

#undef T
#undef U

static const struct slice field_names[FIELD_ID_MAX] = {
#define X(id, name) [FIELD_##id] = {name, sizeof(name) - 1},
	FIELD_TABLE(X)
#undef X
};

/* Length and first letter tell all known names apart, so a name meets at most one comparison. Two
 * names with the same key would be a warning here. */
#define FIELD_LEN_MAX 25
#define FIELD_KEY(len, letter) ((len) << 5 | ((letter)&0x1f))

static const uint8_t field_by_key[FIELD_KEY(FIELD_LEN_MAX + 1, 0)] = {
	[FIELD_KEY(2, 't')] = FIELD_TE,
	[FIELD_KEY(4, 'h')] = FIELD_HOST,
	[FIELD_KEY(5, 'r')] = FIELD_RANGE,
	[FIELD_KEY(6, 'a')] = FIELD_ACCEPT,
	[FIELD_KEY(6, 'e')] = FIELD_EXPECT,
	[FIELD_KEY(6, 'o')] = FIELD_ORIGIN,
	[FIELD_KEY(7, 'a')] = FIELD_ALT_SVC,
	[FIELD_KEY(7, 't')] = FIELD_TRAILER,
	[FIELD_KEY(7, 'u')] = FIELD_UPGRADE,
	[FIELD_KEY(8, 'i')] = FIELD_IF_RANGE,
	[FIELD_KEY(10, 'c')] = FIELD_CONNECTION,
	[FIELD_KEY(10, 'k')] = FIELD_KEEP_ALIVE,
	[FIELD_KEY(10, 'u')] = FIELD_USER_AGENT,
	[FIELD_KEY(12, 'c')] = FIELD_CONTENT_TYPE,
	[FIELD_KEY(13, 'a')] = FIELD_AUTHORIZATION,
	[FIELD_KEY(14, 'c')] = FIELD_CONTENT_LENGTH,
	[FIELD_KEY(14, 'h')] = FIELD_HTTP2_SETTINGS,
	[FIELD_KEY(15, 'a')] = FIELD_ACCEPT_ENCODING,
	[FIELD_KEY(16, 'c')] = FIELD_CONTENT_ENCODING,
	[FIELD_KEY(16, 'p')] = FIELD_PROXY_CONNECTION,
	[FIELD_KEY(17, 't')] = FIELD_TRANSFER_ENCODING,
	[FIELD_KEY(18, 'p')] = FIELD_PROXY_AUTHENTICATE,
	[FIELD_KEY(19, 'p')] = FIELD_PROXY_AUTHORIZATION,
	[FIELD_KEY(23, 'o')] = FIELD_EGRESS_AUTH,
	[FIELD_KEY(25, 'p')] = FIELD_PROXY_AUTHENTICATION_INFO,
};

enum field_id field_id_find(struct slice name)
{
	enum field_id id;
	const char *want;

	if (name.len == 0 || name.len > FIELD_LEN_MAX)
		return FIELD_OTHER;
	id = field_by_key[FIELD_KEY(name.len, (uint8_t)name.p[0])];
	if (id == FIELD_OTHER)
		return FIELD_OTHER;
	want = field_names[id].p;
	for (size_t i = 0; i < name.len; i++) {
		if (ascii_lower(name.p[i]) != want[i])
			return FIELD_OTHER;
	}
	return id;
}

const struct field *fields_find(const struct fields *f, enum field_id id)
{
	if (!fields_have(f, id))
		return NULL;
	for (size_t i = 0; i < f->n; i++) {
		if (f->v[i].id == id)
			return &f->v[i];
	}
	return NULL;
}

size_t fields_count(const struct fields *f, enum field_id id)
{
	size_t n = 0;

	if (!fields_have(f, id))
		return 0;
	for (size_t i = 0; i < f->n; i++)
		n += f->v[i].id == id;
	return n;
}

bool field_name_ok(struct slice name)
{
	for (size_t i = 0; i < name.len; i++) {
		if (!char_is_token(name.p[i]))
			return false;
	}
	return name.len > 0;
}

bool field_value_ok(struct slice value)
{
	const char *end = value.p + value.len;

	return chars_find_control(value.p, end) == end;
}

/* The length of the first member: up to a comma outside quotes. A quote that is never closed
 * reaches to the end. */
static size_t field_list_member_len(struct slice s)
{
	bool quoted = false;
	size_t i;

	for (i = 0; i < s.len; i++) {
		if (s.p[i] == '"')
			quoted = !quoted;
		else if (quoted && s.p[i] == '\\')
			i++;
		else if (!quoted && s.p[i] == ',')
			break;
	}
	return i < s.len ? i : s.len;
}

bool field_list_next(struct slice *rest, struct slice *member)
{
	while (rest->len > 0) {
		size_t n = field_list_member_len(*rest);

		*member = slice_trim(slice_first(*rest, n));
		*rest = slice_from(*rest, n < rest->len ? n + 1 : n);
		if (member->len > 0)
			return true;
	}
	return false;
}

bool fields_list_has(const struct fields *f, enum field_id id, struct slice token)
{
	if (!fields_have(f, id))
		return false;
	for (size_t i = 0; i < f->n; i++) {
		struct slice rest = f->v[i].value, member;

		if (f->v[i].id != id)
			continue;
		while (field_list_next(&rest, &member)) {
			if (slice_ieq(member, token))
				return true;
		}
	}
	return false;
}
