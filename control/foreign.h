/* Listeners that are not ours on ports that are: what the sandbox sends to one of our ports might
 * reach somebody else. Ours are known by their inodes; the supervisor holds them for life, so it is
 * another loopback address, or a family that came later, that others can still take. */
#pragma once

#include "dns/conns.h"

#define FOREIGN_OWN_MAX CONNS_PORTS_MAX /* web, API, DNS by UDP and TCP; two families each */

struct foreign {
	struct conns_listener own[FOREIGN_OWN_MAX];
	size_t n;
};

/* One of our sockets, bound; fd < 0: none. -errno; E_LIMIT: more than there can be. */
CHECKED int foreign_add(struct foreign *f, int fd, bool udp);
/* True if this socket has a port of ours on loopback or every address, and is not ours.
 */
bool foreign_is(const struct foreign *f, const struct conns_listener *l);
/* Looks by a descriptor of sock_diag_open. 1: *found is one; 0: there is none; or a negated errno.
 */
CHECKED int foreign_look(const struct foreign *f, int diag_fd, struct conns_listener *found);
