/* Placeholders in bodies. S numbers are lines of the conformance catalogue, C numbers cases of
 * peers' failures. */
#include "tests/unit/vault/fixture.h"
#include "vault/substitute_int.h"

#define JSON "application/json"
#define FORM "application/x-www-form-urlencoded"

#define SUB(key, placeholder, in) \
	"{'credential':'" key "','placeholder':'" placeholder "','in':[" in "]}"

struct row {
	const char *subs; /* NULL: those of the row before */
	const char *type;
	const char *text;
	const char *want; /* NULL: the text */
	size_t n;
};

static void load_subs(struct fixture *f, const char *subs, struct vault_view **view)
{
	char doc[8192];

	(void)snprintf(doc, sizeof(doc),
		"{'credentials':[{'name':'odd','source':{'value':'p@ss\\\"w\\u00f6rd\\\\1'}},"
		"{'name':'k','source':{'value':'sk-value-01'}},"
		"{'name':'plus','source':{'value':'a b+c'}},"
		"{'name':'wild','source':{'value':'\\u0001\\t\\n\\r\\b\\f/<>&\\u2028\\ud83d\\ude00"
		"\\u007f'}}],"
		"'bindings':[{'name':'b','match':{'hosts':['a.test']},'auth':{'type':'passthrough',"
		"'substitutions':[%s]}}]}",
		subs);
	vault_view_unref(*view);
	fixture_load(f, doc);
	*view = vault_view_get(f->vault);
}

static void run_rows(const struct row *rows, size_t n_rows)
{
	struct vault_view *view = NULL;
	struct fixture f;

	fixture_open(&f);
	for (size_t i = 0; i < n_rows; i++) {
		const struct row *r = &rows[i];
		const char *want = r->want ? r->want : r->text;
		struct fixture_out out = {.len = 0};
		struct substitute_sink sink = {fixture_put, &out};
		size_t len = 99;
		const struct binding *b;
		size_t n;

		if (r->subs)
			load_subs(&f, r->subs, &view);
		b = fixture_bound(view, "a.test", "/");
		n = substitute_body(b, slice_str(r->type), slice_str(r->text), &sink, &len);
		if (n != r->n || strcmp(out.text, want) != 0 || len != out.len)
			fail_msg("%s %s: %zu, %s", r->type, r->text, n, out.text);
		assert_int_equal(
			substitute_body(b, slice_str(r->type), slice_str(r->text), NULL, &len), n);
		assert_int_equal(len, out.len);
	}
	vault_view_unref(view);
	fixture_close(&f);
}

#define RUN_ROWS(rows) run_rows(rows, ARRAY_LEN(rows))

static const struct row whole[] = {
	/* S76, 12.5 */
	{SUB("odd", "__CLIENT_SECRET__", "'body'"), JSON "; charset=utf-8",
		"{\"grant_type\":\"client_credentials\",\"client_id\":\"agent-7\",\"client_"
		"secret\":"
		"\"__CLIENT_SECRET__\"}",
		"{\"grant_type\":\"client_credentials\",\"client_id\":\"agent-7\",\"client_"
		"secret\":"
		"\"p@ss\\\"w\\u00f6rd\\\\1\"}",
		1},
	/* S77 */
	{NULL, "application/merge-patch+json; charset=utf-8", "{\"a\":\"__CLIENT_SECRET__\"}",
		"{\"a\":\"p@ss\\\"w\\u00f6rd\\\\1\"}", 1},
	{NULL, "APPLICATION/JSON", "\"__CLIENT_SECRET__\"", "\"p@ss\\\"w\\u00f6rd\\\\1\"", 1},
	{NULL, "application/json2", "__CLIENT_SECRET__", "p@ss\"w\xc3\xb6rd\\1", 1},
	{NULL, "+json", "__CLIENT_SECRET__", "p@ss\"w\xc3\xb6rd\\1", 1},
	/* 12.5 as a form */
	{NULL, FORM,
		"grant_type=client_credentials&client_id=agent-7&client_secret=__CLIENT_SECRET__",
		"grant_type=client_credentials&client_id=agent-7&client_secret=p%40ss%22w%C3%B6rd%"
		"5C1",
		1},
	{NULL, "", "__CLIENT_SECRET__", "p@ss\"w\xc3\xb6rd\\1", 1},
	{NULL, "text/plain", "a __CLIENT_SECRET__ __CLIENT_SECRET__ __CLIENT_SECRET__",
		"a p@ss\"w\xc3\xb6rd\\1 p@ss\"w\xc3\xb6rd\\1 p@ss\"w\xc3\xb6rd\\1", 3},
	{NULL, JSON, "", NULL, 0},
	{NULL, JSON, "{\"a\":1}", NULL, 0},
	/* JSON that is broken is still escaped as its type says. */
	{NULL, JSON, "{\"a\":\"__CLIENT_SECRET__\"", "{\"a\":\"p@ss\\\"w\\u00f6rd\\\\1\"", 1},
	/* 5.4 */
	{NULL, "multipart/form-data; boundary=x", "__CLIENT_SECRET__", NULL, 0},
	{NULL, "Multipart/mixed", "__CLIENT_SECRET__", NULL, 0},
	{NULL, JSON, "__CLIENT_SECRET__\xff", NULL, 0},
	{NULL, "text/plain", "\xc3__CLIENT_SECRET__", NULL, 0},
	{NULL, "text/plain", "\xc0\xaf__CLIENT_SECRET__", NULL, 0},
	{NULL, "text/plain", "\xed\xa0\x80__CLIENT_SECRET__", NULL, 0},
	/* S78 */
	{SUB("plus", "ph-model-0001", "'body'"), FORM "; charset=utf-8", "k=ph-model-0001&b=1",
		"k=a+b%2Bc&b=1", 1},
	/* Every kind of escape */
	{SUB("wild", "ph-model-0001", "'body'"), JSON, "\"ph-model-0001\"",
		"\"\\u0001\\t\\n\\r\\b\\f/<>&\\u2028\\ud83d\\ude00\\u007f\"", 1},
	/* A binding without body leaves it alone. */
	{SUB("k", "ph-model-0001", "'header','query','path'"), JSON, "\"ph-model-0001\"", NULL, 0},
};

static void test_whole_bodies(void **arg)
{
	RUN_ROWS(whole);
}

static const struct row forms[] = {
	{SUB("plus", "ph-model-0001", "'form:k'"), FORM, "a=ph-model-0001&k=ph-model-0001&b=2",
		"a=ph-model-0001&k=a+b%2Bc&b=2", 1},
	/* C115: as a library that escapes more than it must writes it. */
	{NULL, FORM, "k=ph%2Dmodel%2D0001", "k=a+b%2Bc", 1},
	{NULL, FORM, "k=%70%68-model-000%31&z=%41", "k=a+b%2Bc&z=%41", 1},
	{NULL, FORM, "x=%26k%3Dph-model-0001&k=%zz", NULL, 0},
	{NULL, FORM, "k=%2ph-model-0001%", "k=%2a+b%2Bc%", 1},
	{NULL, FORM, "%6b=x&ph-model-0001&%6B=ph-model-0001", "%6b=x&ph-model-0001&%6B=a+b%2Bc", 1},
	{NULL, FORM, "k=ph-model-0001ph%2dmodel-0001&k=ph-model-0001", "k=a+b%2Bca+b%2Bc&k=a+b%2Bc",
		3},
	/* Slots of a form are no slots of anything else. */
	{NULL, "text/plain", "k=ph-model-0001", NULL, 0},
	{NULL, JSON, "{\"k\":\"ph-model-0001\"}", NULL, 0},
	{NULL, JSON, "k=ph-model-0001", NULL, 0},
	{NULL, "", "k=ph-model-0001", NULL, 0},
	/* Whole surface and slot side by side */
	{SUB("plus", "ph-model-0001", "'form:k'") "," SUB("k", "ph-other-0002", "'body'"), FORM,
		"a=ph-other-0002&ph-other-0002=ph-model-0001&k=ph-model-0001",
		"a=sk-value-01&sk-value-01=ph-model-0001&k=a+b%2Bc", 3},
};

static void test_forms(void **arg)
{
	RUN_ROWS(forms);
}

static const struct row pointers[] = {
	/* C115, and design 6: a chat history that talks about the placeholder passes. */
	{SUB("k", "ph-model-0001", "'json:/k'"), JSON,
		"{\"messages\":[{\"k\":\"ph-model-0001\"},\"ph-model-0001\"],\"ph-model-0001\":1,"
		"\"k\": \"ph-model-0001\" }",
		"{\"messages\":[{\"k\":\"ph-model-0001\"},\"ph-model-0001\"],\"ph-model-0001\":1,"
		"\"k\": \"sk-value-01\" }",
		1},
	{NULL, JSON, "{\"k\":\"a ph-model-0001 ph-model-0001\"}",
		"{\"k\":\"a sk-value-01 sk-value-01\"}", 2},
	{NULL, JSON, " {\"k\":\"ph-model-0001\",\"k\":\"ph-model-0001\"} ",
		" {\"k\":\"sk-value-01\",\"k\":\"sk-value-01\"} ", 2},
	{NULL, JSON, "{\"\\u006b\":\"ph-model-0001\"}", "{\"\\u006b\":\"sk-value-01\"}", 1},
	{NULL, JSON, "{\"kk\":\"ph-model-0001\",\"\":\"ph-model-0001\",\"K\":\"ph-model-0001\"}",
		NULL, 0},
	{NULL, JSON, "{\"k\":{\"k\":\"ph-model-0001\"}}", NULL, 0},
	{NULL, JSON, "{\"k\":[\"ph-model-0001\"]}", NULL, 0},
	{NULL, JSON, "[\"ph-model-0001\"]", NULL, 0},
	{NULL, JSON, "\"ph-model-0001\"", NULL, 0},
	{NULL, JSON, "{\"x\":{},\"k\":\"ph-model-0001\"}", "{\"x\":{},\"k\":\"sk-value-01\"}", 1},
	{NULL, JSON, "{\"x\":[{\"k\":[]}],\"k\":\"ph-model-0001\"}",
		"{\"x\":[{\"k\":[]}],\"k\":\"sk-value-01\"}", 1},
	{NULL, JSON, "{\"k\":\"ph-model-\\u0030001\"}", NULL, 0},
	{NULL, "application/vnd.x+json", "{\"k\":\"ph-model-0001\"}", "{\"k\":\"sk-value-01\"}", 1},
	{NULL, "text/plain", "{\"k\":\"ph-model-0001\"}", NULL, 0},
	{NULL, FORM, "k=ph-model-0001", NULL, 0},
	/* No JSON, no slots. */
	{NULL, JSON, "{\"k\":\"ph-model-0001\"", NULL, 0},
	{NULL, JSON, "{\"k\":\"ph-model-0001\"}x", NULL, 0},
	{NULL, JSON, "{\"k\":\"ph-model-0001\"}{}", NULL, 0},
	{NULL, JSON, "{\"k\":\"ph-model-0001\",}", NULL, 0},
	{NULL, JSON, "{\"k\":\"ph-model-0001\" \"x\":1}", NULL, 0},
	{NULL, JSON, "{\"k\" \"ph-model-0001\"}", NULL, 0},
	{NULL, JSON, "{k:\"ph-model-0001\"}", NULL, 0},
	{NULL, JSON, "{\"a\":[1 2],\"k\":\"ph-model-0001\"}", NULL, 0},
	{NULL, JSON, "{\"a\":[1,],\"k\":\"ph-model-0001\"}", NULL, 0},
	{NULL, JSON, "{\"a\":[1},\"k\":\"ph-model-0001\"}", NULL, 0},
	{NULL, JSON, "{\"a\":\"\\x\",\"k\":\"ph-model-0001\"}", NULL, 0},
	{NULL, JSON, "{\"a\":\"\\u12g4\",\"k\":\"ph-model-0001\"}", NULL, 0},
	{NULL, JSON, "{\"a\":\"\t\",\"k\":\"ph-model-0001\"}", NULL, 0},
	{NULL, JSON, "{\"k\":\"ph-model-0001", NULL, 0},
	{NULL, JSON, "{\"k\":\"ph-model-0001\\", NULL, 0},
	{NULL, JSON, "{\"k\":\"ph-model-0001\",\"a\":01}", NULL, 0},
	{NULL, JSON, "{\"k\":\"ph-model-0001\",\"a\":-}", NULL, 0},
	{NULL, JSON, "{\"k\":\"ph-model-0001\",\"a\":1.}", NULL, 0},
	{NULL, JSON, "{\"k\":\"ph-model-0001\",\"a\":1e}", NULL, 0},
	{NULL, JSON, "{\"k\":\"ph-model-0001\",\"a\":.5}", NULL, 0},
	{NULL, JSON, "{\"k\":\"ph-model-0001\",\"a\":+1}", NULL, 0},
	{NULL, JSON, "{\"k\":\"ph-model-0001\",\"a\":tru}", NULL, 0},
	{NULL, JSON, "{\"k\":\"ph-model-0001\",\"a\":nul}", NULL, 0},
	{NULL, JSON, "{\"k\":\"ph-model-0001\",\"a\":falsy}", NULL, 0},
	{NULL, JSON, "{\"k\":\"ph-model-0001\",\"a\":}", NULL, 0},
	{NULL, JSON, "ph-model-0001", NULL, 0},
	{NULL, JSON,
		"{\"a\":[0,-0,10,-1.5,2e8,3E+1,4e-2,true,false,null,{},[],\"\\\"\\\\\\/\\b\\f\\n\\r"
		"\\t\\u00e9\"],\"k\":\"ph-model-0001\"}",
		"{\"a\":[0,-0,10,-1.5,2e8,3E+1,4e-2,true,false,null,{},[],\"\\\"\\\\\\/\\b\\f\\n\\r"
		"\\t\\u00e9\"],\"k\":\"sk-value-01\"}",
		1},
	/* Deeper pointers, indexes, and the escapes of pointers and of keys */
	{SUB("odd", "ph-model-0001", "'json:/a/1/b'"), JSON,
		"{\"a\":[{\"b\":\"ph-model-0001\"},{\"b\":\"ph-model-0001\"},{\"b\":\"ph-model-0001"
		"\"}],\"1\":{\"b\":\"ph-model-0001\"}}",
		"{\"a\":[{\"b\":\"ph-model-0001\"},{\"b\":\"p@ss\\\"w\\u00f6rd\\\\1\"},{\"b\":"
		"\"ph-model-0001\"}],\"1\":{\"b\":\"ph-model-0001\"}}",
		1},
	{NULL, JSON, "{\"a\":{\"1\":{\"b\":\"ph-model-0001\"}}}",
		"{\"a\":{\"1\":{\"b\":\"p@ss\\\"w\\u00f6rd\\\\1\"}}}", 1},
	{NULL, JSON, "[{\"a\":{\"1\":{\"b\":\"ph-model-0001\"}}}]", NULL, 0},
	{SUB("k", "ph-model-0001", "'json:/10'"), JSON,
		"[0,\"ph-model-0001\",2,3,4,5,6,7,8,9,\"ph-model-0001\"]",
		"[0,\"ph-model-0001\",2,3,4,5,6,7,8,9,\"sk-value-01\"]", 1},
	{SUB("k", "ph-model-0001", "'json:/'"), JSON, "{\"\":\"ph-model-0001\"}",
		"{\"\":\"sk-value-01\"}", 1},
	{SUB("k", "ph-model-0001", "'json:/a~1b~0c'"), JSON, "{\"a/b~c\":\"ph-model-0001\"}",
		"{\"a/b~c\":\"sk-value-01\"}", 1},
	{NULL, JSON, "{\"a\\/b\\u007ec\":\"ph-model-0001\"}", "{\"a\\/b\\u007ec\":\"sk-value-01\"}",
		1},
	{NULL, JSON, "{\"a~1b~0c\":\"ph-model-0001\",\"a\":{\"b~c\":\"ph-model-0001\"}}", NULL, 0},
	{SUB("k", "ph-model-0001", "'json:/\\u00e9\\u20ac\\ud83d\\ude00\\\"\\\\'"), JSON,
		"{\"\\u00e9\\u20AC\\ud83d\\ude00\\\"\\\\\":\"ph-model-0001\"}",
		"{\"\\u00e9\\u20AC\\ud83d\\ude00\\\"\\\\\":\"sk-value-01\"}", 1},
	{NULL, JSON, "{\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\\\"\\\\\":\"ph-model-0001\"}",
		"{\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\\\"\\\\\":\"sk-value-01\"}", 1},
	{NULL, JSON, "{\"\\u00e9\\u20AC\\ud83d\\\"\\\\\":\"ph-model-0001\"}", NULL, 0},
	{NULL, JSON, "{\"\\u00e9\\u20AC\\ud83d\\u0041\":\"ph-model-0001\"}", NULL, 0},
	{NULL, JSON, "{\"\\b\\f\\n\\r\\t\":\"ph-model-0001\"}", NULL, 0},
	/* Several pointers, and the whole surface beside them */
	{SUB("k", "ph-model-0001", "'json:/b','json:/a/x'") "," SUB(
		 "odd", "ph-other-0002", "'json:/a/x'") "," SUB("plus", "ph-third-0003", "'body'"),
		JSON,
		"{\"a\":{\"x\":\"ph-model-0001 ph-other-0002\",\"y\":\"ph-other-0002\"},\"b\":"
		"\"ph-other-0002 ph-model-0001\",\"ph-third-0003\":0}",
		"{\"a\":{\"x\":\"sk-value-01 p@ss\\\"w\\u00f6rd\\\\1\",\"y\":\"ph-other-0002\"},"
		"\"b\":\"ph-other-0002 sk-value-01\",\"a b+c\":0}",
		4},
	/* A placeholder that leaves its string is none. */
	{SUB("k", "0001\\\",\\\"b\\\"", "'json:/a'"), JSON, "{\"a\":\"0001\",\"b\":\"\"}", NULL, 0},
};

static void test_pointers(void **arg)
{
	RUN_ROWS(pointers);
}

static void put_nothing(void *arg, struct slice piece)
{
	*(size_t *)arg += piece.len;
}

static size_t replaced_at_depth(const struct binding *b, size_t depth)
{
	char text[1024];
	size_t len = 0;
	size_t written = 0;
	struct substitute_sink sink = {put_nothing, &written};
	size_t n;

	len += (size_t)snprintf(text, sizeof(text), "{\"k\":\"ph-model-0001\",\"x\":");
	for (size_t i = 1; i < depth; i++)
		text[len++] = '[';
	for (size_t i = 1; i < depth; i++)
		text[len++] = ']';
	text[len++] = '}';
	n = substitute_body(b, SLICE(JSON), slice_make(text, len), &sink, NULL);
	assert_int_equal(written, len - 2 * n);
	return n;
}

static void test_depth_limit(void **arg)
{
	struct vault_view *view = NULL;
	const struct binding *b;
	struct fixture f;

	fixture_open(&f);
	load_subs(&f, SUB("k", "ph-model-0001", "'json:/k'"), &view);
	b = fixture_bound(view, "a.test", "/");
	assert_int_equal(replaced_at_depth(b, SUBSTITUTE_JSON_DEPTH_MAX), 1);
	assert_int_equal(replaced_at_depth(b, SUBSTITUTE_JSON_DEPTH_MAX + 1), 0);
	vault_view_unref(view);
	fixture_close(&f);
}

/* A body that is all placeholders where none counts, in time that grows with its length alone. */
static void test_large_bodies_full_of_placeholders(void **arg)
{
	static const char *const types[] = {JSON, FORM, "text/plain"};
	size_t n = 1 << 20;
	char *text = xmalloc(n);
	struct vault_view *view = NULL;
	const struct binding *b;
	struct fixture f;

	fixture_open(&f);
	load_subs(&f, SUB("k", "aaaaaaaa", "'json:/k','form:k'"), &view);
	b = fixture_bound(view, "a.test", "/");
	memset(text, 'a', n);
	memcpy(text, "{\"x\":\"", 6);
	memcpy(text + n - 2, "\"}", 2);
	for (size_t i = 0; i < ARRAY_LEN(types); i++) {
		size_t written = 0;
		struct substitute_sink sink = {put_nothing, &written};

		assert_int_equal(
			substitute_body(b, slice_str(types[i]), slice_make(text, n), &sink, NULL),
			0);
		assert_int_equal(written, n);
	}
	vault_view_unref(view);
	fixture_close(&f);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whole_bodies),
		cmocka_unit_test(test_forms),
		cmocka_unit_test(test_pointers),
		cmocka_unit_test(test_depth_limit),
		cmocka_unit_test(test_large_bodies_full_of_placeholders),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
