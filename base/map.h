/* A hash map from bytes to pointers that drops the least recently used entry at its ceiling.
 * Keys are copied. Hashing is seeded at random for each map (no collisions to order). */
#pragma once

#include "base/slice.h"

struct map;

/* max: entries at most, 0 for no ceiling. drop: called for each value that leaves (evicted,
 * replaced, removed, or at map_free), may be NULL. */
struct map *map_new(size_t max, void (*drop)(void *value));
void map_free(struct map *m);

/* The value, now the most recently used; or NULL. */
void *map_find(struct map *m, struct slice key);
/* value must not be NULL. Replaces, and drops what was there even if it is the same
 * pointer: each put hands one reference over. */
void map_put(struct map *m, struct slice key, void *value);
/* False if there was none. */
bool map_remove(struct map *m, struct slice key);
/* The value moves to the caller, without drop; NULL if there was none. */
void *map_take(struct map *m, struct slice key);
size_t map_count(const struct map *m);
/* Gives back the room of entries that have left, which a map else keeps for the next ones. move,
 * may be NULL: the value's new place; the old one is left to it. Visits every entry: for sweeps,
 * not for each removal. */
void map_fit(struct map *m, void *(*move)(void *value, void *arg), void *arg);

/* Calls each(key, value, arg) for every entry, most recently used first. each must not change
 * the map. */
void map_each(
	const struct map *m, void (*each)(struct slice key, void *value, void *arg), void *arg);
