/* Accepting. What comes out is a session. */
#include "proxy/listener.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/event.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"
#include "proxy/origdst.h"
#include "proxy/session.h"

#define LISTENER_PAUSE_MS 100   /* until descriptors are tried again */
#define LISTENER_ACCEPTS_MAX 64 /* of one event: those that are served already wait meanwhile */

struct listener {
	struct proxy *px;
	int fd;
	struct event *readable;
	struct event *resume;
	struct log_rate full_rate;
};

static void on_listener_resume(evutil_socket_t fd, short what, void *arg)
{
	struct listener *l = arg;

	event_add(l->readable, NULL);
}

static void listener_pause(struct listener *l, const char *why)
{
	struct timeval wait = {0, LISTENER_PAUSE_MS * 1000};
	uint32_t left_out;

	event_del(l->readable);
	event_add(l->resume, &wait);
	if (log_rate_ok(&l->full_rate, clock_mono_ms(), &left_out))
		log_warn("listener", "%s: no new connections until some end (%zu open)", why,
			l->px->n_sessions);
}

/* A session needs two descriptors, its own and its origin's. */
static size_t listener_limit(const struct proxy *px)
{
	if (px->config.max_connections > 0)
		return px->config.max_connections;
	return px->descriptors >= 2 ? px->descriptors / 2 : 1;
}

static void on_listener_readable(evutil_socket_t fd, short what, void *arg)
{
	struct listener *l = arg;
	size_t limit = listener_limit(l->px);

	for (int i = 0; i < LISTENER_ACCEPTS_MAX; i++) {
		struct sockaddr_storage peer;
		socklen_t len = sizeof(peer);
		struct netaddr orig;
		uint16_t port = 0;
		bool redirected;
		int conn;

		if (l->px->n_sessions >= limit) {
			listener_pause(l, "the limit of connections is reached");
			return;
		}
		conn = accept4(l->fd, (struct sockaddr *)&peer, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (conn < 0) {
			if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
				errno == ENOMEM)
				listener_pause(l, err_text(-errno));
			return;
		}
		redirected = origdst_find(conn, &orig, &port);
		session_new(l->px, conn, &peer, redirected ? &orig : NULL, port);
	}
}

struct listener *listener_new(struct proxy *px, int fd)
{
	struct listener *l = xcalloc(1, sizeof(*l));

	l->px = px;
	l->fd = fd;
	l->full_rate = (struct log_rate){.burst = 1, .every_ms = 10000};
	l->readable = event_new(px->base, fd, EV_READ | EV_PERSIST, on_listener_readable, l);
	l->resume = event_new(px->base, -1, 0, on_listener_resume, l);
	REQUIRE(l->readable && l->resume);
	event_add(l->readable, NULL);
	return l;
}

void listener_free(struct listener *l)
{
	if (!l)
		return;
	event_free(l->readable);
	event_free(l->resume);
	free(l);
}
