/* Opening the listeners. Called by the supervisor at its start; the worker gets them by role. */
#include "control/ports.h"

#include <errno.h>
#include <stdio.h>
#include <sys/fsuid.h>
#include <unistd.h>

static int ports_setup(int fd, const struct netaddr *addr, uint16_t port, bool udp)
{
	struct sockaddr_storage sa;
	socklen_t len = netaddr_to_sockaddr(addr, port, &sa);
	const int one = 1;

	if (!udp && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0)
		return -errno;
	if (sa.ss_family == AF_INET6 &&
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one)) < 0)
		return -errno;
	if (bind(fd, (const struct sockaddr *)&sa, len) < 0)
		return -errno;
	return udp || listen(fd, PORTS_BACKLOG) == 0 ? 0 : -errno;
}

int ports_bind(const struct netaddr *addr, uint16_t port, bool udp, int *fd)
{
	int family = netaddr_is_v4(addr) ? AF_INET : AF_INET6;
	int kind = udp ? SOCK_DGRAM : SOCK_STREAM;
	int ret;

	*fd = socket(family, kind | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (*fd < 0)
		return -errno;
	ret = ports_setup(*fd, addr, port, udp);
	if (ret < 0) {
		(void)close(*fd);
		*fd = -1;
	}
	return ret;
}

void ports_text(const struct netaddr *addr, uint16_t port, char buf[PORTS_TEXT_MAX])
{
	char text[NETADDR_TEXT_MAX];

	(void)netaddr_text(addr, text);
	(void)snprintf(buf, PORTS_TEXT_MAX, netaddr_is_v4(addr) ? "%s:%u" : "[%s]:%u", text,
		(unsigned)port);
}

static int ports_fail(
	struct errmsg *msg, const struct ports_place *place, const struct netaddr *addr, int err)
{
	char text[PORTS_TEXT_MAX];

	ports_text(addr, place->port, text);
	return errmsg_set(msg, err,
		"%s: cannot listen%s: %s: expected a free address of this host (%s)", text,
		place->udp ? " (UDP)" : "", err_text(err), place->setting);
}

/* The kernel's rules let only the worker's sockets speak from our ports, and whose a socket is it
 * tells by the user that made it. */
static int ports_bind_owned(const struct ports_place *place, const struct netaddr *addr, int *fd)
{
	const int room = PORTS_UDP_BYTES;
	int ret;

	if (geteuid() == 0)
		(void)setfsuid(place->owner);
	ret = ports_bind(addr, place->port, place->udp, fd);
	(void)setfsuid(geteuid());
	/* Past net.core.rmem_max with CAP_NET_ADMIN, else up to it. */
	if (ret == 0 && place->udp &&
		setsockopt(*fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room)) < 0)
		(void)setsockopt(*fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
	return ret;
}

int ports_open(const struct ports_place *place, int *fd, int *fd_v6, struct errmsg *msg)
{
	static const struct netaddr loopback6 = {.b = {[15] = 1}};
	static const struct netaddr any6 = {.b = {0}};
	static const struct netaddr any4 = {.b = {[10] = 0xff, [11] = 0xff}};
	const struct netaddr *addr = place->any ? &any4 : &place->addr;
	const struct netaddr *addr6 = place->any ? &any6 : &loopback6;
	struct netaddr loopback4;
	int ret;

	*fd_v6 = -1;
	ret = ports_bind_owned(place, addr, fd);
	if (ret < 0)
		return ports_fail(msg, place, addr, ret);
	if (!place->any &&
		(!netaddr_parse(SLICE("127.0.0.1"), &loopback4) || !netaddr_eq(addr, &loopback4)))
		return 0;
	ret = ports_bind_owned(place, addr6, fd_v6);
	/* No IPv6 in this kernel, or switched off in this namespace. */
	if (ret == 0 || ret == -EAFNOSUPPORT || ret == -EADDRNOTAVAIL)
		return 0;
	(void)close(*fd);
	*fd = -1;
	return ports_fail(msg, place, addr6, ret);
}
