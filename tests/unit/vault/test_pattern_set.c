/* The search for many texts, against a naive one. */
#include "tests/unit/vault/fixture.h"
#include "vault/pattern_set.h"

#define TEXT_MAX 200
#define PATTERNS_MAX 12

static uint32_t random_below(uint64_t *state, uint32_t below)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return (uint32_t)(*state >> 33) % below;
}

static bool stands(struct slice text, size_t at, struct slice p, bool fold)
{
	struct slice there = slice_first(slice_from(text, at), p.len);

	return fold ? slice_ieq(there, p) : slice_eq(there, p);
}

struct patterns {
	const struct pattern *p;
	size_t n;
	bool fold;
};

/* The longest pattern at the first place from `from` on where one stands; of equal ones the least
 * number. */
static bool naive_find(
	const struct patterns *s, struct slice text, size_t from, size_t *at, size_t *which)
{
	for (*at = from; *at < text.len; ++*at) {
		*which = s->n;
		for (size_t i = 0; i < s->n; i++)
			if (stands(text, *at, s->p[i].text, s->fold) &&
				(*which == s->n || s->p[i].text.len > s->p[*which].text.len))
				*which = i;
		if (*which < s->n)
			return true;
	}
	return false;
}

static void check_text(const struct pattern_set *s, const struct patterns *all, struct slice text)
{
	size_t from = 0;
	size_t at = 0;
	size_t which = 0;
	size_t want_at;
	size_t want;

	while (naive_find(all, text, from, &want_at, &want)) {
		size_t here = 0;
		size_t length = SIZE_MAX;

		assert_true(pattern_set_find(s, text, from, &at, &which));
		assert_int_equal(at, want_at);
		assert_int_equal(pattern_set_get(s, which)->id, want);
		for (size_t i = 0; i < all->n; i++)
			here += stands(text, at, all->p[i].text, all->fold);
		do {
			struct slice t = pattern_set_get(s, which)->text;

			assert_true(stands(text, at, t, all->fold) && t.len <= length);
			length = t.len;
			here--;
		} while (pattern_set_next(s, text, at, &which));
		assert_int_equal(here, 0);
		from = at + 1;
	}
	assert_false(pattern_set_find(s, text, from, &at, &which));
}

/* Over two letters, so that patterns share beginnings and overlap; fold: in both cases. */
static void fill(char *to, size_t n, bool fold, uint64_t *seed)
{
	for (size_t i = 0; i < n; i++)
		to[i] = (fold ? "abAB" : "abcb")[random_below(seed, fold ? 4 : 2)];
}

static void run_random(struct secmem *mem, bool fold)
{
	uint64_t seed = 88172645463325252;

	for (size_t round = 0; round < 2000; round++) {
		char texts[PATTERNS_MAX][24];
		struct pattern p[PATTERNS_MAX];
		size_t n = random_below(&seed, PATTERNS_MAX + 1);
		struct pattern_set *s;
		char text[TEXT_MAX];
		size_t len = random_below(&seed, TEXT_MAX);

		for (size_t i = 0; i < n; i++) {
			size_t k = PATTERN_WINDOW + random_below(&seed, 4);

			fill(texts[i], k, fold, &seed);
			p[i] = (struct pattern){slice_make(texts[i], k), (uint32_t)i};
		}
		s = pattern_set_new(mem, fold, p, n);
		assert_non_null(s);
		fill(text, len, fold, &seed);
		check_text(s, &(struct patterns){p, n, fold}, slice_make(text, len));
		pattern_set_free(s);
	}
}

static void test_search_agrees_with_a_naive_one(void **arg)
{
	run_random(NULL, false);
}

static void test_folding_search_agrees_with_a_naive_one(void **arg)
{
	struct secmem *mem;

	assert_true(secmem_new(65536, &mem) >= 0);
	run_random(mem, true);
	assert_int_equal(secmem_used(mem), 0);
	secmem_close(mem);
}

static void test_every_byte_value_is_searched_for(void **arg)
{
	for (int c = 0; c < 256; c++) {
		char pattern[PATTERN_WINDOW];
		char text[64];
		struct pattern p = {slice_make(pattern, sizeof(pattern)), 7};
		struct pattern_set *s;

		memset(pattern, c, sizeof(pattern));
		pattern[3] = (char)~c;
		s = pattern_set_new(NULL, false, &p, 1);
		for (size_t at = 0; at + sizeof(pattern) <= sizeof(text); at++) {
			size_t found = 0;
			size_t which = 0;

			memset(text, c, sizeof(text));
			memcpy(text + at, pattern, sizeof(pattern));
			assert_true(pattern_set_find(
				s, slice_make(text, sizeof(text)), 0, &found, &which));
			assert_int_equal(found, at);
			assert_false(pattern_set_find(
				s, slice_make(text, sizeof(text)), at + 1, &found, &which));
			/* One byte short at either end. */
			assert_false(
				pattern_set_find(s, slice_make(text, at + 7), 0, &found, &which));
		}
		pattern_set_free(s);
	}
}

static void test_no_memory_gives_none(void **arg)
{
	struct pattern p = {SLICE("12345678"), 0};
	struct secmem *mem;
	void *all;

	assert_true(secmem_new(4096, &mem) >= 0);
	all = secmem_alloc(mem, 2048);
	assert_non_null(all);
	assert_null(pattern_set_new(mem, true, &p, 1));
	secmem_release(mem, all);
	assert_int_equal(secmem_used(mem), 0);
	secmem_close(mem);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_search_agrees_with_a_naive_one),
		cmocka_unit_test(test_folding_search_agrees_with_a_naive_one),
		cmocka_unit_test(test_every_byte_value_is_searched_for),
		cmocka_unit_test(test_no_memory_gives_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
