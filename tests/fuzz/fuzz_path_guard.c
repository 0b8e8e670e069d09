/* Paths: the guard against a second reading of the same rules, written another way.
 *
 * covers: vault/path_guard.c */
#include <stdlib.h>

#include "base/arena.h"
#include "vault/path_guard.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

#define ROUNDS (PATH_GUARD_ROUNDS_MAX - 1)

/* A copy with a NUL, one round decoded. */
static char *decoded(const char *s, size_t len, size_t *n)
{
	char *to = xmalloc(len + 1);

	*n = 0;
	for (size_t i = 0; i < len; i++) {
		to[*n] = s[i];
		if (s[i] == '%' && i + 2 < len && ascii_hex(s[i + 1]) >= 0 &&
			ascii_hex(s[i + 2]) >= 0) {
			to[*n] = (char)(16 * ascii_hex(s[i + 1]) + ascii_hex(s[i + 2]));
			i += 2;
		}
		++*n;
	}
	to[*n] = '\0';
	return to;
}

/* Is text between two slashes, or between one and an end? */
static bool has_segment(const char *s, size_t len, const char *text, bool parameters)
{
	size_t n = strlen(text);

	for (size_t i = 0; i + n <= len; i++) {
		char next = i + n < len ? s[i + n] : '/';

		if (memcmp(s + i, text, n) == 0 && (i == 0 || s[i - 1] == '/') &&
			(next == '/' || (parameters && next == ';')))
			return true;
	}
	return false;
}

static bool has_text(const char *s, size_t len, const char *text)
{
	return slice_find(slice_make(s, len), slice_str(text)) < len;
}

/* What the wide and strict modes refuse in one form. */
static bool form_ok(const char *s, size_t len, enum path_guard_mode mode)
{
	bool narrow = mode == PATH_GUARD_NARROW;

	if (memchr(s, '\\', len) || has_segment(s, len, "..", narrow))
		return false;
	if (mode != PATH_GUARD_WIDE && has_segment(s, len, ".", narrow))
		return false;
	if (narrow && (memchr(s, '\0', len) || memchr(s, '\r', len) || memchr(s, '\n', len)))
		return false;
	return mode != PATH_GUARD_STRICT || !(has_text(s, len, "%2f") || has_text(s, len, "%2F"));
}

/* Everything but over-long UTF-8, `%u` and raw bytes, of which narrow refuses more. */
static bool naive_ok(const char *path, size_t len, enum path_guard_mode mode)
{
	char *now = decoded("", 0, &(size_t){0});
	bool ok = form_ok(path, len, mode);
	size_t rounds = 0;
	size_t now_len = len;

	free(now);
	now = xmalloc(len + 1);
	memcpy(now, path, len);
	while (ok) {
		size_t n;
		char *next = decoded(now, now_len, &n);
		bool same = n == now_len;

		free(now);
		now = next;
		now_len = n;
		if (same)
			break;
		ok = ++rounds <= ROUNDS && form_ok(now, now_len, mode);
	}
	free(now);
	return ok;
}

static bool count(void *arg, struct slice form)
{
	(void)form;
	++*(size_t *)arg;
	return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	struct slice path = slice_make((const char *)p, len);
	char *work = xmalloc(len + 1);
	size_t asked = 0;
	const struct path_guard_same same = {count, &asked};
	bool narrow = path_guard_ok(path, PATH_GUARD_NARROW, work, &same);

	REQUIRE(asked <= PATH_GUARD_ROUNDS_MAX);
	REQUIRE(path_guard_ok(path, PATH_GUARD_WIDE, work, NULL) ==
		naive_ok(path.p, len, PATH_GUARD_WIDE));
	REQUIRE(path_guard_ok(path, PATH_GUARD_STRICT, work, NULL) ==
		naive_ok(path.p, len, PATH_GUARD_STRICT));
	REQUIRE(!narrow || naive_ok(path.p, len, PATH_GUARD_NARROW));
	free(work);
	return 0;
}
