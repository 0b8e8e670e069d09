/* The pool of upstream connections. The protocol on them is h1_upstream's. */
#include "proxy/upstream.h"

#include <errno.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/map.h"
#include "base/secmem.h"

/* The idle connections of one origin; lives in the pool's map while it has any. */
struct upstream_host {
	TAILQ_HEAD(, upstream) idle;
	size_t n;
};

static size_t upstream_key(
	const struct authority *target, enum upstream_kind kind, char key[UPSTREAM_KEY_MAX])
{
	key[0] = (char)kind;
	key[1] = (char)(target->port >> 8);
	key[2] = (char)(target->port & 0xff);
	memcpy(key + 3, target->name, target->name_len);
	return target->name_len + 3;
}

static void upstream_unpool(struct upstream *u)
{
	struct upstream_host *host = u->host;

	if (!host)
		return;
	TAILQ_REMOVE(&host->idle, u, idle_link);
	u->host = NULL;
	u->px->n_idle--;
	if (--host->n == 0)
		map_remove(u->px->pool, slice_make(u->key, u->key_len));
}

struct upstream *upstream_find(struct proxy *px, const struct authority *target,
	enum upstream_kind kind, enum reason (*admit)(const struct netaddr *a, void *arg),
	void *arg)
{
	char key[UPSTREAM_KEY_MAX];
	size_t len = upstream_key(target, kind, key);
	struct upstream_host *host = map_find(px->pool, slice_make(key, len));
	struct upstream *u;

	if (!host)
		return NULL;
	TAILQ_FOREACH(u, &host->idle, idle_link) {
		if (!reason_allows(admit(&u->addr, arg)))
			continue;
		upstream_unpool(u);
		u->deadline.at_ms = 0;
		u->used_before = true;
		return u;
	}
	return NULL;
}

struct upstream *upstream_new(struct proxy *px, const struct authority *target,
	enum upstream_kind kind, struct dial *d, const struct dial_result *result)
{
	struct upstream *u = xcalloc(1, sizeof(*u));

	u->px = px;
	u->addr = result->addr;
	u->verified = result->verified;
	u->key_len = upstream_key(target, kind, u->key);
	dial_take(d, &u->conn, &upstream_conn_ops, u);
	h1_body_init(&u->body, H1_NO_CONTENT, 0);
	deadline_add(&px->deadlines, &u->deadline, on_upstream_late, u);
	TAILQ_INSERT_TAIL(&px->upstreams, u, link);
	conn_want_read(&u->conn);
	return u;
}

void upstream_drop_saved(struct proxy *px, char *saved)
{
	if (saved && px->secmem && secmem_holds(px->secmem, saved))
		secmem_release(px->secmem, saved);
	else
		free(saved);
}

void upstream_free(struct upstream *u)
{
	if (!u)
		return;
	upstream_unpool(u);
	TAILQ_REMOVE(&u->px->upstreams, u, link);
	deadline_remove(&u->px->deadlines, &u->deadline);
	conn_fini(&u->conn);
	h1_body_fini(&u->body);
	upstream_drop_saved(u->px, u->saved);
	free(u);
}

/* The least recently used of all that idle. */
static void upstream_evict(struct proxy *px)
{
	struct upstream *u;

	TAILQ_FOREACH(u, &px->upstreams, link) {
		/* the analyzer does not see that upstream_free takes it off the list */
		if (u->host) { /* NOLINT(clang-analyzer-unix.Malloc) */
			upstream_free(u);
			return;
		}
	}
}

void upstream_make_room(struct proxy *px)
{
	while (px->n_idle > 0 &&
		(px->n_idle > UPSTREAM_IDLE_MAX ||
			2 * px->n_sessions + px->n_idle > px->descriptors))
		upstream_evict(px);
}

void upstream_release(struct upstream *u)
{
	struct proxy *px = u->px;
	struct slice key = slice_make(u->key, u->key_len);
	struct upstream_host *host;

	u->ex = NULL;
	u->state = UPSTREAM_IDLE;
	if (!u->keep || u->conn.error || u->conn.ended || px->config.upstream_idle_ms == 0) {
		upstream_free(u);
		return;
	}
	host = map_find(px->pool, key);
	if (!host) {
		host = xcalloc(1, sizeof(*host));
		TAILQ_INIT(&host->idle);
		map_put(px->pool, key, host);
	}
	if (host->n == UPSTREAM_IDLE_HOST_MAX) {
		upstream_free(u);
		return;
	}
	conn_spare(&u->conn);
	TAILQ_INSERT_HEAD(&host->idle, u, idle_link);
	host->n++;
	u->host = host;
	TAILQ_REMOVE(&px->upstreams, u, link);
	TAILQ_INSERT_TAIL(&px->upstreams, u, link);
	u->deadline.at_ms = clock_mono_ms() + px->config.upstream_idle_ms;
	conn_want_read(&u->conn); /* a FIN, or bytes nobody asked for, end it */
	px->n_idle++;
	upstream_make_room(px);
}

void upstream_drop_idle(struct proxy *px)
{
	struct upstream *u = TAILQ_FIRST(&px->upstreams);

	while (u) {
		struct upstream *next = TAILQ_NEXT(u, link);

		if (u->host)
			upstream_free(u);
		u = next;
	}
}
