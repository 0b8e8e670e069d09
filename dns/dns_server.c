/* The sockets of the gate: datagrams in batches, connections with their framing and limits. After
 * it: dns_query, with one message at a time. The sockets themselves were opened by the supervisor
 * and stay open when we close nothing but what we accepted. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <event2/event.h>

#include "base/arena.h"
#include "base/strbuf.h"
#include "dns/dns_gate_int.h"

/* A question is at most 280 bytes; more is options that we read past. What is longer than this is
 * cut and then malformed. */
#define DNS_UDP_QUERY_MAX 2048
#define DNS_UDP_BATCH 16
/* Rounds before other sockets have their turn. */
#define DNS_UDP_ROUNDS 4

/* Limits of connections as the image we replace has them (reference 5.2). */
#define DNS_CONN_FIRST_S 2
#define DNS_CONN_IDLE_S 8
#define DNS_CONN_QUERIES_MAX 128
#define DNS_CONN_QUERY_MAX 4096
/* Until descriptors are tried again. */
#define DNS_ACCEPT_PAUSE_MS 100
/* Replies that a client does not read. */
#define DNS_CONN_OUT_MAX (2 * (DNS_MSG_MAX + 2))

struct dns_conn {
	TAILQ_ENTRY(dns_conn) link; /* the one that moved last is the last */
	struct dns_server *server;
	int fd;
	struct event *readable; /* with the idle limit */
	struct event *writable;
	unsigned n_queries;
	unsigned n_open; /* of them not answered yet */
	bool ended;      /* no more questions come */
	bool dead;       /* to be freed by who holds it */
	struct strbuf in;
	struct strbuf out;
};

TAILQ_HEAD(dns_conn_list, dns_conn);

struct dns_server {
	LIST_ENTRY(dns_server) link;
	struct dns_gate *gate;
	int fd;
	struct event *readable;
	struct event *resume; /* reading was given up for a moment */
	struct dns_conn_list conns;
	size_t n_conns;
	struct mmsghdr msgs[DNS_UDP_BATCH];
	struct iovec iov[DNS_UDP_BATCH];
	struct sockaddr_storage peers[DNS_UDP_BATCH];
	char bufs[DNS_UDP_BATCH][DNS_UDP_QUERY_MAX];
};

/* --- datagrams --- */

static int dns_udp_round(struct dns_server *s)
{
	struct dns_client client = {.server = s};
	int n, i;

	for (i = 0; i < DNS_UDP_BATCH; i++) {
		s->iov[i] = (struct iovec){s->bufs[i], DNS_UDP_QUERY_MAX};
		s->msgs[i].msg_hdr = (struct msghdr){
			.msg_name = &s->peers[i],
			.msg_namelen = sizeof(s->peers[i]),
			.msg_iov = &s->iov[i],
			.msg_iovlen = 1,
		};
	}
	n = recvmmsg(s->fd, s->msgs, DNS_UDP_BATCH, MSG_DONTWAIT, NULL);
	for (i = 0; i < n; i++) {
		client.peer = s->peers[i];
		client.peer_len = s->msgs[i].msg_hdr.msg_namelen;
		dns_query_start(s->gate, &client, slice_make(s->bufs[i], s->msgs[i].msg_len));
	}
	return n;
}

static void on_dns_udp(evutil_socket_t fd, short what, void *arg)
{
	int i;

	for (i = 0; i < DNS_UDP_ROUNDS; i++)
		if (dns_udp_round(arg) < DNS_UDP_BATCH)
			return;
}

/* --- connections --- */

static void dns_conn_free(struct dns_conn *c)
{
	TAILQ_REMOVE(&c->server->conns, c, link);
	c->server->n_conns--;
	event_free(c->readable);
	event_free(c->writable);
	close(c->fd);
	strbuf_fini(&c->in);
	strbuf_fini(&c->out);
	free(c);
}

/* Ends it with the questions that are still open. */
static void dns_conn_drop(struct dns_conn *c)
{
	c->dead = true;
	dns_query_cancel(c->server->gate, c);
	dns_conn_free(c);
}

static void dns_conn_wait(struct dns_conn *c)
{
	struct timeval idle = {.tv_sec = c->n_queries == 0 ? DNS_CONN_FIRST_S : DNS_CONN_IDLE_S};

	event_add(c->readable, &idle);
}

int dns_conn_fd(const struct dns_conn *c)
{
	return c->fd;
}

void dns_conn_hold(struct dns_conn *c)
{
	c->n_open++;
}

void dns_conn_release(struct dns_conn *c)
{
	c->n_open--;
}

/* False if the connection must end. */
static bool dns_conn_flush(struct dns_conn *c)
{
	struct slice s = strbuf_slice(&c->out);
	ssize_t n = 0;

	if (s.len > 0)
		n = send(c->fd, s.p, s.len, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (n < 0 && errno != EAGAIN && errno != EINTR)
		return false;
	if (n > 0)
		strbuf_consume(&c->out, (size_t)n);
	if (c->out.len > 0)
		event_add(c->writable, NULL);
	return true;
}

/* Nothing more can come of it. */
static bool dns_conn_is_over(const struct dns_conn *c)
{
	return c->ended && c->n_open == 0 && c->out.len == 0;
}

/* The questions that are complete, each behind its length (RFC 1035 4.2.2). False if it must end.
 */
static bool dns_conn_questions(struct dns_conn *c)
{
	struct dns_client client = {.server = c->server, .conn = c};
	struct slice in;
	size_t len;

	/* The connection stays: a reply that cannot be sent only shuts it down. */
	while (c->in.len >= 2 && !c->ended) {
		in = strbuf_slice(&c->in);
		len = (size_t)(uint8_t)in.p[0] << 8 | (uint8_t)in.p[1];
		if (len > DNS_CONN_QUERY_MAX)
			return false;
		if (in.len - 2 < len)
			break;
		c->n_queries++;
		dns_query_start(c->server->gate, &client, slice_make(in.p + 2, len));
		strbuf_consume(&c->in, len + 2);
		if (c->n_queries == DNS_CONN_QUERIES_MAX)
			c->ended = true;
	}
	return true;
}

static void on_dns_conn_read(evutil_socket_t fd, short what, void *arg)
{
	struct dns_conn *c = arg;
	char buf[DNS_CONN_QUERY_MAX];
	ssize_t n;

	if ((what & EV_TIMEOUT) != 0 && c->n_open == 0) {
		dns_conn_drop(c);
		return;
	}
	n = (what & EV_READ) != 0 ? recv(fd, buf, sizeof(buf), MSG_DONTWAIT) : -1;
	if ((what & EV_READ) != 0 && n < 0 && errno != EAGAIN && errno != EINTR) {
		dns_conn_drop(c);
		return;
	}
	TAILQ_REMOVE(&c->server->conns, c, link);
	TAILQ_INSERT_TAIL(&c->server->conns, c, link);
	if (n == 0)
		c->ended = true;
	if (n > 0)
		strbuf_add(&c->in, slice_make(buf, (size_t)n));
	if (c->in.full || !dns_conn_questions(c) || c->out.full || dns_conn_is_over(c)) {
		dns_conn_drop(c);
		return;
	}
	/* A client that does not read its replies is not read either. */
	if (!c->ended && c->out.len == 0)
		dns_conn_wait(c);
}

static void on_dns_conn_write(evutil_socket_t fd, short what, void *arg)
{
	struct dns_conn *c = arg;

	if (!dns_conn_flush(c) || dns_conn_is_over(c)) {
		dns_conn_drop(c);
		return;
	}
	if (c->out.len == 0 && !c->ended)
		dns_conn_wait(c);
}

/* Of the connections that wait for nothing, the one idle longest. */
static bool dns_server_make_room(struct dns_server *s)
{
	struct dns_conn *c;

	if (s->n_conns < DNS_GATE_CONNS_MAX)
		return true;
	TAILQ_FOREACH(c, &s->conns, link) {
		if (c->n_open > 0)
			continue;
		dns_conn_drop(c);
		return true;
	}
	return false;
}

static void dns_conn_new(struct dns_server *s, int fd)
{
	struct dns_conn *c = xcalloc(1, sizeof(*c));

	c->server = s;
	c->fd = fd;
	strbuf_init(&c->in, 2 * DNS_CONN_QUERY_MAX);
	strbuf_init(&c->out, DNS_CONN_OUT_MAX);
	c->readable = event_new(s->gate->base, fd, EV_READ, on_dns_conn_read, c);
	c->writable = event_new(s->gate->base, fd, EV_WRITE, on_dns_conn_write, c);
	REQUIRE(c->readable && c->writable);
	TAILQ_INSERT_TAIL(&s->conns, c, link);
	s->n_conns++;
	dns_conn_wait(c);
}

static void on_dns_resume(evutil_socket_t fd, short what, void *arg)
{
	struct dns_server *s = arg;

	event_add(s->readable, NULL);
}

static void on_dns_accept(evutil_socket_t listener, short what, void *arg)
{
	static const struct timeval pause = {0, DNS_ACCEPT_PAUSE_MS * 1000};
	struct dns_server *s = arg;
	int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	if (fd < 0) {
		/* Who waits is still there: the loop would turn for nothing else. */
		if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
			event_del(s->readable);
			event_add(s->resume, &pause);
		}
		return;
	}
	if (dns_server_make_room(s))
		dns_conn_new(s, fd);
	else
		close(fd);
}

/* --- replies --- */

static void dns_conn_reply(struct dns_gate *g, struct dns_conn *c, struct slice msg)
{
	char len[2] = {(char)(msg.len >> 8), (char)msg.len};

	if (c->dead)
		return;
	strbuf_add(&c->out, slice_make(len, sizeof(len)));
	strbuf_add(&c->out, msg);
	if (c->out.full || !dns_conn_flush(c)) {
		g->stats.unsent++;
		/* The caller may stand in this connection's read: its end is seen there. */
		shutdown(c->fd, SHUT_RDWR);
		strbuf_clear(&c->out);
	}
	/* Its last reply may be its end, and the wait for the next question begins anew. */
	event_add(c->writable, NULL);
}

void dns_server_reply(struct dns_gate *g, const struct dns_client *client, struct slice msg)
{
	if (client->conn)
		dns_conn_reply(g, client->conn, msg);
	else if (sendto(client->server->fd, msg.p, msg.len, MSG_DONTWAIT | MSG_NOSIGNAL,
			 (const struct sockaddr *)&client->peer, client->peer_len) < 0)
		g->stats.unsent++;
}

/* --- start and end --- */

void dns_server_new(struct dns_gate *g, int fd, enum dns_gate_kind kind)
{
	struct dns_server *s = xcalloc(1, sizeof(*s));

	s->gate = g;
	s->fd = fd;
	TAILQ_INIT(&s->conns);
	(void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	s->readable = event_new(g->base, fd, EV_READ | EV_PERSIST,
		kind == DNS_GATE_UDP ? on_dns_udp : on_dns_accept, s);
	s->resume = evtimer_new(g->base, on_dns_resume, s);
	REQUIRE(s->readable && s->resume && event_add(s->readable, NULL) == 0);
	LIST_INSERT_HEAD(&g->servers, s, link);
}

void dns_server_free(struct dns_server *s)
{
	struct dns_conn *c;

	while ((c = TAILQ_FIRST(&s->conns)))
		dns_conn_free(c); /* NOLINT(clang-analyzer-unix.Malloc) */
	LIST_REMOVE(s, link);
	event_free(s->readable);
	event_free(s->resume);
	free(s);
}
