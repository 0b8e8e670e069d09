/* The search for many texts at once: placeholders in what is sent, keys where they must not go.
 *
 * A shift table over pairs of bytes skips most of the text; where it cannot, the first
 * PATTERN_WINDOW bytes are looked up in a hash of the patterns. */
#pragma once

#include "base/secmem.h"

#define PATTERN_WINDOW 8 /* bytes: the shortest pattern */

struct pattern {
	struct slice text; /* borrowed; at least PATTERN_WINDOW bytes */
	uint32_t id;       /* the caller's */
};

struct pattern_set;

/* mem: where the tables lie, since those of keys narrow the keys down; NULL: ordinary memory.
 * fold: letter case is ignored. NULL when mem has no room. n may be 0. */
struct pattern_set *pattern_set_new(
	struct secmem *mem, bool fold, const struct pattern *patterns, size_t n);
void pattern_set_free(struct pattern_set *s);

/* Finds the first offset at or after from where a pattern stands, and the longest that does. False
 * if there is none. *at, *which: input of pattern_set_next. */
bool pattern_set_find(
	const struct pattern_set *s, struct slice text, size_t from, size_t *at, size_t *which);
/* The next one, not longer, that stands at the same place. */
bool pattern_set_next(const struct pattern_set *s, struct slice text, size_t at, size_t *which);
const struct pattern *pattern_set_get(const struct pattern_set *s, size_t which);
