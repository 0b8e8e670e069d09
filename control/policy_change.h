/* Changes of what is in force, one after the other, whoever asks: the API, SIGHUP, the operator's
 * rule files. Each goes the same way (design 9): checked, written to a temporary file, in the
 * kernel, renamed, in the area, in memory, answered. A step that fails changes nothing, and takes
 * back what the steps before it did. */
#pragma once

#include <sys/queue.h>

#include "policy/policy.h"

struct event_base;
struct policy_change;
struct policy_request;

#define POLICY_STEP_TABLE(X)  \
	X(PREPARE, "prepare") \
	X(SAVE, "save")       \
	X(APPLY, "apply")     \
	X(COMMIT, "commit")   \
	X(KEEP, "keep")       \
	X(UNDO, "undo")       \
	X(DONE, "done")

enum policy_step {
#define X(id, text) POLICY_STEP_##id,
	POLICY_STEP_TABLE(X)
#undef X
		POLICY_STEP_MAX
};

/* What a step says when it is not finished: its answer comes by policy_change_answer. */
#define POLICY_CHANGE_LATER 1

struct policy_result {
	enum policy_step step; /* DONE, or the one that failed */
	int ret;               /* 0, or its code */
	struct errmsg msg;     /* why */
};

/* How one kind of request is made. Each runs from the loop. */
struct policy_request_ops {
	/* At its turn: decides by what is in force now. 0 with r->policy set (a reference, which is
	 * the change's then) goes on; 0 without it: nothing to do. A refusal ends it. */
	int (*prepare)(struct policy_request *r, struct errmsg *msg);
	/* The area. On failure it leaves it as it was. */
	int (*keep)(struct policy_request *r, struct errmsg *msg);
	/* Memory. Cannot fail. */
	void (*publish)(struct policy_request *r);
	/* Runs once, at the end, and frees the request. */
	void (*done)(struct policy_request *r, const struct policy_result *result);
};

/* Embedded in the caller's own. */
struct policy_request {
	TAILQ_ENTRY(policy_request) link;
	const struct policy_request_ops *ops;
	struct policy *policy; /* in force afterwards */
	char *text; /* for the policy file, freed by the change; NULL: it stays as it is */
};

/* The outside. save, commit and apply give 0 (done), POLICY_CHANGE_LATER or a failure. */
struct policy_change_ops {
	int (*save)(void *arg, struct slice text);
	int (*commit)(void *arg);
	void (*discard)(void *arg);
	/* The kernel's rules; in mode proxy there are none. Also for taking a change back. */
	int (*apply)(void *arg, struct policy *policy);
	/* Borrowed. */
	struct policy *(*in_force)(void *arg);
};

struct policy_change *policy_change_new(
	struct event_base *base, const struct policy_change_ops *ops, void *arg);
/* Requests that are under way or wait are told -ECANCELED. */
void policy_change_free(struct policy_change *c);

/* r waits for its turn; none of its functions runs before this returns. */
void policy_change_submit(struct policy_change *c, struct policy_request *r);
/* A step that was to finish later has: SAVE, APPLY or COMMIT. One that nobody waits for is a
 * failure of whoever answers: false. */
bool policy_change_answer(struct policy_change *c, enum policy_step step, int ret);
/* Something is under way or waits. */
bool policy_change_busy(const struct policy_change *c);
