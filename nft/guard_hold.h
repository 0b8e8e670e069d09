/* What passes between supervisor and guard at the guard's start: its AF_XDP sockets, once, either
 * way (struct guard_hold in guard_msg.h). Used by both. */
#pragma once

#include "nft/guard_msg.h"

/* n: 0..GUARD_XSK_MAX; the descriptors stay the caller's. A negated errno. */
CHECKED int guard_hold_send(int fd, const int *fds, size_t n);
/* The descriptors are the caller's, close-on-exec. E_EOF: the other side has ended; E_SYNTAX: what
 * came is no such message (its descriptors are closed). */
CHECKED int guard_hold_receive(int fd, int fds[GUARD_XSK_MAX], size_t *n);
