/* The end of an audit file at start: torn lines are cut, foreign files are left alone. */
#include "audit/file_tail.h"
#include "tests/unit/audit/trail.h"

#define ZEROS "0000000000000000000000000000000000000000000000000000000000000000"
#define LINE(seq, kind) \
	"{\"v\":1,\"seq\":" #seq ",\"sandbox\":null,\"kind\":\"" kind "\",\"prev\":\"" ZEROS "\"}"

static int tail_of(const char *text, size_t len, struct file_tail *t, size_t *left)
{
	struct trail_file f;
	struct errmsg msg;
	int fd;
	int ret;

	trail_file_init(&f);
	trail_write(f.path, text, len);
	fd = trail_file_open(&f);
	ret = file_tail_read(fd, t, &msg);
	close(fd);
	free(trail_read(f.path, left));
	assert_true(ret == 0 || strstr(msg.text, "move it away"));
	trail_file_fini(&f);
	return ret;
}

static void test_last_whole_line_is_found_and_the_torn_one_cut(void **state)
{
	static const struct {
		const char *text;
		size_t left;
		uint64_t seq;
		bool stopped;
	} rows[] = {
		{"", 0, 0, false},
		{LINE(7, "read") "\n", sizeof(LINE(7, "read")), 7, false},
		{LINE(7, "read") "\n" LINE(8, "stop") "\n",
			sizeof(LINE(7, "read")) + sizeof(LINE(8, "stop")), 8, true},
		{LINE(7, "read") "\n" LINE(8, "stop"), sizeof(LINE(7, "read")), 7, false},
		{LINE(7, "stop") "\n{\"v\":1,\"seq\":8,\"ts", sizeof(LINE(7, "stop")), 7, true},
		{LINE(7, "read") "\n{\"v\":", sizeof(LINE(7, "read")), 7, false},
		{LINE(7, "read") "\n{", sizeof(LINE(7, "read")), 7, false},
		{"{\"v\":1,\"se", 0, 0, false},
		{LINE(1, "read"), 0, 0, false},
	};
	struct file_tail t;
	char hash[RING_HEX_LEN];
	size_t left;

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		assert_int_equal(tail_of(rows[i].text, strlen(rows[i].text), &t, &left), 0);
		assert_int_equal(left, rows[i].left);
		assert_int_equal(t.seq, rows[i].seq);
		assert_int_equal(t.stopped, rows[i].stopped);
	}
	assert_int_equal(tail_of(rows[1].text, strlen(rows[1].text), &t, &left), 0);
	ring_sha_hex(SLICE(LINE(7, "read")), hash);
	assert_memory_equal(t.hash, hash, RING_HEX_LEN);
}

static void test_zeros_that_a_power_cut_left_are_cut(void **state)
{
	static char text[100000];
	struct file_tail t;
	size_t left;
	size_t len = strlen(LINE(7, "read") "\n");

	memcpy(text, LINE(7, "read") "\n", len);
	assert_int_equal(tail_of(text, len + 3000, &t, &left), 0);
	assert_int_equal(left, len);
	assert_int_equal(t.seq, 7);
	/* More than any torn line could be: somebody should look at it. */
	assert_int_equal(tail_of(text, sizeof(text), &t, &left), E_SYNTAX);
	assert_int_equal(left, sizeof(text));
}

static void test_foreign_file_is_refused_and_not_touched(void **state)
{
	static const char *const rows[] = {
		"127.0.0.1 localhost\n",
		"hello",
		"{\"v\":2}\n",
		LINE(7, "read") "\nhello",
		LINE(7, "read") "\n\n",
		LINE(7, "read") "\nhello\n",
	};
	struct file_tail t;
	size_t left;

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		assert_int_equal(tail_of(rows[i], strlen(rows[i]), &t, &left), E_SYNTAX);
		assert_int_equal(left, strlen(rows[i]));
	}
}

static void test_last_line_of_a_long_file_is_found(void **state)
{
	static char text[500000];
	struct file_tail t;
	size_t left;
	size_t at = 0;

	for (int i = 1; i < 3000; i++)
		at += (size_t)snprintf(text + at, sizeof(text) - at,
			"{\"v\":1,\"seq\":%d,\"prev\":\"" ZEROS "\"}\n", i);
	assert_int_equal(tail_of(text, at, &t, &left), 0);
	assert_int_equal(t.seq, 2999);
	assert_int_equal(left, at);
}

static void test_device_counts_as_empty(void **state)
{
	struct file_tail t;
	int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	assert_int_equal(file_tail_read(fd, &t, NULL), 0);
	assert_int_equal(t.seq, 0);
	assert_memory_equal(t.hash, ZEROS, RING_HEX_LEN);
	close(fd);
	assert_true(file_tail_read(fd, &t, NULL) < 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_last_whole_line_is_found_and_the_torn_one_cut),
		cmocka_unit_test(test_zeros_that_a_power_cut_left_are_cut),
		cmocka_unit_test(test_foreign_file_is_refused_and_not_touched),
		cmocka_unit_test(test_last_line_of_a_long_file_is_found),
		cmocka_unit_test(test_device_counts_as_empty),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
