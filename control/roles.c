/* Descriptors and messages between supervisor and worker. Supervisor sends and receives with these
 * calls; the worker's side of the start is worker_start.c. */
#include "control/roles.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONTROL_MAGIC 0x65677231u /* "egr1": both sides are of the same build */

struct control_packet {
	uint32_t magic;
	uint8_t type;
	uint8_t n; /* descriptors that travel with it */
	uint8_t role[ROLE_MAX];
	int32_t code;
};

union control_ancillary {
	struct cmsghdr align;
	char room[CMSG_SPACE(ROLE_MAX * sizeof(int))];
};

const char *role_text(enum role r)
{
	static const char *const texts[ROLE_MAX] = {
#define X(id, text) [ROLE_##id] = (text),
		ROLE_TABLE(X)
#undef X
	};

	return texts[r];
}

const char *control_text(enum control_type t)
{
	static const char *const texts[CONTROL_MAX] = {
#define X(id, text) [CONTROL_##id] = (text),
		CONTROL_TABLE(X)
#undef X
	};

	return texts[t];
}

void roles_init(struct roles *r)
{
	int i;

	for (i = 0; i < ROLE_MAX; i++)
		r->fd[i] = -1;
}

void roles_fini(struct roles *r)
{
	int i;

	for (i = 0; i < ROLE_MAX; i++) {
		if (r->fd[i] >= 0)
			(void)close(r->fd[i]);
		r->fd[i] = -1;
	}
}

void roles_update(struct roles *r, struct roles *from)
{
	int i;

	for (i = 0; i < ROLE_MAX; i++) {
		if (from->fd[i] < 0)
			continue;
		if (r->fd[i] >= 0)
			(void)close(r->fd[i]);
		r->fd[i] = from->fd[i];
		from->fd[i] = -1;
	}
}

int control_pair(int fds[2])
{
	/* Blocking at the worker's end until it has its loop; it waits for START there. */
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
		return -errno;
	return 0;
}

static int control_send_packet(int fd, enum control_type type, const struct roles *r, int code)
{
	struct control_packet p = {
		.magic = CONTROL_MAGIC, .type = (uint8_t)type, .code = (int32_t)code};
	union control_ancillary anc;
	struct iovec iov = {&p, sizeof(p)};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
	struct cmsghdr *c;
	int fds[ROLE_MAX];
	ssize_t n;
	int i;

	for (i = 0; r && i < ROLE_MAX; i++) {
		if (r->fd[i] < 0)
			continue;
		fds[p.n] = r->fd[i];
		p.role[p.n++] = (uint8_t)i;
	}
	if (p.n > 0) {
		memset(&anc, 0, sizeof(anc));
		m.msg_control = anc.room;
		m.msg_controllen = CMSG_SPACE(p.n * sizeof(int));
		c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(p.n * sizeof(int));
		memcpy(CMSG_DATA(c), fds, p.n * sizeof(int));
	}
	do {
		n = sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	return n == (ssize_t)sizeof(p) ? 0 : -EIO;
}

int control_send(int fd, enum control_type type, const struct roles *r)
{
	return control_send_packet(fd, type, r, 0);
}

int control_send_code(int fd, enum control_type type, int code)
{
	return control_send_packet(fd, type, NULL, code);
}

/* Takes the descriptors out of the message; the number of them. Room is for ROLE_MAX, the kernel
 * drops more than that and says so (MSG_CTRUNC). */
static size_t control_take_fds(struct msghdr *m, int fds[ROLE_MAX])
{
	struct cmsghdr *c;
	size_t n = 0;

	for (c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		if (n > ROLE_MAX)
			n = ROLE_MAX;
		memcpy(fds, CMSG_DATA(c), n * sizeof(int));
	}
	return n;
}

/* Puts each descriptor to its role. False if the packet is not one of ours; the ones that found no
 * place are closed. */
static bool control_sort(const struct control_packet *p, const int *fds, size_t n, struct roles *r)
{
	bool good = p->magic == CONTROL_MAGIC && p->type < CONTROL_MAX && p->n == n;
	size_t i;

	for (i = 0; i < n; i++) {
		if (good && p->role[i] < ROLE_MAX && r->fd[p->role[i]] < 0) {
			r->fd[p->role[i]] = fds[i];
		} else {
			(void)close(fds[i]);
			good = false;
		}
	}
	return good;
}

int control_receive(int fd, enum control_type *type, struct roles *r)
{
	int code;

	return control_receive_code(fd, type, r, &code);
}

int control_receive_code(int fd, enum control_type *type, struct roles *r, int *code)
{
	struct control_packet p;
	union control_ancillary anc;
	struct iovec iov = {&p, sizeof(p)};
	struct msghdr m = {.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = anc.room,
		.msg_controllen = sizeof(anc.room)};
	int fds[ROLE_MAX];
	ssize_t got;
	size_t n;

	roles_init(r);
	memset(&p, 0, sizeof(p));
	do {
		got = recvmsg(fd, &m, MSG_CMSG_CLOEXEC);
	} while (got < 0 && errno == EINTR);
	if (got < 0)
		return errno == ECONNRESET ? E_EOF : -errno;
	n = control_take_fds(&m, fds);
	if (got == 0 && n == 0)
		return E_EOF;
	if (!control_sort(&p, fds, n, r) || got != (ssize_t)sizeof(p) ||
		(m.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) {
		roles_fini(r);
		return E_SYNTAX;
	}
	*type = (enum control_type)p.type;
	*code = p.code;
	return 0;
}
