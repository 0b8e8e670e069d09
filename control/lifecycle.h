/* Follows one sandbox at OpenSandbox's lifecycle API: state, expiry, metadata, and whether the
 * server sees the policy that is in force. Asks every few seconds, with the key in locked memory,
 * by connections of its own. What an answer comes to is lifecycle_state's; what is done about it is
 * the worker's (worker_lifecycle.c). */
#pragma once

#include "control/lifecycle_state.h"

#define LIFECYCLE_POLL_MS 5000          /* between two questions, */
#define LIFECYCLE_JITTER_PERCENT 20     /* give or take so much, */
#define LIFECYCLE_PAUSING_TIMES 5       /* as often while new flows are refused */
#define LIFECYCLE_BACKOFF_MS 60000      /* doubled up to here while they fail */
#define LIFECYCLE_RETRY_AFTER_MS 300000 /* a longer Retry-After is cut to this */
#define LIFECYCLE_TIMEOUT_MS 10000      /* of one question */
#define LIFECYCLE_ANSWER_MAX 262144     /* bytes of one sandbox */
#define LIFECYCLE_POLICY_POLLS 12       /* polls from one look at the server's policy to the next */
#define LIFECYCLE_KEY_MAX 1024          /* bytes of a key */

struct lifecycle;
struct proxy;

struct lifecycle_ops {
	/* An answer was taken into account, or that none came (s is NULL, else borrowed). changed:
	 * k is not what it was. */
	void (*seen)(const struct lifecycle_known *k, const struct lifecycle_sandbox *s,
		bool changed, void *arg);
	/* May the key go there? */
	enum reason (*admit)(const struct netaddr *a, void *arg);
	/* Is this policy document the one in force? */
	bool (*same_policy)(struct slice document, void *arg);
	/* Whether the server sees the policy in force is otherwise than it was. */
	void (*policy_seen)(bool same, void *arg);
};

/* px: of its own, with secmem; must outlive it. url: the setting; id: lifecycle_id_ok. known: what
 * the worker before knew, or zero. Nothing is asked before lifecycle_set_key. */
struct lifecycle *lifecycle_new(struct proxy *px, const char *url, struct slice id,
	const struct lifecycle_known *known, const struct lifecycle_ops *ops, void *arg);
/* Accepts NULL. */
void lifecycle_free(struct lifecycle *l);
/* Reads the key from fd, which stays the caller's, and asks at once. E_VALUE: it cannot stand in a
 * field; -ENOMEM: no locked memory; the key before stays. */
CHECKED int lifecycle_set_key(struct lifecycle *l, int fd, struct errmsg *msg);
/* Asks now; what is under way is given up. */
void lifecycle_poll(struct lifecycle *l);
/* How long to the next question, by how many failed in a row and a random number: never under what
 * the server asked for (*at_least_ms, which is cut to LIFECYCLE_RETRY_AFTER_MS). */
uint64_t lifecycle_wait_ms(unsigned failures, uint64_t *at_least_ms, uint32_t random);
/* For /status. */
json_t *lifecycle_json(const struct lifecycle *l);
