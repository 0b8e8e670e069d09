/* sock_diag: one exact question for the client's end of an accepted connection, or for the socket
 * that a datagram came from. Answered by the kernel at once, in the same system call; a short
 * receive timeout guards against the impossible. */
#include "audit/client_uid.h"

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

static void diag_fill(struct diag_request *r, uint8_t protocol, const struct client_uid_to *from,
	const struct client_uid_to *to)
{
	memset(r, 0, sizeof(*r));
	r->nlh.nlmsg_len = sizeof(*r);
	r->nlh.nlmsg_type = SOCK_DIAG_BY_FAMILY;
	r->nlh.nlmsg_flags = NLM_F_REQUEST;
	r->req.sdiag_family = netaddr_is_v4(&from->addr) ? AF_INET : AF_INET6;
	r->req.sdiag_protocol = protocol;
	r->req.idiag_states = ~0U;
	r->req.id.idiag_sport = htons(from->port);
	r->req.id.idiag_dport = htons(to->port);
	diag_end(&from->addr, r->req.id.idiag_src);
	diag_end(&to->addr, r->req.id.idiag_dst);
	r->req.id.idiag_cookie[0] = r->req.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
}

static uint32_t diag_ask(int diag_fd, const struct diag_request *r)
{
	static const struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
	_Alignas(struct nlmsghdr) char answer[1024];
	struct nlmsghdr *nlh = (struct nlmsghdr *)answer;
	const struct inet_diag_msg *msg;
	ssize_t n;

	if (sendto(diag_fd, r, sizeof(*r), 0, (const struct sockaddr *)&kernel, sizeof(kernel)) < 0)
		return AUDIT_UID_NONE;
	do
		n = recv(diag_fd, answer, sizeof(answer), 0);
	while (n < 0 && errno == EINTR);
	if (n < (ssize_t)(sizeof(*nlh) + sizeof(*msg)) || nlh->nlmsg_type != SOCK_DIAG_BY_FAMILY)
		return AUDIT_UID_NONE;
	msg = NLMSG_DATA(nlh);
	/* Where there is no such connection the kernel takes whoever listens on the client's port.
	 */
	if (msg->idiag_state == TCP_LISTEN)
		return AUDIT_UID_NONE;
	/* a closed client leaves a socket in TIME_WAIT or an orphan that says uid 0 */
	if (msg->idiag_inode == 0)
		return AUDIT_UID_NONE;
	return msg->idiag_uid;
}

uint32_t client_uid_find(int diag_fd, int fd, const struct client_uid_to *to)
{
	struct sockaddr_storage local, peer;
	socklen_t local_len = sizeof(local), peer_len = sizeof(peer);
	struct client_uid_to from, own;
	struct diag_request r;

	if (diag_fd < 0 || getsockname(fd, (struct sockaddr *)&local, &local_len) < 0 ||
		getpeername(fd, (struct sockaddr *)&peer, &peer_len) < 0 ||
		!netaddr_from_sockaddr((struct sockaddr *)&local, &own.addr, &own.port) ||
		!netaddr_from_sockaddr((struct sockaddr *)&peer, &from.addr, &from.port))
		return AUDIT_UID_NONE;
	/* the client's view: its source is our peer */
	diag_fill(&r, IPPROTO_TCP, &from, to ? to : &own);
	return diag_ask(diag_fd, &r);
}

uint32_t client_uid_find_udp(
	int diag_fd, const struct sockaddr_storage *peer, const struct client_uid_to *to)
{
	struct client_uid_to from;
	struct diag_request r;

	if (diag_fd < 0 ||
		!netaddr_from_sockaddr((const struct sockaddr *)peer, &from.addr, &from.port))
		return AUDIT_UID_NONE;
	/* for UDP the kernel takes the two ends the other way round */
	diag_fill(&r, IPPROTO_UDP, to, &from);
	return diag_ask(diag_fd, &r);
}
