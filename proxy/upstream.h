/* Connections to origins, used by one exchange at a time and kept between them, by name, port and
 * kind (which stands for the TLS identity: verification is the same for all). HTTP/1.1 is spoken
 * here (h1_upstream.c); the pool is upstream.c. Requests of our own (fetch.c) use the pool as well,
 * apart: an answer to a client's request must never be read as the answer to one of ours. */
#pragma once

#include "proxy/conn.h"
#include "proxy/exchange.h"

#define UPSTREAM_IDLE_MAX 512     /* kept connections in all */
#define UPSTREAM_IDLE_HOST_MAX 64 /* of one origin */
#define UPSTREAM_KEY_MAX (HOSTNAME_MAX + 9)

enum upstream_state {
	UPSTREAM_IDLE, /* in the pool, or about to be used */
	UPSTREAM_HEAD, /* a head is awaited */
	UPSTREAM_BODY,
	UPSTREAM_SWITCHED, /* after 101 */
	UPSTREAM_STATE_MAX
};

enum upstream_kind {
	UPSTREAM_CLEAR,
	UPSTREAM_TLS,
	UPSTREAM_OWN_CLEAR, /* for requests of our own */
	UPSTREAM_OWN_TLS,
};

struct upstream_host;

struct upstream {
	struct proxy *px;
	struct exchange *ex; /* who uses it; NULL in the pool, and with fetch */
	enum upstream_state state;
	struct conn conn;
	struct netaddr addr;
	struct h1_body body;
	char *saved; /* a head that came in parts */
	size_t saved_len, saved_cap, scanned;
	struct deadline deadline;
	bool verified; /* its certificate was */
	bool used_before;
	bool answered;                   /* a byte of the response to the current request came */
	bool keep;                       /* may go to the pool when the exchange is over */
	bool chunked;                    /* how the request's content is framed */
	uint8_t n_1xx;                   /* informational heads of the current response */
	TAILQ_ENTRY(upstream) link;      /* of px->upstreams */
	TAILQ_ENTRY(upstream) idle_link; /* of its host, most recently used first */
	struct upstream_host *host;
	size_t key_len;
	char key[UPSTREAM_KEY_MAX];
};

/* An idle connection for that origin whose address `admit` allows, or NULL. */
struct upstream *upstream_find(struct proxy *px, const struct authority *target,
	enum upstream_kind kind, enum reason (*admit)(const struct netaddr *a, void *arg),
	void *arg);
/* A new one, from a finished dial. */
struct upstream *upstream_new(struct proxy *px, const struct authority *target,
	enum upstream_kind kind, struct dial *d, const struct dial_result *result);
/* Closes it. Its exchange is not told. */
void upstream_free(struct upstream *u);
/* Closes idle ones that hold descriptors which the sessions may need: after either has grown. */
void upstream_make_room(struct proxy *px);
/* Closes every idle one (the policy changed, or the proxy drains). */
void upstream_drop_idle(struct proxy *px);

/* --- h1_upstream.c: driven by the exchange --- */

/* Writes the request head (px->request, decoded from ex->raw) and waits for the response. Nothing
 * is flushed until upstream_flush. */
void upstream_send_head(struct upstream *u, struct exchange *ex);
void upstream_send_body(struct upstream *u, struct slice content);
void upstream_send_end(struct upstream *u, const struct fields *trailers);
/* Sends what was gathered. A broken connection is told to the exchange by its next event. */
void upstream_flush(struct upstream *u);
/* The client took what it was sent: read on. */
void upstream_want_more(struct upstream *u);

/* --- between upstream.c and h1_upstream.c --- */

extern const struct conn_ops upstream_conn_ops;
void on_upstream_late(void *arg);
/* Frees the memory of a head that came in parts; wiped where it may have held a key. */
void upstream_drop_saved(struct proxy *px, char *saved);
/* The exchange is over and the connection sound: into the pool, or closed. */
void upstream_release(struct upstream *u);
