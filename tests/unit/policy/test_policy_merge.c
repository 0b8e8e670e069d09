/* PATCH, DELETE and the operator's rules (policy/policy_merge): which rules there are afterwards,
 * in which order, and what they decide. */
#include "base/strbuf.h"
#include "policy/check.h"
#include "policy/policy_json.h"
#include "policy/policy_merge.h"
#include "tests/unit/policy/fixture.h"

/* "allow a.test; deny b.test 80,443; ..." */
static void text_of(const struct policy *p, char *buf, size_t size)
{
	struct strbuf b;

	strbuf_init_fixed(&b, buf, size);
	for (size_t i = 0; i < policy_n_rules(p); i++) {
		const struct rule *r = policy_rule(p, i);

		strbuf_printf(
			&b, "%s%s %s", i ? "; " : "", r->allow ? "allow" : "deny", r->written);
		for (size_t k = 0; k < r->n_ports; k++)
			strbuf_printf(&b, "%c%u", k ? ',' : ' ', r->ports[k]);
	}
	(void)strbuf_cstr(&b);
}

static struct policy *patched(const struct policy *base, const char *body)
{
	struct rule_list patch;
	struct errmsg msg = {""};

	if (policy_json_decode_patch(slice_str(body), &patch, &msg) < 0)
		fail_msg("%s: %s", body, msg.text);
	return policy_merge_patch(base, &patch);
}

#define R(action, target) "{\"action\":\"" action "\",\"target\":\"" target "\"}"
#define RP(action, target, ports) \
	"{\"action\":\"" action "\",\"target\":\"" target "\",\"ports\":[" ports "]}"

static void test_patch_puts_new_rules_in_front_and_keeps_the_others(void **state)
{
	static const struct {
		const char *base, *body, *want;
	} rows[] = {
		{"allow a.test; allow b.test", "[" R("deny", "c.test") "," R("allow", "d.test") "]",
			"deny c.test; allow d.test; allow a.test; allow b.test"},
		/* a patched target moves to the front */
		{"allow *.w.test; deny a.w.test", "[" R("allow", "a.w.test") "]",
			"allow a.w.test; allow *.w.test"},
		/* the first of a key wins */
		{"", "[" R("allow", "a.test") "," R("deny", "a.test") "]", "allow a.test"},
		/* spellings of one target are one target */
		{"allow A.test; allow b.test", "[" R("deny", "a.TEST.") "]",
			"deny a.TEST.; allow b.test"},
		{"allow 10.1.2.3/8", "[" R("deny", "10.0.0.0/8") "]", "deny 10.0.0.0/8"},
		{"allow 2001:db8::1", "[" R("deny", "2001:0db8:0::1") "]", "deny 2001:0db8:0::1"},
		{"allow 10.0.0.1", "[" R("deny", "10.0.0.1/32") "]", "deny 10.0.0.1/32"},
		{"allow \xc3\xa9.test", "[" R("deny", "xn--9ca.test") "]", "deny xn--9ca.test"},
		/* a name is not the names below it */
		{"allow a.test; allow *.a.test", "[" R("deny", "*.a.test") "]",
			"deny *.a.test; allow a.test"},
		/* repeats in the base collapse to the first */
		{"allow a.test; deny a.test; allow b.test", "[" R("allow", "c.test") "]",
			"allow c.test; allow a.test; allow b.test"},
		/* ports are part of the key */
		{"allow a.test 80; allow a.test", "[" RP("deny", "a.test", "443,80") "]",
			"deny a.test 80,443; allow a.test 80; allow a.test"},
		{"allow a.test 80,443", "[" RP("deny", "a.test", "443,80") "]",
			"deny a.test 80,443"},
	};
	char got[512];

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct policy *base = fixture_policy(true, rows[i].base);
		struct policy *p = patched(base, rows[i].body);

		text_of(p, got, sizeof(got));
		assert_string_equal(got, rows[i].want);
		assert_true(policy_default_allow(p));
		policy_unref(p);
		policy_unref(base);
	}
}

static void test_same_patch_again_changes_nothing(void **state)
{
	struct policy *p = fixture_policy(false, "allow a.test");
	char got[512];

	for (int i = 0; i < 3; i++) {
		struct policy *next = patched(p, "[" R("deny", "b.test") "]");

		policy_unref(p);
		p = next;
	}
	text_of(p, got, sizeof(got));
	assert_string_equal(got, "deny b.test; allow a.test");
	policy_unref(p);
}

static void test_delete_takes_targets_out_in_any_spelling(void **state)
{
	static const struct {
		const char *base, *target;
		const char *want; /* NULL: nothing matched */
	} rows[] = {
		{"allow a.test; allow b.test", "a.test", "allow b.test"},
		{"allow A.Test; allow b.test", " a.test. ", "allow b.test"},
		{"allow a.test; deny a.test", "a.test", ""},
		{"allow *.x.test; allow a.x.test", "*.x.test", "allow a.x.test"},
		{"allow a.x.test", "*.x.test", NULL},
		{"allow 10.0.0.0/8; allow 10.0.0.1", "10.1.1.1/8", "allow 10.0.0.1"},
		{"allow 10.0.0.1", "10.0.0.1/32", ""},
		{"allow a.test 80; allow a.test 443", "a.test", ""},
		{"allow a.test", "nope.test", NULL},
		{"allow a.test", "", NULL},
		{"allow a.test", "http://a.test", NULL},
	};
	char got[512];

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct policy *base = fixture_policy(true, rows[i].base);
		struct slice target = slice_str(rows[i].target);
		struct policy *p = policy_merge_delete(base, &target, 1);

		if (!rows[i].want) {
			assert_null(p);
		} else {
			assert_non_null(p);
			text_of(p, got, sizeof(got));
			assert_string_equal(got, rows[i].want);
			assert_true(policy_default_allow(p));
		}
		policy_unref(p);
		policy_unref(base);
	}
}

static void test_rule_without_target_cannot_be_deleted(void **state)
{
	struct slice targets[] = {SLICE(""), SLICE("*"), SLICE("443")};
	struct policy *base = fixture_policy(false, "");
	struct policy *p = patched(base, "[{\"action\":\"deny\",\"ports\":[443]}]");

	assert_int_equal(policy_n_rules(p), 1);
	assert_null(policy_merge_delete(p, targets, ARRAY_LEN(targets)));
	policy_unref(p);
	policy_unref(base);
}

static struct rule_list list_of(const char *action, const char *targets)
{
	struct slice rest = slice_str(targets);
	struct rule_list l = {.v = NULL};
	struct rule r;

	while (rest.p && rest.len > 0) {
		struct slice t = slice_strip(slice_cut(&rest, ' '));

		assert_int_equal(rule_make(slice_str(action), t, NULL, 0, &r, NULL), 0);
		rule_list_add(&l, &r);
	}
	return l;
}

static void test_operators_rules_count_before_the_others(void **state)
{
	struct policy *user = fixture_policy(false,
		"allow bad.test; deny good.test; allow both.test; deny 10.0.0.0/8; "
		"allow 192.168.0.0/16; allow 11.0.0.0/8");
	struct rule_list deny = list_of("deny", "bad.test both.test 192.168.7.0/24");
	struct rule_list allow = list_of("allow", "good.test both.test 10.1.2.3 192.168.7.1");
	struct policy *p = policy_merge_always(user, &deny, &allow, NULL);
	static const struct {
		const char *target;
		bool allow;
		const char *rule;
	} rows[] = {
		{"bad.test", false, "deny.always 1: deny bad.test"},
		{"good.test", true, "allow.always 1: allow good.test"},
		{"both.test", false, "deny.always 2: deny both.test"},
		{"none.test", false, "default action: deny"},
		/* an allowed address inside a denied block: what the replaced image does not do */
		{"10.1.2.3", true, "allow.always 3: allow 10.1.2.3"},
		{"10.1.2.4", false, "rule 4: deny 10.0.0.0/8"},
		{"192.168.7.1", false, "deny.always 3: deny 192.168.7.0/24"},
		{"192.168.8.1", true, "rule 5: allow 192.168.0.0/16"},
		{"11.1.1.1", true, "rule 6: allow 11.0.0.0/8"},
		/* NAT64 of the allowed address inside the denied block */
		{"64:ff9b::a01:203", true, "allow.always 3: allow 10.1.2.3"},
		{"64:ff9b::a01:204", false, "rule 4: deny 10.0.0.0/8"},
	};
	char text[RULE_TEXT_MAX];

	assert_int_equal(policy_n_deny_always(p), 3);
	assert_int_equal(policy_n_allow_always(p), 4);
	assert_int_equal(policy_n_rules(p), 7 + 6);
	assert_int_equal(policy_n_rules(user), 6);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct slice target = slice_str(rows[i].target);
		struct netaddr a;
		struct verdict v = netaddr_parse(target, &a) ? policy_check_addr(p, &a, 443)
							     : policy_check_name(p, target, 443);

		assert_int_equal(v.allow, rows[i].allow);
		(void)policy_rule_text(p, v.rule, text);
		assert_string_equal(text, rows[i].rule);
	}
	policy_unref(p);
	rule_list_fini(&deny);
	rule_list_fini(&allow);
	policy_unref(user);
}

static void test_only_missing_rules_are_added(void **state)
{
	struct rule_list to = list_of("deny", "a.test 10.0.0.0/8");
	struct rule_list from = list_of("deny", "A.test. b.test 10.1.1.1/8 b.test");

	rule_list_add_missing(&to, &from);
	assert_int_equal(to.n, 3);
	assert_string_equal(to.v[2].target, "b.test");
	assert_int_equal(from.n, 4);
	rule_list_fini(&to);
	rule_list_fini(&from);
}

static void test_without_operators_rules_the_policy_is_the_same_one(void **state)
{
	struct policy *user = fixture_policy(false, "allow a.test");
	struct rule_list none = {.v = NULL};
	struct policy *p = policy_merge_always(user, &none, &none, NULL);

	assert_ptr_equal(p, user);
	policy_unref(p);
	policy_unref(user);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_patch_puts_new_rules_in_front_and_keeps_the_others),
		cmocka_unit_test(test_same_patch_again_changes_nothing),
		cmocka_unit_test(test_delete_takes_targets_out_in_any_spelling),
		cmocka_unit_test(test_rule_without_target_cannot_be_deleted),
		cmocka_unit_test(test_operators_rules_count_before_the_others),
		cmocka_unit_test(test_only_missing_rules_are_added),
		cmocka_unit_test(test_without_operators_rules_the_policy_is_the_same_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
