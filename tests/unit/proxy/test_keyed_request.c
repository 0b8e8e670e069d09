/* Heads and content as the origin of a bound host gets them: what is put in, what stays here. */
#include "proxy/keyed.h"

#include "tests/unit/proxy/keyed_bed.h"

#define IDENTITY "Accept-Encoding: identity\r\n"
#define BEARER "Authorization: Bearer " KEY "\r\n"

struct row {
	const char *host, *line, *fields;
	const char *target; /* as sent */
	const char *want;   /* fields behind Host */
};

static void run_rows(struct keyed_bed *b, const struct row *rows, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		char want[2048];

		(void)snprintf(want, sizeof(want), "%s HTTP/1.1\r\nHost: %s\r\n%s\r\n",
			rows[i].target, rows[i].host, rows[i].want);
		(void)keyed_bed_send(b, rows[i].host, rows[i].line, rows[i].fields);
		if (strcmp(b->out, want) != 0)
			fail_msg("row %zu: %s", i, b->out);
	}
}

static void test_each_type_sets_its_fields(void **state)
{
	static const struct row rows[] = {
		{"api.test", "GET /v1/x", "", "GET /v1/x", IDENTITY BEARER},
		{"api.test", "GET /v1/x?a=1", "A: 1\r\nB:2\r\n", "GET /v1/x?a=1",
			"A: 1\r\nB: 2\r\n" IDENTITY BEARER},
		{"wide.test", "GET /", "", "GET /", IDENTITY "X-Api-Key: " KEY "\r\n"},
		{"custom.test", "GET /", "", "GET /",
			IDENTITY "X_tenant: " KEY "\r\nX-Two: " OTHER "\r\n"},
		{"git.test", "GET /", "", "GET /",
			IDENTITY "Authorization: Basic dXNlcjpwYXNzd29yZA==\r\n"},
		{"api.test", "GET /s/x", "", "GET /s/x", IDENTITY},
		/* a bound host without a binding for this request, and one that nothing binds */
		{"api.test", "GET /other", "A: 1\r\n", "GET /other", "A: 1\r\n" IDENTITY},
		{"free.test", "GET /other", "A: 1\r\n", "GET /other", "A: 1\r\n"},
	};

	run_rows(*state, rows, ARRAY_LEN(rows));
}

static void test_field_that_the_binding_sets_is_replaced_in_every_spelling(void **state)
{
	static const struct row rows[] = {
		{"api.test", "GET /v1/x",
			"Authorization: Bearer own\r\nA: 1\r\nauthorization: Basic b3du\r\n",
			"GET /v1/x", "A: 1\r\n" IDENTITY BEARER},
		{"wide.test", "GET /", "x-api-key: own\r\nX-API-KEY: own\r\n", "GET /",
			IDENTITY "X-Api-Key: " KEY "\r\n"},
		/* origins that read `_` as `-` would see two */
		{"wide.test", "GET /",
			"X_Api_Key: own\r\nx-api_key: own\r\nA: 1\r\nX_API-KEY: own\r\n", "GET /",
			"A: 1\r\n" IDENTITY "X-Api-Key: " KEY "\r\n"},
		{"custom.test", "GET /", "X-Tenant: own\r\nx_two: own\r\nX-Three: 3\r\n", "GET /",
			"X-Three: 3\r\n" IDENTITY "X_tenant: " KEY "\r\nX-Two: " OTHER "\r\n"},
		/* other names stay, and so does another binding's field */
		{"wide.test", "GET /", "X-Api-Keys: 1\r\nXApi-Key: 2\r\nX-Api.Key: 3\r\n", "GET /",
			"X-Api-Keys: 1\r\nXApi-Key: 2\r\nX-Api.Key: 3\r\n" IDENTITY
			"X-Api-Key: " KEY "\r\n"},
		{"wide.test", "GET /", "Authorization: Bearer own\r\n", "GET /",
			"Authorization: Bearer own\r\n" IDENTITY "X-Api-Key: " KEY "\r\n"},
		{"api.test", "GET /other", "Authorization: own\r\nX_Api_Key: own\r\n", "GET /other",
			"Authorization: own\r\nX_Api_Key: own\r\n" IDENTITY},
	};

	run_rows(*state, rows, ARRAY_LEN(rows));
}

static void test_what_would_hide_an_answer_stays_here(void **state)
{
	static const char hiding[] =
		"Accept-Encoding: gzip, br\r\nRange: bytes=0-1\r\nIf-Range: x\r\n"
		"Sec-WebSocket-Extensions: permessage-deflate\r\n"
		"Accept_Encoding: br\r\nIf_Range: x\r\n"
		"Sec_WebSocket_Extensions: permessage-deflate\r\nA: 1\r\n";
	static const struct row rows[] = {
		{"api.test", "GET /v1/x", hiding, "GET /v1/x", "A: 1\r\n" IDENTITY BEARER},
		{"api.test", "GET /other", hiding, "GET /other", "A: 1\r\n" IDENTITY},
		{"http://api.test", "GET /other", hiding, "GET /other", "A: 1\r\n" IDENTITY},
		{"free.test", "GET /other", hiding, "GET /other", hiding},
	};
	struct keyed_bed *b = *state;

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		char want[1024];
		const char *host = strstr(rows[i].host, "//");

		(void)keyed_bed_send(b, rows[i].host, rows[i].line, rows[i].fields);
		(void)snprintf(want, sizeof(want), "%s HTTP/1.1\r\nHost: %s\r\n%s\r\n",
			rows[i].target, host ? host + 2 : rows[i].host, rows[i].want);
		assert_string_equal(b->out, want);
	}
}

static void test_fields_that_forward_stay_here_while_a_key_goes_out(void **state)
{
	static const char forwarding[] =
		"Forwarded: host=evil.test\r\nX-Host: evil.test\r\nX-Forwarded-Host: evil.test\r\n"
		"x-forwarded-for: 1.2.3.4\r\nX_Forwarded_Host: evil.test\r\nx_host: evil.test\r\n"
		"X-Forwarded: 1\r\nForwarded-By: 2\r\nX-Hosts: 3\r\n";
	static const struct row rows[] = {
		{"api.test", "GET /v1/x", forwarding, "GET /v1/x",
			"X-Forwarded: 1\r\nForwarded-By: 2\r\nX-Hosts: 3\r\n" IDENTITY BEARER},
		{"free.test", "GET /v1/x", forwarding, "GET /v1/x", forwarding},
	};

	run_rows(*state, rows, ARRAY_LEN(rows));
}

static void test_placeholders_become_keys_in_their_places(void **state)
{
	static const struct row rows[] = {
		{"api.test", "GET /s/x?k=ph-model-0001&q=ph-model-0001", "",
			"GET /s/x?k=" KEY "&q=ph-model-0001", IDENTITY},
		{"api.test", "GET /s/ph-model-0001", "X-Key: ph-model-0001\r\nX: ph-model-0001\r\n",
			"GET /s/ph-model-0001", "X-Key: " KEY "\r\nX: ph-model-0001\r\n" IDENTITY},
		{"api.test", "GET /s/x", "Authorization: Bearer ph-model-0001\r\n", "GET /s/x",
			"Authorization: Bearer " KEY "\r\n" IDENTITY},
		/* user:ph-model-0001 */
		{"api.test", "GET /s/x", "Authorization: Basic dXNlcjpwaC1tb2RlbC0wMDAx\r\n",
			"GET /s/x",
			"Authorization: Basic "
			"dXNlcjpzay1yZWFsLTAwMDEtQUFBQUJCQkJDQ0ND\r\n" IDENTITY},
		/* only Authorization is read as Basic */
		{"api.test", "GET /s/x", "X-Key: Basic dXNlcjpwaC1tb2RlbC0wMDAx\r\n", "GET /s/x",
			"X-Key: Basic dXNlcjpwaC1tb2RlbC0wMDAx\r\n" IDENTITY},
		{"wide.test", "GET /a/ph-wide-0002/b?x=ph-wide-0002&ph-query-0005",
			"Cookie: s=ph-wide-0002; t=1\r\n", "GET /a/" OTHER "/b?x=" OTHER "&" KEY,
			"Cookie: s=" OTHER "; t=1\r\n" IDENTITY "X-Api-Key: " KEY "\r\n"},
		/* a path without query gets no `?`, an empty query keeps its own */
		{"wide.test", "GET /?", "", "GET /?", IDENTITY "X-Api-Key: " KEY "\r\n"},
		{"wide.test", "GET /a?ph-wide-0002?b", "", "GET /a?" OTHER "?b",
			IDENTITY "X-Api-Key: " KEY "\r\n"},
		/* where nothing matches, nothing is put in: the setting lets it pass */
		{"api.test", "GET /other?k=ph-model-0001", "X-Key: ph-model-0001\r\n",
			"GET /other?k=ph-model-0001", "X-Key: ph-model-0001\r\n" IDENTITY},
		{"free.test", "GET /?k=ph-model-0001", "X-Key: ph-model-0001\r\n",
			"GET /?k=ph-model-0001", "X-Key: ph-model-0001\r\n"},
	};
	struct keyed_bed *b = *state;

	b->px.config.placeholders = PROXY_PLACEHOLDERS_PASS;
	run_rows(b, rows, ARRAY_LEN(rows));
}

static void test_strip_takes_fields_with_a_foreign_placeholder_out(void **state)
{
	static const struct row rows[] = {
		{"free.test", "GET /", "A: 1\r\nX: a ph-model-0001\r\nB: 2\r\nph-else-0003: 1\r\n",
			"GET /", "A: 1\r\nB: 2\r\n"},
		{"api.test", "GET /other", "A: 1\r\nX-Key: ph-model-0001\r\n", "GET /other",
			"A: 1\r\n" IDENTITY},
		/* the binding's own stay, in a slot and elsewhere */
		{"api.test", "GET /s/x",
			"X-Key: ph-model-0001\r\nX: ph-else-0003\r\nY: ph-model-0001\r\n",
			"GET /s/x", "X-Key: " KEY "\r\nY: ph-model-0001\r\n" IDENTITY},
		{"free.test", "GET /", "A: 1\r\n", "GET /", "A: 1\r\n"},
	};
	struct keyed_bed *b = *state;

	b->px.config.placeholders = PROXY_PLACEHOLDERS_STRIP;
	run_rows(b, rows, ARRAY_LEN(rows));
}

static const char *const credential_fields[] = {"Authorization", "Cookie", "X-Api-Key", "Api-Key",
	"ApiKey", "X-Auth-Token", "X-Access-Token", "X-Goog-Api-Key", "Private-Token",
	"X-Amz-Security-Token", "OpenAI-Organization", "OpenAI-Project",
	"Ocp-Apim-Subscription-Key", "Job-Token", "Deploy-Token", "Cf-Aig-Authorization"};

/* Does a field of that name go out with a read, or a write, of a binding that does not set it? */
static bool own_goes_out(struct keyed_bed *b, const char *name, bool write)
{
	char fields[128];

	(void)snprintf(fields, sizeof(fields), "A: 1\r\n%s: own\r\n", name);
	keyed_bed_request(b, "api.test", "POST /s/x", fields);
	b->ex.admission.write = write;
	assert_int_equal(keyed_bed_admit(b), REASON_ALLOWED);
	(void)keyed_bed_head(b);
	assert_non_null(strstr(b->out, "A: 1\r\n"));
	return strstr(b->out, ": own\r\n") != NULL;
}

/* As listed, in lower case, and with `_`. */
static void respell(const char *name, int spelling, char out[64])
{
	(void)snprintf(out, 64, "%s", name);
	for (char *p = out; *p && spelling > 0; p++)
		*p = spelling == 2 && *p == '-' ? '_' : ascii_lower(*p);
}

static void test_own_credentials_stay_here_on_a_write(void **state)
{
	struct keyed_bed *b = *state;
	char name[64];

	b->px.config.read_only = true;
	for (size_t i = 0; i < 3 * ARRAY_LEN(credential_fields); i++) {
		respell(credential_fields[i / 3], (int)(i % 3), name);
		if (own_goes_out(b, name, true) || !own_goes_out(b, name, false))
			fail_msg("%s", name);
	}
	/* what the binding puts a key into is not the client's own */
	keyed_bed_request(b, "api.test", "POST /s/x",
		"Authorization: Bearer ph-model-0001\r\nCookies: 1\r\nX-Api-Key-2: 2\r\n");
	b->ex.admission.write = true;
	assert_int_equal(keyed_bed_admit(b), REASON_ALLOWED);
	assert_string_equal(keyed_bed_head(b),
		"POST /s/x HTTP/1.1\r\nHost: api.test\r\nAuthorization: Bearer " KEY
		"\r\nCookies: 1\r\nX-Api-Key-2: 2\r\n" IDENTITY "\r\n");
}

struct body_row {
	const char *type, *body, *want;
};

/* An exchange whose content was collected. */
static void collect(struct keyed_bed *b, const char *fields, const char *body)
{
	struct keyed *k = &b->ex.keyed;

	keyed_bed_request(b, "api.test", "POST /s/x", fields);
	assert_int_equal(keyed_bed_admit(b), REASON_ALLOWED);
	assert_true(keyed_wants_body(&b->ex, &b->px.request));
	k->body = xcalloc(1, sizeof(*k->body));
	strbuf_init(k->body, KEYED_BODY_MAX);
	strbuf_add(k->body, slice_str(body));
	k->body_whole = true;
}

static void test_collected_content_goes_out_with_its_new_length(void **state)
{
	static const struct body_row rows[] = {
		{"application/json",
			"{\"messages\":[\"say "
			"ph-model-0001\"],\"auth\":{\"key\":\"ph-model-0001\"}}",
			"{\"messages\":[\"say ph-model-0001\"],\"auth\":{\"key\":\"" KEY "\"}}"},
		{"application/x-www-form-urlencoded", "a=ph-model-0001&key=ph-model-0001",
			"a=ph-model-0001&key=" KEY},
		{"text/plain", "key=ph-model-0001", "key=ph-model-0001"},
		{"", "key=ph-model-0001", "key=ph-model-0001"},
		{"application/json", "", ""},
	};
	struct keyed_bed *b = *state;

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		char fields[256], length[64];

		(void)snprintf(fields, sizeof(fields),
			"Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n%s%s%s",
			*rows[i].type ? "Content-Type: " : "", rows[i].type,
			*rows[i].type ? "\r\n" : "");
		(void)snprintf(length, sizeof(length), "Content-Length: %zu\r\n\r\n",
			strlen(rows[i].want));
		collect(b, fields, rows[i].body);
		assert_int_equal(keyed_body_len(&b->ex, &b->px.request), strlen(rows[i].want));
		(void)keyed_bed_head(b);
		assert_non_null(strstr(b->out, length));
		assert_null(strstr(b->out, "Transfer-Encoding"));
		assert_null(strstr(b->out, "Expect"));
		b->ex.up = 0;
		keyed_write_body(&b->ex, &b->px.request, &b->conn);
		assert_string_equal(keyed_bed_written(b), rows[i].want);
		assert_int_equal(b->ex.up, strlen(rows[i].want));
	}
}

static void test_expect_passes_where_nothing_is_collected(void **state)
{
	struct keyed_bed *b = *state;

	(void)keyed_bed_send(
		b, "api.test", "POST /v1/x", "Expect: 100-continue\r\nContent-Length: 1\r\n");
	assert_non_null(strstr(b->out, "\r\nExpect: 100-continue\r\n"));
	assert_non_null(strstr(b->out, "\r\nContent-Length: 1\r\n\r\n"));
}

/* Trailers of a POST, and those that go out, `name: value,` each. under: a write under the rule. */
struct trailers_row {
	const char *host, *line, *trailers, *want;
	bool under;
};

static void run_trailers(
	struct keyed_bed *b, const struct trailers_row *row, enum proxy_placeholders placeholders)
{
	struct fields *f = xcalloc(1, sizeof(*f));
	struct slice rest = slice_str(row->trailers);
	char got[512] = "";

	b->px.config.placeholders = placeholders;
	b->px.config.read_only = row->under;
	keyed_bed_request(b, row->host, row->line, "Transfer-Encoding: chunked\r\n");
	b->ex.admission.write = row->under;
	assert_int_equal(keyed_bed_admit(b), REASON_ALLOWED);
	while (rest.p && rest.len > 0) {
		struct slice value = slice_cut(&rest, ',');

		f->v[f->n].name = slice_cut(&value, ':');
		f->v[f->n++].value = value;
	}
	keyed_request_trailers(&b->ex, f);
	for (size_t i = 0; i < f->n; i++) {
		size_t at = strlen(got);

		(void)snprintf(got + at, sizeof(got) - at, "%.*s:%.*s,", SLICE_FMT(f->v[i].name),
			SLICE_FMT(f->v[i].value));
	}
	if (strcmp(got, row->want) != 0)
		fail_msg("%s %s %s: %s", row->host, row->line, row->trailers, got);
	free(f);
}

static void test_trailers_bring_nothing_that_no_field_may(void **state)
{
	static const struct trailers_row rows[] = {
		{"api.test", "POST /v1/x", "A:1,B:2,", "A:1,B:2,", false},
		{"api.test", "POST /v1/x", "authorization:own,A:1,AUTHORIZATION:own,", "A:1,",
			false},
		{"wide.test", "POST /x", "A:1,X_Api-key:own,", "A:1,", false},
		{"wide.test", "POST /x", "Forwarded:h,X_Forwarded-For:h,X-Host:h,B:2,", "B:2,",
			false},
		/* its own credentials: only on a write under the rule */
		{"api.test", "POST /v1/x", "X_Api_Key:own,A:1,Cookie:own,", "A:1,", true},
		{"api.test", "POST /v1/x", "X_Api_Key:own,", "X_Api_Key:own,", false},
		/* keys of others, and its own ones */
		{"api.test", "POST /v1/x", "A:" OTHER ",B:" KEY ",C:3,", "B:" KEY ",C:3,", false},
		{"api.test", "POST /v1/x", OTHER ":1,C:3,", "C:3,", false},
		{"free.test", "POST /x", "A:" KEY ",C:3," KEY ":1,", "C:3,", false},
		{"api.test", "POST /none", "A:" KEY ",C:3,", "C:3,", false},
		/* placeholders of others, and its own ones */
		{"api.test", "POST /s/x", "A:ph-else-0003,B:ph-model-0001,", "B:ph-model-0001,",
			false},
		{"free.test", "POST /x", "A:ph-else-0003,ph-model-0001:1,C:3,", "C:3,", false},
	};
	static const struct trailers_row pass = {
		"free.test", "POST /x", "A:ph-else-0003,B:" KEY ",", "A:ph-else-0003,", false};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		run_trailers(*state, &rows[i], PROXY_PLACEHOLDERS_DENY);
		run_trailers(*state, &rows[i], PROXY_PLACEHOLDERS_STRIP);
	}
	run_trailers(*state, &pass, PROXY_PLACEHOLDERS_PASS);
}

static void test_without_a_vault_trailers_are_as_they_were(void **state)
{
	struct keyed_bed *b = *state;
	struct fields *f = xcalloc(1, sizeof(*f));

	keyed_bed_request(b, "api.test", "POST /v1/x", "Transfer-Encoding: chunked\r\n");
	f->n = 1;
	f->v[0].name = SLICE("Authorization");
	f->v[0].value = SLICE(KEY);
	keyed_request_trailers(&b->ex, f);
	assert_int_equal(f->n, 1);
	assert_int_equal(keyed_bed_admit(b), REASON_ALLOWED);
	keyed_request_trailers(&b->ex, NULL);
	keyed_request_trailers(&b->ex, f);
	assert_int_equal(f->n, 0);
	free(f);
}

/* The head is composed in locked memory, and nothing of it stays there. */
static void test_scratch_is_locked_and_wiped(void **state)
{
	struct keyed_bed *b = *state;
	struct io *io = b->px.io;
	bool chunked;

	keyed_bed_request(b, "api.test", "GET /v1/x", "");
	assert_int_equal(keyed_bed_admit(b), REASON_ALLOWED);
	(void)rewrite_request_head(&b->ex, &b->px.request, &b->conn, &chunked);
	assert_true(secmem_holds(b->f.mem, io->scratch));
	assert_true(slice_find(slice_make(io->scratch, IO_RECORD), SLICE(KEY)) < IO_RECORD);
	assert_non_null(strstr(keyed_bed_written(b), KEY));
	assert_int_equal(slice_find(slice_make(io->scratch, IO_RECORD), SLICE(KEY)), IO_RECORD);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, keyed_bed_open, keyed_bed_close)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_each_type_sets_its_fields),
		TEST(test_field_that_the_binding_sets_is_replaced_in_every_spelling),
		TEST(test_what_would_hide_an_answer_stays_here),
		TEST(test_fields_that_forward_stay_here_while_a_key_goes_out),
		TEST(test_placeholders_become_keys_in_their_places),
		TEST(test_strip_takes_fields_with_a_foreign_placeholder_out),
		TEST(test_own_credentials_stay_here_on_a_write),
		TEST(test_collected_content_goes_out_with_its_new_length),
		TEST(test_expect_passes_where_nothing_is_collected),
		TEST(test_trailers_bring_nothing_that_no_field_may),
		TEST(test_without_a_vault_trailers_are_as_they_were),
		TEST(test_scratch_is_locked_and_wiped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
