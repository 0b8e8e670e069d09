/* The audit trail: slots become lines, lines go out. Ties slot, refusal, ring and sink together.
 *
 * Each step that a crash could cut in two ends in one store (see ring.h and slot.h). Order of the
 * lines: ended slots that waited, then the new line, then refusals. */
#include "audit/audit.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#include "audit/file_tail.h"
#include "audit/refusal.h"
#include "audit/ring.h"
#include "audit/sink.h"
#include "audit/slot.h"
#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/state.h"

#define AUDIT_MAGIC UINT64_C(0x3354494455414745) /* grows with the layout */
#define AUDIT_PAGE 4096

struct audit_head {
	uint64_t magic; /* written last when the area is new */
	uint64_t size;
	uint64_t seed;   /* ids of different areas differ */
	uint64_t serial; /* of the last slot, summary or id */
	uint64_t torn;   /* sink.h */
	uint64_t gen;    /* its lowest bit tells which context counts */
	struct context context[2];
	struct audit_counts counts;
};
_Static_assert(sizeof(struct audit_head) <= AUDIT_PAGE, "the slots begin on the next page");

struct audit {
	struct audit_head *head;
	struct ring *ring;
	struct slots *slots;
	struct refusals *refusals;
	struct sink *sink;
	size_t sandbox_len;
	char sandbox[EVENT_SANDBOX_MAX];
	struct event_rec rec;
	char body[EVENT_JSON_MAX];
};

static size_t audit_pages(size_t n)
{
	return (n + AUDIT_PAGE - 1) / AUDIT_PAGE * AUDIT_PAGE;
}

size_t audit_area_size(void)
{
	return AUDIT_PAGE + audit_pages(slot_area_size()) + audit_pages(ring_area_size()) +
		audit_pages(refusal_area_size());
}

static struct slice audit_sandbox(const struct audit *a)
{
	return slice_make(a->sandbox, a->sandbox_len);
}

static uint64_t audit_serial(struct audit *a)
{
	state_store(&a->head->serial, a->head->serial + 1);
	return a->head->serial;
}

/* Different for each serial (every step can be undone), and tells nothing about their number. */
static void audit_id(const struct audit *a, uint64_t serial, char id[AUDIT_ID_LEN + 1])
{
	static const char hex[] = "0123456789abcdef";
	uint64_t v = serial * 0x9e3779b97f4a7c15ULL + a->head->seed;

	v = (v ^ v >> 30) * 0xbf58476d1ce4e5b9ULL;
	v = (v ^ v >> 27) * 0x94d049bb133111ebULL;
	v ^= v >> 31;
	for (int i = AUDIT_ID_LEN - 1; i >= 0; i--, v >>= 4)
		id[i] = hex[v & 0xf];
	id[AUDIT_ID_LEN] = '\0';
}

static bool audit_room(const struct audit *a)
{
	return !slot_ended(a->slots) && ring_fits(a->ring, EVENT_JSON_MAX);
}

static void audit_commit(struct audit *a, const struct event_rec *rec, const struct slot_mark *mark)
{
	struct ring_source src = {.serial = mark->serial, .staged_tail = refusal_tail(a->refusals)};
	size_t len = event_json_body(a->body, rec, mark->id, audit_sandbox(a), mark->context);

	ring_commit(a->ring, slice_make(a->body, len), &src);
}

/* The line of a slot; it is free then if that was its last one. */
static void audit_commit_slot(
	struct audit *a, const struct event_rec *rec, struct audit_slot *slot, bool last)
{
	struct slot_mark mark = {
		.serial = last ? slot_serial(slot) : 0,
		.id = slot_id(slot),
		.context = slot_context(slot),
	};

	audit_commit(a, rec, &mark);
	if (last)
		slot_release(a->slots, slot);
}

/* Lines for what waited; returns their number. */
static uint32_t audit_pump(struct audit *a, bool all)
{
	struct audit_slot *slot;
	uint32_t n = 0;

	while ((slot = slot_ended(a->slots)) && ring_fits(a->ring, EVENT_JSON_MAX)) {
		audit_commit_slot(a, slot_rec(slot), slot, true);
		n++;
	}
	return n + refusal_promote(a->refusals, a->ring, clock_mono_ms() / 1000, all);
}

static void audit_drained(void *arg)
{
	struct audit *a = arg;
	uint32_t n = audit_pump(a, false);

	if (n > 0 || refusal_waiting(a->refusals))
		sink_wake(a->sink, n);
}

static int audit_area_open(struct audit *a, bool *fresh, struct errmsg *msg)
{
	*fresh = a->head->magic == 0;
	if (!*fresh) {
		if (a->head->magic == AUDIT_MAGIC && a->head->size == audit_area_size())
			return 0;
		return errmsg_set(msg, E_VALUE, "the audit area has another layout");
	}
	if (getrandom(&a->head->seed, sizeof(a->head->seed), 0) != sizeof(a->head->seed))
		return errmsg_set(msg, -errno, "no random bytes: %s", err_text(-errno));
	a->head->size = audit_area_size();
	return 0;
}

/* The file tells which line it has last; the cursor may be behind by what was written just before
 * the crash. */
static void audit_file_seek(struct audit *a, const struct file_tail *t)
{
	if (t->seq > 0 && !ring_cursor_seek(a->ring, RING_FILE, t->seq))
		log_warn("audit",
			"the file ends with line %llu, which is not one of the last lines",
			(unsigned long long)t->seq);
}

static void audit_gap(struct audit *a)
{
	struct audit_event e = {
		.kind = AUDIT_GAP,
		.verdict = AUDIT_FAILED,
		.reason = REASON_INTERRUPTED,
		.uid = AUDIT_UID_NONE,
		.start_us = clock_wall_us(),
	};

	audit_note(a, &e, NULL);
}

int audit_open(void *area, struct slice sandbox, int fd_file, bool to_stdout, struct audit **out,
	struct errmsg *msg)
{
	struct audit *a = xcalloc(1, sizeof(*a));
	char *at = (char *)area + AUDIT_PAGE;
	struct file_tail tail = {0};
	struct slot_area *slots = (void *)at;
	bool fresh;
	int ret;

	a->head = area;
	ret = audit_area_open(a, &fresh, msg);
	if (ret == 0 && fd_file >= 0)
		ret = file_tail_read(fd_file, &tail, msg);
	if (ret < 0) {
		free(a);
		return ret;
	}
	a->sandbox_len = slice_first(sandbox, EVENT_SANDBOX_MAX).len;
	if (a->sandbox_len > 0)
		memcpy(a->sandbox, sandbox.p, a->sandbox_len);
	at += audit_pages(slot_area_size());
	a->ring = ring_new((void *)at);
	if (fresh && tail.seq > 0)
		ring_set_origin(a->ring, tail.seq, tail.hash);
	state_store(&a->head->magic, AUDIT_MAGIC);
	a->slots = slot_new(slots, ring_source(a->ring).serial);
	at += audit_pages(ring_area_size());
	a->refusals = refusal_new((void *)at, a->ring, sandbox);
	refusal_set_context(a->refusals, audit_context(a));
	a->sink = sink_new(a->ring, fd_file, to_stdout ? STDOUT_FILENO : -1, &a->head->torn);
	if (fd_file >= 0 && !fresh)
		audit_file_seek(a, &tail);
	if (fresh && tail.seq > 0 && !tail.stopped)
		audit_gap(a);
	sink_wake(a->sink, audit_pump(a, true));
	*out = a;
	return 0;
}

void audit_start(struct audit *a, struct event_base *base)
{
	sink_start(a->sink, base, audit_drained, a);
}

void audit_close(struct audit *a)
{
	bool drained;

	if (!a)
		return;
	/* Draining makes room for what waits, which is then to be drained. */
	do {
		drained = sink_finish(a->sink);
	} while (audit_pump(a, true) > 0 && drained);
	if (!drained)
		log_error("audit", "%llu bytes of the trail could not be written out",
			(unsigned long long)ring_used(a->ring));
	sink_free(a->sink);
	refusal_free(a->refusals);
	slot_free(a->slots);
	ring_free(a->ring);
	free(a);
}

struct audit_slot *audit_begin(struct audit *a, const struct audit_event *e)
{
	char id[AUDIT_ID_LEN + 1];
	struct slot_mark mark = {.id = id, .context = audit_context(a)};

	if (!audit_room(a))
		return NULL;
	mark.serial = audit_serial(a);
	audit_id(a, mark.serial, id);
	return slot_take(a->slots, e, &mark, false);
}

const char *audit_slot_id(const struct audit_slot *s)
{
	return slot_id(s);
}

void audit_update(struct audit *a, struct audit_slot *s, const struct audit_event *e)
{
	slot_update(s, e);
}

void audit_still_open(struct audit *a, struct audit_slot *s, const struct audit_event *e)
{
	struct audit_event open = *e;

	slot_update(s, e);
	/* The final line will say it all; this one may be left out when room is short. */
	if (!audit_room(a))
		return;
	open.verdict = AUDIT_OPEN;
	event_rec_set(&a->rec, &open);
	audit_commit_slot(a, &a->rec, s, false);
	sink_wake(a->sink, 1);
}

/* Before the line: a crash between the two counts one too many. */
static void audit_count(struct audit *a, const struct audit_event *e)
{
	struct audit_counts *c = &a->head->counts;

	c->reads += e->kind == AUDIT_READ && e->verdict == AUDIT_ALLOWED;
	c->refusals += e->verdict == AUDIT_BLOCKED;
	c->last_us = clock_wall_us();
}

struct audit_counts audit_counts(const struct audit *a)
{
	return a->head->counts;
}

void audit_end(struct audit *a, struct audit_slot *s, const struct audit_event *e)
{
	audit_count(a, e);
	if (!audit_room(a)) {
		slot_end(a->slots, s, e);
		sink_wake(a->sink, 0);
		return;
	}
	event_rec_set(&a->rec, e);
	audit_commit_slot(a, &a->rec, s, true);
	sink_wake(a->sink, 1);
}

/* A flood of these can come from the sandbox; the other kinds are ours. */
static bool audit_is_refusal(const struct audit_event *e)
{
	return e->verdict == AUDIT_BLOCKED || (e->verdict == AUDIT_FAILED && e->kind <= AUDIT_DNS);
}

static void audit_note_line(struct audit *a, const struct audit_event *e, uint64_t serial, char *id)
{
	struct slot_mark mark = {.id = id, .context = audit_context(a)};
	struct audit_slot *slot;

	if (audit_room(a)) {
		event_rec_set(&a->rec, e);
		audit_commit(a, &a->rec, &mark);
		sink_wake(a->sink, 1);
		return;
	}
	mark.serial = serial;
	slot = slot_take(a->slots, e, &mark, true);
	if (slot)
		slot_end(a->slots, slot, e);
	else
		refusal_count(a->refusals, e, serial, id);
	sink_wake(a->sink, 0);
}

void audit_note(struct audit *a, const struct audit_event *e, char id[AUDIT_ID_LEN + 1])
{
	char own[AUDIT_ID_LEN + 1];
	uint64_t serial = audit_serial(a);
	uint64_t second;

	audit_count(a, e);
	audit_id(a, serial, own);
	if (audit_is_refusal(e)) {
		second = clock_mono_ms() / 1000;
		refusal_add(a->refusals, e, serial, own, second);
		sink_wake(a->sink, refusal_promote(a->refusals, a->ring, second, false));
	} else {
		audit_note_line(a, e, serial, own);
	}
	if (id)
		memcpy(id, own, sizeof(own));
}

void audit_set_file(struct audit *a, int fd)
{
	sink_set_file(a->sink, fd);
}

void audit_on_rotate(struct audit *a, uint64_t max_bytes, void (*cb)(void *arg), void *arg)
{
	sink_on_rotate(a->sink, max_bytes, cb, arg);
}

uint64_t audit_seq(const struct audit *a)
{
	return ring_seq(a->ring);
}

struct slice audit_context(const struct audit *a)
{
	const struct context *c = &a->head->context[a->head->gen & 1];

	return slice_make(c->text, c->len);
}

int audit_set_context(struct audit *a, const struct context *c, uint32_t uid)
{
	struct audit_event e = {
		.kind = AUDIT_CONTEXT,
		.verdict = AUDIT_ALLOWED,
		.reason = REASON_ALLOWED,
		.rule = c->len > 0 ? SLICE("set") : SLICE("cleared"),
		.uid = uid,
		.start_us = clock_wall_us(),
	};

	if (!audit_room(a))
		return E_FULL;
	a->head->context[(a->head->gen + 1) & 1] = *c;
	state_store(&a->head->gen, a->head->gen + 1);
	refusal_set_context(a->refusals, audit_context(a));
	audit_note(a, &e, NULL);
	return 0;
}

uint64_t audit_oldest(const struct audit *a)
{
	return ring_oldest(a->ring);
}

int audit_read(const struct audit *a, uint64_t after, uint32_t max_lines, struct strbuf *out)
{
	uint64_t pos;

	if (after > ring_seq(a->ring))
		return E_VALUE;
	if (!ring_find(a->ring, after + 1, &pos))
		return -ENOENT;
	return (int)ring_copy_lines(a->ring, pos, max_lines, out);
}
