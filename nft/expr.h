/* Rules of a batch, put together from small matches. A rule is opened for a chain, gets matches and
 * one verdict, and is closed. Each match loads into a register and compares; one that does not
 * match ends the rule.
 *
 * A match that cannot load (no socket, no conntrack entry, no such header) does not match, whatever
 * the comparison: several rules of ours are built on that. */
#pragma once

#include "nft/batch.h"

struct nftnl_rule;

struct expr_rule {
	struct batch *batch;
	struct nftnl_rule *rule;
	const char *table;
	uint8_t family; /* NFPROTO_INET, NFPROTO_NETDEV */
	enum guard_part part;
};

/* Chain names and texts are borrowed until expr_close. */
void expr_open(struct expr_rule *r, const char *chain, enum guard_part part);
void expr_close(struct expr_rule *r);

enum expr_test { EXPR_IS, EXPR_IS_NOT };

/* NFPROTO_IPV4 or NFPROTO_IPV6. */
void expr_family(struct expr_rule *r, uint8_t nfproto);
void expr_l4proto(struct expr_rule *r, uint8_t proto);
/* None of these n (at most 4). */
void expr_l4proto_not(struct expr_rule *r, const uint8_t *protos, size_t n);
/* The ethertype, as the packet's owner set it. */
void expr_ethertype(struct expr_rule *r, uint16_t type);
/* The device is (not) lo, by its number, which is 1 in every namespace. */
void expr_oif_lo(struct expr_rule *r, enum expr_test test);
void expr_iif_lo(struct expr_rule *r, enum expr_test test);
/* The packet belongs to a full socket (of this namespace). */
void expr_has_socket(struct expr_rule *r);
/* That socket's user. */
void expr_uid(struct expr_rule *r, uint32_t uid);
/* The packet carries a route: it came down from IP. */
void expr_has_route(struct expr_rule *r);
/* Total length below len. */
void expr_shorter(struct expr_rule *r, uint32_t len);
/* The socket's cgroup at this level. */
void expr_cgroup(struct expr_rule *r, uint32_t level, uint64_t id);
/* Bytes of the IP header equal (or not) value. */
void expr_network(struct expr_rule *r, uint32_t at, const void *value, uint32_t len);
/* The same after a mask; differ: they must not be equal. */
void expr_network_masked(struct expr_rule *r, uint32_t at, const void *mask, const void *value,
	uint32_t len, enum expr_test test);
/* Transport header: one byte (ICMP type), or a port in the set or equal. */
void expr_transport_byte(struct expr_rule *r, uint32_t at, uint8_t value);
void expr_sport_in(struct expr_rule *r, const char *set, uint32_t id);
void expr_dport_in(struct expr_rule *r, const char *set, uint32_t id);
void expr_sport(struct expr_rule *r, uint16_t port);
void expr_dport(struct expr_rule *r, uint16_t port);
/* (flags & mask) equal, or not, value. */
void expr_tcp_flags(struct expr_rule *r, uint8_t mask, uint8_t value, enum expr_test test);
/* Destination address (by family) in a set. */
void expr_daddr_in(struct expr_rule *r, bool v6, const char *set, uint32_t id, enum expr_test test);
/* Destination address . destination port. */
void expr_daddr_port_in(
	struct expr_rule *r, bool v6, const char *set, uint32_t id, enum expr_test test);
/* Destination address . protocol . destination port. */
void expr_daddr_ports_in(struct expr_rule *r, bool v6, const char *set, uint32_t id);
/* Routing says that the address is not of this host. */
void expr_addr_not_local(struct expr_rule *r, bool source);
void expr_addr_local(struct expr_rule *r, bool source);
/* An IPv6 extension header of this type exists. */
void expr_exthdr(struct expr_rule *r, uint8_t type);
/* Conntrack: state and status bits (any of them), mark, direction. */
void expr_ct_state(struct expr_rule *r, uint32_t bits);
void expr_ct_status(struct expr_rule *r, uint32_t bit, enum expr_test test);
void expr_ct_mark(struct expr_rule *r, uint32_t mark);
void expr_ct_reply(struct expr_rule *r);

/* Statements. */
void expr_set_ct_mark(struct expr_rule *r, uint32_t mark);
void expr_clear_mark(struct expr_rule *r);
void expr_notrack(struct expr_rule *r);
void expr_timeout(struct expr_rule *r, const char *object);
/* At most `rate` a second, with a burst of the same. */
void expr_limit(struct expr_rule *r, uint32_t rate);
/* group: of NFLOG. The first `snap` bytes go with it. */
void expr_log(struct expr_rule *r, const char *prefix, uint16_t group, uint32_t snap);

/* Verdicts: NF_ACCEPT, NF_DROP, NFT_RETURN; NFT_JUMP and NFT_GOTO with a chain. */
void expr_verdict(struct expr_rule *r, int verdict, const char *chain);
void expr_reject(struct expr_rule *r);
void expr_reject_tcp(struct expr_rule *r);
void expr_redirect(struct expr_rule *r, uint16_t port);
