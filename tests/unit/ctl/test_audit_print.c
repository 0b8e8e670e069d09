/* The table and the CSV. */
#include "ctl/audit_print.h"

#include "tests/unit/ctl/fixture.h"

static void printed(const struct audit_event *e, bool csv, bool color, const char *want)
{
	char *line = fixture_line(e);
	struct audit_record r;
	struct errmsg msg = {""};
	struct strbuf b;

	assert_int_equal(audit_record_decode(slice_str(line), &r, &msg), 0);
	strbuf_init(&b, AUDIT_PRINT_MAX);
	if (csv)
		audit_print_csv_row(&b, &r);
	else
		audit_print_table_row(&b, &r, color);
	fixture_text(&b, want);
	strbuf_fini(&b);
	audit_record_fini(&r);
	free(line);
}

static void test_the_table_has_its_columns_in_place(void **state)
{
	struct audit_event e = fixture_event();
	struct strbuf b;

	strbuf_init(&b, 1000);
	audit_print_table_head(&b);
	fixture_text(&b,
		"TIME (UTC)              VERDICT KIND      METHOD  STATUS "
		"URL                                              REASON\n");
	strbuf_fini(&b);
	printed(&e, false, false,
		"2026-01-02 03:04:05.678 allowed read      GET     200    "
		"https://docs.test/a                              allowed\n");
	e.count = 40;
	e.verdict = AUDIT_BLOCKED;
	e.reason = REASON_HOST_NOT_LISTED;
	printed(&e, false, false,
		"2026-01-02 03:04:05.678 blocked read      GET     200    "
		"https://docs.test/a                              host_not_listed x40\n");
}

static void test_lines_without_url_say_what_they_are_about(void **state)
{
	struct audit_event e = fixture_event();

	e.method = e.url = e.host = SLICE_EMPTY;
	e.status = 0;
	e.kind = AUDIT_START;
	e.rule = SLICE("egress 1");
	printed(&e, false, false,
		"2026-01-02 03:04:05.678 allowed start     -       -      "
		"egress 1                                         allowed\n");
	e.rule = SLICE_EMPTY;
	printed(&e, false, false,
		"2026-01-02 03:04:05.678 allowed start     -       -      "
		"-                                                allowed\n");
	e.host = SLICE("docs.test");
	printed(&e, false, false,
		"2026-01-02 03:04:05.678 allowed start     -       -      "
		"docs.test                                        allowed\n");
}

static void test_verdicts_have_colours_when_asked_for(void **state)
{
	static const struct {
		enum audit_verdict verdict;
		const char *want;
	} cases[] = {
		{AUDIT_ALLOWED, "2026-01-02 03:04:05.678 \033[32mallowed \033[0mread"},
		{AUDIT_BLOCKED, "2026-01-02 03:04:05.678 \033[31mblocked \033[0mread"},
		{AUDIT_FAILED, "2026-01-02 03:04:05.678 \033[33mfailed  \033[0mread"},
		{AUDIT_OPEN, "2026-01-02 03:04:05.678 \033[33mopen    \033[0mread"},
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct audit_event e = fixture_event();
		struct audit_record r;
		struct errmsg msg;
		struct strbuf b;
		char *line;

		e.verdict = cases[i].verdict;
		line = fixture_line(&e);
		assert_int_equal(audit_record_decode(slice_str(line), &r, &msg), 0);
		strbuf_init(&b, AUDIT_PRINT_MAX);
		audit_print_table_row(&b, &r, true);
		assert_true(slice_starts(strbuf_slice(&b), slice_str(cases[i].want)));
		strbuf_fini(&b);
		audit_record_fini(&r);
		free(line);
	}
}

static void test_a_url_cannot_colour_the_terminal(void **state)
{
	struct audit_event e = fixture_event();

	e.url = SLICE("http://docs.test/\033[31m");
	printed(&e, false, false,
		"2026-01-02 03:04:05.678 allowed read      GET     200    "
		"http://docs.test/\\u001b[31m                      allowed\n");
}

static void test_csv_has_every_field_and_no_formula(void **state)
{
	struct audit_event e = fixture_event();
	struct strbuf b;

	strbuf_init(&b, 1000);
	audit_print_csv_head(&b);
	fixture_text(&b,
		"seq,ts,id,sandbox,context,kind,verdict,reason,method,url,host,port,addr,status,up,"
		"down,ms,"
		"via,alpn,rule,binding,revision,proof,uid,user_agent,count,prev\r\n");
	strbuf_fini(&b);
	e.user_agent = SLICE("=HYPERLINK(\"http://x\",1)");
	printed(&e, true, false,
		"5,2026-01-02T03:04:05.678901Z,00000000000000a1,box,,read,allowed,allowed,GET,"
		"https://docs.test/a,docs.test,443,,200,100,2000,7,connect,http/1.1,"
		"rule 1: allow docs.test,,,,1000,\"'=HYPERLINK(\"\"http://x\"\",1)\",," FIXTURE_PREV
		"\r\n");
}

static void test_colours_need_a_terminal_and_a_reader_who_wants_them(void **state)
{
	static const struct {
		bool terminal;
		char *env[3];
		bool want;
	} cases[] = {
		{true, {"TERM=xterm"}, true},
		{false, {"TERM=xterm"}, false},
		{true, {"TERM=dumb"}, false},
		{true, {NULL}, false},
		{true, {"TERM=xterm", "NO_COLOR=1"}, false},
		{true, {"TERM=xterm", "NO_COLOR="}, true},
		{true, {"TERM=xterm", "NO_COLORS=1"}, true},
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		assert_int_equal(audit_print_color(cases[i].terminal, cases[i].env), cases[i].want);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_table_has_its_columns_in_place),
		cmocka_unit_test(test_lines_without_url_say_what_they_are_about),
		cmocka_unit_test(test_verdicts_have_colours_when_asked_for),
		cmocka_unit_test(test_a_url_cannot_colour_the_terminal),
		cmocka_unit_test(test_csv_has_every_field_and_no_formula),
		cmocka_unit_test(test_colours_need_a_terminal_and_a_reader_who_wants_them),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
