/* Takes the trail of a sandbox home: each line once, and what does not go on from there into a file
 * of its own. Before it: watch_box asks GET /audit; after it: audit_copy. */
#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "ctl/audit_record.h"
#include "ctl/watch.h"

_Static_assert(SIDECAR_ANSWER_MAX <= AUDIT_COPY_PAGE_MAX, "a page of a trail");

static bool box_is_traffic(const struct audit_record *r)
{
	static const struct slice kinds[] = {
		SLICE("read"), SLICE("write"), SLICE("tunnel"), SLICE("flow"), SLICE("dns")};

	for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
		if (slice_eq(r->cell[AUDIT_COLUMN_KIND], kinds[i]))
			return true;
	return false;
}

void box_scan_pause(struct box *b, struct slice lines)
{
	struct audit_record r;
	char text[60];

	while (lines.len > 0 && b->suspect_us == 0) {
		struct slice line = slice_cut(&lines, '\n');

		if (audit_record_decode(line, &r, NULL) == 0 && r.start_us > b->paused_from_us &&
			box_is_traffic(&r) &&
			slice_to_u64(r.cell[AUDIT_COLUMN_SEQ], &b->suspect_seq))
			b->suspect_us = r.start_us;
		audit_record_fini(&r);
	}
	/* Only what began before it was seen paused once more. */
	if (b->suspect_us && b->suspect_us < b->paused_to_us) {
		(void)snprintf(text, sizeof(text), "line %" PRIu64 " of its trail", b->suspect_seq);
		box_alarm(b, WATCH_ALARM_PAUSED, text);
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

/* Also where the alarm is on for another reason: this one does not end by itself. */
static void box_full(struct box *b)
{
	char text[100];

	(void)snprintf(text, sizeof(text),
		"its trail has reached --trail-max (%" PRIu64 " MiB): nothing more is kept",
		b->w->o->trail_max >> 20);
	b->alarms &= ~BIT(WATCH_ALARM_LOST);
	box_alarm(b, WATCH_ALARM_LOST, text);
}

/* Keeps a page. True if it continues what is here. */
static bool box_keep(struct box *b, struct slice lines, struct errmsg *msg)
{
	enum audit_break what = AUDIT_BREAK_NONE;
	bool was_full = b->copy.full;
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
	if (b->copy.full && !was_full)
		box_full(b);
	return ret == 0 && what == AUDIT_BREAK_NONE;
}

bool box_end_is_near(const struct box *b)
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
	return memcmp(hash, b->copy.hash, sizeof(hash)) == 0;
}

static void box_page(struct box *b, const struct fetch_answer *a)
{
	struct slice last = fetch_field(a, SLICE("X-Egress-Audit-Last"));
	uint64_t now = clock_mono_ms(), seq = 0;
	struct slice lines = a->content;
	struct errmsg msg = {""};
	bool good = false, whole;

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
		/* Else the lines that are here are those of another one. */
		if (!b->copy.full)
			box_state_keep(b, BOX_TRAIL, b->instance);
	}
	b->behind = b->grew && slice_to_u64(last, &seq) && seq > b->copy.seq;
	b->looked = true;
	b->unseen = false;
	whole = good && b->from == FROM_LAST && !b->behind;
	if (whole)
		box_calm(b, WATCH_ALARM_CHAIN);
	if (whole && !b->copy.full)
		box_calm(b, WATCH_ALARM_LOST);
	if (b->state == LIFECYCLE_RUNNING && !b->behind)
		b->paused_from_us = b->paused_to_us = b->suspect_us = 0;
	b->audit_due_ms =
		(b->grew && good) || box_end_is_near(b) ? now : now + b->w->o->interval_ms;
}

void box_audit(struct box *b, const struct fetch_answer *a)
{
	struct errmsg msg = {""};

	if (a->status == 200) {
		box_page(b, a);
	} else if (a->status == 410) {
		box_alarm(b, WATCH_ALARM_LOST, lifecycle_why(a, &msg));
		b->from = FROM_OLDEST;
	} else if (a->status == 409 && b->from == FROM_LAST) {
		b->from = FROM_FIRST;
	} else {
		box_failed(b, lifecycle_why(a, &msg), true);
	}
}

void box_audit_path(struct box *b, char *path, size_t size)
{
	b->overlap = b->from == FROM_LAST && b->copy.seq > 0 &&
		strcmp(b->instance, b->trail_instance) != 0;
	if (b->from == FROM_OLDEST)
		(void)snprintf(path, size, "/audit?limit=1000");
	else
		(void)snprintf(path, size, "/audit?limit=1000&after=%" PRIu64,
			b->from == FROM_FIRST ? 0 : b->copy.seq - (b->overlap ? 1 : 0));
}
