/* Decodes a path until nothing changes and looks at it after each round.
 *
 * An origin may decode never, once or twice, and may resolve dot segments before or after: whatever
 * it does, it sees one of the forms that are looked at here. */
#include "vault/path_guard.h"

static bool path_guard_is_dots(struct slice segment, enum path_guard_mode mode)
{
	bool parameters = mode == PATH_GUARD_NARROW && slice_find_char(segment, ';') < segment.len;

	/* Some servers cut `;x` off a segment before they resolve its dots. */
	if (parameters)
		segment = slice_first(segment, slice_find_char(segment, ';'));
	if (slice_eq(segment, SLICE("..")))
		return true;
	return mode != PATH_GUARD_WIDE && slice_eq(segment, SLICE("."));
}

/* A byte that no reader may get out of a path by reading broken UTF-8 generously. */
static bool path_guard_is_hidden(uint32_t c)
{
	return c == '/' || c == '\\' || c == '.' || c == '%' || c == 0 || c == '\r' || c == '\n';
}

/* What a reader that does not check continuation bytes makes of the bytes at p: is it an ASCII
 * character that matters here? */
static bool path_guard_is_overlong(const char *p, size_t len)
{
	uint8_t lead = (uint8_t)p[0];
	size_t more;
	uint32_t c;

	if (lead < 0xc0 || lead > 0xfd)
		return false;
	more = lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : lead < 0xf8 ? 3 : lead < 0xfc ? 4 : 5;
	if (len <= more)
		return false;
	c = lead & (0x3fU >> more);
	for (size_t i = 1; i <= more; i++)
		c = c << 6 | ((uint8_t)p[i] & 0x3f);
	return path_guard_is_hidden(c);
}

/* `%u002f`, which some servers decode as UTF-16. */
static bool path_guard_is_utf16(struct slice s)
{
	if (s.len < 6 || s.p[0] != '%' || ascii_lower(s.p[1]) != 'u')
		return false;
	for (size_t i = 2; i < 6; i++)
		if (ascii_hex(s.p[i]) < 0)
			return false;
	return true;
}

static bool path_guard_narrow_ok(struct slice path)
{
	for (size_t i = 0; i < path.len; i++) {
		char c = path.p[i];

		if (c == '\0' || c == '\r' || c == '\n')
			return false;
		if (path_guard_is_overlong(path.p + i, path.len - i) ||
			path_guard_is_utf16(slice_from(path, i)))
			return false;
	}
	return true;
}

static bool path_guard_has_separator(struct slice path)
{
	for (size_t i = 0; i + 2 < path.len; i++)
		if (path.p[i] == '%' && path.p[i + 1] == '2' && ascii_lower(path.p[i + 2]) == 'f')
			return true;
	return false;
}

static bool path_guard_form_ok(struct slice path, enum path_guard_mode mode)
{
	struct slice rest = path;

	if (slice_find_char(path, '\\') < path.len)
		return false;
	do {
		if (path_guard_is_dots(slice_cut(&rest, '/'), mode))
			return false;
	} while (rest.p);
	switch (mode) {
	case PATH_GUARD_WIDE:
		return true;
	case PATH_GUARD_NARROW:
		return path_guard_narrow_ok(path);
	case PATH_GUARD_STRICT:
		return !path_guard_has_separator(path);
	}
	return false;
}

static bool path_guard_raw_bytes_ok(struct slice path)
{
	for (size_t i = 0; i < path.len; i++)
		if ((uint8_t)path.p[i] < 0x21 || (uint8_t)path.p[i] > 0x7e)
			return false;
	return true;
}

/* One round, in place; false if there was nothing to decode. */
static bool path_guard_decode(char *p, size_t *len)
{
	size_t n = 0;

	for (size_t i = 0; i < *len; n++) {
		int high = *len - i > 2 && p[i] == '%' ? ascii_hex(p[i + 1]) : -1;
		int low = high >= 0 ? ascii_hex(p[i + 2]) : -1;

		p[n] = low >= 0 ? (char)(high << 4 | low) : p[i];
		i += low >= 0 ? 3 : 1;
	}
	if (n == *len)
		return false;
	*len = n;
	return true;
}

bool path_guard_ok(struct slice path, enum path_guard_mode mode, char *work,
	const struct path_guard_same *same)
{
	size_t len = path.len;

	if (mode == PATH_GUARD_NARROW && !path_guard_raw_bytes_ok(path))
		return false;
	if (!path_guard_form_ok(path, mode))
		return false;
	if (slice_find_char(path, '%') == path.len)
		return true;
	memcpy(work, path.p, path.len);
	for (size_t round = 0; round < PATH_GUARD_ROUNDS_MAX; round++) {
		if (!path_guard_decode(work, &len))
			return true;
		if (!path_guard_form_ok(slice_make(work, len), mode))
			return false;
		if (same && !same->same(same->arg, slice_make(work, len)))
			return false;
	}
	return false;
}
