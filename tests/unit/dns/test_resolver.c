/* Lookups from start to answer: families, time to live, sharing, cancelling, static names. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#include <event2/event.h>

#include "base/hostname.h"
#include "tests/unit/dns/fixture.h"

static void test_both_families_are_asked_and_alternate(void **state)
{
	struct fixture *f = *state;

	peer_script(&f->first, fixture_both, 1);
	check_lookup(f, "a.test", 0, "2::1 1.0.0.1 1.0.0.2");
	assert_int_equal(f->first.n_questions, 2);
	assert_int_equal(f->second.n_questions, 0);
	assert_string_equal(f->first.last_name, "a.test");
}

static void test_without_route_ipv6_is_neither_asked_nor_offered(void **state)
{
	struct fixture *f = *state;

	peer_script(&f->first, fixture_both, 1);
	check_lookup(f, "a.test", 0, "1.0.0.1 1.0.0.2");
	assert_int_equal(f->first.n_questions, 1);
	assert_int_equal(fixture_n_probes, 1);
	fixture_route_v6 = true;
	set_now(f, f->now_ms + 29999);
	check_lookup(f, "b.test", 0, "1.0.0.1 1.0.0.2");
	assert_int_equal(fixture_n_probes, 1);
	set_now(f, f->now_ms + 1);
	check_lookup(f, "c.test", 0, "2::1 1.0.0.1 1.0.0.2");
	assert_int_equal(fixture_n_probes, 2);
}

static void test_answer_is_kept_for_its_ttl_within_bounds(void **state)
{
	static const struct {
		uint32_t ttl, cname_ttl, kept_s;
	} rows[] = {
		{0, 0, RESOLVER_TTL_MIN_S},
		{1, 0, 1},
		{2, 0, 2},
		{299, 0, 299},
		{300, 0, RESOLVER_TTL_MAX_S},
		{301, 0, RESOLVER_TTL_MAX_S},
		{0x7fffffff, 0, RESOLVER_TTL_MAX_S},
		{0x80000000, 0, RESOLVER_TTL_MIN_S},
		{0xffffffff, 0, RESOLVER_TTL_MIN_S},
		{200, 100, 100},
		{100, 200, 100},
		{100, 0xffffffff, RESOLVER_TTL_MIN_S},
	};
	struct fixture *f = *state;
	struct peer_row row = {.name = "*", .act = PEER_ANSWER, .addrs = "1.0.0.1"};
	size_t i;

	for (i = 0; i < ARRAY_LEN(rows); i++) {
		row.ttl = rows[i].ttl;
		row.cname_ttl = rows[i].cname_ttl;
		row.cnames = rows[i].cname_ttl > 0 ? "b.test c.test" : NULL;
		peer_script(&f->first, &row, 1);
		check_lookup(f, "a.test", 0, "1.0.0.1");
		check_found(f, "a.test", 0, "1.0.0.1");
		check_kept_ms(f, "a.test", rows[i].kept_s * UINT64_C(1000));
		assert_int_equal(f->first.n_questions, 2);
	}
}

static void test_the_shortest_ttl_counts(void **state)
{
	static const struct peer_row rows[] = {
		{.name = "a.test", .type = PEER_A, .addrs = "1.0.0.1", .ttl = 100},
		{.name = "a.test", .type = PEER_AAAA, .addrs = "2::1", .ttl = 50},
		{.name = "b.test", .type = PEER_A, .addrs = "1.0.0.1", .ttl = 20},
		{.name = "b.test", .type = PEER_AAAA, .addrs = "2::1", .ttl = 50},
		{.name = "c.test", .addrs = "1.0.0.1 1.0.0.2", .ttl = 50, .ttl_step = 10},
	};
	struct fixture *f = *state;

	peer_script(&f->first, rows, ARRAY_LEN(rows));
	check_lookup(f, "a.test", 0, "2::1 1.0.0.1");
	check_kept_ms(f, "a.test", 50000);
	check_lookup(f, "b.test", 0, "2::1 1.0.0.1");
	check_kept_ms(f, "b.test", 20000);
	check_lookup(f, "c.test", 0, "1.0.0.1 1.0.0.2");
	check_kept_ms(f, "c.test", 40000);
}

static void test_fresh_answer_is_told_without_a_question(void **state)
{
	struct fixture *f = *state;

	peer_script(&f->first, fixture_both, 1);
	check_lookup(f, "a.test", 0, "2::1 1.0.0.1 1.0.0.2");
	check_lookup(f, "a.test", 0, "2::1 1.0.0.1 1.0.0.2");
	assert_int_equal(f->first.n_questions, 2);
	set_now(f, f->now_ms + 60000);
	check_lookup(f, "a.test", 0, "2::1 1.0.0.1 1.0.0.2");
	assert_int_equal(f->first.n_questions, 4);
}

static void test_missing_names_and_addresses_are_kept_five_seconds(void **state)
{
	static const struct peer_row rows[] = {
		{.name = "nx.test", .act = PEER_NXDOMAIN},
		{.name = "chain.test", .cnames = "nowhere.test", .cname_ttl = 60},
	};
	static const char *const names[] = {"nx.test", "nodata.test", "chain.test"};
	struct fixture *f = *state;
	size_t i;

	for (i = 0; i < ARRAY_LEN(names); i++) {
		peer_script(&f->first, rows, ARRAY_LEN(rows));
		check_lookup(f, names[i], E_NO_NAME, "");
		check_found(f, names[i], E_NO_NAME, "");
		check_kept_ms(f, names[i], RESOLVER_NEGATIVE_S * UINT64_C(1000));
		assert_int_equal(f->first.n_questions, 2);
		assert_int_equal(f->second.n_questions, 0);
	}
}

static void test_only_ipv6_without_route_is_no_address(void **state)
{
	static const struct peer_row row = {.name = "*", .addrs = "2::1", .ttl = 60};
	struct fixture *f = *state;

	peer_script(&f->first, &row, 1);
	check_lookup(f, "a.test", E_NO_NAME, "");
}

static void test_doubled_addresses_are_told_once(void **state)
{
	static const struct peer_row row = {
		.name = "*", .addrs = "1.0.0.1 1.0.0.2 1.0.0.1 2::1 2::1", .ttl = 60};
	struct fixture *f = *state;

	peer_script(&f->first, &row, 1);
	check_lookup(f, "a.test", 0, "2::1 1.0.0.1 1.0.0.2");
}

static void test_silent_or_failing_aaaa_does_not_hold_the_a_answer_up(void **state)
{
	static const struct peer_row rows[] = {
		{.name = "*", .type = PEER_A, .addrs = "1.0.0.1", .ttl = 60},
		{.name = "silent.test", .type = PEER_AAAA, .act = PEER_SILENT},
		{.name = "servfail.test", .type = PEER_AAAA, .act = PEER_SERVFAIL},
		{.name = "nx.test", .type = PEER_AAAA, .act = PEER_NXDOMAIN},
		{.name = "late.test", .type = PEER_AAAA, .delay_ms = 400},
	};
	static const char *const names[] = {
		"silent.test", "servfail.test", "nx.test", "late.test", "nodata.test"};
	struct fixture *f = *state;
	size_t i;

	peer_script(&f->first, rows, ARRAY_LEN(rows));
	peer_script(&f->second, rows, ARRAY_LEN(rows));
	for (i = 0; i < ARRAY_LEN(names); i++)
		check_lookup_within(f, names[i], 0, "1.0.0.1", 90);
	/* The failed family changes nothing afterwards. */
	set_now(f, f->now_ms + 1000000);
	for (i = 0; i < ARRAY_LEN(names); i++)
		check_lookup(f, names[i], 0, "1.0.0.1");
	run_ms(f, 2 * FIXTURE_TIMEOUT_MS + 100);
	for (i = 0; i < ARRAY_LEN(names); i++)
		check_found(f, names[i], 0, "1.0.0.1");
}

static void test_family_that_comes_after_the_grace_joins_the_cache(void **state)
{
	static const struct peer_row rows[] = {
		{.name = "v6.test",
			.type = PEER_AAAA,
			.addrs = "2::1",
			.ttl = 20,
			.delay_ms = PEER_HELD},
		{.name = "v4.test",
			.type = PEER_A,
			.addrs = "1.0.0.1",
			.ttl = 90,
			.delay_ms = PEER_HELD},
		{.name = "*", .addrs = "1.0.0.1 2::1", .ttl = 60},
	};
	struct fixture *f = *state;

	peer_script(&f->first, rows, ARRAY_LEN(rows));
	peer_script(&f->second, rows, ARRAY_LEN(rows));
	check_lookup(f, "v6.test", 0, "1.0.0.1");
	set_now(f, f->now_ms + 10000);
	peer_release(&f->first);
	run_ms(f, 20);
	check_found(f, "v6.test", 0, "2::1 1.0.0.1");
	check_kept_ms(f, "v6.test", 20000);
	/* An address lives no longer because another one came late. */
	check_lookup(f, "v4.test", 0, "2::1");
	set_now(f, f->now_ms + 10000);
	peer_release(&f->first);
	run_ms(f, 20);
	check_found(f, "v4.test", 0, "2::1 1.0.0.1");
	check_kept_ms(f, "v4.test", 50000);
}

static void test_family_just_within_the_grace_is_waited_for(void **state)
{
	static const struct peer_row rows[] = {
		{.name = "*", .type = PEER_AAAA, .addrs = "2::1", .ttl = 60, .delay_ms = 15},
		{.name = "*", .addrs = "1.0.0.1", .ttl = 60},
	};
	struct fixture *f = *state;

	peer_script(&f->first, rows, ARRAY_LEN(rows));
	check_lookup(f, "a.test", 0, "2::1 1.0.0.1");
}

static void test_denied_a_ends_the_lookup_but_denied_aaaa_does_not(void **state)
{
	static const struct peer_row rows[] = {
		{.name = "nx.test", .type = PEER_A, .act = PEER_NXDOMAIN},
		{.name = "nx.test", .type = PEER_AAAA, .act = PEER_SILENT},
		{.name = "odd.test",
			.type = PEER_A,
			.addrs = "1.0.0.1",
			.ttl = 60,
			.delay_ms = 150},
		{.name = "odd.test", .type = PEER_AAAA, .act = PEER_NXDOMAIN},
		{.name = "dark.test", .type = PEER_A, .act = PEER_SERVFAIL},
		{.name = "gone.test", .type = PEER_A, .act = PEER_NXDOMAIN, .delay_ms = 20},
		{.name = "gone.test", .type = PEER_AAAA, .act = PEER_SERVFAIL},
		{.name = "empty.test",
			.type = PEER_AAAA,
			.addrs = "2::1",
			.ttl = 60,
			.delay_ms = 150},
		{.name = "chain.test", .type = PEER_A, .cnames = "b.test"},
		{.name = "chain.test",
			.type = PEER_AAAA,
			.addrs = "2::1",
			.ttl = 60,
			.delay_ms = 150},
	};
	struct fixture *f = *state;

	peer_script(&f->first, rows, ARRAY_LEN(rows));
	peer_script(&f->second, rows, ARRAY_LEN(rows));
	check_lookup_within(f, "nx.test", E_NO_NAME, "", 90);
	check_lookup(f, "odd.test", 0, "1.0.0.1");
	/* A is unknown, AAAA is empty: that is no proof that there is no address. */
	check_lookup(f, "dark.test", E_RESOLVE, "");
	check_lookup(f, "gone.test", E_NO_NAME, "");
	/* An A answer without addresses says nothing of AAAA. */
	check_lookup(f, "empty.test", 0, "2::1");
	check_lookup(f, "chain.test", 0, "2::1");
}

static void test_lookups_of_one_name_are_shared(void **state)
{
	struct fixture *f = *state;
	struct waiter w[3] = {{.runs = 0}};
	struct resolve *q;
	size_t i;

	peer_script(&f->first, fixture_both, 1);
	start(f, "a.test", &w[0]);
	q = start(f, "a.test", &w[1]);
	start(f, "a.test", &w[2]);
	resolve_cancel(q);
	run_until(f, &w[2]);
	for (i = 0; i < 3; i++)
		assert_int_equal(w[i].runs, i == 1 ? 0 : 1);
	check_addrs(w[0].addrs, w[0].n, "2::1 1.0.0.1 1.0.0.2");
	assert_int_equal(f->first.n_questions, 2);
}

static void test_cancelled_callback_never_runs_and_the_answer_is_still_kept(void **state)
{
	struct fixture *f = *state;
	struct waiter w = {.runs = 0};

	peer_script(&f->first, fixture_both, 1);
	resolve_cancel(start(f, "a.test", &w));
	run_ms(f, 30);
	assert_int_equal(w.runs, 0);
	check_found(f, "a.test", 0, "2::1 1.0.0.1 1.0.0.2");
	/* From the cache, too. */
	resolve_cancel(start(f, "a.test", &w));
	run_ms(f, 5);
	assert_int_equal(w.runs, 0);
	resolve_cancel(NULL);
}

static void test_callback_may_cancel_another_one_of_the_same_lookup(void **state)
{
	struct fixture *f = *state;
	struct waiter w[4] = {{.runs = 0}};

	peer_script(&f->first, fixture_both, 1);
	start(f, "a.test", &w[0]);
	w[0].cancel = start(f, "a.test", &w[1]);
	start(f, "a.test", &w[2]);
	w[2].cancel = start(f, "slow.test", &w[3]);
	run_until(f, &w[2]);
	run_ms(f, 20);
	assert_int_equal(w[0].runs, 1);
	assert_int_equal(w[1].runs, 0);
	assert_int_equal(w[2].runs, 1);
	assert_int_equal(w[3].runs, 0);
}

static void test_callback_may_start_lookups(void **state)
{
	struct fixture *f = *state;
	struct waiter w[3] = {{.runs = 0}};

	peer_script(&f->first, fixture_both, 1);
	w[0].then = "a.test";
	w[0].next = &w[1];
	w[1].then = "b.test";
	w[1].next = &w[2];
	start(f, "a.test", &w[0]);
	run_until(f, &w[2]);
	assert_int_equal(w[0].runs + w[1].runs + w[2].runs, 3);
	assert_int_equal(f->first.n_questions, 4);
}

/* Asks for the same name again and again. */
static void on_endless(const struct resolve_answer *answer, void *arg)
{
	struct waiter *w = arg;

	w->runs++;
	resolve_start(w->f->resolver, SLICE("db"), on_endless, w);
}

static void test_endless_lookups_leave_the_loop_running(void **state)
{
	struct fixture *f = *state;
	struct waiter w = {.f = f};

	resolver_set_hosts(f->resolver, SLICE("10.0.0.5 db"));
	resolve_start(f->resolver, SLICE("db"), on_endless, &w);
	run_ms(f, 20);
	assert_true(w.runs > 2);
}

static void test_free_ends_all_waiters_without_their_callbacks(void **state)
{
	struct fixture *f = *state;
	struct waiter w[4] = {{.runs = 0}};

	peer_script(&f->first, fixture_both, 1);
	check_lookup(f, "known.test", 0, "2::1 1.0.0.1 1.0.0.2");
	start(f, "a.test", &w[0]);
	start(f, "a.test", &w[1]);
	start(f, "b.test", &w[2]);
	start(f, "known.test", &w[3]);
	resolver_free(f->resolver);
	f->resolver = NULL;
	run_ms(f, 60);
	assert_int_equal(w[0].runs + w[1].runs + w[2].runs + w[3].runs, 0);
}

static void test_free_in_a_callback_ends_the_other_waiters(void **state)
{
	struct fixture *f = *state;
	struct waiter w[3] = {{.runs = 0}};

	peer_script(&f->first, fixture_both, 1);
	w[0].free_resolver = true;
	start(f, "a.test", &w[0]);
	start(f, "a.test", &w[1]);
	start(f, "b.test", &w[2]);
	run_until(f, &w[0]);
	run_ms(f, 60);
	assert_int_equal(w[0].runs, 1);
	assert_int_equal(w[1].runs + w[2].runs, 0);
}

static void test_free_while_one_family_is_still_out(void **state)
{
	static const struct peer_row rows[] = {
		{.name = "*", .type = PEER_AAAA, .act = PEER_SILENT},
		{.name = "*", .addrs = "1.0.0.1", .ttl = 60},
	};
	struct fixture *f = *state;

	peer_script(&f->first, rows, ARRAY_LEN(rows));
	check_lookup(f, "a.test", 0, "1.0.0.1");
	resolver_free(f->resolver);
	f->resolver = NULL;
	run_ms(f, 20);
}

static void test_expired_answer_with_one_family_out_is_looked_up_anew(void **state)
{
	static const struct peer_row rows[] = {
		{.name = "*", .type = PEER_AAAA, .addrs = "2::1", .ttl = 9, .delay_ms = PEER_HELD},
		{.name = "*", .addrs = "1.0.0.1", .ttl = 1},
	};
	struct fixture *f = *state;

	peer_script(&f->first, rows, ARRAY_LEN(rows));
	peer_script(&f->second, rows, ARRAY_LEN(rows));
	check_lookup(f, "a.test", 0, "1.0.0.1");
	set_now(f, f->now_ms + 1000);
	peer_script(&f->first, fixture_both, 1);
	check_lookup(f, "a.test", 0, "2::1 1.0.0.1 1.0.0.2");
	peer_release(&f->first);
	run_ms(f, 20);
	check_found(f, "a.test", 0, "2::1 1.0.0.1 1.0.0.2");
}

static void test_hosts_are_told_without_a_question(void **state)
{
	struct fixture *f = *state;

	peer_script(&f->first, fixture_both, 1);
	check_lookup(f, "db.test", 0, "2::1 1.0.0.1 1.0.0.2");
	resolver_set_hosts(f->resolver, SLICE("10.0.0.5 db.test db # x\nfd00::5 db\n"));
	check_lookup(f, "db.test", 0, "10.0.0.5");
	check_lookup(f, "db", 0, "fd00::5 10.0.0.5");
	set_now(f, f->now_ms + 1000000000);
	check_found(f, "db", 0, "fd00::5 10.0.0.5");
	assert_int_equal(f->first.n_questions, 2);
	resolver_set_hosts(f->resolver, SLICE_EMPTY);
	assert_false(is_found(f, "db"));
	check_lookup(f, "db", 0, "2::1 1.0.0.1 1.0.0.2");
}

static void test_hosts_set_during_a_lookup_win(void **state)
{
	struct fixture *f = *state;
	struct waiter w = {.runs = 0};

	peer_script(&f->first, fixture_both, 1);
	start(f, "db.test", &w);
	resolver_set_hosts(f->resolver, SLICE("10.0.0.5 db.test\n"));
	run_until(f, &w);
	check_addrs(w.addrs, w.n, "10.0.0.5");
	check_found(f, "db.test", 0, "10.0.0.5");
}

static void test_1024_names_are_looked_up_at_a_time_and_one_more_is_refused(void **state)
{
	static const struct peer_row row = {.name = "*", .act = PEER_SILENT};
	struct fixture *f = *state;
	struct waiter *w = calloc(1026, sizeof(*w));
	char name[32];
	unsigned i;

	assert_non_null(w);
	peer_script(&f->first, &row, 1);
	peer_script(&f->second, &row, 1);
	for (i = 0; i < 1025; i++) {
		(void)snprintf(name, sizeof(name), "n%u.test", i);
		start(f, name, &w[i]);
	}
	start(f, "n7.test", &w[1025]);
	event_base_loop(f->base, EVLOOP_NONBLOCK);
	assert_int_equal(w[1024].runs, 1);
	assert_int_equal(w[1024].err, E_RESOLVE);
	assert_false(is_found(f, "n1024.test"));
	for (i = 0; i < 1026; i++) {
		run_until(f, &w[i]);
		assert_int_equal(w[i].err, i == 1024 ? E_RESOLVE : -ETIMEDOUT);
	}
	/* They are all over, so there is room again. */
	run_ms(f, FIXTURE_TIMEOUT_MS);
	peer_script(&f->first, fixture_both, 1);
	check_lookup(f, "more.test", 0, "2::1 1.0.0.1 1.0.0.2");
	free(w);
}

static void test_names_that_cannot_be_are_no_names(void **state)
{
	struct fixture *f = *state;
	char longest[HOSTNAME_MAX + 2];
	struct waiter w = {.runs = 0};
	size_t i;

	peer_script(&f->first, fixture_both, 1);
	memset(longest, 'a', sizeof(longest));
	for (i = 63; i < sizeof(longest); i += 64)
		longest[i] = '.';
	resolve_start(f->resolver, slice_make(longest, HOSTNAME_MAX + 1), on_fixture_answer, &w);
	run_until(f, &w);
	assert_int_equal(w.err, E_NO_NAME);
	w = (struct waiter){.runs = 0};
	resolve_start(f->resolver, SLICE_EMPTY, on_fixture_answer, &w);
	run_until(f, &w);
	assert_int_equal(w.err, E_NO_NAME);
	assert_int_equal(f->first.n_questions, 0);
	w = (struct waiter){.runs = 0};
	resolve_start(f->resolver, slice_make(longest, HOSTNAME_MAX), on_fixture_answer, &w);
	run_until(f, &w);
	assert_int_equal(w.err, 0);
}

#define T(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
#define T_V4(name) cmocka_unit_test_setup_teardown(name, fixture_setup_v4, fixture_teardown)

static void learn(struct fixture *f, const char *name, const char *addr, uint32_t ttl_s)
{
	struct netaddr a;

	assert_true(netaddr_parse(slice_str(addr), &a));
	resolver_learn(f->resolver, slice_str(name), &a, 1, ttl_s);
}

static void test_what_the_gate_learned_is_found_without_a_question(void **state)
{
	struct fixture *f = *state;

	learn(f, "six.test", "2::9", 60); /* alone: the IPv4 addresses would be missed */
	assert_false(is_found(f, "six.test"));
	learn(f, "a.test", "1.0.0.9", 60);
	check_found(f, "a.test", 0, "1.0.0.9");
	learn(f, "a.test", "2::9", 300);
	check_found(f, "a.test", 0, "2::9 1.0.0.9");
	learn(f, "a.test", "1.0.0.8", 300);
	check_found(f, "a.test", 0, "2::9 1.0.0.8");
	/* The IPv6 address came in with one that had 60 s, and so it stays. */
	check_kept_ms(f, "a.test", 60000);
	learn(f, "b.test", "1.0.0.9", 0);
	check_kept_ms(f, "b.test", 1000);
	learn(f, "c.test", "1.0.0.9", 100000);
	check_kept_ms(f, "c.test", 300000);
	assert_int_equal(f->first.n_questions, 0);
}

static void test_learned_ipv6_is_not_offered_without_a_route(void **state)
{
	struct fixture *f = *state;

	learn(f, "a.test", "1.0.0.9", 60);
	learn(f, "a.test", "2::9", 60);
	check_found(f, "a.test", 0, "1.0.0.9");
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		T(test_both_families_are_asked_and_alternate),
		T(test_what_the_gate_learned_is_found_without_a_question),
		T_V4(test_learned_ipv6_is_not_offered_without_a_route),
		T_V4(test_without_route_ipv6_is_neither_asked_nor_offered),
		T(test_answer_is_kept_for_its_ttl_within_bounds),
		T(test_the_shortest_ttl_counts),
		T(test_fresh_answer_is_told_without_a_question),
		T(test_missing_names_and_addresses_are_kept_five_seconds),
		T_V4(test_only_ipv6_without_route_is_no_address),
		T(test_doubled_addresses_are_told_once),
		T(test_silent_or_failing_aaaa_does_not_hold_the_a_answer_up),
		T(test_family_that_comes_after_the_grace_joins_the_cache),
		T(test_family_just_within_the_grace_is_waited_for),
		T(test_denied_a_ends_the_lookup_but_denied_aaaa_does_not),
		T(test_lookups_of_one_name_are_shared),
		T(test_cancelled_callback_never_runs_and_the_answer_is_still_kept),
		T(test_callback_may_cancel_another_one_of_the_same_lookup),
		T(test_callback_may_start_lookups),
		T(test_endless_lookups_leave_the_loop_running),
		T(test_free_ends_all_waiters_without_their_callbacks),
		T(test_free_in_a_callback_ends_the_other_waiters),
		T(test_free_while_one_family_is_still_out),
		T(test_expired_answer_with_one_family_out_is_looked_up_anew),
		T(test_hosts_are_told_without_a_question),
		T(test_hosts_set_during_a_lookup_win),
		T(test_1024_names_are_looked_up_at_a_time_and_one_more_is_refused),
		T(test_names_that_cannot_be_are_no_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
