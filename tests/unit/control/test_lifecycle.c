/* How often the API is asked. What its answers come to: test_lifecycle_state.c; the rest by a
 * running program, tests/e2e/lifecycle_follow.py. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "control/lifecycle.h"

static void test_waits(void **state)
{
	static const struct {
		unsigned failures;
		uint64_t asked_ms, least, most;
		uint64_t kept_ms; /* of what was asked */
	} rows[] = {
		{0, 0, 4000, 6000, 0},
		{1, 0, 8000, 12000, 0},
		{2, 0, 16000, 24000, 0},
		{3, 0, 32000, 48000, 0},
		{4, 0, 48000, 72000, 0},
		{1000000, 0, 48000, 72000, 0},
		{UINT32_MAX, 0, 48000, 72000, 0},
		{0, 5000, 5000, 6000, 5000},
		{0, 100000, 100000, 100000, 100000},
		{0, 300000, 300000, 300000, 300000},
		{0, 300001, 300000, 300000, 300000},
		{0, UINT64_MAX, 300000, 300000, 300000},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		uint64_t least = UINT64_MAX, most = 0;

		for (uint32_t random = 0; random < 100000; random++) {
			uint64_t asked = rows[i].asked_ms;
			uint64_t ms = lifecycle_wait_ms(rows[i].failures, &asked, random);

			assert_int_equal(asked, rows[i].kept_ms);
			least = ms < least ? ms : least;
			most = ms > most ? ms : most;
		}
		assert_int_equal(least, rows[i].least);
		assert_in_range(most, rows[i].most - 1, rows[i].most);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_waits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
