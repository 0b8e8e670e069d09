/* Questions to the resolvers: c-ares on libevent, with source ports that change.
 *
 * A channel of c-ares opens its sockets with its first open question and closes them after its
 * last one; all in between leave from one port. So there are several, and one that is idle goes
 * first. */
#pragma once

#include "base/err.h"
#include "base/netaddr.h"
#include "dns/resolver.h"

enum channels_type { CHANNELS_A, CHANNELS_AAAA };

struct channels_reply {
	int err; /* 0; E_NO_NAME (no such name, or none of this type); E_RESOLVE; -ETIMEDOUT */
	bool nxdomain;  /* with E_NO_NAME: the name does not exist at all */
	uint32_t ttl_s; /* the lowest of the chain and the addresses */
	size_t n;
	struct netaddr addrs[RESOLVER_ADDRS_MAX];
};

struct channels;
struct event_base;

/* Runs once, possibly before channels_ask returns, and not after channels_free has begun. It must
 * neither ask nor free. reply is lent for the call. */
typedef void (*channels_cb)(const struct channels_reply *reply, void *arg);

/* As resolver_new. */
CHECKED int channels_new(struct event_base *base, const struct upstreams *servers,
	uint32_t timeout_ms, struct channels **out, struct errmsg *msg);
void channels_free(struct channels *c);

void channels_ask(
	struct channels *c, const char *name, enum channels_type type, channels_cb done, void *arg);
