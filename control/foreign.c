/* Before it: worker_watch, twice a second. After it: dns/conns, which asks the kernel. */
#include "control/foreign.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/stat.h>

struct foreign_search {
	const struct foreign *f;
	struct conns_listener *found;
	bool any;
};

int foreign_add(struct foreign *f, int fd, bool udp)
{
	struct sockaddr_storage sa;
	struct conns_listener own = {.udp = udp};
	socklen_t len = sizeof(sa);
	struct stat st;

	if (fd < 0)
		return 0;
	if (f->n == FOREIGN_OWN_MAX)
		return E_LIMIT;
	if (fstat(fd, &st) < 0 || getsockname(fd, (struct sockaddr *)&sa, &len) < 0)
		return -errno;
	if (!netaddr_from_sockaddr((struct sockaddr *)&sa, &own.addr, &own.port))
		return -EAFNOSUPPORT;
	own.inode = (uint32_t)st.st_ino;
	f->own[f->n++] = own;
	return 0;
}

bool foreign_is(const struct foreign *f, const struct conns_listener *l)
{
	enum addr_class class = netaddr_class(&l->addr);
	bool port = false;

	for (size_t i = 0; i < f->n; i++) {
		if (f->own[i].inode == l->inode)
			return false;
		port |= f->own[i].port == l->port && f->own[i].udp == l->udp;
	}
	return port && (class == ADDR_LOOPBACK || class == ADDR_UNSPECIFIED);
}

static void on_foreign_listener(const struct conns_listener *l, void *arg)
{
	struct foreign_search *s = arg;

	if (s->any || !foreign_is(s->f, l))
		return;
	*s->found = *l;
	s->any = true;
}

int foreign_look(const struct foreign *f, int diag_fd, struct conns_listener *found)
{
	struct foreign_search s = {.f = f, .found = found};
	uint16_t ports[FOREIGN_OWN_MAX];
	int ret;

	for (size_t i = 0; i < f->n; i++)
		ports[i] = f->own[i].port;
	ret = conns_each_listener(diag_fd, ports, f->n, on_foreign_listener, &s);

	return s.any ? 1 : ret;
}
