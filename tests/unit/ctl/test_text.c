/* Text of clients before it reaches a terminal or a spreadsheet. */
#include "ctl/text.h"

#include "tests/unit/ctl/fixture.h"

static void test_what_moves_a_cursor_or_hides_is_escaped(void **state)
{
	static const struct {
		struct slice in;
		const char *want;
		size_t columns;
	} cases[] = {
		{SLICE(""), "", 0},
		{SLICE("plain text"), "plain text", 10},
		{SLICE("\033[31mred"), "\\u001b[31mred", 13},
		{SLICE("a\nb\r\tc"), "a\\u000ab\\u000d\\u0009c", 21},
		{SLICE("nul\0nul"), "nul\\u0000nul", 12},
		{SLICE("\x7f"), "\\u007f", 6},
		{SLICE("\xc2\x9b"
		       "1m"),
			"\\u009b1m", 8},
		{SLICE("\xe2\x80\xae"
		       "gpj.exe"),
			"\\u202egpj.exe", 13},
		{SLICE("\xef\xbb\xbf"), "\\ufeff", 6},
		{SLICE("\xf3\xa0\x81\x81"), "\\ue0041", 7},
		{SLICE("\xc3\xa9t\xc3\xa9"), "\xc3\xa9t\xc3\xa9", 3},
		{SLICE("\xff\xc3"), "\\xff\\xc3", 8},
		{SLICE("\xc0\xaf"), "\\xc0\\xaf", 8},
		{SLICE("\xed\xa0\x80"), "\\xed\\xa0\\x80", 12},
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct strbuf b;

		strbuf_init(&b, 100);
		assert_int_equal(text_visible(&b, cases[i].in), cases[i].columns);
		fixture_text(&b, cases[i].want);
		strbuf_fini(&b);
	}
}

static void test_csv_cells_are_quoted_and_are_no_formulas(void **state)
{
	static const struct {
		const char *in, *want;
	} cases[] = {
		{"", ""},
		{"plain", "plain"},
		{"with space", "with space"},
		{"a,b", "\"a,b\""},
		{"say \"hi\"", "\"say \"\"hi\"\"\""},
		{"\"", "\"\"\"\""},
		{"=1+1", "'=1+1"},
		{"+1", "'+1"},
		{"-1", "'-1"},
		{"@SUM(A1)", "'@SUM(A1)"},
		{"=cmd|'/C calc'!A0,1", "\"'=cmd|'/C calc'!A0,1\""},
		{"=\"a\"", "\"'=\"\"a\"\"\""},
		{"a=1", "a=1"},
		{"two\r\nlines", "two\\u000d\\u000alines"},
		{"\t=1", "\\u0009=1"},
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct strbuf b;

		strbuf_init(&b, 100);
		text_csv(&b, slice_str(cases[i].in));
		fixture_text(&b, cases[i].want);
		strbuf_fini(&b);
	}
}

static void test_columns_fill_up_and_never_touch(void **state)
{
	static const struct {
		const char *in, *want;
	} cases[] = {
		{"", "     "},
		{"abc", "abc  "},
		{"abcd", "abcd "},
		{"abcde", "abcde "},
		{"\xc3\xa9t", "\xc3\xa9t   "},
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct strbuf b;

		strbuf_init(&b, 100);
		text_column(&b, slice_str(cases[i].in), 4);
		fixture_text(&b, cases[i].want);
		strbuf_fini(&b);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_moves_a_cursor_or_hides_is_escaped),
		cmocka_unit_test(test_csv_cells_are_quoted_and_are_no_formulas),
		cmocka_unit_test(test_columns_fill_up_and_never_touch),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
