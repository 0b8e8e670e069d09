/* Which binding a request gets, which bindings may stand side by side, and where they may be. U and
 * S numbers are lines of the conformance catalogue, C numbers cases of peers' failures. */
#include "tests/unit/vault/fixture.h"
#include "vault/vault_int.h"

#define DOC_MAX 65536

/* A binding with its name, hosts, methods and paths. */
#define B(name, hosts, methods, paths)                                   \
	"{'name':'" name "','match':{'hosts':[" hosts "]," methods paths \
	"'ports':[]},'auth':{'type':'passthrough'}}"
#define GET "'methods':['GET'],"
#define ALL ""
#define PATHS(list) "'paths':[" list "],"

static const char scopes[] = "{'bindings':[" B(
	"apex", "'model.test'", GET, PATHS("'/v1/*','/exact'")) "," B("wild", "'*.model.test'", GET,
	PATHS("'/*'")) "," B("host", "'api.model.test'", GET, PATHS("'/v1/*'")) "," B("post",
	"'api.model.test'", "'methods':['POST'],", PATHS("'/v1/*'")) "," B("repo", "'git.test'",
	ALL, PATHS("'/a/t.git','/a/t.git/*'")) "," B("star", "'star.test'", ALL,
	PATHS("'/a*b','/c**'")) "," B("head", "'head.test'", "'methods':['HEAD','OPTIONS'],",
	ALL) "," B("ten", "'ten.test'", GET, PATHS("'/v1*'")) "]}";

/* 3.1 to 3.5, S88, C118 */
static const struct {
	const char *host, *method, *path, *want; /* NULL: ordinary traffic */
} requests[] = {
	{"model.test", "GET", "/v1/x", "apex"},
	{"model.test", "GET", "/v1/", "apex"},
	{"model.test", "GET", "/v1", NULL},
	{"model.test", "GET", "/v10", NULL},
	{"model.test", "GET", "/V1/x", NULL},
	{"model.test", "GET", "/exact", "apex"},
	{"model.test", "GET", "/exact/", NULL},
	{"model.test", "GET", "/exac", NULL},
	{"model.test", "POST", "/v1/x", NULL},
	{"model.test", "HEAD", "/v1/x", NULL},
	{"model.test", "get", "/v1/x", "apex"},
	/* The apex is not below itself; any depth is. */
	{"x.model.test", "GET", "/", "wild"},
	{"x.model.test", "GET", "", "wild"},
	{"x.y.model.test", "GET", "/v1/x", "wild"},
	{"xmodel.test", "GET", "/v1/x", NULL},
	{"test", "GET", "/v1/x", NULL},
	/* Exact before wildcard; where the exact one does not match, the wildcard does. */
	{"api.model.test", "GET", "/v1/x", "host"},
	{"api.model.test", "GET", "/v2/x", "wild"},
	{"api.model.test", "POST", "/v1/x", "post"},
	{"api.model.test", "POST", "/v2/x", NULL},
	/* 12.3 */
	{"git.test", "GET", "/a/t.git", "repo"},
	{"git.test", "GET", "/a/t.git/info/refs", "repo"},
	{"git.test", "GET", "/a/t.git-other/info/refs", NULL},
	{"git.test", "GET", "/a/t/info/refs", NULL},
	/* Only a star at the end stands for something. */
	{"star.test", "GET", "/a*b", "star"},
	{"star.test", "GET", "/axb", NULL},
	{"star.test", "GET", "/c*x", "star"},
	{"star.test", "GET", "/cx", NULL},
	{"head.test", "HEAD", "/", "head"},
	{"head.test", "OPTIONS", "/", "head"},
	{"head.test", "GET", "/", NULL},
	{"head.test", "TRACE", "/", NULL},
	{"ten.test", "GET", "/v10", "ten"},
	{"ten.test", "GET", "/v", NULL},
	{"other.test", "GET", "/v1/x", NULL},
};

static void test_requests(void **arg)
{
	struct vault_view *view;
	struct fixture f;

	fixture_open(&f);
	fixture_load(&f, scopes);
	view = vault_view_get(f.vault);
	for (size_t i = 0; i < ARRAY_LEN(requests); i++) {
		struct binding_request r = {true, 443, slice_str(requests[i].host),
			slice_str(requests[i].method), slice_str(requests[i].path)};
		const struct binding *b;
		enum binding_match m = vault_view_match(view, &r, &b);

		if ((m == BINDING_ONE) != (requests[i].want != NULL) ||
			(b && !slice_eq(binding_name(b), slice_str(requests[i].want))))
			fail_msg("%s %s%s: %d %.*s", requests[i].method, requests[i].host,
				requests[i].path, m, b ? (int)b->name.len : 0, b ? b->name.p : "");
		assert_true(m == BINDING_ONE || (m == BINDING_NONE && !b));
	}
	vault_view_unref(view);
	fixture_close(&f);
}

/* 3.2: the port is the scheme's own, and the scheme is listed. */
static void test_scheme_and_port_must_agree(void **arg)
{
	static const struct {
		bool https;
		uint16_t port;
		const char *host;
		bool want;
	} rows[] = {
		{true, 443, "s.test", true},
		{true, 80, "s.test", false},
		{true, 8443, "s.test", false},
		{false, 80, "s.test", false},
		{false, 80, "h.test", true},
		{false, 443, "h.test", false},
		{true, 443, "h.test", false},
		{false, 80, "both.test", true},
		{true, 443, "both.test", true},
	};
	struct vault_view *view;
	struct fixture f;

	fixture_open(&f);
	f.rules.allow_http = true;
	fixture_load(&f,
		"{'bindings':[{'name':'s','match':{'hosts':['s.test']},'auth':{'type':"
		"'passthrough'}},{'name':'h','match':{'schemes':['http'],'hosts':['h.test']},"
		"'auth':{'type':'passthrough'}},{'name':'2','match':{'schemes':['http','https'],"
		"'hosts':['both.test']},'auth':{'type':'passthrough'}}]}");
	view = vault_view_get(f.vault);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct binding_request r = {rows[i].https, rows[i].port, slice_str(rows[i].host),
			SLICE("GET"), SLICE("/")};
		const struct binding *b;

		assert_int_equal(vault_view_match(view, &r, &b) == BINDING_ONE, rows[i].want);
	}
	vault_view_unref(view);
	fixture_close(&f);
}

static void test_bound_hosts_are_known_whatever_the_path(void **arg)
{
	static const struct {
		const char *host;
		bool want;
	} rows[] = {
		{"model.test", true},
		{"x.model.test", true},
		{"x.y.model.test", true},
		{"git.test", true},
		{"x.git.test", false},
		{"test", false},
		{"xmodel.test", false},
		{"", false},
	};
	struct vault_view *view;
	struct fixture f;

	fixture_open(&f);
	fixture_load(&f, scopes);
	view = vault_view_get(f.vault);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		assert_int_equal(
			vault_view_binds_host(view, slice_str(rows[i].host)), rows[i].want);
	vault_view_unref(view);
	fixture_close(&f);
}

/* 3.5, C126. want: the pair that the message names, or NULL. */
static const struct {
	const char *bindings;
	const char *want;
} pairs[] = {
	{B("a", "'x.test'", ALL, PATHS("'/v1/*'")) "," B("b", "'x.test'", ALL, PATHS("'/v1/*'")),
		"bindings \"a\" and \"b\" can match the same request"},
	{B("b", "'x.test'", ALL, PATHS("'/v1/*'")) "," B(
		 "a", "'x.test'", ALL, PATHS("'/v1/files/*'")),
		"bindings \"a\" and \"b\" can match the same request"},
	{B("a", "'x.test'", ALL, ALL) "," B("b", "'x.test'", ALL, PATHS("'/v1'")),
		"bindings \"a\" and \"b\" can match the same request"},
	{B("a", "'x.test'", ALL, PATHS("'/v1'")) "," B("b", "'x.test'", ALL, PATHS("'/v1'")),
		"bindings \"a\" and \"b\" can match the same request"},
	{B("a", "'x.test'", ALL, PATHS("'/v1*'")) "," B("b", "'x.test'", ALL, PATHS("'/v1'")),
		"bindings \"a\" and \"b\" can match the same request"},
	{B("a", "'x.test'", ALL, PATHS("'/q','/v1'")) "," B(
		 "b", "'x.test'", ALL, PATHS("'/z','/v*'")),
		"bindings \"a\" and \"b\" can match the same request"},
	{B("a", "'*.x.test'", ALL, ALL) "," B("b", "'*.x.test'", ALL, ALL),
		"bindings \"a\" and \"b\" can match the same request"},
	{B("a", "'*.x.test'", ALL, ALL) "," B("b", "'*.y.x.test'", ALL, ALL),
		"bindings \"a\" and \"b\" can match the same request"},
	{B("a", "'*.y.x.test'", ALL, PATHS("'/v1/*'")) "," B("b", "'*.x.test'", ALL, ALL),
		"bindings \"a\" and \"b\" can match the same request"},
	/* Of several pairs the first in order of names. */
	{B("d", "'x.test'", ALL, ALL) "," B("c", "'x.test'", ALL, ALL) "," B(
		 "b", "'y.test'", ALL, ALL) "," B("a", "'z.test','x.test'", ALL, ALL),
		"bindings \"a\" and \"c\" can match the same request"},
	{B("c", "'x.test'", ALL, ALL) "," B("b", "'x.test'", ALL, ALL) "," B(
		 "a", "'y.test'", ALL, ALL),
		"bindings \"b\" and \"c\" can match the same request"},
	{B("a", "'x.test'", GET, ALL) "," B("b", "'x.test'", "'methods':['POST'],", ALL), NULL},
	{B("a", "'x.test'", ALL, PATHS("'/v1/*'")) "," B("b", "'x.test'", ALL, PATHS("'/v1'")),
		NULL},
	{B("a", "'x.test'", ALL, PATHS("'/v1/*'")) "," B("b", "'x.test'", ALL, PATHS("'/v2/*'")),
		NULL},
	{B("a", "'x.test'", ALL, PATHS("'/v1'")) "," B("b", "'x.test'", ALL, PATHS("'/v10'")),
		NULL},
	{B("a", "'x.test'", ALL, ALL) "," B("b", "'y.test'", ALL, ALL), NULL},
	/* Exact over wildcard is decided by precedence. */
	{B("a", "'*.model.test'", ALL, PATHS("'/v1/*'")) "," B("b", "'api.model.test'", ALL, ALL),
		NULL},
	{B("a", "'*.x.test'", ALL, ALL) "," B("b", "'x.test'", ALL, ALL), NULL},
	{B("a", "'*.a.x.test'", ALL, ALL) "," B("b", "'*.b.x.test'", ALL, ALL), NULL},
	{"{'name':'a','match':{'schemes':['http'],'hosts':['x.test']},'auth':{'type':'passthrough'}"
	 "}," B("b", "'x.test'", ALL, ALL),
		NULL},
	/* A binding is not ambiguous with itself. */
	{B("a", "'x.test','*.x.test','*.y.x.test'", ALL, PATHS("'/v1/*','/v1/x','/*'")), NULL},
};

static void test_bindings_that_can_meet_are_refused(void **arg)
{
	for (size_t i = 0; i < ARRAY_LEN(pairs); i++) {
		char doc[DOC_MAX];
		struct fixture f;

		(void)snprintf(doc, sizeof(doc), "{'bindings':[%s]}", pairs[i].bindings);
		fixture_open(&f);
		f.rules.allow_http = true;
		if (pairs[i].want)
			fixture_refuse(&f, doc, E_VALUE, pairs[i].want);
		else
			fixture_load(&f, doc);
		fixture_close(&f);
	}
}

static uint32_t random_below(uint64_t *state, uint32_t below)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return (uint32_t)(*state >> 33) % below;
}

#define NAIVE_MAX 6

/* A candidate of random bindings, and what a scan of all of them says. */
struct naive {
	size_t n;
	char host[NAIVE_MAX][24];
	char path[NAIVE_MAX][2][8];
	bool post[NAIVE_MAX];
	char doc[4096];
};

static void naive_make(struct naive *s, uint64_t *seed)
{
	static const char *const hosts[] = {"a.t.x", "b.t.x", "*.t.x", "*.a.t.x", "*.b.t.x"};
	size_t len = (size_t)snprintf(s->doc, sizeof(s->doc), "{'bindings':[");

	s->n = 1 + random_below(seed, NAIVE_MAX);
	for (size_t i = 0; i < s->n; i++) {
		(void)snprintf(s->host[i], sizeof(s->host[i]), "%s",
			hosts[random_below(seed, ARRAY_LEN(hosts))]);
		s->post[i] = random_below(seed, 2);
		for (size_t k = 0; k < 2; k++) {
			size_t n = 1 + random_below(seed, 4);

			s->path[i][k][0] = '/';
			for (size_t c = 1; c < n; c++)
				s->path[i][k][c] = "ab"[random_below(seed, 2)];
			s->path[i][k][n] = random_below(seed, 2) ? '*' : '\0';
			s->path[i][k][n + 1] = '\0';
		}
		len += (size_t)snprintf(s->doc + len, sizeof(s->doc) - len,
			"%s{'name':'%zu','match':{'hosts':['%s'],'methods':['%s'],'paths':['%s',"
			"'%s']},'auth':{'type':'passthrough'}}",
			i ? "," : "", i, s->host[i], s->post[i] ? "POST" : "GET", s->path[i][0],
			s->path[i][1]);
	}
	(void)snprintf(s->doc + len, sizeof(s->doc) - len, "]}");
}

static bool naive_path_fits(const char *pattern, const char *path)
{
	size_t len = strlen(pattern);

	return pattern[len - 1] == '*' ? strncmp(pattern, path, len - 1) == 0
				       : strcmp(pattern, path) == 0;
}

/* 2: exact, 1: wildcard, 0: no. */
static int naive_rank(
	const struct naive *s, size_t i, const char *host, bool post, const char *path)
{
	const char *pattern = s->host[i];
	int rank = strcmp(pattern, host) == 0 ? 2 : 0;

	if (pattern[0] == '*' && strlen(host) > strlen(pattern) - 1 &&
		strcmp(host + strlen(host) - strlen(pattern) + 1, pattern + 1) == 0)
		rank = 1;
	if (s->post[i] != post ||
		(!naive_path_fits(s->path[i][0], path) && !naive_path_fits(s->path[i][1], path)))
		rank = 0;
	return rank;
}

static const char *const naive_hosts[] = {"a.t.x", "b.t.x", "c.t.x", "x.a.t.x", "x.b.t.x", "t.x"};
static const char *const naive_paths[] = {"/", "/a", "/b", "/aa", "/ab", "/ba", "/bb", "/aaa",
	"/aab", "/aba", "/abb", "/baa", "/bab", "/bba", "/bbb", "/aaaa", "/abab", "/bbbbb"};

/* Every request that there can be: is more than one binding best for it, or the wrong one? */
static bool naive_check(const struct naive *s, const struct vault_view *view)
{
	bool ambiguous = false;

	for (size_t q = 0; q < ARRAY_LEN(naive_hosts) * ARRAY_LEN(naive_paths) * 2; q++) {
		const char *host = naive_hosts[q / 2 / ARRAY_LEN(naive_paths)];
		const char *path = naive_paths[q / 2 % ARRAY_LEN(naive_paths)];
		bool post = q % 2;
		struct binding_request r = {true, 443, slice_str(host),
			post ? SLICE("POST") : SLICE("GET"), slice_str(path)};
		const struct binding *b;
		int best = 0;
		size_t n = 0;
		size_t which = 0;

		for (size_t i = 0; i < s->n; i++) {
			int rank = naive_rank(s, i, host, post, path);

			n = rank > best ? 1 : n + (rank == best && rank > 0);
			which = rank > best ? i : which;
			best = rank > best ? rank : best;
		}
		ambiguous |= n > 1;
		if (!view)
			continue;
		assert_int_equal(vault_view_match(view, &r, &b), n ? BINDING_ONE : BINDING_NONE);
		assert_true(!b || b == &view->bindings[which]);
	}
	return ambiguous;
}

/* The index against a scan. A refusal must be justified by a request that two bindings match best.
 */
static void test_index_agrees_with_a_scan(void **arg)
{
	uint64_t seed = 88172645463325252;
	size_t accepted = 0;
	struct fixture f;

	fixture_open(&f);
	for (size_t round = 0; round < 3000; round++) {
		struct naive s;
		struct vault_view *view;

		naive_make(&s, &seed);
		if (fixture_try(&f, s.doc) < 0) {
			assert_non_null(strstr(f.msg.text, "can match the same request"));
			if (!naive_check(&s, NULL))
				fail_msg("%s: %s", s.doc, f.msg.text);
			continue;
		}
		view = vault_view_get(f.vault);
		assert_false(naive_check(&s, view));
		vault_view_unref(view);
		accepted++;
	}
	assert_in_range(accepted, 300, 2900);
	fixture_close(&f);
}

static void test_fields_of_each_auth(void **arg)
{
	static const struct {
		const char *host;
		size_t n;
		struct binding_field fields[2];
	} rows[] = {
		{"bearer.test", 1,
			{{SLICE("Authorization"), SLICE("Bearer "), SLICE("sk-value-01")}}},
		{"basic.test", 1, {{SLICE("Authorization"), SLICE("Basic "), SLICE("dTpw")}}},
		{"custom.test", 2,
			{{SLICE("X-One"), SLICE(""), SLICE("sk-value-01")},
				{SLICE("X-Two"), SLICE(""), SLICE("dTpw")}}},
		/* U8 */
		{"none.test", 0, {{.value = {NULL, 0}}}},
	};
	struct vault_view *view;
	struct fixture f;

	fixture_open(&f);
	fixture_load(&f,
		"{'credentials':[{'name':'k','source':{'value':'sk-value-01'}},"
		"{'name':'u','source':{'value':'dTpw'}}],'bindings':["
		"{'name':'1','match':{'hosts':['bearer.test']},'auth':{'type':'bearer','credential'"
		":'k'}},{'name':'2','match':{'hosts':['basic.test']},'auth':{'type':'basic',"
		"'credential':'u'}},{'name':'3','match':{'hosts':['custom.test']},'auth':{'type':"
		"'customHeaders','headers':[{'name':'X-ONE','credential':'k'},{'name':'x-two',"
		"'credential':'u'}]}},{'name':'4','match':{'hosts':['none.test']},'auth':{'type':"
		"'passthrough','substitutions':[{'credential':'k','placeholder':'ph-model-1','in':"
		"['header']}]}}]}");
	view = vault_view_get(f.vault);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		const struct binding *b = fixture_bound(view, rows[i].host, "/");

		assert_int_equal(binding_n_fields(b), rows[i].n);
		for (size_t k = 0; k < rows[i].n; k++) {
			struct binding_field got = binding_field(b, k);

			assert_true(slice_eq(got.name, rows[i].fields[k].name));
			assert_true(slice_eq(got.prefix, rows[i].fields[k].prefix));
			assert_true(slice_eq(got.value, rows[i].fields[k].value));
			assert_true(secmem_holds(f.mem, got.value.p));
		}
	}
	assert_true(binding_sets_field(fixture_bound(view, "custom.test", "/"), SLICE("x-oNE")));
	assert_false(binding_sets_field(fixture_bound(view, "custom.test", "/"), SLICE("x-on")));
	/* what WSGI reads as one name */
	assert_true(binding_sets_field(fixture_bound(view, "custom.test", "/"), SLICE("X_One")));
	assert_false(binding_sets_field(fixture_bound(view, "custom.test", "/"), SLICE("X.One")));
	assert_false(
		binding_sets_field(fixture_bound(view, "none.test", "/"), SLICE("authorization")));
	vault_view_unref(view);
	fixture_close(&f);
}

static const char one_of[] =
	"{'bindings':[{'name':'b','match':{%s},'auth':{'type':'passthrough'}}]}";

/* 1.4 step 4, 1.10 */
static const struct {
	const char *policy, *match;
	const char *want; /* NULL: accepted */
} policies[] = {
	/* U10 */
	{"{'defaultAction':'allow'}", "'hosts':['api.test']", NULL},
	/* U11 */
	{"{'defaultAction':'allow','egress':[{'action':'deny','target':'api.test'}]}",
		"'hosts':['api.test']",
		"binding \"b\" host \"api.test\" is not allowed by egress policy"},
	{"{'egress':[{'action':'allow','target':'api.test'}]}", "'hosts':['api.test']", NULL},
	{"{'egress':[{'action':'allow','target':'api.test'}]}", "'hosts':['api.test','b.test']",
		"binding \"b\" host \"b.test\" is not allowed by egress policy"},
	{"{'egress':[{'action':'allow','target':'api.test','ports':[443]}]}",
		"'hosts':['api.test']", NULL},
	{"{'egress':[{'action':'allow','target':'api.test','ports':[443]}]}",
		"'schemes':['http'],'hosts':['api.test']",
		"binding \"b\" host \"api.test\" is not allowed by egress policy"},
	{"{'egress':[{'action':'allow','target':'*.x.test'}]}", "'hosts':['*.x.test']", NULL},
	{"{'egress':[{'action':'allow','target':'a.x.test'}]}", "'hosts':['*.x.test']",
		"binding \"b\" host \"*.x.test\" is not allowed by egress policy"},
	{"{'egress':[{'action':'allow','target':'*.test'}]}", "'hosts':['*.x.test']", NULL},
	/* C126: the denied name never gets there; the others do. */
	{"{'egress':[{'action':'deny','target':'bad.x.test'},{'action':'allow','target':'*.x.test'}"
	 "]}",
		"'hosts':['*.x.test']", NULL},
	{"{'egress':[{'action':'deny','target':'*.x.test'},{'action':'allow','target':'*.test'}]}",
		"'hosts':['*.x.test']",
		"binding \"b\" host \"*.x.test\" is not allowed by egress policy"},
	{"{}", "'hosts':['api.test']",
		"binding \"b\" host \"api.test\" is not allowed by egress policy"},
};

static void test_hosts_need_the_policy(void **arg)
{
	for (size_t i = 0; i < ARRAY_LEN(policies); i++) {
		char doc[DOC_MAX];
		struct fixture f;

		(void)snprintf(doc, sizeof(doc), one_of, policies[i].match);
		fixture_open(&f);
		fixture_set_policy(&f, policies[i].policy);
		f.rules.allow_http = true;
		if (policies[i].want)
			fixture_refuse(&f, doc, E_VALUE, policies[i].want);
		else
			fixture_load(&f, doc);
		fixture_close(&f);
	}
}

static void test_errors_come_in_order_of_names(void **arg)
{
	struct fixture f;

	fixture_open(&f);
	fixture_set_policy(&f, "{'egress':[{'action':'allow','target':'ok.test'}]}");
	fixture_refuse(&f,
		"{'bindings':[" B("z", "'z.test'", ALL, ALL) "," B(
			"m", "'ok.test','m.test'", ALL, ALL) "," B("p", "'p.test'", ALL, ALL) "]}",
		E_VALUE, "binding \"m\" host \"m.test\" is not allowed by egress policy");
	fixture_close(&f);
}

/* Pass-through hosts, and write hosts under the read-only rule, in every relation to a wildcard. */
static const struct {
	const char *list, *hosts;
	bool meet;
} lists[] = {
	{"a.test", "'a.test'", true},
	{"a.test", "'b.test'", false},
	{"*.a.test", "'a.test'", false},
	{"*.a.test", "'x.a.test'", true},
	{".a.test", "'a.test'", true},
	{"a.test", "'*.a.test'", false},
	{".a.test", "'*.a.test'", true},
	{"*.a.test", "'*.a.test'", true},
	{"x.a.test", "'*.a.test'", true},
	{"*.x.a.test", "'*.a.test'", true},
	{"*.a.test", "'*.x.a.test'", true},
	{"a.test", "'*.x.a.test'", false},
	{"b.test q.test a.test", "'b.c.test','a.test'", true},
	{"", "'a.test'", false},
};

static void test_bound_hosts_are_not_passed_through(void **arg)
{
	for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
		struct write_hosts *list;
		char doc[DOC_MAX];
		char match[256];
		struct fixture f;

		(void)snprintf(match, sizeof(match), "'hosts':[%s]", lists[i].hosts);
		(void)snprintf(doc, sizeof(doc), one_of, match);
		fixture_open(&f);
		assert_int_equal(write_hosts_decode(slice_str(lists[i].list), &list, &f.msg), 0);
		f.rules.pass_through = list;
		if (lists[i].meet)
			fixture_refuse(&f, doc, E_VALUE, "matches mitmproxy ignore_hosts");
		else
			fixture_load(&f, doc);
		write_hosts_free(list);
		fixture_close(&f);
	}
}

/* Design 6: under the read-only rule a whole body of a write host is no place for a key. */
static void test_body_surface_on_a_write_host_needs_a_slot(void **arg)
{
	static const struct {
		const char *in;
		bool whole;
	} places[] = {{"'body'", true}, {"'query','body'", true}, {"'json:/k'", false},
		{"'form:k','header','path'", false}};

	for (size_t i = 0; i < ARRAY_LEN(lists) * ARRAY_LEN(places) * 4; i++) {
		size_t row = i / 4 / ARRAY_LEN(places);
		size_t place = i / 4 % ARRAY_LEN(places);
		struct write_hosts *list;
		char doc[DOC_MAX];
		struct fixture f;

		(void)snprintf(doc, sizeof(doc),
			"{'credentials':[{'name':'k','source':{'value':'sk-value-01'}}],'bindings':"
			"["
			"{'name':'b','match':{'hosts':[%s]},'auth':{'type':'passthrough',"
			"'substitutions':[{'credential':'k','placeholder':'ph-model-1','in':[%s]}]"
			"}}]}",
			lists[row].hosts, places[place].in);
		fixture_open(&f);
		assert_int_equal(write_hosts_decode(slice_str(lists[row].list), &list, &f.msg), 0);
		f.rules.write_hosts = list;
		f.rules.read_only = (i & 1) != 0;
		f.rules.allow_body_surface = (i & 2) != 0;
		if (lists[row].meet && places[place].whole && (i & 3) == 1)
			fixture_refuse(&f, doc, E_VALUE,
				"binding \"b\": substitution 0: surface body needs a slot on write "
				"host ");
		else
			fixture_load(&f, doc);
		write_hosts_free(list);
		fixture_close(&f);
	}
}

/* W-2, C120 */
static void test_http_needs_the_setting(void **arg)
{
	struct fixture f;
	char doc[512];

	(void)snprintf(doc, sizeof(doc), one_of, "'schemes':['https','http'],'hosts':['api.test']");
	fixture_open(&f);
	fixture_refuse(&f, doc, E_VALUE,
		"binding \"b\": scheme \"http\" is refused: credentials only go over https");
	f.rules.allow_http = true;
	fixture_load(&f, doc);
	fixture_close(&f);
}

/* U12 to U15, U17 */
static const struct {
	const char *match, *want;
} scoped[] = {
	{"'hosts':['api.test'],'paths':['/v1/*']",
		"binding \"b\": match.methods must be explicit when scoped-match enforcement is "
		"enabled"},
	{"'hosts':['api.test'],'methods':['GET']",
		"binding \"b\": match.paths must be explicit when scoped-match enforcement is "
		"enabled"},
	{"'hosts':['api.test'],'methods':['GET'],'paths':['/v1/*','/*']",
		"binding \"b\": match.paths must not contain /* when scoped-match enforcement is "
		"enabled"},
	{"'hosts':['api.test'],'methods':['GET'],'paths':['/v1/*']", NULL},
	{"'hosts':['api.test'],'methods':['GET'],'paths':['/**']", NULL},
};

static void test_scoped_match(void **arg)
{
	for (size_t i = 0; i < ARRAY_LEN(scoped); i++) {
		char doc[512];
		struct fixture f;

		(void)snprintf(doc, sizeof(doc), one_of, scoped[i].match);
		fixture_open(&f);
		fixture_load(&f, doc);
		f.rules.require_scoped_match = true;
		if (scoped[i].want)
			fixture_refuse(&f, doc, E_VALUE, scoped[i].want);
		else
			fixture_load(&f, doc);
		/* U16: revision and bindings stay. */
		assert_int_equal(vault_revision(f.vault), scoped[i].want ? 1 : 2);
		fixture_close(&f);
	}
}

/* U27: what a binding uses stays; with the binding it may go. */
static void test_used_credential_cannot_be_left_out(void **arg)
{
	struct fixture f;

	fixture_open(&f);
	fixture_load(&f,
		"{'credentials':[{'name':'k','source':{'value':'v'}}],'bindings':[{'name':"
		"'b','match':{'hosts':['a.test']},'auth':{'type':'bearer','credential':'k'"
		"}}]}");
	fixture_refuse(&f,
		"{'bindings':[{'name':'b','match':{'hosts':['a.test']},'auth':{'type':'bearer',"
		"'credential':'k'}}]}",
		E_VALUE, "binding \"b\" references unknown credential \"k\"");
	fixture_load(&f, "{}");
	fixture_close(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_requests),
		cmocka_unit_test(test_scheme_and_port_must_agree),
		cmocka_unit_test(test_bound_hosts_are_known_whatever_the_path),
		cmocka_unit_test(test_bindings_that_can_meet_are_refused),
		cmocka_unit_test(test_index_agrees_with_a_scan),
		cmocka_unit_test(test_fields_of_each_auth),
		cmocka_unit_test(test_hosts_need_the_policy),
		cmocka_unit_test(test_errors_come_in_order_of_names),
		cmocka_unit_test(test_bound_hosts_are_not_passed_through),
		cmocka_unit_test(test_body_surface_on_a_write_host_needs_a_slot),
		cmocka_unit_test(test_http_needs_the_setting),
		cmocka_unit_test(test_scoped_match),
		cmocka_unit_test(test_used_credential_cannot_be_left_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
