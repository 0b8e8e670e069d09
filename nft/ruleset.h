/* What the kernel shall enforce, as a flat list: options, and entries of address ranges and ports.
 *
 * The worker makes one from settings and policy (ruleset_policy.c); guard_client sends it in chunks
 * (guard_msg.h), the guard puts it together again and tables.c turns it into nftables objects. Both
 * sides use this file; it knows neither policy documents nor netlink. */
#pragma once

#include "base/err.h"
#include "base/netaddr.h"

struct policy;

/* A policy has at most 4096 rules; each may name 256 ports, and deny rules for IPv4 are repeated
 * for the IPv6 forms of the address. What would take more than this (3 MiB) is refused as too
 * large. */
#define RULESET_ENTRIES_MAX 65536

/* What an entry says. `ports` of one of these kinds are inclusive; 0 to 65535 is every one.
 *   ALLOW, DENY  address range [lo, hi], protocol, ports. The ranges of one kind, family,
 *                protocol and ports do not overlap (the kernel refuses those that do).
 *   LEASE        one address (lo), protocol, one port or 0; for `seconds`.
 *   RESOLVER     an upstream resolver of ours: lo and a port. Reached by our sockets even where a
 *                deny holds.
 *   EXEMPT       a resolver (lo) that the sandbox may ask directly, on port 53.
 *   DOH          address range whose port 443 is refused, TCP and UDP.
 *   SPECIAL      address range that the default action allow does not reach, only a rule.
 *   INSPECT      TCP ports that are redirected to the proxy.
 *   INBOUND      TCP ports on which the sandbox may be reached. */
#define RULESET_KIND_TABLE(X)   \
	X(ALLOW, "allow")       \
	X(DENY, "deny")         \
	X(LEASE, "lease")       \
	X(RESOLVER, "resolver") \
	X(EXEMPT, "exempt")     \
	X(DOH, "doh")           \
	X(INSPECT, "inspect")   \
	X(INBOUND, "inbound")   \
	X(SPECIAL, "special")

enum ruleset_kind {
#define X(id, text) RULESET_##id,
	RULESET_KIND_TABLE(X)
#undef X
		RULESET_KIND_MAX
};

/* Goes over the wire as it is: no pointer, no padding. */
struct ruleset_entry {
	struct netaddr lo;
	struct netaddr hi;
	uint8_t kind;  /* enum ruleset_kind */
	uint8_t proto; /* IPPROTO_TCP, IPPROTO_UDP; 0: every */
	uint16_t port_lo;
	uint16_t port_hi;
	uint16_t zero;
	uint32_t seconds; /* LEASE */
};

/* The switches. Also as on the wire. */
struct ruleset_options {
	uint64_t cgroup_id; /* inode of our cgroup; 0: the pass is the uid alone */
	uint32_t cgroup_level;
	uint32_t uid; /* of the worker */
	uint16_t api_port;
	uint16_t web_port;
	uint16_t dns_port;
	uint8_t enforce;      /* 0 (mode dns without the read-only rule): the DNS redirect alone */
	uint8_t read_only;    /* nothing goes directly to public addresses */
	uint8_t accept_rest;  /* default action allow; special addresses still need a rule */
	uint8_t redirect_dns; /* port 53 to dns_port */
	uint8_t redirect_web; /* INSPECT ports (read_only: every TCP port of public ones) to
				 web_port */
	uint8_t doh_block;    /* port 443 is refused: to DOH entries, to all if there are none */
	uint8_t inbound_all;  /* any port; else the INBOUND entries */
	uint8_t log;          /* new direct flows and refusals are reported */
	uint8_t hold;         /* nothing new goes directly, whatever allows it; what runs may */
	uint8_t zero[1];
};

struct ruleset {
	struct ruleset_options options;
	struct ruleset_entry *entry; /* sorted by the maker; owned */
	size_t n;
	size_t cap;
};

struct ruleset_resolver {
	struct netaddr addr;
	uint16_t port;
};

/* Everything that is not policy; borrowed for the call. */
struct ruleset_lists {
	const uint16_t *inspected; /* 80, 443 and the extra ones */
	size_t n_inspected;
	const uint16_t *inbound; /* used if not inbound_all */
	size_t n_inbound;
	const struct netcidr *doh;
	size_t n_doh;
	const struct netaddr *exempt;
	size_t n_exempt;
	const struct ruleset_resolver *resolvers;
	size_t n_resolvers;
};

void ruleset_init(struct ruleset *r, const struct ruleset_options *o);
void ruleset_fini(struct ruleset *r);
/* Copies one entry to the end. E_LIMIT past RULESET_ENTRIES_MAX. */
CHECKED int ruleset_add(struct ruleset *r, const struct ruleset_entry *e);
/* True if the kernel could be given this entry: known kind, ranges in order and of one family, zero
 * bytes zero, what its kind needs. The guard asks it of everything it receives. */
CHECKED bool ruleset_entry_valid(const struct ruleset_entry *e);
CHECKED bool ruleset_options_valid(const struct ruleset_options *o);

/* A lease: see struct guard_lease in guard_client.h for proto and port. */
CHECKED int ruleset_add_lease(struct ruleset *r, const struct netaddr *addr, uint8_t proto,
	uint16_t port, uint32_t seconds);

/* The address and port rules of a policy and the lists as entries, added to r (initialised).
 * Overlapping ranges are merged; a deny of an IPv4 address also denies the IPv6 forms that hold it
 * (NAT64, 6to4, SIIT, v4-compatible, all of Teredo); special addresses (metadata, link-local,
 * shared and the like) are denied unless an IP or CIDR rule allows them. options.accept_rest is set
 * from the policy. Worker side only (ruleset_policy.c). E_LIMIT: the policy needs too many entries.
 */
CHECKED int ruleset_from_policy(struct ruleset *r, const struct policy *p,
	const struct ruleset_lists *lists, struct errmsg *msg);
