/* Who is connected, and who listens: the sockets of this network namespace, whoever has them, as
 * the kernel lists them (sock_diag(7)). */
#pragma once

#include "base/err.h"
#include "base/netaddr.h"

typedef void (*conns_cb)(const struct netaddr *remote, void *arg);

/* fd: of sock_diag_open. Calls each for the remote end of every TCP connection that is open,
 * opening or closing, but not in TIME_WAIT, and of every connected UDP socket (QUIC), IPv4 and
 * IPv6. The kernel answers within the system calls: nothing is waited for. 0 or a negated errno,
 * then it may be a part. */
CHECKED int conns_each(int fd, conns_cb each, void *arg);

struct conns_listener {
	struct netaddr addr; /* its own */
	uint16_t port;
	bool udp;
	uint32_t inode; /* as fstat gives it to its owner */
};

typedef void (*conns_listener_cb)(const struct conns_listener *l, void *arg);

#define CONNS_PORTS_MAX 8

/* Calls each for every TCP socket that listens and every UDP socket that has a port and is not
 * connected, IPv4 and IPv6, on one of n (at most CONNS_PORTS_MAX) ports. Kernels before 4.16 tell
 * of other ports too. As conns_each otherwise. */
CHECKED int conns_each_listener(
	int fd, const uint16_t *ports, size_t n, conns_listener_cb each, void *arg);
