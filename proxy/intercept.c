/* TLS of clients: between the first bytes (session, client_hello) and the requests inside
 * (h1_client). Refusals by name finish the handshake, so that the client can be told why by a 403;
 * what may not be opened and may not pass ends with an alert. */
#include "proxy/intercept.h"

#include <errno.h>

#include <openssl/err.h>

#include "audit/audit.h"
#include "base/clock.h"
#include "proxy/session.h"
#include "proxy/tls.h"
#include "proxy/tunnel.h"

enum intercept_how intercept_check(
	const struct proxy *px, const struct authority *target, struct admission *how)
{
	const struct proxy_config *c = &px->config;
	bool pass = write_hosts_match(c->pass_through, authority_name(target)) != WRITE_NO;

	if (c->intercept == PROXY_INTERCEPT_ALL && !pass)
		return INTERCEPT_OPEN;
	if (c->intercept == PROXY_INTERCEPT_BOUND && !pass && keyed_binds(px, target))
		return INTERCEPT_OPEN;
	admit_tunnel(c, target, how);
	return how->allow ? INTERCEPT_PASS : INTERCEPT_REFUSE;
}

enum reason intercept_connect(
	const struct proxy *px, const struct authority *target, const struct admission *how)
{
	struct admission tunnel = *how;

	if (target->port == 80 || intercept_check(px, target, &tunnel) != INTERCEPT_REFUSE)
		return how->reason;
	return tunnel.reason;
}

static void intercept_alert(struct session *s, enum reason reason, const char *detail)
{
	/* a fatal access_denied (RFC 8446 6.2) in a plaintext record */
	static const char alert[] = {21, 3, 3, 0, 2, 2, 49};

	conn_write(&s->conn, slice_make(alert, sizeof(alert)));
	session_note(s, reason, detail);
	session_close(s);
}

/* The name that this connection is about. False if the hello contradicts CONNECT. */
static bool intercept_name(
	struct session *s, const struct client_hello *hello, struct authority *name)
{
	if (s->has_pinned) {
		*name = s->pinned;
		if (hello->name_len == 0)
			return name->is_addr;
		return !name->is_addr &&
			slice_eq(authority_name(name), slice_make(hello->name, hello->name_len));
	}
	memset(name, 0, sizeof(*name));
	name->has_port = true;
	name->port = s->port;
	if (hello->name_len > 0) {
		memcpy(name->name, hello->name, hello->name_len + 1);
		name->name_len = hello->name_len;
	} else {
		name->is_addr = true;
		name->addr = s->origdst;
		name->name_len = netaddr_text(&s->origdst, name->name);
	}
	return true;
}

static void intercept_open(struct session *s, const struct client_hello *hello)
{
	struct authority *name = &s->pinned;
	SSL *ssl;

	if (hello->name_len > 0)
		ssl = tls_accept_new(
			s->px->tls, slice_make(hello->name, hello->name_len), NULL, s->px->epoch);
	else
		ssl = tls_accept_new(s->px->tls, authority_name(name),
			name->is_addr ? &name->addr : NULL, s->px->epoch);
	if (!ssl) {
		session_free(s, REASON_CLIENT_TLS);
		return;
	}
	conn_set_tls(&s->conn, ssl);
	session_move(s, SESSION_HANDSHAKE);
	s->tls = true;
	s->deadline.at_ms = clock_mono_ms() + s->px->config.handshake_timeout_ms;
	intercept_handshake(s);
}

void intercept_hello(struct session *s, const struct client_hello *hello)
{
	struct authority name;

	if (hello->error != CLIENT_HELLO_OK) {
		intercept_alert(s, REASON_MALFORMED, client_hello_error_text(hello->error));
		return;
	}
	if (!intercept_name(s, hello, &name))
		s->refuse = REASON_NAME_MISMATCH;
	if (!s->has_pinned) {
		s->pinned = name;
		s->has_pinned = true;
		admit_connect(&s->px->config, &s->pinned, &s->connect);
	}
	if (s->px->config.intercept != PROXY_INTERCEPT_ALL &&
		(s->refuse != REASON_ALLOWED || !s->connect.allow)) {
		intercept_alert(s, s->refuse ? s->refuse : s->connect.reason, NULL);
		return;
	}
	if (s->refuse == REASON_ALLOWED && s->connect.allow) {
		switch (intercept_check(s->px, &s->pinned, &s->connect)) {
		case INTERCEPT_OPEN:
			break;
		case INTERCEPT_PASS:
			session_tunnel(s);
			return;
		case INTERCEPT_REFUSE:
			intercept_alert(s, REASON_CANNOT_INSPECT, NULL);
			return;
		}
	}
	intercept_open(s, hello);
}

void intercept_handshake(struct session *s)
{
	int ret = conn_handshake(&s->conn);

	if (ret == -EAGAIN) {
		conn_want_read(&s->conn);
		return;
	}
	if (ret < 0) {
		session_note(s, REASON_CLIENT_TLS, s->conn.failure);
		session_free(s, REASON_CLIENT_TLS);
		return;
	}
	session_start_http(s);
}
