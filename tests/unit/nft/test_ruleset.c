/* Which entries and options the kernel's side takes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "nft/ruleset.h"

#define V4(a, b, c, d)                                               \
	{                                                            \
		{                                                    \
			[10] = 0xff, [11] = 0xff, (a), (b), (c), (d) \
		}                                                    \
	}
#define A V4(10, 0, 0, 1)
#define B V4(10, 0, 0, 2)
#define V6                                     \
	{                                      \
		{                              \
			0x20, 0x01, 0x0d, 0xb8 \
		}                              \
	}

static void test_entries_of_each_kind(void **state)
{
	static const struct {
		struct ruleset_entry e;
		bool good;
	} rows[] = {
		{{A, B, RULESET_ALLOW, 0, 0, 65535, 0, 0}, true},
		{{B, A, RULESET_ALLOW, 0, 0, 65535, 0, 0}, false},
		{{A, V6, RULESET_ALLOW, 0, 0, 65535, 0, 0}, false},
		{{V6, V6, RULESET_DENY, IPPROTO_UDP, 53, 54, 0, 0}, true},
		{{A, B, RULESET_DENY, IPPROTO_ICMP, 0, 65535, 0, 0}, false},
		{{A, B, RULESET_DENY, 0, 54, 53, 0, 0}, false},
		{{A, B, RULESET_DENY, 0, 0, 65535, 1, 0}, false},
		{{A, B, RULESET_DENY, 0, 0, 65535, 0, 1}, false},
		{{A, B, RULESET_KIND_MAX, 0, 0, 65535, 0, 0}, false},
		{{A, B, RULESET_DOH, 0, 0, 65535, 0, 0}, true},
		{{A, A, RULESET_LEASE, 0, 0, 0, 0, 60}, true},
		{{A, A, RULESET_LEASE, 0, 0, 0, 0, 0}, false},
		{{A, A, RULESET_LEASE, 0, 0, 0, 0, 86400}, true},
		{{A, A, RULESET_LEASE, 0, 0, 0, 0, 86401}, false},
		{{A, B, RULESET_LEASE, 0, 0, 0, 0, 60}, false},
		{{A, A, RULESET_LEASE, 0, 0, 1, 0, 60}, false},
		{{A, A, RULESET_LEASE, IPPROTO_TCP, 0, 0, 0, 60}, false},
		{{A, A, RULESET_LEASE, IPPROTO_TCP, 9, 9, 0, 60}, true},
		{{A, A, RULESET_RESOLVER, 0, 53, 53, 0, 0}, true},
		{{A, A, RULESET_RESOLVER, 0, 0, 0, 0, 0}, false},
		{{A, A, RULESET_RESOLVER, 0, 53, 54, 0, 0}, false},
		{{A, B, RULESET_RESOLVER, 0, 53, 53, 0, 0}, false},
		{{A, A, RULESET_EXEMPT, 0, 0, 65535, 0, 0}, true},
		{{A, B, RULESET_EXEMPT, 0, 0, 65535, 0, 0}, false},
		{{V6, V6, RULESET_INSPECT, 0, 1, 1, 0, 0}, true},
		{{V6, V6, RULESET_INSPECT, 0, 0, 1, 0, 0}, false},
		{{V6, V6, RULESET_INBOUND, 0, 1, 65535, 0, 0}, true},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		if (ruleset_entry_valid(&rows[i].e) != rows[i].good)
			fail_msg("row %zu", i);
	}
}

static void test_options(void **state)
{
	const struct ruleset_options good = {
		.uid = 10042, .api_port = 1, .web_port = 2, .dns_port = 3, .enforce = 1};
	struct ruleset_options o = good;

	assert_true(ruleset_options_valid(&o));
#define BAD(field, value)                                \
	do {                                             \
		o = good;                                \
		o.field = (value);                       \
		assert_false(ruleset_options_valid(&o)); \
	} while (0)
	BAD(uid, 0);
	BAD(cgroup_id, 1);
	BAD(cgroup_level, 256);
	BAD(api_port, 0);
	BAD(web_port, 0);
	BAD(dns_port, 0);
	BAD(enforce, 2);
	BAD(read_only, 2);
	BAD(accept_rest, 2);
	BAD(redirect_dns, 2);
	BAD(redirect_web, 2);
	BAD(doh_block, 2);
	BAD(inbound_all, 2);
	BAD(log, 2);
	BAD(zero[0], 1);
	BAD(hold, 2);
	o = good;
	o.read_only = 1;
	assert_true(ruleset_options_valid(&o));
	o.enforce = 0;
	assert_false(ruleset_options_valid(&o));
}

static void test_a_ruleset_has_a_ceiling(void **state)
{
	const struct ruleset_options o = {0};
	const struct ruleset_entry e = {.port_hi = UINT16_MAX};
	struct ruleset r;

	ruleset_init(&r, &o);
	for (size_t i = 0; i < RULESET_ENTRIES_MAX; i++)
		assert_int_equal(ruleset_add(&r, &e), 0);
	assert_int_equal(ruleset_add(&r, &e), E_LIMIT);
	assert_int_equal(r.n, RULESET_ENTRIES_MAX);
	ruleset_fini(&r);
	ruleset_fini(&r);
}

static void test_a_lease_is_checked_before_it_is_added(void **state)
{
	const struct ruleset_options o = {0};
	const struct netaddr a = A;
	struct ruleset r;

	ruleset_init(&r, &o);
	assert_int_equal(ruleset_add_lease(&r, &a, 0, 0, 60), 0);
	assert_int_equal(ruleset_add_lease(&r, &a, IPPROTO_TCP, 443, 60), 0);
	assert_int_equal(ruleset_add_lease(&r, &a, IPPROTO_TCP, 0, 60), E_VALUE);
	assert_int_equal(ruleset_add_lease(&r, &a, 0, 0, 0), E_VALUE);
	assert_int_equal(r.n, 2);
	assert_int_equal(r.entry[1].port_hi, 443);
	ruleset_fini(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_entries_of_each_kind),
		cmocka_unit_test(test_options),
		cmocka_unit_test(test_a_ruleset_has_a_ceiling),
		cmocka_unit_test(test_a_lease_is_checked_before_it_is_added),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
