/* Lines of the trail become cells; what is no line is named. */
#include "ctl/audit_record.h"

#include "tests/unit/ctl/fixture.h"

static void cell_is(const struct audit_record *r, enum audit_column c, const char *want)
{
	if (!slice_eq(r->cell[c], slice_str(want)))
		fail_msg("%s is \"%.*s\", not \"%s\"", audit_column_name(c), SLICE_FMT(r->cell[c]),
			want);
}

static void test_every_field_of_the_trails_own_line_is_a_cell(void **state)
{
	struct audit_event e = fixture_event();
	struct audit_record r;
	struct errmsg msg = {""};
	char *line;

	e.count = 17;
	e.has_addr = true;
	assert_true(netaddr_parse(SLICE("192.0.2.1"), &e.addr));
	line = fixture_line(&e);
	assert_int_equal(audit_record_decode(slice_str(line), &r, &msg), 0);
	assert_true(r.start_us == FIXTURE_TIME_US);
	cell_is(&r, AUDIT_COLUMN_SEQ, "5");
	cell_is(&r, AUDIT_COLUMN_TS, "2026-01-02T03:04:05.678901Z");
	cell_is(&r, AUDIT_COLUMN_ID, "00000000000000a1");
	cell_is(&r, AUDIT_COLUMN_SANDBOX, "box");
	cell_is(&r, AUDIT_COLUMN_KIND, "read");
	cell_is(&r, AUDIT_COLUMN_VERDICT, "allowed");
	cell_is(&r, AUDIT_COLUMN_REASON, "allowed");
	cell_is(&r, AUDIT_COLUMN_METHOD, "GET");
	cell_is(&r, AUDIT_COLUMN_URL, "https://docs.test/a");
	cell_is(&r, AUDIT_COLUMN_HOST, "docs.test");
	cell_is(&r, AUDIT_COLUMN_PORT, "443");
	cell_is(&r, AUDIT_COLUMN_ADDR, "192.0.2.1");
	cell_is(&r, AUDIT_COLUMN_STATUS, "200");
	cell_is(&r, AUDIT_COLUMN_UP, "100");
	cell_is(&r, AUDIT_COLUMN_DOWN, "2000");
	cell_is(&r, AUDIT_COLUMN_MS, "7");
	cell_is(&r, AUDIT_COLUMN_VIA, "connect");
	cell_is(&r, AUDIT_COLUMN_ALPN, "http/1.1");
	cell_is(&r, AUDIT_COLUMN_RULE, "rule 1: allow docs.test");
	cell_is(&r, AUDIT_COLUMN_BINDING, "");
	cell_is(&r, AUDIT_COLUMN_REVISION, "");
	cell_is(&r, AUDIT_COLUMN_UID, "1000");
	cell_is(&r, AUDIT_COLUMN_USER_AGENT, "curl/7");
	cell_is(&r, AUDIT_COLUMN_COUNT, "17");
	cell_is(&r, AUDIT_COLUMN_PREV, FIXTURE_PREV);
	audit_record_fini(&r);
	free(line);
}

/* A column that the trail writes and no table shows would be lost to auditors. */
static void test_no_field_of_the_trail_is_left_out(void **state)
{
	struct audit_event e = fixture_event();
	char *line;
	json_t *root, *value;
	const char *key;

	e.count = 2;
	line = fixture_line(&e);
	root = json_loads(line, 0, NULL);
	assert_non_null(root);
	json_object_foreach(root, key, value)
	{
		bool known = strcmp(key, "v") == 0;

		for (int c = 0; c < AUDIT_COLUMN_MAX; c++)
			known |= strcmp(key, audit_column_name((enum audit_column)c)) == 0;
		if (!known)
			fail_msg("%s has no column", key);
	}
	json_decref(root);
	free(line);
}

static void test_context_is_one_cell_of_compact_json(void **state)
{
	static const struct {
		const char *context, *want;
	} cases[] = {
		{"null", ""},
		{"{}", "{}"},
		{"{\"run\": \"r\", \"a\":\"\\u000a\"}", "{\"run\":\"r\",\"a\":\"\\n\"}"},
	};
	static const char *const wrong[] = {"[]", "1", "\"x\""};
	struct audit_record r;
	struct errmsg msg;
	char line[256];

	for (size_t i = 0; i < ARRAY_LEN(cases) + ARRAY_LEN(wrong); i++) {
		bool good = i < ARRAY_LEN(cases);

		(void)snprintf(line, sizeof(line),
			"{\"seq\":1,\"ts\":\"2026-01-01\",\"context\":%s,\"kind\":\"read\","
			"\"verdict\":\"open\",\"reason\":\"allowed\"}",
			good ? cases[i].context : wrong[i - ARRAY_LEN(cases)]);
		assert_int_equal(
			audit_record_decode(slice_str(line), &r, &msg), good ? 0 : E_SYNTAX);
		if (good)
			cell_is(&r, AUDIT_COLUMN_CONTEXT, cases[i].want);
		else
			assert_non_null(strstr(msg.text, "field context"));
		audit_record_fini(&r);
	}
}

#define REST "\"kind\":\"read\",\"verdict\":\"open\",\"reason\":\"allowed\""

static void test_what_is_no_line_is_refused_with_its_reason(void **state)
{
	static const struct {
		const char *line, *why;
	} cases[] = {
		{"", "no JSON"},
		{"{\"seq\":1", "no JSON"},
		{"[1]", "no JSON object"},
		{"{\"seq\":1,\"ts\":\"2026-01-01\"," REST "}", NULL},
		{"{\"seq\":1,\"ts\":\"2026-01-01\",\"new\":[1]," REST "}", NULL},
		{"{\"seq\":1,\"ts\":\"2026-01-01\"," REST "} x", "no JSON"},
		{"{\"ts\":\"2026-01-01\"," REST "}", "no field seq"},
		{"{\"seq\":null,\"ts\":\"2026-01-01\"," REST "}", "no field seq"},
		{"{\"seq\":1," REST "}", "no field ts"},
		{"{\"seq\":1,\"ts\":\"2026-01-01\",\"kind\":\"read\",\"reason\":\"a\"}",
			"no field verdict"},
		{"{\"seq\":1,\"ts\":\"yesterday\"," REST "}", "ts is no time"},
		{"{\"seq\":1,\"ts\":\"2026-01-01\",\"url\":{}," REST "}", "field url is neither"},
		{"{\"seq\":1,\"ts\":\"2026-01-01\",\"url\":true," REST "}", "field url is neither"},
		{"{\"seq\":1,\"ts\":\"2026-01-01\",\"seq\":2," REST "}", "no JSON: duplicate"},
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct audit_record r;
		struct errmsg msg = {""};
		int ret = audit_record_decode(slice_str(cases[i].line), &r, &msg);

		assert_int_equal(ret, cases[i].why ? E_SYNTAX : 0);
		if (cases[i].why && !strstr(msg.text, cases[i].why))
			fail_msg("%s: %s", cases[i].line, msg.text);
		audit_record_fini(&r);
	}
}

static void test_a_nul_in_a_text_does_not_end_it(void **state)
{
	static const char line[] =
		"{\"seq\":1,\"ts\":\"2026-01-01\",\"url\":\"a\\u0000b\"," REST "}";
	struct audit_record r;
	struct errmsg msg;

	assert_int_equal(audit_record_decode(slice_str(line), &r, &msg), 0);
	assert_int_equal(r.cell[AUDIT_COLUMN_URL].len, 3);
	audit_record_fini(&r);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_context_is_one_cell_of_compact_json),
		cmocka_unit_test(test_every_field_of_the_trails_own_line_is_a_cell),
		cmocka_unit_test(test_no_field_of_the_trail_is_left_out),
		cmocka_unit_test(test_what_is_no_line_is_refused_with_its_reason),
		cmocka_unit_test(test_a_nul_in_a_text_does_not_end_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
