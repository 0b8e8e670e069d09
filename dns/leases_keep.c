/* Keeps leases where the next worker finds them: flows that the kernel lets out by itself shall not
 * end with a worker, nor an address be closed that a client was given a moment ago. Before it:
 * leases.c, when something was granted. After it: leases_collect, which gives the kernel what was
 * taken up here and policy still allows.
 *
 * A record a name, the one used last at the end, so that taking up keeps the order of use:
 * struct kept_name, the name, then a struct kept_addr an address. */
#include <stdlib.h>

#include <event2/event.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/state.h"
#include "dns/leases_int.h"

/* After a change; what is granted within this time of a kill has to be asked for again. */
#define LEASES_KEEP_MS 250

struct kept_name {
	uint64_t seen_ms;
	uint32_t n;
	uint32_t name_len;
};

struct kept_addr {
	uint64_t end_ms;
	struct netaddr addr;
};

/* What lies in the cell has no padding. */
_Static_assert(sizeof(struct kept_name) == 16, "padding");
_Static_assert(sizeof(struct kept_addr) == 24, "padding");

/* --- writing --- */

struct leases_writing {
	uint64_t now_ms;
	uint8_t *room;
	size_t at; /* records are written from the end to the front */
	size_t n;
	bool full;
};

static void lease_keep_put(struct leases_writing *w, const void *p, size_t len)
{
	w->at -= len;
	memcpy(w->room + w->at, p, len);
}

/* map_each comes by in the order of use, the last one first. */
static void lease_keep_one(struct slice key, void *value, void *arg)
{
	const struct lease_name *ln = value;
	struct leases_writing *w = arg;
	struct kept_name head = {ln->seen_ms, 0, (uint32_t)key.len};
	bool active = false;
	uint32_t i;

	for (i = 0; i < ln->n; i++) {
		head.n += ln->v[i].end_ms > w->now_ms;
		active = active || ln->v[i].active;
	}
	if (head.n == 0 || (w->n >= LEASES_KEEP_NAMES && !active))
		return;
	w->full = w->full || w->at < sizeof(head) + key.len + head.n * sizeof(struct kept_addr);
	if (w->full)
		return;
	for (i = 0; i < ln->n; i++) {
		const struct kept_addr a = {ln->v[i].end_ms, ln->v[i].addr};

		if (a.end_ms > w->now_ms)
			lease_keep_put(w, &a, sizeof(a));
	}
	lease_keep_put(w, key.p, key.len);
	lease_keep_put(w, &head, sizeof(head));
	w->n++;
}

static void on_leases_keep(evutil_socket_t fd, short what, void *arg)
{
	struct leases *l = arg;
	struct leases_writing w = {
		.now_ms = clock_mono_ms(), .room = l->keep_room, .at = LEASES_KEEP_MAX};
	struct slice doc;

	map_each(l->names, lease_keep_one, &w);
	doc = slice_make((const char *)w.room + w.at, LEASES_KEEP_MAX - w.at);
	if (state_cell_write(l->keep_cell, l->keep_len, doc) < 0)
		log_error("leases", "no room to keep leases for the next worker");
}

void leases_keep_soon(struct leases *l)
{
	static const struct timeval soon = {0, LEASES_KEEP_MS * 1000};

	if (l->keep_cell && !evtimer_pending(l->keep_later, NULL))
		evtimer_add(l->keep_later, &soon);
}

/* --- taking up --- */

static bool lease_keep_take(struct slice *from, void *to, size_t len)
{
	if (from->len < len)
		return false;
	memcpy(to, from->p, len);
	*from = slice_from(*from, len);
	return true;
}

/* One record. False where it is none: the rest is not read. What is out of range is left out. */
static bool lease_keep_read(struct leases *l, struct slice *from, uint64_t now_ms)
{
	struct kept_name head;
	struct kept_addr a;
	struct judgement n;
	struct slice name;
	bool ok;

	if (!lease_keep_take(from, &head, sizeof(head)) || head.n > LEASE_ADDRS_MAX ||
		head.name_len == 0 || head.name_len > HOSTNAME_MAX || head.name_len > from->len)
		return false;
	if (head.seen_ms > now_ms)
		head.seen_ms = now_ms;
	name = slice_first(*from, head.name_len);
	*from = slice_from(*from, head.name_len);
	ok = !map_find(l->names, name) && leases_name_judge(l, name, &n);
	for (; head.n > 0; head.n--) {
		if (!lease_keep_take(from, &a, sizeof(a)))
			return false;
		if (ok && a.end_ms > now_ms && a.end_ms <= now_ms + LEASE_MAX_S * UINT64_C(1000) &&
			judge_addr(l->judge, &n, &a.addr))
			lease_put(l, name, &a.addr, a.end_ms)->seen_ms = head.seen_ms;
	}
	return true;
}

void leases_keep(struct leases *l, void *cell, size_t len)
{
	uint64_t now_ms = clock_mono_ms();
	struct slice doc;

	REQUIRE(state_cell_size(LEASES_KEEP_MAX) <= len);
	if (state_cell_read(cell, len, &doc))
		while (doc.len > 0 && lease_keep_read(l, &doc, now_ms))
			;
	if (l->n > 0)
		log_info("leases", "%zu leases of the worker before this one", l->n);
	l->keep_cell = cell;
	l->keep_len = len;
	l->keep_room = xmalloc(LEASES_KEEP_MAX);
	l->keep_later = evtimer_new(l->base, on_leases_keep, l);
	REQUIRE(l->keep_later);
}

void leases_keep_fini(struct leases *l)
{
	if (l->keep_later)
		event_free(l->keep_later);
	free(l->keep_room);
}
