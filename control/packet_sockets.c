/* Before it: worker_watch, twice a second. After it: base/sock_diag. */
#include "control/packet_sockets.h"

#include <errno.h>
#include <linux/packet_diag.h>
#include <linux/rtnetlink.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>

#include "base/sock_diag.h"

/* UINT32_MAX if the kernel does not say. */
static uint32_t packet_sockets_uid(const struct packet_diag_msg *m, size_t len)
{
	/* Not changed: the macros of the header take const away. */
	struct rtattr *a = (struct rtattr *)(uintptr_t)(m + 1);
	size_t left = len - sizeof(*m);
	uint32_t uid = UINT32_MAX;

	for (; RTA_OK(a, left); a = RTA_NEXT(a, left))
		if (a->rta_type == PACKET_DIAG_UID && RTA_PAYLOAD(a) == sizeof(uid))
			memcpy(&uid, RTA_DATA(a), sizeof(uid));
	return uid;
}

static void on_packet_socket(const void *msg, size_t len, void *arg)
{
	const struct packet_diag_msg *m = msg;
	struct packet_sockets *p = arg;

	p->open++;
	if (p->n < PACKET_SOCKETS_MAX)
		p->v[p->n++] = (struct packet_socket){m->pdiag_ino, packet_sockets_uid(m, len)};
}

static bool packet_sockets_has(const struct packet_sockets *p, uint32_t inode)
{
	for (size_t i = 0; i < p->n; i++)
		if (p->v[i].inode == inode)
			return true;
	return false;
}

int packet_sockets_look(struct packet_sockets *p, int diag_fd,
	void (*opened)(const struct packet_socket *s, void *arg), void *arg)
{
	const struct packet_diag_req req = {
		.sdiag_family = AF_PACKET, .pdiag_show = PACKET_SHOW_INFO};
	struct packet_sockets now = {.n = 0};
	int ret = sock_diag_dump(
		diag_fd, &req, sizeof(req), sizeof(struct packet_diag_msg), on_packet_socket, &now);

	if (ret == -ENOENT)
		ret = 0;
	if (ret < 0)
		return ret;
	for (size_t i = 0; i < now.n; i++)
		if (!packet_sockets_has(p, now.v[i].inode))
			opened(&now.v[i], arg);
	*p = now;
	return 0;
}
