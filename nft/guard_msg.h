/* The messages between worker and guard, over one SOCK_SEQPACKET pair: fixed sizes, no text, no
 * path, no pointer. A packet of another type or size, or with a value out of range, ends the guard
 * (and a guard that sends one is gone for the worker).
 *
 * A ruleset travels as BEGIN, any number of ENTRIES, COMMIT. One ruleset at a time; ALLOW may come
 * in between. ALLOW and COMMIT are each answered by one DONE with the same id, in order, after the
 * kernel's acknowledgement. FLOW and STATE come unasked, and BEAT when nothing else has for
 * GUARD_BEAT_MS: a guard that is silent for longer is stopped, or stuck in the kernel. */
#pragma once

#include "nft/ruleset.h"

#define GUARD_UID 10043u
#define GUARD_WORKER_FD 3 /* the guard's end of the pair with the worker */
#define GUARD_HOLD_FD 4   /* its end of the pair with the supervisor (struct guard_hold) */

#define GUARD_LEASES_MAX 64 /* of one answer */
#define GUARD_LEASE_SECONDS_MAX 86400u
#define GUARD_CHUNK_MAX 128 /* entries of one message: 5.6 KiB */
#define GUARD_XSK_MAX 64    /* AF_XDP sockets, one for each queue of each device */
#define GUARD_BEAT_MS 1000

enum guard_type {
	GUARD_ALLOW = 1,
	GUARD_BEGIN,
	GUARD_ENTRIES,
	GUARD_COMMIT,
	/* from the guard */
	GUARD_DONE,
	GUARD_STATE,
	GUARD_FLOW,
	GUARD_BEAT, /* a head alone */
	GUARD_TYPE_MAX
};

struct guard_head {
	uint32_t type; /* enum guard_type */
	uint32_t id;   /* of the call; 0 where there is none */
};

/* One granted address. */
struct guard_lease {
	struct netaddr addr;
	uint8_t proto; /* IPPROTO_TCP, IPPROTO_UDP; 0: every one. With port 0 it must be 0 */
	uint8_t zero;
	uint16_t port;    /* 0: every one */
	uint32_t seconds; /* 1..GUARD_LEASE_SECONDS_MAX, from the kernel's commit */
};

struct guard_allow {
	struct guard_head head;
	uint32_t n;
	struct guard_lease lease[GUARD_LEASES_MAX]; /* those past n are zero */
};

struct guard_begin {
	struct guard_head head;
	struct ruleset_options options;
};

struct guard_entries {
	struct guard_head head;
	uint32_t n;
	struct ruleset_entry entry[GUARD_CHUNK_MAX]; /* those past n are zero */
};

struct guard_commit {
	struct guard_head head;
	uint32_t n; /* entries that were sent in all */
};

struct guard_done {
	struct guard_head head;
	int32_t err; /* 0 or a negated errno */
};

/* The parts of the protection. TABLE and what a ruleset asks of REDIRECT are never done without;
 * each other one is left out if the kernel refuses it, and says so here. */
#define GUARD_PART_TABLE(X)                                                       \
	X(TABLE, "table", "the table inet opensandbox")                           \
	X(REDIRECT, "redirect", "the redirects of DNS and web traffic")           \
	X(PASS, "pass", "recognition of our own sockets by cgroup")               \
	X(SOURCES, "sources", "the check of source addresses (fib)")              \
	X(HEADERS, "headers", "the check of IPv6 extension headers")              \
	X(UNTRACK, "untrack", "loopback traffic without conntrack entries")       \
	X(TIMEOUTS, "timeouts", "short conntrack timeouts for the sandbox's TCP") \
	X(LISTENERS, "listeners", "the check of who serves our ports")            \
	X(LOG, "log", "the record of direct flows and refusals")                  \
	X(RAW_GUARD, "raw_guard", "the egress hook of every device")              \
	X(QUEUES, "queues", "AF_XDP sockets of ours on every queue")

enum guard_part {
#define X(id, name, text) GUARD_PART_##id,
	GUARD_PART_TABLE(X)
#undef X
		GUARD_PART_MAX
};

enum guard_status {
	GUARD_UNUSED, /* not asked for, or nothing is applied yet */
	GUARD_IN_PLACE,
	GUARD_REFUSED, /* the kernel has not got it; err says why */
	GUARD_LOST,    /* it was in place and is gone or changed; queues: somebody else's */
	GUARD_STATUS_MAX
};

/* Sent after each commit and whenever something changes. After LOST of a table the worker applies
 * its ruleset again; the guard by itself only watches. */
struct guard_state {
	struct guard_head head;
	struct {
		uint8_t status; /* enum guard_status */
		uint8_t zero[3];
		int32_t err;
	} part[GUARD_PART_MAX];
	uint32_t queues_held;
	uint32_t queues_taken; /* by somebody else, when we came to bind them */
	uint32_t queues_short; /* for which no socket was left */
};

enum guard_flow_verdict {
	GUARD_FLOW_PASSED,  /* first packet of a flow that rules let out directly */
	GUARD_FLOW_REFUSED, /* rejected */
	GUARD_FLOW_MAX
};

/* What the kernel let out or refused by itself, for the audit trail. Repeats within a second (same
 * verdict, protocol, destination and user) come as one. */
struct guard_flow {
	struct guard_head head;
	struct netaddr from;
	struct netaddr to;
	uint16_t from_port; /* 0 where the protocol has none */
	uint16_t to_port;
	uint8_t proto;
	uint8_t verdict; /* enum guard_flow_verdict */
	uint8_t has_uid;
	uint8_t zero;
	uint32_t uid; /* of the sending socket */
	uint32_t count;
	uint32_t lost; /* records that were lost before this one: table or socket full */
};

/* Between supervisor and guard. The supervisor sends one at the start, with the AF_XDP descriptors
 * that it holds from an earlier guard (none: n 0). With none the guard makes GUARD_XSK_MAX of them
 * and answers with copies of all, before it binds any: bound by whom and to what is a property of
 * the socket, so the copies need no further message. */
#define GUARD_HOLD_MAGIC 0x68646c31u /* "hdl1" */
struct guard_hold {
	uint32_t magic;
	uint32_t n; /* descriptors with it (SCM_RIGHTS) */
};

/* The largest of all, for a receive buffer that shows when a packet is too long. */
union guard_any {
	struct guard_head head;
	struct guard_allow allow;
	struct guard_begin begin;
	struct guard_entries entries;
	struct guard_commit commit;
	struct guard_done done;
	struct guard_state state;
	struct guard_flow flow;
};

/* Size of a message of this type, 0 for an unknown one. */
size_t guard_msg_size(uint32_t type);
/* True if the len bytes at m (copied to an aligned union guard_any) are a message that the guard
 * takes (from_guard false) or sends (true): size, direction, every field in range, zero bytes zero.
 */
CHECKED bool guard_msg_valid(const union guard_any *m, size_t len, bool from_guard);
/* Short name and meaning of a part, for health, log and status. */
const char *guard_part_name(enum guard_part p);
const char *guard_part_text(enum guard_part p);

/* Putting a ruleset together on the guard's side. Zero is empty. */
struct guard_draft {
	struct ruleset ruleset;
	bool open;
};

void guard_draft_fini(struct guard_draft *d);
/* BEGIN, ENTRIES and COMMIT, valid by guard_msg_valid. 0, E_MORE until COMMIT, which gives 0: the
 * ruleset is whole. E_SYNTAX: out of order or a wrong count; E_LIMIT: too many entries. */
CHECKED int guard_draft_take(struct guard_draft *d, const union guard_any *m);
