/* Transactions. Before it: tables.c and elem.c, which write the messages. */
#include "nft/batch.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <stdlib.h>

#include "base/arena.h"

/* The answer to a commit, gathered from one or more packets. */
struct batch_answer {
	uint32_t first; /* number of the message that begins the batch */
	uint32_t last;  /* of the one that asks for the acknowledgement */
	uint32_t failed;
	int err;
	bool done;
};

static uint8_t *batch_room(struct batch *b, size_t len)
{
	if (b->len + len > b->cap) {
		b->cap = 2 * (b->len + len);
		b->p = xrealloc(b->p, b->cap);
	}
	return b->p + b->len;
}

/* BATCH_BEGIN and BATCH_END; the numbers are given at the commit. */
static void batch_mark(struct batch *b, uint16_t type)
{
	struct nlmsghdr *m = netlink_nft_msg(batch_room(b, NETLINK_MSG_MAX), type, 0, AF_UNSPEC);
	struct nfgenmsg *g = mnl_nlmsg_get_payload(m);

	g->res_id = htons(NFNL_SUBSYS_NFTABLES);
	b->len += NLMSG_ALIGN(m->nlmsg_len);
}

void batch_init(struct batch *b)
{
	*b = (struct batch){0};
	batch_clear(b);
}

void batch_clear(struct batch *b)
{
	b->len = 0;
	b->n = 0;
	b->full = false;
	batch_mark(b, NFNL_MSG_BATCH_BEGIN);
}

void batch_fini(struct batch *b)
{
	free(b->p);
	free(b->part);
	*b = (struct batch){0};
}

struct nlmsghdr *batch_open(
	struct batch *b, uint8_t type, uint16_t flags, uint8_t family, enum guard_part part)
{
	if (b->n == b->part_cap) {
		b->part_cap = b->part_cap ? 2 * b->part_cap : 256;
		b->part = xrealloc(b->part, b->part_cap);
	}
	b->part[b->n++] = (uint8_t)part;
	return netlink_nft_msg(batch_room(b, NETLINK_MSG_MAX),
		(uint16_t)(NFNL_SUBSYS_NFTABLES << 8 | type), flags, family);
}

void batch_close(struct batch *b, const struct nlmsghdr *m)
{
	REQUIRE(m->nlmsg_len <= NETLINK_MSG_MAX);
	/* Past the ceiling the message is given up, but its slot stays, so that callers need no
	 * check of their own. */
	if (b->len + m->nlmsg_len > BATCH_MAX) {
		b->full = true;
		return;
	}
	b->len += NLMSG_ALIGN(m->nlmsg_len);
}

/* Numbers all messages from n->seq on; the last one of the content asks for the acknowledgement,
 * which comes after the commit. */
static void batch_number(struct batch *b, struct netlink *n, struct batch_answer *a)
{
	uint32_t seq = n->seq;
	size_t at = 0;

	a->first = seq + 1;
	a->last = seq + 1 + (uint32_t)b->n;
	while (at < b->len) {
		struct nlmsghdr *m = (struct nlmsghdr *)(void *)(b->p + at);

		m->nlmsg_seq = ++seq;
		if (seq == a->last)
			m->nlmsg_flags |= NLM_F_ACK;
		at += NLMSG_ALIGN(m->nlmsg_len);
	}
	n->seq = seq;
}

static void batch_answer_take(struct batch_answer *a, const struct nlmsghdr *m)
{
	const struct nlmsgerr *e = mnl_nlmsg_get_payload(m);

	if (m->nlmsg_type != NLMSG_ERROR || m->nlmsg_len < MNL_NLMSG_HDRLEN + sizeof(e->error) ||
		m->nlmsg_seq - a->first > a->last - a->first)
		return;
	if (e->error != 0 && a->err == 0) {
		a->err = e->error;
		a->failed = m->nlmsg_seq;
	}
	/* An error that names the begin is about the whole; no other answer need come after it. */
	if (m->nlmsg_seq == a->last || (m->nlmsg_seq == a->first && e->error != 0))
		a->done = true;
}

static int batch_wait(struct netlink *n, struct batch_answer *a)
{
	_Alignas(struct nlmsghdr) uint8_t buf[NETLINK_MSG_MAX];

	while (!a->done) {
		ssize_t got = mnl_socket_recvfrom(n->sock, buf, sizeof(buf));
		struct nlmsghdr *m = (struct nlmsghdr *)(void *)buf;
		int left = (int)got;

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return errno == EAGAIN ? -ETIMEDOUT : -errno;
		for (; mnl_nlmsg_ok(m, left); m = mnl_nlmsg_next(m, &left))
			batch_answer_take(a, m);
	}
	return a->err;
}

int batch_commit(struct batch *b, struct netlink *n, enum guard_part *part)
{
	struct batch_answer a = {0};
	int ret;

	*part = GUARD_PART_MAX;
	if (b->full)
		return -EMSGSIZE;
	if (b->n == 0)
		return 0;
	batch_mark(b, NFNL_MSG_BATCH_END);
	batch_number(b, n, &a);
	if (mnl_socket_sendto(n->sock, b->p, b->len) < 0)
		return -errno;
	ret = batch_wait(n, &a);
	if (ret < 0 && a.failed > a.first && a.failed <= a.last)
		*part = (enum guard_part)b->part[a.failed - a.first - 1];
	return ret;
}
