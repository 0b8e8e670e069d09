/* The list of resolvers: from OPENSANDBOX_EGRESS_DNS_UPSTREAM, else from resolv.conf, read once at
 * start and kept (the sandbox may rewrite our resolv.conf later). Reference 1.2 and 5.3. */
#pragma once

#include "base/err.h"
#include "base/netaddr.h"

#define UPSTREAMS_MAX 10

struct upstreams {
	struct {
		struct netaddr addr;
		uint16_t port;
	} v[UPSTREAMS_MAX];
	size_t n;
};

/* The same resolvers in the same order. */
bool upstreams_eq(const struct upstreams *a, const struct upstreams *b);
/* `ip`, `ip:port`, `[v6]`, `[v6]:port`, comma separated; duplicates dropped, order kept. A name, an
 * empty or bad port, more than UPSTREAMS_MAX, or nothing usable: refused with the item. */
CHECKED int upstreams_decode(struct slice list, struct upstreams *out, struct errmsg *msg);
/* `nameserver` lines of a resolv.conf text, non-loopback first. E_VALUE if there is none. */
CHECKED int upstreams_from_resolv_conf(
	struct slice text, struct upstreams *out, struct errmsg *msg);
