/* The address index answers as a scan of the list does, and deny wins wherever it stands. */
#include "policy/addr_index.h"

#include "policy/check.h"
#include "tests/unit/policy/fixture.h"

#define RANDOM_SETS 10000
#define RANDOM_RULES_MAX 12

/* Bit by bit, on purpose another way than the code under test. */
static bool oracle_matches(const struct rule *r, const struct netaddr *a, uint16_t port)
{
	bool listed = r->n_ports == 0 || (port == 0 && r->allow);
	bool a_v4 = netaddr_is_v4(a);
	bool block_v4 = r->cidr.len >= 96 && netaddr_is_v4(&r->cidr.addr);

	for (size_t i = 0; i < r->n_ports; i++)
		if (r->ports[i] == port)
			listed = true;
	if (r->kind == RULE_ANY)
		return listed;
	if (r->kind != RULE_CIDR || a_v4 != block_v4)
		return false;
	for (unsigned bit = 0; bit < r->cidr.len; bit++)
		if ((a->b[bit / 8] ^ r->cidr.addr.b[bit / 8]) & (0x80 >> bit % 8))
			return false;
	return listed;
}

static struct addr_hit oracle_find(
	const struct rule *rules, size_t n, const struct netaddr *a, uint16_t port)
{
	struct addr_hit hit = {RULE_NONE, RULE_NONE, RULE_NONE};

	for (size_t i = 0; i < n; i++) {
		int32_t *first = !rules[i].allow    ? &hit.deny
			: rules[i].kind == RULE_ANY ? &hit.allow_any
						    : &hit.allow;

		if (*first == RULE_NONE && oracle_matches(&rules[i], a, port))
			*first = (int32_t)i;
	}
	return hit;
}

static void assert_hit_equal(struct addr_hit got, struct addr_hit want)
{
	assert_int_equal(got.deny, want.deny);
	assert_int_equal(got.allow, want.allow);
	assert_int_equal(got.allow_any, want.allow_any);
}

static void test_deny_inside_allow_wins_in_both_orders(void **state)
{
	static const char *const orders[] = {
		"deny 11.22.0.66; allow 11.22.0.0/24", "allow 11.22.0.0/24; deny 11.22.0.66"};

	for (size_t i = 0; i < ARRAY_LEN(orders); i++)
		for (int default_allow = 0; default_allow < 2; default_allow++) {
			struct policy *p = fixture_policy(default_allow, orders[i]);
			struct netaddr bad = fixture_addr("11.22.0.66");
			struct netaddr good = fixture_addr("11.22.0.65");

			assert_int_equal(policy_check_addr(p, &bad, 443).reason, REASON_DENIED);
			assert_true(policy_check_addr(p, &good, 443).allow);
			policy_unref(p);
		}
}

static void test_families_do_not_mix(void **state)
{
	static const struct {
		const char *rule;
		const char *addr;
		bool allow;
	} cases[] = {
		{"allow ::/0", "2a0e:77::10", true},
		{"allow ::/0", "11.22.0.10", false},
		{"allow 0.0.0.0/0", "11.22.0.10", true},
		{"allow 0.0.0.0/0", "2a0e:77::10", false},
		{"allow ::ffff:11.22.0.0/120", "11.22.0.10", true},
		{"allow 2a0e:77::10/127", "2a0e:77::11", true},
		{"allow 2a0e:77::10/127", "2a0e:77::12", false},
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct rule rule = fixture_rule(slice_str(cases[i].rule));
		struct addr_index *ix = addr_index_new(&rule, 1);
		struct netaddr a = fixture_addr(cases[i].addr);

		assert_int_equal(
			addr_index_find(ix, &a, 443).allow, cases[i].allow ? 0 : RULE_NONE);
		addr_index_free(ix);
		rule_fini(&rule);
	}
}

static struct netaddr random_addr(uint64_t *seed)
{
	static const char *const bases[] = {"10.0.0.0", "10.0.128.0", "11.22.0.0", "0.0.0.0",
		"2a0e:77::", "2a0e:77:8000::", "fd00::", "::"};
	struct netaddr a = fixture_addr(bases[fixture_random(seed, ARRAY_LEN(bases))]);

	a.b[15] |= (uint8_t)fixture_random(seed, 4);
	a.b[13] |= (uint8_t)(fixture_random(seed, 2) << 7);
	return a;
}

static struct rule random_rule(uint64_t *seed)
{
	static const char *const ports[] = {"", "", "", " 80", " 443", " 80,443", " 25,80"};
	static const uint8_t cuts[] = {0, 1, 2, 7, 8, 16, 24, 31, 32, 64, 97, 128};
	const char *action = fixture_random(seed, 3) ? "allow" : "deny";
	struct netaddr a = random_addr(seed);
	unsigned bits = netaddr_is_v4(&a) ? 32 : 128;
	unsigned cut = cuts[fixture_random(seed, ARRAY_LEN(cuts))];
	char addr[NETADDR_TEXT_MAX];
	char text[120];

	netaddr_text(&a, addr);
	(void)snprintf(text, sizeof(text), "%s %s/%u%s", action, addr,
		bits - (cut < bits ? cut : bits), ports[fixture_random(seed, ARRAY_LEN(ports))]);
	if (fixture_random(seed, 10) == 0)
		(void)snprintf(
			text, sizeof(text), "%s - %d", action, fixture_random(seed, 2) ? 80 : 443);
	if (fixture_random(seed, 10) == 0)
		(void)snprintf(text, sizeof(text), "%s a.test", action);
	return fixture_rule(slice_str(text));
}

static void test_random_rule_sets_equal_the_scan(void **state)
{
	static const uint16_t ports[] = {0, 25, 80, 443, 8080};
	uint64_t seed = 0x5eed0002;
	size_t hits = 0;

	for (size_t set = 0; set < RANDOM_SETS; set++) {
		struct rule rules[RANDOM_RULES_MAX];
		size_t n = fixture_random(&seed, RANDOM_RULES_MAX + 1);
		struct addr_index *ix;

		for (size_t i = 0; i < n; i++)
			rules[i] = random_rule(&seed);
		ix = addr_index_new(rules, n);
		for (size_t ask = 0; ask < 8; ask++) {
			struct netaddr a = random_addr(&seed);
			uint16_t port = ports[fixture_random(&seed, ARRAY_LEN(ports))];
			struct addr_hit want = oracle_find(rules, n, &a, port);

			assert_hit_equal(addr_index_find(ix, &a, port), want);
			hits += want.allow != RULE_NONE || want.deny != RULE_NONE;
		}
		addr_index_free(ix);
		for (size_t i = 0; i < n; i++)
			rule_fini(&rules[i]);
	}
	assert_in_range(hits, RANDOM_SETS, 7 * RANDOM_SETS);
}

static void test_every_prefix_length_is_found(void **state)
{
	struct netaddr a = fixture_addr("2a0e:77:1234:5678:9abc:def0:1234:5678");

	for (unsigned len = 0; len <= 128; len++) {
		struct rule rule = {.allow = true, .kind = RULE_CIDR};
		struct netaddr flipped = a;
		struct addr_index *ix;
		char text[NETADDR_TEXT_MAX + 4];
		size_t n = netaddr_text(&a, text);

		n += (size_t)snprintf(text + n, 5, "/%u", len);
		assert_true(netcidr_parse(slice_make(text, n), &rule.cidr));
		ix = addr_index_new(&rule, 1);
		assert_int_equal(addr_index_find(ix, &a, 443).allow, 0);
		if (len > 0) {
			flipped.b[(len - 1) / 8] ^= (uint8_t)(0x80 >> (len - 1) % 8);
			assert_int_equal(addr_index_find(ix, &flipped, 443).allow, RULE_NONE);
		}
		addr_index_free(ix);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_deny_inside_allow_wins_in_both_orders),
		cmocka_unit_test(test_families_do_not_mix),
		cmocka_unit_test(test_random_rule_sets_equal_the_scan),
		cmocka_unit_test(test_every_prefix_length_is_found),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
