/* Four dumps of sock_diag: TCP and UDP, IPv4 and IPv6. Before it: leases_renew, twice a minute, for
 * connections; control/foreign, twice a second, for listeners. A family that the kernel does not
 * have gives nothing. */
#include "dns/conns.h"

#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#include "base/sock_diag.h"

/* The states of reference 6.5. A UDP socket that is connected counts as established. */
#define CONNS_TCP_STATES                                                                     \
	(BIT(TCP_ESTABLISHED) | BIT(TCP_SYN_SENT) | BIT(TCP_SYN_RECV) | BIT(TCP_FIN_WAIT1) | \
		BIT(TCP_FIN_WAIT2) | BIT(TCP_CLOSE_WAIT) | BIT(TCP_CLOSING) | BIT(TCP_LAST_ACK))

/* For each port: is it the socket's? (two words, the second is the port). Yes: to the end. */
#define CONNS_OPS_PORT 3

struct conns_request {
	struct inet_diag_req_v2 req;
	struct nlattr head;
	struct inet_diag_bc_op ops[CONNS_OPS_PORT * CONNS_PORTS_MAX];
};

/* What is asked for, and who is told. */
struct conns_look {
	conns_cb each;
	conns_listener_cb listener; /* NULL: connections are */
	void *arg;
	uint8_t protocol;
	const uint16_t *ports; /* of listeners */
	size_t n_ports;
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

/* The kernel leaves out what has another port: a sandbox may hold a million sockets, and each would
 * be told to us twice a second. Returns the length of the request. */
static size_t conns_filter(const struct conns_look *l, struct conns_request *r)
{
	size_t i;

	if (!l->listener || l->n_ports == 0)
		return sizeof(r->req);
	for (i = 0; i < l->n_ports; i++) {
		struct inet_diag_bc_op *op = &r->ops[CONNS_OPS_PORT * i];
		const size_t rest = (l->n_ports - i) * CONNS_OPS_PORT * sizeof(*op);
		const bool last = i + 1 == l->n_ports;

		/* Past the end: no. */
		op[0] = (struct inet_diag_bc_op){INET_DIAG_BC_S_EQ, 2 * sizeof(*op),
			(uint16_t)((last ? CONNS_OPS_PORT + 1 : CONNS_OPS_PORT) * sizeof(*op))};
		op[1] = (struct inet_diag_bc_op){.no = l->ports[i]};
		op[2] = (struct inet_diag_bc_op){
			INET_DIAG_BC_JMP, sizeof(*op), (uint16_t)(rest - 2 * sizeof(*op))};
	}
	r->head.nla_type = INET_DIAG_REQ_BYTECODE;
	r->head.nla_len = (uint16_t)(sizeof(r->head) + i * CONNS_OPS_PORT * sizeof(r->ops[0]));
	return sizeof(r->req) + r->head.nla_len;
}

static int conns_dump(int fd, int family, struct conns_look *l)
{
	struct conns_request r = {.req = {.sdiag_family = (uint8_t)family,
					  .sdiag_protocol = l->protocol,
					  .idiag_states = conns_states(l)}};
	size_t len = conns_filter(l, &r);
	int ret = sock_diag_dump(fd, &r, len, sizeof(struct inet_diag_msg), on_conns_socket, l);

	/* It does not know the question. */
	if (ret == -EINVAL && len > sizeof(r.req))
		ret = sock_diag_dump(
			fd, &r, sizeof(r.req), sizeof(struct inet_diag_msg), on_conns_socket, l);
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

int conns_each_listener(int fd, const uint16_t *ports, size_t n, conns_listener_cb each, void *arg)
{
	struct conns_look l = {.listener = each, .arg = arg, .ports = ports, .n_ports = n};

	REQUIRE(n <= CONNS_PORTS_MAX);
	return conns_all(fd, &l);
}
