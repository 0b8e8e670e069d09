/* What the vault says to a request before anything goes out: the binding, keys and placeholders
 * that stay here, credentials of the client's own, the facts, and whether content is collected. */
#include "proxy/keyed.h"

#include "tests/unit/proxy/keyed_bed.h"

struct row {
	const char *host, *line, *fields;
	enum reason want;
	const char *binding; /* NULL: none */
};

static void run_rows(struct keyed_bed *b, const struct row *rows, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		enum reason got;

		keyed_bed_request(b, rows[i].host, rows[i].line, rows[i].fields);
		got = keyed_bed_admit(b);
		if (got != rows[i].want)
			fail_msg("row %zu, %s %s: %s", i, rows[i].host, rows[i].line,
				reason_name(got));
		if (!reason_allows(got))
			continue;
		if (!b->ex.keyed.binding != !rows[i].binding ||
			(rows[i].binding &&
				!slice_eq(binding_name(b->ex.keyed.binding),
					slice_str(rows[i].binding))))
			fail_msg("row %zu, %s %s: binding", i, rows[i].host, rows[i].line);
	}
}

static void test_request_has_the_binding_of_its_host_path_and_method(void **state)
{
	static const struct row rows[] = {
		{"api.test", "GET /v1/x", "", REASON_ALLOWED, "bearer"},
		{"api.test", "GET /s/x", "", REASON_ALLOWED, "slots"},
		{"api.test", "GET /other", "", REASON_ALLOWED, NULL},
		{"api.test", "PUT /v1/x", "", REASON_ALLOWED, NULL},
		{"api.test:8443", "GET /v1/x", "", REASON_ALLOWED, NULL},
		{"http://api.test", "GET /v1/x", "", REASON_ALLOWED, NULL},
		{"http://clear.test", "GET /v1/x", "", REASON_ALLOWED, "clear"},
		{"clear.test", "GET /v1/x", "", REASON_ALLOWED, NULL},
		{"free.test", "GET /v1/x", "", REASON_ALLOWED, NULL},
		{"127.0.0.1", "GET /v1/x", "", REASON_ALLOWED, NULL},
		{"api.test", "GET /v1/../x", "", REASON_PATH_AMBIGUOUS, NULL},
		{"api.test", "GET /v1/%252e%252e/x", "", REASON_PATH_AMBIGUOUS, NULL},
		{"free.test", "GET /v1/../x", "", REASON_ALLOWED, NULL},
	};
	static const struct {
		const char *host;
		bool bound;
	} hosts[] = {{"api.test", true}, {"http://api.test", true}, {"api.test:8443", true},
		{"free.test", false}, {"127.0.0.1", false}};

	run_rows(*state, rows, ARRAY_LEN(rows));
	for (size_t i = 0; i < ARRAY_LEN(hosts); i++) {
		struct keyed_bed *b = *state;

		keyed_bed_request(b, hosts[i].host, "GET /none", "");
		assert_int_equal(keyed_bed_admit(b), REASON_ALLOWED);
		assert_int_equal(b->ex.keyed.bound_host, hosts[i].bound);
		assert_int_equal(keyed_binds(&b->px, &b->ex.target), hosts[i].bound);
	}
}

/* The reason that admit gave is the reason of the line. */
static void test_allowing_reason_is_passed_on(void **state)
{
	struct keyed_bed *b = *state;

	keyed_bed_request(b, "api.test", "GET /v1/x", "");
	b->ex.admission.reason = REASON_WRITE_HOST;
	assert_int_equal(keyed_bed_admit(b), REASON_WRITE_HOST);
	keyed_bed_request(b, "free.test", "GET /v1/x", "");
	b->ex.admission.reason = REASON_GIT_FETCH;
	assert_int_equal(keyed_bed_admit(b), REASON_GIT_FETCH);
}

static void test_without_a_vault_nothing_is_asked(void **state)
{
	struct keyed_bed *b = *state;

	b->px.config.vault = NULL;
	keyed_bed_request(b, "free.test", "GET /?k=" KEY, "");
	assert_int_equal(keyed_bed_admit(b), REASON_ALLOWED);
	assert_null(b->ex.keyed.view);
	assert_true(keyed_proof(&b->ex, false));
	assert_int_equal(b->ex.keyed.facts_len, 0);
	assert_false(keyed_binds(&b->px, &b->ex.target));
}

static void test_key_stays_here_where_its_binding_does_not_match(void **state)
{
	static const struct row rows[] = {
		/* nothing binds the host, or the request */
		{"free.test", "GET /?k=" KEY, "", REASON_KEY_TO_UNBOUND_HOST, NULL},
		{"free.test", "GET /" KEY "/x", "", REASON_KEY_TO_UNBOUND_HOST, NULL},
		{"free.test", "GET /", "X: a " KEY " b\r\n", REASON_KEY_TO_UNBOUND_HOST, NULL},
		{"free.test", "GET /", "A: 1\r\nX: sk-REAL-0001-aaaaBBBBCCCC\r\n",
			REASON_KEY_TO_UNBOUND_HOST, NULL},
		{"free.test", "GET /", KEY ": 1\r\n", REASON_KEY_TO_UNBOUND_HOST, NULL},
		{"free.test", "GET /", "X: sk-free-0004-GGGGHHHH\r\n", REASON_KEY_TO_UNBOUND_HOST,
			NULL},
		{"free.test", "GET /", "X: sk-real-0001-AAAABBBBCCC\r\n", REASON_ALLOWED, NULL},
		{"api.test", "GET /other", "X: " KEY "\r\n", REASON_KEY_TO_UNBOUND_HOST, NULL},
		{"http://api.test", "GET /v1/x", "X: " KEY "\r\n", REASON_KEY_TO_UNBOUND_HOST,
			NULL},
		/* a binding matches, and the key is its own */
		{"api.test", "GET /v1/x", "X: " KEY "\r\n", REASON_ALLOWED, "bearer"},
		{"api.test", "GET /v1/" KEY, "", REASON_ALLOWED, "bearer"},
		{"api.test", "GET /s/x", "X: " KEY "\r\n", REASON_ALLOWED, "slots"},
		{"wide.test", "GET /", "X: " KEY " " OTHER "\r\n", REASON_ALLOWED, "wide"},
		/* the same bytes under another name are the same key */
		{"else.test", "GET /", "X: " OTHER "\r\n", REASON_ALLOWED, "else"},
		{"custom.test", "GET /", "X: " OTHER "\r\n", REASON_ALLOWED, "custom"},
		/* a binding matches, and the key is another's */
		{"api.test", "GET /v1/x", "X: " OTHER "\r\n", REASON_KEY_TO_UNBOUND_HOST, NULL},
		{"api.test", "GET /v1/x?k=" OTHER, "", REASON_KEY_TO_UNBOUND_HOST, NULL},
		{"api.test", "GET /v1/" OTHER, "", REASON_KEY_TO_UNBOUND_HOST, NULL},
		{"api.test", "GET /v1/x", OTHER ": 1\r\n", REASON_KEY_TO_UNBOUND_HOST, NULL},
		{"api.test", "GET /s/x", "A: " KEY "\r\nX: " OTHER "\r\n",
			REASON_KEY_TO_UNBOUND_HOST, NULL},
		{"api.test", "GET /v1/x", "X: " KEY " " OTHER "\r\n", REASON_KEY_TO_UNBOUND_HOST,
			NULL},
		{"else.test", "GET /", "X: " KEY "\r\n", REASON_KEY_TO_UNBOUND_HOST, NULL},
		{"git.test", "GET /", "X: " KEY "\r\n", REASON_KEY_TO_UNBOUND_HOST, NULL},
		{"wide.test", "GET /", "X: sk-free-0004-GGGGHHHH\r\n", REASON_KEY_TO_UNBOUND_HOST,
			NULL},
		/* another's key in which one of its own stands, and the reverse */
		{"api.test", "GET /v1/x", "X: " KEY "-and-more\r\n", REASON_KEY_TO_UNBOUND_HOST,
			NULL},
		{"long.test", "GET /", "X: " KEY "-and-more\r\n", REASON_ALLOWED, "longer"},
		{"long.test", "GET /", "X: " KEY "-and-more " KEY "\r\n",
			REASON_KEY_TO_UNBOUND_HOST, NULL},
		/* a field that the binding sets never leaves */
		{"api.test", "GET /v1/x", "Authorization: Bearer " OTHER "\r\n", REASON_ALLOWED,
			"bearer"},
	};

	run_rows(*state, rows, ARRAY_LEN(rows));
}

/* Rows by setting: deny, strip, pass. */
struct placeholder_row {
	const char *host, *line, *fields;
	enum reason deny, strip;
	bool strips; /* something is taken out */
};

static void test_placeholder_that_no_binding_of_the_request_knows(void **state)
{
	static const struct placeholder_row rows[] = {
		{"free.test", "GET /", "X: ph-model-0001\r\n", REASON_PLACEHOLDER_FOR_OTHER_HOST,
			REASON_ALLOWED, true},
		{"free.test", "GET /", "X: a ph-else-0003.\r\n", REASON_PLACEHOLDER_FOR_OTHER_HOST,
			REASON_ALLOWED, true},
		{"free.test", "GET /", "ph-else-0003: 1\r\n", REASON_PLACEHOLDER_FOR_OTHER_HOST,
			REASON_ALLOWED, true},
		{"free.test", "GET /?k=ph-model-0001", "", REASON_PLACEHOLDER_FOR_OTHER_HOST,
			REASON_PLACEHOLDER_FOR_OTHER_HOST, false},
		{"free.test", "GET /ph-wide-0002/x", "", REASON_PLACEHOLDER_FOR_OTHER_HOST,
			REASON_PLACEHOLDER_FOR_OTHER_HOST, false},
		{"free.test", "GET /", "X: ph-model-000\r\n", REASON_ALLOWED, REASON_ALLOWED,
			false},
		{"api.test", "GET /other", "X-Key: ph-model-0001\r\n",
			REASON_PLACEHOLDER_FOR_OTHER_HOST, REASON_ALLOWED, true},
		{"http://api.test", "GET /s/x?k=ph-model-0001", "",
			REASON_PLACEHOLDER_FOR_OTHER_HOST, REASON_PLACEHOLDER_FOR_OTHER_HOST,
			false},
		/* a binding matches: its own pass, in a slot or not (a chat history) */
		{"api.test", "GET /s/x?k=ph-model-0001", "X-Key: ph-model-0001\r\n", REASON_ALLOWED,
			REASON_ALLOWED, false},
		{"api.test", "GET /s/ph-model-0001?q=ph-model-0001", "X: ph-model-0001\r\n",
			REASON_ALLOWED, REASON_ALLOWED, false},
		{"wide.test", "GET /ph-query-0005", "X: ph-query-0005\r\n", REASON_ALLOWED,
			REASON_ALLOWED, false},
		{"else.test", "GET /ph-else-0003", "", REASON_ALLOWED, REASON_ALLOWED, false},
		/* a binding matches: another's do not */
		{"api.test", "GET /s/x", "X-Key: ph-else-0003\r\n",
			REASON_PLACEHOLDER_FOR_OTHER_HOST, REASON_ALLOWED, true},
		{"api.test", "GET /v1/x", "X: ph-model-0001\r\n", REASON_PLACEHOLDER_FOR_OTHER_HOST,
			REASON_ALLOWED, true},
		{"api.test", "GET /s/x?k=ph-wide-0002", "", REASON_PLACEHOLDER_FOR_OTHER_HOST,
			REASON_PLACEHOLDER_FOR_OTHER_HOST, false},
		{"api.test", "GET /s/x", "A: ph-model-0001 ph-wide-0002\r\n",
			REASON_PLACEHOLDER_FOR_OTHER_HOST, REASON_ALLOWED, true},
		{"git.test", "GET /", "X: ph-model-0001\r\n", REASON_PLACEHOLDER_FOR_OTHER_HOST,
			REASON_ALLOWED, true},
		/* a field that the binding sets never leaves */
		{"api.test", "GET /v1/x", "Authorization: Bearer ph-else-0003\r\n", REASON_ALLOWED,
			REASON_ALLOWED, false},
	};
	struct keyed_bed *b = *state;

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		for (int how = PROXY_PLACEHOLDERS_DENY; how <= PROXY_PLACEHOLDERS_PASS; how++) {
			enum reason want = how == PROXY_PLACEHOLDERS_DENY ? rows[i].deny
				: how == PROXY_PLACEHOLDERS_STRIP         ? rows[i].strip
									  : REASON_ALLOWED;
			enum reason got;

			b->px.config.placeholders = (enum proxy_placeholders)how;
			keyed_bed_request(b, rows[i].host, rows[i].line, rows[i].fields);
			got = keyed_bed_admit(b);
			if (got != want)
				fail_msg("row %zu, setting %d: %s", i, how, reason_name(got));
			if (b->ex.keyed.strip !=
				(how == PROXY_PLACEHOLDERS_STRIP && rows[i].strips))
				fail_msg("row %zu, setting %d: strip", i, how);
		}
	}
}

/* However placeholders are treated, keys are not let out. */
static void test_key_stays_here_under_every_setting(void **state)
{
	struct keyed_bed *b = *state;

	for (int how = PROXY_PLACEHOLDERS_DENY; how <= PROXY_PLACEHOLDERS_PASS; how++) {
		b->px.config.placeholders = (enum proxy_placeholders)how;
		keyed_bed_request(b, "free.test", "GET /", "X: ph-else-0003 " KEY "\r\n");
		assert_int_equal(keyed_bed_admit(b), REASON_KEY_TO_UNBOUND_HOST);
	}
}

static void test_write_to_a_bound_host_needs_a_binding(void **state)
{
	static const struct {
		const char *host, *line;
		bool read_only, write, unbound_writes;
		enum reason want;
		bool own_out; /* credential fields of the client's own are taken out */
	} rows[] = {
		{"api.test", "POST /v1/x", true, true, false, REASON_ALLOWED, true},
		{"api.test", "POST /other", true, true, false, REASON_WRITE_WITHOUT_BINDING, false},
		{"api.test", "PUT /v1/x", true, true, false, REASON_WRITE_WITHOUT_BINDING, false},
		{"api.test", "POST /other", true, true, true, REASON_ALLOWED, false},
		{"api.test", "POST /v1/x", true, true, true, REASON_ALLOWED, false},
		{"api.test", "POST /other", false, true, false, REASON_ALLOWED, false},
		{"api.test", "GET /other", true, false, false, REASON_ALLOWED, false},
		{"api.test", "GET /v1/x", true, false, false, REASON_ALLOWED, false},
		{"free.test", "POST /other", true, true, false, REASON_ALLOWED, false},
	};
	struct keyed_bed *b = *state;

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		enum reason got;

		b->px.config.read_only = rows[i].read_only;
		b->px.config.unbound_writes = rows[i].unbound_writes;
		keyed_bed_request(b, rows[i].host, rows[i].line, "");
		b->ex.admission.write = rows[i].write;
		got = keyed_bed_admit(b);
		if (got != rows[i].want || b->ex.keyed.own_credentials_out != rows[i].own_out)
			fail_msg("row %zu: %s", i, reason_name(got));
	}
}

static void test_own_credential_in_the_query_of_a_bound_write(void **state)
{
	static const struct {
		const char *line;
		bool refused;
	} rows[] = {
		{"POST /v1/x?key=own", true}, {"POST /v1/x?api_key=own", true},
		{"POST /v1/x?apikey=own", true}, {"POST /v1/x?api-key=own", true},
		{"POST /v1/x?access_token=own", true}, {"POST /v1/x?token=own", true},
		{"POST /v1/x?auth=own", true}, {"POST /v1/x?client_secret=own", true},
		{"POST /v1/x?KEY=own", true}, {"POST /v1/x?a=1&b&=&Access_Token=own&c=2", true},
		{"POST /v1/x?private_token=own", true}, {"POST /v1/x?job_token=own", true},
		{"POST /v1/x?subscription-key=own", true}, {"POST /v1/x?sig=own", true},
		{"POST /v1/x?X-Amz-Signature=own", true}, {"POST /v1/x?X-Goog-Signature=own", true},
		{"POST /v1/x?X-Amz-Security-Token=own", true},
		/* as an origin splits the query, and reads the name */
		{"POST /v1/x?a=1;key=own", true}, {"POST /v1/x?;key=own;b=1&c", true},
		{"POST /v1/x?a=1;b=key;c", false}, {"POST /v1/x?key;=own", false},
		{"POST /v1/x?k%65y=own", true}, {"POST /v1/x?%41PI%5fkey=own", true},
		{"POST /v1/x?key%=own&k%6=1&key%zz=1", false}, {"POST /v1/x", false},
		{"POST /v1/x?", false}, {"POST /v1/x?key", false}, {"POST /v1/x?key=", false},
		{"POST /v1/x?keys=own&monkey=own&q=key", false}, {"POST /v1/x?a=1&&b=2", false},
		/* what the binding puts there is its own */
		{"POST /s/x?k=ph-model-0001", false},
		{"POST /s/x?key=ph-model-0001", true}, /* no slot of it */
	};
	struct keyed_bed *b = *state;

	b->px.config.read_only = true;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		enum reason want = rows[i].refused ? REASON_WRITE_WITHOUT_BINDING : REASON_ALLOWED;

		keyed_bed_request(b, "api.test", rows[i].line, "");
		b->ex.admission.write = true;
		if (keyed_bed_admit(b) != want || !b->detail == rows[i].refused)
			fail_msg("%s", rows[i].line);
		/* a read may */
		keyed_bed_request(b, "api.test", rows[i].line, "");
		assert_int_equal(keyed_bed_admit(b), REASON_ALLOWED);
	}
	keyed_bed_request(b, "wide.test", "POST /?token=ph-wide-0002&key=ph-query-0005", "");
	b->ex.admission.write = true;
	assert_int_equal(keyed_bed_admit(b), REASON_ALLOWED);
}

static void test_path_with_a_key_that_adds_a_segment_is_refused(void **state)
{
	struct keyed_bed *b = *state;

	fixture_load(&b->f,
		"{'credentials':[{'name':'k','source':{'value':'a/../b-0001'}}],'bindings':["
		"{'name':'b','match':{'hosts':['api.test']},'auth':{'type':'passthrough',"
		"'substitutions':[{'credential':'k','placeholder':'ph-model-0001',"
		"'in':['path']}]}}]}");
	keyed_bed_request(b, "api.test", "GET /ph-model-0001/x", "");
	assert_int_equal(keyed_bed_admit(b), REASON_PATH_AMBIGUOUS);
	keyed_bed_request(b, "api.test", "GET /x?ph-model-0001", "");
	assert_int_equal(keyed_bed_admit(b), REASON_ALLOWED);
}

/* Wherever a client had a key from, the trail does not get it: neither of a request that is refused
 * for it, nor of one that may carry it. */
static void test_key_in_a_request_does_not_reach_the_trail(void **state)
{
	static const struct {
		const char *host, *line, *url, *user_agent;
		const char *want_method, *want_url, *want_user_agent;
		enum reason want;
	} rows[] = {
		{"free.test", "GET /" KEY, "https://free.test/" KEY, "curl", "GET", "*", "curl",
			REASON_KEY_TO_UNBOUND_HOST},
		{"free.test", "GET /", "https://free.test/", "a " OTHER, "GET",
			"https://free.test/", "*", REASON_KEY_TO_UNBOUND_HOST},
		{"free.test", "sk-free-0004-GGGGHHHH /", "https://free.test/", "", "*",
			"https://free.test/", "", REASON_KEY_TO_UNBOUND_HOST},
		{"api.test", "GET /v1/" KEY, "https://api.test/v1/" KEY, "", "GET", "*", "",
			REASON_ALLOWED},
		{"api.test", "GET /v1/x", "https://api.test/v1/x", "curl", "GET",
			"https://api.test/v1/x", "curl", REASON_ALLOWED},
	};
	struct keyed_bed *b = *state;

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		char fields[128];

		(void)snprintf(fields, sizeof(fields), "User-Agent: %s\r\n", rows[i].user_agent);
		keyed_bed_request(b, rows[i].host, rows[i].line, fields);
		b->ex.url = slice_str(rows[i].url);
		b->ex.user_agent = slice_str(rows[i].user_agent);
		if (keyed_bed_admit(b) != rows[i].want)
			fail_msg("row %zu: verdict", i);
		if (!slice_eq(b->ex.url, slice_str(rows[i].want_url)) ||
			!slice_eq(b->ex.method, slice_str(rows[i].want_method)) ||
			!slice_eq(b->ex.user_agent, slice_str(rows[i].want_user_agent)))
			fail_msg("row %zu: %.*s %.*s %.*s", i, SLICE_FMT(b->ex.method),
				SLICE_FMT(b->ex.url), SLICE_FMT(b->ex.user_agent));
	}
}

/* The exchange keeps the view that it began with. */
static void test_view_is_kept_from_the_beginning_on(void **state)
{
	struct keyed_bed *b = *state;

	keyed_bed_request(b, "api.test", "GET /v1/x", "");
	assert_int_equal(keyed_bed_admit(b), REASON_ALLOWED);
	fixture_load(&b->f, "{}");
	assert_non_null(strstr(keyed_bed_head(b), "Authorization: Bearer " KEY "\r\n"));
	keyed_bed_request(b, "api.test", "GET /v1/x", "");
	assert_int_equal(keyed_bed_admit(b), REASON_ALLOWED);
	assert_null(b->ex.keyed.binding);
}

static void test_facts_that_must_agree_before_a_key_goes_out(void **state)
{
	static const struct {
		const char *host, *line;
		bool has_addr, verified;
		bool want;
		const char *facts;
	} rows[] = {
		{"api.test", "GET /v1/x", true, true, true,
			"address,sni,certificate,authority,binding"},
		{"api.test", "GET /v1/x", true, false, false, "address,sni,authority,binding"},
		{"api.test", "GET /v1/x", false, true, false, "sni,certificate,authority,binding"},
		{"api.test", "GET /v1/x", false, false, false, "sni,authority,binding"},
		/* no key goes out: nothing is demanded */
		{"api.test", "GET /other", true, false, true, "address,sni,authority"},
		{"free.test", "GET /", true, true, true, "address,sni,certificate,authority"},
		{"free.test", "GET /", false, false, true, "sni,authority"},
		/* in clear there is no certificate */
		{"http://clear.test", "GET /", true, false, true, "address,authority,binding"},
		{"http://clear.test", "GET /", false, false, false, "authority,binding"},
		{"http://free.test", "GET /", true, false, true, "address,authority"},
	};
	struct keyed_bed *b = *state;

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		keyed_bed_request(b, rows[i].host, rows[i].line, "");
		assert_int_equal(keyed_bed_admit(b), REASON_ALLOWED);
		b->ex.has_addr = rows[i].has_addr;
		if (keyed_proof(&b->ex, rows[i].verified) != rows[i].want)
			fail_msg("row %zu", i);
		if (!slice_eq(slice_make(b->ex.keyed.facts_text, b->ex.keyed.facts_len),
			    slice_str(rows[i].facts)))
			fail_msg("row %zu: %.*s", i, (int)b->ex.keyed.facts_len,
				b->ex.keyed.facts_text);
	}
}

static void test_content_is_collected_where_a_key_may_go_into_it(void **state)
{
	static const struct {
		const char *host, *line, *fields;
		bool want;
	} rows[] = {
		{"api.test", "POST /s/x", "Content-Length: 1\r\n", true},
		{"api.test", "POST /s/x", "Content-Length: 1048576\r\n", true},
		{"api.test", "POST /s/x", "Content-Length: 1048577\r\n", false},
		{"api.test", "POST /s/x", "Content-Length: 0\r\n", false},
		{"api.test", "POST /s/x", "Transfer-Encoding: chunked\r\n", true},
		{"api.test", "POST /s/x", "", false},
		{"api.test", "POST /v1/x", "Content-Length: 1\r\n", false},
		{"api.test", "POST /other", "Content-Length: 1\r\n", false},
		{"free.test", "POST /", "Content-Length: 1\r\n", false},
		{"wide.test", "POST /", "Content-Length: 1\r\n", true},
		{"api.test", "POST /s/x", "Content-Length: 1\r\nContent-Encoding: gzip\r\n", false},
		{"api.test", "POST /s/x", "Content-Length: 1\r\nContent-Encoding: Identity\r\n",
			true},
	};
	struct keyed_bed *b = *state;

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		keyed_bed_request(b, rows[i].host, rows[i].line, rows[i].fields);
		assert_int_equal(keyed_bed_admit(b), REASON_ALLOWED);
		if (keyed_wants_body(&b->ex, &b->px.request) != rows[i].want)
			fail_msg("row %zu", i);
	}
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, keyed_bed_open, keyed_bed_close)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_request_has_the_binding_of_its_host_path_and_method),
		TEST(test_allowing_reason_is_passed_on),
		TEST(test_without_a_vault_nothing_is_asked),
		TEST(test_key_stays_here_where_its_binding_does_not_match),
		TEST(test_placeholder_that_no_binding_of_the_request_knows),
		TEST(test_key_stays_here_under_every_setting),
		TEST(test_write_to_a_bound_host_needs_a_binding),
		TEST(test_own_credential_in_the_query_of_a_bound_write),
		TEST(test_path_with_a_key_that_adds_a_segment_is_refused),
		TEST(test_key_in_a_request_does_not_reach_the_trail),
		TEST(test_view_is_kept_from_the_beginning_on),
		TEST(test_facts_that_must_agree_before_a_key_goes_out),
		TEST(test_content_is_collected_where_a_key_may_go_into_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
