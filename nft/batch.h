/* One nftables transaction: messages that take effect together or not at all, and the kernel's
 * acknowledgement. Each message is marked with the part of the protection that it is for, so that a
 * refusal can be answered by leaving that part out. */
#pragma once

#include "nft/netlink.h"

/* RULESET_ENTRIES_MAX entries of the largest kind (two keys of IPv6, protocol and port: 100 bytes),
 * and the rules. */
#define BATCH_MAX (12u << 20)

struct batch {
	uint8_t *p;
	size_t len;
	size_t cap;
	uint8_t *part; /* of each message, in order; enum guard_part */
	size_t n;
	size_t part_cap;
	bool full; /* past BATCH_MAX: the commit fails */
};

void batch_init(struct batch *b);
/* Keeps the memory. */
void batch_clear(struct batch *b);
void batch_fini(struct batch *b);

/* A message NFT_MSG_* of the family; the caller adds attributes, at most NETLINK_MSG_MAX bytes, and
 * closes it before it opens the next. */
struct nlmsghdr *batch_open(
	struct batch *b, uint8_t type, uint16_t flags, uint8_t family, enum guard_part part);
void batch_close(struct batch *b, const struct nlmsghdr *m);

/* Sends all and waits for the acknowledgement. 0: committed. A negated errno: nothing changed, and
 * *part is that of the first message refused (GUARD_PART_MAX: no single one). */
CHECKED int batch_commit(struct batch *b, struct netlink *n, enum guard_part *part);
