/* The text of a line: order, nulls, escapes, bounds; and that the docs list the same words. */
#include "audit/event_json.h"
#include "tests/unit/audit/trail.h"

#define ID "0123456789abcdef"

static char body[EVENT_JSON_MAX + 1];

static const char *body_of(const struct audit_event *e, struct slice sandbox)
{
	struct event_rec rec;
	size_t len;

	memset(&rec, 0xa5, sizeof(rec));
	event_rec_set(&rec, e);
	len = event_json_body(body, &rec, ID, sandbox, SLICE_EMPTY);
	body[len] = '\0';
	return body;
}

static void test_all_fields_stand_in_the_fixed_order(void **state)
{
	struct audit_event e = trail_event("https://docs.test/a?token=abc");

	e.addr.b[10] = e.addr.b[11] = 0xff;
	memcpy(e.addr.b + 12, "\x0a\x01\x02\x03", 4);
	e.has_addr = true;
	e.port = 443;
	e.status = 200;
	e.up = 10;
	e.down = UINT64_MAX;
	e.ms = 5;
	e.via = SLICE("connect");
	e.alpn = SLICE("h2");
	e.rule = SLICE("allow docs.test");
	e.user_agent = SLICE("curl/8");
	assert_string_equal(body_of(&e, SLICE("box")),
		"\"ts\":\"2026-01-02T03:04:05.678901Z\",\"id\":\"" ID "\",\"sandbox\":\"box\","
		"\"context\":null,"
		"\"kind\":\"read\",\"verdict\":\"allowed\",\"reason\":\"allowed\","
		"\"method\":\"GET\",\"url\":\"https://docs.test/a?token=<3>\","
		"\"host\":\"docs.test\",\"port\":443,\"addr\":\"10.1.2.3\",\"status\":200,"
		"\"up\":10,\"down\":18446744073709551615,\"ms\":5,\"via\":\"connect\","
		"\"alpn\":\"h2\",\"rule\":\"allow docs.test\",\"binding\":null,"
		"\"revision\":null,\"proof\":null,\"uid\":1000,\"user_agent\":\"curl/8\"");
}

static void test_what_is_not_known_is_null(void **state)
{
	struct audit_event e = {.kind = AUDIT_START, .uid = AUDIT_UID_NONE};

	assert_string_equal(body_of(&e, SLICE_EMPTY),
		"\"ts\":\"1970-01-01T00:00:00.000000Z\",\"id\":\"" ID "\",\"sandbox\":null,"
		"\"context\":null,"
		"\"kind\":\"start\",\"verdict\":\"allowed\",\"reason\":\"allowed\","
		"\"method\":null,\"url\":null,\"host\":null,\"port\":null,\"addr\":null,"
		"\"status\":null,\"up\":0,\"down\":0,\"ms\":0,\"via\":null,\"alpn\":null,"
		"\"rule\":null,\"binding\":null,\"revision\":null,\"proof\":null,\"uid\":null,"
		"\"user_agent\":null");
}

static void test_uid_zero_is_a_user_and_not_null(void **state)
{
	struct audit_event e = trail_event("/");

	e.uid = 0;
	assert_non_null(strstr(body_of(&e, SLICE_EMPTY), "\"uid\":0,"));
}

static void test_context_stands_behind_the_sandbox_as_it_is(void **state)
{
	struct audit_event e = trail_event("/");
	struct event_rec rec;
	size_t len;

	event_rec_set(&rec, &e);
	len = event_json_body(body, &rec, ID, SLICE("box"), SLICE("{\"run\":\"r\"}"));
	body[len] = '\0';
	assert_non_null(strstr(body, "\"sandbox\":\"box\",\"context\":{\"run\":\"r\"},\"kind\":"));
}

static void test_count_is_written_above_one_only(void **state)
{
	struct audit_event e = trail_event("/");

	for (e.count = 0; e.count < 2; e.count++)
		assert_null(strstr(body_of(&e, SLICE_EMPTY), "count"));
	assert_non_null(strstr(body_of(&e, SLICE_EMPTY), ",\"user_agent\":null,\"count\":2"));
}

static void test_text_from_outside_is_escaped(void **state)
{
	static const struct {
		const char *in, *want;
	} rows[] = {
		{"a\"b\\c", "a\\\"b\\\\c"},
		{"\x01\n\r\t\x1f", "\\u0001\\u000a\\u000d\\u0009\\u001f"},
		{"\x7f", "\\u007f"},
		{"\x1b[31m", "\\u001b[31m"},
		{"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"},
		{"\xc2\x80\xc2\x9f\xc2\xa0", "\\u0080\\u009f\xc2\xa0"},
		{"\xe2\x80\xae", "\\u202e"}, /* text runs backwards */
		{"\xe2\x80\xa8\xef\xbb\xbf", "\\u2028\\ufeff"},
		{"\x80", "\\\\x80"}, /* no start */
		{"\xff\xfe", "\\\\xff\\\\xfe"},
		{"\xc3", "\\\\xc3"}, /* ends early */
		{"\xc3(", "\\\\xc3("},
		{"\xe2\x82", "\\\\xe2\\\\x82"},
		{"\xc0\xaf", "\\\\xc0\\\\xaf"}, /* overlong */
		{"\xe0\x80\xaf", "\\\\xe0\\\\x80\\\\xaf"},
		{"\xed\xa0\x80", "\\\\xed\\\\xa0\\\\x80"}, /* surrogate */
		{"\xf4\x90\x80\x80", "\\\\xf4\\\\x90\\\\x80\\\\x80"},
		{"\xf0\x8f\xbf\xbf", "\\\\xf0\\\\x8f\\\\xbf\\\\xbf"},
	};
	struct audit_event e = trail_event("/");
	char want[256];

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		e.user_agent = slice_str(rows[i].in);
		(void)snprintf(want, sizeof(want), ",\"user_agent\":\"%s\"", rows[i].want);
		assert_true(slice_ends(slice_str(body_of(&e, SLICE_EMPTY)), slice_str(want)));
	}
	e.user_agent = slice_make("a\0b", 3);
	assert_non_null(strstr(body_of(&e, SLICE_EMPTY), "\"a\\u0000b\""));
	e.url = SLICE("http://h/\",\"verdict\":\"blocked");
	assert_non_null(strstr(
		body_of(&e, SLICE_EMPTY), "\"url\":\"http://h/\\\",\\\"verdict\\\":\\\"blocked\""));
}

static void test_texts_at_their_limit_are_whole_and_one_past_are_cut(void **state)
{
	static const struct {
		size_t offset, max;
		const char *name;
	} rows[] = {
		{offsetof(struct audit_event, method), AUDIT_METHOD_MAX, "method"},
		{offsetof(struct audit_event, host), EVENT_HOST_MAX, "host"},
		{offsetof(struct audit_event, via), EVENT_VIA_MAX, "via"},
		{offsetof(struct audit_event, alpn), EVENT_ALPN_MAX, "alpn"},
		{offsetof(struct audit_event, rule), AUDIT_RULE_MAX, "rule"},
		{offsetof(struct audit_event, user_agent), AUDIT_AGENT_MAX, "user_agent"},
	};
	char text[EVENT_HOST_MAX + 2];
	char want[EVENT_HOST_MAX + 64];

	memset(text, 'x', sizeof(text));
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct audit_event e = trail_event("/");
		struct slice *s = (void *)((char *)&e + rows[i].offset);

		*s = slice_make(text, rows[i].max);
		(void)snprintf(want, sizeof(want), "\"%s\":\"%.*s\"", rows[i].name,
			(int)rows[i].max, text);
		assert_non_null(strstr(body_of(&e, SLICE_EMPTY), want));
		*s = slice_make(text, rows[i].max + 1);
		(void)snprintf(want, sizeof(want), "\"%s\":\"%.*s\xe2\x80\xa6\"", rows[i].name,
			(int)rows[i].max, text);
		assert_non_null(strstr(body_of(&e, SLICE_EMPTY), want));
	}
}

static void test_cut_text_ends_in_a_whole_character(void **state)
{
	char text[AUDIT_AGENT_MAX + 4];
	struct audit_event e = trail_event("/");

	memset(text, 'x', sizeof(text));
	memcpy(text + AUDIT_AGENT_MAX - 2, "\xe2\x82\xac", 3);
	e.user_agent = slice_make(text, sizeof(text));
	assert_non_null(strstr(body_of(&e, SLICE_EMPTY), "x\xe2\x80\xa6\""));
	assert_null(strstr(body, "\\\\x"));
}

static void test_worst_text_fits_the_bound(void **state)
{
	static char text[70000];
	struct audit_event e = trail_event("/");
	struct slice all = slice_make(text, sizeof(text));
	struct event_rec rec;
	size_t len;

	memset(text, 1, sizeof(text));
	memset(&e.addr, 0xfe, sizeof(e.addr));
	e.method = e.url = e.host = e.via = e.alpn = e.rule = e.user_agent = all;
	e.binding = e.proof = all;
	e.revision = UINT64_MAX;
	e.has_addr = true;
	e.port = e.status = UINT16_MAX;
	e.up = e.down = e.ms = UINT64_MAX;
	e.count = UINT32_MAX;
	e.uid = UINT32_MAX - 1;
	e.reason = REASON_ALLOWED_BY_DEFAULT;
	event_rec_set(&rec, &e);
	len = event_json_body(body, &rec, ID, all, slice_make(text, AUDIT_CONTEXT_MAX));
	assert_true(len < EVENT_JSON_MAX);
	assert_true(len > EVENT_JSON_MAX - 1024);
}

static void test_userinfo_and_secrets_reach_no_line(void **state)
{
	static const char *const urls[] = {
		"https://user:S3cr3t@read.test/",
		"http://h/?token=S3cr3t&x=1",
		"http://h/a;jsessionid=S3cr3t",
		"user:S3cr3t@h:443",
	};

	for (size_t i = 0; i < ARRAY_LEN(urls); i++) {
		struct audit_event e = trail_event(urls[i]);

		assert_null(strstr(body_of(&e, SLICE_EMPTY), "S3cr3t"));
	}
}

/* The docs' rows, printed when they differ so that they can be put there. */
static void docs_row(const char *docs, const char *row, int *missing)
{
	if (strstr(docs, row))
		return;
	print_message("docs/audit-log.md lacks: %s", row);
	(*missing)++;
}

static void test_docs_list_every_word_and_no_other(void **state)
{
	static const char *const secrets[] = {
#define X(name) name,
		URL_SECRET_TABLE(X)
#undef X
	};
	size_t len;
	char *docs = trail_read(DOCS_DIR "/audit-log.md", &len);
	char row[256];
	int missing = 0;
	char *end;

	for (int i = 0; i < REASON_MAX; i++) {
		const char *name = reason_name((enum reason)i);
		int status = reason_status((enum reason)i);
		char text[8] = "-";

		if (status)
			(void)snprintf(text, sizeof(text), "%d", status);
		(void)snprintf(row, sizeof(row), "| `%s` | %s | %s |\n", name, text,
			reason_text((enum reason)i));
		docs_row(docs, row, &missing);
	}
	for (int i = 0; i < AUDIT_KIND_MAX; i++) {
		(void)snprintf(
			row, sizeof(row), "| kind `%s` |", event_kind_name((enum audit_kind)i));
		docs_row(docs, row, &missing);
	}
	for (int i = 0; i < AUDIT_VERDICT_MAX; i++) {
		(void)snprintf(row, sizeof(row), "| verdict `%s` |",
			event_verdict_name((enum audit_verdict)i));
		docs_row(docs, row, &missing);
	}
	for (size_t i = 0; i < ARRAY_LEN(secrets); i++) {
		(void)snprintf(row, sizeof(row), "- `%s`\n", secrets[i]);
		docs_row(docs, row, &missing);
	}
	assert_int_equal(missing, 0);
	assert_int_equal(trail_count(docs, "\n| kind `"), AUDIT_KIND_MAX);
	assert_int_equal(trail_count(docs, "\n| verdict `"), AUDIT_VERDICT_MAX);
	assert_int_equal(trail_count(docs, "\n- `"), ARRAY_LEN(secrets));
	end = strstr(docs, "## What a URL shows");
	assert_non_null(end);
	*end = '\0';
	assert_int_equal(trail_count(strstr(docs, "### Reasons"), "\n| `"), REASON_MAX);
	free(docs);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_fields_stand_in_the_fixed_order),
		cmocka_unit_test(test_what_is_not_known_is_null),
		cmocka_unit_test(test_uid_zero_is_a_user_and_not_null),
		cmocka_unit_test(test_context_stands_behind_the_sandbox_as_it_is),
		cmocka_unit_test(test_count_is_written_above_one_only),
		cmocka_unit_test(test_text_from_outside_is_escaped),
		cmocka_unit_test(test_texts_at_their_limit_are_whole_and_one_past_are_cut),
		cmocka_unit_test(test_cut_text_ends_in_a_whole_character),
		cmocka_unit_test(test_worst_text_fits_the_bound),
		cmocka_unit_test(test_userinfo_and_secrets_reach_no_line),
		cmocka_unit_test(test_docs_list_every_word_and_no_other),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
