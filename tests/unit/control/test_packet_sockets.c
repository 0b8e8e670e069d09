/* Packet sockets as the kernel lists them (control/packet_sockets.h). */
#include <errno.h>
#include <net/ethernet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/sock_diag.h"
#include "control/packet_sockets.h"

#define SKIPPED 77

static struct packet_socket seen[2 * PACKET_SOCKETS_MAX];
static size_t n_seen;

static void on_opened(const struct packet_socket *s, void *arg)
{
	assert_ptr_equal(arg, &n_seen);
	assert_true(n_seen < ARRAY_LEN(seen));
	seen[n_seen++] = *s;
}

static int packet_socket_open(void)
{
	return socket(AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
}

static void test_each_is_told_once(void **state)
{
	struct packet_sockets p = {.n = 0};
	int diag = sock_diag_open();
	size_t before;
	struct stat st;
	int fd;

	assert_true(diag >= 0);
	n_seen = 0;
	assert_int_equal(packet_sockets_look(&p, diag, on_opened, &n_seen), 0);
	before = p.open;
	n_seen = 0;
	fd = packet_socket_open();
	assert_true(fd >= 0);
	assert_int_equal(fstat(fd, &st), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(packet_sockets_look(&p, diag, on_opened, &n_seen), 0);
		assert_int_equal(n_seen, 1);
		assert_int_equal(p.open, before + 1);
	}
	assert_int_equal(seen[0].inode, (uint32_t)st.st_ino);
	assert_int_equal(seen[0].uid, geteuid());
	(void)close(fd);
	assert_int_equal(packet_sockets_look(&p, diag, on_opened, &n_seen), 0);
	assert_int_equal(n_seen, 1);
	assert_int_equal(p.open, before);
	(void)close(diag);
}

/* At the limit and one past it: all are counted. */
static void test_more_than_are_told_apart(void **state)
{
	struct packet_sockets p = {.n = 0};
	int diag = sock_diag_open();
	int fds[PACKET_SOCKETS_MAX + 1];
	size_t before;

	n_seen = 0;
	assert_int_equal(packet_sockets_look(&p, diag, on_opened, &n_seen), 0);
	before = p.open;
	for (size_t i = 0; i < ARRAY_LEN(fds); i++)
		fds[i] = packet_socket_open();
	assert_int_equal(packet_sockets_look(&p, diag, on_opened, &n_seen), 0);
	assert_int_equal(p.open, before + ARRAY_LEN(fds));
	assert_int_equal(p.n, PACKET_SOCKETS_MAX);
	for (size_t i = 0; i < ARRAY_LEN(fds); i++)
		(void)close(fds[i]);
	(void)close(diag);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_is_told_once),
		cmocka_unit_test(test_more_than_are_told_apart),
	};
	int fd = packet_socket_open();

	if (fd < 0) {
		(void)printf("needs CAP_NET_RAW: %s\n", err_text(-errno));
		return SKIPPED;
	}
	(void)close(fd);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
