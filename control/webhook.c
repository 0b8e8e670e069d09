/* One event at a time, in order. Before it: the name and web gates refuse a name, or `egressctl
 * watch` raises an alarm; after it:
 * proxy/fetch connects and verifies as for any origin. */
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
#include "proxy/fetch.h"

#define WEBHOOK_NAMES_MAX 4096   /* whose last time is remembered */
#define WEBHOOK_ANSWER_MAX 65536 /* read to the end, and not looked at */

struct webhook_event {
	TAILQ_ENTRY(webhook_event) link;
	char *what; /* for the log */
	char *text;
};

TAILQ_HEAD(webhook_event_list, webhook_event);

struct webhook {
	struct proxy *px;
	char *url;
	char *sandbox_id;
	struct map *sent; /* name to the time of its last event */
	struct webhook_event_list queue;
	size_t n_queued;
	unsigned tries;      /* of the first one */
	struct fetch *fetch; /* an attempt */
	struct event *timer; /* the next one is due */
	struct log_rate full_rate;
};

static void webhook_wait(struct webhook *h, uint32_t ms)
{
	struct timeval tv = {ms / 1000, ms % 1000 * 1000};

	event_add(h->timer, &tv);
}

static void webhook_event_free(struct webhook_event *e)
{
	free(e->what);
	free(e->text);
	free(e);
}

/* The first event is over. */
static void webhook_next(struct webhook *h)
{
	struct webhook_event *e = TAILQ_FIRST(&h->queue);

	TAILQ_REMOVE(&h->queue, e, link);
	h->n_queued--;
	webhook_event_free(e);
	h->tries = 0;
	if (h->n_queued > 0)
		webhook_wait(h, 0);
}

/* The attempt is over. A status counts, even if the content behind it did not come whole. */
static void on_webhook_answer(const struct fetch_answer *answer, void *arg)
{
	struct webhook *h = arg;
	const struct webhook_event *e = TAILQ_FIRST(&h->queue);
	int status = answer->status;

	h->fetch = NULL;
	h->tries++;
	if (status >= 200 && status < 300) {
		webhook_next(h);
	} else if (status >= 300 && status < 500) {
		log_warn("webhook", "%s: answered %d: not sent again", e->what, status);
		webhook_next(h);
	} else if (h->tries == WEBHOOK_TRIES_MAX) {
		log_warn("webhook", "%s: given up: %s (%d)", e->what,
			answer->why ? answer->why : "the receiver failed", status);
		webhook_next(h);
	} else {
		webhook_wait(h, 1000u << (h->tries - 1));
	}
}

static void on_webhook_timer(evutil_socket_t fd, short what, void *arg)
{
	struct webhook *h = arg;
	struct fetch_request r = {
		.method = "POST",
		.url = slice_str(h->url),
		.content_type = "application/json",
		.content = slice_str(TAILQ_FIRST(&h->queue)->text),
		.answer_max = WEBHOOK_ANSWER_MAX,
		.timeout_ms = WEBHOOK_TRY_MS,
	};

	h->fetch = fetch_start(h->px, &r, on_webhook_answer, h);
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

void webhook_send(struct webhook *h, const char *what, const char *text)
{
	struct webhook_event *e;
	uint32_t left_out;

	if (h->n_queued == WEBHOOK_QUEUE_MAX) {
		if (log_rate_ok(&h->full_rate, clock_mono_ms(), &left_out))
			log_warn("webhook", "%s: left out, the queue is full (%u before it)", what,
				left_out);
		return;
	}
	e = xcalloc(1, sizeof(*e));
	e->what = xstrdup(what);
	e->text = xstrdup(text);
	TAILQ_INSERT_TAIL(&h->queue, e, link);
	if (h->n_queued++ == 0)
		webhook_wait(h, 0);
}

void webhook_denied(struct webhook *h, struct slice name)
{
	char when[CLOCK_TEXT_MAX], host[HOSTNAME_MAX + 1];
	json_t *doc;
	char *text;

	/* The root has no name to report. */
	if (name.len == 0 || !slice_to_cstr(name, host, sizeof(host)) || !webhook_is_due(h, name))
		return;
	/* To the second, as the replaced image writes it. */
	clock_text(clock_wall_us() / 1000000 * 1000000, when);
	memcpy(when + 19, "Z", 2);
	doc = json_pack("{s:s, s:s, s:s, s:s}", "hostname", host, "timestamp", when, "source",
		"opensandbox-egress", "sandboxId", h->sandbox_id);
	text = json_dumps(doc, JSON_COMPACT);
	webhook_send(h, host, text ? text : "{}");
	free(text);
	json_decref(doc);
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
	h->sent = map_new(WEBHOOK_NAMES_MAX, free);
	TAILQ_INIT(&h->queue);
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
	fetch_cancel(h->fetch);
	while ((e = TAILQ_FIRST(&h->queue)) != NULL) {
		TAILQ_REMOVE(&h->queue, e, link);
		webhook_event_free(e);
	}
	event_free(h->timer);
	map_free(h->sent);
	free(h->url);
	free(h->sandbox_id);
	free(h);
}
