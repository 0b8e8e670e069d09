/* Time limits: when they fire, what the fired may do to the list, and that an idle proxy has no
 * timer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>
#include <event2/event.h>

#include "base/clock.h"
#include "proxy/deadline.h"

struct bomb {
	struct deadlines *all;
	struct deadline deadline;
	struct bomb *removes, *adds;
	int fired;
};

static struct event_base *base;
static struct deadlines all;

static int setup(void **state)
{
	base = event_base_new();
	deadlines_init(&all, base);
	return base ? 0 : -1;
}

static int teardown(void **state)
{
	deadlines_fini(&all);
	event_base_free(base);
	return 0;
}

static void on_bomb(void *arg);

static void bomb_add(struct bomb *b, uint64_t at_ms)
{
	b->all = &all;
	deadline_add(&all, &b->deadline, on_bomb, b);
	assert_int_equal(b->deadline.at_ms, 0);
	b->deadline.at_ms = at_ms;
}

static void on_bomb(void *arg)
{
	struct bomb *b = arg;

	assert_int_equal(b->deadline.at_ms, 0);
	b->fired++;
	if (b->removes)
		deadline_remove(&all, &b->removes->deadline);
	if (b->adds)
		bomb_add(b->adds, 1);
}

static void test_fires_at_its_time_and_once(void **state)
{
	struct bomb b = {0};

	bomb_add(&b, 1000);
	deadlines_sweep(&all, 999);
	assert_int_equal(b.fired, 0);
	deadlines_sweep(&all, 1000);
	assert_int_equal(b.fired, 1);
	deadlines_sweep(&all, 5000);
	assert_int_equal(b.fired, 1);
	b.deadline.at_ms = 6000;
	deadlines_sweep(&all, 6001);
	assert_int_equal(b.fired, 2);
	deadline_remove(&all, &b.deadline);
}

static void test_shifted_ones_fire_so_much_later(void **state)
{
	struct bomb b = {0};
	struct bomb none = {0};

	bomb_add(&b, 1000);
	bomb_add(&none, 0);
	deadlines_shift(&all, 500);
	deadlines_sweep(&all, 1499);
	assert_int_equal(b.fired, 0);
	deadlines_sweep(&all, 1500);
	assert_int_equal(b.fired, 1);
	assert_int_equal(none.fired, 0);
	deadline_remove(&all, &b.deadline);
	deadline_remove(&all, &none.deadline);
}

static void test_zero_never_fires(void **state)
{
	struct bomb b = {0};

	bomb_add(&b, 0);
	deadlines_sweep(&all, UINT64_MAX);
	assert_int_equal(b.fired, 0);
	deadline_remove(&all, &b.deadline);
}

static void test_fired_may_remove_any_of_them(void **state)
{
	for (int which = 0; which < 3; which++) {
		struct bomb b[3] = {{0}};

		for (int i = 0; i < 3; i++)
			bomb_add(&b[i], 1);
		b[1].removes = &b[which];
		deadlines_sweep(&all, 1);
		assert_int_equal(b[0].fired, 1);
		assert_int_equal(b[1].fired, 1);
		assert_int_equal(b[2].fired, which == 2 ? 0 : 1);
		for (int i = 0; i < 3; i++)
			deadline_remove(&all, &b[i].deadline);
	}
}

static void test_fired_may_add_one(void **state)
{
	struct bomb b = {0}, late = {0};

	b.adds = &late;
	bomb_add(&b, 1);
	deadlines_sweep(&all, 1);
	assert_int_equal(b.fired, 1);
	deadlines_sweep(&all, 2);
	assert_int_equal(late.fired, 1);
	deadline_remove(&all, &b.deadline);
	deadline_remove(&all, &late.deadline);
}

static void test_removing_twice_or_never_added_is_nothing(void **state)
{
	struct bomb b = {0};

	deadline_remove(&all, &b.deadline);
	bomb_add(&b, 1);
	deadline_remove(&all, &b.deadline);
	deadline_remove(&all, &b.deadline);
	deadlines_sweep(&all, 2);
	assert_int_equal(b.fired, 0);
}

static void test_timer_runs_only_while_something_is_watched(void **state)
{
	struct timeval due;
	struct bomb a = {0}, b = {0};

	assert_false(event_pending(all.timer, EV_TIMEOUT, NULL));
	bomb_add(&a, 0);
	assert_true(event_pending(all.timer, EV_TIMEOUT, &due));
	bomb_add(&b, 0);
	deadline_remove(&all, &a.deadline);
	assert_true(event_pending(all.timer, EV_TIMEOUT, NULL));
	deadline_remove(&all, &b.deadline);
	assert_false(event_pending(all.timer, EV_TIMEOUT, NULL));
	bomb_add(&a, 0);
	assert_true(event_pending(all.timer, EV_TIMEOUT, NULL));
	deadline_remove(&all, &a.deadline);
}

/* The timer's own callback, without waiting for it. */
static void test_timer_sweeps_by_the_clock(void **state)
{
	struct bomb b = {0};

	clock_fake(5000 * 1000, 0);
	bomb_add(&b, 5001);
	event_active(all.timer, EV_TIMEOUT, 0);
	(void)event_base_loop(base, EVLOOP_NONBLOCK);
	assert_int_equal(b.fired, 0);
	clock_fake(5001 * 1000, 0);
	event_active(all.timer, EV_TIMEOUT, 0);
	(void)event_base_loop(base, EVLOOP_NONBLOCK);
	assert_int_equal(b.fired, 1);
	deadline_remove(&all, &b.deadline);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fires_at_its_time_and_once),
		cmocka_unit_test(test_shifted_ones_fire_so_much_later),
		cmocka_unit_test(test_zero_never_fires),
		cmocka_unit_test(test_fired_may_remove_any_of_them),
		cmocka_unit_test(test_fired_may_add_one),
		cmocka_unit_test(test_removing_twice_or_never_added_is_nothing),
		cmocka_unit_test(test_timer_runs_only_while_something_is_watched),
		cmocka_unit_test(test_timer_sweeps_by_the_clock),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
