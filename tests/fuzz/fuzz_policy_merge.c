/* Bodies of PATCH and DELETE and the operator's rule files: what is accepted merges, and the result
 * is a policy that can be written and read again. covers: policy/policy_merge.c
 * policy/policy_file.c */
#include <stdlib.h>

#include "policy/ceiling.h"
#include "policy/check.h"
#include "policy/policy_file.h"
#include "policy/policy_json.h"

static void under_asked(const struct policy *p, struct policy *user, struct policy *most,
	const struct rule *r, uint16_t port)
{
	struct slice name = slice_str(r->target ? r->target : "x.b.test");
	bool both;

	if (r->kind == RULE_CIDR) {
		both = policy_check_addr(user, &r->cidr.addr, port).allow &&
			policy_check_addr(most, &r->cidr.addr, port).allow;
		REQUIRE(policy_check_addr(p, &r->cidr.addr, port).allow == both);
		return;
	}
	both = policy_check_name(user, name, port).allow &&
		policy_check_name(most, name, port).allow;
	REQUIRE(policy_check_name(p, name, port).allow == both);
}

/* Whatever either of them says: what is allowed is what both allow. */
static void under_ceiling(struct policy *user, struct policy *most)
{
	static const struct rule_list none = {.v = NULL};
	struct policy *p = policy_merge_always(user, &none, &none, most);
	struct policy *const each[] = {user, most};
	struct errmsg msg = {""};
	char text[RULE_TEXT_MAX];

	for (size_t k = 0; k < ARRAY_LEN(each); k++) {
		for (size_t i = 0; i < policy_n_rules(each[k]) && i < 64; i++) {
			const struct rule *r = policy_rule(each[k], i);

			under_asked(p, user, most, r, r->n_ports ? r->ports[0] : 0);
			under_asked(p, user, most, r, 443);
			(void)policy_rule_text(p, POLICY_CEILING_RULE(POLICY_DEFAULT_RULE), text);
		}
	}
	REQUIRE(ceiling_check(most, user, user, &msg) == 0);
	REQUIRE((ceiling_check(most, user, NULL, &msg) == 0) == (msg.text[0] == '\0'));
	policy_unref(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

/* Writing and reading gives the same. */
static void round_trip(const struct policy *p)
{
	json_t *tree = policy_json_encode(p);
	char *text = json_dumps(tree, JSON_COMPACT);
	struct errmsg msg = {""};
	struct policy *again = NULL;

	REQUIRE(text && policy_json_decode(slice_str(text), 0, &again, &msg) == 0);
	REQUIRE(policy_n_rules(again) == policy_n_rules(p));
	for (size_t i = 0; i < policy_n_rules(p); i++)
		REQUIRE(strcmp(policy_rule(again, i)->written, policy_rule(p, i)->written) == 0);
	policy_unref(again);
	free(text);
	json_decref(tree);
}

/* A patched policy has each key once, so patching it again changes nothing. */
static void patch(struct slice text, struct policy *base)
{
	struct errmsg msg = {""};
	struct rule_list l;
	struct rule_list same;
	struct policy *once;
	struct policy *twice;

	if (policy_json_decode_patch(text, &l, &msg) < 0) {
		REQUIRE(l.n == 0 && msg.text[0]);
		return;
	}
	rule_list_copy(&l, &same);
	once = policy_merge_patch(base, &l);
	twice = policy_merge_patch(once, &same);
	REQUIRE(policy_n_rules(once) > 0 && policy_n_rules(once) == policy_n_rules(twice));
	for (size_t i = 0; i < policy_n_rules(once); i++)
		REQUIRE(strcmp(policy_rule(once, i)->written, policy_rule(twice, i)->written) == 0);
	round_trip(once);
	policy_unref(once);
	policy_unref(twice);
}

static void take_out(struct slice text, const struct policy *base)
{
	struct errmsg msg = {""};
	struct policy_targets t;
	struct policy *p;

	if (policy_json_decode_targets(text, &t, &msg) < 0) {
		REQUIRE(t.n == 0 && msg.text[0]);
		return;
	}
	p = policy_merge_delete(base, t.v, t.n);
	REQUIRE(!p || policy_n_rules(p) < policy_n_rules(base));
	policy_unref(p);
	policy_targets_fini(&t);
}

/* Each key once, as a patch of nothing has them; what is there already adds nothing. part: rules
 * for some of the same targets. */
static void add_missing(const struct rule_list *from, const struct rule_list *part)
{
	struct rule_list l = {.v = NULL};
	struct errmsg msg = {""};
	struct policy *none = NULL;
	struct rule_list copy;
	struct policy *p;

	REQUIRE(policy_json_decode(SLICE("{}"), 0, &none, &msg) == 0);
	rule_list_copy(from, &copy);
	p = policy_merge_patch(none, &copy);
	rule_list_add_missing(&l, from);
	rule_list_add_missing(&l, from);
	rule_list_add_missing(&l, part);
	REQUIRE(policy_n_rules(p) == l.n);
	for (size_t i = 0; i < l.n; i++)
		REQUIRE(strcmp(policy_rule(p, i)->written, l.v[i].written) == 0);
	rule_list_fini(&l);
	policy_unref(p);
	policy_unref(none);
}

static void rule_files(struct slice text, struct policy *base)
{
	struct rule_list deny = {.v = NULL};
	struct rule_list allow = {.v = NULL};
	struct errmsg msg = {""};
	struct policy *p;
	size_t n_bad = policy_file_decode(text, POLICY_FILE_DENY, &deny, &msg);

	REQUIRE((n_bad > 0) == (msg.text[0] != '\0'));
	n_bad += deny.n;
	REQUIRE(policy_file_decode(text, POLICY_FILE_LOG_SKIP, &allow, &msg) + allow.n == n_bad);
	REQUIRE(allow.n <= deny.n);
	for (size_t i = 0; i < deny.n; i++)
		REQUIRE(!deny.v[i].allow && deny.v[i].written[0]);
	add_missing(&deny, &allow);
	p = policy_merge_always(base, &deny, &allow, NULL);
	REQUIRE(policy_n_rules(p) == policy_n_rules(base) + deny.n + allow.n);
	REQUIRE(policy_n_deny_always(p) == deny.n);
	policy_unref(p);
	rule_list_fini(&deny);
	rule_list_fini(&allow);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	static const char start[] = "{\"egress\":[{\"action\":\"allow\",\"target\":\"a.test\"},{"
				    "\"target\":\"*.b.test\"},"
				    "{\"action\":\"deny\",\"target\":\"10.0.0.0/"
				    "8\"},{\"target\":\"a.test\",\"ports\":[80]}]}";
	struct slice text = slice_make((const char *)p, len);
	struct errmsg msg = {""};
	struct policy *other = NULL;
	struct policy *base = NULL;

	REQUIRE(policy_json_decode(SLICE(start), 0, &base, &msg) == 0);
	patch(text, base);
	take_out(text, base);
	rule_files(text, base);
	if (policy_json_decode(text, 0, &other, &msg) == 0) {
		under_ceiling(base, other);
		under_ceiling(other, base);
	}
	policy_unref(other);
	policy_unref(base);
	return 0;
}
