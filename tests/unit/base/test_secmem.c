/* Locked memory: what the kernel was told about it, the allocator in it, and what is left after.
 *
 * The limit of 64 KiB is tried in a child without capabilities: a capability lets root lock more.
 * syscall() is wrapped, so that the kernel can be one without memfd_secret. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/attr.h"
#include "base/secmem.h"

#define PAGE 4096
#define HEADER 16
#define NOBODY 65534
#define LIMIT ((size_t)64 << 10)

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);

static bool no_memfd_secret;

long __wrap_syscall(long number, ...)
{
	/* Nothing else is called by its number here, and this one takes flags only. */
	if (number != SYS_memfd_secret || no_memfd_secret) {
		errno = ENOSYS;
		return -1;
	}
	return __real_syscall(number, (unsigned int)O_CLOEXEC);
}

static struct secmem *open_memory(size_t size)
{
	struct secmem *m = NULL;

	assert_true(secmem_new(size, &m) >= 0);
	assert_non_null(m);
	return m;
}

/* The exit code of what a child does, or 1000 + the signal that ended it. */
static int in_child(void (*what)(void))
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

		/* What a child that has to die says is not for the log. */
		if (dup2(null, STDERR_FILENO) < 0)
			_exit(99);
		what();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* May this process read the byte? Asked of the kernel, which answers instead of a fault. */
static bool is_readable(const char *p)
{
	int fds[2];
	bool ok;

	if (pipe2(fds, O_CLOEXEC) != 0)
		return false;
	ok = write(fds[1], p, 1) == 1;
	close(fds[0]);
	close(fds[1]);
	return ok;
}

static void test_memory_is_zero_aligned_and_inside(void **state)
{
	struct secmem *m = open_memory(PAGE);
	char *a = secmem_alloc(m, 1);
	char *b = secmem_alloc(m, 17);
	char *c = secmem_alloc(m, 0);

	assert_true(a && b && c && a != b && b != c);
	assert_true((uintptr_t)a % 16 == 0 && (uintptr_t)b % 16 == 0 && (uintptr_t)c % 16 == 0);
	assert_true(secmem_holds(m, a) && secmem_holds(m, b + 16) && secmem_holds(m, c));
	assert_false(secmem_holds(m, &m));
	assert_false(secmem_holds(m, NULL));
	for (int i = 0; i < 17; i++)
		assert_int_equal(b[i], 0);
	secmem_release(m, a);
	secmem_release(m, b);
	secmem_release(m, c);
	secmem_release(m, NULL);
	assert_int_equal(secmem_used(m), 0);
	secmem_close(m);
	secmem_close(NULL);
}

static void test_released_memory_is_wiped_at_once(void **state)
{
	struct secmem *m = open_memory(PAGE);
	char *before = secmem_alloc(m, 16);
	char *a = secmem_alloc(m, 100);
	char *behind = secmem_alloc(m, 16);

	memset(a, 'k', 112);
	secmem_release(m, a);
	for (int i = 0; i < 112; i++)
		assert_int_equal(a[i], 0);
	/* What is given out again is zero, the headers that were in it too. */
	secmem_release(m, behind);
	secmem_release(m, before);
	a = secmem_alloc(m, PAGE - HEADER);
	assert_ptr_equal(a, before);
	for (int i = 0; i < PAGE - HEADER; i++)
		assert_int_equal(a[i], 0);
	secmem_release(m, a);
	secmem_close(m);
}

static void test_last_byte_fits_and_one_more_does_not(void **state)
{
	struct secmem *m = open_memory(PAGE);
	char *a;

	assert_int_equal(secmem_size(m), PAGE);
	assert_null(secmem_alloc(m, PAGE));
	assert_null(secmem_alloc(m, PAGE - HEADER + 1));
	assert_null(secmem_alloc(m, SIZE_MAX));
	assert_int_equal(secmem_used(m), 0);
	a = secmem_alloc(m, PAGE - HEADER);
	assert_non_null(a);
	a[PAGE - HEADER - 1] = 1;
	assert_int_equal(secmem_used(m), PAGE);
	assert_null(secmem_alloc(m, 0));
	secmem_release(m, a);
	secmem_close(m);
}

static void test_neighbours_are_joined_in_any_order_of_release(void **state)
{
	static const int orders[][3] = {
		{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
	struct secmem *m = open_memory(PAGE);
	char *p[3];
	char *whole;

	for (size_t i = 0; i < ARRAY_LEN(orders); i++) {
		for (int j = 0; j < 3; j++)
			assert_non_null(p[j] = secmem_alloc(m, PAGE / 4));
		for (int j = 0; j < 3; j++)
			secmem_release(m, p[orders[i][j]]);
		assert_int_equal(secmem_used(m), 0);
		whole = secmem_alloc(m, PAGE - HEADER);
		assert_non_null(whole);
		secmem_release(m, whole);
	}
	secmem_close(m);
}

static void test_first_gap_that_fits_is_taken(void **state)
{
	struct secmem *m = open_memory(PAGE);
	char *p[5];

	for (int i = 0; i < 5; i++)
		p[i] = secmem_alloc(m, 64);
	secmem_release(m, p[1]);
	secmem_release(m, p[3]);
	assert_ptr_equal(secmem_alloc(m, 64), p[1]);
	assert_ptr_equal(secmem_alloc(m, 65), p[4] + 64 + HEADER);
	assert_ptr_equal(secmem_alloc(m, 48), p[3]);
	for (int i = 0; i < 5; i++)
		secmem_release(m, p[i]);
	secmem_release(m, p[4] + 64 + HEADER);
	secmem_close(m);
}

/* Against a plain list of what was given out: never twice, never outside, kept until released. */
static void test_blocks_never_overlap_in_a_long_run(void **state)
{
	struct secmem *m = open_memory(16 * PAGE);
	char *p[64] = {NULL};
	size_t len[64] = {0};
	uint32_t r = 1;
	size_t given = 0;

	for (int i = 0; i < 20000; i++) {
		size_t at = (r >> 8) % 64;

		r = r * 1664525 + 1013904223;
		for (size_t j = 0; p[at] && j < len[at]; j++)
			assert_int_equal(p[at][j], (char)(at + 1));
		secmem_release(m, p[at]);
		len[at] = (r >> 16) % 3000;
		p[at] = secmem_alloc(m, len[at]);
		if (!p[at])
			continue;
		given++;
		assert_true(len[at] == 0 || secmem_holds(m, p[at] + len[at] - 1));
		for (size_t j = 0; j < len[at]; j++)
			assert_int_equal(p[at][j], 0);
		memset(p[at], (int)at + 1, len[at]);
	}
	assert_true(given > 10000 && given < 20000);
	for (int i = 0; i < 64; i++)
		secmem_release(m, p[i]);
	assert_int_equal(secmem_used(m), 0);
	secmem_close(m);
}

static void test_pages_around_cannot_be_touched(void **state)
{
	struct secmem *m = open_memory(3 * PAGE - 1);
	char *p = secmem_alloc(m, 1);
	char *base = p - HEADER;

	assert_int_equal(secmem_size(m), 3 * PAGE);
	assert_true(is_readable(base) && is_readable(base + 3 * PAGE - 1));
	assert_false(is_readable(base - 1));
	assert_false(is_readable(base + 3 * PAGE));
	assert_false(secmem_holds(m, base - 1));
	assert_true(secmem_holds(m, base + 3 * PAGE - 1));
	assert_false(secmem_holds(m, base + 3 * PAGE));
	secmem_release(m, p);
	secmem_close(m);
	assert_false(is_readable(base));
}

static char *inherited;

static void read_inherited(void)
{
	if (is_readable(inherited))
		_exit(7);
}

static void test_child_does_not_inherit_it(void **state)
{
	for (int secret = 0; secret < 2; secret++) {
		struct secmem *m;

		no_memfd_secret = secret == 0;
		m = open_memory(PAGE);
		inherited = secmem_alloc(m, 16);
		assert_true(is_readable(inherited));
		assert_int_equal(in_child(read_inherited), 0);
		secmem_release(m, inherited);
		secmem_close(m);
	}
	/* The same question about other memory is answered with yes. */
	no_memfd_secret = false;
	inherited = malloc(1);
	*inherited = 'x';
	assert_int_equal(in_child(read_inherited), 7);
	free(inherited);
}

/* Is this flag among those that the kernel shows for the mapping that holds p? */
static bool mapping_has_flag(const void *p, const char *flag)
{
	FILE *f = fopen("/proc/self/smaps", "re");
	bool inside = false, has = false;
	char line[512], word[8];
	unsigned long from, to;

	assert_non_null(f);
	(void)snprintf(word, sizeof(word), " %s ", flag);
	while (fgets(line, sizeof(line), f)) {
		char *end;

		from = strtoul(line, &end, 16);
		if (*end == '-') {
			to = strtoul(end + 1, NULL, 16);
			inside = (uintptr_t)p >= from && (uintptr_t)p < to;
		}
		if (inside && strncmp(line, "VmFlags:", 8) == 0)
			has = strstr(line, word) != NULL;
	}
	(void)fclose(f);
	return has;
}

static void test_kernel_keeps_it_out_of_dumps_and_in_memory(void **state)
{
	char *plain = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_false(mapping_has_flag(plain, "dd"));
	assert_false(mapping_has_flag(plain, "dc"));
	assert_false(mapping_has_flag(plain, "lo"));
	munmap(plain, PAGE);
	for (int secret = 0; secret < 2; secret++) {
		struct secmem *m;
		char *p;

		no_memfd_secret = secret == 0;
		m = open_memory(PAGE);
		p = secmem_alloc(m, 16);
		assert_true(mapping_has_flag(p, "dd"));
		assert_true(mapping_has_flag(p, "dc"));
		assert_int_equal(mapping_has_flag(p, "lo"), secmem_is_locked(m));
		secmem_release(m, p);
		secmem_close(m);
	}
	no_memfd_secret = false;
}

/* The kernel does not let another process, nor this one by a file, read a memfd_secret. */
static void test_secret_pages_are_used_where_the_kernel_has_them(void **state)
{
	int probe = (int)__real_syscall(SYS_memfd_secret, 0U);
	struct secmem *m = open_memory(PAGE);
	int fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
	char *p = secmem_alloc(m, 16);
	char c;

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &c, 1, (off_t)(uintptr_t)&probe), 1);
	if (probe >= 0) {
		assert_true(secmem_is_locked(m));
		assert_int_equal(pread(fd, &c, 1, (off_t)(uintptr_t)p), -1);
		close(probe);
	}
	close(fd);
	secmem_release(m, p);
	secmem_close(m);
}

/* In a child that may lock 64 KiB. */
static bool limit_set(size_t limit)
{
	struct rlimit lim = {limit, limit};

	return setrlimit(RLIMIT_MEMLOCK, &lim) == 0 &&
		(getuid() != 0 || setresuid(NOBODY, NOBODY, NOBODY) == 0);
}

static bool opens(size_t size, int want, struct secmem **m)
{
	char *p;

	if (secmem_new(size, m) != want || secmem_is_locked(*m) != (want == 0))
		return false;
	/* It works all the same. */
	p = secmem_alloc(*m, size - HEADER);
	if (!p)
		return false;
	memset(p, 'k', size - HEADER);
	secmem_release(*m, p);
	return true;
}

static void limit_is_used_to_the_last_page(void)
{
	struct secmem *m, *more;

	if (!limit_set(LIMIT) || secmem_size_for(PAGE, (size_t)1 << 20) != LIMIT)
		_exit(1);
	if (!opens(LIMIT, 0, &m))
		_exit(2);
	/* What is locked already counts, and then the least is what is left to ask for. */
	if (secmem_size_for(2 * PAGE, (size_t)1 << 20) != 2 * PAGE)
		_exit(3);
	if (!opens(PAGE, SECMEM_DEGRADED, &more))
		_exit(4);
	secmem_close(more);
	secmem_close(m);
	if (!opens(LIMIT, 0, &m))
		_exit(5);
	secmem_close(m);
}

static void limit_is_shared_with_other_locks(void)
{
	char *other =
		mmap(NULL, 5 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct secmem *m;

	if (!limit_set(LIMIT) || mlock2(other, 5 * PAGE, 0) != 0)
		_exit(1);
	if (secmem_size_for(PAGE, (size_t)1 << 20) != LIMIT - 5 * PAGE)
		_exit(2);
	if (!opens(LIMIT - 5 * PAGE, 0, &m))
		_exit(3);
	secmem_close(m);
}

static void one_page_past_the_limit_is_degraded(void)
{
	struct secmem *m;

	if (!limit_set(LIMIT) || !opens(LIMIT + PAGE, SECMEM_DEGRADED, &m))
		_exit(1);
	secmem_close(m);
}

static void no_lock_at_all_is_degraded(void)
{
	struct secmem *m;

	if (!limit_set(0) || secmem_size_for(LIMIT, LIMIT) != LIMIT)
		_exit(1);
	if (!opens(LIMIT, SECMEM_DEGRADED, &m))
		_exit(2);
	secmem_close(m);
}

static void size_follows_the_limit(void)
{
	if (!limit_set(LIMIT + PAGE - 1) || secmem_size_for(1, (size_t)1 << 20) != LIMIT)
		_exit(1);
	if (secmem_size_for(1, 3 * PAGE - 1) != 2 * PAGE)
		_exit(2);
	if (secmem_size_for(LIMIT + 1, (size_t)1 << 20) != LIMIT + PAGE)
		_exit(3);
}

static void test_limit_of_64_kib(void **state)
{
	for (int secret = 0; secret < 2; secret++) {
		no_memfd_secret = secret == 0;
		assert_int_equal(in_child(limit_is_used_to_the_last_page), 0);
		assert_int_equal(in_child(limit_is_shared_with_other_locks), 0);
		assert_int_equal(in_child(one_page_past_the_limit_is_degraded), 0);
		assert_int_equal(in_child(no_lock_at_all_is_degraded), 0);
		assert_int_equal(in_child(size_follows_the_limit), 0);
	}
	no_memfd_secret = false;
}

static void release_twice(void)
{
	struct secmem *m = open_memory(PAGE);
	void *p = secmem_alloc(m, 16);

	secmem_release(m, p);
	secmem_release(m, p);
}

static void release_foreign(void)
{
	struct secmem *m = open_memory(PAGE);
	_Alignas(16) char foreign[64] = {0};

	secmem_release(m, foreign + 16);
}

static void release_inside(void)
{
	struct secmem *m = open_memory(PAGE);
	char *p = secmem_alloc(m, 64);

	secmem_release(m, p + 32);
}

static void write_past_the_end(void)
{
	struct secmem *m = open_memory(PAGE);
	char *p = secmem_alloc(m, 64);

	memset(p, 'x', 64 + HEADER);
	(void)secmem_alloc(m, 64);
}

static void close_in_use(void)
{
	struct secmem *m = open_memory(PAGE);

	if (secmem_alloc(m, 1))
		secmem_close(m);
}

static void nothing(void)
{
	struct secmem *m = open_memory(PAGE);

	secmem_release(m, secmem_alloc(m, 64));
	secmem_close(m);
}

static void test_misuse_ends_the_process(void **state)
{
	assert_int_equal(in_child(nothing), 0);
	assert_int_equal(in_child(release_twice), 1000 + SIGABRT);
	assert_int_equal(in_child(release_foreign), 1000 + SIGABRT);
	assert_int_equal(in_child(release_inside), 1000 + SIGABRT);
	assert_int_equal(in_child(write_past_the_end), 1000 + SIGABRT);
	assert_int_equal(in_child(close_in_use), 1000 + SIGABRT);
}

static void test_impossible_sizes_are_errors(void **state)
{
	struct secmem *m;

	assert_int_equal(secmem_new(0, &m), -EINVAL);
	assert_null(m);
	assert_int_equal(secmem_new(SIZE_MAX, &m), -EINVAL);
	assert_int_equal(secmem_new(SIZE_MAX / 4, &m), -ENOMEM);
	assert_null(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_memory_is_zero_aligned_and_inside),
		cmocka_unit_test(test_released_memory_is_wiped_at_once),
		cmocka_unit_test(test_last_byte_fits_and_one_more_does_not),
		cmocka_unit_test(test_neighbours_are_joined_in_any_order_of_release),
		cmocka_unit_test(test_first_gap_that_fits_is_taken),
		cmocka_unit_test(test_blocks_never_overlap_in_a_long_run),
		cmocka_unit_test(test_pages_around_cannot_be_touched),
		cmocka_unit_test(test_child_does_not_inherit_it),
		cmocka_unit_test(test_kernel_keeps_it_out_of_dumps_and_in_memory),
		cmocka_unit_test(test_secret_pages_are_used_where_the_kernel_has_them),
		cmocka_unit_test(test_limit_of_64_kib),
		cmocka_unit_test(test_misuse_ends_the_process),
		cmocka_unit_test(test_impossible_sizes_are_errors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
