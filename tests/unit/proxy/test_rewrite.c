/* Heads as they go on. What is written is read at the other end of a socket pair. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>
#include <event2/event.h>

#include "base/arena.h"
#include "proxy/rewrite.h"

static struct event_base *base;
static struct io *io;
static struct conn conn;
static int peer;
static char out[2 * IO_RECORD];

static void on_nothing(void *arg)
{
}

static const struct conn_ops no_ops = {on_nothing, on_nothing};

static int setup(void **state)
{
	int fds[2];

	base = event_base_new();
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) < 0 || io_new(NULL, &io) < 0)
		return -1;
	conn_init(&conn, fds[0], io, base, &no_ops, NULL);
	peer = fds[1];
	return 0;
}

static int teardown(void **state)
{
	conn_fini(&conn);
	close(peer);
	io_free(io);
	event_base_free(base);
	return 0;
}

/* What was written since the last time. */
static const char *written(size_t total)
{
	ssize_t n;

	assert_int_equal(conn_flush(&conn), 0);
	n = recv(peer, out, sizeof(out) - 1, MSG_DONTWAIT);
	out[n > 0 ? n : 0] = '\0';
	assert_int_equal(n > 0 ? n : 0, total);
	return out;
}

static void request_check(const char *fields, const char *want)
{
	struct h1_head h;
	char text[2048];

	(void)snprintf(text, sizeof(text), "GET / HTTP/1.1\r\nHost: a.test\r\n%s\r\n", fields);
	if (h1_request_decode(slice_str(text), &h) != H1_OK)
		fail_msg("not accepted: %s", fields);
	rewrite_request_fields(&h.fields);
	assert_string_equal(written(rewrite_fields(&h.fields, &conn)), want);
}

static void test_request_loses_what_is_for_this_hop(void **state)
{
	static const struct {
		const char *fields, *want;
	} rows[] = {
		{"", ""},
		{"A: 1\r\n", "A: 1\r\n"},
		{"Connection: keep-alive\r\nA: 1\r\n", "A: 1\r\n"},
		{"Connection: close\r\nA: 1\r\n", "A: 1\r\n"},
		{"Proxy-Connection: keep-alive\r\nA: 1\r\n", "A: 1\r\n"},
		{"Keep-Alive: timeout=5\r\nA: 1\r\n", "A: 1\r\n"},
		{"TE: trailers\r\nA: 1\r\n", "A: 1\r\n"},
		{"A: 1\r\nTrailer: X\r\n", "A: 1\r\n"},
		{"Upgrade: websocket\r\nA: 1\r\n", "A: 1\r\n"},
		{"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\nConnection: Upgrade, "
		 "HTTP2-Settings\r\nA: 1\r\n",
			"A: 1\r\n"},
		{"Content-Length: 0\r\nA: 1\r\n", "A: 1\r\n"},
		{"Transfer-Encoding: chunked\r\nA: 1\r\n", "A: 1\r\n"},
		{"Proxy-Authorization: Basic eDp5\r\nA: 1\r\n", "A: 1\r\n"},
		{"Proxy-Foo: 1\r\nproxy-bar: 2\r\nPROXY-x: 3\r\nA: 1\r\n", "A: 1\r\n"},
		{"Proxy: 1\r\nProxyX: 2\r\n", "Proxy: 1\r\nProxyX: 2\r\n"},
		{"OPENSANDBOX-EGRESS-AUTH: token\r\nOpenSandbox-Else: 1\r\nA: 1\r\n", "A: 1\r\n"},
		{"OpenSandbox: 1\r\n", "OpenSandbox: 1\r\n"},
		{"Connection: close, x-secret\r\nX-Secret: 1\r\nA: 1\r\nx-SECRET: 2\r\n",
			"A: 1\r\n"},
		{"X-Secret: 1\r\nA: 1\r\nConnection: \"q, r\", X-Secret\r\n", "A: 1\r\n"},
		{"Proxy-Connection: X-Secret\r\nX-Secret: 1\r\nA: 1\r\n", "A: 1\r\n"},
		{"Connection: close\r\nConnection: x-secret\r\nX-Secret: 1\r\nA: 1\r\n",
			"A: 1\r\n"},
		{"Authorization: Bearer x\r\nCookie: a=b\r\nOrigin: http://a\r\n",
			"Authorization: Bearer x\r\nCookie: a=b\r\nOrigin: http://a\r\n"},
		{"Expect: 100-continue\r\n", "Expect: 100-continue\r\n"},
		{"Alt-Svc: x\r\n", "Alt-Svc: x\r\n"},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		request_check(rows[i].fields, rows[i].want);
}

static void test_lines_are_written_in_one_form(void **state)
{
	static const struct {
		const char *fields, *want;
	} rows[] = {
		{"A: 1\r\nB: 2\r\nC: 3\r\n", "A: 1\r\nB: 2\r\nC: 3\r\n"},
		{"A:1\r\n", "A: 1\r\n"},
		{"A:  1\r\n", "A: 1\r\n"},
		{"A:\t1\r\n", "A: 1\r\n"},
		{"A: 1 \r\n", "A: 1\r\n"},
		{"A: 1\t\r\nB: 2\r\n", "A: 1\r\nB: 2\r\n"},
		{"A:\r\nB: \r\nC:  \r\n", "A: \r\nB: \r\nC: \r\n"},
		{"A: 1\r\nB:2\r\nC: 3\r\n", "A: 1\r\nB: 2\r\nC: 3\r\n"},
		{"A:1\r\nB: 2\r\nC:3\r\n", "A: 1\r\nB: 2\r\nC: 3\r\n"},
		{"A: 1\r\nTE: x\r\nB: 2\r\nC: 3\r\nTE: y\r\n", "A: 1\r\nB: 2\r\nC: 3\r\n"},
		{"A: a  b\r\n", "A: a  b\r\n"},
		{"a: \xc3\xa4\r\n", "a: \xc3\xa4\r\n"},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		request_check(rows[i].fields, rows[i].want);
}

static void response_check(const char *line, const char *fields, bool is_head, const char *want)
{
	struct h1_head h;
	char text[2048];

	(void)snprintf(text, sizeof(text), "%s\r\n%s\r\n", line, fields);
	if (h1_response_decode(slice_str(text), is_head ? SLICE("HEAD") : SLICE("GET"), &h) !=
		H1_OK)
		fail_msg("not accepted: %s", fields);
	rewrite_response_fields(&h, is_head);
	assert_string_equal(written(rewrite_fields(&h.fields, &conn)), want);
}

static void test_response_loses_what_is_for_this_hop(void **state)
{
	static const struct {
		const char *line, *fields;
		bool is_head;
		const char *want;
	} rows[] = {
		{"HTTP/1.1 200 OK", "A: 1\r\n", false, "A: 1\r\n"},
		{"HTTP/1.1 200 OK", "Content-Length: 5\r\nA: 1\r\n", false,
			"Content-Length: 5\r\nA: 1\r\n"},
		{"HTTP/1.1 200 OK", "Content-Length: 5\r\nA: 1\r\nContent-Length: 5\r\n", false,
			"Content-Length: 5\r\nA: 1\r\n"},
		{"HTTP/1.1 200 OK", "Content-Length: 5\r\n", true, "Content-Length: 5\r\n"},
		{"HTTP/1.1 304 Not Modified", "Content-Length: 5\r\n", false,
			"Content-Length: 5\r\n"},
		{"HTTP/1.1 200 OK", "Transfer-Encoding: chunked\r\nTrailer: X\r\nA: 1\r\n", false,
			"A: 1\r\n"},
		{"HTTP/1.1 200 OK", "Alt-Svc: h3=\":443\"\r\nA: 1\r\nALT-SVC: clear\r\n", false,
			"A: 1\r\n"},
		{"HTTP/1.1 200 OK", "Connection: close, X-Hop\r\nX-Hop: 1\r\nA: 1\r\n", false,
			"A: 1\r\n"},
		{"HTTP/1.1 200 OK", "Keep-Alive: timeout=5\r\nProxy-Authenticate: Basic\r\n", false,
			""},
		{"HTTP/1.1 401 No", "WWW-Authenticate: Basic realm=\"x\"\r\n", false,
			"WWW-Authenticate: Basic realm=\"x\"\r\n"},
		{"HTTP/1.1 204 No Content", "A: 1\r\n", false, "A: 1\r\n"},
		{"HTTP/1.1 103 Early Hints", "Link: </a>\r\n", false, "Link: </a>\r\n"},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		response_check(rows[i].line, rows[i].fields, rows[i].is_head, rows[i].want);
}

static void test_kept_fields_are_still_found(void **state)
{
	struct h1_head h;

	assert_int_equal(h1_request_decode(SLICE("GET / HTTP/1.1\r\nHost: a\r\nAccept: b\r\nTE: "
						 "c\r\n\r\n"),
				 &h),
		H1_OK);
	rewrite_request_fields(&h.fields);
	assert_true(fields_have(&h.fields, FIELD_ACCEPT));
	assert_false(fields_have(&h.fields, FIELD_TE));
	assert_false(fields_have(&h.fields, FIELD_HOST));
}

static void test_request_head_as_the_origin_sees_it(void **state)
{
	static const struct {
		const char *target;
		bool https, upgrade;
		const char *head, *want;
		bool chunked;
	} rows[] = {
		{"a.test:443", true, false, "GET / HTTP/1.1\r\nHost: B\r\nA: 1\r\n\r\n",
			"GET /p?q HTTP/1.1\r\nHost: a.test\r\nA: 1\r\n\r\n", false},
		{"a.test:80", false, false, "GET / HTTP/1.0\r\n\r\n",
			"GET /p?q HTTP/1.1\r\nHost: a.test\r\n\r\n", false},
		{"a.test:80", true, false, "GET / HTTP/1.1\r\nHost: B\r\n\r\n",
			"GET /p?q HTTP/1.1\r\nHost: a.test:80\r\n\r\n", false},
		{"[2001:db8::1]:8080", false, false, "HEAD / HTTP/1.1\r\nHost: B\r\n\r\n",
			"HEAD /p?q HTTP/1.1\r\nHost: [2001:db8::1]:8080\r\n\r\n", false},
		{"a.test:80", false, false,
			"POST / HTTP/1.1\r\nHost: B\r\nContent-Length: 007\r\nA: 1\r\n\r\n",
			"POST /p?q HTTP/1.1\r\nHost: a.test\r\nA: 1\r\nContent-Length: 7\r\n\r\n",
			false},
		{"a.test:80", false, false,
			"PUT / HTTP/1.1\r\nHost: B\r\nContent-Length: 0\r\n\r\n",
			"PUT /p?q HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n\r\n", false},
		{"a.test:80", false, false,
			"PUT / HTTP/1.1\r\nHost: B\r\nTransfer-Encoding: chunked\r\n\r\n",
			"PUT /p?q HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: "
			"chunked\r\n\r\n",
			true},
		{"a.test:80", false, true,
			"GET / HTTP/1.1\r\nHost: B\r\nConnection: Upgrade, X\r\nX: 1\r\n"
			"Upgrade: h2c, websocket\r\nUpgrade: foo/2\r\nA: 1\r\n\r\n",
			"GET /p?q HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: "
			"websocket, foo/2\r\nA: 1\r\n\r\n",
			false},
		{"a.test:80", false, false,
			"GET / HTTP/1.1\r\nHost: B\r\nConnection: Upgrade, HTTP2-Settings\r\n"
			"Upgrade: h2c\r\nHTTP2-Settings: AAMA\r\n\r\n",
			"GET /p?q HTTP/1.1\r\nHost: a.test\r\n\r\n", false},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct exchange *ex = xcalloc(1, sizeof(*ex));
		struct h1_head h;
		bool chunked = !rows[i].chunked;
		size_t total;

		if (h1_request_decode(slice_str(rows[i].head), &h) != H1_OK)
			fail_msg("row %zu", i);
		assert_int_equal(authority_decode(slice_str(rows[i].target), &ex->target), 0);
		ex->https = rows[i].https;
		ex->upgrade = rows[i].upgrade;
		ex->path_query = SLICE("/p?q");
		total = rewrite_request_head(ex, &h, &conn, &chunked);
		assert_string_equal(written(total), rows[i].want);
		assert_int_equal(chunked, rows[i].chunked);
		free(ex);
	}
}

static void test_upgrade_tokens(void **state)
{
	static const struct {
		const char *fields;
		bool any, only_h2c;
	} rows[] = {
		{"", false, false},
		{"Upgrade: h2c\r\n", true, true},
		{"Upgrade: H2C\r\n", true, true},
		{"Upgrade: h2c, websocket\r\n", true, false},
		{"Upgrade: websocket\r\n", true, false},
		{"Upgrade: h2c\r\nUpgrade: websocket\r\n", true, false},
		{"Upgrade: h2c2\r\n", true, false},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		char text[256];
		bool only = false;
		struct h1_head h;

		(void)snprintf(
			text, sizeof(text), "GET / HTTP/1.1\r\nHost: a\r\n%s\r\n", rows[i].fields);
		assert_int_equal(h1_request_decode(slice_str(text), &h), H1_OK);
		if (rewrite_upgrade(&h.fields, &only) != rows[i].any || only != rows[i].only_h2c)
			fail_msg("row %zu", i);
	}
}

static void test_chunks(void **state)
{
	static const size_t sizes[] = {1, 9, 10, 15, 16, 17, 255, 256, 4096, 16000};
	static char content[16000];

	memset(content, 'x', sizeof(content));
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		char want[32];
		int n = snprintf(want, sizeof(want), "%zx\r\n", sizes[i]);

		rewrite_chunk(&conn, slice_make(content, sizes[i]));
		written((size_t)n + sizes[i] + 2);
		assert_memory_equal(out, want, (size_t)n);
		assert_memory_equal(out + n, content, sizes[i]);
		assert_string_equal(out + (size_t)n + sizes[i], "\r\n");
	}
}

static void test_last_chunk_with_and_without_trailers(void **state)
{
	struct fields t = {.n = 2};

	rewrite_last_chunk(&conn, NULL);
	assert_string_equal(written(5), "0\r\n\r\n");
	t.v[0] = (struct field){SLICE("X-Sum"), SLICE("1"), FIELD_OTHER};
	t.v[1] = (struct field){SLICE("X-Else"), SLICE("2"), FIELD_OTHER};
	rewrite_last_chunk(&conn, &t);
	assert_string_equal(written(26), "0\r\nX-Sum: 1\r\nX-Else: 2\r\n\r\n");
}

static void test_length_line(void **state)
{
	static const struct {
		uint64_t n;
		const char *want;
	} rows[] = {
		{0, "Content-Length: 0\r\n"},
		{9, "Content-Length: 9\r\n"},
		{10, "Content-Length: 10\r\n"},
		{UINT64_MAX, "Content-Length: 18446744073709551615\r\n"},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		assert_string_equal(written(rewrite_length(&conn, rows[i].n)), rows[i].want);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_request_loses_what_is_for_this_hop),
		cmocka_unit_test(test_lines_are_written_in_one_form),
		cmocka_unit_test(test_response_loses_what_is_for_this_hop),
		cmocka_unit_test(test_kept_fields_are_still_found),
		cmocka_unit_test(test_request_head_as_the_origin_sees_it),
		cmocka_unit_test(test_upgrade_tokens),
		cmocka_unit_test(test_chunks),
		cmocka_unit_test(test_last_chunk_with_and_without_trailers),
		cmocka_unit_test(test_length_line),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
