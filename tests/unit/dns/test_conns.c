/* Listeners as the kernel lists them: on the ports that were asked for, and on no other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/slice.h"
#include "base/sock_diag.h"
#include "dns/conns.h"

#define N (CONNS_PORTS_MAX + 4)

struct seen {
	uint16_t ports[64];
	size_t n;
};

static void on_listener(const struct conns_listener *l, void *arg)
{
	struct seen *s = arg;

	assert_true(s->n < ARRAY_LEN(s->ports));
	s->ports[s->n++] = l->port;
}

static size_t count(const struct seen *s, uint16_t port)
{
	size_t n = 0;

	for (size_t i = 0; i < s->n; i++)
		n += s->ports[i] == port;
	return n;
}

static int bound(int family, int type, uint16_t *port)
{
	const struct netaddr any = {{[15] = 1}};
	const struct netaddr v4 = {{[10] = 0xff, 0xff, 127, 0, 0, 1}};
	struct sockaddr_storage sa;
	socklen_t len = netaddr_to_sockaddr(family == AF_INET ? &v4 : &any, 0, &sa);
	struct netaddr a;
	int fd = socket(family, type | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&sa, len) == 0);
	assert_true(type != SOCK_STREAM || listen(fd, 1) == 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&sa, &len), 0);
	assert_true(netaddr_from_sockaddr((struct sockaddr *)&sa, &a, port));
	return fd;
}

static void test_only_listeners_on_these_ports_are_told(void **state)
{
	static const struct {
		int family, type;
	} rows[] = {{AF_INET, SOCK_STREAM}, {AF_INET, SOCK_DGRAM}, {AF_INET6, SOCK_STREAM},
		{AF_INET6, SOCK_DGRAM}};
	static const size_t asked[] = {1, 2, 3, CONNS_PORTS_MAX};
	int diag = sock_diag_open();
	uint16_t ports[N];
	int fds[N];

	if (diag < 0)
		skip();
	for (size_t row = 0; row < ARRAY_LEN(rows); row++) {
		for (size_t i = 0; i < N; i++)
			fds[i] = bound(rows[row].family, rows[row].type, &ports[i]);
		for (size_t k = 0; k < ARRAY_LEN(asked); k++) {
			struct seen s = {.n = 0};

			/* Some in the middle of those that there are. */
			assert_int_equal(
				conns_each_listener(diag, ports + 2, asked[k], on_listener, &s), 0);
			for (size_t i = 0; i < N; i++)
				assert_int_equal(
					count(&s, ports[i]) > 0, i >= 2 && i < 2 + asked[k]);
		}
		for (size_t i = 0; i < N; i++)
			(void)close(fds[i]);
	}
	(void)close(diag);
}

static void on_remote(const struct netaddr *remote, void *arg)
{
	const struct netaddr v4 = {{[10] = 0xff, 0xff, 127, 7, 7, 7}};
	size_t *n = arg;

	*n += netaddr_eq(remote, &v4);
}

static void test_a_connection_is_told_by_its_remote_end(void **state)
{
	const struct netaddr to = {{[10] = 0xff, 0xff, 127, 7, 7, 7}};
	struct sockaddr_storage sa;
	socklen_t len = netaddr_to_sockaddr(&to, 9, &sa);
	int diag = sock_diag_open();
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	size_t n = 0;

	if (diag < 0)
		skip();
	assert_int_equal(conns_each(diag, on_remote, &n), 0);
	assert_int_equal(n, 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&sa, len), 0);
	assert_int_equal(conns_each(diag, on_remote, &n), 0);
	assert_int_equal(n, 1);
	(void)close(fd);
	(void)close(diag);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_only_listeners_on_these_ports_are_told),
		cmocka_unit_test(test_a_connection_is_told_by_its_remote_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
