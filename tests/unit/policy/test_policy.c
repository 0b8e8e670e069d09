/* The snapshot: ownership, references, texts for people. */
#include "policy/policy.h"

#include "tests/unit/policy/fixture.h"

static void test_policy_lives_to_its_last_reference(void **state)
{
	struct policy *p = fixture_policy(true, "allow a.test; deny *.b.test");

	assert_ptr_equal(policy_ref(p), p);
	policy_unref(p);
	assert_int_equal(policy_n_rules(p), 2);
	assert_true(policy_default_allow(p));
	assert_string_equal(policy_rule(p, 1)->target, "b.test");
	policy_unref(p);
	policy_unref(NULL);
}

static void test_empty_policy_has_its_default_only(void **state)
{
	struct policy *p = policy_new(false, NULL, 0);
	char text[RULE_TEXT_MAX];

	assert_int_equal(policy_n_rules(p), 0);
	assert_false(policy_default_allow(p));
	assert_int_equal(policy_rule_text(p, POLICY_DEFAULT_RULE, text), 20);
	assert_string_equal(text, "default action: deny");
	policy_unref(p);
}

static void test_rule_text_counts_from_one(void **state)
{
	struct policy *p = fixture_policy(
		true, "deny Bad.test; allow *.Example.com; allow 10.0.0.0/8 443,80; allow - 8080");
	static const char *const want[] = {
		"rule 1: deny Bad.test",
		"rule 2: allow *.Example.com",
		"rule 3: allow 10.0.0.0/8 ports 80,443",
		"rule 4: allow ports 8080",
	};
	char text[RULE_TEXT_MAX];

	for (size_t i = 0; i < ARRAY_LEN(want); i++) {
		assert_int_equal(policy_rule_text(p, (int32_t)i, text), strlen(want[i]));
		assert_string_equal(text, want[i]);
	}
	policy_rule_text(p, POLICY_DEFAULT_RULE, text);
	assert_string_equal(text, "default action: allow");
	policy_unref(p);
}

static void test_rule_text_fits_the_longest_rule(void **state)
{
	uint16_t ports[POLICY_RULE_PORTS_MAX];
	char name[253];
	struct rule *rules = xcalloc(1, sizeof(*rules));
	char text[RULE_TEXT_MAX];
	struct policy *p;
	size_t len;

	for (size_t i = 0; i < ARRAY_LEN(ports); i++)
		ports[i] = (uint16_t)(10000 + i);
	for (size_t i = 0; i < sizeof(name); i++)
		name[i] = i % 2 ? '.' : 'a';
	assert_int_equal(rule_make(SLICE("allow"), slice_make(name, sizeof(name)), ports,
				 ARRAY_LEN(ports), rules, NULL),
		0);
	p = policy_new(false, rules, 1);
	len = policy_rule_text(p, 0, text);
	assert_int_equal(len, strlen(text));
	assert_true(len < RULE_TEXT_MAX);
	assert_string_equal(text + len - 4, ",...");
	policy_unref(p);
}

static void test_only_ports_of_allow_rules_are_named(void **state)
{
	struct policy *p =
		fixture_policy(false, "allow a.test 8443,1; deny b.test 25; allow - 65535");

	assert_true(policy_names_port(p, 8443));
	assert_true(policy_names_port(p, 1));
	assert_true(policy_names_port(p, 65535));
	assert_false(policy_names_port(p, 25));
	assert_false(policy_names_port(p, 443));
	policy_unref(p);
	p = fixture_policy(false, "allow a.test");
	assert_false(policy_names_port(p, 443));
	policy_unref(p);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_policy_lives_to_its_last_reference),
		cmocka_unit_test(test_empty_policy_has_its_default_only),
		cmocka_unit_test(test_rule_text_counts_from_one),
		cmocka_unit_test(test_rule_text_fits_the_longest_rule),
		cmocka_unit_test(test_only_ports_of_allow_rules_are_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
