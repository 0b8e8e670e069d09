/* The vault file through a child into an area (control/vault_feed), and what RLIMIT_MEMLOCK leaves
 * for it (control/areas). */
#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "base/secmem.h"
#include "base/state.h"
#include "control/areas.h"
#include "control/vault_feed.h"
#include "tests/unit/control/place.h"

#define SECRET "sk-Pl4nt3d-0123456789"

static int lowest_free(void)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	(void)close(fd);
	return fd;
}

static void set_limit(rlim_t limit)
{
	const struct rlimit lim = {limit, limit};

	if (setrlimit(RLIMIT_MEMLOCK, &lim) < 0)
		_exit(101);
}

/* Runs check in a child with that limit, as a user without rights, since root may lock all. */
static void in_child(rlim_t limit, bool (*check)(void))
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		set_limit(limit);
		if (geteuid() == 0 && (setgid(65534) < 0 || setuid(65534) < 0))
			_exit(102);
		_exit(check() ? 0 : 103);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_document_reaches_an_area_and_is_wiped_when_it_was_read(void **state)
{
	struct place *p = *state;
	struct vault_watch *watch;
	struct vault_feed feed;
	struct vault_feed again;
	struct errmsg msg = {""};
	int before = lowest_free();
	int fd;

	place_put(p->path, "a: " SECRET "\n", 0600);
	if (vault_feed_read(p->path, &fd, &watch, &msg) < 0)
		fail_msg("%s", msg.text);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	assert_int_equal(watch->n, 1);
	assert_string_equal(watch->file[0].path, p->path);
	assert_int_equal(vault_watch_now(watch), vault_watch_noted(watch));
	vault_feed_watch_free(watch);
	assert_int_equal(vault_feed_open(fd, &feed), 0);
	assert_true(slice_eq(feed.doc, SLICE("{\"a\":\"" SECRET "\"}")));
	vault_feed_close(&feed);
	assert_int_equal(vault_feed_open(fd, &again), 0);
	assert_int_equal(again.doc.len, 0);
	for (size_t i = 0; i < again.len; i++)
		assert_int_equal(((char *)again.area)[i], 0);
	vault_feed_close(&again);
	(void)close(fd);
	assert_int_equal(lowest_free(), before);
}

#define MARK "Zm9yZ2V0LW1l-9876543210" /* only in memory that cannot be written to */

/* Is the mark anywhere in what this process may write to? */
static bool mark_in_our_memory(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	int mem = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
	bool found = false;
	char line[512];

	assert_true(mem >= 0 && maps);
	while (fgets(line, sizeof(line), maps)) {
		unsigned long from, to;
		char mode[5];
		char *copy;
		ssize_t n;

		if (sscanf(line, "%lx-%lx %4s", &from, &to, mode) != 3 || mode[1] != 'w' ||
			to - from > (64ul << 20))
			continue;
		/* not by malloc: a copy of one piece must not be met in the next */
		copy = mmap(NULL, to - from, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			-1, 0);
		assert_true(copy != MAP_FAILED);
		n = pread(mem, copy, to - from, (off_t)from);
		found = found || (n > 0 && memmem(copy, (size_t)n, MARK, sizeof(MARK) - 1));
		(void)munmap(copy, to - from);
	}
	(void)fclose(maps);
	(void)close(mem);
	return found;
}

/* The reader is a process of its own: the text must be nowhere in this one. */
static void test_the_text_is_never_in_our_memory(void **state)
{
	struct place *p = *state;
	struct vault_watch *watch;
	struct errmsg msg = {""};
	char *volatile planted; /* or clang takes the copy away, since nobody reads it */
	int fd;

	place_put(p->path, "a: " MARK "\n", 0600);
	assert_int_equal(vault_feed_read(p->path, &fd, &watch, &msg), 0);
	vault_feed_watch_free(watch);
	assert_false(mark_in_our_memory());
	/* or the search is blind */
	planted = strdup(MARK);
	assert_true(mark_in_our_memory());
	free(planted);
	(void)close(fd);
}

static void test_failure_of_the_reader_is_told_with_what_it_tried(void **state)
{
	struct place *p = *state;
	struct vault_watch *watch;
	struct errmsg msg = {""};
	int before = lowest_free();
	int fd;

	assert_int_equal(vault_feed_read(p->path, &fd, &watch, &msg), -ENOENT);
	assert_int_equal(fd, -1);
	assert_non_null(strstr(msg.text, p->path));
	assert_int_equal(watch->n, 1);
	assert_int_equal(vault_watch_now(watch), vault_watch_noted(watch));
	place_put(p->path, "a: b\n", 0600);
	assert_int_not_equal(vault_watch_now(watch), vault_watch_noted(watch));
	vault_feed_watch_free(watch);
	place_put(p->path, SECRET, 0600);
	assert_int_equal(vault_feed_read(p->path, &fd, &watch, &msg), E_SYNTAX);
	assert_null(strstr(msg.text, "Pl4nt"));
	vault_feed_watch_free(watch);
	assert_int_equal(lowest_free(), before);
}

static void test_only_who_may_read_the_file_can_have_it(void **state)
{
	struct place *p = *state;
	int status;
	pid_t pid;

	if (geteuid() != 0)
		skip();
	assert_int_equal(chmod(p->dir, 0755), 0);
	place_put(p->path, "a: b\n", 0600);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct vault_watch *watch;
		struct errmsg msg = {""};
		int fd;

		if (setgid(65534) < 0 || setuid(65534) < 0)
			_exit(2);
		if (vault_feed_read(p->path, &fd, &watch, &msg) != -EACCES)
			_exit(3);
		_exit(strstr(msg.text, "Permission denied") ? 0 : 4);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_area_of_another_shape_is_refused(void **state)
{
	uint64_t len = AREA_PAGE - sizeof(len) + 1;
	struct vault_feed feed;
	int fd = memfd_create("test", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_true(vault_feed_open(fd, &feed) < 0);
	assert_int_equal(ftruncate(fd, AREA_PAGE), 0);
	assert_int_equal(vault_feed_open(fd, &feed), 0);
	vault_feed_close(&feed);
	assert_int_equal(pwrite(fd, &len, sizeof(len), 0), sizeof(len));
	assert_int_equal(vault_feed_open(fd, &feed), E_SYNTAX);
	len--;
	assert_int_equal(pwrite(fd, &len, sizeof(len), 0), sizeof(len));
	assert_int_equal(vault_feed_open(fd, &feed), 0);
	assert_int_equal(feed.doc.len, len);
	vault_feed_close(&feed);
	assert_int_equal(ftruncate(fd, AREA_FEED_LEN_MAX + 1), 0);
	assert_int_equal(vault_feed_open(fd, &feed), E_LIMIT);
	(void)close(fd);
	assert_int_equal(vault_feed_open(fd, &feed), -EBADF);
}

static void test_largest_document_fits_into_the_room_for_one(void **state)
{
	char *text = calloc(1, VAULT_DOC_MAX);
	struct vault_feed feed;
	int fd;

	memset(text, 'x', VAULT_DOC_MAX);
	assert_int_equal(vault_feed_put(slice_make(text, VAULT_DOC_MAX), &fd), 0);
	assert_int_equal(vault_feed_open(fd, &feed), 0);
	assert_true(feed.len <= AREA_FEED_LEN_MAX);
	assert_int_equal(feed.doc.len, VAULT_DOC_MAX);
	vault_feed_close(&feed);
	(void)close(fd);
	free(text);
}

/* --- RLIMIT_MEMLOCK --- */

/* All that a worker locks, at the same time. */
static bool worker_can_lock_all(void)
{
	struct secmem *mem = NULL;
	void *area;
	char *text;
	int fd;

	if (!area_lock_fits())
		return false;
	if (state_create("test", AREA_SECRET_LEN, true, &fd) != 0 ||
		state_map(fd, AREA_SECRET_LEN, &area) < 0)
		return false;
	if (state_create("test", AREA_VAULT_LEN, true, &fd) != 0 ||
		state_map(fd, AREA_VAULT_LEN, &area) < 0)
		return false;
	if (secmem_new(secmem_size_for(AREA_WORK_MIN, area_work_len()), &mem) != 0 ||
		secmem_size(mem) < AREA_WORK_MIN)
		return false;
	text = calloc(1, VAULT_DOC_MAX);
	if (vault_feed_put(slice_make(text, VAULT_DOC_MAX), &fd) < 0)
		return false;
	free(text);
	if (state_map(fd, AREA_FEED_LEN_MAX, &area) < 0)
		return false;
	secmem_close(mem);
	return true;
}

/* Nothing fails, but it is known that it does not lock. */
static bool worker_goes_on_unlocked(void)
{
	struct vault_feed feed;
	struct secmem *mem = NULL;
	char *text;
	int ret;
	int fd;

	if (area_lock_fits() || area_work_len() != AREA_WORK_MIN)
		return false;
	ret = secmem_new(secmem_size_for(AREA_WORK_MIN, area_work_len()), &mem);
	if (ret < 0 || secmem_size(mem) < AREA_WORK_MIN)
		return false;
	text = calloc(1, VAULT_DOC_MAX);
	if (vault_feed_put(slice_make(text, VAULT_DOC_MAX), &fd) < 0 ||
		vault_feed_open(fd, &feed) < 0 || feed.doc.len != VAULT_DOC_MAX)
		return false;
	free(text);
	vault_feed_close(&feed);
	secmem_close(mem);
	return true;
}

static bool secret_area_is_locked_alone(void)
{
	void *area;
	int fd;

	return state_create("test", AREA_SECRET_LEN, true, &fd) == 0 &&
		state_map(fd, AREA_SECRET_LEN, &area) == 0;
}

static void test_limit_that_is_enough_locks_everything(void **state)
{
	in_child(AREA_LOCKED_FIXED + AREA_WORK_MIN, worker_can_lock_all);
	in_child(8u << 20, worker_can_lock_all);
}

static void test_limit_of_64_kib_or_one_byte_too_few_leaves_it_unlocked(void **state)
{
	in_child(64u << 10, worker_goes_on_unlocked);
	in_child(0, worker_goes_on_unlocked);
	in_child(AREA_LOCKED_FIXED + AREA_WORK_MIN - 1, worker_goes_on_unlocked);
}

static void test_limit_of_64_kib_still_locks_the_ca(void **state)
{
	in_child(64u << 10, secret_area_is_locked_alone);
}

/* Lower only: a user without rights cannot go up again. */
static bool work_shrinks_with_the_limit(void)
{
	if (area_work_len() != AREA_WORK_MAX)
		return false;
	set_limit(AREA_LOCKED_FIXED + AREA_WORK_MAX - 1);
	return area_work_len() == AREA_WORK_MAX - AREA_PAGE;
}

static bool work_takes_what_is_left(void)
{
	set_limit(AREA_LOCKED_FIXED + AREA_WORK_MIN + AREA_PAGE);
	if (area_work_len() != AREA_WORK_MIN + AREA_PAGE)
		return false;
	set_limit(AREA_LOCKED_FIXED + AREA_WORK_MIN + AREA_PAGE - 1);
	return area_work_len() == AREA_WORK_MIN;
}

static void test_memory_to_work_in_takes_what_the_limit_leaves(void **state)
{
	in_child(8u << 20, work_takes_what_is_left);
}

static void test_memory_to_work_in_has_a_ceiling(void **state)
{
	const rlim_t limit = AREA_LOCKED_FIXED + AREA_WORK_MAX;
	struct rlimit lim;

	assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &lim), 0);
	if (lim.rlim_max < limit)
		skip();
	in_child(limit, work_shrinks_with_the_limit);
}

static bool soft_limit_is_raised(void)
{
	struct rlimit lim = {4096, 64u << 10};

	if (setrlimit(RLIMIT_MEMLOCK, &lim) < 0)
		return false;
	area_raise_limit();
	return getrlimit(RLIMIT_MEMLOCK, &lim) == 0 && lim.rlim_cur == 64u << 10;
}

static void test_soft_limit_is_raised_to_the_hard_one(void **state)
{
	in_child(64u << 10, soft_limit_is_raised);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		PLACE_TEST(test_document_reaches_an_area_and_is_wiped_when_it_was_read),
		PLACE_TEST(test_the_text_is_never_in_our_memory),
		PLACE_TEST(test_failure_of_the_reader_is_told_with_what_it_tried),
		PLACE_TEST(test_only_who_may_read_the_file_can_have_it),
		cmocka_unit_test(test_area_of_another_shape_is_refused),
		cmocka_unit_test(test_largest_document_fits_into_the_room_for_one),
		cmocka_unit_test(test_limit_that_is_enough_locks_everything),
		cmocka_unit_test(test_limit_of_64_kib_or_one_byte_too_few_leaves_it_unlocked),
		cmocka_unit_test(test_limit_of_64_kib_still_locks_the_ca),
		cmocka_unit_test(test_memory_to_work_in_takes_what_the_limit_leaves),
		cmocka_unit_test(test_memory_to_work_in_has_a_ceiling),
		cmocka_unit_test(test_soft_limit_is_raised_to_the_hard_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
