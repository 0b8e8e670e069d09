/* A policy under the operator's ceiling: decisions ask both, and what cannot count is refused when
 * it is written. */
#include "policy/ceiling.h"

#include "policy/check.h"
#include "policy/policy_merge.h"
#include "tests/unit/policy/fixture.h"

static const struct rule_list none = {.v = NULL};

/* Texts as fixture_policy takes them; a `+` in front: the default action is allow. */
static struct policy *policy_of(const char *text)
{
	return text[0] == '+' ? fixture_policy(true, text + 1) : fixture_policy(false, text);
}

static struct policy *under(const char *user, const char *ceiling)
{
	struct policy *u = policy_of(user);
	struct policy *c = policy_of(ceiling);
	struct policy *p = policy_merge_always(u, &none, &none, c);

	policy_unref(u);
	policy_unref(c);
	return p;
}

#define OPEN "+deny bad.test; deny 10.0.0.0/8"
#define SHUT "allow a.test; allow *.b.test; deny x.b.test; allow 10.1.0.0/16; allow c.test 443,8443"

static void test_both_have_to_allow_a_target(void **state)
{
	static const struct {
		const char *user, *ceiling, *target;
		uint16_t port;
		const char *by; /* NULL: it is allowed */
	} rows[] = {
		{"+", SHUT, "a.test", 443, NULL},
		{"+", SHUT, "other.test", 443, "ceiling: default action: deny"},
		{"+", SHUT, "y.b.test", 443, NULL},
		{"+", SHUT, "b.test", 443, "ceiling: default action: deny"},
		{"allow *.test", SHUT, "y.b.test", 443, NULL},
		{"allow *.b.test", "deny x.b.test; allow *.b.test", "x.b.test", 443,
			"ceiling: rule 1: deny x.b.test"},
		{"deny y.b.test", SHUT, "y.b.test", 443, "rule 1: deny y.b.test"},
		{"", SHUT, "a.test", 443, "default action: deny"},
		{"allow c.test", SHUT, "c.test", 443, NULL},
		{"allow c.test", SHUT, "c.test", 0, NULL},
		{"allow c.test", SHUT, "c.test", 80, "ceiling: default action: deny"},
		{"allow c.test 80,8443", SHUT, "c.test", 8443, NULL},
		{"allow c.test 80,8443", SHUT, "c.test", 443, "default action: deny"},
		{"allow 0.0.0.0/0", SHUT, "10.1.2.3", 443, NULL},
		{"allow 0.0.0.0/0", SHUT, "10.2.2.3", 443, "ceiling: default action: deny"},
		{"+", SHUT, "10.1.2.3", 443, NULL},
		{"deny 10.1.2.3", SHUT, "10.1.2.3", 443, "rule 1: deny 10.1.2.3"},
		{"+", OPEN, "bad.test", 443, "ceiling: rule 1: deny bad.test"},
		{"allow bad.test", OPEN, "bad.test", 443, "ceiling: rule 1: deny bad.test"},
		{"allow 10.0.0.0/8", OPEN, "10.1.2.3", 443, "ceiling: rule 2: deny 10.0.0.0/8"},
		{"+", OPEN, "good.test", 443, NULL},
		{"", OPEN, "good.test", 443, "default action: deny"},
		{"allow 169.254.169.254", OPEN, "169.254.169.254", 80,
			"ceiling: default action: allow"},
		{"allow 169.254.169.254", "+allow 169.254.0.0/16", "169.254.169.254", 80, NULL},
		{"allow - 25", OPEN, "1.1.1.1", 25, NULL},
		{"allow - 25", SHUT, "1.1.1.1", 25, "ceiling: default action: deny"},
		{"allow - 25", "allow - 25", "1.1.1.1", 25, NULL},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct slice target = slice_str(rows[i].target);
		struct policy *p = under(rows[i].user, rows[i].ceiling);
		char text[RULE_TEXT_MAX] = "";
		struct netaddr a;
		struct verdict v = netaddr_parse(target, &a)
			? policy_check_addr(p, &a, rows[i].port)
			: policy_check_name(p, target, rows[i].port);

		(void)policy_rule_text(p, v.rule, text);
		if (v.allow != !rows[i].by || (rows[i].by && strcmp(text, rows[i].by) != 0))
			fail_msg("row %zu: %d by %s", i, v.allow, text);
		if (rows[i].by && strncmp(rows[i].by, "ceiling", 7) == 0)
			assert_int_equal(v.reason, REASON_ABOVE_CEILING);
		policy_unref(p);
	}
}

static void test_both_have_to_allow_an_address_of_a_name(void **state)
{
	static const struct private_names private = {.n = 0};
	static const struct {
		const char *user, *ceiling, *name, *addr;
		bool want;
	} rows[] = {
		{"allow a.test", SHUT, "a.test", "1.1.1.1", true},
		{"allow a.test", SHUT, "a.test", "192.168.1.1", true},
		/* only a wildcard of the ceiling: the address has to be allowed itself */
		{"allow y.b.test", SHUT, "y.b.test", "192.168.1.1", false},
		{"allow y.b.test", SHUT, "y.b.test", "10.1.2.3", true},
		{"allow y.b.test", SHUT, "y.b.test", "10.2.2.3", false},
		{"allow *.b.test; allow 10.1.2.0/24", SHUT, "y.b.test", "10.1.2.3", true},
		{"allow *.b.test", SHUT, "y.b.test", "10.1.2.3", false},
		/* a ceiling of denials has no exact rules */
		{"allow a.test", OPEN, "a.test", "192.168.1.1", true},
		{"allow a.test", OPEN, "a.test", "10.1.2.3", false},
		{"allow *.test", OPEN, "a.test", "192.168.1.1", false},
		{"allow a.test; allow 169.254.0.0/16", OPEN, "a.test", "169.254.169.254", false},
		{"allow a.test; allow 169.254.0.0/16", "+allow 169.254.169.254", "a.test",
			"169.254.169.254", true},
		{"allow a.test", "+allow 169.254.169.254", "a.test", "169.254.169.254", false},
		{"allow z.test", SHUT, "z.test", "1.1.1.1", false},
		{"allow a.test; deny 1.1.1.1", SHUT, "a.test", "1.1.1.1", false},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct policy *p = under(rows[i].user, rows[i].ceiling);
		struct netaddr a = fixture_addr(rows[i].addr);
		struct slice name = slice_str(rows[i].name);
		struct verdict by = policy_check_name(p, name, 443);

		if (policy_check_answer(p, &private, name, &by, &a, 443).allow != rows[i].want)
			fail_msg("row %zu", i);
		policy_unref(p);
	}
}

/* Of a verdict that was made for another port than the connection's. */
static void test_answer_for_a_port_that_the_ceiling_has_not(void **state)
{
	static const struct private_names private = {.n = 0};
	struct policy *p = under("allow c.test", SHUT);
	struct netaddr a = fixture_addr("10.1.2.3"); /* which the ceiling allows by itself */
	struct verdict by = policy_check_name(p, SLICE("c.test"), 0);

	assert_true(by.allow);
	assert_true(policy_check_answer(p, &private, SLICE("c.test"), &by, &a, 443).allow);
	assert_false(policy_check_answer(p, &private, SLICE("c.test"), &by, &a, 80).allow);
	policy_unref(p);
}

static void test_what_an_exact_rule_opens_needs_an_exact_ceiling(void **state)
{
	static const struct {
		const char *user, *ceiling, *name;
		bool want;
	} rows[] = {
		{"allow a.test", SHUT, "a.test", true},
		{"allow y.b.test", SHUT, "y.b.test", false},
		{"allow a.test", OPEN, "a.test", true},
		{"allow *.b.test", SHUT, "y.b.test", false},
		{"allow *.test", "allow a.test", "a.test", false},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct policy *p = under(rows[i].user, rows[i].ceiling);
		struct verdict v = policy_check_name(p, slice_str(rows[i].name), 0);

		assert_true(v.allow);
		if (policy_is_exact(p, slice_str(rows[i].name), &v) != rows[i].want)
			fail_msg("row %zu", i);
		policy_unref(p);
	}
}

static void test_names_that_either_denies_by_rule(void **state)
{
	struct policy *p = under("allow a.test; deny d.test", SHUT "; deny e.test");

	assert_true(policy_denies_name(p, SLICE("d.test")));
	assert_true(policy_denies_name(p, SLICE("e.test")));
	assert_true(policy_denies_name(p, SLICE("x.b.test")) ==
		policy_denies_name(policy_ceiling(p), SLICE("x.b.test")));
	assert_false(policy_denies_name(p, SLICE("a.test")));
	assert_false(policy_denies_name(p, SLICE("nobody.test")));
	policy_unref(p);
}

static void test_writes_to_private_addresses_need_both(void **state)
{
	struct policy *p = under("allow 10.0.0.0/8", SHUT);
	struct netaddr in = fixture_addr("10.1.2.3");
	struct netaddr out = fixture_addr("10.2.2.3");

	assert_true(policy_addr_rule_allows(p, &in, 443));
	assert_false(policy_addr_rule_allows(p, &out, 443));
	policy_unref(p);
}

static void test_default_action_is_of_both(void **state)
{
	static const struct {
		const char *user, *ceiling;
		bool want;
	} rows[] = {{"+", "+", true}, {"+", "", false}, {"", "+", false}, {"", "", false}};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct policy *p = under(rows[i].user, rows[i].ceiling);

		assert_int_equal(policy_default_allow(p), rows[i].want);
		assert_int_equal(policy_default_alone(p), rows[i].user[0] == '+');
		policy_unref(p);
	}
}

/* The operator's own allow.always is no way round it either. */
static void test_operators_allowances_are_under_it(void **state)
{
	struct rule_list allow = {.v = NULL};
	struct rule r = fixture_rule(SLICE("allow z.test"));
	struct policy *u = policy_of("");
	struct policy *c = policy_of(SHUT);
	struct policy *p;

	rule_list_add(&allow, &r);
	p = policy_merge_always(u, &none, &allow, c);
	assert_int_equal(policy_check_name(p, SLICE("z.test"), 443).reason, REASON_ABOVE_CEILING);
	assert_ptr_equal(policy_ceiling(p), c);
	assert_null(policy_ceiling(u));
	policy_unref(p);
	policy_unref(u);
	policy_unref(c);
	rule_list_fini(&allow);
}

static void test_what_cannot_count_is_refused_with_both_rules(void **state)
{
	static const struct {
		const char *user, *ceiling, *before;
		const char *want; /* NULL: it is let through */
	} rows[] = {
		{"allow a.test; allow y.b.test; allow *.y.b.test; deny z.test", SHUT, NULL, NULL},
		{"allow z.test", SHUT, NULL,
			"rule 1: allow z.test: above the operator's ceiling (default action: "
			"deny)"},
		{"allow a.test; allow x.c.test", "allow a.test; deny x.c.test", NULL,
			"rule 2: allow x.c.test: above the operator's ceiling (rule 2: deny "
			"x.c.test)"},
		{"allow *.a.test", SHUT, NULL,
			"rule 1: allow *.a.test: above the operator's ceiling (default action: "
			"deny)"},
		{"allow *.test", SHUT, NULL,
			"rule 1: allow *.test: above the operator's ceiling (default action: "
			"deny)"},
		{"allow *.b.test", SHUT, NULL, NULL}, /* x.b.test stays denied */
		{"+", SHUT, NULL,
			"default action: allow: above the operator's ceiling (default action: "
			"deny)"},
		{"+", OPEN, NULL, NULL},
		{"allow bad.test", OPEN, NULL,
			"rule 1: allow bad.test: above the operator's ceiling (rule 1: deny "
			"bad.test)"},
		{"allow c.test", SHUT, NULL, NULL},
		{"allow c.test 443", SHUT, NULL, NULL},
		{"allow c.test 80,443", SHUT, NULL,
			"rule 1: allow c.test ports 80,443: above the operator's ceiling (default "
			"action: deny)"},
		{"allow 10.1.2.0/24; allow 10.1.2.3", SHUT, NULL, NULL},
		{"allow 10.0.0.0/8", SHUT, NULL,
			"rule 1: allow 10.0.0.0/8: above the operator's ceiling (default action: "
			"deny)"},
		{"allow 10.1.2.3", OPEN, NULL,
			"rule 1: allow 10.1.2.3: above the operator's ceiling (rule 2: deny "
			"10.0.0.0/8)"},
		{"allow 1.0.0.0/8; allow 0.0.0.0/0; allow ::/0", OPEN, NULL, NULL},
		{"allow 169.254.0.0/16", OPEN, NULL,
			"rule 1: allow 169.254.0.0/16: above the operator's ceiling (default "
			"action: allow)"},
		{"allow 10.1.2.3 80", "allow 10.0.0.0/8 443", NULL,
			"rule 1: allow 10.1.2.3 ports 80: above the operator's ceiling (default "
			"action: deny)"},
		{"allow 10.1.2.3 443; allow 10.1.2.3", "allow 10.0.0.0/8 443", NULL, NULL},
		{"allow 10.1.2.3", "allow 10.0.0.0/8; deny 10.1.0.0/16 25", NULL, NULL},
		{"allow 10.1.2.3 25", "allow 10.0.0.0/8; deny 10.1.0.0/16 25", NULL,
			"rule 1: allow 10.1.2.3 ports 25: above the operator's ceiling (rule 2: "
			"deny 10.1.0.0/16 ports 25)"},
		{"allow - 25", OPEN, NULL, NULL},
		{"allow - 25", SHUT, NULL,
			"rule 1: allow ports 25: above the operator's ceiling (default action: "
			"deny)"},
		{"allow - 25", "+deny - 25", NULL,
			"rule 1: allow ports 25: above the operator's ceiling (rule 1: deny ports "
			"25)"},
		/* what was there before is no reason to refuse the next change */
		{"allow z.test; allow a.test", SHUT, "allow z.test", NULL},
		{"+", SHUT, "+", NULL},
		{"allow z.test", SHUT, "+", "rule 1: allow z.test: "},
		{"allow z.test 443", SHUT, "allow z.test", "rule 1: allow z.test ports 443: "},
		{"allow 10.3.0.0/16", SHUT, "allow 10.4.0.0/16", "rule 1: allow 10.3.0.0/16: "},
		{"allow z.test", SHUT, "deny z.test", "rule 1: allow z.test: "},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct policy *u = policy_of(rows[i].user);
		struct policy *c = policy_of(rows[i].ceiling);
		struct policy *before = rows[i].before ? policy_of(rows[i].before) : NULL;
		struct errmsg msg = {""};
		int ret = ceiling_check(c, u, before, &msg);

		if (ret != (rows[i].want ? E_VALUE : 0) ||
			(rows[i].want &&
				strncmp(msg.text, rows[i].want, strlen(rows[i].want)) != 0))
			fail_msg("row %zu: %d %s", i, ret, msg.text);
		policy_unref(u);
		policy_unref(c);
		policy_unref(before);
	}
}

static void test_without_a_ceiling_nothing_is_refused(void **state)
{
	struct policy *u = policy_of("+allow 0.0.0.0/0");
	struct policy *p = policy_merge_always(u, &none, &none, NULL);
	struct errmsg msg = {""};

	assert_int_equal(ceiling_check(NULL, u, NULL, &msg), 0);
	assert_ptr_equal(p, u);
	policy_unref(p);
	policy_unref(u);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_both_have_to_allow_a_target),
		cmocka_unit_test(test_both_have_to_allow_an_address_of_a_name),
		cmocka_unit_test(test_answer_for_a_port_that_the_ceiling_has_not),
		cmocka_unit_test(test_what_an_exact_rule_opens_needs_an_exact_ceiling),
		cmocka_unit_test(test_names_that_either_denies_by_rule),
		cmocka_unit_test(test_writes_to_private_addresses_need_both),
		cmocka_unit_test(test_default_action_is_of_both),
		cmocka_unit_test(test_operators_allowances_are_under_it),
		cmocka_unit_test(test_what_cannot_count_is_refused_with_both_rules),
		cmocka_unit_test(test_without_a_ceiling_nothing_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
