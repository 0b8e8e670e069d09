/* Staged refusals, their rate and their summaries. */
#include "audit/refusal.h"

#include <stdlib.h>

#include "base/arena.h"
#include "base/state.h"

#define REFUSAL_ALL (REFUSAL_SUMS + REASON_MAX)
#define REFUSAL_PROBES 8 /* places looked at before a summary counts as one too many */

struct refusal_sum {
	uint64_t serial; /* 0: free */
	uint64_t count;
	uint64_t start_us; /* of the first */
	uint32_t uid;
	uint8_t kind, verdict, reason, host_len;
	uint16_t context_len;
	char host[EVENT_HOST_MAX];
	char id[AUDIT_ID_LEN + 1];
	char context[AUDIT_CONTEXT_MAX];
};

struct refusal_area {
	uint64_t head;   /* end of what is staged; its start is in the ring's source */
	uint64_t n_sums; /* 0: no summary is in use, and none has to be looked at */
	struct refusal_sum sum[REFUSAL_ALL];
	char bytes[REFUSAL_BYTES]; /* of each: length in 8 bytes, body, padding to 8 */
};

struct refusals {
	struct refusal_area *area;
	uint64_t tail;
	uint64_t second;
	uint64_t sum_second; /* when the summaries were begun */
	struct {
		uint32_t uid;
		uint32_t n;
	} rate[REFUSAL_UIDS];
	uint32_t n_uids;
	struct slice context;
	size_t sandbox_len;
	char sandbox[EVENT_SANDBOX_MAX];
	struct event_rec rec;
	char body[EVENT_JSON_MAX];
};

size_t refusal_area_size(void)
{
	return sizeof(struct refusal_area);
}

struct refusals *refusal_new(
	struct refusal_area *area, const struct ring *ring, struct slice sandbox)
{
	struct refusals *f = xcalloc(1, sizeof(*f));
	struct ring_source done = ring_source(ring);
	uint64_t n = 0;

	f->area = area;
	f->tail = done.staged_tail;
	f->sandbox_len = slice_first(sandbox, EVENT_SANDBOX_MAX).len;
	if (f->sandbox_len > 0)
		memcpy(f->sandbox, sandbox.p, f->sandbox_len);
	if (area->n_sums == 0)
		return f;
	/* The count may be off by what was begun or ended when the worker died. */
	state_store(&area->n_sums, REFUSAL_ALL);
	for (size_t i = 0; i < REFUSAL_ALL; i++) {
		if (area->sum[i].serial != 0 && area->sum[i].serial == done.serial)
			state_store(&area->sum[i].serial, 0);
		n += area->sum[i].serial != 0;
	}
	state_store(&area->n_sums, n);
	return f;
}

void refusal_free(struct refusals *f)
{
	free(f);
}

void refusal_set_context(struct refusals *f, struct slice context)
{
	REQUIRE(context.len <= AUDIT_CONTEXT_MAX);
	f->context = context;
}

uint64_t refusal_tail(const struct refusals *f)
{
	return f->tail;
}

bool refusal_waiting(const struct refusals *f)
{
	return f->tail != f->area->head || f->area->n_sums > 0;
}

/* Counts one refusal of this uid; true while it may have a line of its own. */
static bool refusal_rate_ok(struct refusals *f, uint32_t uid, uint64_t second)
{
	uint32_t i;

	if (second != f->second) {
		f->second = second;
		f->n_uids = 0;
	}
	for (i = 0; i < f->n_uids; i++) {
		if (f->rate[i].uid == uid)
			break;
	}
	if (i == f->n_uids && i < REFUSAL_UIDS) {
		f->rate[i].uid = uid;
		f->rate[i].n = 0;
		f->n_uids++;
	} else if (i == REFUSAL_UIDS) {
		i--;
	}
	if (f->rate[i].n >= REFUSAL_RATE)
		return false;
	f->rate[i].n++;
	return true;
}

static bool refusal_sum_matches(const struct refusals *f, const struct refusal_sum *m,
	const struct audit_event *e, struct slice host)
{
	return m->serial != 0 && m->uid == e->uid && m->reason == e->reason && m->kind == e->kind &&
		m->verdict == e->verdict && slice_eq(slice_make(m->host, m->host_len), host) &&
		slice_eq(slice_make(m->context, m->context_len), f->context);
}

static uint32_t refusal_hash(const struct audit_event *e, struct slice host)
{
	uint32_t h = 2166136261U ^ e->uid ^ ((uint32_t)e->reason << 16);

	for (size_t i = 0; i < host.len; i++)
		h = (h ^ (unsigned char)host.p[i]) * 16777619U;
	return h ^ h >> 16;
}

static void refusal_sum_begin(struct refusals *f, struct refusal_sum *m,
	const struct audit_event *e, struct slice host, struct slice context, uint64_t serial)
{
	if (f->area->n_sums == 0)
		f->sum_second = f->second;
	state_store(&f->area->n_sums, f->area->n_sums + 1);
	m->start_us = e->start_us;
	m->uid = e->uid;
	m->kind = (uint8_t)e->kind;
	m->verdict = (uint8_t)e->verdict;
	m->reason = (uint8_t)e->reason;
	m->host_len = (uint8_t)host.len;
	if (host.len > 0)
		memcpy(m->host, host.p, host.len);
	m->context_len = (uint16_t)context.len;
	if (context.len > 0)
		memcpy(m->context, context.p, context.len);
	m->count = 1;
	state_store(&m->serial, serial);
}

void refusal_count(struct refusals *f, const struct audit_event *e, uint64_t serial, char *id)
{
	struct slice host = slice_first(e->host, EVENT_HOST_MAX);
	struct slice context = f->context;
	struct refusal_sum *found = NULL;
	struct audit_event rest = *e;
	uint32_t at = refusal_hash(e, host);
	uint64_t n = e->count > 1 ? e->count : 1;

	for (uint32_t i = 0; i < REFUSAL_PROBES; i++) {
		struct refusal_sum *m = &f->area->sum[(at + i) % REFUSAL_SUMS];

		if (refusal_sum_matches(f, m, e, host)) {
			found = m;
			break;
		}
		if (m->serial == 0 && !found)
			found = m;
	}
	if (!found) {
		found = &f->area->sum[REFUSAL_SUMS + (uint32_t)e->reason];
		rest.uid = AUDIT_UID_NONE;
		host = context = SLICE_EMPTY;
	}
	if (found->serial == 0) {
		memcpy(found->id, id, AUDIT_ID_LEN + 1);
		refusal_sum_begin(f, found, &rest, host, context, serial);
		n--;
	} else {
		memcpy(id, found->id, AUDIT_ID_LEN + 1);
	}
	if (n > 0)
		state_store(&found->count, found->count + n);
}

static void refusal_copy_in(struct refusal_area *area, uint64_t pos, struct slice s)
{
	size_t at = pos % REFUSAL_BYTES;
	size_t first = REFUSAL_BYTES - at;

	if (first > s.len)
		first = s.len;
	memcpy(area->bytes + at, s.p, first);
	if (s.len > first)
		memcpy(area->bytes, s.p + first, s.len - first);
}

static void refusal_copy_out(const struct refusal_area *area, uint64_t pos, char *buf, size_t len)
{
	size_t at = pos % REFUSAL_BYTES;
	size_t first = REFUSAL_BYTES - at;

	if (first > len)
		first = len;
	memcpy(buf, area->bytes + at, first);
	if (len > first)
		memcpy(buf + first, area->bytes, len - first);
}

static uint64_t refusal_space(uint64_t body_len)
{
	return (sizeof(uint64_t) + body_len + 7) & ~UINT64_C(7);
}

void refusal_add(
	struct refusals *f, const struct audit_event *e, uint64_t serial, char *id, uint64_t second)
{
	struct refusal_area *area = f->area;
	uint64_t len;

	if (!refusal_rate_ok(f, e->uid, second)) {
		refusal_count(f, e, serial, id);
		return;
	}
	event_rec_set(&f->rec, e);
	len = event_json_body(
		f->body, &f->rec, id, slice_make(f->sandbox, f->sandbox_len), f->context);
	if (refusal_space(len) > REFUSAL_BYTES - (area->head - f->tail)) {
		refusal_count(f, e, serial, id);
		return;
	}
	refusal_copy_in(area, area->head, slice_make((const char *)&len, sizeof(len)));
	refusal_copy_in(area, area->head + sizeof(len), slice_make(f->body, len));
	state_store(&area->head, area->head + refusal_space(len));
}

/* The oldest staged refusal becomes a line. */
static bool refusal_promote_one(struct refusals *f, struct ring *ring)
{
	struct ring_source src = {0};
	uint64_t len;

	refusal_copy_out(f->area, f->tail, (char *)&len, sizeof(len));
	REQUIRE(len <= sizeof(f->body));
	if (ring_used(ring) >= RING_HALF || !ring_fits(ring, len))
		return false;
	refusal_copy_out(f->area, f->tail + sizeof(len), f->body, len);
	src.staged_tail = f->tail + refusal_space(len);
	ring_commit(ring, slice_make(f->body, len), &src);
	f->tail = src.staged_tail;
	return true;
}

static bool refusal_promote_sum(struct refusals *f, struct ring *ring, struct refusal_sum *m)
{
	struct ring_source src = {.serial = m->serial, .staged_tail = f->tail};
	struct audit_event e = {
		.kind = (enum audit_kind)m->kind,
		.verdict = (enum audit_verdict)m->verdict,
		.reason = (enum reason)m->reason,
		.host = slice_make(m->host, m->host_len),
		.uid = m->uid,
		.start_us = m->start_us,
		.count = m->count < UINT32_MAX ? (uint32_t)m->count : UINT32_MAX,
	};
	size_t len;

	if (ring_used(ring) >= RING_HALF || !ring_fits(ring, EVENT_JSON_MAX))
		return false;
	event_rec_set(&f->rec, &e);
	len = event_json_body(f->body, &f->rec, m->id, slice_make(f->sandbox, f->sandbox_len),
		slice_make(m->context, m->context_len));
	ring_commit(ring, slice_make(f->body, len), &src);
	state_store(&m->serial, 0);
	state_store(&f->area->n_sums, f->area->n_sums - 1);
	return true;
}

uint32_t refusal_promote(struct refusals *f, struct ring *ring, uint64_t second, bool all)
{
	uint32_t n = 0;

	while (f->tail != f->area->head) {
		if (!refusal_promote_one(f, ring))
			return n;
		n++;
	}
	if (!all && second == f->sum_second)
		return n;
	for (size_t i = 0; i < REFUSAL_ALL && f->area->n_sums > 0; i++) {
		if (f->area->sum[i].serial == 0)
			continue;
		if (!refusal_promote_sum(f, ring, &f->area->sum[i]))
			return n;
		n++;
	}
	return n;
}
