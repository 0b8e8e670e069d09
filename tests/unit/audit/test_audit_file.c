/* Reading and verifying files: what breaks the trail is found, and where. */
#include "tests/unit/audit/trail.h"

#define N_LINES 6

/* Files with lines 1 to N_LINES; split: line numbers at which a new file begins. */
struct fixture {
	struct trail_file file;
	char *line[N_LINES + 1]; /* by number, with newline */
};

static void fixture_init(struct fixture *f)
{
	void *area = trail_area(ring_area_size());
	struct ring *r = ring_new(area);
	struct ring_source src = {0};
	struct iovec iov[2];

	memset(f, 0, sizeof(*f));
	trail_file_init(&f->file);
	for (int i = 1; i <= N_LINES; i++) {
		uint64_t from = ring_head(r);

		ring_commit(r, SLICE("\"kind\":\"read\""), &src);
		assert_int_equal(ring_view(r, from, iov), 1);
		f->line[i] = strndup(iov[0].iov_base, iov[0].iov_len);
	}
	ring_free(r);
	munmap(area, ring_area_size());
}

static void fixture_fini(struct fixture *f)
{
	for (int i = 1; i <= N_LINES; i++)
		free(f->line[i]);
	trail_file_fini(&f->file);
}

/* Writes these lines (numbers, 0 ends) to path, or path.older. */
static void write_lines(struct fixture *f, int older, const int *numbers)
{
	char name[80];
	char text[4096] = "";

	(void)snprintf(name, sizeof(name), older ? "%s.%d" : "%s", f->file.path, older);
	for (; *numbers; numbers++)
		strncat(text, f->line[*numbers], sizeof(text) - strlen(text) - 1);
	trail_write(name, text, strlen(text));
}

static struct audit_verify verify(const struct fixture *f)
{
	struct audit_verify v;

	assert_int_equal(audit_verify(f->file.path, true, &v, NULL), 0);
	return v;
}

static void test_whole_trail_verifies_from_any_line_on(void **state)
{
	static const int all[] = {1, 2, 3, 4, 5, 6, 0};
	struct fixture f;
	struct audit_verify v;

	fixture_init(&f);
	for (int i = 0; i < N_LINES; i++) {
		write_lines(&f, 0, all + i);
		v = verify(&f);
		assert_int_equal(v.what, AUDIT_BREAK_NONE);
		assert_int_equal(v.first_seq, i + 1);
		assert_int_equal(v.last_seq, N_LINES);
		assert_int_equal(v.lines, N_LINES - i);
	}
	write_lines(&f, 0, all + N_LINES);
	v = verify(&f);
	assert_int_equal(v.what, AUDIT_BREAK_NONE);
	assert_int_equal(v.lines, 0);
	fixture_fini(&f);
}

static void test_missing_repeated_and_reordered_lines_are_found(void **state)
{
	static const struct {
		int numbers[8];
		enum audit_break what;
		uint64_t number, seq;
	} rows[] = {
		{{1, 2, 4, 5}, AUDIT_BREAK_HOLE, 3, 4},
		{{1, 2, 2, 3}, AUDIT_BREAK_REPEAT, 3, 2},
		{{1, 3, 2, 4}, AUDIT_BREAK_HOLE, 2, 3},
		{{3, 4, 1, 2}, AUDIT_BREAK_REPEAT, 3, 1},
	};
	struct fixture f;

	fixture_init(&f);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct audit_verify v;

		write_lines(&f, 0, rows[i].numbers);
		v = verify(&f);
		assert_int_equal(v.what, rows[i].what);
		assert_int_equal(v.number, rows[i].number);
		assert_int_equal(v.seq, rows[i].seq);
		assert_string_equal(v.path, f.file.path);
	}
	fixture_fini(&f);
}

/* Any changed byte is found: in the line itself, or by the line after it. */
static void test_any_changed_byte_is_found(void **state)
{
	static const int all[] = {1, 2, 3, 0};
	struct fixture f;
	size_t len;

	fixture_init(&f);
	len = strlen(f.line[2]);
	for (size_t i = 0; i < len; i++) {
		char was = f.line[2][i];
		struct audit_verify v;

		f.line[2][i] = was == '7' ? '8' : '7';
		write_lines(&f, 0, all);
		v = verify(&f);
		assert_int_not_equal(v.what, AUDIT_BREAK_NONE);
		assert_true(v.number == 2 || v.number == 3);
		f.line[2][i] = was;
	}
	fixture_fini(&f);
}

static void test_first_line_of_all_starts_the_chain_with_zeros(void **state)
{
	static const int all[] = {1, 2, 0};
	struct fixture f;
	struct audit_verify v;

	fixture_init(&f);
	f.line[1][strlen(f.line[1]) - 4] = '1';
	write_lines(&f, 0, all);
	v = verify(&f);
	assert_int_equal(v.what, AUDIT_BREAK_CHAIN);
	assert_int_equal(v.number, 1);
	fixture_fini(&f);
}

static void test_torn_last_line_is_reported(void **state)
{
	static const int all[] = {1, 2, 0};
	struct fixture f;
	struct audit_verify v;

	fixture_init(&f);
	f.line[2][strlen(f.line[2]) - 1] = '\0';
	write_lines(&f, 0, all);
	v = verify(&f);
	assert_int_equal(v.what, AUDIT_BREAK_TORN);
	assert_int_equal(v.number, 2);
	assert_int_equal(v.last_seq, 1);
	fixture_fini(&f);
}

static void test_rotated_files_are_read_oldest_first(void **state)
{
	static const int files[3][4] = {{5, 6, 0}, {3, 4, 0}, {1, 2, 0}};
	static const int wrong[] = {4, 3, 0};
	struct fixture f;
	struct audit_file *file;
	struct audit_line line;
	struct audit_verify v;
	char name[80];

	fixture_init(&f);
	for (int i = 0; i < 3; i++)
		write_lines(&f, i, files[i]);
	assert_int_equal(audit_file_open(f.file.path, true, &file, NULL), 0);
	for (uint64_t seq = 1; seq <= N_LINES; seq++) {
		assert_int_equal(audit_file_next(file, &line), 1);
		assert_int_equal(line.seq, seq);
		assert_int_equal(line.number, (seq - 1) % 2 + 1);
	}
	assert_int_equal(audit_file_next(file, &line), 0);
	audit_file_close(file);
	v = verify(&f);
	assert_int_equal(v.what, AUDIT_BREAK_NONE);
	assert_int_equal(v.lines, N_LINES);
	assert_int_equal(audit_verify(f.file.path, false, &v, NULL), 0);
	assert_int_equal(v.first_seq, 5);

	write_lines(&f, 1, wrong);
	v = verify(&f);
	(void)snprintf(name, sizeof(name), "%s.1", f.file.path);
	assert_int_equal(v.what, AUDIT_BREAK_HOLE);
	assert_string_equal(v.path, name);
	assert_int_equal(v.number, 1);
	fixture_fini(&f);
}

static void test_newest_file_may_be_missing_just_after_a_rotation(void **state)
{
	static const int all[] = {1, 2, 0};
	struct fixture f;

	fixture_init(&f);
	write_lines(&f, 1, all);
	assert_int_equal(verify(&f).last_seq, 2);
	fixture_fini(&f);
}

static void test_no_file_is_an_error(void **state)
{
	struct audit_verify v;
	struct errmsg msg;

	assert_int_equal(audit_verify("/nonexistent/audit.log", true, &v, &msg), -ENOENT);
	assert_non_null(strstr(msg.text, "/nonexistent/audit.log"));
}

static void test_directory_is_an_error(void **state)
{
	struct audit_verify v;
	struct errmsg msg;

	assert_true(audit_verify("/tmp", false, &v, &msg) < 0);
}

static void test_malformed_line_is_given_to_the_reader_and_breaks_the_trail(void **state)
{
	struct fixture f;
	struct audit_file *file;
	struct audit_line line;

	fixture_init(&f);
	trail_write(f.file.path, "a\0b\nx", 5);
	assert_int_equal(audit_file_open(f.file.path, true, &file, NULL), 0);
	assert_int_equal(audit_file_next(file, &line), 1);
	assert_int_equal(line.seq, 0);
	assert_int_equal(line.text.len, 3);
	assert_false(line.torn);
	assert_int_equal(audit_file_next(file, &line), 1);
	assert_true(line.torn);
	assert_int_equal(audit_file_next(file, &line), 0);
	audit_file_close(file);
	assert_int_equal(verify(&f).what, AUDIT_BREAK_MALFORMED);
	fixture_fini(&f);
}

/* In a copy of stdout: what the container says of its start and its end. */
static void test_notes_on_stdout_are_no_lines(void **state)
{
	char text[4096];
	struct fixture f;
	struct audit_verify v;

	fixture_init(&f);
	(void)snprintf(text, sizeof(text), "%s%s%s%s%s", "egress: no effect: A, B\n", f.line[1],
		f.line[2], "egress: closed: it cannot be\n", f.line[4]);
	trail_write(f.file.path, text, strlen(text));
	v = verify(&f);
	assert_int_equal(v.what, AUDIT_BREAK_HOLE);
	assert_int_equal(v.lines, 3);
	assert_int_equal(v.number, 5);
	assert_int_equal(v.first_seq, 1);
	fixture_fini(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whole_trail_verifies_from_any_line_on),
		cmocka_unit_test(test_missing_repeated_and_reordered_lines_are_found),
		cmocka_unit_test(test_any_changed_byte_is_found),
		cmocka_unit_test(test_first_line_of_all_starts_the_chain_with_zeros),
		cmocka_unit_test(test_torn_last_line_is_reported),
		cmocka_unit_test(test_rotated_files_are_read_oldest_first),
		cmocka_unit_test(test_newest_file_may_be_missing_just_after_a_rotation),
		cmocka_unit_test(test_no_file_is_an_error),
		cmocka_unit_test(test_directory_is_an_error),
		cmocka_unit_test(test_malformed_line_is_given_to_the_reader_and_breaks_the_trail),
		cmocka_unit_test(test_notes_on_stdout_are_no_lines),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
