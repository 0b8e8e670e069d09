/* Before it: supervisor_guard.c, or guard_main.c. After it: the other of the two. */
#include "nft/guard_hold.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

/* Room for the descriptors of one message. */
union guard_ancillary {
	struct cmsghdr align;
	char room[CMSG_SPACE(GUARD_XSK_MAX * sizeof(int))];
};

int guard_hold_send(int fd, const int *fds, size_t n)
{
	struct guard_hold hold = {.magic = GUARD_HOLD_MAGIC, .n = (uint32_t)n};
	union guard_ancillary anc = {0};
	struct iovec iov = {&hold, sizeof(hold)};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
	struct cmsghdr *c;

	REQUIRE(n <= GUARD_XSK_MAX);
	if (n > 0) {
		m.msg_control = anc.room;
		m.msg_controllen = CMSG_SPACE(n * sizeof(int));
		c = CMSG_FIRSTHDR(&m);
		REQUIRE(c != NULL);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(n * sizeof(int));
		memcpy(CMSG_DATA(c), fds, n * sizeof(int));
	}
	return sendmsg(fd, &m, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

int guard_hold_receive(int fd, int fds[GUARD_XSK_MAX], size_t *n)
{
	struct guard_hold hold = {0};
	union guard_ancillary anc;
	struct iovec iov = {&hold, sizeof(hold)};
	struct msghdr m = {.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = anc.room,
		.msg_controllen = sizeof(anc.room)};
	const struct cmsghdr *c;
	ssize_t got = recvmsg(fd, &m, MSG_CMSG_CLOEXEC);

	*n = 0;
	if (got <= 0)
		return got < 0 ? -errno : E_EOF;
	c = CMSG_FIRSTHDR(&m);
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
		*n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		memcpy(fds, CMSG_DATA(c), *n * sizeof(int));
	}
	if (got == (ssize_t)sizeof(hold) && hold.magic == GUARD_HOLD_MAGIC && hold.n == *n &&
		!(m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)))
		return 0;
	while (*n > 0)
		(void)close(fds[--*n]);
	return E_SYNTAX;
}
