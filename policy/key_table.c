/* Open addressing over a polynomial hash modulo 2^61 - 1 at a secret point.
 *
 * The hash runs from the last byte to the first, so that the hash of every suffix falls out on the
 * way. The point is random for each table: two keys chosen without knowing it collide with
 * probability length / 2^61, so nobody can write a policy that makes lookups slow. */
#include "policy/key_table.h"

#include <stdlib.h>

#include "base/arena.h"

#define KEY_PRIME ((UINT64_C(1) << 61) - 1)

struct key_entry {
	uint64_t hash;
	struct slice key;
};

struct key_table {
	uint64_t point;
	size_t n, max;
	size_t mask;
	struct key_entry *entries;
	uint32_t *slots; /* numbers, or KEY_NONE */
};

static uint64_t key_hash_step(uint64_t hash, uint64_t point, char c)
{
	unsigned __int128 x = (unsigned __int128)hash * point + (uint8_t)c + 1;
	uint64_t sum = (uint64_t)(x & KEY_PRIME) + (uint64_t)(x >> 61);

	return sum >= KEY_PRIME ? sum - KEY_PRIME : sum;
}

static uint64_t key_hash(const struct key_table *t, struct slice key)
{
	uint64_t hash = 0;

	for (size_t i = key.len; i > 0; i--)
		hash = key_hash_step(hash, t->point, key.p[i - 1]);
	return hash;
}

struct key_table *key_table_new(size_t n_max)
{
	struct key_table *t = xcalloc(1, sizeof(*t));
	size_t n_slots = 4;

	REQUIRE(n_max < INT32_MAX);
	/* At most half full: probes stay short. */
	while (n_slots < 2 * n_max)
		n_slots *= 2;
	t->max = n_max;
	t->mask = n_slots - 1;
	t->entries = xcalloc(n_max ? n_max : 1, sizeof(*t->entries));
	t->slots = xmalloc(n_slots * sizeof(*t->slots));
	memset(t->slots, 0xff, n_slots * sizeof(*t->slots));
	arc4random_buf(&t->point, sizeof(t->point));
	t->point = t->point % (KEY_PRIME - 2) + 2;
	return t;
}

void key_table_free(struct key_table *t)
{
	if (!t)
		return;
	free(t->entries);
	free(t->slots);
	free(t);
}

/* The slot of the key, or the empty one where it belongs. */
static uint32_t *key_table_slot(const struct key_table *t, uint64_t hash, struct slice key)
{
	for (size_t i = hash & t->mask;; i = (i + 1) & t->mask) {
		const struct key_entry *e;

		if (t->slots[i] == KEY_NONE)
			return &t->slots[i];
		e = &t->entries[t->slots[i]];
		if (e->hash == hash && slice_eq(e->key, key))
			return &t->slots[i];
	}
}

uint32_t key_table_put(struct key_table *t, struct slice key)
{
	uint64_t hash = key_hash(t, key);
	uint32_t *slot = key_table_slot(t, hash, key);

	if (*slot == KEY_NONE) {
		REQUIRE(t->n < t->max);
		t->entries[t->n] = (struct key_entry){hash, key};
		*slot = (uint32_t)t->n++;
	}
	return *slot;
}

uint32_t key_table_find(const struct key_table *t, struct slice key)
{
	return *key_table_slot(t, key_hash(t, key), key);
}

void key_table_find_suffixes(const struct key_table *t, struct slice name, struct key_suffixes *out)
{
	uint64_t hash = 0;

	out->n = 0;
	for (size_t i = name.len; i > 0; i--) {
		if (name.p[i - 1] == '.' && out->n < KEY_BELOW_MAX) {
			uint32_t number = *key_table_slot(t, hash, slice_from(name, i));

			if (number != KEY_NONE)
				out->below[out->n++] = number;
		}
		hash = key_hash_step(hash, t->point, name.p[i - 1]);
	}
	out->whole = *key_table_slot(t, hash, name);
}
