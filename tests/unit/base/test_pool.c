/* Pieces of a pool: apart from each other, aligned, used again, and when a pool is mostly holes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/pool.h"

#define N 4000

static size_t len_of(size_t i)
{
	return i * 7 % (POOL_PIECE_MAX + 40);
}

static void test_pieces_are_aligned_and_apart(void **state)
{
	struct pool *p = pool_new();
	unsigned char *v[N];
	size_t i, k;

	for (i = 0; i < N; i++) {
		v[i] = pool_get(p, len_of(i));
		assert_int_equal((uintptr_t)v[i] % 16, 0);
		memset(v[i], (int)(i % 251), len_of(i));
	}
	/* Every third goes and comes again, with another length. */
	for (i = 0; i < N; i += 3)
		pool_put(p, v[i], len_of(i));
	for (i = 0; i < N; i += 3) {
		v[i] = pool_get(p, len_of(N - i));
		memset(v[i], (int)(i % 251), len_of(N - i));
	}
	for (i = 0; i < N; i++) {
		const size_t len = len_of(i % 3 == 0 ? N - i : i);

		for (k = 0; k < len; k++)
			assert_int_equal(v[i][k], i % 251);
		pool_put(p, v[i], len);
	}
	pool_put(p, NULL, 16);
	pool_free(p);
	pool_free(NULL);
}

static void test_a_piece_serves_the_next_of_its_size_alone(void **state)
{
	static const struct {
		size_t put, get;
		bool same;
	} rows[] = {{1, 16, true}, {0, 16, true}, {16, 17, false}, {17, 16, false}, {17, 32, true},
		{POOL_PIECE_MAX - 15, POOL_PIECE_MAX, true},
		{POOL_PIECE_MAX - 16, POOL_PIECE_MAX, false}};
	size_t i;

	for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct pool *p = pool_new();
		void *first = pool_get(p, rows[i].put);
		void *next;

		pool_put(p, first, rows[i].put);
		next = pool_get(p, rows[i].get);
		assert_int_equal(next == first, rows[i].same);
		pool_put(p, next, rows[i].get);
		pool_free(p);
	}
}

static void test_sparse_is_a_large_pool_of_which_less_than_half_is_in_use(void **state)
{
	struct pool *p = pool_new();
	void *v[1025];
	size_t i;

	/* 64 KiB less one piece: all of it may go. */
	for (i = 0; i < 1023; i++)
		v[i] = pool_get(p, 64);
	for (i = 0; i < 1023; i++)
		pool_put(p, v[i], 64);
	assert_false(pool_is_sparse(p));
	for (i = 0; i < 1024; i++)
		v[i] = pool_get(p, 64);
	assert_false(pool_is_sparse(p));
	for (i = 0; i < 512; i++)
		pool_put(p, v[i], 64);
	assert_false(pool_is_sparse(p));
	pool_put(p, v[512], 64);
	assert_true(pool_is_sparse(p));
	v[512] = pool_get(p, 64);
	assert_false(pool_is_sparse(p));
	pool_free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pieces_are_aligned_and_apart),
		cmocka_unit_test(test_a_piece_serves_the_next_of_its_size_alone),
		cmocka_unit_test(test_sparse_is_a_large_pool_of_which_less_than_half_is_in_use),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
