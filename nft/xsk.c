/* Holding the queues of all devices. Before it: guard_main.c opens, links.c lists. */
#include "nft/xsk.h"

#include <errno.h>
#include <linux/if_xdp.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define XSK_PAGE 4096
#define XSK_CHUNK 2048      /* the smallest that the kernel takes */
#define XSK_QUEUES_MAX 1024 /* of one device; the kernel ends the count before that */

static int xsk_map(struct xsk *x)
{
	x->memory = mmap(NULL, XSK_PAGE, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (x->memory == MAP_FAILED) {
		x->memory = NULL;
		return -errno;
	}
	return 0;
}

int xsk_open(struct xsk *x)
{
	int ret;

	*x = (struct xsk){0};
	ret = xsk_map(x);
	if (ret < 0)
		return ret;
	while (x->n < GUARD_XSK_MAX) {
		int fd = socket(AF_XDP, SOCK_RAW | SOCK_CLOEXEC, 0);

		if (fd < 0 && x->n == 0) {
			ret = -errno;
			xsk_close(x);
			return ret;
		}
		if (fd < 0)
			break;
		x->v[x->n].fd = fd;
		x->v[x->n++].use = XSK_FREE;
	}
	return 0;
}

/* Priority is the queue and one more, so that 0 is a socket which was never bound. */
int xsk_adopt(struct xsk *x, const int *fds, size_t n)
{
	int ret;

	*x = (struct xsk){0};
	ret = xsk_map(x);
	for (size_t i = 0; i < n; i++) {
		uint32_t device = 0;
		uint32_t queue = 0;
		socklen_t len = sizeof(device);

		x->v[x->n].fd = fds[i];
		if (getsockopt(fds[i], SOL_SOCKET, SO_MARK, &device, &len) < 0 ||
			getsockopt(fds[i], SOL_SOCKET, SO_PRIORITY, &queue, &len) < 0)
			ret = -errno;
		x->v[x->n].use = queue > 0 ? XSK_HOLDS : XSK_FREE;
		x->v[x->n].device = (int)device;
		x->v[x->n++].queue = queue > 0 ? queue - 1 : 0;
	}
	if (ret < 0)
		xsk_close(x);
	return ret;
}

void xsk_close(struct xsk *x)
{
	for (size_t i = 0; i < x->n; i++)
		(void)close(x->v[i].fd);
	if (x->memory)
		(void)munmap(x->memory, XSK_PAGE);
	*x = (struct xsk){0};
}

static bool xsk_holds(const struct xsk *x, int device, uint32_t queue)
{
	for (size_t i = 0; i < x->n; i++) {
		if (x->v[i].use == XSK_HOLDS && x->v[i].device == device && x->v[i].queue == queue)
			return true;
	}
	return false;
}

static size_t xsk_find_free(const struct xsk *x)
{
	size_t i = 0;

	while (i < x->n && x->v[i].use != XSK_FREE)
		i++;
	return i;
}

/* What the kernel wants to see before a bind: buffers and rings, as small as may be. On a socket
 * that an earlier try prepared these fail, and the bind tells whether that matters. */
static void xsk_prepare(const struct xsk *x, int fd)
{
	const struct xdp_umem_reg buffers = {
		.addr = (uintptr_t)x->memory, .len = XSK_PAGE, .chunk_size = XSK_CHUNK};
	static const int rings[] = {XDP_UMEM_FILL_RING, XDP_UMEM_COMPLETION_RING, XDP_RX_RING};
	static const int entries = 1;

	(void)setsockopt(fd, SOL_XDP, XDP_UMEM_REG, &buffers, sizeof(buffers));
	for (size_t i = 0; i < ARRAY_LEN(rings); i++)
		(void)setsockopt(fd, SOL_XDP, rings[i], &entries, sizeof(entries));
}

static int xsk_note(int fd, uint32_t device, uint32_t queue)
{
	if (setsockopt(fd, SOL_SOCKET, SO_MARK, &device, sizeof(device)) < 0 ||
		setsockopt(fd, SOL_SOCKET, SO_PRIORITY, &queue, sizeof(queue)) < 0)
		return -errno;
	return 0;
}

/* 0: held now. -EBUSY: somebody has it. -EINVAL: there is no such queue. E_FULL: no socket left. */
static int xsk_bind(struct xsk *x, int device, uint32_t queue)
{
	const struct sockaddr_xdp addr = {.sxdp_family = AF_XDP,
		.sxdp_flags = XDP_COPY,
		.sxdp_ifindex = (uint32_t)device,
		.sxdp_queue_id = queue};
	const size_t i = xsk_find_free(x);
	int ret;

	if (i == x->n)
		return E_FULL;
	xsk_prepare(x, x->v[i].fd);
	/* Noted before the bind: a guard that dies in between leaves a socket that looks held, and
	 * the next one finds the queue taken, which is an alarm and not a hole. */
	ret = xsk_note(x->v[i].fd, (uint32_t)device, queue + 1);
	if (ret == 0 && bind(x->v[i].fd, (const struct sockaddr *)&addr, sizeof(addr)) < 0)
		ret = -errno;
	if (ret < 0) {
		(void)xsk_note(x->v[i].fd, 0, 0);
		return ret;
	}
	x->v[i].use = XSK_HOLDS;
	x->v[i].device = device;
	x->v[i].queue = queue;
	return 0;
}

static int xsk_hold_device(struct xsk *x, int device)
{
	for (uint32_t queue = 0; queue < XSK_QUEUES_MAX; queue++) {
		int ret;

		if (xsk_holds(x, device, queue))
			continue;
		ret = xsk_bind(x, device, queue);
		if (ret == -EINVAL)
			return 0;
		if (ret == -EBUSY)
			x->taken++;
		else if (ret == E_FULL)
			x->shortage++;
		else if (ret == -ENODEV)
			return 0;
		else if (ret < 0)
			return ret;
		if (ret == E_FULL)
			return 0;
	}
	return 0;
}

int xsk_hold(struct xsk *x, const struct links *l)
{
	int first = 0;

	x->taken = 0;
	x->shortage = 0;
	for (size_t i = 0; i < x->n; i++) {
		if (x->v[i].use == XSK_HOLDS && !links_has(l, x->v[i].device))
			x->v[i].use = XSK_SPENT;
	}
	for (size_t i = 0; i < l->n; i++) {
		int ret = xsk_hold_device(x, l->v[i].index);

		if (ret < 0 && first == 0)
			first = ret;
	}
	return first;
}

size_t xsk_held(const struct xsk *x)
{
	size_t n = 0;

	for (size_t i = 0; i < x->n; i++)
		n += x->v[i].use == XSK_HOLDS;
	return n;
}
