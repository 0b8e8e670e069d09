/* sock_diag: one exact question for the client's end of an accepted connection. Answered by the
 * kernel at once, in the same system call; a short receive timeout guards against the impossible.
 */
#include "proxy/client_uid.h"

#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "audit/event.h"

struct diag_request {
	struct nlmsghdr nlh;
	struct inet_diag_req_v2 req;
};

int client_uid_open(void)
{
	struct timeval limit = {0, 50000};
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);

	if (fd >= 0)
		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	return fd;
}

/* Fills one end of the question: an IPv4 socket is asked for as such, also through a dual-stack
 * one. */
static void diag_end(const struct netaddr *a, __be32 out[4])
{
	if (netaddr_is_v4(a))
		memcpy(out, a->b + 12, 4);
	else
		memcpy(out, a->b, 16);
}

static bool diag_fill(int fd, struct diag_request *r)
{
	struct sockaddr_storage local, peer;
	socklen_t local_len = sizeof(local), peer_len = sizeof(peer);
	struct netaddr l, p;
	uint16_t lport, pport;

	if (getsockname(fd, (struct sockaddr *)&local, &local_len) < 0 ||
		getpeername(fd, (struct sockaddr *)&peer, &peer_len) < 0 ||
		!netaddr_from_sockaddr((struct sockaddr *)&local, &l, &lport) ||
		!netaddr_from_sockaddr((struct sockaddr *)&peer, &p, &pport))
		return false;
	memset(r, 0, sizeof(*r));
	r->nlh.nlmsg_len = sizeof(*r);
	r->nlh.nlmsg_type = SOCK_DIAG_BY_FAMILY;
	r->nlh.nlmsg_flags = NLM_F_REQUEST;
	r->req.sdiag_family = netaddr_is_v4(&p) ? AF_INET : AF_INET6;
	r->req.sdiag_protocol = IPPROTO_TCP;
	r->req.idiag_states = ~0U;
	/* the client's view: its source is our peer */
	r->req.id.idiag_sport = htons(pport);
	r->req.id.idiag_dport = htons(lport);
	diag_end(&p, r->req.id.idiag_src);
	diag_end(&l, r->req.id.idiag_dst);
	r->req.id.idiag_cookie[0] = r->req.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
	return true;
}

uint32_t client_uid_find(int diag_fd, int fd)
{
	static const struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
	_Alignas(struct nlmsghdr) char answer[1024];
	struct nlmsghdr *nlh = (struct nlmsghdr *)answer;
	const struct inet_diag_msg *msg;
	struct diag_request r;
	ssize_t n;

	if (diag_fd < 0 || !diag_fill(fd, &r))
		return AUDIT_UID_NONE;
	if (sendto(diag_fd, &r, sizeof(r), 0, (const struct sockaddr *)&kernel, sizeof(kernel)) < 0)
		return AUDIT_UID_NONE;
	do
		n = recv(diag_fd, answer, sizeof(answer), 0);
	while (n < 0 && errno == EINTR);
	if (n < (ssize_t)(sizeof(*nlh) + sizeof(*msg)) || nlh->nlmsg_type != SOCK_DIAG_BY_FAMILY)
		return AUDIT_UID_NONE;
	msg = NLMSG_DATA(nlh);
	/* a closed client leaves a socket in TIME_WAIT or an orphan that says uid 0 */
	if (msg->idiag_inode == 0)
		return AUDIT_UID_NONE;
	return msg->idiag_uid;
}
