/* Spellings of a key, against tables written by hand and against a plain encoder. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/arena.h"
#include "vault/key_forms.h"

#define SEEN_MAX 128

static struct secmem *mem;

/* What was passed on, copied. */
struct seen {
	char *text[SEEN_MAX];
	size_t len[SEEN_MAX];
	size_t n;
	const char *lent; /* the last one, where it lay */
};

static void seen_add(struct slice form, void *arg)
{
	struct seen *s = arg;

	assert_true(s->n < SEEN_MAX);
	assert_true(secmem_holds(mem, form.p));
	/* The one before is gone. */
	for (size_t i = form.len; s->n > 0 && i < s->len[s->n - 1]; i++)
		assert_int_equal(s->lent[i], 0);
	s->lent = form.p;
	s->text[s->n] = xmalloc(form.len);
	memcpy(s->text[s->n], form.p, form.len);
	s->len[s->n++] = form.len;
}

static void seen_fini(struct seen *s)
{
	for (size_t i = 0; i < s->n; i++)
		free(s->text[i]);
	s->n = 0;
}

static bool seen_has(const struct seen *s, struct slice form)
{
	for (size_t i = 0; i < s->n; i++) {
		if (slice_ieq(slice_make(s->text[i], s->len[i]), form))
			return true;
	}
	return false;
}

static void spell(struct seen *s, struct slice key, bool basic)
{
	size_t used = secmem_used(mem);

	s->n = 0;
	assert_true(key_forms_each(mem, key, basic, seen_add, s));
	assert_int_equal(secmem_used(mem), used);
}

static const struct {
	const char *key;
	const char *form;
} rows[] = {
	/* raw and hex */
	{"sk-real-0001", "sk-real-0001"},
	{"sk-real-0001", "736b2d7265616c2d30303031"},
	{"\xff\x01z!", "ff017a21"},
	/* percent: all of it, the reserved ones, and what each program leaves alone */
	{"sk-1", "%73%6b%2d%31"},
	{"sk-a_b c", "sk%2da%5fb%20c"},
	{"sk-a_b c", "sk%2da%5fb+c"},
	{"a+/=b c~", "a%2b%2f%3db%20c~"},
	{"a+/=b c~", "a%2b%2f%3db+c~"},
	{"a+/=b c~*", "a%2b%2f%3db+c%7e*"},
	{"a+/=b c", "a%2b/%3db%20c"},
	{"a+b!'()*", "a%2bb!'()*"},
	{"a+/=b c&\"", "a+/=b%20c&%22"},
	{"p%40ss\xc3\xa9", "p%2540ss%c3%a9"},
	/* JSON */
	{"sk-1", "\\u0073\\u006b\\u002d\\u0031"},
	{"\xc3\xa9\xf0\x9f\x98\x80", "\\u00e9\\ud83d\\ude00"},
	{"a\"b\\c/d", "a\\\"b\\\\c/d"},
	{"a\"b\\c/d", "a\\\"b\\\\c\\/d"},
	{"\b\f\n\r\t\x01", "\\b\\f\\n\\r\\t\\u0001"},
	{"a<b>&'\xc3\xa9", "a\\u003cb\\u003e\\u0026'\xc3\xa9"},
	{"a<b>&'\xc3\xa9", "a\\u003cb\\u003e\\u0026\\u0027\\u00e9"},
	{"a<b\xe2\x80\xa8\xe2\x80\xa9", "a\\u003cb\\u2028\\u2029"},
	{"ab\xe2\x80\xa8\xe2\x80\xa9", "ab\xe2\x80\xa8\xe2\x80\xa9"},
	{"a<b>\xc3\xa9", "a<b>\\u00e9"},
	{"a\"b+`/", "a\\u0022b\\u002b\\u0060/"},
	/* HTML */
	{"sk-1", "&#115;&#107;&#45;&#49;"},
	{"sk-1\t", "&#x73;&#x6b;&#x2d;&#x31;&#x9;"},
	{"\xc3\xa9\xf0\x9f\x98\x80", "&#xe9;&#x1f600;"},
	{"\xc3\xa9\xf0\x9f\x98\x80", "&#233;&#128512;"},
	{"a&<>\"'b", "a&amp;&lt;&gt;\"'b"},
	{"a&<>\"'b", "a&amp;&lt;&gt;&quot;&#39;b"},
	{"a&<>\"'b", "a&amp;&lt;&gt;&quot;&apos;b"},
	{"a&<>\"'b", "a&amp;&lt;&gt;&quot;&#x27;b"},
	{"a&<>\"'b+", "a&amp;&lt;&gt;&#34;&#39;b+"},
	{"a&<>\"'b+", "a&amp;&lt;&gt;&#34;&#39;b&#43;"},
	/* What is not UTF-8 counts as Latin-1: stray, cut short, overlong, surrogate, too large. */
	{"a\x80\xff", "\\u0061\\u0080\\u00ff"},
	{"a\xc3(", "\\u0061\\u00c3\\u0028"},
	{"abc\xe2\x82", "\\u0061\\u0062\\u0063\\u00e2\\u0082"},
	{"\xc1\xa1", "\\u00c1\\u00a1"},
	{"\xed\xa0\x80", "\\u00ed\\u00a0\\u0080"},
	{"\xf4\x90\x80\x80", "\\u00f4\\u0090\\u0080\\u0080"},
	{"\xf8\x88\x80\x80", "\\u00f8\\u0088\\u0080\\u0080"},
	{"\xe2\x82\xac", "\\u20ac"},
	/* base64 where the key begins at 0, 1 and 2 bytes into a group: only what it determines */
	{"Secret-Key>?~", "U2VjcmV0LUtleT4/f"},
	{"Secret-Key>?~", "NlY3JldC1LZXk+P3"},
	{"Secret-Key>?~", "TZWNyZXQtS2V5Pj9+"},
	{"Secret-Key>?~", "U2VjcmV0LUtleT4_f"},
	{"Secret-Key>?~", "NlY3JldC1LZXk-P3"},
	{"Secret-Key>?~", "TZWNyZXQtS2V5Pj9-"},
};

static void test_each_spelling_of_the_table(void **state)
{
	struct seen s;

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		spell(&s, slice_str(rows[i].key), false);
		if (!seen_has(&s, slice_str(rows[i].form)))
			fail_msg("%s is not spelled %s", rows[i].key, rows[i].form);
		seen_fini(&s);
	}
}

static void test_forms_differ_and_are_within_the_promise(void **state)
{
	static const char *const keys[] = {"sk-real-0001-AAAABBBBCCCC",
		"a&<>\"'b+/=\\ \xc3\xa9\xe2\x80\xa8*!()~", "%%%%%%%%", "ABCD", "ffff", "\n\n\n\n"};
	struct seen s;

	for (size_t k = 0; k < ARRAY_LEN(keys); k++) {
		spell(&s, slice_str(keys[k]), false);
		assert_true(s.n >= 5 && s.n <= KEY_FORMS_MAX);
		for (size_t i = 0; i < s.n; i++) {
			assert_true(s.len[i] >= KEY_FORM_MIN);
			for (size_t j = 0; j < i; j++)
				assert_false(slice_ieq(slice_make(s.text[i], s.len[i]),
					slice_make(s.text[j], s.len[j])));
		}
		seen_fini(&s);
	}
}

static void test_key_without_special_characters_has_few_forms(void **state)
{
	struct seen s;

	/* raw, hex, base64 three times, percent, \u, two kinds of entities */
	spell(&s, SLICE("abcdefghijklmnop"), false);
	assert_int_equal(s.n, 9);
	seen_fini(&s);
}

static void test_forms_below_the_least_length_are_left_out(void **state)
{
	struct seen s;

	spell(&s, SLICE("abc"), false);
	assert_false(seen_has(&s, SLICE("abc")));
	assert_true(seen_has(&s, SLICE("616263")));
	assert_true(seen_has(&s, SLICE("YWJj")));
	for (size_t i = 0; i < s.n; i++)
		assert_true(s.len[i] >= KEY_FORM_MIN);
	seen_fini(&s);
	spell(&s, SLICE("abcd"), false);
	assert_true(seen_has(&s, SLICE("abcd")));
	seen_fini(&s);
	spell(&s, SLICE_EMPTY, true);
	assert_int_equal(s.n, 0);
	spell(&s, slice_make(NULL, 0), false);
	assert_int_equal(s.n, 0);
}

/* Padded, as every program writes it. */
static size_t base64(const char *p, size_t len, char *out)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	size_t n = 0;

	for (size_t i = 0; i < len; i += 3) {
		uint32_t v = (uint32_t)(uint8_t)p[i] << 16;

		if (i + 1 < len)
			v |= (uint32_t)(uint8_t)p[i + 1] << 8;
		if (i + 2 < len)
			v |= (uint8_t)p[i + 2];
		out[n++] = digits[v >> 18];
		out[n++] = digits[v >> 12 & 63];
		out[n++] = i + 1 < len ? digits[v >> 6 & 63] : '=';
		out[n++] = i + 2 < len ? digits[v & 63] : '=';
	}
	return n;
}

/* A key of 4 to 23 bytes inside every longer text, whatever surrounds it. */
static void test_base64_is_found_in_every_longer_text(void **state)
{
	static const char around[] = "\0\xff~user:{\"}x";
	char key[24], text[64], coded[96];
	struct seen s;
	uint32_t r = 7;

	for (size_t len = 4; len < sizeof(key); len++) {
		for (size_t i = 0; i < len; i++) {
			r = r * 1664525 + 1013904223;
			key[i] = (char)(r >> 24);
		}
		spell(&s, slice_make(key, len), false);
		for (size_t before = 0; before < 10; before++) {
			for (size_t after = 0; after < 4; after++) {
				size_t n, hit = 0;

				memcpy(text, around, before);
				memcpy(text + before, key, len);
				memcpy(text + before + len, around, after);
				n = base64(text, before + len + after, coded);
				for (size_t i = 0; i < s.n && hit == 0; i++)
					if (memmem(coded, n, s.text[i], s.len[i]))
						hit = s.len[i];
				/* All but a character that is shared at each end. */
				assert_true(hit >= (len * 8 - 10) / 6);
			}
		}
		seen_fini(&s);
	}
}

static const struct {
	const char *text; /* as it was before base64 */
	const char *secret;
	const char *not_secret;
} basics[] = {
	{"user:pa55word", "pa55word", "user"},
	{"user:pa55word", "user:pa55word", "user"},
	{"user:pa55:word", "pa55:word", "word"},
	{"x-access-token:ghs_1234567", "ghs_1234567", "x-access-token"},
	/* Where the token stands in for the user. */
	{"ghp_1234567:", "ghp_1234567", NULL},
	{"ghp_1234567:x", "ghp_1234567", NULL},
	{"ghp_1234567:x-oauth-basic", "ghp_1234567", "x-oauth-basic"},
	{"no colon at all", "no colon at all", NULL},
	{":pa55word", "pa55word", NULL},
};

static void test_basic_is_spelled_as_its_text_and_its_secret(void **state)
{
	char coded[64], url[64];
	struct seen s;
	size_t n;

	for (size_t i = 0; i < ARRAY_LEN(basics); i++) {
		n = base64(basics[i].text, strlen(basics[i].text), coded);
		spell(&s, slice_make(coded, n), true);
		assert_true(seen_has(&s, slice_make(coded, n)));
		assert_true(seen_has(&s, slice_str(basics[i].secret)));
		assert_true(seen_has(&s, slice_str(basics[i].text)));
		if (basics[i].not_secret)
			assert_false(seen_has(&s, slice_str(basics[i].not_secret)));
		seen_fini(&s);
		/* Without padding, and as base64url. */
		memcpy(url, coded, n);
		while (n > 0 && url[n - 1] == '=')
			n--;
		for (size_t j = 0; j < n; j++)
			url[j] = url[j] == '+' ? '-' : url[j] == '/' ? '_' : url[j];
		spell(&s, slice_make(url, n), true);
		assert_true(seen_has(&s, slice_str(basics[i].secret)));
		seen_fini(&s);
	}
	/* All forms of the password, not it alone. */
	spell(&s, SLICE("dXNlcjpwYTU1d29yZA=="), true);
	assert_true(seen_has(&s, SLICE("70613535776f7264")));
	assert_true(seen_has(&s, SLICE("%70%61%35%35%77%6f%72%64")));
	assert_true(seen_has(&s, SLICE("%75%73%65%72%3a%70%61%35%35%77%6f%72%64")));
	seen_fini(&s);
	/* The same value, not said to be Basic's, is no more than it is. */
	spell(&s, SLICE("dXNlcjpwYTU1d29yZA=="), false);
	assert_false(seen_has(&s, SLICE("pa55word")));
	seen_fini(&s);
}

static void test_basic_that_is_not_base64_is_a_key_like_others(void **state)
{
	struct seen plain, basic;

	spell(&plain, SLICE("not base64!"), false);
	spell(&basic, SLICE("not base64!"), true);
	assert_int_equal(plain.n, basic.n);
	seen_fini(&plain);
	seen_fini(&basic);
	spell(&basic, SLICE("===="), true);
	assert_true(seen_has(&basic, SLICE("====")));
	seen_fini(&basic);
}

static void test_no_room_is_told_and_nothing_is_kept(void **state)
{
	char *key = secmem_alloc(mem, 2000);
	struct seen s = {.n = 0};
	char *rest[3] = {NULL};
	size_t used;

	memset(key, 'k', 2000);
	used = secmem_used(mem);
	assert_false(key_forms_each(mem, slice_make(key, secmem_size(mem)), false, seen_add, &s));
	assert_false(key_forms_each(mem, slice_make(key, SIZE_MAX), false, seen_add, &s));
	/* Room for the forms, but not for Basic's text. */
	rest[0] = secmem_alloc(mem, secmem_size(mem) - used - 16 - 12000 - 16);
	assert_non_null(rest[0]);
	used = secmem_used(mem);
	assert_false(key_forms_each(mem, slice_make(key, 2000), true, seen_add, &s));
	assert_int_equal(secmem_used(mem), used);
	assert_int_equal(s.n, 0);
	assert_true(key_forms_each(mem, slice_make(key, 2000), false, seen_add, &s));
	assert_true(s.n > 0);
	seen_fini(&s);
	secmem_release(mem, rest[0]);
	secmem_release(mem, key);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_spelling_of_the_table),
		cmocka_unit_test(test_forms_differ_and_are_within_the_promise),
		cmocka_unit_test(test_key_without_special_characters_has_few_forms),
		cmocka_unit_test(test_forms_below_the_least_length_are_left_out),
		cmocka_unit_test(test_base64_is_found_in_every_longer_text),
		cmocka_unit_test(test_basic_is_spelled_as_its_text_and_its_secret),
		cmocka_unit_test(test_basic_that_is_not_base64_is_a_key_like_others),
		cmocka_unit_test(test_no_room_is_told_and_nothing_is_kept),
	};
	int ret;

	if (secmem_new(64 << 10, &mem) < 0)
		return 1;
	ret = cmocka_run_group_tests(tests, NULL, NULL);
	secmem_close(mem);
	return ret;
}
