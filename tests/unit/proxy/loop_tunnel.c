/* Tunnels behind CONNECT, of bytes that are neither HTTP nor TLS: half-closes, counts,
 * back-pressure, failures, and what a new policy does to one. */
#include <sys/socket.h>
#include <unistd.h>

#include <event2/event.h>

#include "proxy/session.h"
#include "proxy/tunnel.h"
#include "tests/unit/proxy/bed.h"

#define BULK (4u << 20)

static struct bed *bed;
static struct peer client, origin;
static char text[512], block[65536];

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

static struct session *connect_to(const char *name, uint16_t port)
{
	struct session *s = peer_client(bed, &client);

	(void)snprintf(text, sizeof(text), "CONNECT %s:%u HTTP/1.1\r\nHost: x\r\n\r\n", name, port);
	peer_send(bed, &client, text);
	peer_expect(bed, &client, "HTTP/1.1 200 Connection established\r\n\r\n");
	return s;
}

/* A tunnel through which "hello!\n" has gone. */
static void open_tunnel(void)
{
	connect_to("origin.test", bed->port);
	peer_send(bed, &client, "hello!\n");
	peer_accept(bed, &origin);
	peer_expect(bed, &origin, "hello!\n");
}

static void test_origin_is_not_contacted_before_the_first_byte(void **state)
{
	connect_to("origin.test", bed->port);
	assert_true(peer_nobody_connects(bed));
	peer_send(bed, &client, "x");
	peer_accept(bed, &origin);
	peer_expect(bed, &origin, "x");
}

static void test_half_close_in_both_orders(void **state)
{
	for (int first = 0; first < 2; first++) {
		struct peer *a = first ? &client : &origin, *b = first ? &origin : &client;

		open_tunnel();
		peer_send(bed, a, "last of one");
		peer_shutdown(bed, a);
		peer_expect(bed, b, "last of one");
		peer_expect_end(bed, b);
		assert_int_equal(bed->px->n_sessions, 1);
		peer_send(bed, b, "the other goes on");
		peer_expect(bed, a, "the other goes on");
		peer_shutdown(bed, b);
		peer_expect_end(bed, a);
		assert_int_equal(bed->px->n_sessions, 0);
		peer_close(bed, &client);
		peer_close(bed, &origin);
	}
	bed_close(bed);
	assert_int_equal(bed_n_lines(bed), 2);
	BED_LINE(bed, 0, "\"kind\":\"tunnel\"", "\"verdict\":\"allowed\"", "\"up\":24",
		"\"down\":11", "\"method\":\"CONNECT\"", "\"host\":\"origin.test\"",
		"\"addr\":\"127.0.0.1\"");
	BED_LINE(bed, 1, "\"up\":18", "\"down\":17");
}

static void test_slow_reader_holds_the_other_back(void **state)
{
	for (int up = 0; up < 2; up++) {
		struct peer *from = up ? &client : &origin, *to = up ? &origin : &client;
		size_t sent = 0, came = 0;
		ssize_t n;

		open_tunnel();
		do {
			n = send(from->fd, block, sizeof(block), MSG_DONTWAIT | MSG_NOSIGNAL);
			sent += n > 0 ? (size_t)n : 0;
			bed_settle(bed);
		} while (n > 0 && sent < 16 * BULK);
		assert_true(sent < 16 * BULK);
		(void)shutdown(from->fd, SHUT_WR);
		for (int i = 0; i < 100000 && !to->ended; i++) {
			bed_turn(bed);
			peer_receive(to);
			came += to->len;
			to->len = 0;
		}
		assert_int_equal(came, sent);
		peer_close(bed, &client);
		peer_close(bed, &origin);
		assert_int_equal(bed->px->n_sessions, 0);
	}
}

static void test_reset_of_either_side_ends_the_other(void **state)
{
	open_tunnel();
	peer_reset(bed, &origin);
	peer_expect_end(bed, &client);
	assert_int_equal(bed->px->n_sessions, 0);
	peer_close(bed, &client);
	bed_close(bed);
	BED_LINE(bed, 0, "\"reason\":\"upstream_aborted\"", "\"verdict\":\"failed\"");
}

static void test_client_that_goes_with_both_directions_ends_it(void **state)
{
	open_tunnel();
	peer_close(bed, &client);
	peer_expect_end(bed, &origin);
	peer_send(bed, &origin, "to nobody");
	bed_settle(bed);
	assert_int_equal(bed->px->n_sessions, 0);
}

static void test_reader_that_goes_with_a_backlog_ends_it(void **state)
{
	for (int up = 0; up < 2; up++) {
		struct peer *from = up ? &client : &origin, *to = up ? &origin : &client;
		ssize_t n;

		open_tunnel();
		do {
			n = send(from->fd, block, sizeof(block), MSG_DONTWAIT | MSG_NOSIGNAL);
			bed_settle(bed);
		} while (n > 0);
		peer_reset(bed, to);
		bed_settle(bed);
		assert_int_equal(bed->px->n_sessions, 0);
		peer_close(bed, from);
	}
	bed_close(bed);
	assert_int_equal(bed_n_lines(bed), 2);
	BED_LINE(bed, 0, "\"verdict\":\"failed\"");
	BED_LINE(bed, 1, "\"reason\":\"upstream_aborted\"", "\"verdict\":\"failed\"");
}

static void test_failed_dial_closes_the_client(void **state)
{
	uint16_t port = 0;

	close(bed_listen(1, &port));
	connect_to("origin.test", port);
	peer_send(bed, &client, "x\n");
	bed_settle(bed);
	peer_receive(&client);
	assert_true(client.ended || client.broken);
	assert_int_equal(bed->px->n_sessions, 0);
	bed_close(bed);
	assert_int_equal(bed_n_lines(bed), 1);
	BED_LINE(bed, 0, "\"reason\":\"connect_failed\"", "\"verdict\":\"failed\"",
		"\"kind\":\"tunnel\"");
}

/* 10.9.9.9 is private, and only a wildcard rule allows the name. */
static void test_address_that_is_not_allowed_is_a_refusal_on_record(void **state)
{
	connect_to("private.test", 5000);
	peer_send(bed, &client, "x\n");
	peer_receive(&client);
	assert_true(client.ended || client.broken);
	bed_close(bed);
	assert_int_equal(bed_n_lines(bed), 1);
	BED_LINE(bed, 0, "\"reason\":\"address_refused\"", "\"verdict\":\"blocked\"");
}

static void test_client_gone_while_dialling(void **state)
{
	connect_to("origin.test", bed->port);
	assert_int_equal(send(client.fd, "x\n", 2, MSG_NOSIGNAL), 2);
	(void)event_base_loop(bed->base, EVLOOP_NONBLOCK | EVLOOP_ONCE);
	peer_close(bed, &client);
	bed_settle(bed);
	peer_accept(bed, &origin);
	peer_expect(bed, &origin, "x\n");
	peer_close(bed, &origin);
	assert_int_equal(bed->px->n_sessions, 0);
}

static void test_idle_tunnel_ends_by_time(void **state)
{
	open_tunnel();
	bed_pass(bed, bed->config.stream_idle_ms - 1);
	peer_send(bed, &origin, "x");
	peer_expect(bed, &client, "x");
	bed_pass(bed, bed->config.stream_idle_ms - 1);
	peer_expect_nothing(bed, &client);
	bed_pass(bed, 1);
	peer_expect_end(bed, &client);
	bed_close(bed);
	BED_LINE(bed, 0, "\"verdict\":\"open\"", "\"up\":7");
	BED_LINE(bed, 1, "\"reason\":\"client_timeout\"");
}

static void test_under_the_rule_only_where_writing_is_allowed(void **state)
{
	bed->config.read_only = true;
	bed_set_policy(bed, false, "allow *.test 1,80,443"); /* and this port */
	bed->config.extra_ports[0] = bed->port;
	bed->config.n_extra_ports = 1;
	bed_configure(bed);
	connect_to("origin.test", bed->port);
	peer_send(bed, &client, "x\n");
	bed_settle(bed);
	peer_receive(&client);
	assert_true(client.ended || client.broken);
	assert_true(peer_nobody_connects(bed));
	peer_close(bed, &client);
	bed_set_write_hosts(bed, "origin.test");
	open_tunnel();
	bed_close(bed);
	assert_int_equal(bed_n_lines(bed), 2);
	BED_LINE(bed, 0, "\"reason\":\"cannot_inspect\"", "\"verdict\":\"blocked\"");
	BED_LINE(bed, 1, "\"reason\":\"shutdown\"");
}

static void test_new_policy_cuts_what_it_does_not_allow(void **state)
{
	open_tunnel();
	bed_set_policy(bed, false, "deny other.test");
	bed_settle(bed);
	peer_send(bed, &client, "still");
	peer_expect(bed, &origin, "still");
	bed_set_policy(bed, false, "deny origin.test");
	bed_settle(bed);
	peer_expect_end(bed, &origin);
	assert_int_equal(bed->px->n_sessions, 0);
	bed_close(bed);
	BED_LINE(bed, 0, "\"reason\":\"policy_changed\"");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		T(test_origin_is_not_contacted_before_the_first_byte),
		T(test_half_close_in_both_orders),
		T(test_slow_reader_holds_the_other_back),
		T(test_reset_of_either_side_ends_the_other),
		T(test_client_that_goes_with_both_directions_ends_it),
		T(test_reader_that_goes_with_a_backlog_ends_it),
		T(test_failed_dial_closes_the_client),
		T(test_address_that_is_not_allowed_is_a_refusal_on_record),
		T(test_client_gone_while_dialling),
		T(test_idle_tunnel_ends_by_time),
		T(test_under_the_rule_only_where_writing_is_allowed),
		T(test_new_policy_cuts_what_it_does_not_allow),
	};

	return cmocka_run_group_tests(tests, bed_setup_pki, bed_teardown_pki);
}
