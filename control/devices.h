/* The network devices of this namespace, as they are at a start: what is on link, and which
 * addresses are our own. Read before the system call filter, which knows no such call. */
#pragma once

#include "base/err.h"
#include "base/netaddr.h"

#define DEVICES_MAX 64 /* addresses that are looked at */

struct devices {
	struct netaddr own[DEVICES_MAX];
	size_t n_own;
	struct netcidr on_link[DEVICES_MAX]; /* of own, without loopback */
	size_t n_on_link;
};

/* Those past DEVICES_MAX are left out, with a warning. A negated errno. */
CHECKED int devices_read(struct devices *d);
/* An address of this namespace: somebody in it could answer there. Loopback always is. */
bool devices_has(const struct devices *d, const struct netaddr *a);
