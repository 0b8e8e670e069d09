/* Questions that policy allows, on their way to the resolvers and back: fail-over in list order,
 * TCP on truncation, changing ids, source ports and letter case, and a probe that finds out which
 * resolvers live.
 *
 * A resolver's NOERROR or NXDOMAIN to exactly the question asked is final; any other rcode,
 * silence, an ICMP error and an answer that cannot be read send the question to the next one. */
#pragma once

#include "dns/dns_msg.h"
#include "dns/upstreams.h"

#define FORWARDER_OPEN_MAX 4096 /* questions at a time; E_FULL beyond */

struct event_base;
struct forward;
struct forwarder;

struct forwarder_config {
	const struct upstreams *upstreams; /* copied */
	uint32_t timeout_ms;               /* of each resolver */
	struct slice probe_name;           /* "" or ".": the root's NS; else its A. Copied */
	uint32_t probe_interval_s;         /* 0: no probes, every resolver counts as alive */
};

/* 0 or E_* with a message. */
CHECKED int forwarder_new(struct event_base *base, const struct forwarder_config *config,
	struct forwarder **out, struct errmsg *msg);
/* Open questions end without their done. Not allowed inside a done. */
void forwarder_free(struct forwarder *f);

/* err 0: *answer, decoded, nothing selected, lent for the call and the callee's to change.
 * -ETIMEDOUT; E_RESOLVE: what the last resolver failed with; E_FULL. answer is NULL then. */
typedef void (*forward_cb)(int err, struct dns_answer *answer, void *arg);

/* Asks. done runs once, from the loop, never before this returns, and not after forward_cancel().
 * Either one ends the handle. Of q go upstream: name, type, class IN, RD, CD, AD, DO. */
struct forward *forward_start(
	struct forwarder *f, const struct dns_question *q, forward_cb done, void *arg);
void forward_cancel(struct forward *w);

/* How many resolvers answered the last probe, and how many there are. All, before the first. A
 * resolver that refuses, or is silent while it has questions, is probed at once, and counts as dead
 * within a second; while none lives they are probed every second. */
size_t forwarder_n_alive(const struct forwarder *f);
size_t forwarder_n(const struct forwarder *f);
