/* What the resolver knows: answers by name with their end, and the static names of a hosts file.
 *
 * An entry is counted by those who hold it, or it is the cache's own: then it is borrowed until the
 * next put or sweep, and who needs it for longer takes a copy (addr_entry_ref). */
#pragma once

#include "base/netaddr.h"

struct addr_entry {
	struct addr_cache *owner; /* NULL: counted */
	uint32_t refs;
	int err;             /* as resolve_answer.err */
	uint64_t expires_ms; /* by clock_mono_ms; of no meaning in static names */
	uint64_t number;     /* of the put, in an entry of the cache's own; else 0 */
	size_t n;
	struct netaddr addrs[];
};

struct addr_cache;

/* Copies addrs without doubles, at most RESOLVER_ADDRS_MAX, families alternating (RFC 8305 4),
 * each in the order given. One reference, the caller's; expires_ms is 0. */
struct addr_entry *addr_entry_new(int err, const struct netaddr *addrs, size_t n, bool v6_first);
/* e with one reference more, or a counted copy of one that is the cache's own. */
struct addr_entry *addr_entry_ref(struct addr_entry *e);
void addr_entry_unref(struct addr_entry *e);

struct addr_cache *addr_cache_new(void);
void addr_cache_free(struct addr_cache *c);

/* The static entry of the name or a fresh answer; NULL if there is neither. Allocates nothing. */
struct addr_entry *addr_cache_find(struct addr_cache *c, struct slice name);
/* The answer kept for the name, fresh or not; NULL if there is none. */
struct addr_entry *addr_cache_peek(struct addr_cache *c, struct slice name);
/* Keeps a copy of e unless the name is static. Returns what holds now for the name: the copy,
 * borrowed, or the static entry. */
struct addr_entry *addr_cache_put(struct addr_cache *c, struct slice name, struct addr_entry *e);

/* Drops answers whose time is over. Returns how many are left. Not while one is borrowed. */
size_t addr_cache_sweep(struct addr_cache *c);

/* Replaces the static names by those of text, in the form of /etc/hosts. Lines without an address
 * and names that are no host names are passed over. Returns how many names did not fit. */
size_t addr_cache_set_hosts(struct addr_cache *c, struct slice text, bool v6_first);
