/* Paths that two readers may see differently. S numbers are lines of the conformance catalogue. */
#include "tests/unit/vault/fixture.h"
#include "vault/path_guard.h"

#define PATH_MAX_LEN 512

#define W BIT(PATH_GUARD_WIDE)
#define N BIT(PATH_GUARD_NARROW)
#define S BIT(PATH_GUARD_STRICT)

/* In which modes the path is fine. */
static const struct {
	const char *path;
	uint32_t ok;
} paths[] = {
	{"/", W | N | S},
	{"", W | N | S},
	{"/v1/x", W | N | S},
	{"/v1//x", W | N | S},
	{"/v1/x;a=b", W | N | S},
	{"/a%20b", W | N | S},
	{"/a%zz%2", W | N | S},
	/* S86 */
	{"/v1/../x", 0},
	{"/..", 0},
	{"/v1/..", 0},
	{"..", 0},
	{"/v1/%2e%2e/x", 0},
	{"/v1/%2E%2e/x", 0},
	{"/v1/.%2e/x", 0},
	{"/v1%2f..%2fx", 0},
	{"/v1/a%5cb", 0},
	{"/v1/a%5Cb", 0},
	{"/v1/a\\b", 0},
	{"/v1/%252e%252e/x", 0},
	/* S91 */
	{"/.../x", W | N | S},
	{"/..metadata", W | N | S},
	{"/x..", W | N | S},
	/* S93, S95, S96, S99 */
	{"/a%2fb", W | N},
	{"/@scope%2fname", W | N},
	{"/@scope%2Fname", W | N},
	{"/@scope%5cname", 0},
	{"/@scope%252fname", W | N},
	{"/x%25252Fy", W | N},
	/* S98, S100 */
	{"/v1%252f..%252fx", 0},
	{"/v1/%25%35%63x", 0},
	{"/v1/%25%32%65%25%32%65/x", 0},
	{"/v1/x%2f", W | N},
	/* S102 and the additions of 3.8 */
	{"/v1/%c0%af", W | S},
	{"/v1/%C0%AF..", W | S},
	{"/v1/%c1%9c", W | S},
	{"/v1/%c0%ae%c0%ae/x", W | S},
	{"/v1/%e0%80%af", W | S},
	{"/v1/%f0%80%80%af", W | S},
	{"/v1/%f8%80%80%80%af", W | S},
	{"/v1/%fc%80%80%80%80%af", W | S},
	{"/v1/%25c0%25af", W | S},
	{"/v1/%c0%80", W | S},
	{"/v1/%c0%a5", W | S},
	{"/v1/%c3%a9%e2%82%ac%f0%9f%98%80", W | N | S},
	{"/v1/%c3", W | N | S},
	{"/v1/%ff%fe", W | N | S},
	{"/v1/%e0%80", W | N | S},
	{"/v1/%00", W | S},
	{"/v1/%0a", W | S},
	{"/v1/%0d", W | S},
	{"/v1/%2500", W | S},
	{"/v1/%09", W | N | S},
	{"/v1/a b", W | S},
	{"/v1/\x7f", W | S},
	{"/v1/\xc3\xa9", W | S},
	{"/v1/!~", W | N | S},
	{"/v1/./x", W},
	{"/v1/.", W},
	{"/v1/%2e/x", W},
	{"/v1/..;/x", W | S},
	{"/v1/..;a=b/x", W | S},
	{"/v1/.;/x", W | S},
	{"/v1/%2e%2e%3b/x", W | S},
	{"/v1/x;..", W | N | S},
	{"/v1/%u002fx", W | S},
	{"/v1/%U002Ex", W | S},
	{"/v1/%25u002fx", W | S},
	{"/v1/%u00", W | N | S},
	{"/v1/%ug02f", W | N | S},
};

static bool guard(struct slice path, enum path_guard_mode mode, const struct path_guard_same *same)
{
	char *work = xmalloc(path.len + 1);
	bool ok = path_guard_ok(path, mode, work, same);

	free(work);
	return ok;
}

static void test_paths(void **arg)
{
	for (size_t i = 0; i < ARRAY_LEN(paths); i++)
		for (enum path_guard_mode m = PATH_GUARD_WIDE; m <= PATH_GUARD_STRICT; m++)
			if (guard(slice_str(paths[i].path), m, NULL) !=
				((paths[i].ok & BIT(m)) != 0))
				fail_msg("%s in mode %d", paths[i].path, m);
}

/* A slash escaped n times: %2f is once, %252f twice. */
static struct slice escaped(size_t n, char buf[PATH_MAX_LEN])
{
	size_t len = (size_t)snprintf(buf, PATH_MAX_LEN, "/a%%");

	for (size_t i = 1; i < n; i++)
		len += (size_t)snprintf(buf + len, PATH_MAX_LEN - len, "25");
	len += (size_t)snprintf(buf + len, PATH_MAX_LEN - len, "2fb");
	return slice_make(buf, len);
}

/* S101: nine rounds change something and the tenth shows that it was all. */
static void test_rounds_are_limited(void **arg)
{
	char buf[PATH_MAX_LEN];

	assert_true(guard(escaped(PATH_GUARD_ROUNDS_MAX - 1, buf), PATH_GUARD_WIDE, NULL));
	assert_false(guard(escaped(PATH_GUARD_ROUNDS_MAX, buf), PATH_GUARD_WIDE, NULL));
}

struct seen {
	size_t n;
	size_t stop; /* the call that answers no; 0: none */
	char forms[4][PATH_MAX_LEN];
};

static bool seen_add(void *arg, struct slice decoded)
{
	struct seen *s = arg;

	assert_in_range(s->n, 0, 3);
	assert_true(slice_to_cstr(decoded, s->forms[s->n], PATH_MAX_LEN));
	s->n++;
	return s->n != s->stop;
}

static void test_every_form_is_asked_about(void **arg)
{
	struct seen s = {.n = 0};
	const struct path_guard_same same = {seen_add, &s};

	assert_true(guard(SLICE("/plain"), PATH_GUARD_WIDE, &same));
	assert_int_equal(s.n, 0);
	assert_true(guard(SLICE("/a%252fb%20"), PATH_GUARD_WIDE, &same));
	assert_int_equal(s.n, 2);
	assert_string_equal(s.forms[0], "/a%2fb ");
	assert_string_equal(s.forms[1], "/a/b ");
	s.n = 0;
	s.stop = 2;
	assert_false(guard(SLICE("/a%252fb%20"), PATH_GUARD_WIDE, &same));
	s.n = 0;
	s.stop = 1;
	assert_false(guard(SLICE("/a%252fb%20"), PATH_GUARD_WIDE, &same));
	assert_int_equal(s.n, 1);
}

/* As requests meet it: the guard works only for what a binding covers. */
static const char bindings[] =
	"{'bindings':["
	"{'name':'all','match':{'hosts':['all.test']},'auth':{'type':'passthrough'}},"
	"{'name':'v1','match':{'hosts':['two.test'],'paths':['/v1/*']},'auth':{'type':"
	"'passthrough'}},"
	"{'name':'v2','match':{'hosts':['two.test'],'paths':['/v2/*','/v1%2f*']},'auth':{'type':"
	"'passthrough'}},"
	"{'name':'low','match':{'hosts':['*.low.test']},'auth':{'type':'passthrough'}},"
	"{'name':'high','match':{'hosts':['a.low.test'],'paths':['/k/*']},'auth':{'type':"
	"'passthrough'}},"
	"{'name':'raw','match':{'hosts':['raw.test'],'paths':['/a%2f*']},'auth':{'type':"
	"'passthrough'}},"
	"{'name':'post','match':{'hosts':['post.test'],'methods':['POST'],'paths':['/a/*']},'auth':"
	"{'type':'passthrough'}},"
	"{'name':'get','match':{'hosts':['post.test'],'methods':['GET'],'paths':['/*']},'auth':"
	"{'type':'passthrough'}}]}";

static const struct {
	const char *host, *path;
	enum binding_match want;
} requests[] = {
	{"all.test", "/@scope%2fname", BINDING_ONE},
	{"all.test", "/@scope%252fname", BINDING_ONE},
	{"all.test", "/%c0%af", BINDING_ONE},
	{"all.test", "/./x", BINDING_ONE},
	{"all.test", "/a/../b", BINDING_PATH},
	{"all.test", "/@scope%5cname", BINDING_PATH},
	/* S89, S90, S92: outside of every binding nothing is judged. */
	{"none.test", "/a/%252e%252e/b", BINDING_NONE},
	{"two.test", "/v3/../v1/x", BINDING_NONE},
	{"two.test", "/v3/%5c", BINDING_NONE},
	{"two.test", "/v1/..%2fv2/x", BINDING_PATH},
	{"two.test", "/v1/%c0%af", BINDING_PATH},
	{"two.test", "/v1/./x", BINDING_PATH},
	{"two.test", "/v1/a%2fb", BINDING_ONE},
	/* S94, S97: the decoded form belongs to another binding. */
	{"two.test", "/v1%2fx", BINDING_PATH},
	{"two.test", "/v1%252fx", BINDING_NONE},
	{"raw.test", "/a%2fb", BINDING_PATH},
	{"a.low.test", "/k/x", BINDING_ONE},
	{"a.low.test", "/%6b/x", BINDING_PATH},
	{"a.low.test", "/k%2fx", BINDING_PATH},
	{"a.low.test", "/z%2fx", BINDING_ONE},
	{"b.low.test", "/k%2fx", BINDING_ONE},
	/* Bindings of other methods do not count. */
	{"post.test", "/a%2fx", BINDING_ONE},
};

static void test_guard_of_requests(void **arg)
{
	struct vault_view *view;
	struct fixture f;

	fixture_open(&f);
	fixture_load(&f, bindings);
	view = vault_view_get(f.vault);
	for (size_t i = 0; i < ARRAY_LEN(requests); i++) {
		struct binding_request r = {true, 443, slice_str(requests[i].host), SLICE("GET"),
			slice_str(requests[i].path)};
		const struct binding *b;
		enum binding_match m = vault_view_match(view, &r, &b);

		if (m != requests[i].want || (b != NULL) != (m == BINDING_ONE))
			fail_msg("%s%s: %d", requests[i].host, requests[i].path, m);
	}
	vault_view_unref(view);
	fixture_close(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_paths),
		cmocka_unit_test(test_rounds_are_limited),
		cmocka_unit_test(test_every_form_is_asked_about),
		cmocka_unit_test(test_guard_of_requests),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
