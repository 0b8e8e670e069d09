/* Addresses that the kernel lets the sandbox reach because a name that policy allows led there.
 *
 * Kept by name, so that a change of policy keeps what it still allows, and so that a lease in use
 * can be renewed: by connections that live, and for a while by asking the resolvers again. */
#pragma once

#include "base/netaddr.h"
#include "dns/judge.h"

#define LEASE_EXTRA_S 60 /* reference 6.4: TTL and a minute, within a minute and six */
#define LEASE_MIN_S 60
#define LEASE_MAX_S 360
#define LEASE_ADDRS_MAX 64       /* of one name; the client gets no more */
#define LEASES_NAMES_MAX 32768   /* past it the name not asked for longest is forgotten here */
#define LEASES_MAX 131072        /* addresses of all names; E_FULL beyond */
#define LEASES_REFRESH_NAMES 128 /* the last ones asked for are asked again (reference 6.6) */
#define LEASES_REFRESH_S 900 /* so long after a client last asked or a connection was last seen */
#define LEASES_KEEP_NAMES \
	256 /* outlive the worker: those asked for last, and all with connections */
#define LEASES_KEEP_MAX 65536 /* bytes for that, of one copy */

struct event_base;
struct forwarder;
struct guard_client;
struct lease_grant;
struct leases;
struct ruleset;

struct lease_addr {
	struct netaddr addr;
	uint32_t seconds;
};

/* forwarder: for asking again; judge: lent for life, changed by its owner; both may not be NULL. */
struct leases *leases_new(
	struct event_base *base, struct forwarder *forwarder, const struct judge *judge);
/* Open grants end without their done. */
void leases_free(struct leases *l);
/* guard NULL: nothing is programmed or kept (mode `dns`). Forgets what judge no longer allows:
 * the ruleset that the kernel now has is without it. */
void leases_configure(struct leases *l, struct guard_client *guard);

/* Takes up what a worker before this one left in the cell (base/state.h, for LEASES_KEEP_MAX bytes)
 * as far as judge allows it, and from now on keeps there the leases in use. The kernel gets them
 * with its first ruleset. The cell must outlive l. After leases_configure. */
void leases_keep(struct leases *l, void *cell, size_t len);

/* The lease for a record of this TTL, in seconds. */
uint32_t lease_seconds(uint32_t ttl_s);

/* err as guard_cb. */
typedef void (*lease_cb)(int err, void *arg);

/* Addresses that an allowed name led to; borrowed for the call. */
struct lease_want {
	struct slice name;
	const struct lease_addr *v;
	size_t n; /* at most LEASE_ADDRS_MAX */
};

/* Sees to it that the kernel lets the sandbox reach them. 0 and *out NULL: it does already, to the
 * second. 0 and a handle: done runs once, from the loop, after the kernel said so; not after
 * lease_grant_cancel(). E_FULL or E_GUARD: nothing was granted. */
CHECKED int leases_grant_start(struct leases *l, const struct lease_want *want, lease_cb done,
	void *arg, struct lease_grant **out);
void lease_grant_cancel(struct lease_grant *g);

/* Adds to r what `judge` (with its next policy) still allows of everything granted and of what is
 * being granted. E_LIMIT: it does not fit. */
CHECKED int leases_collect(struct leases *l, struct ruleset *r);

/* Nothing ran for this long: see dns_gate_thaw. */
void leases_thaw(struct leases *l, uint64_t ms);

size_t leases_n_names(const struct leases *l);
size_t leases_n(const struct leases *l);
