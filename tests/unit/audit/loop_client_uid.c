/* Whose socket it is, asked of the kernel about real sockets on loopback. */
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "audit/client_uid.h"
#include "audit/event.h"

static const struct netaddr loopback = {.b = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1}};
static const struct netaddr elsewhere = {.b = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 2}};
static int diag;

static int bound(int type, struct sockaddr_storage *at, uint16_t *port)
{
	socklen_t len = netaddr_to_sockaddr(&loopback, 0, at);
	int fd = socket(AF_INET, type, 0);
	struct netaddr addr;

	assert_true(fd >= 0 && bind(fd, (struct sockaddr *)at, len) == 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)at, &len), 0);
	assert_true(netaddr_from_sockaddr((struct sockaddr *)at, &addr, port));
	return fd;
}

static void test_tcp_client_is_found_by_where_it_connected_to(void **state)
{
	struct sockaddr_storage at;
	uint16_t port;
	int server = bound(SOCK_STREAM, &at, &port);
	int client = socket(AF_INET, SOCK_STREAM, 0);
	int fd;
	struct client_uid_to to = {loopback, port};

	assert_int_equal(listen(server, 1), 0);
	assert_int_equal(connect(client, (struct sockaddr *)&at, sizeof(struct sockaddr_in)), 0);
	fd = accept(server, NULL, NULL);
	assert_true(fd >= 0);
	assert_int_equal(client_uid_find(diag, fd, NULL), getuid());
	assert_int_equal(client_uid_find(diag, fd, &to), getuid());
	to.port++;
	assert_int_equal(client_uid_find(diag, fd, &to), AUDIT_UID_NONE);
	to = (struct client_uid_to){elsewhere, port};
	assert_int_equal(client_uid_find(diag, fd, &to), AUDIT_UID_NONE);
	assert_int_equal(client_uid_find(-1, fd, NULL), AUDIT_UID_NONE);
	assert_int_equal(client_uid_find(diag, server, NULL), AUDIT_UID_NONE);
	assert_int_equal(client_uid_find(diag, -1, NULL), AUDIT_UID_NONE);
	close(client);
	close(fd);
	close(server);
}

static int reused(const struct sockaddr_storage *at)
{
	const int on = 1;
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	assert_true(fd >= 0);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), 0);
	assert_int_equal(bind(fd, (const struct sockaddr *)at, sizeof(struct sockaddr_in)), 0);
	return fd;
}

/* The kernel falls back to whoever listens on the client's port, here or for every address: that is
 * how a caller from elsewhere would get the user of a server in the sandbox. */
static void test_listener_on_the_port_of_a_client_is_not_the_client(void **state)
{
	struct sockaddr_storage at, from;
	uint16_t port, own;
	int server = bound(SOCK_STREAM, &at, &port);
	int probe = bound(SOCK_STREAM, &from, &own);
	const struct client_uid_to other = {elsewhere, port};
	int client, listener, fd;

	close(probe);
	client = reused(&from);
	assert_int_equal(listen(server, 1), 0);
	assert_int_equal(connect(client, (struct sockaddr *)&at, sizeof(struct sockaddr_in)), 0);
	fd = accept(server, NULL, NULL);
	listener = reused(&from);
	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(client_uid_find(diag, fd, NULL), getuid());
	assert_int_equal(client_uid_find(diag, fd, &other), AUDIT_UID_NONE);
	close(listener);
	close(client);
	close(fd);
	close(server);
}

static void test_sender_of_a_datagram_is_found_by_where_it_is_connected_to(void **state)
{
	struct sockaddr_storage at, peer;
	uint16_t port, from;
	int server = bound(SOCK_DGRAM, &at, &port);
	int client = bound(SOCK_DGRAM, &peer, &from);
	const struct client_uid_to to = {loopback, port};
	const struct client_uid_to other_port = {loopback, (uint16_t)(port + 1)};
	const struct client_uid_to other_addr = {elsewhere, port};

	/* Not connected: it sends wherever it wants. */
	assert_int_equal(client_uid_find_udp(diag, &peer, &other_addr), getuid());
	assert_int_equal(connect(client, (struct sockaddr *)&at, sizeof(struct sockaddr_in)), 0);
	assert_int_equal(client_uid_find_udp(diag, &peer, &to), getuid());
	assert_int_equal(client_uid_find_udp(diag, &peer, &other_port), AUDIT_UID_NONE);
	assert_int_equal(client_uid_find_udp(diag, &peer, &other_addr), AUDIT_UID_NONE);
	assert_int_equal(client_uid_find_udp(-1, &peer, &to), AUDIT_UID_NONE);
	close(client);
	assert_int_equal(client_uid_find_udp(diag, &peer, &to), AUDIT_UID_NONE);
	close(server);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tcp_client_is_found_by_where_it_connected_to),
		cmocka_unit_test(test_listener_on_the_port_of_a_client_is_not_the_client),
		cmocka_unit_test(test_sender_of_a_datagram_is_found_by_where_it_is_connected_to),
	};
	int ret;

	diag = client_uid_open();
	if (diag < 0)
		return 77; /* no sock_diag here */
	ret = cmocka_run_group_tests(tests, NULL, NULL);
	close(diag);
	return ret;
}
