/* Dialling. Comes after admit has allowed a name; resolver's cache gives the addresses (we connect
 * to what we looked up, never to what the client chose), admit_address judges each. */
#include "proxy/dial.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/event.h>

#include "base/arena.h"
#include "base/clock.h"
#include "dns/resolver.h"
#include "proxy/admit.h"
#include "proxy/tls.h"

/* A dead peer is noticed in two minutes even where nothing is sent. */
#define DIAL_KEEPALIVE_S 30
#define DIAL_USER_TIMEOUT_MS 120000

enum dial_state { DIAL_LOOKUP, DIAL_CONNECT, DIAL_TLS, DIAL_DONE, DIAL_STATE_MAX };

static const uint8_t dial_moves[DIAL_STATE_MAX] = {
	[DIAL_LOOKUP] = BIT(DIAL_CONNECT) | BIT(DIAL_DONE),
	[DIAL_CONNECT] = BIT(DIAL_CONNECT) | BIT(DIAL_TLS) | BIT(DIAL_DONE),
	[DIAL_TLS] = BIT(DIAL_CONNECT) | BIT(DIAL_DONE),
};

struct dial {
	struct proxy *px;
	enum dial_state state;
	bool tls;
	bool in_ops; /* done runs: the owner may take or drop, not cancel */
	const struct dial_ops *ops;
	void *arg;
	struct authority target;
	struct resolve *lookup;
	struct event start; /* the first step comes from the loop, not from dial_start */
	struct conn conn;
	struct deadline deadline;
	uint64_t until_ms; /* of the whole dial, but for the lookup */
	struct netaddr addrs[RESOLVER_ADDRS_MAX];
	size_t n_addrs, next;
	struct dial_result result;
};

static void dial_next(struct dial *d);

static void dial_move(struct dial *d, enum dial_state to)
{
	REQUIRE(dial_moves[d->state] & BIT(to));
	d->state = to;
}

static void dial_free(struct dial *d)
{
	if (d->lookup)
		resolve_cancel(d->lookup);
	event_del(&d->start);
	deadline_remove(&d->px->deadlines, &d->deadline);
	conn_fini(&d->conn);
	free(d);
}

static void dial_finish(struct dial *d, enum reason reason, const char *detail)
{
	dial_move(d, DIAL_DONE);
	d->result.reason = reason;
	d->result.detail = detail;
	d->deadline.at_ms = 0;
	d->in_ops = true;
	d->ops->done(&d->result, d->arg);
	dial_free(d);
}

/* This address did not work; the last failure is the one that is told. */
static void dial_failed(struct dial *d, enum reason reason, const char *detail)
{
	conn_fini(&d->conn);
	d->result.reason = reason;
	d->result.detail = detail;
	/* a certificate that is not accepted is an answer, not a reason to try the next address */
	if (reason == REASON_CERTIFICATE || d->next == d->n_addrs ||
		clock_mono_ms() >= d->until_ms) {
		dial_finish(d, reason, detail);
		return;
	}
	dial_next(d);
}

static const char *dial_errno_text(int err)
{
	switch (err) {
	case ECONNREFUSED:
		return "connection refused";
	case EHOSTUNREACH:
		return "no route to the host";
	case ENETUNREACH:
		return "the network is unreachable";
	case ETIMEDOUT:
		return "the connection timed out";
	case ECONNRESET:
		return "the origin reset the connection";
	case EACCES:
	case EPERM:
		return "the kernel refused the connection";
	default:
		return "the connection failed";
	}
}

static void dial_handshake(struct dial *d)
{
	int ret = conn_handshake(&d->conn);

	if (ret == -EAGAIN) {
		conn_want_read(&d->conn);
		return;
	}
	if (ret < 0) {
		dial_failed(d, d->conn.bad_certificate ? REASON_CERTIFICATE : REASON_TLS_FAILED,
			d->conn.failure);
		return;
	}
	d->result.verified = tls_is_verified(d->conn.ssl);
	dial_finish(d, REASON_ALLOWED, NULL);
}

static void on_dial_readable(void *arg)
{
	struct dial *d = arg;

	if (d->state == DIAL_TLS)
		dial_handshake(d);
}

static void on_dial_connected(void *arg)
{
	struct dial *d = arg;
	int err = 0;
	socklen_t len = sizeof(err);
	SSL *ssl;

	if (d->state != DIAL_CONNECT)
		return; /* handshake bytes that had to wait are out */
	if (getsockopt(d->conn.fd, SOL_SOCKET, SO_ERROR, &err, &len) < 0)
		err = errno;
	if (err) {
		dial_failed(d, REASON_CONNECT_FAILED, dial_errno_text(err));
		return;
	}
	if (!d->tls) {
		dial_finish(d, REASON_ALLOWED, NULL);
		return;
	}
	dial_move(d, DIAL_TLS);
	ssl = tls_connect_new(d->px->tls, authority_name(&d->target),
		d->target.is_addr ? &d->target.addr : NULL, d->target.port);
	if (!ssl) {
		dial_failed(d, REASON_TLS_FAILED, "TLS could not be set up");
		return;
	}
	conn_set_tls(&d->conn, ssl);
	dial_handshake(d);
}

static const struct conn_ops dial_conn_ops = {on_dial_readable, on_dial_connected};

static void on_dial_late(void *arg)
{
	struct dial *d = arg;

	switch (d->state) {
	case DIAL_CONNECT:
		dial_failed(d, REASON_CONNECT_TIMEOUT, NULL);
		break;
	case DIAL_TLS:
		dial_failed(d, REASON_TLS_TIMEOUT, NULL);
		break;
	case DIAL_LOOKUP:
	case DIAL_DONE:
	case DIAL_STATE_MAX:
		break;
	}
}

/* 0 with a socket on its way, or the errno. */
static int dial_connect(struct dial *d, const struct netaddr *a)
{
	struct sockaddr_storage ss;
	socklen_t len = netaddr_to_sockaddr(a, d->target.port, &ss);
	int on = 1, idle = DIAL_KEEPALIVE_S, timeout = DIAL_USER_TIMEOUT_MS;
	int fd = socket(ss.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);

	if (fd < 0)
		return errno;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &idle, sizeof(idle));
	setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout, sizeof(timeout));
	conn_init(&d->conn, fd, d->px->io, d->px->base, &dial_conn_ops, d);
	if (connect(fd, (struct sockaddr *)&ss, len) < 0 && errno != EINPROGRESS) {
		int err = errno;

		conn_fini(&d->conn);
		return err;
	}
	conn_want_connect(&d->conn);
	return 0;
}

/* Tries the next address that may be tried. */
static void dial_next(struct dial *d)
{
	enum reason last = REASON_ADDRESS_REFUSED;
	uint64_t now = clock_mono_ms();
	bool tried = d->result.has_addr;

	while (d->next < d->n_addrs) {
		const struct netaddr *a = &d->addrs[d->next++];
		enum reason r = d->ops->admit(a, d->arg);
		int err;

		if (r == REASON_OVERLOADED) {
			dial_finish(d, r, NULL);
			return;
		}
		if (!reason_allows(r)) {
			last = r;
			continue;
		}
		tried = true;
		d->result.addr = *a;
		d->result.has_addr = true;
		err = dial_connect(d, a);
		if (err == EMFILE || err == ENFILE) {
			dial_finish(d, REASON_OVERLOADED, NULL);
			return;
		}
		if (err == 0) {
			dial_move(d, DIAL_CONNECT);
			d->deadline.at_ms = d->until_ms;
			if (d->next < d->n_addrs && now + DIAL_TRY_MS < d->until_ms)
				d->deadline.at_ms = now + DIAL_TRY_MS;
			return;
		}
		d->result.reason = REASON_CONNECT_FAILED;
		d->result.detail = dial_errno_text(err);
	}
	if (tried)
		dial_finish(d, d->result.reason, d->result.detail);
	else
		dial_finish(d, last, NULL);
}

static void dial_answer(struct dial *d, const struct resolve_answer *answer)
{
	if (answer->err == -ETIMEDOUT) {
		dial_finish(d, REASON_RESOLVE_TIMEOUT, NULL);
		return;
	}
	if (answer->err < 0) {
		dial_finish(d, REASON_RESOLVE_FAILED,
			answer->err == E_NO_NAME ? "the name does not exist or has no address"
						 : "the resolvers could not answer");
		return;
	}
	d->n_addrs = answer->n < RESOLVER_ADDRS_MAX ? answer->n : RESOLVER_ADDRS_MAX;
	memcpy(d->addrs, answer->addrs, d->n_addrs * sizeof(d->addrs[0]));
	d->until_ms = clock_mono_ms() + d->px->config.connect_timeout_ms;
	dial_next(d);
}

static void on_dial_resolved(const struct resolve_answer *answer, void *arg)
{
	struct dial *d = arg;

	d->lookup = NULL;
	dial_answer(d, answer);
}

static void on_dial_start(evutil_socket_t fd, short what, void *arg)
{
	struct dial *d = arg;
	struct resolve_answer answer = {0, &d->target.addr, 1};

	if (d->target.is_addr ||
		resolver_find(d->px->resolver, authority_name(&d->target), &answer))
		dial_answer(d, &answer);
	else
		d->lookup = resolve_start(
			d->px->resolver, authority_name(&d->target), on_dial_resolved, d);
}

struct dial *dial_start(struct proxy *px, const struct authority *target, bool tls,
	const struct dial_ops *ops, void *arg)
{
	struct dial *d = xcalloc(1, sizeof(*d));

	d->px = px;
	d->tls = tls;
	d->ops = ops;
	d->arg = arg;
	d->target = *target;
	d->conn.fd = -1;
	deadline_add(&px->deadlines, &d->deadline, on_dial_late, d);
	event_assign(&d->start, px->base, -1, EV_TIMEOUT, on_dial_start, d);
	event_active(&d->start, EV_TIMEOUT, 0);
	return d;
}

void dial_cancel(struct dial *d)
{
	if (!d)
		return;
	REQUIRE(!d->in_ops);
	dial_free(d);
}

void dial_take(struct dial *d, struct conn *c, const struct conn_ops *ops, void *arg)
{
	REQUIRE(d->in_ops && d->result.reason == REASON_ALLOWED);
	conn_pause(&d->conn);
	conn_move(&d->conn, c, d->px->base, ops, arg);
}
