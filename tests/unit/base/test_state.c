/* Areas and cells of base/state. A torn write is made by hand: each prefix of the bytes that a
 * write changes, and each single word of them left out. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"
#include "base/state.h"

#define DOC_MAX 61
#define AREA_LEN (3 * 4096)

static void write_doc(void *region, size_t len, const char *text)
{
	assert_int_equal(state_cell_write(region, len, slice_str(text)), 0);
}

static void assert_doc(const void *region, size_t len, const char *text)
{
	struct slice got;

	assert_true(state_cell_read(region, len, &got));
	assert_true(slice_eq(got, slice_str(text)));
}

static void test_zeros_are_an_empty_cell(void **state)
{
	uint64_t region[32] = {0};
	struct slice got;

	assert_false(state_cell_read(region, sizeof(region), &got));
}

static void test_region_smaller_than_headers_holds_nothing(void **state)
{
	uint64_t region[4] = {0};
	struct slice got;

	assert_int_equal(state_cell_write(region, sizeof(region), SLICE_EMPTY), E_LIMIT);
	assert_false(state_cell_read(region, sizeof(region), &got));
}

static void test_last_document_is_read_back(void **state)
{
	size_t len = state_cell_size(DOC_MAX);
	void *region = calloc(1, len);
	struct slice got;

	write_doc(region, len, "one");
	assert_doc(region, len, "one");
	write_doc(region, len, "the second, longer");
	assert_doc(region, len, "the second, longer");
	write_doc(region, len, "3");
	assert_doc(region, len, "3");
	assert_int_equal(state_cell_write(region, len, SLICE_EMPTY), 0);
	assert_true(state_cell_read(region, len, &got));
	assert_int_equal(got.len, 0);
	free(region);
}

static bool region_has(const void *region, size_t len, const char *text)
{
	return memmem(region, len, text, strlen(text)) != NULL;
}

static void test_older_copy_can_be_wiped(void **state)
{
	size_t len = state_cell_size(DOC_MAX);
	char *region = calloc(1, len);

	state_cell_wipe_older(region, len);
	for (int i = 0; i < 3; i++) {
		write_doc(region, len, "the first one, long");
		write_doc(region, len, "second");
		assert_true(region_has(region, len, "first"));
		state_cell_wipe_older(region, len);
		assert_false(region_has(region, len, "first"));
		assert_doc(region, len, "second");
		/* a shorter one leaves nothing of a longer one behind itself */
		write_doc(region, len, "third, of some length");
		state_cell_wipe_older(region, len);
		write_doc(region, len, "4");
		state_cell_wipe_older(region, len);
		assert_int_equal(state_cell_write(region, len, SLICE_EMPTY), 0);
		state_cell_wipe_older(region, len);
		assert_doc(region, len, "");
		assert_false(
			region_has(region, len, "second") || region_has(region, len, "of some"));
	}
	free(region);
}

/* One that was being written when the worker died says nothing of its own length. */
static void test_torn_older_copy_is_wiped_whole(void **state)
{
	size_t len = state_cell_size(DOC_MAX);
	char *region = calloc(1, len);
	uint64_t *torn = (uint64_t *)(void *)(region + len / 2);

	write_doc(region, len, "whole");
	torn[0] = 0;
	torn[1] = UINT64_MAX;
	memcpy(&torn[3], "torn", 4);
	state_cell_wipe_older(region, len);
	assert_false(region_has(region, len, "torn"));
	assert_doc(region, len, "whole");
	free(region);
}

static void test_document_at_the_limit_fits_and_one_past_does_not(void **state)
{
	static const char text[DOC_MAX + 4] =
		"0123456789012345678901234567890123456789012345678901234567890123";
	size_t len = state_cell_size(DOC_MAX);
	void *region = calloc(1, len);
	struct slice got;

	write_doc(region, len, "before");
	/* Sizes are whole words: 61 bytes are kept as 64. */
	assert_int_equal(state_cell_write(region, len, slice_make(text, 65)), E_LIMIT);
	assert_doc(region, len, "before");
	assert_int_equal(state_cell_write(region, len, slice_make(text, 64)), 0);
	assert_true(state_cell_read(region, len, &got));
	assert_true(slice_eq(got, slice_make(text, 64)));
	free(region);
}

/* Bytes of `after` in the order of the writes: a copy's header words come last but for gen = 0. */
static void torn_check(const char *before, const char *after, size_t len)
{
	size_t half = len / 2;
	size_t base = memcmp(before, after, half) != 0 ? 0 : half;
	char *torn = malloc(len);
	struct slice got;
	bool has_old;

	has_old = state_cell_read(before, len, &got);
	for (size_t cut = 0; cut < half; cut++) {
		/* Everything but the first word, up to cut; gen still old or 0. */
		for (int zero = 0; zero < 2; zero++) {
			memcpy(torn, before, len);
			if (zero)
				memset(torn + base, 0, 8);
			if (cut > 8)
				memcpy(torn + base + 8, after + base + 8, cut - 8);
			assert_int_equal(state_cell_read(torn, len, &got), has_old);
			if (has_old)
				assert_true(slice_eq(got, slice_str("document B, the newest")));
		}
		/* All of it but one byte that differs. */
		if (before[base + cut] == after[base + cut])
			continue;
		memcpy(torn, after, len);
		torn[base + cut] = before[base + cut];
		assert_int_equal(state_cell_read(torn, len, &got), has_old);
		if (has_old)
			assert_true(slice_eq(got, slice_str("document B, the newest")));
	}
	free(torn);
}

static void test_copy_torn_at_any_byte_loses_to_the_older(void **state)
{
	size_t len = state_cell_size(DOC_MAX);
	char *region = calloc(1, len);
	char *before = malloc(len);

	memcpy(before, region, len);
	write_doc(region, len, "document A");
	torn_check(before, region, len);
	write_doc(region, len, "document B, the newest");
	memcpy(before, region, len);
	write_doc(region, len, "document C replaces A and is not to be half read");
	assert_memory_not_equal(before, region, len);
	torn_check(before, region, len);
	assert_doc(region, len, "document C replaces A and is not to be half read");
	free(before);
	free(region);
}

static void test_next_write_after_a_torn_one_goes_over_the_torn_copy(void **state)
{
	size_t len = state_cell_size(DOC_MAX);
	char *region = calloc(1, len);
	char *first;

	write_doc(region, len, "A");
	write_doc(region, len, "B");
	first = region; /* the copy with A, the one that C would replace */
	memset(first, 0, 8);
	first[24] = 'x';
	assert_doc(region, len, "B");
	write_doc(region, len, "C");
	assert_doc(region, len, "C");
	memset(first, 0, 8);
	assert_doc(region, len, "B");
	free(region);
}

static void test_plain_area_is_shared_and_sealed(void **state)
{
	char *a;
	char *b;
	void *p;
	int fd = -1;

	assert_int_equal(state_create("test-plain", AREA_LEN, false, &fd), 0);
	assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
	assert_int_equal(state_map(fd, AREA_LEN, &p), 0);
	a = p;
	assert_int_equal(state_map(fd, AREA_LEN, &p), 0);
	b = p;
	assert_int_equal(b[AREA_LEN - 1], 0);
	a[AREA_LEN - 1] = 7;
	assert_int_equal(b[AREA_LEN - 1], 7);
	assert_int_equal(ftruncate(fd, AREA_LEN / 3), -1);
	assert_int_equal(errno, EPERM);
	assert_int_equal(ftruncate(fd, 2 * AREA_LEN), -1);
	assert_int_equal(errno, EPERM);
	munmap(a, AREA_LEN);
	munmap(b, AREA_LEN);
	close(fd);
}

static void test_area_of_another_size_is_refused(void **state)
{
	void *p = NULL;
	int fd = -1;

	assert_int_equal(state_create("test-size", AREA_LEN, false, &fd), 0);
	assert_int_equal(state_map(fd, AREA_LEN + 4096, &p), -EINVAL);
	assert_int_equal(state_map(fd, AREA_LEN - 1, &p), -EINVAL);
	assert_null(p);
	close(fd);
	assert_int_equal(state_map(fd, AREA_LEN, &p), -EBADF);
}

static void test_secret_area_keeps_its_size_and_its_bytes(void **state)
{
	char *a;
	void *p;
	int fd = -1;
	int ret = state_create("test-secret", AREA_LEN, true, &fd);

	assert_true(ret == 0 || ret == STATE_DEGRADED);
	assert_int_equal(state_map(fd, AREA_LEN, &p), 0);
	a = p;
	a[0] = 1;
	assert_int_equal(state_map(fd, AREA_LEN, &p), 0);
	assert_int_equal(((char *)p)[0], 1);
	assert_int_not_equal(ftruncate(fd, 2 * AREA_LEN), 0);
	munmap(a, AREA_LEN);
	munmap(p, AREA_LEN);
	close(fd);
}

/* A capability lets root lock past the limit; whether we have it is found out by trying. */
static void test_secret_area_works_when_the_lock_limit_is_zero(void **state)
{
	struct rlimit old;
	struct rlimit none;
	char *probe = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	bool refused;
	void *p;
	int fd = -1;
	int ret;

	assert_int_equal(getrlimit(RLIMIT_MEMLOCK, &old), 0);
	none = (struct rlimit){0, old.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &none), 0);
	refused = mlock(probe, 4096) != 0;
	ret = state_create("test-nolock", AREA_LEN, true, &fd);
	assert_int_equal(setrlimit(RLIMIT_MEMLOCK, &old), 0);
	assert_int_equal(ret, refused ? STATE_DEGRADED : 0);
	/* Seals tell a memfd from a memfd_secret. */
	assert_int_equal(fcntl(fd, F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	assert_int_equal(state_map(fd, AREA_LEN, &p), 0);
	munmap(p, AREA_LEN);
	munmap(probe, 4096);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_zeros_are_an_empty_cell),
		cmocka_unit_test(test_region_smaller_than_headers_holds_nothing),
		cmocka_unit_test(test_last_document_is_read_back),
		cmocka_unit_test(test_older_copy_can_be_wiped),
		cmocka_unit_test(test_torn_older_copy_is_wiped_whole),
		cmocka_unit_test(test_document_at_the_limit_fits_and_one_past_does_not),
		cmocka_unit_test(test_copy_torn_at_any_byte_loses_to_the_older),
		cmocka_unit_test(test_next_write_after_a_torn_one_goes_over_the_torn_copy),
		cmocka_unit_test(test_plain_area_is_shared_and_sealed),
		cmocka_unit_test(test_area_of_another_size_is_refused),
		cmocka_unit_test(test_secret_area_keeps_its_size_and_its_bytes),
		cmocka_unit_test(test_secret_area_works_when_the_lock_limit_is_zero),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
