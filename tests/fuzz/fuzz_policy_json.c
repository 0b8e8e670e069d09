/* The policy document: whatever is accepted can be asked, written and read again as the same. */
#include <stdlib.h>

#include "policy/check.h"
#include "policy/policy_json.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

#define RULES_MAX 1000

static char *document_of(const struct policy *p)
{
	json_t *tree = policy_json_encode(p);
	char *text = json_dumps(tree, JSON_COMPACT);

	REQUIRE(text);
	json_decref(tree);
	return text;
}

/* Each rule decides about its own target unless an earlier one does. */
static void ask(const struct policy *p)
{
	for (size_t i = 0; i < policy_n_rules(p); i++) {
		const struct rule *r = policy_rule(p, i);
		uint16_t port = r->n_ports ? r->ports[0] : 443;
		char text[RULE_TEXT_MAX];
		struct verdict v;

		REQUIRE(policy_rule_text(p, (int32_t)i, text) < RULE_TEXT_MAX);
		REQUIRE(policy_names_port(p, port) || !r->allow || r->n_ports == 0);
		switch (r->kind) {
		case RULE_NAME:
			v = policy_check_name(p, slice_str(r->target), port);
			REQUIRE(v.rule >= 0 && (size_t)v.rule <= i);
			break;
		case RULE_CIDR:
			v = policy_check_addr(p, &r->cidr.addr, port);
			REQUIRE(v.rule >= 0 && (r->allow || !v.allow));
			break;
		case RULE_WILDCARD:
			v = policy_check_name(p, slice_str(r->target), port);
			REQUIRE(v.rule != (int32_t)i);
			break;
		case RULE_ANY:
			break;
		}
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	struct errmsg msg = {""};
	struct policy *policy = NULL;
	struct policy *again = NULL;
	char *first;
	char *second;

	if (policy_json_decode(slice_make((const char *)p, len), RULES_MAX, &policy, &msg) < 0) {
		REQUIRE(!policy && msg.text[0]);
		return 0;
	}
	ask(policy);
	first = document_of(policy);
	REQUIRE(policy_json_decode(slice_str(first), 0, &again, &msg) == 0);
	second = document_of(again);
	REQUIRE(strcmp(first, second) == 0);
	free(first);
	free(second);
	policy_unref(policy);
	policy_unref(again);
	return 0;
}
