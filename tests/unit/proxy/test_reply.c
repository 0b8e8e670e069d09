/* Our own answers: every reason that has a status, in text and JSON; nothing that a client wrote
 * comes back; the line of the trail that an answer names. */
#include "base/arena.h"
#include "proxy/reply.h"
#include "tests/unit/proxy/bed.h"

/* What the driver was told. */
struct answer {
	unsigned int heads, ends;
	uint16_t status;
	char phrase[64], fields[1024], body[4096];
	size_t body_len;
	enum h1_framing framing;
	uint64_t length;
};

static void on_head(void *driver, const struct h1_head *h)
{
	struct answer *a = driver;

	a->heads++;
	a->status = h->status;
	(void)snprintf(a->phrase, sizeof(a->phrase), "%.*s", SLICE_FMT(h->reason));
	a->framing = h->framing;
	a->length = h->length;
	for (size_t i = 0; i < h->fields.n; i++) {
		size_t n = strlen(a->fields);

		(void)snprintf(a->fields + n, sizeof(a->fields) - n, "%.*s: %.*s\n",
			SLICE_FMT(h->fields.v[i].name), SLICE_FMT(h->fields.v[i].value));
	}
}

static void on_body(void *driver, struct slice content)
{
	struct answer *a = driver;

	assert_true(a->body_len + content.len < sizeof(a->body));
	memcpy(a->body + a->body_len, content.p, content.len);
	a->body_len += content.len;
}

static void on_end(void *driver, const struct fields *trailers)
{
	struct answer *a = driver;

	assert_null(trailers);
	a->ends++;
}

static const struct client_ops ops = {.head = on_head, .body = on_body, .end = on_end};

struct question {
	enum reason reason;
	const char *method, *target, *accept, *detail, *rule;
	bool is_head;
};

static struct bed *bed;
static struct peer peer;
static struct session *session;

static int setup(void **state)
{
	bed_setup_pki(state);
	bed = bed_new("");
	session = peer_client(bed, &peer);
	return 0;
}

static int teardown(void **state)
{
	bed_close(bed);
	peer_close(bed, &peer);
	bed_free(bed);
	return bed_teardown_pki(state);
}

static void ask(const struct question *q, struct answer *a)
{
	struct exchange *ex = exchange_new(session, &ops, a);

	memset(a, 0, sizeof(*a));
	ex->reason = q->reason;
	ex->detail = q->detail;
	ex->is_head = q->is_head;
	if (q->method)
		ex->method = slice_str(q->method);
	if (q->target)
		assert_int_equal(authority_decode(slice_str(q->target), &ex->target), 0);
	if (q->accept)
		ex->accept = slice_str(q->accept);
	if (q->rule) {
		ex->rule_len = strlen(q->rule);
		memcpy(ex->rule, q->rule, ex->rule_len + 1);
	}
	reply_send(ex);
	assert_int_equal(a->heads, 1);
	assert_int_equal(a->ends, 1);
	exchange_free(ex);
}

static bool holds(const char *text, const char *what)
{
	return strstr(text, what) != NULL;
}

static void check_begins(const char *text, const char *begin)
{
	if (strncmp(text, begin, strlen(begin)) != 0)
		fail_msg("wanted: %s\ncame: %s", begin, text);
}

static void test_every_reason_with_a_status(void **state)
{
	static const struct {
		int status;
		const char *phrase;
	} phrases[] = {{400, "Bad Request"}, {403, "blocked"}, {408, "Request Timeout"},
		{417, "Expectation Failed"}, {431, "Request Header Fields Too Large"},
		{502, "Bad Gateway"}, {503, "Service Unavailable"}, {504, "Gateway Timeout"}};
	size_t n = 0;

	for (int r = 0; r < REASON_MAX; r++) {
		struct question q = {.reason = (enum reason)r,
			.method = "POST",
			.target = "a.test:443",
			.rule = "rule 1: allow x"};
		int status = reason_status(q.reason);
		char begin[512], line[128];
		struct answer a;
		size_t i = 0;

		if (status == 0)
			continue;
		n++;
		ask(&q, &a);
		assert_int_equal(a.status, status);
		while (i < ARRAY_LEN(phrases) && phrases[i].status != status)
			i++;
		assert_true(i < ARRAY_LEN(phrases));
		assert_string_equal(a.phrase, phrases[i].phrase);
		assert_int_equal(a.framing, H1_LENGTH);
		assert_int_equal(a.length, a.body_len);
		(void)snprintf(begin, sizeof(begin), "%d %s: POST a.test:443: %s", status, a.phrase,
			reason_text(q.reason));
		check_begins(a.body, begin);
		assert_ptr_equal(strchr(a.body, '\n'), a.body + a.body_len - 1);
		(void)snprintf(line, sizeof(line), "X-Egress-Reason: %s\n", reason_name(q.reason));
		assert_true(holds(a.fields, line));
		assert_true(holds(a.fields,
			status < 500 ? "X-Egress-Verdict: blocked\n"
				     : "X-Egress-Verdict: failed\n"));
		assert_true(holds(a.fields, "Content-Type: text/plain; charset=utf-8\n"));
		assert_true(holds(a.fields, "X-Egress-Decision: "));
		assert_int_equal(holds(a.fields, "Retry-After: 1\n"), status == 503);
	}
	assert_true(n > 25);
}

static void test_refusal_says_the_rule_and_what_would_allow_it(void **state)
{
	static const struct {
		enum reason reason;
		const char *rule, *want;
	} rows[] = {
		{REASON_HOST_NOT_LISTED, "default action: deny",
			"; default action: deny; an allow rule for this host in the policy would "
			"allow it\n"},
		{REASON_DENIED, "rule 2: deny a.test",
			"; rule 2: deny a.test; without this rule, and with one that allows it, it "
			"would pass\n"},
		{REASON_ADDRESS_NOT_LISTED, "default action: deny",
			"; default action: deny; an IP or CIDR rule for the address in the policy "
			"would allow it\n"},
		{REASON_METHOD_NOT_READ, "rule 1: allow a.test",
			"; read-only rule; naming the host in AGENTIC_WRITE_HOSTS would allow "
			"it\n"},
		{REASON_CANNOT_INSPECT, "rule 1: allow a.test",
			"; read-only rule; naming the host in AGENTIC_WRITE_HOSTS would allow "
			"it\n"},
		{REASON_PORT_NOT_ALLOWED, "rule 1: allow a.test",
			"; rule 1: allow a.test; a rule that lists this port would allow it\n"},
		{REASON_NAME_MISMATCH, "rule 1: allow a.test",
			"must be one name; use one name in CONNECT, SNI and Host\n"},
		{REASON_REBINDING_WRITE, "rule 1: allow a.test", "EGRESS_PRIVATE_NAMES"},
		{REASON_METHOD_NOT_FORWARDED, "rule 1: allow a.test", "never forwarded\n"},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct answer a;

		ask(&(struct question){.reason = rows[i].reason,
			    .method = "POST",
			    .target = "a.test:443",
			    .rule = rows[i].rule},
			&a);
		if (!holds(a.body, rows[i].want))
			fail_msg("%s", a.body);
	}
}

static void test_json_only_where_accept_names_it(void **state)
{
	static const struct {
		const char *accept;
		bool json;
	} rows[] = {
		{NULL, false},
		{"*/*", false},
		{"text/html, */*;q=0.8", false},
		{"application/*", false},
		{"application/json", true},
		{"APPLICATION/JSON", true},
		{"text/html, application/json;q=0.5", true},
		{"application/json ; charset=utf-8", true},
		{"application/problem+json", true},
		{"application/vnd.a+JSON;q=1", true},
		{"+json", false},
		{"application/jsonx", false},
		{"application/json-seq", false},
		{"x;y=\"application/json\"", false},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct answer a;
		bool json;

		ask(&(struct question){.reason = REASON_HOST_NOT_LISTED,
			    .method = "GET",
			    .target = "a.test:443",
			    .accept = rows[i].accept},
			&a);
		json = holds(a.fields, "Content-Type: application/json\n");
		if (json != rows[i].json)
			fail_msg("row %zu", i);
		if (json)
			check_begins(a.body,
				"{\"code\":\"host_not_listed\",\"message\":\"403 "
				"blocked: GET a.test:443: ");
		if (json)
			assert_string_equal(a.body + a.body_len - 3, "\"}\n");
	}
}

static void test_json_is_escaped(void **state)
{
	struct answer a;

	ask(&(struct question){.reason = REASON_DENIED,
		    .method = "GET",
		    .target = "a.test:443",
		    .accept = "application/json",
		    .rule = "rule 1: \"x\\y\" \x01\xc3\xa4"},
		&a);
	assert_true(holds(a.body, "rule 1: \\\"x\\\\y\\\" \\u0001\\u00c3\\u00a4; "));
}

/* A target that could not be read leaves the exchange without one; the rest is canonical. */
static void test_nothing_of_a_malformed_request_is_reflected(void **state)
{
	struct answer a;

	ask(&(struct question){.reason = REASON_MALFORMED,
		    .method = "GET",
		    .detail = "the request target is malformed"},
		&a);
	assert_string_equal(a.body,
		"400 Bad Request: the request is malformed or ambiguous (the "
		"request target is malformed)\n");
}

static void test_method_that_is_too_long_is_left_out(void **state)
{
	static const char *const methods[] = {
		"AAAAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAAAAA"};

	for (size_t i = 0; i < ARRAY_LEN(methods); i++) {
		struct answer a;

		ask(&(struct question){.reason = REASON_DENIED,
			    .method = methods[i],
			    .target = "a.test:443"},
			&a);
		assert_int_equal(holds(a.body, methods[0]), i == 0);
	}
}

static void test_answer_to_head_has_no_content(void **state)
{
	struct answer a;

	ask(&(struct question){.reason = REASON_DENIED,
		    .method = "HEAD",
		    .target = "a.test:443",
		    .is_head = true},
		&a);
	assert_int_equal(a.body_len, 0);
	assert_int_equal(a.framing, H1_NO_CONTENT);
	assert_int_equal(a.status, 403);
}

/* The longest of everything is cut, not overrun. */
static void test_long_rule_and_host_fit(void **state)
{
	char host[300], rule[RULE_TEXT_MAX];
	struct answer a;

	for (size_t i = 0; i < 250; i++)
		host[i] = i % 50 == 49 ? '.' : 'a';
	memcpy(host + 250, "a:65535", 8);
	memset(rule, 'r', sizeof(rule) - 1);
	rule[sizeof(rule) - 1] = '\0';
	for (int json = 0; json < 2; json++) {
		ask(&(struct question){.reason = REASON_DENIED,
			    .method = "GET",
			    .target = host,
			    .rule = rule,
			    .accept = json ? "application/json" : NULL},
			&a);
		assert_true(holds(a.body, rule));
		assert_true(holds(a.body, "it would pass"));
	}
}

static void test_answer_names_its_line(void **state)
{
	char want[64];
	struct answer a;
	const char *id;

	bed_pass(bed, 2000); /* refusals before are past their second: this one is no summary */
	ask(
		&(struct question){
			.reason = REASON_EXPECTATION, .method = "GET", .target = "named.test:443"},
		&a);
	id = strstr(a.fields, "X-Egress-Decision: ");
	assert_non_null(id);
	(void)snprintf(want, sizeof(want), "\"id\":\"%.16s\"", id + 19);
	bed_close(bed);
	for (size_t i = 0; i < bed_n_lines(bed); i++) {
		struct slice rest = slice_str(bed->trail), line = SLICE_EMPTY;

		for (size_t k = 0; k <= i; k++)
			line = slice_cut(&rest, '\n');
		if (slice_find(line, slice_str(want)) == line.len)
			continue;
		BED_LINE(bed, i, "\"verdict\":\"blocked\"", "\"reason\":\"expectation_failed\"",
			"\"host\":\"named.test\"", "\"status\":417", "\"via\":\"proxy\"");
		return;
	}
	fail_msg("no line %s in %s", want, bed->trail);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_reason_with_a_status),
		cmocka_unit_test(test_refusal_says_the_rule_and_what_would_allow_it),
		cmocka_unit_test(test_json_only_where_accept_names_it),
		cmocka_unit_test(test_json_is_escaped),
		cmocka_unit_test(test_nothing_of_a_malformed_request_is_reflected),
		cmocka_unit_test(test_method_that_is_too_long_is_left_out),
		cmocka_unit_test(test_answer_to_head_has_no_content),
		cmocka_unit_test(test_long_rule_and_host_fit),
		cmocka_unit_test(test_answer_names_its_line),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
