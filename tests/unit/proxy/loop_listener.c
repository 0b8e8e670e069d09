/* Accepting: real sockets, the limit of connections, running out of descriptors; whose socket it is
 * and where it wanted to go before a redirect. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter_ipv4.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/event.h>

#include "audit/client_uid.h"
#include "audit/event.h"
#include "proxy/listener.h"
#include "proxy/origdst.h"
#include "tests/unit/proxy/bed.h"

#define CLIENTS_MAX 8
#define IP6_ORIGINAL_DST 80 /* IP6T_SO_ORIGINAL_DST */

static struct bed *bed;
static int listen_fd, accept_errno;
static bool accept_fails_once;
static unsigned int n_accepts;
static struct sockaddr_storage original; /* what conntrack remembers; family 0: nothing */
static int clients[CLIENTS_MAX];

int __real_accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags);
int __wrap_accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags);
int __real_getsockopt(int fd, int level, int name, void *value, socklen_t *len);
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *len);

int __wrap_accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags)
{
	if (fd == listen_fd) {
		n_accepts++;
		if (accept_errno) {
			errno = accept_errno;
			if (accept_fails_once)
				accept_errno = 0;
			return -1;
		}
	}
	return __real_accept4(fd, addr, len, flags);
}

int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *len)
{
	bool asked = (level == SOL_IP && name == SO_ORIGINAL_DST) ||
		(level == SOL_IPV6 && name == IP6_ORIGINAL_DST);

	if (!asked)
		return __real_getsockopt(fd, level, name, value, len);
	if (original.ss_family != (level == SOL_IP ? AF_INET : AF_INET6)) {
		errno = ENOENT;
		return -1;
	}
	*len = level == SOL_IP ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
	memcpy(value, &original, *len);
	return 0;
}

static int setup(void **state)
{
	uint16_t port = 0;

	bed = bed_new("");
	accept_errno = 0;
	accept_fails_once = false;
	memset(&original, 0, sizeof(original));
	memset(clients, 0xff, sizeof(clients));
	listen_fd = bed_listen(1, &port);
	proxy_listen(bed->px, listen_fd);
	return 0;
}

static int teardown(void **state)
{
	for (size_t i = 0; i < CLIENTS_MAX; i++)
		if (clients[i] >= 0)
			close(clients[i]);
	bed_free(bed);
	close(listen_fd);
	return 0;
}

static void connect_clients(size_t from, size_t to)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);

	assert_int_equal(getsockname(listen_fd, (struct sockaddr *)&ss, &len), 0);
	for (size_t i = from; i < to; i++) {
		clients[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		assert_true(connect(clients[i], (struct sockaddr *)&ss, len) == 0 ||
			errno == EINPROGRESS);
	}
	bed_settle(bed);
}

/* Until the pause is over; it is the loop's own timer. */
static void wait_for_sessions(size_t n)
{
	for (int i = 0; i < 500 && bed->px->n_sessions != n; i++)
		bed_settle(bed);
	assert_int_equal(bed->px->n_sessions, n);
}

static void test_connections_become_sessions(void **state)
{
	connect_clients(0, 3);
	wait_for_sessions(3);
	assert_int_equal(TAILQ_FIRST(&bed->px->sessions)->via, VIA_PROXY);
	assert_int_equal(TAILQ_FIRST(&bed->px->sessions)->state, SESSION_HTTP);
}

static void test_limit_of_connections(void **state)
{
	bed->config.max_connections = 3;
	bed_configure(bed);
	connect_clients(0, 3);
	wait_for_sessions(3);
	connect_clients(3, 5);
	assert_int_equal(bed->px->n_sessions, 3);
	n_accepts = 0;
	bed_settle(bed);
	assert_int_equal(n_accepts, 0); /* paused, not spinning */
	close(clients[0]);
	clients[0] = -1;
	wait_for_sessions(2);
	wait_for_sessions(3);
	assert_int_equal(bed->px->n_sessions, 3);
}

static void test_running_out_of_descriptors_pauses(void **state)
{
	static const int errors[] = {EMFILE, ENFILE, ENOBUFS, ENOMEM};

	for (size_t i = 0; i < ARRAY_LEN(errors); i++) {
		accept_errno = errors[i];
		n_accepts = 0;
		connect_clients(i, i + 1);
		assert_int_equal(n_accepts, 1);
		bed_settle(bed);
		assert_int_equal(n_accepts, 1);
		accept_errno = 0;
		wait_for_sessions(i + 1);
	}
}

/* A client that is gone already, and other errors of one connection, are no reason to stop. */
static void test_other_errors_do_not_pause(void **state)
{
	accept_errno = ECONNABORTED;
	accept_fails_once = true;
	n_accepts = 0;
	connect_clients(0, 1);
	assert_true(n_accepts >= 2); /* without the pause's wait */
	assert_int_equal(bed->px->n_sessions, 1);
}

static void test_redirected_connections_are_told_apart(void **state)
{
	struct sockaddr_in *sa = (struct sockaddr_in *)&original;
	const struct session *s;

	sa->sin_family = AF_INET;
	sa->sin_port = htons(443);
	sa->sin_addr.s_addr = htonl(0xcb007105);
	connect_clients(0, 1);
	wait_for_sessions(1);
	s = TAILQ_FIRST(&bed->px->sessions);
	assert_int_equal(s->via, VIA_REDIRECT);
	assert_int_equal(s->state, SESSION_PEEK);
	assert_int_equal(s->port, 443);
	assert_true(s->has_origdst);
}

static void test_original_destination(void **state)
{
	static const struct {
		const char *orig;
		uint16_t port; /* 0: our own */
		bool want;
	} rows[] = {
		{"203.0.113.5", 443, true}, {"127.0.0.1", 443, true}, {"203.0.113.5", 0, true},
		{"127.0.0.1", 0, false}, /* our own address: nothing was redirected */
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct sockaddr_in *sa = (struct sockaddr_in *)&original;
		struct sockaddr_in own = {0};
		socklen_t len = sizeof(own);
		struct netaddr a;
		uint16_t port = 0;
		char text[NETADDR_TEXT_MAX];

		assert_int_equal(getsockname(listen_fd, (struct sockaddr *)&own, &len), 0);
		sa->sin_family = AF_INET;
		sa->sin_port = rows[i].port ? htons(rows[i].port) : own.sin_port;
		assert_int_equal(inet_pton(AF_INET, rows[i].orig, &sa->sin_addr), 1);
		if (origdst_find(listen_fd, &a, &port) != rows[i].want)
			fail_msg("row %zu", i);
		netaddr_text(&a, text);
		if (rows[i].want)
			assert_string_equal(text, rows[i].orig);
		assert_int_equal(port, ntohs(sa->sin_port));
	}
}

static void test_original_destination_of_ipv6(void **state)
{
	struct sockaddr_in6 own = {.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback};
	struct sockaddr_in6 *sa = (struct sockaddr_in6 *)&original;
	int fd = socket(AF_INET6, SOCK_STREAM, 0);
	char text[NETADDR_TEXT_MAX];
	struct netaddr a;
	uint16_t port = 0;

	if (fd < 0 || bind(fd, (struct sockaddr *)&own, sizeof(own)) < 0) {
		close(fd);
		skip(); /* no IPv6 here */
	}
	assert_false(origdst_find(fd, &a, &port));
	sa->sin6_family = AF_INET6;
	sa->sin6_port = htons(443);
	assert_int_equal(inet_pton(AF_INET6, "2001:db8::5", &sa->sin6_addr), 1);
	assert_true(origdst_find(fd, &a, &port));
	netaddr_text(&a, text);
	assert_string_equal(text, "2001:db8::5");
	assert_int_equal(port, 443);
	close(fd);
}

static void test_no_original_destination(void **state)
{
	struct netaddr a;
	uint16_t port;
	int fds[2];

	assert_false(origdst_find(listen_fd, &a, &port));
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	assert_false(origdst_find(fds[0], &a, &port));
	assert_false(origdst_find(-1, &a, &port));
	close(fds[0]);
	close(fds[1]);
}

static void test_uid_of_a_client(void **state)
{
	const struct session *s;
	int diag = client_uid_open();

	if (diag < 0)
		skip(); /* no sock_diag here */
	connect_clients(0, 1);
	wait_for_sessions(1);
	s = TAILQ_FIRST(&bed->px->sessions);
	assert_int_equal(s->uid, getuid());
	assert_int_equal(client_uid_find(diag, s->conn.fd, NULL), getuid());
	assert_int_equal(client_uid_find(-1, s->conn.fd, NULL), AUDIT_UID_NONE);
	assert_int_equal(client_uid_find(diag, listen_fd, NULL), AUDIT_UID_NONE);
	assert_int_equal(client_uid_find(diag, -1, NULL), AUDIT_UID_NONE);
	close(diag);
}

/* What is left of a closed client belongs to root for the kernel; that must not become uid 0. */
static void test_uid_of_a_closed_client_is_not_known(void **state)
{
	int diag = client_uid_open(), fd;

	if (diag < 0)
		skip();
	proxy_drain(bed->px); /* this one accepts by itself */
	connect_clients(0, 1);
	fd = __real_accept4(listen_fd, NULL, NULL, 0);
	assert_true(fd >= 0);
	assert_int_equal(client_uid_find(diag, fd, NULL), getuid());
	close(clients[0]);
	clients[0] = -1;
	bed_settle(bed);
	assert_int_equal(client_uid_find(diag, fd, NULL), AUDIT_UID_NONE);
	close(fd);
	close(diag);
}

/* Two listeners, one proxy; drained, neither accepts. */
static void test_drained_proxy_accepts_nothing(void **state)
{
	connect_clients(0, 1);
	wait_for_sessions(1);
	proxy_drain(bed->px);
	connect_clients(1, 2);
	assert_int_equal(bed->px->n_sessions, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
		T(test_connections_become_sessions),
		T(test_limit_of_connections),
		T(test_running_out_of_descriptors_pauses),
		T(test_other_errors_do_not_pause),
		T(test_redirected_connections_are_told_apart),
		T(test_original_destination),
		T(test_original_destination_of_ipv6),
		T(test_no_original_destination),
		T(test_uid_of_a_client),
		T(test_uid_of_a_closed_client_is_not_known),
		T(test_drained_proxy_accepts_nothing),
	};

	return cmocka_run_group_tests(tests, bed_setup_pki, bed_teardown_pki);
}
