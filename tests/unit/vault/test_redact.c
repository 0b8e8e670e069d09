/* Whole texts: every form at every place is overwritten, and nothing else. */
#include "tests/unit/vault/redact_bed.h"

#define TEXT_MAX 2048

static const char *const keys[] = {
	"sk-real-0001-AAAABBBBCCCC",
	"pa55",
	"p@ss w\"r<d>&'",
	"fifteen-bytes-x",
	"sixteen-bytes-xy",
	"Schl\xc3\xbcssel/+=",
	"-----BEGIN KEY-----\nMIIEvAIBADAN\n\nBgkqhkiG9w0\n-----END KEY-----\n",
};

/* 0 as it is, 1 upper case, 2 lower case, 3 the other case. */
static char recase(char c, int how)
{
	char lower = ascii_lower(c);
	char upper = lower >= 'a' && lower <= 'z' ? (char)(lower - 32) : c;

	if (how == 1)
		return upper;
	if (how == 2)
		return lower;
	return how == 3 ? (c == lower ? upper : lower) : c;
}

static void check_text(const struct bed *b, const char *text, size_t len)
{
	/* Exactly as long as the text, so that a sanitizer sees a read past its end. */
	char *got = xmalloc(len);
	char want[TEXT_MAX];
	bool found = bed_naive(b, text, len, want);

	memcpy(got, text, len);
	assert_int_equal(redact_text(b->table, got, len), found);
	assert_memory_equal(got, want, len);
	free(got);
}

static void test_every_form_at_every_offset_in_any_case(void **state)
{
	char text[TEXT_MAX];
	struct bed b;

	for (size_t k = 0; k < ARRAY_LEN(keys); k++) {
		bed_open_key(&b, keys[k]);
		for (size_t i = 0; i < b.n; i++) {
			for (size_t at = 0; at < 35; at++) {
				size_t len = at + b.len[i] + at % 3;
				char got[TEXT_MAX];

				memset(text, at % 2 ? 'x' : ' ', len);
				for (size_t j = 0; j < b.len[i]; j++)
					text[at + j] = recase(b.form[i][j], (int)at % 4);
				check_text(&b, text, len);
				/* Seen also without the slow search: nothing of it is left. */
				memcpy(got, text, len);
				assert_true(redact_text(b.table, got, len));
				for (size_t j = 0; j < b.len[i]; j++)
					assert_int_equal(got[at + j], '*');
				assert_true(at == 0 || got[0] == text[0]);
			}
		}
		bed_close(&b);
	}
}

/* Where nothing is near the search takes several steps at once. */
static void test_long_texts_with_one_form_and_with_none(void **state)
{
	char text[TEXT_MAX];
	struct bed b;

	bed_open_key(&b, "sixteen-bytes-xy");
	memset(text, 'q', sizeof(text));
	for (size_t len = 1; len < 300; len++)
		check_text(&b, text, len);
	for (size_t at = 0; at < 240; at++) {
		memset(text, 'q', sizeof(text));
		memcpy(text + at, "sixteen-bytes-xy", 16);
		for (size_t behind = 0; behind < 60; behind += 1 + behind / 4)
			check_text(&b, text, at + 16 + behind);
	}
	bed_close(&b);
}

static void test_near_misses_stay(void **state)
{
	char text[TEXT_MAX], got[TEXT_MAX];
	struct bed b;

	for (size_t k = 0; k < ARRAY_LEN(keys); k++) {
		const char *one[] = {keys[k], NULL};
		size_t len = strlen(keys[k]);

		bed_open_forms(&b, one);
		/* Each byte changed, the first cut off, the last cut off. */
		for (size_t i = 0; i < len; i++) {
			memcpy(text, keys[k], len);
			text[i] ^= 0x40;
			if (ascii_lower(text[i]) == ascii_lower(keys[k][i]))
				continue;
			memcpy(got, text, len);
			assert_false(redact_text(b.table, got, len));
			assert_memory_equal(got, text, len);
		}
		memcpy(got, keys[k] + 1, len - 1);
		assert_false(redact_text(b.table, got, len - 1));
		memcpy(got, keys[k], len - 1);
		assert_false(redact_text(b.table, got, len - 1));
		bed_close(&b);
	}
}

/* The quick hash takes these for the same letters. */
static void test_only_letters_have_two_cases(void **state)
{
	static const char *const forms[] = {"key@[\\]^_key-long-form", "@[^_", NULL};
	static const char same[] = "KEY@[\\]^_kEy-LONG-form";
	static const char other[] =
		"key`{|}~\x7fkey-long-form `{~\x7f \x0bkey@[\\]^_key\rlong-form";
	char got[sizeof(other)];
	struct bed b;

	bed_open_forms(&b, forms);
	memcpy(got, same, sizeof(same));
	assert_true(redact_text(b.table, got, sizeof(same) - 1));
	assert_string_equal(got, "**********************");
	check_text(&b, other, sizeof(other) - 1);
	bed_close(&b);
}

static const struct {
	const char *forms[5];
	const char *text;
	const char *want;
} overlaps[] = {
	/* One begins inside the other, long and long, short and long, short and short. */
	{{"ABCDEFGHIJKLMNOPQRST", "PQRSTUVWXYZ012345678"}, ".ABCDEFGHIJKLMNOPQRSTUVWXYZ012345678.",
		".***********************************."},
	{{"ABCDEFGHIJKLMNOPQRST", "QRSTUVW"}, ".ABCDEFGHIJKLMNOPQRSTUVW.",
		".***********************."},
	{{"ABCDEFG", "EFGHIJKLMNOPQRSTUVWXYZ"}, ".ABCDEFGHIJKLMNOPQRSTUVWXYZ.",
		".**************************."},
	{{"ABCDE", "DEFGH", "GHIJK"}, ".ABCDEFGHIJK.ABCDEFGH", ".***********.********"},
	/* Inside, at the start, at the end. */
	{{"ABCDEFGHIJKLMNOPQRST", "FGHI"}, "ABCDEFGHIJKLMNOPQRST FGHI",
		"******************** ****"},
	{{"ABCDEFGHIJKLMNOPQRST", "ABCD"}, "ABCDEFGHIJKLMNOPQRS ABC ABCD",
		"****EFGHIJKLMNOPQRS ABC ****"},
	{{"ABCDEFGHIJKLMNOPQRST", "QRST"}, "xABCDEFGHIJKLMNOPQRSTx", "x********************x"},
	/* One is how the other begins: the longer one is covered whole. */
	{{"ABCDEFGHIJKLMNOP", "ABCDEFGHIJKLMNOPQRSTUV"}, "ABCDEFGHIJKLMNOPQRSTUV.",
		"**********************."},
	{{"ABCDEFGHIJKLMNOPQRSTUV", "ABCDEFGHIJKLMNOP"}, "ABCDEFGHIJKLMNOPQRSTUW.",
		"****************QRSTUW."},
	{{"ABCD", "ABCDEF", "ABCDEFGH"}, "ABCDEFGH.ABCDEFG.ABCDE", "********.******G.****E"},
	/* One behind the other. */
	{{"ABCDEFGHIJKLMNOP", "qrst"}, "ABCDEFGHIJKLMNOPqrstABCDEFGHIJKLMNOP",
		"************************************"},
	/* With itself. */
	{{"abababababababababab"}, "xababababababababababababay", "x************************ay"},
	{{"aaaa"}, "aaa.aaaa.aaaaa.aaa", "aaa.****.*****.aaa"},
	{{"AAAAAAAAAAAAAAAAAAAA"}, "aaaaaaaaaaaaaaaaaaa.aaaaaaaaaaaaaaaaaaaaaaaaa",
		"aaaaaaaaaaaaaaaaaaa.*************************"},
};

static void test_overlapping_and_adjacent_matches_are_covered_whole(void **state)
{
	char got[TEXT_MAX];
	struct bed b;

	for (size_t i = 0; i < ARRAY_LEN(overlaps); i++) {
		size_t len = strlen(overlaps[i].text);

		bed_open_forms(&b, overlaps[i].forms);
		check_text(&b, overlaps[i].text, len);
		memcpy(got, overlaps[i].text, len + 1);
		assert_true(redact_text(b.table, got, len));
		assert_string_equal(got, overlaps[i].want);
		bed_close(&b);
	}
}

static void test_least_length_of_a_form(void **state)
{
	static const char *const forms[] = {"abc", "wxyz", NULL};
	char got[] = "abc wxyz wxy";
	struct bed b;

	bed_open_forms(&b, forms);
	assert_int_equal(redact_table_longest(b.table), 4);
	assert_true(redact_text(b.table, got, sizeof(got) - 1));
	assert_string_equal(got, "abc **** wxy");
	bed_close(&b);
}

static void test_short_texts_and_no_forms(void **state)
{
	static const char *const none[] = {NULL};
	static const char *const both[] = {"0123456789abcdef", "0123", NULL};
	char got[] = "0123456789abcdef";
	struct bed b;

	bed_open_forms(&b, none);
	assert_int_equal(redact_table_longest(b.table), 0);
	assert_false(redact_text(b.table, got, sizeof(got) - 1));
	assert_false(redact_text(b.table, NULL, 0));
	bed_close(&b);
	bed_open_forms(&b, both);
	assert_int_equal(redact_table_longest(b.table), 16);
	assert_false(redact_text(b.table, NULL, 0));
	for (size_t len = 0; len <= sizeof(got) - 1; len++)
		check_text(&b, got, len);
	bed_close(&b);
	redact_table_free(NULL);
}

/* Few letters, so that nearly everything is nearly a match. */
static void test_random_texts_as_the_slow_search(void **state)
{
	char text[300], form[48];
	uint32_t r = 11;
	size_t hits = 0;
	struct bed b;

	for (int round = 0; round < 400; round++) {
		uint32_t letters = 1 + bed_random(&r) % 3;
		size_t n = 1 + bed_random(&r) % 12;

		bed_open_sized(&b, BED_MEM_SMALL);
		for (size_t i = 0; i < n; i++) {
			size_t len = 1 + bed_random(&r) % sizeof(form);

			for (size_t j = 0; j < len; j++)
				form[j] = (char)("abAB"[bed_random(&r) % (letters + 1)]);
			bed_form(slice_make(form, len), &b);
		}
		assert_int_equal(redact_table_compile(b.table), 0);
		for (int i = 0; i < 20; i++) {
			size_t len = bed_random(&r) % sizeof(text);

			for (size_t j = 0; j < len; j++)
				text[j] = "abAB"[bed_random(&r) % (letters + 1)];
			/* A form somewhere, most likely cut by what comes later. */
			for (int j = 0; j < 3; j++) {
				size_t f = bed_random(&r) % b.n;
				size_t at = len ? bed_random(&r) % len : 0;

				if (b.len[f] <= len - at)
					memcpy(text + at, b.form[f], b.len[f]);
			}
			check_text(&b, text, len);
			hits += redact_text(b.table, text, len);
		}
		bed_close(&b);
	}
	assert_true(hits > 1000);
}

static void test_hundred_keys(void **state)
{
	char key[100][41], text[TEXT_MAX];
	uint32_t r = 3;
	struct bed b;

	bed_open_sized(&b, BED_MEM_LARGE);
	for (int k = 0; k < 100; k++) {
		for (int i = 0; i < 40; i++)
			key[k][i] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
				    "0123456789-_"[bed_random(&r) % 64];
		bed_key(&b, slice_make(key[k], 40));
	}
	assert_int_equal(redact_table_compile(b.table), 0);
	for (size_t i = 0; i < b.n; i++) {
		memset(text, 'x', sizeof(text));
		memcpy(text + i % 40, b.form[i], b.len[i]);
		check_text(&b, text, i % 40 + b.len[i] + i % 7);
	}
	bed_close(&b);
}

/* Tables give way when memory is short, down to one that still finds everything. */
static void test_little_memory_makes_it_slow_not_blind(void **state)
{
	char text[TEXT_MAX];
	size_t most = 0, left;
	int fits = 0;
	void *rest;
	struct bed b;

	for (left = 100; left < 20000; left += 100) {
		int ret;

		bed_open_sized(&b, BED_MEM_SMALL);
		for (size_t k = 0; k < 3; k++)
			bed_key(&b, slice_str(keys[k]));
		/* All but about this much, which may lie in several gaps. */
		rest = NULL;
		for (size_t n = secmem_size(b.mem) - secmem_used(b.mem) - left; !rest; n -= 16)
			rest = secmem_alloc(b.mem, n);
		ret = redact_table_compile(b.table);
		assert_true(ret == 0 || ret == E_FULL);
		if (ret == 0) {
			fits++;
			if (most == 0)
				most = left;
			for (size_t i = 0; i < b.n; i++) {
				memset(text, ' ', sizeof(text));
				memcpy(text + 9, b.form[i], b.len[i]);
				check_text(&b, text, b.len[i] + 20);
			}
		}
		secmem_release(b.mem, rest);
		bed_close(&b);
	}
	/* It failed when there was next to nothing, and never again once it had worked. */
	assert_true(most > 100 && most < 7000);
	assert_int_equal(fits, (20000 - most) / 100);
}

static void test_no_room_for_a_form_is_told(void **state)
{
	char *form = xcalloc(1, BED_MEM + 1);
	struct bed b;

	bed_open(&b);
	memset(form, 'f', BED_MEM + 1);
	assert_int_equal(redact_table_add(b.table, slice_make(form, BED_MEM + 1)), E_FULL);
	assert_int_equal(redact_table_add(b.table, slice_make(form, BED_MEM)), E_FULL);
	assert_int_equal(redact_table_add(b.table, slice_make(form, BED_MEM / 2)), 0);
	assert_int_equal(redact_table_add(b.table, slice_make(form, BED_MEM / 2)), E_FULL);
	bed_close(&b);
	free(form);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_form_at_every_offset_in_any_case),
		cmocka_unit_test(test_long_texts_with_one_form_and_with_none),
		cmocka_unit_test(test_near_misses_stay),
		cmocka_unit_test(test_only_letters_have_two_cases),
		cmocka_unit_test(test_overlapping_and_adjacent_matches_are_covered_whole),
		cmocka_unit_test(test_least_length_of_a_form),
		cmocka_unit_test(test_short_texts_and_no_forms),
		cmocka_unit_test(test_random_texts_as_the_slow_search),
		cmocka_unit_test(test_hundred_keys),
		cmocka_unit_test(test_little_memory_makes_it_slow_not_blind),
		cmocka_unit_test(test_no_room_for_a_form_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
