/* Listeners (control/ports): what they are, and what a port in use is called. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "control/ports.h"

static struct netaddr addr_of(const char *text)
{
	struct netaddr a = {{0}};

	assert_true(netaddr_parse(slice_str(text), &a));
	return a;
}

static int option(int fd, int level, int name)
{
	socklen_t len = sizeof(int);
	int value = -1;

	assert_int_equal(getsockopt(fd, level, name, &value, &len), 0);
	return value;
}

/* A port of 127.0.0.1 that nobody has, held by *fd; the kernel chose it. */
static uint16_t take_port(int *fd)
{
	struct netaddr a = addr_of("127.0.0.1");
	struct sockaddr_in sa = {0};
	socklen_t len = sizeof(sa);

	assert_int_equal(ports_bind(&a, 0, false, fd), 0);
	assert_int_equal(getsockname(*fd, (struct sockaddr *)&sa, &len), 0);
	return ntohs(sa.sin_port);
}

static void test_listener_is_non_blocking_and_shares_its_port_with_nobody(void **state)
{
	int fd = -1;

	(void)take_port(&fd);
	assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	assert_int_equal(option(fd, SOL_SOCKET, SO_ACCEPTCONN), 1);
	assert_int_equal(option(fd, SOL_SOCKET, SO_REUSEPORT), 0);
	assert_int_equal(option(fd, SOL_SOCKET, SO_REUSEADDR), 1);
	(void)close(fd);
}

static void test_listener_for_ipv6_takes_no_ipv4(void **state)
{
	struct netaddr a = addr_of("::"); /* bound to one address the kernel sets it by itself */
	int fd = -1;
	int ret;

	ret = ports_bind(&a, 0, false, &fd);
	if (ret == -EAFNOSUPPORT || ret == -EADDRNOTAVAIL)
		skip();
	assert_int_equal(ret, 0);
	assert_int_equal(option(fd, IPPROTO_IPV6, IPV6_V6ONLY), 1);
	(void)close(fd);
}

static const struct ports_place *place(struct netaddr a, uint16_t port)
{
	static struct ports_place p;

	p = (struct ports_place){.addr = a, .port = port, .setting = "set EGRESS_PROXY_ADDR"};
	return &p;
}

static void test_port_in_use_is_refused_with_address_and_way_out(void **state)
{
	struct netaddr a = addr_of("127.0.0.1");
	struct errmsg msg = {""};
	char text[PORTS_TEXT_MAX];
	uint16_t port;
	int held = -1;
	int fd6;
	int fd = -1;

	port = take_port(&held);
	assert_int_equal(ports_open(place(a, port), &fd, &fd6, &msg), -EADDRINUSE);
	assert_int_equal(fd, -1);
	assert_int_equal(fd6, -1);
	ports_text(&a, port, text);
	assert_non_null(strstr(msg.text, text));
	assert_non_null(strstr(msg.text, "EGRESS_PROXY_ADDR"));
	(void)close(held);
}

static void test_port_of_the_second_loopback_in_use_is_refused(void **state)
{
	struct netaddr a6 = addr_of("::1");
	struct netaddr a = addr_of("127.0.0.1");
	struct errmsg msg = {""};
	struct sockaddr_in6 sa = {0};
	socklen_t len = sizeof(sa);
	int held = -1;
	int fd6;
	int fd = -1;
	int ret;

	ret = ports_bind(&a6, 0, false, &held);
	if (ret == -EAFNOSUPPORT || ret == -EADDRNOTAVAIL)
		skip();
	assert_int_equal(ret, 0);
	assert_int_equal(getsockname(held, (struct sockaddr *)&sa, &len), 0);
	assert_int_equal(ports_open(place(a, ntohs(sa.sin6_port)), &fd, &fd6, &msg), -EADDRINUSE);
	assert_non_null(strstr(msg.text, "[::1]:"));
	assert_int_equal(fd, -1);
	(void)close(held);
}

static void test_only_127_0_0_1_gets_a_second_listener(void **state)
{
	static const struct {
		const char *addr;
		bool second;
	} rows[] = {{"127.0.0.1", true}, {"127.0.0.2", false}};
	struct errmsg msg = {""};
	size_t i;

	for (i = 0; i < ARRAY_LEN(rows); i++) {
		struct netaddr a = addr_of(rows[i].addr);
		uint16_t port;
		int held = -1;
		int fd6;
		int fd = -1;

		port = take_port(&held);
		(void)close(held);
		assert_int_equal(ports_open(place(a, port), &fd, &fd6, &msg), 0);
		/* Without IPv6 there is none, which is fine. */
		if (!rows[i].second)
			assert_int_equal(fd6, -1);
		else if (fd6 >= 0)
			assert_int_equal(option(fd6, SOL_SOCKET, SO_DOMAIN), AF_INET6);
		(void)close(fd);
		if (fd6 >= 0)
			(void)close(fd6);
	}
}

static void test_every_address_is_one_listener_for_each_family(void **state)
{
	struct ports_place all = {.any = true, .setting = "set OPENSANDBOX_EGRESS_HTTP_ADDR"};
	struct errmsg msg = {""};
	struct sockaddr_in sa = {0};
	socklen_t len = sizeof(sa);
	int held = -1;
	int fd6;
	int fd = -1;

	all.port = take_port(&held);
	assert_int_equal(ports_open(&all, &fd, &fd6, &msg), -EADDRINUSE);
	assert_non_null(strstr(msg.text, "0.0.0.0:"));
	assert_non_null(strstr(msg.text, "OPENSANDBOX_EGRESS_HTTP_ADDR"));
	(void)close(held);
	assert_int_equal(ports_open(&all, &fd, &fd6, &msg), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&sa, &len), 0);
	assert_int_equal(sa.sin_addr.s_addr, INADDR_ANY);
	if (fd6 >= 0) {
		assert_int_equal(option(fd6, SOL_SOCKET, SO_DOMAIN), AF_INET6);
		(void)close(fd6);
	}
	(void)close(fd);
}

static void test_foreign_address_is_refused(void **state)
{
	struct netaddr a = addr_of("192.0.2.1");
	struct errmsg msg = {""};
	int fd6;
	int fd = -1;

	assert_int_equal(ports_open(place(a, 1024), &fd, &fd6, &msg), -EADDRNOTAVAIL);
	assert_non_null(strstr(msg.text, "192.0.2.1:1024: cannot listen"));
}

/* A busy moment must fit; past net.core.rmem_max only who may. */
static void test_udp_sockets_have_room(void **state)
{
	struct ports_place udp = {.udp = true, .setting = "the DNS gate"};
	struct errmsg msg;
	socklen_t len = sizeof(int);
	int fd, fd6;
	int room = 0;
	int type = 0;

	assert_true(netaddr_parse(SLICE("127.0.0.1"), &udp.addr));
	assert_int_equal(ports_open(&udp, &fd, &fd6, &msg), 0);
	assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len), 0);
	assert_int_equal(type, SOCK_DGRAM);
	assert_int_equal(getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, &len), 0);
	assert_true(room >= (geteuid() == 0 ? 2 * PORTS_UDP_BYTES : 65536));
	(void)close(fd);
	if (fd6 >= 0)
		(void)close(fd6);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_listener_is_non_blocking_and_shares_its_port_with_nobody),
		cmocka_unit_test(test_listener_for_ipv6_takes_no_ipv4),
		cmocka_unit_test(test_port_in_use_is_refused_with_address_and_way_out),
		cmocka_unit_test(test_port_of_the_second_loopback_in_use_is_refused),
		cmocka_unit_test(test_only_127_0_0_1_gets_a_second_listener),
		cmocka_unit_test(test_every_address_is_one_listener_for_each_family),
		cmocka_unit_test(test_udp_sockets_have_room),
		cmocka_unit_test(test_foreign_address_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
