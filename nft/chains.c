/* Chains and rules of inet opensandbox. What each is for, and the attack that it ends, stands
 * beside it; the order is that of cost where it does not matter otherwise: what most packets match
 * comes first. Before it: tables.c.
 *
 * first (output, before conntrack) -> nato (output, nat) -> egress (output, filter); inp (input);
 * forw (forward). "Ours" is a packet of a socket of the worker: its cgroup and its user. */
#include <arpa/inet.h>
#include <linux/icmpv6.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_conntrack_common.h>
#include <linux/netfilter/nf_tables.h>
#include <netinet/in.h>
#include <netinet/ip6.h>
#include <netinet/tcp.h>
#include <stddef.h>

#include <libmnl/libmnl.h>

#include "nft/tables_int.h"

#define FIRST_PRIORITY (-450) /* before defragmentation (-400) and conntrack (-200) */
#define NAT_PRIORITY (-100)

#define MLD2_REPORT 143 /* RFC 3810 5.2 */

/* Flows and refusals that are reported each second; what goes beyond is counted by nobody, but
 * enforced all the same. */
#define CHAINS_LOG_RATE 1000
#define CHAINS_LOG_SNAP 64 /* both headers */

/* The longest SYN-ACK of ours: IPv6, TCP with all its options, no content. */
#define CHAINS_SYN_ACK_MAX 80

#define CT_NEW NF_CT_STATE_BIT(IP_CT_NEW)
#define CT_LIVE (NF_CT_STATE_BIT(IP_CT_ESTABLISHED) | NF_CT_STATE_BIT(IP_CT_RELATED))
#define CT_INVALID NF_CT_STATE_INVALID_BIT
#define TCP_ALL (TH_FIN | TH_SYN | TH_RST | TH_ACK)

struct chains {
	const struct tables *t;
	const struct ruleset_options *o;
	struct expr_rule rule;
};

static const uint8_t chains_families[] = {NFPROTO_IPV4, NFPROTO_IPV6};
static const uint8_t chains_loopback_v4[4] = {127, 0, 0, 1};
static const uint8_t chains_loopback_v6[16] = {[15] = 1};
static const uint8_t chains_services[] = {IPPROTO_TCP, IPPROTO_UDP};

static const struct tables_chain chains_all[] = {
	{"forged", NULL, 0, 0, false},
	{"headers", NULL, 0, 0, false},
	{"untrack", NULL, 0, 0, false},
	{"opened", NULL, 0, 0, false},
	{"ours", NULL, 0, 0, false},
	{"arrivals", NULL, 0, 0, false},
	{"neighbours", NULL, 0, 0, false},
	{"fresh", NULL, 0, 0, false},
	{"redirected", NULL, 0, 0, false},
	{"refused", NULL, 0, 0, false},
	{"grant", NULL, 0, 0, false},
	{"own", NULL, 0, 0, false},
	{"first", "filter", NF_INET_LOCAL_OUT, FIRST_PRIORITY, false},
	{"inp", "filter", NF_INET_LOCAL_IN, 0, false},
	{"forw", "filter", NF_INET_FORWARD, 0, true},
	{"egress", "filter", NF_INET_LOCAL_OUT, 0, true},
};
static const struct tables_chain chains_nat = {
	"nato", "nat", NF_INET_LOCAL_OUT, NAT_PRIORITY, false};

static struct expr_rule *chains_open(struct chains *c, const char *chain, enum guard_part part)
{
	expr_open(&c->rule, chain, part);
	return &c->rule;
}

static void chains_end(struct chains *c, int verdict, const char *to)
{
	expr_verdict(&c->rule, verdict, to);
	expr_close(&c->rule);
}

/* The packet is of a socket of the worker's. A mark is no pass: it can be guessed or read. */
static void chains_pass(struct chains *c)
{
	expr_uid(&c->rule, c->o->uid);
	if (tables_has(c->t, GUARD_PART_PASS))
		expr_cgroup(&c->rule, c->o->cgroup_level, c->o->cgroup_id);
}

/* The part that a rule with chains_pass is for: if the kernel refuses it, it is for the cgroup. */
static enum guard_part chains_pass_part(const struct chains *c)
{
	return tables_has(c->t, GUARD_PART_PASS) ? GUARD_PART_PASS : GUARD_PART_TABLE;
}

/* first: what a socket of the sandbox must not send at all, seen before conntrack makes it look
 * like an answer. */
static void chains_first_headers(struct chains *c)
{
	static const uint8_t fragment[2] = {0x3f, 0xff};
	static const uint8_t none[2];
	static const uint8_t options = 0x0f;
	static const uint8_t no_options = 5;
	struct expr_rule *r;

	/* Fragments of its own making (IP_NODEFRAG) have no ports to be judged by. */
	r = chains_open(c, "first", GUARD_PART_TABLE);
	expr_family(r, NFPROTO_IPV4);
	expr_network_masked(r, 6, fragment, none, sizeof(none), EXPR_IS_NOT);
	chains_end(c, NF_DROP, NULL);
	/* IP options: source routing through an allowed gateway. */
	r = chains_open(c, "first", GUARD_PART_TABLE);
	expr_family(r, NFPROTO_IPV4);
	expr_network_masked(r, 0, &options, &no_options, 1, EXPR_IS_NOT);
	expr_has_socket(r);
	chains_end(c, NF_DROP, NULL);
	if (!tables_has(c->t, GUARD_PART_HEADERS))
		return;
	/* Extension headers begin in the first next-header field, or there are none. */
	for (size_t i = 0; i < ARRAY_LEN(chains_services); i++) {
		r = chains_open(c, "headers", GUARD_PART_HEADERS);
		expr_network(r, offsetof(struct ip6_hdr, ip6_nxt), &chains_services[i], 1);
		chains_end(c, NFT_RETURN, NULL);
	}
	static const uint8_t never[] = {IPPROTO_FRAGMENT, IPPROTO_ROUTING, IPPROTO_DSTOPTS};
	for (size_t i = 0; i < ARRAY_LEN(never); i++) {
		r = chains_open(c, "headers", GUARD_PART_HEADERS);
		expr_exthdr(r, never[i]);
		chains_end(c, NF_DROP, NULL);
	}
	/* The kernel itself sends one, in MLD. */
	r = chains_open(c, "headers", GUARD_PART_HEADERS);
	expr_exthdr(r, IPPROTO_HOPOPTS);
	expr_has_socket(r);
	chains_end(c, NF_DROP, NULL);
	r = chains_open(c, "first", GUARD_PART_HEADERS);
	expr_family(r, NFPROTO_IPV6);
	chains_end(c, NFT_JUMP, "headers");
}

/* A source that is not ours, on any device: raw packets to oneself or to an allowed host that make
 * the way back look established. */
static void chains_forged(struct chains *c)
{
	static const uint8_t icmp6[] = {133, 135, 136, MLD2_REPORT};
	struct expr_rule *r;

	if (!tables_has(c->t, GUARD_PART_SOURCES))
		return;
	r = chains_open(c, "forged", GUARD_PART_SOURCES);
	expr_has_socket(r);
	chains_end(c, NF_DROP, NULL);
	/* Our own reject speaks for the host that was refused. */
	r = chains_open(c, "forged", GUARD_PART_SOURCES);
	expr_oif_lo(r, EXPR_IS);
	expr_l4proto(r, IPPROTO_TCP);
	expr_tcp_flags(r, TH_RST, TH_RST, EXPR_IS);
	chains_end(c, NFT_RETURN, NULL);
	/* Duplicate address detection and MLD, from ::. */
	for (size_t i = 0; i < ARRAY_LEN(icmp6); i++) {
		r = chains_open(c, "forged", GUARD_PART_SOURCES);
		expr_l4proto(r, IPPROTO_ICMPV6);
		expr_transport_byte(r, 0, icmp6[i]);
		chains_end(c, NFT_RETURN, NULL);
	}
	(void)chains_open(c, "forged", GUARD_PART_SOURCES);
	chains_end(c, NF_DROP, NULL);
	r = chains_open(c, "first", GUARD_PART_SOURCES);
	expr_addr_not_local(r, true);
	chains_end(c, NFT_JUMP, "forged");
}

/* Inside the namespace nothing needs a conntrack entry, so the table cannot be filled from there;
 * but for the answers of redirected flows, and the ICMP errors about them. */
static void chains_untrack(struct chains *c)
{
	static const struct {
		uint8_t proto;
		uint8_t unreachable;
	} icmp[] = {{IPPROTO_ICMP, 3}, {IPPROTO_ICMPV6, 1}};
	struct expr_rule *r;

	if (!tables_has(c->t, GUARD_PART_UNTRACK))
		return;
	for (size_t i = 0; i < ARRAY_LEN(chains_services); i++) {
		r = chains_open(c, "untrack", GUARD_PART_UNTRACK);
		expr_l4proto(r, chains_services[i]);
		expr_sport(r, c->o->dns_port);
		chains_end(c, NFT_RETURN, NULL);
	}
	r = chains_open(c, "untrack", GUARD_PART_UNTRACK);
	expr_l4proto(r, IPPROTO_TCP);
	expr_sport(r, c->o->web_port);
	chains_end(c, NFT_RETURN, NULL);
	for (size_t i = 0; i < ARRAY_LEN(icmp); i++) {
		r = chains_open(c, "untrack", GUARD_PART_UNTRACK);
		expr_l4proto(r, icmp[i].proto);
		expr_transport_byte(r, 0, icmp[i].unreachable);
		chains_end(c, NFT_RETURN, NULL);
	}
	r = chains_open(c, "untrack", GUARD_PART_UNTRACK);
	expr_notrack(r);
	expr_close(r);
	r = chains_open(c, "first", GUARD_PART_UNTRACK);
	expr_oif_lo(r, EXPR_IS);
	chains_end(c, NFT_JUMP, "untrack");
}

/* One of our listeners is the destination. */
static void chains_listener(struct chains *c, const char *chain, uint16_t port, uint8_t proto)
{
	struct expr_rule *r = chains_open(c, chain, GUARD_PART_LISTENERS);

	expr_l4proto(r, proto);
	expr_dport(r, port);
	chains_end(c, NFT_JUMP, "ours");
}

/* Nobody else serves our ports while a worker is dead: the receiving socket must be of our cgroup.
 * (The supervisor opened it, so its user says nothing.) */
static void chains_listeners(struct chains *c)
{
	struct expr_rule *r;

	if (!tables_has(c->t, GUARD_PART_LISTENERS))
		return;
	r = chains_open(c, "ours", GUARD_PART_LISTENERS);
	expr_cgroup(r, c->o->cgroup_level, c->o->cgroup_id);
	chains_end(c, NFT_RETURN, NULL);
	r = chains_open(c, "ours", GUARD_PART_LISTENERS);
	expr_reject_tcp(r);
	expr_close(r);
	(void)chains_open(c, "ours", GUARD_PART_LISTENERS);
	chains_end(c, NF_DROP, NULL);
	chains_listener(c, "opened", c->o->api_port, IPPROTO_TCP);
	chains_listener(c, "opened", c->o->web_port, IPPROTO_TCP);
	chains_listener(c, "opened", c->o->dns_port, IPPROTO_TCP);
	r = chains_open(c, "inp", GUARD_PART_LISTENERS);
	expr_l4proto(r, IPPROTO_TCP);
	expr_tcp_flags(r, TCP_ALL, TH_SYN, EXPR_IS);
	chains_end(c, NFT_JUMP, "opened");
	chains_listener(c, "inp", c->o->dns_port, IPPROTO_UDP);
}

/* A frame that AF_XDP put on lo: tracked, since it never was in the output chain, and from a source
 * that is not ours. Redirected flows and our own resets look like that too. */
static void chains_inp_forged(struct chains *c)
{
	struct expr_rule *r;

	if (!tables_has(c->t, GUARD_PART_SOURCES))
		return;
	for (size_t tcp = 0; tcp < 2; tcp++) {
		r = chains_open(c, "inp", GUARD_PART_SOURCES);
		expr_iif_lo(r, EXPR_IS);
		expr_ct_status(r, IPS_DST_NAT, EXPR_IS_NOT);
		expr_addr_not_local(r, true);
		if (tcp) {
			expr_l4proto(r, IPPROTO_TCP);
			expr_tcp_flags(r, TH_RST, TH_RST, EXPR_IS_NOT);
		} else {
			static const uint8_t proto = IPPROTO_TCP;

			expr_l4proto_not(r, &proto, 1);
		}
		chains_end(c, NF_DROP, NULL);
	}
}

/* Flows that others open to us. Only on addresses of this host: a SYN to the own broadcast address
 * comes back as if from outside. */
static void chains_inp_marks(struct chains *c)
{
	struct expr_rule *r = chains_open(c, "arrivals", GUARD_PART_TABLE);

	expr_dport(r, c->o->api_port);
	expr_set_ct_mark(r, c->t->marks.own);
	chains_end(c, NF_ACCEPT, NULL);
	r = chains_open(c, "arrivals", GUARD_PART_TABLE);
	if (!c->o->inbound_all)
		expr_dport_in(r, tables_sets[SET_INBOUND].name, tables_sets[SET_INBOUND].id);
	if (tables_has(c->t, GUARD_PART_SOURCES))
		expr_addr_local(r, false);
	expr_set_ct_mark(r, c->t->marks.service);
	expr_close(r);
	r = chains_open(c, "inp", GUARD_PART_TABLE);
	expr_iif_lo(r, EXPR_IS_NOT);
	expr_ct_state(r, CT_NEW);
	expr_l4proto(r, IPPROTO_TCP);
	chains_end(c, NFT_JUMP, "arrivals");
}

/* New flows as conntrack sees them, of loopback too. */
static void chains_fresh(struct chains *c)
{
	struct expr_rule *r;

	(void)chains_open(c, "fresh", chains_pass_part(c));
	chains_pass(c);
	chains_end(c, NFT_RETURN, NULL);
	/* On lo only answers of our listeners are tracked, and they are ours or belong to flows
	 * that are known. Somebody else's packets from those ports would each leave an entry. */
	if (tables_has(c->t, GUARD_PART_UNTRACK)) {
		r = chains_open(c, "fresh", GUARD_PART_UNTRACK);
		expr_oif_lo(r, EXPR_IS);
		chains_end(c, NF_DROP, NULL);
	}
	if (tables_has(c->t, GUARD_PART_TIMEOUTS)) {
		r = chains_open(c, "fresh", GUARD_PART_TIMEOUTS);
		expr_l4proto(r, IPPROTO_TCP);
		expr_timeout(r, TABLES_SHORT);
		expr_close(r);
	}
	r = chains_open(c, "egress", GUARD_PART_TABLE);
	expr_ct_state(r, CT_NEW);
	chains_end(c, NFT_JUMP, "fresh");
}

static void chains_redirected_port(struct chains *c, uint8_t family, uint8_t proto, uint16_t port)
{
	const bool v6 = family == NFPROTO_IPV6;
	struct expr_rule *r = chains_open(c, "redirected", GUARD_PART_TABLE);

	expr_family(r, family);
	expr_network(r, v6 ? 24 : 16, v6 ? chains_loopback_v6 : chains_loopback_v4, v6 ? 16 : 4);
	expr_l4proto(r, proto);
	expr_dport(r, port);
	chains_end(c, NF_ACCEPT, NULL);
}

/* What nato redirected still has its old device here, but the new address. */
static void chains_redirected(struct chains *c)
{
	struct expr_rule *r;

	for (size_t i = 0; i < ARRAY_LEN(chains_families); i++) {
		chains_redirected_port(c, chains_families[i], IPPROTO_TCP, c->o->web_port);
		chains_redirected_port(c, chains_families[i], IPPROTO_UDP, c->o->dns_port);
		chains_redirected_port(c, chains_families[i], IPPROTO_TCP, c->o->dns_port);
	}
	r = chains_open(c, "egress", GUARD_PART_TABLE);
	expr_ct_status(r, IPS_DST_NAT, EXPR_IS);
	chains_end(c, NFT_JUMP, "redirected");
}

/* Neighbour discovery is the kernel's, never a socket's: a payload to any address, or a neighbour's
 * cache poisoned. */
static void chains_neighbours(struct chains *c)
{
	static const uint8_t types[] = {133, 135, 136};
	struct expr_rule *r;

	for (size_t i = 0; i < ARRAY_LEN(types); i++) {
		r = chains_open(c, "neighbours", GUARD_PART_TABLE);
		expr_transport_byte(r, 0, types[i]);
		expr_has_socket(r);
		chains_end(c, NFT_GOTO, "refused");
		r = chains_open(c, "neighbours", GUARD_PART_TABLE);
		expr_transport_byte(r, 0, types[i]);
		chains_end(c, NF_ACCEPT, NULL);
	}
	/* Nobody needs our multicast reports, and refusals of them would fill the record. */
	r = chains_open(c, "neighbours", GUARD_PART_TABLE);
	expr_transport_byte(r, 0, MLD2_REPORT);
	chains_end(c, NF_DROP, NULL);
	r = chains_open(c, "egress", GUARD_PART_TABLE);
	expr_l4proto(r, IPPROTO_ICMPV6);
	chains_end(c, NFT_JUMP, "neighbours");
}

/* Refused with an answer, so that clients fall back at once; and on record. */
static void chains_refused(struct chains *c)
{
	struct expr_rule *r;

	if (tables_has(c->t, GUARD_PART_LOG)) {
		r = chains_open(c, "refused", GUARD_PART_LOG);
		expr_limit(r, CHAINS_LOG_RATE);
		expr_log(r, "refused", TABLES_LOG_GROUP, CHAINS_LOG_SNAP);
		expr_close(r);
	}
	r = chains_open(c, "refused", GUARD_PART_TABLE);
	expr_reject_tcp(r);
	expr_close(r);
	r = chains_open(c, "refused", GUARD_PART_TABLE);
	expr_reject(r);
	expr_close(r);
}

/* A direct flow that a rule or a lease allows: its mark lets what follows pass at once. */
static void chains_grant(struct chains *c)
{
	struct expr_rule *r;

	if (tables_has(c->t, GUARD_PART_LOG)) {
		r = chains_open(c, "grant", GUARD_PART_LOG);
		expr_ct_state(r, CT_NEW);
		expr_limit(r, CHAINS_LOG_RATE);
		expr_log(r, "passed", TABLES_LOG_GROUP, CHAINS_LOG_SNAP);
		expr_close(r);
	}
	r = chains_open(c, "grant", GUARD_PART_TABLE);
	expr_set_ct_mark(r, c->t->marks.revision);
	chains_end(c, NF_ACCEPT, NULL);
}

/* A flow of ours. The kernel speaks for us without a socket (SYN-ACK, time-wait), but nobody else's
 * socket may: a closed resolver port of ours taken, raw segments put into a live connection. */
static void chains_own(struct chains *c)
{
	struct expr_rule *r;

	(void)chains_open(c, "own", chains_pass_part(c));
	chains_pass(c);
	chains_end(c, NF_ACCEPT, NULL);
	r = chains_open(c, "own", GUARD_PART_TABLE);
	expr_ct_reply(r);
	expr_l4proto(r, IPPROTO_TCP);
	expr_tcp_flags(r, TCP_ALL, TH_SYN | TH_ACK, EXPR_IS);
	expr_shorter(r, CHAINS_SYN_ACK_MAX + 1);
	chains_end(c, NF_ACCEPT, NULL);
	r = chains_open(c, "own", GUARD_PART_TABLE);
	expr_has_socket(r);
	chains_end(c, NF_DROP, NULL);
	r = chains_open(c, "own", GUARD_PART_TABLE);
	expr_ct_state(r, CT_LIVE);
	chains_end(c, NF_ACCEPT, NULL);
}

/* Denied addresses, before anything of ours passes: not even a bug in the proxy reaches the
 * metadata address. */
static void chains_deny(struct chains *c, bool v6)
{
	const struct elem_set *deny = &tables_sets[v6 ? SET_DENY_V6 : SET_DENY_V4];
	const struct elem_set *ports = &tables_sets[v6 ? SET_DENY_PORTS_V6 : SET_DENY_PORTS_V4];
	const enum tables_set_index resolver = v6 ? SET_RESOLVER_V6 : SET_RESOLVER_V4;
	const uint8_t family = v6 ? NFPROTO_IPV6 : NFPROTO_IPV4;
	struct expr_rule *r;

	for (size_t i = 0; i < 2; i++) {
		const struct elem_set *s = i == 0 ? deny : ports;

		if (!tables_has_set(c->t, (enum tables_set_index)(s->id - 1)))
			continue;
		r = chains_open(c, "egress", GUARD_PART_TABLE);
		expr_family(r, family);
		if (i == 0)
			expr_daddr_in(r, v6, s->name, s->id, EXPR_IS);
		else
			expr_daddr_ports_in(r, v6, s->name, s->id);
		if (tables_has_set(c->t, resolver))
			expr_daddr_port_in(r, v6, tables_sets[resolver].name,
				tables_sets[resolver].id, EXPR_IS_NOT);
		chains_end(c, NFT_GOTO, "refused");
	}
}

/* HTTP/3 carries DNS as HTTP/2 does: UDP too. */
static void chains_doh_to(struct chains *c, uint8_t family, bool listed)
{
	static const uint8_t protos[] = {IPPROTO_TCP, IPPROTO_UDP};
	const bool v6 = family == NFPROTO_IPV6;
	const enum tables_set_index set = v6 ? SET_DOH_V6 : SET_DOH_V4;

	for (size_t i = 0; i < ARRAY_LEN(protos); i++) {
		struct expr_rule *r = chains_open(c, "egress", GUARD_PART_TABLE);

		expr_family(r, family);
		expr_l4proto(r, protos[i]);
		expr_dport(r, 443);
		if (listed)
			expr_daddr_in(r, v6, tables_sets[set].name, tables_sets[set].id, EXPR_IS);
		chains_end(c, NFT_GOTO, "refused");
	}
}

static void chains_doh(struct chains *c)
{
	const bool v4 = tables_has_set(c->t, SET_DOH_V4);
	const bool v6 = tables_has_set(c->t, SET_DOH_V6);

	if (!c->o->doh_block)
		return;
	if (v4 || !v6)
		chains_doh_to(c, NFPROTO_IPV4, v4);
	if (v6 || !v4)
		chains_doh_to(c, NFPROTO_IPV6, v6);
}

/* Established is earned, not seen: only flows with a mark that one of our verdicts set. */
static void chains_established(struct chains *c)
{
	const uint32_t marks[] = {c->t->marks.revision, c->t->marks.service, c->t->marks.before};
	struct expr_rule *r = chains_open(c, "egress", GUARD_PART_TABLE);

	expr_ct_mark(r, c->t->marks.own);
	chains_end(c, NFT_JUMP, "own");
	/* SYN-ACK, SYN-FIN, null and christmas packets to an allowed address. */
	r = chains_open(c, "egress", GUARD_PART_TABLE);
	expr_ct_state(r, CT_INVALID);
	chains_end(c, NF_DROP, NULL);
	for (size_t i = 0; i < ARRAY_LEN(marks) && marks[i] != 0; i++) {
		r = chains_open(c, "egress", GUARD_PART_TABLE);
		expr_ct_mark(r, marks[i]);
		expr_ct_state(r, CT_LIVE);
		chains_end(c, NF_ACCEPT, NULL);
	}
	/* Before the next rule: a late or forged datagram from a resolver makes a question of ours,
	 * from a port that is used again, the answer to it. */
	r = chains_open(c, "egress", chains_pass_part(c));
	chains_pass(c);
	expr_set_ct_mark(r, c->t->marks.own);
	chains_end(c, NF_ACCEPT, NULL);
	/* Answers to what others opened and we did not mark. */
	r = chains_open(c, "egress", GUARD_PART_TABLE);
	expr_ct_reply(r);
	chains_end(c, NFT_GOTO, "refused");
}

static void chains_refuse_port(struct chains *c, uint8_t proto, uint16_t port)
{
	struct expr_rule *r = chains_open(c, "egress", GUARD_PART_TABLE);

	expr_l4proto(r, proto);
	expr_dport(r, port);
	chains_end(c, NFT_GOTO, "refused");
}

/* Resolvers that the operator lets the sandbox ask directly. */
static void chains_exempt(struct chains *c, const char *chain, int verdict, const char *to)
{
	for (size_t i = 0; i < ARRAY_LEN(chains_families); i++) {
		const bool v6 = chains_families[i] == NFPROTO_IPV6;
		const enum tables_set_index set = v6 ? SET_EXEMPT_V6 : SET_EXEMPT_V4;

		if (!tables_has_set(c->t, set))
			continue;
		for (size_t k = 0; k < ARRAY_LEN(chains_services); k++) {
			struct expr_rule *r = chains_open(c, chain, GUARD_PART_TABLE);

			expr_family(r, chains_families[i]);
			expr_l4proto(r, chains_services[k]);
			expr_dport(r, 53);
			expr_daddr_in(r, v6, tables_sets[set].name, tables_sets[set].id, EXPR_IS);
			chains_end(c, verdict, to);
		}
	}
}

/* Ports that pass only redirected or as our own, and protocols that nobody judges. */
static void chains_refuse_ports(struct chains *c)
{
	static const uint8_t known[] = {IPPROTO_TCP, IPPROTO_UDP, IPPROTO_ICMP, IPPROTO_ICMPV6};
	struct expr_rule *r;

	for (size_t i = 0; i < ARRAY_LEN(chains_services); i++) {
		chains_refuse_port(c, chains_services[i], 53);
		chains_refuse_port(c, chains_services[i], 853);
	}
	if (c->o->redirect_web) {
		r = chains_open(c, "egress", GUARD_PART_TABLE);
		expr_l4proto(r, IPPROTO_TCP);
		expr_dport_in(r, tables_sets[SET_INSPECT].name, tables_sets[SET_INSPECT].id);
		chains_end(c, NFT_GOTO, "refused");
		chains_refuse_port(c, IPPROTO_UDP, 443);
	}
	r = chains_open(c, "egress", GUARD_PART_TABLE);
	expr_l4proto_not(r, known, c->o->read_only ? 2 : ARRAY_LEN(known));
	chains_end(c, NFT_GOTO, "refused");
}

static void chains_allow(struct chains *c, bool v6)
{
	static const enum tables_set_index sets[2][4] = {
		{SET_DYN_V4, SET_DYN_PORTS_V4, SET_ALLOW_V4, SET_ALLOW_PORTS_V4},
		{SET_DYN_V6, SET_DYN_PORTS_V6, SET_ALLOW_V6, SET_ALLOW_PORTS_V6},
	};
	const uint8_t family = v6 ? NFPROTO_IPV6 : NFPROTO_IPV4;
	struct expr_rule *r;

	/* Nothing goes directly to public addresses under the read-only rule. */
	if (c->o->read_only) {
		const struct elem_set *s = &tables_sets[v6 ? SET_PRIVATE_V6 : SET_PRIVATE_V4];

		r = chains_open(c, "egress", GUARD_PART_TABLE);
		expr_family(r, family);
		expr_daddr_in(r, v6, s->name, s->id, EXPR_IS_NOT);
		chains_end(c, NFT_GOTO, "refused");
	}
	for (size_t i = 0; i < ARRAY_LEN(sets[0]); i++) {
		const struct elem_set *s = &tables_sets[sets[v6][i]];

		r = chains_open(c, "egress", GUARD_PART_TABLE);
		expr_family(r, family);
		if (s->shape == ELEM_ADDR)
			expr_daddr_in(r, v6, s->name, s->id, EXPR_IS);
		else
			expr_daddr_ports_in(r, v6, s->name, s->id);
		chains_end(c, NFT_GOTO, "grant");
	}
}

/* Default action allow: all that no rule names, but for special addresses. */
static void chains_rest(struct chains *c)
{
	for (size_t i = 0; i < ARRAY_LEN(chains_families); i++) {
		const bool v6 = chains_families[i] == NFPROTO_IPV6;
		const enum tables_set_index set = v6 ? SET_SPECIAL_V6 : SET_SPECIAL_V4;
		struct expr_rule *r;

		if (!tables_has_set(c->t, set))
			continue;
		r = chains_open(c, "egress", GUARD_PART_TABLE);
		expr_family(r, chains_families[i]);
		expr_daddr_in(r, v6, tables_sets[set].name, tables_sets[set].id, EXPR_IS);
		chains_end(c, NFT_GOTO, "refused");
	}
	(void)chains_open(c, "egress", GUARD_PART_TABLE);
	chains_end(c, NFT_GOTO, c->o->accept_rest ? "grant" : "refused");
}

/* What a flow has earned stays: an entry that is known goes on to the rules that let it out. */
static void chains_hold(struct chains *c)
{
	struct expr_rule *r = chains_open(c, "egress", GUARD_PART_TABLE);

	expr_ct_state(r, CT_NEW);
	chains_end(c, NFT_GOTO, "refused");
}

static void chains_egress(struct chains *c)
{
	struct expr_rule *r;

	chains_fresh(c);
	r = chains_open(c, "egress", GUARD_PART_TABLE);
	expr_oif_lo(r, EXPR_IS);
	chains_end(c, NF_ACCEPT, NULL);
	chains_redirected(c);
	chains_neighbours(c);
	chains_deny(c, false);
	chains_deny(c, true);
	chains_doh(c);
	chains_established(c);
	if (c->o->hold)
		chains_hold(c);
	chains_exempt(c, "egress", NFT_GOTO, "grant");
	chains_refuse_ports(c);
	chains_allow(c, false);
	chains_allow(c, true);
	chains_rest(c);
}

static void chains_redirect(struct chains *c, uint8_t proto, const uint16_t *port, uint16_t to)
{
	struct expr_rule *r = chains_open(c, "nato", GUARD_PART_REDIRECT);

	expr_l4proto(r, proto);
	if (port)
		expr_dport(r, *port);
	expr_redirect(r, to);
	expr_close(r);
}

static void chains_nat_web(struct chains *c)
{
	struct expr_rule *r = chains_open(c, "nato", GUARD_PART_REDIRECT);

	expr_l4proto(r, IPPROTO_TCP);
	expr_dport_in(r, tables_sets[SET_INSPECT].name, tables_sets[SET_INSPECT].id);
	expr_redirect(r, c->o->web_port);
	expr_close(r);
	if (!c->o->read_only)
		return;
	/* Under the read-only rule every port of a public address is looked into. */
	for (size_t i = 0; i < ARRAY_LEN(chains_families); i++) {
		const bool v6 = chains_families[i] == NFPROTO_IPV6;
		const struct elem_set *s = &tables_sets[v6 ? SET_PRIVATE_V6 : SET_PRIVATE_V4];

		r = chains_open(c, "nato", GUARD_PART_REDIRECT);
		expr_family(r, chains_families[i]);
		expr_daddr_in(r, v6, s->name, s->id, EXPR_IS);
		chains_end(c, NFT_RETURN, NULL);
	}
	chains_redirect(c, IPPROTO_TCP, NULL, c->o->web_port);
}

static void chains_nato(struct chains *c)
{
	static const uint8_t first_octet = 127;
	static const uint16_t dns = 53;
	struct expr_rule *r;

	(void)chains_open(c, "nato", chains_pass_part(c));
	chains_pass(c);
	chains_end(c, NF_ACCEPT, NULL);
	r = chains_open(c, "nato", GUARD_PART_REDIRECT);
	expr_family(r, NFPROTO_IPV4);
	expr_network(r, 16, &first_octet, 1);
	chains_end(c, NFT_RETURN, NULL);
	r = chains_open(c, "nato", GUARD_PART_REDIRECT);
	expr_family(r, NFPROTO_IPV6);
	expr_network(r, 24, chains_loopback_v6, sizeof(chains_loopback_v6));
	chains_end(c, NFT_RETURN, NULL);
	chains_exempt(c, "nato", NFT_RETURN, NULL);
	for (size_t i = 0; c->o->redirect_dns && i < ARRAY_LEN(chains_services); i++)
		chains_redirect(c, chains_services[i], &dns, c->o->dns_port);
	if (c->o->redirect_web)
		chains_nat_web(c);
}

void chains_add(const struct tables *t)
{
	for (size_t i = 0; t->ruleset->options.enforce && i < ARRAY_LEN(chains_all); i++)
		tables_add_chain(
			t->batch, NFPROTO_INET, TABLES_NAME, &chains_all[i], GUARD_PART_TABLE);
	if (tables_has(t, GUARD_PART_REDIRECT))
		tables_add_chain(
			t->batch, NFPROTO_INET, TABLES_NAME, &chains_nat, GUARD_PART_REDIRECT);
}

void chains_build(const struct tables *t)
{
	struct chains c = {.t = t,
		.o = &t->ruleset->options,
		.rule = {.batch = t->batch, .table = TABLES_NAME, .family = NFPROTO_INET}};

	if (tables_has(t, GUARD_PART_REDIRECT))
		chains_nato(&c);
	if (!c.o->enforce)
		return;
	chains_forged(&c);
	chains_first_headers(&c);
	chains_untrack(&c);
	chains_inp_forged(&c);
	chains_listeners(&c);
	chains_inp_marks(&c);
	chains_refused(&c);
	chains_grant(&c);
	chains_own(&c);
	chains_egress(&c);
}
