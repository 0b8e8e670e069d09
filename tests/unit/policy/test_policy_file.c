/* The operator's rule files (policy/policy_file): which lines are rules, and which are faults. */
#include "base/strbuf.h"
#include "policy/policy_file.h"
#include "tests/unit/policy/fixture.h"

static void test_lines_become_rules(void **state)
{
	static const struct {
		const char *text;
		enum policy_file_kind kind;
		size_t n, n_bad;
		const char *last;  /* as written */
		const char *fault; /* of the first bad line */
	} rows[] = {
		{"", POLICY_FILE_DENY, 0, 0, NULL, NULL},
		{"\n  \n# bad.test\n   # x\n", POLICY_FILE_DENY, 0, 0, NULL, NULL},
		{"bad.test", POLICY_FILE_DENY, 1, 0, "bad.test", NULL},
		{"bad.test\n", POLICY_FILE_DENY, 1, 0, "bad.test", NULL},
		{"\xef\xbb\xbf"
		 "bad.test\r\n*.w.test\r\n\r\n",
			POLICY_FILE_DENY, 2, 0, "*.w.test", NULL},
		{"10.0.0.1\n10.0.0.0/8\n2001:db8::/32\n", POLICY_FILE_ALLOW, 3, 0, "2001:db8::/32",
			NULL},
		{"a.test\nhttp://x\nb.test\na b\n", POLICY_FILE_ALLOW, 2, 2, "b.test",
			"line 2: target \"http://x\": a URL"},
		/* no comments behind a target */
		{"a.test # why\n", POLICY_FILE_DENY, 0, 1, NULL, "line 1: target \"a.test # why\""},
		{"*\n", POLICY_FILE_DENY, 0, 1, NULL, "line 1: target \"*\""},
		{"a.test\n*.b.test\n", POLICY_FILE_LOG_SKIP, 2, 0, "*.b.test", NULL},
		{"\na.test\n10.0.0.1\n", POLICY_FILE_LOG_SKIP, 1, 1, "a.test",
			"line 3: target \"10.0.0.1\": an address"},
		{"10.0.0.0/8\n", POLICY_FILE_LOG_SKIP, 0, 1, NULL, "line 1: "},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct rule_list l = {.v = NULL};
		struct errmsg msg = {""};
		size_t n_bad = policy_file_decode(slice_str(rows[i].text), rows[i].kind, &l, &msg);

		assert_int_equal(n_bad, rows[i].n_bad);
		assert_int_equal(l.n, rows[i].n);
		if (rows[i].last)
			assert_string_equal(l.v[l.n - 1].written, rows[i].last);
		for (size_t k = 0; k < l.n; k++)
			assert_int_equal(l.v[k].allow, rows[i].kind != POLICY_FILE_DENY);
		if (!rows[i].fault)
			assert_string_equal(msg.text, "");
		else if (strncmp(msg.text, rows[i].fault, strlen(rows[i].fault)) != 0)
			fail_msg("%s", msg.text);
		rule_list_fini(&l);
	}
}

static void test_nul_byte_is_a_fault(void **state)
{
	struct rule_list l = {.v = NULL};
	struct errmsg msg = {""};

	assert_int_equal(
		policy_file_decode(SLICE("a\0b.test\nc.test"), POLICY_FILE_DENY, &l, &msg), 1);
	assert_int_equal(l.n, 1);
	assert_string_equal(msg.text, "line 1: a NUL byte");
	rule_list_fini(&l);
}

static void test_length_of_a_line(void **state)
{
	static char text[POLICY_FILE_LINE_MAX + 1];
	struct rule_list l = {.v = NULL};
	struct errmsg msg = {""};

	memset(text, 'a', sizeof(text));
	/* at the limit it is judged as the name that it is no more */
	assert_int_equal(policy_file_decode(slice_make(text, POLICY_FILE_LINE_MAX),
				 POLICY_FILE_DENY, &l, &msg),
		1);
	assert_null(strstr(msg.text, "longer than"));
	assert_int_equal(
		policy_file_decode(slice_make(text, sizeof(text)), POLICY_FILE_DENY, &l, &msg), 1);
	assert_string_equal(msg.text, "line 1: longer than 65536 bytes");
	rule_list_fini(&l);
}

static void test_many_lines(void **state)
{
	struct rule_list l = {.v = NULL};
	struct errmsg msg = {""};
	struct strbuf b;

	strbuf_init(&b, 1u << 20);
	for (int i = 0; i < 10000; i++)
		strbuf_printf(&b, "h%d.test\n", i);
	assert_int_equal(policy_file_decode(strbuf_slice(&b), POLICY_FILE_DENY, &l, &msg), 0);
	assert_int_equal(l.n, 10000);
	assert_string_equal(l.v[9999].target, "h9999.test");
	strbuf_fini(&b);
	rule_list_fini(&l);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lines_become_rules),
		cmocka_unit_test(test_nul_byte_is_a_fault),
		cmocka_unit_test(test_length_of_a_line),
		cmocka_unit_test(test_many_lines),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
