/* One client connection: first bytes, TLS that we open, then HTTP/1.1 or a tunnel.
 *
 * listener opens it; intercept decides about TLS; h1_client drives requests; tunnel takes over what
 * is not read. A session ends with its client, except that an exchange under way is finished for a
 * client that only closed its sending side. */
#pragma once

#include "proxy/conn.h"
#include "proxy/exchange.h"
#include "proxy/h1_client.h"

#define SESSION_PEEK_MS 300    /* a client that says nothing for this long is not HTTP or TLS */
#define SESSION_LINGER_MS 2000 /* so that a refusal arrives before the reset of unread content */
#define SESSION_LINGER_BYTES 1048576

enum session_state {
	SESSION_HTTP,      /* requests in clear, or inside TLS that we opened */
	SESSION_PEEK,      /* behind CONNECT or a redirect: what will it be? */
	SESSION_HANDSHAKE, /* TLS with the client */
	SESSION_TUNNEL,
	SESSION_LINGER,
	SESSION_CLOSED,
	SESSION_STATE_MAX
};

enum session_via { VIA_PROXY, VIA_CONNECT, VIA_REDIRECT };

struct tunnel;

struct session {
	TAILQ_ENTRY(session) link;
	struct proxy *px;
	enum session_state state;
	enum session_via via;
	struct conn conn;
	struct deadline deadline;
	struct h1_client h1;
	struct tunnel *tunnel;
	bool tls;                /* we opened the client's TLS */
	bool has_pinned;         /* every request must be for `pinned` */
	struct authority pinned; /* from SNI, or CONNECT */
	bool has_origdst;
	struct netaddr origdst;   /* of a redirected connection */
	uint16_t port;            /* of CONNECT or the redirect; 0: each request says */
	struct admission connect; /* what admit_connect said of it */
	enum reason refuse; /* every request gets this answer (SNI against CONNECT); 0: none */
	uint32_t uid;       /* of the client's socket, at accept */
	bool silent;        /* SESSION_PEEK_MS went by without a byte that tells */
	struct event silence;
	bool uid_checked; /* asked again at the first byte */
	uint64_t start_wall_us;
	size_t lingered;
	struct sockaddr_storage peer;
};

/* Takes fd. origdst: NULL for a connection made to the proxy itself. */
struct session *session_new(struct proxy *px, int fd, const struct sockaddr_storage *peer,
	const struct netaddr *origdst, uint16_t origport);
/* Ends it at once; an exchange or tunnel gets its line with `reason`. */
void session_free(struct session *s, enum reason reason);
/* The configuration is a new one: what a tunnel or a CONNECT was allowed is judged again. The
 * session may be gone when this returns. */
void session_rejudge(struct session *s);

/* --- for the drivers --- */

/* The session has said its last word: FIN behind what is pending, and what the client still sends
 * is read and thrown away for a moment. */
void session_close(struct session *s);
/* CONNECT was answered with 200: the next bytes are peeked at. */
void session_connected(
	struct session *s, const struct authority *target, const struct admission *how);
/* What the bytes behind CONNECT or a redirect are: TLS, HTTP or something else. The session may be
 * gone when this returns. */
void session_peek(struct session *s);
/* Both connections of a switched exchange become a tunnel. */
void session_switched(
	struct session *s, struct exchange *ex, struct slice to_client, struct slice to_origin);
/* "proxy", "connect", "redirect" for the audit line. */
struct slice session_via_name(const struct session *s);

/* --- for intercept --- */

void session_move(struct session *s, enum session_state to);
/* A refusal that no exchange tells of (an alert, a closed tunnel) goes on record. */
void session_note(struct session *s, enum reason reason, const char *detail);
/* Requests come next. The session may be gone when this returns. */
void session_start_http(struct session *s);
/* s->connect allows a tunnel to s->pinned. The session may be gone when this returns. */
void session_tunnel(struct session *s);
