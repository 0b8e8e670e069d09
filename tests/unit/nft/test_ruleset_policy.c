/* A policy as address ranges, and against policy_check_addr, which decides for the proxy: what the
 * kernel lets out directly must never be what the policy denies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/strbuf.h"
#include "nft/ruleset.h"
#include "policy/check.h"
#include "policy/policy_merge.h"

#define TEXT_MAX (1u << 20)

struct row {
	const char *action;
	const char *target;
	uint16_t ports[4];
	size_t n_ports;
};

static struct policy *policy_of(const struct row *rows, size_t n, bool default_allow)
{
	struct rule *rules = xcalloc(n + 1, sizeof(*rules));
	struct errmsg msg;

	for (size_t i = 0; i < n; i++)
		assert_int_equal(rule_make(slice_str(rows[i].action), slice_str(rows[i].target),
					 rows[i].n_ports ? rows[i].ports : NULL, rows[i].n_ports,
					 &rules[i], &msg),
			0);
	return policy_new(default_allow, rules, n);
}

static struct ruleset ruleset_of(
	const struct row *rows, size_t n, bool default_allow, const struct ruleset_lists *lists)
{
	const struct ruleset_options o = {0};
	const struct ruleset_lists none = {0};
	struct policy *p = policy_of(rows, n, default_allow);
	struct errmsg msg;
	struct ruleset r;

	ruleset_init(&r, &o);
	assert_int_equal(ruleset_from_policy(&r, p, lists ? lists : &none, &msg), 0);
	policy_unref(p);
	for (size_t i = 0; i < r.n; i++)
		assert_true(ruleset_entry_valid(&r.entry[i]));
	return r;
}

/* "lo-hi/proto:ports lo-hi ..." of one kind and family. */
static void ruleset_text(
	const struct ruleset *r, enum ruleset_kind kind, bool v4, struct strbuf *out)
{
	char lo[NETADDR_TEXT_MAX];
	char hi[NETADDR_TEXT_MAX];

	strbuf_clear(out);
	for (size_t i = 0; i < r->n; i++) {
		const struct ruleset_entry *e = &r->entry[i];

		if (e->kind != (uint8_t)kind || netaddr_is_v4(&e->lo) != v4)
			continue;
		(void)netaddr_text(&e->lo, lo);
		(void)netaddr_text(&e->hi, hi);
		if (out->len > 0)
			strbuf_char(out, ' ');
		strbuf_str(out, lo);
		if (!netaddr_eq(&e->lo, &e->hi))
			strbuf_printf(out, "-%s", hi);
		if (e->proto)
			strbuf_printf(out, "/%u", e->proto);
		if (e->port_lo > 0 || e->port_hi < UINT16_MAX)
			strbuf_printf(out, ":%u-%u", e->port_lo, e->port_hi);
	}
}

static void expect(const struct ruleset *r, enum ruleset_kind kind, bool v4, const char *should)
{
	struct strbuf text;

	strbuf_init(&text, TEXT_MAX);
	ruleset_text(r, kind, v4, &text);
	assert_string_equal(strbuf_cstr(&text), should);
	strbuf_fini(&text);
}

#define SPECIAL_V4                                                        \
	"0.0.0.0-0.255.255.255 100.64.0.0-100.127.255.255 168.63.129.16 " \
	"169.254.0.0-169.254.255.255 192.0.0.0-192.0.0.255 224.0.0.0-255.255.255.255"

static void test_special_addresses_are_denied_unless_named(void **state)
{
	static const struct row named[] = {
		{"allow", "169.254.169.254", {80}, 1}, {"allow", "100.64.0.0/10", {0}, 0}};
	struct ruleset r = ruleset_of(NULL, 0, false, NULL);

	expect(&r, RULESET_DENY, true, SPECIAL_V4);
	expect(&r, RULESET_ALLOW, true, "");
	ruleset_fini(&r);
	r = ruleset_of(named, ARRAY_LEN(named), true, NULL);
	assert_true(r.options.accept_rest);
	expect(&r, RULESET_DENY, true,
		"0.0.0.0-0.255.255.255 168.63.129.16 169.254.0.0-169.254.169.253 "
		"169.254.169.255-169.254.255.255 192.0.0.0-192.0.0.255 "
		"224.0.0.0-255.255.255.255");
	expect(&r, RULESET_ALLOW, true, "100.64.0.0-100.127.255.255 169.254.169.254/6:80-80");
	ruleset_fini(&r);
}

static void test_overlapping_ranges_are_merged(void **state)
{
	static const struct row rows[] = {
		{"allow", "11.0.0.0/8", {0}, 0},
		{"allow", "11.1.0.0/16", {0}, 0},
		{"allow", "12.0.0.0/8", {0}, 0},
		{"allow", "14.0.0.1", {0}, 0},
		{"allow", "14.0.0.1", {443}, 1},
		{"allow", "*.example.test", {0}, 0},
	};
	struct ruleset r = ruleset_of(rows, ARRAY_LEN(rows), false, NULL);

	expect(&r, RULESET_ALLOW, true, "11.0.0.0-12.255.255.255 14.0.0.1 14.0.0.1/6:443-443");
	expect(&r, RULESET_ALLOW, false,
		"64:ff9b::b00:0-64:ff9b::cff:ffff 64:ff9b::e00:1 64:ff9b::e00:1/6:443-443");
	ruleset_fini(&r);
}

static void test_ports_of_a_rule(void **state)
{
	static const struct row rows[] = {
		{"allow", "2001:db8::/32", {80, 81, 82, 90}, 4},
		{"deny", "2001:db8::1", {80, 443}, 2},
		{"allow", "", {8080}, 1},
	};
	struct ruleset r = ruleset_of(rows, ARRAY_LEN(rows), false, NULL);
	struct strbuf text;

	expect(&r, RULESET_ALLOW, true,
		"1.0.0.0-100.63.255.255/6:8080-8080 100.128.0.0-168.63.129.15/6:8080-8080 "
		"168.63.129.17-169.253.255.255/6:8080-8080 "
		"169.255.0.0-191.255.255.255/6:8080-8080 192.0.1.0-223.255.255.255/6:8080-8080");
	strbuf_init(&text, TEXT_MAX);
	ruleset_text(&r, RULESET_ALLOW, false, &text);
	assert_true(slice_starts(strbuf_slice(&text),
		SLICE("2001:db8::-2001:db8:ffff:ffff:ffff:ffff:ffff:ffff/6:80-82 "
		      "2001:db8::-2001:db8:ffff:ffff:ffff:ffff:ffff:ffff/6:90-90 ")));
	/* Of every protocol: a deny may be wider, not narrower. */
	ruleset_text(&r, RULESET_DENY, false, &text);
	assert_true(
		slice_ends(strbuf_slice(&text), SLICE(" 2001:db8::1:80-80 2001:db8::1:443-443")));
	strbuf_fini(&text);
	ruleset_fini(&r);
}

static void test_a_block_that_ends_at_the_last_address(void **state)
{
	static const struct row rows[] = {{"allow", "255.255.255.255", {0}, 0},
		{"allow", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", {0}, 0},
		{"allow", "255.255.255.254", {0}, 0}, {"allow", "::/0", {0}, 0}};
	struct ruleset r = ruleset_of(rows, ARRAY_LEN(rows), false, NULL);

	expect(&r, RULESET_ALLOW, true, "255.255.255.254-255.255.255.255");
	expect(&r, RULESET_ALLOW, false, "::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff");
	expect(&r, RULESET_DENY, false, "");
	ruleset_fini(&r);
}

static void test_lists_become_entries(void **state)
{
	static const uint16_t inspected[] = {80, 443};
	static const uint16_t inbound[] = {8080};
	static const struct netcidr doh[] = {{{{[10] = 0xff, [11] = 0xff, 8, 8, 8, 0}}, 120}};
	static const struct netaddr exempt[] = {{{0x20, 0x01, [15] = 1}}};
	static const struct ruleset_resolver resolvers[] = {
		{{{[10] = 0xff, [11] = 0xff, 1, 1, 1, 1}}, 5353}};
	const struct ruleset_lists lists = {.inspected = inspected,
		.n_inspected = 2,
		.inbound = inbound,
		.n_inbound = 1,
		.doh = doh,
		.n_doh = 1,
		.exempt = exempt,
		.n_exempt = 1,
		.resolvers = resolvers,
		.n_resolvers = 1};
	struct ruleset r = ruleset_of(NULL, 0, false, &lists);

	expect(&r, RULESET_INSPECT, false, ":::80-80 :::443-443");
	expect(&r, RULESET_INBOUND, false, ":::8080-8080");
	expect(&r, RULESET_DOH, true, "8.8.8.0-8.8.8.255");
	expect(&r, RULESET_EXEMPT, false, "2001::1");
	expect(&r, RULESET_RESOLVER, true, "1.1.1.1:5353-5353");
	ruleset_fini(&r);
}

static void test_a_port_zero_in_a_list_is_refused(void **state)
{
	static const uint16_t zero[] = {0};
	const struct ruleset_lists lists = {.inspected = zero, .n_inspected = 1};
	const struct ruleset_options o = {0};
	struct policy *p = policy_of(NULL, 0, false);
	struct errmsg msg;
	struct ruleset r;

	ruleset_init(&r, &o);
	assert_int_equal(ruleset_from_policy(&r, p, &lists, &msg), E_VALUE);
	ruleset_fini(&r);
	policy_unref(p);
}

static bool kernel_has(
	const struct ruleset *r, enum ruleset_kind kind, const struct netaddr *a, uint16_t port)
{
	for (size_t i = 0; i < r->n; i++) {
		const struct ruleset_entry *e = &r->entry[i];

		if (e->kind == (uint8_t)kind && netaddr_is_v4(&e->lo) == netaddr_is_v4(a) &&
			memcmp(e->lo.b, a->b, 16) <= 0 && memcmp(a->b, e->hi.b, 16) <= 0 &&
			e->port_lo <= port && port <= e->port_hi)
			return true;
	}
	return false;
}

static const char *const targets[] = {"10.0.0.0/8", "10.1.0.0/16", "10.1.2.3", "169.254.0.0/16",
	"169.254.169.254", "0.0.0.0/0", "192.168.0.0/16", "224.0.0.1", "100.64.1.1", "1.1.1.1",
	"::/0", "2001:db8::/32", "64:ff9b::/96", "64:ff9b::10.1.2.3", "2002::/16", "fe80::1",
	"fd00:ec2::254", "fd00::/8", "::ffff:0:1.1.1.1", "2001::/32", ""};
static const char *const addresses[] = {"10.0.0.1", "10.1.2.3", "10.1.255.255", "10.2.0.0",
	"9.255.255.255", "11.0.0.0", "169.254.169.254", "169.254.0.1", "192.168.1.1", "224.0.0.1",
	"100.64.1.1", "1.1.1.1", "255.255.255.255", "0.0.0.1", "168.63.129.16", "240.0.0.1",
	"2001:db8::1", "64:ff9b::10.1.2.3", "64:ff9b::1.1.1.1", "64:ff9b::169.254.169.254",
	"2002:0a01:0203::1", "2002:0101:0101::", "fe80::1", "fec0::1", "fd00:ec2::254",
	"fd20:ce::254", "fd00:c1::a9fe:a9fe", "fd00:42::42", "fd00::1", "::ffff:0:1.1.1.1",
	"::1.1.1.1", "2001::5", "ff02::1", "64:ff9b:1::1", "2a00::1",
	"2002:7f00:1::", "64:ff9b::c0a8:101"};

static void oracle_row(const struct ruleset *r, const struct policy *p, unsigned seed)
{
	static const uint16_t ports[] = {22, 80, 443, 8080};

	for (size_t i = 0; i < ARRAY_LEN(addresses); i++) {
		struct netaddr a;

		assert_true(netaddr_parse(slice_str(addresses[i]), &a));
		for (size_t k = 0; k < ARRAY_LEN(ports); k++) {
			const bool allow = policy_check_addr(p, &a, ports[k]).allow;
			const bool out = !kernel_has(r, RULESET_DENY, &a, ports[k]) &&
				(kernel_has(r, RULESET_ALLOW, &a, ports[k]) ||
					(r->options.accept_rest &&
						!kernel_has(r, RULESET_SPECIAL, &a, ports[k])));

			if (out && !allow)
				fail_msg("seed %u: %s port %u leaves, but is not allowed", seed,
					addresses[i], ports[k]);
			/* And for plain addresses the other way round. */
			if (allow && !out && netaddr_is_v4(&a))
				fail_msg("seed %u: %s port %u is allowed, but does not leave", seed,
					addresses[i], ports[k]);
		}
	}
}

static void test_random_policies_never_let_out_what_is_denied(void **state)
{
	for (unsigned seed = 1; seed <= 3000; seed++) {
		struct row rows[6];
		const size_t n = 1 + seed % 6;
		unsigned x = seed * 2654435761u;
		struct policy *p;
		struct ruleset r;

		for (size_t i = 0; i < n; i++) {
			x = x * 1103515245u + 12345u;
			rows[i] = (struct row){.action = (x >> 9) % 3 ? "allow" : "deny",
				.target = targets[(x >> 12) % ARRAY_LEN(targets)],
				.ports = {80, 443, 8080},
				.n_ports = (x >> 20) % 4};
			if (rows[i].target[0] == '\0' && rows[i].n_ports == 0)
				rows[i].n_ports = 1;
		}
		p = policy_of(rows, n, seed % 5 == 0);
		r = ruleset_of(rows, n, seed % 5 == 0, NULL);
		oracle_row(&r, p, seed);
		ruleset_fini(&r);
		policy_unref(p);
	}
}

static size_t random_rows(unsigned seed, struct row *rows)
{
	const size_t n = seed % 5;
	unsigned x = seed * 2654435761u;

	for (size_t i = 0; i < n; i++) {
		x = x * 1103515245u + 12345u;
		rows[i] = (struct row){.action = (x >> 9) % 3 ? "allow" : "deny",
			.target = targets[(x >> 12) % ARRAY_LEN(targets)],
			.ports = {80, 443, 8080},
			.n_ports = (x >> 20) % 4};
		if (rows[i].target[0] == '\0' && rows[i].n_ports == 0)
			rows[i].n_ports = 1;
	}
	return n;
}

static void test_nothing_leaves_that_the_ceiling_does_not_allow(void **state)
{
	const struct ruleset_options o = {0};
	const struct ruleset_lists lists = {0};
	const struct rule_list none = {.v = NULL};
	struct errmsg msg;

	for (unsigned seed = 1; seed <= 1500; seed++) {
		struct row rows[6];
		struct policy *user = policy_of(rows, random_rows(seed, rows), seed % 3 == 0);
		struct policy *ceiling =
			policy_of(rows, random_rows(seed ^ 0x5555u, rows), seed % 4 == 0);
		struct policy *p = policy_merge_always(user, &none, &none, ceiling);
		struct ruleset r;

		ruleset_init(&r, &o);
		assert_int_equal(ruleset_from_policy(&r, p, &lists, &msg), 0);
		oracle_row(&r, p, seed);
		for (size_t i = 0; i < r.n; i++)
			assert_true(ruleset_entry_valid(&r.entry[i]));
		ruleset_fini(&r);
		policy_unref(p);
		policy_unref(user);
		policy_unref(ceiling);
	}
}

/* Our own sockets do not reach it either. */
static void test_special_address_that_only_the_policy_names_is_denied(void **state)
{
	static const struct row rows[] = {{"allow", "169.254.169.254", {0}, 0}};
	static const bool named[] = {false, true};
	const struct ruleset_options o = {0};
	const struct ruleset_lists lists = {0};
	const struct rule_list none = {.v = NULL};
	struct netaddr a;
	struct errmsg msg;

	assert_true(netaddr_parse(SLICE("169.254.169.254"), &a));
	for (size_t i = 0; i < ARRAY_LEN(named); i++) {
		struct policy *user = policy_of(rows, 1, false);
		struct policy *ceiling = policy_of(rows, named[i] ? 1 : 0, true);
		struct policy *p = policy_merge_always(user, &none, &none, ceiling);
		struct ruleset r;

		ruleset_init(&r, &o);
		assert_int_equal(ruleset_from_policy(&r, p, &lists, &msg), 0);
		assert_int_equal(kernel_has(&r, RULESET_DENY, &a, 80), !named[i]);
		assert_int_equal(kernel_has(&r, RULESET_ALLOW, &a, 80), named[i]);
		ruleset_fini(&r);
		policy_unref(p);
		policy_unref(user);
		policy_unref(ceiling);
	}
}

/* The first n_deny rows become the operator's denials, the next n_allow what they always allow. */
static struct policy *policy_always_of(
	struct row *rows, size_t n, size_t n_deny, size_t n_allow, bool default_allow)
{
	struct rule *rules = xcalloc(n, sizeof(*rules));
	struct errmsg msg;

	for (size_t i = 0; i < n; i++) {
		if (i < n_deny + n_allow) {
			rows[i].action = i < n_deny ? "deny" : "allow";
			rows[i].n_ports = 0;
			if (rows[i].target[0] == '\0')
				rows[i].target = "1.1.1.1";
		}
		assert_int_equal(rule_make(slice_str(rows[i].action), slice_str(rows[i].target),
					 rows[i].n_ports ? rows[i].ports : NULL, rows[i].n_ports,
					 &rules[i], &msg),
			0);
	}
	return policy_new_always(default_allow, rules, n, n_deny, n_allow);
}

static void test_the_operators_rules_count_before_the_others(void **state)
{
	const struct ruleset_options o = {0};
	const struct ruleset_lists none = {0};
	struct errmsg msg;

	for (unsigned seed = 1; seed <= 3000; seed++) {
		struct row rows[6];
		const size_t n = 2 + seed % 5;
		const size_t n_deny = seed % 2;
		unsigned x = seed * 2654435761u;
		struct policy *p;
		struct ruleset r;

		for (size_t i = 0; i < n; i++) {
			x = x * 1103515245u + 12345u;
			rows[i] = (struct row){.action = (x >> 9) % 3 ? "deny" : "allow",
				.target = targets[(x >> 12) % ARRAY_LEN(targets)],
				.ports = {80, 443, 8080},
				.n_ports = (x >> 20) % 4};
			if (rows[i].target[0] == '\0' && rows[i].n_ports == 0)
				rows[i].n_ports = 1;
		}
		p = policy_always_of(rows, n, n_deny, 1, seed % 5 == 0);
		ruleset_init(&r, &o);
		assert_int_equal(ruleset_from_policy(&r, p, &none, &msg), 0);
		oracle_row(&r, p, seed);
		ruleset_fini(&r);
		policy_unref(p);
	}
}

static void test_too_many_entries_are_refused_with_a_reason(void **state)
{
	const size_t n = 4096;
	struct rule *rules = xcalloc(n, sizeof(*rules));
	const struct ruleset_options o = {0};
	const struct ruleset_lists none = {0};
	uint16_t ports[64];
	struct errmsg msg;
	struct ruleset r;
	struct policy *p;

	for (size_t i = 0; i < ARRAY_LEN(ports); i++)
		ports[i] = (uint16_t)(1 + 2 * i);
	for (size_t i = 0; i < n; i++) {
		char target[32];

		(void)snprintf(target, sizeof(target), "20.%zu.%zu.1", i >> 8, i & 255);
		assert_int_equal(rule_make(SLICE("allow"), slice_str(target), ports,
					 ARRAY_LEN(ports), &rules[i], &msg),
			0);
	}
	p = policy_new(false, rules, n);
	ruleset_init(&r, &o);
	assert_int_equal(ruleset_from_policy(&r, p, &none, &msg), E_LIMIT);
	assert_non_null(strstr(msg.text, "65536"));
	ruleset_fini(&r);
	policy_unref(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_special_addresses_are_denied_unless_named),
		cmocka_unit_test(test_overlapping_ranges_are_merged),
		cmocka_unit_test(test_ports_of_a_rule),
		cmocka_unit_test(test_a_block_that_ends_at_the_last_address),
		cmocka_unit_test(test_lists_become_entries),
		cmocka_unit_test(test_a_port_zero_in_a_list_is_refused),
		cmocka_unit_test(test_random_policies_never_let_out_what_is_denied),
		cmocka_unit_test(test_nothing_leaves_that_the_ceiling_does_not_allow),
		cmocka_unit_test(test_special_address_that_only_the_policy_names_is_denied),
		cmocka_unit_test(test_the_operators_rules_count_before_the_others),
		cmocka_unit_test(test_too_many_entries_are_refused_with_a_reason),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
