/* Borrowed bytes: a pointer and a length, never assumed to end in NUL.
 *
 * All text from outside is a slice of the buffer it came in. Letter case is ASCII only. */
#pragma once

#include <stdbool.h>
#include <string.h>

#include "base/attr.h"

struct slice {
	const char *p;
	size_t len;
};

#define SLICE(literal) ((struct slice){(literal), sizeof(literal) - 1})
#define SLICE_EMPTY ((struct slice){"", 0})
/* For printf: `"%.*s", SLICE_FMT(s)`. */
#define SLICE_FMT(s) (int)(s).len, (s).p

static inline struct slice slice_make(const char *p, size_t len)
{
	return (struct slice){p, len};
}

static inline struct slice slice_str(const char *s)
{
	return (struct slice){s, strlen(s)};
}

/* From offset `from` (at most len) to the end. */
static inline struct slice slice_from(struct slice s, size_t from)
{
	return (struct slice){s.p + from, s.len - from};
}

static inline struct slice slice_first(struct slice s, size_t n)
{
	return (struct slice){s.p, n < s.len ? n : s.len};
}

static inline bool slice_eq(struct slice a, struct slice b)
{
	/* An empty slice may hold NULL, which memcmp must not be given. */
	return a.len == b.len && (a.len == 0 || memcmp(a.p, b.p, a.len) == 0);
}

static inline char ascii_lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
}

static inline bool ascii_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Value of a hexadecimal digit, or -1. */
static inline int ascii_hex(char c)
{
	if (ascii_digit(c))
		return c - '0';
	c = ascii_lower(c);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Equal but for ASCII letter case. */
bool slice_ieq(struct slice a, struct slice b);
/* Field names that an origin behind CGI or WSGI reads as one (RFC 3875 4.1.18): letter case is
 * ignored, and `_` is `-`. */
bool slice_ieq_name(struct slice a, struct slice b);
bool slice_starts(struct slice s, struct slice prefix);
bool slice_ends(struct slice s, struct slice suffix);

/* Offset of the first c, or s.len if there is none. */
size_t slice_find_char(struct slice s, char c);
/* Offset of the last c, or s.len if there is none. */
size_t slice_rfind_char(struct slice s, char c);
/* Offset of the first occurrence of needle (not empty), or s.len. */
size_t slice_find(struct slice s, struct slice needle);

/* Without leading and trailing spaces and tabs (OWS, RFC 9110 5.6.3). */
struct slice slice_trim(struct slice s);
/* Without leading and trailing ASCII white space (space, \t, \n, \v, \f, \r). */
struct slice slice_strip(struct slice s);

/* Cuts the part before the first sep off *rest and returns it; *rest moves past sep. Without a
 * sep the whole of *rest is returned and *rest becomes {NULL, 0}: loop `while (rest.p)`. */
struct slice slice_cut(struct slice *rest, char sep);

/* Decimal digits only, no sign, no blank, at least one, no overflow. */
CHECKED bool slice_to_u64(struct slice s, uint64_t *out);

/* Copies into buf with a NUL. False, and an empty buf, if it does not fit or s holds a NUL. */
CHECKED bool slice_to_cstr(struct slice s, char *buf, size_t size);
