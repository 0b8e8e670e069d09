/* One line an event, escaped, never waited for; and the limit on repeated lines. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/log.h"

#define WHEN "2026-01-02T03:04:05.678901Z"
#define WALL_US 1767323045678901

struct fixture {
	int ends[2];
	char text[8192];
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	if (!f || pipe2(f->ends, O_CLOEXEC) < 0)
		return -1;
	if (fcntl(f->ends[0], F_SETFL, O_NONBLOCK) < 0)
		return -1;
	clock_fake(0, WALL_US);
	log_setup(LOG_LEVEL_INFO, f->ends[1], "egress[worker]");
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	(void)close(f->ends[0]);
	(void)close(f->ends[1]);
	free(f);
	return 0;
}

static const char *fixture_read(struct fixture *f)
{
	ssize_t n = read(f->ends[0], f->text, sizeof(f->text) - 1);

	f->text[n > 0 ? n : 0] = '\0';
	return f->text;
}

static void test_line_has_time_level_who_module_and_detail(void **state)
{
	log_error("dns", "upstream %s: %d", "a.test", 5);
	assert_string_equal(
		fixture_read(*state), WHEN " error egress[worker] dns: upstream a.test: 5\n");
	log_warn("dns", "x");
	log_info("dns", "y");
	assert_string_equal(fixture_read(*state),
		WHEN " warn egress[worker] dns: x\n" WHEN " info egress[worker] dns: y\n");
}

static void test_level_holds_lines_back(void **state)
{
	struct fixture *f = *state;

	log_debug("dns", "hidden");
	assert_string_equal(fixture_read(f), "");
	log_setup(LOG_LEVEL_DEBUG, f->ends[1], "egress");
	log_debug("dns", "shown");
	assert_string_equal(fixture_read(f), WHEN " debug egress dns: shown\n");
	log_setup(LOG_LEVEL_ERROR, f->ends[1], "egress");
	log_warn("dns", "hidden");
	assert_string_equal(fixture_read(f), "");
	assert_true(log_enabled(LOG_LEVEL_ERROR));
	assert_false(log_enabled(LOG_LEVEL_WARN));
}

static void test_text_from_outside_is_escaped(void **state)
{
	static const struct {
		const char *in, *out;
	} rows[] = {
		{"a\nb", "a\\x0ab"},
		{"\r\t\x01\x1f", "\\x0d\\x09\\x01\\x1f"},
		{" ~", " ~"},
		{"\x7f\x80\xff", "\\x7f\\x80\\xff"},
		{"\xc3\xa4", "\\xc3\\xa4"},
		{"\\n", "\\x5cn"},
		{"\x1b[31m", "\\x1b[31m"},
		{"%s", "%s"},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		char want[256];

		(void)snprintf(
			want, sizeof(want), WHEN " info egress[worker] m: %s\n", rows[i].out);
		log_info("m", "%s", rows[i].in);
		assert_string_equal(fixture_read(*state), want);
	}
}

static void test_long_line_is_cut_and_still_one_line(void **state)
{
	static const char fill[] = {'x', '\x01'};
	char text[5000];

	for (size_t i = 0; i < ARRAY_LEN(fill); i++) {
		const char *got;
		size_t len;

		memset(text, fill[i], sizeof(text));
		text[sizeof(text) - 1] = '\0';
		log_info("m", "%s", text);
		got = fixture_read(*state);
		len = strlen(got);
		assert_true(len <= 2048);
		assert_ptr_equal(strchr(got, '\n'), got + len - 1);
		assert_memory_equal(got + len - 4, "...\n", 4);
	}
}

static void test_full_pipe_drops_the_line_and_does_not_block(void **state)
{
	struct fixture *f = *state;
	int size = fcntl(f->ends[1], F_SETPIPE_SZ, 4096);
	char page[4096];

	/* The descriptor blocks: a test that hangs here has failed. */
	assert_int_equal(size, 4096);
	memset(page, 'x', sizeof(page));
	assert_int_equal(write(f->ends[1], page, sizeof(page)), sizeof(page));
	log_info("m", "lost");
	assert_int_equal(read(f->ends[0], page, sizeof(page)), sizeof(page));
	assert_string_equal(fixture_read(f), "");
	log_info("m", "written");
	assert_string_equal(fixture_read(f), WHEN " info egress[worker] m: written\n");
}

static void test_failed_write_leaves_errno_alone(void **state)
{
	int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	log_setup(LOG_LEVEL_INFO, fd, "egress");
	errno = ENOTTY;
	log_info("m", "lost");
	assert_int_equal(errno, ENOTTY);
	(void)close(fd);
}

static void test_closed_reader_does_not_end_the_process(void **state)
{
	struct fixture *f = *state;

	(void)close(f->ends[0]);
	log_info("m", "lost");
	f->ends[0] = dup(f->ends[1]);
	assert_true(f->ends[0] >= 0);
}

static void test_rate_allows_a_burst_then_one_each_interval(void **state)
{
	static const struct {
		uint64_t now_ms;
		bool ok;
		uint32_t left_out;
	} rows[] = {
		{1000, true, 0},
		{1000, true, 0},
		{1000, true, 0},
		{1000, false, 0},
		{1099, false, 0},
		{1100, true, 2},
		{1101, false, 0},
		{1199, false, 0},
		/* A late line does not move those after it. */
		{1250, true, 2},
		{1299, false, 0},
		{1300, true, 1},
		/* Quiet for long: the burst is there again, and no more than that. */
		{9000, true, 0},
		{9000, true, 0},
		{9000, true, 0},
		{9000, false, 0},
		{9100, true, 1},
	};
	struct log_rate r = {.burst = 3, .every_ms = 100};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		uint32_t left_out = 99;

		assert_int_equal(log_rate_ok(&r, rows[i].now_ms, &left_out), rows[i].ok);
		assert_int_equal(left_out, rows[i].left_out);
	}
}

static void test_rate_of_zeroes_still_limits(void **state)
{
	struct log_rate r = {0};
	uint32_t left_out;

	assert_true(log_rate_ok(&r, 0, &left_out));
	assert_false(log_rate_ok(&r, 0, &left_out));
	assert_true(log_rate_ok(&r, 1, &left_out));
	assert_int_equal(left_out, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			test_line_has_time_level_who_module_and_detail, setup, teardown),
		cmocka_unit_test_setup_teardown(test_level_holds_lines_back, setup, teardown),
		cmocka_unit_test_setup_teardown(test_text_from_outside_is_escaped, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_long_line_is_cut_and_still_one_line, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_full_pipe_drops_the_line_and_does_not_block, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_failed_write_leaves_errno_alone, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_closed_reader_does_not_end_the_process, setup, teardown),
		cmocka_unit_test(test_rate_allows_a_burst_then_one_each_interval),
		cmocka_unit_test(test_rate_of_zeroes_still_limits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
