/* What the kernel let out or refused by itself, from NFLOG: packets in, records out, repeats within
 * a second counted. */
#pragma once

#include "nft/netlink.h"

/* Different flows of a second; what does not fit is counted as lost. */
#define FLOW_LOG_MAX 256

struct flow_log {
	struct netlink log; /* of NETLINK_NETFILTER, bound to TABLES_LOG_GROUP */
	struct guard_flow v[FLOW_LOG_MAX];
	size_t n;
	uint32_t lost;
};

/* Opens the socket and takes the group. -EBUSY: somebody else has it. */
CHECKED int flow_log_open(struct flow_log *f);
void flow_log_close(struct flow_log *f);
/* Reads what is there, without waiting. */
CHECKED int flow_log_read(struct flow_log *f);
/* Reads the start of an IP packet (both headers at most) into from, to, ports and proto; false if
 * it is none. Pure; for tests too. */
CHECKED bool flow_log_decode(struct slice packet, struct guard_flow *out);
/* Adds one record, or counts it with an equal one. */
void flow_log_add(struct flow_log *f, const struct guard_flow *one);
