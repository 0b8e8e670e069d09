/* Slots of open exchanges, and the queue of ended ones. */
#include "audit/slot.h"

#include <stdlib.h>

#include "base/arena.h"
#include "base/state.h"

#define SLOT_RECORD_BIT 1U /* which record counts; the rest of the word is the state */

enum slot_state { SLOT_FREE, SLOT_OPEN = 2, SLOT_ENDED = 4 };

struct audit_slot {
	uint64_t word;
	uint64_t serial;
	uint64_t order; /* among ended slots */
	char id[AUDIT_ID_LEN + 1];
	uint16_t context_len;
	struct event_rec rec[2];
	char context[AUDIT_CONTEXT_MAX];
};

union slot_page {
	struct audit_slot slot;
	char page[SLOT_SIZE];
};
_Static_assert(sizeof(union slot_page) == SLOT_SIZE, "a slot must fit its pages");

struct slot_area {
	uint64_t peak; /* slots at and above this were never used: their pages do not exist */
	char pad[SLOT_SIZE - sizeof(uint64_t)];
	union slot_page pages[SLOT_ALL];
};

struct slots {
	struct slot_area *area;
	uint32_t n_free;
	uint32_t n_taken;
	uint32_t n_ended;
	uint32_t first_ended;
	uint64_t order;
	uint16_t free[SLOT_ALL];
	uint16_t ended[SLOT_ALL]; /* a ring */
};

size_t slot_area_size(void)
{
	return sizeof(struct slot_area);
}

static uint16_t slot_index(const struct slots *s, const struct audit_slot *slot)
{
	const char *base = (const char *)s->area->pages;

	return (uint16_t)((size_t)((const char *)slot - base) / SLOT_SIZE);
}

static void slot_queue(struct slots *s, uint16_t index)
{
	s->ended[(s->first_ended + s->n_ended) % SLOT_ALL] = index;
	s->n_ended++;
}

static struct event_rec *slot_other(struct audit_slot *slot)
{
	return &slot->rec[(slot->word & SLOT_RECORD_BIT) ^ 1];
}

/* A killed worker's open exchange: nobody will say how it went on. */
static void slot_interrupt(struct audit_slot *slot, uint64_t order)
{
	const struct event_rec *now = slot_rec(slot);
	struct event_rec *rec = slot_other(slot);

	*rec = *now;
	rec->verdict = AUDIT_FAILED;
	rec->reason = REASON_INTERRUPTED;
	slot->order = order;
	state_store(&slot->word, SLOT_ENDED | ((slot->word & SLOT_RECORD_BIT) ^ 1));
}

struct slot_rank {
	uint64_t order;
	uint16_t index;
};

static int slot_rank_cmp(const void *a, const void *b)
{
	const struct slot_rank *x = a;
	const struct slot_rank *y = b;

	return x->order < y->order ? -1 : x->order > y->order;
}

/* Free list and queue of ended slots from what the area holds. */
static void slot_recover(struct slots *s, uint64_t done)
{
	struct slot_rank *rank = xcalloc(s->area->peak + 1, sizeof(*rank));
	uint32_t n = 0;

	for (uint64_t i = s->area->peak; i-- > 0;) {
		struct audit_slot *slot = &s->area->pages[i].slot;

		if (slot->word != SLOT_FREE && slot->serial == done)
			state_store(&slot->word, SLOT_FREE);
		if ((slot->word & ~(uint64_t)SLOT_RECORD_BIT) == SLOT_FREE) {
			s->free[s->n_free++] = (uint16_t)i;
			continue;
		}
		if (slot->word & SLOT_ENDED && slot->order > s->order)
			s->order = slot->order;
		rank[n++] = (struct slot_rank){
			.order = slot->word & SLOT_ENDED ? slot->order : UINT64_MAX,
			.index = (uint16_t)i,
		};
	}
	/* Open ones have no order yet: after the ended ones, by age. */
	for (uint32_t i = 0; i < n; i++) {
		if (rank[i].order == UINT64_MAX)
			rank[i].order = UINT64_MAX / 2 + s->area->pages[rank[i].index].slot.serial;
	}
	qsort(rank, n, sizeof(*rank), slot_rank_cmp);
	for (uint32_t i = 0; i < n; i++) {
		struct audit_slot *slot = &s->area->pages[rank[i].index].slot;

		if (slot->word & SLOT_OPEN)
			slot_interrupt(slot, ++s->order);
		slot_queue(s, rank[i].index);
	}
	s->n_taken = n;
	free(rank);
}

struct slots *slot_new(struct slot_area *area, uint64_t done)
{
	struct slots *s = xcalloc(1, sizeof(*s));

	REQUIRE(area->peak <= SLOT_ALL);
	s->area = area;
	slot_recover(s, done);
	return s;
}

void slot_free(struct slots *s)
{
	free(s);
}

struct audit_slot *slot_take(
	struct slots *s, const struct audit_event *e, const struct slot_mark *mark, bool spare)
{
	struct audit_slot *slot;

	REQUIRE(mark->context.len <= sizeof(slot->context));
	if (s->n_taken >= (spare ? SLOT_ALL : AUDIT_SLOTS))
		return NULL;
	if (s->n_free > 0) {
		slot = &s->area->pages[s->free[--s->n_free]].slot;
	} else {
		slot = &s->area->pages[s->area->peak].slot;
		state_store(&s->area->peak, s->area->peak + 1);
	}
	s->n_taken++;
	slot->serial = mark->serial;
	memcpy(slot->id, mark->id, AUDIT_ID_LEN);
	slot->id[AUDIT_ID_LEN] = '\0';
	slot->context_len = (uint16_t)mark->context.len;
	if (mark->context.len > 0)
		memcpy(slot->context, mark->context.p, mark->context.len);
	event_rec_set(&slot->rec[0], e);
	state_store(&slot->word, SLOT_OPEN);
	return slot;
}

void slot_update(struct audit_slot *slot, const struct audit_event *e)
{
	event_rec_set(slot_other(slot), e);
	state_store(&slot->word, SLOT_OPEN | ((slot->word & SLOT_RECORD_BIT) ^ 1));
}

void slot_end(struct slots *s, struct audit_slot *slot, const struct audit_event *e)
{
	event_rec_set(slot_other(slot), e);
	slot->order = ++s->order;
	state_store(&slot->word, SLOT_ENDED | ((slot->word & SLOT_RECORD_BIT) ^ 1));
	slot_queue(s, slot_index(s, slot));
}

struct audit_slot *slot_ended(const struct slots *s)
{
	if (s->n_ended == 0)
		return NULL;
	return &s->area->pages[s->ended[s->first_ended]].slot;
}

void slot_release(struct slots *s, struct audit_slot *slot)
{
	if (slot->word & SLOT_ENDED) {
		REQUIRE(slot == slot_ended(s));
		s->first_ended = (s->first_ended + 1) % SLOT_ALL;
		s->n_ended--;
	}
	state_store(&slot->word, SLOT_FREE);
	s->free[s->n_free++] = slot_index(s, slot);
	s->n_taken--;
}

const struct event_rec *slot_rec(const struct audit_slot *slot)
{
	return &slot->rec[slot->word & SLOT_RECORD_BIT];
}

const char *slot_id(const struct audit_slot *slot)
{
	return slot->id;
}

uint64_t slot_serial(const struct audit_slot *slot)
{
	return slot->serial;
}

struct slice slot_context(const struct audit_slot *slot)
{
	return slice_make(slot->context, slot->context_len);
}

uint32_t slot_count(const struct slots *s)
{
	return s->n_taken;
}
