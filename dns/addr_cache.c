/* Keeps answers until their time is over, and static names until they are replaced.
 *
 * Before it: resolver, which puts in what c-ares found. After it: resolver_find, once for each
 * request of the proxy. An answer past its time stays until it is replaced, pushed out or swept, so
 * that finding frees nothing and a borrowed answer stays whole. */
#include "dns/addr_cache.h"

#include <malloc.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/hostname.h"
#include "base/map.h"
#include "base/pool.h"
#include "dns/resolver.h"
#include "dns/word.h"

/* Static names. A list for blocking advertisements has more, but it has no place here. */
#define ADDR_CACHE_HOSTS_MAX 16384

struct addr_cache {
	struct map *answers; /* entries of our own */
	struct map *hosts;   /* counted ones */
	struct pool *pool;   /* of our own entries */
	uint64_t last_number;
};

static size_t addr_entry_add(struct netaddr *v, size_t n, const struct netaddr *addr)
{
	size_t i;

	for (i = 0; i < n; i++)
		if (netaddr_eq(&v[i], addr))
			return n;
	if (n == RESOLVER_ADDRS_MAX)
		return n;
	v[n] = *addr;
	return n + 1;
}

/* Writes a and b by turns, beginning with a; what one has more follows at the end. */
static size_t addr_entry_weave(struct netaddr *to, const struct netaddr *a, size_t n_a,
	const struct netaddr *b, size_t n_b)
{
	size_t n = 0;
	size_t i;

	for (i = 0; i < RESOLVER_ADDRS_MAX; i++) {
		if (i < n_a && n < RESOLVER_ADDRS_MAX)
			to[n++] = a[i];
		if (i < n_b && n < RESOLVER_ADDRS_MAX)
			to[n++] = b[i];
	}
	return n;
}

struct addr_entry *addr_entry_new(int err, const struct netaddr *addrs, size_t n, bool v6_first)
{
	struct netaddr v4[RESOLVER_ADDRS_MAX];
	struct netaddr v6[RESOLVER_ADDRS_MAX];
	struct netaddr woven[RESOLVER_ADDRS_MAX];
	struct addr_entry *e;
	size_t n_v4 = 0;
	size_t n_v6 = 0;
	size_t i;

	for (i = 0; i < n; i++) {
		if (netaddr_is_v4(&addrs[i]))
			n_v4 = addr_entry_add(v4, n_v4, &addrs[i]);
		else
			n_v6 = addr_entry_add(v6, n_v6, &addrs[i]);
	}
	if (v6_first)
		n = addr_entry_weave(woven, v6, n_v6, v4, n_v4);
	else
		n = addr_entry_weave(woven, v4, n_v4, v6, n_v6);
	e = xcalloc(1, sizeof(*e) + n * sizeof(e->addrs[0]));
	e->refs = 1;
	e->err = err;
	e->n = n;
	for (i = 0; i < n; i++)
		e->addrs[i] = woven[i];
	return e;
}

static size_t addr_entry_size(const struct addr_entry *e)
{
	return sizeof(*e) + e->n * sizeof(e->addrs[0]);
}

struct addr_entry *addr_entry_ref(struct addr_entry *e)
{
	size_t size = addr_entry_size(e);

	if (e->owner) {
		e = memcpy(xmalloc(size), e, size);
		e->owner = NULL;
		e->refs = 0;
	}
	e->refs++;
	return e;
}

void addr_entry_unref(struct addr_entry *e)
{
	if (!e || --e->refs > 0)
		return;
	free(e);
}

static void addr_cache_drop(void *value)
{
	struct addr_entry *e = value;

	if (e->owner)
		pool_put(e->owner->pool, e, addr_entry_size(e));
	else
		addr_entry_unref(e);
}

struct addr_cache *addr_cache_new(void)
{
	struct addr_cache *c = xcalloc(1, sizeof(*c));

	c->answers = map_new(RESOLVER_CACHE_MAX, addr_cache_drop);
	c->hosts = map_new(ADDR_CACHE_HOSTS_MAX, addr_cache_drop);
	c->pool = pool_new();
	return c;
}

void addr_cache_free(struct addr_cache *c)
{
	if (!c)
		return;
	map_free(c->answers);
	map_free(c->hosts);
	pool_free(c->pool);
	free(c);
}

struct addr_entry *addr_cache_find(struct addr_cache *c, struct slice name)
{
	/* Static names win all the same: no answer is ever kept for one (put, set_hosts). So the
	 * request that finds its answer pays one look-up, not two. */
	struct addr_entry *e = map_find(c->answers, name);

	if (e && clock_mono_ms() < e->expires_ms)
		return e;
	return map_find(c->hosts, name);
}

struct addr_entry *addr_cache_peek(struct addr_cache *c, struct slice name)
{
	return map_find(c->answers, name);
}

struct addr_entry *addr_cache_put(struct addr_cache *c, struct slice name, struct addr_entry *e)
{
	struct addr_entry *fixed = map_find(c->hosts, name);
	size_t size = addr_entry_size(e);
	struct addr_entry *kept;

	if (fixed)
		return fixed;
	kept = memcpy(pool_get(c->pool, size), e, size);
	kept->owner = c;
	kept->number = ++c->last_number;
	map_put(c->answers, name, kept);
	return kept;
}

struct addr_cache_old {
	uint64_t now_ms;
	size_t n;
	struct slice *keys;
};

static void addr_cache_see(struct slice key, void *value, void *arg)
{
	const struct addr_entry *e = value;
	struct addr_cache_old *old = arg;

	if (e->expires_ms <= old->now_ms)
		old->keys[old->n++] = key;
}

static void *addr_cache_move(void *value, void *arg)
{
	struct addr_entry *from = value;
	size_t size = addr_entry_size(from);
	struct addr_entry *to = memcpy(pool_get(arg, size), from, size);

	pool_put(from->owner->pool, from, size);
	return to;
}

/* When most of what there was has gone, what stays moves together. */
static void addr_cache_fit(struct addr_cache *c)
{
	struct pool *fresh;

	if (!pool_is_sparse(c->pool))
		return;
	fresh = pool_new();
	map_fit(c->answers, addr_cache_move, fresh);
	pool_free(c->pool);
	c->pool = fresh;
	malloc_trim(0);
}

size_t addr_cache_sweep(struct addr_cache *c)
{
	struct addr_cache_old old = {.now_ms = clock_mono_ms()};
	char name[HOSTNAME_MAX];
	size_t i;

	old.keys = xcalloc(map_count(c->answers) + 1, sizeof(*old.keys));
	map_each(c->answers, addr_cache_see, &old);
	for (i = 0; i < old.n; i++) {
		/* The key is the map's own and goes with the entry. */
		memcpy(name, old.keys[i].p, old.keys[i].len);
		(void)map_remove(c->answers, slice_make(name, old.keys[i].len));
	}
	free(old.keys);
	addr_cache_fit(c);
	return map_count(c->answers);
}

/* One more address of a name. False if there is no room for the name. */
static bool addr_cache_host_add(
	struct addr_cache *c, struct slice name, const struct netaddr *addr, bool v6_first)
{
	struct netaddr all[RESOLVER_ADDRS_MAX + 1];
	struct addr_entry *old = map_find(c->hosts, name);
	struct addr_entry *e;
	size_t n = 0;

	/* The map would push another name out, and that one would then be asked of the network. */
	if (!old && map_count(c->hosts) == ADDR_CACHE_HOSTS_MAX)
		return false;
	for (; old && n < old->n; n++)
		all[n] = old->addrs[n];
	all[n++] = *addr;
	e = addr_entry_new(0, all, n, v6_first);
	map_put(c->hosts, name, e);
	map_remove(c->answers, name);
	return true;
}

size_t addr_cache_set_hosts(struct addr_cache *c, struct slice text, bool v6_first)
{
	struct slice rest = text;
	struct slice line, word;
	struct netaddr addr;
	char name[HOSTNAME_MAX + 1];
	size_t left_out = 0;
	size_t len;

	map_free(c->hosts);
	c->hosts = map_new(ADDR_CACHE_HOSTS_MAX, addr_cache_drop);
	while (rest.p) {
		line = slice_cut(&rest, '\n');
		line = slice_first(line, slice_find_char(line, '#'));
		if (!netaddr_parse(word_cut(&line), &addr))
			continue;
		while ((word = word_cut(&line)).len > 0) {
			if (hostname_normal(word, name, &len) < 0)
				continue;
			if (!addr_cache_host_add(c, slice_make(name, len), &addr, v6_first))
				left_out++;
		}
	}
	return left_out;
}
