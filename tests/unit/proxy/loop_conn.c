/* Connections by themselves: both ends of a socket pair are a struct conn, or one is a script.
 * Clear and TLS: back-pressure, what is held and pending, moving, putting back, ends. */
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/event.h>

#include "base/arena.h"
#include "proxy/conn.h"
#include "proxy/tls.h"
#include "tests/unit/proxy/bed.h"

#define BULK (4u << 20)

struct side {
	struct conn conn;
	unsigned int readable, drained;
};

static struct bed *bed;
static struct side a, b; /* a is the client of TLS, b its server */
static struct io *io;
static char bulk[BULK], got[BULK];

static unsigned int n_recv, n_sendmsg, n_send;

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
	n_sendmsg++;
	return __real_sendmsg(fd, msg, flags);
}

static void on_side_readable(void *arg)
{
	((struct side *)arg)->readable++;
}

static void on_side_drained(void *arg)
{
	((struct side *)arg)->drained++;
}

static const struct conn_ops side_ops = {on_side_readable, on_side_drained};

static void sides_open(void)
{
	int fds[2];

	memset(&a, 0, sizeof(a));
	memset(&b, 0, sizeof(b));
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
	conn_init(&a.conn, fds[0], io, bed->base, &side_ops, &a);
	conn_init(&b.conn, fds[1], io, bed->base, &side_ops, &b);
}

/* What an event does: recv may be tried again. */
static void side_wake(struct side *s)
{
	conn_want_read(&s->conn);
	(void)event_base_loop(bed->base, EVLOOP_NONBLOCK | EVLOOP_ONCE);
	conn_pause(&s->conn);
}

static ssize_t side_read(struct side *s, char *buf, size_t len)
{
	ssize_t n;

	n = conn_read(&s->conn, buf, len);
	if (n != -EAGAIN)
		return n;
	side_wake(s);
	return conn_read(&s->conn, buf, len);
}

static SSL *client_new(void)
{
	SSL *ssl = tls_connect_new(bed->px->tls, SLICE("a.test"), NULL, 443);

	assert_non_null(ssl);
	SSL_set_verify(ssl, SSL_VERIFY_NONE, NULL);
	return ssl;
}

static SSL *server_new(void)
{
	SSL *ssl = tls_accept_new(bed->px->tls, SLICE("a.test"), NULL, 1);

	assert_non_null(ssl);
	return ssl;
}

static void sides_open_tls(void)
{
	SSL *client, *server;
	int ca = -EAGAIN, cb = -EAGAIN;

	sides_open();
	client = client_new();
	server = server_new();
	conn_set_tls(&a.conn, client);
	conn_set_tls(&b.conn, server);
	for (int i = 0; i < 10 && (ca != 0 || cb != 0); i++) {
		if (ca != 0)
			ca = conn_handshake(&a.conn);
		side_wake(&b);
		if (cb != 0)
			cb = conn_handshake(&b.conn);
		side_wake(&a);
	}
	assert_int_equal(ca, 0);
	assert_int_equal(cb, 0);
	/* tickets */
	assert_int_equal(side_read(&a, got, 1), -EAGAIN);
}

static void sides_close(void)
{
	conn_fini(&a.conn);
	conn_fini(&b.conn);
}

static void check_no_buffer_is_owned(void)
{
	assert_null(io->scratch_owner);
	assert_null(io->out_owner);
	assert_int_equal(io->out_len, 0);
	assert_true(io->in_pos == io->in_len);
}

static void (*const opens[])(void) = {sides_open, sides_open_tls};

static int setup(void **state)
{
	bed_setup_pki(state);
	bed = bed_new("");
	for (size_t i = 0; i < BULK; i++)
		bulk[i] = (char)(i * 2654435761u >> 13);
	return io_new(NULL, &io);
}

static int teardown(void **state)
{
	io_free(io);
	bed_free(bed);
	return bed_teardown_pki(state);
}

static void test_bytes_arrive_in_order(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(opens); i++) {
		opens[i]();
		conn_write(&a.conn, SLICE("one "));
		conn_write(&a.conn, SLICE("two"));
		assert_int_equal(side_read(&b, got, 100), -EAGAIN);
		assert_int_equal(conn_flush(&a.conn), 0);
		assert_int_equal(side_read(&b, got, 100), 7);
		assert_memory_equal(got, "one two", 7);
		assert_int_equal(conn_read(&b.conn, got, 100), -EAGAIN);
		check_no_buffer_is_owned();
		sides_close();
	}
}

static void test_back_pressure_and_drain(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(opens); i++) {
		size_t n = 0;
		ssize_t r;

		opens[i]();
		conn_write(&a.conn, slice_make(bulk, BULK));
		assert_int_equal(conn_flush(&a.conn), -EAGAIN);
		assert_true(conn_backlogged(&a.conn));
		bed_turn(bed);
		assert_int_equal(a.drained, 0);
		while (n < BULK) {
			r = side_read(&b, got + n, BULK - n < IO_RECORD ? BULK - n : IO_RECORD);
			if (r == -EAGAIN)
				continue;
			assert_true(r > 0);
			n += (size_t)r;
		}
		bed_turn(bed);
		assert_int_equal(a.drained, 1);
		assert_false(conn_backlogged(&a.conn));
		assert_null(a.conn.pending);
		assert_memory_equal(got, bulk, BULK);
		bed_turn(bed);
		assert_int_equal(a.drained, 1); /* once */
		sides_close();
	}
}

/* What is written while something waits goes behind it, also when the socket has room by then. */
static void test_order_holds_behind_a_backlog(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(opens); i++) {
		size_t n = 0;
		ssize_t r;

		opens[i]();
		conn_write(&a.conn, slice_make(bulk, BULK / 2));
		assert_int_equal(conn_flush(&a.conn), -EAGAIN);
		/* Past the loop, which would send what waits. */
		do {
			r = conn_read(&b.conn, got + n, IO_RECORD);
			n += r > 0 ? (size_t)r : 0;
		} while (r > 0);
		conn_write(&a.conn, slice_make(bulk + BULK / 2, 5));
		assert_int_equal(conn_flush(&a.conn), -EAGAIN);
		conn_write(&a.conn, slice_make(bulk + BULK / 2 + 5, 20000));
		assert_int_equal(conn_flush(&a.conn), -EAGAIN);
		while (n < BULK / 2 + 20005) {
			r = side_read(&b, got + n, IO_RECORD);
			if (r == -EAGAIN)
				continue;
			assert_true(r > 0);
			n += (size_t)r;
		}
		assert_memory_equal(got, bulk, BULK / 2 + 20005);
		sides_close();
	}
}

static void test_small_writes_leave_by_one_call(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(opens); i++) {
		opens[i]();
		n_sendmsg = n_send = n_recv = 0;
		for (int k = 0; k < 20; k++)
			conn_write(&a.conn, SLICE("field: value\r\n"));
		assert_int_equal(n_sendmsg + n_send, 0);
		assert_int_equal(conn_flush(&a.conn), 0);
		assert_int_equal(n_sendmsg + n_send, 1);
		assert_int_equal(conn_flush(&a.conn), 0);
		assert_int_equal(n_sendmsg + n_send, 1);
		n_recv = 0;
		assert_int_equal(side_read(&b, got, IO_RECORD), 20 * 14);
		assert_int_equal(conn_read(&b.conn, got, IO_RECORD), -EAGAIN);
		assert_int_equal(n_recv, 1); /* short: not tried again before the next event */
		sides_close();
	}
}

/* A head and content that is large: in clear one call for both, copied nowhere. */
static void test_large_content_in_clear_leaves_with_its_head(void **state)
{
	sides_open();
	n_sendmsg = 0;
	conn_write(&a.conn, SLICE("head\r\n"));
	conn_write(&a.conn, slice_make(bulk, 20000));
	assert_int_equal(n_sendmsg, 1);
	assert_int_equal(conn_flush(&a.conn), 0);
	assert_int_equal(n_sendmsg, 1);
	assert_int_equal(side_read(&b, got, 30000), 20006);
	assert_memory_equal(got, "head\r\n", 6);
	assert_memory_equal(got + 6, bulk, 20000);
	sides_close();
}

static void test_sizes_around_the_buffers(void **state)
{
	static const size_t sizes[] = {1, IO_RECORD / 2 - 1, IO_RECORD / 2, IO_RECORD - 1,
		IO_RECORD, IO_RECORD + 1, 2 * IO_RECORD, 4 * IO_RECORD + 7, 5 * IO_RECORD,
		IO_OUT_BYTES + 3};

	for (size_t i = 0; i < ARRAY_LEN(opens); i++) {
		for (size_t k = 0; k < ARRAY_LEN(sizes); k++) {
			size_t n = 0;
			ssize_t r;

			opens[i]();
			conn_write(&a.conn, SLICE("12345"));
			conn_write(&a.conn, slice_make(bulk, sizes[k]));
			conn_write(&a.conn, SLICE("67"));
			(void)conn_flush(&a.conn);
			while (n < sizes[k] + 7) {
				r = side_read(&b, got + n, IO_RECORD);
				if (r == -EAGAIN)
					continue;
				assert_true(r > 0);
				n += (size_t)r;
			}
			assert_int_equal(n, sizes[k] + 7);
			assert_memory_equal(got, "12345", 5);
			assert_memory_equal(got + 5, bulk, sizes[k]);
			assert_memory_equal(got + 5 + sizes[k], "67", 2);
			sides_close();
		}
	}
}

/* The buffers are worker-wide: whoever needs one makes the one before put its bytes away. */
static void test_buffers_change_their_owner(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(opens); i++) {
		opens[i]();
		conn_write(&a.conn, SLICE("to b"));
		conn_write(&b.conn, SLICE("to a"));
		conn_write(&a.conn, SLICE(", more"));
		assert_int_equal(conn_flush(&b.conn), 0);
		assert_int_equal(conn_flush(&a.conn), 0);
		assert_int_equal(side_read(&a, got, 100), 4);
		assert_memory_equal(got, "to a", 4);
		for (size_t n = 0, r; n < 10; n += r) {
			r = (size_t)side_read(&b, got + n, 100);
			assert_in_range(r, 1, 10);
		}
		assert_memory_equal(got, "to b, more", 10);
		sides_close();
	}
}

static void test_unread_bytes_are_held_when_the_buffer_is_needed(void **state)
{
	size_t n = 0;
	ssize_t r;

	sides_open_tls();
	conn_write(&a.conn, slice_make(bulk, 3 * IO_RECORD));
	assert_int_equal(conn_flush(&a.conn), 0);
	r = side_read(&b, got, IO_RECORD);
	assert_true(r > 0);
	n = (size_t)r;
	assert_ptr_equal(io->in_owner, &b.conn);
	assert_true(conn_buffered(&b.conn));
	conn_write(&b.conn, SLICE("x"));
	assert_int_equal(conn_flush(&b.conn), 0);
	assert_int_equal(side_read(&a, got + BULK - 1, 1), 1);
	assert_ptr_not_equal(io->in_owner, &b.conn);
	assert_non_null(b.conn.held);
	assert_true(conn_buffered(&b.conn));
	while (n < 3 * IO_RECORD) {
		r = side_read(&b, got + n, IO_RECORD);
		assert_true(r > 0);
		n += (size_t)r;
	}
	assert_memory_equal(got, bulk, n);
	assert_null(b.conn.held);
	assert_false(conn_buffered(&b.conn));
	sides_close();
}

static void test_idle_connection_owns_no_buffer(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(opens); i++) {
		opens[i]();
		for (int k = 0; k < 3; k++) {
			conn_write(&a.conn, SLICE("GET"));
			assert_int_equal(conn_flush(&a.conn), 0);
			assert_int_equal(side_read(&b, got, 100), 3);
			assert_int_equal(conn_read(&b.conn, got, 100), -EAGAIN);
		}
		check_no_buffer_is_owned();
		assert_null(a.conn.held);
		assert_null(b.conn.held);
		assert_null(a.conn.pending);
		assert_null(b.conn.pending);
		sides_close();
	}
}

static void test_move_takes_everything_along(void **state)
{
	struct side c = {.readable = 0};

	for (size_t i = 0; i < ARRAY_LEN(opens); i++) {
		size_t n = 0;
		ssize_t r;

		opens[i]();
		memset(&c, 0, sizeof(c));
		conn_write(&b.conn, SLICE("back"));
		assert_int_equal(conn_flush(&b.conn), 0);
		conn_write(&a.conn, slice_make(bulk, BULK / 4));
		assert_int_equal(conn_flush(&a.conn), -EAGAIN);
		conn_write(&a.conn, SLICE("tail"));
		conn_move(&a.conn, &c.conn, bed->base, &side_ops, &c);
		assert_int_equal(a.conn.fd, -1);
		conn_fini(&a.conn);
		assert_int_equal(conn_flush(&c.conn), -EAGAIN);
		while (n < BULK / 4 + 4) {
			r = side_read(&b, got + n, IO_RECORD);
			if (r == -EAGAIN)
				continue;
			assert_true(r > 0);
			n += (size_t)r;
		}
		assert_memory_equal(got, bulk, BULK / 4);
		assert_memory_equal(got + BULK / 4, "tail", 4);
		bed_turn(bed);
		assert_int_equal(a.drained, 0);
		assert_int_equal(c.drained, 1);
		assert_int_equal(side_read(&c, got, 100), 4);
		conn_fini(&c.conn);
		conn_fini(&b.conn);
	}
}

/* Bytes that lie in the worker-wide buffer go with the connection, too. */
static void test_move_keeps_what_was_received(void **state)
{
	struct side c = {.readable = 0};
	size_t n = 0;
	ssize_t r;

	sides_open_tls();
	conn_write(&a.conn, slice_make(bulk, 2 * IO_RECORD));
	assert_int_equal(conn_flush(&a.conn), 0);
	r = side_read(&b, got, 100);
	assert_true(r > 0);
	n = (size_t)r;
	conn_move(&b.conn, &c.conn, bed->base, &side_ops, &c);
	assert_ptr_equal(io->in_owner, &c.conn);
	while (n < 2 * IO_RECORD) {
		r = side_read(&c, got + n, IO_RECORD);
		assert_true(r > 0);
		n += (size_t)r;
	}
	assert_memory_equal(got, bulk, n);
	conn_fini(&c.conn);
	conn_fini(&a.conn);
}

static void test_peek_and_unread(void **state)
{
	struct slice in;

	sides_open();
	assert_int_equal(conn_peek(&b.conn, 100, &in), 0);
	assert_int_equal(in.len, 0);
	conn_write(&a.conn, SLICE("abc"));
	assert_int_equal(conn_flush(&a.conn), 0);
	side_wake(&b);
	assert_int_equal(conn_peek(&b.conn, 100, &in), 0);
	assert_true(slice_eq(in, SLICE("abc")));
	conn_write(&a.conn, SLICE("defgh"));
	assert_int_equal(conn_flush(&a.conn), 0);
	side_wake(&b);
	assert_int_equal(conn_peek(&b.conn, 5, &in), 0);
	assert_true(slice_eq(in, SLICE("abcde")));
	assert_int_equal(conn_peek(&b.conn, 5, &in), 0);
	assert_true(slice_eq(in, SLICE("abcde")));
	assert_true(conn_buffered(&b.conn));
	assert_int_equal(conn_read(&b.conn, got, 2), 2);
	conn_unread(&b.conn, SLICE("XY"));
	conn_unread(&b.conn, SLICE_EMPTY);
	assert_int_equal(side_read(&b, got, 100), 5);
	assert_memory_equal(got, "XYcde", 5);
	assert_int_equal(side_read(&b, got, 100), 3);
	assert_memory_equal(got, "fgh", 3);
	conn_unread(&b.conn, SLICE("again"));
	assert_int_equal(conn_peek(&b.conn, 100, &in), 0);
	assert_true(slice_eq(in, SLICE("again")));
	conn_fini(&a.conn);
	side_wake(&b);
	assert_int_equal(conn_peek(&b.conn, 100, &in), E_EOF);
	assert_true(slice_eq(in, SLICE("again")));
	conn_fini(&b.conn);
}

/* A ClientHello that was peeked at is the first that TLS sees. */
static void test_held_bytes_are_the_first_that_tls_sees(void **state)
{
	struct slice in;

	sides_open();
	conn_set_tls(&a.conn, client_new());
	assert_int_equal(conn_handshake(&a.conn), -EAGAIN);
	side_wake(&b);
	assert_int_equal(conn_peek(&b.conn, 10000, &in), 0);
	assert_true(in.len > 100);
	conn_set_tls(&b.conn, server_new());
	assert_int_equal(conn_handshake(&b.conn), -EAGAIN);
	side_wake(&a);
	assert_int_equal(conn_handshake(&a.conn), 0);
	side_wake(&b);
	assert_int_equal(conn_handshake(&b.conn), 0);
	sides_close();
}

static void test_half_close_leaves_the_other_direction(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(opens); i++) {
		opens[i]();
		conn_write(&a.conn, SLICE("last"));
		conn_shutdown(&a.conn);
		assert_int_equal(side_read(&b, got, 100), 4);
		assert_int_equal(side_read(&b, got, 100), E_EOF);
		assert_true(conn_clean_end(&b.conn));
		assert_int_equal(side_read(&b, got, 100), E_EOF);
		conn_write(&b.conn, SLICE("still"));
		assert_int_equal(conn_flush(&b.conn), 0);
		assert_int_equal(side_read(&a, got, 100), 5);
		assert_false(conn_clean_end(&a.conn));
		sides_close();
	}
}

static void test_fin_without_close_notify_is_no_clean_end(void **state)
{
	sides_open_tls();
	conn_write(&a.conn, SLICE("part"));
	assert_int_equal(conn_flush(&a.conn), 0);
	shutdown(a.conn.fd, SHUT_WR);
	assert_int_equal(side_read(&b, got, 100), 4);
	assert_int_equal(side_read(&b, got, 100), E_EOF);
	assert_false(conn_clean_end(&b.conn));
	sides_close();
}

static void test_garbage_in_tls_has_a_text(void **state)
{
	sides_open_tls();
	assert_int_equal(__real_send(a.conn.fd, "\x17\x03\x03\x00\x05garba", 10, 0), 10);
	assert_int_equal(side_read(&b, got, 100), E_TLS);
	assert_non_null(b.conn.failure);
	assert_false(b.conn.bad_certificate);
	assert_false(conn_clean_end(&b.conn));
	sides_close();
}

static void test_failed_socket_is_told_and_sticks(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(opens); i++) {
		opens[i]();
		conn_fini(&b.conn);
		conn_write(&a.conn, SLICE("x"));
		assert_int_equal(conn_flush(&a.conn), -EPIPE);
		conn_write(&a.conn, slice_make(bulk, IO_RECORD));
		assert_int_equal(conn_flush(&a.conn), -EPIPE);
		assert_false(conn_backlogged(&a.conn));
		conn_fini(&a.conn);
	}
}

/* The reader goes while something is pending: on_drained tells, with the error set. */
static void test_backlog_that_can_go_nowhere_is_told(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(opens); i++) {
		opens[i]();
		conn_write(&a.conn, slice_make(bulk, BULK));
		assert_int_equal(conn_flush(&a.conn), -EAGAIN);
		conn_fini(&b.conn);
		bed_turn(bed);
		assert_int_equal(a.drained, 1);
		assert_true(a.conn.error < 0);
		conn_fini(&a.conn);
	}
}

static void test_handshake_that_ends_early(void **state)
{
	sides_open();
	conn_set_tls(&a.conn, client_new());
	assert_int_equal(conn_handshake(&a.conn), -EAGAIN);
	shutdown(b.conn.fd, SHUT_WR);
	side_wake(&a);
	assert_int_equal(conn_handshake(&a.conn), -ECONNRESET);
	sides_close();
}

static void test_fini_gives_the_buffers_back(void **state)
{
	sides_open_tls();
	conn_write(&b.conn, slice_make(bulk, 2 * IO_RECORD));
	assert_int_equal(conn_flush(&b.conn), 0);
	assert_true(side_read(&a, got, 10) > 0);
	assert_ptr_equal(io->in_owner, &a.conn);
	conn_write(&a.conn, SLICE("gone"));
	assert_ptr_equal(io->scratch_owner, &a.conn);
	conn_fini(&a.conn);
	assert_null(io->in_owner);
	assert_null(io->scratch_owner);
	assert_null(io->out_owner);
	conn_fini(&a.conn); /* twice is nothing */
	conn_fini(&b.conn);
}

static void test_want_read_and_pause_may_be_repeated(void **state)
{
	sides_open();
	conn_write(&a.conn, SLICE("x"));
	assert_int_equal(conn_flush(&a.conn), 0);
	conn_pause(&b.conn);
	bed_turn(bed);
	assert_int_equal(b.readable, 0);
	conn_want_read(&b.conn);
	conn_want_read(&b.conn);
	(void)event_base_loop(bed->base, EVLOOP_NONBLOCK | EVLOOP_ONCE);
	assert_int_equal(b.readable, 1);
	conn_pause(&b.conn);
	conn_pause(&b.conn);
	bed_turn(bed);
	assert_int_equal(b.readable, 1);
	sides_close();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bytes_arrive_in_order),
		cmocka_unit_test(test_back_pressure_and_drain),
		cmocka_unit_test(test_order_holds_behind_a_backlog),
		cmocka_unit_test(test_small_writes_leave_by_one_call),
		cmocka_unit_test(test_large_content_in_clear_leaves_with_its_head),
		cmocka_unit_test(test_sizes_around_the_buffers),
		cmocka_unit_test(test_buffers_change_their_owner),
		cmocka_unit_test(test_unread_bytes_are_held_when_the_buffer_is_needed),
		cmocka_unit_test(test_idle_connection_owns_no_buffer),
		cmocka_unit_test(test_move_takes_everything_along),
		cmocka_unit_test(test_move_keeps_what_was_received),
		cmocka_unit_test(test_peek_and_unread),
		cmocka_unit_test(test_held_bytes_are_the_first_that_tls_sees),
		cmocka_unit_test(test_half_close_leaves_the_other_direction),
		cmocka_unit_test(test_fin_without_close_notify_is_no_clean_end),
		cmocka_unit_test(test_garbage_in_tls_has_a_text),
		cmocka_unit_test(test_failed_socket_is_told_and_sticks),
		cmocka_unit_test(test_backlog_that_can_go_nowhere_is_told),
		cmocka_unit_test(test_handshake_that_ends_early),
		cmocka_unit_test(test_fini_gives_the_buffers_back),
		cmocka_unit_test(test_want_read_and_pause_may_be_repeated),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
