/* One sandbox: where its sidecar is, whether it is ours, and which request is the most urgent; one
 * at a time. Before it: watch has read the list; after it: watch_push has what is wanted,
 * watch_trail what is collected. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/backoff.h"
#include "base/clock.h"
#include "base/log.h"
#include "ctl/watch.h"

#define BOX_FOREIGN_MS 60000 /* until a sidecar that is not ours is asked again */
#define BOX_FAILURES 3       /* in a row: an alarm */
#define BOX_MISSED 2         /* lists without it: it has ended */
#define BOX_VERSION 0, 1, 0  /* the oldest that has all that is asked here */

static void box_state_path(const struct box *b, const char *what, char path[4096])
{
	(void)snprintf(path, 4096, "%s/state/%s%s", b->w->o->dir, b->id, what);
}

void box_state_read(const struct box *b, const char *what, char *text, size_t size)
{
	struct strbuf was;
	char path[4096];

	box_state_path(b, what, path);
	strbuf_init_fixed(&was, text, size);
	if (strbuf_read_file(&was, path) < 0)
		strbuf_clear(&was);
	(void)strbuf_cstr(&was);
}

void box_state_keep(const struct box *b, const char *what, const char *text)
{
	char path[4096];
	FILE *f;

	box_state_path(b, what, path);
	f = fopen(path, "we");
	if (!f || fputs(text, f) < 0 || fclose(f) != 0)
		log_warn("watch", "%s: %s", path, err_text(-errno));
}

struct box *box_new(struct watch *w, const struct lifecycle_sandbox *s)
{
	struct box *b = xcalloc(1, sizeof(*b));
	struct errmsg msg = {""};
	char *base = NULL;

	b->w = w;
	REQUIRE(slice_to_cstr(s->id, b->id, sizeof(b->id)));
	REQUIRE(asprintf(&base, "%s/audit/%s", w->o->dir, b->id) >= 0);
	if (audit_copy_open(&b->copy, base, w->o->trail_max, &msg) < 0) {
		b->done = true;
		box_alarm(b, WATCH_ALARM_LOST, msg.text);
	}
	free(base);
	box_state_read(b, BOX_TRAIL, b->trail_instance, sizeof(b->trail_instance));
	TAILQ_INSERT_TAIL(&w->boxes, b, link);
	map_put(w->names, s->id, b);
	w->n_boxes++;
	return b;
}

/* Calls off what is being asked. */
static void box_cancel(struct box *b)
{
	b->w->n_fetches -= b->fetch ? 1 : 0;
	fetch_cancel(b->fetch);
	b->fetch = NULL;
}

void box_forget_key(struct box *b)
{
	if (b->ask == ASK_ENDPOINT)
		box_cancel(b);
}

void box_free(struct box *b)
{
	TAILQ_REMOVE(&b->w->boxes, b, link);
	b->w->n_boxes--;
	box_cancel(b);
	sidecar_free(&b->w->platform, b->sidecar);
	audit_copy_close(&b->copy);
	REQUIRE(map_take(b->w->names, slice_str(b->id)) == b);
	free(b);
}

/* Nothing of what we told a sidecar counts. */
static void box_push_anew(struct box *b)
{
	b->policy_known = false;
	b->check_due_ms = 0;
	b->vault = b->wanted && b->wanted->vault ? VAULT_PUT : VAULT_LEFT;
}

static void box_want(struct box *b, const struct wanted *wanted)
{
	if (b->wanted == wanted)
		return;
	b->wanted = wanted;
	box_cancel(b); /* its answer would be taken for one about what is wanted now */
	box_push_anew(b);
}

void box_see(struct box *b, const struct lifecycle_sandbox *s)
{
	bool stood = b->state == LIFECYCLE_PAUSED || b->state == LIFECYCLE_RESUMING;

	b->pass = b->w->pass;
	b->missed = 0;
	b->ended = false;
	b->expires_us = s->expires_us;
	box_want(b, wanted_find(b->w->wanted, s->metadata));
	if (s->state == LIFECYCLE_PAUSED && b->state == s->state) {
		b->paused_to_us = b->w->list_from_us;
		box_scan_pause(b, SLICE_EMPTY);
	}
	if (b->state == s->state)
		return;
	log_debug("watch", "%s: %.*s", b->id, SLICE_FMT(s->state_text));
	if (s->state == LIFECYCLE_PAUSED)
		b->paused_from_us = b->paused_to_us = clock_wall_us();
	/* On Kubernetes it begins anew, with the policy of its start. */
	if (stood && s->state == LIFECYCLE_RUNNING && b->wanted)
		b->put_policy = true;
	b->state = s->state;
	b->failures = 0;
	b->next_ms = b->asked_ms + WATCH_SPACING_MS;
	b->audit_due_ms = 0;
}

/* Frees b. */
static void box_end(struct box *b)
{
	char text[160], path[4096];

	(void)snprintf(text, sizeof(text), "it has ended; its trail is here up to line %" PRIu64,
		b->copy.seq);
	/* Where lines came until then, some more may have. */
	if (!b->looked || b->behind || (b->grew && b->unseen) || b->copy.full)
		box_alarm(b, WATCH_ALARM_LOST, text);
	else
		log_info("watch", "%s: %s", b->id, text);
	box_state_path(b, "", path);
	(void)unlink(path);
	box_state_path(b, BOX_TRAIL, path);
	(void)unlink(path);
	box_free(b);
}

void box_missed(struct box *b)
{
	/* The sidecar may live some seconds longer than its sandbox: one more look. */
	if (++b->missed == BOX_MISSED) {
		b->next_ms = b->asked_ms + WATCH_SPACING_MS;
		b->audit_due_ms = 0;
		b->ended = b->failures > 0;
	} else if (b->missed > BOX_MISSED && !b->fetch && (!b->sidecar || b->ended)) {
		box_end(b);
	}
}

void box_failed(struct box *b, const char *why, bool lost_place)
{
	bool still = b->state != LIFECYCLE_RUNNING && b->state != LIFECYCLE_UNKNOWN;

	b->failures++;
	b->unseen = true;
	b->ended = b->missed >= BOX_MISSED;
	b->next_ms = clock_mono_ms() + backoff_ms(WATCH_BACKOFF_MS, b->failures);
	if (lost_place) {
		sidecar_free(&b->w->platform, b->sidecar);
		b->sidecar = NULL;
	}
	log_debug("watch", "%s: %s", b->id, why);
	if (b->failures == BOX_FAILURES && !still)
		box_alarm(b, WATCH_ALARM_LOST, why);
	if (b->w->o->once && (still || b->failures >= BOX_FAILURES))
		b->done = true;
}

/* Does another one answer? */
static void box_instance(struct box *b, const struct fetch_answer *a)
{
	struct slice now = fetch_field(a, SLICE("X-Egress-Instance"));

	if (now.len == 0 || slice_eq(now, slice_str(b->instance)))
		return;
	if (!slice_to_cstr(now, b->instance, sizeof(b->instance)))
		b->instance[0] = '\0';
	b->ours = false;
	box_push_anew(b);
}

static void box_endpoint(struct box *b, const struct fetch_answer *a)
{
	struct errmsg msg = {""};

	if (watch_check(b->w, a, &msg) < 0) {
		box_failed(b, msg.text, false);
	} else if (sidecar_new(&b->w->platform, a->content, &b->sidecar, &msg) < 0) {
		box_alarm(b, WATCH_ALARM_FOREIGN, msg.text);
		box_failed(b, msg.text, false);
	} else {
		b->ours = false;
	}
}

/* Three numbers with dots between them, and what may stand behind. */
static bool box_is_old(const char *version)
{
	static const unsigned oldest[] = {BOX_VERSION};
	struct slice rest = slice_str(version);

	for (size_t i = 0; i < ARRAY_LEN(oldest); i++) {
		struct slice part = slice_cut(&rest, '.');
		size_t digits = 0;
		uint64_t n = 0;

		while (digits < part.len && ascii_digit(part.p[digits]))
			digits++;
		if (!slice_to_u64(slice_first(part, digits), &n) || n < oldest[i])
			return true;
		if (n > oldest[i])
			return false;
	}
	return false;
}

static void box_status(struct box *b, const struct fetch_answer *a)
{
	json_t *doc = json_loadb(a->content.p, a->content.len, JSON_REJECT_DUPLICATES, NULL);
	const char *version = json_string_value(json_object_get(doc, "version"));
	const char *instance = json_string_value(json_object_get(doc, "instance"));
	const char *sandbox = json_string_value(json_object_get(doc, "sandbox"));
	char text[200] = "";

	if (a->status != 200 || !version || !instance || strcmp(instance, b->instance) != 0)
		(void)snprintf(text, sizeof(text), "%d and no status of ours", a->status);
	else if (sandbox && sandbox[0] && strcmp(sandbox, b->id) != 0)
		(void)snprintf(text, sizeof(text), "it is the sidecar of %.100s", sandbox);
	else if (box_is_old(version))
		(void)snprintf(text, sizeof(text), "version %.40s is too old", version);
	b->no_vault = json_is_null(json_object_get(doc, "vault"));
	b->ours = !text[0];
	if (b->ours) {
		box_calm(b, WATCH_ALARM_FOREIGN);
	} else {
		box_alarm(b, WATCH_ALARM_FOREIGN, text);
		sidecar_free(&b->w->platform, b->sidecar);
		b->sidecar = NULL;
		b->next_ms = clock_mono_ms() + BOX_FOREIGN_MS;
		b->done = b->w->o->once;
	}
	json_decref(doc);
}

/* What a sidecar is asked, and who takes its answer. */
static const struct {
	struct sidecar_question q;
	void (*answer)(struct box *b, const struct fetch_answer *a);
} box_asks[] = {
	[ASK_STATUS] = {{.method = "GET", .path = "/status"}, box_status},
	[ASK_POLICY] = {{.method = "GET", .path = "/policy"}, box_policy},
	[ASK_PUT_POLICY] = {{.method = "PUT", .path = "/policy"}, box_put},
	[ASK_LOOK_VAULT] = {{.method = "GET", .path = "/credential-vault"}, box_vault_seen},
	[ASK_DROP_VAULT] = {{.method = "DELETE", .path = "/credential-vault"}, box_vault_dropped},
	[ASK_VAULT] = {{.method = "POST", .path = "/credential-vault"}, box_vault_sent},
	[ASK_AUDIT] = {{.method = "GET"}, box_audit},
};

void on_box_answer(const struct fetch_answer *a, void *arg)
{
	struct box *b = arg;
	uint64_t now = clock_mono_ms();
	struct errmsg msg = {""};
	bool gone = a->err || a->status == 401 || a->status == 403 || a->status == 429 ||
		a->status >= 500;

	b->fetch = NULL;
	b->w->n_fetches--;
	/* It may have been late at the other side, which must not see two within a second. One that
	 * a thaw answered was not, and the policy must not wait then. */
	if (now < b->asked_ms + WATCH_SPACING_MS ||
		(b->state == LIFECYCLE_RUNNING && !b->put_policy)) {
		b->asked_ms = now;
		b->next_ms = now + WATCH_SPACING_MS;
	}
	if (b->ask == ASK_ENDPOINT) {
		box_endpoint(b, a);
		return;
	}
	if (gone) {
		/* One that stands still keeps its place, and answers when it goes on. */
		box_failed(b, box_why(b, a, &msg), a->err != -ETIMEDOUT);
		return;
	}
	b->failures = 0;
	box_instance(b, a);
	box_asks[b->ask].answer(b, a);
	b->ended = b->ended || (b->missed >= BOX_MISSED && b->ask == ASK_AUDIT && !b->behind);
}

static enum box_ask box_choose(const struct box *b, uint64_t now)
{
	bool audit = b->audit_due_ms <= now || b->from != FROM_LAST || b->behind;

	if (!b->sidecar)
		return now >= b->w->hold_ms && !b->missed ? ASK_ENDPOINT : ASK_NOTHING;
	if (!b->ours)
		return ASK_STATUS;
	/* First: what it lets through meanwhile may be too much. */
	if (b->put_policy && b->wanted && b->vault != VAULT_DROP)
		return ASK_PUT_POLICY;
	if (audit && (box_end_is_near(b) || b->missed))
		return ASK_AUDIT;
	if (b->wanted && b->vault == VAULT_DROP && b->vault_due_ms <= now)
		return ASK_DROP_VAULT;
	if (b->wanted && b->vault == VAULT_PUT && b->policy_known && b->vault_due_ms <= now)
		return ASK_VAULT;
	/* In turn with the trail, which a short interval would push aside. */
	if (audit && (b->ask == ASK_POLICY || b->ask == ASK_LOOK_VAULT))
		return ASK_AUDIT;
	if (b->wanted && b->vault == VAULT_LOOK)
		return ASK_LOOK_VAULT;
	if (b->wanted && b->check_due_ms <= now)
		return ASK_POLICY;
	return audit ? ASK_AUDIT : ASK_NOTHING;
}

static struct fetch *box_send(struct box *b)
{
	struct sidecar_question q = box_asks[b->ask].q;
	struct platform *p = &b->w->platform;
	char path[80];

	if (b->ask == ASK_NOTHING)
		return NULL;
	if (b->ask == ASK_ENDPOINT)
		return lifecycle_api_get(
			&p->api, slice_str(b->id), LIFECYCLE_SIDECAR, on_box_answer, b);
	if (b->ask == ASK_VAULT)
		return box_send_vault(b);
	if (b->ask == ASK_PUT_POLICY)
		q.content = slice_str(b->wanted->policy);
	if (b->ask == ASK_AUDIT) {
		box_audit_path(b, path, sizeof(path));
		q.path = path;
	}
	return sidecar_ask(p, b->sidecar, &q, on_box_answer, b);
}

void box_step(struct box *b, uint64_t now)
{
	size_t max = b->state == LIFECYCLE_PAUSED ? WATCH_FETCHES_MAX / 3 : WATCH_FETCHES_MAX;

	if (b->fetch || b->done || now < b->next_ms || b->w->n_fetches >= max)
		return;
	if (b->state == LIFECYCLE_PENDING) {
		b->done = b->w->o->once;
		return;
	}
	b->ask = box_choose(b, now);
	b->fetch = box_send(b);
	if (b->fetch) {
		b->asked_ms = now;
		b->next_ms = now + WATCH_SPACING_MS;
		b->w->n_fetches++;
	} else if (b->ask == ASK_NOTHING && b->w->o->once && b->looked) {
		b->done = true;
	}
}
