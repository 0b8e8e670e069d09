/* The worker's side of the guard: grants and rulesets go out, acknowledgements, flows and the state
 * of the protection come in.
 *
 * Nothing here waits: a call is a handle, its done runs once, from the loop, never before start
 * returned. Packets that the socket does not take are queued. A guard that neither says anything
 * nor takes a packet for GUARD_CLIENT_STALL_MS counts as lost, also when nothing was asked of it:
 * nobody would watch the kernel's rules. */
#pragma once

#include "nft/guard_msg.h"

struct event_base;
struct guard_client;
struct guard_call;

/* A commit of the largest ruleset takes well below a second; a stopped guard must not look alive.
 */
#define GUARD_CLIENT_STALL_MS 5000
/* When the limit is over so much too late, it was us who were stopped: the guard has it anew. */
#define GUARD_CLIENT_LATE_MS 1000
/* Calls that wait for the kernel. The DNS gate has fewer queries than that. */
#define GUARD_CALLS_MAX 8192

/* err 0: committed and acknowledged by the kernel; E_GUARD: the guard is gone, what the kernel has
 * is not known; else a negated errno of the kernel, and nothing was changed. */
typedef void (*guard_cb)(int err, void *arg);

struct guard_client_events {
	/* Once, and after every open call has ended with E_GUARD: the owner ends the worker. It may
	 * free the client in here. */
	void (*lost)(void *arg);
	void (*flow)(const struct guard_flow *f, void *arg);
	/* GUARD_LOST of a part: apply the ruleset again. */
	void (*state)(const struct guard_state *s, void *arg);
};

/* fd: our end of the pair, owned from here on. events is copied; its members may be NULL. */
struct guard_client *guard_client_new(
	struct event_base *base, int fd, const struct guard_client_events *events, void *arg);
/* Open calls end without their done. */
void guard_client_free(struct guard_client *g);

/* Adds or renews: a fresh timeout for each, one acknowledged batch for all. n: 1..GUARD_LEASES_MAX.
 * The leases are copied. NULL past GUARD_CALLS_MAX, for a lease out of range, and when the guard is
 * lost: nothing was sent. */
struct guard_call *guard_allow_start(
	struct guard_client *g, const struct guard_lease *v, size_t n, guard_cb done, void *arg);
/* The whole ruleset, its leases included, in one batch under a new random REVISION; flows that it
 * does not allow end with their next packet. r is copied. NULL as above. */
struct guard_call *guard_apply_start(
	struct guard_client *g, const struct ruleset *r, guard_cb done, void *arg);
/* done will not run. The change itself may still happen. c may be NULL. */
void guard_call_cancel(struct guard_call *c);

/* Of a lost one: it is there, but has said nothing for too long. */
bool guard_client_is_silent(const struct guard_client *g);
/* The last state that came, all GUARD_UNUSED before the first. */
const struct guard_state *guard_client_state(const struct guard_client *g);
