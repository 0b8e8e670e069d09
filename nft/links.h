/* The network devices of the namespace, by rtnetlink. */
#pragma once

#include <net/if.h>

#include "nft/netlink.h"

/* A sandbox has lo and one or two devices; a bridge of containers inside it some more. */
#define LINKS_MAX 256

struct link {
	int index;
	char name[IFNAMSIZ];
};

struct links {
	struct link v[LINKS_MAX];
	size_t n;
	bool more; /* than fit */
};

/* Asks for all of them. n: an open socket of NETLINK_ROUTE. */
CHECKED int links_read(struct netlink *n, struct links *out);
bool links_has(const struct links *l, int index);
