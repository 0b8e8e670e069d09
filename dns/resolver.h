/* Names to addresses for the proxy, by c-ares, with one cache that honours TTL.
 *
 * The cache is what the *address* fact of the identity proof rests on: the proxy connects only to
 * addresses found here. Policy is applied by the caller. */
#pragma once

#include "base/err.h"
#include "base/netaddr.h"

#define RESOLVER_ADDRS_MAX 32   /* addresses kept of one name */
#define RESOLVER_CACHE_MAX 4096 /* names */
#define RESOLVER_TTL_MIN_S 1    /* a TTL of 0 is kept for the exchange that asked, and this */
#define RESOLVER_TTL_MAX_S 300
#define RESOLVER_NEGATIVE_S 5

struct resolver;
struct resolve;
struct upstreams;
struct event_base;

/* Valid until the callback returns (or, from resolver_find, until the loop runs again). IPv4 and
 * IPv6 alternate as RFC 8305 4 says, IPv6 first only where the host has a route. */
struct resolve_answer {
	int err; /* 0; E_NO_NAME; E_RESOLVE (all servers failed); -ETIMEDOUT */
	const struct netaddr *addrs;
	size_t n;
};

typedef void (*resolve_cb)(const struct resolve_answer *answer, void *arg);

/* servers: see upstreams.h, borrowed for the call. timeout_ms: for each server. */
CHECKED int resolver_new(struct event_base *base, const struct upstreams *servers,
	uint32_t timeout_ms, struct resolver **out, struct errmsg *msg);
/* Open handles end with it; their callbacks do not run. Allowed in a callback. */
void resolver_free(struct resolver *r);
/* Static names in the form of /etc/hosts, replacing the ones before; mode `proxy` only. */
void resolver_set_hosts(struct resolver *r, struct slice text);

/* A fresh answer (also a negative one) from the cache; false if it must be looked up. name in
 * normal form. */
bool resolver_find(struct resolver *r, struct slice name, struct resolve_answer *out);

/* What the DNS gate was told of a name for a client, so that the proxy need not ask for it as well:
 * n addresses (at least one) of one family, filtered by policy. An AAAA answer alone is not kept:
 * the IPv4 addresses would be missed. */
void resolver_learn(struct resolver *r, struct slice name, const struct netaddr *addrs, size_t n,
	uint32_t ttl_s);

/* Looks it up. done runs once, from the loop, never before this returns. After resolve_cancel() it
 * does not run. Either one ends the handle. Lookups of one name are shared. */
struct resolve *resolve_start(struct resolver *r, struct slice name, resolve_cb done, void *arg);
void resolve_cancel(struct resolve *q);
