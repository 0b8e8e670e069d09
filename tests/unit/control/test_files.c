/* Files by fixed role (control/files): links, FIFOs and foreign files in the way, modes, rotation.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/strbuf.h"
#include "control/files.h"

struct place {
	char dir[64];
	char path[128];  /* dir/file */
	char other[128]; /* dir/other */
};

static int set_up(void **state)
{
	struct place *p = calloc(1, sizeof(*p));

	(void)snprintf(p->dir, sizeof(p->dir), "/tmp/egress-files-XXXXXX");
	if (!mkdtemp(p->dir))
		return -1;
	(void)snprintf(p->path, sizeof(p->path), "%s/file", p->dir);
	(void)snprintf(p->other, sizeof(p->other), "%s/other", p->dir);
	*state = p;
	return 0;
}

static int remove_one(const char *path, const struct stat *st, int what, struct FTW *ftw)
{
	return remove(path);
}

static int tear_down(void **state)
{
	struct place *p = *state;

	(void)nftw(p->dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
	free(p);
	return 0;
}

static void put(const char *path, const char *text, mode_t mode)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	assert_int_equal(fchmod(fd, mode), 0);
	(void)close(fd);
}

static void assert_content(const char *path, const char *want)
{
	struct strbuf text;

	strbuf_init(&text, 4096);
	assert_int_equal(strbuf_read_file(&text, path), 0);
	assert_string_equal(strbuf_cstr(&text), want);
	strbuf_fini(&text);
}

static mode_t mode_of(const char *path)
{
	struct stat st;

	assert_int_equal(lstat(path, &st), 0);
	return st.st_mode;
}

static size_t count_entries(const char *dir)
{
	DIR *d = opendir(dir);
	size_t n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	(void)closedir(d);
	return n - 2; /* . and .. */
}

static void test_snapshot_is_sealed_and_outlives_the_file(void **state)
{
	struct place *p = *state;
	char text[8] = "";
	int fd;

	put(p->path, "old", 0644);
	assert_int_equal(files_snapshot(p->path, 3, true, &fd), 0);
	put(p->path, "new", 0644);
	assert_int_equal(pread(fd, text, sizeof(text), 0), 3);
	assert_string_equal(text, "old");
	assert_int_equal(write(fd, "x", 1), -1);
	assert_int_equal(ftruncate(fd, 0), -1);
	assert_int_equal(ftruncate(fd, 9), -1);
	(void)close(fd);
}

static void test_snapshot_has_a_ceiling(void **state)
{
	struct place *p = *state;
	int fd;

	put(p->path, "four", 0644);
	assert_int_equal(files_snapshot(p->path, 4, true, &fd), 0);
	(void)close(fd);
	assert_int_equal(files_snapshot(p->path, 3, true, &fd), E_LIMIT);
	assert_int_equal(fd, -1);
	assert_int_equal(files_snapshot(p->other, 3, true, &fd), -ENOENT);
}

static void test_snapshot_does_not_wait_at_a_fifo(void **state)
{
	struct place *p = *state;
	int fd;

	assert_int_equal(mkfifo(p->path, 0600), 0);
	assert_int_equal(files_snapshot(p->path, 10, true, &fd), -EINVAL);
	assert_int_equal(fd, -1);
}

static void test_audit_file_is_private_and_appended_to(void **state)
{
	struct place *p = *state;
	struct errmsg msg = {""};
	int fd;

	assert_int_equal(files_open_audit(p->path, &fd, &msg), 0);
	assert_int_equal(mode_of(p->path) & 07777, 0600);
	assert_true(fcntl(fd, F_GETFL) & O_APPEND);
	assert_int_equal(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDWR);
	assert_int_equal(write(fd, "a\n", 2), 2);
	(void)close(fd);
	assert_int_equal(files_open_audit(p->path, &fd, &msg), 0);
	assert_int_equal(write(fd, "b\n", 2), 2);
	(void)close(fd);
	assert_content(p->path, "a\nb\n");
}

static void test_audit_file_must_be_a_regular_file(void **state)
{
	struct place *p = *state;
	struct errmsg msg = {""};
	int fd;

	assert_int_equal(mkfifo(p->path, 0600), 0);
	assert_true(files_open_audit(p->path, &fd, &msg) < 0);
	assert_int_equal(fd, -1);
	assert_non_null(strstr(msg.text, "expected a regular file"));
	assert_true(files_open_audit(p->dir, &fd, &msg) < 0);
	assert_true(files_open_audit("/dev/null", &fd, &msg) < 0);
	assert_int_equal(symlink("file", p->other), 0);
	assert_int_equal(files_open_audit(p->other, &fd, &msg), -ELOOP);
}

static void test_audit_file_of_another_process_is_refused(void **state)
{
	struct place *p = *state;
	struct errmsg msg = {""};
	int first;
	int fd;

	assert_int_equal(files_open_audit(p->path, &first, &msg), 0);
	assert_int_equal(files_open_audit(p->path, &fd, &msg), -EWOULDBLOCK);
	assert_non_null(strstr(msg.text, "in use by another process"));
	(void)close(first);
	assert_int_equal(files_open_audit(p->path, &fd, &msg), 0);
	(void)close(fd);
}

static void test_rotation_keeps_five_and_drops_the_sixth(void **state)
{
	struct place *p = *state;
	struct errmsg msg = {""};
	char name[160];
	char text[8];
	int i;

	for (i = 0; i < 7; i++) {
		(void)snprintf(text, sizeof(text), "%d", i);
		put(p->path, text, 0600);
		assert_int_equal(files_rotate_audit(p->path, &msg), 0);
	}
	assert_int_equal(access(p->path, F_OK), -1);
	for (i = 1; i <= FILES_AUDIT_KEEP; i++) {
		(void)snprintf(name, sizeof(name), "%s.%d", p->path, i);
		(void)snprintf(text, sizeof(text), "%d", 7 - i);
		assert_content(name, text);
	}
	assert_int_equal(count_entries(p->dir), FILES_AUDIT_KEEP);
}

static void test_moved_file_is_no_longer_the_same(void **state)
{
	struct place *p = *state;
	struct errmsg msg = {""};
	int fd;

	assert_int_equal(files_open_audit(p->path, &fd, &msg), 0);
	assert_true(files_is_same(p->path, fd));
	assert_int_equal(rename(p->path, p->other), 0);
	assert_false(files_is_same(p->path, fd));
	put(p->path, "", 0600);
	assert_false(files_is_same(p->path, fd));
	assert_int_equal(remove(p->path), 0);
	assert_int_equal(symlink("other", p->path), 0);
	assert_false(files_is_same(p->path, fd));
	(void)close(fd);
}

static void test_replace_writes_the_mode_whatever_the_umask(void **state)
{
	struct place *p = *state;
	struct errmsg msg = {""};
	mode_t before = umask(077);

	assert_int_equal(files_replace(p->path, SLICE("one"), 0644, false, &msg), 0);
	assert_int_equal(files_replace(p->path, SLICE("two"), 0644, false, &msg), 0);
	(void)umask(before);
	assert_content(p->path, "two");
	assert_int_equal(mode_of(p->path) & 07777, 0644);
	assert_int_equal(count_entries(p->dir), 1);
}

static void test_replace_takes_a_planted_link_away_and_follows_it_not(void **state)
{
	struct place *p = *state;
	struct errmsg msg = {""};

	put(p->other, "precious", 0644);
	assert_int_equal(symlink(p->other, p->path), 0);
	assert_int_equal(files_replace(p->path, SLICE("cert"), 0644, false, &msg), 0);
	assert_content(p->other, "precious");
	assert_content(p->path, "cert");
	assert_true(S_ISREG(mode_of(p->path)));
}

static void test_replace_takes_a_planted_fifo_away(void **state)
{
	struct place *p = *state;
	struct errmsg msg = {""};

	assert_int_equal(mkfifo(p->path, 0666), 0);
	assert_int_equal(files_replace(p->path, SLICE("cert"), 0644, false, &msg), 0);
	assert_content(p->path, "cert");
}

static void test_replace_fails_cleanly_on_a_planted_directory(void **state)
{
	struct place *p = *state;
	struct errmsg msg = {""};

	assert_int_equal(mkdir(p->path, 0700), 0);
	assert_true(files_replace(p->path, SLICE("cert"), 0644, false, &msg) < 0);
	assert_non_null(strstr(msg.text, p->path));
	assert_int_equal(count_entries(p->dir), 1);
}

static void test_replace_does_not_go_through_a_linked_directory(void **state)
{
	struct place *p = *state;
	struct errmsg msg = {""};
	char path[160];
	char link[160];

	assert_int_equal(mkdir(p->other, 0700), 0);
	(void)snprintf(link, sizeof(link), "%s/link", p->dir);
	(void)snprintf(path, sizeof(path), "%s/link/ca", p->dir);
	assert_int_equal(symlink("other", link), 0);
	assert_true(files_replace(path, SLICE("cert"), 0644, false, &msg) < 0);
	assert_int_equal(count_entries(p->other), 0);
}

static void test_remove_takes_away_what_has_the_name_and_no_directory(void **state)
{
	struct place *p = *state;
	struct errmsg msg = {""};
	char through[160];

	assert_int_equal(files_remove(p->path, &msg), 0);
	put(p->other, "precious", 0644);
	assert_int_equal(symlink(p->other, p->path), 0);
	assert_int_equal(files_remove(p->path, &msg), 0);
	assert_int_equal(mkfifo(p->path, 0666), 0);
	assert_int_equal(files_remove(p->path, &msg), 0);
	assert_content(p->other, "precious");
	assert_int_equal(count_entries(p->dir), 1);
	assert_int_equal(mkdir(p->path, 0700), 0);
	assert_true(files_remove(p->path, &msg) < 0);
	assert_non_null(strstr(msg.text, p->path));
	assert_int_equal(rmdir(p->path), 0);
	assert_int_equal(symlink(p->dir, p->path), 0);
	(void)snprintf(through, sizeof(through), "%s%s", p->path, strrchr(p->other, '/'));
	assert_true(files_remove(through, &msg) < 0);
	assert_content(p->other, "precious");
}

static void test_directories_are_made_only_when_asked(void **state)
{
	struct place *p = *state;
	struct errmsg msg = {""};
	char path[160];
	char dir[160];

	(void)snprintf(dir, sizeof(dir), "%s/a/b", p->dir);
	(void)snprintf(path, sizeof(path), "%s/a/b/ca", p->dir);
	assert_int_equal(files_replace(path, SLICE("x"), 0644, false, &msg), -ENOENT);
	assert_int_equal(files_replace(path, SLICE("x"), 0644, true, &msg), 0);
	assert_content(path, "x");
	assert_int_equal(mode_of(dir) & 07777, 0700);
}

static void test_file_of_secrets_is_private_and_never_overwritten(void **state)
{
	struct place *p = *state;
	struct errmsg msg = {""};

	assert_int_equal(files_create_secret(p->path, SLICE("key"), &msg), 0);
	assert_int_equal(mode_of(p->path) & 07777, 0600);
	assert_int_equal(files_create_secret(p->path, SLICE("other"), &msg), -EEXIST);
	assert_content(p->path, "key");
}

static void test_file_of_secrets_that_others_can_read_is_refused(void **state)
{
	static const struct {
		mode_t mode;
		int ret;
	} rows[] = {{0600, 0}, {0400, 0}, {0640, -EPERM}, {0604, -EPERM}, {0610, -EPERM}};
	struct place *p = *state;
	size_t i;

	for (i = 0; i < ARRAY_LEN(rows); i++) {
		struct errmsg msg = {""};
		char mode[16];
		int fd;

		put(p->path, "key", rows[i].mode);
		assert_int_equal(files_open_secret(p->path, &fd, &msg), rows[i].ret);
		(void)snprintf(mode, sizeof(mode), "mode %04o: ", rows[i].mode);
		if (rows[i].ret < 0) {
			assert_non_null(strstr(msg.text, mode));
			assert_non_null(strstr(msg.text, "chmod 600"));
		} else {
			(void)close(fd);
		}
		assert_int_equal(remove(p->path), 0);
	}
}

static void test_missing_file_of_secrets_is_told_apart(void **state)
{
	struct place *p = *state;
	struct errmsg msg = {""};
	int fd;

	assert_int_equal(files_open_secret(p->path, &fd, &msg), -ENOENT);
	assert_int_equal(mkfifo(p->path, 0600), 0);
	assert_int_equal(files_open_secret(p->path, &fd, &msg), -EPERM);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_snapshot_is_sealed_and_outlives_the_file),
		TEST(test_snapshot_has_a_ceiling),
		TEST(test_snapshot_does_not_wait_at_a_fifo),
		TEST(test_audit_file_is_private_and_appended_to),
		TEST(test_audit_file_must_be_a_regular_file),
		TEST(test_audit_file_of_another_process_is_refused),
		TEST(test_rotation_keeps_five_and_drops_the_sixth),
		TEST(test_moved_file_is_no_longer_the_same),
		TEST(test_replace_writes_the_mode_whatever_the_umask),
		TEST(test_replace_takes_a_planted_link_away_and_follows_it_not),
		TEST(test_replace_takes_a_planted_fifo_away),
		TEST(test_replace_fails_cleanly_on_a_planted_directory),
		TEST(test_replace_does_not_go_through_a_linked_directory),
		TEST(test_remove_takes_away_what_has_the_name_and_no_directory),
		TEST(test_directories_are_made_only_when_asked),
		TEST(test_file_of_secrets_is_private_and_never_overwritten),
		TEST(test_file_of_secrets_that_others_can_read_is_refused),
		TEST(test_missing_file_of_secrets_is_told_apart),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
