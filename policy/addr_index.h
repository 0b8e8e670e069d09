/* IP, CIDR and ports-only rules, compiled: one hash lookup for each prefix length in use. */
#pragma once

#include "policy/rule_set.h"

struct addr_index;

/* Each the lowest index that matches, or RULE_NONE. Deny wins wherever it stands. */
struct addr_hit {
	int32_t deny;      /* IP, CIDR or ports-only */
	int32_t allow;     /* IP or CIDR */
	int32_t allow_any; /* ports-only */
};

/* rules are borrowed for the index's life; those of other kinds are skipped. Never NULL. */
struct addr_index *addr_index_new(const struct rule *rules, size_t n);
void addr_index_free(struct addr_index *ix);

/* A block of IPv6 addresses never holds an IPv4 one, however short its prefix: `::/0` is every IPv6
 * address. For port 0 see rule_set_find. */
struct addr_hit addr_index_find(
	const struct addr_index *ix, const struct netaddr *a, uint16_t port);
