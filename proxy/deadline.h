/* Time limits of connections. Setting one is a store, since it happens several times a request; one
 * timer sweeps them, so a limit fires up to DEADLINE_SWEEP_MS late. Where that is too coarse (the
 * 300 ms of a silent client), the owner has an event of its own. */
#pragma once

#include <sys/queue.h>

#include "base/attr.h"

#define DEADLINE_SWEEP_MS 250

struct event;
struct event_base;

struct deadline {
	TAILQ_ENTRY(deadline) link;
	uint64_t at_ms; /* clock_mono_ms; 0: none */
	void (*passed)(void *arg);
	void *arg;
};

TAILQ_HEAD(deadline_list, deadline);

struct deadlines {
	struct deadline_list list;
	struct event *timer;
	struct deadline *next; /* of a sweep: passed() may remove any deadline */
};

void deadlines_init(struct deadlines *d, struct event_base *base);
void deadlines_fini(struct deadlines *d);
/* passed runs from the loop when at_ms lies in the past; at_ms is 0 then. */
void deadline_add(struct deadlines *d, struct deadline *x, void (*passed)(void *arg), void *arg);
void deadline_remove(struct deadlines *d, struct deadline *x);
/* Nothing ran for this long: every limit that is set comes so much later. */
void deadlines_shift(struct deadlines *d, uint64_t ms);
/* For tests: what the timer does. */
void deadlines_sweep(struct deadlines *d, uint64_t now_ms);
