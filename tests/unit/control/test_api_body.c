/* Content of requests (control/api_body.c): limits, the room that locked content has together, and
 * that nothing of it stays. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/arena.h"
#include "control/api_int.h"

#define MEM (4u << 20)

struct bed {
	struct api api;
	struct secmem *mem;
};

static void bed_up(struct bed *b, size_t mem)
{
	*b = (struct bed){.api = {.n_conns = 0}};
	assert_true(secmem_new(mem, &b->mem) >= 0);
	b->api.keys.mem = b->mem;
}

static void bed_down(struct bed *b)
{
	assert_int_equal(b->api.locked_bytes, 0);
	assert_int_equal(secmem_used(b->mem), 0);
	secmem_close(b->mem);
}

/* len bytes in pieces of part. */
static int fill(struct api_body *b, size_t len, size_t part)
{
	char *piece = xmalloc(part);
	int ret = 0;

	memset(piece, 'k', part);
	while (len > 0 && ret == 0) {
		size_t n = len < part ? len : part;

		ret = api_body_add(b, slice_make(piece, n));
		len -= n;
	}
	free(piece);
	return ret;
}

static void test_content_up_to_the_limit_is_taken_and_a_byte_more_is_not(void **state)
{
	static const struct {
		bool locked;
		size_t length, part;
	} rows[] = {{false, 0, 1000}, {true, 0, 1000}, {true, 0, API_BODY_MAX},
		{true, API_BODY_MAX, 16384}, {false, API_BODY_MAX, 16384}};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct api_body body;
		struct bed b;

		bed_up(&b, MEM);
		assert_int_equal(
			api_body_init(&body, &b.api, rows[i].locked ? API_KEYS : 0, rows[i].length),
			0);
		assert_int_equal(fill(&body, API_BODY_MAX, rows[i].part), 0);
		assert_int_equal(api_body_slice(&body).len, API_BODY_MAX);
		assert_int_equal(api_body_slice(&body).p[API_BODY_MAX - 1], 'k');
		assert_int_equal(secmem_holds(b.mem, api_body_slice(&body).p), rows[i].locked);
		assert_int_equal(api_body_add(&body, SLICE("x")), E_LIMIT);
		assert_int_equal(api_body_slice(&body).len, API_BODY_MAX);
		api_body_fini(&body);
		bed_down(&b);
	}
}

static void test_locked_content_has_one_room_for_all(void **state)
{
	struct api_body first, second, third;
	struct bed b;

	bed_up(&b, MEM);
	assert_int_equal(api_body_init(&first, &b.api, API_KEYS, API_LOCKED_MAX - 4096), 0);
	/* a length that does not fit is refused before anything comes */
	assert_int_equal(api_body_init(&second, &b.api, API_KEYS, 4097), E_FULL);
	api_body_fini(&second);
	assert_int_equal(api_body_init(&second, &b.api, API_KEYS, 0), 0);
	assert_int_equal(fill(&second, 4096, 100), 0);
	assert_int_equal(api_body_init(&third, &b.api, API_KEYS, 1), E_FULL);
	api_body_fini(&third);
	assert_int_equal(api_body_add(&second, SLICE("x")), E_FULL);
	assert_int_equal(api_body_slice(&second).len, 4096);
	/* ordinary content does not count */
	assert_int_equal(api_body_init(&third, &b.api, 0, 0), 0);
	assert_int_equal(fill(&third, API_BODY_MAX, 9999), 0);
	api_body_fini(&third);
	api_body_fini(&first);
	assert_int_equal(api_body_add(&second, SLICE("x")), 0);
	api_body_fini(&second);
	bed_down(&b);
}

static void test_full_memory_is_full_and_not_ordinary(void **state)
{
	struct api_body body;
	struct bed b;

	bed_up(&b, 65536);
	assert_int_equal(api_body_init(&body, &b.api, API_KEYS, API_BODY_MAX), E_FULL);
	api_body_fini(&body);
	assert_int_equal(api_body_init(&body, &b.api, API_KEYS, 0), 0);
	assert_int_equal(fill(&body, API_BODY_MAX, 1000), E_FULL);
	assert_true(secmem_holds(b.mem, api_body_slice(&body).p));
	api_body_fini(&body);
	bed_down(&b);
}

/* What was moved out of and what was given back has no byte of it left. */
static void test_no_byte_stays(void **state)
{
	struct api_body body;
	struct bed b;
	const char *first;
	const char *last;

	bed_up(&b, MEM);
	assert_int_equal(api_body_init(&body, &b.api, API_KEYS, 0), 0);
	assert_int_equal(fill(&body, 4096, 4096), 0);
	first = api_body_slice(&body).p;
	assert_int_equal(fill(&body, 4097, 4097), 0);
	last = api_body_slice(&body).p;
	assert_ptr_not_equal(first, last);
	for (size_t i = 0; i < 4096; i++)
		assert_int_not_equal(first[i], 'k');
	api_body_fini(&body);
	for (size_t i = 0; i < 8193; i++)
		assert_int_not_equal(last[i], 'k');
	bed_down(&b);
}

/* Whoever reaches the port may send it, the sandbox too. */
static void test_content_of_an_open_route_is_counted_and_not_kept(void **state)
{
	struct api_body body;
	struct bed b;

	bed_up(&b, MEM);
	assert_int_equal(api_body_init(&body, &b.api, API_OPEN, 0), 0);
	assert_int_equal(fill(&body, API_BODY_MAX, 16384), 0);
	assert_int_equal(api_body_slice(&body).len, 0);
	assert_int_equal(body.text.cap, 0);
	assert_int_equal(api_body_add(&body, SLICE("x")), E_LIMIT);
	api_body_fini(&body);
	bed_down(&b);
}

static void test_without_memory_for_keys_content_is_ordinary(void **state)
{
	struct api api = {.n_conns = 0};
	struct api_body body;

	assert_int_equal(api_body_init(&body, &api, API_KEYS, 100), 0);
	assert_int_equal(fill(&body, 100, 7), 0);
	assert_int_equal(api_body_slice(&body).len, 100);
	api_body_fini(&body);
	assert_int_equal(api.locked_bytes, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_content_up_to_the_limit_is_taken_and_a_byte_more_is_not),
		cmocka_unit_test(test_locked_content_has_one_room_for_all),
		cmocka_unit_test(test_full_memory_is_full_and_not_ordinary),
		cmocka_unit_test(test_no_byte_stays),
		cmocka_unit_test(test_content_of_an_open_route_is_counted_and_not_kept),
		cmocka_unit_test(test_without_memory_for_keys_content_is_ordinary),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
