/* Times as RFC 3339 text and back, and the fake clocks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/clock.h"

static void test_real_clocks_run_in_microseconds(void **state)
{
	uint64_t mono = clock_mono_us();
	uint64_t wall = clock_wall_us();
	time_t now = time(NULL);

	assert_true(clock_mono_us() >= mono);
	assert_true(clock_mono_ms() >= mono / 1000);
	assert_true(clock_mono_ms() - mono / 1000 < 60000);
	assert_in_range(wall / 1000000, (uint64_t)now - 60, (uint64_t)now + 60);
}

static void test_fake_clocks_stand(void **state)
{
	clock_fake(1234567, 99);
	assert_int_equal(clock_mono_us(), 1234567);
	assert_int_equal(clock_mono_ms(), 1234);
	assert_int_equal(clock_wall_us(), 99);
	clock_fake(0, 0);
	assert_int_equal(clock_mono_us(), 0);
	assert_int_equal(clock_wall_us(), 0);
}

static const struct {
	uint64_t us;
	const char *text;
} times[] = {
	{0, "1970-01-01T00:00:00.000000Z"},
	{1, "1970-01-01T00:00:00.000001Z"},
	{951782399999999, "2000-02-28T23:59:59.999999Z"},
	{951782400000000, "2000-02-29T00:00:00.000000Z"},
	{1767323045678901, "2026-01-02T03:04:05.678901Z"},
	{4107542400000000, "2100-03-01T00:00:00.000000Z"},
	{253402300799999999, "9999-12-31T23:59:59.999999Z"},
};

static void test_text_is_written_and_read_back(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(times); i++) {
		char buf[CLOCK_TEXT_MAX];
		uint64_t us = 7;

		clock_text(times[i].us, buf);
		assert_string_equal(buf, times[i].text);
		assert_true(clock_parse(buf, &us));
		assert_int_equal(us, times[i].us);
	}
}

static void test_time_past_year_9999_stays_at_its_end(void **state)
{
	char buf[CLOCK_TEXT_MAX];

	clock_text(253402300800000000, buf);
	assert_string_equal(buf, "9999-12-31T23:59:59.999999Z");
	clock_text(UINT64_MAX, buf);
	assert_string_equal(buf, "9999-12-31T23:59:59.999999Z");
}

static void test_short_spellings_are_read(void **state)
{
	static const struct {
		const char *text;
		uint64_t us;
	} rows[] = {
		{"1970-01-02", 86400000000},
		{"1970-01-01T00:00:01Z", 1000000},
		{"1970-01-01T00:00:01.5Z", 1500000},
		{"1970-01-01T00:00:01.000001Z", 1000001},
		{"1970-01-01T00:00:01.0000019Z", 1000001},
		{"1970-01-01T00:00:01.0000000000000000000000019Z", 1000000},
		{"1970-01-01T00:00:01+00:00", 1000000},
		{"1970-01-01T01:30:01.5+01:30", 1500000},
		{"1970-01-01T23:00:01-01:00", 86401000000},
		{"1970-01-01T00:00:01-23:59", 86341000000},
		{"2024-02-29", 1709164800000000},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		uint64_t us = 7;

		assert_true(clock_parse(rows[i].text, &us));
		assert_int_equal(us, rows[i].us);
	}
}

static void test_what_is_no_time_is_refused(void **state)
{
	static const char *const rows[] = {
		"",
		"1970",
		"1970-01",
		"1970-1-01",
		"1969-12-31",
		"10000-01-01",
		"1970-00-01",
		"1970-13-01",
		"1970-01-00",
		"1970-01-32",
		"1970-04-31",
		"2023-02-29",
		"2100-02-29",
		"1970-01-01 ",
		" 1970-01-01",
		"1970-01-01T",
		"1970-01-01T00:00Z",
		"1970-01-01T00:00:00",
		"1970-01-01T24:00:00Z",
		"1970-01-01T00:60:00Z",
		"1970-01-01T00:00:60Z",
		"1970-01-01T00:00:00.Z",
		"1970-01-01T00:00:00.5",
		"1970-01-01T00:00:00+00:01",
		"1970-01-02T00:00:00+24:00",
		"1970-01-02T00:00:00+00:60",
		"1970-01-02T00:00:00+0000",
		"1970-01-02T00:00:00+00",
		"1970-01-02T00:00:00 00:00",
		"1970-01-02T00:00:00+00:00Z",
		"1970-01-01t00:00:00Z",
		"1970-01-01T00:00:00z",
		"1970-01-01T00:00:00Z ",
		"+970-01-01",
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		uint64_t us = 7;

		assert_false(clock_parse(rows[i], &us));
		assert_int_equal(us, 7);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		/* First: nothing takes the clocks back from the fake. */
		cmocka_unit_test(test_real_clocks_run_in_microseconds),
		cmocka_unit_test(test_fake_clocks_stand),
		cmocka_unit_test(test_text_is_written_and_read_back),
		cmocka_unit_test(test_time_past_year_9999_stays_at_its_end),
		cmocka_unit_test(test_short_spellings_are_read),
		cmocka_unit_test(test_what_is_no_time_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
