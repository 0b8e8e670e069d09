/* The worker's side of the guard. Before it: the DNS gate and policy changes; after it: the socket
 * to egress-guard.
 *
 * Calls are answered in the order in which they were sent, so a queue of calls is enough; a called
 * off one stays in it until its answer comes. What the socket does not take waits in a buffer. */
#include "nft/guard_client.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/event.h>

#include "base/arena.h"
#include "base/clock.h"

struct guard_call {
	TAILQ_ENTRY(guard_call) entry;
	uint32_t id;
	guard_cb done; /* NULL: called off */
	void *arg;
};

/* A packet that waits for the socket. */
struct guard_packet {
	STAILQ_ENTRY(guard_packet) entry;
	size_t len;
	uint8_t bytes[];
};

struct guard_client {
	int fd;
	struct event *readable;
	struct event *writable;
	struct event *stall; /* anew at each sign of life */
	struct event *gone;  /* tells of the loss from the loop */
	struct guard_client_events events;
	void *arg;
	TAILQ_HEAD(, guard_call) calls;
	STAILQ_HEAD(, guard_packet) packets;
	size_t n_calls;
	uint32_t last_id;
	struct guard_state state;
	uint64_t heard_ms; /* when stall began to run */
	bool lost;
	bool silent;   /* that is why */
	unsigned busy; /* callbacks of the owner that run; who may free us in one */
	bool dead;     /* freed meanwhile: the last of them lets the memory go */
};

/* Messages read in one go, before others of the loop get their turn. */
#define GUARD_CLIENT_BURST 64

static void guard_client_lose(struct guard_client *g)
{
	if (g->lost)
		return;
	g->lost = true;
	(void)event_del(g->readable);
	(void)event_del(g->writable);
	(void)event_del(g->stall);
	event_active(g->gone, EV_TIMEOUT, 0);
}

/* The guard has GUARD_CLIENT_STALL_MS for the next sign of life. Only what comes from it counts: a
 * new call must not give a stopped guard more time. */
static void guard_client_watch(struct guard_client *g)
{
	const struct timeval limit = {
		GUARD_CLIENT_STALL_MS / 1000, (GUARD_CLIENT_STALL_MS % 1000) * 1000};

	g->heard_ms = clock_mono_ms();
	(void)event_add(g->stall, &limit);
}

static struct guard_call *guard_client_take_call(struct guard_client *g)
{
	struct guard_call *c = TAILQ_FIRST(&g->calls);

	TAILQ_REMOVE(&g->calls, c, entry);
	g->n_calls--;
	return c;
}

/* After a callback of the owner. True if the owner freed the client in it. */
static bool guard_client_leave(struct guard_client *g)
{
	bool dead = g->dead;

	if (--g->busy == 0 && dead)
		free(g);
	return dead;
}

/* True if the owner freed the client in done. */
static bool guard_client_end_call(struct guard_client *g, int err)
{
	struct guard_call *c = guard_client_take_call(g);
	const guard_cb done = c->done;
	void *arg = c->arg;

	free(c);
	if (!done)
		return false;
	g->busy++;
	done(err, arg);
	return guard_client_leave(g);
}

static void on_gone(evutil_socket_t fd, short what, void *arg)
{
	struct guard_client *g = arg;

	while (!TAILQ_EMPTY(&g->calls)) {
		if (guard_client_end_call(g, E_GUARD))
			return;
	}
	if (g->events.lost)
		g->events.lost(g->arg);
}

static void on_stall(evutil_socket_t fd, short what, void *arg)
{
	struct guard_client *g = arg;

	if (clock_mono_ms() - g->heard_ms > GUARD_CLIENT_STALL_MS + GUARD_CLIENT_LATE_MS) {
		guard_client_watch(g);
		return;
	}
	g->silent = true;
	guard_client_lose(g);
}

/* True if the client is gone or freed afterwards. */
static bool guard_client_done(struct guard_client *g, const struct guard_done *m)
{
	const struct guard_call *c = TAILQ_FIRST(&g->calls);

	/* The analyzer does not see that TAILQ_REMOVE took the call before this one out. */
	if (!c || c->id != m->head.id) { // NOLINT(clang-analyzer-unix.Malloc)
		guard_client_lose(g);
		return true;
	}
	return guard_client_end_call(g, m->err);
}

static bool guard_client_take(struct guard_client *g, const union guard_any *m)
{
	switch ((enum guard_type)m->head.type) {
	case GUARD_DONE:
		return guard_client_done(g, &m->done);
	case GUARD_STATE:
		g->state = m->state;
		g->busy++;
		if (g->events.state)
			g->events.state(&m->state, g->arg);
		return guard_client_leave(g);
	case GUARD_FLOW:
		g->busy++;
		if (g->events.flow)
			g->events.flow(&m->flow, g->arg);
		return guard_client_leave(g);
	case GUARD_BEAT:
	case GUARD_ALLOW:
	case GUARD_BEGIN:
	case GUARD_ENTRIES:
	case GUARD_COMMIT:
	case GUARD_TYPE_MAX:
		break;
	}
	return false;
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct guard_client *g = arg;

	for (int i = 0; i < GUARD_CLIENT_BURST; i++) {
		union {
			union guard_any m;
			uint8_t room[sizeof(union guard_any) + 1];
		} in;
		ssize_t n = recv(fd, &in, sizeof(in), 0);

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			break;
		if (n <= 0 || !guard_msg_valid(&in.m, (size_t)n, true)) {
			guard_client_lose(g);
			return;
		}
		if (guard_client_take(g, &in.m) || g->lost)
			return;
	}
	guard_client_watch(g);
}

/* 1: sent, 0: the socket is full, else a negated errno. */
static int guard_client_try(const struct guard_client *g, const void *m, size_t len)
{
	ssize_t n;

	do {
		n = send(g->fd, m, len, MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == EAGAIN ? 0 : -errno;
	return 1;
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
	struct guard_client *g = arg;
	struct guard_packet *p;

	while ((p = STAILQ_FIRST(&g->packets)) != NULL) {
		int ret = guard_client_try(g, p->bytes, p->len);

		if (ret < 0) {
			guard_client_lose(g);
			return;
		}
		if (ret == 0) {
			(void)event_add(g->writable, NULL);
			return;
		}
		STAILQ_REMOVE_HEAD(&g->packets, entry);
		free(p);
		guard_client_watch(g);
	}
}

static void guard_client_send(struct guard_client *g, const void *m, size_t len)
{
	struct guard_packet *p;
	int ret = 0;

	if (g->lost)
		return;
	if (STAILQ_EMPTY(&g->packets))
		ret = guard_client_try(g, m, len);
	if (ret < 0) {
		guard_client_lose(g);
		return;
	}
	if (ret > 0)
		return;
	p = xmalloc(sizeof(*p) + len);
	p->len = len;
	memcpy(p->bytes, m, len);
	STAILQ_INSERT_TAIL(&g->packets, p, entry);
	(void)event_add(g->writable, NULL);
}

static struct guard_call *guard_client_call(struct guard_client *g, guard_cb done, void *arg)
{
	struct guard_call *c = xcalloc(1, sizeof(*c));

	c->id = ++g->last_id;
	c->done = done;
	c->arg = arg;
	TAILQ_INSERT_TAIL(&g->calls, c, entry);
	g->n_calls++;
	return c;
}

static bool guard_client_is_open(const struct guard_client *g)
{
	return !g->lost && g->n_calls < GUARD_CALLS_MAX;
}

struct guard_call *guard_allow_start(
	struct guard_client *g, const struct guard_lease *v, size_t n, guard_cb done, void *arg)
{
	union guard_any m = {.allow = {.head = {.type = GUARD_ALLOW}, .n = (uint32_t)n}};
	struct guard_call *c;

	if (!guard_client_is_open(g) || n == 0 || n > GUARD_LEASES_MAX)
		return NULL;
	memcpy(m.allow.lease, v, n * sizeof(*v));
	if (!guard_msg_valid(&m, sizeof(m.allow), false))
		return NULL;
	c = guard_client_call(g, done, arg);
	m.head.id = c->id;
	guard_client_send(g, &m, sizeof(m.allow));
	return c;
}

static void guard_client_send_entries(struct guard_client *g, const struct ruleset *r)
{
	for (size_t at = 0; at < r->n; at += GUARD_CHUNK_MAX) {
		const size_t n = r->n - at < GUARD_CHUNK_MAX ? r->n - at : GUARD_CHUNK_MAX;
		struct guard_entries m = {.head = {.type = GUARD_ENTRIES}, .n = (uint32_t)n};

		memcpy(m.entry, r->entry + at, n * sizeof(m.entry[0]));
		guard_client_send(g, &m, sizeof(m));
	}
}

static bool guard_client_fits(const struct ruleset *r)
{
	if (!ruleset_options_valid(&r->options))
		return false;
	for (size_t i = 0; i < r->n; i++) {
		if (!ruleset_entry_valid(&r->entry[i]))
			return false;
	}
	return true;
}

struct guard_call *guard_apply_start(
	struct guard_client *g, const struct ruleset *r, guard_cb done, void *arg)
{
	const struct guard_begin begin = {.head = {.type = GUARD_BEGIN}, .options = r->options};
	struct guard_commit commit = {.head = {.type = GUARD_COMMIT}, .n = (uint32_t)r->n};
	struct guard_call *c;

	if (!guard_client_is_open(g) || !guard_client_fits(r))
		return NULL;
	c = guard_client_call(g, done, arg);
	commit.head.id = c->id;
	guard_client_send(g, &begin, sizeof(begin));
	guard_client_send_entries(g, r);
	guard_client_send(g, &commit, sizeof(commit));
	return c;
}

void guard_call_cancel(struct guard_call *c)
{
	if (c)
		c->done = NULL;
}

bool guard_client_is_silent(const struct guard_client *g)
{
	return g->silent;
}

const struct guard_state *guard_client_state(const struct guard_client *g)
{
	return &g->state;
}

struct guard_client *guard_client_new(
	struct event_base *base, int fd, const struct guard_client_events *events, void *arg)
{
	struct guard_client *g = xcalloc(1, sizeof(*g));

	g->fd = fd;
	g->events = *events;
	g->arg = arg;
	TAILQ_INIT(&g->calls);
	STAILQ_INIT(&g->packets);
	(void)evutil_make_socket_nonblocking(fd);
	g->readable = event_new(base, fd, EV_READ | EV_PERSIST, on_readable, g);
	g->writable = event_new(base, fd, EV_WRITE, on_writable, g);
	g->stall = event_new(base, -1, 0, on_stall, g);
	g->gone = event_new(base, -1, 0, on_gone, g);
	REQUIRE(g->readable && g->writable && g->stall && g->gone);
	(void)event_add(g->readable, NULL);
	guard_client_watch(g);
	return g;
}

void guard_client_free(struct guard_client *g)
{
	struct guard_packet *p;

	if (!g)
		return;
	while (!TAILQ_EMPTY(&g->calls))
		free(guard_client_take_call(g));
	while ((p = STAILQ_FIRST(&g->packets)) != NULL) {
		STAILQ_REMOVE_HEAD(&g->packets, entry);
		free(p);
	}
	event_free(g->readable);
	event_free(g->writable);
	event_free(g->stall);
	event_free(g->gone);
	(void)close(g->fd);
	g->dead = true;
	if (g->busy == 0)
		free(g);
}
