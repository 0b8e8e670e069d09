/* One AF_XDP socket of ours on every queue of every device. AF_XDP sends frames past every hook; a
 * queue takes one socket, so a second bind, the sandbox's, gets EBUSY.
 *
 * socket() needs CAP_NET_RAW, the bind does not: spare ones are opened first, then the right is
 * given up. Where a socket is bound is kept in the socket (its mark and priority), so that the next
 * guard can read it from the copies that the supervisor holds. */
#pragma once

#include "nft/links.h"

enum xsk_use { XSK_FREE, XSK_HOLDS, XSK_SPENT /* its device is gone; it cannot be bound again */ };

struct xsk {
	struct {
		int fd;
		enum xsk_use use;
		int device;
		uint32_t queue;
	} v[GUARD_XSK_MAX];
	size_t n;
	void *memory; /* one page that every socket registers as its buffers; never used */
	uint32_t taken;
	uint32_t shortage;
};

/* Opens GUARD_XSK_MAX sockets. A negated errno if there is not one. */
CHECKED int xsk_open(struct xsk *x);
/* Takes over n descriptors (at most GUARD_XSK_MAX) from an earlier guard. */
CHECKED int xsk_adopt(struct xsk *x, const int *fds, size_t n);
void xsk_close(struct xsk *x);
/* Binds every queue of these devices that is not held, and gives up the sockets of devices that are
 * gone. x->taken: queues that somebody else has; x->shortage: queues without a socket left. 0 or
 * the first unexpected error. */
CHECKED int xsk_hold(struct xsk *x, const struct links *l);
size_t xsk_held(const struct xsk *x);
