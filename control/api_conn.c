/* One connection to the API: bytes to requests, answers to bytes. Before it: the listener in api.c;
 * after it: api_begin, which judges heads, and the handlers. One request at a time; what a client
 * sends ahead waits.
 *
 * The sandbox reaches this port, too. So each step has a time limit for the whole of it, there is a
 * fixed number of connections, and when they are used up those go first that come from the
 * sandbox's namespace and have not shown the token. */
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/event.h>

#include "audit/client_uid.h"
#include "audit/event.h"
#include "base/arena.h"
#include "base/err.h"
#include "control/api_int.h"

#define API_TRIM_BYTES 65536 /* of a body, from which on its memory goes back to the system */

static const uint8_t api_conn_moves[API_CONN_STATE_MAX] = {
	[API_CONN_HEAD] = BIT(API_CONN_BODY) | BIT(API_CONN_CALL) | BIT(API_CONN_SEND),
	[API_CONN_BODY] = BIT(API_CONN_CALL) | BIT(API_CONN_SEND),
	[API_CONN_CALL] = BIT(API_CONN_SEND),
	[API_CONN_SEND] = BIT(API_CONN_HEAD) | BIT(API_CONN_LINGER),
};

static void api_conn_limit(struct api_conn *c, uint32_t ms)
{
	struct timeval tv = {ms / 1000, ms % 1000 * 1000};

	c->limit_ms = ms;
	event_del(&c->timer);
	if (ms > 0)
		event_add(&c->timer, &tv);
}

void api_conn_thaw(struct api_conn *c)
{
	api_conn_limit(c, c->limit_ms);
}

static void api_conn_move(struct api_conn *c, enum api_conn_state to)
{
	REQUIRE(api_conn_moves[c->state] & BIT(to));
	c->state = to;
	switch (to) {
	case API_CONN_HEAD:
		api_conn_limit(c, c->trusted ? API_IDLE_MS : API_HEAD_MS);
		break;
	case API_CONN_BODY:
		api_conn_limit(c, API_BODY_MS);
		break;
	case API_CONN_CALL:
		api_conn_limit(c, 0);
		break;
	case API_CONN_SEND:
		api_conn_limit(c, API_SEND_MS);
		break;
	case API_CONN_LINGER:
		api_conn_limit(c, API_LINGER_MS);
		break;
	case API_CONN_STATE_MAX:
		break;
	}
	/* used a moment ago: the last to go */
	TAILQ_REMOVE(&c->api->conns, c, link);
	TAILQ_INSERT_TAIL(&c->api->conns, c, link);
}

void api_conn_free(struct api_conn *c)
{
	bool large = c->out.cap > API_TRIM_BYTES;

	TAILQ_REMOVE(&c->api->conns, c, link);
	c->api->n_conns--;
	event_del(&c->readable);
	event_del(&c->writable);
	event_del(&c->timer);
	if (c->call && c->state == API_CONN_CALL)
		c->call->conn = NULL; /* its handler goes on */
	else if (c->call)
		api_call_free(c->call);
	h1_body_fini(&c->body);
	strbuf_fini(&c->in);
	strbuf_fini(&c->out);
	(void)close(c->fd);
	free(c);
	if (large)
		(void)malloc_trim(0);
}

bool api_conn_idle(const struct api_conn *c)
{
	return c->state == API_CONN_HEAD || c->state == API_CONN_LINGER;
}

/* Wipes a head, used or not: it held the token. */
static void api_conn_wipe(struct api_conn *c)
{
	if (c->in.len > 0)
		explicit_bzero(c->in.p, c->in.len);
	strbuf_clear(&c->in);
	c->scanned = 0;
	c->line_end = 0;
}

/* --- sending --- */

static void api_conn_linger(struct api_conn *c)
{
	api_conn_wipe(c);
	(void)shutdown(c->fd, SHUT_WR);
	api_conn_move(c, API_CONN_LINGER);
	event_add(&c->readable, NULL);
}

/* All of the answer is in the socket. */
static void api_conn_sent(struct api_conn *c)
{
	bool large = c->out.cap > API_TRIM_BYTES;

	strbuf_fini(&c->out);
	strbuf_init(&c->out, API_ANSWER_MAX);
	c->out.wipe = true;
	c->sent = 0;
	if (large)
		(void)malloc_trim(0);
	if (c->keep_alive)
		api_conn_move(c, API_CONN_HEAD);
	else
		api_conn_linger(c);
}

/* 0: all of it went; -EAGAIN; or the connection is broken. */
static int api_conn_write(struct api_conn *c)
{
	while (c->sent < c->out.len) {
		ssize_t n = send(c->fd, c->out.p + c->sent, c->out.len - c->sent,
			MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		c->sent += (size_t)n;
	}
	return 0;
}

/* False if c is gone. */
static bool api_conn_flush(struct api_conn *c)
{
	int ret = api_conn_write(c);

	if (ret == -EAGAIN) {
		event_add(&c->writable, NULL);
		return true;
	}
	event_del(&c->writable);
	if (ret < 0) {
		api_conn_free(c);
		return false;
	}
	if (c->state == API_CONN_SEND)
		api_conn_sent(c);
	return true;
}

void api_conn_send(struct api_conn *c)
{
	event_del(&c->readable); /* what comes now waits */
	api_conn_move(c, API_CONN_SEND);
	if (api_conn_flush(c) && !c->running)
		api_conn_run(c);
}

static void on_api_writable(evutil_socket_t fd, short what, void *arg)
{
	struct api_conn *c = arg;

	if (api_conn_flush(c) && c->state == API_CONN_HEAD)
		api_conn_run(c);
}

/* --- reading --- */

static void api_conn_refuse(struct api_conn *c, enum h1_error error)
{
	bool large = error == H1_HEAD_TOO_LARGE || error == H1_TOO_MANY_FIELDS ||
		error == H1_TARGET_TOO_LONG;

	api_refuse(
		c, large ? 431 : 400, large ? "head_too_large" : "malformed", h1_error_text(error));
	api_conn_send(c);
}

/* As for clients of the proxy: a socket that changed hands since it was accepted has no user. */
static void api_conn_check_uid(struct api_conn *c)
{
	if (c->uid_checked)
		return;
	c->uid_checked = true;
	if (c->uid != AUDIT_UID_NONE && client_uid_find(c->api->diag_fd, c->fd, NULL) != c->uid)
		c->uid = AUDIT_UID_NONE;
}

/* c may be gone when one of these returns. */
static void api_conn_head(struct api_conn *c)
{
	enum h1_error error = H1_OK;
	ssize_t n = h1_head_end(strbuf_slice(&c->in), &c->scanned, &error);
	struct h1_head h;

	if (n == E_MORE) {
		if (!c->begun)
			api_conn_limit(c, API_HEAD_MS);
		c->begun = true;
		return;
	}
	c->begun = false;
	if (n >= 0)
		error = h1_request_decode(slice_first(strbuf_slice(&c->in), (size_t)n), &h);
	else if (n == E_LIMIT || error == H1_OK)
		error = H1_HEAD_TOO_LARGE;
	if (error != H1_OK) {
		api_conn_refuse(c, error);
		return;
	}
	c->call = api_begin(c, &h);
	if (c->call) {
		h1_body_init(&c->body, h.framing, h.length);
		c->body_ret = h1_body_done(&c->body) ? 0 : E_MORE;
	}
	api_conn_wipe(c);
	if (!c->call) {
		api_conn_send(c);
		return;
	}
	api_conn_move(c, API_CONN_BODY);
	(void)api_conn_flush(c); /* 100 Continue */
}

static void api_conn_drop_call(struct api_conn *c)
{
	api_call_free(c->call);
	c->call = NULL;
}

/* What came last was put where it belongs: what follows from it. */
static void api_conn_body(struct api_conn *c)
{
	if (c->body_ret == E_MORE)
		return;
	if (c->body_ret < 0) {
		api_conn_drop_call(c);
		if (c->body_ret == E_LIMIT)
			api_refuse(
				c, 413, "body_too_large", "the body is larger than 1048576 bytes");
		else if (c->body_ret == E_FULL)
			api_refuse_busy(c);
		else
			api_refuse(c, 400, "malformed", h1_error_text(c->body.error));
		api_conn_send(c);
		return;
	}
	h1_body_fini(&c->body);
	h1_body_init(&c->body, H1_NO_CONTENT, 0);
	api_conn_move(c, API_CONN_CALL);
	event_del(&c->readable);
	api_run(c->call);
}

void api_conn_run(struct api_conn *c)
{
	struct api *a = c->api;
	size_t n_conns = a->n_conns;

	c->running = true;
	for (;;) {
		enum api_conn_state was = c->state;
		size_t len = c->in.len;

		if (was == API_CONN_HEAD && len > 0)
			api_conn_head(c);
		else if (was == API_CONN_BODY)
			api_conn_body(c);
		else
			break;
		/* Nothing but the end of this one changes their number here. */
		if (a->n_conns < n_conns)
			return;
		if (c->state == was && c->in.len == len)
			break;
	}
	c->running = false;
	if (c->state == API_CONN_HEAD || c->state == API_CONN_BODY)
		event_add(&c->readable, NULL);
}

/* How many of these bytes belong to the head: up to its empty line, all if that is not there. The
 * parser looks at them anew; here it only matters that nothing behind a whole head is taken. */
static size_t api_conn_head_part(struct api_conn *c, struct slice in)
{
	enum { NO_END, LINE_END, LINE_END_CR };

	for (size_t i = 0; i < in.len; i++) {
		if (in.p[i] == '\n' && c->line_end != NO_END) {
			c->line_end = NO_END;
			return i + 1;
		}
		if (in.p[i] == '\n')
			c->line_end = LINE_END;
		else if (in.p[i] == '\r' && c->line_end == LINE_END)
			c->line_end = LINE_END_CR;
		else
			c->line_end = NO_END;
	}
	return in.len;
}

/* How many of these bytes belong to the content, which are where they belong then. */
static size_t api_conn_body_part(struct api_conn *c, struct slice in)
{
	enum h1_body_result got = H1_BODY_CONTENT;
	struct slice rest = in;
	struct slice content;
	int ret = 0;

	while (got == H1_BODY_CONTENT && ret == 0) {
		got = h1_body_next(&c->body, &rest, &content);
		if (got == H1_BODY_CONTENT)
			ret = api_body_add(&c->call->body, content);
		if (got == H1_BODY_CONTENT && ret == 0 && h1_body_done(&c->body))
			got = H1_BODY_END;
	}
	if (ret == 0 && got == H1_BODY_MORE)
		ret = E_MORE;
	else if (ret == 0 && got == H1_BODY_ERROR)
		ret = E_SYNTAX;
	c->body_ret = ret;
	return in.len - rest.len;
}

/* Only looks at what is there, and takes what belongs to the head or content that is being read:
 * what follows may be content with keys of a request whose turn has not come, and stays in the
 * socket. */
static void api_conn_receive(struct api_conn *c)
{
	struct api *a = c->api;
	ssize_t n = recv(c->fd, a->in, API_IN_BYTES, MSG_DONTWAIT | MSG_PEEK);
	ssize_t taken;
	size_t part;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		/* a request that is not whole will not be */
		api_conn_free(c);
		return;
	}
	api_conn_check_uid(c);
	if (c->state == API_CONN_HEAD)
		part = api_conn_head_part(c, slice_make(a->in, (size_t)n));
	else
		part = api_conn_body_part(c, slice_make(a->in, (size_t)n));
	if (c->state == API_CONN_HEAD)
		strbuf_add(&c->in, slice_make(a->in, part));
	taken = recv(c->fd, a->in, part, MSG_DONTWAIT);
	explicit_bzero(a->in, (size_t)n);
	if (taken != (ssize_t)part)
		api_conn_free(c);
	else
		api_conn_run(c);
}

/* After an answer that ends the connection: what still comes is not looked at. */
static void api_conn_discard(struct api_conn *c)
{
	struct api *a = c->api;
	ssize_t n = recv(c->fd, a->in, API_IN_BYTES, MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n > 0) {
		explicit_bzero(a->in, (size_t)n);
		c->lingered += (size_t)n;
	}
	if (n <= 0 || c->lingered > API_LINGER_BYTES)
		api_conn_free(c);
}

static void on_api_readable(evutil_socket_t fd, short what, void *arg)
{
	struct api_conn *c = arg;

	if (c->state == API_CONN_LINGER)
		api_conn_discard(c);
	else
		api_conn_receive(c);
}

static void on_api_late(evutil_socket_t fd, short what, void *arg)
{
	struct api_conn *c = arg;

	if (c->state != API_CONN_BODY && !c->begun) {
		api_conn_free(c);
		return;
	}
	c->begun = false;
	if (c->call)
		api_conn_drop_call(c);
	api_refuse(c, 408, "client_timeout", "the request was not whole in time");
	api_conn_send(c);
}

/* Who goes when there are too many: the highest first, 0 not at all. */
static int api_conn_rank(const struct api_conn *c)
{
	if (c->state == API_CONN_CALL && (c->trusted || !c->local))
		return 0;
	if (!c->trusted)
		return c->local ? 3 : 2;
	return api_conn_idle(c) ? 1 : 0;
}

/* Makes room for one more. False if everybody is busy. */
static bool api_conn_evict(struct api *a)
{
	struct api_conn *worst = NULL;
	struct api_conn *c;

	TAILQ_FOREACH(c, &a->conns, link)
		if (api_conn_rank(c) > (worst ? api_conn_rank(worst) : 0))
			worst = c;
	if (!worst)
		return false;
	api_conn_free(worst);
	return true;
}

void api_conn_new(struct api *a, int fd, const struct netaddr *peer, bool local)
{
	struct api_conn *c;

	if (a->n_conns >= API_CONNS_MAX && !api_conn_evict(a)) {
		(void)close(fd);
		return;
	}
	c = xcalloc(1, sizeof(*c));
	c->api = a;
	c->fd = fd;
	c->peer = *peer;
	c->uid = client_uid_find(a->diag_fd, fd, NULL);
	c->local = local || c->uid != AUDIT_UID_NONE;
	/* what is looked at in one go is not yet known to be too long */
	strbuf_init(&c->in, H1_HEAD_MAX + API_IN_BYTES);
	strbuf_init(&c->out, API_ANSWER_MAX);
	c->in.wipe = c->out.wipe = true;
	h1_body_init(&c->body, H1_NO_CONTENT, 0);
	event_assign(&c->readable, a->base, fd, EV_READ | EV_PERSIST, on_api_readable, c);
	event_assign(&c->writable, a->base, fd, EV_WRITE | EV_PERSIST, on_api_writable, c);
	event_assign(&c->timer, a->base, -1, 0, on_api_late, c);
	TAILQ_INSERT_TAIL(&a->conns, c, link);
	a->n_conns++;
	api_conn_limit(c, API_HEAD_MS);
	event_add(&c->readable, NULL);
}
