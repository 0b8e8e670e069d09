/* Answers of the lifecycle API (control/lifecycle_doc): what is read, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/strbuf.h"
#include "control/lifecycle_doc.h"

#define SANDBOX                                                                                 \
	"{\"id\":\"sbx-7f3a\",\"image\":{\"uri\":\"registry.example/ws:12\"},"                  \
	"\"status\":{\"state\":\"Paused\",\"reason\":\"CONTAINER_PAUSED\","                     \
	"\"lastTransitionAt\":\"2026-11-29T09:12:44Z\"},"                                       \
	"\"metadata\":{\"task\":\"T-1182\",\"agent\":\"reviewer\"},\"entrypoint\":[\"sleep\"]," \
	"\"createdAt\":\"2026-11-29T08:00:02Z\",\"expiresAt\":\"2026-11-30T08:00:02Z\"}"

static int read_one(const char *text, struct lifecycle_list *l)
{
	struct errmsg msg = {""};
	int ret = lifecycle_sandbox_decode(slice_str(text), SLICE("sbx-7f3a"), l, &msg);

	assert_true((ret < 0) == (msg.text[0] != '\0'));
	assert_int_equal(l->n, ret == 0);
	return ret;
}

static void test_a_sandbox_is_read(void **state)
{
	struct lifecycle_list l;

	assert_int_equal(read_one(SANDBOX, &l), 0);
	assert_true(slice_eq(l.v[0].id, SLICE("sbx-7f3a")));
	assert_int_equal(l.v[0].state, LIFECYCLE_PAUSED);
	assert_int_equal(l.v[0].expires_us, UINT64_C(1796025602000000));
	assert_string_equal(json_string_value(json_object_get(l.v[0].metadata, "task")), "T-1182");
	lifecycle_list_fini(&l);
}

static void test_what_may_be_absent_is(void **state)
{
	static const char *const rows[] = {
		"{\"id\":\"sbx-7f3a\",\"status\":{\"state\":\"Running\"}}",
		"{\"id\":\"sbx-7f3a\",\"status\":{\"state\":\"Running\"},\"expiresAt\":null,"
		"\"metadata\":null,\"new\":{\"x\":[1]}}",
	};
	struct lifecycle_list l;

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		assert_int_equal(read_one(rows[i], &l), 0);
		assert_int_equal(l.v[0].state, LIFECYCLE_RUNNING);
		assert_int_equal(l.v[0].expires_us, 0);
		assert_null(l.v[0].metadata);
		lifecycle_list_fini(&l);
	}
}

static void test_each_state_is_known_and_others_are_unknown(void **state)
{
	struct lifecycle_list l;
	char text[200];

	for (int s = 0; s < LIFECYCLE_STATES; s++) {
		(void)snprintf(text, sizeof(text),
			"{\"id\":\"sbx-7f3a\",\"status\":{\"state\":\"%s\"}}",
			lifecycle_state_text((enum lifecycle_state)s));
		assert_int_equal(read_one(text, &l), 0);
		assert_int_equal(l.v[0].state, s);
		lifecycle_list_fini(&l);
	}
	assert_int_equal(
		read_one("{\"id\":\"sbx-7f3a\",\"status\":{\"state\":\"Hibernated\"}}", &l), 0);
	assert_int_equal(l.v[0].state, LIFECYCLE_UNKNOWN);
	assert_true(slice_eq(l.v[0].state_text, SLICE("Hibernated")));
	lifecycle_list_fini(&l);
}

static void test_wrong_sandboxes_are_refused(void **state)
{
	static const struct {
		const char *text;
		int want;
	} rows[] = {
		{"", E_SYNTAX},
		{"[]", E_SYNTAX},
		{"{\"id\":\"sbx-7f3a\",\"status\":{\"state\":\"Run", E_SYNTAX},
		{"{\"id\":\"sbx-7f3a\"}", E_SYNTAX},
		{"{\"id\":\"sbx-7f3a\",\"id\":\"sbx-7f3a\",\"status\":{\"state\":\"Running\"}}",
			E_SYNTAX},
		{"{\"id\":7,\"status\":{\"state\":\"Running\"}}", E_SYNTAX},
		{"{\"id\":\"sbx-7f3b\",\"status\":{\"state\":\"Running\"}}", E_VALUE},
		{"{\"id\":\"sbx-7f3a\",\"status\":\"Running\"}", E_SYNTAX},
		{"{\"id\":\"sbx-7f3a\",\"status\":{\"state\":\"\"}}", E_SYNTAX},
		{"{\"id\":\"sbx-7f3a\",\"status\":{\"state\":1}}", E_SYNTAX},
		{"{\"id\":\"sbx-7f3a\",\"status\":{\"state\":\"Running\"},\"expiresAt\":0}",
			E_SYNTAX},
		{"{\"id\":\"sbx-7f3a\",\"status\":{\"state\":\"Running\"},\"expiresAt\":\"soon\"}",
			E_SYNTAX},
		{"{\"id\":\"sbx-7f3a\",\"status\":{\"state\":\"Running\"},"
		 "\"expiresAt\":\"1970-01-01T00:00:00Z\"}",
			E_SYNTAX},
		{"{\"id\":\"sbx-7f3a\",\"status\":{\"state\":\"Running\"},\"metadata\":[]}",
			E_LIMIT},
		{"{\"id\":\"sbx-7f3a\",\"status\":{\"state\":\"Running\"},\"metadata\":{\"a\":1}}",
			E_SYNTAX},
	};
	struct lifecycle_list l;

	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		assert_int_equal(read_one(rows[i].text, &l), rows[i].want);
}

static void test_ids_are_names_of_files(void **state)
{
	char text[LIFECYCLE_ID_MAX + 2];

	assert_true(lifecycle_id_ok(SLICE("a")));
	assert_true(lifecycle_id_ok(SLICE("Sbx_7.f-")));
	assert_false(lifecycle_id_ok(SLICE_EMPTY));
	assert_false(lifecycle_id_ok(SLICE(".")));
	assert_false(lifecycle_id_ok(SLICE("..")));
	assert_false(lifecycle_id_ok(SLICE(".a")));
	assert_false(lifecycle_id_ok(SLICE("a/b")));
	assert_false(lifecycle_id_ok(SLICE("a b")));
	assert_false(lifecycle_id_ok(SLICE("a%2f")));
	assert_false(lifecycle_id_ok(SLICE("a\0b")));
	assert_false(lifecycle_id_ok(SLICE("\xc3\xa4")));
	memset(text, 'a', sizeof(text));
	assert_true(lifecycle_id_ok(slice_make(text, LIFECYCLE_ID_MAX)));
	assert_false(lifecycle_id_ok(slice_make(text, LIFECYCLE_ID_MAX + 1)));
}

/* An object of n texts, bytes long in all (names of 4). */
static json_t *labels(size_t n, size_t bytes)
{
	json_t *o = json_object();
	char name[32], value[LIFECYCLE_METADATA_BYTES + 2];

	memset(value, 'v', sizeof(value));
	for (size_t i = 0; i < n; i++) {
		size_t len = i + 1 < n ? 1 : bytes - 5 * (n - 1) - 4;

		(void)snprintf(name, sizeof(name), "k%03zu", i);
		assert_int_equal(json_object_set_new(o, name, json_stringn(value, len)), 0);
	}
	return o;
}

static int read_labels(size_t n, size_t bytes)
{
	json_t *doc = json_pack("{s:s, s:{s:s}, s:o}", "id", "sbx-7f3a", "status", "state",
		"Running", "metadata", labels(n, bytes));
	char *text = json_dumps(doc, JSON_COMPACT);
	struct lifecycle_list l;
	int ret = read_one(text, &l);

	if (ret == 0)
		lifecycle_list_fini(&l);
	free(text);
	json_decref(doc);
	return ret;
}

static void test_metadata_has_limits(void **state)
{
	assert_int_equal(read_labels(LIFECYCLE_METADATA_MAX, 1000), 0);
	assert_int_equal(read_labels(LIFECYCLE_METADATA_MAX + 1, 1000), E_LIMIT);
	assert_int_equal(read_labels(2, LIFECYCLE_METADATA_BYTES), 0);
	assert_int_equal(read_labels(2, LIFECYCLE_METADATA_BYTES + 1), E_LIMIT);
}

static int read_page(const char *text, struct lifecycle_list *l)
{
	struct errmsg msg = {""};
	int ret = lifecycle_page_decode(slice_str(text), l, &msg);

	assert_true((ret < 0) == (msg.text[0] != '\0'));
	return ret;
}

static void test_a_page_is_read(void **state)
{
	struct lifecycle_list l;

	assert_int_equal(read_page("{\"items\":[" SANDBOX ",{\"id\":\"b\",\"status\":{\"state\":"
				   "\"Running\"}}],\"pagination\":{\"page\":1,\"pageSize\":200,"
				   "\"totalItems\":201,\"totalPages\":2,\"hasNextPage\":true}}",
				 &l),
		0);
	assert_int_equal(l.n, 2);
	assert_true(l.more);
	assert_true(slice_eq(l.v[1].id, SLICE("b")));
	lifecycle_list_fini(&l);
	assert_int_equal(read_page("{\"items\":[],\"pagination\":{\"hasNextPage\":false}}", &l), 0);
	assert_int_equal(l.n, 0);
	assert_false(l.more);
	lifecycle_list_fini(&l);
}

static void test_wrong_pages_are_refused(void **state)
{
	static const char *const rows[] = {
		"{}",
		"{\"items\":[]}",
		"{\"items\":{},\"pagination\":{\"hasNextPage\":false}}",
		"{\"items\":[],\"pagination\":{\"hasNextPage\":0}}",
		"{\"items\":[7],\"pagination\":{\"hasNextPage\":false}}",
	};
	struct lifecycle_list l;

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		assert_int_equal(read_page(rows[i], &l), E_SYNTAX);
		assert_int_equal(l.n, 0);
		assert_false(l.more);
	}
	assert_int_equal(
		read_page("{\"items\":[{\"id\":\"../x\",\"status\":{\"state\":\"Running\"}}],"
			  "\"pagination\":{\"hasNextPage\":false}}",
			&l),
		E_SYNTAX);
}

static void test_a_page_has_limits(void **state)
{
	struct lifecycle_list *l = malloc(sizeof(*l));
	struct strbuf text;

	assert_non_null(l);
	for (size_t n = LIFECYCLE_PAGE_MAX; n <= LIFECYCLE_PAGE_MAX + 1; n++) {
		strbuf_init(&text, 1u << 20);
		strbuf_str(&text, "{\"pagination\":{\"hasNextPage\":false},\"items\":[");
		for (size_t i = 0; i < n; i++)
			strbuf_printf(&text,
				"%s{\"id\":\"s%zu\",\"status\":{\"state\":\"Paused\"}}",
				i ? "," : "", i);
		strbuf_str(&text, "]}");
		assert_int_equal(
			read_page(strbuf_cstr(&text), l), n > LIFECYCLE_PAGE_MAX ? E_LIMIT : 0);
		assert_int_equal(l->n, n > LIFECYCLE_PAGE_MAX ? 0 : n);
		if (l->n)
			lifecycle_list_fini(l);
		strbuf_fini(&text);
	}
	free(l);
}

static void test_an_answer_has_a_limit(void **state)
{
	char *text = malloc(LIFECYCLE_DOC_MAX + 2);
	struct lifecycle_list l;

	assert_non_null(text);
	memset(text, ' ', LIFECYCLE_DOC_MAX + 1);
	memcpy(text, SANDBOX, sizeof(SANDBOX) - 1);
	text[LIFECYCLE_DOC_MAX] = '\0';
	assert_int_equal(read_one(text, &l), 0);
	lifecycle_list_fini(&l);
	text[LIFECYCLE_DOC_MAX] = ' ';
	text[LIFECYCLE_DOC_MAX + 1] = '\0';
	assert_int_equal(read_one(text, &l), E_LIMIT);
	free(text);
}

static int read_endpoint(const char *text, struct lifecycle_endpoint *e)
{
	static const struct lifecycle_endpoint none;
	struct errmsg msg = {""};
	int ret = lifecycle_endpoint_decode(slice_str(text), e, &msg);

	assert_true((ret < 0) == (msg.text[0] != '\0'));
	if (ret < 0)
		assert_memory_equal(e, &none, sizeof(none));
	return ret;
}

static void test_endpoints_are_read(void **state)
{
	static const struct {
		const char *text, *name, *prefix, *headers;
		uint16_t port;
	} rows[] = {
		{"{\"endpoint\":\"172.17.0.1:41022/proxy/18080\","
		 "\"headers\":{\"OPENSANDBOX-EGRESS-AUTH\":\"t0k\"}}",
			"172.17.0.1", "/proxy/18080", "OPENSANDBOX-EGRESS-AUTH: t0k\r\n", 41022},
		{"{\"endpoint\":\"Pod.Example\",\"headers\":null}", "pod.example", "", "", 0},
		{"{\"endpoint\":\"[fd00::1]:18080/\",\"headers\":{}}", "fd00::1", "", "", 18080},
		{"{\"endpoint\":\"h/sandboxes/a~b_c-d.e/port/1/\",\"headers\":{\"a\":\"1\","
		 "\"b\":\"\"}}",
			"h", "/sandboxes/a~b_c-d.e/port/1", "a: 1\r\nb: \r\n", 0},
	};
	struct lifecycle_endpoint e;

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		assert_int_equal(read_endpoint(rows[i].text, &e), 0);
		assert_string_equal(e.authority.name, rows[i].name);
		assert_int_equal(e.authority.port, rows[i].port);
		assert_string_equal(e.prefix, rows[i].prefix);
		assert_int_equal(e.headers_len, strlen(rows[i].headers));
		assert_memory_equal(e.headers, rows[i].headers, e.headers_len);
	}
}

static void test_wrong_addresses_of_endpoints_are_refused(void **state)
{
	static const char *const rows[] = {"", "/p", "http://h/p", "u@h/p", "h:0", "h:99999",
		"h?x=1", "h/p?x=1", "h/p#f", "h/a%2fb", "h//p", "h/../p", "h/./p", "h/p\\\\q",
		"h/p q", "h/p\\r\\nX: y", "h/\\u00e4", "[fd00::1/p", "h h", "h/p\\u0001"};
	struct lifecycle_endpoint e;
	char text[200];

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		(void)snprintf(text, sizeof(text), "{\"endpoint\":\"%s\"}", rows[i]);
		assert_int_equal(read_endpoint(text, &e), E_SYNTAX);
	}
	assert_int_equal(read_endpoint("{}", &e), E_SYNTAX);
	assert_int_equal(read_endpoint("{\"endpoint\":7}", &e), E_SYNTAX);
}

static void test_wrong_headers_of_endpoints_are_refused(void **state)
{
	static const struct {
		const char *headers;
		int want;
	} rows[] = {
		{"[]", E_SYNTAX},
		{"{\"a\":7}", E_VALUE},
		{"{\"\":\"v\"}", E_VALUE},
		{"{\"a b\":\"v\"}", E_VALUE},
		{"{\"a:b\":\"v\"}", E_VALUE},
		{"{\"a\":\"v\\r\\nb: c\"}", E_SYNTAX},
		{"{\"a\":\"\\u00e4\"}", E_SYNTAX},
		{"{\"Host\":\"elsewhere\"}", E_VALUE},
		{"{\"content_length\":\"0\"}", E_VALUE},
		{"{\"Transfer-Encoding\":\"chunked\"}", E_VALUE},
		{"{\"connection\":\"close\"}", E_VALUE},
		{"{\"Proxy-Authorization\":\"x\"}", E_VALUE},
		{"{\"a\":\"1\",\"b\":\"1\",\"c\":\"1\",\"d\":\"1\",\"e\":\"1\",\"f\":\"1\","
		 "\"g\":\"1\",\"h\":\"1\",\"i\":\"1\"}",
			E_SYNTAX},
	};
	struct lifecycle_endpoint e;
	char text[400];

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		(void)snprintf(
			text, sizeof(text), "{\"endpoint\":\"h\",\"headers\":%s}", rows[i].headers);
		assert_int_equal(read_endpoint(text, &e), rows[i].want);
	}
}

/* pad: bytes of the path, and of the value. */
static int read_padded(size_t path, size_t value)
{
	static struct lifecycle_endpoint e;
	static char a[4096], b[4096], text[9000];

	memset(a, 'p', path);
	memset(b, 'v', value);
	a[0] = '/';
	a[path] = b[value] = '\0';
	(void)snprintf(
		text, sizeof(text), "{\"endpoint\":\"h%s\",\"headers\":{\"n\":\"%s\"}}", a, b);
	return read_endpoint(text, &e);
}

static void test_endpoints_have_limits(void **state)
{
	/* A NUL behind each; "n: " and the CRLF. */
	size_t value = LIFECYCLE_HEADER_BYTES - 1 - 5;

	assert_int_equal(read_padded(LIFECYCLE_PREFIX_MAX - 1, value), 0);
	assert_int_equal(read_padded(LIFECYCLE_PREFIX_MAX, value), E_LIMIT);
	assert_int_equal(read_padded(LIFECYCLE_PREFIX_MAX - 1, value + 1), E_LIMIT);
}

static void test_errors_are_told(void **state)
{
	char buf[LIFECYCLE_ERROR_MAX], text[2 * LIFECYCLE_ERROR_MAX];

	assert_string_equal(
		lifecycle_error_text(
			SLICE("{\"code\":\"INVALID_API_KEY\",\"message\":\"not valid.\"}"), buf),
		"INVALID_API_KEY: not valid.");
	assert_string_equal(lifecycle_error_text(SLICE("{\"detail\":[]}"), buf), "");
	assert_string_equal(lifecycle_error_text(SLICE("{\"code\":1,\"message\":\"a\"}"), buf), "");
	assert_string_equal(lifecycle_error_text(SLICE("<html>"), buf), "");
	(void)snprintf(text, sizeof(text), "{\"code\":\"C\",\"message\":\"%0*d\"}",
		LIFECYCLE_ERROR_MAX, 0);
	assert_int_equal(
		strlen(lifecycle_error_text(slice_str(text), buf)), LIFECYCLE_ERROR_MAX - 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_sandbox_is_read),
		cmocka_unit_test(test_what_may_be_absent_is),
		cmocka_unit_test(test_each_state_is_known_and_others_are_unknown),
		cmocka_unit_test(test_wrong_sandboxes_are_refused),
		cmocka_unit_test(test_ids_are_names_of_files),
		cmocka_unit_test(test_metadata_has_limits),
		cmocka_unit_test(test_a_page_is_read),
		cmocka_unit_test(test_wrong_pages_are_refused),
		cmocka_unit_test(test_a_page_has_limits),
		cmocka_unit_test(test_an_answer_has_a_limit),
		cmocka_unit_test(test_endpoints_are_read),
		cmocka_unit_test(test_wrong_addresses_of_endpoints_are_refused),
		cmocka_unit_test(test_wrong_headers_of_endpoints_are_refused),
		cmocka_unit_test(test_endpoints_have_limits),
		cmocka_unit_test(test_errors_are_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
