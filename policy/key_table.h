/* Keys (names, address blocks) to small numbers: the hash table under the policy's indexes.
 *
 * One pass over a name finds every key that is a suffix of it at a label, so a lookup costs the
 * length of the name, whatever the number of keys. */
#pragma once

#include "base/hostname.h"
#include "base/slice.h"

#define KEY_NONE UINT32_MAX
#define KEY_BELOW_MAX (HOSTNAME_MAX / 2) /* dots that a name can have */

struct key_table;

struct key_suffixes {
	uint32_t whole; /* the key equal to the name, or KEY_NONE */
	size_t n;
	uint32_t below[KEY_BELOW_MAX]; /* keys that follow one of its dots, the shortest first */
};

/* n_max: the most keys it will hold. Never NULL. */
struct key_table *key_table_new(size_t n_max);
void key_table_free(struct key_table *t);

/* The number of the key, counted from 0 in the order in which keys came. The bytes are borrowed for
 * the table's life. */
uint32_t key_table_put(struct key_table *t, struct slice key);
/* KEY_NONE if it is not there. */
uint32_t key_table_find(const struct key_table *t, struct slice key);
void key_table_find_suffixes(
	const struct key_table *t, struct slice name, struct key_suffixes *out);
