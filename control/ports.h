/* Listening sockets, opened once by the supervisor and held for life: while a worker is restarted,
 * connections wait in the backlog, and nobody else can take the port. */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/netaddr.h"

#define PORTS_BACKLOG 4096 /* what the kernel makes of it is net.core.somaxconn */

/* One TCP listener: non-blocking, close-on-exec, IPv6 only where it is IPv6, SO_REUSEADDR but no
 * SO_REUSEPORT (with that, another process of the same user could share the port). A negated
 * errno. */
CHECKED int ports_listen(const struct netaddr *addr, uint16_t port, int *fd);

struct ports_place {
	struct netaddr addr;
	uint16_t port;
	bool any;            /* every address of both families, whatever addr */
	const char *setting; /* for messages: its variable and key */
};

/* The listener at a place and, if that is 127.0.0.1 or every address and the system has IPv6, one
 * at
 * [::1] or [::] (else *fd_v6 is -1). The message says which address and how to change it. */
CHECKED int ports_open(const struct ports_place *place, int *fd, int *fd_v6, struct errmsg *msg);

/* "127.0.0.1:18081", "[::1]:18081". */
#define PORTS_TEXT_MAX (NETADDR_TEXT_MAX + 8)
void ports_text(const struct netaddr *addr, uint16_t port, char buf[PORTS_TEXT_MAX]);
