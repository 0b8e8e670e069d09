/* HTTP/1.1 towards origins: writes the request that an exchange hands down, reads the response and
 * hands it up. Connections come from upstream.c. What an origin may not do (malformed framing, an
 * answer that nobody asked for, a 101 unasked) ends the connection and becomes a 502. */
#include <errno.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/secmem.h"
#include "proxy/rewrite.h"
#include "proxy/upstream.h"

/* Informational heads before the final one; an origin that sends them for ever is not answering. */
#define UPSTREAM_1XX_MAX 32
/* Reads of one event: a fast origin must not keep the others waiting. */
#define UPSTREAM_READS_MAX 16

static const uint8_t upstream_moves[UPSTREAM_STATE_MAX] = {
	[UPSTREAM_IDLE] = BIT(UPSTREAM_HEAD),
	[UPSTREAM_HEAD] = BIT(UPSTREAM_BODY) | BIT(UPSTREAM_SWITCHED) | BIT(UPSTREAM_IDLE),
	[UPSTREAM_BODY] = BIT(UPSTREAM_IDLE),
};

static void upstream_move(struct upstream *u, enum upstream_state to)
{
	REQUIRE(upstream_moves[u->state] & BIT(to));
	u->state = to;
}

/* The connection is of no more use; whoever waits on it is told. */
static void upstream_fail(struct upstream *u, enum reason reason)
{
	struct exchange *ex = u->ex;
	bool retry = u->used_before && !u->answered && reason == REASON_UPSTREAM_CLOSED;

	upstream_free(u);
	if (!ex)
		return;
	ex->upstream = NULL;
	exchange_upstream_failed(ex, reason, retry);
}

void on_upstream_late(void *arg)
{
	struct upstream *u = arg;

	/* half a head is no answer yet: the client can still be told */
	upstream_fail(
		u, u->state == UPSTREAM_HEAD ? REASON_UPSTREAM_TIMEOUT : REASON_UPSTREAM_ABORTED);
}

void upstream_send_head(struct upstream *u, struct exchange *ex)
{
	u->ex = ex;
	conn_set_keyed(&u->conn, ex->keyed.bound_host);
	u->answered = false;
	u->keep = false;
	u->scanned = 0;
	u->n_1xx = 0;
	upstream_move(u, UPSTREAM_HEAD);
	ex->up += rewrite_request_head(ex, &ex->px->request, &u->conn, &u->chunked);
	u->deadline.at_ms = clock_mono_ms() + u->px->config.first_byte_ms;
}

void upstream_send_body(struct upstream *u, struct slice content)
{
	if (content.len == 0)
		return;
	if (u->chunked)
		rewrite_chunk(&u->conn, content);
	else
		conn_write(&u->conn, content);
	/* while the client uploads, the origin owes no answer */
	u->deadline.at_ms = clock_mono_ms() + u->px->config.first_byte_ms;
}

void upstream_send_end(struct upstream *u, const struct fields *trailers)
{
	if (u->chunked)
		rewrite_last_chunk(&u->conn, trailers);
}

void upstream_flush(struct upstream *u)
{
	int ret = conn_flush(&u->conn);

	/* Broken: the read event tells, after whatever the origin still managed to say. */
	if (ret < 0 && ret != -EAGAIN)
		conn_want_read(&u->conn);
}

/* Response complete. The connection leaves the exchange before the exchange hears of it, so that
 * the next request can have it. */
static void upstream_finish(struct upstream *u, bool clean)
{
	struct exchange *ex = u->ex;
	struct fields *trailers = NULL;
	struct h1_body body = u->body;
	struct fields table;

	if (!clean || !ex->request_ended)
		u->keep = false;
	if (h1_body_trailers(&body, &table))
		trailers = &table;
	h1_body_init(&u->body, H1_NO_CONTENT, 0);
	u->deadline.at_ms = 0;
	upstream_move(u, UPSTREAM_IDLE);
	ex->upstream = NULL;
	upstream_release(u);
	exchange_response_end(ex, trailers);
	h1_body_fini(&body);
}

/* A complete head. False when the exchange, and with it perhaps this connection, is no longer ours.
 */
static bool upstream_head(struct upstream *u, struct h1_head *h, struct slice rest)
{
	struct exchange *ex = u->ex;
	enum reason r = keyed_answer(ex, h);

	if (r != REASON_ALLOWED) {
		upstream_fail(u, r);
		return false;
	}
	if (h->status == 101 && ex->upgrade) {
		upstream_move(u, UPSTREAM_SWITCHED);
		u->deadline.at_ms = 0;
		exchange_response_head(ex, h);
		exchange_switched(ex, rest);
		return false;
	}
	if (h->status == 101 || (h->status < 200 && ++u->n_1xx > UPSTREAM_1XX_MAX)) {
		upstream_fail(
			u, h->status == 101 ? REASON_UPSTREAM_UPGRADE : REASON_UPSTREAM_MALFORMED);
		return false;
	}
	if (h->status >= 200) {
		u->keep = h->keep_alive && h->framing != H1_UNTIL_CLOSE;
		upstream_move(u, UPSTREAM_BODY);
		h1_body_init(&u->body, h->framing, h->length);
		u->deadline.at_ms = clock_mono_ms() + u->px->config.stream_idle_ms;
	}
	exchange_response_head(ex, h);
	return true;
}

/* A head that comes in parts from a bound host may hold a key, so its parts lie in locked memory.
 */
static bool upstream_save(struct upstream *u, struct slice more)
{
	struct secmem *m = u->conn.keyed ? u->px->secmem : NULL;
	size_t need = u->saved_len + more.len;

	if (need > u->saved_cap) {
		size_t cap = 2 * need;
		char *p = m ? secmem_alloc(m, cap) : xmalloc(cap);

		if (!p)
			return false;
		if (u->saved_len > 0)
			memcpy(p, u->saved, u->saved_len);
		upstream_drop_saved(u->px, u->saved);
		u->saved = p;
		u->saved_cap = cap;
	}
	memcpy(u->saved + u->saved_len, more.p, more.len);
	u->saved_len = need;
	return true;
}

/* Takes a head off the front of *in; its beginning may lie in u->saved. False as upstream_head. */
static bool upstream_read_head(struct upstream *u, struct slice *in)
{
	enum h1_error error = H1_OK;
	struct slice whole = *in;
	struct proxy *px = u->px;
	size_t before = u->saved_len;
	char *parts;
	ssize_t n;
	bool ours;

	if (before > 0) {
		if (!upstream_save(u, *in)) {
			upstream_fail(u, REASON_OVERLOADED);
			return false;
		}
		whole = slice_make(u->saved, u->saved_len);
	}
	n = h1_head_end(whole, &u->scanned, &error);
	if (n == E_MORE) {
		if (before == 0 && !upstream_save(u, *in)) {
			upstream_fail(u, REASON_OVERLOADED);
			return false;
		}
		*in = slice_from(*in, in->len);
		return true;
	}
	if (n > 0)
		error = h1_response_decode(
			slice_first(whole, (size_t)n), u->ex->method, &u->px->response);
	if (n < 0 || error != H1_OK) {
		u->ex->detail = h1_error_text(error);
		upstream_fail(u, REASON_UPSTREAM_MALFORMED);
		return false;
	}
	parts = u->saved; /* the head points into it until it was handed up */
	u->saved = NULL;
	u->saved_len = u->saved_cap = u->scanned = 0;
	*in = slice_from(*in, (size_t)n - before);
	ours = upstream_head(u, &u->px->response, *in);
	upstream_drop_saved(px, parts);
	return ours;
}

/* False when the response is over, one way or the other. */
static bool upstream_input(struct upstream *u, struct slice in)
{
	struct slice content;

	u->answered = true;
	for (;;) {
		if (u->state == UPSTREAM_HEAD) {
			if (in.len == 0)
				return true;
			if (!upstream_read_head(u, &in))
				return false;
			continue;
		}
		switch (h1_body_next(&u->body, &in, &content)) {
		case H1_BODY_CONTENT:
			if (exchange_response_body(u->ex, content))
				break;
			upstream_fail(u, REASON_KEY_IN_ANSWER);
			return false;
		case H1_BODY_MORE:
			return true;
		case H1_BODY_END:
			upstream_finish(u, in.len == 0);
			return false;
		case H1_BODY_ERROR:
			u->ex->detail = h1_error_text(u->body.error);
			upstream_fail(u, REASON_UPSTREAM_MALFORMED);
			return false;
		}
	}
}

/* No more bytes come. Without close_notify the end of TLS is no end of a message (style 2). */
static void upstream_ended(struct upstream *u, ssize_t why)
{
	bool clean = why == E_EOF && conn_clean_end(&u->conn);

	if (u->conn.failure)
		u->ex->detail = u->conn.failure;
	if (u->state == UPSTREAM_BODY && clean && h1_body_close(&u->body)) {
		upstream_finish(u, false);
		return;
	}
	upstream_fail(
		u, u->state == UPSTREAM_BODY ? REASON_UPSTREAM_ABORTED : REASON_UPSTREAM_CLOSED);
}

/* In the pool: session tickets are welcome, everything else ends it. */
static void upstream_idle_readable(struct upstream *u)
{
	if (conn_read(&u->conn, u->px->io->plain, IO_PLAIN_BYTES) != -EAGAIN)
		upstream_free(u);
}

static void on_upstream_readable(void *arg)
{
	struct upstream *u = arg;
	struct exchange *ex = u->ex;
	struct io *io = u->px->io;
	int reads = 0;
	ssize_t n;

	if (!ex) {
		upstream_idle_readable(u);
		return;
	}
	for (;;) {
		if (exchange_backlogged(ex)) {
			conn_pause(&u->conn);
			u->deadline.at_ms = 0; /* it is the client who is slow */
			break;
		}
		n = conn_read(&u->conn, io->plain, IO_PLAIN_BYTES);
		if (n == -EAGAIN)
			break;
		if (n < 0) {
			upstream_ended(u, n);
			return;
		}
		if (!upstream_input(u, slice_make(io->plain, (size_t)n)))
			return;
		if (u->state == UPSTREAM_BODY)
			u->deadline.at_ms = clock_mono_ms() + u->px->config.stream_idle_ms;
		if (++reads >= UPSTREAM_READS_MAX && !conn_buffered(&u->conn))
			break; /* others wait; the event comes again */
	}
	exchange_flush(ex);
}

void upstream_want_more(struct upstream *u)
{
	if (u->conn.reading)
		return;
	conn_want_read(&u->conn);
	u->deadline.at_ms = clock_mono_ms() + u->px->config.stream_idle_ms;
	on_upstream_readable(u); /* bytes that were received already cause no event */
}

static void on_upstream_drained(void *arg)
{
	struct upstream *u = arg;

	if (u->ex)
		exchange_upstream_drained(u->ex);
}

const struct conn_ops upstream_conn_ops = {on_upstream_readable, on_upstream_drained};
