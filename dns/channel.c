/* Options, sockets and timer of a c-ares channel. Before it: channels (addresses for the proxy) and
 * forwarder (questions of clients). It is given everything by options, so that c-ares reads no file
 * of the sandbox and no environment. */
#include "dns/channel.h"

#include <stdlib.h>

#include <event2/event.h>

#include "base/arena.h"
#include "base/netaddr.h"
#include "dns/upstreams.h"

/* Each resolver is asked twice, since a lost datagram is no reason to give up on it. c-ares doubles
 * the wait in the second round, so a third and two thirds make the whole. */
#define CHANNEL_TRIES 2
#define CHANNEL_TIMEOUT_PARTS 3
#define CHANNEL_TIMEOUT_MIN_MS 10

struct channel_sock {
	struct channel_sock *next;
	struct channel *channel;
	struct event *ev;
	int fd;
	short what;
};

/* Sets the timer to what c-ares waits for next. */
void channel_touch(struct channel *ch)
{
	struct timeval tv;

	if (ares_timeout(ch->ares, NULL, &tv))
		evtimer_add(ch->timer, &tv);
	else
		evtimer_del(ch->timer);
}

static void on_channel_timer(evutil_socket_t fd, short what, void *arg)
{
	struct channel *ch = arg;

	ares_process_fd(ch->ares, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
	channel_touch(ch);
}

static void on_channel_sock(evutil_socket_t fd, short what, void *arg)
{
	struct channel *ch = ((struct channel_sock *)arg)->channel;

	/* c-ares may close the socket in here, and arg is gone then. */
	ares_process_fd(ch->ares, what & EV_READ ? fd : ARES_SOCKET_BAD,
		what & EV_WRITE ? fd : ARES_SOCKET_BAD);
	channel_touch(ch);
}

/* c-ares tells what it waits for on a socket; neither means that it is about to close it. */
static void channel_sock_state(void *arg, ares_socket_t fd, int readable, int writable)
{
	struct channel *ch = arg;
	struct channel_sock **at = &ch->socks;
	struct channel_sock *s;
	short what = (short)((readable ? EV_READ : 0) | (writable ? EV_WRITE : 0));

	while (*at && (*at)->fd != fd)
		at = &(*at)->next;
	s = *at;
	if (what == 0) {
		if (s) {
			*at = s->next;
			event_free(s->ev);
			free(s);
		}
		return;
	}
	if (!s) {
		s = xcalloc(1, sizeof(*s));
		s->channel = ch;
		s->fd = fd;
		s->next = ch->socks;
		ch->socks = s;
	} else if (s->what == what) {
		return;
	} else {
		event_free(s->ev);
	}
	s->what = what;
	s->ev = event_new(ch->base, fd, (short)(what | EV_PERSIST), on_channel_sock, s);
	REQUIRE(s->ev && event_add(s->ev, NULL) == 0);
}

static int channel_servers_set(struct channel *ch, const struct upstreams *servers)
{
	struct ares_addr_port_node nodes[UPSTREAMS_MAX];
	struct sockaddr_storage ss;
	size_t i;

	memset(nodes, 0, sizeof(nodes));
	for (i = 0; i < servers->n; i++) {
		(void)netaddr_to_sockaddr(&servers->v[i].addr, servers->v[i].port, &ss);
		nodes[i].family = ss.ss_family;
		nodes[i].udp_port = servers->v[i].port;
		nodes[i].tcp_port = servers->v[i].port;
		if (ss.ss_family == AF_INET)
			memcpy(&nodes[i].addr.addr4, &((struct sockaddr_in *)&ss)->sin_addr, 4);
		else
			memcpy(&nodes[i].addr.addr6, &((struct sockaddr_in6 *)&ss)->sin6_addr, 16);
		nodes[i].next = i + 1 < servers->n ? &nodes[i + 1] : NULL;
	}
	return ares_set_servers_ports(ch->ares, nodes);
}

/* Every option is given, also those with a harmless default: c-ares reads /etc/resolv.conf for
 * whatever is missing. The one server here only stands until channel_servers_set. */
static int channel_open(
	struct channel *ch, const struct upstreams *servers, uint32_t timeout_ms, int flags)
{
	struct in_addr placeholder = {.s_addr = 0};
	char lookups[] = "b"; /* the network alone, no hosts file */
	struct ares_options o = {
		.flags = ARES_FLAG_EDNS | ARES_FLAG_NOSEARCH | ARES_FLAG_NOALIASES | flags,
		.ednspsz = CHANNEL_EDNS_SIZE,
		.tries = CHANNEL_TRIES,
		.ndots = 1,
		.servers = &placeholder,
		.nservers = 1,
		.lookups = lookups,
		.sock_state_cb = channel_sock_state,
		.sock_state_cb_data = ch,
	};
	int mask = ARES_OPT_FLAGS | ARES_OPT_EDNSPSZ | ARES_OPT_TRIES | ARES_OPT_TIMEOUTMS |
		ARES_OPT_NDOTS | ARES_OPT_SERVERS | ARES_OPT_DOMAINS | ARES_OPT_SORTLIST |
		ARES_OPT_LOOKUPS | ARES_OPT_SOCK_STATE_CB | ARES_OPT_NOROTATE;
	int status;

	o.timeout = (int)(timeout_ms / CHANNEL_TIMEOUT_PARTS);
	if (o.timeout < CHANNEL_TIMEOUT_MIN_MS)
		o.timeout = CHANNEL_TIMEOUT_MIN_MS;
	status = ares_init_options(&ch->ares, &o, mask);
	if (status == ARES_SUCCESS)
		status = channel_servers_set(ch, servers);
	return status;
}

int channel_init(struct channel *ch, struct event_base *base, const struct upstreams *servers,
	uint32_t timeout_ms, int flags, struct errmsg *msg)
{
	int status;

	memset(ch, 0, sizeof(*ch));
	if (servers->n == 0 || servers->n > UPSTREAMS_MAX)
		return errmsg_set(msg, E_VALUE, "there must be 1 to %d resolvers", UPSTREAMS_MAX);
	ch->base = base;
	ch->timer = evtimer_new(base, on_channel_timer, ch);
	REQUIRE(ch->timer);
	status = channel_open(ch, servers, timeout_ms, flags);
	if (status == ARES_SUCCESS)
		return 0;
	channel_fini(ch);
	return errmsg_set(msg, E_RESOLVE, "c-ares: %s", ares_strerror(status));
}

void channel_fini(struct channel *ch)
{
	if (ch->ares)
		ares_destroy(ch->ares);
	if (ch->timer)
		event_free(ch->timer);
	memset(ch, 0, sizeof(*ch));
}
