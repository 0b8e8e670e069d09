/* Times, hosts and words of a query, and which lines pass. */
#include "ctl/audit_filter.h"

#include "tests/unit/ctl/fixture.h"

#define NOW_US UINT64_C(1767323045678901)
#define S UINT64_C(1000000)

static void test_times_are_absolute_or_before_now(void **state)
{
	static const struct {
		const char *text;
		uint64_t want;
	} cases[] = {
		{"2026-01-02", UINT64_C(1767312000) * S},
		{"2026-01-02T03:04:05Z", UINT64_C(1767323045) * S},
		{"2026-01-02T03:04:05.678901Z", NOW_US},
		{"90s", NOW_US - 90 * S},
		{"10m", NOW_US - 600 * S},
		{"2h", NOW_US - 7200 * S},
		{"1d", NOW_US - 86400 * S},
		{"0s", NOW_US},
		{"100000000d", 0},
	};
	static const char *const wrong[] = {"", "10", "m", "10x", "-1m", "1.5h", "1 h", "10M",
		"100000001s", "99999999999999999999s", "2026-13-01", "yesterday",
		"2026-01-02T03:04"};
	uint64_t us;
	struct errmsg msg;

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		assert_int_equal(audit_filter_time(cases[i].text, NOW_US, &us, &msg), 0);
		assert_true(us == cases[i].want);
	}
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
		assert_int_equal(audit_filter_time(wrong[i], NOW_US, &us, &msg), E_VALUE);
}

static bool host_passes(const char *pattern, const char *host)
{
	struct audit_record r = {.start_us = NOW_US};
	struct audit_filter f = {0};
	struct errmsg msg = {""};

	if (audit_filter_host(pattern, &f, &msg) < 0)
		fail_msg("%s: %s", pattern, msg.text);
	r.cell[AUDIT_COLUMN_HOST] = slice_str(host);
	return audit_filter_match(&f, &r);
}

static void test_host_is_exact_or_everything_below(void **state)
{
	static const struct {
		const char *pattern, *host;
		bool want;
	} cases[] = {
		{"docs.test", "docs.test", true},
		{"DOCS.test.", "docs.test", true},
		{"docs.test", "a.docs.test", false},
		{"docs.test", "", false},
		{"*.docs.test", "a.docs.test", true},
		{"*.docs.test", "b.a.docs.test", true},
		{"*.docs.test", "docs.test", false},
		{"*.docs.test", "xdocs.test", false},
		{"192.0.2.1", "192.0.2.1", true},
		{"0xc0000201", "192.0.2.1", true},
		{"2001:DB8::1", "2001:db8::1", true},
		{"[2001:db8:0::1]", "2001:db8::1", true},
		{"192.0.2.1", "192.0.2.10", false},
		{"b\xc3\xbc"
		 "cher.test",
			"xn--bcher-kva.test", true},
	};
	static const char *const wrong[] = {"", "*", "*.", "a..b", "http://docs.test/", "a b"};
	struct audit_filter f;
	struct errmsg msg;

	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		if (host_passes(cases[i].pattern, cases[i].host) != cases[i].want)
			fail_msg("%s, %s", cases[i].pattern, cases[i].host);
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
		assert_true(audit_filter_host(wrong[i], &f, &msg) < 0);
}

static void test_words_come_from_the_tables(void **state)
{
	struct audit_filter f = {0};
	struct errmsg msg = {""};

	assert_int_equal(audit_filter_kind("tunnel", &f, &msg), 0);
	assert_int_equal(audit_filter_verdict("blocked", &f, &msg), 0);
	assert_int_equal(audit_filter_reason("method_not_read", &f, &msg), 0);
	assert_int_equal(audit_filter_kind("raed", &f, &msg), E_UNKNOWN);
	assert_non_null(strstr(msg.text, "read"));
	assert_int_equal(audit_filter_verdict("block", &f, &msg), E_UNKNOWN);
	assert_non_null(strstr(msg.text, "blocked"));
	assert_int_equal(audit_filter_reason("BLOCKED", &f, &msg), E_UNKNOWN);
	assert_true(slice_eq(f.kind, SLICE("tunnel")));
}

static struct audit_record record(void)
{
	struct audit_record r = {.start_us = NOW_US};

	r.cell[AUDIT_COLUMN_HOST] = SLICE("docs.test");
	r.cell[AUDIT_COLUMN_VERDICT] = SLICE("blocked");
	r.cell[AUDIT_COLUMN_KIND] = SLICE("write");
	r.cell[AUDIT_COLUMN_REASON] = SLICE("denied");
	r.cell[AUDIT_COLUMN_METHOD] = SLICE("POST");
	r.cell[AUDIT_COLUMN_UID] = SLICE("1000");
	return r;
}

static void test_every_filter_must_let_a_line_through(void **state)
{
	static const struct {
		struct audit_filter f;
		bool want;
	} cases[] = {
		{{0}, true},
		{{.since_us = NOW_US}, true},
		{{.since_us = NOW_US + 1}, false},
		{{.until_us = NOW_US + 1}, true},
		{{.until_us = NOW_US}, false},
		{{.host = "docs.test"}, true},
		{{.host = "other.test"}, false},
		{{.verdict = {"blocked", 7}}, true},
		{{.verdict = {"allowed", 7}}, false},
		{{.kind = {"write", 5}}, true},
		{{.kind = {"read", 4}}, false},
		{{.reason = {"denied", 6}}, true},
		{{.reason = {"denie", 5}}, false},
		{{.method = {"POST", 4}}, true},
		{{.method = {"post", 4}}, false},
		{{.has_uid = true, .uid = 1000}, true},
		{{.has_uid = true, .uid = 0}, false},
		{{.kind = {"write", 5}, .verdict = {"allowed", 7}}, false},
	};
	struct audit_record r = record();

	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		if (audit_filter_match(&cases[i].f, &r) != cases[i].want)
			fail_msg("row %zu", i);
}

static void test_an_unknown_uid_is_not_root(void **state)
{
	struct audit_filter f = {.has_uid = true, .uid = 0};
	struct audit_record r = record();

	r.cell[AUDIT_COLUMN_UID] = SLICE_EMPTY;
	assert_false(audit_filter_match(&f, &r));
}

static bool context_passes(const char *filter, const char *context)
{
	struct audit_record r = record();
	struct audit_filter f = {0};
	struct errmsg msg = {""};
	bool passes;

	r.root = json_pack("{s:o}", "context", json_loads(context, JSON_DECODE_ANY, NULL));
	assert_non_null(r.root);
	assert_int_equal(audit_filter_context(filter, &f, &msg), 0);
	passes = audit_filter_match(&f, &r);
	json_decref(r.root);
	return passes;
}

static void test_context_has_the_label_with_that_value(void **state)
{
	static const struct {
		const char *filter, *context;
		bool want;
	} cases[] = {
		{"run=1", "{\"run\":\"1\"}", true},
		{"run=1", "{\"a\":\"b\",\"run\":\"1\"}", true},
		{"run=1", "{\"run\":\"12\"}", false},
		{"run=1", "{\"ru\":\"1\",\"Run\":\"1\"}", false},
		{"run=", "{\"run\":\"\"}", true},
		{"run=", "{}", false},
		{"run=1", "null", false},
		{"a=b=c", "{\"a\":\"b=c\"}", true},
	};
	static const char *const wrong[] = {"", "run", "=1"};
	struct audit_filter f = {0};
	struct errmsg msg;

	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		if (context_passes(cases[i].filter, cases[i].context) != cases[i].want)
			fail_msg("row %zu", i);
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
		assert_int_equal(audit_filter_context(wrong[i], &f, &msg), E_VALUE);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_times_are_absolute_or_before_now),
		cmocka_unit_test(test_host_is_exact_or_everything_below),
		cmocka_unit_test(test_words_come_from_the_tables),
		cmocka_unit_test(test_every_filter_must_let_a_line_through),
		cmocka_unit_test(test_an_unknown_uid_is_not_root),
		cmocka_unit_test(test_context_has_the_label_with_that_value),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
