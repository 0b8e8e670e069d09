/* Private to nft/tables.c, chains.c and raw_guard.c: names of sets and chains. */
#pragma once

#include "nft/elem.h"
#include "nft/expr.h"
#include "nft/tables.h"

/* Sets, in the order of their ids. Name, shape, IPv6, interval, timeout, kind of their elements. */
#define TABLES_SET_TABLE(X)                                                        \
	X(DENY_V4, "deny_v4", ADDR, false, true, false, DENY)                      \
	X(DENY_V6, "deny_v6", ADDR, true, true, false, DENY)                       \
	X(DENY_PORTS_V4, "deny_ports_v4", ADDR_PORTS, false, true, false, DENY)    \
	X(DENY_PORTS_V6, "deny_ports_v6", ADDR_PORTS, true, true, false, DENY)     \
	X(ALLOW_V4, "allow_v4", ADDR, false, true, false, ALLOW)                   \
	X(ALLOW_V6, "allow_v6", ADDR, true, true, false, ALLOW)                    \
	X(ALLOW_PORTS_V4, "allow_ports_v4", ADDR_PORTS, false, true, false, ALLOW) \
	X(ALLOW_PORTS_V6, "allow_ports_v6", ADDR_PORTS, true, true, false, ALLOW)  \
	X(DYN_V4, "dyn_allow_v4", ADDR, false, false, true, LEASE)                 \
	X(DYN_V6, "dyn_allow_v6", ADDR, true, false, true, LEASE)                  \
	X(DYN_PORTS_V4, "dyn_ports_v4", ADDR_PORTS, false, false, true, LEASE)     \
	X(DYN_PORTS_V6, "dyn_ports_v6", ADDR_PORTS, true, false, true, LEASE)      \
	X(RESOLVER_V4, "resolver_v4", ADDR_PORT, false, false, false, RESOLVER)    \
	X(RESOLVER_V6, "resolver_v6", ADDR_PORT, true, false, false, RESOLVER)     \
	X(EXEMPT_V4, "exempt_v4", ADDR, false, false, false, EXEMPT)               \
	X(EXEMPT_V6, "exempt_v6", ADDR, true, false, false, EXEMPT)                \
	X(DOH_V4, "doh_block_v4", ADDR, false, true, false, DOH)                   \
	X(DOH_V6, "doh_block_v6", ADDR, true, true, false, DOH)                    \
	X(SPECIAL_V4, "special_v4", ADDR, false, true, false, SPECIAL)             \
	X(SPECIAL_V6, "special_v6", ADDR, true, true, false, SPECIAL)              \
	X(PRIVATE_V4, "private_v4", ADDR, false, true, false, MAX)                 \
	X(PRIVATE_V6, "private_v6", ADDR, true, true, false, MAX)                  \
	X(INSPECT, "inspected", PORT, false, true, false, INSPECT)                 \
	X(INBOUND, "inbound", PORT, false, true, false, INBOUND)

enum tables_set_index {
#define X(id, name, shape, v6, interval, timeout, kind) SET_##id,
	TABLES_SET_TABLE(X)
#undef X
		SET_MAX
};

extern const struct elem_set tables_sets[SET_MAX];

/* True if the set is in the table; some only where they have elements. */
bool tables_has_set(const struct tables *t, enum tables_set_index i);

/* A base chain, or with type NULL one to jump to. */
struct tables_chain {
	const char *name;
	const char *type; /* "filter", "nat" */
	uint32_t hook;
	int32_t priority;
	bool drop; /* policy */
};
void tables_add_chain(struct batch *b, uint8_t family, const char *table,
	const struct tables_chain *c, enum guard_part part);
/* NEWTABLE, DELTABLE, NEWTABLE: gone whether it was there or not, and there again. */
void tables_replace(struct batch *b, uint8_t family, const char *table, const void *user,
	size_t user_len, enum guard_part part);

#define TABLES_SHORT "short" /* the object with the timeouts of the sandbox's TCP */

/* Chains of inet opensandbox, and the rules in them; chains.c. */
void chains_add(const struct tables *t);
void chains_build(const struct tables *t);
