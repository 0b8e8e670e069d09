/* Search for many texts at once, after Wu and Manber (1994).
 *
 * Patterns with the same first bytes stand side by side, the longest first; the hash knows the
 * first of each such group. Sorting goes by numbers, so that no byte of a pattern is moved through
 * memory that is not the set's. */
#include "vault/pattern_set.h"

#include <stdlib.h>

#include "base/arena.h"

#define PATTERN_SHIFT_BITS 12
#define PATTERN_SHIFTS (1U << PATTERN_SHIFT_BITS)
#define PATTERN_SHIFT_MOST (PATTERN_WINDOW - 1)
#define PATTERN_NONE UINT32_MAX

struct pattern_set {
	struct secmem *mem;
	bool fold;
	size_t n;
	struct pattern *patterns;
	uint32_t *slots; /* the first pattern of a group, or PATTERN_NONE */
	size_t mask;
	uint8_t *shifts;
};

static void *pattern_alloc(struct secmem *mem, size_t len)
{
	return mem ? secmem_alloc(mem, len) : xcalloc(1, len);
}

static void pattern_release(struct secmem *mem, void *p)
{
	if (mem)
		secmem_release(mem, p);
	else
		free(p);
}

static char pattern_fold(const struct pattern_set *s, char c)
{
	return s->fold ? ascii_lower(c) : c;
}

static uint32_t pattern_pair(const struct pattern_set *s, const char *p)
{
	uint32_t a = (uint8_t)pattern_fold(s, p[0]);
	uint32_t b = (uint8_t)pattern_fold(s, p[1]);

	return (a << 5 ^ b) & (PATTERN_SHIFTS - 1);
}

static size_t pattern_hash(const struct pattern_set *s, const char *p)
{
	uint64_t h = 0;

	for (size_t i = 0; i < PATTERN_WINDOW; i++)
		h = (h ^ (uint8_t)pattern_fold(s, p[i])) * UINT64_C(0x9e3779b97f4a7c15);
	return (size_t)(h >> 32);
}

static int pattern_compare(const struct pattern_set *s, const char *a, const char *b, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		int diff = (uint8_t)pattern_fold(s, a[i]) - (uint8_t)pattern_fold(s, b[i]);

		if (diff != 0)
			return diff;
	}
	return 0;
}

struct pattern_order {
	const struct pattern_set *set;
	const struct pattern *patterns;
};

static int pattern_order_compare(const void *a, const void *b, void *arg)
{
	const struct pattern_order *o = arg;
	const struct pattern *x = &o->patterns[*(const uint32_t *)a];
	const struct pattern *y = &o->patterns[*(const uint32_t *)b];
	int diff = pattern_compare(o->set, x->text.p, y->text.p, PATTERN_WINDOW);

	if (diff != 0)
		return diff;
	if (x->text.len != y->text.len)
		return x->text.len > y->text.len ? -1 : 1;
	return x->id < y->id ? -1 : x->id > y->id;
}

static void pattern_set_sort(struct pattern_set *s, const struct pattern *patterns)
{
	struct pattern_order order = {s, patterns};
	uint32_t *numbers = xcalloc(s->n ? s->n : 1, sizeof(*numbers));

	for (size_t i = 0; i < s->n; i++)
		numbers[i] = (uint32_t)i;
	qsort_r(numbers, s->n, sizeof(*numbers), pattern_order_compare, &order);
	for (size_t i = 0; i < s->n; i++)
		s->patterns[i] = patterns[numbers[i]];
	free(numbers);
}

/* The slot of the group that begins with the bytes at p, or the empty one where it belongs. */
static uint32_t *pattern_slot(const struct pattern_set *s, const char *p)
{
	for (size_t i = pattern_hash(s, p) & s->mask;; i = (i + 1) & s->mask) {
		uint32_t first = s->slots[i];

		if (first == PATTERN_NONE ||
			pattern_compare(s, s->patterns[first].text.p, p, PATTERN_WINDOW) == 0)
			return &s->slots[i];
	}
}

static void pattern_set_compile(struct pattern_set *s)
{
	memset(s->shifts, PATTERN_SHIFT_MOST, PATTERN_SHIFTS);
	memset(s->slots, 0xff, (s->mask + 1) * sizeof(*s->slots));
	for (size_t i = 0; i < s->n; i++) {
		const char *p = s->patterns[i].text.p;
		uint32_t *slot = pattern_slot(s, p);

		if (*slot == PATTERN_NONE)
			*slot = (uint32_t)i;
		for (size_t k = 0; k + 1 < PATTERN_WINDOW; k++) {
			uint8_t *shift = &s->shifts[pattern_pair(s, p + k)];
			uint8_t left = (uint8_t)(PATTERN_WINDOW - 2 - k);

			if (left < *shift)
				*shift = left;
		}
	}
}

struct pattern_set *pattern_set_new(
	struct secmem *mem, bool fold, const struct pattern *patterns, size_t n)
{
	struct pattern_set *s = xcalloc(1, sizeof(*s));
	size_t n_slots = 4;

	/* At most half full: probes stay short. */
	while (n_slots < 2 * n)
		n_slots *= 2;
	*s = (struct pattern_set){.mem = mem, .fold = fold, .n = n, .mask = n_slots - 1};
	s->patterns = pattern_alloc(mem, (n ? n : 1) * sizeof(*s->patterns));
	s->slots = pattern_alloc(mem, n_slots * sizeof(*s->slots));
	s->shifts = pattern_alloc(mem, PATTERN_SHIFTS);
	if (!s->patterns || !s->slots || !s->shifts) {
		pattern_set_free(s);
		return NULL;
	}
	for (size_t i = 0; i < n; i++)
		REQUIRE(patterns[i].text.len >= PATTERN_WINDOW);
	pattern_set_sort(s, patterns);
	pattern_set_compile(s);
	return s;
}

void pattern_set_free(struct pattern_set *s)
{
	if (!s)
		return;
	pattern_release(s->mem, s->patterns);
	pattern_release(s->mem, s->slots);
	pattern_release(s->mem, s->shifts);
	free(s);
}

/* From pattern i of a group on, the first one that stands at text.p[at]. */
static bool pattern_set_stands(
	const struct pattern_set *s, struct slice text, size_t at, size_t i, size_t *which)
{
	for (; i < s->n; i++) {
		struct slice p = s->patterns[i].text;

		if (pattern_compare(s, p.p, text.p + at, PATTERN_WINDOW) != 0)
			return false;
		if (p.len <= text.len - at && pattern_compare(s, p.p, text.p + at, p.len) == 0) {
			*which = i;
			return true;
		}
	}
	return false;
}

bool pattern_set_find(
	const struct pattern_set *s, struct slice text, size_t from, size_t *at, size_t *which)
{
	size_t i = from;

	if (s->n == 0)
		return false;
	while (i <= text.len && text.len - i >= PATTERN_WINDOW) {
		uint8_t shift = s->shifts[pattern_pair(s, text.p + i + PATTERN_WINDOW - 2)];

		if (shift == 0) {
			uint32_t first = *pattern_slot(s, text.p + i);

			if (first != PATTERN_NONE && pattern_set_stands(s, text, i, first, which)) {
				*at = i;
				return true;
			}
			shift = 1;
		}
		i += shift;
	}
	return false;
}

bool pattern_set_next(const struct pattern_set *s, struct slice text, size_t at, size_t *which)
{
	return pattern_set_stands(s, text, at, *which + 1, which);
}

const struct pattern *pattern_set_get(const struct pattern_set *s, size_t which)
{
	REQUIRE(which < s->n);
	return &s->patterns[which];
}
