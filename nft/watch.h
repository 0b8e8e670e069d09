/* Whether our tables are still what we made: a fingerprint of chains, rules and sets, with their
 * handles, taken after each of our commits and compared when the generation has changed. Elements
 * are not part of it; they come and go. */
#pragma once

#include "nft/netlink.h"

struct watch_print {
	uint64_t table;    /* inet opensandbox without nato */
	uint64_t redirect; /* its chain nato and the rules in it */
	uint64_t raw;      /* netdev rawguard */
};

/* Reads all of it. -EINTR: something changed meanwhile, ask again. A table that is not there gives
 * the print of nothing, which no table has. */
CHECKED int watch_read(struct netlink *n, struct watch_print *out);
