/* Records of direct flows and refusals. Before it: the rules that log (chains.c); after it: guard.c
 * sends them to the worker each second. */
#include "nft/flow_log.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_log.h>
#include <sys/socket.h>

#include "base/reader.h"
#include "nft/tables.h"

#define FLOW_LOG_RANGE 64   /* bytes of a packet */
#define FLOW_LOG_TIMEOUT 10 /* hundredths of a second that the kernel may gather */
#define FLOW_LOG_QUEUE 32   /* packets that it may gather */
#define FLOW_LOG_BURST 64   /* packets of ours to read before the worker is looked at again */

static int flow_log_config(struct flow_log *f, uint16_t type, const void *value, size_t len)
{
	_Alignas(struct nlmsghdr) uint8_t buf[256];
	struct nlmsghdr *m = netlink_nft_msg(
		buf, NFNL_SUBSYS_ULOG << 8 | NFULNL_MSG_CONFIG, NLM_F_ACK, AF_UNSPEC);
	struct nfgenmsg *g = mnl_nlmsg_get_payload(m);

	g->res_id = htons(TABLES_LOG_GROUP);
	mnl_attr_put(m, type, len, value);
	return netlink_ask(&f->log, m, NULL, NULL);
}

int flow_log_open(struct flow_log *f)
{
	const struct nfulnl_msg_config_cmd bind = {.command = NFULNL_CFG_CMD_BIND};
	const struct nfulnl_msg_config_mode mode = {
		.copy_range = htonl(FLOW_LOG_RANGE), .copy_mode = NFULNL_COPY_PACKET};
	const uint32_t timeout = htonl(FLOW_LOG_TIMEOUT);
	const uint32_t queue = htonl(FLOW_LOG_QUEUE);
	int ret;

	ret = netlink_open(&f->log, NETLINK_NETFILTER, 0);
	if (ret < 0)
		return ret;
	ret = flow_log_config(f, NFULA_CFG_CMD, &bind, sizeof(bind));
	if (ret == 0)
		ret = flow_log_config(f, NFULA_CFG_MODE, &mode, sizeof(mode));
	if (ret == 0)
		ret = flow_log_config(f, NFULA_CFG_TIMEOUT, &timeout, sizeof(timeout));
	if (ret == 0)
		ret = flow_log_config(f, NFULA_CFG_QTHRESH, &queue, sizeof(queue));
	if (ret < 0)
		flow_log_close(f);
	return ret;
}

void flow_log_close(struct flow_log *f)
{
	netlink_close(&f->log);
}

static struct netaddr flow_log_v4(const uint8_t *p)
{
	struct netaddr a = {{[10] = 0xff, [11] = 0xff}};

	if (p)
		memcpy(a.b + 12, p, 4);
	return a;
}

static struct netaddr flow_log_v6(const uint8_t *p)
{
	struct netaddr a = {{0}};

	if (p)
		memcpy(a.b, p, sizeof(a.b));
	return a;
}

/* Ports are the first four bytes of what follows, if the protocol has any and the packet is no
 * later fragment. */
static void flow_log_ports(struct reader *r, bool later, struct guard_flow *out)
{
	if (later ||
		(out->proto != IPPROTO_TCP && out->proto != IPPROTO_UDP &&
			out->proto != IPPROTO_SCTP && out->proto != IPPROTO_UDPLITE))
		return;
	out->from_port = reader_u16(r);
	out->to_port = reader_u16(r);
	if (r->bad) {
		out->from_port = 0;
		out->to_port = 0;
	}
}

bool flow_log_decode(struct slice packet, struct guard_flow *out)
{
	struct reader r = reader_make(packet);
	const uint8_t first = reader_u8(&r);
	bool later = false;

	if (first >> 4 == 4) {
		(void)reader_take(&r, 5);
		later = (reader_u16(&r) & 0x1fff) != 0;
		(void)reader_take(&r, 1);
		out->proto = reader_u8(&r);
		(void)reader_take(&r, 2);
		out->from = flow_log_v4(reader_take(&r, 4));
		out->to = flow_log_v4(reader_take(&r, 4));
		if ((first & 0x0f) > 5)
			(void)reader_take(&r, 4u * ((first & 0x0fu) - 5));
	} else if (first >> 4 == 6) {
		(void)reader_take(&r, 5);
		out->proto = reader_u8(&r);
		(void)reader_take(&r, 1);
		out->from = flow_log_v6(reader_take(&r, 16));
		out->to = flow_log_v6(reader_take(&r, 16));
	} else {
		return false;
	}
	if (r.bad)
		return false;
	flow_log_ports(&r, later, out);
	return true;
}

static bool flow_log_same(const struct guard_flow *a, const struct guard_flow *b)
{
	return a->verdict == b->verdict && a->proto == b->proto && a->to_port == b->to_port &&
		a->has_uid == b->has_uid && a->uid == b->uid && netaddr_eq(&a->to, &b->to);
}

void flow_log_add(struct flow_log *f, const struct guard_flow *one)
{
	for (size_t i = 0; i < f->n; i++) {
		if (flow_log_same(&f->v[i], one)) {
			f->v[i].count += one->count;
			return;
		}
	}
	if (f->n == FLOW_LOG_MAX) {
		f->lost += one->count;
		return;
	}
	f->v[f->n++] = *one;
}

static int flow_log_on_packet(const struct nlmsghdr *m, void *arg)
{
	struct guard_flow one = {.head = {.type = GUARD_FLOW}, .count = 1};
	struct flow_log *f = arg;
	bool good = false;
	struct nlattr *a;

	if (m->nlmsg_type != (NFNL_SUBSYS_ULOG << 8 | NFULNL_MSG_PACKET))
		return MNL_CB_OK;
	mnl_attr_for_each(a, m, sizeof(struct nfgenmsg))
	{
		const uint16_t type = mnl_attr_get_type(a);
		const uint16_t len = mnl_attr_get_payload_len(a);

		if (type == NFULA_PAYLOAD) {
			good = flow_log_decode(slice_make(mnl_attr_get_payload(a), len), &one);
		} else if (type == NFULA_UID && len == sizeof(uint32_t)) {
			one.uid = ntohl(mnl_attr_get_u32(a));
			one.has_uid = 1;
		} else if (type == NFULA_PREFIX && len > 0) {
			one.verdict = *(const char *)mnl_attr_get_payload(a) == 'p'
				? GUARD_FLOW_PASSED
				: GUARD_FLOW_REFUSED;
		}
	}
	if (good)
		flow_log_add(f, &one);
	return MNL_CB_OK;
}

int flow_log_read(struct flow_log *f)
{
	_Alignas(struct nlmsghdr) uint8_t buf[NETLINK_MSG_MAX];
	const int fd = netlink_fd(&f->log);

	for (size_t i = 0; i < FLOW_LOG_BURST; i++) {
		ssize_t len = recv(fd, buf, sizeof(buf), MSG_DONTWAIT);

		if (len < 0 && errno == ENOBUFS) {
			f->lost++;
			continue;
		}
		if (len < 0)
			return errno == EAGAIN || errno == EINTR ? 0 : -errno;
		(void)mnl_cb_run(buf, (size_t)len, 0, 0, flow_log_on_packet, f);
	}
	return 0;
}
