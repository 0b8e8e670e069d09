/* Open exchanges in the plain area: what a line about each would say if the worker died now.
 *
 * A slot holds two records and one word that tells its state and which record counts, so a change
 * is one store. Free slots are reused last in, first out, and new ones are touched only when all
 * others are taken: few pages become memory. A slot whose line found no room in the ring keeps it
 * (state ended) until there is. */
#pragma once

#include "audit/audit.h"
#include "audit/event_json.h"

/* Two pages: what lies in the second, most of a long context, is rarely touched. */
#define SLOT_SIZE 8192
/* For notes (start, policy change) that find the ring full: not for exchanges. */
#define SLOT_SPARE 64
#define SLOT_ALL (AUDIT_SLOTS + SLOT_SPARE)

struct audit_slot;
struct slot_area;
struct slots;

size_t slot_area_size(void);

/* area: slot_area_size() bytes at a multiple of a page, zero or as a former worker left it.
 * done: serial of the slot that the last committed line was made from; it is free now. Slots that
 * were open become ended ones, failed and interrupted. */
struct slots *slot_new(struct slot_area *area, uint64_t done);
void slot_free(struct slots *s);

/* What a slot has from its beginning to its end. */
struct slot_mark {
	uint64_t serial;      /* unique, not 0 */
	const char *id;       /* AUDIT_ID_LEN characters */
	struct slice context; /* at most AUDIT_CONTEXT_MAX bytes */
};

/* Takes a free slot, open from now on; NULL if there is none. spare: also one of the spare ones. */
struct audit_slot *slot_take(
	struct slots *s, const struct audit_event *e, const struct slot_mark *mark, bool spare);
void slot_update(struct audit_slot *slot, const struct audit_event *e);
/* Keeps the final record, to become a line later; ended slots are a queue. */
void slot_end(struct slots *s, struct audit_slot *slot, const struct audit_event *e);
/* The line is committed (or was never to be). */
void slot_release(struct slots *s, struct audit_slot *slot);

/* The ended slot that has waited longest, NULL if there is none. */
struct audit_slot *slot_ended(const struct slots *s);

const struct event_rec *slot_rec(const struct audit_slot *slot);
const char *slot_id(const struct audit_slot *slot);
uint64_t slot_serial(const struct audit_slot *slot);
struct slice slot_context(const struct audit_slot *slot);
/* Taken slots, ended ones included. */
uint32_t slot_count(const struct slots *s);
