/* A copied trail: each line once, whatever comes, and however the collector ended. fsync is
 * wrapped, to count folders and to fail. */
#include <sys/stat.h>

#include "audit/audit_copy.h"
#include "tests/unit/audit/trail.h"

#define N_LINES 9

struct fixture {
	struct trail_file file; /* its path is the base, and of no file */
	uint64_t max;           /* of what open_copy opens */
	char *text;             /* lines 1 to N_LINES */
	size_t at[N_LINES + 1]; /* where the one behind line i begins */
};

static struct {
	ino_t last;     /* the last folder that was synced */
	unsigned calls; /* for folders */
	int err;        /* that they fail with, 0: they do not */
} folders;

int __real_fsync(int fd);
int __wrap_fsync(int fd);

int __wrap_fsync(int fd)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	if (S_ISDIR(st.st_mode)) {
		folders.last = st.st_ino;
		folders.calls++;
		errno = folders.err;
		return folders.err ? -1 : 0;
	}
	return __real_fsync(fd);
}

static void fixture_init(struct fixture *f)
{
	void *area = trail_area(ring_area_size());
	struct ring *r = ring_new(area);
	struct ring_source src = {0};
	struct iovec iov[2];

	memset(f, 0, sizeof(*f));
	f->max = UINT64_MAX / 2;
	trail_file_init(&f->file);
	for (int i = 1; i <= N_LINES; i++) {
		ring_commit(r, SLICE("\"kind\":\"read\""), &src);
		f->at[i] = ring_head(r);
	}
	assert_int_equal(ring_view(r, 0, iov), 1);
	f->text = strndup(iov[0].iov_base, iov[0].iov_len);
	ring_free(r);
	munmap(area, ring_area_size());
}

/* Files of a copy: audit.log.jsonl, audit.log~2.jsonl. */
static void file_name(const struct fixture *f, int number, char name[80])
{
	if (number > 1)
		(void)snprintf(name, 80, "%s~%d.jsonl", f->file.path, number);
	else
		(void)snprintf(name, 80, "%s.jsonl", f->file.path);
}

static void fixture_fini(struct fixture *f)
{
	char name[80];

	for (int i = 1; i <= 4; i++) {
		file_name(f, i, name);
		(void)unlink(name);
	}
	free(f->text);
	trail_file_fini(&f->file);
}

/* Lines first to last of the trail. */
static struct slice lines(const struct fixture *f, int first, int last)
{
	return slice_make(f->text + f->at[first - 1], f->at[last] - f->at[first - 1]);
}

static void file_is(const struct fixture *f, int number, struct slice want)
{
	char name[80];
	size_t len;
	char *got;

	file_name(f, number, name);
	got = trail_read(name, &len);
	assert_int_equal(len, want.len);
	assert_memory_equal(got, want.p, len);
	free(got);
}

static void open_copy(const struct fixture *f, struct audit_copy *c, uint64_t seq)
{
	struct errmsg msg = {""};

	assert_int_equal(audit_copy_open(c, f->file.path, f->max, &msg), 0);
	assert_int_equal(c->seq, seq);
}

/* What is left of it, in bytes. */
static size_t add(struct audit_copy *c, struct slice s, enum audit_break want)
{
	enum audit_break what = AUDIT_BREAK_TORN;
	struct errmsg msg = {""};

	assert_int_equal(audit_copy_add(c, &s, &what, &msg), 0);
	assert_int_equal(what, want);
	return s.len;
}

static void test_pages_become_the_trail(void **state)
{
	struct audit_copy c;
	struct fixture f;

	fixture_init(&f);
	for (int i = 1; i <= N_LINES; i += 3) {
		open_copy(&f, &c, (uint64_t)i - 1);
		assert_int_equal(add(&c, lines(&f, i, i), AUDIT_BREAK_NONE), 0);
		assert_int_equal(add(&c, lines(&f, i + 1, i + 2), AUDIT_BREAK_NONE), 0);
		assert_int_equal(add(&c, SLICE_EMPTY, AUDIT_BREAK_NONE), 0);
		audit_copy_close(&c);
	}
	file_is(&f, 1, lines(&f, 1, N_LINES));
	fixture_fini(&f);
}

static void test_what_does_not_continue_it_stays_outside(void **state)
{
	static const struct {
		int first, last, good; /* the last line that is taken, 0: none */
		enum audit_break want;
	} rows[] = {
		{1, 2, 0, AUDIT_BREAK_REPEAT},
		{3, 4, 0, AUDIT_BREAK_REPEAT},
		{5, 6, 0, AUDIT_BREAK_HOLE},
		{4, 6, 6, AUDIT_BREAK_NONE},
	};
	struct audit_copy c;
	struct fixture f;

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		fixture_init(&f);
		open_copy(&f, &c, 0);
		assert_int_equal(add(&c, lines(&f, 1, 3), AUDIT_BREAK_NONE), 0);
		(void)add(&c, lines(&f, rows[i].first, rows[i].last), rows[i].want);
		file_is(&f, 1, lines(&f, 1, rows[i].good ? rows[i].good : 3));
		audit_copy_close(&c);
		fixture_fini(&f);
	}
}

/* Of a page all before the first bad line counts. */
static void test_bad_lines_end_a_page(void **state)
{
	struct audit_copy c;
	struct fixture f;
	char *at;

	fixture_init(&f);
	open_copy(&f, &c, 0);
	at = strstr(f.text + f.at[3], "read");
	memcpy(at, "rEad", 4);
	/* Line 4 was changed, which line 5 tells. */
	assert_int_equal(add(&c, lines(&f, 1, 9), AUDIT_BREAK_CHAIN), f.at[9] - f.at[4]);
	assert_int_equal(add(&c, SLICE("{\"v\":1}\n"), AUDIT_BREAK_MALFORMED), 8);
	assert_int_equal(add(&c, SLICE("\n"), AUDIT_BREAK_MALFORMED), 1);
	memcpy(at, "read", 4);
	assert_int_equal(c.seq, 4);
	audit_copy_close(&c);
	fixture_fini(&f);
}

static void test_a_line_without_its_newline_is_not_taken(void **state)
{
	struct audit_copy c;
	struct fixture f;
	struct slice s;

	fixture_init(&f);
	open_copy(&f, &c, 0);
	s = lines(&f, 1, 2);
	assert_int_equal(
		add(&c, slice_first(s, s.len - 1), AUDIT_BREAK_TORN), f.at[2] - f.at[1] - 1);
	file_is(&f, 1, lines(&f, 1, 1));
	audit_copy_close(&c);
	fixture_fini(&f);
}

/* It could not be found again as the last one. */
static void test_a_line_longer_than_any_is_not_taken(void **state)
{
	char *text = malloc(RING_LINE_MAX + 400);
	struct audit_copy c;
	struct fixture f;

	assert_non_null(text);
	fixture_init(&f);
	open_copy(&f, &c, 0);
	for (size_t len = RING_LINE_MAX; len <= RING_LINE_MAX + 1; len++) {
		int head = snprintf(text, 100, "{\"v\":1,\"seq\":%zu,\"x\":\"", len);

		memset(text + head, 'x', len - (size_t)head);
		(void)snprintf(text + len - 76, 78, "\",\"prev\":\"%064d\"}\n", 0);
		assert_int_equal(strlen(text), len + 1);
		assert_int_equal(audit_copy_begin(&c, NULL), 0);
		(void)add(&c, slice_str(text),
			len > RING_LINE_MAX ? AUDIT_BREAK_MALFORMED : AUDIT_BREAK_NONE);
	}
	audit_copy_close(&c);
	open_copy(&f, &c, RING_LINE_MAX);
	audit_copy_close(&c);
	free(text);
	fixture_fini(&f);
}

static void test_a_torn_end_is_cut_and_written_again(void **state)
{
	struct audit_copy c;
	struct fixture f;
	char name[80];

	fixture_init(&f);
	file_name(&f, 1, name);
	for (size_t cut = f.at[3]; cut < f.at[4]; cut++) {
		trail_write(name, f.text, cut);
		open_copy(&f, &c, 3);
		assert_int_equal(add(&c, lines(&f, 4, 5), AUDIT_BREAK_NONE), 0);
		file_is(&f, 1, lines(&f, 1, 5));
		audit_copy_close(&c);
	}
	fixture_fini(&f);
}

static void test_another_trail_has_another_file(void **state)
{
	struct audit_copy c;
	struct fixture f;

	fixture_init(&f);
	open_copy(&f, &c, 0);
	/* Where there are no lines there is nothing to begin behind. */
	assert_int_equal(audit_copy_begin(&c, NULL), 0);
	assert_int_equal(add(&c, lines(&f, 4, 5), AUDIT_BREAK_NONE), 0);
	assert_int_equal(audit_copy_begin(&c, NULL), 0);
	assert_int_equal(add(&c, lines(&f, 1, 2), AUDIT_BREAK_NONE), 0);
	audit_copy_close(&c);
	open_copy(&f, &c, 2);
	assert_int_equal(c.number, 2);
	assert_int_equal(audit_copy_begin(&c, NULL), 0);
	assert_int_equal(add(&c, lines(&f, 8, 9), AUDIT_BREAK_NONE), 0);
	audit_copy_close(&c);
	file_is(&f, 1, lines(&f, 4, 5));
	file_is(&f, 2, lines(&f, 1, 2));
	file_is(&f, 3, lines(&f, 8, 9));
	fixture_fini(&f);
}

static void test_files_have_a_limit(void **state)
{
	struct audit_copy c;
	struct errmsg msg = {""};
	struct fixture f;

	fixture_init(&f);
	open_copy(&f, &c, 0);
	c.seq = 1;
	c.number = AUDIT_COPY_FILES_MAX - 1;
	assert_int_equal(audit_copy_begin(&c, &msg), 0);
	c.seq = 1;
	assert_int_equal(audit_copy_begin(&c, &msg), E_LIMIT);
	assert_true(msg.text[0]);
	audit_copy_close(&c);
	fixture_fini(&f);
}

/* A page that comes to the limit is the last; of one that is a byte longer nothing is kept. Chains
 * are checked all the same. */
static void test_bytes_have_a_limit(void **state)
{
	struct audit_copy c;
	struct fixture f;

	for (int past = 0; past <= 1; past++) {
		fixture_init(&f);
		f.max = f.at[4] - (size_t)past;
		open_copy(&f, &c, 0);
		assert_int_equal(add(&c, lines(&f, 1, 2), AUDIT_BREAK_NONE), 0);
		assert_int_equal(add(&c, lines(&f, 3, 4), AUDIT_BREAK_NONE), 0);
		assert_int_equal(c.full, past);
		assert_int_equal(add(&c, lines(&f, 5, 5), AUDIT_BREAK_NONE), 0);
		assert_true(c.full);
		(void)add(&c, lines(&f, 8, 8), AUDIT_BREAK_HOLE);
		assert_int_equal(audit_copy_begin(&c, NULL), 0);
		assert_int_equal(add(&c, lines(&f, 1, 1), AUDIT_BREAK_NONE), 0);
		audit_copy_close(&c);
		file_is(&f, 1, lines(&f, 1, past ? 2 : 4));
		fixture_fini(&f);
	}
}

/* Whatever would fit; and a larger one is one, down to the byte. All files count. */
static void test_a_limit_outlives_the_collector(void **state)
{
	struct audit_copy c;
	struct fixture f;

	fixture_init(&f);
	f.max = f.at[6];
	open_copy(&f, &c, 0);
	assert_int_equal(add(&c, lines(&f, 1, 3), AUDIT_BREAK_NONE), 0);
	assert_int_equal(audit_copy_begin(&c, NULL), 0);
	assert_int_equal(add(&c, lines(&f, 1, 2), AUDIT_BREAK_NONE), 0);
	assert_int_equal(add(&c, lines(&f, 3, 5), AUDIT_BREAK_NONE), 0);
	assert_true(c.full);
	audit_copy_close(&c);
	for (int past = 1; past >= 0; past--) {
		f.max = f.at[3] + f.at[2] + AUDIT_COPY_PAGE_MAX - (unsigned)past;
		open_copy(&f, &c, 2);
		assert_false(c.full);
		assert_int_equal(add(&c, lines(&f, 3, 3), AUDIT_BREAK_NONE), 0);
		assert_int_equal(c.full, past);
		audit_copy_close(&c);
		file_is(&f, 2, lines(&f, 1, past ? 2 : 3));
	}
	fixture_fini(&f);
}

/* The name of a new file is on the disk before a line counts as there: once for each file, and once
 * more for one of a collector that may have been killed before. */
static void test_the_folder_of_a_new_file_is_synced(void **state)
{
	struct errmsg msg = {""};
	enum audit_break what;
	struct audit_copy c;
	struct slice page;
	struct fixture f;
	struct stat st;

	fixture_init(&f);
	assert_int_equal(stat(f.file.dir, &st), 0);
	folders.calls = 0;
	open_copy(&f, &c, 0);
	folders.err = EIO;
	page = lines(&f, 1, 1);
	assert_int_equal(audit_copy_add(&c, &page, &what, &msg), -EIO);
	assert_int_equal(page.len, f.at[1]);
	assert_int_equal(c.seq, 0);
	file_is(&f, 1, SLICE_EMPTY);
	assert_int_equal(folders.calls, 1);
	/* Where folders cannot be synced they need not. */
	folders.err = EINVAL;
	assert_int_equal(add(&c, page, AUDIT_BREAK_NONE), 0);
	folders.err = 0;
	assert_int_equal(add(&c, lines(&f, 2, 2), AUDIT_BREAK_NONE), 0);
	assert_int_equal(folders.calls, 2);
	assert_int_equal(folders.last, st.st_ino);
	assert_int_equal(audit_copy_begin(&c, NULL), 0);
	assert_int_equal(add(&c, lines(&f, 1, 1), AUDIT_BREAK_NONE), 0);
	assert_int_equal(add(&c, lines(&f, 2, 2), AUDIT_BREAK_NONE), 0);
	assert_int_equal(folders.calls, 3);
	audit_copy_close(&c);
	open_copy(&f, &c, 2);
	assert_int_equal(add(&c, lines(&f, 3, 3), AUDIT_BREAK_NONE), 0);
	assert_int_equal(folders.calls, 4);
	audit_copy_close(&c);
	fixture_fini(&f);
}

static void test_a_file_that_is_no_trail_is_left_alone(void **state)
{
	struct audit_copy c;
	struct errmsg msg = {""};
	struct fixture f;
	char name[80];

	fixture_init(&f);
	file_name(&f, 1, name);
	trail_write(name, "notes\n", 6);
	assert_int_equal(audit_copy_open(&c, f.file.path, f.max, &msg), E_SYNTAX);
	assert_true(msg.text[0]);
	audit_copy_close(&c);
	file_is(&f, 1, SLICE("notes\n"));
	/* A link may lead to somebody else's. */
	assert_int_equal(unlink(name), 0);
	assert_int_equal(symlink("/dev/null", name), 0);
	assert_int_equal(audit_copy_open(&c, f.file.path, f.max, &msg), -ELOOP);
	audit_copy_close(&c);
	fixture_fini(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pages_become_the_trail),
		cmocka_unit_test(test_what_does_not_continue_it_stays_outside),
		cmocka_unit_test(test_bad_lines_end_a_page),
		cmocka_unit_test(test_a_line_without_its_newline_is_not_taken),
		cmocka_unit_test(test_a_line_longer_than_any_is_not_taken),
		cmocka_unit_test(test_a_torn_end_is_cut_and_written_again),
		cmocka_unit_test(test_another_trail_has_another_file),
		cmocka_unit_test(test_files_have_a_limit),
		cmocka_unit_test(test_bytes_have_a_limit),
		cmocka_unit_test(test_a_limit_outlives_the_collector),
		cmocka_unit_test(test_the_folder_of_a_new_file_is_synced),
		cmocka_unit_test(test_a_file_that_is_no_trail_is_left_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
