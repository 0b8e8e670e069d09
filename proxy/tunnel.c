/* Tunnels. The exchange that a tunnel keeps is its record: address, slot, byte counts, line. */
#include "proxy/tunnel.h"

#include <errno.h>

#include "base/arena.h"
#include "base/clock.h"
#include "proxy/session.h"
#include "proxy/upstream.h"

/* Reads of one event: a fast side must not keep the others waiting. */
#define TUNNEL_READS_MAX 16

struct tunnel {
	struct session *session;
	struct exchange *ex;
	struct dial *dial;
	struct conn origin;
	bool connected;
	bool client_ended, origin_ended;
};

static struct tunnel *tunnel_new(struct session *s, struct exchange *ex)
{
	struct tunnel *t = xcalloc(1, sizeof(*t));

	t->session = s;
	t->ex = ex;
	t->origin.fd = -1;
	return t;
}

const struct exchange *tunnel_exchange(const struct tunnel *t)
{
	return t->ex;
}

void tunnel_free(struct tunnel *t, enum reason reason)
{
	if (!t)
		return;
	if (t->dial)
		dial_cancel(t->dial);
	conn_fini(&t->origin);
	if (!(t->client_ended && t->origin_ended) && t->ex->state != EXCHANGE_DONE)
		t->ex->reason = reason;
	exchange_free(t->ex);
	free(t);
}

bool tunnel_is_allowed(const struct tunnel *t)
{
	const struct proxy_config *c = &t->session->px->config;
	const struct exchange *ex = t->ex;
	struct admission now;

	admit_connect(c, &ex->target, &now);
	admit_tunnel(c, &ex->target, &now);
	if (!now.allow || !ex->has_addr)
		return now.allow;
	return reason_allows(admit_address(c, c->policy, &ex->target, &now, &ex->addr));
}

static void tunnel_put(void *arg, struct slice piece)
{
	conn_write(arg, piece);
}

/* What a bound host sends is searched for keys, also behind a 101. */
static void tunnel_write(
	struct tunnel *t, const struct conn *from, struct conn *to, struct slice bytes, bool end)
{
	if (from == &t->origin)
		(void)keyed_content(t->ex, bytes, end, tunnel_put, to);
	else
		conn_write(to, bytes);
}

/* Bytes from one side to the other until there are none, or the other side is slow. 0, or negative
 * when the tunnel is over. */
static int tunnel_pump(
	struct tunnel *t, struct conn *from, struct conn *to, bool *ended, uint64_t *count)
{
	struct io *io = from->io;
	int reads = 0, ret = 0;
	ssize_t n;

	while (!*ended && !conn_backlogged(to)) {
		n = conn_read(from, io->plain, IO_PLAIN_BYTES);
		if (n == -EAGAIN)
			break;
		if (n == E_EOF) {
			*ended = true;
			tunnel_write(t, from, to, SLICE_EMPTY, true);
			conn_pause(from);
			conn_shutdown(to);
			break;
		}
		if (n < 0)
			return (int)n;
		*count += (uint64_t)n;
		tunnel_write(t, from, to, slice_make(io->plain, (size_t)n), false);
		if (++reads >= TUNNEL_READS_MAX && !conn_buffered(from))
			break;
	}
	ret = conn_flush(to);
	if (ret < 0 && ret != -EAGAIN)
		return ret;
	if (ret == -EAGAIN)
		conn_pause(from);
	else if (!*ended)
		conn_want_read(from);
	t->session->deadline.at_ms = clock_mono_ms() + t->session->px->config.stream_idle_ms;
	return 0;
}

/* The session is gone when this returns false. */
static bool tunnel_goes_on(struct tunnel *t, int ret)
{
	if (ret == 0 && !(t->client_ended && t->origin_ended))
		return true;
	session_free(t->session, ret == 0 ? t->ex->reason : REASON_UPSTREAM_ABORTED);
	return false;
}

static bool tunnel_up(struct tunnel *t)
{
	return tunnel_goes_on(
		t, tunnel_pump(t, &t->session->conn, &t->origin, &t->client_ended, &t->ex->up));
}

static bool tunnel_down(struct tunnel *t)
{
	return tunnel_goes_on(
		t, tunnel_pump(t, &t->origin, &t->session->conn, &t->origin_ended, &t->ex->down));
}

void tunnel_client_readable(struct tunnel *t)
{
	if (t->connected)
		tunnel_up(t);
	else
		conn_pause(&t->session->conn); /* until the origin is there */
}

void tunnel_client_drained(struct tunnel *t)
{
	if (t->session->conn.error)
		session_free(t->session, REASON_CLIENT_CLOSED);
	else if (t->connected)
		tunnel_down(t);
}

static void on_origin_readable(void *arg)
{
	tunnel_down(arg);
}

static void on_origin_drained(void *arg)
{
	struct tunnel *t = arg;

	if (t->origin.error)
		session_free(t->session, REASON_UPSTREAM_ABORTED);
	else
		tunnel_up(t);
}

static const struct conn_ops origin_ops = {on_origin_readable, on_origin_drained};

static void on_tunnel_dialled(const struct dial_result *result, void *arg)
{
	struct tunnel *t = arg;
	struct dial *d = t->dial;

	t->dial = NULL;
	if (result->reason != REASON_ALLOWED) {
		t->ex->reason = result->reason;
		if (!t->ex->slot)
			session_note(t->session, result->reason, result->detail);
		session_free(t->session, result->reason);
		return;
	}
	dial_take(d, &t->origin, &origin_ops, t);
	t->connected = true;
	if (tunnel_up(t))
		tunnel_down(t);
}

/* dial_ops.admit gets the tunnel as its argument, like done. */
static enum reason on_tunnel_admit(const struct netaddr *a, void *arg)
{
	struct tunnel *t = arg;

	return exchange_admit_address(a, t->ex);
}

static const struct dial_ops tunnel_dial_ops = {on_tunnel_admit, on_tunnel_dialled};

struct tunnel *tunnel_dial(struct session *s)
{
	struct tunnel *t = tunnel_new(s, exchange_new_tunnel(s));

	conn_pause(&s->conn);
	t->dial = dial_start(s->px, &s->pinned, false, &tunnel_dial_ops, t);
	return t;
}

struct tunnel *tunnel_switch(
	struct session *s, struct exchange *ex, struct slice to_client, struct slice to_origin)
{
	struct tunnel *t = tunnel_new(s, ex);

	conn_pause(&ex->upstream->conn);
	conn_move(&ex->upstream->conn, &t->origin, s->px->base, &origin_ops, t);
	upstream_free(ex->upstream);
	ex->upstream = NULL;
	t->connected = true;
	tunnel_write(t, &t->origin, &s->conn, to_client, false);
	ex->down += to_client.len;
	conn_flush(&s->conn);
	conn_write(&t->origin, to_origin);
	ex->up += to_origin.len;
	conn_flush(&t->origin);
	/* either side may have sent more than its driver had read; no event tells of that */
	conn_resume(&s->conn);
	conn_resume(&t->origin);
	return t;
}
