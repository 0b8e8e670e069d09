/* One request and its response, between a client's driver and an origin's.
 *
 * Six calls come from the client's side (head, body, end of the request; it wants more; it reset;
 * it is gone), the mirror of them from the origin's side. Nothing here knows how either speaks:
 * HTTP/1.1 is one driver, others join at struct client_ops. The exchange asks admit, takes its
 * audit slot before the first byte goes upstream, and writes its line at the end. */
#pragma once

#include "base/arena.h"
#include "proxy/admit.h"
#include "proxy/dial.h"
#include "proxy/keyed.h"

#define EXCHANGE_TRIES_MAX \
	2 /* a kept connection may have died under a request that can be repeated */
#define EXCHANGE_LONG_MS 10000 /* a stream that lasts longer also gets an `open` line */

struct audit_slot;
struct exchange;
struct session;
struct upstream;

/* What the exchange tells the client's driver. Slices are valid for the call. */
struct client_ops {
	/* An informational (1xx, not 101) or final head, already without hop-by-hop fields and
	 * framing; content comes as framing says. 101: the connection becomes a tunnel after
	 * exchange_switched. */
	void (*head)(void *driver, const struct h1_head *h);
	void (*body)(void *driver, struct slice content);
	/* Sends what head and body gathered. If the client is gone, this ends the exchange. */
	void (*flush)(void *driver);
	/* The response is complete. trailers may be NULL. The driver frees the exchange. */
	void (*end)(void *driver, const struct fields *trailers);
	/* More content of the request may come in. The driver flushes, whether it had any or not;
	 * the exchange may be gone when this returns. */
	void (*want_more)(void *driver);
	/* The response cannot be completed. The driver frees the exchange. */
	void (*reset)(void *driver);
	/* After a 101: the driver hands its connection, and the origin's, to a tunnel. rest: what
	 * the origin sent behind its head. The driver frees the exchange. */
	void (*switched)(void *driver, struct slice rest);
	/* True while the client has not taken what it was sent. */
	bool (*backlogged)(void *driver);
};

enum exchange_state {
	EXCHANGE_NEW,
	EXCHANGE_COLLECT, /* content comes in before anything goes out: a key will be put into it */
	EXCHANGE_DIAL,    /* no connection to the origin yet */
	EXCHANGE_SENT,    /* the head is on its way */
	EXCHANGE_RESPONSE, /* the final head went to the client */
	EXCHANGE_DONE,
	EXCHANGE_STATE_MAX
};

struct exchange {
	struct proxy *px;
	struct session *session;
	const struct client_ops *ops;
	void *driver;
	enum exchange_state state;
	struct policy *policy;
	struct admission admission;
	struct authority target;
	bool https;
	bool upgrade;       /* asks for one that may be forwarded */
	bool has_content;   /* of the request */
	bool request_ended; /* all of the request came in */
	bool body_started;  /* some of it went upstream: it cannot be sent again */
	bool answered;      /* a final head went out */
	bool is_head;       /* HEAD */
	bool own_answer;    /* the answer is ours, nothing came from the origin */
	uint8_t tries;
	struct slice raw; /* the request head as it came, in the arena */
	struct slice method;
	struct slice url;
	struct slice path_query;
	struct slice accept;
	struct slice user_agent;
	char rule[RULE_TEXT_MAX];
	size_t rule_len;
	struct dial *dial;
	struct upstream *upstream;
	struct audit_slot *slot;
	enum reason reason; /* of the audit line */
	const char *detail;
	struct netaddr addr;
	bool has_addr;
	uint16_t status;
	uint64_t up, down;
	uint64_t start_wall_us, start_mono_ms;
	struct deadline long_deadline;
	struct keyed keyed;
	struct arena arena;
};

struct exchange *exchange_new(struct session *s, const struct client_ops *ops, void *driver);
/* After a change of policy: ends an exchange with a target that it no longer allows, with our
 * answer if none was begun; the others go on. */
void exchange_rejudge(struct exchange *ex);
/* The record of a tunnel to s->pinned, as s->connect allows it: no driver, no response. */
struct exchange *exchange_new_tunnel(struct session *s);
/* For dial_ops.admit, arg is the exchange: judges the address that will be connected to, and takes
 * the audit slot before anything is sent to it. */
enum reason exchange_admit_address(const struct netaddr *a, void *arg);
/* Ends whatever is under way and writes the line if that was not done. Accepts NULL. */
void exchange_free(struct exchange *ex);

/* --- from the client's driver --- */

/* raw: the head in ex->arena; px->request holds it decoded. */
void exchange_head(struct exchange *ex, struct slice raw);
/* The head could not be read: an answer of our own, and the connection ends. */
void exchange_refuse(struct exchange *ex, enum reason reason, const char *detail);
/* True while content may be handed in. */
bool exchange_wants_body(const struct exchange *ex);
void exchange_body(struct exchange *ex, struct slice content);
/* trailers may be NULL, and lose what may not go out. Followed by exchange_flush_upstream. */
void exchange_end(struct exchange *ex, struct fields *trailers);
/* Sends the origin what body and end gathered; once an event. */
void exchange_flush_upstream(struct exchange *ex);
/* The client took what it was sent. */
void exchange_want_more(struct exchange *ex);
/* The client is gone, or broke its request; reason for the line. The exchange is done after it. */
void exchange_abort(struct exchange *ex, enum reason reason);

/* --- from the origin's driver --- */

void exchange_response_head(struct exchange *ex, struct h1_head *h);
/* False when the answer must end here (a key in an encoded one): the caller reports the failure. */
CHECKED bool exchange_response_body(struct exchange *ex, struct slice content);
/* The origin's connection is no longer this exchange's when this is called. */
void exchange_response_end(struct exchange *ex, struct fields *trailers);
void exchange_upstream_drained(struct exchange *ex);
/* The connection failed or broke the rules; ex->upstream is gone already. retry: nothing came back
 * and the connection had been used before. */
void exchange_upstream_failed(struct exchange *ex, enum reason reason, bool retry);
/* rest: bytes behind the 101. The exchange is over when this returns. */
void exchange_switched(struct exchange *ex, struct slice rest);
/* True while the client has not taken what it was sent: do not read from the origin. */
bool exchange_backlogged(const struct exchange *ex);
/* Sends the client what the calls above gathered; the last thing an event does, since the exchange
 * may be gone when it returns. exchange_response_head and _body never end it. */
void exchange_flush(struct exchange *ex);

/* For the audit line of this exchange as it stands. */
void exchange_event(const struct exchange *ex, struct audit_event *e);
