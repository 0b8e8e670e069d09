/* Four dumps of sock_diag: TCP and UDP, IPv4 and IPv6. Before it: leases_renew, twice a minute, for
 * connections; control/foreign, twice a second, for listeners. A family that the kernel does not
 * have gives nothing. */
#include "dns/conns.h"

#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

/* The states of reference 6.5. A UDP socket that is connected counts as established. */
#define CONNS_TCP_STATES                                                                     \
	(BIT(TCP_ESTABLISHED) | BIT(TCP_SYN_SENT) | BIT(TCP_SYN_RECV) | BIT(TCP_FIN_WAIT1) | \
		BIT(TCP_FIN_WAIT2) | BIT(TCP_CLOSE_WAIT) | BIT(TCP_CLOSING) | BIT(TCP_LAST_ACK))
#define CONNS_BUF (32 * 1024)

/* What is asked for, and who is told. */
struct conns_look {
	conns_cb each;
	conns_listener_cb listener; /* NULL: connections are */
	void *arg;
	uint8_t protocol;
};

struct conns_request {
	struct nlmsghdr nlh;
	struct inet_diag_req_v2 req;
};

int conns_open(void)
{
	struct timeval limit = {0, 50000};
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);

	if (fd < 0)
		return -errno;
	/* Against the impossible. */
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	return fd;
}

static struct netaddr conns_addr(const struct inet_diag_msg *m, const __be32 from[4])
{
	struct netaddr a = {{[10] = 0xff, [11] = 0xff}};

	if (m->idiag_family == AF_INET)
		memcpy(a.b + 12, from, 4);
	else
		memcpy(a.b, from, 16);
	return a;
}

static void conns_tell(struct nlmsghdr *nlh, const struct conns_look *l)
{
	const struct inet_diag_msg *m = NLMSG_DATA(nlh);
	struct conns_listener found;
	struct netaddr a;

	if (nlh->nlmsg_len < NLMSG_LENGTH(sizeof(*m)))
		return;
	if (!l->listener) {
		a = conns_addr(m, m->id.idiag_dst);
		l->each(&a, l->arg);
		return;
	}
	found = (struct conns_listener){.addr = conns_addr(m, m->id.idiag_src),
		.port = ntohs(m->id.idiag_sport),
		.udp = l->protocol == IPPROTO_UDP,
		.inode = m->idiag_inode};
	l->listener(&found, l->arg);
}

/* One datagram of the answer. 1: more follow. */
static int conns_read(int fd, const struct conns_look *l)
{
	_Alignas(struct nlmsghdr) char buf[CONNS_BUF];
	struct nlmsghdr *nlh = (struct nlmsghdr *)buf;
	const struct nlmsgerr *e;
	ssize_t n;
	unsigned left;

	do
		n = recv(fd, buf, sizeof(buf), 0);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	for (left = (unsigned)n; NLMSG_OK(nlh, left); nlh = NLMSG_NEXT(nlh, left)) {
		if (nlh->nlmsg_type == NLMSG_DONE)
			return 0;
		if (nlh->nlmsg_type == NLMSG_ERROR) {
			e = NLMSG_DATA(nlh);
			return nlh->nlmsg_len < NLMSG_LENGTH(sizeof(*e)) ? -EPROTO : e->error;
		}
		if (nlh->nlmsg_type == SOCK_DIAG_BY_FAMILY)
			conns_tell(nlh, l);
	}
	return 1;
}

/* TCP_CLOSE is what a UDP socket is in that is not connected. */
static uint32_t conns_states(const struct conns_look *l)
{
	if (l->listener)
		return l->protocol == IPPROTO_TCP ? BIT(TCP_LISTEN) : BIT(TCP_CLOSE);
	return l->protocol == IPPROTO_TCP ? CONNS_TCP_STATES : BIT(TCP_ESTABLISHED);
}

static int conns_dump(int fd, int family, const struct conns_look *l)
{
	static const struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
	struct conns_request r;
	int ret;

	memset(&r, 0, sizeof(r));
	r.nlh.nlmsg_len = sizeof(r);
	r.nlh.nlmsg_type = SOCK_DIAG_BY_FAMILY;
	r.nlh.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
	r.req.sdiag_family = (uint8_t)family;
	r.req.sdiag_protocol = l->protocol;
	r.req.idiag_states = conns_states(l);
	if (sendto(fd, &r, sizeof(r), 0, (const struct sockaddr *)&kernel, sizeof(kernel)) < 0)
		return -errno;
	do
		ret = conns_read(fd, l);
	while (ret == 1);
	return ret == -ENOENT ? 0 : ret; /* no such family or protocol */
}

static int conns_all(int fd, struct conns_look *l)
{
	static const int families[] = {AF_INET, AF_INET6};
	static const uint8_t protocols[] = {IPPROTO_TCP, IPPROTO_UDP};
	int ret = 0;
	size_t i, k;
	int one;

	for (i = 0; i < ARRAY_LEN(families); i++) {
		for (k = 0; k < ARRAY_LEN(protocols); k++) {
			l->protocol = protocols[k];
			one = conns_dump(fd, families[i], l);
			if (one < 0)
				ret = one;
		}
	}
	return ret;
}

int conns_each(int fd, conns_cb each, void *arg)
{
	struct conns_look l = {.each = each, .arg = arg};

	return conns_all(fd, &l);
}

int conns_each_listener(int fd, conns_listener_cb each, void *arg)
{
	struct conns_look l = {.listener = each, .arg = arg};

	return conns_all(fd, &l);
}
