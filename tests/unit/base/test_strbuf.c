/* A growing buffer: all or nothing at its ceiling, and files read into it. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"
#include "base/strbuf.h"

static void test_pieces_are_appended(void **state)
{
	struct strbuf b;

	strbuf_init(&b, 1000);
	assert_null(b.p);
	assert_int_equal(strbuf_slice(&b).len, 0);
	assert_non_null(strbuf_slice(&b).p);
	strbuf_add(&b, SLICE("ab"));
	strbuf_add(&b, slice_make(NULL, 0));
	strbuf_str(&b, "-cd");
	strbuf_char(&b, ' ');
	strbuf_u64(&b, 0);
	strbuf_u64(&b, UINT64_MAX);
	strbuf_printf(&b, " %s=%d", "n", -5);
	assert_string_equal(strbuf_cstr(&b), "ab-cd 018446744073709551615 n=-5");
	assert_false(b.full);
	strbuf_fini(&b);
	assert_null(b.p);
}

static void test_ceiling_is_met_exactly_and_never_passed(void **state)
{
	static const size_t ceilings[] = {0, 1, 5, 63, 64, 65, 127, 128, 1000};

	for (size_t i = 0; i < ARRAY_LEN(ceilings); i++) {
		struct strbuf b;

		strbuf_init(&b, ceilings[i]);
		for (size_t n = 0; n < ceilings[i]; n++)
			strbuf_char(&b, 'x');
		assert_false(b.full);
		assert_int_equal(b.len, ceilings[i]);
		strbuf_char(&b, 'y');
		assert_true(b.full);
		assert_int_equal(strlen(strbuf_cstr(&b)), ceilings[i]);
		assert_true(b.cap <= ceilings[i] + 1);
		strbuf_fini(&b);
	}
}

static void test_piece_that_does_not_fit_is_left_out_whole(void **state)
{
	struct strbuf b;

	strbuf_init(&b, 5);
	strbuf_str(&b, "abc");
	strbuf_str(&b, "def");
	assert_true(b.full);
	assert_string_equal(strbuf_cstr(&b), "abc");
	strbuf_printf(&b, "%d", 123);
	assert_string_equal(strbuf_cstr(&b), "abc");
	strbuf_printf(&b, "%d", 12);
	assert_string_equal(strbuf_cstr(&b), "abc12");
	assert_true(b.full);
	strbuf_clear(&b);
	assert_false(b.full);
	assert_string_equal(strbuf_cstr(&b), "");
	strbuf_str(&b, "fghij");
	assert_false(b.full);
	strbuf_u64(&b, 1);
	assert_true(b.full);
	strbuf_fini(&b);
}

static void test_growth_doubles(void **state)
{
	struct strbuf b;
	size_t cap = 0;
	int moves = 0;

	strbuf_init(&b, 1u << 20);
	for (size_t i = 0; i < 1u << 16; i++) {
		strbuf_char(&b, 'x');
		moves += b.cap != cap;
		cap = b.cap;
	}
	assert_true(moves <= 12);
	strbuf_fini(&b);
}

static void test_huge_ceiling_does_not_overflow(void **state)
{
	struct strbuf b;

	strbuf_init(&b, SIZE_MAX);
	strbuf_str(&b, "abc");
	assert_string_equal(strbuf_cstr(&b), "abc");
	strbuf_fini(&b);
}

static void test_consume_takes_from_the_front(void **state)
{
	struct strbuf b;

	strbuf_init(&b, 100);
	strbuf_consume(&b, 0);
	strbuf_str(&b, "abcdef");
	strbuf_consume(&b, 0);
	strbuf_consume(&b, 2);
	assert_string_equal(strbuf_cstr(&b), "cdef");
	strbuf_consume(&b, 4);
	assert_string_equal(strbuf_cstr(&b), "");
	strbuf_fini(&b);
}

static int memfd_of(size_t len)
{
	int fd = memfd_create("test", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)len), 0);
	return fd;
}

static void test_file_of_exactly_the_ceiling_is_read(void **state)
{
	static const size_t sizes[] = {0, 1, 16383, 16384, 16385, 100000};

	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		struct strbuf b;
		int fd = memfd_of(sizes[i]);

		strbuf_init(&b, sizes[i]);
		assert_int_equal(strbuf_read_fd(&b, fd), 0);
		assert_int_equal(b.len, sizes[i]);
		assert_false(b.full);
		strbuf_fini(&b);
		(void)close(fd);
	}
}

static void test_file_one_past_the_ceiling_is_refused(void **state)
{
	static const size_t sizes[] = {0, 1, 16383, 16384, 16385, 100000};

	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		struct strbuf b;
		int fd = memfd_of(sizes[i] + 1);

		strbuf_init(&b, sizes[i]);
		assert_int_equal(strbuf_read_fd(&b, fd), E_LIMIT);
		assert_int_equal(b.len, sizes[i]);
		assert_true(b.full);
		strbuf_fini(&b);
		(void)close(fd);
	}
}

static void test_reading_starts_where_the_descriptor_stands(void **state)
{
	struct strbuf b;
	int fd = memfd_of(0);

	assert_int_equal(write(fd, "abcdef", 6), 6);
	assert_int_equal(lseek(fd, 4, SEEK_SET), 4);
	strbuf_init(&b, 100);
	strbuf_str(&b, "x");
	assert_int_equal(strbuf_read_fd(&b, fd), 0);
	assert_string_equal(strbuf_cstr(&b), "xef");
	strbuf_fini(&b);
	(void)close(fd);
}

static void test_reading_from_the_start_leaves_the_position(void **state)
{
	struct strbuf b;
	int fd = memfd_of(0);

	assert_int_equal(write(fd, "abcdef", 6), 6);
	assert_int_equal(lseek(fd, 4, SEEK_SET), 4);
	strbuf_init(&b, 6);
	assert_int_equal(strbuf_pread_fd(&b, fd), 0);
	assert_string_equal(strbuf_cstr(&b), "abcdef");
	assert_int_equal(lseek(fd, 0, SEEK_CUR), 4);
	strbuf_fini(&b);
	strbuf_init(&b, 5);
	assert_int_equal(strbuf_pread_fd(&b, fd), E_LIMIT);
	strbuf_fini(&b);
	assert_int_equal(strbuf_pread_fd(&b, -1), -EBADF);
	(void)close(fd);
}

static void test_wiped_memory_keeps_its_content_while_it_grows(void **state)
{
	struct strbuf b;

	strbuf_init(&b, 1000);
	b.wipe = true;
	for (int i = 0; i < 250; i++)
		strbuf_str(&b, "abcd");
	assert_int_equal(b.len, 1000);
	assert_memory_equal(b.p, "abcdabcd", 8);
	assert_memory_equal(b.p + 992, "abcdabcd", 8);
	strbuf_fini(&b);
}

static void test_read_errors_come_back_as_errno(void **state)
{
	struct strbuf b;

	strbuf_init(&b, 100);
	assert_int_equal(strbuf_read_fd(&b, -1), -EBADF);
	assert_int_equal(strbuf_read_file(&b, "/nonexistent/file"), -ENOENT);
	assert_int_equal(strbuf_read_file(&b, "/"), -EISDIR);
	strbuf_fini(&b);
}

static void test_fixed_memory_is_filled_and_never_passed(void **state)
{
	char mem[5] = "....";
	struct strbuf b;

	strbuf_init_fixed(&b, mem, sizeof(mem));
	strbuf_str(&b, "abc");
	strbuf_u64(&b, 7);
	assert_false(b.full);
	assert_ptr_equal(strbuf_cstr(&b), mem);
	assert_string_equal(mem, "abc7");
	strbuf_char(&b, '!');
	assert_true(b.full);
	assert_string_equal(strbuf_cstr(&b), "abc7");
	strbuf_fini(&b);
	assert_int_equal(b.len, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pieces_are_appended),
		cmocka_unit_test(test_ceiling_is_met_exactly_and_never_passed),
		cmocka_unit_test(test_piece_that_does_not_fit_is_left_out_whole),
		cmocka_unit_test(test_growth_doubles),
		cmocka_unit_test(test_huge_ceiling_does_not_overflow),
		cmocka_unit_test(test_consume_takes_from_the_front),
		cmocka_unit_test(test_file_of_exactly_the_ceiling_is_read),
		cmocka_unit_test(test_file_one_past_the_ceiling_is_refused),
		cmocka_unit_test(test_reading_starts_where_the_descriptor_stands),
		cmocka_unit_test(test_reading_from_the_start_leaves_the_position),
		cmocka_unit_test(test_wiped_memory_keeps_its_content_while_it_grows),
		cmocka_unit_test(test_read_errors_come_back_as_errno),
		cmocka_unit_test(test_fixed_memory_is_filled_and_never_passed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
