/* /policy (reference 3.3 to 3.9): GET shows the user's policy, POST and PUT replace it, PATCH and
 * DELETE change it. The worker gives what is in force, and takes what shall be. */
#pragma once

#include "control/api.h"
#include "control/policy_change.h"

#define API_POLICY_METHODS "GET, POST, PUT, PATCH, DELETE"

/* A policy on its way. Both are references of the request. */
struct api_policy_next {
	struct policy *user;
	struct policy *policy; /* with the operator's rules */
	char *doc;             /* for the area; freed by the request */
	const char *what;      /* for the audit trail: "POST /policy" */
	uint32_t uid;          /* of who asked, AUDIT_UID_NONE */
};

struct api_policy_ops {
	/* Borrowed; NULL: what may be allowed has no ceiling. */
	const struct policy *(*ceiling)(void *arg);
	/* Borrowed. */
	struct policy *(*user)(void *arg);
	size_t (*max_rules)(void *arg); /* 0: none */
	const char *(*mode)(void *arg); /* enforcementMode */
	bool (*has_file)(void *arg);    /* changes are written to a file */
	/* Fills policy and doc for next->user. E_LIMIT: too large to be kept. E_VALUE: a binding of
	 * the vault needs what it takes away. */
	int (*check)(void *arg, struct api_policy_next *next, struct errmsg *msg);
	int (*keep)(void *arg, const struct api_policy_next *next, struct errmsg *msg);
	/* The references move. */
	void (*publish)(void *arg, struct api_policy_next *next);
};

struct api_policy {
	const struct api_policy_ops *ops;
	void *arg;
	struct policy_change *changes;
};

/* Answers. */
void api_policy_run(const struct api_policy *p, struct api_call *call);
/* `deny_all`, `allow_all` or `enforcing` (reference 3.2). */
const char *api_policy_mode(const struct policy *user);
