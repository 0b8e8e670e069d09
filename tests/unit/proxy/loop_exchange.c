/* Requests and responses through the whole proxy: a scripted client, a scripted origin, in clear.
 * The order of things, ends and breaks at each state, retries, time limits. */
#include <sys/socket.h>

#include <event2/event.h>

#include "base/arena.h"
#include "base/clock.h"
#include "proxy/upstream.h"
#include "tests/unit/proxy/bed.h"

#define BULK (8u << 20)

static struct bed *bed;
static struct peer client, origin, second;
static char text[4096], want[4096];

static int setup(void **state)
{
	bed = bed_new("");
	memset(&client, 0, sizeof(client));
	client.fd = origin.fd = second.fd = -1;
	return 0;
}

static int teardown(void **state)
{
	peer_close(bed, &client);
	peer_close(bed, &origin);
	peer_close(bed, &second);
	bed_free(bed);
	return 0;
}

/* "GET /path HTTP/1.1" to the origin by its name, with fields and content. */
static const char *request(const char *method, const char *path, const char *rest)
{
	(void)snprintf(text, sizeof(text),
		"%s http://origin.test:%u%s HTTP/1.1\r\nHost: origin.test:%u\r\n%s", method,
		bed->port, path, bed->port, rest);
	return text;
}

/* What the origin sees of it. */
static const char *forwarded(const char *method, const char *path, const char *rest)
{
	(void)snprintf(want, sizeof(want), "%s %s HTTP/1.1\r\nHost: origin.test:%u\r\n%s", method,
		path, bed->port, rest);
	return want;
}

static void ask(const char *method, const char *path, const char *rest)
{
	peer_send(bed, &client, request(method, path, rest));
}

static void expect_asked(struct peer *o, const char *method, const char *path, const char *rest)
{
	peer_expect(bed, o, forwarded(method, path, rest));
}

/* A client with one request that has reached the origin. */
static void open_get(void)
{
	peer_client(bed, &client);
	ask("GET", "/", "\r\n");
	peer_accept(bed, &origin);
	expect_asked(&origin, "GET", "/", "\r\n");
}

static void open_post(const char *fields)
{
	char more[256];

	peer_client(bed, &client);
	(void)snprintf(more, sizeof(more), "%s\r\n", fields);
	ask("POST", "/", more);
	peer_accept(bed, &origin);
	expect_asked(&origin, "POST", "/", more);
}

#define OK_HI "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"

static void test_request_and_answer(void **state)
{
	open_get();
	peer_send(bed, &origin, "HTTP/1.1 200 Fine\r\nContent-Length: 2\r\nAlt-Svc: x\r\n\r\nhi");
	peer_expect(bed, &client, "HTTP/1.1 200 Fine\r\nContent-Length: 2\r\n\r\nhi");
	bed_close(bed);
	assert_int_equal(bed_n_lines(bed), 1);
	BED_LINE(bed, 0, "\"kind\":\"read\"", "\"verdict\":\"allowed\"", "\"reason\":\"allowed\"",
		"\"status\":200", "\"addr\":\"127.0.0.1\"", "\"down\":2", "\"via\":\"proxy\"");
}

static void test_connection_is_kept_and_used_again(void **state)
{
	open_get();
	peer_send(bed, &origin, OK_HI);
	peer_expect(bed, &client, OK_HI);
	ask("GET", "/2", "\r\n");
	expect_asked(&origin, "GET", "/2", "\r\n");
	peer_send(bed, &origin, OK_HI);
	peer_expect(bed, &client, OK_HI);
	assert_true(peer_nobody_connects(bed));
	bed_close(bed);
	assert_int_equal(bed_n_lines(bed), 2);
}

static void test_pipelined_requests_are_answered_in_order(void **state)
{
	static char all[16384];

	peer_client(bed, &client);
	for (int i = 0; i < 3; i++) {
		size_t n = strlen(all);

		(void)snprintf(all + n, sizeof(all) - n, "%s",
			request(i == 1 ? "POST" : "GET",
				i == 0           ? "/0"
					: i == 1 ? "/1"
						 : "/2",
				i == 1 ? "Content-Length: 3\r\n\r\nabc" : "\r\n"));
	}
	peer_send(bed, &client, all);
	all[0] = '\0';
	peer_accept(bed, &origin);
	expect_asked(&origin, "GET", "/0", "\r\n");
	peer_expect_nothing(bed, &origin);
	peer_send(bed, &origin, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n0");
	expect_asked(&origin, "POST", "/1", "Content-Length: 3\r\n\r\nabc");
	peer_expect_nothing(bed, &origin);
	peer_send(bed, &origin, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1");
	expect_asked(&origin, "GET", "/2", "\r\n");
	peer_send(bed, &origin, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n2");
	peer_expect(bed, &client,
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n0"
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1"
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n2");
	assert_true(peer_nobody_connects(bed));
}

/* Bytes behind a request are held up to a limit, and read on when it is answered. */
static void test_pipelined_flood_is_not_read_without_limit(void **state)
{
	size_t sent = 0;
	ssize_t n;

	open_get();
	memset(want, 'x', sizeof(want));
	do {
		n = send(client.fd, want, sizeof(want), MSG_DONTWAIT | MSG_NOSIGNAL);
		sent += n > 0 ? (size_t)n : 0;
		bed_turn(bed);
	} while (n > 0 && sent < 64u << 20);
	assert_true(sent < 2u << 20);
	peer_send(bed, &origin, OK_HI);
	peer_expect(bed, &client, OK_HI);
	peer_expect_head(bed, &client, "HTTP/1.1 431 Request Header Fields Too Large\r\n");
}

static void test_head_byte_by_byte(void **state)
{
	const char *all = request("GET", "/", "A: b\r\n\r\n");

	peer_client(bed, &client);
	for (size_t i = 0; all[i]; i++) {
		assert_true(peer_nobody_connects(bed));
		peer_send_bytes(bed, &client, all + i, 1);
	}
	peer_accept(bed, &origin);
	expect_asked(&origin, "GET", "/", "A: b\r\n\r\n");
	for (const char *p = OK_HI; *p; p++)
		peer_send_bytes(bed, &origin, p, 1);
	peer_expect(bed, &client, OK_HI);
}

static void test_client_that_closed_its_side_gets_its_answer(void **state)
{
	open_get();
	peer_shutdown(bed, &client);
	peer_send(bed, &origin, OK_HI);
	peer_expect(bed, &client,
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi");
	peer_expect_end(bed, &client);
	assert_int_equal(bed->px->n_idle, 1);
	assert_int_equal(bed->px->n_sessions, 0);
}

static void test_client_gone_at_each_state(void **state)
{
	for (int where = 0; where < 6; where++) {
		switch (where) {
		case 0:
			peer_client(bed, &client);
			break;
		case 1:
			peer_client(bed, &client);
			peer_send(bed, &client, "GET http://or");
			break;
		case 2: /* the dial has not begun */
			peer_client(bed, &client);
			assert_true(
				send(client.fd, request("GET", "/", "\r\n"), strlen(text), 0) > 0);
			(void)event_base_loop(bed->base, EVLOOP_NONBLOCK | EVLOOP_ONCE);
			break;
		case 3:
			open_get();
			break;
		case 4:
			open_get();
			peer_send(bed, &origin, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhi");
			break;
		default:
			open_post("Content-Length: 10\r\n");
			peer_send(bed, &client, "abc");
			peer_expect(bed, &origin, "abc");
			break;
		}
		peer_reset(bed, &client);
		if (where >= 3) { /* a socket pair tells a close by a FIN; answers meet EPIPE */
			if (where == 3)
				peer_send(bed, &origin, OK_HI);
			if (where == 4)
				peer_send(bed, &origin, "hi");
			bed_turn(bed);
		}
		if (where == 2)
			peer_accept(bed, &origin);
		if (where == 2)
			peer_send(bed, &origin, OK_HI);
		bed_turn(bed);
		if (bed->px->n_sessions != 0)
			fail_msg("at %d a session stays", where);
		peer_close(bed, &origin);
		assert_true(TAILQ_EMPTY(&bed->px->upstreams));
	}
	bed_close(bed);
	for (size_t i = 0; i < bed_n_lines(bed); i++)
		BED_LINE(bed, i, "\"seq\":");
}

/* The dial is called off with its client. */
static void test_client_gone_while_dialling(void **state)
{
	peer_client(bed, &client);
	(void)snprintf(text, sizeof(text),
		"GET https://origin.test:%u/ HTTP/1.1\r\nHost: origin.test:%u\r\n\r\n", bed->port,
		bed->port);
	peer_send(bed, &client, text);
	peer_accept(bed, &origin);
	session_free(TAILQ_FIRST(&bed->px->sessions), REASON_CLIENT_CLOSED);
	bed_settle(bed);
	peer_receive(&origin);
	assert_true(origin.ended);
	bed_close(bed);
	assert_int_equal(bed_n_lines(bed), 1);
	BED_LINE(bed, 0, "\"reason\":\"client_closed\"", "\"status\":null",
		"\"addr\":\"127.0.0.1\"");
}

static void test_early_answer_while_uploading(void **state)
{
	open_post("Content-Length: 1000\r\n");
	peer_send(bed, &client, "abc");
	peer_expect(bed, &origin, "abc");
	peer_send(bed, &origin, "HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno");
	peer_expect(bed, &client,
		"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno");
	peer_expect_end(bed, &client);
	assert_int_equal(bed->px->n_idle, 0);
	peer_send(bed, &client, "the rest is thrown away");
	peer_close(bed, &client);
	assert_int_equal(bed->px->n_sessions, 0);
}

/* The head of the answer is early, its content comes while the client goes on. */
static void test_answer_streams_while_uploading(void **state)
{
	open_post("Transfer-Encoding: chunked\r\n");
	peer_send(bed, &origin, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
	peer_expect(bed, &client,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n");
	for (int i = 0; i < 3; i++) {
		peer_send(bed, &client, "4\r\nping\r\n");
		peer_expect(bed, &origin, "4\r\nping\r\n");
		peer_send(bed, &origin, "4\r\npong\r\n");
		peer_expect(bed, &client, "4\r\npong\r\n");
	}
	peer_send(bed, &client, "0\r\n\r\n");
	peer_expect(bed, &origin, "0\r\n\r\n");
	peer_send(bed, &origin, "0\r\nX-Sum: 1\r\n\r\n");
	peer_expect(bed, &client, "0\r\nX-Sum: 1\r\n\r\n");
	peer_expect_end(bed, &client);
}

static void test_trailers_of_a_request_pass(void **state)
{
	open_post("Transfer-Encoding: chunked\r\n");
	peer_send(bed, &client, "3\r\nabc\r\n0\r\nX-Sum: 9\r\n\r\n");
	peer_expect(bed, &origin, "3\r\nabc\r\n0\r\nX-Sum: 9\r\n\r\n");
	peer_send(bed, &origin, OK_HI);
	peer_expect(bed, &client, OK_HI);
}

/* With the retry, a kept connection that died under the request. */
static void keep_one(void)
{
	open_get();
	peer_send(bed, &origin, OK_HI);
	peer_expect(bed, &client, OK_HI);
	assert_int_equal(bed->px->n_idle, 1);
}

static void test_dead_kept_connection_is_retried_once(void **state)
{
	static const char *const methods[] = {"GET", "HEAD", "OPTIONS", "PUT", "DELETE"};

	for (size_t i = 0; i < ARRAY_LEN(methods); i++) {
		keep_one();
		ask(methods[i], "/again", "\r\n");
		expect_asked(&origin, methods[i], "/again", "\r\n");
		peer_close(bed, &origin);
		peer_accept(bed, &origin);
		expect_asked(&origin, methods[i], "/again", "\r\n");
		peer_close(bed, &origin);
		assert_true(peer_nobody_connects(bed));
		peer_expect_head(bed, &client, "HTTP/1.1 502 Bad Gateway\r\n");
		peer_close(bed, &client);
	}
	bed_close(bed);
	assert_int_equal(bed_n_lines(bed), 2 * ARRAY_LEN(methods));
	BED_LINE(bed, 1, "\"reason\":\"upstream_closed\"", "\"status\":502",
		"\"verdict\":\"failed\"");
}

static void test_what_may_not_be_repeated_is_not(void **state)
{
	static const struct {
		const char *method, *rest, *sent;
	} rows[] = {
		{"POST", "\r\n", "\r\n"},
		{"PATCH", "\r\n", "\r\n"},
		{"get", "\r\n", "\r\n"},
		{"PUT", "Content-Length: 3\r\n\r\nabc", "Content-Length: 3\r\n\r\nabc"},
		{"POST", "Content-Length: 3\r\n\r\nabc", "Content-Length: 3\r\n\r\nabc"},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		keep_one();
		ask(rows[i].method, "/", rows[i].rest);
		expect_asked(&origin, rows[i].method, "/", rows[i].sent);
		peer_close(bed, &origin);
		assert_true(peer_nobody_connects(bed));
		peer_expect_head(bed, &client, "HTTP/1.1 502 Bad Gateway\r\n");
		peer_close(bed, &client);
	}
}

/* A new connection that dies, or one that said a byte, is no dead kept one. */
static void test_only_a_silent_kept_connection_is_retried(void **state)
{
	open_get();
	peer_close(bed, &origin);
	assert_true(peer_nobody_connects(bed));
	peer_expect_head(bed, &client, "HTTP/1.1 502 Bad Gateway\r\n");
	peer_close(bed, &client);
	keep_one();
	ask("GET", "/", "\r\n");
	expect_asked(&origin, "GET", "/", "\r\n");
	peer_send(bed, &origin, "H");
	peer_close(bed, &origin);
	assert_true(peer_nobody_connects(bed));
	peer_expect_head(bed, &client, "HTTP/1.1 502 Bad Gateway\r\n");
}

static void test_informational_answers_pass_before_the_final_one(void **state)
{
	open_post("Expect: 100-continue\r\nContent-Length: 2\r\n");
	peer_send(bed, &origin, "HTTP/1.1 100 Continue\r\n\r\n");
	peer_expect(bed, &client, "HTTP/1.1 100 Continue\r\n\r\n");
	peer_send(bed, &client, "hi");
	peer_expect(bed, &origin, "hi");
	peer_send(bed, &origin, "HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n" OK_HI);
	peer_expect(bed, &client, "HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n" OK_HI);
}

static void test_informational_answers_are_not_for_http_1_0(void **state)
{
	peer_client(bed, &client);
	(void)snprintf(
		text, sizeof(text), "GET http://origin.test:%u/ HTTP/1.0\r\n\r\n", bed->port);
	peer_send(bed, &client, text);
	peer_accept(bed, &origin);
	expect_asked(&origin, "GET", "/", "\r\n");
	peer_send(bed, &origin,
		"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\n"
		"Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n");
	peer_expect(bed, &client, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhi");
	peer_expect_end(bed, &client);
}

static void test_informational_answers_have_a_limit(void **state)
{
	open_get();
	for (int i = 0; i < 32; i++) {
		peer_send(bed, &origin, "HTTP/1.1 102 Processing\r\n\r\n");
		peer_expect(bed, &client, "HTTP/1.1 102 Processing\r\n\r\n");
	}
	peer_send(bed, &origin, "HTTP/1.1 102 Processing\r\n\r\n");
	peer_expect_head(bed, &client, "HTTP/1.1 502 Bad Gateway\r\n");
}

static void test_switched_connection_takes_bytes_of_the_same_segments(void **state)
{
	peer_client(bed, &client);
	ask("GET", "/ws", "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\nfrom client");
	peer_accept(bed, &origin);
	expect_asked(&origin, "GET", "/ws", "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
	peer_send(bed, &origin,
		"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "
		"websocket\r\n\r\nfrom origin");
	peer_expect(bed, &client,
		"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "
		"websocket\r\n\r\nfrom origin");
	peer_expect(bed, &origin, "from client");
	peer_send(bed, &client, "more");
	peer_expect(bed, &origin, "more");
	peer_send(bed, &origin, "and back");
	peer_expect(bed, &client, "and back");
	peer_shutdown(bed, &origin);
	peer_expect_end(bed, &client);
	peer_send(bed, &client, "last");
	peer_expect(bed, &origin, "last");
	peer_shutdown(bed, &client);
	peer_expect_end(bed, &origin);
	assert_int_equal(bed->px->n_sessions, 0);
	bed_close(bed);
	BED_LINE(bed, 0, "\"status\":101", "\"down\":19", "\"reason\":\"allowed\"",
		"\"verdict\":\"allowed\"");
}

static void test_upgrade_may_be_declined(void **state)
{
	peer_client(bed, &client);
	ask("GET", "/ws", "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
	peer_accept(bed, &origin);
	expect_asked(&origin, "GET", "/ws", "Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
	peer_send(bed, &origin, OK_HI);
	peer_expect(bed, &client, OK_HI);
	ask("GET", "/2", "\r\n");
	expect_asked(&origin, "GET", "/2", "\r\n");
}

static void test_unasked_upgrade_is_an_error(void **state)
{
	open_get();
	peer_send(bed, &origin, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n");
	peer_expect_head(bed, &client, "HTTP/1.1 502 Bad Gateway\r\n");
	peer_expect_end(bed, &origin);
	bed_close(bed);
	BED_LINE(bed, 0, "\"reason\":\"upstream_upgrade\"");
}

static void test_origin_breaks_off_in_the_middle(void **state)
{
	static const struct {
		const char *answer;
		bool reset;
	} rows[] = {
		{"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhi", false},
		{"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhi", true},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhi", false},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n", false},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\nx", false},
		{"HTTP/1.1 200 OK\r\n\r\nhi", true},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		open_get();
		peer_send(bed, &origin, rows[i].answer);
		if (rows[i].reset)
			peer_reset(bed, &origin);
		else
			peer_close(bed, &origin);
		peer_expect_head(bed, &client, "HTTP/1.1 200 OK\r\n");
		bed_turn(bed);
		peer_receive(&client);
		assert_true(client.ended);
		assert_int_equal(slice_find(slice_str(client.in), SLICE("0\r\n\r\n")), client.len);
		assert_int_equal(bed->px->n_sessions, 0);
		client.len = 0;
		peer_close(bed, &client);
	}
	bed_close(bed);
	assert_int_equal(bed_n_lines(bed), ARRAY_LEN(rows));
	BED_LINE(bed, 0, "\"reason\":\"upstream_aborted\"", "\"verdict\":\"failed\"",
		"\"status\":200", "\"down\":2");
}

static void test_answer_that_ends_with_the_connection(void **state)
{
	open_get();
	peer_send(bed, &origin, "HTTP/1.1 200 OK\r\n\r\nall of it");
	peer_close(bed, &origin);
	peer_expect(bed, &client,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nall of "
		"it\r\n0\r\n\r\n");
	assert_int_equal(bed->px->n_idle, 0);
	ask("GET", "/2", "\r\n");
	peer_accept(bed, &origin);
}

static void test_malformed_answers_become_502(void **state)
{
	static const char *const answers[] = {
		"HTTP/1.1 200 OK\n\n",
		"HTTP/2 200\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
		"SSH-2.0-x\r\n\r\n",
	};

	for (size_t i = 0; i < ARRAY_LEN(answers); i++) {
		open_get();
		peer_send(bed, &origin, answers[i]);
		peer_expect_head(bed, &client, "HTTP/1.1 502 Bad Gateway\r\n");
		peer_expect_end(bed, &origin);
		peer_close(bed, &client);
		peer_close(bed, &origin);
	}
	bed_close(bed);
	for (size_t i = 0; i < ARRAY_LEN(answers); i++)
		BED_LINE(bed, i, "\"reason\":\"upstream_malformed\"");
}

/* Two answers to one request: the second must not be taken for the next request's. */
static void test_bytes_behind_an_answer_end_the_connection(void **state)
{
	open_get();
	peer_send(bed, &origin, OK_HI "HTTP/1.1 200 Forged\r\nContent-Length: 0\r\n\r\n");
	peer_expect(bed, &client, OK_HI);
	assert_int_equal(bed->px->n_idle, 0);
	ask("GET", "/2", "\r\n");
	peer_accept(bed, &second);
	expect_asked(&second, "GET", "/2", "\r\n");
	peer_send(bed, &second, OK_HI);
	peer_expect(bed, &client, OK_HI);
}

static void test_connection_close_of_the_origin_is_obeyed(void **state)
{
	open_get();
	peer_send(bed, &origin,
		"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi");
	peer_expect(bed, &client, OK_HI);
	assert_int_equal(bed->px->n_idle, 0);
}

static void test_slow_client_holds_the_origin_back(void **state)
{
	static char block[65536];
	size_t sent = 0, came = 0;
	ssize_t n;

	open_get();
	(void)snprintf(text, sizeof(text), "HTTP/1.1 200 OK\r\nContent-Length: %u\r\n\r\n", BULK);
	peer_send(bed, &origin, text);
	do {
		n = send(origin.fd, block, sizeof(block), MSG_DONTWAIT | MSG_NOSIGNAL);
		sent += n > 0 ? (size_t)n : 0;
		bed_turn(bed);
	} while (n > 0 && sent < BULK);
	assert_true(sent < BULK);
	/* it is the client who is slow: the origin's time does not run */
	bed_pass(bed, bed->config.stream_idle_ms - 1);
	peer_expect_head(bed, &client, "HTTP/1.1 200 OK\r\n");
	while (came < BULK) {
		peer_receive(&client);
		came += client.len;
		client.len = 0;
		bed_turn(bed);
		if (sent < BULK) {
			size_t left = BULK - sent < sizeof(block) ? BULK - sent : sizeof(block);

			n = send(origin.fd, block, left, MSG_DONTWAIT | MSG_NOSIGNAL);
			sent += n > 0 ? (size_t)n : 0;
		}
		assert_false(client.ended || client.broken);
	}
	assert_int_equal(came, BULK);
	bed_close(bed);
	BED_LINE(bed, 0, "\"verdict\":\"open\"");
	BED_LINE(bed, 1, "\"down\":8388608", "\"reason\":\"allowed\"");
}

static void test_slow_origin_holds_the_client_back(void **state)
{
	static char block[65536];
	char more[64];
	size_t sent = 0, came = 0;
	ssize_t n;

	(void)snprintf(more, sizeof(more), "Content-Length: %u\r\n", BULK);
	open_post(more);
	do {
		n = send(client.fd, block, sizeof(block), MSG_DONTWAIT | MSG_NOSIGNAL);
		sent += n > 0 ? (size_t)n : 0;
		bed_turn(bed);
	} while (n > 0 && sent < BULK);
	assert_true(sent < BULK);
	while (came < BULK) {
		peer_receive(&origin);
		came += origin.len;
		origin.len = 0;
		bed_turn(bed);
		if (sent < BULK) {
			size_t left = BULK - sent < sizeof(block) ? BULK - sent : sizeof(block);

			n = send(client.fd, block, left, MSG_DONTWAIT | MSG_NOSIGNAL);
			sent += n > 0 ? (size_t)n : 0;
			bed_turn(bed);
		}
		assert_false(origin.ended || origin.broken);
	}
	assert_int_equal(came, BULK);
	peer_send(bed, &origin, OK_HI);
	peer_expect(bed, &client, OK_HI);
}

static void change_policy(const char *rules)
{
	bed_set_policy(bed, false, rules);
	bed_configure(bed);
	bed_turn(bed);
}

static void test_change_of_policy_before_the_answer_is_answered(void **state)
{
	open_get();
	change_policy("deny origin.test");
	peer_expect_head(bed, &client, "HTTP/1.1 403 blocked\r\n");
	peer_expect_end(bed, &origin);
	bed_close(bed);
	assert_int_equal(bed_n_lines(bed), 1);
	BED_LINE(bed, 0, "\"reason\":\"denied\"", "\"verdict\":\"blocked\"", "\"status\":403");
}

static void test_change_of_policy_cuts_an_answer(void **state)
{
	open_get();
	peer_send(bed, &origin, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhi");
	peer_expect(bed, &client, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhi");
	change_policy("deny 127.0.0.0/8");
	peer_receive(&client);
	assert_true(client.ended || client.broken);
	peer_expect_end(bed, &origin);
	bed_close(bed);
	assert_int_equal(bed_n_lines(bed), 1);
	BED_LINE(bed, 0, "\"reason\":\"policy_changed\"", "\"verdict\":\"failed\"",
		"\"status\":200", "\"down\":2");
}

/* Leave to write is taken back: an upload ends, although its host may be reached. */
static void test_change_of_write_hosts_ends_an_upload(void **state)
{
	bed->config.read_only = true;
	bed->config.extra_ports[bed->config.n_extra_ports++] = bed->port;
	bed_set_write_hosts(bed, "origin.test");
	bed_configure(bed);
	open_post("Content-Length: 9\r\n");
	bed_set_write_hosts(bed, "");
	bed_configure(bed);
	peer_expect_head(bed, &client, "HTTP/1.1 403 blocked\r\n");
	peer_receive(&origin);
	assert_true(origin.ended || origin.broken);
}

/* The rule is turned on: an upload that needed no leave until then ends, a download goes on. */
static void test_rule_turned_on_ends_an_upload(void **state)
{
	bed->config.extra_ports[bed->config.n_extra_ports++] = bed->port;
	bed_configure(bed);
	open_post("Content-Length: 9\r\n");
	bed->config.read_only = true;
	bed_configure(bed);
	peer_expect_head(bed, &client, "HTTP/1.1 403 blocked\r\n");
	peer_receive(&origin);
	assert_true(origin.ended || origin.broken);
	peer_close(bed, &client);
	peer_close(bed, &origin);
	bed->config.read_only = false;
	bed_configure(bed);
	open_get();
	bed->config.read_only = true;
	bed_configure(bed);
	peer_send(bed, &origin, OK_HI);
	peer_expect(bed, &client, OK_HI);
}

static void test_other_exchanges_outlive_a_change_of_policy(void **state)
{
	open_get();
	change_policy("deny other.test");
	peer_send(bed, &origin, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhi");
	peer_expect(bed, &client, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhi");
	change_policy("deny a.test");
	peer_send(bed, &origin, "ho");
	peer_expect(bed, &client, "ho");
	bed_close(bed);
	assert_int_equal(bed_n_lines(bed), 1);
	BED_LINE(bed, 0, "\"reason\":\"allowed\"", "\"rule\":\"rule 3: allow *.test\"");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		T(test_change_of_policy_before_the_answer_is_answered),
		T(test_change_of_policy_cuts_an_answer),
		T(test_change_of_write_hosts_ends_an_upload),
		T(test_rule_turned_on_ends_an_upload),
		T(test_other_exchanges_outlive_a_change_of_policy),
		T(test_request_and_answer),
		T(test_connection_is_kept_and_used_again),
		T(test_pipelined_requests_are_answered_in_order),
		T(test_pipelined_flood_is_not_read_without_limit),
		T(test_head_byte_by_byte),
		T(test_client_that_closed_its_side_gets_its_answer),
		T(test_client_gone_at_each_state),
		T(test_client_gone_while_dialling),
		T(test_early_answer_while_uploading),
		T(test_answer_streams_while_uploading),
		T(test_trailers_of_a_request_pass),
		T(test_dead_kept_connection_is_retried_once),
		T(test_what_may_not_be_repeated_is_not),
		T(test_only_a_silent_kept_connection_is_retried),
		T(test_informational_answers_pass_before_the_final_one),
		T(test_informational_answers_are_not_for_http_1_0),
		T(test_informational_answers_have_a_limit),
		T(test_switched_connection_takes_bytes_of_the_same_segments),
		T(test_upgrade_may_be_declined),
		T(test_unasked_upgrade_is_an_error),
		T(test_origin_breaks_off_in_the_middle),
		T(test_answer_that_ends_with_the_connection),
		T(test_malformed_answers_become_502),
		T(test_bytes_behind_an_answer_end_the_connection),
		T(test_connection_close_of_the_origin_is_obeyed),
		T(test_slow_client_holds_the_origin_back),
		T(test_slow_origin_holds_the_client_back),
	};

	return cmocka_run_group_tests(tests, bed_setup_pki, bed_teardown_pki);
}
