/* Dialling: addresses in turn, what ends it at once, time limits, calling off at each state. */
#include <arpa/inet.h>
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/event.h>
#include <openssl/ssl.h>

#include "proxy/dial.h"
#include "tests/unit/proxy/bed.h"

struct asked {
	unsigned int n_admit, n_done;
	enum reason admits[4]; /* of each address in turn; the last one goes on */
	struct netaddr addrs[8];
	struct dial_result result;
	struct conn conn;
};

static struct bed *bed;
static int connect_errno, socket_errno;
static struct asked asked;
static struct dial *dial;
static struct peer origin;

int __real_connect(int fd, const struct sockaddr *addr, socklen_t len);
int __wrap_connect(int fd, const struct sockaddr *addr, socklen_t len);
int __real_socket(int domain, int type, int protocol);
int __wrap_socket(int domain, int type, int protocol);

int __wrap_connect(int fd, const struct sockaddr *addr, socklen_t len)
{
	if (connect_errno) {
		errno = connect_errno;
		return -1;
	}
	return __real_connect(fd, addr, len);
}

int __wrap_socket(int domain, int type, int protocol)
{
	if (socket_errno) {
		errno = socket_errno;
		return -1;
	}
	return __real_socket(domain, type, protocol);
}

static enum reason on_admit(const struct netaddr *a, void *arg)
{
	unsigned int i = asked.n_admit < 3 ? asked.n_admit : 3;

	assert_ptr_equal(arg, &asked);
	assert_true(asked.n_admit < ARRAY_LEN(asked.addrs));
	asked.addrs[asked.n_admit++] = *a;
	return asked.admits[i];
}

static void on_nothing(void *arg)
{
}

static const struct conn_ops no_ops = {on_nothing, on_nothing};

static void on_done(const struct dial_result *result, void *arg)
{
	asked.n_done++;
	asked.result = *result;
	if (result->reason == REASON_ALLOWED)
		dial_take(dial, &asked.conn, &no_ops, &asked);
	dial = NULL;
}

static const struct dial_ops ops = {on_admit, on_done};

static int setup(void **state)
{
	bed = bed_new("");
	connect_errno = socket_errno = 0;
	memset(&asked, 0, sizeof(asked));
	asked.conn.fd = -1;
	asked.conn.io = bed->px->io;
	origin.fd = -1;
	origin.ssl = NULL;
	return 0;
}

static int teardown(void **state)
{
	conn_fini(&asked.conn);
	peer_close(bed, &origin);
	bed_free(bed);
	return 0;
}

static void start(const char *name, uint16_t port, bool tls)
{
	struct authority target;
	char text[64];

	(void)snprintf(text, sizeof(text), "%s:%u", name, port);
	assert_int_equal(authority_decode(slice_str(text), &target), 0);
	dial = dial_start(bed->px, &target, tls, &ops, &asked);
	assert_int_equal(asked.n_done, 0);
	assert_int_equal(asked.n_admit, 0);
}

static void wait_done(void)
{
	for (int i = 0; i < 1000 && asked.n_done == 0; i++)
		bed_settle(bed);
	assert_int_equal(asked.n_done, 1);
}

static bool is_addr(const struct netaddr *a, const char *text)
{
	char buf[NETADDR_TEXT_MAX];

	netaddr_text(a, buf);
	return strcmp(buf, text) == 0;
}

/* A port where 127.0.0.1 refuses and 127.0.0.2 listens. */
static int listen_on_second(uint16_t *port)
{
	int first, fd;

	*port = 0;
	first = bed_listen(1, port);
	fd = bed_listen(2, port);
	close(first);
	return fd;
}

static void test_name_to_connection(void **state)
{
	start("origin.test", bed->port, false);
	wait_done();
	assert_int_equal(asked.result.reason, REASON_ALLOWED);
	assert_true(is_addr(&asked.result.addr, "127.0.0.1"));
	assert_true(asked.result.has_addr);
	assert_false(asked.result.verified);
	assert_false(asked.conn.reading);
	peer_accept(bed, &origin);
	conn_write(&asked.conn, SLICE("hello"));
	assert_int_equal(conn_flush(&asked.conn), 0);
	peer_expect(bed, &origin, "hello");
}

static void test_literal_address_is_not_looked_up(void **state)
{
	start("127.0.0.1", bed->port, false);
	wait_done();
	assert_int_equal(asked.result.reason, REASON_ALLOWED);
	assert_int_equal(asked.n_admit, 1);
}

static void test_next_address_is_tried(void **state)
{
	uint16_t port;
	int fd = listen_on_second(&port);

	start("two.test", port, false);
	wait_done();
	assert_int_equal(asked.result.reason, REASON_ALLOWED);
	assert_int_equal(asked.n_admit, 2);
	assert_true(is_addr(&asked.addrs[0], "127.0.0.1"));
	assert_true(is_addr(&asked.result.addr, "127.0.0.2"));
	close(fd);
}

static void test_last_failure_is_told(void **state)
{
	uint16_t port = 0;

	close(bed_listen(1, &port));
	start("two.test", port, false);
	wait_done();
	assert_int_equal(asked.result.reason, REASON_CONNECT_FAILED);
	assert_string_equal(asked.result.detail, "connection refused");
	assert_int_equal(asked.n_admit, 2);
	assert_true(is_addr(&asked.result.addr, "127.0.0.2"));
}

static void test_refused_addresses_are_left_out(void **state)
{
	asked.admits[0] = REASON_ADDRESS_REFUSED;
	start("two.test", bed->port, false);
	wait_done();
	/* 127.0.0.2 was allowed, and nobody listens there on this port */
	assert_int_equal(asked.result.reason, REASON_CONNECT_FAILED);
	assert_true(is_addr(&asked.result.addr, "127.0.0.2"));
	assert_true(peer_nobody_connects(bed));
}

static void test_no_allowed_address_is_a_refusal(void **state)
{
	asked.admits[0] = REASON_ADDRESS_REFUSED;
	asked.admits[1] = asked.admits[2] = REASON_REBINDING_WRITE;
	start("two.test", bed->port, false);
	wait_done();
	assert_int_equal(asked.result.reason, REASON_REBINDING_WRITE);
	assert_false(asked.result.has_addr);
	assert_true(peer_nobody_connects(bed));
}

static void test_overload_ends_it_at_once(void **state)
{
	asked.admits[0] = REASON_OVERLOADED;
	start("two.test", bed->port, false);
	wait_done();
	assert_int_equal(asked.result.reason, REASON_OVERLOADED);
	assert_int_equal(asked.n_admit, 1);
	assert_true(peer_nobody_connects(bed));
}

static void test_name_that_does_not_resolve(void **state)
{
	start("nowhere.test", bed->port, false);
	wait_done();
	assert_true(asked.result.reason == REASON_RESOLVE_FAILED ||
		asked.result.reason == REASON_RESOLVE_TIMEOUT);
	assert_int_equal(asked.n_admit, 0);
}

static void test_errors_of_connect_have_a_text(void **state)
{
	static const struct {
		int err;
		const char *text;
	} rows[] = {
		{ECONNREFUSED, "connection refused"},
		{EHOSTUNREACH, "no route to the host"},
		{ENETUNREACH, "the network is unreachable"},
		{ETIMEDOUT, "the connection timed out"},
		{ECONNRESET, "the origin reset the connection"},
		{EACCES, "the kernel refused the connection"},
		{EPERM, "the kernel refused the connection"},
		{EINVAL, "the connection failed"},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		asked.n_done = asked.n_admit = 0;
		connect_errno = rows[i].err;
		start("two.test", bed->port, false);
		wait_done();
		assert_int_equal(asked.n_admit, 2);
		assert_int_equal(asked.result.reason, REASON_CONNECT_FAILED);
		assert_string_equal(asked.result.detail, rows[i].text);
	}
}

/* It is we who have no room; another address would not change that. */
static void test_no_descriptor_is_an_overload(void **state)
{
	static const int errors[] = {EMFILE, ENFILE};

	for (size_t i = 0; i < ARRAY_LEN(errors); i++) {
		asked.n_done = asked.n_admit = 0;
		start("two.test", bed->port, false);
		socket_errno = errors[i];
		wait_done();
		socket_errno = 0;
		assert_int_equal(asked.n_admit, 1);
		assert_int_equal(asked.result.reason, REASON_OVERLOADED);
	}
}

/* --- TLS --- */

static void origin_handshake(void)
{
	origin.ssl = SSL_new(bed_origin_ctx());
	assert_int_equal(SSL_set_fd(origin.ssl, origin.fd), 1);
	SSL_set_accept_state(origin.ssl);
	for (int i = 0; i < 10; i++) {
		(void)SSL_do_handshake(origin.ssl);
		bed_settle(bed);
	}
}

static void test_tls_is_verified(void **state)
{
	start("origin.test", bed->port, true);
	peer_accept(bed, &origin);
	origin_handshake();
	wait_done();
	assert_int_equal(asked.result.reason, REASON_ALLOWED);
	assert_true(asked.result.verified);
	assert_non_null(asked.conn.ssl);
	peer_send(bed, &origin, "hi");
	conn_want_read(&asked.conn);
	(void)event_base_loop(bed->base, EVLOOP_NONBLOCK | EVLOOP_ONCE);
	conn_pause(&asked.conn);
	assert_int_equal(conn_read(&asked.conn, (char[4]){0}, 4), 2);
}

/* It is an answer: another address of the same name would not make it better. */
static void test_bad_certificate_ends_it(void **state)
{
	int second = bed_listen(2, &bed->port);

	start("bad.test", bed->port, true);
	peer_accept(bed, &origin);
	origin_handshake();
	wait_done();
	assert_int_equal(asked.result.reason, REASON_CERTIFICATE);
	assert_non_null(asked.result.detail);
	assert_int_equal(asked.n_admit, 1);
	bed_settle(bed);
	assert_int_equal(accept(second, NULL, NULL), -1);
	close(second);
}

static void test_tls_that_fails_goes_on_to_the_next_address(void **state)
{
	int second = bed_listen(2, &bed->port);

	start("two.test", bed->port, true);
	peer_accept(bed, &origin);
	peer_send(bed, &origin, "HTTP/1.1 400 this is no TLS\r\n\r\n");
	peer_close(bed, &origin);
	peer_accept_on(bed, &origin, second);
	origin_handshake();
	wait_done();
	assert_int_equal(asked.result.reason, REASON_ALLOWED);
	assert_true(is_addr(&asked.result.addr, "127.0.0.2"));
	close(second);
}

static void test_tls_that_fails_at_the_last_address(void **state)
{
	start("origin.test", bed->port, true);
	peer_accept(bed, &origin);
	peer_close(bed, &origin);
	wait_done();
	assert_int_equal(asked.result.reason, REASON_TLS_FAILED);
}

/* The origin got a ClientHello and was left alone then. */
static void peer_expect_hello_and_end(void)
{
	for (int i = 0; i < 100 && !origin.ended && !origin.broken; i++) {
		bed_settle(bed);
		peer_receive(&origin);
	}
	assert_true(origin.len > 0 && origin.in[0] == 22);
	assert_true(origin.ended);
}

/* --- time --- */

static void test_silent_tls_gives_way_to_the_next_address(void **state)
{
	int second = bed_listen(2, &bed->port);

	start("two.test", bed->port, true);
	peer_accept(bed, &origin);
	bed_pass(bed, DIAL_TRY_MS - 1);
	assert_int_equal(asked.n_admit, 1);
	bed_pass(bed, 1);
	assert_int_equal(asked.n_admit, 2);
	peer_expect_hello_and_end();
	close(second);
}

static void test_dial_has_a_limit_for_all_of_it(void **state)
{
	int second = bed_listen(2, &bed->port);

	start("two.test", bed->port, true);
	peer_accept(bed, &origin);
	bed_pass(bed, DIAL_TRY_MS);
	bed_pass(bed, bed->config.connect_timeout_ms - DIAL_TRY_MS - 1);
	assert_int_equal(asked.n_done, 0);
	bed_pass(bed, 1);
	assert_int_equal(asked.n_done, 1);
	assert_int_equal(asked.result.reason, REASON_TLS_TIMEOUT);
	close(second);
}

/* Connections to a socket whose queue is full are not answered. */
static int listen_full(uint16_t *port, int filled[4])
{
	int fd = bed_listen(1, port);
	struct sockaddr_in sa = {.sin_family = AF_INET,
		.sin_port = htons(*port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	assert_int_equal(listen(fd, 0), 0);
	for (int i = 0; i < 4; i++) {
		filled[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		(void)connect(filled[i], (struct sockaddr *)&sa, sizeof(sa));
	}
	return fd;
}

static void close_all(int fd, const int filled[4])
{
	for (int i = 0; i < 4; i++)
		close(filled[i]);
	close(fd);
}

static void test_connect_that_is_not_answered_times_out(void **state)
{
	uint16_t port = 0;
	int filled[4], fd = listen_full(&port, filled);

	start("origin.test", port, false);
	bed_turn(bed);
	assert_int_equal(asked.n_admit, 1);
	bed_pass(bed, bed->config.connect_timeout_ms - 1);
	assert_int_equal(asked.n_done, 0);
	bed_pass(bed, 1);
	assert_int_equal(asked.n_done, 1);
	assert_int_equal(asked.result.reason, REASON_CONNECT_TIMEOUT);
	close_all(fd, filled);
}

/* --- calling off --- */

static void test_cancel_at_each_state(void **state)
{
	uint16_t full_port = 0;
	int filled[4], fd = listen_full(&full_port, filled);

	for (int where = 0; where < 4; where++) {
		switch (where) {
		case 0: /* before the loop ran */
			start("origin.test", bed->port, false);
			break;
		case 1: /* lookup */
			start("unknown.test", bed->port, false);
			(void)event_base_loop(bed->base, EVLOOP_NONBLOCK | EVLOOP_ONCE);
			break;
		case 2: /* connect */
			start("origin.test", full_port, false);
			bed_turn(bed);
			break;
		default: /* TLS */
			start("origin.test", bed->port, true);
			peer_accept(bed, &origin);
			break;
		}
		dial_cancel(dial);
		bed_settle(bed);
		assert_int_equal(asked.n_done, 0);
		assert_int_equal(asked.conn.fd, -1);
		asked.n_admit = 0;
	}
	peer_expect_hello_and_end();
	dial_cancel(NULL);
	close_all(fd, filled);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		T(test_name_to_connection),
		T(test_literal_address_is_not_looked_up),
		T(test_next_address_is_tried),
		T(test_last_failure_is_told),
		T(test_refused_addresses_are_left_out),
		T(test_no_allowed_address_is_a_refusal),
		T(test_overload_ends_it_at_once),
		T(test_name_that_does_not_resolve),
		T(test_errors_of_connect_have_a_text),
		T(test_no_descriptor_is_an_overload),
		T(test_tls_is_verified),
		T(test_bad_certificate_ends_it),
		T(test_tls_that_fails_goes_on_to_the_next_address),
		T(test_tls_that_fails_at_the_last_address),
		T(test_silent_tls_gives_way_to_the_next_address),
		T(test_dial_has_a_limit_for_all_of_it),
		T(test_connect_that_is_not_answered_times_out),
		T(test_cancel_at_each_state),
	};

	return cmocka_run_group_tests(tests, bed_setup_pki, bed_teardown_pki);
}
