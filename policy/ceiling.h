/* The operator's ceiling: a policy that says what may be allowed at most. policy_merge_always puts
 * it into the policy in force, and every decision (check.h) and the kernel's rules ask both. What
 * is here is the courtesy before that: whoever writes a rule that cannot count is told at once. */
#pragma once

#include "policy/policy.h"

/* Refuses a rule whose name, wildcard or block the ceiling does not allow as such, or not for a
 * port that the rule lists: E_VALUE, and both rules are named. What the ceiling denies inside of
 * what it allows stays denied, and is no reason to refuse the rest. Rules and default action that
 * `before` has as well are let through (NULL: none). ceiling NULL: everything is. */
CHECKED int ceiling_check(const struct policy *ceiling, const struct policy *user,
	const struct policy *before, struct errmsg *msg);
