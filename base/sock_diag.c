/* Before it: dns/conns, control/packet_sockets. After it: the kernel. */
#include "base/sock_diag.h"

#include <errno.h>
#include <linux/sock_diag.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>

#define SOCK_DIAG_BUF (32 * 1024)

int sock_diag_open(void)
{
	struct timeval limit = {0, 50000};
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);

	if (fd < 0)
		return -errno;
	/* Against the impossible. */
	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	return fd;
}

/* One datagram of the answer. 1: more follow. */
static int sock_diag_read(int fd, size_t least, sock_diag_cb each, void *arg)
{
	_Alignas(struct nlmsghdr) char buf[SOCK_DIAG_BUF];
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
		if (nlh->nlmsg_type == SOCK_DIAG_BY_FAMILY && NLMSG_PAYLOAD(nlh, 0) >= least)
			each(NLMSG_DATA(nlh), NLMSG_PAYLOAD(nlh, 0), arg);
	}
	return 1;
}

int sock_diag_dump(
	int fd, const void *req, size_t req_len, size_t least, sock_diag_cb each, void *arg)
{
	struct nlmsghdr nlh = {.nlmsg_len = (uint32_t)NLMSG_LENGTH(req_len),
		.nlmsg_type = SOCK_DIAG_BY_FAMILY,
		.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP};
	struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
	struct iovec iov[] = {{&nlh, sizeof(nlh)}, {(void *)(uintptr_t)req, req_len}};
	const struct msghdr m = {.msg_name = &kernel,
		.msg_namelen = sizeof(kernel),
		.msg_iov = iov,
		.msg_iovlen = 2};
	int ret;

	if (sendmsg(fd, &m, 0) < 0)
		return -errno;
	do
		ret = sock_diag_read(fd, least, each, arg);
	while (ret == 1);
	return ret;
}
