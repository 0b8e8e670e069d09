/* From one list of rules to the next: what PATCH and DELETE of /policy do, and the operator's rules
 * in front. Pure; every result is a new policy, and what it was made from stays as it is. */
#pragma once

#include "policy/policy.h"

/* Rules that a policy will be made of. All zero: none. */
struct rule_list {
	struct rule *v;
	size_t n;
};

void rule_list_fini(struct rule_list *l);
void rule_list_copy(const struct rule_list *from, struct rule_list *to);
/* Copies of those whose key (see policy_merge_patch) is not in the list. */
void rule_list_add_missing(struct rule_list *to, const struct rule_list *from);
/* r moves into the list. */
void rule_list_add(struct rule_list *l, struct rule *r);

/* PATCH: the new rules in their order, then those of base whose key is not among them; the first of
 * a key counts. The key is the target in normal form with the ports (reference 3.5, where spellings
 * of one name or block were different keys). Takes the rules of patch. One reference. */
struct policy *policy_merge_patch(const struct policy *base, struct rule_list *patch);

/* DELETE: base without the rules for these targets, in whatever spelling and with whatever ports. A
 * target that no rule can have is none of them. NULL: nothing matched. */
struct policy *policy_merge_delete(
	const struct policy *base, const struct slice *targets, size_t n_targets);

/* What is in force: the operator's rules, then those of user, all of it under the ceiling, of which
 * a reference is taken (NULL: none; it has no ceiling itself). One reference. */
struct policy *policy_merge_always(struct policy *user, const struct rule_list *deny,
	const struct rule_list *allow, struct policy *ceiling);
