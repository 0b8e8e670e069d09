/* The audit trail as the proxy uses it. slot, ring, event_json and sink are behind it.
 *
 * An allowed exchange: audit_begin() before the first byte goes upstream, audit_end() when it is
 * over. A refusal, a start, a stop: audit_note(). Everything committed lives in the plain area and
 * survives a crash of the worker. */
#pragma once

#include "audit/context.h"
#include "audit/event.h"
#include "base/err.h"
#include "base/strbuf.h"

#define AUDIT_SLOTS 4096            /* open exchanges at most */
#define AUDIT_RING_BYTES (4u << 20) /* committed lines that no sink has taken yet */

struct audit;
struct audit_slot;
struct event_base;

/* Bytes of the plain area that the trail needs. */
size_t audit_area_size(void);

/* area: audit_area_size() bytes of shared memory, zero when new. Slots that a dead worker left open
 * become lines with INTERRUPTED. sandbox: its id, may be empty. fd_file: the audit file, opened for
 * reading and appending, or -1; a torn last line is cut; the chain and seq go on from the area, or,
 * when the area is new, from the file's last line. to_stdout: also to descriptor 1. */
CHECKED int audit_open(void *area, struct slice sandbox, int fd_file, bool to_stdout,
	struct audit **out, struct errmsg *msg);
/* Starts draining from the loop: every 100 ms while there is something, or at once at 64 lines. */
void audit_start(struct audit *a, struct event_base *base);
/* Writes what is left (waits for the file, at most 2 s for stdout) and frees. */
void audit_close(struct audit *a);

/* Takes a slot and fills it. NULL when none is free or the slowest sink is a ring behind: the
 * caller answers 503 or tries again later. Nothing upstream before this returned a slot. */
CHECKED struct audit_slot *audit_begin(struct audit *a, const struct audit_event *e);
/* The decision's id, AUDIT_ID_LEN characters with a NUL. Valid until audit_end. */
const char *audit_slot_id(const struct audit_slot *s);
/* Changes what a crash line would say (address, reason, bytes so far). Cheap. Here and below the
 * event is the whole of it: what it leaves out is not known. */
void audit_update(struct audit *a, struct audit_slot *s, const struct audit_event *e);
/* Also writes a line with verdict `open` for one that runs long; left out when room is short. */
void audit_still_open(struct audit *a, struct audit_slot *s, const struct audit_event *e);
/* Turns the slot into the line. Never fails: room for it was set aside by audit_begin. */
void audit_end(struct audit *a, struct audit_slot *s, const struct audit_event *e);

/* A line of its own. Refusals (verdict blocked, or failed before a slot) wait in a ring of their
 * own; past 50 a second and uid they are summarised, one line a second for each (reason, host,
 * uid). id: receives the decision's id, may be NULL. */
void audit_note(struct audit *a, const struct audit_event *e, char id[AUDIT_ID_LEN + 1]);

/* A new file instead of the old one, which is closed (after rotation). Files given to the trail are
 * its own; audit_close closes the last one. */
void audit_set_file(struct audit *a, int fd);
/* Asks for rotation when the file passes max_bytes: cb runs from the loop, once until the next
 * audit_set_file. When rotation failed, call this again to be asked again. */
void audit_on_rotate(struct audit *a, uint64_t max_bytes, void (*cb)(void *arg), void *arg);

/* Where a log reader stands: last committed seq. */
uint64_t audit_seq(const struct audit *a);

/* Since egress was started, over its workers. */
struct audit_counts {
	uint64_t reads;    /* web reads that were allowed and are over */
	uint64_t refusals; /* each by itself, also where one line sums up several */
	uint64_t last_us;  /* wall clock of the last event, 0: there was none */
};
struct audit_counts audit_counts(const struct audit *a);

/* From now on slots and lines carry these labels; c->len 0: none. Survives the worker. A line of
 * kind context says so, and who did it (AUDIT_UID_NONE: not known). E_FULL, and nothing is changed:
 * there is no room for the line. */
CHECKED int audit_set_context(struct audit *a, const struct context *c, uint32_t uid);
/* As lines carry it, empty if there is none; borrowed until the next change. */
struct slice audit_context(const struct audit *a);

/* The oldest line that audit_read can give; audit_seq() + 1: none. */
uint64_t audit_oldest(const struct audit *a);
/* Adds to out the lines behind number `after`, as they are in every sink, each with its newline: at
 * most max_lines, and no more than fit into out (32 KiB hold one in any case). Returns their
 * number. -ENOENT: some of them are gone. E_VALUE: no line of that number was ever written. Waits
 * for nobody, and nobody waits for it. */
CHECKED int audit_read(
	const struct audit *a, uint64_t after, uint32_t max_lines, struct strbuf *out);
