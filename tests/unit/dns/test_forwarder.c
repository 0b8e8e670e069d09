/* Which resolvers count as alive: found out by what they do with questions, and by probes only
 * where that says nothing. Real time, since the limits are of the event loop. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>
#include <event2/event.h>

#include "dns/forwarder.h"
#include "tests/unit/dns/peer.h"

#define TIMEOUT_MS 3000
#define INTERVAL_S 3600 /* of probes: only the first one is by the clock */

static const struct peer_row good = {.name = "*", .addrs = "1.0.0.1", .ttl = 60};
static const struct peer_row silent = {.name = "*", .act = PEER_SILENT};
/* Of a resolver that lives, about one name. */
static const struct peer_row silent_name[] = {
	{.name = "silent.test", .act = PEER_SILENT}, {.name = "*", .addrs = "1.0.0.1", .ttl = 60}};

struct bed {
	struct event_base *base;
	struct peer first;
	struct peer second;
	struct forwarder *f;
	unsigned n_done;
};

static uint64_t now_ms(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static void run_ms(struct bed *b, unsigned ms)
{
	const struct timeval tv = {ms / 1000, (suseconds_t)(ms % 1000) * 1000};

	assert_int_equal(event_base_loopexit(b->base, &tv), 0);
	(void)event_base_dispatch(b->base);
}

/* The milliseconds until so many live; fails after five seconds. */
static unsigned run_until_alive(struct bed *b, size_t n)
{
	const uint64_t start = now_ms();

	while (forwarder_n_alive(b->f) != n) {
		if (now_ms() > start + 5000)
			fail_msg("%zu live, should be %zu", forwarder_n_alive(b->f), n);
		run_ms(b, 5);
	}
	return (unsigned)(now_ms() - start);
}

static void on_done(int err, struct dns_answer *answer, void *arg)
{
	struct bed *b = arg;

	b->n_done++;
}

static void ask(struct bed *b, const char *name)
{
	struct dns_question q = {.type = DNS_A, .flags = DNS_RD};

	assert_true(dns_name_from_text(slice_str(name), &q.name));
	(void)forward_start(b->f, &q, on_done, b);
}

static struct bed *bed_of(uint32_t timeout_ms, size_t n, const struct peer_row *rows, size_t n_rows)
{
	struct forwarder_config config = {
		.timeout_ms = timeout_ms, .probe_name = SLICE("."), .probe_interval_s = INTERVAL_S};
	struct upstreams u = {.n = n};
	struct bed *b = calloc(1, sizeof(*b));
	struct errmsg msg;

	assert_non_null(b);
	b->base = event_base_new();
	assert_true(peer_init(&b->first, b->base, AF_INET));
	assert_true(peer_init(&b->second, b->base, AF_INET));
	for (size_t i = 0; i < n; i++)
		assert_true(netaddr_parse(SLICE("127.0.0.1"), &u.v[i].addr));
	u.v[0].port = b->first.port;
	u.v[1].port = b->second.port;
	config.upstreams = &u;
	peer_script(&b->first, rows, n_rows);
	peer_script(&b->second, &good, 1);
	assert_int_equal(forwarder_new(b->base, &config, &b->f, &msg), 0);
	run_ms(b, 30); /* the first probes */
	peer_script(&b->first, rows, n_rows);
	return b;
}

static struct bed *bed_new(size_t n, const struct peer_row *rows, size_t n_rows)
{
	return bed_of(TIMEOUT_MS, n, rows, n_rows);
}

static void bed_free(struct bed *b)
{
	forwarder_free(b->f);
	peer_fini(&b->first);
	peer_fini(&b->second);
	event_base_free(b->base);
	free(b);
}

static void test_nothing_but_questions_is_sent_while_all_is_well(void **state)
{
	struct bed *b = bed_new(2, &good, 1);

	for (unsigned i = 1; i <= 20; i++) {
		ask(b, "read.test");
		run_ms(b, 60);
		assert_int_equal(b->n_done, i);
		assert_int_equal(b->first.n_questions, i);
	}
	assert_int_equal(forwarder_n_alive(b->f), 2);
	bed_free(b);
}

static void test_resolver_that_refuses_is_dead_at_the_next_question(void **state)
{
	struct bed *b = bed_new(1, &good, 1);

	assert_int_equal(forwarder_n_alive(b->f), 1);
	peer_fini(&b->first);
	ask(b, "read.test");
	assert_in_range(run_until_alive(b, 0), 0, 300);
	assert_true(peer_init(&b->first, b->base, AF_INET)); /* for bed_free */
	bed_free(b);
}

static void test_silent_resolver_is_dead_within_a_second_and_back_in_another(void **state)
{
	struct bed *b = bed_new(1, &good, 1);

	peer_script(&b->first, &silent, 1);
	run_ms(b, 700);
	assert_int_equal(b->first.n_questions, 0);
	assert_int_equal(forwarder_n_alive(b->f), 1);
	ask(b, "read.test");
	assert_in_range(run_until_alive(b, 0), 600, 1000);
	peer_script(&b->first, &good, 1);
	(void)run_until_alive(b, 1);
	bed_free(b);
}

/* When nothing that was sent can be answered any more, only another probe finds out. */
static void test_the_only_resolver_is_probed_until_it_is_back(void **state)
{
	struct bed *b = bed_of(300, 1, &good, 1);

	peer_script(&b->first, &silent, 1);
	ask(b, "read.test");
	(void)run_until_alive(b, 0);
	run_ms(b, 600);
	assert_int_equal(b->n_done, 1);
	peer_script(&b->first, &good, 1);
	(void)run_until_alive(b, 1);
	bed_free(b);
}

static void test_the_next_resolver_serves_while_one_is_dead(void **state)
{
	struct bed *b = bed_new(2, &good, 1);

	peer_script(&b->first, &silent, 1);
	ask(b, "read.test");
	(void)run_until_alive(b, 1);
	peer_script(&b->first, &silent, 1);
	b->n_done = 0;
	ask(b, "two.test");
	run_ms(b, 50);
	assert_int_equal(b->n_done, 1);
	assert_int_equal(b->first.n_questions, 0);
	run_ms(b, 1200); /* and the dead one is left alone, but for what was under way */
	assert_true(b->first.n_questions <= 2);
	bed_free(b);
}

static void test_silence_about_one_name_costs_one_probe(void **state)
{
	struct bed *b = bed_new(1, silent_name, 2);

	ask(b, "silent.test");
	run_ms(b, 1400);
	assert_int_equal(forwarder_n_alive(b->f), 1);
	/* the question, perhaps once more, and the probe */
	assert_in_range(b->first.n_questions, 2, 3);
	bed_free(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing_but_questions_is_sent_while_all_is_well),
		cmocka_unit_test(test_resolver_that_refuses_is_dead_at_the_next_question),
		cmocka_unit_test(test_silent_resolver_is_dead_within_a_second_and_back_in_another),
		cmocka_unit_test(test_the_only_resolver_is_probed_until_it_is_back),
		cmocka_unit_test(test_the_next_resolver_serves_while_one_is_dead),
		cmocka_unit_test(test_silence_about_one_name_costs_one_probe),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
