/* Field names, values, tables and lists. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "proxy/fields.h"

static const struct slice known[FIELD_ID_MAX] = {
#define X(id, name) [FIELD_##id] = {name, sizeof(name) - 1},
	FIELD_TABLE(X)
#undef X
};

static void test_every_known_name_is_found_in_any_case(void **state)
{
	for (int id = FIELD_OTHER + 1; id < FIELD_ID_MAX; id++) {
		char upper[64], mixed[64];

		for (size_t i = 0; i < known[id].len; i++) {
			char c = known[id].p[i];

			upper[i] = c >= 'a' && c <= 'z' ? (char)(c - 0x20) : c;
			mixed[i] = i % 2 ? upper[i] : c;
		}
		assert_int_equal(field_id_find(known[id]), id);
		assert_int_equal(field_id_find(slice_make(upper, known[id].len)), id);
		assert_int_equal(field_id_find(slice_make(mixed, known[id].len)), id);
	}
}

/* One byte changed, added or taken away is another name. A carriage return differs from a hyphen
 * in the bit that also tells letter cases apart. */
static void test_names_close_to_a_known_one_are_other(void **state)
{
	for (int id = FIELD_OTHER + 1; id < FIELD_ID_MAX; id++) {
		char text[64];
		size_t len = known[id].len;

		memcpy(text, known[id].p, len);
		text[len] = 'x';
		assert_int_equal(field_id_find(slice_make(text, len + 1)), FIELD_OTHER);
		assert_int_equal(field_id_find(slice_make(text, len - 1)), FIELD_OTHER);
		for (size_t i = 0; i < len; i++) {
			char was = text[i];

			for (int c = 0; c < 256; c++) {
				text[i] = (char)c;
				if (ascii_lower((char)c) != was)
					assert_int_not_equal(
						field_id_find(slice_make(text, len)), id);
			}
			text[i] = was;
		}
	}
}

static void test_names_of_no_row_are_other(void **state)
{
	static const char *const names[] = {"", "x", "cookie", "hose", "accepts",
		"transfer_encoding", "content-length ",
		"x-a-very-long-name-that-is-longer-than-any-known-one"};

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		assert_int_equal(field_id_find(slice_str(names[i])), FIELD_OTHER);
}

/* RFC 9110 5.6.2, spelled out once more so that the table is checked against something. */
static void test_names_are_tokens(void **state)
{
	static const char tchars[] = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
				     "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

	assert_false(field_name_ok(SLICE_EMPTY));
	for (int c = 0; c < 256; c++) {
		bool want = c != 0 && strchr(tchars, c) != NULL;
		char text[3] = {'a', (char)c, 'z'};

		assert_int_equal(field_name_ok(slice_make(text, 3)), want);
		assert_int_equal(field_name_ok(slice_make(text + 1, 1)), want);
	}
}

/* At every offset of a value longer than the eight bytes that are looked at in one go. */
static void test_values_hold_no_control_byte(void **state)
{
	char text[40];

	assert_true(field_value_ok(SLICE_EMPTY));
	for (int c = 0; c < 256; c++) {
		bool want = c == '\t' || (c >= 0x20 && c != 0x7f);

		for (size_t i = 0; i < sizeof(text); i++) {
			memset(text, i % 2 ? 'v' : '\xff', sizeof(text));
			text[i] = (char)c;
			assert_int_equal(field_value_ok(slice_make(text, sizeof(text))), want);
			assert_int_equal(field_value_ok(slice_make(text, i + 1)), want);
		}
	}
}

static void add(struct fields *f, enum field_id id, const char *value)
{
	f->v[f->n++] = (struct field){known[id], slice_str(value), id};
	f->seen |= UINT64_C(1) << id;
}

static void test_lookups_find_the_first_and_count_all(void **state)
{
	struct fields f;

	f.n = 0;
	f.seen = 0;
	add(&f, FIELD_HOST, "a");
	add(&f, FIELD_CONNECTION, "x");
	add(&f, FIELD_HOST, "b");
	assert_true(fields_have(&f, FIELD_HOST));
	assert_false(fields_have(&f, FIELD_TE));
	assert_ptr_equal(fields_find(&f, FIELD_HOST), &f.v[0]);
	assert_ptr_equal(fields_find(&f, FIELD_CONNECTION), &f.v[1]);
	assert_null(fields_find(&f, FIELD_TE));
	assert_int_equal(fields_count(&f, FIELD_HOST), 2);
	assert_int_equal(fields_count(&f, FIELD_CONNECTION), 1);
	assert_int_equal(fields_count(&f, FIELD_TE), 0);
	f.n = 1; /* a bit without a field must not lead out of the table */
	assert_null(fields_find(&f, FIELD_CONNECTION));
}

static const struct {
	const char *value;
	const char *members; /* joined with '|' */
} lists[] = {
	{"", ""},
	{" ", ""},
	{",", ""},
	{" , ,\t,", ""},
	{"close", "close"},
	{"a,b", "a|b"},
	{" a , b\t,c ", "a|b|c"},
	{",a,,b,", "a|b"},
	{"a b, c", "a b|c"},
	{"\"x,y\",z", "\"x,y\"|z"},
	{"a=\"1,2\";q, b", "a=\"1,2\";q|b"},
	{"\"a\\\",b\",c", "\"a\\\",b\"|c"},
	{"\"never closed, b", "\"never closed, b"},
	{"\"ends in backslash\\", "\"ends in backslash\\"},
	{"a\\,b", "a\\|b"},
};

static void test_lists_are_walked(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
		struct slice rest = slice_str(lists[i].value), member;
		char got[64] = "";

		while (field_list_next(&rest, &member))
			(void)snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s%.*s",
				got[0] ? "|" : "", SLICE_FMT(member));
		assert_string_equal(got, lists[i].members);
		assert_int_equal(rest.len, 0);
	}
}

static void test_list_members_are_found_in_any_field_and_case(void **state)
{
	struct fields f;

	f.n = 0;
	f.seen = 0;
	assert_false(fields_list_has(&f, FIELD_CONNECTION, SLICE("close")));
	add(&f, FIELD_CONNECTION, "keep-alive, Upgrade");
	add(&f, FIELD_HOST, "elsewhere");
	add(&f, FIELD_CONNECTION, "x-y , CLOSE");
	assert_true(fields_list_has(&f, FIELD_CONNECTION, SLICE("keep-alive")));
	assert_true(fields_list_has(&f, FIELD_CONNECTION, SLICE("upgrade")));
	assert_true(fields_list_has(&f, FIELD_CONNECTION, SLICE("close")));
	assert_false(fields_list_has(&f, FIELD_CONNECTION, SLICE("elsewhere")));
	assert_false(fields_list_has(&f, FIELD_CONNECTION, SLICE("keep")));
	assert_false(fields_list_has(&f, FIELD_CONNECTION, SLICE("closed")));
	assert_false(fields_list_has(&f, FIELD_CONNECTION, SLICE("x")));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_known_name_is_found_in_any_case),
		cmocka_unit_test(test_names_close_to_a_known_one_are_other),
		cmocka_unit_test(test_names_of_no_row_are_other),
		cmocka_unit_test(test_names_are_tokens),
		cmocka_unit_test(test_values_hold_no_control_byte),
		cmocka_unit_test(test_lookups_find_the_first_and_count_all),
		cmocka_unit_test(test_lists_are_walked),
		cmocka_unit_test(test_list_members_are_found_in_any_field_and_case),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
