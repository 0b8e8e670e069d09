/* What the resolver keeps: order of addresses, ceilings, time, static names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/strbuf.h"
#include "dns/addr_cache.h"
#include "dns/resolver.h"

static struct netaddr addr_of(const char *text)
{
	struct netaddr a;

	assert_true(netaddr_parse(slice_str(text), &a));
	return a;
}

static void check_addrs(const struct addr_entry *e, const char *want)
{
	char text[NETADDR_TEXT_MAX];
	struct strbuf got;
	size_t i;

	strbuf_init(&got, 4096);
	for (i = 0; i < e->n; i++) {
		netaddr_text(&e->addrs[i], text);
		strbuf_printf(&got, "%s%s", i > 0 ? " " : "", text);
	}
	assert_string_equal(strbuf_cstr(&got), want);
	strbuf_fini(&got);
}

static void test_families_alternate_without_doubles(void **state)
{
	static const struct {
		bool v6_first;
		const char *in, *want;
	} rows[] = {
		{false, "", ""},
		{false, "1.0.0.1 2::1", "1.0.0.1 2::1"},
		{true, "1.0.0.1 2::1", "2::1 1.0.0.1"},
		{true, "1.0.0.1", "1.0.0.1"},
		{false, "2::1", "2::1"},
		{true, "1.0.0.1 1.0.0.2 1.0.0.3 2::1", "2::1 1.0.0.1 1.0.0.2 1.0.0.3"},
		{false, "2::1 2::2 2::3 1.0.0.1", "1.0.0.1 2::1 2::2 2::3"},
		{true, "1.0.0.2 1.0.0.1 2::2 2::1", "2::2 1.0.0.2 2::1 1.0.0.1"},
		{true, "1.0.0.1 2::1 1.0.0.1 2::1 1.0.0.2", "2::1 1.0.0.1 1.0.0.2"},
	};
	struct netaddr addrs[8];
	struct addr_entry *e;
	struct slice rest;
	size_t i, n;

	for (i = 0; i < ARRAY_LEN(rows); i++) {
		rest = slice_str(rows[i].in);
		for (n = 0; rest.p && rest.len > 0; n++)
			assert_true(netaddr_parse(slice_cut(&rest, ' '), &addrs[n]));
		e = addr_entry_new(0, addrs, n, rows[i].v6_first);
		check_addrs(e, rows[i].want);
		addr_entry_unref(e);
	}
}

static void test_32_addresses_are_kept_of_more(void **state)
{
	struct netaddr addrs[2 * RESOLVER_ADDRS_MAX + 2];
	struct addr_entry *e;
	size_t n = RESOLVER_ADDRS_MAX + 1;
	size_t i;

	for (i = 0; i < n; i++) {
		addrs[i] = addr_of("1.0.0.0");
		addrs[i].b[15] = (uint8_t)i;
		addrs[n + i] = addr_of("2::");
		addrs[n + i].b[15] = (uint8_t)i;
	}
	e = addr_entry_new(0, addrs, RESOLVER_ADDRS_MAX, false);
	assert_int_equal(e->n, RESOLVER_ADDRS_MAX);
	addr_entry_unref(e);
	e = addr_entry_new(0, addrs, n, false);
	assert_int_equal(e->n, RESOLVER_ADDRS_MAX);
	addr_entry_unref(e);
	e = addr_entry_new(0, addrs, 2 * n, true);
	assert_int_equal(e->n, RESOLVER_ADDRS_MAX);
	assert_false(netaddr_is_v4(&e->addrs[0]));
	assert_true(netaddr_is_v4(&e->addrs[RESOLVER_ADDRS_MAX - 1]));
	addr_entry_unref(e);
}

/* Puts a one-address answer that ends at expires_ms. */
static void put(struct addr_cache *c, struct slice name, const char *addr, uint64_t expires_ms)
{
	struct netaddr a = addr_of(addr);
	struct addr_entry *e = addr_entry_new(0, &a, 1, false);

	e->expires_ms = expires_ms;
	addr_cache_put(c, name, e);
	addr_entry_unref(e);
}

static void test_answer_is_found_until_its_last_millisecond(void **state)
{
	struct addr_cache *c = addr_cache_new();

	clock_fake(5000000, 1);
	put(c, SLICE("a.test"), "1.0.0.1", 6000);
	assert_non_null(addr_cache_find(c, SLICE("a.test")));
	assert_null(addr_cache_find(c, SLICE("b.test")));
	clock_fake(5999999, 1);
	assert_non_null(addr_cache_find(c, SLICE("a.test")));
	clock_fake(6000000, 1);
	assert_null(addr_cache_find(c, SLICE("a.test")));
	assert_non_null(addr_cache_peek(c, SLICE("a.test")));
	addr_cache_free(c);
}

static void test_oldest_name_leaves_at_the_ceiling(void **state)
{
	struct addr_cache *c = addr_cache_new();
	struct strbuf name;
	size_t i;

	clock_fake(1000, 1);
	strbuf_init(&name, 64);
	for (i = 0; i <= RESOLVER_CACHE_MAX; i++) {
		if (i == RESOLVER_CACHE_MAX)
			assert_non_null(addr_cache_find(c, SLICE("n1.test")));
		strbuf_clear(&name);
		strbuf_printf(&name, "n%zu.test", i);
		put(c, strbuf_slice(&name), "1.0.0.1", 1000);
	}
	assert_null(addr_cache_find(c, SLICE("n0.test")));
	assert_non_null(addr_cache_find(c, SLICE("n1.test")));
	assert_non_null(addr_cache_find(c, SLICE("n2.test")));
	assert_non_null(addr_cache_find(c, strbuf_slice(&name)));
	strbuf_fini(&name);
	addr_cache_free(c);
}

static const char hosts_text[] = "# comment\n"
				 "127.0.0.1\tlocalhost  localhost.localdomain # loopback\r\n"
				 "::1 localhost ip6-localhost\n"
				 "\n"
				 "   10.0.0.5   DB.Internal. db\n"
				 "10.0.0.6 db\n"
				 "10.0.0.6 db\n"
				 "fe80::1%eth0 zoned\n"
				 "not-an-address x.test\n"
				 "10.0.0.7\n"
				 "10.0.0.8 bad..name w\xc3\xa4rme good.test #tail.test\n"
				 "2001:db8::9 last.test";

static void test_hosts_file_is_read_as_libc_reads_it(void **state)
{
	static const struct {
		const char *name, *want; /* NULL: not there */
	} rows[] = {
		{"localhost", "127.0.0.1 ::1"},
		{"localhost.localdomain", "127.0.0.1"},
		{"ip6-localhost", "::1"},
		{"db.internal", "10.0.0.5"},
		{"db", "10.0.0.5 10.0.0.6"},
		{"good.test", "10.0.0.8"},
		{"last.test", "2001:db8::9"},
		{"zoned", NULL},
		{"x.test", NULL},
		{"bad..name", NULL},
		{"tail.test", NULL},
		{"loopback", NULL},
	};
	struct addr_cache *c = addr_cache_new();
	struct addr_entry *e;
	size_t i;

	assert_int_equal(addr_cache_set_hosts(c, SLICE(hosts_text), false), 0);
	clock_fake(UINT64_MAX - 1000, 1);
	for (i = 0; i < ARRAY_LEN(rows); i++) {
		e = addr_cache_find(c, slice_str(rows[i].name));
		assert_int_equal(e != NULL, rows[i].want != NULL);
		if (e)
			check_addrs(e, rows[i].want);
	}
	addr_cache_free(c);
}

static void test_static_name_wins_over_answers_before_and_after(void **state)
{
	struct addr_cache *c = addr_cache_new();

	clock_fake(1000, 1);
	put(c, SLICE("a.test"), "1.0.0.1", 1000);
	assert_int_equal(addr_cache_set_hosts(c, SLICE("10.0.0.5 a.test"), false), 0);
	check_addrs(addr_cache_find(c, SLICE("a.test")), "10.0.0.5");
	put(c, SLICE("a.test"), "1.0.0.2", 1000);
	check_addrs(addr_cache_find(c, SLICE("a.test")), "10.0.0.5");
	assert_int_equal(addr_cache_set_hosts(c, SLICE("10.0.0.6 b.test"), false), 0);
	assert_null(addr_cache_find(c, SLICE("a.test")));
	check_addrs(addr_cache_find(c, SLICE("b.test")), "10.0.0.6");
	assert_int_equal(addr_cache_set_hosts(c, SLICE_EMPTY, false), 0);
	assert_null(addr_cache_find(c, SLICE("b.test")));
	addr_cache_free(c);
}

static void test_static_names_past_the_ceiling_are_counted_and_left_out(void **state)
{
	struct addr_cache *c = addr_cache_new();
	struct strbuf text;
	size_t i;

	strbuf_init(&text, 1 << 20);
	for (i = 0; i < 16384; i++)
		strbuf_printf(&text, "10.0.0.1 h%zu.test\n", i);
	assert_int_equal(addr_cache_set_hosts(c, strbuf_slice(&text), false), 0);
	strbuf_str(&text, "10.0.0.1 more.test\n10.0.0.2 h0.test\n");
	assert_int_equal(addr_cache_set_hosts(c, strbuf_slice(&text), false), 1);
	assert_null(addr_cache_find(c, SLICE("more.test")));
	check_addrs(addr_cache_find(c, SLICE("h0.test")), "10.0.0.1 10.0.0.2");
	strbuf_fini(&text);
	addr_cache_free(c);
}

static void test_sweep_drops_what_is_over_and_nothing_else(void **state)
{
	static const struct netaddr a = {{[10] = 0xff, 0xff, 1, 0, 0, 1}};
	struct addr_cache *c = addr_cache_new();
	static const char *const names[] = {"a.test", "b.test", "c.test"};
	struct addr_entry *e;
	size_t i;

	clock_fake(1000000, 1);
	for (i = 0; i < ARRAY_LEN(names); i++) {
		e = addr_entry_new(0, &a, 1, false);
		e->expires_ms = 1000 + i;
		(void)addr_cache_put(c, slice_str(names[i]), e);
		addr_entry_unref(e);
	}
	assert_int_equal(addr_cache_sweep(c), 2);
	assert_null(addr_cache_peek(c, SLICE("a.test")));
	assert_non_null(addr_cache_peek(c, SLICE("b.test")));
	clock_fake(2000000, 1);
	assert_int_equal(addr_cache_sweep(c), 0);
	addr_cache_free(c);
}

static struct addr_entry *put_one(
	struct addr_cache *c, const char *name, uint8_t last, uint64_t end_ms)
{
	const struct netaddr a = {{[10] = 0xff, 0xff, 1, 0, 0, last}};
	struct addr_entry *e = addr_entry_new(0, &a, 1, false);
	struct addr_entry *now;

	e->expires_ms = end_ms;
	now = addr_cache_put(c, slice_str(name), e);
	addr_entry_unref(e);
	return now;
}

static void test_what_is_held_is_a_copy_of_what_the_cache_keeps(void **state)
{
	struct addr_cache *c = addr_cache_new();
	struct addr_entry *held;
	uint64_t number;

	clock_fake(1000000, 1);
	held = addr_entry_ref(put_one(c, "a.test", 1, 2000));
	number = addr_cache_peek(c, SLICE("a.test"))->number;
	assert_ptr_not_equal(held, addr_cache_peek(c, SLICE("a.test")));
	(void)put_one(c, "a.test", 2, 3000);
	assert_true(addr_cache_peek(c, SLICE("a.test"))->number != number);
	assert_int_equal(held->addrs[0].b[15], 1);
	assert_int_equal(held->expires_ms, 2000);
	assert_ptr_equal(addr_entry_ref(held), held);
	assert_int_equal(held->refs, 2);
	addr_entry_unref(held);
	addr_cache_free(c);
	assert_int_equal(held->refs, 1);
	addr_entry_unref(held);
}

static void test_answers_that_stay_outlast_thousands_that_go(void **state)
{
	struct addr_cache *c = addr_cache_new();
	char name[32];
	unsigned i;

	for (i = 0; i < 3000; i++) {
		(void)snprintf(name, sizeof(name), "n%u.test", i);
		(void)put_one(c, name, (uint8_t)i, i % 30 == 0 ? 9000 : 2000);
	}
	clock_fake(2000000, 1);
	assert_int_equal(addr_cache_sweep(c), 100);
	for (i = 0; i < 3000; i++) {
		const struct addr_entry *e;

		(void)snprintf(name, sizeof(name), "n%u.test", i);
		e = addr_cache_find(c, slice_str(name));
		assert_int_equal(e != NULL, i % 30 == 0);
		assert_true(!e || e->addrs[0].b[15] == (uint8_t)i);
	}
	(void)put_one(c, "n0.test", 7, 9000);
	assert_int_equal(addr_cache_find(c, SLICE("n0.test"))->addrs[0].b[15], 7);
	addr_cache_free(c);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_families_alternate_without_doubles),
		cmocka_unit_test(test_sweep_drops_what_is_over_and_nothing_else),
		cmocka_unit_test(test_what_is_held_is_a_copy_of_what_the_cache_keeps),
		cmocka_unit_test(test_answers_that_stay_outlast_thousands_that_go),
		cmocka_unit_test(test_32_addresses_are_kept_of_more),
		cmocka_unit_test(test_answer_is_found_until_its_last_millisecond),
		cmocka_unit_test(test_oldest_name_leaves_at_the_ceiling),
		cmocka_unit_test(test_hosts_file_is_read_as_libc_reads_it),
		cmocka_unit_test(test_static_name_wins_over_answers_before_and_after),
		cmocka_unit_test(test_static_names_past_the_ceiling_are_counted_and_left_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
