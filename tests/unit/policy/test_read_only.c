/* The read-only rule: every row of the tables in docs/read-only.md, and the lists of write hosts.
 *
 * A row is `| request | rule context | verdict | reason |`. The request is joined by " + ", the
 * context by ";" outside of backticks. The page is the specification; this file only reads it. */
#include "base/strbuf.h"
#include "policy/read_only.h"
#include "tests/unit/policy/fixture.h"

#define PAGE_MAX (1u << 20)
#define PAGE_ROWS_MIN 200
#define CELLS 4
#define NAMES_MAX 8

struct row {
	struct read_request request;
	bool git_fetch;
	bool default_allow;
	struct slice name;
	struct slice write_hosts;
	char policy[256];
	char *names[NAMES_MAX];
	size_t n_names;
	bool has_addr;
	struct netaddr addr;
	uint16_t port;
};

static const struct private_names no_names = {NULL, 0};

static struct slice row_plain(struct slice s)
{
	s = slice_strip(s);
	if (s.len >= 2 && s.p[0] == '`' && s.p[s.len - 1] == '`')
		s = slice_make(s.p + 1, s.len - 2);
	return s;
}

/* True if s begins with key; *value is what follows it. */
static bool row_takes(struct slice s, const char *key, struct slice *value)
{
	if (!slice_starts(s, slice_str(key)))
		return false;
	*value = row_plain(slice_from(s, strlen(key)));
	return true;
}

/* What the parsers conclude from a field. */
static void row_field(struct read_request *r, struct slice name, struct slice value)
{
	if (slice_ieq(name, SLICE("Content-Length")))
		r->content |= !slice_eq(value, SLICE("0"));
	else if (slice_ieq(name, SLICE("Transfer-Encoding")))
		r->content = true;
	else if (slice_ieq(name, SLICE("Trailer")))
		r->trailers = true;
	else if (slice_ieq(name, SLICE("Upgrade")))
		r->upgrade |= !slice_ieq(value, SLICE("h2c"));
	else if (slice_ieq(name, SLICE("Content-Type")))
		r->content_type = value;
	r->override_field |= read_only_is_override(name);
}

static void row_request(struct row *row, struct slice cell)
{
	struct read_request *r = &row->request;
	bool first = true;

	while (cell.len > 0) {
		size_t plus = slice_find(cell, SLICE(" + "));
		struct slice part = row_plain(slice_first(cell, plus));

		cell = plus < cell.len ? slice_from(cell, plus + 3) : SLICE_EMPTY;
		if (first) {
			struct slice target;

			target = part;
			r->method = slice_cut(&target, ' ');
			assert_non_null(target.p);
			r->path = slice_cut(&target, '?');
			r->query = target.p ? target : SLICE_EMPTY;
			first = false;
		} else if (slice_eq(part, SLICE("content"))) {
			r->content = true;
		} else if (slice_eq(part, SLICE("trailers"))) {
			r->trailers = true;
		} else {
			struct slice value = part;
			struct slice name = slice_cut(&value, ':');

			assert_non_null(value.p);
			row_field(r, name, slice_trim(value));
		}
	}
}

static void row_context_item(struct row *row, struct slice item)
{
	struct slice value;
	uint64_t port;

	if (slice_eq(item, SLICE("read host"))) {
		return;
	} else if (slice_eq(item, SLICE("git fetch on"))) {
		row->git_fetch = true;
	} else if (slice_eq(item, SLICE("default allow"))) {
		row->default_allow = true;
	} else if (row_takes(item, "to ", &value)) {
		row->name = value;
	} else if (row_takes(item, "at ", &value)) {
		row->has_addr = netaddr_parse(value, &row->addr);
		assert_true(row->has_addr);
	} else if (row_takes(item, "port ", &value)) {
		assert_true(slice_to_u64(value, &port));
		row->port = (uint16_t)port;
	} else if (row_takes(item, "write hosts ", &value)) {
		row->write_hosts = value;
	} else if (row_takes(item, "policy ", &value)) {
		assert_true(slice_to_cstr(value, row->policy, sizeof(row->policy)));
	} else if (row_takes(item, "private names ", &value)) {
		char *name = xcalloc(1, value.len + 1);

		assert_true(row->n_names < NAMES_MAX);
		memcpy(name, value.p, value.len);
		row->names[row->n_names++] = name;
	} else {
		fail_msg("unknown context: %.*s", SLICE_FMT(item));
	}
}

static void row_context(struct row *row, struct slice cell)
{
	size_t start = 0;
	bool quoted = false;

	for (size_t i = 0; i <= cell.len; i++) {
		if (i < cell.len && cell.p[i] == '`')
			quoted = !quoted;
		if (i < cell.len && (cell.p[i] != ';' || quoted))
			continue;
		row_context_item(row, slice_strip(slice_make(cell.p + start, i - start)));
		start = i + 1;
	}
}

/* As admit puts the two questions together: a read passes; else where does it go? */
static enum reason row_judge(const struct row *row)
{
	const struct private_names priv = {(char **)(uintptr_t)row->names, row->n_names};
	enum reason reason = read_only_check(&row->request, row->git_fetch);
	struct errmsg msg = {""};
	struct write_hosts *w;
	struct policy *p;
	enum reason where;
	bool needs_address;

	if (reason == REASON_ALLOWED || reason == REASON_GIT_FETCH || !row->has_addr)
		return reason;
	if (write_hosts_decode(row->write_hosts, &w, &msg) < 0)
		fail_msg("%s", msg.text);
	p = fixture_policy(row->default_allow, row->policy);
	where = read_only_write_check(w, p, &priv, row->name, &row->addr, row->port);
	if (row->name.len > 0) {
		/* Whoever does not wait for the address must not answer otherwise for it. */
		needs_address = read_only_needs_address(w, &priv, row->name);
		if (!needs_address)
			assert_int_equal(read_only_write_check(w, p, &priv, row->name, NULL,
						 row->port) == REASON_WRITE_HOST,
				where == REASON_WRITE_HOST || where == REASON_WRITE_PRIVATE);
	}
	policy_unref(p);
	write_hosts_free(w);
	return where == REASON_METHOD_NOT_READ ? reason : where;
}

static const char *row_verdict(enum reason reason)
{
	if (reason == REASON_ALLOWED || reason == REASON_GIT_FETCH)
		return "read";
	if (reason == REASON_WRITE_HOST || reason == REASON_WRITE_PRIVATE)
		return "write";
	return "blocked";
}

static void row_run(struct slice line)
{
	struct row row = {.write_hosts = SLICE_EMPTY, .name = SLICE_EMPTY, .port = 443};
	struct slice rest = line;
	struct slice cells[CELLS];
	enum reason reason;

	row.request.content_type = SLICE_EMPTY;
	slice_cut(&rest, '|');
	for (size_t i = 0; i < CELLS; i++) {
		assert_non_null(rest.p);
		cells[i] = slice_strip(slice_cut(&rest, '|'));
	}
	if (!rest.p || rest.len > 0)
		fail_msg("not four cells: %.*s", SLICE_FMT(line));
	row_request(&row, cells[0]);
	row_context(&row, cells[1]);
	reason = row_judge(&row);
	if (!slice_eq(cells[3], slice_str(reason_name(reason))) ||
		!slice_eq(cells[2], slice_str(row_verdict(reason))))
		fail_msg("%s, %s for: %.*s", row_verdict(reason), reason_name(reason),
			SLICE_FMT(line));
	for (size_t i = 0; i < row.n_names; i++)
		free(row.names[i]);
}

static void test_every_row_of_the_page_holds(void **state)
{
	struct strbuf page;
	struct slice rest;
	bool in_table = false;
	size_t rows = 0;

	strbuf_init(&page, PAGE_MAX);
	assert_int_equal(strbuf_read_file(&page, READ_ONLY_PAGE), 0);
	rest = strbuf_slice(&page);
	while (rest.p) {
		struct slice line = slice_strip(slice_cut(&rest, '\n'));

		if (slice_eq(line, SLICE("| request | rule context | verdict | reason |")))
			in_table = true;
		else if (!slice_starts(line, SLICE("|")))
			in_table = false;
		else if (in_table && !slice_starts(line, SLICE("| ---"))) {
			row_run(line);
			rows++;
		}
	}
	strbuf_fini(&page);
	assert_in_range(rows, PAGE_ROWS_MIN, SIZE_MAX);
}

static void test_override_names_ignore_case_and_underscore(void **state)
{
	static const char *const yes[] = {"X-HTTP-Method-Override", "x_http_method_override",
		"X-METHOD-OVERRIDE", "x-http-method", "X-Original-Method", "x-original_url",
		"X_Rewrite-Url", "_method", "-METHOD"};
	static const char *const no[] = {"", "x", "method", "__method", "x-http-method-overrid",
		"x-http-method-override2", "x-original", "x-http-methods",
		"x-a-very-long-field-name-that-is-longer-than-32-bytes"};

	for (size_t i = 0; i < ARRAY_LEN(yes); i++)
		assert_true(read_only_is_override(slice_str(yes[i])));
	for (size_t i = 0; i < ARRAY_LEN(no); i++)
		assert_false(read_only_is_override(slice_str(no[i])));
}

static void test_write_host_list_is_normalised(void **state)
{
	static const char *const want[] = {
		"a.test", "*.b.test", ".c.test", "10.0.0.1", "fd00::1", "xn--bcher-kva.test", "d"};
	struct errmsg msg = {""};
	struct write_hosts *w;

	if (write_hosts_decode(SLICE(" A.test.,*.B.test\t.c.test,,\n10.0.0.1 FD00:0::1 "
				     "b\xc3\xbc"
				     "cher.test , d,"),
		    &w, &msg) < 0)
		fail_msg("%s", msg.text);
	assert_int_equal(write_hosts_count(w), ARRAY_LEN(want));
	for (size_t i = 0; i < ARRAY_LEN(want); i++)
		assert_string_equal(write_hosts_entry(w, i), want[i]);
	write_hosts_free(w);
}

static void test_empty_write_host_list_matches_nothing(void **state)
{
	static const char *const lists[] = {"", " ", ",", " ,\t,\n"};

	for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
		struct write_hosts *w;

		assert_int_equal(write_hosts_decode(slice_str(lists[i]), &w, NULL), 0);
		assert_int_equal(write_hosts_count(w), 0);
		assert_int_equal(write_hosts_match(w, SLICE("a.test")), WRITE_NO);
		write_hosts_free(w);
	}
	write_hosts_free(NULL);
}

static void test_wrong_write_host_is_refused_by_name(void **state)
{
	static const struct {
		const char *list;
		const char *message;
	} cases[] = {
		{"a.test https://api.test/v1",
			"write host \"https://api.test/v1\": a URL; write the host name: "
			"\"api.test\""},
		{"api.test:443", "write host \"api.test:443\": a port; write \"api.test\" alone"},
		{"*", "write host \"*\": a bare \"*\" would let everything be written"},
		{"*.", "write host \"*.\": no name after"},
		{".", "write host \".\": a dot in front"},
		{"..a.test", "write host \"..a.test\": a dot in front"},
		{"*.*.test", "write host \"*.*.test\": a \"*\" may stand only once"},
		{"a*.test", "write host \"a*.test\": a \"*\" may stand only once"},
		{".*.test", "write host \".*.test\": a \"*\" may stand only once"},
		{"10.0.0.0/8", "write host \"10.0.0.0/8\": an address block"},
		{"fd00::/8", "write host \"fd00::/8\": an address block"},
		{"a.test/x", "write host \"a.test/x\": a path"},
		{"[::1]", "write host \"[::1]\": brackets"},
		{"fe80::1%eth0", "write host \"fe80::1%eth0\": an address with a zone"},
		{"a..test", "write host \"a..test\": not a host name"},
		{"a;b.test", "write host \"a;b.test\": not a host name"},
		{"010.0.0.1", "write host \"010.0.0.1\": an address in an unusual spelling"},
		{"*.0.0.1", "write host \"*.0.0.1\": an address in an unusual spelling"},
		{".10", "write host \".10\": an address in an unusual spelling"},
		{"1.2.3.999", "write host \"1.2.3.999\": a broken address"},
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct errmsg msg = {""};
		struct write_hosts *w = NULL;

		assert_int_equal(write_hosts_decode(slice_str(cases[i].list), &w, &msg), E_VALUE);
		assert_null(w);
		if (strncmp(msg.text, cases[i].message, strlen(cases[i].message)) != 0)
			fail_msg("got \"%s\", want \"%s\"", msg.text, cases[i].message);
	}
}

static void test_exact_beats_wildcard_for_one_name(void **state)
{
	struct write_hosts *w;

	assert_int_equal(write_hosts_decode(SLICE("*.a.test x.a.test .b.test"), &w, NULL), 0);
	assert_int_equal(write_hosts_match(w, SLICE("x.a.test")), WRITE_EXACT);
	assert_int_equal(write_hosts_match(w, SLICE("y.a.test")), WRITE_WILDCARD);
	assert_int_equal(write_hosts_match(w, SLICE("a.test")), WRITE_NO);
	assert_int_equal(write_hosts_match(w, SLICE("b.test")), WRITE_EXACT);
	assert_int_equal(write_hosts_match(w, SLICE("y.b.test")), WRITE_WILDCARD);
	write_hosts_free(w);
}

static void test_address_is_needed_where_it_decides(void **state)
{
	static const struct {
		const char *name;
		bool want;
	} cases[] = {
		{"exact.test", false},
		{"a.wild.test", true},
		{"read.test", false},
		{"db.cluster.local", true},
		{"redis", true},
	};
	char suffix[] = "cluster.local";
	char *names[] = {suffix};
	const struct private_names priv = {names, 1};
	struct write_hosts *w;

	assert_int_equal(write_hosts_decode(SLICE("exact.test *.wild.test"), &w, NULL), 0);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++)
		assert_int_equal(
			read_only_needs_address(w, &priv, slice_str(cases[i].name)), cases[i].want);
	write_hosts_free(w);
}

static void test_write_host_that_policy_never_allows_is_found(void **state)
{
	static const struct {
		const char *list;
		bool default_allow;
		const char *policy;
		const char *want; /* NULL: all can be allowed */
	} cases[] = {
		{"a.test", false, "allow a.test", NULL},
		{"a.test", false, "allow *.test", NULL},
		{"a.test", false, "allow b.test", "a.test"},
		{"a.test", false, "deny a.test; allow a.test", "a.test"},
		{"a.test", false, "allow a.test 8443", NULL},
		{"a.test", true, "", NULL},
		{"a.test", true, "deny *.test", "a.test"},
		{"*.a.test", false, "allow x.a.test", NULL},
		{"*.a.test", false, "allow *.x.a.test", NULL},
		{"*.a.test", false, "allow *.a.test", NULL},
		{"*.a.test", false, "allow *.test", NULL},
		{"*.a.test", false, "allow a.test", "*.a.test"},
		{"*.a.test", false, "deny *.a.test; allow x.a.test", "*.a.test"},
		{"*.a.test", false, "deny *.a.test; allow *.x.a.test", "*.a.test"},
		{"*.a.test", true, "deny *.a.test", "*.a.test"},
		{"*.a.test", true, "deny x.a.test", NULL},
		{".a.test", false, "allow a.test", NULL},
		{".a.test", false, "allow b.a.test", NULL},
		{".a.test", false, "allow xa.test", ".a.test"},
		{"10.0.0.1", false, "allow 10.0.0.0/8", NULL},
		{"10.0.0.1", false, "allow a.test", "10.0.0.1"},
		{"a.test b.test c.test", false, "allow a.test; allow c.test", "b.test"},
		{"", false, "", NULL},
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct policy *p = fixture_policy(cases[i].default_allow, cases[i].policy);
		struct write_hosts *w;
		const char *found;

		assert_int_equal(write_hosts_decode(slice_str(cases[i].list), &w, NULL), 0);
		found = write_hosts_not_allowed(w, p);
		if (cases[i].want ? !found || strcmp(found, cases[i].want) != 0 : found != NULL)
			fail_msg("%s under \"%s\": %s", cases[i].list, cases[i].policy,
				found ? found : "none");
		write_hosts_free(w);
		policy_unref(p);
	}
}

static void test_longest_wildcard_entry_is_asked_safely(void **state)
{
	struct policy *p = fixture_policy(true, "");
	struct write_hosts *w;
	char list[256] = "*.";

	for (size_t i = 2; i < 255; i++)
		list[i] = i % 2 ? '.' : 'a';
	assert_int_equal(write_hosts_decode(slice_make(list, 255), &w, NULL), 0);
	assert_null(write_hosts_not_allowed(w, p));
	write_hosts_free(w);
	policy_unref(p);
}

static void test_no_names_means_single_labels_only(void **state)
{
	struct write_hosts *w;

	assert_int_equal(write_hosts_decode(SLICE(""), &w, NULL), 0);
	assert_true(read_only_needs_address(w, &no_names, SLICE("redis")));
	assert_false(read_only_needs_address(w, &no_names, SLICE("redis.test")));
	write_hosts_free(w);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_row_of_the_page_holds),
		cmocka_unit_test(test_override_names_ignore_case_and_underscore),
		cmocka_unit_test(test_write_host_list_is_normalised),
		cmocka_unit_test(test_empty_write_host_list_matches_nothing),
		cmocka_unit_test(test_wrong_write_host_is_refused_by_name),
		cmocka_unit_test(test_exact_beats_wildcard_for_one_name),
		cmocka_unit_test(test_address_is_needed_where_it_decides),
		cmocka_unit_test(test_write_host_that_policy_never_allows_is_found),
		cmocka_unit_test(test_longest_wildcard_entry_is_asked_safely),
		cmocka_unit_test(test_no_names_means_single_labels_only),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
