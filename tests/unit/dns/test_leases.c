/* Leases: how long, how many, who keeps them alive, what a policy leaves of them. */
#include "base/pool.h"
#include "dns/dns_gate_int.h"
#include "dns/leases_int.h"
#include "tests/unit/dns/gate.h"

static const struct peer_row local[] = {
	{.name = "*", .act = PEER_ANSWER, .addrs = "127.0.0.1 1.0.0.2", .ttl = 0},
};

static const struct peer_row fixture_two[] = {
	{.name = "*", .act = PEER_ANSWER, .addrs = "1.0.0.1 1.0.0.2", .ttl = 30},
};

static size_t n_leases(const struct fixture *f)
{
	return dns_gate_leases(f->gate);
}

static void run_ms(struct fixture *f, unsigned ms)
{
	uint64_t end = real_ms() + ms;

	while (real_ms() < end) {
		event_base_loop(f->base, EVLOOP_NONBLOCK);
		guard_ack(0);
		usleep(500);
	}
}

/* A policy under which the loopback address may be granted, so that a connection of this process
 * can be the one that lives. */
static void allow_loopback(struct fixture *f, bool default_allow)
{
	policy_unref(f->config.policy);
	f->config.policy = fixture_policy(
		default_allow, "allow *.wild.test; allow read.test; allow 127.0.0.1");
	dns_gate_configure(f->gate, &f->config);
	peer_script(&f->first, local, 1);
}

static void test_lease_is_ttl_and_a_minute_within_one_and_six(void **state)
{
	static const struct {
		uint32_t ttl, want;
	} rows[] = {{0, 60}, {1, 61}, {10, 70}, {299, 359}, {300, 360}, {301, 360}, {9999, 360},
		{UINT32_MAX, 360}};
	size_t i;

	for (i = 0; i < ARRAY_LEN(rows); i++)
		assert_int_equal(lease_seconds(rows[i].ttl), rows[i].want);
}

static void test_leases_run_out(void **state)
{
	struct fixture *f = *state;

	allow_loopback(f, true);
	check_ask(f, "read.test", DNS_A, "127.0.0.1 1.0.0.2");
	assert_int_equal(n_leases(f), 2);
	set_now(f, f->now_ms + 59999);
	leases_tick(f->gate->leases);
	assert_int_equal(n_leases(f), 2);
	set_now(f, f->now_ms + 1);
	leases_tick(f->gate->leases);
	assert_int_equal(n_leases(f), 0);
	assert_int_equal(leases_n_names(f->gate->leases), 0);
}

/* Then their memory is given back, and what stays is moved. */
static void test_leases_that_stay_outlast_thousands_that_go(void **state)
{
	struct fixture *f = *state;
	struct leases *l = f->gate->leases;
	struct netaddr a = fixture_addr("1.0.0.2");
	struct lease_name *ln;
	char name[32];
	unsigned i;

	for (i = 0; i < 2000; i++) {
		(void)snprintf(name, sizeof(name), "n%u.wild.test", i);
		a.b[15] = (uint8_t)i;
		(void)lease_put(l, slice_str(name), &a, f->now_ms + (i % 20 == 0 ? 9000 : 1000));
		a.b[14] = 7;
		if (i % 40 == 0)
			(void)lease_put(l, slice_str(name), &a, f->now_ms + 9000);
		a.b[14] = 0;
	}
	assert_int_equal(leases_n(l), 2050);
	set_now(f, f->now_ms + 1000);
	leases_tick(l);
	assert_int_equal(leases_n(l), 150);
	assert_int_equal(leases_n_names(l), 100);
	assert_false(pool_is_sparse(l->pool));
	for (i = 0; i < 2000; i++) {
		(void)snprintf(name, sizeof(name), "n%u.wild.test", i);
		ln = map_find(l->names, slice_str(name));
		assert_int_equal(ln != NULL, i % 20 == 0);
		assert_true(!ln || ln->n == (i % 40 == 0 ? 2 : 1));
		assert_true(!ln || ln->v[0].addr.b[15] == (uint8_t)i);
	}
	(void)lease_put(l, SLICE("n0.wild.test"), &(struct netaddr){{1}}, f->now_ms + 9000);
	assert_int_equal(leases_n(l), 151);
	set_now(f, f->now_ms + 9000);
	leases_tick(l);
	assert_int_equal(leases_n(l), 0);
}

static void test_live_connection_renews_and_its_end_once_more(void **state)
{
	struct fixture *f = *state;
	size_t before;
	int fd;

	allow_loopback(f, true);
	check_ask(f, "read.test", DNS_A, "127.0.0.1 1.0.0.2");
	fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&f->to_tcp, sizeof(struct sockaddr_in)), 0);
	run_ms(f, 20);
	before = guard.n;
	leases_tick(f->gate->leases);
	assert_int_equal(guard.n, before + 1);
	assert_int_equal(guard.calls[before].n, 1);
	assert_int_equal(guard.calls[before].v[0].addr.b[12], 127);
	assert_int_equal(guard.calls[before].v[0].seconds, LEASE_MAX_S);
	guard_ack(0);
	/* The other address goes, this one stays. */
	set_now(f, f->now_ms + 60000);
	leases_tick(f->gate->leases);
	guard_ack(0);
	assert_int_equal(n_leases(f), 1);
	close(fd);
}

static void test_address_without_connection_is_not_renewed(void **state)
{
	static const struct peer_row other[] = {
		{.name = "*", .act = PEER_ANSWER, .addrs = "1.0.0.2", .ttl = 0}};
	struct fixture *f = *state;
	size_t before;

	allow_loopback(f, true);
	peer_script(&f->first, other, 1);
	check_ask(f, "read.test", DNS_A, "1.0.0.2");
	before = guard.n;
	leases_tick(f->gate->leases);
	assert_int_equal(guard.n, before);
}

/* The first look after `ms`, and the questions that come of it. */
static size_t questions_after(struct fixture *f, uint64_t ms)
{
	size_t before = f->first.n_questions;

	set_now(f, f->now_ms + ms);
	leases_tick(f->gate->leases);
	run_ms(f, 60);
	return f->first.n_questions - before;
}

static void test_names_asked_for_are_asked_again_for_a_while(void **state)
{
	static const struct peer_row rows[] = {
		{.name = "*", .type = PEER_A, .act = PEER_ANSWER, .addrs = "1.0.0.2", .ttl = 300}};
	struct fixture *f = *state;
	size_t granted;
	unsigned i;

	allow_loopback(f, false);
	peer_script(&f->first, rows, 1);
	check_ask(f, "read.test", DNS_A, "1.0.0.2");
	assert_int_equal(questions_after(f, 299000), 0); /* more than a minute is left */
	granted = guard.n;
	assert_int_equal(questions_after(f, 2000), 2); /* A and AAAA */
	assert_int_equal(guard.n, granted + 1);
	assert_int_equal(n_leases(f), 1);
	for (i = 0; i < 2; i++)
		assert_int_equal(questions_after(f, 301000), i == 1 ? 0 : 2);
	/* 15 minutes after the client asked nobody asks any more. */
	assert_int_equal(n_leases(f), 1);
	set_now(f, f->now_ms + 60000);
	leases_tick(f->gate->leases);
	assert_int_equal(n_leases(f), 0);
}

/* What ended while nobody could use it is had again; what was not in use before stays forgotten. */
static void test_after_a_freeze_names_in_use_are_asked_again_at_once(void **state)
{
	static const struct peer_row rows[] = {
		{.name = "*", .type = PEER_A, .act = PEER_ANSWER, .addrs = "1.0.0.2", .ttl = 300}};
	static const uint64_t unused[] = {0, 901000};
	struct fixture *f = *state;

	allow_loopback(f, false);
	peer_script(&f->first, rows, 1);
	for (size_t i = 0; i < ARRAY_LEN(unused); i++) {
		size_t granted;
		size_t asked;

		check_ask(f, "read.test", DNS_A, "1.0.0.2");
		set_now(f, f->now_ms + unused[i] + 3600000);
		granted = guard.n;
		asked = f->first.n_questions;
		leases_thaw(f->gate->leases, 3600000);
		run_ms(f, 60);
		assert_int_equal(f->first.n_questions - asked, i == 0 ? 2 : 0);
		assert_int_equal(guard.n - granted, i == 0 ? 1 : 0);
	}
}

static void test_new_addresses_are_not_granted_by_asking_again(void **state)
{
	struct peer_row row = {
		.name = "*", .type = PEER_A, .act = PEER_ANSWER, .addrs = "1.0.0.2", .ttl = 300};
	struct fixture *f = *state;
	size_t granted;

	allow_loopback(f, false);
	peer_script(&f->first, &row, 1);
	check_ask(f, "read.test", DNS_A, "1.0.0.2");
	row.addrs = "1.0.0.3";
	granted = guard.n;
	assert_int_equal(questions_after(f, 301000), 2);
	assert_int_equal(guard.n, granted);
	/* None of its addresses is confirmed: no more questions. */
	assert_int_equal(questions_after(f, 31000), 0);
}

static void test_failed_question_renews_nothing_and_is_tried_again_later(void **state)
{
	struct peer_row row = {
		.name = "*", .type = PEER_A, .act = PEER_ANSWER, .addrs = "1.0.0.2", .ttl = 300};
	struct fixture *f = *state;
	size_t granted;

	allow_loopback(f, false);
	peer_script(&f->first, &row, 1);
	check_ask(f, "read.test", DNS_A, "1.0.0.2");
	row.act = PEER_SERVFAIL;
	peer_script(&f->second, &row, 1);
	granted = guard.n;
	assert_int_equal(questions_after(f, 301000), 2);
	assert_int_equal(questions_after(f, 29999), 0);
	row.act = PEER_ANSWER;
	assert_int_equal(questions_after(f, 1), 2);
	assert_int_equal(guard.n, granted + 1);
}

static void test_default_allow_is_not_asked_again(void **state)
{
	static const struct peer_row rows[] = {
		{.name = "*", .type = PEER_A, .act = PEER_ANSWER, .addrs = "1.0.0.2", .ttl = 300}};
	struct fixture *f = *state;

	allow_loopback(f, true);
	peer_script(&f->first, rows, 1);
	check_ask(f, "read.test", DNS_A, "1.0.0.2");
	assert_int_equal(questions_after(f, 301000), 0);
}

static void test_answer_after_a_new_policy_renews_nothing(void **state)
{
	struct peer_row row = {.name = "*", .act = PEER_ANSWER, .addrs = "1.0.0.2", .ttl = 300};
	struct fixture *f = *state;
	size_t granted;

	allow_loopback(f, false);
	peer_script(&f->first, &row, 1);
	check_ask(f, "read.test", DNS_A, "1.0.0.2");
	row.delay_ms = PEER_HELD;
	granted = guard.n;
	assert_int_equal(questions_after(f, 301000), 2);
	dns_gate_configure(f->gate, &f->config);
	peer_release(&f->first);
	run_ms(f, 60);
	assert_int_equal(guard.n, granted);
	assert_int_equal(n_leases(f), 1);
}

static void test_64_addresses_of_a_name_are_granted_and_no_more_are_told(void **state)
{
	struct peer_row row = {.name = "*", .act = PEER_ANSWER, .ttl = 60};
	struct fixture *f = *state;
	struct strbuf addrs;
	unsigned i;

	strbuf_init(&addrs, 4096);
	for (i = 0; i < LEASE_ADDRS_MAX + 6; i++)
		strbuf_printf(&addrs, "%s1.0.1.%u", i ? " " : "", i);
	row.addrs = strbuf_cstr(&addrs);
	peer_script(&f->first, &row, 1);
	ask_edns(f, "read.test", DNS_A, 4096);
	run_until_calls(f, 1);
	assert_int_equal(guard.calls[0].n, LEASE_ADDRS_MAX);
	guard_ack(0);
	assert_true(reply_within(f, GUARD_MS));
	assert_int_equal(n_of_type(f, DNS_ANSWER, DNS_A), LEASE_ADDRS_MAX);
	assert_int_equal(n_leases(f), LEASE_ADDRS_MAX);
	/* Other addresses take the place of the oldest. */
	strbuf_clear(&addrs);
	for (i = 0; i < 8; i++)
		strbuf_printf(&addrs, "%s1.0.2.%u", i ? " " : "", i);
	row.addrs = strbuf_cstr(&addrs);
	ask_edns(f, "read.test", DNS_A, 4096);
	run_until_calls(f, 2);
	guard_ack(0);
	assert_true(reply_within(f, GUARD_MS));
	assert_int_equal(n_leases(f), LEASE_ADDRS_MAX);
	strbuf_fini(&addrs);
}

static void test_batches_of_a_grant_follow_each_other(void **state)
{
	struct fixture *f = *state;
	struct strbuf text;
	unsigned i;

	strbuf_init(&text, 4096);
	strbuf_str(&text, "allow port.test ");
	for (i = 0; i < 40; i++)
		strbuf_printf(&text, "%s%u", i ? "," : "", 1000 + i);
	policy_unref(f->config.policy);
	f->config.policy = fixture_policy(false, strbuf_cstr(&text));
	dns_gate_configure(f->gate, &f->config);
	peer_script(&f->first, fixture_two, 1);
	ask(f, "port.test", DNS_A);
	run_until_calls(f, 1);
	assert_int_equal(guard.calls[0].n, GUARD_LEASES_MAX);
	assert_false(reply_within(f, 30));
	assert_int_equal(guard.n, 1);
	guard_ack(0);
	assert_int_equal(guard.n, 2);
	assert_int_equal(guard.calls[1].n, 80 - GUARD_LEASES_MAX);
	assert_true(reply_within(f, GUARD_MS));
	strbuf_fini(&text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		T(test_lease_is_ttl_and_a_minute_within_one_and_six),
		T(test_leases_run_out),
		T(test_leases_that_stay_outlast_thousands_that_go),
		T(test_live_connection_renews_and_its_end_once_more),
		T(test_address_without_connection_is_not_renewed),
		T(test_names_asked_for_are_asked_again_for_a_while),
		T(test_after_a_freeze_names_in_use_are_asked_again_at_once),
		T(test_new_addresses_are_not_granted_by_asking_again),
		T(test_failed_question_renews_nothing_and_is_tried_again_later),
		T(test_default_allow_is_not_asked_again),
		T(test_answer_after_a_new_policy_renews_nothing),
		T(test_64_addresses_of_a_name_are_granted_and_no_more_are_told),
		T(test_batches_of_a_grant_follow_each_other),
#undef T
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
