/* The verdict about one request: the steps of the proxy, in its order, with its words. */
#include <stdlib.h>
#include <unistd.h>

#include "ctl/policy_verdict.h"
#include "policy/policy_json.h"
#include "proxy/h1.h"
#include "proxy/reply.h"
#include "tests/unit/ctl/fixture.h"

static char suffix_internal[] = "internal";
static char *suffixes[] = {suffix_internal};
static const struct private_names private = {suffixes, 1};

static const char rules[] = "{\"egress\":[{\"action\":\"deny\",\"target\":\"bad.wild.test\"},"
			    "{\"action\":\"allow\",\"target\":\"*.wild.test\"},"
			    "{\"action\":\"allow\",\"target\":\"docs.test\"},"
			    "{\"action\":\"allow\",\"target\":\"api.test\"},"
			    "{\"action\":\"allow\",\"target\":\"pinned.test\"},"
			    "{\"action\":\"allow\",\"target\":\"svc.internal\"},"
			    "{\"action\":\"allow\",\"target\":\"alt.test\",\"ports\":[8443]},"
			    "{\"action\":\"allow\",\"target\":\"10.0.0.0/8\"}]}";

struct fixture {
	struct proxy_config config;
	struct policy *policy;
	struct write_hosts *write_hosts;
	struct write_hosts *pass_through;
};

static void fixture_init(struct fixture *f)
{
	struct errmsg msg = {""};

	assert_int_equal(policy_json_decode(slice_str(rules), 0, &f->policy, &msg), 0);
	assert_int_equal(write_hosts_decode(SLICE("api.test pinned.test *.w.wild.test"),
				 &f->write_hosts, &msg),
		0);
	assert_int_equal(write_hosts_decode(SLICE("pinned.test docs-pinned.wild.test"),
				 &f->pass_through, &msg),
		0);
	f->config = (struct proxy_config){.policy = f->policy,
		.read_only = true,
		.write_hosts = f->write_hosts,
		.pass_through = f->pass_through,
		.private_names = &private};
}

static void fixture_fini(struct fixture *f)
{
	policy_unref(f->policy);
	write_hosts_free(f->write_hosts);
	write_hosts_free(f->pass_through);
}

#define A POLICY_VERDICT_ALLOWED
#define B POLICY_VERDICT_BLOCKED
#define D POLICY_VERDICT_DEPENDS

static const struct row {
	const char *method, *url, *field, *address;
	bool content;
	enum policy_verdict want;
	enum policy_step step;
	enum reason reason;
} cases[] = {
	{"GET", "https://docs.test/a?b=c#d", NULL, NULL, false, A, POLICY_STEP_REQUEST,
		REASON_ALLOWED},
	{"GET", "http://docs.test", NULL, NULL, false, A, POLICY_STEP_REQUEST, REASON_ALLOWED},
	{"POST", "https://docs.test/", NULL, NULL, false, B, POLICY_STEP_REQUEST,
		REASON_METHOD_NOT_READ},
	{"GET", "https://docs.test/", NULL, NULL, true, B, POLICY_STEP_REQUEST,
		REASON_READ_WITH_CONTENT},
	{"GET", "https://docs.test/", "X-HTTP-Method-Override: PUT", NULL, false, B,
		POLICY_STEP_REQUEST, REASON_METHOD_OVERRIDE},
	{"GET", "https://docs.test/", "Upgrade: websocket", NULL, false, B, POLICY_STEP_REQUEST,
		REASON_READ_WITH_UPGRADE},
	{"GET", "https://docs.test/", "Upgrade: h2c", NULL, false, A, POLICY_STEP_REQUEST,
		REASON_ALLOWED},
	{"TRACE", "https://api.test/", NULL, NULL, false, B, POLICY_STEP_REQUEST,
		REASON_METHOD_NOT_FORWARDED},
	{"POST", "https://api.test/", NULL, NULL, true, A, POLICY_STEP_REQUEST, REASON_WRITE_HOST},
	{"GET", "https://nope.test/", NULL, NULL, false, B, POLICY_STEP_CONNECT,
		REASON_HOST_NOT_LISTED},
	{"GET", "http://nope.test/", NULL, NULL, false, B, POLICY_STEP_REQUEST,
		REASON_HOST_NOT_LISTED},
	{"GET", "https://bad.wild.test/", NULL, NULL, false, B, POLICY_STEP_CONNECT, REASON_DENIED},
	{"GET", "https://docs.test:22/", NULL, NULL, false, B, POLICY_STEP_CONNECT,
		REASON_PORT_NOT_ALLOWED},
	{"GET", "https://alt.test:8443/", NULL, NULL, false, A, POLICY_STEP_REQUEST,
		REASON_ALLOWED},
	{"CONNECT", "docs.test:443", NULL, NULL, false, A, POLICY_STEP_CONNECT, REASON_ALLOWED},
	{"CONNECT", "docs.test:22", NULL, NULL, false, B, POLICY_STEP_CONNECT,
		REASON_PORT_NOT_ALLOWED},
	{"GET", "https://pinned.test/", NULL, NULL, false, A, POLICY_STEP_CONNECT,
		REASON_WRITE_HOST},
	{"GET", "https://docs-pinned.wild.test/", NULL, NULL, false, B, POLICY_STEP_CONNECT,
		REASON_CANNOT_INSPECT},
	{"GET", "http://10.1.2.3/", NULL, NULL, false, A, POLICY_STEP_ADDRESS, REASON_ALLOWED},
	{"PUT", "http://10.1.2.3/", NULL, NULL, false, A, POLICY_STEP_ADDRESS,
		REASON_WRITE_PRIVATE},
	{"GET", "http://169.254.169.254/", NULL, NULL, false, B, POLICY_STEP_REQUEST,
		REASON_ADDRESS_NOT_LISTED},
	{"GET", "http://0xa010203/", NULL, "10.1.2.3", false, A, POLICY_STEP_ADDRESS,
		REASON_ALLOWED},
	/* what the address decides */
	{"PUT", "http://svc.internal/", NULL, NULL, false, D, POLICY_STEP_REQUEST, REASON_ALLOWED},
	{"PUT", "http://svc.internal/", NULL, "10.1.2.3", false, A, POLICY_STEP_ADDRESS,
		REASON_WRITE_PRIVATE},
	{"PUT", "http://svc.internal/", NULL, "192.0.2.1", false, B, POLICY_STEP_ADDRESS,
		REASON_METHOD_NOT_READ},
	{"GET", "http://svc.internal/", NULL, NULL, false, A, POLICY_STEP_REQUEST, REASON_ALLOWED},
	{"GET", "https://a.wild.test/", NULL, "127.0.0.1", false, B, POLICY_STEP_ADDRESS,
		REASON_ADDRESS_REFUSED},
	{"POST", "https://a.w.wild.test/", NULL, NULL, false, A, POLICY_STEP_REQUEST,
		REASON_WRITE_HOST},
	{"POST", "https://a.w.wild.test/", NULL, "10.1.2.3", false, B, POLICY_STEP_ADDRESS,
		REASON_REBINDING_WRITE},
	{"POST", "https://a.w.wild.test/", NULL, "192.0.2.1", false, A, POLICY_STEP_ADDRESS,
		REASON_WRITE_HOST},
	/* what the parser refuses */
	{"GET", "http://docs.test/", "Foo : x", NULL, false, B, POLICY_STEP_HEAD, REASON_MALFORMED},
	{"GET", "http://docs.test/", "no colon", NULL, false, B, POLICY_STEP_HEAD,
		REASON_MALFORMED},
	{"POST", "http://api.test/", "Content-Length: 2", NULL, true, B, POLICY_STEP_HEAD,
		REASON_MALFORMED},
};

static void row_run(const struct fixture *f, size_t i)
{
	const struct row *row = &cases[i];
	struct policy_question q = {.method = slice_str(row->method),
		.url = slice_str(row->url),
		.field = &row->field,
		.n_fields = row->field ? 1 : 0,
		.content = row->content,
		.has_address = row->address != NULL};
	struct policy_answer a;
	struct errmsg msg = {""};

	if (row->address)
		assert_true(netaddr_parse(slice_str(row->address), &q.address));
	if (policy_verdict_find(&f->config, &q, &a, &msg) < 0)
		fail_msg("row %zu: %s", i, msg.text);
	if (a.verdict != row->want || a.step != row->step || a.reason != row->reason)
		fail_msg("row %zu, %s %s: verdict %d, step %d, reason %s", i, row->method, row->url,
			(int)a.verdict, (int)a.step, reason_name(a.reason));
}

static void test_each_request_gets_the_proxys_verdict(void **state)
{
	struct fixture f;

	fixture_init(&f);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		row_run(&f, i);
	fixture_fini(&f);
}

static void test_the_rule_and_the_remedy_are_named(void **state)
{
	struct policy_question q = {.method = SLICE("POST"), .url = SLICE("https://a.wild.test/")};
	struct policy_answer a;
	struct errmsg msg;
	struct strbuf b;
	struct fixture f;

	fixture_init(&f);
	assert_int_equal(policy_verdict_find(&f.config, &q, &a, &msg), 0);
	assert_string_equal(a.rule, "rule 2: allow *.wild.test");
	strbuf_init(&b, 1000);
	assert_true(policy_verdict_remedy(&a, &b));
	assert_string_equal(strbuf_cstr(&b), reply_remedy(REASON_METHOD_NOT_READ));
	assert_non_null(strstr(strbuf_cstr(&b), "AGENTIC_WRITE_HOSTS"));
	strbuf_fini(&b);
	a.reason = REASON_METHOD_NOT_FORWARDED;
	strbuf_init(&b, 1000);
	assert_false(policy_verdict_remedy(&a, &b));
	strbuf_fini(&b);
	fixture_fini(&f);
}

/* Every 403 that a request can earn says how to get by it, or is known to have no way. */
static void test_every_refusal_has_a_remedy_or_none_exists(void **state)
{
	for (int r = 0; r < REASON_MAX; r++) {
		struct policy_answer a = {.reason = (enum reason)r, .target.name = "x.test"};
		bool none = r == REASON_METHOD_NOT_FORWARDED;
		struct strbuf b;

		if (reason_status(a.reason) != 403)
			continue;
		strbuf_init(&b, 1000);
		assert_int_equal(policy_verdict_remedy(&a, &b), !none);
		strbuf_fini(&b);
	}
}

static void test_without_the_rule_only_policy_counts(void **state)
{
	struct policy_question q = {
		.method = SLICE("POST"), .url = SLICE("https://docs.test:2222/"), .content = true};
	struct policy_answer a;
	struct errmsg msg;
	struct fixture f;

	fixture_init(&f);
	f.config.read_only = false;
	assert_int_equal(policy_verdict_find(&f.config, &q, &a, &msg), 0);
	assert_int_equal(a.verdict, POLICY_VERDICT_ALLOWED);
	fixture_fini(&f);
}

static void test_undecrypted_tls_is_said(void **state)
{
	struct policy_question q = {.method = SLICE("GET"), .url = SLICE("https://api.test/")};
	struct policy_answer a;
	struct errmsg msg;
	struct fixture f;

	fixture_init(&f);
	assert_int_equal(policy_verdict_find(&f.config, &q, &a, &msg), 0);
	assert_false(a.unread);
	f.config.intercept = PROXY_INTERCEPT_OFF;
	assert_int_equal(policy_verdict_find(&f.config, &q, &a, &msg), 0);
	assert_true(a.unread);
	assert_int_equal(a.verdict, POLICY_VERDICT_ALLOWED);
	q.url = SLICE("https://docs.test/");
	assert_int_equal(policy_verdict_find(&f.config, &q, &a, &msg), 0);
	assert_int_equal(a.reason, REASON_CANNOT_INSPECT);
	fixture_fini(&f);
}

/* A vault with one binding, as egress would load it. */
static struct vault_report *report_of(const struct fixture *f)
{
	static const char doc[] = "credentials: [{name: k, source: {value: v}}]\n"
				  "bindings: [{name: model, auth: {type: bearer, credential: k},\n"
				  "  match: {hosts: [api.test, docs.test], paths: ['/v1/*']}}]\n";
	char path[] = "/tmp/egress-verdict-XXXXXX";
	struct settings s = {.vault_file = path,
		.policy = f->policy,
		.write_hosts = f->write_hosts,
		.pass_through = f->pass_through};
	struct vault_report *report = NULL;
	struct errmsg msg = {""};
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, doc, sizeof(doc) - 1), sizeof(doc) - 1);
	(void)close(fd);
	if (vault_report_new(&s, &report, &msg) < 0)
		fail_msg("%s", msg.text);
	(void)unlink(path);
	return report;
}

static void test_the_binding_that_applies_is_named(void **state)
{
	static const struct {
		const char *method, *url;
		enum vault_report_match want;
	} rows[] = {
		{"GET", "https://api.test/v1/x?q", VAULT_REPORT_BINDING},
		{"POST", "https://api.test/v1/", VAULT_REPORT_BINDING},
		/* also of a request that is refused for another reason */
		{"POST", "https://docs.test/v1/", VAULT_REPORT_BINDING},
		{"GET", "https://api.test/v2/", VAULT_REPORT_NONE},
		{"GET", "http://api.test/v1/", VAULT_REPORT_NONE},
		{"GET", "https://api.test:8443/v1/", VAULT_REPORT_NONE},
		{"HEAD", "https://api.test/v1/", VAULT_REPORT_NONE},
		{"GET", "https://a.wild.test/v1/", VAULT_REPORT_NONE},
		{"GET", "https://10.1.2.3/v1/", VAULT_REPORT_NONE},
		{"CONNECT", "api.test:443", VAULT_REPORT_NONE},
		{"GET", "https://api.test/v1/%2e%2e/x", VAULT_REPORT_PATH},
	};
	struct fixture f;
	struct vault_report *report;

	fixture_init(&f);
	report = report_of(&f);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct policy_question q = {.method = slice_str(rows[i].method),
			.url = slice_str(rows[i].url),
			.vault = report};
		struct policy_answer a;
		struct errmsg msg = {""};

		if (policy_verdict_find(&f.config, &q, &a, &msg) < 0)
			fail_msg("row %zu: %s", i, msg.text);
		if (a.match != rows[i].want)
			fail_msg("row %zu: %d", i, (int)a.match);
		assert_true(slice_eq(a.binding,
			rows[i].want == VAULT_REPORT_BINDING ? SLICE("model") : SLICE_EMPTY));
	}
	vault_report_free(report);
	fixture_fini(&f);
}

static void test_what_is_no_question_is_refused(void **state)
{
	static const struct {
		const char *method, *url, *field, *address;
	} wrong[] = {
		{"GET", "docs.test", NULL, NULL},
		{"GET", "/path", NULL, NULL},
		{"GET", "", NULL, NULL},
		{"", "http://docs.test/", NULL, NULL},
		{"GET", "ftp://docs.test/", NULL, NULL},
		{"GET", "http://docs.test/a b", NULL, NULL},
		{"GET", "http://docs.test/\r\nX: y", NULL, NULL},
		{"GET\r\n", "http://docs.test/", NULL, NULL},
		{"GET", "http://docs.test/", "A: b\r\nC: d", NULL},
		{"GET", "http://docs.test/", "Host: other.test", NULL},
		{"GET", "http://docs.test/", "hOST:other.test", NULL},
		{"GET", "http://10.1.2.3/", NULL, "10.1.2.4"},
		{"OPTIONS", "*", NULL, NULL},
		{"CONNECT", "docs.test", NULL, NULL},
		{"CONNECT", "https://docs.test/", NULL, NULL},
	};
	struct fixture f;

	fixture_init(&f);
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		struct policy_question q = {.method = slice_str(wrong[i].method),
			.url = slice_str(wrong[i].url),
			.field = &wrong[i].field,
			.n_fields = wrong[i].field ? 1 : 0,
			.has_address = wrong[i].address != NULL};
		struct policy_answer a;
		struct errmsg msg = {""};

		if (wrong[i].address)
			assert_true(netaddr_parse(slice_str(wrong[i].address), &q.address));
		if (policy_verdict_find(&f.config, &q, &a, &msg) != E_VALUE || !msg.text[0])
			fail_msg("row %zu", i);
	}
	fixture_fini(&f);
}

static void test_a_head_past_the_limit_is_too_large(void **state)
{
	static char field[H1_HEAD_MAX];
	const char *one = field;
	struct policy_question q = {.method = SLICE("GET"),
		.url = SLICE("http://docs.test/"),
		.field = &one,
		.n_fields = 1};
	struct policy_answer a;
	struct errmsg msg;
	struct fixture f;

	fixture_init(&f);
	memset(field, 'x', sizeof(field) - 1);
	memcpy(field, "X: ", 3);
	assert_int_equal(policy_verdict_find(&f.config, &q, &a, &msg), 0);
	assert_int_equal(a.reason, REASON_HEAD_TOO_LARGE);
	assert_int_equal(a.verdict, POLICY_VERDICT_BLOCKED);
	fixture_fini(&f);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_request_gets_the_proxys_verdict),
		cmocka_unit_test(test_the_rule_and_the_remedy_are_named),
		cmocka_unit_test(test_every_refusal_has_a_remedy_or_none_exists),
		cmocka_unit_test(test_without_the_rule_only_policy_counts),
		cmocka_unit_test(test_undecrypted_tls_is_said),
		cmocka_unit_test(test_the_binding_that_applies_is_named),
		cmocka_unit_test(test_what_is_no_question_is_refused),
		cmocka_unit_test(test_a_head_past_the_limit_is_too_large),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
