/* Sockets with a port of ours, opened once by the supervisor and held for life: while a worker is
 * restarted, connections wait in the backlog, and nobody else can take the port. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/netaddr.h"

/* The kernel's default holds 270 small questions: less than a busy moment of 10,000 a second. */
#define PORTS_UDP_BYTES (1 << 20)
#define PORTS_BACKLOG 4096 /* what the kernel makes of it is net.core.somaxconn */

/* One socket: non-blocking, close-on-exec, IPv6 only where it is IPv6. TCP listens, with
 * SO_REUSEADDR; UDP is bound without it, and neither has SO_REUSEPORT: with those another process
 * of the same user could share the port. A negated errno. */
CHECKED int ports_bind(const struct netaddr *addr, uint16_t port, bool udp, int *fd);

struct ports_place {
	struct netaddr addr;
	uint16_t port;
	bool any;            /* every address of both families, whatever addr */
	bool udp;            /* a bound socket; else a TCP listener */
	uid_t owner;         /* as root: the user whose socket it is for the kernel's rules */
	const char *setting; /* for messages: its variable and key */
};

/* The socket at a place and, if that is 127.0.0.1 or every address and the system has IPv6, one at
 * [::1] or [::] (else *fd_v6 is -1). The message says which address and how to change it. */
CHECKED int ports_open(const struct ports_place *place, int *fd, int *fd_v6, struct errmsg *msg);

/* "127.0.0.1:18081", "[::1]:18081". */
#define PORTS_TEXT_MAX (NETADDR_TEXT_MAX + 8)
void ports_text(const struct netaddr *addr, uint16_t port, char buf[PORTS_TEXT_MAX]);
