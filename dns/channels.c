/* Carries single questions to the resolvers and their answers back.
 *
 * Before it: resolver, which asks for A and AAAA of a name. After it: c-ares, which knows the wire
 * format, TCP on truncation, and the next resolver after SERVFAIL, silence or an ICMP error. */
#include "dns/channels.h"

#include <arpa/nameser.h>
#include <errno.h>
#include <stdlib.h>

#include <ares.h>

#include "base/arena.h"
#include "dns/channel.h"

#define CHANNELS_MAX 4 /* 75 KiB each, most of it tables of c-ares */

struct channels {
	bool closing;
	size_t current; /* the channel of the last question */
	struct channel v[CHANNELS_MAX];
};

struct channels_question {
	struct channels *owner;
	struct channel *channel;
	enum channels_type type;
	channels_cb done;
	void *arg;
};

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
	if (q->owner->closing)
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

	q->owner = c;
	q->channel = ch;
	q->type = type;
	q->done = done;
	q->arg = arg;
	ch->n_open++;
	/* Not ares_search or ares_getaddrinfo: a name is asked as it is, whatever its dots. */
	ares_query(ch->ares, name, ns_c_in, type == CHANNELS_A ? ns_t_a : ns_t_aaaa,
		on_channels_answer, q);
	channel_touch(ch);
}

int channels_new(struct event_base *base, const struct upstreams *servers, uint32_t timeout_ms,
	struct channels **out, struct errmsg *msg)
{
	struct channels *c;
	int status, ret;
	size_t i;

	status = ares_library_init(ARES_LIB_INIT_ALL);
	if (status != ARES_SUCCESS)
		return errmsg_set(msg, E_RESOLVE, "c-ares: %s", ares_strerror(status));
	c = xcalloc(1, sizeof(*c));
	/* All at once: c-ares seeds its message ids from /dev/urandom, which the worker cannot
	 * open any more once its system calls are confined. */
	for (i = 0; i < CHANNELS_MAX; i++) {
		ret = channel_init(&c->v[i], base, servers, timeout_ms, 0, msg);
		if (ret < 0) {
			channels_free(c);
			return ret;
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
	for (i = 0; i < CHANNELS_MAX; i++)
		channel_fini(&c->v[i]);
	ares_library_cleanup();
	free(c);
}
