/* One normal form of a host name, from the wire and from people. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/hostname.h"

#define L63 "abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz0"
#define L61 "abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxy"
#define NAME253 L63 "." L63 "." L63 "." L61

static const struct {
	const char *in;
	int ret;
	const char *out;
} rows[] = {
	{"read.test", 0, "read.test"},
	{"READ.Test", 0, "read.test"},
	{"read.test.", 0, "read.test"},
	{"localhost", 0, "localhost"},
	{"_dmarc.a-b.test", 0, "_dmarc.a-b.test"},
	{"XN--BCHER-KVA.test", 0, "xn--bcher-kva.test"},
	{"1.2.3.4", 0, "1.2.3.4"},
	{L63 ".test", 0, L63 ".test"},
	{L63 "0.test", E_LIMIT, ""},
	{NAME253, 0, NAME253},
	{NAME253 ".", 0, NAME253},
	{NAME253 "0", E_LIMIT, ""},
	{NAME253 "..", E_LIMIT, ""},
	{"", E_SYNTAX, ""},
	{".", E_SYNTAX, ""},
	{"..", E_SYNTAX, ""},
	{"read.test..", E_SYNTAX, ""},
	{".read.test", E_SYNTAX, ""},
	{"read..test", E_SYNTAX, ""},
	{"b\xc3\xbc"
	 "cher.test",
		E_SYNTAX, ""},
	{"b%C3%BCcher.test", E_SYNTAX, ""},
	{"read\xe3\x80\x82test", E_SYNTAX, ""},
	{"read\xef\xbc\x8etest", E_SYNTAX, ""},
	{"\xef\xbd\x92"
	 "ead.test",
		E_SYNTAX, ""},
	{"re\xd0\xb0"
	 "d.test",
		E_SYNTAX, ""},
	{"a b", E_SYNTAX, ""},
	{" a", E_SYNTAX, ""},
	{"*.test", E_SYNTAX, ""},
	{"a:80", E_SYNTAX, ""},
	{"a/b", E_SYNTAX, ""},
	{"a@b", E_SYNTAX, ""},
	{"[::1]", E_SYNTAX, ""},
	{"a\x7f", E_SYNTAX, ""},
};

static void test_names_have_one_normal_form(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		char buf[HOSTNAME_MAX + 1];
		size_t len = 999;

		memset(buf, 'x', sizeof(buf));
		assert_int_equal(hostname_normal(slice_str(rows[i].in), buf, &len), rows[i].ret);
		assert_string_equal(buf, rows[i].out);
		assert_int_equal(len, strlen(rows[i].out));
	}
}

static void test_only_letters_digits_hyphen_underscore_pass(void **state)
{
	for (int c = 0; c < 256; c++) {
		char text[] = {'a', (char)c, 'b'};
		char buf[HOSTNAME_MAX + 1];
		size_t len;
		bool want = c &&
			strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
			       "0123456789-_.",
				c);

		assert_int_equal(
			hostname_normal(slice_make(text, 3), buf, &len), want ? 0 : E_SYNTAX);
	}
}

static void test_people_may_write_unicode(void **state)
{
	static const struct {
		const char *in;
		const char *out; /* NULL: refused */
	} names[] = {
		{"Read.Test.", "read.test"},
		{"b\xc3\xbc"
		 "cher.test",
			"xn--bcher-kva.test"},
		{"B\xc3\x9c"
		 "CHER.test.",
			"xn--bcher-kva.test"},
		/* Non-transitional: sharp s stays itself. */
		{"stra\xc3\x9f"
		 "e.test",
			"xn--strae-oqa.test"},
		{"read\xe3\x80\x82test", "read.test"},
		{"read\xef\xbc\x8etest", "read.test"},
		{"\xef\xbd\x92"
		 "ead.test",
			"read.test"},
		/* Cyrillic a is another name, and stays one. */
		{"re\xd0\xb0"
		 "d.test",
			"xn--red-7cd.test"},
		/* Full-width digits: an address in disguise. */
		{"\xef\xbc\x91\xef\xbc\x92\xef\xbc\x97.0.0.1", NULL},
		{"\xef\xbc\x92\xef\xbc\x91\xef\xbc\x93\xef\xbc\x90", NULL},
		{"\xff.test", NULL},
		{"\xc3", NULL},
		{"b\xc3\xbc..test", NULL},
		{"b\xc3\xbc/x", NULL},
		{"b\xc3\xbc%41", NULL},
		{"a b", NULL},
		{"", NULL},
	};

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		char buf[HOSTNAME_MAX + 1] = "x";
		struct errmsg msg = {""};
		size_t len = 999;
		int ret = hostname_from_person(slice_str(names[i].in), buf, &len, &msg);

		assert_string_equal(buf, names[i].out ? names[i].out : "");
		assert_int_equal(len, strlen(buf));
		assert_int_equal(ret == 0, names[i].out != NULL);
		assert_int_equal(msg.text[0] == '\0', ret == 0);
	}
}

static void test_unicode_names_have_the_same_limits(void **state)
{
	char buf[HOSTNAME_MAX + 1];
	char text[1100];
	size_t len;
	struct errmsg msg;

	memset(text, 'a', sizeof(text));
	memcpy(text, "\xc3\xbc", 2);
	assert_int_equal(hostname_from_person(slice_make(text, 1024), buf, &len, &msg), E_LIMIT);
	assert_true(hostname_from_person(slice_make(text, 1023), buf, &len, &msg) < 0);
	assert_true(hostname_from_person(slice_make(text, 60), buf, &len, NULL) < 0);
	assert_int_equal(hostname_from_person(slice_make(text, 40), buf, &len, &msg), 0);
	text[5] = '\0';
	assert_int_equal(hostname_from_person(slice_make(text, 40), buf, &len, &msg), E_SYNTAX);
}

static void test_below_means_more_labels_on_the_left(void **state)
{
	static const struct {
		const char *name, *suffix;
		bool below;
	} names[] = {
		{"a.b", "b", true},
		{"x.a.b", "b", true},
		{"x.a.b", "a.b", true},
		{"b", "b", false},
		{"ab", "b", false},
		{"a.b", "a.b", false},
		{"xa.b", "a.b", false},
		{"b", "a.b", false},
		{"a.c", "b", false},
		{"a", "", false},
		{"", "", false},
	};

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		assert_int_equal(
			hostname_below(slice_str(names[i].name), slice_str(names[i].suffix)),
			names[i].below);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names_have_one_normal_form),
		cmocka_unit_test(test_only_letters_digits_hyphen_underscore_pass),
		cmocka_unit_test(test_people_may_write_unicode),
		cmocka_unit_test(test_unicode_names_have_the_same_limits),
		cmocka_unit_test(test_below_means_more_labels_on_the_left),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
