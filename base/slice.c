/* Compare, search and cut borrowed bytes.
 *
 * These run several times for each header field of each request, so they work in place and rely on
 * the C library where it is fast. A length of zero never reaches the C library: the pointer of an
 * empty slice may be NULL. */
#include "base/slice.h"

bool slice_ieq(struct slice a, struct slice b)
{
	if (a.len != b.len)
		return false;
	for (size_t i = 0; i < a.len; i++) {
		if (a.p[i] != b.p[i] && ascii_lower(a.p[i]) != ascii_lower(b.p[i]))
			return false;
	}
	return true;
}

static char name_char(char c)
{
	return c == '_' ? '-' : ascii_lower(c);
}

bool slice_ieq_name(struct slice a, struct slice b)
{
	if (a.len != b.len)
		return false;
	for (size_t i = 0; i < a.len; i++) {
		if (name_char(a.p[i]) != name_char(b.p[i]))
			return false;
	}
	return true;
}

bool slice_starts(struct slice s, struct slice prefix)
{
	if (prefix.len == 0)
		return true;
	return s.len >= prefix.len && memcmp(s.p, prefix.p, prefix.len) == 0;
}

bool slice_ends(struct slice s, struct slice suffix)
{
	if (suffix.len == 0)
		return true;
	return s.len >= suffix.len && memcmp(s.p + (s.len - suffix.len), suffix.p, suffix.len) == 0;
}

size_t slice_find_char(struct slice s, char c)
{
	const char *at;

	if (s.len == 0)
		return 0;
	at = memchr(s.p, c, s.len);
	return at ? (size_t)(at - s.p) : s.len;
}

size_t slice_rfind_char(struct slice s, char c)
{
	const char *at;

	if (s.len == 0)
		return 0;
	at = memrchr(s.p, c, s.len);
	return at ? (size_t)(at - s.p) : s.len;
}

size_t slice_find(struct slice s, struct slice needle)
{
	const char *at;

	if (s.len < needle.len || s.len == 0)
		return s.len;
	at = memmem(s.p, s.len, needle.p, needle.len);
	return at ? (size_t)(at - s.p) : s.len;
}

static bool slice_is_ows(char c)
{
	return c == ' ' || c == '\t';
}

static bool slice_is_space(char c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}

struct slice slice_trim(struct slice s)
{
	while (s.len > 0 && slice_is_ows(s.p[0])) {
		s.p++;
		s.len--;
	}
	while (s.len > 0 && slice_is_ows(s.p[s.len - 1]))
		s.len--;
	return s;
}

struct slice slice_strip(struct slice s)
{
	while (s.len > 0 && slice_is_space(s.p[0])) {
		s.p++;
		s.len--;
	}
	while (s.len > 0 && slice_is_space(s.p[s.len - 1]))
		s.len--;
	return s;
}

struct slice slice_cut(struct slice *rest, char sep)
{
	struct slice all = *rest;
	size_t at = slice_find_char(all, sep);

	if (at == all.len)
		*rest = slice_make(NULL, 0);
	else
		*rest = slice_from(all, at + 1);
	return slice_first(all, at);
}

bool slice_to_u64(struct slice s, uint64_t *out)
{
	uint64_t v = 0;

	if (s.len == 0)
		return false;
	for (size_t i = 0; i < s.len; i++) {
		uint64_t digit;

		if (!ascii_digit(s.p[i]))
			return false;
		digit = (uint64_t)(s.p[i] - '0');
		if (v > (UINT64_MAX - digit) / 10)
			return false;
		v = v * 10 + digit;
	}
	*out = v;
	return true;
}

bool slice_to_cstr(struct slice s, char *buf, size_t size)
{
	if (size == 0)
		return false;
	buf[0] = '\0';
	if (s.len >= size)
		return false;
	if (s.len == 0)
		return true;
	if (memchr(s.p, '\0', s.len))
		return false;
	memcpy(buf, s.p, s.len);
	buf[s.len] = '\0';
	return true;
}
