/* The client's side of HTTP/1.1: what is refused and how the connection goes on, HTTP/1.0, time
 * limits at each state (swept by hand), draining. */
#include <sys/socket.h>

#include <event2/event.h>

#include "base/arena.h"
#include "proxy/upstream.h"
#include "tests/unit/proxy/bed.h"

static struct bed *bed;
static struct peer client, origin;
static struct session *session;
static char text[4096];

static int setup(void **state)
{
	bed = bed_new("");
	client.fd = origin.fd = -1;
	client.ssl = origin.ssl = NULL;
	session = peer_client(bed, &client);
	return 0;
}

static int teardown(void **state)
{
	peer_close(bed, &client);
	peer_close(bed, &origin);
	bed_free(bed);
	return 0;
}

static void again(void)
{
	peer_close(bed, &client);
	peer_close(bed, &origin);
	session = peer_client(bed, &client);
}

#define OK_HI "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"

/* "METHOD /path" with version and fields, absolute, to the origin. */
static void ask(const char *method, const char *version, const char *rest)
{
	(void)snprintf(text, sizeof(text),
		"%s http://origin.test:%u/ HTTP/%s\r\nHost: origin.test:%u\r\n%s", method,
		bed->port, version, bed->port, rest);
	peer_send(bed, &client, text);
}

static void ask_and_accept(const char *method, const char *version, const char *rest)
{
	ask(method, version, rest);
	peer_accept(bed, &origin);
	free(peer_until(bed, &origin, "\r\n\r\n"));
}

static void test_refused_requests(void **state)
{
	static const struct {
		const char *request, *begin;
		bool closes;
	} rows[] = {
		{"GET http://else.example/ HTTP/1.1\r\nHost: else.example\r\n\r\n",
			"HTTP/1.1 403 blocked\r\n", false},
		{"GET / HTTP/1.1\r\nHost: origin.test\r\n\r\n", "HTTP/1.1 400 Bad Request\r\n",
			true},
		{"GET http://origin.test/ HTTP/1.1\r\nHost: else.example\r\n\r\n",
			"HTTP/1.1 400 Bad Request\r\n", true},
		{"GET http://origin.test/ HTTP/1.1\r\n\r\n", "HTTP/1.1 400 Bad Request\r\n", true},
		{"GET http://origin.test/ HTTP/1.1\r\nHost: a b\r\n\r\n",
			"HTTP/1.1 400 Bad Request\r\n", true},
		{"GET http://origin.test/# HTTP/1.1\r\nHost: origin.test\r\n\r\n",
			"HTTP/1.1 400 Bad Request\r\n", true},
		{"GET http://origin.test/ HTTP/1.1\nHost: origin.test\n\n",
			"HTTP/1.1 400 Bad Request\r\n", true},
		{"GET http://origin.test/ HTTP/3.0\r\n\r\n", "HTTP/1.1 400 Bad Request\r\n", true},
		{"TRACE http://origin.test/ HTTP/1.1\r\nHost: origin.test\r\n\r\n",
			"HTTP/1.1 403 blocked\r\n", false},
		{"CONNECT else.example:443 HTTP/1.1\r\nHost: else.example\r\n\r\n",
			"HTTP/1.1 403 blocked\r\n", false},
		{"CONNECT else.example HTTP/1.1\r\nHost: else.example\r\n\r\n",
			"HTTP/1.1 400 Bad Request\r\n", true},
		{"GET http://origin.test/ HTTP/1.1\r\nHost: origin.test\r\nExpect: x\r\n\r\n",
			"HTTP/1.1 417 Expectation Failed\r\n", false},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		char *head, *body;

		peer_send(bed, &client, rows[i].request);
		head = peer_until(bed, &client, "\r\n\r\n");
		body = peer_until(bed, &client, "\n");
		if (!slice_starts(slice_str(head), slice_str(rows[i].begin)))
			fail_msg("row %zu: %s", i, head);
		assert_int_equal(strstr(head, "Connection: close\r\n") != NULL, rows[i].closes);
		if (rows[i].closes)
			peer_expect_end(bed, &client);
		else
			peer_expect_nothing(bed, &client);
		free(head);
		free(body);
		if (rows[i].closes)
			again();
	}
	assert_true(peer_nobody_connects(bed));
}

static void test_refused_request_with_content_ends_the_connection(void **state)
{
	bed->config.read_only = true;
	bed_set_policy(bed, false, "allow - 1,2,3");
	ask("POST", "1.1", "Content-Length: 5\r\n\r\nabcde");
	peer_expect_head(bed, &client, "HTTP/1.1 403 blocked\r\n");
	free(peer_until(bed, &client, "\n"));
	peer_expect_end(bed, &client);
	assert_true(peer_nobody_connects(bed));
}

static void test_head_at_its_limit_and_past_it(void **state)
{
	for (int past = 0; past < 2; past++) {
		static char big[H1_HEAD_MAX + 2];
		size_t n;

		(void)snprintf(text, sizeof(text),
			"GET http://origin.test:%u/ HTTP/1.1\r\nHost: origin.test:%u\r\nA: ",
			bed->port, bed->port);
		n = strlen(text);
		memset(big, 'a', sizeof(big));
		memcpy(big, text, n);
		memcpy(big + H1_HEAD_MAX + past - 4, "\r\n\r\n", 4);
		peer_send_bytes(bed, &client, big, (size_t)H1_HEAD_MAX + (size_t)past);
		if (past) {
			peer_expect_head(
				bed, &client, "HTTP/1.1 431 Request Header Fields Too Large\r\n");
			assert_true(peer_nobody_connects(bed));
		} else {
			peer_accept(bed, &origin);
			peer_expect_head(bed, &origin, "GET / HTTP/1.1\r\n");
			again();
		}
	}
}

static void test_http_1_0(void **state)
{
	static const struct {
		const char *rest, *answer, *want;
		bool closes;
	} rows[] = {
		{"\r\n", OK_HI,
			"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi",
			true},
		{"Connection: keep-alive\r\n\r\n", OK_HI,
			"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: "
			"keep-alive\r\n\r\nhi",
			false},
		{"Connection: keep-alive\r\n\r\n",
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX: "
			"1\r\n\r\n",
			"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhi", true},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		ask_and_accept("GET", "1.0", rows[i].rest);
		peer_send(bed, &origin, rows[i].answer);
		peer_expect(bed, &client, rows[i].want);
		if (rows[i].closes)
			peer_expect_end(bed, &client);
		else
			peer_expect_nothing(bed, &client);
		upstream_drop_idle(bed->px);
		again();
	}
}

static void test_answers_to_head_keep_their_length_and_have_no_content(void **state)
{
	ask_and_accept("HEAD", "1.1", "\r\n");
	peer_send(bed, &origin, "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n");
	peer_expect(bed, &client, "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n");
	ask("HEAD", "1.1", "\r\n");
	free(peer_until(bed, &origin, "\r\n\r\n"));
	peer_send(bed, &origin, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
	peer_expect(bed, &client, "HTTP/1.1 200 OK\r\n\r\n");
	peer_expect_nothing(bed, &client);
	ask("GET", "1.1", "\r\n");
	free(peer_until(bed, &origin, "\r\n\r\n"));
	peer_send(bed, &origin, "HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n");
	peer_expect(bed, &client, "HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n");
}

static void test_connection_close_of_the_client_is_obeyed(void **state)
{
	ask_and_accept("GET", "1.1", "Connection: close\r\n\r\n");
	peer_send(bed, &origin, OK_HI);
	peer_expect(bed, &client,
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi");
	peer_expect_end(bed, &client);
	assert_int_equal(bed->px->n_idle, 1);
}

static void test_broken_chunks_are_refused(void **state)
{
	ask_and_accept("POST", "1.1", "Transfer-Encoding: chunked\r\n\r\n");
	peer_send(bed, &client, "3\r\nabc\r\n");
	peer_expect(bed, &origin, "3\r\nabc\r\n");
	peer_send(bed, &client, "zz\r\n");
	peer_expect_head(bed, &client, "HTTP/1.1 400 Bad Request\r\n");
	free(peer_until(bed, &client, "\n"));
	peer_expect_end(bed, &client);
	peer_expect_end(bed, &origin);
	bed_close(bed);
	BED_LINE(bed, 0, "\"reason\":\"malformed\"", "\"status\":400", "\"verdict\":\"blocked\"");
}

/* --- time --- */

static void test_silent_client_is_closed(void **state)
{
	bed_pass(bed, bed->config.head_timeout_ms - 1);
	peer_expect_nothing(bed, &client);
	bed_pass(bed, 1);
	peer_expect_end(bed, &client);
	assert_int_equal(bed->px->n_sessions, 0);
}

static void test_slow_head_gets_408(void **state)
{
	peer_send(bed, &client, "GET http://origin");
	bed_pass(bed, bed->config.head_timeout_ms / 2);
	peer_send(bed, &client, ".test/");
	bed_pass(bed, bed->config.head_timeout_ms / 2 - 1);
	peer_expect_nothing(bed, &client);
	bed_pass(bed, 1);
	peer_expect_head(bed, &client, "HTTP/1.1 408 Request Timeout\r\n");
	free(peer_until(bed, &client, "\n"));
	peer_expect_end(bed, &client);
	bed_pass(bed, SESSION_LINGER_MS);
	assert_int_equal(bed->px->n_sessions, 0);
	bed_close(bed);
	BED_LINE(bed, 0, "\"reason\":\"client_timeout\"", "\"status\":408");
}

static void test_idle_client_is_closed(void **state)
{
	ask_and_accept("GET", "1.1", "\r\n");
	peer_send(bed, &origin, OK_HI);
	peer_expect(bed, &client, OK_HI);
	bed_pass(bed, bed->config.client_idle_ms - 1);
	peer_expect_nothing(bed, &client);
	bed_pass(bed, 1);
	peer_expect_end(bed, &client);
}

static void test_content_that_stops_gets_408(void **state)
{
	bed->config.first_byte_ms = 2 * bed->config.stream_idle_ms; /* not the origin's fault */
	bed_configure(bed);
	for (int some = 0; some < 2; some++) {
		ask_and_accept("POST", "1.1", "Content-Length: 9\r\n\r\n");
		if (some) {
			bed_pass(bed, 1000);
			peer_send(bed, &client, "abc");
		}
		bed_pass(bed, bed->config.stream_idle_ms - 1);
		peer_expect_nothing(bed, &client);
		bed_pass(bed, 1);
		peer_expect_head(bed, &client, "HTTP/1.1 408 Request Timeout\r\n");
		free(peer_until(bed, &client, "\n"));
		peer_expect_end(bed, &client);
		again();
	}
	bed_close(bed);
	BED_LINE(bed, 1, "\"reason\":\"client_timeout\"", "\"status\":408");
}

static void test_origin_that_says_nothing_gets_504(void **state)
{
	ask_and_accept("GET", "1.1", "\r\n");
	bed_pass(bed, bed->config.first_byte_ms - 1);
	peer_expect_nothing(bed, &client);
	bed_pass(bed, 1);
	peer_expect_head(bed, &client, "HTTP/1.1 504 Gateway Timeout\r\n");
	peer_expect_end(bed, &origin);
	free(peer_until(bed, &client, "\n"));
	peer_expect_nothing(bed, &client); /* the client may go on */
	bed_close(bed);
	BED_LINE(bed, 0, "\"verdict\":\"open\"");
	BED_LINE(bed, 1, "\"reason\":\"upstream_timeout\"", "\"status\":504");
}

static void test_origin_that_stops_in_its_content_is_cut(void **state)
{
	ask_and_accept("GET", "1.1", "\r\n");
	peer_send(bed, &origin, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi");
	peer_expect(bed, &client, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi");
	bed_pass(bed, bed->config.stream_idle_ms - 1);
	peer_expect_nothing(bed, &client);
	bed_pass(bed, 1);
	peer_expect_end(bed, &client);
	assert_int_equal(bed->px->n_sessions, 0);
	bed_close(bed);
	BED_LINE(bed, 1, "\"reason\":\"upstream_aborted\"", "\"status\":200");
}

static void test_bytes_renew_the_origins_time(void **state)
{
	ask_and_accept("GET", "1.1", "\r\n");
	peer_send(bed, &origin, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n");
	for (int i = 0; i < 3; i++) {
		bed_pass(bed, bed->config.stream_idle_ms - 1);
		peer_send(bed, &origin, "x");
	}
	peer_expect(bed, &client, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nxxx");
}

static void test_client_that_takes_nothing_is_cut(void **state)
{
	static char block[65536];
	ssize_t n;

	ask_and_accept("GET", "1.1", "\r\n");
	peer_send(bed, &origin, "HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n");
	do {
		n = send(origin.fd, block, sizeof(block), MSG_DONTWAIT | MSG_NOSIGNAL);
		bed_turn(bed);
	} while (n > 0);
	bed_pass(bed, bed->config.stream_idle_ms - 1);
	assert_int_equal(bed->px->n_sessions, 1);
	bed_pass(bed, 1);
	assert_int_equal(bed->px->n_sessions, 0);
	bed_close(bed);
	BED_LINE(bed, 1, "\"reason\":\"client_timeout\"");
}

static void test_lingering_ends_by_time_bytes_or_fin(void **state)
{
	for (int how = 0; how < 3; how++) {
		static char block[SESSION_LINGER_BYTES / 8];

		peer_send(bed, &client, "nonsense\r\n\r\n");
		peer_expect_head(bed, &client, "HTTP/1.1 400 Bad Request\r\n");
		free(peer_until(bed, &client, "\n"));
		peer_expect_end(bed, &client);
		assert_int_equal(bed->px->n_sessions, 1);
		switch (how) {
		case 0:
			bed_pass(bed, SESSION_LINGER_MS - 1);
			assert_int_equal(bed->px->n_sessions, 1);
			bed_pass(bed, 1);
			break;
		case 1:
			peer_shutdown(bed, &client);
			break;
		default:
			for (int i = 0; i < 8; i++)
				peer_send_bytes(bed, &client, block, sizeof(block));
			assert_true(session->conn.reading);
			peer_send(bed, &client, "x");
			assert_false(session->conn.reading);
			bed_pass(bed, SESSION_LINGER_MS);
			break;
		}
		if (bed->px->n_sessions != 0)
			fail_msg("%d stays", how);
		again();
	}
}

/* A last answer that the client takes slowly: FIN comes behind it, and lingering begins then. */
static void test_end_behind_an_answer_that_waits(void **state)
{
	for (int gone = 0; gone < 2; gone++) {
		static char block[65536];
		size_t sent = 0, came = 0;
		ssize_t n;

		ask_and_accept("GET", "1.1", "Connection: close\r\n\r\n");
		(void)snprintf(text, sizeof(text), "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n",
			16 * sizeof(block));
		peer_send(bed, &origin, text);
		while (sent < 16 * sizeof(block)) {
			n = send(origin.fd, block, sizeof(block), MSG_DONTWAIT | MSG_NOSIGNAL);
			sent += n > 0 ? (size_t)n : 0;
			if (n < 0 && session->state == SESSION_HTTP) { /* make room */
				peer_receive(&client);
				came += client.len;
				client.len = 0;
			}
			bed_turn(bed);
		}
		for (int i = 0; i < 1000 && session->state == SESSION_HTTP; i++) {
			bed_turn(bed);
			if (session->state == SESSION_HTTP && recv(client.fd, block, 4096, 0) > 0)
				came += 4096;
		}
		assert_int_equal(session->state, SESSION_LINGER);
		assert_true(conn_backlogged(&session->conn));
		if (gone) {
			peer_close(bed, &client);
		} else {
			while (!client.ended) {
				bed_turn(bed);
				peer_receive(&client);
				came += client.len;
				client.len = 0;
				assert_false(client.broken);
			}
			assert_true(came > 16 * sizeof(block));
			assert_int_equal(session->deadline.at_ms, bed->now_ms + SESSION_LINGER_MS);
			peer_close(bed, &client);
		}
		assert_int_equal(bed->px->n_sessions, 0);
		again();
	}
}

/* --- the end --- */

static void test_drain_ends_the_idle_and_lets_the_busy_finish(void **state)
{
	struct peer idle;

	ask_and_accept("GET", "1.1", "\r\n");
	peer_client(bed, &idle);
	assert_int_equal(proxy_busy(bed->px), 1);
	proxy_drain(bed->px);
	peer_expect_end(bed, &idle);
	peer_send(bed, &origin, OK_HI);
	peer_expect(bed, &client,
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi");
	peer_expect_end(bed, &client);
	assert_int_equal(proxy_busy(bed->px), 0);
	peer_close(bed, &idle);
}

static void test_shutdown_is_on_record(void **state)
{
	ask_and_accept("GET", "1.1", "\r\n");
	bed_close(bed);
	assert_int_equal(bed_n_lines(bed), 1);
	BED_LINE(bed, 0, "\"reason\":\"shutdown\"", "\"verdict\":\"failed\"", "\"status\":null");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		T(test_refused_requests),
		T(test_refused_request_with_content_ends_the_connection),
		T(test_head_at_its_limit_and_past_it),
		T(test_http_1_0),
		T(test_answers_to_head_keep_their_length_and_have_no_content),
		T(test_connection_close_of_the_client_is_obeyed),
		T(test_broken_chunks_are_refused),
		T(test_silent_client_is_closed),
		T(test_slow_head_gets_408),
		T(test_idle_client_is_closed),
		T(test_content_that_stops_gets_408),
		T(test_origin_that_says_nothing_gets_504),
		T(test_origin_that_stops_in_its_content_is_cut),
		T(test_bytes_renew_the_origins_time),
		T(test_client_that_takes_nothing_is_cut),
		T(test_lingering_ends_by_time_bytes_or_fin),
		T(test_end_behind_an_answer_that_waits),
		T(test_drain_ends_the_idle_and_lets_the_busy_finish),
		T(test_shutdown_is_on_record),
	};

	return cmocka_run_group_tests(tests, bed_setup_pki, bed_teardown_pki);
}
