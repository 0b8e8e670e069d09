/* The guard's netlink sockets. After it: batch.c (changes), watch.c (what is there), links.c. */
#include "nft/netlink.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <sys/time.h>

/* A batch must fit the socket in one piece, and its answer too. Limits of ordinary users are lower,
 * hence the FORCE options; without the right for them the small size is tried. */
#define NETLINK_BUFFER (32 << 20)

int netlink_open(struct netlink *n, int bus, unsigned groups)
{
	const struct timeval wait = {NETLINK_WAIT_MS / 1000, (NETLINK_WAIT_MS % 1000) * 1000};
	const int size = NETLINK_BUFFER;
	int fd;
	int ret;

	*n = (struct netlink){.sock = mnl_socket_open2(bus, SOCK_CLOEXEC)};
	if (!n->sock)
		return -errno;
	fd = mnl_socket_get_fd(n->sock);
	if (mnl_socket_bind(n->sock, groups, MNL_SOCKET_AUTOPID) < 0 ||
		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait)) < 0) {
		ret = -errno;
		netlink_close(n);
		return ret;
	}
	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size)) < 0)
		(void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size)) < 0)
		(void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
	n->port = mnl_socket_get_portid(n->sock);
	return 0;
}

void netlink_close(struct netlink *n)
{
	if (n->sock)
		(void)mnl_socket_close(n->sock);
	n->sock = NULL;
}

int netlink_fd(const struct netlink *n)
{
	return n->sock ? mnl_socket_get_fd(n->sock) : -1;
}

struct nlmsghdr *netlink_nft_msg(void *buf, uint16_t type, uint16_t flags, uint8_t family)
{
	struct nlmsghdr *m = mnl_nlmsg_put_header(buf);
	struct nfgenmsg *g;

	m->nlmsg_type = type;
	m->nlmsg_flags = (uint16_t)(NLM_F_REQUEST | flags);
	g = mnl_nlmsg_put_extra_header(m, sizeof(*g));
	g->nfgen_family = family;
	g->version = NFNETLINK_V0;
	return m;
}

int netlink_ask(struct netlink *n, struct nlmsghdr *m, mnl_cb_t cb, void *arg)
{
	_Alignas(struct nlmsghdr) uint8_t answer[NETLINK_MSG_MAX];
	int ret = MNL_CB_OK;

	m->nlmsg_seq = ++n->seq;
	if (mnl_socket_sendto(n->sock, m, m->nlmsg_len) < 0)
		return -errno;
	while (ret != MNL_CB_STOP) {
		ssize_t len = mnl_socket_recvfrom(n->sock, answer, sizeof(answer));

		if (len < 0 && errno == EINTR)
			continue;
		if (len < 0)
			return errno == EAGAIN ? -ETIMEDOUT : -errno;
		ret = mnl_cb_run(answer, (size_t)len, m->nlmsg_seq, n->port, cb, arg);
		/* ESRCH: an answer to a question that timed out before this one. */
		if (ret < 0 && errno != ESRCH)
			return -errno;
	}
	return 0;
}

static int netlink_on_generation(const struct nlmsghdr *m, void *arg)
{
	uint32_t *id = arg;
	struct nlattr *a;

	mnl_attr_for_each(a, m, sizeof(struct nfgenmsg))
	{
		if (mnl_attr_get_type(a) == NFTA_GEN_ID && mnl_attr_validate(a, MNL_TYPE_U32) >= 0)
			*id = ntohl(mnl_attr_get_u32(a));
	}
	return MNL_CB_OK;
}

int netlink_generation(struct netlink *n, uint32_t *out)
{
	_Alignas(struct nlmsghdr) uint8_t buf[256];
	struct nlmsghdr *m = netlink_nft_msg(
		buf, NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_GETGEN, NLM_F_ACK, AF_UNSPEC);

	return netlink_ask(n, m, netlink_on_generation, out);
}
