/* The search for keys in what comes back: fields and bodies of every bound host, streaming,
 * overwritten with `*` of equal length (design 6).
 *
 * A shift table over the first 16 bytes of each form finds candidates, which are compared where the
 * form lies: table and forms are in locked memory, since the table alone narrows a key down.
 * Shorter forms go by a filter of their first bytes. Letter case is ignored.
 *
 * What is held back at the end of a piece depends on the text's class only: the trailing run of
 * token characters, up to the longest form. Never on whether it resembles a key: held-back sizes
 * otherwise spell the key out. */
#pragma once

#include "base/secmem.h"

struct redact_table;

/* Collects forms (copied into mem), then compiles. E_FULL when mem has no room. Forms shorter than
 * KEY_FORM_MIN are left out. A table that failed can only be freed. */
struct redact_table *redact_table_new(struct secmem *mem);
CHECKED int redact_table_add(struct redact_table *t, struct slice form);
CHECKED int redact_table_compile(struct redact_table *t);
void redact_table_free(struct redact_table *t);
size_t redact_table_longest(const struct redact_table *t);

/* A whole text at once (a field value, a reason phrase): overwrites in place; true if anything was.
 */
bool redact_text(const struct redact_table *t, char *p, size_t len);

/* A stream. What is held lies in memory of the table. */
struct redact_stream {
	const struct redact_table *table;
	char *held; /* locked */
	size_t held_len;
	size_t covered; /* bytes of held, from its start, that a match which is passed on covers */
	bool found;     /* something was overwritten */
};

CHECKED int redact_stream_init(struct redact_stream *s, const struct redact_table *t);
void redact_stream_fini(struct redact_stream *s);
/* Searches held + p[0..len) and passes on what is certain: put() at most twice, pieces valid during
 * the call, in order. p may be changed. end: nothing follows, everything is passed on. */
void redact_stream_feed(struct redact_stream *s, char *p, size_t len, bool end,
	void (*put)(void *arg, struct slice piece), void *arg);
