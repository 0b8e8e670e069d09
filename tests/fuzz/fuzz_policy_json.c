/* The policy document, and the lists of PATCH and DELETE: whatever is accepted can be asked,
 * written and read again as the same. */
#include <stdlib.h>

#include "base/strbuf.h"
#include "policy/check.h"
#include "policy/policy_json.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

#define RULES_MAX 12 /* so that short inputs reach it */

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

static void same_rules(const struct policy *p, const struct rule_list *l)
{
	REQUIRE(policy_n_rules(p) == l->n);
	for (size_t i = 0; i < l->n; i++) {
		const struct rule *r = policy_rule(p, i);

		REQUIRE(r->kind == l->v[i].kind && r->allow == l->v[i].allow);
		REQUIRE(r->n_ports == l->v[i].n_ports);
		REQUIRE(strcmp(r->written, l->v[i].written) == 0);
	}
}

/* The cap refuses documents with more rules and changes nothing else. p: read without it, or NULL.
 */
static void check_cap(struct slice text, const struct policy *p)
{
	struct errmsg msg = {""};
	struct policy *capped = NULL;
	int ret = policy_json_decode(text, RULES_MAX, &capped, &msg);

	if (ret == 0)
		REQUIRE(p && policy_n_rules(capped) == policy_n_rules(p));
	else
		REQUIRE(!capped && msg.text[0]);
	if (p)
		REQUIRE((ret == 0) == (policy_n_rules(p) <= RULES_MAX) && (!ret || ret == E_LIMIT));
	policy_unref(capped);
}

/* The rules of a policy are a patch, as they stand. */
static void check_as_patch(const struct policy *p)
{
	json_t *tree = policy_json_encode(p);
	char *text = json_dumps(json_object_get(tree, "egress"), JSON_COMPACT);
	struct errmsg msg = {""};
	struct rule_list l;
	int ret = policy_json_decode_patch(slice_str(text), &l, &msg);

	REQUIRE((ret == 0) == (policy_n_rules(p) > 0));
	same_rules(p, &l);
	rule_list_fini(&l);
	free(text);
	json_decref(tree);
}

static void check_document(struct slice text)
{
	struct errmsg msg = {""};
	struct policy *policy = NULL;
	struct policy *again = NULL;
	char *first;
	char *second;
	int ret = policy_json_decode(text, 0, &policy, &msg);

	check_cap(text, policy);
	if (ret < 0) {
		REQUIRE(!policy && msg.text[0]);
		return;
	}
	ask(policy);
	first = document_of(policy);
	REQUIRE(policy_json_decode(slice_str(first), 0, &again, &msg) == 0);
	second = document_of(again);
	REQUIRE(strcmp(first, second) == 0);
	check_as_patch(policy);
	free(first);
	free(second);
	policy_unref(policy);
	policy_unref(again);
}

/* A list that is a patch is a policy's list, too; but it may then be nested too deep. */
static void check_patch(struct slice text)
{
	struct errmsg msg = {""};
	struct policy *policy = NULL;
	struct rule_list l;
	struct strbuf whole;
	int ret;

	if (policy_json_decode_patch(text, &l, &msg) < 0) {
		REQUIRE(l.n == 0 && msg.text[0]);
		return;
	}
	strbuf_init(&whole, POLICY_DOC_MAX);
	strbuf_str(&whole, "{\"egress\":");
	strbuf_add(&whole, text);
	strbuf_char(&whole, '}');
	ret = policy_json_decode(strbuf_slice(&whole), 0, &policy, &msg);
	REQUIRE(l.n > 0 && (ret == 0 || ret == E_LIMIT));
	if (ret == 0)
		same_rules(policy, &l);
	policy_unref(policy);
	rule_list_fini(&l);
	strbuf_fini(&whole);
}

static void check_targets(struct slice text)
{
	json_t *list = json_array();
	struct errmsg msg = {""};
	struct policy_targets t;
	struct policy_targets again;
	char *written;

	if (policy_json_decode_targets(text, &t, &msg) < 0) {
		REQUIRE(t.n == 0 && msg.text[0]);
		json_decref(list);
		return;
	}
	for (size_t i = 0; i < t.n; i++)
		json_array_append_new(list, json_stringn(t.v[i].p, t.v[i].len));
	written = json_dumps(list, JSON_COMPACT);
	REQUIRE(t.n > 0);
	REQUIRE(policy_json_decode_targets(slice_str(written), &again, &msg) == 0);
	REQUIRE(t.n == again.n);
	for (size_t i = 0; i < t.n; i++)
		REQUIRE(slice_eq(t.v[i], again.v[i]));
	free(written);
	json_decref(list);
	policy_targets_fini(&t);
	policy_targets_fini(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	struct slice text = slice_make((const char *)p, len);

	check_document(text);
	check_patch(text);
	check_targets(text);
	return 0;
}
