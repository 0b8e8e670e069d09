/* Character classes of HTTP (RFC 9110 5.6) and searches for bytes that end a run of text.
 *
 * Private to the parsers of this folder. Text is searched eight bytes at a time: every head is read
 * twice, once for its end and once for its fields, and both are mostly these loops. */
#pragma once

#include <endian.h>

#include "base/slice.h"

#define CHAR_TOKEN BIT(0)    /* tchar */
#define CHAR_USERINFO BIT(1) /* RFC 3986 3.2.1, with '%' for any percent-encoding */

extern const uint8_t char_classes[256];

static inline bool char_is_token(char c)
{
	return (char_classes[(uint8_t)c] & CHAR_TOKEN) != 0;
}

static inline bool char_is_ows(char c)
{
	return c == ' ' || c == '\t';
}

/* The first byte in [p, end) that is less than low (at most 0x80) or DEL, or end. */
static inline const char *chars_find_below(const char *p, const char *end, uint8_t low)
{
	const uint64_t ones = ~UINT64_C(0) / 255, tops = ones * 0x80;

	/* In each sum a borrow starts only at a byte that fits, so the lowest bit set is right
	 * and those above it may not be. */
	for (; end - p >= 8; p += 8) {
		uint64_t v, del, hit;

		memcpy(&v, p, sizeof(v));
		v = le64toh(v);
		del = v ^ (ones * 0x7f);
		hit = (((v - ones * low) & ~v) | ((del - ones) & ~del)) & tops;
		if (hit != 0)
			return p + __builtin_ctzll(hit) / 8;
	}
	for (; p < end; p++) {
		if ((uint8_t)*p < low || *p == 0x7f)
			break;
	}
	return p;
}

/* The first control byte other than tab, or end. */
static inline const char *chars_find_control(const char *p, const char *end)
{
	p = chars_find_below(p, end, 0x20);
	while (p < end && *p == '\t')
		p = chars_find_below(p + 1, end, 0x20);
	return p;
}
