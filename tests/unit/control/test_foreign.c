/* Who is a listener of somebody else, by rows and by sockets of this process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/slice.h"
#include "base/sock_diag.h"
#include "control/foreign.h"

static struct netaddr addr(const char *text)
{
	struct netaddr a;

	assert_true(netaddr_parse(slice_str(text), &a));
	return a;
}

static int bound(const char *text, uint16_t port, int type)
{
	const struct netaddr a = addr(text);
	struct sockaddr_storage sa;
	socklen_t len = netaddr_to_sockaddr(&a, port, &sa);
	int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&sa, len) == 0);
	assert_true(type != SOCK_STREAM || listen(fd, 1) == 0);
	return fd;
}

static void test_only_loopback_and_wildcard_on_a_port_of_ours_count(void **state)
{
	struct foreign f = {
		.own = {{.port = 18081, .inode = 7}, {.port = 15353, .udp = true, .inode = 8},
			{.port = 15353, .inode = 9}},
		.n = 3};
	static const struct {
		const char *addr;
		uint16_t port;
		bool udp;
		uint32_t inode;
		bool is;
	} rows[] = {
		{"127.0.0.1", 18081, false, 1, true},
		{"127.0.0.2", 18081, false, 1, true},
		{"0.0.0.0", 18081, false, 1, true},
		{"::1", 18081, false, 1, true},
		{"::", 18081, false, 1, true},
		{"127.0.0.1", 15353, true, 1, true},
		{"127.0.0.1", 15353, false, 1, true},
		{"127.0.0.1", 18081, false, 7, false}, /* ours */
		{"127.0.0.1", 15353, true, 8, false},
		{"127.0.0.1", 18081, true, 1, false}, /* no port of ours by UDP */
		{"127.0.0.1", 18082, false, 1, false},
		{"10.0.0.1", 18081, false, 1, false}, /* the kernel resets what would reach it */
		{"2001:db8::1", 18081, false, 1, false},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		const struct conns_listener l = {
			addr(rows[i].addr), rows[i].port, rows[i].udp, rows[i].inode};

		if (foreign_is(&f, &l) != rows[i].is)
			fail_msg("row %zu: %s %u", i, rows[i].addr, rows[i].port);
	}
}

static void test_a_socket_of_others_is_found_and_ours_is_not(void **state)
{
	static const int types[] = {SOCK_STREAM, SOCK_DGRAM};
	int diag = sock_diag_open();

	if (diag < 0)
		skip();
	for (size_t i = 0; i < ARRAY_LEN(types); i++) {
		struct foreign f = {.n = 0};
		struct conns_listener found;
		int own = bound("127.0.0.1", 0, types[i]);
		int other;

		assert_int_equal(foreign_add(&f, own, types[i] == SOCK_DGRAM), 0);
		assert_int_equal(foreign_add(&f, -1, false), 0);
		assert_int_equal(f.n, 1);
		assert_int_equal(foreign_look(&f, diag, &found), 0);
		other = bound("127.0.0.2", f.own[0].port, types[i]);
		assert_int_equal(foreign_look(&f, diag, &found), 1);
		assert_int_equal(found.port, f.own[0].port);
		assert_true(found.udp == (types[i] == SOCK_DGRAM));
		(void)close(other);
		assert_int_equal(foreign_look(&f, diag, &found), 0);
		(void)close(own);
	}
	(void)close(diag);
}

static void test_no_more_than_there_can_be(void **state)
{
	struct foreign f = {.n = FOREIGN_OWN_MAX - 1};
	int own = bound("127.0.0.1", 0, SOCK_DGRAM);

	assert_int_equal(foreign_add(&f, own, true), 0);
	assert_int_equal(foreign_add(&f, own, true), E_LIMIT);
	assert_int_equal(f.n, FOREIGN_OWN_MAX);
	(void)close(own);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_only_loopback_and_wildcard_on_a_port_of_ours_count),
		cmocka_unit_test(test_a_socket_of_others_is_found_and_ours_is_not),
		cmocka_unit_test(test_no_more_than_there_can_be),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
