/* The policy document: lenient where the replaced server is, strict where leniency would open
 * something. */
#include <time.h>

#include "base/strbuf.h"
#include "policy/check.h"
#include "policy/policy_json.h"
#include "tests/unit/policy/fixture.h"

static struct policy *decode_ok(const char *text)
{
	struct errmsg msg = {""};
	struct policy *p;

	if (policy_json_decode(slice_str(text), 0, &p, &msg) < 0)
		fail_msg("%s: %s", text, msg.text);
	return p;
}

static void test_empty_documents_are_deny_all(void **state)
{
	static const char *const texts[] = {"", " \n\t ", "null", " null ", "{}", "\n{ }\n",
		"{\"egress\":null}", "{\"egress\":[]}", "{\"defaultAction\":null}",
		"{\"defaultAction\":\" \"}", "{\"other\":1}"};

	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		struct policy *p = decode_ok(texts[i]);

		assert_int_equal(policy_n_rules(p), 0);
		assert_false(policy_default_allow(p));
		assert_false(policy_check_name(p, SLICE("a.test"), 443).allow);
		policy_unref(p);
	}
}

static void test_documents_are_read_leniently(void **state)
{
	static const struct {
		const char *text;
		const char *rule; /* text of rule 1 */
		bool default_allow;
	} cases[] = {
		{"{\"defaultAction\":\"Allow\",\"egress\":[{\"action\":\"DENY\",\"target\":\" "
		 "A.test "
		 "\"}]}",
			"rule 1: deny A.test", true},
		{"{\"EGRESS\":[{\"Action\":\"allow\",\"TARGET\":\"a.test\",\"x\":{\"y\":[]}}]}",
			"rule 1: allow a.test", false},
		{"{\"egress\":[{\"target\":\"a.test\"}]}", "rule 1: deny a.test", false},
		{"{\"egress\":[{\"action\":null,\"target\":\"a.test\"}]}", "rule 1: deny a.test",
			false},
		{"{\"egress\":[{\"action\":\"allow\",\"target\":\"a.test\",\"ports\":[443,80]}]}",
			"rule 1: allow a.test ports 80,443", false},
		{"{\"egress\":[{\"action\":\"allow\",\"ports\":[65535,1]}]}",
			"rule 1: allow ports 1,65535", false},
		{"{\"egress\":[{\"action\":\"allow\",\"target\":\"a.test\",\"ports\":[]}]}",
			"rule 1: allow a.test", false},
		{"{\"egress\":[{\"action\":\"allow\",\"target\":\"a.test\",\"ports\":null}]}",
			"rule 1: allow a.test", false},
		{"{\"egress\":[{\"action\":\"allow\",\"target\":\"\\u0061.test\"}]}",
			"rule 1: allow a.test", false},
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct policy *p = decode_ok(cases[i].text);
		char text[RULE_TEXT_MAX];

		policy_rule_text(p, 0, text);
		assert_string_equal(text, cases[i].rule);
		assert_int_equal(policy_default_allow(p), cases[i].default_allow);
		policy_unref(p);
	}
}

static void test_last_of_duplicate_fields_wins_in_any_case(void **state)
{
	static const char *const texts[] = {
		"{\"egress\":[{\"action\":\"allow\",\"target\":\"x\",\"target\":\"last.test\"}]}",
		"{\"egress\":[{\"action\":\"allow\",\"target\":\"x\",\"TARGET\":\"last.test\"}]}",
		"{\"egress\":[{\"action\":\"allow\",\"target\":\"x\",\"Target\":\"y\","
		"\"target\" : \"last.test\"}]}",
		"{\"egress\":[{\"Action\":\"deny\",\"target\":\"last.test\",\"action\":\"allow\"}]"
		"}",
		"{\"egress\":[{\"action\":\"deny\",\"target\":\"x\"}],"
		"\"Egress\":[{\"action\":\"allow\",\"target\":\"last.test\"}]}",
		"{\"egress\":[{\"action\":\"allow\",\"target\":\"last.test\"}],"
		"\"defaultAction\":\"allow\",\"defaultaction\":\"deny\"}",
	};

	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		struct policy *p = decode_ok(texts[i]);
		char text[RULE_TEXT_MAX];

		policy_rule_text(p, 0, text);
		assert_string_equal(text, "rule 1: allow last.test");
		assert_false(policy_default_allow(p));
		policy_unref(p);
	}
}

static void test_only_field_names_lose_their_case(void **state)
{
	struct policy *p = decode_ok("{\"egress\":[{\"action\":\"allow\",\"target\":\"A.Test\"}]}");

	assert_string_equal(policy_rule(p, 0)->written, "A.Test");
	policy_unref(p);
}

static void test_wrong_documents_are_refused_with_the_place(void **state)
{
	static const struct {
		const char *text;
		int ret;
		const char *message; /* its beginning */
	} cases[] = {
		{"[]", E_VALUE, "a policy is an object"},
		{"1", E_VALUE, "a policy is an object"},
		{"\"allow\"", E_VALUE, "a policy is an object"},
		{"true", E_VALUE, "a policy is an object"},
		{"{\"defaultAction\":\"block\"}", E_VALUE,
			"unsupported defaultAction \"block\"; write \"allow\" or \"deny\""},
		{"{\"defaultAction\":1}", E_VALUE, "defaultAction: a text was expected"},
		{"{\"egress\":{}}", E_VALUE, "egress: a list of rules was expected"},
		{"{\"egress\":\"a.test\"}", E_VALUE, "egress: a list of rules was expected"},
		{"{\"egress\":[null]}", E_VALUE, "egress[0]: target cannot be empty"},
		{"{\"egress\":[{}]}", E_VALUE, "egress[0]: target cannot be empty"},
		{"{\"egress\":[\"a.test\"]}", E_VALUE, "egress[0]: an object with"},
		{"{\"egress\":[{\"target\":\"a.test\"},{\"action\":\"allow\"}]}", E_VALUE,
			"egress[1]: target cannot be empty"},
		{"{\"egress\":[{\"target\":1}]}", E_VALUE, "egress[0]: target: a text"},
		{"{\"egress\":[{\"action\":[],\"target\":\"a\"}]}", E_VALUE,
			"egress[0]: action: a text"},
		{"{\"egress\":[{\"target\":\"a\"},{\"target\":\"b\"},{\"target\":\"http://x\"}]}",
			E_VALUE,
			"egress[2]: target \"http://x\": a URL; write the host name: \"x\""},
		{"{\"egress\":[{\"action\":\"log\",\"target\":\"a\"}]}", E_VALUE,
			"egress[0]: target \"a\": unsupported action \"log\""},
		{"{\"egress\":[{\"target\":\"a\",\"ports\":{}}]}", E_VALUE,
			"egress[0]: target \"a\": ports: a list of numbers"},
		{"{\"egress\":[{\"target\":\"a\",\"ports\":[\"80\"]}]}", E_VALUE,
			"egress[0]: target \"a\": ports[0]: a number from 1"},
		{"{\"egress\":[{\"target\":\"a\",\"ports\":[80.0]}]}", E_VALUE,
			"egress[0]: target \"a\": ports[0]: a number from 1"},
		{"{\"egress\":[{\"target\":\"a\",\"ports\":[80,0]}]}", E_VALUE,
			"egress[0]: target \"a\": port 0 out of range 1-65535"},
		{"{\"egress\":[{\"target\":\"a\",\"ports\":[65536]}]}", E_VALUE,
			"egress[0]: target \"a\": port 65536 out of range 1-65535"},
		{"{\"egress\":[{\"target\":\"a\",\"ports\":[-1]}]}", E_VALUE,
			"egress[0]: target \"a\": port -1 out of range 1-65535"},
		{"{\"egress\":[{\"target\":\"a\",\"ports\":[80,80]}]}", E_VALUE,
			"egress[0]: target \"a\": duplicate port 80"},
		{"{} {}", E_SYNTAX, "line 1, column 4: end of file expected"},
		{"{}x", E_SYNTAX, "line 1, column 3: "},
		{"{\n\"egress\":[,]}", E_SYNTAX, "line 2, column 11: "},
		{"{\"egress\":[{\"target\":\"a\"}]", E_SYNTAX, "line 1, column 26: "},
		{"{\"egress", E_SYNTAX, "line 1, column "},
		{"{\"a\":\"\\", E_SYNTAX, "line 1, column "},
		{"{'egress':[]}", E_SYNTAX, "line 1, column 2: "},
		{"{\"a\":\"\xff\"}", E_SYNTAX, "line 1, column "},
		{"{\"a\":\"\xed\xa0\x80\"}", E_SYNTAX, "line 1, column "},
		{"{\"egress\":[{\"target\":\"a\\u0000b\"}]}", E_SYNTAX, "line 1, column "},
		{"\xef\xbb\xbf{}", E_SYNTAX, "line 1, column "},
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct errmsg msg = {""};
		struct policy *p = NULL;
		int ret = policy_json_decode(slice_str(cases[i].text), 0, &p, &msg);

		assert_null(p);
		if (ret != cases[i].ret ||
			strncmp(msg.text, cases[i].message, strlen(cases[i].message)) != 0)
			fail_msg("%s: %d, \"%s\"", cases[i].text, ret, msg.text);
	}
}

static void test_nul_byte_is_refused_with_its_place(void **state)
{
	struct errmsg msg = {""};
	struct policy *p = NULL;

	assert_int_equal(policy_json_decode(SLICE("{}\0"), 0, &p, &msg), E_SYNTAX);
	assert_string_equal(msg.text, "byte 2: a NUL byte");
	assert_null(p);
}

static void test_nesting_is_limited_before_recursion(void **state)
{
	struct errmsg msg = {""};
	struct strbuf text;
	struct policy *p;

	for (size_t depth = 63; depth <= 64; depth++) {
		strbuf_init(&text, 1 << 20);
		strbuf_str(&text, "{\"x\":");
		for (size_t i = 0; i < depth; i++)
			strbuf_char(&text, '[');
		for (size_t i = 0; i < depth; i++)
			strbuf_char(&text, ']');
		strbuf_char(&text, '}');
		if (depth == 63) {
			assert_int_equal(policy_json_decode(strbuf_slice(&text), 0, &p, &msg), 0);
			policy_unref(p);
		} else {
			assert_int_equal(
				policy_json_decode(strbuf_slice(&text), 0, &p, &msg), E_LIMIT);
			assert_string_equal(
				msg.text, "byte 68: nested deeper than 64; a policy needs 4");
		}
		strbuf_fini(&text);
	}
	/* Brackets in strings do not nest. */
	p = decode_ok("{\"x\":\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["
		      "[\\\"[[\"}");
	policy_unref(p);
}

static void test_rule_cap_is_exact(void **state)
{
	static const char two[] = "{\"egress\":[{\"target\":\"a\"},{\"target\":\"b\"}]}";
	struct errmsg msg = {""};
	struct policy *p;

	assert_int_equal(policy_json_decode(slice_str(two), 2, &p, &msg), 0);
	policy_unref(p);
	assert_int_equal(policy_json_decode(slice_str(two), 1, &p, &msg), E_LIMIT);
	assert_string_equal(msg.text, "egress rule total count 2 exceeds limit 1");
	assert_null(p);
}

static void test_port_cap_is_exact(void **state)
{
	for (size_t n = POLICY_RULE_PORTS_MAX; n <= POLICY_RULE_PORTS_MAX + 1; n++) {
		struct errmsg msg = {""};
		struct strbuf text;
		struct policy *p;

		strbuf_init(&text, 1 << 20);
		strbuf_str(&text, "{\"egress\":[{\"target\":\"a\",\"ports\":[1");
		for (size_t i = 2; i <= n; i++)
			strbuf_printf(&text, ",%zu", i);
		strbuf_str(&text, "]}]}");
		if (n == POLICY_RULE_PORTS_MAX) {
			assert_int_equal(policy_json_decode(strbuf_slice(&text), 0, &p, &msg), 0);
			policy_unref(p);
		} else {
			assert_int_equal(
				policy_json_decode(strbuf_slice(&text), 0, &p, &msg), E_LIMIT);
			assert_string_equal(msg.text,
				"egress[0]: target \"a\": too many ports (257), max 256 per rule");
		}
		strbuf_fini(&text);
	}
}

static void test_document_size_is_limited(void **state)
{
	struct errmsg msg = {""};
	char *text = xmalloc(POLICY_DOC_MAX + 1);
	struct policy *p;

	memset(text, ' ', POLICY_DOC_MAX + 1);
	assert_int_equal(policy_json_decode(slice_make(text, POLICY_DOC_MAX), 0, &p, &msg), 0);
	policy_unref(p);
	assert_int_equal(
		policy_json_decode(slice_make(text, POLICY_DOC_MAX + 1), 0, &p, &msg), E_LIMIT);
	assert_null(p);
	free(text);
}

static void test_encoding_round_trips_in_fixed_order(void **state)
{
	static const char want[] =
		"{\"egress\": [{\"action\": \"allow\", \"target\": \"A.test.\"}, "
		"{\"action\": \"deny\", \"target\": \"10.1.2.3/8\", \"ports\": [80, 443]}, "
		"{\"action\": \"allow\", \"target\": \"\", \"ports\": [9000]}], "
		"\"defaultAction\": \"allow\"}";
	struct policy *p = decode_ok(want);
	json_t *tree = policy_json_encode(p);
	char *text = json_dumps(tree, 0);
	struct policy *again;

	assert_string_equal(text, want);
	assert_int_equal(policy_json_decode_tree(tree, 0, &again, NULL), 0);
	assert_int_equal(policy_n_rules(again), 3);
	policy_unref(again);
	free(text);
	json_decref(tree);
	policy_unref(p);
}

static uint64_t cpu_us(void)
{
	return (uint64_t)clock() * 1000000 / CLOCKS_PER_SEC;
}

static void test_hundred_thousand_rules_load_fast_and_decide_as_one(void **state)
{
	enum { N = 100000 };
	uint64_t start;
	struct errmsg msg = {""};
	struct strbuf text;
	struct policy *p;

	strbuf_init(&text, POLICY_DOC_MAX);
	strbuf_str(&text, "{\"egress\":[");
	for (int i = 0; i < N; i++)
		strbuf_printf(&text, "%s{\"action\":\"allow\",\"target\":\"%sh%d.test\"}",
			i ? "," : "", i % 2 ? "*." : "", i);
	strbuf_str(&text, "]}");
	assert_false(text.full);
	start = cpu_us();
	if (policy_json_decode(strbuf_slice(&text), 0, &p, &msg) < 0)
		fail_msg("%s", msg.text);
	/* Under the sanitizers; without them a tenth. */
	assert_in_range(cpu_us() - start, 0, 5000000);
	assert_int_equal(policy_check_name(p, SLICE("h99998.test"), 443).rule, 99998);
	assert_int_equal(policy_check_name(p, SLICE("a.b.h99999.test"), 443).rule, 99999);
	assert_false(policy_check_name(p, SLICE("h99999.test"), 443).allow);
	start = cpu_us();
	for (int i = 0; i < N; i++)
		assert_false(policy_check_name(p, SLICE("a.b.c.none.test"), 443).allow);
	/* A scan would take 10^10 steps. */
	assert_in_range(cpu_us() - start, 0, 2000000);
	policy_unref(p);
	strbuf_fini(&text);
}

static void test_bodies_of_patch_and_delete(void **state)
{
	static const struct {
		const char *text;
		size_t rules, targets; /* 0: refused */
		const char *why_rules, *why_targets;
	} rows[] = {
		{"[]", 0, 0, "empty array", "empty array"},
		{"null", 0, 0, "empty array", "empty array"},
		{"{}", 0, 0, "a list was expected", "a list was expected"},
		{"\"a\"", 0, 0, "a list was expected", "a list was expected"},
		{"[", 0, 0, "line 1", "line 1"},
		{"[] x", 0, 0, "line 1", "line 1"},
		{"[\"a.test\",null,\"\"]", 0, 3, "rule[0]: an object", NULL},
		{"[null]", 0, 1, "rule[0]: target cannot be empty", NULL},
		{"[7]", 0, 0, "rule[0]", "target[0]: "},
		{"[{\"TARGET\":\"a.test\",\"Action\":\"ALLOW\"},{\"target\":\"b.test\"}]", 2, 0,
			NULL, "target[0]: "},
		{"[{\"target\":\"a.test\"},{\"target\":\"*\"}]", 0, 0, "rule[1]: target \"*\"",
			"target[0]: "},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct slice text = slice_str(rows[i].text);
		struct errmsg msg = {""};
		struct policy_targets t;
		struct rule_list l;

		assert_int_equal(policy_json_decode_patch(text, &l, &msg) == 0, rows[i].rules > 0);
		assert_int_equal(l.n, rows[i].rules);
		if (rows[i].why_rules && !strstr(msg.text, rows[i].why_rules))
			fail_msg("%s: %s", rows[i].text, msg.text);
		rule_list_fini(&l);
		msg.text[0] = '\0';
		assert_int_equal(
			policy_json_decode_targets(text, &t, &msg) == 0, rows[i].targets > 0);
		assert_int_equal(t.n, rows[i].targets);
		if (rows[i].why_targets && !strstr(msg.text, rows[i].why_targets))
			fail_msg("%s: %s", rows[i].text, msg.text);
		policy_targets_fini(&t);
	}
}

/* 64 and one for each 8 bytes: more are refused before anything is made of them. */
static void test_objects_and_lists_of_a_document(void **state)
{
	struct errmsg msg = {""};
	struct policy *p = NULL;
	struct strbuf b;

	for (int many = 0; many <= 1; many++) {
		strbuf_init(&b, 65536);
		strbuf_str(&b, "{\"x\":[{}");
		/* 3 + k of them in 10 + 3k bytes: 102 are the most for 307, and for 310 */
		for (int i = 0; i < (many ? 100 : 99); i++)
			strbuf_str(&b, ",{}");
		strbuf_str(&b, "]}");
		assert_int_equal(
			policy_json_decode(strbuf_slice(&b), 0, &p, &msg), many ? E_LIMIT : 0);
		policy_unref(p);
		strbuf_fini(&b);
	}
	assert_non_null(strstr(msg.text, "more objects and lists"));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bodies_of_patch_and_delete),
		cmocka_unit_test(test_objects_and_lists_of_a_document),
		cmocka_unit_test(test_empty_documents_are_deny_all),
		cmocka_unit_test(test_documents_are_read_leniently),
		cmocka_unit_test(test_last_of_duplicate_fields_wins_in_any_case),
		cmocka_unit_test(test_only_field_names_lose_their_case),
		cmocka_unit_test(test_wrong_documents_are_refused_with_the_place),
		cmocka_unit_test(test_nul_byte_is_refused_with_its_place),
		cmocka_unit_test(test_nesting_is_limited_before_recursion),
		cmocka_unit_test(test_rule_cap_is_exact),
		cmocka_unit_test(test_port_cap_is_exact),
		cmocka_unit_test(test_document_size_is_limited),
		cmocka_unit_test(test_encoding_round_trips_in_fixed_order),
		cmocka_unit_test(test_hundred_thousand_rules_load_fast_and_decide_as_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
