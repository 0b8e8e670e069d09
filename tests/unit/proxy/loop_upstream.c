/* Kept connections to origins: their limits, what ends them, and that a keep-alive request over
 * TLS on both sides costs two reads and two writes. */
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/event.h>

#include "base/arena.h"
#include "proxy/upstream.h"
#include "tests/unit/proxy/bed.h"

#define OK_HI "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"

static struct bed *bed;
static struct peer client, origin;
static char text[1024];
static unsigned int n_recv, n_send;

ssize_t __real_recv(int fd, void *buf, size_t len, int flags);
ssize_t __wrap_recv(int fd, void *buf, size_t len, int flags);
ssize_t __real_send(int fd, const void *buf, size_t len, int flags);
ssize_t __wrap_send(int fd, const void *buf, size_t len, int flags);
ssize_t __real_sendmsg(int fd, const struct msghdr *msg, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags);

ssize_t __wrap_recv(int fd, void *buf, size_t len, int flags)
{
	n_recv++;
	return __real_recv(fd, buf, len, flags);
}

ssize_t __wrap_send(int fd, const void *buf, size_t len, int flags)
{
	n_send++;
	return __real_send(fd, buf, len, flags);
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *msg, int flags)
{
	n_send++;
	return __real_sendmsg(fd, msg, flags);
}

static int setup(void **state)
{
	bed = bed_new("");
	client.fd = origin.fd = -1;
	client.ssl = origin.ssl = NULL;
	return 0;
}

static int teardown(void **state)
{
	peer_close(bed, &client);
	peer_close(bed, &origin);
	bed_free(bed);
	return 0;
}

static void ask(struct peer *p, const char *scheme, const char *name)
{
	(void)snprintf(text, sizeof(text), "GET %s://%s:%u/ HTTP/1.1\r\nHost: %s:%u\r\n\r\n",
		scheme, name, bed->port, name, bed->port);
	peer_send(bed, p, text);
}

/* One exchange in clear, after which the connection idles. */
static void keep_one(void)
{
	peer_client(bed, &client);
	ask(&client, "http", "origin.test");
	peer_accept(bed, &origin);
	free(peer_until(bed, &origin, "\r\n\r\n"));
	peer_send(bed, &origin, OK_HI);
	peer_expect(bed, &client, OK_HI);
	assert_int_equal(bed->px->n_idle, 1);
}

/* n exchanges with one name at the same time; the origin's ends go to origins. */
static void keep_many(const char *name, size_t n, int *origins)
{
	struct peer *p = xcalloc(UPSTREAM_IDLE_HOST_MAX + 1, sizeof(*p));

	for (size_t i = 0; i < n; i++) {
		peer_client(bed, &p[i]);
		ask(&p[i], "http", name);
		peer_accept(bed, &origin);
		origins[i] = origin.fd;
		free(peer_until(bed, &origin, "\r\n\r\n"));
	}
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(__real_send(origins[i], OK_HI, strlen(OK_HI), 0), strlen(OK_HI));
		peer_expect(bed, &p[i], OK_HI);
		peer_close(bed, &p[i]);
	}
	origin.fd = -1;
	free(p);
}

static bool is_closed(int fd)
{
	char c;

	return __real_recv(fd, &c, 1, MSG_DONTWAIT) == 0;
}

static void test_one_origin_keeps_so_many_and_no_more(void **state)
{
	int origins[UPSTREAM_IDLE_HOST_MAX + 1];
	size_t closed = 0;

	keep_many("origin.test", UPSTREAM_IDLE_HOST_MAX + 1, origins);
	assert_int_equal(bed->px->n_idle, UPSTREAM_IDLE_HOST_MAX);
	for (size_t i = 0; i < ARRAY_LEN(origins); i++) {
		closed += is_closed(origins[i]);
		close(origins[i]);
	}
	assert_int_equal(closed, 1);
	bed_settle(bed);
	assert_int_equal(bed->px->n_idle, 0);
	assert_true(TAILQ_EMPTY(&bed->px->upstreams));
}

static void test_all_origins_keep_so_many_and_the_oldest_goes(void **state)
{
	static int origins[UPSTREAM_IDLE_MAX + 1];
	struct rlimit files;
	size_t n = 0, closed = 0;
	char name[16];

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &files), 0);
	files.rlim_cur = files.rlim_max;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &files), 0);
	bed->px->descriptors = SIZE_MAX; /* that is not the limit here */
	for (; n < UPSTREAM_IDLE_MAX; n += UPSTREAM_IDLE_HOST_MAX) {
		(void)snprintf(name, sizeof(name), "p%zu.test", n / UPSTREAM_IDLE_HOST_MAX);
		keep_many(name, UPSTREAM_IDLE_HOST_MAX, origins + n);
	}
	assert_int_equal(bed->px->n_idle, UPSTREAM_IDLE_MAX);
	for (size_t i = 0; i < UPSTREAM_IDLE_MAX; i++)
		closed += is_closed(origins[i]);
	assert_int_equal(closed, 0);
	keep_many("p8.test", 1, origins + n);
	assert_int_equal(bed->px->n_idle, UPSTREAM_IDLE_MAX);
	for (size_t i = 0; i < ARRAY_LEN(origins); i++)
		if (is_closed(origins[i]) != (i == 0))
			fail_msg("%zu", i);
	proxy_configure(bed->px, &bed->config);
	assert_int_equal(bed->px->n_idle, 0);
	for (size_t i = 0; i < ARRAY_LEN(origins); i++)
		close(origins[i]);
}

/* Idle connections hold descriptors that sessions may need. */
static void test_idle_connections_give_way_to_sessions(void **state)
{
	struct peer *p = xcalloc(4, sizeof(*p));
	int origins[4];

	keep_many("origin.test", 4, origins);
	bed->px->descriptors = 10;
	for (size_t i = 0; i < 4; i++) {
		peer_client(bed, &p[i]);
		assert_int_equal(bed->px->n_idle, i < 3 ? 4 : 2);
	}
	assert_true(is_closed(origins[0]) && is_closed(origins[1]));
	assert_false(is_closed(origins[2]) || is_closed(origins[3]));
	for (size_t i = 0; i < 4; i++) {
		peer_close(bed, &p[i]);
		close(origins[i]);
	}
	free(p);
}

static void test_idle_connection_ends_by_time(void **state)
{
	keep_one();
	bed_pass(bed, bed->config.upstream_idle_ms - 1);
	assert_int_equal(bed->px->n_idle, 1);
	bed_pass(bed, 1);
	assert_int_equal(bed->px->n_idle, 0);
	peer_expect_end(bed, &origin);
}

static void test_no_connection_is_kept_where_the_setting_is_zero(void **state)
{
	bed->config.upstream_idle_ms = 0;
	bed_configure(bed);
	peer_client(bed, &client);
	ask(&client, "http", "origin.test");
	peer_accept(bed, &origin);
	free(peer_until(bed, &origin, "\r\n\r\n"));
	peer_send(bed, &origin, OK_HI);
	peer_expect(bed, &client, OK_HI);
	peer_expect_end(bed, &origin);
}

static void test_idle_connection_ends_by_a_byte_or_a_fin(void **state)
{
	keep_one();
	peer_send(bed, &origin, "HTTP/1.1 408 Request Timeout\r\n\r\n");
	assert_int_equal(bed->px->n_idle, 0);
	peer_close(bed, &client);
	peer_close(bed, &origin);
	keep_one();
	peer_shutdown(bed, &origin);
	assert_int_equal(bed->px->n_idle, 0);
	peer_close(bed, &client);
	peer_close(bed, &origin);
	keep_one();
	peer_reset(bed, &origin);
	assert_int_equal(bed->px->n_idle, 0);
}

static void test_kept_connection_is_for_its_name_and_scheme_only(void **state)
{
	struct peer else_client;

	keep_one();
	ask(&client, "http", "other.test");
	peer_accept(bed, &origin);
	free(peer_until(bed, &origin, "\r\n\r\n"));
	assert_int_equal(bed->px->n_idle, 1);
	peer_client(bed, &else_client);
	ask(&else_client, "https", "origin.test");
	peer_close(bed, &origin);
	peer_accept(bed, &origin); /* TLS begins on a new one */
	assert_int_equal(bed->px->n_idle, 1);
	peer_close(bed, &else_client);
}

/* A new policy judges every address again: nothing that was kept under the old one is used. */
static void test_new_policy_drops_what_is_kept(void **state)
{
	keep_one();
	bed_set_policy(bed, false, "deny origin.test");
	assert_int_equal(bed->px->n_idle, 0);
	ask(&client, "http", "origin.test");
	peer_expect_head(bed, &client, "HTTP/1.1 403 blocked\r\n");
	assert_true(peer_nobody_connects(bed));
}

static enum reason refuse_address(const struct netaddr *a, void *arg)
{
	++*(int *)arg;
	return REASON_ADDRESS_REFUSED;
}

static void test_kept_connection_is_asked_for_by_its_address(void **state)
{
	struct authority target;
	int asked = 0;

	keep_one();
	(void)snprintf(text, sizeof(text), "origin.test:%u", bed->port);
	assert_int_equal(authority_decode(slice_str(text), &target), 0);
	assert_null(upstream_find(bed->px, &target, UPSTREAM_CLEAR, refuse_address, &asked));
	assert_int_equal(asked, 1);
	assert_int_equal(bed->px->n_idle, 1);
}

/* --- TLS --- */

static void open_tls(void)
{
	peer_client(bed, &client);
	(void)snprintf(text, sizeof(text), "CONNECT origin.test:%u HTTP/1.1\r\nHost: x\r\n\r\n",
		bed->port);
	peer_send(bed, &client, text);
	peer_expect(bed, &client, "HTTP/1.1 200 Connection established\r\n\r\n");
	peer_tls_connect(bed, &client, "origin.test");
}

static void ask_inside(void)
{
	(void)snprintf(
		text, sizeof(text), "GET / HTTP/1.1\r\nHost: origin.test:%u\r\n\r\n", bed->port);
	peer_send(bed, &client, text);
}

static void keep_one_tls(void)
{
	open_tls();
	ask_inside();
	peer_accept(bed, &origin);
	peer_tls_accept(bed, &origin);
	peer_expect(bed, &origin, text);
	peer_send(bed, &origin, OK_HI);
	peer_expect(bed, &client, OK_HI);
	assert_int_equal(bed->px->n_idle, 1);
}

static void test_keep_alive_request_costs_two_reads_and_two_writes(void **state)
{
	const struct io *io = bed->px->io;

	keep_one_tls();
	for (int i = 0; i < 3; i++) {
		n_recv = n_send = 0;
		ask_inside();
		peer_expect(bed, &origin, text);
		assert_int_equal(n_recv, 1);
		assert_int_equal(n_send, 1);
		peer_send(bed, &origin, OK_HI);
		peer_expect(bed, &client, OK_HI);
		assert_int_equal(n_recv, 2);
		assert_int_equal(n_send, 2);
		/* and then nobody owns a buffer */
		assert_null(io->scratch_owner);
		assert_null(io->out_owner);
		assert_true(io->in_pos == io->in_len);
	}
	assert_null(TAILQ_FIRST(&bed->px->upstreams)->conn.held);
	assert_null(TAILQ_FIRST(&bed->px->sessions)->conn.held);
	assert_null(TAILQ_FIRST(&bed->px->sessions)->h1.saved);
}

static void test_session_tickets_do_not_end_an_idle_connection(void **state)
{
	keep_one_tls();
	for (int i = 0; i < 3; i++) {
		assert_int_equal(SSL_new_session_ticket(origin.ssl), 1);
		assert_int_equal(SSL_do_handshake(origin.ssl), 1);
		bed_settle(bed);
		assert_int_equal(bed->px->n_idle, 1);
	}
	ask_inside();
	peer_expect(bed, &origin, text);
	peer_send(bed, &origin, OK_HI);
	peer_expect(bed, &client, OK_HI);
	assert_int_equal(bed->px->n_idle, 1);
	peer_send(bed, &origin, "x");
	assert_int_equal(bed->px->n_idle, 0);
}

static void test_close_notify_ends_an_idle_connection(void **state)
{
	keep_one_tls();
	(void)SSL_shutdown(origin.ssl);
	bed_settle(bed);
	assert_int_equal(bed->px->n_idle, 0);
}

/* The end of TLS without close_notify is no end of an answer that ends with the connection. */
static void test_answer_cut_off_under_tls_is_not_whole(void **state)
{
	for (int clean = 0; clean < 2; clean++) {
		open_tls();
		ask_inside();
		peer_accept(bed, &origin);
		peer_tls_accept(bed, &origin);
		peer_expect(bed, &origin, text);
		peer_send(bed, &origin, "HTTP/1.1 200 OK\r\n\r\nhi");
		peer_expect(bed, &client,
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n");
		if (clean)
			peer_shutdown(bed, &origin);
		else
			peer_close(bed, &origin);
		if (clean)
			peer_expect(bed, &client, "0\r\n\r\n");
		else
			peer_expect_broken(bed, &client);
		peer_close(bed, &client);
		peer_close(bed, &origin);
	}
	bed_close(bed);
	BED_LINE(bed, 0, "\"reason\":\"upstream_aborted\"", "\"alpn\":\"http/1.1\"",
		"\"via\":\"connect\"");
	BED_LINE(bed, 1, "\"reason\":\"allowed\"");
}

static void test_bad_certificate_is_a_502_that_says_so(void **state)
{
	char *body;

	peer_client(bed, &client);
	ask(&client, "https", "other.test");
	peer_accept(bed, &origin);
	origin.ssl = SSL_new(bed_origin_ctx());
	assert_int_equal(SSL_set_fd(origin.ssl, origin.fd), 1);
	SSL_set_accept_state(origin.ssl);
	for (int i = 0; i < 20; i++) {
		(void)SSL_do_handshake(origin.ssl);
		bed_turn(bed);
	}
	peer_expect_head(bed, &client, "HTTP/1.1 502 Bad Gateway\r\n");
	body = peer_until(bed, &client, "\n");
	assert_non_null(strstr(body, "certificate"));
	free(body);
	bed_close(bed);
	BED_LINE(bed, 0, "\"reason\":\"certificate\"", "\"status\":502");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		T(test_one_origin_keeps_so_many_and_no_more),
		T(test_all_origins_keep_so_many_and_the_oldest_goes),
		T(test_idle_connections_give_way_to_sessions),
		T(test_idle_connection_ends_by_time),
		T(test_no_connection_is_kept_where_the_setting_is_zero),
		T(test_idle_connection_ends_by_a_byte_or_a_fin),
		T(test_kept_connection_is_for_its_name_and_scheme_only),
		T(test_new_policy_drops_what_is_kept),
		T(test_kept_connection_is_asked_for_by_its_address),
		T(test_keep_alive_request_costs_two_reads_and_two_writes),
		T(test_session_tickets_do_not_end_an_idle_connection),
		T(test_close_notify_ends_an_idle_connection),
		T(test_answer_cut_off_under_tls_is_not_whole),
		T(test_bad_certificate_is_a_502_that_says_so),
	};

	return cmocka_run_group_tests(tests, bed_setup_pki, bed_teardown_pki);
}
