/* Whether egress does what it is there for, part by part, and why not. Pure: whoever notices a loss
 * says so here; /healthz and /status read it. */
#pragma once

#include <stdbool.h>

#include <jansson.h>

#include "base/attr.h"

#define HEALTH_CAUSE_MAX 200 /* what fits into a reason phrase that people read */

/* In the order in which a cause is looked for. A start waits for the rest, so it comes last. */
#define HEALTH_TABLE(X)             \
	X(GUARD, "guard")           \
	X(TABLE, "table")           \
	X(REDIRECT, "redirect")     \
	X(RAW_GUARD, "raw_guard")   \
	X(QUEUES, "queues")         \
	X(PASS, "pass")             \
	X(LISTENERS, "listeners")   \
	X(CA_FILE, "ca_file")       \
	X(RESOLVERS, "resolvers")   \
	X(MEMORY, "memory")         \
	X(RULE_FILES, "rule_files") \
	X(START, "start")

enum health_part {
#define X(id, text) HEALTH_##id,
	HEALTH_TABLE(X)
#undef X
		HEALTH_PART_MAX
};

enum health_state {
	HEALTH_UNUSED, /* this mode has no such part */
	HEALTH_OK,
	HEALTH_DEGRADED, /* it works, and less holds than should */
	HEALTH_FAILED,
	HEALTH_STATE_MAX
};

struct health {
	enum health_state state[HEALTH_PART_MAX];
	char cause[HEALTH_PART_MAX][HEALTH_CAUSE_MAX];
};

/* START has failed with the cause "starting", the rest is unused. */
void health_init(struct health *h);
void health_ok(struct health *h, enum health_part part);
/* state: DEGRADED or FAILED; and why. */
void health_set(struct health *h, enum health_part part, enum health_state state, const char *fmt,
	...) PRINTF(4, 5);
/* The worst of all parts. */
enum health_state health_state(const struct health *h);
/* Why it is that bad: of the first part in that state; "" if all is well. */
const char *health_cause(const struct health *h);
/* Nothing is known to be wrong but that the start has not ended. */
bool health_starting(const struct health *h);
const char *health_state_text(enum health_state state);
/* {"state", "cause"?, "parts": {"memory": {"state", "cause"?}}}; new reference. */
json_t *health_json(const struct health *h);
