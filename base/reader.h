/* Reads a wire format from a slice and remembers the first failure (habit 1.7): read on without
 * checks, look at `bad` once at the end. After a failure everything reads as zero or empty. */
#pragma once

#include "base/slice.h"

struct reader {
	const uint8_t *p;
	size_t left;
	bool bad;
};

static inline struct reader reader_make(struct slice s)
{
	return (struct reader){(const uint8_t *)s.p, s.len, false};
}

static inline const uint8_t *reader_take(struct reader *r, size_t n)
{
	const uint8_t *p = r->p;

	if (r->bad || n > r->left) {
		r->bad = true;
		r->left = 0;
		return NULL;
	}
	r->p += n;
	r->left -= n;
	return p;
}

static inline uint8_t reader_u8(struct reader *r)
{
	const uint8_t *p = reader_take(r, 1);

	return p ? p[0] : 0;
}

static inline uint16_t reader_u16(struct reader *r)
{
	const uint8_t *p = reader_take(r, 2);

	return p ? (uint16_t)(p[0] << 8 | p[1]) : 0;
}

static inline uint32_t reader_u24(struct reader *r)
{
	const uint8_t *p = reader_take(r, 3);

	return p ? (uint32_t)p[0] << 16 | (uint32_t)p[1] << 8 | p[2] : 0;
}

static inline uint32_t reader_u32(struct reader *r)
{
	const uint8_t *p = reader_take(r, 4);

	return p ? (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3] : 0;
}

static inline struct slice reader_slice(struct reader *r, size_t n)
{
	const uint8_t *p = reader_take(r, n);

	return p ? (struct slice){(const char *)p, n} : SLICE_EMPTY;
}

/* A reader over the next n bytes of r. */
static inline struct reader reader_sub(struct reader *r, size_t n)
{
	const uint8_t *p = reader_take(r, n);

	return p ? (struct reader){p, n, false} : (struct reader){NULL, 0, true};
}
