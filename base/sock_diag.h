/* The kernel's lists of sockets of this network namespace, whoever has them (sock_diag(7)). The
 * kernel answers within the system calls: nothing is waited for. */
#pragma once

#include <linux/netlink.h>
#include <stddef.h>

#include "base/err.h"

/* A netlink descriptor, or a negated errno. */
CHECKED int sock_diag_open(void);

/* One socket of the answer; m is at least `least` bytes long. */
typedef void (*sock_diag_cb)(const void *m, size_t len, void *arg);

/* Asks for all sockets that fit `req` (req_len bytes, what follows the header of a
 * SOCK_DIAG_BY_FAMILY request) and calls each for every one; answers with less than `least` bytes
 * are left out. 0 or a negated errno, then it may be a part. -ENOENT: no such family. */
CHECKED int sock_diag_dump(
	int fd, const void *req, size_t req_len, size_t least, sock_diag_cb each, void *arg);
