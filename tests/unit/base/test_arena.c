/* Memory of one exchange: aligned pieces that never overlap, all freed at once (LeakSanitizer
 * watches), and allocators that do not return NULL. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/arena.h"

static void test_pieces_are_aligned_and_do_not_overlap(void **state)
{
	enum { N = 300 };
	struct arena a;
	unsigned char *pieces[N];

	arena_init(&a);
	for (size_t i = 0; i < N; i++) {
		pieces[i] = arena_alloc(&a, i * 7);
		assert_int_equal((uintptr_t)pieces[i] % 16, 0);
		memset(pieces[i], (int)(i & 0xff), i * 7);
	}
	for (size_t i = 0; i < N; i++) {
		for (size_t k = 0; k < i * 7; k++)
			assert_int_equal(pieces[i][k], i & 0xff);
	}
	arena_fini(&a);
}

static void test_empty_pieces_are_distinct(void **state)
{
	struct arena a;

	arena_init(&a);
	assert_ptr_not_equal(arena_alloc(&a, 0), arena_alloc(&a, 0));
	arena_fini(&a);
}

static void test_first_bytes_need_no_heap(void **state)
{
	struct arena a;

	arena_init(&a);
	(void)arena_alloc(&a, ARENA_FIRST);
	assert_null(a.blocks);
	(void)arena_alloc(&a, 1);
	assert_non_null(a.blocks);
	arena_fini(&a);
	assert_null(a.blocks);
}

static void test_large_piece_leaves_the_current_block_in_use(void **state)
{
	struct arena a;
	char *small;

	arena_init(&a);
	small = arena_alloc(&a, 16);
	memset(arena_alloc(&a, 1u << 20), 'x', 1u << 20);
	assert_ptr_equal(arena_alloc(&a, 16), small + 16);
	arena_fini(&a);
}

static void test_arena_is_as_new_after_fini(void **state)
{
	struct arena a;
	void *first;

	arena_init(&a);
	first = arena_alloc(&a, 8);
	for (int i = 0; i < 100; i++)
		(void)arena_alloc(&a, 1000);
	arena_fini(&a);
	assert_ptr_equal(arena_alloc(&a, 8), first);
	arena_fini(&a);
}

static void test_copy_has_a_nul_behind_it(void **state)
{
	struct arena a;
	struct slice copy;

	arena_init(&a);
	copy = arena_dup(&a, slice_make("abcdef", 3));
	assert_int_equal(copy.len, 3);
	assert_string_equal(copy.p, "abc");
	copy = arena_dup(&a, slice_make(NULL, 0));
	assert_int_equal(copy.len, 0);
	assert_string_equal(copy.p, "");
	/* Sixteen bytes and their NUL need a second unit. */
	copy = arena_dup(&a, SLICE("0123456789abcdef"));
	memset(arena_alloc(&a, 16), 'x', 16);
	assert_string_equal(copy.p, "0123456789abcdef");
	arena_fini(&a);
}

static void test_allocators_take_zero(void **state)
{
	char *p = xmalloc(0);

	assert_non_null(p);
	p = xrealloc(p, 0);
	assert_non_null(p);
	free(p);
	p = xcalloc(0, 8);
	assert_non_null(p);
	free(p);
	p = xcalloc(3, 1);
	assert_memory_equal(p, "\0\0\0", 3);
	free(p);
	p = xstrdup("abc");
	assert_string_equal(p, "abc");
	free(p);
}

/* Values the compiler cannot see, or it refuses to compile such sizes. */
static volatile size_t too_much = SIZE_MAX - 64;

static void ask_malloc(void)
{
	free(xmalloc(too_much));
}

static void ask_calloc(void)
{
	free(xcalloc(too_much, 2));
}

static void ask_realloc(void)
{
	free(xrealloc(NULL, too_much));
}

static void ask_arena(void)
{
	struct arena a;

	arena_init(&a);
	(void)arena_alloc(&a, too_much);
	arena_fini(&a);
}

static void test_no_memory_aborts_with_a_message(void **state)
{
	void (*const asks[])(void) = {ask_malloc, ask_calloc, ask_realloc, ask_arena};

	for (size_t i = 0; i < ARRAY_LEN(asks); i++) {
		char text[64] = "";
		int ends[2];
		int status;
		pid_t pid;

		assert_int_equal(pipe(ends), 0);
		pid = fork();
		assert_true(pid >= 0);
		if (pid == 0) {
			if (dup2(ends[1], STDERR_FILENO) < 0 || signal(SIGABRT, SIG_DFL) == SIG_ERR)
				_exit(1);
			asks[i]();
			_exit(0);
		}
		(void)close(ends[1]);
		/* A sanitizer may put a warning of its own before our line. */
		while (!strstr(text, "out of memory")) {
			size_t have = strlen(text);
			ssize_t n;

			if (have >= sizeof(text) - 1) {
				memmove(text, text + 32, have - 32 + 1);
				have -= 32;
			}
			n = read(ends[0], text + have, sizeof(text) - 1 - have);
			assert_true(n > 0);
			text[have + (size_t)n] = '\0';
		}
		(void)close(ends[0]);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	}
}

/* Sanitizers refuse such sizes themselves unless they are told to return NULL. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "allocator_may_return_null=1";
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pieces_are_aligned_and_do_not_overlap),
		cmocka_unit_test(test_empty_pieces_are_distinct),
		cmocka_unit_test(test_first_bytes_need_no_heap),
		cmocka_unit_test(test_large_piece_leaves_the_current_block_in_use),
		cmocka_unit_test(test_arena_is_as_new_after_fini),
		cmocka_unit_test(test_copy_has_a_nul_behind_it),
		cmocka_unit_test(test_allocators_take_zero),
		cmocka_unit_test(test_no_memory_aborts_with_a_message),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
