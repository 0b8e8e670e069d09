/* How files look (control/vault_watch): every way in which one can change is seen. */
#include <sys/time.h>

#include "control/vault_watch.h"
#include "tests/unit/control/place.h"

static struct vault_watch watch;

static void begin(const struct place *p)
{
	watch.n = 0;
	assert_true(vault_watch_add(&watch, p->path));
	assert_true(vault_watch_add(&watch, p->other));
	assert_int_equal(vault_watch_now(&watch), vault_watch_noted(&watch));
}

static void assert_changed(const char *what)
{
	if (vault_watch_now(&watch) == vault_watch_noted(&watch))
		fail_msg("not seen: %s", what);
}

static void set_time(const char *path, long sec)
{
	const struct timeval t[2] = {{sec, 0}, {sec, 0}};

	assert_int_equal(utimes(path, t), 0);
}

static void test_each_change_of_a_file_is_seen(void **state)
{
	struct place *p = *state;
	char third[160];

	place_put(p->path, "one", 0600);
	begin(p);
	place_put(p->path, "three", 0600);
	assert_changed("size");
	begin(p);
	set_time(p->path, 1000);
	assert_changed("time");
	/* of the same size and time, as a careful editor leaves it */
	(void)snprintf(third, sizeof(third), "%s/third", p->dir);
	place_put(third, "3three", 0600);
	place_put(third, "eerht", 0600);
	set_time(third, 1000);
	begin(p);
	assert_int_equal(rename(third, p->path), 0);
	assert_changed("another file");
	begin(p);
	assert_int_equal(chmod(p->path, 0644), 0);
	assert_changed("mode");
	begin(p);
	assert_int_equal(remove(p->path), 0);
	assert_changed("gone");
	begin(p);
	place_put(p->path, "", 0600);
	assert_changed("there again");
	begin(p);
	place_put(p->other, "", 0600);
	assert_changed("the second one");
}

static void test_a_swapped_link_is_seen(void **state)
{
	struct place *p = *state;
	char link[160];

	(void)snprintf(link, sizeof(link), "%s/link", p->dir);
	place_put(p->path, "a", 0600);
	place_put(p->other, "b", 0600);
	assert_int_equal(symlink(p->path, link), 0);
	watch.n = 0;
	assert_true(vault_watch_add(&watch, link));
	assert_int_equal(remove(link), 0);
	assert_int_equal(symlink(p->other, link), 0);
	assert_changed("target of a link");
}

static void test_missing_files_look_the_same_again(void **state)
{
	struct place *p = *state;

	begin(p);
	assert_int_equal(vault_watch_now(&watch), vault_watch_now(&watch));
}

static void test_no_more_files_and_no_longer_paths_than_there_is_room_for(void **state)
{
	char path[PATH_MAX + 1];

	memset(path, 'x', sizeof(path));
	watch.n = 0;
	path[PATH_MAX] = '\0';
	assert_false(vault_watch_add(&watch, path));
	path[PATH_MAX - 1] = '\0';
	for (size_t i = 0; i < VAULT_WATCH_MAX; i++)
		assert_true(vault_watch_add(&watch, path));
	assert_false(vault_watch_add(&watch, "/x"));
	assert_int_equal(watch.n, VAULT_WATCH_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		PLACE_TEST(test_each_change_of_a_file_is_seen),
		PLACE_TEST(test_a_swapped_link_is_seen),
		PLACE_TEST(test_missing_files_look_the_same_again),
		PLACE_TEST(test_no_more_files_and_no_longer_paths_than_there_is_room_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
