/* From a name to a connection that is ready: look up, choose an address that is allowed, connect,
 * and do TLS with verification. Addresses are tried in turn. Used by upstream (pooled HTTP) and
 * tunnel. */
#pragma once

#include "proxy/conn.h"
#include "proxy/proxy.h"
#include "proxy/request_target.h"

#define DIAL_TRY_MS 3000 /* one address, while there are others left to try */

struct dial;

struct dial_result {
	enum reason reason; /* ALLOWED: connected. Else what failed, */
	const char *detail; /* and how, for a person; static, never the peer's text; may be NULL */
	struct netaddr addr;
	bool has_addr;
	bool verified; /* the origin's certificate was */
};

struct dial_ops {
	/* May we connect to a? An allowing reason, or why not. Asked for each address in turn,
	 * before anything is sent to it; the place to take the audit slot (OVERLOADED ends the
	 * dial). */
	enum reason (*admit)(const struct netaddr *a, void *arg);
	/* Runs once, from the loop, never before dial_start returns. On success c is connected, its
	 * events are off, and whatever it held moves with dial_take. */
	void (*done)(const struct dial_result *result, void *arg);
};

/* target: canonical, with port; copied. tls: handshake and verification for target's name. */
struct dial *dial_start(struct proxy *px, const struct authority *target, bool tls,
	const struct dial_ops *ops, void *arg);
/* Called off: done does not run. Either one ends the handle. */
void dial_cancel(struct dial *d);
/* In done, after success: moves the connection into c, with its new owner's ops. */
void dial_take(struct dial *d, struct conn *c, const struct conn_ops *ops, void *arg);
