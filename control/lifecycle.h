/* Follows one sandbox at OpenSandbox's lifecycle API: state, expiry, metadata, and whether the
 * server sees the policy that is in force. Asks every few seconds, by connections of its own. What
 * an answer comes to is lifecycle_state's; what is done about it is the worker's
 * (worker_lifecycle.c). */
#pragma once

#include "control/lifecycle_api.h"
#include "control/lifecycle_state.h"

#define LIFECYCLE_POLL_MS 5000      /* between two questions, and backoff_ms while they fail */
#define LIFECYCLE_PAUSING_TIMES 5   /* as often while new flows are refused */
#define LIFECYCLE_ANSWER_MAX 262144 /* bytes of one sandbox */
#define LIFECYCLE_POLICY_POLLS 12   /* polls from one look at the server's policy to the next */

struct lifecycle;

struct lifecycle_ops {
	/* An answer was taken into account, or that none came (s is NULL, else borrowed). changed:
	 * k is not what it was. */
	void (*seen)(const struct lifecycle_known *k, const struct lifecycle_sandbox *s,
		bool changed, void *arg);
	/* May the key go there? */
	enum reason (*admit)(const struct netaddr *a, void *arg);
	/* Is this policy document, an object, the one in force? */
	bool (*same_policy)(const json_t *document, void *arg);
	/* Whether the server sees the policy in force is otherwise than it was. */
	void (*policy_seen)(bool same, void *arg);
};

/* api: with a proxy of its own; must outlive it. id: lifecycle_id_ok, copied. known: what the
 * worker before knew, or zero. Nothing is asked before lifecycle_set_key. */
struct lifecycle *lifecycle_new(struct lifecycle_api *api, const char *id,
	const struct lifecycle_known *known, const struct lifecycle_ops *ops, void *arg);
/* Accepts NULL. */
void lifecycle_free(struct lifecycle *l);
/* As lifecycle_api_read_key, and asks at once. */
CHECKED int lifecycle_set_key(struct lifecycle *l, int fd, struct errmsg *msg);
/* Asks now; what is under way is given up. */
void lifecycle_poll(struct lifecycle *l);
/* For /status. */
json_t *lifecycle_json(const struct lifecycle *l);
