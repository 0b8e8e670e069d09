/* Carries single questions to the resolvers and their answers back.
 *
 * Before it: resolver, which asks for A and AAAA of a name. After it: c-ares, which knows the wire
 * format, TCP on truncation, and the next resolver after SERVFAIL, silence or an ICMP error. It is
 * given everything by options, so that it reads no file of the sandbox and no environment. */
#include "dns/channels.h"

#include <arpa/nameser.h>
#include <errno.h>
#include <stdlib.h>

#include <ares.h>
#include <event2/event.h>

#include "base/arena.h"
#include "dns/upstreams.h"

#define CHANNELS_MAX 4 /* 75 KiB each, most of it tables of c-ares */

/* An answer of this size passes any path unfragmented (DNS flag day 2020). */
#define CHANNELS_EDNS_SIZE 1232

/* Each resolver is asked twice, since a lost datagram is no reason to give up on it. c-ares doubles
 * the wait in the second round, so a third and two thirds make the whole. */
#define CHANNELS_TRIES 2
#define CHANNELS_TIMEOUT_PARTS 3
#define CHANNELS_TIMEOUT_MIN_MS 10

struct channel_sock {
	struct channel_sock *next;
	struct channel *channel;
	struct event *ev;
	int fd;
	short what;
};

struct channel {
	struct channels *owner;
	ares_channel ares;
	struct channel_sock *socks;
	struct event *timer;
	size_t n_open; /* questions without an answer yet */
};

struct channels {
	struct event_base *base;
	bool closing;
	size_t current; /* the channel of the last question */
	struct channel v[CHANNELS_MAX];
};

struct channels_question {
	struct channel *channel;
	enum channels_type type;
	channels_cb done;
	void *arg;
};

/* Sets the timer to what c-ares waits for next. To be called after every call into it. */
static void channel_timer_set(struct channel *ch)
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
	channel_timer_set(ch);
}

static void on_channel_sock(evutil_socket_t fd, short what, void *arg)
{
	struct channel *ch = ((struct channel_sock *)arg)->channel;

	/* c-ares may close the socket in here, and arg is gone then. */
	ares_process_fd(ch->ares, what & EV_READ ? fd : ARES_SOCKET_BAD,
		what & EV_WRITE ? fd : ARES_SOCKET_BAD);
	channel_timer_set(ch);
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
	s->ev = event_new(ch->owner->base, fd, (short)(what | EV_PERSIST), on_channel_sock, s);
	REQUIRE(s->ev && event_add(s->ev, NULL) == 0);
}

static void channels_reply_add(
	struct channels_reply *reply, int family, const void *bytes, size_t len, int ttl_s)
{
	struct netaddr *to = &reply->addrs[reply->n];
	struct sockaddr_storage ss = {.ss_family = (sa_family_t)family};
	uint32_t ttl = ttl_s > 0 ? (uint32_t)ttl_s : 0; /* RFC 2181 8: the top bit means zero */
	uint16_t port;

	if (family == AF_INET)
		memcpy(&((struct sockaddr_in *)&ss)->sin_addr, bytes, len);
	else
		memcpy(&((struct sockaddr_in6 *)&ss)->sin6_addr, bytes, len);
	if (!netaddr_from_sockaddr((struct sockaddr *)&ss, to, &port))
		return;
	if (reply->n == 0 || ttl < reply->ttl_s)
		reply->ttl_s = ttl;
	reply->n++;
}

/* Takes the addresses out of an answer. c-ares gives each the lowest TTL of its CNAME chain. */
static int channels_reply_decode(
	struct channels_reply *reply, enum channels_type type, const unsigned char *msg, int len)
{
	struct ares_addrttl v4[RESOLVER_ADDRS_MAX];
	struct ares_addr6ttl v6[RESOLVER_ADDRS_MAX];
	int n = RESOLVER_ADDRS_MAX;
	int status;
	int i;

	if (type == CHANNELS_A)
		status = ares_parse_a_reply(msg, len, NULL, v4, &n);
	else
		status = ares_parse_aaaa_reply(msg, len, NULL, v6, &n);
	if (status != ARES_SUCCESS)
		return status;
	for (i = 0; i < n; i++) {
		if (type == CHANNELS_A)
			channels_reply_add(reply, AF_INET, &v4[i].ipaddr, 4, v4[i].ttl);
		else
			channels_reply_add(reply, AF_INET6, &v6[i].ip6addr, 16, v6[i].ttl);
	}
	return reply->n > 0 ? ARES_SUCCESS : ARES_ENODATA;
}

static void on_channels_answer(void *arg, int status, int timeouts, unsigned char *msg, int len)
{
	struct channels_question *q = arg;
	struct channels_reply reply = {.err = 0};

	q->channel->n_open--;
	if (q->channel->owner->closing)
		goto out;
	if (status == ARES_SUCCESS)
		status = channels_reply_decode(&reply, q->type, msg, len);
	if (status == ARES_ENOTFOUND || status == ARES_ENODATA)
		reply.err = E_NO_NAME;
	else if (status == ARES_ETIMEOUT)
		reply.err = -ETIMEDOUT;
	else if (status != ARES_SUCCESS)
		reply.err = E_RESOLVE;
	reply.nxdomain = status == ARES_ENOTFOUND;
	q->done(&reply, q->arg);
out:
	free(q);
}

/* An idle one if there is any: its next question leaves from a new port. Else the one of the last
 * question, so that the others drain and one of them falls idle: however many questions come, a
 * port lives no longer than the longest of them takes on another channel. */
static struct channel *channels_pick(struct channels *c)
{
	size_t i;

	for (i = 1; i < CHANNELS_MAX; i++) {
		if (c->v[(c->current + i) % CHANNELS_MAX].n_open > 0)
			continue;
		c->current = (c->current + i) % CHANNELS_MAX;
		break;
	}
	return &c->v[c->current];
}

void channels_ask(
	struct channels *c, const char *name, enum channels_type type, channels_cb done, void *arg)
{
	struct channel *ch = channels_pick(c);
	struct channels_question *q = xcalloc(1, sizeof(*q));

	q->channel = ch;
	q->type = type;
	q->done = done;
	q->arg = arg;
	ch->n_open++;
	/* Not ares_search or ares_getaddrinfo: a name is asked as it is, whatever its dots. */
	ares_query(ch->ares, name, ns_c_in, type == CHANNELS_A ? ns_t_a : ns_t_aaaa,
		on_channels_answer, q);
	channel_timer_set(ch);
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
static int channel_init(struct channel *ch, const struct upstreams *servers, uint32_t timeout_ms)
{
	struct in_addr placeholder = {.s_addr = 0};
	char lookups[] = "b"; /* the network alone, no hosts file */
	struct ares_options o = {
		.flags = ARES_FLAG_EDNS | ARES_FLAG_NOSEARCH | ARES_FLAG_NOALIASES,
		.ednspsz = CHANNELS_EDNS_SIZE,
		.tries = CHANNELS_TRIES,
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

	o.timeout = (int)(timeout_ms / CHANNELS_TIMEOUT_PARTS);
	if (o.timeout < CHANNELS_TIMEOUT_MIN_MS)
		o.timeout = CHANNELS_TIMEOUT_MIN_MS;
	status = ares_init_options(&ch->ares, &o, mask);
	if (status == ARES_SUCCESS)
		status = channel_servers_set(ch, servers);
	return status;
}

int channels_new(struct event_base *base, const struct upstreams *servers, uint32_t timeout_ms,
	struct channels **out, struct errmsg *msg)
{
	struct channels *c;
	int status;
	size_t i;

	if (servers->n == 0 || servers->n > UPSTREAMS_MAX)
		return errmsg_set(msg, E_VALUE, "there must be 1 to %d resolvers", UPSTREAMS_MAX);
	status = ares_library_init(ARES_LIB_INIT_ALL);
	if (status != ARES_SUCCESS)
		return errmsg_set(msg, E_RESOLVE, "c-ares: %s", ares_strerror(status));
	c = xcalloc(1, sizeof(*c));
	c->base = base;
	/* All at once: c-ares seeds its message ids from /dev/urandom, which the worker cannot
	 * open any more once its system calls are confined. */
	for (i = 0; i < CHANNELS_MAX; i++) {
		c->v[i].owner = c;
		c->v[i].timer = evtimer_new(base, on_channel_timer, &c->v[i]);
		REQUIRE(c->v[i].timer);
		status = channel_init(&c->v[i], servers, timeout_ms);
		if (status != ARES_SUCCESS) {
			channels_free(c);
			return errmsg_set(msg, E_RESOLVE, "c-ares: %s", ares_strerror(status));
		}
	}
	*out = c;
	return 0;
}

void channels_free(struct channels *c)
{
	size_t i;

	if (!c)
		return;
	c->closing = true;
	for (i = 0; i < CHANNELS_MAX; i++) {
		if (c->v[i].ares)
			ares_destroy(c->v[i].ares);
		if (c->v[i].timer)
			event_free(c->v[i].timer);
	}
	ares_library_cleanup();
	free(c);
}
