/* Expressions of rules, through libnftnl. Before it: tables.c; after it: batch.c. */
#include "nft/expr.h"

#include <arpa/inet.h>
#include <endian.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_conntrack_tuple_common.h>
#include <linux/netfilter/nf_tables.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/tcp.h>
#include <stddef.h>

#include <libnftnl/expr.h>
#include <libnftnl/rule.h>

#define EXPR_REG NFT_REG_1
/* Fields of a concatenation stand in registers of 4 bytes each. */
#define EXPR_REG32(n) ((enum nft_registers)(NFT_REG32_00 + (n)))

void expr_open(struct expr_rule *r, const char *chain, enum guard_part part)
{
	r->part = part;
	r->rule = nftnl_rule_alloc();
	REQUIRE(r->rule);
	nftnl_rule_set_u32(r->rule, NFTNL_RULE_FAMILY, r->family);
	REQUIRE(nftnl_rule_set_str(r->rule, NFTNL_RULE_TABLE, r->table) == 0);
	REQUIRE(nftnl_rule_set_str(r->rule, NFTNL_RULE_CHAIN, chain) == 0);
}

void expr_close(struct expr_rule *r)
{
	struct nlmsghdr *m = batch_open(
		r->batch, NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND, r->family, r->part);

	nftnl_rule_nlmsg_build_payload(m, r->rule);
	batch_close(r->batch, m);
	nftnl_rule_free(r->rule);
	r->rule = NULL;
}

static struct nftnl_expr *expr_add(struct expr_rule *r, const char *name)
{
	struct nftnl_expr *e = nftnl_expr_alloc(name);

	REQUIRE(e);
	nftnl_rule_add_expr(r->rule, e);
	return e;
}

static void expr_meta(struct expr_rule *r, uint32_t key, uint32_t reg)
{
	struct nftnl_expr *e = expr_add(r, "meta");

	nftnl_expr_set_u32(e, NFTNL_EXPR_META_KEY, key);
	nftnl_expr_set_u32(e, NFTNL_EXPR_META_DREG, reg);
}

static void expr_cmp(struct expr_rule *r, uint32_t op, const void *value, uint32_t len)
{
	struct nftnl_expr *e = expr_add(r, "cmp");

	nftnl_expr_set_u32(e, NFTNL_EXPR_CMP_SREG, EXPR_REG);
	nftnl_expr_set_u32(e, NFTNL_EXPR_CMP_OP, op);
	REQUIRE(nftnl_expr_set(e, NFTNL_EXPR_CMP_DATA, value, len) == 0);
}

static uint32_t expr_op(enum expr_test test)
{
	return test == EXPR_IS ? NFT_CMP_EQ : NFT_CMP_NEQ;
}

static void expr_payload(
	struct expr_rule *r, uint32_t base, uint32_t at, uint32_t len, uint32_t reg)
{
	struct nftnl_expr *e = expr_add(r, "payload");

	nftnl_expr_set_u32(e, NFTNL_EXPR_PAYLOAD_BASE, base);
	nftnl_expr_set_u32(e, NFTNL_EXPR_PAYLOAD_OFFSET, at);
	nftnl_expr_set_u32(e, NFTNL_EXPR_PAYLOAD_LEN, len);
	nftnl_expr_set_u32(e, NFTNL_EXPR_PAYLOAD_DREG, reg);
}

static void expr_mask(struct expr_rule *r, const void *mask, uint32_t len)
{
	static const uint8_t none[16];
	struct nftnl_expr *e = expr_add(r, "bitwise");

	REQUIRE(len <= sizeof(none));
	nftnl_expr_set_u32(e, NFTNL_EXPR_BITWISE_SREG, EXPR_REG);
	nftnl_expr_set_u32(e, NFTNL_EXPR_BITWISE_DREG, EXPR_REG);
	nftnl_expr_set_u32(e, NFTNL_EXPR_BITWISE_LEN, len);
	REQUIRE(nftnl_expr_set(e, NFTNL_EXPR_BITWISE_MASK, mask, len) == 0);
	REQUIRE(nftnl_expr_set(e, NFTNL_EXPR_BITWISE_XOR, none, len) == 0);
}

static void expr_lookup(struct expr_rule *r, const char *set, uint32_t id, enum expr_test test)
{
	struct nftnl_expr *e = expr_add(r, "lookup");

	nftnl_expr_set_u32(e, NFTNL_EXPR_LOOKUP_SREG, EXPR_REG);
	REQUIRE(nftnl_expr_set_str(e, NFTNL_EXPR_LOOKUP_SET, set) == 0);
	nftnl_expr_set_u32(e, NFTNL_EXPR_LOOKUP_SET_ID, id);
	if (test == EXPR_IS_NOT)
		nftnl_expr_set_u32(e, NFTNL_EXPR_LOOKUP_FLAGS, NFT_LOOKUP_F_INV);
}

void expr_family(struct expr_rule *r, uint8_t nfproto)
{
	expr_meta(r, NFT_META_NFPROTO, EXPR_REG);
	expr_cmp(r, NFT_CMP_EQ, &nfproto, sizeof(nfproto));
}

void expr_l4proto(struct expr_rule *r, uint8_t proto)
{
	expr_meta(r, NFT_META_L4PROTO, EXPR_REG);
	expr_cmp(r, NFT_CMP_EQ, &proto, sizeof(proto));
}

void expr_l4proto_not(struct expr_rule *r, const uint8_t *protos, size_t n)
{
	expr_meta(r, NFT_META_L4PROTO, EXPR_REG);
	for (size_t i = 0; i < n; i++)
		expr_cmp(r, NFT_CMP_NEQ, &protos[i], sizeof(protos[i]));
}

void expr_ethertype(struct expr_rule *r, uint16_t type)
{
	const uint16_t wire = htons(type);

	expr_meta(r, NFT_META_PROTOCOL, EXPR_REG);
	expr_cmp(r, NFT_CMP_EQ, &wire, sizeof(wire));
}

static void expr_is_lo(struct expr_rule *r, uint32_t key, enum expr_test test)
{
	static const uint32_t lo = 1; /* LOOPBACK_IFINDEX of the kernel */

	expr_meta(r, key, EXPR_REG);
	expr_cmp(r, expr_op(test), &lo, sizeof(lo));
}

void expr_oif_lo(struct expr_rule *r, enum expr_test test)
{
	expr_is_lo(r, NFT_META_OIF, test);
}

void expr_iif_lo(struct expr_rule *r, enum expr_test test)
{
	expr_is_lo(r, NFT_META_IIF, test);
}

/* The load alone decides; the comparison holds for every value, and lets nft(8) print the rule. */
static void expr_loads(struct expr_rule *r, uint32_t key)
{
	static const uint32_t zero;

	expr_meta(r, key, EXPR_REG);
	expr_cmp(r, NFT_CMP_GTE, &zero, sizeof(zero));
}

void expr_has_socket(struct expr_rule *r)
{
	expr_loads(r, NFT_META_SKUID);
}

void expr_uid(struct expr_rule *r, uint32_t uid)
{
	expr_meta(r, NFT_META_SKUID, EXPR_REG);
	expr_cmp(r, NFT_CMP_EQ, &uid, sizeof(uid));
}

void expr_has_route(struct expr_rule *r)
{
	expr_loads(r, NFT_META_RTCLASSID);
}

void expr_shorter(struct expr_rule *r, uint32_t len)
{
	const uint32_t wire = htonl(len);
	struct nftnl_expr *e;

	expr_meta(r, NFT_META_LEN, EXPR_REG);
	e = expr_add(r, "byteorder");
	nftnl_expr_set_u32(e, NFTNL_EXPR_BYTEORDER_SREG, EXPR_REG);
	nftnl_expr_set_u32(e, NFTNL_EXPR_BYTEORDER_DREG, EXPR_REG);
	nftnl_expr_set_u32(e, NFTNL_EXPR_BYTEORDER_OP, NFT_BYTEORDER_HTON);
	nftnl_expr_set_u32(e, NFTNL_EXPR_BYTEORDER_LEN, sizeof(wire));
	nftnl_expr_set_u32(e, NFTNL_EXPR_BYTEORDER_SIZE, sizeof(wire));
	expr_cmp(r, NFT_CMP_LT, &wire, sizeof(wire));
}

void expr_cgroup(struct expr_rule *r, uint32_t level, uint64_t id)
{
	struct nftnl_expr *e = expr_add(r, "socket");

	nftnl_expr_set_u32(e, NFTNL_EXPR_SOCKET_KEY, NFT_SOCKET_CGROUPV2);
	nftnl_expr_set_u32(e, NFTNL_EXPR_SOCKET_LEVEL, level);
	nftnl_expr_set_u32(e, NFTNL_EXPR_SOCKET_DREG, EXPR_REG);
	expr_cmp(r, NFT_CMP_EQ, &id, sizeof(id));
}

void expr_network(struct expr_rule *r, uint32_t at, const void *value, uint32_t len)
{
	expr_payload(r, NFT_PAYLOAD_NETWORK_HEADER, at, len, EXPR_REG);
	expr_cmp(r, NFT_CMP_EQ, value, len);
}

void expr_network_masked(struct expr_rule *r, uint32_t at, const void *mask, const void *value,
	uint32_t len, enum expr_test test)
{
	expr_payload(r, NFT_PAYLOAD_NETWORK_HEADER, at, len, EXPR_REG);
	expr_mask(r, mask, len);
	expr_cmp(r, expr_op(test), value, len);
}

void expr_transport_byte(struct expr_rule *r, uint32_t at, uint8_t value)
{
	expr_payload(r, NFT_PAYLOAD_TRANSPORT_HEADER, at, sizeof(value), EXPR_REG);
	expr_cmp(r, NFT_CMP_EQ, &value, sizeof(value));
}

static void expr_port(struct expr_rule *r, uint32_t at, uint16_t port)
{
	const uint16_t wire = htons(port);

	expr_payload(r, NFT_PAYLOAD_TRANSPORT_HEADER, at, sizeof(wire), EXPR_REG);
	expr_cmp(r, NFT_CMP_EQ, &wire, sizeof(wire));
}

void expr_sport(struct expr_rule *r, uint16_t port)
{
	expr_port(r, 0, port);
}

void expr_dport(struct expr_rule *r, uint16_t port)
{
	expr_port(r, 2, port);
}

void expr_sport_in(struct expr_rule *r, const char *set, uint32_t id)
{
	expr_payload(r, NFT_PAYLOAD_TRANSPORT_HEADER, 0, 2, EXPR_REG);
	expr_lookup(r, set, id, EXPR_IS);
}

void expr_dport_in(struct expr_rule *r, const char *set, uint32_t id)
{
	expr_payload(r, NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2, EXPR_REG);
	expr_lookup(r, set, id, EXPR_IS);
}

void expr_tcp_flags(struct expr_rule *r, uint8_t mask, uint8_t value, enum expr_test test)
{
	expr_payload(r, NFT_PAYLOAD_TRANSPORT_HEADER, 13, 1, EXPR_REG);
	expr_mask(r, &mask, sizeof(mask));
	expr_cmp(r, expr_op(test), &value, sizeof(value));
}

static void expr_daddr(struct expr_rule *r, bool v6)
{
	expr_payload(r, NFT_PAYLOAD_NETWORK_HEADER,
		v6 ? (uint32_t)offsetof(struct ip6_hdr, ip6_dst)
		   : (uint32_t)offsetof(struct iphdr, daddr),
		v6 ? 16 : 4, EXPR_REG);
}

void expr_daddr_in(struct expr_rule *r, bool v6, const char *set, uint32_t id, enum expr_test test)
{
	expr_daddr(r, v6);
	expr_lookup(r, set, id, test);
}

/* The register after an address. */
static uint32_t expr_after_addr(bool v6)
{
	return EXPR_REG32(v6 ? 4 : 1);
}

void expr_daddr_port_in(
	struct expr_rule *r, bool v6, const char *set, uint32_t id, enum expr_test test)
{
	expr_daddr(r, v6);
	expr_payload(r, NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2, expr_after_addr(v6));
	expr_lookup(r, set, id, test);
}

void expr_daddr_ports_in(struct expr_rule *r, bool v6, const char *set, uint32_t id)
{
	expr_daddr(r, v6);
	expr_meta(r, NFT_META_L4PROTO, expr_after_addr(v6));
	expr_payload(r, NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2, expr_after_addr(v6) + 1);
	expr_lookup(r, set, id, EXPR_IS);
}

static void expr_fib(struct expr_rule *r, bool source, enum expr_test test)
{
	static const uint32_t local = 2; /* RTN_LOCAL */
	struct nftnl_expr *e = expr_add(r, "fib");

	nftnl_expr_set_u32(e, NFTNL_EXPR_FIB_DREG, EXPR_REG);
	nftnl_expr_set_u32(e, NFTNL_EXPR_FIB_RESULT, NFT_FIB_RESULT_ADDRTYPE);
	nftnl_expr_set_u32(e, NFTNL_EXPR_FIB_FLAGS, source ? NFTA_FIB_F_SADDR : NFTA_FIB_F_DADDR);
	expr_cmp(r, expr_op(test), &local, sizeof(local));
}

void expr_addr_not_local(struct expr_rule *r, bool source)
{
	expr_fib(r, source, EXPR_IS_NOT);
}

void expr_addr_local(struct expr_rule *r, bool source)
{
	expr_fib(r, source, EXPR_IS);
}

void expr_exthdr(struct expr_rule *r, uint8_t type)
{
	static const uint8_t yes = 1;
	struct nftnl_expr *e = expr_add(r, "exthdr");

	nftnl_expr_set_u8(e, NFTNL_EXPR_EXTHDR_TYPE, type);
	nftnl_expr_set_u32(e, NFTNL_EXPR_EXTHDR_OFFSET, 0);
	nftnl_expr_set_u32(e, NFTNL_EXPR_EXTHDR_LEN, 1);
	nftnl_expr_set_u32(e, NFTNL_EXPR_EXTHDR_OP, NFT_EXTHDR_OP_IPV6);
	nftnl_expr_set_u32(e, NFTNL_EXPR_EXTHDR_FLAGS, NFT_EXTHDR_F_PRESENT);
	nftnl_expr_set_u32(e, NFTNL_EXPR_EXTHDR_DREG, EXPR_REG);
	expr_cmp(r, NFT_CMP_EQ, &yes, sizeof(yes));
}

static void expr_ct(struct expr_rule *r, uint32_t key)
{
	struct nftnl_expr *e = expr_add(r, "ct");

	nftnl_expr_set_u32(e, NFTNL_EXPR_CT_KEY, key);
	nftnl_expr_set_u32(e, NFTNL_EXPR_CT_DREG, EXPR_REG);
}

static void expr_ct_bits(struct expr_rule *r, uint32_t key, uint32_t bits, uint32_t op)
{
	static const uint32_t zero;

	expr_ct(r, key);
	expr_mask(r, &bits, sizeof(bits));
	expr_cmp(r, op, &zero, sizeof(zero));
}

void expr_ct_state(struct expr_rule *r, uint32_t bits)
{
	expr_ct_bits(r, NFT_CT_STATE, bits, NFT_CMP_NEQ);
}

void expr_ct_status(struct expr_rule *r, uint32_t bit, enum expr_test test)
{
	expr_ct_bits(r, NFT_CT_STATUS, bit, test == EXPR_IS ? NFT_CMP_NEQ : NFT_CMP_EQ);
}

void expr_ct_mark(struct expr_rule *r, uint32_t mark)
{
	expr_ct(r, NFT_CT_MARK);
	expr_cmp(r, NFT_CMP_EQ, &mark, sizeof(mark));
}

void expr_ct_reply(struct expr_rule *r)
{
	static const uint8_t reply = IP_CT_DIR_REPLY;

	expr_ct(r, NFT_CT_DIRECTION);
	expr_cmp(r, NFT_CMP_EQ, &reply, sizeof(reply));
}

static void expr_immediate(struct expr_rule *r, const void *value, uint32_t len)
{
	struct nftnl_expr *e = expr_add(r, "immediate");

	nftnl_expr_set_u32(e, NFTNL_EXPR_IMM_DREG, EXPR_REG);
	REQUIRE(nftnl_expr_set(e, NFTNL_EXPR_IMM_DATA, value, len) == 0);
}

void expr_set_ct_mark(struct expr_rule *r, uint32_t mark)
{
	struct nftnl_expr *e;

	expr_immediate(r, &mark, sizeof(mark));
	e = expr_add(r, "ct");
	nftnl_expr_set_u32(e, NFTNL_EXPR_CT_KEY, NFT_CT_MARK);
	nftnl_expr_set_u32(e, NFTNL_EXPR_CT_SREG, EXPR_REG);
}

void expr_clear_mark(struct expr_rule *r)
{
	static const uint32_t zero;
	struct nftnl_expr *e;

	expr_immediate(r, &zero, sizeof(zero));
	e = expr_add(r, "meta");
	nftnl_expr_set_u32(e, NFTNL_EXPR_META_KEY, NFT_META_MARK);
	nftnl_expr_set_u32(e, NFTNL_EXPR_META_SREG, EXPR_REG);
}

void expr_notrack(struct expr_rule *r)
{
	(void)expr_add(r, "notrack");
}

void expr_timeout(struct expr_rule *r, const char *object)
{
	struct nftnl_expr *e = expr_add(r, "objref");

	nftnl_expr_set_u32(e, NFTNL_EXPR_OBJREF_IMM_TYPE, NFT_OBJECT_CT_TIMEOUT);
	REQUIRE(nftnl_expr_set_str(e, NFTNL_EXPR_OBJREF_IMM_NAME, object) == 0);
}

void expr_limit(struct expr_rule *r, uint32_t rate)
{
	struct nftnl_expr *e = expr_add(r, "limit");

	nftnl_expr_set_u64(e, NFTNL_EXPR_LIMIT_RATE, rate);
	nftnl_expr_set_u64(e, NFTNL_EXPR_LIMIT_UNIT, 1);
	nftnl_expr_set_u32(e, NFTNL_EXPR_LIMIT_BURST, rate);
	nftnl_expr_set_u32(e, NFTNL_EXPR_LIMIT_TYPE, NFT_LIMIT_PKTS);
}

void expr_log(struct expr_rule *r, const char *prefix, uint16_t group, uint32_t snap)
{
	struct nftnl_expr *e = expr_add(r, "log");

	REQUIRE(nftnl_expr_set_str(e, NFTNL_EXPR_LOG_PREFIX, prefix) == 0);
	nftnl_expr_set_u16(e, NFTNL_EXPR_LOG_GROUP, group);
	nftnl_expr_set_u32(e, NFTNL_EXPR_LOG_SNAPLEN, snap);
}

void expr_verdict(struct expr_rule *r, int verdict, const char *chain)
{
	struct nftnl_expr *e = expr_add(r, "immediate");

	nftnl_expr_set_u32(e, NFTNL_EXPR_IMM_DREG, NFT_REG_VERDICT);
	nftnl_expr_set_u32(e, NFTNL_EXPR_IMM_VERDICT, (uint32_t)verdict);
	if (chain)
		REQUIRE(nftnl_expr_set_str(e, NFTNL_EXPR_IMM_CHAIN, chain) == 0);
}

static void expr_reject_with(struct expr_rule *r, uint32_t type, uint8_t code)
{
	struct nftnl_expr *e = expr_add(r, "reject");

	nftnl_expr_set_u32(e, NFTNL_EXPR_REJECT_TYPE, type);
	nftnl_expr_set_u8(e, NFTNL_EXPR_REJECT_CODE, code);
}

void expr_reject(struct expr_rule *r)
{
	expr_reject_with(r, NFT_REJECT_ICMPX_UNREACH, NFT_REJECT_ICMPX_PORT_UNREACH);
}

void expr_reject_tcp(struct expr_rule *r)
{
	expr_l4proto(r, IPPROTO_TCP);
	expr_reject_with(r, NFT_REJECT_TCP_RST, 0);
}

void expr_redirect(struct expr_rule *r, uint16_t port)
{
	const uint16_t wire = htons(port);
	struct nftnl_expr *e;

	expr_immediate(r, &wire, sizeof(wire));
	e = expr_add(r, "redir");
	nftnl_expr_set_u32(e, NFTNL_EXPR_REDIR_REG_PROTO_MIN, EXPR_REG);
}
