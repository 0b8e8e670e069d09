/* What callers of /audit and /audit/context send: queries and labels. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "control/api_audit.h"

static void test_queries(void **state)
{
	static const struct {
		const char *query;
		bool has_after;
		uint64_t after;
		uint32_t limit;
	} rows[] = {
		{"", false, 0, API_AUDIT_LINES_DEFAULT},
		{"after=0", true, 0, API_AUDIT_LINES_DEFAULT},
		{"after=17&limit=5", true, 17, 5},
		{"limit=5&after=17", true, 17, 5},
		{"limit=1", false, 0, 1},
		{"limit=1000", false, 0, API_AUDIT_LINES_MAX},
		{"limit=0001", false, 0, 1},
		{"after=18446744073709551615", true, UINT64_MAX, API_AUDIT_LINES_DEFAULT},
		{"&&after=1&", true, 1, API_AUDIT_LINES_DEFAULT},
	};
	static const struct {
		const char *query, *want;
	} wrong[] = {
		{"limit=0", "from 1 to 1000"},
		{"limit=1001", "from 1 to 1000"},
		{"limit=", "from 1 to 1000"},
		{"limit", "from 1 to 1000"},
		{"limit=4294967297", "from 1 to 1000"},
		{"limit=18446744073709551617", "from 1 to 1000"},
		{"limit=1&limit=1", "twice"},
		{"after=1&limit=1&after=1", "twice"},
		{"after=18446744073709551616", "the seq of a line"},
		{"after=+1", "the seq of a line"},
		{"after=1=1", "the seq of a line"},
		{"after= 1", "the seq of a line"},
		{"after=%30", "the seq of a line"},
		{"AFTER=1", "expected after or limit"},
		{"=1", "expected after or limit"},
		{"a=1&after=1", "expected after or limit"},
	};
	struct api_audit_query q;
	struct errmsg msg;

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		if (api_audit_query_decode(slice_str(rows[i].query), &q, &msg) != 0)
			fail_msg("%s: %s", rows[i].query, msg.text);
		assert_int_equal(q.has_after, rows[i].has_after);
		assert_int_equal(q.after, rows[i].after);
		assert_int_equal(q.limit, rows[i].limit);
	}
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		if (api_audit_query_decode(slice_str(wrong[i].query), &q, &msg) != E_VALUE)
			fail_msg("%s is taken", wrong[i].query);
		if (!strstr(msg.text, wrong[i].want))
			fail_msg("%s: %s", wrong[i].query, msg.text);
	}
}

static void test_labels(void **state)
{
	static const struct {
		const char *body, *want;
	} rows[] = {
		{"{}", ""},
		{" {\n} ", ""},
		{"{\"labels\":{}}", ""},
		{"{\"labels\":{\"run\":\"r-1\"}}", "{\"run\":\"r-1\"}"},
		{"{\"labels\":{\"z\":\"\",\"a\":\"\\u00e9\\n\"}}",
			"{\"z\":\"\",\"a\":\"\xc3\xa9\\u000a\"}"},
	};
	static const struct {
		const char *body;
		int want;
	} wrong[] = {
		{"", E_SYNTAX},
		{"{", E_SYNTAX},
		{"{}x", E_SYNTAX},
		{"{\"labels\":{\"a\":\"b\",\"a\":\"c\"}}", E_SYNTAX},
		{"{\"labels\":{\"a\":\"\xff\"}}", E_SYNTAX},
		{"{\"labels\":{\"a\":\"\\u0000\"}}", E_SYNTAX},
		{"null", E_SYNTAX},
		{"[]", E_VALUE},
		{"{\"labels\":null}", E_VALUE},
		{"{\"labels\":[]}", E_VALUE},
		{"{\"labels\":\"x\"}", E_VALUE},
		{"{\"label\":{}}", E_VALUE},
		{"{\"labels\":{},\"x\":1}", E_VALUE},
		{"{\"labels\":{\"a\":1}}", E_VALUE},
		{"{\"labels\":{\"a\":{}}}", E_VALUE},
		{"{\"labels\":{\"\":\"a\"}}", E_VALUE},
	};
	struct context c;
	struct errmsg msg;

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		c = (struct context){.len = 3};
		if (api_audit_context_decode(slice_str(rows[i].body), &c, &msg) != 0)
			fail_msg("%s: %s", rows[i].body, msg.text);
		assert_true(slice_eq(slice_make(c.text, c.len), slice_str(rows[i].want)));
	}
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		c = (struct context){.len = 3};
		if (api_audit_context_decode(slice_str(wrong[i].body), &c, &msg) != wrong[i].want)
			fail_msg("%s: another answer than %d", wrong[i].body, wrong[i].want);
		assert_int_equal(c.len, 3);
		assert_true(msg.text[0] != '\0');
	}
}

static void test_body_and_labels_at_their_limit_and_one_past_it(void **state)
{
	char body[API_AUDIT_CONTEXT_BODY_MAX + 2] = "{}";
	struct context c = {.len = 3};
	struct errmsg msg;
	size_t n;

	memset(body + 2, ' ', sizeof(body) - 2);
	assert_int_equal(api_audit_context_decode(
				 slice_make(body, API_AUDIT_CONTEXT_BODY_MAX + 1), &c, &msg),
		E_LIMIT);
	assert_int_equal(c.len, 3);
	assert_int_equal(
		api_audit_context_decode(slice_make(body, API_AUDIT_CONTEXT_BODY_MAX), &c, &msg),
		0);
	assert_int_equal(c.len, 0);
	/* As many labels as fit, and more than the list has room for. */
	for (size_t want = CONTEXT_LABELS_MAX; want < 400; want += 1 + want / 2) {
		n = (size_t)snprintf(body, sizeof(body), "{\"labels\":{");
		for (size_t i = 0; i < want; i++)
			n += (size_t)snprintf(body + n, sizeof(body) - n, "%s\"%c%c\":\"\"",
				i > 0 ? "," : "", (char)('a' + i % 26), (char)('A' + i / 26));
		n += (size_t)snprintf(body + n, sizeof(body) - n, "}}");
		assert_int_equal(api_audit_context_decode(slice_make(body, n), &c, &msg), E_LIMIT);
		assert_non_null(strstr(msg.text, "512 bytes"));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_queries),
		cmocka_unit_test(test_labels),
		cmocka_unit_test(test_body_and_labels_at_their_limit_and_one_past_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
