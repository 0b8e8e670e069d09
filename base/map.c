/* A chained hash map whose entries also stand in a list by time of use.
 *
 * Keys may come from outside (names in queries), so hashing is SipHash-1-3 under a random key of
 * the map: nobody can choose keys that fall into one chain. */
#include "base/map.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/arena.h"
#include "base/pool.h"

#define MAP_BUCKETS_FIRST 16 /* a power of two, as is every later size */

struct map_entry {
	struct map_entry *chain;
	struct map_entry *newer;
	struct map_entry *older;
	void *value;
	uint64_t hash;
	size_t key_len;
	char key[];
};

struct map {
	struct map_entry **buckets;
	size_t n_buckets;
	size_t count;
	size_t max;
	struct map_entry *newest;
	struct map_entry *oldest;
	void (*drop)(void *value);
	struct pool *pool; /* of entries */
	uint64_t seed[2];
};

static uint64_t map_rotate(uint64_t v, unsigned n)
{
	return v << n | v >> (64 - n);
}

static void map_sip_round(uint64_t v[4])
{
	v[0] += v[1];
	v[1] = map_rotate(v[1], 13) ^ v[0];
	v[0] = map_rotate(v[0], 32);
	v[2] += v[3];
	v[3] = map_rotate(v[3], 16) ^ v[2];
	v[0] += v[3];
	v[3] = map_rotate(v[3], 21) ^ v[0];
	v[2] += v[1];
	v[1] = map_rotate(v[1], 17) ^ v[2];
	v[2] = map_rotate(v[2], 32);
}

static void map_sip_word(uint64_t v[4], uint64_t word)
{
	v[3] ^= word;
	map_sip_round(v);
	v[0] ^= word;
}

/* SipHash-1-3 (Aumasson and Bernstein): one round a word, three at the end. */
static uint64_t map_hash(const struct map *m, struct slice key)
{
	uint64_t v[4] = {
		m->seed[0] ^ 0x736f6d6570736575ULL,
		m->seed[1] ^ 0x646f72616e646f6dULL,
		m->seed[0] ^ 0x6c7967656e657261ULL,
		m->seed[1] ^ 0x7465646279746573ULL,
	};
	const size_t whole = key.len & ~(size_t)7;
	uint64_t word;

	for (size_t i = 0; i < whole; i += 8) {
		memcpy(&word, key.p + i, 8);
		map_sip_word(v, le64toh(word));
	}
	word = (uint64_t)key.len << 56;
	for (size_t i = whole; i < key.len; i++)
		word |= (uint64_t)(unsigned char)key.p[i] << (8 * (i - whole));
	map_sip_word(v, word);
	v[2] ^= 0xff;
	for (int i = 0; i < 3; i++)
		map_sip_round(v);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}

struct map *map_new(size_t max, void (*drop)(void *value))
{
	struct map *m = xcalloc(1, sizeof(*m));
	ssize_t n;

	m->max = max;
	m->drop = drop;
	m->pool = pool_new();
	m->n_buckets = MAP_BUCKETS_FIRST;
	m->buckets = xcalloc(m->n_buckets, sizeof(struct map_entry *));
	do {
		n = getrandom(m->seed, sizeof(m->seed), 0);
	} while (n < 0 && errno == EINTR);
	/* A map that can be attacked is worse than none. */
	REQUIRE(n == (ssize_t)sizeof(m->seed));
	return m;
}

static void map_drop(const struct map *m, void *value)
{
	if (m->drop)
		m->drop(value);
}

static void map_entry_free(struct map *m, struct map_entry *e)
{
	pool_put(m->pool, e, sizeof(*e) + e->key_len);
}

void map_free(struct map *m)
{
	struct map_entry *e;

	if (!m)
		return;
	e = m->newest;
	while (e) {
		struct map_entry *older = e->older;

		map_drop(m, e->value);
		map_entry_free(m, e);
		e = older;
	}
	pool_free(m->pool);
	free(m->buckets);
	free(m);
}

static struct map_entry **map_bucket(const struct map *m, uint64_t hash)
{
	return &m->buckets[hash & (m->n_buckets - 1)];
}

/* The place that points at the entry, or at the NULL that ends its chain. */
static struct map_entry **map_place(const struct map *m, struct slice key, uint64_t hash)
{
	struct map_entry **at = map_bucket(m, hash);

	while (*at) {
		struct map_entry *e = *at;

		if (e->hash == hash && slice_eq(slice_make(e->key, e->key_len), key))
			break;
		at = &e->chain;
	}
	return at;
}

static void map_list_add(struct map *m, struct map_entry *e)
{
	e->newer = NULL;
	e->older = m->newest;
	if (m->newest)
		m->newest->newer = e;
	else
		m->oldest = e;
	m->newest = e;
}

static void map_list_remove(struct map *m, struct map_entry *e)
{
	if (e->newer)
		e->newer->older = e->older;
	else
		m->newest = e->older;
	if (e->older)
		e->older->newer = e->newer;
	else
		m->oldest = e->newer;
}

static void map_touch(struct map *m, struct map_entry *e)
{
	if (m->newest == e)
		return;
	map_list_remove(m, e);
	map_list_add(m, e);
}

/* Unlinks the entry at *at, frees it and gives its value. */
static void *map_unlink(struct map *m, struct map_entry **at)
{
	struct map_entry *e = *at;
	void *value = e->value;

	*at = e->chain;
	map_list_remove(m, e);
	m->count--;
	map_entry_free(m, e);
	return value;
}

static void map_evict_oldest(struct map *m)
{
	struct map_entry **at = map_bucket(m, m->oldest->hash);

	while (*at != m->oldest)
		at = &(*at)->chain;
	map_drop(m, map_unlink(m, at));
}

static void map_resize(struct map *m, size_t n_buckets)
{
	free(m->buckets);
	m->n_buckets = n_buckets;
	m->buckets = xcalloc(m->n_buckets, sizeof(struct map_entry *));
	for (struct map_entry *e = m->newest; e; e = e->older) {
		struct map_entry **at = map_bucket(m, e->hash);

		e->chain = *at;
		*at = e;
	}
}

void *map_find(struct map *m, struct slice key)
{
	struct map_entry *e = *map_place(m, key, map_hash(m, key));

	if (!e)
		return NULL;
	map_touch(m, e);
	return e->value;
}

void map_put(struct map *m, struct slice key, void *value)
{
	const uint64_t hash = map_hash(m, key);
	struct map_entry *e = *map_place(m, key, hash);
	struct map_entry **at;

	REQUIRE(value);
	if (e) {
		void *before = e->value;

		e->value = value;
		map_touch(m, e);
		map_drop(m, before);
		return;
	}
	/* The copy comes first: key may lie inside the value that is evicted. */
	e = pool_get(m->pool, sizeof(*e) + key.len);
	e->value = value;
	e->hash = hash;
	e->key_len = key.len;
	if (key.len > 0)
		memcpy(e->key, key.p, key.len);
	if (m->max > 0 && m->count >= m->max)
		map_evict_oldest(m);
	if (m->count >= m->n_buckets)
		map_resize(m, 2 * m->n_buckets);
	at = map_bucket(m, hash);
	e->chain = *at;
	*at = e;
	map_list_add(m, e);
	m->count++;
}

void *map_take(struct map *m, struct slice key)
{
	struct map_entry **at = map_place(m, key, map_hash(m, key));

	return *at ? map_unlink(m, at) : NULL;
}

bool map_remove(struct map *m, struct slice key)
{
	void *value = map_take(m, key);

	if (!value)
		return false;
	map_drop(m, value);
	return true;
}

/* Into another pool, in the order of use. */
static void map_move(struct map *m, void *(*move)(void *value, void *arg), void *arg)
{
	struct pool *fresh = pool_new();
	struct map_entry **end = &m->newest;
	struct map_entry *e = m->newest;

	m->oldest = NULL;
	while (e) {
		struct map_entry *older = e->older;
		size_t size = sizeof(*e) + e->key_len;
		struct map_entry *to = memcpy(pool_get(fresh, size), e, size);

		if (move)
			to->value = move(e->value, arg);
		map_entry_free(m, e);
		to->newer = m->oldest;
		m->oldest = to;
		*end = to;
		end = &to->older;
		e = older;
	}
	pool_free(m->pool);
	m->pool = fresh;
}

void map_fit(struct map *m, void *(*move)(void *value, void *arg), void *arg)
{
	size_t n = MAP_BUCKETS_FIRST;

	if (move || pool_is_sparse(m->pool))
		map_move(m, move, arg);
	while (n < m->count)
		n *= 2;
	map_resize(m, n);
}

size_t map_count(const struct map *m)
{
	return m->count;
}

void map_each(
	const struct map *m, void (*each)(struct slice key, void *value, void *arg), void *arg)
{
	for (const struct map_entry *e = m->newest; e; e = e->older)
		each(slice_make(e->key, e->key_len), e->value, arg);
}
