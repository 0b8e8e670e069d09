/* Following a file while it grows, is cut, and is rotated. */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "ctl/file_follow.h"
#include "tests/unit/ctl/fixture.h"

int __real_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);

/* Runs once, while the follower opens a file: what a writer may do at that moment. */
struct hook {
	void (*run)(const void *arg);
	const void *arg;
};

static struct hook hook;

/* The follower makes no files, so there is no mode. */
int __wrap_open64(const char *path, int flags, ...)
{
	struct hook now = hook;

	hook = (struct hook){NULL, NULL};
	if (now.run)
		now.run(now.arg);
	return __real_open64(path, flags);
}

struct place {
	char dir[32];
	char path[48];
};

static void place_init(struct place *p)
{
	(void)snprintf(p->dir, sizeof(p->dir), "/tmp/egress-follow-XXXXXX");
	assert_non_null(mkdtemp(p->dir));
	(void)snprintf(p->path, sizeof(p->path), "%s/log", p->dir);
}

static void place_name(const struct place *p, int older, char name[64])
{
	if (older)
		(void)snprintf(name, 64, "%s.%d", p->path, older);
	else
		(void)snprintf(name, 64, "%s", p->path);
}

static void place_fini(struct place *p)
{
	char name[64];

	for (int i = 0; i < 10; i++) {
		place_name(p, i, name);
		(void)unlink(name);
	}
	assert_int_equal(rmdir(p->dir), 0);
}

static void place_add(const struct place *p, int older, const char *text)
{
	char name[64];
	FILE *f;

	place_name(p, older, name);
	f = fopen(name, "a");
	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

/* As the supervisor does it: keep is the oldest that stays. */
static void place_rotate(const struct place *p, int keep)
{
	char from[64], to[64];

	for (int i = keep; i > 0; i--) {
		place_name(p, i - 1, from);
		place_name(p, i, to);
		if (access(from, F_OK) == 0)
			assert_int_equal(rename(from, to), 0);
	}
}

/* All that there is, joined by spaces. */
static void follow_gives(struct file_follow *f, const char *want)
{
	struct strbuf b;
	struct slice line;
	int ret;

	strbuf_init(&b, 100000);
	while ((ret = file_follow_next(f, &line)) != 0) {
		if (b.len > 0)
			strbuf_char(&b, ' ');
		if (ret == E_LIMIT)
			strbuf_str(&b, "(long)");
		else
			strbuf_add(&b, line);
		if (ret != E_LIMIT)
			assert_int_equal(ret, 1);
	}
	fixture_text(&b, want);
	strbuf_fini(&b);
}

static void follow_open(struct file_follow *f, const struct place *p, uint64_t n)
{
	struct errmsg msg = {""};

	assert_int_equal(file_follow_open(f, p->path, n, &msg), 0);
}

static void test_the_last_lines_are_found_also_in_rotated_files(void **state)
{
	static const struct {
		uint64_t n;
		const char *want;
	} cases[] = {
		{0, ""},
		{1, "6"},
		{2, "5 6"},
		{3, "4 5 6"},
		{4, "3 4 5 6"},
		{6, "1 2 3 4 5 6"},
		{7, "1 2 3 4 5 6"},
		{1000000, "1 2 3 4 5 6"},
	};
	struct place p;

	place_init(&p);
	place_add(&p, 2, "1\n2\n");
	place_add(&p, 1, "3\n4\n");
	place_add(&p, 0, "5\n6\n");
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct file_follow f;

		follow_open(&f, &p, cases[i].n);
		follow_gives(&f, cases[i].want);
		file_follow_close(&f);
	}
	place_fini(&p);
}

static void test_a_line_is_given_once_its_newline_is_there(void **state)
{
	struct file_follow f;
	struct slice rest;
	struct place p;

	place_init(&p);
	place_add(&p, 0, "one\ntw");
	follow_open(&f, &p, 1);
	follow_gives(&f, "one");
	assert_int_equal(file_follow_torn(&f, &rest), 0);
	assert_true(slice_eq(rest, SLICE("tw")));
	place_add(&p, 0, "o");
	follow_gives(&f, "");
	place_add(&p, 0, "\nthree\n");
	follow_gives(&f, "two three");
	assert_int_equal(file_follow_torn(&f, &rest), 0);
	assert_int_equal(rest.len, 0);
	file_follow_close(&f);
	place_fini(&p);
}

static void test_only_new_lines_begin_behind_the_last_newline(void **state)
{
	struct file_follow f;
	struct place p;

	place_init(&p);
	place_add(&p, 0, "one\ntw");
	follow_open(&f, &p, 0);
	place_add(&p, 0, "o\n");
	follow_gives(&f, "two");
	file_follow_close(&f);
	place_fini(&p);
}

static void test_a_torn_line_that_is_cut_and_replaced_is_read_as_it_is_then(void **state)
{
	struct file_follow f;
	struct place p;

	place_init(&p);
	place_add(&p, 0, "one\nto");
	follow_open(&f, &p, 10);
	follow_gives(&f, "one");
	assert_int_equal(truncate(p.path, 4), 0);
	place_add(&p, 0, "a longer one\n");
	follow_gives(&f, "a longer one");
	assert_int_equal(truncate(p.path, 0), 0);
	follow_gives(&f, "");
	place_add(&p, 0, "anew\n");
	follow_gives(&f, "anew");
	file_follow_close(&f);
	place_fini(&p);
}

static void test_rotation_loses_no_line_and_repeats_none(void **state)
{
	struct file_follow f;
	struct place p;

	place_init(&p);
	place_add(&p, 0, "1\n");
	follow_open(&f, &p, 10);
	follow_gives(&f, "1");
	place_rotate(&p, 5);
	follow_gives(&f, "");
	/* the writer still has the old file open */
	place_add(&p, 1, "2\n");
	place_add(&p, 0, "");
	follow_gives(&f, "2");
	place_add(&p, 1, "3\n");
	place_add(&p, 0, "4\n");
	follow_gives(&f, "3 4");
	file_follow_close(&f);
	place_fini(&p);
}

static void on_open_write_to_the_old_file(const void *arg)
{
	place_add(arg, 1, "2\n");
}

static void test_a_line_written_while_the_next_file_is_opened_is_not_lost(void **state)
{
	struct file_follow f;
	struct place p;

	place_init(&p);
	place_add(&p, 0, "1\n");
	follow_open(&f, &p, 10);
	follow_gives(&f, "1");
	place_rotate(&p, 5);
	place_add(&p, 0, "3\n");
	hook = (struct hook){on_open_write_to_the_old_file, &p};
	follow_gives(&f, "2 3");
	assert_null(hook.run);
	file_follow_close(&f);
	place_fini(&p);
}

static void on_open_rotate_again(const void *arg)
{
	place_rotate(arg, 5);
	place_add(arg, 0, "3\n");
}

static void test_a_rotation_while_the_next_file_is_opened_skips_none(void **state)
{
	struct file_follow f;
	struct place p;

	place_init(&p);
	place_add(&p, 0, "1\n");
	follow_open(&f, &p, 10);
	follow_gives(&f, "1");
	place_rotate(&p, 5);
	place_add(&p, 0, "2\n");
	hook = (struct hook){on_open_rotate_again, &p};
	follow_gives(&f, "");
	follow_gives(&f, "2 3");
	assert_null(hook.run);
	file_follow_close(&f);
	place_fini(&p);
}

static void test_several_rotations_between_two_looks_are_read_in_order(void **state)
{
	struct file_follow f;
	struct place p;

	place_init(&p);
	place_add(&p, 0, "1\n");
	follow_open(&f, &p, 10);
	follow_gives(&f, "1");
	for (int i = 0; i < 3; i++) {
		char text[8];

		(void)snprintf(text, sizeof(text), "%d\n", i + 2);
		place_rotate(&p, 5);
		place_add(&p, 0, text);
	}
	follow_gives(&f, "2 3 4");
	file_follow_close(&f);
	place_fini(&p);
}

static void test_after_the_own_file_was_removed_the_oldest_goes_on(void **state)
{
	struct file_follow f;
	struct place p;

	place_init(&p);
	place_add(&p, 0, "1\n");
	follow_open(&f, &p, 10);
	follow_gives(&f, "1");
	for (int i = 0; i < 4; i++) {
		char text[8];

		(void)snprintf(text, sizeof(text), "%d\n", i + 2);
		place_rotate(&p, 2);
		place_add(&p, 0, text);
	}
	follow_gives(&f, "3 4 5");
	file_follow_close(&f);
	place_fini(&p);
}

static void test_a_file_moved_elsewhere_is_followed_by_the_new_one(void **state)
{
	struct file_follow f;
	struct place p;
	char other[64];

	place_init(&p);
	place_add(&p, 0, "1\n");
	follow_open(&f, &p, 10);
	follow_gives(&f, "1");
	place_name(&p, 9, other);
	(void)snprintf(other, sizeof(other), "%s/kept", p.dir);
	assert_int_equal(rename(p.path, other), 0);
	place_add(&p, 0, "2\n");
	for (int i = 0; i < 3; i++)
		follow_gives(&f, "");
	follow_gives(&f, "2");
	file_follow_close(&f);
	assert_int_equal(unlink(other), 0);
	place_fini(&p);
}

static void place_add_run(const struct place *p, size_t n)
{
	char *text = malloc(n + 1);

	assert_non_null(text);
	memset(text, 'x', n);
	text[n] = '\0';
	place_add(p, 0, text);
	free(text);
}

static void test_a_line_too_long_is_skipped_and_said_once(void **state)
{
	struct file_follow f;
	struct slice line;
	struct place p;

	place_init(&p);
	place_add_run(&p, FILE_FOLLOW_LINE_MAX - 1);
	place_add(&p, 0, "\n");
	follow_open(&f, &p, 10);
	assert_int_equal(file_follow_next(&f, &line), 1);
	assert_int_equal(line.len, FILE_FOLLOW_LINE_MAX - 1);
	place_add_run(&p, FILE_FOLLOW_LINE_MAX);
	follow_gives(&f, "(long)");
	place_add_run(&p, 2 * FILE_FOLLOW_LINE_MAX);
	place_add(&p, 0, "end\nnext\n");
	follow_gives(&f, "next");
	file_follow_close(&f);
	place_fini(&p);
}

static void test_lines_are_found_across_blocks(void **state)
{
	struct file_follow f;
	struct place p;

	place_init(&p);
	place_add(&p, 0, "first\n");
	for (int i = 0; i < 5; i++) {
		place_add_run(&p, FILE_FOLLOW_LINE_MAX - 3);
		place_add(&p, 0, "\n");
	}
	place_add(&p, 0, "last\n");
	for (uint64_t n = 1; n <= 7; n++) {
		struct slice line;
		uint64_t seen = 0;

		follow_open(&f, &p, n);
		while (file_follow_next(&f, &line) == 1)
			seen++;
		assert_int_equal(seen, n);
		file_follow_close(&f);
	}
	place_fini(&p);
}

static void test_a_missing_file_is_said(void **state)
{
	struct file_follow f;
	struct errmsg msg = {""};
	struct place p;

	place_init(&p);
	assert_int_equal(file_follow_open(&f, p.path, 1, &msg), -ENOENT);
	assert_non_null(strstr(msg.text, p.path));
	place_fini(&p);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_last_lines_are_found_also_in_rotated_files),
		cmocka_unit_test(test_a_line_is_given_once_its_newline_is_there),
		cmocka_unit_test(test_only_new_lines_begin_behind_the_last_newline),
		cmocka_unit_test(test_a_torn_line_that_is_cut_and_replaced_is_read_as_it_is_then),
		cmocka_unit_test(test_rotation_loses_no_line_and_repeats_none),
		cmocka_unit_test(test_a_line_written_while_the_next_file_is_opened_is_not_lost),
		cmocka_unit_test(test_a_rotation_while_the_next_file_is_opened_skips_none),
		cmocka_unit_test(test_several_rotations_between_two_looks_are_read_in_order),
		cmocka_unit_test(test_after_the_own_file_was_removed_the_oldest_goes_on),
		cmocka_unit_test(test_a_file_moved_elsewhere_is_followed_by_the_new_one),
		cmocka_unit_test(test_a_line_too_long_is_skipped_and_said_once),
		cmocka_unit_test(test_lines_are_found_across_blocks),
		cmocka_unit_test(test_a_missing_file_is_said),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
