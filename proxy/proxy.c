/* The proxy as a whole: what hangs together at its start, its configuration, its end. */
#include "proxy/proxy.h"

#include <sys/resource.h>
#include <unistd.h>

#include "audit/client_uid.h"
#include "base/arena.h"
#include "base/map.h"
#include "proxy/listener.h"
#include "proxy/session.h"
#include "proxy/tunnel.h"
#include "proxy/upstream.h"
#include "vault/vault.h"

#define PROXY_FD_RESERVE 64 /* for files, the loop, resolvers, and what is being accepted */

static size_t proxy_descriptors(const struct proxy_config *c)
{
	const size_t reserve = PROXY_FD_RESERVE + c->reserved_descriptors;
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r) < 0 || r.rlim_cur == RLIM_INFINITY)
		return SIZE_MAX;
	return r.rlim_cur > reserve ? (size_t)r.rlim_cur - reserve : 0;
}

int proxy_new(struct event_base *base, struct tls *tls, struct resolver *resolver,
	struct audit *audit, struct secmem *secmem, struct proxy **out)
{
	struct proxy *px = xcalloc(1, sizeof(*px));
	int ret = io_new(secmem, &px->io);

	if (ret < 0) {
		free(px);
		return ret;
	}
	px->base = base;
	px->tls = tls;
	px->resolver = resolver;
	px->audit = audit;
	px->secmem = secmem;
	px->diag_fd = client_uid_open();
	px->pool = map_new(0, free);
	TAILQ_INIT(&px->sessions);
	TAILQ_INIT(&px->upstreams);
	deadlines_init(&px->deadlines, base);
	*out = px;
	return 0;
}

void proxy_configure(struct proxy *px, const struct proxy_config *config)
{
	struct policy *before = px->config.policy;
	struct session *s, *next;

	px->config = *config;
	px->descriptors = proxy_descriptors(config);
	policy_ref(px->config.policy);
	policy_unref(before);
	px->epoch++;
	/* a kept connection was judged by the policy before */
	upstream_drop_idle(px);
	for (s = config->keep_running ? NULL : TAILQ_FIRST(&px->sessions); s; s = next) {
		next = TAILQ_NEXT(s, link);
		session_rejudge(s);
	}
}

static const struct vault_view *session_view(const struct session *s)
{
	const struct exchange *ex = s->tunnel ? tunnel_exchange(s->tunnel) : s->h1.ex;

	return ex ? ex->keyed.view : NULL;
}

size_t proxy_free_keys(struct proxy *px, bool all)
{
	struct vault_view *now = px->config.vault ? vault_view_get(px->config.vault) : NULL;
	struct session *s, *next;
	size_t n = 0;

	for (s = TAILQ_FIRST(&px->sessions); s; s = next) {
		const struct vault_view *view = session_view(s);

		next = TAILQ_NEXT(s, link);
		if (view && (all || view != now)) {
			session_free(s, REASON_KEY_MEMORY);
			n++;
		}
	}
	vault_view_unref(now);
	return n;
}

void proxy_listen(struct proxy *px, int fd)
{
	REQUIRE(px->n_listeners < PROXY_LISTENERS_MAX);
	px->listeners[px->n_listeners++] = listener_new(px, fd);
}

static bool session_is_busy(const struct session *s)
{
	return s->h1.ex || s->tunnel;
}

void proxy_thaw(struct proxy *px, uint64_t ms)
{
	deadlines_shift(&px->deadlines, ms);
	upstream_drop_idle(px);
}

void proxy_drain(struct proxy *px)
{
	struct session *s = TAILQ_FIRST(&px->sessions);

	for (size_t i = 0; i < px->n_listeners; i++)
		listener_free(px->listeners[i]);
	px->n_listeners = 0;
	while (s) {
		struct session *next = TAILQ_NEXT(s, link);

		if (!session_is_busy(s))
			session_free(s, REASON_SHUTDOWN);
		else
			s->h1.keep_alive = false;
		s = next;
	}
	upstream_drop_idle(px);
}

size_t proxy_busy(const struct proxy *px)
{
	const struct session *s;
	size_t n = 0;

	TAILQ_FOREACH(s, &px->sessions, link)
		n += session_is_busy(s) ? 1 : 0;
	return n;
}

void proxy_tell_denied(const struct proxy *px, enum reason reason, const struct authority *target)
{
	if (px->config.denied && target && !target->is_addr &&
		(reason == REASON_DENIED || reason == REASON_HOST_NOT_LISTED ||
			reason == REASON_ABOVE_CEILING))
		px->config.denied(px->config.denied_arg, authority_name(target));
}

void proxy_free(struct proxy *px)
{
	struct session *s;

	if (!px)
		return;
	proxy_drain(px);
	while ((s = TAILQ_FIRST(&px->sessions)) != NULL)
		session_free(s, REASON_SHUTDOWN);
	upstream_drop_idle(px);
	REQUIRE(TAILQ_EMPTY(&px->upstreams));
	map_free(px->pool);
	deadlines_fini(&px->deadlines);
	policy_unref(px->config.policy);
	io_free(px->io);
	free(px->spare);
	if (px->diag_fd >= 0)
		close(px->diag_fd);
	free(px);
}
