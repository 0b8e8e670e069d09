/* Refusals in front of the ring, so that a flood of them cannot push out what was allowed.
 *
 * Each is staged in a ring of its own and becomes a line only while the main ring is less than half
 * full. Past REFUSAL_RATE a second and uid, or when the staging ring is full, refusals are counted
 * in the plain area, one summary for each (kind, verdict, reason, host, uid) of one context, which
 * becomes a line once its second is over. */
#pragma once

#include "audit/ring.h"

#define REFUSAL_RATE 50 /* lines a second and uid; past that they are summarised */
#define REFUSAL_BYTES (512u << 10)
/* Different summaries at a time. What comes on top is summarised by reason alone. */
#define REFUSAL_SUMS 256
#define REFUSAL_UIDS 64 /* counted apart in one second; later ones share the last count */

struct refusal_area;
struct refusals;

size_t refusal_area_size(void);

/* area: refusal_area_size() bytes, aligned to 8. ring: borrowed; its last source tells which
 * refusals are lines already. */
struct refusals *refusal_new(
	struct refusal_area *area, const struct ring *ring, struct slice sandbox);
void refusal_free(struct refusals *f);

/* Of refusals from now on, at most AUDIT_CONTEXT_MAX bytes; borrowed until the next one. */
void refusal_set_context(struct refusals *f, struct slice context);

/* Takes the refusal in; never fails. second: of a monotonic clock. id: AUDIT_ID_LEN characters and
 * a NUL; replaced by the summary's when it is counted there. */
void refusal_add(struct refusals *f, const struct audit_event *e, uint64_t serial, char *id,
	uint64_t second);
/* As refusal_add, but counted only. */
void refusal_count(struct refusals *f, const struct audit_event *e, uint64_t serial, char *id);

/* Turns what waits into lines, as far as the ring has room below its half; returns the number of
 * lines. Summaries only if their second is over, or all of them. */
uint32_t refusal_promote(struct refusals *f, struct ring *ring, uint64_t second, bool all);

/* For the source of other lines: refusals staged before this position are lines. */
uint64_t refusal_tail(const struct refusals *f);

/* Something waits to become a line. */
bool refusal_waiting(const struct refusals *f);
