/* The OpenSandbox policy document (reference 3.2 to 3.10), as JSON. */
#pragma once

#include <jansson.h>

#include "policy/policy_merge.h"

#define POLICY_DOC_MAX (16u << 20) /* bytes: 100,000 rules take about 6 MiB */

/* Empty, white space, `null` and `{}` are deny-all. `egress[i]` is named in the message:
 * "egress[2]: target "http://x": ...". Unknown defaultAction or action: refused. Unknown fields are
 * ignored, field names compared without case, duplicates: last wins (as the replaced server).
 * max_rules 0: no cap. *out has one reference. */
CHECKED int policy_json_decode(
	struct slice text, size_t max_rules, struct policy **out, struct errmsg *msg);

/* The same for a tree (the YAML reader gives one). Borrowed. */
CHECKED int policy_json_decode_tree(
	const json_t *root, size_t max_rules, struct policy **out, struct errmsg *msg);

/* Body of PATCH /policy: a list of rules. "empty array" for `[]` and `null`. */
CHECKED int policy_json_decode_patch(struct slice text, struct rule_list *out, struct errmsg *msg);

/* Body of DELETE /policy: a list of targets; null is the empty text. */
struct policy_targets {
	json_t *doc;
	struct slice *v; /* of doc */
	size_t n;
};
CHECKED int policy_json_decode_targets(
	struct slice text, struct policy_targets *out, struct errmsg *msg);
void policy_targets_fini(struct policy_targets *t);

/* {"egress": [{"action","target","ports"?}...], "defaultAction": "..."} in that order. New
 * reference. */
json_t *policy_json_encode(const struct policy *p);
/* A document as policy_json_encode would write it, so that two spellings of one policy are
 * json_equal. New reference; NULL: it is none. */
json_t *policy_json_normal(const json_t *root, struct errmsg *msg);
