/* The map against a plain list as its model, its ceiling, and who drops a value when. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/map.h"

#define DROPPED_MAX 64

/* Values are small integers dressed as pointers; drop() notes them in order. */
static int dropped[DROPPED_MAX];
static size_t n_dropped;
static char values[DROPPED_MAX];

static void *value_of(int n)
{
	return &values[n];
}

static int number_of(const void *value)
{
	return value ? (int)((const char *)value - values) : -1;
}

static void note_drop(void *value)
{
	assert_true(n_dropped < DROPPED_MAX);
	dropped[n_dropped++] = number_of(value);
}

static int setup(void **state)
{
	n_dropped = 0;
	return 0;
}

static void test_values_are_found_under_their_keys(void **state)
{
	struct map *m = map_new(0, note_drop);

	assert_null(map_find(m, SLICE("a")));
	map_put(m, SLICE("a"), value_of(1));
	map_put(m, SLICE("b"), value_of(2));
	map_put(m, SLICE(""), value_of(3));
	map_put(m, slice_make("a\0b", 3), value_of(4));
	assert_int_equal(number_of(map_find(m, SLICE("a"))), 1);
	assert_int_equal(number_of(map_find(m, SLICE("b"))), 2);
	assert_int_equal(number_of(map_find(m, slice_make(NULL, 0))), 3);
	assert_int_equal(number_of(map_find(m, slice_make("a\0b", 3))), 4);
	assert_null(map_find(m, SLICE("A")));
	assert_int_equal(map_count(m), 4);
	assert_int_equal(n_dropped, 0);
	map_free(m);
	assert_int_equal(n_dropped, 4);
	map_free(NULL);
}

static void test_keys_are_copied(void **state)
{
	char key[] = "key";
	struct map *m = map_new(0, NULL);

	map_put(m, slice_str(key), value_of(1));
	key[0] = 'x';
	assert_int_equal(number_of(map_find(m, SLICE("key"))), 1);
	map_free(m);
}

static void test_replaced_and_removed_values_are_dropped(void **state)
{
	struct map *m = map_new(0, note_drop);

	map_put(m, SLICE("a"), value_of(1));
	map_put(m, SLICE("a"), value_of(2));
	assert_int_equal(map_count(m), 1);
	assert_int_equal(n_dropped, 1);
	assert_int_equal(dropped[0], 1);
	/* The same value again is another reference to it. */
	map_put(m, SLICE("a"), value_of(2));
	assert_int_equal(n_dropped, 2);
	assert_int_equal(dropped[1], 2);
	assert_false(map_remove(m, SLICE("b")));
	assert_true(map_remove(m, SLICE("a")));
	assert_false(map_remove(m, SLICE("a")));
	assert_int_equal(n_dropped, 3);
	assert_int_equal(dropped[2], 2);
	assert_int_equal(map_count(m), 0);
	map_free(m);
	assert_int_equal(n_dropped, 3);
}

static void test_taken_value_is_not_dropped(void **state)
{
	struct map *m = map_new(0, note_drop);

	map_put(m, SLICE("a"), value_of(1));
	assert_int_equal(number_of(map_take(m, SLICE("a"))), 1);
	assert_null(map_take(m, SLICE("a")));
	map_free(m);
	assert_int_equal(n_dropped, 0);
}

static void test_least_recently_used_leaves_at_the_ceiling(void **state)
{
	struct map *m = map_new(3, note_drop);

	map_put(m, SLICE("a"), value_of(1));
	map_put(m, SLICE("b"), value_of(2));
	map_put(m, SLICE("c"), value_of(3));
	assert_int_equal(n_dropped, 0);
	/* Finding and replacing are uses. */
	assert_non_null(map_find(m, SLICE("a")));
	map_put(m, SLICE("b"), value_of(4));
	assert_int_equal(dropped[0], 2);
	map_put(m, SLICE("d"), value_of(5));
	assert_int_equal(map_count(m), 3);
	assert_int_equal(n_dropped, 2);
	assert_int_equal(dropped[1], 3);
	assert_null(map_find(m, SLICE("c")));
	map_put(m, SLICE("e"), value_of(6));
	assert_int_equal(dropped[2], 1);
	map_free(m);
	assert_int_equal(n_dropped, 6);
}

static void test_ceiling_of_one_keeps_the_newest(void **state)
{
	struct map *m = map_new(1, note_drop);

	map_put(m, SLICE("a"), value_of(1));
	map_put(m, SLICE("b"), value_of(2));
	assert_int_equal(map_count(m), 1);
	assert_int_equal(dropped[0], 1);
	assert_int_equal(number_of(map_find(m, SLICE("b"))), 2);
	map_free(m);
}

struct order {
	char text[64];
};

static void note_key(struct slice key, void *value, void *arg)
{
	struct order *o = arg;
	size_t len = strlen(o->text);

	(void)snprintf(
		o->text + len, sizeof(o->text) - len, "%.*s%d ", SLICE_FMT(key), number_of(value));
}

static void test_each_goes_from_most_to_least_recent(void **state)
{
	struct map *m = map_new(0, NULL);
	struct order o = {""};

	map_each(m, note_key, &o);
	assert_string_equal(o.text, "");
	map_put(m, SLICE("a"), value_of(1));
	map_put(m, SLICE("b"), value_of(2));
	map_put(m, SLICE("c"), value_of(3));
	assert_non_null(map_find(m, SLICE("b")));
	assert_non_null(map_find(m, SLICE("a")));
	map_each(m, note_key, &o);
	assert_string_equal(o.text, "a1 b2 c3 ");
	map_free(m);
}

static void *move_nothing(void *value, void *arg)
{
	return value;
}

static void test_map_behaves_as_a_plain_table(void **state)
{
	enum { KEYS = 500, STEPS = 50000 };
	struct map *m = map_new(0, NULL);
	void *model[KEYS] = {NULL};
	size_t count = 0;
	uint32_t random = 1;

	for (int i = 0; i < STEPS; i++) {
		char text[16];
		struct slice key;
		size_t k;

		random = random * 1664525 + 1013904223;
		k = (random >> 8) % KEYS;
		(void)snprintf(text, sizeof(text), "key-%zu", k * k * k);
		key = slice_str(text);
		switch (random >> 30) {
		case 0:
			assert_int_equal(map_remove(m, key), model[k] != NULL);
			count -= model[k] != NULL;
			model[k] = NULL;
			break;
		case 1:
			assert_ptr_equal(map_find(m, key), model[k]);
			break;
		default:
			count += model[k] == NULL;
			model[k] = value_of((int)(random % DROPPED_MAX));
			map_put(m, key, model[k]);
			break;
		}
		assert_int_equal(map_count(m), count);
		if (i % 1000 == 0)
			map_fit(m, i % 2000 == 0 ? move_nothing : NULL, NULL);
	}
	assert_true(count > KEYS / 4);
	map_free(m);
}

static void test_fitting_keeps_what_is_there(void **state)
{
	struct map *m = map_new(0, NULL);
	char key[16];
	int value = 0;
	size_t i;

	for (i = 0; i < 5000; i++) {
		(void)snprintf(key, sizeof(key), "k%zu", i);
		map_put(m, slice_str(key), &value);
	}
	for (i = 100; i < 5000; i++) {
		(void)snprintf(key, sizeof(key), "k%zu", i);
		assert_true(map_remove(m, slice_str(key)));
	}
	map_fit(m, NULL, NULL);
	for (i = 0; i < 200; i++) {
		(void)snprintf(key, sizeof(key), "k%zu", i);
		assert_int_equal(map_find(m, slice_str(key)) != NULL, i < 100);
		map_put(m, slice_str(key), &value);
		map_fit(m, NULL, NULL);
	}
	assert_int_equal(map_count(m), 200);
	for (i = 0; i < 200; i++) {
		(void)snprintf(key, sizeof(key), "k%zu", i);
		assert_true(map_remove(m, slice_str(key)));
	}
	map_fit(m, NULL, NULL);
	assert_int_equal(map_count(m), 0);
	map_free(m);
}

static void *move_next(void *value, void *arg)
{
	int *n = arg;

	++*n;
	return value_of(number_of(value) + 1);
}

static void test_fitting_moves_values_and_keeps_their_order(void **state)
{
	struct map *m = map_new(3, note_drop);
	struct order o = {""};
	int n = 0;

	map_fit(m, move_next, &n);
	assert_int_equal(n, 0);
	map_put(m, SLICE("a"), value_of(2));
	map_put(m, SLICE("b"), value_of(5));
	map_put(m, SLICE("c"), value_of(6));
	assert_non_null(map_find(m, SLICE("a")));
	map_fit(m, move_next, &n);
	assert_int_equal(n, 3);
	map_each(m, note_key, &o);
	assert_string_equal(o.text, "a3 c7 b6 ");
	/* The old values are the mover's. */
	assert_int_equal(n_dropped, 0);
	/* The one used last before is still the last to go. */
	map_put(m, SLICE("d"), value_of(9));
	map_put(m, SLICE("e"), value_of(10));
	assert_null(map_find(m, SLICE("b")));
	assert_null(map_find(m, SLICE("c")));
	assert_int_equal(number_of(map_find(m, SLICE("a"))), 3);
	assert_int_equal(number_of(map_take(m, SLICE("d"))), 9);
	map_free(m);
	assert_int_equal(n_dropped, 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_values_are_found_under_their_keys, setup),
		cmocka_unit_test_setup(test_keys_are_copied, setup),
		cmocka_unit_test_setup(test_replaced_and_removed_values_are_dropped, setup),
		cmocka_unit_test_setup(test_taken_value_is_not_dropped, setup),
		cmocka_unit_test_setup(test_least_recently_used_leaves_at_the_ceiling, setup),
		cmocka_unit_test_setup(test_ceiling_of_one_keeps_the_newest, setup),
		cmocka_unit_test_setup(test_each_goes_from_most_to_least_recent, setup),
		cmocka_unit_test(test_fitting_keeps_what_is_there),
		cmocka_unit_test_setup(test_fitting_moves_values_and_keeps_their_order, setup),
		cmocka_unit_test_setup(test_map_behaves_as_a_plain_table, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
