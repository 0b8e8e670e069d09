/* Verdicts about names, literal addresses and addresses that names resolved to. */
#include "policy/check.h"

#include "tests/unit/policy/fixture.h"

static char suffix_cluster[] = "cluster.local";
static char suffix_home[] = "home.arpa";
static char *suffixes[] = {suffix_cluster, suffix_home};
static const struct private_names private = {suffixes, 2};

static void test_name_verdict_says_rule_reason_and_facts(void **state)
{
	static const char rules[] =
		"deny bad.wild.test; allow *.wild.test; allow read.test; allow alt.test 8443";
	static const struct {
		const char *name;
		uint16_t port;
		bool allow;
		enum reason reason;
		int32_t rule;
		bool exact, names_port;
	} cases[] = {
		{"bad.wild.test", 443, false, REASON_DENIED, 0, true, false},
		{"a.wild.test", 443, true, REASON_ALLOWED, 1, false, false},
		{"read.test", 443, true, REASON_ALLOWED, 2, true, false},
		{"read.test", 8443, true, REASON_ALLOWED, 2, true, false},
		{"alt.test", 8443, true, REASON_ALLOWED, 3, true, true},
		{"alt.test", 443, false, REASON_HOST_NOT_LISTED, -1, false, false},
		{"alt.test", 0, true, REASON_ALLOWED, 3, true, false},
		{"wild.test", 443, false, REASON_HOST_NOT_LISTED, -1, false, false},
		{"", 443, false, REASON_HOST_NOT_LISTED, -1, false, false},
	};
	struct policy *p = fixture_policy(false, rules);

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct verdict v = policy_check_name(p, slice_str(cases[i].name), cases[i].port);

		assert_int_equal(v.allow, cases[i].allow);
		assert_int_equal(v.reason, cases[i].reason);
		assert_int_equal(v.rule, cases[i].rule);
		assert_int_equal(v.exact, cases[i].exact);
		assert_int_equal(v.names_port, cases[i].names_port);
	}
	policy_unref(p);
}

static void test_default_allow_lets_unlisted_names_go(void **state)
{
	struct policy *p = fixture_policy(true, "deny *.bad.test");
	struct verdict v = policy_check_name(p, SLICE("other.test"), 443);

	assert_true(v.allow);
	assert_int_equal(v.reason, REASON_ALLOWED_BY_DEFAULT);
	assert_int_equal(v.rule, POLICY_DEFAULT_RULE);
	assert_false(v.exact);
	assert_int_equal(policy_check_name(p, SLICE("x.bad.test"), 443).reason, REASON_DENIED);
	policy_unref(p);
}

struct addr_case {
	const char *addr;
	uint16_t port;
	bool allow;
	enum reason reason;
	int32_t rule;
};

static void check_addrs(
	bool default_allow, const char *rules, const struct addr_case *cases, size_t n)
{
	struct policy *p = fixture_policy(default_allow, rules);

	for (size_t i = 0; i < n; i++) {
		struct netaddr a = fixture_addr(cases[i].addr);
		struct verdict v = policy_check_addr(p, &a, cases[i].port);

		if (v.allow != cases[i].allow || v.reason != cases[i].reason ||
			v.rule != cases[i].rule)
			fail_msg("%s port %u: %s by rule %d", cases[i].addr, cases[i].port,
				reason_name(v.reason), v.rule);
	}
	policy_unref(p);
}

static void test_literal_address_needs_an_address_rule(void **state)
{
	static const struct addr_case cases[] = {
		{"10.77.0.2", 8081, true, REASON_ALLOWED, 1},
		{"10.77.0.3", 8081, false, REASON_ADDRESS_NOT_LISTED, -1},
		{"172.17.0.1", 80, false, REASON_ADDRESS_NOT_LISTED, -1},
		{"192.168.0.1", 80, false, REASON_ADDRESS_NOT_LISTED, -1},
		{"169.254.169.254", 80, false, REASON_ADDRESS_NOT_LISTED, -1},
		{"fd00:ec2::254", 80, false, REASON_ADDRESS_NOT_LISTED, -1},
		{"100.100.100.200", 80, false, REASON_ADDRESS_NOT_LISTED, -1},
		{"11.22.0.10", 443, false, REASON_ADDRESS_NOT_LISTED, -1},
		{"::ffff:10.77.0.2", 8081, true, REASON_ALLOWED, 1},
		{"64:ff9b::a4d:2", 8081, true, REASON_ALLOWED, 1},
		{"64:ff9b::a4d:3", 8081, false, REASON_ADDRESS_NOT_LISTED, -1},
		{"2002:a4d:2::", 8081, true, REASON_ALLOWED, 1},
		{"::10.77.0.2", 8081, true, REASON_ALLOWED, 1},
		{"::ffff:0:a4d:2", 8081, true, REASON_ALLOWED, 1},
		/* Teredo: 10.77.0.2 is the NAT in front, XORed. */
		{"2001::f5b2:fffd", 8081, false, REASON_ADDRESS_NOT_LISTED, -1},
	};

	check_addrs(false, "allow read.test; allow 10.77.0.2", cases, ARRAY_LEN(cases));
}

static void test_default_allow_opens_no_special_address(void **state)
{
	static const struct addr_case cases[] = {
		{"11.22.0.10", 443, true, REASON_ALLOWED_BY_DEFAULT, -1},
		{"10.0.0.1", 443, true, REASON_ALLOWED_BY_DEFAULT, -1},
		{"127.0.0.1", 80, true, REASON_ALLOWED, 0},
		{"127.0.0.2", 80, false, REASON_ADDRESS_NOT_LISTED, -1},
		{"::1", 80, false, REASON_ADDRESS_NOT_LISTED, -1},
		{"169.254.169.254", 80, false, REASON_ADDRESS_NOT_LISTED, -1},
		{"168.63.129.16", 80, false, REASON_ADDRESS_NOT_LISTED, -1},
		{"100.64.0.1", 80, false, REASON_ADDRESS_NOT_LISTED, -1},
		{"224.0.0.1", 80, false, REASON_ADDRESS_NOT_LISTED, -1},
		{"0.0.0.0", 80, false, REASON_ADDRESS_NOT_LISTED, -1},
		{"::", 80, false, REASON_ADDRESS_NOT_LISTED, -1},
		{"255.255.255.255", 80, false, REASON_ADDRESS_NOT_LISTED, -1},
		{"64:ff9b::7f00:2", 80, false, REASON_ADDRESS_NOT_LISTED, -1},
		{"11.22.0.66", 443, false, REASON_DENIED, 1},
		{"64:ff9b::b16:42", 443, false, REASON_DENIED, 1},
		{"2002:b16:42::1", 443, false, REASON_DENIED, 1},
		{"2001::f4e9:ffbd", 443, false, REASON_DENIED, 1},
	};

	check_addrs(true, "allow 127.0.0.1; deny 11.22.0.66", cases, ARRAY_LEN(cases));
}

static void test_ports_scope_address_rules(void **state)
{
	static const struct addr_case cases[] = {
		{"10.0.0.1", 8081, true, REASON_ALLOWED, 0},
		{"10.0.0.1", 8082, false, REASON_ADDRESS_NOT_LISTED, -1},
		{"10.0.0.1", 0, true, REASON_ALLOWED, 0},
		{"11.22.0.10", 9000, true, REASON_ALLOWED, 1},
		{"2a0e:77::10", 9000, true, REASON_ALLOWED, 1},
		{"10.0.0.1", 9000, true, REASON_ALLOWED, 1},
		{"11.22.0.10", 25, false, REASON_DENIED, 2},
		{"10.0.0.1", 25, false, REASON_DENIED, 2},
		/* A rule for ports alone says no address. */
		{"169.254.169.254", 9000, false, REASON_ADDRESS_NOT_LISTED, -1},
		{"127.0.0.1", 9000, false, REASON_ADDRESS_NOT_LISTED, -1},
	};

	check_addrs(false, "allow 10.0.0.0/8 8081; allow - 9000; deny - 25; allow 10.0.0.1 25",
		cases, ARRAY_LEN(cases));
}

static void test_address_verdict_names_its_port(void **state)
{
	struct policy *p = fixture_policy(false, "allow 10.0.0.1 8081; allow 10.0.0.2");
	struct netaddr with = fixture_addr("10.0.0.1");
	struct netaddr without = fixture_addr("10.0.0.2");

	assert_true(policy_check_addr(p, &with, 8081).names_port);
	assert_true(policy_check_addr(p, &with, 8081).exact);
	assert_false(policy_check_addr(p, &without, 8081).names_port);
	policy_unref(p);
}

static void test_answers_are_judged_by_class_and_kind_of_rule(void **state)
{
	static const char rules[] = "allow exact.test; allow *.wild.test; allow *.cluster.local; "
				    "allow 10.77.0.2; deny 11.22.0.66; allow 127.0.0.5; "
				    "allow - 9000; allow node";
	static const struct {
		const char *name;
		const char *addr;
		uint16_t port;
		bool allow;
	} cases[] = {
		{"exact.test", "11.22.0.10", 443, true},
		{"exact.test", "10.0.0.9", 443, true},
		{"exact.test", "fd00::1", 443, true},
		{"exact.test", "11.22.0.66", 443, false},
		{"exact.test", "64:ff9b::b16:42", 443, false},
		{"exact.test", "127.0.0.1", 443, false},
		{"exact.test", "127.0.0.5", 443, true},
		{"exact.test", "169.254.169.254", 443, false},
		{"exact.test", "100.64.0.1", 443, false},
		{"exact.test", "0.0.0.0", 443, false},
		{"exact.test", "::1", 443, false},
		{"exact.test", "fd00:ec2::254", 443, false},
		{"exact.test", "fec0::1", 443, false},
		{"a.wild.test", "11.22.0.10", 443, true},
		{"a.wild.test", "198.18.0.1", 443, true},
		{"a.wild.test", "10.77.0.3", 443, false},
		{"a.wild.test", "::ffff:10.77.0.3", 443, false},
		{"a.wild.test", "64:ff9b::a4d:3", 443, false},
		{"a.wild.test", "10.77.0.2", 443, true},
		{"a.wild.test", "10.77.0.3", 9000, false},
		{"a.wild.test", "fd00::1", 443, false},
		{"a.wild.test", "127.0.0.1", 443, false},
		{"db.cluster.local", "10.0.0.9", 443, true},
		{"db.cluster.local", "127.0.0.1", 443, false},
		{"node", "192.168.3.4", 443, true},
		{"node", "169.254.1.1", 443, false},
	};
	struct policy *p = fixture_policy(false, rules);

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct slice name = slice_str(cases[i].name);
		struct verdict by = policy_check_name(p, name, cases[i].port);
		struct netaddr a = fixture_addr(cases[i].addr);
		struct verdict v = policy_check_answer(p, &private, name, &by, &a, cases[i].port);

		assert_true(by.allow);
		if (v.allow != cases[i].allow)
			fail_msg("%s at %s", cases[i].name, cases[i].addr);
		assert_int_equal(v.reason, v.allow ? REASON_ALLOWED : REASON_ADDRESS_REFUSED);
	}
	policy_unref(p);
}

static void test_answer_of_a_default_name_may_not_be_private(void **state)
{
	struct policy *p = fixture_policy(true, "");
	struct verdict by = policy_check_name(p, SLICE("any.test"), 443);
	struct netaddr inside = fixture_addr("10.0.0.1");
	struct netaddr outside = fixture_addr("11.22.0.10");

	assert_false(policy_check_answer(p, &private, SLICE("any.test"), &by, &inside, 443).allow);
	assert_true(policy_check_answer(p, &private, SLICE("any.test"), &by, &outside, 443).allow);
	policy_unref(p);
}

static void test_answer_of_a_denied_name_stays_denied(void **state)
{
	struct policy *p = fixture_policy(false, "allow 11.22.0.10; deny bad.test");
	struct verdict by = policy_check_name(p, SLICE("bad.test"), 443);
	struct netaddr a = fixture_addr("11.22.0.10");
	struct verdict v = policy_check_answer(p, &private, SLICE("bad.test"), &by, &a, 443);

	assert_false(v.allow);
	assert_int_equal(v.reason, REASON_DENIED);
	policy_unref(p);
}

static void test_refused_answer_names_the_denying_rule(void **state)
{
	struct policy *p = fixture_policy(false, "allow a.test; deny 11.22.0.0/24");
	struct verdict by = policy_check_name(p, SLICE("a.test"), 443);
	struct netaddr denied = fixture_addr("11.22.0.10");
	struct netaddr special = fixture_addr("127.0.0.1");

	assert_int_equal(
		policy_check_answer(p, &private, SLICE("a.test"), &by, &denied, 443).rule, 1);
	assert_int_equal(
		policy_check_answer(p, &private, SLICE("a.test"), &by, &special, 443).rule, 0);
	policy_unref(p);
}

static void test_private_names_are_suffixes_and_single_labels(void **state)
{
	static const struct private_names none = {NULL, 0};

	assert_true(private_names_has(&private, SLICE("a.b.cluster.local")));
	assert_true(private_names_has(&private, SLICE("cluster.local")));
	assert_true(private_names_has(&private, SLICE("nas.home.arpa")));
	assert_true(private_names_has(&private, SLICE("redis")));
	assert_true(private_names_has(&none, SLICE("redis")));
	assert_false(private_names_has(&private, SLICE("xcluster.local")));
	assert_false(private_names_has(&private, SLICE("cluster.local.test")));
	assert_false(private_names_has(&none, SLICE("a.cluster.local")));
	assert_false(private_names_has(&private, SLICE("")));
}

static void test_address_rules_allow_and_deny_wins(void **state)
{
	static const struct {
		const char *addr;
		uint16_t port;
		bool want;
	} cases[] = {
		{"10.0.0.1", 443, true},
		{"10.0.0.66", 443, false},
		{"11.22.0.10", 443, false},
		{"11.22.0.10", 9000, false},
		{"192.168.0.1", 9000, false},
		{"10.0.0.66", 9000, false},
		{"127.0.0.1", 9000, false},
		{"127.0.0.5", 443, true},
	};
	struct policy *p = fixture_policy(
		true, "allow 10.0.0.0/8; deny 10.0.0.66; allow - 9000; allow 127.0.0.5");

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct netaddr a = fixture_addr(cases[i].addr);

		assert_int_equal(policy_addr_rule_allows(p, &a, cases[i].port), cases[i].want);
	}
	policy_unref(p);
}

static void test_closed_policy_allows_nothing_and_says_why(void **state)
{
	static const char *const addrs[] = {"192.0.2.1", "10.0.0.1", "127.0.0.1", "2001:db8::1"};
	struct policy *p = policy_new_closed();
	char text[RULE_TEXT_MAX];

	assert_int_equal(policy_check_name(p, SLICE("a.test"), 443).reason, REASON_SANDBOX_CLOSED);
	assert_false(policy_check_name(p, SLICE("a.test"), 443).allow);
	for (size_t i = 0; i < ARRAY_LEN(addrs); i++) {
		struct netaddr a;

		assert_true(netaddr_parse(slice_str(addrs[i]), &a));
		assert_int_equal(policy_check_addr(p, &a, 443).reason, REASON_SANDBOX_CLOSED);
		assert_false(policy_check_addr(p, &a, 443).allow);
		assert_false(policy_addr_rule_allows(p, &a, 443));
	}
	assert_false(policy_default_allow(p));
	policy_rule_text(p, POLICY_DEFAULT_RULE, text);
	assert_string_equal(text, "lifecycle: deny");
	policy_unref(p);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_name_verdict_says_rule_reason_and_facts),
		cmocka_unit_test(test_default_allow_lets_unlisted_names_go),
		cmocka_unit_test(test_literal_address_needs_an_address_rule),
		cmocka_unit_test(test_default_allow_opens_no_special_address),
		cmocka_unit_test(test_ports_scope_address_rules),
		cmocka_unit_test(test_address_verdict_names_its_port),
		cmocka_unit_test(test_answers_are_judged_by_class_and_kind_of_rule),
		cmocka_unit_test(test_answer_of_a_default_name_may_not_be_private),
		cmocka_unit_test(test_answer_of_a_denied_name_stays_denied),
		cmocka_unit_test(test_refused_answer_names_the_denying_rule),
		cmocka_unit_test(test_private_names_are_suffixes_and_single_labels),
		cmocka_unit_test(test_address_rules_allow_and_deny_wins),
		cmocka_unit_test(test_closed_policy_allows_nothing_and_says_why),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
