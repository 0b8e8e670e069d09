/* Sessions. See session.h for the parts; here: their states, the peek at first bytes, and the end.
 */
#include "proxy/session.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <event2/event.h>

#include "audit/audit.h"
#include "audit/client_uid.h"
#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"
#include "proxy/intercept.h"
#include "proxy/tunnel.h"
#include "proxy/upstream.h"

#define SESSION_KEEPALIVE_S 30

static const uint8_t session_moves[SESSION_STATE_MAX] = {
	[SESSION_HTTP] =
		BIT(SESSION_PEEK) | BIT(SESSION_TUNNEL) | BIT(SESSION_LINGER) | BIT(SESSION_CLOSED),
	[SESSION_PEEK] = BIT(SESSION_HTTP) | BIT(SESSION_HANDSHAKE) | BIT(SESSION_TUNNEL) |
		BIT(SESSION_LINGER) | BIT(SESSION_CLOSED),
	[SESSION_HANDSHAKE] = BIT(SESSION_HTTP) | BIT(SESSION_CLOSED),
	[SESSION_TUNNEL] = BIT(SESSION_LINGER) | BIT(SESSION_CLOSED),
	[SESSION_LINGER] = BIT(SESSION_CLOSED),
};

void session_move(struct session *s, enum session_state to)
{
	REQUIRE(session_moves[s->state] & BIT(to));
	s->state = to;
}

struct slice session_via_name(const struct session *s)
{
	switch (s->via) {
	case VIA_CONNECT:
		return SLICE("connect");
	case VIA_REDIRECT:
		return SLICE("redirect");
	case VIA_PROXY:
		break;
	}
	return SLICE("proxy");
}

static void session_linger(struct session *s)
{
	char *buf = s->px->io->plain;
	ssize_t n;

	/* raw bytes: what they say does not matter any more */
	while ((n = recv(s->conn.fd, buf, IO_PLAIN_BYTES, MSG_DONTWAIT)) > 0) {
		s->lingered += (size_t)n;
		if (s->lingered > SESSION_LINGER_BYTES) {
			conn_pause(&s->conn); /* it had its chance; the deadline ends it */
			return;
		}
	}
	if (n == 0 || errno != EAGAIN)
		session_free(s, REASON_CLIENT_CLOSED);
}

/* A redirect changed where the connection arrived, not where the client's socket points to. */
static uint32_t session_find_uid(const struct session *s)
{
	struct client_uid_to to = {.addr = s->origdst, .port = s->port};

	return client_uid_find(s->px->diag_fd, s->conn.fd, s->has_origdst ? &to : NULL);
}

/* The uid is asked at accept, and again at the first byte: a socket that changed hands has none. */
static void session_check_uid(struct session *s)
{
	if (s->uid_checked)
		return;
	s->uid_checked = true;
	if (s->uid != AUDIT_UID_NONE && session_find_uid(s) != s->uid)
		s->uid = AUDIT_UID_NONE;
}

static void on_session_readable(void *arg)
{
	struct session *s = arg;

	session_check_uid(s);
	switch (s->state) {
	case SESSION_HTTP:
		h1_client_readable(&s->h1);
		break;
	case SESSION_PEEK:
		session_peek(s);
		break;
	case SESSION_HANDSHAKE:
		intercept_handshake(s);
		break;
	case SESSION_TUNNEL:
		tunnel_client_readable(s->tunnel);
		break;
	case SESSION_LINGER:
		session_linger(s);
		break;
	case SESSION_CLOSED:
	case SESSION_STATE_MAX:
		break;
	}
}

static void on_session_drained(void *arg)
{
	struct session *s = arg;

	switch (s->state) {
	case SESSION_HTTP:
		h1_client_drained(&s->h1);
		break;
	case SESSION_TUNNEL:
		tunnel_client_drained(s->tunnel);
		break;
	case SESSION_LINGER:
		if (s->conn.error) {
			session_free(s, REASON_CLIENT_CLOSED);
			break;
		}
		shutdown(s->conn.fd, SHUT_WR);
		s->deadline.at_ms = clock_mono_ms() + SESSION_LINGER_MS;
		break;
	case SESSION_PEEK:
	case SESSION_HANDSHAKE:
	case SESSION_CLOSED:
	case SESSION_STATE_MAX:
		break;
	}
}

static const struct conn_ops session_conn_ops = {on_session_readable, on_session_drained};

static void on_session_late(void *arg)
{
	struct session *s = arg;

	switch (s->state) {
	case SESSION_HTTP:
		h1_client_late(&s->h1);
		break;
	case SESSION_HANDSHAKE:
		session_note(s, REASON_CLIENT_TIMEOUT, "the TLS handshake took too long");
		session_free(s, REASON_CLIENT_TIMEOUT);
		break;
	case SESSION_PEEK:
	case SESSION_TUNNEL:
	case SESSION_LINGER:
		session_free(s, REASON_CLIENT_TIMEOUT);
		break;
	case SESSION_CLOSED:
	case SESSION_STATE_MAX:
		break;
	}
}

/* Nobody spoke for SESSION_PEEK_MS: neither TLS nor HTTP. */
static void on_session_silent(evutil_socket_t fd, short what, void *arg)
{
	struct session *s = arg;

	if (s->state != SESSION_PEEK)
		return;
	s->silent = true;
	session_peek(s);
}

struct session *session_new(struct proxy *px, int fd, const struct sockaddr_storage *peer,
	const struct netaddr *origdst, uint16_t origport)
{
	struct session *s = xcalloc(1, sizeof(*s));
	int on = 1, idle = SESSION_KEEPALIVE_S;

	s->px = px;
	s->peer = *peer;
	s->start_wall_us = clock_wall_us();
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &idle, sizeof(idle));
	conn_init(&s->conn, fd, px->io, px->base, &session_conn_ops, s);
	h1_client_init(&s->h1, s);
	event_assign(&s->silence, px->base, -1, 0, on_session_silent, s);
	deadline_add(&px->deadlines, &s->deadline, on_session_late, s);
	TAILQ_INSERT_TAIL(&px->sessions, s, link);
	px->n_sessions++;
	upstream_make_room(px);
	s->deadline.at_ms = clock_mono_ms() + px->config.head_timeout_ms;
	conn_want_read(&s->conn);
	if (origdst) {
		struct timeval wait = {0, SESSION_PEEK_MS * 1000};

		s->via = VIA_REDIRECT;
		s->has_origdst = true;
		s->origdst = *origdst;
		s->port = origport;
		session_move(s, SESSION_PEEK);
		event_add(&s->silence, &wait);
	}
	s->uid = session_find_uid(s);
	return s;
}

void session_free(struct session *s, enum reason reason)
{
	struct proxy *px = s->px;

	if (s->h1.ex)
		exchange_abort(s->h1.ex, reason);
	h1_client_fini(&s->h1);
	tunnel_free(s->tunnel, reason);
	event_del(&s->silence);
	deadline_remove(&px->deadlines, &s->deadline);
	conn_fini(&s->conn);
	TAILQ_REMOVE(&px->sessions, s, link);
	px->n_sessions--;
	free(s);
}

void session_close(struct session *s)
{
	session_move(s, SESSION_LINGER);
	conn_shutdown(&s->conn);
	if (s->conn.error) {
		session_free(s, REASON_CLIENT_CLOSED);
		return;
	}
	/* the wait for the client's end begins when it has everything */
	s->deadline.at_ms = clock_mono_ms() +
		(conn_backlogged(&s->conn) ? s->px->config.stream_idle_ms : SESSION_LINGER_MS);
	conn_want_read(&s->conn);
}

void session_note(struct session *s, enum reason reason, const char *detail)
{
	struct audit_event e = {
		.kind = AUDIT_TUNNEL,
		.verdict = reason_status(reason) == 403 || reason == REASON_MALFORMED
			? AUDIT_BLOCKED
			: AUDIT_FAILED,
		.reason = reason,
		.host = s->has_pinned ? authority_name(&s->pinned) : SLICE_EMPTY,
		.via = session_via_name(s),
		.port = s->port,
		.uid = s->uid,
		.start_us = s->start_wall_us,
		.ms = (clock_wall_us() - s->start_wall_us) / 1000,
	};

	audit_note(s->px->audit, &e, NULL);
	proxy_tell_denied(s->px, reason, s->has_pinned ? &s->pinned : NULL);
	log_info("session", "%s:%u: %s%s%s", s->has_pinned ? s->pinned.name : "(no name)", s->port,
		reason_text(reason), detail ? ": " : "", detail ? detail : "");
}

void session_connected(
	struct session *s, const struct authority *target, const struct admission *how)
{
	struct timeval wait = {0, SESSION_PEEK_MS * 1000};

	s->via = VIA_CONNECT;
	s->has_pinned = true;
	s->pinned = *target;
	s->port = target->port;
	s->connect = *how;
	session_move(s, SESSION_PEEK);
	s->deadline.at_ms = 0;
	event_add(&s->silence, &wait);
}

void session_rejudge(struct session *s)
{
	if (s->tunnel) {
		if (!tunnel_is_allowed(s->tunnel))
			session_free(s, REASON_POLICY_CHANGED);
		return;
	}
	/* The bytes behind CONNECT may come yet, and s->connect names a rule of the old policy. */
	if (s->has_pinned)
		admit_connect(&s->px->config, &s->pinned, &s->connect);
	if (s->h1.ex)
		exchange_rejudge(s->h1.ex);
}

void session_tunnel(struct session *s)
{
	event_del(&s->silence);
	session_move(s, SESSION_TUNNEL);
	s->deadline.at_ms = 0;
	s->tunnel = tunnel_dial(s);
}

void session_switched(
	struct session *s, struct exchange *ex, struct slice to_client, struct slice to_origin)
{
	session_move(s, SESSION_TUNNEL);
	s->deadline.at_ms = 0;
	s->tunnel = tunnel_switch(s, ex, to_client, to_origin);
}

/* A method's letters (RFC 9110 5.6.2), then a space: that is how HTTP begins. */
enum peek { PEEK_MORE, PEEK_HTTP, PEEK_OTHER };

static enum peek peek_http(struct slice in)
{
	for (size_t i = 0; i < in.len && i <= H1_METHOD_MAX; i++) {
		if (in.p[i] == ' ' && i > 0)
			return PEEK_HTTP;
		/* methods in use are upper case letters and hyphens; lower case is not worth a
		 * guess */
		if ((in.p[i] < 'A' || in.p[i] > 'Z') && in.p[i] != '-')
			return PEEK_OTHER;
	}
	return in.len > H1_METHOD_MAX ? PEEK_OTHER : PEEK_MORE;
}

/* Neither HTTP nor TLS: a tunnel where that is allowed, else the end. */
static void session_peek_other(struct session *s)
{
	if (!s->has_pinned) {
		/* redirected, and no name in sight: the address itself is the target */
		s->pinned = (struct authority){
			.is_addr = true, .has_port = true, .port = s->port, .addr = s->origdst};
		s->pinned.name_len = netaddr_text(&s->origdst, s->pinned.name);
		s->has_pinned = true;
		admit_connect(&s->px->config, &s->pinned, &s->connect);
	}
	admit_tunnel(&s->px->config, &s->pinned, &s->connect);
	if (s->connect.allow) {
		session_tunnel(s);
		return;
	}
	session_note(s, s->connect.reason, "neither HTTP nor TLS");
	session_free(s, s->connect.reason);
}

void session_start_http(struct session *s)
{
	event_del(&s->silence);
	session_move(s, SESSION_HTTP);
	/* a driver that answered CONNECT is through; what is inside is a new conversation */
	h1_client_fini(&s->h1);
	h1_client_init(&s->h1, s);
	s->deadline.at_ms = clock_mono_ms() + s->px->config.head_timeout_ms;
	h1_client_run(&s->h1);
}

static void session_peek_tls(struct session *s, struct slice in, bool ended)
{
	struct client_hello hello;

	event_del(&s->silence);
	if (client_hello_decode(in, &hello) == 0) {
		intercept_hello(s, &hello);
		return;
	}
	if (ended) {
		session_free(s, REASON_CLIENT_CLOSED);
		return;
	}
	if (s->deadline.at_ms == 0)
		s->deadline.at_ms = clock_mono_ms() + s->px->config.handshake_timeout_ms;
	conn_want_read(&s->conn);
}

void session_peek(struct session *s)
{
	struct slice in;
	int ret = conn_peek(&s->conn, CLIENT_HELLO_MAX, &in);
	bool ended = ret == E_EOF;
	enum peek kind;

	if ((ret < 0 && !ended) || (ended && in.len == 0)) {
		session_free(s, REASON_CLIENT_CLOSED);
		return;
	}
	if (in.len > 0 && !client_hello_is_not_tls(in)) {
		session_peek_tls(s, in, ended);
		return;
	}
	kind = peek_http(in);
	if (kind == PEEK_HTTP)
		session_start_http(s);
	else if (kind == PEEK_MORE && !s->silent && !ended)
		conn_want_read(&s->conn);
	else
		session_peek_other(s);
}
