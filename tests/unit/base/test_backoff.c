/* Both ends of each wait, and that it does come near to both. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/backoff.h"

static void test_waits(void **state)
{
	static const struct {
		uint64_t first_ms;
		unsigned n;
		uint64_t least, most;
	} rows[] = {
		{5000, 0, 4000, 5999},
		{5000, 1, 8000, 11999},
		{5000, 2, 16000, 23999},
		{5000, 3, 32000, 47999},
		{5000, 4, 48000, 71999},
		{5000, 1000000, 48000, 71999},
		{5000, UINT32_MAX, 48000, 71999},
		{1000, 1, 1600, 2399},
		{90000, 0, 48000, 71999},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint64_t tenth = (rows[i].most - rows[i].least) / 10;
		uint64_t least = UINT64_MAX, most = 0;

		/* That none of them is in one tenth has a chance of 1 in 10^450. */
		for (int tries = 0; tries < 10000; tries++) {
			uint64_t ms = backoff_ms(rows[i].first_ms, rows[i].n);

			least = ms < least ? ms : least;
			most = ms > most ? ms : most;
		}
		assert_in_range(least, rows[i].least, rows[i].least + tenth);
		assert_in_range(most, rows[i].most - tenth, rows[i].most);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_waits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
