/* How questions reach the resolvers: fail-over, TCP, EDNS, source ports, answers that lie. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>
#include <event2/event.h>

#include "base/strbuf.h"
#include "dns/channels.h"
#include "dns/upstreams.h"
#include "tests/unit/dns/fixture.h"

/* Whatever is wrong with the first resolver, the second one answers within the time of one. */
static void test_second_resolver_answers_when_the_first_fails(void **state)
{
	static const struct {
		enum peer_act act;
		unsigned max_ms;
	} rows[] = {
		{PEER_SERVFAIL, 70},
		{PEER_REFUSED, 70},
		{PEER_SILENT, FIXTURE_TIMEOUT_MS},
		{PEER_GARBAGE, FIXTURE_TIMEOUT_MS},
		{PEER_WRONG_ID, FIXTURE_TIMEOUT_MS},
		{PEER_WRONG_QUESTION, FIXTURE_TIMEOUT_MS},
	};
	struct fixture *f = *state;
	struct peer_row bad = {.name = "*", .addrs = "9.9.9.9 9::9", .ttl = 60};
	size_t i;

	for (i = 0; i < ARRAY_LEN(rows); i++) {
		bad.act = rows[i].act;
		peer_script(&f->first, &bad, 1);
		peer_script(&f->second, fixture_both, 1);
		check_lookup_within(f, "a.test", 0, "2::1 1.0.0.1 1.0.0.2", rows[i].max_ms);
		assert_true(f->first.n_questions >= 2);
		assert_true(f->second.n_questions >= 2);
	}
}

static void test_lost_questions_are_asked_again(void **state)
{
	static const struct peer_row row = {.name = "*", .addrs = "1.0.0.1", .ttl = 60, .lose = 1};
	struct fixture *f = *state;

	peer_script(&f->first, &row, 1);
	peer_script(&f->second, &row, 1);
	check_lookup(f, "a.test", 0, "1.0.0.1");
	assert_int_equal(f->first.n_questions, 2);
}

static void test_slow_resolver_has_its_whole_time(void **state)
{
	static const struct peer_row rows[] = {
		{.name = "*", .addrs = "1.0.0.1", .ttl = 60, .delay_ms = FIXTURE_TIMEOUT_MS - 40},
		{.name = "*", .act = PEER_SILENT},
	};
	struct fixture *f = *state;

	peer_script(&f->first, &rows[0], 1);
	peer_script(&f->second, &rows[1], 1);
	check_lookup(f, "a.test", 0, "1.0.0.1");
}

/* Takes the first resolver's sockets away, so that its port answers by ICMP and by RST. */
static void close_first(struct fixture *f)
{
	event_del(f->first.on_udp);
	event_del(f->first.on_tcp);
	close(f->first.udp);
	close(f->first.tcp);
	f->first.udp = -1;
	f->first.tcp = -1;
}

static void test_second_resolver_answers_at_once_when_the_first_port_is_closed(void **state)
{
	struct fixture *f = *state;

	close_first(f);
	peer_script(&f->second, fixture_both, 1);
	check_lookup_within(f, "a.test", 0, "2::1 1.0.0.1 1.0.0.2", 70);
}

static void test_all_resolvers_failing_is_kept_one_second_and_recovers(void **state)
{
	static const struct {
		enum peer_act act;
		int err;
	} rows[] = {
		{PEER_SERVFAIL, E_RESOLVE},
		{PEER_SILENT, -ETIMEDOUT},
		{PEER_RDLENGTH_FFFF, E_RESOLVE},
	};
	struct fixture *f = *state;
	struct peer_row bad = {.name = "*"};
	size_t i;

	for (i = 0; i < ARRAY_LEN(rows); i++) {
		bad.act = rows[i].act;
		peer_script(&f->first, &bad, 1);
		peer_script(&f->second, &bad, 1);
		check_lookup_within(f, "a.test", rows[i].err, "", 2 * FIXTURE_TIMEOUT_MS + 200);
		check_found(f, "a.test", rows[i].err, "");
		check_kept_ms(f, "a.test", 1000);
		peer_script(&f->first, fixture_both, 1);
		check_lookup(f, "a.test", 0, "2::1 1.0.0.1 1.0.0.2");
		set_now(f, f->now_ms + 100000);
	}
}

static void test_lying_records_end_the_lookup_and_the_next_one_works(void **state)
{
	struct fixture *f = *state;
	struct peer_row bad = {.name = "*"};
	enum peer_act act;
	struct waiter w;

	for (act = PEER_RDLENGTH_FFFF; act <= PEER_CNAME_LOOP; act++) {
		bad.act = act;
		peer_script(&f->first, &bad, 1);
		peer_script(&f->second, &bad, 1);
		w = (struct waiter){.runs = 0};
		start(f, "bad.test", &w);
		run_until(f, &w);
		assert_int_not_equal(w.err, 0);
		assert_int_equal(w.n, 0);
		peer_script(&f->first, fixture_both, 1);
		set_now(f, f->now_ms + 100000);
		check_lookup(f, "good.test", 0, "2::1 1.0.0.1 1.0.0.2");
	}
}

static void test_truncated_answer_comes_by_tcp(void **state)
{
	static const struct peer_row row = {
		.name = "*", .act = PEER_TRUNCATED, .addrs = "1.0.0.1", .ttl = 60};
	struct fixture *f = *state;

	peer_script(&f->first, &row, 1);
	check_lookup(f, "a.test", 0, "1.0.0.1");
	assert_int_equal(f->first.n_tcp, 1);
	assert_int_equal(f->second.n_questions, 0);
}

static void test_forty_addresses_come_by_udp_and_thirty_two_are_kept(void **state)
{
	struct fixture *f = *state;
	struct peer_row row = {.name = "*", .ttl = 60};
	struct strbuf addrs, want;
	unsigned i;

	strbuf_init(&addrs, 4096);
	strbuf_init(&want, 4096);
	for (i = 1; i <= 40; i++) {
		strbuf_printf(&addrs, "%s1.0.0.%u", i > 1 ? " " : "", i);
		if (i <= RESOLVER_ADDRS_MAX)
			strbuf_printf(&want, "%s1.0.0.%u", i > 1 ? " " : "", i);
	}
	row.addrs = strbuf_cstr(&addrs);
	peer_script(&f->first, &row, 1);
	check_lookup(f, "a.test", 0, strbuf_cstr(&want));
	assert_int_equal(f->first.n_tcp, 0);
	assert_int_equal(f->first.n_edns, 1);
	assert_int_equal(f->first.edns_size, 1232);
	strbuf_fini(&addrs);
	strbuf_fini(&want);
}

static void test_resolver_without_edns_is_asked_again_without(void **state)
{
	static const struct peer_row row = {
		.name = "*", .act = PEER_FORMERR_EDNS, .addrs = "1.0.0.1", .ttl = 60};
	struct fixture *f = *state;

	peer_script(&f->first, &row, 1);
	check_lookup(f, "a.test", 0, "1.0.0.1");
	assert_int_equal(f->first.n_questions, 2);
	assert_int_equal(f->first.n_edns, 1);
}

static void test_question_may_come_back_in_another_case(void **state)
{
	static const struct peer_row row = {
		.name = "*", .act = PEER_OTHER_CASE, .addrs = "1.0.0.1", .ttl = 60};
	struct fixture *f = *state;

	peer_script(&f->first, &row, 1);
	check_lookup(f, "a.test", 0, "1.0.0.1");
	assert_int_equal(f->second.n_questions, 0);
}

static void test_name_is_asked_as_it_is(void **state)
{
	static const char *const names[] = {"single", "a.test", "_srv._tcp.a.test", "x.y.z.w.v"};
	struct fixture *f = *state;
	size_t i;

	/* What c-ares would take a search list from, if it looked. */
	setenv("LOCALDOMAIN", "search.test", 1);
	setenv("RES_OPTIONS", "ndots:9", 1);
	peer_script(&f->first, fixture_both, 1);
	for (i = 0; i < ARRAY_LEN(names); i++) {
		check_lookup(f, names[i], 0, "2::1 1.0.0.1 1.0.0.2");
		assert_string_equal(f->first.last_name, names[i]);
	}
	assert_int_equal(f->first.n_questions, 2 * ARRAY_LEN(names));
}

static void test_source_ports_change(void **state)
{
	static const struct peer_row rows[] = {
		{.name = "slow.test", .addrs = "1.0.0.1", .ttl = 60, .delay_ms = 10000},
		{.name = "*", .addrs = "1.0.0.1", .ttl = 60},
	};
	struct fixture *f = *state;
	struct waiter w[200] = {{.runs = 0}};
	struct waiter slow = {.runs = 0};
	char name[32];
	unsigned i;

	/* One after the other: a new port nearly each time, also beside one that hangs. */
	peer_script(&f->first, rows, ARRAY_LEN(rows));
	start(f, "slow.test", &slow);
	for (i = 0; i < 100; i++) {
		(void)snprintf(name, sizeof(name), "n%u.test", i);
		check_lookup(f, name, 0, "1.0.0.1");
	}
	assert_true(f->first.n_ports >= 90);
	/* All at once: every channel but the one that hangs. */
	peer_script(&f->first, rows, ARRAY_LEN(rows));
	for (i = 0; i < ARRAY_LEN(w); i++) {
		(void)snprintf(name, sizeof(name), "m%u.test", i);
		start(f, name, &w[i]);
	}
	for (i = 0; i < ARRAY_LEN(w); i++)
		run_until(f, &w[i]);
	assert_true(f->first.n_ports >= 3);
}

/* Keeps a stream of lookups going: each answer starts the next one. */
static void on_stream(const struct resolve_answer *answer, void *arg)
{
	struct waiter *w = arg;
	char name[32];

	w->runs++;
	(void)snprintf(name, sizeof(name), "s%u.test", w->runs);
	if (w->runs < 1000)
		resolve_start(w->f->resolver, slice_str(name), on_stream, w);
}

static void test_source_ports_change_under_steady_load(void **state)
{
	static const struct peer_row row = {
		.name = "*", .addrs = "1.0.0.1", .ttl = 60, .delay_ms = 1, .delay_spread = 13};
	struct fixture *f = *state;
	struct waiter w = {.f = f};
	char name[32];
	unsigned i;

	peer_script(&f->first, &row, 1);
	for (i = 0; i < 64; i++) {
		(void)snprintf(name, sizeof(name), "b%u.test", i);
		resolve_start(f->resolver, slice_str(name), on_stream, &w);
	}
	while (w.runs < 1000)
		event_base_loop(f->base, EVLOOP_ONCE);
	assert_true(f->first.n_ports >= 16);
}

static unsigned n_files;

/* c-ares comes here, since a program's own symbols go before those of libc. */
static FILE *count_open(const char *path, const char *mode)
{
	int fd;

	if (strcmp(path, "/dev/urandom") != 0)
		n_files++;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? NULL : fdopen(fd, mode);
}

FILE *channels_fopen(const char *path, const char *mode) __asm__("fopen");
FILE *channels_fopen64(const char *path, const char *mode) __asm__("fopen64");

FILE *channels_fopen(const char *path, const char *mode)
{
	return count_open(path, mode);
}

FILE *channels_fopen64(const char *path, const char *mode)
{
	return count_open(path, mode);
}

static void test_no_file_but_the_random_one_is_read(void **state)
{
	struct fixture *f = *state;
	FILE *file;

	assert_int_equal(n_files, 0);
	peer_script(&f->first, fixture_both, 1);
	check_lookup(f, "a", 0, "2::1 1.0.0.1 1.0.0.2");
	assert_int_equal(n_files, 0);
	/* The counter does count. */
	file = fopen("/etc/resolv.conf", "r");
	assert_int_equal(n_files, 1);
	if (file)
		(void)fclose(file);
}

static void on_channels_done(const struct channels_reply *reply, void *arg)
{
	++*(unsigned *)arg;
}

static void test_resolver_on_an_ipv6_address_is_asked(void **state)
{
	struct fixture *f = *state;
	struct upstreams u = {.n = 1};
	struct errmsg msg;
	struct peer peer;

	if (!peer_init(&peer, f->base, AF_INET6))
		skip();
	resolver_free(f->resolver);
	assert_true(netaddr_parse(SLICE("::1"), &u.v[0].addr));
	u.v[0].port = peer.port;
	assert_int_equal(resolver_new(f->base, &u, FIXTURE_TIMEOUT_MS, &f->resolver, &msg), 0);
	peer_script(&peer, fixture_both, 1);
	check_lookup(f, "a.test", 0, "2::1 1.0.0.1 1.0.0.2");
	assert_int_equal(peer.n_questions, 2);
	peer_fini(&peer);
}

static void test_freed_channels_tell_nobody(void **state)
{
	struct fixture *f = *state;
	struct channels *c = NULL;
	struct upstreams u = {.n = 1};
	struct errmsg msg;
	unsigned runs = 0;

	assert_true(netaddr_parse(SLICE("127.0.0.1"), &u.v[0].addr));
	u.v[0].port = f->first.port;
	peer_script(&f->first, fixture_both, 1);
	assert_int_equal(channels_new(f->base, &u, FIXTURE_TIMEOUT_MS, &c, &msg), 0);
	channels_ask(c, "a.test", CHANNELS_A, on_channels_done, &runs);
	while (runs == 0)
		event_base_loop(f->base, EVLOOP_ONCE);
	channels_ask(c, "b.test", CHANNELS_A, on_channels_done, &runs);
	channels_free(c);
	assert_int_equal(runs, 1);
	channels_free(NULL);
}

static void test_resolver_without_servers_is_refused(void **state)
{
	struct fixture *f = *state;
	struct upstreams u = {.n = 0};
	struct resolver *r = NULL;
	struct errmsg msg;

	assert_int_equal(resolver_new(f->base, &u, FIXTURE_TIMEOUT_MS, &r, &msg), E_VALUE);
	assert_null(r);
	resolver_free(NULL);
}

#define T(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
#define T_V4(name) cmocka_unit_test_setup_teardown(name, fixture_setup_v4, fixture_teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		T(test_second_resolver_answers_when_the_first_fails),
		T(test_second_resolver_answers_at_once_when_the_first_port_is_closed),
		T_V4(test_lost_questions_are_asked_again),
		T_V4(test_slow_resolver_has_its_whole_time),
		T(test_all_resolvers_failing_is_kept_one_second_and_recovers),
		T(test_lying_records_end_the_lookup_and_the_next_one_works),
		T_V4(test_truncated_answer_comes_by_tcp),
		T_V4(test_forty_addresses_come_by_udp_and_thirty_two_are_kept),
		T_V4(test_resolver_without_edns_is_asked_again_without),
		T(test_question_may_come_back_in_another_case),
		T(test_name_is_asked_as_it_is),
		T_V4(test_source_ports_change),
		T_V4(test_source_ports_change_under_steady_load),
		T(test_no_file_but_the_random_one_is_read),
		T(test_resolver_on_an_ipv6_address_is_asked),
		T(test_freed_channels_tell_nobody),
		T(test_resolver_without_servers_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
