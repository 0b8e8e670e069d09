/* The list of sandboxes, read again and again; alarms; start and end. Before it: watch_cmd; after
 * it: watch_box does the rest for each of them. */
#include "ctl/watch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <event2/event.h>

#include "audit/event_json.h"
#include "base/arena.h"
#include "base/backoff.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/proc.h"
#include "control/webhook.h"

#define WATCH_ONCE_FAILURES 3 /* lists that --once tries */
#define WATCH_DETAIL_MAX 512

static const char *const alarm_names[] = {
#define X(id, name, text) name,
	WATCH_ALARM_TABLE(X)
#undef X
};
static const char *const alarm_texts[] = {
#define X(id, name, text) text,
	WATCH_ALARM_TABLE(X)
#undef X
};

/* --- alarms --- */

static void watch_tell(struct watch *w, enum watch_alarm alarm, const char *id, const char *detail)
{
	struct slice why = slice_first(slice_str(detail), WATCH_DETAIL_MAX);
	char when[CLOCK_TEXT_MAX], text[6 * WATCH_DETAIL_MAX + 3];
	char *doc = NULL;

	clock_text(clock_wall_us(), when);
	text[event_json_string(text, why)] = '\0';
	REQUIRE(asprintf(&doc,
			"{\"alarm\":\"%s\",\"sandbox\":\"%s\",\"timestamp\":\"%s\",\"detail\":%s}",
			alarm_names[alarm], id, when, text) > 0);
	webhook_send(w->webhook, id, doc);
	free(doc);
}

void box_alarm(struct box *b, enum watch_alarm alarm, const char *detail)
{
	if (b->alarms & BIT(alarm))
		return;
	b->alarms |= BIT(alarm);
	b->w->alarms++;
	log_error("watch", "alarm %s: %s: %s: %s", alarm_names[alarm], b->id, alarm_texts[alarm],
		detail);
	if (b->w->webhook)
		watch_tell(b->w, alarm, b->id, detail);
}

void box_calm(struct box *b, enum watch_alarm alarm)
{
	if (b->alarms & BIT(alarm))
		log_info("watch", "%s: %s is over", b->id, alarm_names[alarm]);
	b->alarms &= ~BIT(alarm);
}

/* --- the list --- */

/* Nothing is asked of the API for as long as it wants, and so many failures say. */
static void watch_hold(struct watch *w, const struct fetch_answer *a, unsigned failures)
{
	uint64_t least_ms = backoff_ms(WATCH_BACKOFF_MS, failures);
	uint64_t asked_ms = lifecycle_retry_after_ms(a);
	uint64_t until_ms = clock_mono_ms() + (asked_ms > least_ms ? asked_ms : least_ms);

	if (w->hold_ms < until_ms)
		w->hold_ms = until_ms;
}

int watch_check(struct watch *w, const struct fetch_answer *a, struct errmsg *msg)
{
	if (a->status == 401 || a->status == 403 || a->status == 429 || a->status == 503)
		watch_hold(w, a, w->list_failures + 2);
	return lifecycle_api_check(a, msg);
}

static void watch_list_failed(struct watch *w, const struct fetch_answer *a, const char *why)
{
	if (w->list_failures == 0 || a->status == 401 || a->status == 403)
		log_error("watch", "the list of sandboxes: %s", why);
	watch_hold(w, a, ++w->list_failures);
	if (w->o->once && w->list_failures == WATCH_ONCE_FAILURES) {
		w->code = COMMAND_WRONG;
		event_base_loopbreak(w->platform.caller.base);
	}
}

static void watch_see(struct watch *w, const struct lifecycle_sandbox *s)
{
	struct box *b = map_find(w->names, s->id);
	uint32_t left_out;

	if (!b && w->n_boxes == WATCH_BOXES_MAX) {
		if (log_rate_ok(&w->full_rate, clock_mono_ms(), &left_out))
			log_error("watch", "%.*s: not followed, as %u before: more than %d",
				SLICE_FMT(s->id), left_out, WATCH_BOXES_MAX);
		return;
	}
	if (!b)
		b = box_new(w, s);
	box_see(b, s);
}

/* Whole: who is not in it has ended, or is on its way from one page to another. */
static void watch_listed(struct watch *w)
{
	struct box *b, *next;

	if (w->list_failures > 0)
		log_info("watch", "the list of sandboxes is there again");
	w->list_failures = 0;
	w->listed = true;
	for (b = TAILQ_FIRST(&w->boxes); b; b = next) {
		next = TAILQ_NEXT(b, link);
		if (b->pass != w->pass)
			box_missed(b);
	}
}

static void on_list(const struct fetch_answer *a, void *arg)
{
	struct lifecycle_list l;
	struct watch *w = arg;
	struct errmsg msg = {""};

	w->list = NULL;
	if (watch_check(w, a, &msg) < 0 || lifecycle_page_decode(a->content, &l, &msg) < 0) {
		watch_list_failed(w, a, msg.text);
		return;
	}
	for (size_t i = 0; i < l.n; i++)
		watch_see(w, &l.v[i]);
	if (!l.more)
		watch_listed(w);
	else if (l.n > 0 && w->page < WATCH_PAGES_MAX)
		w->list = platform_list(&w->platform, ++w->page, on_list, w);
	else
		watch_list_failed(w, a, "it does not come to an end");
	lifecycle_list_fini(&l);
}

static void watch_step_list(struct watch *w, uint64_t now)
{
	if (w->list || now < w->list_due_ms || now < w->hold_ms || (w->o->once && w->listed))
		return;
	w->list_due_ms = now + WATCH_LIST_MS;
	w->list_from_us = clock_wall_us();
	w->pass++;
	w->page = 1;
	w->list = platform_list(&w->platform, w->page, on_list, w);
}

/* --- start and end --- */

static void watch_step_once(struct watch *w, uint64_t now)
{
	struct box *b = TAILQ_FIRST(&w->boxes);

	while (b && b->done)
		b = TAILQ_NEXT(b, link);
	if (!w->listed || (b && now < w->start_ms + WATCH_ONCE_MS) ||
		(w->webhook && webhook_busy(w->webhook)))
		return;
	if (b)
		log_error("watch", "not done after %d s", WATCH_ONCE_MS / 1000);
	w->code = b ? COMMAND_WRONG : w->alarms ? COMMAND_NO : COMMAND_OK;
	event_base_loopbreak(w->platform.caller.base);
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
	struct watch *w = arg;
	uint64_t now = clock_mono_ms();
	struct box *b;

	watch_step_list(w, now);
	for (b = TAILQ_FIRST(&w->boxes); b; b = TAILQ_NEXT(b, link))
		box_step(b, now);
	if (w->o->once)
		watch_step_once(w, now);
}

static int watch_load(struct watch *w, struct errmsg *msg)
{
	char path[4096];
	struct box *b;
	int ret;

	(void)snprintf(path, sizeof(path), "%s/wanted", w->o->dir);
	ret = wanted_load(path, &w->wanted, msg);
	if (ret == 0)
		for (b = TAILQ_FIRST(&w->boxes); b; b = TAILQ_NEXT(b, link))
			b->wanted = NULL;
	return ret;
}

/* What is asked with the key is asked anew, and at once, with the one that is there now. */
static void watch_read_key(struct watch *w)
{
	struct errmsg msg;
	struct box *b;

	fetch_cancel(w->list);
	w->list = NULL;
	TAILQ_FOREACH(b, &w->boxes, link)
		box_forget_key(b);
	w->list_due_ms = w->hold_ms = 0;
	if (platform_read_key(&w->platform, &msg) < 0)
		log_error("watch", "%s; the key before counts", msg.text);
}

static void on_signal(evutil_socket_t signal, short what, void *arg)
{
	struct watch *w = arg;
	struct errmsg msg;

	if (signal != SIGHUP) {
		event_base_loopbreak(w->platform.caller.base);
		return;
	}
	if (watch_load(w, &msg) < 0)
		log_error("watch", "what was wanted stays: %s", msg.text);
	watch_read_key(w);
}

/* The folder, those in it, and the right to be the only one there. */
static int watch_open_dir(const char *dir, int *lock, struct errmsg *msg)
{
	static const char *const names[] = {"", "/audit", "/state"};
	char path[4096];

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		if (snprintf(path, sizeof(path) - 8, "%s%s", dir, names[i]) >= 4000)
			return errmsg_set(msg, -ENAMETOOLONG, "--out: too long");
		if (mkdir(path, 0700) < 0 && errno != EEXIST)
			return errmsg_set(msg, -errno, "%s: %s", path, err_text(-errno));
	}
	(void)snprintf(path, sizeof(path), "%s/lock", dir);
	*lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (*lock >= 0 && flock(*lock, LOCK_EX | LOCK_NB) == 0)
		return 0;
	return errmsg_set(msg, -errno, "%s: %s", path,
		errno == EWOULDBLOCK ? "another one is at work here" : err_text(-errno));
}

static int watch_open(struct watch *w, int *lock, struct errmsg *msg)
{
	int ret = proc_harden(false, msg);

	if (ret == 0)
		ret = watch_open_dir(w->o->dir, lock, msg);
	if (ret == 0)
		ret = watch_load(w, msg);
	if (ret == 0)
		ret = platform_open(&w->platform, &w->o->platform, msg);
	if (ret == 0 && w->o->webhook)
		w->webhook = webhook_new(
			w->platform.caller.base, w->platform.caller.px, w->o->webhook, NULL);
	return ret;
}

static void watch_loop(struct watch *w)
{
	static const int signals[] = {SIGTERM, SIGINT, SIGHUP};
	const struct timeval tick = {0, WATCH_TICK_MS * 1000};
	struct event_base *base = w->platform.caller.base;
	struct event *ev[ARRAY_LEN(signals) + 1];

	for (size_t i = 0; i < ARRAY_LEN(signals); i++)
		ev[i] = evsignal_new(base, signals[i], on_signal, w);
	ev[ARRAY_LEN(signals)] = event_new(base, -1, EV_PERSIST, on_tick, w);
	for (size_t i = 0; i < ARRAY_LEN(ev); i++)
		REQUIRE(ev[i] && event_add(ev[i], i < ARRAY_LEN(signals) ? NULL : &tick) == 0);
	w->start_ms = clock_mono_ms();
	event_base_dispatch(base);
	for (size_t i = 0; i < ARRAY_LEN(ev); i++)
		event_free(ev[i]);
}

enum command_exit watch_run(const struct watch_options *o)
{
	struct watch w = {.o = o, .full_rate = {.burst = 1, .every_ms = 60000}};
	struct errmsg msg = {""};
	int lock = -1;

	TAILQ_INIT(&w.boxes);
	w.names = map_new(0, NULL);
	log_setup(LOG_LEVEL_INFO, STDERR_FILENO, "egressctl");
	(void)signal(SIGPIPE, SIG_IGN);
	(void)proc_raise_nofile();
	if (watch_open(&w, &lock, &msg) < 0) {
		command_complain("%s", msg.text);
		w.code = COMMAND_WRONG;
	} else {
		watch_loop(&w);
	}
	fetch_cancel(w.list);
	while (TAILQ_FIRST(&w.boxes))
		box_free(TAILQ_FIRST(&w.boxes));
	webhook_free(w.webhook);
	platform_close(&w.platform);
	wanted_free(w.wanted);
	map_free(w.names);
	if (lock >= 0)
		(void)close(lock);
	return w.code;
}
