/* The worker's side of the guard over a socket pair, with a guard that is played here: answers in
 * order, calls that are called off, a full socket, and every way to lose the guard. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>
#include <event2/event.h>

#include "base/arena.h"
#include "base/clock.h"
#include "nft/guard_client.h"

int __real_event_add(struct event *e, const struct timeval *tv);
int __wrap_event_add(struct event *e, const struct timeval *tv);

/* The limit of a stalled guard, made short. */
int __wrap_event_add(struct event *e, const struct timeval *tv)
{
	static const struct timeval soon = {0, 80000};

	return __real_event_add(e, tv && tv->tv_sec == GUARD_CLIENT_STALL_MS / 1000 ? &soon : tv);
}

struct bed {
	struct event_base *base;
	struct guard_client *client;
	int guard; /* -1: closed */
	int lost;
	int states;
	int flows;
	bool free_on_lost;
	bool free_on_done;
};

struct call {
	struct bed *bed;
	int done;
	int err;
};

static const struct guard_lease one = {
	.addr = {{[10] = 0xff, [11] = 0xff, 10, 0, 0, 1}}, .seconds = 60};

static void on_lost(void *arg)
{
	struct bed *b = arg;

	b->lost++;
	if (b->free_on_lost) {
		guard_client_free(b->client);
		b->client = NULL;
	}
}

static void on_flow(const struct guard_flow *f, void *arg)
{
	struct bed *b = arg;

	assert_int_equal(f->to_port, 443);
	b->flows++;
}

static void on_state(const struct guard_state *s, void *arg)
{
	struct bed *b = arg;

	assert_int_equal(s->queues_held, 7);
	b->states++;
}

static void on_done(int err, void *arg)
{
	struct call *c = arg;

	c->done++;
	c->err = err;
	if (c->bed->free_on_done) {
		guard_client_free(c->bed->client);
		c->bed->client = NULL;
	}
}

static void bed_init(struct bed *b)
{
	static const struct guard_client_events events = {on_lost, on_flow, on_state};
	int fds[2];

	*b = (struct bed){.base = event_base_new()};
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds), 0);
	b->guard = fds[1];
	b->client = guard_client_new(b->base, fds[0], &events, b);
}

static void bed_fini(struct bed *b)
{
	guard_client_free(b->client);
	if (b->guard >= 0)
		assert_int_equal(close(b->guard), 0);
	event_base_free(b->base);
}

static void bed_run(struct bed *b)
{
	assert_true(event_base_loop(b->base, EVLOOP_NONBLOCK) >= 0);
}

/* Runs until the condition of the caller holds or nothing is left to wait for. */
static void bed_wait(struct bed *b)
{
	assert_true(event_base_loop(b->base, EVLOOP_ONCE) >= 0);
}

static union guard_any guard_take(struct bed *b, size_t *len)
{
	union guard_any m;
	ssize_t n = recv(b->guard, &m, sizeof(m), MSG_DONTWAIT);

	assert_true(n > 0);
	assert_true(guard_msg_valid(&m, (size_t)n, false));
	*len = (size_t)n;
	return m;
}

static void guard_answer(struct bed *b, uint32_t id, int err)
{
	const struct guard_done m = {{GUARD_DONE, id}, err};

	assert_int_equal(send(b->guard, &m, sizeof(m), 0), sizeof(m));
}

static void test_a_call_ends_once_and_later(void **state)
{
	struct bed b;
	union guard_any m;
	size_t len;

	bed_init(&b);
	struct call first = {&b, 0, 0};
	struct call second = {&b, 0, 0};

	assert_non_null(guard_allow_start(b.client, &one, 1, on_done, &first));
	assert_non_null(guard_allow_start(b.client, &one, 1, on_done, &second));
	m = guard_take(&b, &len);
	assert_int_equal(m.allow.n, 1);
	assert_int_equal(m.allow.lease[0].seconds, 60);
	guard_answer(&b, m.head.id, 0);
	assert_int_equal(first.done, 0);
	bed_run(&b);
	assert_int_equal(first.done, 1);
	assert_int_equal(second.done, 0);
	m = guard_take(&b, &len);
	guard_answer(&b, m.head.id, -ENFILE);
	bed_run(&b);
	assert_int_equal(first.done, 1);
	assert_int_equal(second.done, 1);
	assert_int_equal(second.err, -ENFILE);
	assert_int_equal(b.lost, 0);
	bed_fini(&b);
}

static void test_a_call_that_is_called_off_stays_silent(void **state)
{
	struct bed b;
	struct guard_call *c;
	union guard_any m;
	size_t len;

	bed_init(&b);
	struct call off = {&b, 0, 0};
	struct call next = {&b, 0, 0};

	c = guard_allow_start(b.client, &one, 1, on_done, &off);
	assert_non_null(guard_allow_start(b.client, &one, 1, on_done, &next));
	guard_call_cancel(c);
	guard_call_cancel(NULL);
	for (int i = 0; i < 2; i++) {
		m = guard_take(&b, &len);
		guard_answer(&b, m.head.id, 0);
	}
	bed_run(&b);
	assert_int_equal(off.done, 0);
	assert_int_equal(next.done, 1);
	bed_fini(&b);
}

static void test_what_is_out_of_range_is_not_sent(void **state)
{
	const struct ruleset_options wrong = {.uid = 0};
	struct guard_lease many[GUARD_LEASES_MAX + 1];
	struct guard_lease bad = one;
	struct ruleset r;
	struct bed b;
	char buf[8];

	bed_init(&b);
	for (size_t i = 0; i < ARRAY_LEN(many); i++)
		many[i] = one;
	bad.seconds = 0;
	ruleset_init(&r, &wrong);
	assert_null(guard_allow_start(b.client, many, 0, on_done, &b));
	assert_null(guard_allow_start(b.client, many, GUARD_LEASES_MAX + 1, on_done, &b));
	assert_null(guard_allow_start(b.client, &bad, 1, on_done, &b));
	assert_null(guard_apply_start(b.client, &r, on_done, &b));
	assert_true(recv(b.guard, buf, sizeof(buf), MSG_DONTWAIT) < 0);
	assert_non_null(guard_allow_start(b.client, many, GUARD_LEASES_MAX, NULL, NULL));
	bed_fini(&b);
}

static struct ruleset ruleset_of(size_t n)
{
	const struct ruleset_options o = {
		.uid = 10042, .api_port = 1, .web_port = 2, .dns_port = 3, .enforce = 1};
	struct ruleset_entry e = {.lo = one.addr, .hi = one.addr, .port_hi = UINT16_MAX};
	struct ruleset r;

	ruleset_init(&r, &o);
	for (size_t i = 0; i < n; i++) {
		e.lo.b[14] = e.hi.b[14] = (uint8_t)(i >> 8);
		e.lo.b[15] = e.hi.b[15] = (uint8_t)i;
		e.lo.b[13] = e.hi.b[13] = (uint8_t)(i >> 16);
		assert_int_equal(ruleset_add(&r, &e), 0);
	}
	return r;
}

/* More than the socket takes: it waits here, and the caller's ruleset may be gone. */
static void test_a_large_ruleset_arrives_whole(void **state)
{
	const size_t n = 20 * GUARD_CHUNK_MAX + 3000;
	struct ruleset r = ruleset_of(n);
	struct guard_draft d = {0};
	struct bed b;
	int ret = E_MORE;

	bed_init(&b);
	struct call c = {&b, 0, 0};

	assert_non_null(guard_apply_start(b.client, &r, on_done, &c));
	ruleset_fini(&r);
	r = ruleset_of(n);
	while (ret == E_MORE) {
		size_t len;
		union guard_any m = guard_take(&b, &len);

		ret = guard_draft_take(&d, &m);
		if (ret == 0)
			guard_answer(&b, m.head.id, 0);
		bed_run(&b);
	}
	assert_int_equal(ret, 0);
	bed_run(&b);
	assert_int_equal(c.done, 1);
	assert_int_equal(d.ruleset.n, n);
	assert_memory_equal(d.ruleset.entry, r.entry, n * sizeof(*r.entry));
	assert_memory_equal(&d.ruleset.options, &r.options, sizeof(r.options));
	guard_draft_fini(&d);
	ruleset_fini(&r);
	bed_fini(&b);
}

static void test_states_and_flows_are_passed_on(void **state)
{
	struct guard_state s = {.head = {GUARD_STATE, 0}, .queues_held = 7};
	struct guard_flow f = {.head = {GUARD_FLOW, 0}, .to_port = 443, .count = 1};
	struct bed b;

	bed_init(&b);
	assert_int_equal(guard_client_state(b.client)->part[0].status, GUARD_UNUSED);
	s.part[GUARD_PART_TABLE].status = GUARD_LOST;
	assert_true(send(b.guard, &s, sizeof(s), 0) > 0);
	assert_true(send(b.guard, &f, sizeof(f), 0) > 0);
	bed_run(&b);
	assert_int_equal(b.states, 1);
	assert_int_equal(b.flows, 1);
	assert_int_equal(guard_client_state(b.client)->part[GUARD_PART_TABLE].status, GUARD_LOST);
	bed_fini(&b);
}

enum loss { LOSS_CLOSED, LOSS_NONSENSE, LOSS_WRONG_WAY, LOSS_WRONG_ID, LOSS_LONG, LOSS_STALLED };

static void lose(struct bed *b, enum loss how)
{
	static char nonsense[sizeof(union guard_any) + 1];
	struct guard_commit wrong_way = {.head = {GUARD_COMMIT, 1}};

	switch (how) {
	case LOSS_CLOSED:
		assert_int_equal(close(b->guard), 0);
		b->guard = -1;
		break;
	case LOSS_NONSENSE:
		assert_true(send(b->guard, "nonsense", 8, 0) > 0);
		break;
	case LOSS_WRONG_WAY:
		assert_true(send(b->guard, &wrong_way, sizeof(wrong_way), 0) > 0);
		break;
	case LOSS_WRONG_ID:
		guard_answer(b, 12345, 0);
		break;
	case LOSS_LONG:
		assert_true(send(b->guard, nonsense, sizeof(nonsense), 0) > 0);
		break;
	case LOSS_STALLED:
		break;
	}
}

static void test_every_loss_ends_all_calls_and_is_told_once(void **state)
{
	for (int how = LOSS_CLOSED; how <= LOSS_STALLED; how++) {
		for (int freed = 0; freed < 2; freed++) {
			struct bed b;

			bed_init(&b);
			struct call calls[3] = {{&b, 0, 0}, {&b, 0, 0}, {&b, 0, 0}};

			b.free_on_lost = freed;
			for (int i = 0; i < 3; i++)
				assert_non_null(
					guard_allow_start(b.client, &one, 1, on_done, &calls[i]));
			lose(&b, (enum loss)how);
			for (int i = 0; i < 50 && b.lost == 0; i++)
				bed_wait(&b);
			bed_run(&b);
			assert_int_equal(b.lost, 1);
			for (int i = 0; i < 3; i++) {
				assert_int_equal(calls[i].done, 1);
				assert_int_equal(calls[i].err, E_GUARD);
			}
			if (!freed)
				assert_null(
					guard_allow_start(b.client, &one, 1, on_done, &calls[0]));
			bed_fini(&b);
		}
	}
}

/* For some of what the limit of the bed is. */
static void bed_pass(struct bed *b)
{
	static const struct timeval part = {0, 5000};

	assert_int_equal(event_base_loopexit(b->base, &part), 0);
	assert_true(event_base_dispatch(b->base) >= 0);
}

static void guard_beat(struct bed *b)
{
	const struct guard_head m = {GUARD_BEAT, 0};

	assert_int_equal(send(b->guard, &m, sizeof(m), 0), sizeof(m));
}

static void test_a_guard_that_beats_is_not_lost_and_a_silent_one_is(void **state)
{
	struct bed b;

	bed_init(&b);
	for (int i = 0; i < 20; i++) {
		guard_beat(&b);
		bed_pass(&b);
		assert_int_equal(b.lost, 0);
	}
	for (int i = 0; i < 50 && b.lost == 0; i++)
		bed_pass(&b);
	assert_int_equal(b.lost, 1);
	assert_true(guard_client_is_silent(b.client));
	bed_fini(&b);
}

static void test_a_guard_that_ended_is_not_silent(void **state)
{
	struct bed b;

	bed_init(&b);
	lose(&b, LOSS_CLOSED);
	bed_wait(&b);
	bed_run(&b);
	assert_int_equal(b.lost, 1);
	assert_false(guard_client_is_silent(b.client));
	bed_fini(&b);
}

/* The timer ran out while we were stopped ourselves, and the guard perhaps with us. */
static void test_a_limit_that_is_over_too_late_begins_anew(void **state)
{
	static const unsigned late_ms[] = {GUARD_CLIENT_LATE_MS, GUARD_CLIENT_LATE_MS + 1};

	for (size_t i = 0; i < ARRAY_LEN(late_ms); i++) {
		struct bed b;

		clock_fake(0, 0);
		bed_init(&b);
		clock_fake((GUARD_CLIENT_STALL_MS + late_ms[i]) * UINT64_C(1000), 0);
		bed_wait(&b);
		bed_run(&b);
		assert_int_equal(b.lost, i == 0);
		for (int k = 0; k < 50 && b.lost == 0; k++)
			bed_pass(&b);
		assert_int_equal(b.lost, 1);
		bed_fini(&b);
	}
}

static void test_new_calls_give_a_stopped_guard_no_more_time(void **state)
{
	struct bed b;

	bed_init(&b);
	struct call calls[400];
	int n = 0;

	while (b.lost == 0 && n < 400) {
		calls[n] = (struct call){&b, 0, 0};
		assert_non_null(guard_allow_start(b.client, &one, 1, on_done, &calls[n]));
		n++;
		/* Each round takes a part of the limit. */
		(void)event_base_loopexit(b.base, &(const struct timeval){0, 5000});
		assert_true(event_base_dispatch(b.base) >= 0);
	}
	assert_int_equal(b.lost, 1);
	assert_true(n < 50);
	bed_fini(&b);
}

static void test_the_client_may_be_freed_in_a_callback(void **state)
{
	struct bed b;
	union guard_any m;
	size_t len;

	bed_init(&b);
	struct call c = {&b, 0, 0};
	struct call other = {&b, 0, 0};

	b.free_on_done = true;
	assert_non_null(guard_allow_start(b.client, &one, 1, on_done, &c));
	assert_non_null(guard_allow_start(b.client, &one, 1, on_done, &other));
	m = guard_take(&b, &len);
	guard_answer(&b, m.head.id, 0);
	m = guard_take(&b, &len);
	guard_answer(&b, m.head.id, 0);
	bed_run(&b);
	assert_int_equal(c.done, 1);
	assert_int_equal(other.done, 0);
	assert_null(b.client);
	bed_fini(&b);
}

static void test_calls_have_a_ceiling(void **state)
{
	struct bed b;

	bed_init(&b);
	for (int i = 0; i < GUARD_CALLS_MAX; i++)
		assert_non_null(guard_allow_start(b.client, &one, 1, NULL, NULL));
	assert_null(guard_allow_start(b.client, &one, 1, NULL, NULL));
	bed_fini(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_call_ends_once_and_later),
		cmocka_unit_test(test_a_call_that_is_called_off_stays_silent),
		cmocka_unit_test(test_what_is_out_of_range_is_not_sent),
		cmocka_unit_test(test_a_large_ruleset_arrives_whole),
		cmocka_unit_test(test_states_and_flows_are_passed_on),
		cmocka_unit_test(test_every_loss_ends_all_calls_and_is_told_once),
		cmocka_unit_test(test_a_guard_that_beats_is_not_lost_and_a_silent_one_is),
		cmocka_unit_test(test_a_guard_that_ended_is_not_silent),
		cmocka_unit_test(test_a_limit_that_is_over_too_late_begins_anew),
		cmocka_unit_test(test_new_calls_give_a_stopped_guard_no_more_time),
		cmocka_unit_test(test_the_client_may_be_freed_in_a_callback),
		cmocka_unit_test(test_calls_have_a_ceiling),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
