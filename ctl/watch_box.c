/* One sandbox: finds its sidecar, asks whether it is ours, puts the wanted policy and vault in
 * force, and takes its trail home; one request at a time. Before it: watch has read the list; after
 * it: platform, watch_wanted, audit_copy. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "audit/audit_copy.h"
#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"
#include "ctl/audit_record.h"
#include "ctl/watch.h"

#define BOX_FOREIGN_MS 60000 /* until a sidecar that is not ours is asked again */
#define BOX_REFUSED_MS 30000 /* until what a sidecar refused is sent again */
#define BOX_CHECK_MS 10000   /* from one look at the policy to the next */
#define BOX_FAILURES 3       /* in a row: an alarm */
#define BOX_MISSED 2         /* lists without it: it has ended */
#define BOX_VERSION 0, 1, 0  /* the oldest that has all that is asked here */
#define BOX_INSTANCE_MAX 65
#define BOX_TRAIL "~trail" /* state: the instance that wrote the lines that are here */

enum box_ask {
	ASK_NOTHING,
	ASK_ENDPOINT,
	ASK_STATUS,
	ASK_POLICY,
	ASK_PUT_POLICY,
	ASK_DROP_VAULT,
	ASK_VAULT,
	ASK_AUDIT,
};

/* Where the next page of the trail begins. */
enum box_from { FROM_LAST, FROM_FIRST, FROM_OLDEST };

struct box {
	struct watch *w;
	TAILQ_ENTRY(box) link;
	char id[LIFECYCLE_ID_MAX + 1];
	enum lifecycle_state state;
	uint64_t expires_us;
	uint64_t pass;
	unsigned missed, failures;
	uint64_t paused_from_us, paused_to_us; /* it stood still between these, for certain */

	struct sidecar *sidecar; /* NULL: the API has to be asked where it is */
	struct fetch *fetch;
	enum box_ask ask;
	uint64_t asked_ms, next_ms, audit_due_ms, check_due_ms, vault_due_ms;
	char instance[BOX_INSTANCE_MAX];
	bool ours;

	const struct wanted *wanted;
	bool put_policy, policy_known, drop_vault, put_vault, no_vault;
	char stamp[WANTED_STAMP_MAX]; /* of the vault that is being sent */

	struct audit_copy copy;
	char trail_instance[BOX_INSTANCE_MAX]; /* that wrote the lines that are here */
	bool overlap; /* the page that was asked for begins with the last of them */
	enum box_from from;
	bool behind, looked, grew, done;
	unsigned alarms; /* bits of those that are on */
};

static void box_alarm(struct box *b, enum watch_alarm alarm, const char *detail)
{
	if (!(b->alarms & BIT(alarm)))
		watch_alarm(b->w, alarm, b->id, detail);
	b->alarms |= BIT(alarm);
}

static void box_calm(struct box *b, enum watch_alarm alarm)
{
	if (b->alarms & BIT(alarm))
		log_info("watch", "%s: %s is over", b->id, watch_alarm_name(alarm));
	b->alarms &= ~BIT(alarm);
}

uint64_t box_pass(const struct box *b)
{
	return b->pass;
}

struct box *box_next(const struct box *b)
{
	return TAILQ_NEXT(b, link);
}

bool box_is_done(const struct box *b)
{
	return b->done;
}

/* --- what the list says --- */

/* What has to be known after a restart of ours: a text of a sandbox. */
static void box_state_path(const struct box *b, const char *what, char path[4096])
{
	(void)snprintf(path, 4096, "%s/state/%s%s", b->w->o->dir, b->id, what);
}

static void box_state_keep(const struct box *b, const char *what, const char *text)
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
	char *base = NULL, path[4096];
	struct strbuf was;

	b->w = w;
	REQUIRE(slice_to_cstr(s->id, b->id, sizeof(b->id)));
	REQUIRE(asprintf(&base, "%s/audit/%s", w->o->dir, b->id) >= 0);
	if (audit_copy_open(&b->copy, base, &msg) < 0) {
		b->done = true;
		box_alarm(b, WATCH_ALARM_LOST, msg.text);
	}
	free(base);
	box_state_path(b, BOX_TRAIL, path);
	strbuf_init_fixed(&was, b->trail_instance, sizeof(b->trail_instance));
	if (strbuf_read_file(&was, path) < 0)
		b->trail_instance[0] = '\0';
	TAILQ_INSERT_TAIL(&w->boxes, b, link);
	map_put(w->names, s->id, b);
	w->n_boxes++;
	return b;
}

void box_free(struct box *b)
{
	TAILQ_REMOVE(&b->w->boxes, b, link);
	b->w->n_boxes--;
	b->w->n_fetches -= b->fetch ? 1 : 0;
	fetch_cancel(b->fetch);
	sidecar_free(&b->w->platform, b->sidecar);
	audit_copy_close(&b->copy);
	REQUIRE(map_take(b->w->names, slice_str(b->id)) == b);
	free(b);
}

void box_rejudge(struct box *b)
{
	b->wanted = NULL;
}

static void box_want(struct box *b, const struct wanted *wanted)
{
	if (b->wanted == wanted)
		return;
	b->wanted = wanted;
	b->policy_known = false;
	b->check_due_ms = 0;
	b->put_vault = wanted && wanted->vault;
}

void box_see(struct box *b, const struct lifecycle_sandbox *s)
{
	bool stood = b->state == LIFECYCLE_PAUSED || b->state == LIFECYCLE_RESUMING;

	b->pass = b->w->pass;
	b->missed = 0;
	b->expires_us = s->expires_us;
	box_want(b, wanted_find(b->w->wanted, s->metadata));
	if (s->state == LIFECYCLE_PAUSED && b->state == s->state)
		b->paused_to_us = b->w->list_from_us;
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
	char text[160];

	(void)snprintf(text, sizeof(text), "it has ended; its trail is here up to line %" PRIu64,
		b->copy.seq);
	/* Where lines came until then, some more may have. */
	if (!b->looked || b->behind || (b->grew && b->failures > 0))
		box_alarm(b, WATCH_ALARM_LOST, text);
	else
		log_info("watch", "%s: %s", b->id, text);
	box_free(b);
}

void box_missed(struct box *b)
{
	/* The sidecar may live some seconds longer than its sandbox: one more look. */
	if (++b->missed == BOX_MISSED) {
		b->next_ms = b->asked_ms + WATCH_SPACING_MS;
		b->audit_due_ms = 0;
	} else if (b->missed > BOX_MISSED && !b->fetch &&
		!(b->sidecar && b->behind && b->failures == 0)) {
		box_end(b);
	}
}

/* --- what a sidecar answers --- */

static void box_failed(struct box *b, const char *why, bool lost_place)
{
	bool still = b->state != LIFECYCLE_RUNNING && b->state != LIFECYCLE_UNKNOWN;

	b->failures++;
	b->next_ms = clock_mono_ms() + watch_backoff_ms(b->failures);
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

/* Another one answers: nothing of what we told the last one counts. */
static void box_instance(struct box *b, const struct fetch_answer *a)
{
	struct slice now = fetch_field(a, SLICE("X-Egress-Instance"));

	if (now.len == 0 || slice_eq(now, slice_str(b->instance)))
		return;
	if (!slice_to_cstr(now, b->instance, sizeof(b->instance)))
		b->instance[0] = '\0';
	b->ours = b->policy_known = false;
	b->put_vault = b->wanted && b->wanted->vault;
	b->check_due_ms = 0;
}

static void box_endpoint(struct box *b, const struct fetch_answer *a)
{
	struct errmsg msg = {""};

	if (!watch_answered(b->w, a)) {
		box_failed(b, platform_why(a, &msg), false);
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
		uint64_t n = 0;

		while (part.len > 0 && !ascii_digit(part.p[part.len - 1]))
			part.len--;
		if (!slice_to_u64(part, &n) || n < oldest[i])
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

static void box_policy(struct box *b, const struct fetch_answer *a)
{
	if (!b->wanted)
		return;
	b->check_due_ms = clock_mono_ms() + BOX_CHECK_MS;
	if (a->status == 200 && wanted_is_policy(b->wanted, a->content)) {
		b->policy_known = true;
		box_calm(b, WATCH_ALARM_POLICY);
		return;
	}
	/* At first it is what the sandbox was made with. */
	if (b->policy_known)
		box_alarm(b, WATCH_ALARM_POLICY, "somebody else changed it: sent again");
	b->put_policy = true;
}

/* What was sent with keys is refused by a code alone: a text may quote them. */
static const char *box_why(const struct box *b, const struct fetch_answer *a, struct errmsg *msg)
{
	const char *code;
	json_t *doc;

	if (b->ask != ASK_VAULT || a->err)
		return platform_why(a, msg);
	doc = json_loadb(a->content.p, a->content.len, 0, NULL);
	code = json_string_value(json_object_get(doc, "code"));
	(void)errmsg_set(msg, 0, "%d %.60s", a->status,
		code && !code[strspn(code, "abcdefghijklmnopqrstuvwxyz_")] ? code : "");
	json_decref(doc);
	return msg->text;
}

/* A change that was refused. */
static void box_refused(struct box *b, const struct fetch_answer *a, const char *what)
{
	struct errmsg why = {""}, msg;

	(void)errmsg_set(&msg, 0, "%s was refused: %s", what, box_why(b, a, &why));
	box_alarm(b, WATCH_ALARM_POLICY, msg.text);
	b->vault_due_ms = b->check_due_ms = clock_mono_ms() + BOX_REFUSED_MS;
	b->done = b->done || b->w->o->once;
}

/* A vault that needs what the new policy takes away, or comes too early, goes first: the policy is
 * what must not wait. */
static void box_put(struct box *b, const struct fetch_answer *a)
{
	b->put_policy = false;
	if (a->status == 200 || a->status == 204) {
		b->policy_known = true;
		if (!(b->alarms & BIT(WATCH_ALARM_POLICY)))
			b->check_due_ms = 0;
		log_info("watch", "%s: policy sent", b->id);
	} else if (b->wanted && b->wanted->vault &&
		slice_find(a->content, SLICE("\"vault_conflict\"")) < a->content.len) {
		b->drop_vault = b->put_policy = b->put_vault = true;
	} else {
		box_refused(b, a, "the policy");
	}
}

/* Which vault is in force where, so that a restart of ours does not take it away for a moment. */
static bool box_has_vault(const struct box *b)
{
	char path[4096], text[WANTED_STAMP_MAX];
	struct strbuf was;
	bool same;

	box_state_path(b, "", path);
	strbuf_init_fixed(&was, text, sizeof(text));
	same = strbuf_read_file(&was, path) == 0 &&
		slice_eq(strbuf_slice(&was), slice_str(b->stamp));
	strbuf_fini(&was);
	return same;
}

static void box_vault(struct box *b, const struct fetch_answer *a)
{
	if (b->ask == ASK_DROP_VAULT) {
		b->no_vault = a->status == 204 || a->status == 200 || a->status == 404;
		b->drop_vault = !b->no_vault;
		if (b->drop_vault)
			box_refused(b, a, "to drop the vault");
	} else if (a->status == 201 || a->status == 200) {
		b->put_vault = b->no_vault = false;
		box_state_keep(b, "", b->stamp);
		log_info("watch", "%s: vault sent", b->id);
	} else if (a->status == 409) {
		b->drop_vault = true;
	} else {
		box_refused(b, a, "the vault");
	}
}

/* --- its trail --- */

static bool box_is_traffic(const struct audit_record *r)
{
	static const struct slice kinds[] = {
		SLICE("read"), SLICE("write"), SLICE("tunnel"), SLICE("flow"), SLICE("dns")};

	for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
		if (slice_eq(r->cell[AUDIT_COLUMN_KIND], kinds[i]))
			return true;
	return false;
}

static void box_scan_pause(struct box *b, struct slice lines)
{
	struct audit_record r;
	char text[120];

	while (lines.len > 0 && b->paused_to_us > b->paused_from_us) {
		struct slice line = slice_cut(&lines, '\n');
		bool found = audit_record_decode(line, &r, NULL) == 0 &&
			r.start_us > b->paused_from_us && r.start_us < b->paused_to_us &&
			box_is_traffic(&r);

		if (found) {
			(void)snprintf(text, sizeof(text), "line %.*s of its trail",
				SLICE_FMT(r.cell[AUDIT_COLUMN_SEQ]));
			box_alarm(b, WATCH_ALARM_PAUSED, text);
		}
		audit_record_fini(&r);
	}
}

/* Another trail begins: is that to be expected? */
static int box_begin(struct box *b, struct slice lines, struct errmsg *msg)
{
	struct slice prev;
	uint64_t seq = 0;

	if (b->from == FROM_FIRST &&
		(!ring_line_parse(slice_first(lines, slice_find_char(lines, '\n')), &seq, &prev) ||
			seq != 1 || strcmp(b->instance, b->trail_instance) == 0))
		box_alarm(b, WATCH_ALARM_CHAIN,
			"it does not go on from the lines that are here, which are in another file "
			"now");
	else if (b->from == FROM_FIRST)
		log_info("watch", "%s: a new trail begins", b->id);
	b->from = FROM_LAST;
	return audit_copy_begin(&b->copy, msg);
}

/* Keeps a page. True if it continues what is here. */
static bool box_keep(struct box *b, struct slice lines, struct errmsg *msg)
{
	enum audit_break what = AUDIT_BREAK_NONE;
	size_t all = lines.len;
	int ret = 0;

	if (b->from != FROM_LAST && lines.len > 0)
		ret = box_begin(b, lines, msg);
	while (ret == 0 && lines.len > 0) {
		ret = audit_copy_add(&b->copy, &lines, &what, msg);
		if (ret < 0 || what == AUDIT_BREAK_NONE)
			break;
		if (lines.len == all && what == AUDIT_BREAK_CHAIN && b->copy.seq > 0) {
			b->from = FROM_FIRST;
			return true;
		}
		box_alarm(b, WATCH_ALARM_CHAIN, audit_break_text(what));
		if (what == AUDIT_BREAK_TORN || what == AUDIT_BREAK_MALFORMED)
			return false;
		all = 0;
		ret = audit_copy_begin(&b->copy, msg);
	}
	if (ret < 0)
		box_alarm(b, WATCH_ALARM_LOST, msg->text);
	return ret == 0 && what == AUDIT_BREAK_NONE;
}

static bool box_end_is_near(const struct box *b)
{
	return b->state == LIFECYCLE_STOPPING || b->state == LIFECYCLE_PAUSING ||
		(b->expires_us && b->expires_us < clock_wall_us() + WATCH_END_NEAR_US);
}

/* Cuts off the line that is here already. False: it is another one, so another trail, which may
 * have as many lines by chance. */
static bool box_goes_on(const struct box *b, struct slice *lines)
{
	char hash[RING_HEX_LEN];

	if (lines->len == 0)
		return false;
	ring_sha_hex(slice_cut(lines, '\n'), hash);
	return strcmp(hash, b->copy.hash) == 0;
}

static void box_page(struct box *b, const struct fetch_answer *a)
{
	struct slice last = fetch_field(a, SLICE("X-Egress-Audit-Last"));
	uint64_t now = clock_mono_ms(), seq = 0;
	struct slice lines = a->content;
	struct errmsg msg = {""};
	bool good = false;

	b->grew = a->content.len > 0;
	if (b->paused_to_us)
		box_scan_pause(b, a->content);
	else
		box_calm(b, WATCH_ALARM_PAUSED);
	if (b->overlap && !box_goes_on(b, &lines))
		b->from = FROM_FIRST;
	else
		good = box_keep(b, lines, &msg);
	if (b->from == FROM_LAST && (b->overlap || b->grew) &&
		strcmp(b->trail_instance, b->instance) != 0) {
		memcpy(b->trail_instance, b->instance, sizeof(b->instance));
		box_state_keep(b, BOX_TRAIL, b->instance);
	}
	b->behind = b->grew && slice_to_u64(last, &seq) && seq > b->copy.seq;
	b->looked = true;
	if (good && b->from == FROM_LAST && !b->behind) {
		box_calm(b, WATCH_ALARM_CHAIN);
		box_calm(b, WATCH_ALARM_LOST);
	}
	if (b->state == LIFECYCLE_RUNNING && !b->behind)
		b->paused_from_us = b->paused_to_us = 0;
	b->audit_due_ms =
		(b->grew && good) || box_end_is_near(b) ? now : now + b->w->o->interval_ms;
}

static void box_audit(struct box *b, const struct fetch_answer *a)
{
	struct errmsg msg = {""};

	if (a->status == 200) {
		box_page(b, a);
	} else if (a->status == 410) {
		box_alarm(b, WATCH_ALARM_LOST, platform_why(a, &msg));
		b->from = FROM_OLDEST;
	} else if (a->status == 409 && b->from == FROM_LAST) {
		b->from = FROM_FIRST;
	} else {
		box_failed(b, platform_why(a, &msg), true);
	}
}

static void on_box_answer(const struct fetch_answer *a, void *arg)
{
	struct box *b = arg;
	uint64_t now = clock_mono_ms();
	struct errmsg msg = {""};
	bool gone = a->err || a->status == 401 || a->status == 403 || a->status == 429 ||
		a->status >= 500;

	b->fetch = NULL;
	b->w->n_fetches--;
	/* It may have been late at the other side, which must not see two within a second. One that
	 * was answered by a thaw was not. */
	if (now < b->asked_ms + WATCH_SPACING_MS) {
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
	if (b->ask == ASK_STATUS)
		box_status(b, a);
	else if (b->ask == ASK_POLICY)
		box_policy(b, a);
	else if (b->ask == ASK_PUT_POLICY)
		box_put(b, a);
	else if (b->ask == ASK_AUDIT)
		box_audit(b, a);
	else
		box_vault(b, a);
}

/* --- what is asked next --- */

static enum box_ask box_choose(const struct box *b, uint64_t now)
{
	bool audit = b->audit_due_ms <= now || b->from != FROM_LAST || b->behind;

	if (!b->sidecar)
		return now >= b->w->hold_ms && !b->missed ? ASK_ENDPOINT : ASK_NOTHING;
	if (!b->ours)
		return ASK_STATUS;
	/* First: what it lets through meanwhile may be too much. */
	if (b->put_policy && b->wanted && !b->drop_vault)
		return ASK_PUT_POLICY;
	if (audit && (box_end_is_near(b) || b->missed))
		return ASK_AUDIT;
	if (b->wanted && b->drop_vault && b->vault_due_ms <= now)
		return ASK_DROP_VAULT;
	if (b->wanted && b->wanted->vault && b->put_vault && b->policy_known &&
		b->vault_due_ms <= now)
		return ASK_VAULT;
	if (b->wanted && b->check_due_ms <= now)
		return ASK_POLICY;
	return audit ? ASK_AUDIT : ASK_NOTHING;
}

static struct fetch *box_send_vault(struct box *b)
{
	struct sidecar_question q = {.method = "POST", .path = "/credential-vault"};
	struct fetch *f = NULL;
	struct errmsg msg = {""};
	struct strbuf text;

	strbuf_init(&text, WANTED_FILE_MAX);
	text.wipe = true;
	if (wanted_vault(b->wanted, b->instance, &text, b->stamp, &msg) < 0) {
		box_alarm(b, WATCH_ALARM_POLICY, msg.text);
		b->vault_due_ms = clock_mono_ms() + BOX_REFUSED_MS;
		b->done = b->done || b->w->o->once;
	} else if (!b->no_vault && box_has_vault(b)) {
		b->put_vault = false;
	} else {
		q.content = strbuf_slice(&text);
		f = sidecar_ask(&b->w->platform, b->sidecar, &q, on_box_answer, b);
	}
	strbuf_fini(&text);
	return f;
}

static struct fetch *box_send(struct box *b)
{
	struct sidecar_question q = {.method = "GET"};
	struct platform *p = &b->w->platform;
	char path[LIFECYCLE_ID_MAX + 80];

	q.path = path;
	switch (b->ask) {
	case ASK_NOTHING:
		return NULL;
	case ASK_ENDPOINT:
		(void)snprintf(path, sizeof(path), "/v1/sandboxes/%s/endpoints/18080", b->id);
		return platform_get(p, path, on_box_answer, b);
	case ASK_VAULT:
		return box_send_vault(b);
	case ASK_PUT_POLICY:
		q.method = "PUT";
		q.path = "/policy";
		q.content = slice_str(b->wanted->policy);
		break;
	case ASK_DROP_VAULT:
		q.method = "DELETE";
		q.path = "/credential-vault";
		break;
	case ASK_AUDIT:
		b->overlap = b->from == FROM_LAST && b->copy.seq > 0 &&
			strcmp(b->instance, b->trail_instance) != 0;
		(void)snprintf(path, sizeof(path), "/audit?limit=1000");
		if (b->from != FROM_OLDEST)
			(void)snprintf(path, sizeof(path), "/audit?limit=1000&after=%" PRIu64,
				b->from == FROM_LAST ? b->copy.seq - (b->overlap ? 1 : 0) : 0);
		break;
	case ASK_STATUS:
		q.path = "/status";
		break;
	case ASK_POLICY:
		q.path = "/policy";
		break;
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
