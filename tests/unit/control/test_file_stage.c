/* A file that gets its name later (control/file_stage): what is on the disk before and after, and
 * that nothing is left behind. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

#include "control/file_stage.h"
#include "tests/unit/control/place.h"

static const char *place;

static size_t entries(const char *dir)
{
	struct dirent *e;
	DIR *d = opendir(dir);
	size_t n = 0;

	assert_non_null(d);
	while ((e = readdir(d)) != NULL)
		n += e->d_name[0] != '.' || strncmp(e->d_name, ".egress-", 8) == 0;
	(void)closedir(d);
	return n;
}

static void text_is(const char *path, const char *want)
{
	char got[64] = "";
	FILE *f = fopen(path, "r");

	assert_non_null(f);
	assert_true(fread(got, 1, sizeof(got) - 1, f) < sizeof(got));
	(void)fclose(f);
	assert_string_equal(got, want);
}

static const char *at(const char *name)
{
	static char path[4200];

	(void)snprintf(path, sizeof(path), "%s/%s", place, name);
	return path;
}

static mode_t mode_of(const char *path)
{
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	return st.st_mode & 07777;
}

static void test_file_has_its_name_after_commit_only(void **state)
{
	struct errmsg msg = {""};
	struct file_stage f;

	place = ((struct place *)*state)->dir;
	file_stage_init(&f);
	assert_int_equal(file_stage_write(&f, at("p"), SLICE("one"), &msg), 0);
	assert_int_equal(entries(place), 1);
	assert_int_equal(access(at("p"), F_OK), -1);
	assert_int_equal(file_stage_commit(&f, &msg), 0);
	text_is(at("p"), "one");
	assert_int_equal(mode_of(at("p")), 0600);
	assert_int_equal(entries(place), 1);
	/* nothing is staged any more */
	assert_int_equal(file_stage_commit(&f, &msg), E_VALUE);
	assert_int_equal(chmod(at("p"), 0640), 0);
	assert_int_equal(file_stage_write(&f, at("p"), SLICE("two"), &msg), 0);
	text_is(at("p"), "one");
	file_stage_discard(&f);
	file_stage_discard(&f);
	text_is(at("p"), "one");
	assert_int_equal(entries(place), 1);
	/* the second write replaces the first */
	assert_int_equal(file_stage_write(&f, at("p"), SLICE("three"), &msg), 0);
	assert_int_equal(file_stage_write(&f, at("p"), SLICE("four"), &msg), 0);
	assert_int_equal(entries(place), 2);
	assert_int_equal(file_stage_commit(&f, &msg), 0);
	text_is(at("p"), "four");
	assert_int_equal(mode_of(at("p")), 0640);
	assert_int_equal(entries(place), 1);
	assert_int_equal(unlink(at("p")), 0);
}

static void test_failures_leave_nothing(void **state)
{
	struct errmsg msg = {""};
	struct file_stage f;

	place = ((struct place *)*state)->dir;
	file_stage_init(&f);
	assert_int_equal(file_stage_write(&f, at("no/p"), SLICE("x"), &msg), -ENOENT);
	assert_non_null(strstr(msg.text, "no/p: "));
	assert_int_equal(mkdir(at("d"), 0700), 0);
	assert_int_equal(file_stage_write(&f, at("d"), SLICE("x"), &msg), 0);
	assert_true(file_stage_commit(&f, &msg) < 0);
	assert_int_equal(entries(place), 1);
	assert_int_equal(rmdir(at("d")), 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		PLACE_TEST(test_file_has_its_name_after_commit_only),
		PLACE_TEST(test_failures_leave_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
