/* The scripted DNS server of test_resolver: reads a question, finds its row, writes the answer by
 * hand, byte by byte, so that it can also be wrong in every way. */
#include "tests/unit/dns/peer.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdlib.h>
#include <unistd.h>

#include <event2/event.h>

#include "base/arena.h"
#include "base/netaddr.h"

#define PEER_MSG_MAX 4096
#define PORT_TRIES_MAX 16

struct peer_conn {
	struct peer_conn *next;
	struct peer *peer;
	struct event *ev;
	int fd;
};

struct peer_msg {
	uint8_t b[PEER_MSG_MAX];
	size_t len;
};

/* A reply on its way: over TCP the connection's descriptor, else the client's address. */
struct peer_reply {
	struct peer_reply *next;
	struct event *timer; /* NULL: sent at once, or held */
	int fd;
	bool tcp;
	struct sockaddr_storage to;
	struct peer_msg msg;
};

static void msg_add(struct peer_msg *m, const void *p, size_t len)
{
	REQUIRE(m->len + len <= sizeof(m->b));
	memcpy(m->b + m->len, p, len);
	m->len += len;
}

static void msg_u16(struct peer_msg *m, uint32_t v)
{
	uint8_t b[2] = {(uint8_t)(v >> 8), (uint8_t)v};

	msg_add(m, b, 2);
}

static void msg_u32(struct peer_msg *m, uint32_t v)
{
	msg_u16(m, v >> 16);
	msg_u16(m, v & 0xffff);
}

static void msg_name(struct peer_msg *m, struct slice name)
{
	struct slice label;
	uint8_t n;

	while (name.p) {
		label = slice_cut(&name, '.');
		n = (uint8_t)label.len;
		msg_add(m, &n, 1);
		msg_add(m, label.p, label.len);
	}
	msg_add(m, "", 1);
}

/* Owner by pointer, type, class IN, TTL. */
static void msg_rr(struct peer_msg *m, uint32_t owner, uint32_t type, uint32_t ttl)
{
	msg_u16(m, 0xc000 | owner);
	msg_u16(m, type);
	msg_u16(m, 1);
	msg_u32(m, ttl);
}

/* The answer section of a row; returns the number of records. */
static uint32_t msg_answers(struct peer_msg *m, const struct peer_row *row, uint16_t type)
{
	struct slice rest = row->cnames ? slice_str(row->cnames) : (struct slice){NULL, 0};
	struct netaddr addr;
	uint32_t owner = 12;
	uint32_t ttl = row->ttl;
	uint32_t n = 0;
	struct slice word;
	bool v4;

	while (rest.p) {
		word = slice_cut(&rest, ' ');
		msg_rr(m, owner, 5, row->cname_ttl);
		msg_u16(m, (uint32_t)word.len + 2);
		owner = (uint32_t)m->len;
		msg_name(m, word);
		n++;
	}
	rest = row->addrs ? slice_str(row->addrs) : (struct slice){NULL, 0};
	while (rest.p) {
		REQUIRE(netaddr_parse(slice_cut(&rest, ' '), &addr));
		v4 = netaddr_is_v4(&addr);
		if (v4 != (type == PEER_A))
			continue;
		msg_rr(m, owner, type, ttl);
		ttl -= row->ttl_step;
		msg_u16(m, v4 ? 4 : 16);
		msg_add(m, v4 ? addr.b + 12 : addr.b, v4 ? 4 : 16);
		n++;
	}
	return n;
}

/* One record that lies about itself; returns the answer count to claim. */
static uint32_t msg_lie(struct peer_msg *m, enum peer_act act)
{
	msg_rr(m, 12, act == PEER_CNAME_LOOP ? 5 : 1, 60);
	if (act == PEER_RDLENGTH_FFFF)
		msg_u16(m, 0xffff);
	else if (act == PEER_RDLENGTH_3)
		msg_u16(m, 3);
	else if (act == PEER_ANCOUNT_FFFF)
		msg_u16(m, 4);
	else
		msg_u16(m, 2);
	if (act == PEER_CNAME_LOOP)
		msg_u16(m, 0xc000 | (uint32_t)m->len);
	else
		msg_add(m, "\x0a\x01\x02\x03", act == PEER_RDLENGTH_3 ? 3 : 4);
	return act == PEER_ANCOUNT_FFFF ? 0xffff : 1;
}

static void peer_reply_send(const struct peer_reply *r)
{
	uint8_t head[2] = {(uint8_t)(r->msg.len >> 8), (uint8_t)r->msg.len};

	if (r->tcp) {
		REQUIRE(send(r->fd, head, 2, MSG_NOSIGNAL) == 2);
		(void)!send(r->fd, r->msg.b, r->msg.len, MSG_NOSIGNAL);
	} else {
		(void)!sendto(r->fd, r->msg.b, r->msg.len, 0, (const struct sockaddr *)&r->to,
			sizeof(r->to));
	}
}

/* The reply stays on the peer's list to its end, which is never far in a test. */
static void on_peer_reply(evutil_socket_t fd, short what, void *arg)
{
	peer_reply_send(arg);
}

static void peer_garbage(struct peer *p, const struct sockaddr_storage *to)
{
	static const uint8_t bytes[300] = {0xff, 0x41, 0xc0, 0x0c};
	static const size_t sizes[] = {0, 1, 2, 11, 12, 13, 300};
	size_t i;

	for (i = 0; i < ARRAY_LEN(sizes); i++)
		(void)!sendto(p->udp, bytes, sizes[i], 0, (const struct sockaddr *)to, sizeof(*to));
}

/* The question of q as it is to be repeated in the reply. */
static void msg_question(struct peer_msg *m, const uint8_t *q, size_t len, enum peer_act act)
{
	size_t i;

	msg_add(m, q, len);
	if (act == PEER_WRONG_QUESTION)
		m->b[13] ^= 1;
	for (i = 12; act == PEER_OTHER_CASE && i + 4 < m->len; i++)
		m->b[i] = (uint8_t)toupper(m->b[i]);
}

static void peer_reply_encode(struct peer_reply *r, const uint8_t *q, size_t question_len,
	const struct peer_row *row, uint16_t type)
{
	struct peer_msg *m = &r->msg;
	enum peer_act act = row->act;
	uint32_t rcode = 0;
	uint32_t n = 0;

	if (act == PEER_NXDOMAIN)
		rcode = 3;
	else if (act == PEER_SERVFAIL)
		rcode = 2;
	else if (act == PEER_REFUSED)
		rcode = 5;
	else if (act == PEER_FORMERR_EDNS && q[11] > 0)
		rcode = 1;
	msg_add(m, q, 2);
	m->b[1] ^= act == PEER_WRONG_ID;
	msg_u16(m, 0x8180 | rcode | (act == PEER_TRUNCATED && !r->tcp ? 0x0200 : 0));
	msg_u16(m, 1);
	msg_u32(m, 0);
	msg_u16(m, 0);
	msg_question(m, q + 12, question_len, act);
	if (act >= PEER_RDLENGTH_FFFF && act <= PEER_CNAME_LOOP)
		n = msg_lie(m, act);
	else if (rcode == 0 && (act != PEER_TRUNCATED || r->tcp))
		n = msg_answers(m, row, type);
	m->b[6] = (uint8_t)(n >> 8);
	m->b[7] = (uint8_t)n;
}

/* Reads the name of the question; returns the length of the whole question, 0 if it is none. */
static size_t peer_question(const uint8_t *q, size_t len, char name[256], uint16_t *type)
{
	size_t at = 12;
	size_t n = 0;
	size_t i;

	if (len < 17 || q[4] != 0 || q[5] != 1)
		return 0;
	while (at < len && q[at] != 0) {
		if (at + q[at] + 1U >= len || n + q[at] + 1U >= 256)
			return 0;
		for (i = 1; i <= q[at]; i++)
			name[n++] = (char)q[at + i];
		name[n++] = '.';
		at += q[at] + 1U;
	}
	name[n > 0 ? n - 1 : 0] = '\0';
	if (at + 5 > len)
		return 0;
	*type = (uint16_t)(q[at + 1] << 8 | q[at + 2]);
	return at + 5 - 12;
}

static const struct peer_row *peer_row_find(const struct peer *p, const char *name, uint16_t type)
{
	static const struct peer_row none = {.act = PEER_ANSWER};
	size_t i;

	for (i = 0; i < p->n_rows; i++) {
		if (p->rows[i].type != PEER_ANY && p->rows[i].type != type)
			continue;
		if (strcmp(p->rows[i].name, "*") == 0 || strcasecmp(p->rows[i].name, name) == 0)
			return &p->rows[i];
	}
	return &none;
}

static void peer_note(struct peer *p, const uint8_t *q, size_t len, size_t question_len)
{
	p->n_questions++;
	if (q[11] > 0 && len >= 12 + question_len + 11) {
		p->n_edns++;
		p->edns_size = (uint16_t)(q[12 + question_len + 3] << 8 | q[12 + question_len + 4]);
	}
}

static void peer_note_port(struct peer *p, uint16_t port)
{
	size_t i;

	for (i = 0; i < p->n_ports; i++)
		if (p->ports[i] == port)
			return;
	if (p->n_ports < PEER_PORTS_MAX)
		p->ports[p->n_ports++] = port;
}

static void peer_answer(
	struct peer *p, int fd, const struct sockaddr_storage *to, const uint8_t *q, size_t len)
{
	const struct peer_row *row;
	struct peer_reply *r;
	struct timeval tv;
	size_t question_len;
	uint32_t delay_ms;
	uint16_t type = 0;

	question_len = peer_question(q, len, p->last_name, &type);
	if (question_len == 0)
		return;
	peer_note(p, q, len, question_len);
	row = peer_row_find(p, p->last_name, type);
	if (row->act == PEER_SILENT || p->n_questions <= row->lose)
		return;
	if (row->act == PEER_GARBAGE) {
		if (to)
			peer_garbage(p, to);
		return;
	}
	r = xcalloc(1, sizeof(*r));
	r->fd = fd;
	r->tcp = !to;
	if (to)
		r->to = *to;
	peer_reply_encode(r, q, question_len, row, type);
	delay_ms = row->delay_ms;
	if (row->delay_spread > 0)
		delay_ms += (uint32_t)p->n_questions % row->delay_spread;
	if (delay_ms == 0) {
		peer_reply_send(r);
		free(r);
		return;
	}
	r->next = p->late;
	p->late = r;
	if (delay_ms == PEER_HELD)
		return;
	tv.tv_sec = delay_ms / 1000;
	tv.tv_usec = (suseconds_t)(delay_ms % 1000) * 1000;
	r->timer = evtimer_new(p->base, on_peer_reply, r);
	REQUIRE(r->timer && evtimer_add(r->timer, &tv) == 0);
}

static void on_peer_udp(evutil_socket_t fd, short what, void *arg)
{
	struct peer *p = arg;
	uint8_t q[PEER_MSG_MAX] = {0};
	struct sockaddr_storage from = {0};
	struct netaddr addr;
	uint16_t port;
	socklen_t from_len;
	ssize_t len;

	for (;;) {
		from_len = sizeof(from);
		len = recvfrom(fd, q, sizeof(q), 0, (struct sockaddr *)&from, &from_len);
		if (len < 0)
			return;
		REQUIRE(netaddr_from_sockaddr((struct sockaddr *)&from, &addr, &port));
		peer_note_port(p, port);
		peer_answer(p, fd, &from, q, (size_t)len);
	}
}

/* Tests ask over loopback and one question at a time: a message always comes in one piece. */
static void on_peer_conn(evutil_socket_t fd, short what, void *arg)
{
	struct peer_conn *c = arg;
	struct peer_conn **at = &c->peer->conns;
	uint8_t q[PEER_MSG_MAX];
	ssize_t len = recv(fd, q, sizeof(q), 0);

	if (len > 2) {
		c->peer->n_tcp++;
		peer_answer(c->peer, fd, NULL, q + 2, (size_t)len - 2);
		return;
	}
	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
	event_free(c->ev);
	close(c->fd);
	free(c);
}

static void on_peer_accept(evutil_socket_t fd, short what, void *arg)
{
	struct peer *p = arg;
	struct peer_conn *c = xcalloc(1, sizeof(*c));

	c->peer = p;
	c->fd = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	REQUIRE(c->fd >= 0);
	c->next = p->conns;
	p->conns = c;
	c->ev = event_new(p->base, c->fd, EV_READ | EV_PERSIST, on_peer_conn, c);
	REQUIRE(event_add(c->ev, NULL) == 0);
}

/* One port for both, at an address whose port is 0. The kernel may give for TCP a port where
 * another process has a UDP socket: then another is taken. False: no socket of this family. */
static bool peer_bind(struct peer *p, int family, const struct sockaddr *at, socklen_t len)
{
	struct sockaddr_storage got;

	for (int tries = 0; tries < PORT_TRIES_MAX; tries++) {
		socklen_t got_len = sizeof(got);

		p->tcp = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		p->udp = socket(family, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		if (p->tcp < 0 || p->udp < 0 || bind(p->tcp, at, len) < 0)
			tries = PORT_TRIES_MAX;
		else if (getsockname(p->tcp, (struct sockaddr *)&got, &got_len) == 0 &&
			bind(p->udp, (struct sockaddr *)&got, got_len) == 0)
			return true;
		close(p->tcp);
		close(p->udp);
	}
	return false;
}

bool peer_init(struct peer *p, struct event_base *base, int family)
{
	static const struct netaddr v4 = {{[10] = 0xff, 0xff, 127, 0, 0, 1}};
	static const struct netaddr v6 = {{[15] = 1}};
	struct sockaddr_storage ss;
	socklen_t len = netaddr_to_sockaddr(family == AF_INET ? &v4 : &v6, 0, &ss);
	int room = 4 << 20; /* a burst of 2,000 questions must fit */
	struct netaddr addr;

	memset(p, 0, sizeof(*p));
	p->base = base;
	if (!peer_bind(p, family, (struct sockaddr *)&ss, len))
		return false;
	REQUIRE(listen(p->tcp, 8) == 0);
	REQUIRE(getsockname(p->tcp, (struct sockaddr *)&ss, &len) == 0);
	REQUIRE(netaddr_from_sockaddr((struct sockaddr *)&ss, &addr, &p->port));
	(void)setsockopt(p->udp, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
	p->on_udp = event_new(base, p->udp, EV_READ | EV_PERSIST, on_peer_udp, p);
	p->on_tcp = event_new(base, p->tcp, EV_READ | EV_PERSIST, on_peer_accept, p);
	REQUIRE(event_add(p->on_udp, NULL) == 0 && event_add(p->on_tcp, NULL) == 0);
	return true;
}

void peer_fini(struct peer *p)
{
	struct peer_reply *r;
	struct peer_conn *c;

	while ((r = p->late)) {
		p->late = r->next;
		if (r->timer)
			event_free(r->timer);
		free(r);
	}
	while ((c = p->conns)) {
		p->conns = c->next;
		event_free(c->ev);
		close(c->fd);
		free(c);
	}
	event_free(p->on_udp);
	event_free(p->on_tcp);
	close(p->udp);
	close(p->tcp);
}

void peer_script(struct peer *p, const struct peer_row *rows, size_t n)
{
	p->rows = rows;
	p->n_rows = n;
	p->n_questions = 0;
	p->n_tcp = 0;
	p->n_edns = 0;
	p->edns_size = 0;
	p->n_ports = 0;
}

void peer_release(struct peer *p)
{
	const struct peer_reply *r;

	for (r = p->late; r; r = r->next)
		if (!r->timer)
			peer_reply_send(r);
}
