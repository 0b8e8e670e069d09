/* One event at a time, in order, each on a connection of its own. Before it: the name and web gates
 * refuse a name; after it: proxy/dial connects and verifies as for any origin. */
#include "control/webhook.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/queue.h>

#include <event2/event.h>
#include <jansson.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/hostname.h"
#include "base/log.h"
#include "base/map.h"
#include "base/strbuf.h"
#include "proxy/dial.h"
#include "proxy/h1.h"
#include "proxy/request_target.h"

#define WEBHOOK_NAMES_MAX 4096 /* whose last time is remembered */
#define WEBHOOK_REQUEST_MAX 8192

struct webhook_event {
	TAILQ_ENTRY(webhook_event) link;
	uint64_t wall_us;
	size_t len;
	char name[HOSTNAME_MAX + 1];
};

TAILQ_HEAD(webhook_event_list, webhook_event);

struct webhook {
	struct proxy *px;
	char *url;
	char *sandbox_id;
	struct request_target target; /* into url */
	struct map *sent;             /* name to the time of its last event */
	struct webhook_event_list queue;
	size_t n_queued;
	unsigned tries; /* of the first one */
	struct dial *dial;
	struct conn conn; /* fd -1: none */
	struct strbuf head;
	size_t scanned;
	struct event *timer; /* an attempt takes too long, or the next one is due */
	bool attempting;
	struct log_rate full_rate;
};

static void webhook_attempt(struct webhook *h);

static void webhook_close(struct webhook *h)
{
	dial_cancel(h->dial);
	h->dial = NULL;
	conn_fini(&h->conn);
	h->conn.fd = -1;
	strbuf_clear(&h->head);
	h->scanned = 0;
	h->attempting = false;
}

static void webhook_wait(struct webhook *h, uint32_t ms)
{
	struct timeval tv = {ms / 1000, ms % 1000 * 1000};

	event_del(h->timer);
	event_add(h->timer, &tv);
}

/* The first event is over. */
static void webhook_next(struct webhook *h)
{
	struct webhook_event *e = TAILQ_FIRST(&h->queue);

	TAILQ_REMOVE(&h->queue, e, link);
	h->n_queued--;
	free(e);
	h->tries = 0;
	event_del(h->timer);
	if (h->n_queued > 0)
		webhook_wait(h, 0);
}

/* The attempt is over: what is the answer worth? 0: there was none. */
static void webhook_result(struct webhook *h, int status, const char *why)
{
	const struct webhook_event *e = TAILQ_FIRST(&h->queue);

	webhook_close(h);
	h->tries++;
	if (status >= 200 && status < 300) {
		webhook_next(h);
	} else if (status >= 300 && status < 500) {
		log_warn("webhook", "%s: answered %d: not sent again", e->name, status);
		webhook_next(h);
	} else if (h->tries == WEBHOOK_TRIES_MAX) {
		log_warn("webhook", "%s: given up: %s (%d)", e->name, why, status);
		webhook_next(h);
	} else {
		webhook_wait(h, 1000u << (h->tries - 1));
	}
}

static void webhook_text(const struct webhook *h, struct strbuf *body)
{
	const struct webhook_event *e = TAILQ_FIRST(&h->queue);
	char when[CLOCK_TEXT_MAX];
	json_t *doc;
	char *text;

	/* To the second, as the replaced image writes it. */
	clock_text(e->wall_us / 1000000 * 1000000, when);
	memcpy(when + 19, "Z", 2);
	doc = json_pack("{s:s, s:s, s:s, s:s}", "hostname", e->name, "timestamp", when, "source",
		"opensandbox-egress", "sandboxId", h->sandbox_id);
	text = json_dumps(doc, JSON_COMPACT);
	strbuf_str(body, text ? text : "{}");
	free(text);
	json_decref(doc);
}

static void webhook_send(struct webhook *h)
{
	char host[AUTHORITY_TEXT_MAX];
	struct strbuf request, body;

	strbuf_init(&request, WEBHOOK_REQUEST_MAX);
	strbuf_init(&body, WEBHOOK_REQUEST_MAX);
	webhook_text(h, &body);
	(void)authority_text(&h->target.authority, h->target.https ? 443 : 80, host);
	strbuf_printf(&request,
		"POST %.*s HTTP/1.1\r\nHost: %s\r\nUser-Agent: egress/" EGRESS_VERSION
		"\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n"
		"Connection: close\r\n\r\n",
		SLICE_FMT(h->target.path_query), host, body.len);
	strbuf_add(&request, strbuf_slice(&body));
	conn_write(&h->conn, strbuf_slice(&request));
	strbuf_fini(&body);
	strbuf_fini(&request);
	conn_want_read(&h->conn);
	if (conn_flush(&h->conn) < 0 && h->conn.error)
		webhook_result(h, 0, "the connection broke");
}

static void webhook_head(struct webhook *h)
{
	enum h1_error error = H1_OK;
	ssize_t n = h1_head_end(strbuf_slice(&h->head), &h->scanned, &error);
	struct h1_head head;

	if (n == E_MORE)
		return;
	if (n >= 0)
		error = h1_response_decode(
			slice_first(strbuf_slice(&h->head), (size_t)n), SLICE("POST"), &head);
	if (n < 0 || error != H1_OK) {
		webhook_result(h, 0, "the answer is malformed");
		return;
	}
	if (head.status < 200) {
		strbuf_consume(&h->head, (size_t)n);
		h->scanned = 0;
		webhook_head(h);
		return;
	}
	webhook_result(h, head.status, "the receiver failed");
}

static void on_webhook_readable(void *arg)
{
	struct webhook *h = arg;
	char in[4096];
	ssize_t n = conn_read(&h->conn, in, sizeof(in));

	if (n == -EAGAIN)
		return;
	if (n <= 0) {
		webhook_result(h, 0, "the connection ended without an answer");
		return;
	}
	strbuf_add(&h->head, slice_make(in, (size_t)n));
	if (h->head.full)
		webhook_result(h, 0, "the answer is malformed");
	else
		webhook_head(h);
}

static void on_webhook_drained(void *arg)
{
	struct webhook *h = arg;

	if (h->conn.error)
		webhook_result(h, 0, "the connection broke");
}

static const struct conn_ops webhook_conn_ops = {
	.on_readable = on_webhook_readable, .on_drained = on_webhook_drained};

/* The operator named the place: the sandbox's policy does not judge it. */
static enum reason on_webhook_admit(const struct netaddr *a, void *arg)
{
	return REASON_ALLOWED;
}

static void on_webhook_dialled(const struct dial_result *result, void *arg)
{
	struct webhook *h = arg;
	struct dial *d = h->dial;

	h->dial = NULL;
	if (result->reason != REASON_ALLOWED) {
		webhook_result(h, 0, reason_text(result->reason));
		return;
	}
	dial_take(d, &h->conn, &webhook_conn_ops, h);
	webhook_send(h);
}

static void webhook_attempt(struct webhook *h)
{
	static const struct dial_ops ops = {.admit = on_webhook_admit, .done = on_webhook_dialled};
	struct authority to = h->target.authority;

	if (!to.has_port) {
		to.has_port = true;
		to.port = h->target.https ? 443 : 80;
	}
	h->attempting = true;
	webhook_wait(h, WEBHOOK_TRY_MS);
	h->dial = dial_start(h->px, &to, h->target.https, &ops, h);
}

static void on_webhook_timer(evutil_socket_t fd, short what, void *arg)
{
	struct webhook *h = arg;

	if (h->attempting)
		webhook_result(h, 0, "no answer in time");
	else if (h->n_queued > 0)
		webhook_attempt(h);
}

/* False if the name had an event a moment ago. */
static bool webhook_is_due(struct webhook *h, struct slice name)
{
	uint64_t now = clock_mono_ms();
	uint64_t *last = map_find(h->sent, name);

	if (last && now - *last < WEBHOOK_REPEAT_MS)
		return false;
	last = xmalloc(sizeof(*last));
	*last = now;
	map_put(h->sent, name, last);
	return true;
}

void webhook_denied(struct webhook *h, struct slice name)
{
	struct webhook_event *e;
	uint32_t left_out;

	/* The root has no name to report. */
	if (name.len == 0 || name.len > HOSTNAME_MAX || !webhook_is_due(h, name))
		return;
	if (h->n_queued == WEBHOOK_QUEUE_MAX) {
		if (log_rate_ok(&h->full_rate, clock_mono_ms(), &left_out))
			log_warn("webhook", "%.*s: left out, the queue is full (%u before it)",
				SLICE_FMT(name), left_out);
		return;
	}
	e = xcalloc(1, sizeof(*e));
	e->wall_us = clock_wall_us();
	memcpy(e->name, name.p, name.len);
	TAILQ_INSERT_TAIL(&h->queue, e, link);
	if (h->n_queued++ == 0)
		webhook_wait(h, 0);
}

bool webhook_busy(const struct webhook *h)
{
	return h->n_queued > 0 && h->tries == 0;
}

struct webhook *webhook_new(
	struct event_base *base, struct proxy *px, const char *url, const char *sandbox_id)
{
	struct webhook *h = xcalloc(1, sizeof(*h));

	h->px = px;
	h->url = xstrdup(url);
	h->sandbox_id = xstrdup(sandbox_id ? sandbox_id : "");
	/* settings have read it the same way */
	REQUIRE(request_target_decode(SLICE("POST"), slice_str(h->url), &h->target) == 0);
	h->sent = map_new(WEBHOOK_NAMES_MAX, free);
	TAILQ_INIT(&h->queue);
	h->conn.fd = -1;
	strbuf_init(&h->head, H1_HEAD_MAX + 4096);
	h->full_rate = (struct log_rate){.burst = 1, .every_ms = 10000};
	h->timer = event_new(base, -1, 0, on_webhook_timer, h);
	REQUIRE(h->timer != NULL);
	return h;
}

const char *webhook_url(const struct webhook *h)
{
	return h->url;
}

void webhook_free(struct webhook *h)
{
	struct webhook_event *e;

	if (!h)
		return;
	webhook_close(h);
	while ((e = TAILQ_FIRST(&h->queue)) != NULL) {
		TAILQ_REMOVE(&h->queue, e, link);
		free(e);
	}
	event_free(h->timer);
	map_free(h->sent);
	strbuf_fini(&h->head);
	free(h->url);
	free(h->sandbox_id);
	free(h);
}
