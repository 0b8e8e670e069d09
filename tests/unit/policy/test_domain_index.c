/* The index answers as a scan of the list does: cases by hand, all orders of an overlapping four,
 * and random rule sets against a linear oracle. */
#include "policy/domain_index.h"

#include "tests/unit/policy/fixture.h"

#define RANDOM_SETS 10000
#define RANDOM_RULES_MAX 12

/* What reference section 4 says, word for word. */
static bool oracle_matches(const struct rule *r, struct slice name, uint16_t port)
{
	struct slice target;
	bool listed = r->n_ports == 0 || (port == 0 && r->allow);

	if (r->kind != RULE_NAME && r->kind != RULE_WILDCARD)
		return false;
	for (size_t i = 0; i < r->n_ports; i++)
		if (r->ports[i] == port)
			listed = true;
	target = slice_str(r->target);
	if (r->kind == RULE_NAME)
		return listed && slice_eq(name, target);
	return listed && name.len > target.len && slice_ends(name, target) &&
		name.p[name.len - target.len - 1] == '.';
}

static int32_t oracle_find(const struct rule *rules, size_t n, struct slice name, uint16_t port)
{
	for (size_t i = 0; i < n; i++)
		if (oracle_matches(&rules[i], name, port))
			return (int32_t)i;
	return RULE_NONE;
}

static int32_t find_in(const char *text, const char *name, uint16_t port)
{
	struct policy *p = fixture_policy(false, text);
	struct domain_index *ix =
		domain_index_new(policy_n_rules(p) ? policy_rule(p, 0) : NULL, policy_n_rules(p));
	int32_t found = domain_index_find(ix, slice_str(name), port);

	domain_index_free(ix);
	policy_unref(p);
	return found;
}

static void test_wildcard_matches_below_and_nothing_else(void **state)
{
	static const struct {
		const char *name;
		int32_t want;
	} cases[] = {
		{"wild.test", RULE_NONE},
		{"a.wild.test", 0},
		{"a.b.c.wild.test", 0},
		{"notwild.test", RULE_NONE},
		{"xwild.test", RULE_NONE},
		{"wild.test.deny.test", RULE_NONE},
		{"a.wild.test.deny.test", RULE_NONE},
		{"read.test", 1},
		{"read.test.deny.test", RULE_NONE},
		{"wwwread.test", RULE_NONE},
		{"www.read.test", RULE_NONE},
		{"test", RULE_NONE},
		{"", RULE_NONE},
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		assert_int_equal(find_in("allow *.wild.test; allow read.test", cases[i].name, 443),
			cases[i].want);
}

static void test_first_in_the_list_wins(void **state)
{
	static const char ports[] =
		"allow a.test 443; deny a.test 443,80; allow *.test; deny a.test";

	assert_int_equal(find_in("allow *.b.test; deny a.b.test", "a.b.test", 443), 0);
	assert_int_equal(find_in("deny a.b.test; allow *.b.test", "a.b.test", 443), 0);
	assert_int_equal(find_in("allow *.test; deny *.b.test", "a.b.test", 443), 0);
	assert_int_equal(find_in("allow a.test; deny a.test", "a.test", 443), 0);
	assert_int_equal(find_in("allow 10.0.0.1; allow - 443; deny a.test", "a.test", 443), 2);
	assert_int_equal(find_in(ports, "a.test", 443), 0);
	assert_int_equal(find_in(ports, "a.test", 80), 1);
	assert_int_equal(find_in(ports, "a.test", 22), 2);
	assert_int_equal(find_in("", "a.test", 443), RULE_NONE);
}

static void test_port_zero_asks_for_any_port(void **state)
{
	assert_int_equal(find_in("allow a.test 8443", "a.test", 0), 0);
	assert_int_equal(find_in("deny a.test 8443", "a.test", 0), RULE_NONE);
	assert_int_equal(find_in("deny a.test 25; allow a.test", "a.test", 0), 1);
	assert_int_equal(find_in("deny a.test; allow a.test 443", "a.test", 0), 0);
}

static void test_all_orders_of_overlapping_rules_equal_the_scan(void **state)
{
	static const char *const texts[] = {"allow *.wild.test", "deny bad.wild.test",
		"allow x.bad.wild.test", "deny *.bad.wild.test"};
	static const char *const names[] = {
		"a.wild.test", "bad.wild.test", "x.bad.wild.test", "y.bad.wild.test", "wild.test"};
	size_t orders = 0;

	for (size_t code = 0; code < 256; code++) {
		size_t at[] = {code & 3, code >> 2 & 3, code >> 4 & 3, code >> 6};
		struct rule rules[4];
		struct domain_index *ix;

		if ((BIT(at[0]) | BIT(at[1]) | BIT(at[2]) | BIT(at[3])) != 15)
			continue;
		orders++;
		for (size_t i = 0; i < 4; i++)
			rules[i] = fixture_rule(slice_str(texts[at[i]]));
		ix = domain_index_new(rules, 4);
		for (size_t i = 0; i < ARRAY_LEN(names); i++)
			assert_int_equal(domain_index_find(ix, slice_str(names[i]), 443),
				oracle_find(rules, 4, slice_str(names[i]), 443));
		domain_index_free(ix);
		for (size_t i = 0; i < 4; i++)
			rule_fini(&rules[i]);
	}
	assert_int_equal(orders, 24);
}

/* Few labels and few ports, so that rules overlap and repeat. */
static size_t random_name(uint64_t *seed, char buf[64])
{
	static const char *const labels[] = {"a", "b", "aa"};
	size_t n = 1 + fixture_random(seed, 3);
	size_t len = 0;

	for (size_t i = 0; i < n; i++)
		len += (size_t)snprintf(buf + len, 64 - len, "%s%s", i ? "." : "",
			labels[fixture_random(seed, ARRAY_LEN(labels))]);
	return len;
}

static struct rule random_rule(uint64_t *seed)
{
	static const char *const ports[] = {"", "", "", " 80", " 443", " 80,443", " 25,80"};
	char name[64];
	char text[100];

	random_name(seed, name);
	(void)snprintf(text, sizeof(text), "%s %s%s%s", fixture_random(seed, 2) ? "allow" : "deny",
		fixture_random(seed, 2) ? "*." : "", name,
		ports[fixture_random(seed, ARRAY_LEN(ports))]);
	if (fixture_random(seed, 8) == 0)
		(void)snprintf(text, sizeof(text), "deny 10.0.0.0/8");
	return fixture_rule(slice_str(text));
}

static void test_random_rule_sets_equal_the_scan(void **state)
{
	static const uint16_t ports[] = {0, 25, 80, 443, 8080};
	uint64_t seed = 0x5eed0001;
	size_t hits = 0;

	for (size_t set = 0; set < RANDOM_SETS; set++) {
		struct rule rules[RANDOM_RULES_MAX];
		size_t n = fixture_random(&seed, RANDOM_RULES_MAX + 1);
		struct domain_index *ix;

		for (size_t i = 0; i < n; i++)
			rules[i] = random_rule(&seed);
		ix = domain_index_new(rules, n);
		for (size_t ask = 0; ask < 8; ask++) {
			char buf[64];
			struct slice name = slice_make(buf, random_name(&seed, buf));
			uint16_t port = ports[fixture_random(&seed, ARRAY_LEN(ports))];
			int32_t want = oracle_find(rules, n, name, port);

			assert_int_equal(domain_index_find(ix, name, port), want);
			hits += want != RULE_NONE;
		}
		domain_index_free(ix);
		for (size_t i = 0; i < n; i++)
			rule_fini(&rules[i]);
	}
	assert_in_range(hits, RANDOM_SETS, 7 * RANDOM_SETS);
}

static void test_many_rules_for_one_name_keep_the_first_per_port(void **state)
{
	enum { N = 5000 };
	struct rule *rules = xcalloc(N, sizeof(*rules));
	struct domain_index *ix;

	for (size_t i = 0; i < N; i++) {
		char text[40];

		(void)snprintf(text, sizeof(text), "allow a.test %zu", 1 + i % 1000);
		rules[i] = fixture_rule(slice_str(text));
	}
	ix = domain_index_new(rules, N);
	assert_int_equal(domain_index_find(ix, SLICE("a.test"), 1), 0);
	assert_int_equal(domain_index_find(ix, SLICE("a.test"), 1000), 999);
	assert_int_equal(domain_index_find(ix, SLICE("a.test"), 1001), RULE_NONE);
	domain_index_free(ix);
	for (size_t i = 0; i < N; i++)
		rule_fini(&rules[i]);
	free(rules);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_wildcard_matches_below_and_nothing_else),
		cmocka_unit_test(test_first_in_the_list_wins),
		cmocka_unit_test(test_port_zero_asks_for_any_port),
		cmocka_unit_test(test_all_orders_of_overlapping_rules_equal_the_scan),
		cmocka_unit_test(test_random_rule_sets_equal_the_scan),
		cmocka_unit_test(test_many_rules_for_one_name_keep_the_first_per_port),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
