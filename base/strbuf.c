/* A growing byte buffer with a ceiling, and the reading of a descriptor or file into one.
 *
 * The capacity doubles, so adding n bytes costs O(n) in all, and it never passes max by more than
 * the byte kept for a NUL. The caller looks at `full` once it is done. */
#include "base/strbuf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/err.h"

#define STRBUF_FIRST 64   /* a header field or a log detail fits */
#define STRBUF_READ 16384 /* room asked for before each read(2) */

void strbuf_init(struct strbuf *b, size_t max)
{
	/* One byte past max is kept for the NUL. */
	*b = (struct strbuf){.max = max < SIZE_MAX ? max : SIZE_MAX - 1};
}

void strbuf_init_fixed(struct strbuf *b, char *mem, size_t size)
{
	REQUIRE(size > 0);
	*b = (struct strbuf){.p = mem, .cap = size, .max = size - 1, .fixed = true};
}

static void strbuf_drop(struct strbuf *b)
{
	if (b->wipe && b->p)
		explicit_bzero(b->p, b->cap);
	free(b->p);
}

void strbuf_fini(struct strbuf *b)
{
	if (b->fixed) {
		strbuf_clear(b);
		return;
	}
	strbuf_drop(b);
	strbuf_init(b, b->max);
}

void strbuf_clear(struct strbuf *b)
{
	b->len = 0;
	b->full = false;
}

/* Makes room for len bytes of content and a NUL, len being at most max. */
static void strbuf_grow(struct strbuf *b, size_t len)
{
	size_t cap = b->cap ? b->cap : STRBUF_FIRST;

	if (len < b->cap)
		return;
	while (cap <= len)
		cap = cap <= b->max / 2 ? cap * 2 : b->max + 1;
	if (cap > b->max + 1)
		cap = b->max + 1;
	if (b->wipe) {
		/* realloc would leave a copy behind */
		char *p = xmalloc(cap);

		if (b->len > 0)
			memcpy(p, b->p, b->len);
		strbuf_drop(b);
		b->p = p;
	} else {
		b->p = xrealloc(b->p, cap);
	}
	b->cap = cap;
}

/* Room for n more bytes, or `full` and false. */
static bool strbuf_room(struct strbuf *b, size_t n)
{
	if (n > b->max - b->len) {
		b->full = true;
		return false;
	}
	strbuf_grow(b, b->len + n);
	return true;
}

void strbuf_add(struct strbuf *b, struct slice s)
{
	if (s.len == 0 || !strbuf_room(b, s.len))
		return;
	memcpy(b->p + b->len, s.p, s.len);
	b->len += s.len;
}

void strbuf_str(struct strbuf *b, const char *s)
{
	strbuf_add(b, slice_str(s));
}

void strbuf_char(struct strbuf *b, char c)
{
	if (strbuf_room(b, 1))
		b->p[b->len++] = c;
}

void strbuf_u64(struct strbuf *b, uint64_t v)
{
	char digits[20];
	size_t at = sizeof(digits);

	do {
		digits[--at] = (char)('0' + v % 10);
		v /= 10;
	} while (v > 0);
	strbuf_add(b, slice_make(digits + at, sizeof(digits) - at));
}

void strbuf_printf(struct strbuf *b, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0) {
		b->full = true;
		return;
	}
	if (!strbuf_room(b, (size_t)n))
		return;
	va_start(ap, fmt);
	n = vsnprintf(b->p + b->len, b->cap - b->len, fmt, ap);
	va_end(ap);
	if (n > 0)
		b->len += (size_t)n;
}

void strbuf_consume(struct strbuf *b, size_t n)
{
	REQUIRE(n <= b->len);
	b->len -= n;
	if (b->len > 0 && n > 0)
		memmove(b->p, b->p + n, b->len);
}

const char *strbuf_cstr(struct strbuf *b)
{
	strbuf_grow(b, b->len);
	b->p[b->len] = '\0';
	return b->p;
}

int strbuf_read_fd(struct strbuf *b, int fd)
{
	for (;;) {
		size_t want = b->max - b->len;
		ssize_t n;

		if (want > STRBUF_READ)
			want = STRBUF_READ;
		strbuf_grow(b, b->len + want);
		/* The byte kept for the NUL tells a file of exactly max from a longer one. */
		n = read(fd, b->p + b->len, want + 1);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return 0;
		if ((size_t)n > b->max - b->len) {
			b->len = b->max;
			b->full = true;
			return E_LIMIT;
		}
		b->len += (size_t)n;
	}
}

int strbuf_pread_fd(struct strbuf *b, int fd)
{
	char chunk[STRBUF_READ];
	off_t at = 0;
	ssize_t n;

	for (;;) {
		n = pread(fd, chunk, sizeof(chunk), at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : 0;
		strbuf_add(b, slice_make(chunk, (size_t)n));
		if (b->full)
			return E_LIMIT;
		at += n;
	}
}

int strbuf_read_file(struct strbuf *b, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int ret;

	if (fd < 0)
		return -errno;
	ret = strbuf_read_fd(b, fd);
	(void)close(fd);
	return ret;
}
