/* Placeholders in path, query and header fields. S numbers are lines of the conformance catalogue,
 * C numbers cases of peers' failures. */
#include "tests/unit/vault/fixture.h"
#include "vault/vault_int.h"

/* Credentials for every binding here. */
#define KEYS                                                      \
	"{'credentials':["                                        \
	"{'name':'k','source':{'value':'sk-value-01'}},"          \
	"{'name':'odd','source':{'value':'query secret+value'}}," \
	"{'name':'maps','source':{'value':'k+9/= q'}},"           \
	"{'name':'slash','source':{'value':'a/b'}},"              \
	"{'name':'escaped','source':{'value':'a%2Fb'}},"          \
	"{'name':'dots','source':{'value':'..'}},"                \
	"{'name':'dot','source':{'value':'.'}},"                  \
	"{'name':'back','source':{'value':'a\\\\b'}},"            \
	"{'name':'utf','source':{'value':'\\u00f6~_.-'}},"        \
	"{'name':'nested','source':{'value':'xph-model-0001'}},"  \
	"{'name':'long','source':{'value':'sk-value-02'}}],"
#define BIND(subs)                                                                  \
	KEYS "'bindings':[{'name':'b','match':{'hosts':['a.test']},'auth':{'type':" \
	     "'passthrough','substitutions':[" subs "]}}]}"
#define SUB(key, placeholder, in) \
	"{'credential':'" key "','placeholder':'" placeholder "','in':[" in "]}"

struct row {
	const char *subs; /* NULL: those of the row before */
	enum surface surface;
	const char *slot;
	enum substitute_style style;
	const char *text;
	const char *want;
	size_t n;
};

static const struct row rows[] = {
	/* S74, 12.4 */
	{SUB("odd", "__query_key__", "'query'"), SURFACE_QUERY, "", SUBSTITUTE_PERCENT,
		"a=1&key=__query_key__&b=2", "a=1&key=query%20secret%2Bvalue&b=2", 1},
	{NULL, SURFACE_QUERY, "", SUBSTITUTE_FORM, "__query_key__", "query+secret%2Bvalue", 1},
	{NULL, SURFACE_QUERY, "", SUBSTITUTE_RAW, "__query_key__", "query secret+value", 1},
	{NULL, SURFACE_QUERY, "", SUBSTITUTE_PERCENT, "__QUERY_KEY__", "__QUERY_KEY__", 0},
	{NULL, SURFACE_QUERY, "", SUBSTITUTE_PERCENT, "%5F_query_key__", "%5F_query_key__", 0},
	/* S75: other surfaces stay. */
	{NULL, SURFACE_PATH, "", SUBSTITUTE_PERCENT, "/__query_key__", "/__query_key__", 0},
	{NULL, SURFACE_HEADER, "x", SUBSTITUTE_RAW, "__query_key__", "__query_key__", 0},
	{SUB("maps", "__MAPS_KEY__", "'query'"), SURFACE_QUERY, "", SUBSTITUTE_PERCENT,
		"q=Paris&key=__MAPS_KEY__&note=__MAPS_KEY__x",
		"q=Paris&key=k%2B9%2F%3D%20q&note=k%2B9%2F%3D%20qx", 2},
	{NULL, SURFACE_QUERY, "", SUBSTITUTE_PERCENT, "", "", 0},
	{NULL, SURFACE_QUERY, "", SUBSTITUTE_PERCENT, "__MAPS_KEY_", "__MAPS_KEY_", 0},
	/* Upper-case hex; the unreserved stay. */
	{SUB("utf", "ph-model-0001", "'path'"), SURFACE_PATH, "", SUBSTITUTE_PERCENT,
		"/v1/ph-model-0001/x", "/v1/%C3%B6~_.-/x", 1},
	/* 5.3: headers without encoding, but for the fields that frame and route. */
	{SUB("maps", "ph-model-0001", "'header'"), SURFACE_HEADER, "x-api-key", SUBSTITUTE_RAW,
		"ph-model-0001", "k+9/= q", 1},
	{NULL, SURFACE_HEADER, "cookie", SUBSTITUTE_RAW, "s=ph-model-0001; t=1", "s=k+9/= q; t=1",
		1},
	{NULL, SURFACE_HEADER, "authorization", SUBSTITUTE_RAW, "Bearer ph-model-0001",
		"Bearer k+9/= q", 1},
	{NULL, SURFACE_HEADER, "x", SUBSTITUTE_RAW, "\"ph-model-0001\"", "\"k+9/= q\"", 1},
	{NULL, SURFACE_HEADER, "content-type", SUBSTITUTE_RAW, "ph-model-0001", "k+9/= q", 1},
	{NULL, SURFACE_HEADER, "Host", SUBSTITUTE_RAW, "ph-model-0001", "ph-model-0001", 0},
	{NULL, SURFACE_HEADER, "x-forwarded-for", SUBSTITUTE_BASIC, "ph-model-0001",
		"ph-model-0001", 0},
	{NULL, SURFACE_HEADER, "TE", SUBSTITUTE_RAW, "ph-model-0001", "ph-model-0001", 0},
	/* S79, C130: the longest wins, nothing that was put in is looked at again. */
	{SUB("nested", "ph-model-00011", "'header'") "," SUB("k", "ph-model-0001", "'header'"),
		SURFACE_HEADER, "x", SUBSTITUTE_RAW, "ph-model-0001 ph-model-00011 ph-model-000111",
		"sk-value-01 xph-model-0001 xph-model-00011", 3},
	/* The longer one is bound elsewhere: the shorter one counts. */
	{SUB("long", "ph-model-00011", "'query'") "," SUB("k", "ph-model-0001", "'header'"),
		SURFACE_HEADER, "x", SUBSTITUTE_RAW, "ph-model-00011", "sk-value-011", 1},
	/* The same placeholder is another key on another surface. */
	{SUB("k", "ph-model-0001", "'header'") "," SUB("long", "ph-model-0001", "'query'"),
		SURFACE_HEADER, "x", SUBSTITUTE_RAW, "ph-model-0001", "sk-value-01", 1},
	{NULL, SURFACE_QUERY, "", SUBSTITUTE_PERCENT, "ph-model-0001", "sk-value-02", 1},
	{SUB("k", "abababab", "'header'"), SURFACE_HEADER, "x", SUBSTITUTE_RAW, "ababababababab",
		"sk-value-01ababab", 1},
	{NULL, SURFACE_HEADER, "x", SUBSTITUTE_RAW, "xababababababababx",
		"xsk-value-01sk-value-01x", 2},
	{NULL, SURFACE_HEADER, "x", SUBSTITUTE_RAW, "aabababab", "ask-value-01", 1},
	/* Slots */
	{SUB("k", "ph-model-0001", "'header:X-Key','query:key'"), SURFACE_HEADER, "x-kEY",
		SUBSTITUTE_RAW, "ph-model-0001", "sk-value-01", 1},
	{NULL, SURFACE_HEADER, "x-key2", SUBSTITUTE_RAW, "ph-model-0001", "ph-model-0001", 0},
	{NULL, SURFACE_HEADER, "", SUBSTITUTE_RAW, "ph-model-0001", "ph-model-0001", 0},
	{NULL, SURFACE_QUERY, "key", SUBSTITUTE_PERCENT, "ph-model-0001", "sk-value-01", 1},
	{NULL, SURFACE_QUERY, "k%65y", SUBSTITUTE_PERCENT, "ph-model-0001", "sk-value-01", 1},
	{NULL, SURFACE_QUERY, "Key", SUBSTITUTE_PERCENT, "ph-model-0001", "ph-model-0001", 0},
	{NULL, SURFACE_QUERY, "key2", SUBSTITUTE_PERCENT, "ph-model-0001", "ph-model-0001", 0},
	{NULL, SURFACE_QUERY, "ke", SUBSTITUTE_PERCENT, "ph-model-0001", "ph-model-0001", 0},
	/* C115: Basic is decoded, replaced and encoded again. */
	{SUB("k", "ph-model-0001", "'header:authorization'"), SURFACE_HEADER, "authorization",
		SUBSTITUTE_BASIC, "Basic dXNlcjpwaC1tb2RlbC0wMDAx",
		"Basic dXNlcjpzay12YWx1ZS0wMQ==", 1},
	{NULL, SURFACE_HEADER, "authorization", SUBSTITUTE_BASIC,
		"basic  cGgtbW9kZWwtMDAwMTo=", "basic  c2stdmFsdWUtMDE6", 1},
	{NULL, SURFACE_HEADER, "authorization", SUBSTITUTE_BASIC, "Basic cGgtbW9kZWwtMDAwMTo",
		"Basic c2stdmFsdWUtMDE6", 1},
	{NULL, SURFACE_HEADER, "authorization", SUBSTITUTE_BASIC,
		"Basic cGgtbW9kZWwtMDAwMTpwaC1tb2RlbC0wMDAx",
		"Basic c2stdmFsdWUtMDE6c2stdmFsdWUtMDE=", 2},
	{NULL, SURFACE_HEADER, "authorization", SUBSTITUTE_BASIC, "Basic dXNlcjpwYXNz",
		"Basic dXNlcjpwYXNz", 0},
	{NULL, SURFACE_HEADER, "authorization", SUBSTITUTE_BASIC, "Bearer ph-model-0001",
		"Bearer sk-value-01", 1},
	{NULL, SURFACE_HEADER, "authorization", SUBSTITUTE_BASIC, "Basic ph-model-0001",
		"Basic sk-value-01", 1},
	{NULL, SURFACE_HEADER, "authorization", SUBSTITUTE_BASIC, "BasicdXNlcjpwaC1tb2RlbC0wMDAx",
		"BasicdXNlcjpwaC1tb2RlbC0wMDAx", 0},
	{NULL, SURFACE_HEADER, "authorization", SUBSTITUTE_BASIC, "Basic ", "Basic ", 0},
	{NULL, SURFACE_HEADER, "authorization", SUBSTITUTE_BASIC, "Basic", "Basic", 0},
	{NULL, SURFACE_HEADER, "authorization", SUBSTITUTE_BASIC, "Basic A", "Basic A", 0},
	{NULL, SURFACE_HEADER, "authorization", SUBSTITUTE_BASIC, "", "", 0},
	{NULL, SURFACE_HEADER, "x-other", SUBSTITUTE_BASIC, "Basic dXNlcjpwaC1tb2RlbC0wMDAx",
		"Basic dXNlcjpwaC1tb2RlbC0wMDAx", 0},
	{NULL, SURFACE_HEADER, "authorization", SUBSTITUTE_RAW, "Basic dXNlcjpwaC1tb2RlbC0wMDAx",
		"Basic dXNlcjpwaC1tb2RlbC0wMDAx", 0},
};

static void load_subs(struct fixture *f, const char *subs, struct vault_view **view)
{
	static const char form[] = BIND("@@");
	const char *hole = strstr(form, "@@");
	char doc[4096];

	(void)snprintf(doc, sizeof(doc), "%.*s%s%s", (int)(hole - form), form, subs, hole + 2);
	vault_view_unref(*view);
	fixture_load(f, doc);
	*view = vault_view_get(f->vault);
}

static void test_texts(void **arg)
{
	struct vault_view *view = NULL;
	struct fixture f;

	fixture_open(&f);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		const struct row *r = &rows[i];
		struct fixture_out out = {.len = 0};
		struct substitute_sink sink = {fixture_put, &out};
		const struct binding *b;
		size_t before;
		size_t len = 99;
		size_t n;

		if (r->subs)
			load_subs(&f, r->subs, &view);
		b = fixture_bound(view, "a.test", "/");
		before = secmem_used(f.mem);
		n = substitute_text(b, r->surface, slice_str(r->slot), slice_str(r->text), r->style,
			&sink, &len);
		if (n != r->n || strcmp(out.text, r->want) != 0 || len != out.len)
			fail_msg("%s (row %zu): %zu, %s", r->text, i, n, out.text);
		assert_int_equal(substitute_text(b, r->surface, slice_str(r->slot),
					 slice_str(r->text), r->style, NULL, &len),
			n);
		assert_int_equal(len, out.len);
		assert_int_equal(secmem_used(f.mem), before);
	}
	vault_view_unref(view);
	fixture_close(&f);
}

/* Every piece that is no piece of the request lies in locked memory. */
struct places {
	const struct secmem *mem;
	struct slice text;
	size_t keys;
};

static void places_put(void *arg, struct slice piece)
{
	struct places *p = arg;

	if (piece.p >= p->text.p && piece.p + piece.len <= p->text.p + p->text.len)
		return;
	assert_true(secmem_holds(p->mem, piece.p));
	assert_true(secmem_holds(p->mem, piece.p + piece.len - 1));
	p->keys++;
}

static void test_keys_come_from_locked_memory(void **arg)
{
	struct vault_view *view = NULL;
	struct places places;
	struct substitute_sink sink = {places_put, &places};
	struct fixture f;

	fixture_open(&f);
	load_subs(&f, SUB("utf", "ph-model-0001", "'path','query','body'"), &view);
	for (enum substitute_style s = SUBSTITUTE_RAW; s <= SUBSTITUTE_JSON; s++) {
		places = (struct places){f.mem, SLICE("a=ph-model-0001&b=ph-model-0001"), 0};
		assert_int_equal(substitute_text(fixture_bound(view, "a.test", "/"), SURFACE_QUERY,
					 SLICE_EMPTY, places.text, s, &sink, NULL),
			2);
		assert_int_equal(places.keys, 2);
	}
	load_subs(&f, SUB("k", "ph-model-0001", "'header'"), &view);
	places = (struct places){f.mem, SLICE("Basic dXNlcjpwaC1tb2RlbC0wMDAx"), 0};
	assert_int_equal(
		substitute_text(fixture_bound(view, "a.test", "/"), SURFACE_HEADER,
			SLICE("authorization"), places.text, SUBSTITUTE_BASIC, &sink, NULL),
		1);
	assert_int_equal(places.keys, 1);
	vault_view_unref(view);
	fixture_close(&f);
}

/* Without memory to decode it a Basic field goes out as it came, and a path not at all. */
static void test_without_memory_nothing_of_a_key_goes_out(void **arg)
{
	static const char field[] = "Basic dXNlcjpwaC1tb2RlbC0wMDAx";
	struct vault_view *view = NULL;
	struct fixture_out out = {.len = 0};
	struct substitute_sink sink = {fixture_put, &out};
	const struct binding *b;
	void *rest[256];
	size_t n = 0;
	struct fixture f;

	fixture_open(&f);
	load_subs(&f, SUB("k", "ph-model-0001", "'header','path'"), &view);
	b = fixture_bound(view, "a.test", "/");
	assert_true(substitute_path_ok(b, SLICE("/ph-model-0001")));
	for (size_t size = 65536; size >= 16; size /= 2)
		while (n < ARRAY_LEN(rest) && (rest[n] = secmem_alloc(f.mem, size)) != NULL)
			n++;
	assert_int_equal(substitute_text(b, SURFACE_HEADER, SLICE("authorization"),
				 slice_str(field), SUBSTITUTE_BASIC, &sink, NULL),
		0);
	assert_string_equal(out.text, field);
	assert_false(substitute_path_ok(b, SLICE("/ph-model-0001")));
	assert_true(substitute_path_ok(b, SLICE("/other")));
	while (n > 0)
		secmem_release(f.mem, rest[--n]);
	vault_view_unref(view);
	fixture_close(&f);
}

static const struct row queries[] = {
	{SUB("odd", "ph-model-0001", "'query:key'"), SURFACE_QUERY, "", 0,
		"a=ph-model-0001&key=ph-model-0001&b=ph-model-0001",
		"a=ph-model-0001&key=query%20secret%2Bvalue&b=ph-model-0001", 1},
	{NULL, SURFACE_QUERY, "", 0, "key=x-ph-model-0001-ph-model-0001",
		"key=x-query%20secret%2Bvalue-query%20secret%2Bvalue", 2},
	{NULL, SURFACE_QUERY, "", 0, "ph-model-0001=1&ph-model-0001",
		"ph-model-0001=1&ph-model-0001", 0},
	{NULL, SURFACE_QUERY, "", 0, "&&key=&key=ph-model-0001&",
		"&&key=&key=query%20secret%2Bvalue&", 1},
	{NULL, SURFACE_QUERY, "", 0, "k%65y=ph-model-0001", "k%65y=query%20secret%2Bvalue", 1},
	{NULL, SURFACE_QUERY, "", 0, "key=key=ph-model-0001", "key=key=query%20secret%2Bvalue", 1},
	{NULL, SURFACE_QUERY, "", 0, "key%3Dph-model-0001", "key%3Dph-model-0001", 0},
	{NULL, SURFACE_QUERY, "", 0, "", "", 0},
	/* The whole surface: names and values alike, and across separators. */
	{SUB("k", "ph-model=&01", "'query'") "," SUB("long", "ph-model-0001", "'query:a b'"),
		SURFACE_QUERY, "", 0, "xph-model=&01&a+b=ph-model-0001&a%20b=ph-model-0001",
		"xsk-value-01&a+b=sk-value-02&a%20b=sk-value-02", 3},
	/* A slot ends where its value ends. */
	{SUB("k", "0001&b=2", "'query:a'"), SURFACE_QUERY, "", 0, "a=0001&b=2", "a=0001&b=2", 0},
};

static void test_queries(void **arg)
{
	struct vault_view *view = NULL;
	struct fixture f;

	fixture_open(&f);
	for (size_t i = 0; i < ARRAY_LEN(queries); i++) {
		const struct row *r = &queries[i];
		struct fixture_out out = {.len = 0};
		struct substitute_sink sink = {fixture_put, &out};
		size_t len = 99;
		size_t n;

		if (r->subs)
			load_subs(&f, r->subs, &view);
		n = substitute_query(
			fixture_bound(view, "a.test", "/"), slice_str(r->text), &sink, &len);
		if (n != r->n || strcmp(out.text, r->want) != 0 || len != out.len)
			fail_msg("%s: %zu, %s", r->text, n, out.text);
	}
	vault_view_unref(view);
	fixture_close(&f);
}

/* S82, S83, S99: the path with the key in it. */
static const struct {
	const char *key, *path;
	bool ok;
} path_rows[] = {
	{"k", "/v1/ph-model-0001/x", true},
	{"k", "/v1/x", true},
	{"slash", "/v1/ph-model-0001/x", false},
	{"escaped", "/v1/ph-model-0001/x", false},
	{"back", "/v1/ph-model-0001/x", false},
	{"dots", "/v1/ph-model-0001/x", false},
	{"dots", "/v1/ph-model-0001", false},
	{"dot", "/v1/ph-model-0001/x", false},
	{"dot", "/v1/.ph-model-0001/x", false},
	{"dot", "/v1/a.ph-model-0001/x", true},
	{"utf", "/v1/ph-model-0001/x", true},
	/* Strict for the whole path, but only where a key was put in. */
	{"k", "/a%2fb/ph-model-0001", false},
	{"slash", "/a%2fb", true},
};

static void test_paths_with_a_key(void **arg)
{
	struct vault_view *view = NULL;
	struct fixture f;

	fixture_open(&f);
	for (size_t i = 0; i < ARRAY_LEN(path_rows); i++) {
		char subs[128];
		size_t used;

		(void)snprintf(subs, sizeof(subs),
			"{'credential':'%s','placeholder':'ph-model-0001','in':['path']}",
			path_rows[i].key);
		load_subs(&f, subs, &view);
		used = secmem_used(f.mem);
		if (substitute_path_ok(fixture_bound(view, "a.test", "/"),
			    slice_str(path_rows[i].path)) != path_rows[i].ok)
			fail_msg("%s in %s", path_rows[i].key, path_rows[i].path);
		assert_int_equal(secmem_used(f.mem), used);
	}
	vault_view_unref(view);
	fixture_close(&f);
}

static void test_has_tells_the_surfaces(void **arg)
{
	static const struct {
		const char *in;
		uint32_t surfaces;
	} places[] = {
		{"'path'", BIT(SURFACE_PATH)},
		{"'query:q'", BIT(SURFACE_QUERY)},
		{"'header:x','body'", BIT(SURFACE_HEADER) | BIT(SURFACE_BODY)},
		{"'form:x'", BIT(SURFACE_BODY)},
		{"'json:/x'", BIT(SURFACE_BODY)},
	};
	struct vault_view *view = NULL;
	struct fixture f;

	fixture_open(&f);
	for (size_t i = 0; i < ARRAY_LEN(places); i++) {
		char subs[128];

		(void)snprintf(subs, sizeof(subs),
			"{'credential':'k','placeholder':'ph-model-0001','in':[%s]}", places[i].in);
		load_subs(&f, subs, &view);
		for (enum surface s = SURFACE_PATH; s < SURFACE_MAX; s++)
			assert_int_equal(substitute_has(fixture_bound(view, "a.test", "/"), s),
				(places[i].surfaces & BIT(s)) != 0);
	}
	vault_view_unref(view);
	fixture_close(&f);
}

/* C130: the host decides which key a placeholder is. */
static void test_one_placeholder_is_two_keys_on_two_hosts(void **arg)
{
	static const char *const want[2] = {"sk-value-01", "sk-value-02"};
	static const char *const hosts[2] = {"one.test", "two.test"};
	struct vault_view *view;
	struct fixture f;

	fixture_open(&f);
	fixture_load(&f,
		KEYS "'bindings':[{'name':'1','match':{'hosts':['one.test']},'auth':{'type':"
		     "'passthrough','substitutions':[" SUB("k", "ph-model-0001",
			     "'header'") "]}},"
					 "{'name':'2','match':{'hosts':['two.test']},'auth':{'type'"
					 ":'passthrough',"
					 "'substitutions':[" SUB(
						 "long", "ph-model-0001", "'header'") "]}}]}");
	view = vault_view_get(f.vault);
	for (size_t i = 0; i < 1000; i++) {
		struct fixture_out out = {.len = 0};
		struct substitute_sink sink = {fixture_put, &out};

		assert_int_equal(
			substitute_text(fixture_bound(view, hosts[i % 2], "/"), SURFACE_HEADER,
				SLICE("x"), SLICE("ph-model-0001"), SUBSTITUTE_RAW, &sink, NULL),
			1);
		assert_string_equal(out.text, want[i % 2]);
	}
	vault_view_unref(view);
	fixture_close(&f);
}

static void test_find_placeholder_names_its_binding(void **arg)
{
	static const struct {
		const char *text, *want;
	} texts[] = {
		{"/v1?key=ph-one-0001", "one"},
		{"ph-two-0002", "two"},
		{"Bearer ph-two-0002 ph-one-0001", "two"},
		{"ph-two-000", ""},
		{"PH-TWO-0002", ""},
		{"", ""},
	};
	struct vault_view *view;
	struct fixture f;

	fixture_open(&f);
	fixture_load(&f,
		KEYS "'bindings':[{'name':'one','match':{'hosts':['one.test']},'auth':{'type':"
		     "'passthrough','substitutions':[" SUB("k", "ph-one-0001",
			     "'json:/a'") "]}},"
					  "{'name':'two','match':{'hosts':['two.test']},'auth':{'"
					  "type':'passthrough',"
					  "'substitutions':[" SUB(
						  "k", "ph-two-0002", "'header'") "]}}]}");
	view = vault_view_get(f.vault);
	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		struct slice got =
			substitute_find_placeholder(view, NULL, slice_str(texts[i].text));

		if (!slice_eq(got, slice_str(texts[i].want)))
			fail_msg("%s: %.*s", texts[i].text, SLICE_FMT(got));
	}
	vault_view_unref(view);
	fixture_close(&f);
}

static void test_find_key_names_its_credential(void **arg)
{
	static const struct {
		const char *text, *want;
	} texts[] = {
		{"/v1?key=sk-value-01", "k"},
		{"Bearer sk-value-02", "long"},
		{"SK-VALUE-01", "k"},
		{"sk-value-0", ""},
		{"q=query%20secret%2Bvalue", "odd"},
		{"q=query%20secret%2bvalue", "odd"},
		{"q=query+secret%2Bvalue", "odd"},
		{"query secret+value", "odd"},
		/* Shorter than 8 bytes: ordinary text would be taken for it. */
		{"a/b", ""},
		{"/..", ""},
		{"{\"k\":\"p\\u00e4sswort\\\"1\"}", "unused"},
	};
	struct vault_view *view;
	struct fixture f;

	fixture_open(&f);
	fixture_load(&f, KEYS "'bindings':[]}");
	fixture_load(&f,
		"{'credentials':[{'name':'k','source':{'value':'sk-value-01'}},"
		"{'name':'odd','source':{'value':'query secret+value'}},"
		"{'name':'short','source':{'value':'a/b'}},{'name':'dots','source':{'value':'..'}},"
		"{'name':'unused','source':{'value':'p\\u00e4sswort\\\"1'}},"
		"{'name':'long','source':{'value':'sk-value-02'}}]}");
	view = vault_view_get(f.vault);
	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		struct slice got = substitute_find_key(view, NULL, slice_str(texts[i].text));

		if (!slice_eq(got, slice_str(texts[i].want)))
			fail_msg("%s: %.*s", texts[i].text, SLICE_FMT(got));
	}
	vault_view_unref(view);
	fixture_close(&f);
}

/* What the request's own binding puts in may stand there; what lies within it is no find. */
static void test_find_passes_over_what_the_own_binding_has(void **arg)
{
	static const struct {
		const char *host, *text;
		const char *placeholder, *key;
	} texts[] = {
		{"one.test", "ph-one-0001", "", ""},
		{"one.test", "ph-one-0001 ph-shared-3 sk-value-01", "", ""},
		{"one.test", "ph-two-0002", "two", ""},
		{"one.test", "ph-one-0001 ph-two-0002", "two", ""},
		{"two.test", "ph-one-0001", "one", ""},
		{"two.test", "ph-shared-3", "", ""},
		/* the own one is longer, shorter, behind the other */
		{"one.test", "ph-two-0002-one", "", ""},
		{"two.test", "ph-two-0002-one", "one", ""},
		{"one.test", "ph-two-0002-on", "two", ""},
		{"one.test", "ph-two-0002-one ph-two-0002", "two", ""},
		{"one.test", "ph-two-0002ph-one-0001", "two", ""},
		/* one that begins in the own one and ends behind it */
		{"one.test", "ph-one-0001-over-x", "two", ""},
		{"one.test", "sk-value-02", "", "long"},
		{"two.test", "sk-value-01 sk-value-02", "", "k"},
		{"one.test", "k+9/= qq k%2B9%2F%3D%20qq SK-VALUE-01", "", ""},
		{"two.test", "q=k%2b9%2f%3d%20qq", "", "maps"},
		/* a key under two names, of which the binding has one */
		{"twin.test", "query secret+value", "", ""},
		{"one.test", "query secret+value", "", "odd"},
	};
	struct vault_view *view;
	struct fixture f;

	fixture_open(&f);
	fixture_load(&f,
		"{'credentials':[{'name':'k','source':{'value':'sk-value-01'}},"
		"{'name':'long','source':{'value':'sk-value-02'}},"
		"{'name':'maps','source':{'value':'k+9/= qq'}},"
		"{'name':'odd','source':{'value':'query secret+value'}},"
		"{'name':'twin','source':{'value':'query secret+value'}}],'bindings':["
		"{'name':'one','match':{'hosts':['one.test']},'auth':{'type':'bearer',"
		"'credential':'k','substitutions':[" SUB("maps", "ph-one-0001",
			"'json:/a'") "," SUB("k", "ph-shared-3", "'path'") "," SUB("k",
			"ph-two-0002-one",
			"'query'") "]}},"
				   "{'name':'two','match':{'hosts':['two.test']},'auth':{'type':'"
				   "passthrough',"
				   "'substitutions':[" SUB("long", "ph-two-0002",
					   "'header'") "," SUB("long", "ph-shared-3",
					   "'path'") "," SUB("long", "one-0001-over-x",
					   "'path'") "]}},"
						     "{'name':'z','match':{'hosts':['twin.test']},'"
						     "auth':{'type':'bearer',"
						     "'credential':'twin'}}]}");
	view = vault_view_get(f.vault);
	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		const struct binding *own = fixture_bound(view, texts[i].host, "/");
		struct slice text = slice_str(texts[i].text);
		struct slice placeholder = substitute_find_placeholder(view, own, text);
		struct slice key = substitute_find_key(view, own, text);

		if (!slice_eq(placeholder, slice_str(texts[i].placeholder)))
			fail_msg("row %zu: placeholder of %.*s", i, SLICE_FMT(placeholder));
		if (!slice_eq(key, slice_str(texts[i].key)))
			fail_msg("row %zu: key %.*s", i, SLICE_FMT(key));
	}
	vault_view_unref(view);
	fixture_close(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_texts),
		cmocka_unit_test(test_keys_come_from_locked_memory),
		cmocka_unit_test(test_without_memory_nothing_of_a_key_goes_out),
		cmocka_unit_test(test_queries),
		cmocka_unit_test(test_paths_with_a_key),
		cmocka_unit_test(test_has_tells_the_surfaces),
		cmocka_unit_test(test_one_placeholder_is_two_keys_on_two_hosts),
		cmocka_unit_test(test_find_placeholder_names_its_binding),
		cmocka_unit_test(test_find_key_names_its_credential),
		cmocka_unit_test(test_find_passes_over_what_the_own_binding_has),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
