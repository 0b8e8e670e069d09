/* The one decision, by tables: requests (policy, rule, ports, write hosts, pinned names, literal
 * addresses), CONNECT (the table of the design), tunnels, and the address that is connected to. */
#include "proxy/admit.h"
#include "proxy/h1.h"
#include "tests/unit/policy/fixture.h"

#define RULES                                                                                  \
	"allow read.test; allow port.test 8443; allow *.wild.test; deny bad.test; "            \
	"allow write.test; allow 10.0.0.0/8; allow 192.0.2.7; allow db.internal; allow lone; " \
	"deny 10.66.0.0/16"
#define WRITE_HOSTS "write.test *.wild.test 192.0.2.7"

static char *suffixes[] = {"internal"};
static const struct private_names privates = {suffixes, 1};

struct setting {
	struct proxy_config config;
	struct write_hosts *write;
};

static void setting_init(struct setting *s, bool read_only, bool default_allow)
{
	struct errmsg msg = {""};

	memset(s, 0, sizeof(*s));
	if (write_hosts_decode(SLICE(WRITE_HOSTS), &s->write, &msg) < 0)
		fail_msg("%s", msg.text);
	s->config = (struct proxy_config){
		.policy = fixture_policy(default_allow, RULES),
		.read_only = read_only,
		.write_hosts = s->write,
		.private_names = &privates,
		.extra_ports = {3000},
		.n_extra_ports = 1,
	};
}

static void setting_fini(struct setting *s)
{
	policy_unref(s->config.policy);
	write_hosts_free(s->write);
}

static struct authority target_of(const char *text)
{
	struct authority a;

	if (authority_decode(slice_str(text), &a) < 0)
		fail_msg("%s", text);
	assert_true(a.has_port);
	return a;
}

/* A request as the parsers would hand it over. */
struct request {
	char text[512];
	struct h1_head head;
	struct request_target form;
	struct authority target, pinned;
};

static void request_init(
	struct request *r, const char *line, const char *target, const char *fields)
{
	(void)snprintf(r->text, sizeof(r->text), "%s HTTP/1.1\r\nHost: x\r\n%s\r\n", line, fields);
	assert_int_equal(h1_request_decode(slice_str(r->text), &r->head), H1_OK);
	assert_int_equal(request_target_decode(r->head.method, r->head.target, &r->form), 0);
	r->target = target_of(target);
}

static struct admission decide(const struct setting *s, const struct admit_request *a)
{
	struct admission out;

	memset(&out, 0xff, sizeof(out));
	admit_request(&s->config, a, &out);
	return out;
}

static void test_requests_by_policy_rule_port_and_write_hosts(void **state)
{
	static const struct {
		const char *line, *target, *fields;
		enum reason open;      /* without the rule */
		enum reason read_only; /* with it */
		bool address_decides;  /* with the rule: leave to write comes from the address */
	} rows[] = {
		/* reach */
		{"GET /", "read.test:443", "", REASON_ALLOWED, REASON_ALLOWED, false},
		{"GET /", "else.test:443", "", REASON_HOST_NOT_LISTED, REASON_HOST_NOT_LISTED,
			false},
		{"GET /", "bad.test:443", "", REASON_DENIED, REASON_DENIED, false},
		{"GET /", "10.1.2.3:443", "", REASON_ALLOWED, REASON_ALLOWED, false},
		{"GET /", "10.66.0.1:443", "", REASON_DENIED, REASON_DENIED, false},
		{"GET /", "192.0.2.8:443", "", REASON_ADDRESS_NOT_LISTED, REASON_ADDRESS_NOT_LISTED,
			false},
		{"GET /", "127.0.0.1:443", "", REASON_ADDRESS_NOT_LISTED, REASON_ADDRESS_NOT_LISTED,
			false},
		/* methods */
		{"HEAD /", "read.test:80", "", REASON_ALLOWED, REASON_ALLOWED, false},
		{"OPTIONS *", "read.test:80", "", REASON_ALLOWED, REASON_ALLOWED, false},
		{"POST /", "read.test:443", "Content-Length: 3\r\n", REASON_ALLOWED,
			REASON_METHOD_NOT_READ, false},
		{"get /", "read.test:443", "", REASON_ALLOWED, REASON_METHOD_NOT_READ, false},
		{"GET /", "read.test:443", "Content-Length: 1\r\n", REASON_ALLOWED,
			REASON_READ_WITH_CONTENT, false},
		{"GET /", "read.test:443", "Content-Length: 0\r\n", REASON_ALLOWED, REASON_ALLOWED,
			false},
		{"GET /", "read.test:443", "Transfer-Encoding: chunked\r\n", REASON_ALLOWED,
			REASON_READ_WITH_CONTENT, false},
		{"GET /", "read.test:443", "Trailer: x\r\n", REASON_ALLOWED,
			REASON_READ_WITH_CONTENT, false},
		{"GET /", "read.test:443", "a: b\r\nX_HTTP_Method_Override: PUT\r\nc: d\r\n",
			REASON_ALLOWED, REASON_METHOD_OVERRIDE, false},
		{"GET /?a=b&_method=put", "read.test:443", "", REASON_ALLOWED,
			REASON_METHOD_OVERRIDE, false},
		{"TRACE /", "read.test:443", "", REASON_METHOD_NOT_FORWARDED,
			REASON_METHOD_NOT_FORWARDED, false},
		{"trace /", "read.test:443", "", REASON_METHOD_NOT_FORWARDED,
			REASON_METHOD_NOT_FORWARDED, false},
		{"TRACK /", "write.test:443", "", REASON_METHOD_NOT_FORWARDED,
			REASON_METHOD_NOT_FORWARDED, false},
		{"TRACE /", "else.test:443", "", REASON_HOST_NOT_LISTED, REASON_HOST_NOT_LISTED,
			false},
		{"POST /a/git-upload-pack", "read.test:443",
			"Content-Type: application/x-git-upload-pack-request\r\n"
			"Content-Length: 4\r\n",
			REASON_ALLOWED, REASON_METHOD_NOT_READ, false},
		/* ports: named by nobody, an extra one, one that a rule names */
		{"GET /", "read.test:8080", "", REASON_ALLOWED, REASON_PORT_NOT_ALLOWED, false},
		{"GET /", "read.test:3000", "", REASON_ALLOWED, REASON_ALLOWED, false},
		{"GET /", "read.test:3001", "", REASON_ALLOWED, REASON_PORT_NOT_ALLOWED, false},
		{"GET /", "port.test:8443", "", REASON_ALLOWED, REASON_ALLOWED, false},
		{"GET /", "port.test:443", "", REASON_HOST_NOT_LISTED, REASON_HOST_NOT_LISTED,
			false},
		{"GET /", "write.test:9000", "", REASON_ALLOWED, REASON_WRITE_HOST, true},
		{"GET /", "10.1.2.3:9000", "", REASON_ALLOWED, REASON_WRITE_PRIVATE, true},
		{"GET /", "db.internal:5432", "", REASON_ALLOWED, REASON_ALLOWED, true},
		/* where writes may go */
		{"PUT /", "write.test:443", "Content-Length: 1\r\n", REASON_ALLOWED,
			REASON_WRITE_HOST, true},
		{"POST /", "a.wild.test:443", "", REASON_ALLOWED, REASON_WRITE_HOST, true},
		{"DELETE /", "10.1.2.3:80", "", REASON_ALLOWED, REASON_WRITE_PRIVATE, true},
		{"POST /", "192.0.2.7:443", "", REASON_ALLOWED, REASON_WRITE_HOST, true},
		{"POST /", "db.internal:443", "", REASON_ALLOWED, REASON_ALLOWED, true},
		{"POST /", "lone:443", "", REASON_ALLOWED, REASON_ALLOWED, true},
	};

	for (int rule = 0; rule < 2; rule++) {
		struct setting s;

		setting_init(&s, rule, false);
		for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
			enum reason want = rule ? rows[i].read_only : rows[i].open;
			struct request r;
			struct admission out;

			request_init(&r, rows[i].line, rows[i].target, rows[i].fields);
			out = decide(&s,
				&(struct admit_request){
					.target = &r.target, .head = &r.head, .form = &r.form});
			if (out.reason != want || out.allow != reason_allows(want) ||
				(out.allow && out.write != (rule && rows[i].address_decides)))
				fail_msg("row %zu, rule %d: %s, write %d", i, rule,
					reason_name(out.reason), out.write);
		}
		setting_fini(&s);
	}
}

static void test_upgrade_is_no_read(void **state)
{
	struct setting s;
	struct request r;
	struct admission out;

	setting_init(&s, true, false);
	request_init(&r, "GET /", "read.test:443", "");
	out = decide(&s,
		&(struct admit_request){
			.target = &r.target, .head = &r.head, .form = &r.form, .upgrade = true});
	assert_int_equal(out.reason, REASON_READ_WITH_UPGRADE);
	assert_int_equal(out.kind, AUDIT_WRITE);
	s.config.read_only = false;
	out = decide(&s,
		&(struct admit_request){
			.target = &r.target, .head = &r.head, .form = &r.form, .upgrade = true});
	assert_int_equal(out.reason, REASON_ALLOWED);
	assert_int_equal(out.kind, AUDIT_WRITE);
	setting_fini(&s);
}

static void test_kind_says_read_only_of_what_reads(void **state)
{
	static const struct {
		const char *line, *fields;
		bool git_fetch;
		enum audit_kind want;
	} rows[] = {
		{"GET /", "", false, AUDIT_READ},
		{"HEAD /", "", false, AUDIT_READ},
		{"OPTIONS /", "", false, AUDIT_READ},
		{"PROPFIND /", "", false, AUDIT_WRITE},
		{"GET /", "Content-Length: 2\r\n", false, AUDIT_WRITE},
		{"GET /?_method=PUT", "", false, AUDIT_WRITE},
		{"POST /r/git-upload-pack",
			"Content-Type: application/x-git-upload-pack-request\r\n", false,
			AUDIT_WRITE},
		{"POST /r/git-upload-pack",
			"Content-Type: application/x-git-upload-pack-request\r\n", true,
			AUDIT_READ},
	};

	for (int rule = 0; rule < 2; rule++) {
		struct setting s;

		setting_init(&s, rule, false);
		for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
			struct request r;
			struct admission out;

			s.config.git_fetch = rows[i].git_fetch;
			request_init(&r, rows[i].line, "read.test:443", rows[i].fields);
			out = decide(&s,
				&(struct admit_request){
					.target = &r.target, .head = &r.head, .form = &r.form});
			if (out.kind != rows[i].want)
				fail_msg("row %zu, rule %d", i, rule);
		}
		setting_fini(&s);
	}
}

static void test_git_fetch_is_allowed_where_the_setting_says_so(void **state)
{
	struct setting s;
	struct request r;
	struct admission out;

	setting_init(&s, true, false);
	s.config.git_fetch = true;
	request_init(&r, "POST /r.git/git-upload-pack", "read.test:443",
		"Content-Type: application/x-git-upload-pack-request\r\nContent-Length: 9\r\n");
	out = decide(
		&s, &(struct admit_request){.target = &r.target, .head = &r.head, .form = &r.form});
	assert_int_equal(out.reason, REASON_GIT_FETCH);
	assert_true(out.allow && !out.write);
	setting_fini(&s);
}

static void test_one_name_and_one_port_or_none(void **state)
{
	static const struct {
		const char *target, *pinned;
		uint16_t port;
		enum reason want;
	} rows[] = {
		{"read.test:443", "read.test:443", 443, REASON_ALLOWED},
		{"READ.test:443", "read.test:443", 443, REASON_ALLOWED},
		{"read.test:443", "read.test:443", 0, REASON_ALLOWED},
		{"read.test:443", NULL, 443, REASON_ALLOWED},
		{"read.test:443", "write.test:443", 443, REASON_NAME_MISMATCH},
		{"else.test:443", "read.test:443", 443, REASON_NAME_MISMATCH},
		{"read.test:443", "read.test:8443", 443, REASON_NAME_MISMATCH},
		{"read.test:80", "read.test:443", 443, REASON_NAME_MISMATCH},
		{"read.test:80", NULL, 443, REASON_NAME_MISMATCH},
		{"read.test:443", "10.0.0.1:443", 443, REASON_NAME_MISMATCH},
		{"10.0.0.1:443", "10.0.0.1:443", 443, REASON_ALLOWED},
		{"[::ffff:10.0.0.1]:443", "10.0.0.1:443", 443, REASON_ALLOWED},
		{"10.0.0.2:443", "10.0.0.1:443", 443, REASON_NAME_MISMATCH},
	};
	struct setting s;

	setting_init(&s, true, false);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct request r;
		struct admission out;

		request_init(&r, "GET /", rows[i].target, "");
		if (rows[i].pinned)
			r.pinned = target_of(rows[i].pinned);
		out = decide(&s,
			&(struct admit_request){.target = &r.target,
				.head = &r.head,
				.form = &r.form,
				.port = rows[i].port,
				.pinned = rows[i].pinned ? &r.pinned : NULL});
		if (out.reason != rows[i].want || out.allow != reason_allows(rows[i].want))
			fail_msg("row %zu: %s", i, reason_name(out.reason));
	}
	setting_fini(&s);
}

static void test_verdict_names_the_rule(void **state)
{
	struct setting s;
	struct admission out;
	struct authority t = target_of("bad.test:443");

	setting_init(&s, false, true);
	admit_connect(&s.config, &t, &out);
	assert_int_equal(out.verdict.rule, 3);
	t = target_of("else.test:443");
	admit_connect(&s.config, &t, &out);
	assert_int_equal(out.verdict.rule, POLICY_DEFAULT_RULE);
	assert_int_equal(out.reason, REASON_ALLOWED_BY_DEFAULT);
	setting_fini(&s);
}

static void test_connect_by_port_and_rule(void **state)
{
	static const struct {
		const char *target;
		bool default_allow;
		enum reason open, read_only;
		enum reason tunnel; /* with the rule, for bytes that are neither HTTP nor TLS */
	} rows[] = {
		{"read.test:443", false, REASON_ALLOWED, REASON_ALLOWED, REASON_CANNOT_INSPECT},
		{"read.test:80", false, REASON_ALLOWED, REASON_ALLOWED, REASON_CANNOT_INSPECT},
		{"read.test:3000", false, REASON_ALLOWED, REASON_ALLOWED, REASON_CANNOT_INSPECT},
		{"read.test:22", false, REASON_ALLOWED, REASON_PORT_NOT_ALLOWED,
			REASON_PORT_NOT_ALLOWED},
		{"port.test:8443", false, REASON_ALLOWED, REASON_ALLOWED, REASON_CANNOT_INSPECT},
		{"write.test:443", false, REASON_ALLOWED, REASON_ALLOWED, REASON_WRITE_HOST},
		{"write.test:22", false, REASON_ALLOWED, REASON_WRITE_HOST, REASON_WRITE_HOST},
		{"a.wild.test:22", false, REASON_ALLOWED, REASON_WRITE_HOST, REASON_WRITE_HOST},
		{"10.1.2.3:22", false, REASON_ALLOWED, REASON_WRITE_PRIVATE, REASON_WRITE_PRIVATE},
		{"10.1.2.3:443", false, REASON_ALLOWED, REASON_ALLOWED, REASON_WRITE_PRIVATE},
		{"10.66.1.1:443", false, REASON_DENIED, REASON_DENIED, REASON_DENIED},
		{"else.test:443", false, REASON_HOST_NOT_LISTED, REASON_HOST_NOT_LISTED,
			REASON_HOST_NOT_LISTED},
		{"else.test:443", true, REASON_ALLOWED_BY_DEFAULT, REASON_ALLOWED_BY_DEFAULT,
			REASON_CANNOT_INSPECT},
		{"else.test:25", true, REASON_ALLOWED_BY_DEFAULT, REASON_PORT_NOT_ALLOWED,
			REASON_PORT_NOT_ALLOWED},
		{"8.8.8.8:53", true, REASON_ALLOWED_BY_DEFAULT, REASON_PORT_NOT_ALLOWED,
			REASON_PORT_NOT_ALLOWED},
		{"10.1.2.3:6379", true, REASON_ALLOWED, REASON_WRITE_PRIVATE, REASON_WRITE_PRIVATE},
		{"172.16.0.1:6379", true, REASON_ALLOWED_BY_DEFAULT, REASON_PORT_NOT_ALLOWED,
			REASON_PORT_NOT_ALLOWED},
		{"169.254.169.254:80", true, REASON_ADDRESS_NOT_LISTED, REASON_ADDRESS_NOT_LISTED,
			REASON_ADDRESS_NOT_LISTED},
		{"db.internal:5432", false, REASON_ALLOWED, REASON_ALLOWED, REASON_ALLOWED},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct authority t = target_of(rows[i].target);
		struct admission out;
		struct setting s;

		memset(&out, 0xff, sizeof(out));
		setting_init(&s, false, rows[i].default_allow);
		admit_connect(&s.config, &t, &out);
		if (out.reason != rows[i].open || out.kind != AUDIT_TUNNEL || out.write)
			fail_msg("row %zu open: %s", i, reason_name(out.reason));
		admit_tunnel(&s.config, &t, &out);
		if (out.reason != rows[i].open)
			fail_msg("row %zu open tunnel: %s", i, reason_name(out.reason));
		s.config.read_only = true;
		admit_connect(&s.config, &t, &out);
		if (out.reason != rows[i].read_only || out.allow != reason_allows(out.reason))
			fail_msg("row %zu: %s", i, reason_name(out.reason));
		admit_tunnel(&s.config, &t, &out);
		if (out.reason != rows[i].tunnel || out.allow != reason_allows(out.reason) ||
			(out.allow && !out.write))
			fail_msg("row %zu tunnel: %s", i, reason_name(out.reason));
		setting_fini(&s);
	}
}

static void test_address_that_is_connected_to(void **state)
{
	static const struct {
		const char *target, *addr;
		bool read_only, write;
		enum reason want;
	} rows[] = {
		{"read.test:443", "192.0.2.1", true, false, REASON_ALLOWED},
		{"read.test:443", "10.66.0.1", true, false, REASON_ADDRESS_REFUSED},
		{"read.test:443", "10.0.0.1", true, false, REASON_ALLOWED},
		{"read.test:443", "127.0.0.1", true, false, REASON_ADDRESS_REFUSED},
		{"read.test:443", "169.254.169.254", false, false, REASON_ADDRESS_REFUSED},
		{"read.test:443", "172.16.0.1", true, false, REASON_ALLOWED}, /* exact rule */
		{"a.wild.test:443", "172.16.0.1", true, false, REASON_ADDRESS_REFUSED},
		/* writes */
		{"write.test:443", "192.0.2.1", true, true, REASON_WRITE_HOST},
		{"write.test:443", "172.16.0.1", true, true, REASON_WRITE_HOST},
		{"write.test:443", "127.0.0.1", true, true, REASON_ADDRESS_REFUSED},
		{"a.wild.test:443", "192.0.2.1", true, true, REASON_WRITE_HOST},
		{"a.wild.test:443", "10.0.0.1", true, true, REASON_REBINDING_WRITE},
		{"a.wild.test:443", "10.0.0.1", false, true, REASON_ALLOWED},
		{"db.internal:443", "10.0.0.1", true, true, REASON_WRITE_PRIVATE},
		{"db.internal:443", "172.16.0.1", true, true, REASON_REBINDING_WRITE},
		{"db.internal:443", "192.0.2.1", true, true, REASON_METHOD_NOT_READ},
		{"lone:443", "10.0.0.1", true, true, REASON_WRITE_PRIVATE},
		{"10.0.0.1:443", "10.0.0.1", true, true, REASON_WRITE_PRIVATE},
		{"192.0.2.7:443", "192.0.2.7", true, true, REASON_WRITE_HOST},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct authority t = target_of(rows[i].target);
		struct netaddr a = fixture_addr(rows[i].addr);
		struct admission how;
		struct setting s;
		enum reason got;

		setting_init(&s, false, false);
		admit_connect(&s.config, &t, &how);
		assert_true(how.allow);
		how.write = rows[i].write;
		s.config.read_only = rows[i].read_only;
		got = admit_address(&s.config, s.config.policy, &t, &how, &a);
		if (got != rows[i].want)
			fail_msg("row %zu: %s", i, reason_name(got));
		setting_fini(&s);
	}
}

static void test_only_five_reasons_allow(void **state)
{
	for (int r = 0; r < REASON_MAX; r++)
		assert_int_equal(reason_allows((enum reason)r), r <= REASON_GIT_FETCH);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_requests_by_policy_rule_port_and_write_hosts),
		cmocka_unit_test(test_upgrade_is_no_read),
		cmocka_unit_test(test_kind_says_read_only_of_what_reads),
		cmocka_unit_test(test_git_fetch_is_allowed_where_the_setting_says_so),
		cmocka_unit_test(test_one_name_and_one_port_or_none),
		cmocka_unit_test(test_verdict_names_the_rule),
		cmocka_unit_test(test_connect_by_port_and_rule),
		cmocka_unit_test(test_address_that_is_connected_to),
		cmocka_unit_test(test_only_five_reasons_allow),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
