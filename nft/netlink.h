/* Netlink sockets for the guard: open, one question with one answer, dumps, and acknowledged
 * batches of nftables changes. All sockets are opened before the guard gives up its rights.
 *
 * Blocking, with a limit of NETLINK_WAIT_MS for an answer; the kernel answers within the call, so
 * only a kernel that lost the answer lets it pass. */
#pragma once

#include <linux/netlink.h>

#include <libmnl/libmnl.h>

#include "nft/guard_msg.h"

#define NETLINK_WAIT_MS 5000
/* A message, its nested element list included, stays below 64 KiB (nla_len has 16 bits). */
#define NETLINK_MSG_MAX 65536

struct netlink {
	struct mnl_socket *sock; /* NULL: not open */
	uint32_t port;
	uint32_t seq;
};

/* bus: NETLINK_NETFILTER, NETLINK_ROUTE. groups: multicast groups as bits. */
CHECKED int netlink_open(struct netlink *n, int bus, unsigned groups);
void netlink_close(struct netlink *n);
int netlink_fd(const struct netlink *n);

/* A message at buf (NETLINK_MSG_MAX) with its header: type and flags; family is that of nfgenmsg
 * where the bus is nfnetlink. */
struct nlmsghdr *netlink_nft_msg(void *buf, uint16_t type, uint16_t flags, uint8_t family);

/* Sends one request and gives each message of the answer to cb (NULL: none is wanted), until the
 * acknowledgement, the end of the dump, or an error. The request asks for one of the first two. */
CHECKED int netlink_ask(struct netlink *n, struct nlmsghdr *m, mnl_cb_t cb, void *arg);

/* The generation of the namespace's ruleset; every commit of anybody changes it. */
CHECKED int netlink_generation(struct netlink *n, uint32_t *out);
