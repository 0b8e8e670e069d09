/* Requests of our own: what is sent, how an answer ends, each limit at its edge and one past it,
 * kept connections, and whom TLS accepts. */
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/event.h>

#include "base/arena.h"
#include "base/strbuf.h"
#include "proxy/fetch.h"
#include "proxy/upstream.h"
#include "tests/unit/proxy/bed.h"

#define ANSWER_MAX 100
#define TIMEOUT_MS 5000
#define OK_HI "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
#define KEY "OPEN-SANDBOX-API-KEY: k3y-0123456789abcdef"

static struct bed *bed;
static struct peer origin;
static struct request_target target;
static char url[128], want[1024];

static struct {
	int n, err, status;
	char why[128];
	char content[ANSWER_MAX + 1];
	bool again; /* the callback begins the next one */
} got;

static struct fetch *out;

static void start(const char *method, const char *content);

static void on_answer(const struct fetch_answer *a, void *arg)
{
	got.n++;
	got.err = a->err;
	got.status = a->status;
	assert_int_equal(a->err == 0, a->why == NULL);
	assert_int_equal(a->status == 0, a->head == NULL);
	(void)snprintf(got.why, sizeof(got.why), "%s", a->why ? a->why : "");
	assert_true(slice_to_cstr(a->content, got.content, sizeof(got.content)));
	out = NULL;
	if (got.again) {
		got.again = false;
		start("GET", NULL);
	}
}

static int setup(void **state)
{
	bed = bed_new("deny origin.test");
	origin.fd = -1;
	origin.ssl = NULL;
	memset(&got, 0, sizeof(got));
	return 0;
}

static int teardown(void **state)
{
	fetch_cancel(out);
	out = NULL;
	peer_close(bed, &origin);
	bed_free(bed);
	return 0;
}

static void go_to(const char *scheme, const char *name)
{
	(void)snprintf(url, sizeof(url), "%s://%s:%u/v1/x?y=1", scheme, name, bed->port);
	assert_int_equal(request_target_decode_url(slice_str(url), &target), 0);
}

static void start(const char *method, const char *content)
{
	const struct fetch_request r = {
		.method = method,
		.url = slice_str(url),
		.fields = SLICE("Accept: application/json\r\n"),
		.secret = SLICE(KEY "\r\n"),
		.content_type = content ? "application/json" : NULL,
		.content = slice_str(content ? content : ""),
		.answer_max = ANSWER_MAX,
		.timeout_ms = TIMEOUT_MS,
	};

	out = fetch_start(bed->px, &r, on_answer, NULL);
}

static void expect_request(const char *method, const char *more, const char *content)
{
	(void)snprintf(want, sizeof(want),
		"%s /v1/x?y=1 HTTP/1.1\r\nHost: %.*s:%u\r\nUser-Agent: egress/" EGRESS_VERSION
		"\r\nAccept-Encoding: identity\r\n%sAccept: application/json\r\n" KEY "\r\n\r\n%s",
		method, SLICE_FMT(authority_name(&target.authority)), bed->port, more, content);
	peer_expect(bed, &origin, want);
}

/* The request is at the origin; nothing has come back. */
static void ask(void)
{
	go_to("http", "origin.test");
	start("GET", NULL);
	peer_accept(bed, &origin);
	expect_request("GET", "", "");
	assert_int_equal(got.n, 0);
}

static void expect_answer(int err, int status, const char *content)
{
	bed_settle(bed);
	assert_int_equal(got.n, 1);
	if (got.err != err)
		fail_msg("err %d, %s", got.err, got.why);
	assert_int_equal(got.status, status);
	assert_string_equal(got.content, content);
	got.n = 0;
}

/* --- what is sent --- */

static void test_get_is_sent_and_answered_whatever_the_policy_says(void **state)
{
	ask();
	assert_null(memmem(bed->px->io->scratch, IO_RECORD, KEY, strlen(KEY)));
	peer_send(bed, &origin, OK_HI);
	expect_answer(0, 200, "hi");
}

static void test_put_sends_its_content_on_a_connection_of_its_own(void **state)
{
	ask();
	peer_send(bed, &origin, OK_HI);
	expect_answer(0, 200, "hi");
	assert_int_equal(bed->px->n_idle, 1);
	start("PUT", "{}");
	peer_close(bed, &origin);
	peer_accept(bed, &origin);
	expect_request("PUT",
		"Connection: close\r\nContent-Type: application/json\r\nContent-Length: 2\r\n",
		"{}");
	peer_send(bed, &origin, OK_HI);
	expect_answer(0, 200, "hi");
	bed_settle(bed);
	assert_int_equal(bed->px->n_idle, 0);
}

static void test_request_that_is_too_large_is_not_sent(void **state)
{
	char *lines = xcalloc(1, FETCH_LINES_MAX + 1);
	struct fetch_request r = {.method = "GET", .timeout_ms = TIMEOUT_MS};

	go_to("http", "origin.test");
	r.url = slice_str(url);
	memset(lines, 'x', FETCH_LINES_MAX);
	r.fields = slice_make(lines, FETCH_LINES_MAX);
	out = fetch_start(bed->px, &r, on_answer, NULL);
	assert_int_equal(got.n, 0);
	expect_answer(E_LIMIT, 0, "");
	assert_true(peer_nobody_connects(bed));
	free(lines);
}

static void test_what_is_no_url_is_not_asked(void **state)
{
	static const char *const urls[] = {
		"", "/v1", "origin.test", "ftp://origin.test/", "http://key@origin.test/"};

	for (size_t i = 0; i < ARRAY_LEN(urls); i++) {
		(void)snprintf(url, sizeof(url), "%s", urls[i]);
		start("GET", NULL);
		assert_int_equal(got.n, 0);
		expect_answer(E_VALUE, 0, "");
	}
	assert_true(peer_nobody_connects(bed));
}

static enum reason refuse_all(const struct netaddr *a, void *arg)
{
	return REASON_ADDRESS_REFUSED;
}

static void test_address_may_be_refused_by_who_asks(void **state)
{
	struct fetch_request r = {
		.method = "GET",
		.admit = refuse_all,
		.url = slice_str(url),
		.answer_max = ANSWER_MAX,
		.timeout_ms = TIMEOUT_MS,
	};

	ask();
	peer_send(bed, &origin, OK_HI);
	expect_answer(0, 200, "hi");
	assert_int_equal(bed->px->n_idle, 1); /* which it must not use either */
	out = fetch_start(bed->px, &r, on_answer, NULL);
	expect_answer(-EPERM, 0, "");
	peer_expect_nothing(bed, &origin);
	assert_true(peer_nobody_connects(bed));
}

static void test_redirect_is_an_answer(void **state)
{
	ask();
	peer_send(bed, &origin,
		"HTTP/1.1 307 Go\r\nLocation: http://two.test/\r\nContent-Length: 0\r\n\r\n");
	expect_answer(0, 307, "");
	assert_true(peer_nobody_connects(bed));
}

static void test_refusal_does_not_show_the_key(void **state)
{
	ask();
	peer_send(bed, &origin,
		"HTTP/1.1 401 No\r\nContent-Length: 44\r\n\r\n"
		"\"k3y-0123456789abcdef\"k3y-0123456789abcdefk3");
	expect_answer(0, 401, "\"********************\"********************k3");
	start("GET", NULL);
	expect_request("GET", "", "");
	peer_send(
		bed, &origin, "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nk3y-0123456789abcdef");
	expect_answer(0, 200, "k3y-0123456789abcdef");
}

/* --- how an answer ends --- */

static const struct {
	const char *answer; /* then the origin closes */
	int err, status;
	const char *content;
} ends[] = {
	{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", 0, 200, "hi"},
	{"HTTP/1.1 200 OK\r\n\r\nto the end", 0, 200, "to the end"},
	{"HTTP/1.1 204 No\r\n\r\n", 0, 204, ""},
	{"HTTP/1.0 404 No\r\nContent-Length: 1\r\n\r\nx", 0, 404, "x"},
	{"HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" OK_HI, 0, 200, "hi"},
	{"HTTP/1.1 200 OK\r\nContent-Encoding: identity\r\nContent-Length: 1\r\n\r\nx", 0, 200,
		"x"},
	{"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx", E_VALUE, 200,
		""},
	{"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhi", E_EOF, 200, "hi"},
	{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n", E_EOF, 200, "hi"},
	{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nz\r\n", E_SYNTAX, 200, ""},
	{"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nhi", E_SYNTAX, 0, ""},
	{"HTTP/1.1 101 Switch\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", E_SYNTAX, 0, ""},
	{"HTTP/1.1 200 OK\r\nConte", E_EOF, 0, ""},
	{"SSH-2.0\r\n\r\n", E_SYNTAX, 0, ""},
	{"", E_EOF, 0, ""},
};

static void test_every_end_of_an_answer_has_its_code(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
		ask();
		peer_send(bed, &origin, ends[i].answer);
		peer_shutdown(bed, &origin);
		expect_answer(ends[i].err, ends[i].status, ends[i].content);
		peer_close(bed, &origin);
		bed_settle(bed);
		assert_int_equal(bed->px->n_idle, 0);
	}
}

static void test_answer_may_come_byte_by_byte(void **state)
{
	ask();
	for (const char *p = OK_HI; *p; p++)
		peer_send_bytes(bed, &origin, p, 1);
	expect_answer(0, 200, "hi");
}

static void test_reset_ends_it(void **state)
{
	ask();
	peer_reset(bed, &origin);
	expect_answer(E_EOF, 0, "");
}

/* --- limits --- */

static void answer_with_length(size_t n)
{
	char content[ANSWER_MAX + 2], head[64];

	memset(content, 'a', sizeof(content));
	(void)snprintf(head, sizeof(head), "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n", n);
	ask();
	peer_send(bed, &origin, head);
	peer_send_bytes(bed, &origin, content, n);
	bed_settle(bed);
}

static void test_answer_may_have_as_many_bytes_as_asked_for(void **state)
{
	answer_with_length(ANSWER_MAX);
	assert_int_equal(got.err, 0);
	assert_int_equal(strlen(got.content), ANSWER_MAX);
	got.n = 0;
	peer_close(bed, &origin);
	bed_settle(bed);
	ask();
	(void)snprintf(want, sizeof(want), "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n",
		ANSWER_MAX + 1);
	peer_send(bed, &origin, want); /* none of it is waited for */
	expect_answer(E_LIMIT, 200, "");
}

static void test_answer_without_length_is_cut_at_the_limit(void **state)
{
	ask();
	peer_send(bed, &origin, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
	for (int i = 0; i < ANSWER_MAX; i++)
		peer_send(bed, &origin, "1\r\na\r\n");
	bed_settle(bed);
	assert_int_equal(got.n, 0);
	peer_send(bed, &origin, "1\r\na\r\n");
	bed_settle(bed);
	assert_int_equal(got.err, E_LIMIT);
}

static void informational(int n)
{
	ask();
	for (int i = 0; i < n; i++)
		peer_send(bed, &origin, "HTTP/1.1 102 Wait\r\n\r\n");
	peer_send(bed, &origin, OK_HI);
	bed_settle(bed);
}

static void test_informational_heads_have_an_end(void **state)
{
	informational(FETCH_1XX_MAX);
	expect_answer(0, 200, "hi");
	peer_close(bed, &origin);
	bed_settle(bed);
	informational(FETCH_1XX_MAX + 1);
	expect_answer(E_SYNTAX, 0, "");
}

static void test_head_has_the_limit_of_the_parser(void **state)
{
	char *pad = xmalloc(H1_HEAD_MAX);

	memset(pad, 'x', H1_HEAD_MAX);
	ask();
	peer_send(bed, &origin, "HTTP/1.1 200 OK\r\nX: ");
	peer_send_bytes(bed, &origin, pad, H1_HEAD_MAX);
	expect_answer(E_SYNTAX, 0, "");
	free(pad);
}

static void test_all_of_it_has_one_time_limit(void **state)
{
	ask();
	bed_pass(bed, TIMEOUT_MS - 1);
	peer_send(bed, &origin, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nh");
	assert_int_equal(got.n, 0);
	bed_pass(bed, 2);
	expect_answer(-ETIMEDOUT, 200, "h");
	peer_expect_end(bed, &origin);
}

static void test_nothing_listens(void **state)
{
	(void)snprintf(url, sizeof(url), "http://p0.test:1/");
	start("GET", NULL);
	expect_answer(-ECONNREFUSED, 0, "");
}

static void test_cancelled_request_is_silent(void **state)
{
	ask();
	fetch_cancel(out);
	out = NULL;
	peer_send(bed, &origin, OK_HI);
	peer_expect_end(bed, &origin);
	start("GET", NULL);
	fetch_cancel(out); /* before its first step */
	out = NULL;
	bed_settle(bed);
	assert_int_equal(got.n, 0);
}

/* --- kept connections --- */

static void keep(void)
{
	ask();
	peer_send(bed, &origin, OK_HI);
	expect_answer(0, 200, "hi");
	assert_int_equal(bed->px->n_idle, 1);
}

static void test_next_get_has_the_kept_connection(void **state)
{
	ask();
	got.again = true; /* the connection is free when the callback runs */
	peer_send(bed, &origin, OK_HI);
	expect_answer(0, 200, "hi");
	expect_request("GET", "", "");
	peer_send(bed, &origin, OK_HI);
	expect_answer(0, 200, "hi");
	assert_true(peer_nobody_connects(bed));
}

static void test_connection_is_not_kept_where_the_origin_closes(void **state)
{
	ask();
	peer_send(bed, &origin,
		"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi");
	expect_answer(0, 200, "hi");
	peer_expect_end(bed, &origin);
}

static void test_bytes_behind_an_answer_end_the_connection(void **state)
{
	ask();
	peer_send(bed, &origin, OK_HI OK_HI);
	expect_answer(0, 200, "hi");
	assert_int_equal(bed->px->n_idle, 0);
}

static void test_kept_connection_that_ended_is_replaced_once(void **state)
{
	struct peer first;

	keep();
	start("GET", NULL);
	bed_turn(bed);
	expect_request("GET", "", "");
	first = origin;
	peer_shutdown(bed, &first);
	peer_accept(bed, &origin);
	expect_request("GET", "", "");
	peer_shutdown(bed, &origin);
	expect_answer(E_EOF, 0, "");
	assert_true(peer_nobody_connects(bed));
	peer_close(bed, &first);
}

static void test_kept_connection_that_began_to_answer_is_not_replaced(void **state)
{
	keep();
	start("GET", NULL);
	bed_turn(bed);
	expect_request("GET", "", "");
	peer_send(bed, &origin, "HTTP/1.1 102 Wait\r\n\r\n");
	peer_shutdown(bed, &origin);
	expect_answer(E_EOF, 0, "");
	assert_true(peer_nobody_connects(bed));
}

/* A client could have left an answer behind on a connection of its own. */
static void test_no_connection_is_shared_with_the_sandbox(void **state)
{
	struct peer client, second;

	keep();
	bed_set_policy(bed, false, "");
	keep();
	peer_client(bed, &client);
	(void)snprintf(want, sizeof(want), "GET %s HTTP/1.1\r\nHost: origin.test:%u\r\n\r\n", url,
		bed->port);
	peer_send(bed, &client, want);
	peer_accept(bed, &second);
	free(peer_until(bed, &second, "\r\n\r\n"));
	peer_send(bed, &second, OK_HI);
	peer_expect(bed, &client, OK_HI);
	assert_int_equal(bed->px->n_idle, 2);
	peer_close(bed, &client);
	peer_close(bed, &second);
}

/* --- TLS --- */

static void test_tls_is_verified_for_the_name(void **state)
{
	go_to("https", "origin.test");
	start("GET", NULL);
	peer_accept(bed, &origin);
	peer_tls_accept(bed, &origin);
	expect_request("GET", "", "");
	peer_send(bed, &origin, OK_HI);
	expect_answer(0, 200, "hi");
	assert_int_equal(bed->px->n_idle, 1);
	start("GET", NULL);
	bed_turn(bed);
	expect_request("GET", "", "");
	/* FIN alone is no end */
	peer_send(bed, &origin, "HTTP/1.1 200 OK\r\n\r\nhal");
	assert_int_equal(shutdown(origin.fd, SHUT_WR), 0);
	expect_answer(E_EOF, 200, "hal");
}

static void test_certificate_for_another_name_gets_no_request(void **state)
{
	go_to("https", "other.test");
	start("GET", NULL);
	peer_accept(bed, &origin);
	origin.ssl = SSL_new(bed_origin_ctx());
	assert_int_equal(SSL_set_fd(origin.ssl, origin.fd), 1);
	SSL_set_accept_state(origin.ssl);
	for (int i = 0; i < 4; i++) {
		(void)SSL_do_handshake(origin.ssl);
		bed_settle(bed);
	}
	assert_int_equal(got.n, 1);
	assert_int_equal(got.err, E_CERT);
	assert_true(SSL_read(origin.ssl, want, 1) <= 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_get_is_sent_and_answered_whatever_the_policy_says),
		T(test_put_sends_its_content_on_a_connection_of_its_own),
		T(test_request_that_is_too_large_is_not_sent),
		T(test_what_is_no_url_is_not_asked),
		T(test_address_may_be_refused_by_who_asks),
		T(test_redirect_is_an_answer),
		T(test_refusal_does_not_show_the_key),
		T(test_every_end_of_an_answer_has_its_code),
		T(test_answer_may_come_byte_by_byte),
		T(test_reset_ends_it),
		T(test_answer_may_have_as_many_bytes_as_asked_for),
		T(test_answer_without_length_is_cut_at_the_limit),
		T(test_informational_heads_have_an_end),
		T(test_head_has_the_limit_of_the_parser),
		T(test_all_of_it_has_one_time_limit),
		T(test_nothing_listens),
		T(test_cancelled_request_is_silent),
		T(test_next_get_has_the_kept_connection),
		T(test_connection_is_not_kept_where_the_origin_closes),
		T(test_bytes_behind_an_answer_end_the_connection),
		T(test_kept_connection_that_ended_is_replaced_once),
		T(test_kept_connection_that_began_to_answer_is_not_replaced),
		T(test_no_connection_is_shared_with_the_sandbox),
		T(test_tls_is_verified_for_the_name),
		T(test_certificate_for_another_name_gets_no_request),
	};

	return cmocka_run_group_tests(tests, bed_setup_pki, bed_teardown_pki);
}
