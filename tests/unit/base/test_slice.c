/* Comparing, searching and cutting borrowed bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/slice.h"

static void assert_slice(struct slice s, const char *want)
{
	assert_int_equal(s.len, strlen(want));
	assert_true(slice_eq(s, slice_str(want)));
}

static void test_case_is_ignored_for_ascii_letters_only(void **state)
{
	static const struct {
		const char *a, *b;
		bool same;
	} rows[] = {
		{"", "", true},
		{"Host", "hOST", true},
		{"host", "hosu", false},
		{"host", "hos", false},
		{"hos", "host", false},
		{"a-z", "A-Z", true},
		{"@", "`", false},
		{"[", "{", false},
		{"\xc3\x84", "\xc3\xa4", false},
		{"k", "\xe2\x84\xaa", false},
		{"1\r", "1-", false},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		assert_int_equal(
			slice_ieq(slice_str(rows[i].a), slice_str(rows[i].b)), rows[i].same);
}

static void test_names_that_cgi_reads_as_one_are_equal(void **state)
{
	static const struct {
		const char *a, *b;
		bool same;
	} rows[] = {
		{"", "", true},
		{"X-Api-Key", "x_api_KEY", true},
		{"_", "-", true},
		{"x-api", "x-api-key", false},
		{"x-api-key", "x-api", false},
		{"x-api", "xxapi", false},
		{"x.api", "x-api", false},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct slice a = slice_str(rows[i].a), b = slice_str(rows[i].b);

		assert_int_equal(slice_ieq_name(a, b), rows[i].same);
		assert_int_equal(slice_ieq_name(b, a), rows[i].same);
	}
}

static void test_starts_and_ends(void **state)
{
	struct slice s = SLICE("abc");

	assert_true(slice_starts(s, SLICE("")));
	assert_true(slice_starts(s, SLICE("ab")));
	assert_true(slice_starts(s, SLICE("abc")));
	assert_false(slice_starts(s, SLICE("abcd")));
	assert_false(slice_starts(s, SLICE("b")));
	assert_true(slice_ends(s, SLICE("")));
	assert_true(slice_ends(s, SLICE("bc")));
	assert_true(slice_ends(s, SLICE("abc")));
	assert_false(slice_ends(s, SLICE("zabc")));
	assert_false(slice_ends(s, SLICE("b")));
}

static void test_find_gives_offset_or_length(void **state)
{
	struct slice s = SLICE("a.b.c");

	assert_int_equal(slice_find_char(s, '.'), 1);
	assert_int_equal(slice_rfind_char(s, '.'), 3);
	assert_int_equal(slice_find_char(s, 'x'), 5);
	assert_int_equal(slice_rfind_char(s, 'x'), 5);
	assert_int_equal(slice_find(s, SLICE("b.")), 2);
	assert_int_equal(slice_find(s, SLICE("a.b.c")), 0);
	assert_int_equal(slice_find(s, SLICE("b.d")), 5);
	assert_int_equal(slice_find(s, SLICE("a.b.c.")), 5);
	assert_int_equal(slice_find_char(slice_make("a\0.", 3), '.'), 2);
}

static void test_null_slice_is_an_empty_one(void **state)
{
	struct slice none = slice_make(NULL, 0);
	char buf[4];
	uint64_t v;

	assert_true(slice_eq(none, SLICE("")));
	assert_true(slice_ieq(none, none));
	assert_true(slice_starts(none, none));
	assert_true(slice_ends(SLICE("a"), none));
	assert_false(slice_starts(none, SLICE("a")));
	assert_int_equal(slice_find_char(none, 'a'), 0);
	assert_int_equal(slice_rfind_char(none, 'a'), 0);
	assert_int_equal(slice_find(none, SLICE("a")), 0);
	assert_int_equal(slice_trim(none).len, 0);
	assert_int_equal(slice_strip(none).len, 0);
	assert_int_equal(slice_cut(&none, ',').len, 0);
	assert_null(none.p);
	assert_false(slice_to_u64(none, &v));
	assert_true(slice_to_cstr(none, buf, sizeof(buf)));
	assert_string_equal(buf, "");
}

static void test_trim_takes_blanks_and_strip_all_white_space(void **state)
{
	assert_slice(slice_trim(SLICE(" \t a b \t")), "a b");
	assert_slice(slice_trim(SLICE("\r\na\v")), "\r\na\v");
	assert_slice(slice_trim(SLICE(" \t ")), "");
	assert_slice(slice_strip(SLICE(" \t\n\v\f\ra b\r\n")), "a b");
	assert_slice(slice_strip(SLICE(" \t\n")), "");
	assert_int_equal(slice_strip(slice_make("\0 ", 2)).len, 1);
}

static void test_cut_walks_every_part(void **state)
{
	static const struct {
		const char *text;
		size_t n;
		char parts[4][4];
	} rows[] = {
		{"", 1, {""}},
		{"a", 1, {"a"}},
		{",", 2, {"", ""}},
		{"a,b,,c", 4, {"a", "b", "", "c"}},
		{"a,", 2, {"a", ""}},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct slice rest = slice_str(rows[i].text);
		size_t n = 0;

		while (rest.p) {
			assert_true(n < rows[i].n);
			assert_slice(slice_cut(&rest, ','), rows[i].parts[n++]);
		}
		assert_int_equal(n, rows[i].n);
	}
}

static void test_numbers_are_digits_within_64_bits(void **state)
{
	static const struct {
		const char *text;
		bool ok;
		uint64_t value;
	} rows[] = {
		{"0", true, 0},
		{"007", true, 7},
		{"18446744073709551615", true, UINT64_MAX},
		{"18446744073709551616", false, 0},
		{"18446744073709551620", false, 0},
		{"99999999999999999999", false, 0},
		{"", false, 0},
		{"-1", false, 0},
		{"+1", false, 0},
		{" 1", false, 0},
		{"1 ", false, 0},
		{"0x1", false, 0},
		{"1a", false, 0},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		uint64_t v = 99;

		assert_int_equal(slice_to_u64(slice_str(rows[i].text), &v), rows[i].ok);
		assert_int_equal(v, rows[i].ok ? rows[i].value : 99);
	}
}

static void test_cstr_is_whole_or_empty(void **state)
{
	char buf[4] = "xyz";

	assert_true(slice_to_cstr(SLICE("abc"), buf, sizeof(buf)));
	assert_string_equal(buf, "abc");
	assert_false(slice_to_cstr(SLICE("abcd"), buf, sizeof(buf)));
	assert_string_equal(buf, "");
	memset(buf, 'x', sizeof(buf));
	assert_false(slice_to_cstr(slice_make("a\0b", 3), buf, sizeof(buf)));
	assert_string_equal(buf, "");
	assert_false(slice_to_cstr(SLICE(""), buf, 0));
}

static void test_hex_digits_have_values(void **state)
{
	assert_int_equal(ascii_hex('0'), 0);
	assert_int_equal(ascii_hex('9'), 9);
	assert_int_equal(ascii_hex('a'), 10);
	assert_int_equal(ascii_hex('F'), 15);
	assert_int_equal(ascii_hex('g'), -1);
	assert_int_equal(ascii_hex('@'), -1);
	assert_int_equal(ascii_hex('/'), -1);
	assert_int_equal(ascii_hex(':'), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_case_is_ignored_for_ascii_letters_only),
		cmocka_unit_test(test_names_that_cgi_reads_as_one_are_equal),
		cmocka_unit_test(test_starts_and_ends),
		cmocka_unit_test(test_find_gives_offset_or_length),
		cmocka_unit_test(test_null_slice_is_an_empty_one),
		cmocka_unit_test(test_trim_takes_blanks_and_strip_all_white_space),
		cmocka_unit_test(test_cut_walks_every_part),
		cmocka_unit_test(test_numbers_are_digits_within_64_bits),
		cmocka_unit_test(test_cstr_is_whole_or_empty),
		cmocka_unit_test(test_hex_digits_have_values),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
