/* A growing byte buffer with a ceiling. Errors stick: check `full` once, at the end. */
#pragma once

#include "base/slice.h"

struct strbuf {
	char *p;
	size_t len;
	size_t cap;
	size_t max;
	bool wipe;  /* set after init: memory is wiped before it is given back */
	bool fixed; /* over the caller's memory */
	bool full;  /* something did not fit and was left out */
};

/* max: the ceiling in bytes. Nothing is allocated until something is added. */
void strbuf_init(struct strbuf *b, size_t max);
/* Over size bytes (at least 1) of the caller's: holds size - 1 and never allocates. */
void strbuf_init_fixed(struct strbuf *b, char *mem, size_t size);
void strbuf_fini(struct strbuf *b);
/* Keeps the memory, forgets the content and `full`. */
void strbuf_clear(struct strbuf *b);

/* Each adds all of it or nothing and sets `full`. */
void strbuf_add(struct strbuf *b, struct slice s);
void strbuf_str(struct strbuf *b, const char *s);
void strbuf_char(struct strbuf *b, char c);
void strbuf_u64(struct strbuf *b, uint64_t v);
void strbuf_printf(struct strbuf *b, const char *fmt, ...) PRINTF(2, 3);

/* Removes n bytes (at most len) from the front. */
void strbuf_consume(struct strbuf *b, size_t n);

static inline struct slice strbuf_slice(const struct strbuf *b)
{
	return (struct slice){b->p ? b->p : "", b->len};
}

/* The content with a NUL behind it; valid until the next change. */
const char *strbuf_cstr(struct strbuf *b);

/* Reads the whole of fd, from its current position. 0, a negated errno, or E_LIMIT past max. */
CHECKED int strbuf_read_fd(struct strbuf *b, int fd);
/* The same from offset 0 by pread: the position, which other processes may share, stays. */
CHECKED int strbuf_pread_fd(struct strbuf *b, int fd);
/* Opens, reads and closes a file. As strbuf_read_fd. */
CHECKED int strbuf_read_file(struct strbuf *b, const char *path);
