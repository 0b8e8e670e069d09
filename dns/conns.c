/* Four dumps of sock_diag: TCP and UDP, IPv4 and IPv6. Before it: leases_renew, twice a minute, for
 * connections; control/foreign, twice a second, for listeners. A family that the kernel does not
 * have gives nothing. */
#include "dns/conns.h"

#include <errno.h>
#include <linux/inet_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#include "base/sock_diag.h"

/* The states of reference 6.5. A UDP socket that is connected counts as established. */
#define CONNS_TCP_STATES                                                                     \
	(BIT(TCP_ESTABLISHED) | BIT(TCP_SYN_SENT) | BIT(TCP_SYN_RECV) | BIT(TCP_FIN_WAIT1) | \
		BIT(TCP_FIN_WAIT2) | BIT(TCP_CLOSE_WAIT) | BIT(TCP_CLOSING) | BIT(TCP_LAST_ACK))

/* What is asked for, and who is told. */
struct conns_look {
	conns_cb each;
	conns_listener_cb listener; /* NULL: connections are */
	void *arg;
	uint8_t protocol;
};

static struct netaddr conns_addr(const struct inet_diag_msg *m, const __be32 from[4])
{
	struct netaddr a = {{[10] = 0xff, [11] = 0xff}};

	if (m->idiag_family == AF_INET)
		memcpy(a.b + 12, from, 4);
	else
		memcpy(a.b, from, 16);
	return a;
}

static void on_conns_socket(const void *msg, size_t len, void *arg)
{
	const struct inet_diag_msg *m = msg;
	const struct conns_look *l = arg;
	struct conns_listener found;
	struct netaddr a;

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

/* TCP_CLOSE is what a UDP socket is in that is not connected. */
static uint32_t conns_states(const struct conns_look *l)
{
	if (l->listener)
		return l->protocol == IPPROTO_TCP ? BIT(TCP_LISTEN) : BIT(TCP_CLOSE);
	return l->protocol == IPPROTO_TCP ? CONNS_TCP_STATES : BIT(TCP_ESTABLISHED);
}

static int conns_dump(int fd, int family, struct conns_look *l)
{
	const struct inet_diag_req_v2 req = {.sdiag_family = (uint8_t)family,
		.sdiag_protocol = l->protocol,
		.idiag_states = conns_states(l)};
	int ret = sock_diag_dump(
		fd, &req, sizeof(req), sizeof(struct inet_diag_msg), on_conns_socket, l);

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
