/* The DNS gate: every question of the sandbox comes here. A name that policy refuses gets NXDOMAIN
 * and reaches no resolver; an answer loses what the sandbox must not learn or reach; the reply goes
 * out when the kernel has let in what it names.
 *
 * There is no cache of answers: clients keep them as long as they may, and the resolver behind us
 * has one. What is kept are the leases, by name. */
#pragma once

#include "base/err.h"
#include "base/netaddr.h"
#include "dns/forwarder.h"
#include "policy/check.h"

#define DNS_GATE_PORT 15353       /* on 127.0.0.1 and [::1], as the replaced image's */
#define DNS_GATE_QUERIES_MAX 4096 /* at a time; SERVFAIL beyond */
#define DNS_GATE_CONNS_MAX 128    /* of one TCP socket; the one idle longest makes room */
#define DNS_GATE_TCP_MAX 2        /* such sockets: IPv4 and IPv6 */

struct audit;
struct dns_gate;
struct event_base;
struct guard_client;
struct resolver;
struct ruleset;

/* What may change while it runs. Pointers must live until the next configure; policy is referenced.
 */
struct dns_gate_config {
	struct policy *policy;
	bool hold; /* every question is refused; what was granted stays */
	const struct private_names *private_names;
	bool read_only;
	const struct netcidr *on_link; /* subnets of our own devices, see judge.h */
	size_t n_on_link;
	const uint16_t *types;         /* `dns_types`: allowed for every allowed name */
	size_t n_types;                /* at most JUDGE_TYPES_MAX */
	struct guard_client *guard;    /* NULL: nothing is programmed (mode `dns`) */
	struct audit *audit;           /* NULL: no record (tests) */
	const struct upstreams *asked; /* whom clients ask, who get us: to find their users */
	struct resolver *resolver;     /* learns the addresses of allowed names; may be NULL */
	const struct policy *log_skip; /* names that it allows are not logged; may be NULL */
	void (*denied)(struct slice name, void *arg); /* for the webhook; may be NULL */
	void *arg;
	void *keep; /* cell for leases that outlive us, see leases_keep; NULL: none. For life */
	size_t keep_len;
};

struct dns_gate_stats {
	uint64_t queries;   /* messages that were questions, well formed or not */
	uint64_t malformed; /* answered with FORMERR, NOTIMP or BADVERS */
	uint64_t denied;
	uint64_t no_data; /* the type is not allowed */
	uint64_t forwarded;
	uint64_t failed;         /* no resolver gave an answer */
	uint64_t refused_addrs;  /* addresses left out of answers */
	uint64_t granted;        /* answers that waited for the kernel */
	uint64_t kernel_refused; /* SERVFAIL since the kernel did not take the lease */
	uint64_t overloaded;
	uint64_t unsent; /* replies that the socket did not take */
};

CHECKED int dns_gate_new(struct event_base *base, const struct forwarder_config *forward,
	const struct dns_gate_config *config, struct dns_gate **out, struct errmsg *msg);
/* Open questions are not answered any more. Not from inside a callback of it. */
void dns_gate_free(struct dns_gate *g);

/* From now on. Leases that the new policy does not allow are forgotten: the kernel has had its
 * ruleset before (dns_gate_collect). */
void dns_gate_configure(struct dns_gate *g, const struct dns_gate_config *config);

enum dns_gate_kind { DNS_GATE_UDP, DNS_GATE_TCP };

/* Serves a bound socket (TCP: listening), made non-blocking. fd stays the caller's and open until
 * dns_gate_free. */
void dns_gate_listen(struct dns_gate *g, int fd, enum dns_gate_kind kind);

/* A change of policy begins: adds the leases that both the policy in force and `next` allow to r,
 * and from now until dns_gate_configure or dns_gate_abandon answers must be allowed by both. next
 * is referenced. E_LIMIT: they do not fit into r; then nothing has begun. */
CHECKED int dns_gate_collect(struct dns_gate *g, struct policy *next, struct ruleset *r);
/* The change did not take place. */
void dns_gate_abandon(struct dns_gate *g);

/* Nothing ran for this long: leases of live connections are renewed, and names asked for shortly
 * before are asked for again, at once. */
void dns_gate_thaw(struct dns_gate *g, uint64_t ms);

const struct dns_gate_stats *dns_gate_stats(const struct dns_gate *g);
/* For health: resolvers that answered the last probe, and all. */
size_t dns_gate_resolvers_alive(const struct dns_gate *g);
size_t dns_gate_leases(const struct dns_gate *g);
