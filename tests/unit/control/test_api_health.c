/* Probes of /healthz while egress starts (control/api_health), on a connection without a network.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>
#include <event2/event.h>

#include "base/clock.h"
#include "base/log.h"
#include "control/api_health.h"
#include "control/api_int.h"

#define PROBE "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
#define START_MS 1000u
#define ROUNDS 400

struct bed {
	struct event_base *base;
	struct api_health *health;
	struct api *api;
	int fd; /* the client's end */
	bool starting, healthy;
	int answers;
};

static bool on_starting(void *arg)
{
	const struct bed *b = arg;

	return b->starting;
}

static void on_answer(struct api_call *call, void *arg)
{
	struct bed *b = arg;

	b->answers++;
	api_answer(call, b->healthy ? 200 : 503, NULL, "text/plain", SLICE("x"));
}

static void on_route(struct api_call *call, void *arg)
{
	const struct bed *b = arg;

	api_health_run(b->health, call);
}

/* The client's end of one more connection. */
static int connected(struct bed *b, bool local)
{
	const struct netaddr peer = {.b = {0}};
	int pair[2];

	assert_int_equal(
		socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
	api_conn_new(b->api, pair[0], &peer, local);
	return pair[1];
}

static void bed_up(struct bed *b)
{
	static const struct api_health_ops ops = {on_starting, on_answer};
	static const struct api_route routes[] = {{"/healthz", NULL, API_OPEN, on_route}};

	*b = (struct bed){.starting = true};
	clock_fake(START_MS * 1000, 0);
	log_setup(LOG_LEVEL_ERROR, STDERR_FILENO, "test");
	b->base = event_base_new();
	b->health = api_health_new(b->base, &ops, b);
	b->api = api_new(b->base, routes, ARRAY_LEN(routes), b);
	b->fd = connected(b, false);
}

static void bed_down(struct bed *b)
{
	api_health_free(b->health);
	api_free(b->api);
	if (b->fd >= 0)
		(void)close(b->fd);
	event_base_free(b->base);
}

static void turns(struct bed *b, size_t n)
{
	const struct timeval tick = {0, 5000};

	for (size_t i = 0; i < n; i++) {
		(void)event_base_loopexit(b->base, &tick);
		assert_true(event_base_dispatch(b->base) >= 0);
	}
}

static void ask(struct bed *b)
{
	assert_int_equal(write(b->fd, PROBE, sizeof(PROBE) - 1), sizeof(PROBE) - 1);
	turns(b, 3);
}

/* The status that has come, 0 for none. */
static int status(struct bed *b)
{
	char text[1024];
	ssize_t n = read(b->fd, text, sizeof(text) - 1);

	text[n > 0 ? n : 0] = '\0';
	if (strncmp(text, "HTTP/1.1 200 ", 13) == 0)
		return 200;
	return strncmp(text, "HTTP/1.1 503 ", 13) == 0 ? 503 : 0;
}

static void until_answered(struct bed *b)
{
	for (int i = 0; i < ROUNDS && b->answers == 0; i++)
		turns(b, 1);
	turns(b, 1);
}

static void test_a_probe_is_answered_at_once_after_the_start(void **state)
{
	struct bed b;

	bed_up(&b);
	b.starting = false;
	ask(&b);
	assert_int_equal(status(&b), 503);
	b.healthy = true;
	ask(&b);
	assert_int_equal(status(&b), 200);
	bed_down(&b);
}

static void test_an_early_probe_hears_how_the_start_ended(void **state)
{
	for (int healthy = 0; healthy < 2; healthy++) {
		struct bed b;

		bed_up(&b);
		ask(&b);
		assert_int_equal(status(&b), 0);
		assert_int_equal(b.answers, 0);
		b.healthy = healthy == 1;
		b.starting = false;
		until_answered(&b);
		assert_int_equal(status(&b), healthy ? 200 : 503);
		assert_int_equal(b.answers, 1);
		bed_down(&b);
	}
}

static void test_a_probe_waits_for_half_a_second_and_no_longer(void **state)
{
	struct bed b;

	bed_up(&b);
	ask(&b);
	clock_fake((START_MS + API_HEALTH_WAIT_MS - 1) * 1000, 0);
	turns(&b, 4);
	assert_int_equal(b.answers, 0);
	clock_fake((START_MS + API_HEALTH_WAIT_MS) * 1000, 0);
	until_answered(&b);
	assert_int_equal(status(&b), 503);
	bed_down(&b);
}

static void test_each_of_many_probes_is_answered_once(void **state)
{
	struct bed b;
	int more[8];

	bed_up(&b);
	for (size_t i = 0; i < ARRAY_LEN(more); i++) {
		more[i] = connected(&b, false);
		assert_int_equal(write(more[i], PROBE, sizeof(PROBE) - 1), sizeof(PROBE) - 1);
	}
	ask(&b);
	assert_int_equal(b.answers, 0);
	b.starting = false;
	until_answered(&b);
	assert_int_equal(b.answers, ARRAY_LEN(more) + 1);
	for (size_t i = 0; i < ARRAY_LEN(more); i++)
		(void)close(more[i]);
	bed_down(&b);
}

static void test_a_probe_whose_connection_was_ended_does_not_wait(void **state)
{
	struct bed b;

	bed_up(&b);
	ask(&b);
	api_conn_free(TAILQ_FIRST(&b.api->conns)); /* room was needed */
	until_answered(&b);
	assert_int_equal(b.answers, 1);
	bed_down(&b);
}

/* The sandbox reaches this port without a token, and may ask as often as it likes. */
static void test_waiting_probes_of_the_sandbox_do_not_shut_others_out(void **state)
{
	int held[API_CONNS_MAX];
	struct bed b;

	bed_up(&b);
	for (size_t i = 0; i < ARRAY_LEN(held); i++) {
		held[i] = connected(&b, true);
		assert_int_equal(write(held[i], PROBE, sizeof(PROBE) - 1), sizeof(PROBE) - 1);
		turns(&b, 1);
	}
	(void)close(b.fd);
	b.fd = connected(&b, false);
	ask(&b);
	b.starting = false;
	b.healthy = true;
	until_answered(&b);
	assert_int_equal(status(&b), 200);
	for (size_t i = 0; i < ARRAY_LEN(held); i++)
		(void)close(held[i]);
	bed_down(&b);
}

static void test_what_waits_is_answered_before_the_end(void **state)
{
	struct bed b;

	bed_up(&b);
	ask(&b);
	api_health_free(b.health);
	b.health = NULL;
	turns(&b, 1);
	assert_int_equal(b.answers, 1);
	assert_int_equal(status(&b), 503);
	bed_down(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_probe_is_answered_at_once_after_the_start),
		cmocka_unit_test(test_an_early_probe_hears_how_the_start_ended),
		cmocka_unit_test(test_a_probe_waits_for_half_a_second_and_no_longer),
		cmocka_unit_test(test_each_of_many_probes_is_answered_once),
		cmocka_unit_test(test_a_probe_whose_connection_was_ended_does_not_wait),
		cmocka_unit_test(test_waiting_probes_of_the_sandbox_do_not_shut_others_out),
		cmocka_unit_test(test_what_waits_is_answered_before_the_end),
	};

	(void)signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
