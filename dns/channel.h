/* One channel of c-ares on libevent: its sockets, its timer, its options.
 *
 * A channel opens its sockets with its first open question and closes them after its last one; all
 * in between leave from one port. Whoever asks counts open questions and changes channels. */
#pragma once

#include <ares.h>

#include "base/err.h"

struct event;
struct event_base;
struct upstreams;
struct channel_sock;

/* An answer of this size passes any path unfragmented (DNS flag day 2020). */
#define CHANNEL_EDNS_SIZE 1232

struct channel {
	struct event_base *base;
	ares_channel ares;
	struct channel_sock *socks;
	struct event *timer;
	size_t n_open; /* questions without an answer yet; counted by the user */
};

/* servers are tried in order; each has timeout_ms, in which it is asked twice. flags: ARES_FLAG_*,
 * added to EDNS, NOSEARCH and NOALIASES. ares_library_init must have been called. On failure there
 * is nothing to end. */
CHECKED int channel_init(struct channel *ch, struct event_base *base,
	const struct upstreams *servers, uint32_t timeout_ms, int flags, struct errmsg *msg);
/* Open questions end with ARES_EDESTRUCTION, from in here. */
void channel_fini(struct channel *ch);
/* To be called after every call into ch->ares from outside. */
void channel_touch(struct channel *ch);
