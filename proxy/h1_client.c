/* HTTP/1.1 towards the client. Bytes come from the session's connection; requests go to exchanges
 * one after the other, and the responses come back through struct client_ops. Pipelined requests
 * wait in `saved` until it is their turn. */
#include "proxy/h1_client.h"

#include <errno.h>

#include "base/arena.h"
#include "base/clock.h"
#include "proxy/rewrite.h"
#include "proxy/session.h"

/* Reads of one event: a fast client must not keep the others waiting. */
#define H1_CLIENT_READS_MAX 16
/* Bytes of pipelined requests that are held while another is answered. */
#define H1_CLIENT_AHEAD_MAX H1_HEAD_MAX

static const uint8_t h1_client_moves[H1_CLIENT_STATE_MAX] = {
	[H1_CLIENT_HEAD] = BIT(H1_CLIENT_BODY) | BIT(H1_CLIENT_WAIT) | BIT(H1_CLIENT_OVER),
	[H1_CLIENT_BODY] = BIT(H1_CLIENT_WAIT) | BIT(H1_CLIENT_OVER),
	[H1_CLIENT_WAIT] = BIT(H1_CLIENT_HEAD) | BIT(H1_CLIENT_OVER),
};

static void h1_client_move(struct h1_client *h, enum h1_client_state to)
{
	REQUIRE(h1_client_moves[h->state] & BIT(to));
	h->state = to;
}

void h1_client_init(struct h1_client *h, struct session *s)
{
	memset(h, 0, sizeof(*h));
	h->session = s;
	h1_body_init(&h->body, H1_NO_CONTENT, 0);
}

void h1_client_fini(struct h1_client *h)
{
	exchange_free(h->ex);
	h->ex = NULL;
	h1_body_fini(&h->body);
	free(h->saved);
	h->saved = NULL;
	h->saved_len = h->saved_cap = 0;
}

static void h1_client_limit(struct h1_client *h, uint32_t ms)
{
	h->session->deadline.at_ms = ms ? clock_mono_ms() + ms : 0;
}

/* --- response, called by the exchange --- */

static struct conn *h1_client_conn(struct h1_client *h)
{
	return &h->session->conn;
}

static void write_status_line(struct conn *c, const struct h1_head *head)
{
	char line[] = "HTTP/1.1 000 ";

	line[9] = (char)('0' + head->status / 100 % 10);
	line[10] = (char)('0' + head->status / 10 % 10);
	line[11] = (char)('0' + head->status % 10);
	conn_write(c, slice_make(line, sizeof(line) - 1));
	conn_write(c, head->reason);
	conn_write(c, SLICE("\r\n"));
}

/* How content of unknown length is framed for this client, and whether the connection outlives it.
 */
static void h1_client_framing(struct h1_client *h, const struct h1_head *head)
{
	bool unknown = head->framing == H1_CHUNKED || head->framing == H1_UNTIL_CLOSE;

	h->response_chunked = unknown && !h->http_1_0;
	if ((unknown && h->http_1_0) || h->state == H1_CLIENT_BODY || h->client_ended)
		h->keep_alive = false;
	/* behind a request that was not understood nothing can be trusted to be one */
	if (h->ex->own_answer &&
		(head->status == 400 || head->status == 408 || head->status == 431))
		h->keep_alive = false;
}

static void h1_client_unframed(struct h1_client *h, const struct h1_head *head)
{
	struct conn *c = h1_client_conn(h);

	write_status_line(c, head);
	rewrite_fields(&head->fields, c);
	conn_write(c, SLICE("\r\n"));
}

static void on_h1_response_head(void *driver, const struct h1_head *head)
{
	struct h1_client *h = driver;
	struct conn *c = h1_client_conn(h);

	if (head->status < 200) {
		if (head->status == 101 || !h->http_1_0)
			h1_client_unframed(h, head);
		return;
	}
	if (h->session->state == SESSION_PEEK) {
		h1_client_unframed(h, head); /* 200 to CONNECT: what follows is not HTTP's */
		return;
	}
	h1_client_framing(h, head);
	write_status_line(c, head);
	rewrite_fields(&head->fields, c);
	if (h->ex->own_answer && head->framing == H1_LENGTH)
		rewrite_length(c, head->length);
	if (h->response_chunked && !h->is_head)
		conn_write(c, SLICE("Transfer-Encoding: chunked\r\n"));
	if (!h->keep_alive)
		conn_write(c, SLICE("Connection: close\r\n"));
	else if (h->http_1_0)
		conn_write(c, SLICE("Connection: keep-alive\r\n"));
	conn_write(c, SLICE("\r\n"));
}

static void on_h1_response_body(void *driver, struct slice content)
{
	struct h1_client *h = driver;

	if (content.len == 0)
		return;
	if (h->response_chunked)
		rewrite_chunk(h1_client_conn(h), content);
	else
		conn_write(h1_client_conn(h), content);
}

/* The exchange is over. What happens next happens in h1_client_run, which may be our caller. */
static void h1_client_next(struct h1_client *h)
{
	if (h->running)
		h->again = true;
	else
		h1_client_run(h);
}

static void on_h1_response_end(void *driver, const struct fields *trailers)
{
	struct h1_client *h = driver;
	struct session *s = h->session;

	if (h->response_chunked && !h->is_head)
		rewrite_last_chunk(&s->conn, trailers);
	h->response_chunked = false;
	exchange_free(h->ex);
	h->ex = NULL;
	if (h->keep_alive && h->state == H1_CLIENT_WAIT && s->state == SESSION_HTTP) {
		h1_client_move(h, H1_CLIENT_HEAD);
		h1_client_limit(h, s->px->config.client_idle_ms);
	} else {
		h1_client_move(h, H1_CLIENT_OVER);
	}
	h1_client_next(h);
}

static void on_h1_response_reset(void *driver)
{
	struct h1_client *h = driver;

	exchange_free(h->ex);
	h->ex = NULL;
	h1_client_move(h, H1_CLIENT_OVER);
	/* what came before the break is the client's; the line says so, too */
	conn_flush(&h->session->conn);
	/* cut, without close_notify or last chunk: the client must not take it for whole */
	h->session->conn.error = h->session->conn.error ? h->session->conn.error : -ECONNRESET;
	h1_client_next(h);
}

static void on_h1_want_more(void *driver)
{
	h1_client_next(driver);
}

static bool on_h1_backlogged(void *driver)
{
	return conn_backlogged(h1_client_conn(driver));
}

static void on_h1_flush(void *driver)
{
	struct h1_client *h = driver;
	int ret = conn_flush(h1_client_conn(h));

	if (ret == 0 || h->running)
		return;
	if (ret == -EAGAIN) {
		h1_client_limit(h, h->session->px->config.stream_idle_ms);
		return;
	}
	session_free(h->session, REASON_CLIENT_CLOSED);
}

static void on_h1_switched(void *driver, struct slice rest)
{
	struct h1_client *h = driver;
	struct exchange *ex = h->ex;

	h->ex = NULL;
	h1_client_move(h, H1_CLIENT_OVER);
	session_switched(h->session, ex, rest, slice_make(h->saved, h->saved_len));
}

static const struct client_ops h1_client_ops = {
	.head = on_h1_response_head,
	.body = on_h1_response_body,
	.flush = on_h1_flush,
	.end = on_h1_response_end,
	.want_more = on_h1_want_more,
	.reset = on_h1_response_reset,
	.switched = on_h1_switched,
	.backlogged = on_h1_backlogged,
};

/* --- request --- */

static void h1_client_save(struct h1_client *h, struct slice rest)
{
	if (rest.len == 0) {
		if (h->saved_len == 0)
			return;
		free(h->saved);
		h->saved = NULL;
		h->saved_len = h->saved_cap = 0;
		return;
	}
	if (h->saved_cap < rest.len) {
		char *p = xmalloc(rest.len);

		memcpy(p, rest.p, rest.len);
		free(h->saved);
		h->saved = p;
		h->saved_cap = rest.len;
	} else {
		memmove(h->saved, rest.p, rest.len);
	}
	h->saved_len = rest.len;
}

static void h1_client_refuse(struct h1_client *h, enum reason reason, const char *detail)
{
	h->ex = exchange_new(h->session, &h1_client_ops, h);
	h->keep_alive = false;
	h->is_head = false;
	h1_client_move(h, H1_CLIENT_WAIT);
	exchange_refuse(h->ex, reason, detail);
}

static enum reason h1_error_reason(enum h1_error error)
{
	return error == H1_HEAD_TOO_LARGE || error == H1_TOO_MANY_FIELDS ||
			error == H1_TARGET_TOO_LONG
		? REASON_HEAD_TOO_LARGE
		: REASON_MALFORMED;
}

/* A complete head: the exchange gets a copy that lives as long as it does. */
static void h1_client_request(struct h1_client *h, struct slice head)
{
	struct proxy *px = h->session->px;
	struct h1_head *request = &px->request;
	struct exchange *ex = exchange_new(h->session, &h1_client_ops, h);
	struct slice raw = arena_dup(&ex->arena, head);
	enum h1_error error = h1_request_decode(raw, request);

	h->ex = ex;
	h->n_requests++;
	h->scanned = 0;
	h->session->deadline.at_ms = 0;
	if (error != H1_OK) {
		h->keep_alive = false;
		h->is_head = false;
		h1_client_move(h, H1_CLIENT_WAIT);
		exchange_refuse(ex, h1_error_reason(error), h1_error_text(error));
		return;
	}
	h->http_1_0 = request->minor == 0;
	h->keep_alive = request->keep_alive;
	h->is_head = slice_eq(request->method, SLICE("HEAD"));
	h1_body_init(&h->body, request->framing, request->length);
	h1_client_move(h, h1_body_done(&h->body) ? H1_CLIENT_WAIT : H1_CLIENT_BODY);
	exchange_head(ex, raw);
}

/* Reads a head off the front of *in. False when more bytes are needed. */
static bool h1_client_head(struct h1_client *h, struct slice *in)
{
	enum h1_error error = H1_OK;
	ssize_t n = h1_head_end(*in, &h->scanned, &error);
	struct slice head;

	if (n == E_MORE) {
		/* the limit is for the whole head, from its first byte */
		if (h->saved_len == 0 && in->len > 0)
			h1_client_limit(h, h->session->px->config.head_timeout_ms);
		return false;
	}
	if (n < 0) {
		*in = SLICE_EMPTY;
		h1_client_refuse(h, n == E_LIMIT ? REASON_HEAD_TOO_LARGE : h1_error_reason(error),
			h1_error_text(n == E_LIMIT ? H1_HEAD_TOO_LARGE : error));
		return true;
	}
	head = slice_first(*in, (size_t)n);
	*in = slice_from(*in, (size_t)n);
	h1_client_request(h, head);
	return true;
}

/* Hands content to the exchange. False when more bytes are needed, or wanted later. */
static bool h1_client_body(struct h1_client *h, struct slice *in)
{
	struct fields trailers;
	struct slice content;

	if (!h->ex || !exchange_wants_body(h->ex))
		return false;
	switch (h1_body_next(&h->body, in, &content)) {
	case H1_BODY_CONTENT:
		exchange_body(h->ex, content);
		return true;
	case H1_BODY_MORE:
		h1_client_limit(h, h->session->px->config.stream_idle_ms);
		return false;
	case H1_BODY_END:
		h->session->deadline.at_ms = 0;
		h1_client_move(h, H1_CLIENT_WAIT);
		exchange_end(h->ex, h1_body_trailers(&h->body, &trailers) ? &trailers : NULL);
		return true;
	case H1_BODY_ERROR:
		h->keep_alive = false;
		*in = SLICE_EMPTY;
		exchange_refuse(h->ex, REASON_MALFORMED, h1_error_text(h->body.error));
		return false;
	}
	return false;
}

/* Uses what it can of in; the rest is saved. */
static void h1_client_input(struct h1_client *h, struct slice in)
{
	bool going = true;

	while (going && h->session->state == SESSION_HTTP) {
		switch (h->state) {
		case H1_CLIENT_HEAD:
			going = in.len > 0 && h1_client_head(h, &in);
			break;
		case H1_CLIENT_BODY:
			going = h1_client_body(h, &in);
			break;
		case H1_CLIENT_WAIT:
		case H1_CLIENT_OVER:
		case H1_CLIENT_STATE_MAX:
			going = false;
			break;
		}
	}
	h1_client_save(h, in);
}

/* Are bytes of any use now? */
static bool h1_client_wants(const struct h1_client *h)
{
	if (h->session->state != SESSION_HTTP || h->client_ended)
		return false;
	if (conn_backlogged(&h->session->conn))
		return false;
	switch (h->state) {
	case H1_CLIENT_HEAD:
		return true;
	case H1_CLIENT_BODY:
		return h->ex && exchange_wants_body(h->ex);
	case H1_CLIENT_WAIT:
		/* only when an event says so: is it the client's end, or the next request? */
		return h->readable && h->saved_len < H1_CLIENT_AHEAD_MAX;
	case H1_CLIENT_OVER:
	case H1_CLIENT_STATE_MAX:
		break;
	}
	return false;
}

/* No more bytes come. False if the session is over. */
static bool h1_client_ended(struct h1_client *h, ssize_t why)
{
	if (why == E_EOF && h->state == H1_CLIENT_WAIT) {
		h->client_ended = true;
		h->keep_alive = false;
		return true;
	}
	session_free(h->session, REASON_CLIENT_CLOSED);
	return false;
}

/* Reads behind what was saved. 0, or why nothing came. */
static ssize_t h1_client_read(struct h1_client *h, struct slice *in)
{
	struct io *io = h->session->px->io;
	ssize_t n;

	if (h->saved_len == 0) {
		n = conn_read(&h->session->conn, io->plain, IO_PLAIN_BYTES);
		*in = slice_make(io->plain, n > 0 ? (size_t)n : 0);
		return n < 0 ? n : 0;
	}
	if (h->saved_cap < h->saved_len + IO_RECORD) {
		h->saved_cap = h->saved_len + IO_RECORD;
		h->saved = xrealloc(h->saved, h->saved_cap);
	}
	n = conn_read(&h->session->conn, h->saved + h->saved_len, IO_RECORD);
	if (n > 0)
		h->saved_len += (size_t)n;
	*in = slice_make(h->saved, h->saved_len);
	return n < 0 ? n : 0;
}

/* The session leaves HTTP: to peek behind CONNECT, or to close. */
static void h1_client_leave(struct h1_client *h)
{
	struct session *s = h->session;

	if (s->state == SESSION_PEEK) {
		conn_flush(&s->conn);
		conn_unread(&s->conn, slice_make(h->saved, h->saved_len));
		h1_client_save(h, SLICE_EMPTY);
		session_peek(s);
		return;
	}
	if (s->conn.error)
		session_free(s, REASON_CLIENT_CLOSED);
	else
		session_close(s);
}

/* One turn: everything that can be done with the bytes at hand. False if the session is gone. */
static bool h1_client_turn(struct h1_client *h)
{
	struct slice in = slice_make(h->saved, h->saved_len);
	int reads = 0;
	ssize_t n;

	if (h->saved_len > 0)
		h1_client_input(h, in);
	while (h1_client_wants(h) &&
		(reads++ < H1_CLIENT_READS_MAX || conn_buffered(&h->session->conn))) {
		n = h1_client_read(h, &in);
		if (n == -EAGAIN)
			break;
		if (n < 0)
			return h1_client_ended(h, n);
		h1_client_input(h, in);
	}
	return true;
}

void h1_client_run(struct h1_client *h)
{
	struct session *s = h->session;
	int ret;

	if (h->running) {
		h->again = true;
		return;
	}
	h->running = true;
	do {
		h->again = false;
		if (!h1_client_turn(h))
			return;
	} while (h->again);
	h->running = false;
	if (h->ex)
		exchange_flush_upstream(h->ex);
	if (h->state == H1_CLIENT_OVER || s->state != SESSION_HTTP) {
		h1_client_leave(h);
		return;
	}
	ret = conn_flush(&s->conn);
	if (ret < 0 && ret != -EAGAIN) {
		session_free(s, REASON_CLIENT_CLOSED);
		return;
	}
	/* a client that announced content and sends none has no byte to start the limit with */
	if (h->state == H1_CLIENT_BODY && s->deadline.at_ms == 0 && h1_client_wants(h))
		h1_client_limit(h, s->px->config.stream_idle_ms);
	/* while a response is under way reading stays on, which costs nothing until the client
	 * sends */
	if (h1_client_wants(h))
		conn_want_read(&s->conn);
	else if (h->readable)
		conn_pause(&s->conn);
	h->readable = false;
}

void h1_client_readable(struct h1_client *h)
{
	h->readable = true;
	h1_client_run(h);
}

void h1_client_drained(struct h1_client *h)
{
	struct session *s = h->session;

	if (s->conn.error) {
		session_free(s, REASON_CLIENT_CLOSED);
		return;
	}
	if (h->state != H1_CLIENT_HEAD)
		s->deadline.at_ms = 0;
	if (h->ex && h->state != H1_CLIENT_OVER)
		exchange_want_more(h->ex);
	else
		h1_client_run(h);
}

void h1_client_late(struct h1_client *h)
{
	struct session *s = h->session;

	if (h->state == H1_CLIENT_HEAD && h->saved_len > 0) {
		h1_client_refuse(h, REASON_CLIENT_TIMEOUT, NULL);
		return;
	}
	if (h->state == H1_CLIENT_BODY && h->ex && !h->ex->answered) {
		h->keep_alive = false;
		exchange_refuse(h->ex, REASON_CLIENT_TIMEOUT, "the content of the request stopped");
		return;
	}
	session_free(s, REASON_CLIENT_TIMEOUT);
}
