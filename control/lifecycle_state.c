/* The state table: what each state of a sandbox, and each way of not knowing it, enforces. */
#include "control/lifecycle_state.h"

#define SAME LIFECYCLE_ENFORCES /* what was enforced before */

/* Paused: the sandbox stands still, and runs again before the API says so; traffic meanwhile is an
 * alarm, not a reason to refuse its first request afterwards. */
static const uint8_t state_enforce[LIFECYCLE_STATES] = {
	[LIFECYCLE_UNKNOWN] = SAME,
	[LIFECYCLE_PENDING] = LIFECYCLE_OPEN,
	[LIFECYCLE_RUNNING] = LIFECYCLE_OPEN,
	[LIFECYCLE_PAUSING] = LIFECYCLE_NO_NEW_FLOWS,
	[LIFECYCLE_PAUSED] = SAME,
	[LIFECYCLE_RESUMING] = LIFECYCLE_OPEN,
	[LIFECYCLE_STOPPING] = LIFECYCLE_CLOSED_ERASE,
	[LIFECYCLE_TERMINATED] = LIFECYCLE_CLOSED_ERASE,
	[LIFECYCLE_FAILED] = LIFECYCLE_CLOSED_ERASE,
};

const char *lifecycle_enforce_text(enum lifecycle_enforce e)
{
	static const char *const texts[] = {
#define X(id, text) text,
		LIFECYCLE_ENFORCE_TABLE(X)
#undef X
	};

	REQUIRE((unsigned int)e < ARRAY_LEN(texts));
	return texts[e];
}

const char *lifecycle_cause_text(enum lifecycle_cause c)
{
	static const char *const texts[] = {
#define X(id, text) text,
		LIFECYCLE_CAUSE_TABLE(X)
#undef X
	};

	REQUIRE((unsigned int)c < ARRAY_LEN(texts));
	return texts[c];
}

static bool state_expired(const struct lifecycle_known *k, uint64_t wall_us)
{
	return k->expires_us != 0 && k->expires_us <= wall_us;
}

static void state_found(
	struct lifecycle_known *k, const struct lifecycle_sandbox *s, uint64_t wall_us)
{
	k->found = true;
	k->missing = false;
	k->state = s->state;
	k->expires_us = s->expires_us;
	k->cause =
		s->state == LIFECYCLE_UNKNOWN ? LIFECYCLE_CAUSE_NEW_STATE : LIFECYCLE_CAUSE_STATE;
	if (state_enforce[s->state] != SAME)
		k->enforce = (enum lifecycle_enforce)state_enforce[s->state];
	if (state_expired(k, wall_us)) {
		k->enforce = LIFECYCLE_CLOSED_ERASE;
		k->cause = LIFECYCLE_CAUSE_EXPIRED;
	}
}

/* A 404 may come from something in between, or from a server that has just started. */
static void state_gone(struct lifecycle_known *k)
{
	bool certain = k->found || k->missing;

	k->missing = true;
	k->cause = certain ? LIFECYCLE_CAUSE_GONE : LIFECYCLE_CAUSE_GONE_ONCE;
	if (certain)
		k->enforce = LIFECYCLE_CLOSED_ERASE;
}

/* The keys stay: they would be lost by an API that is away. */
static void state_unknown(struct lifecycle_known *k, bool key_refused, uint64_t wall_us)
{
	k->missing = false;
	k->cause = key_refused ? LIFECYCLE_CAUSE_KEY_REFUSED : LIFECYCLE_CAUSE_UNREACHABLE;
	if (!state_expired(k, wall_us))
		return;
	k->cause = LIFECYCLE_CAUSE_UNREACHABLE_EXPIRED;
	if (k->enforce < LIFECYCLE_CLOSED)
		k->enforce = LIFECYCLE_CLOSED;
}

bool lifecycle_state_see(
	struct lifecycle_known *k, const struct lifecycle_sandbox *s, int status, uint64_t wall_us)
{
	struct lifecycle_known before = *k;

	if (s)
		state_found(k, s, wall_us);
	else if (status == 404)
		state_gone(k);
	else
		state_unknown(k, status == 401 || status == 403, wall_us);
	return before.enforce != k->enforce || before.cause != k->cause ||
		before.state != k->state || before.expires_us != k->expires_us;
}
