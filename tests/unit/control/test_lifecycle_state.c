/* The state table (control/lifecycle_state), row by row: what was known, what is seen, what counts
 * then. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "control/lifecycle_state.h"

#define NOW UINT64_C(1000000)
#define S(x) LIFECYCLE_##x
#define C(x) LIFECYCLE_CAUSE_##x

/* An answer: a state (status 200), or without one a status. */
struct answer {
	int status;
	enum lifecycle_state state;
	uint64_t expires_us;
};

static bool see(struct lifecycle_known *k, const struct answer *a)
{
	struct lifecycle_sandbox s = {.state = a->state, .expires_us = a->expires_us};

	return lifecycle_state_see(k, a->status == 200 ? &s : NULL, a->status, NOW);
}

static void test_rows(void **state)
{
	static const struct {
		enum lifecycle_enforce before;
		struct answer seen;
		enum lifecycle_enforce want;
		enum lifecycle_cause cause;
	} rows[] = {
		{S(OPEN), {200, S(PENDING), 0}, S(OPEN), C(STATE)},
		{S(OPEN), {200, S(RUNNING), 0}, S(OPEN), C(STATE)},
		{S(OPEN), {200, S(PAUSING), 0}, S(NO_NEW_FLOWS), C(STATE)},
		{S(OPEN), {200, S(PAUSED), 0}, S(OPEN), C(STATE)},
		{S(NO_NEW_FLOWS), {200, S(PAUSED), 0}, S(NO_NEW_FLOWS), C(STATE)},
		{S(CLOSED), {200, S(PAUSED), 0}, S(CLOSED), C(STATE)},
		{S(NO_NEW_FLOWS), {200, S(RESUMING), 0}, S(OPEN), C(STATE)},
		{S(CLOSED_ERASE), {200, S(RUNNING), 0}, S(OPEN), C(STATE)},
		{S(OPEN), {200, S(STOPPING), 0}, S(CLOSED_ERASE), C(STATE)},
		{S(OPEN), {200, S(TERMINATED), 0}, S(CLOSED_ERASE), C(STATE)},
		{S(OPEN), {200, S(FAILED), 0}, S(CLOSED_ERASE), C(STATE)},
		{S(OPEN), {200, S(UNKNOWN), 0}, S(OPEN), C(NEW_STATE)},
		{S(CLOSED), {200, S(UNKNOWN), 0}, S(CLOSED), C(NEW_STATE)},
		{S(CLOSED_ERASE), {200, S(UNKNOWN), 0}, S(CLOSED_ERASE), C(NEW_STATE)},
		{S(OPEN), {200, S(RUNNING), NOW + 1}, S(OPEN), C(STATE)},
		{S(OPEN), {200, S(RUNNING), NOW}, S(CLOSED_ERASE), C(EXPIRED)},
		{S(OPEN), {200, S(UNKNOWN), NOW}, S(CLOSED_ERASE), C(EXPIRED)},
		{S(OPEN), {0, 0, 0}, S(OPEN), C(UNREACHABLE)},
		{S(OPEN), {500, 0, 0}, S(OPEN), C(UNREACHABLE)},
		{S(OPEN), {429, 0, 0}, S(OPEN), C(UNREACHABLE)},
		{S(OPEN), {409, 0, 0}, S(OPEN), C(UNREACHABLE)},
		{S(CLOSED), {503, 0, 0}, S(CLOSED), C(UNREACHABLE)},
		{S(OPEN), {401, 0, 0}, S(OPEN), C(KEY_REFUSED)},
		{S(OPEN), {403, 0, 0}, S(OPEN), C(KEY_REFUSED)},
		{S(CLOSED_ERASE), {401, 0, 0}, S(CLOSED_ERASE), C(KEY_REFUSED)},
		{S(OPEN), {404, 0, 0}, S(OPEN), C(GONE_ONCE)},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct lifecycle_known k = {.enforce = rows[i].before};

		assert_true(see(&k, &rows[i].seen));
		assert_int_equal(k.enforce, rows[i].want);
		assert_int_equal(k.cause, rows[i].cause);
		assert_false(see(&k, &rows[i].seen) && rows[i].seen.status != 404);
	}
}

/* Nothing that the API says or leaves unsaid opens what was closed, but a state that says so. */
static void test_only_three_states_open(void **state)
{
	for (int s = 0; s < LIFECYCLE_STATES; s++)
		for (int e = 0; e < LIFECYCLE_ENFORCES; e++) {
			struct lifecycle_known k = {.enforce = (enum lifecycle_enforce)e};
			bool opens = s == S(PENDING) || s == S(RUNNING) || s == S(RESUMING);

			(void)see(&k, &(struct answer){200, (enum lifecycle_state)s, 0});
			if (s == S(PAUSING))
				assert_int_equal(k.enforce, S(NO_NEW_FLOWS));
			else
				assert_true(opens || (int)k.enforce >= e);
		}
}

static void test_sequences(void **state)
{
	static const struct {
		struct answer first, second;
		enum lifecycle_enforce want;
		enum lifecycle_cause cause;
	} rows[] = {
		/* 404: twice, or once after an answer. */
		{{404, 0, 0}, {404, 0, 0}, S(CLOSED_ERASE), C(GONE)},
		{{200, S(RUNNING), 0}, {404, 0, 0}, S(CLOSED_ERASE), C(GONE)},
		{{404, 0, 0}, {500, 0, 0}, S(OPEN), C(UNREACHABLE)},
		{{404, 0, 0}, {200, S(RUNNING), 0}, S(OPEN), C(STATE)},
		/* The last known expiry counts when nobody answers; the keys stay. */
		{{200, S(RUNNING), NOW + 1}, {500, 0, 0}, S(OPEN), C(UNREACHABLE)},
		{{200, S(RUNNING), NOW}, {200, S(RUNNING), NOW + 9}, S(OPEN), C(STATE)},
		{{200, S(RUNNING), NOW}, {200, S(RUNNING), 0}, S(OPEN), C(STATE)},
		{{200, S(RUNNING), NOW + 9}, {200, S(RUNNING), NOW}, S(CLOSED_ERASE), C(EXPIRED)},
		{{200, S(RUNNING), NOW}, {500, 0, 0}, S(CLOSED_ERASE), C(UNREACHABLE_EXPIRED)},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct lifecycle_known k = {.enforce = S(OPEN)};

		(void)see(&k, &rows[i].first);
		(void)see(&k, &rows[i].second);
		assert_int_equal(k.enforce, rows[i].want);
		assert_int_equal(k.cause, rows[i].cause);
	}
}

static void test_a_404_between_failures_does_not_count_twice(void **state)
{
	struct lifecycle_known k = {.enforce = S(OPEN)};

	for (int i = 0; i < 3; i++) {
		(void)see(&k, &(struct answer){404, 0, 0});
		assert_int_equal(k.enforce, S(OPEN));
		(void)see(&k, &(struct answer){503, 0, 0});
	}
	assert_int_equal(k.enforce, S(OPEN));
}

static void test_silence_after_the_expiry_closes(void **state)
{
	static const int silent[] = {0, 401, 500};

	for (size_t i = 0; i < ARRAY_LEN(silent); i++) {
		struct lifecycle_known k = {.enforce = S(OPEN), .expires_us = NOW, .found = true};

		(void)see(&k, &(struct answer){silent[i], 0, 0});
		assert_int_equal(k.enforce, S(CLOSED));
		assert_int_equal(k.cause, C(UNREACHABLE_EXPIRED));
	}
}

static void test_what_did_not_change_is_no_change(void **state)
{
	struct lifecycle_known k = {.enforce = S(OPEN)};

	assert_true(see(&k, &(struct answer){200, S(RUNNING), NOW + 5}));
	assert_false(see(&k, &(struct answer){200, S(RUNNING), NOW + 5}));
	assert_true(see(&k, &(struct answer){200, S(RUNNING), NOW + 6}));
	assert_true(see(&k, &(struct answer){200, S(RESUMING), NOW + 6}));
	assert_true(see(&k, &(struct answer){500, 0, 0}));
	assert_false(see(&k, &(struct answer){0, 0, 0}));
}

static void test_each_has_a_text(void **state)
{
	for (int e = 0; e < LIFECYCLE_ENFORCES; e++)
		assert_true(lifecycle_enforce_text((enum lifecycle_enforce)e)[0]);
	for (int c = 0; c < LIFECYCLE_CAUSES; c++)
		assert_true(lifecycle_cause_text((enum lifecycle_cause)c)[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rows),
		cmocka_unit_test(test_only_three_states_open),
		cmocka_unit_test(test_sequences),
		cmocka_unit_test(test_a_404_between_failures_does_not_count_twice),
		cmocka_unit_test(test_silence_after_the_expiry_closes),
		cmocka_unit_test(test_what_did_not_change_is_no_change),
		cmocka_unit_test(test_each_has_a_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
