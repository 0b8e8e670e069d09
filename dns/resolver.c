/* Looks names up for the proxy and keeps the answers.
 *
 * Before it: upstream, which wants addresses of a name. After it: addr_cache, which keeps them,
 * and channels, which asks for A and AAAA side by side. A *lookup* is the work on one name; a
 * *waiter* (struct resolve) is one caller of it. Answers are taken in while c-ares runs, but
 * everything is published and told from one event (on_resolver_wake), so that a callback may call
 * anything here, resolver_free included. */
#include "dns/resolver.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/queue.h>
#include <unistd.h>

#include <event2/event.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/hostname.h"
#include "base/log.h"
#include "base/map.h"
#include "dns/addr_cache.h"
#include "dns/channels.h"
#include "dns/upstreams.h"

/* Lookups at a time. A flood of names gets E_RESOLVE past it, which is not kept. */
#define RESOLVER_LOOKUPS_MAX 1024

/* How long the family that answered waits for the other one (RFC 8305 3 says 50 ms). */
#define RESOLVER_GRACE_MS 40

/* That all resolvers failed is kept only so long: they may be back at once. */
#define RESOLVER_FAILURE_MS 1000

/* How long an answer of the gate may lie here past its time. */
#define RESOLVER_SWEEP_S 30

/* How long we believe that there is, or is no, way out for IPv6. */
#define RESOLVER_ROUTE_MS 30000

enum family_state { FAMILY_UNUSED, FAMILY_ASKED, FAMILY_ANSWERED };

struct resolver_family {
	struct resolver_lookup *lookup;
	enum family_state state;
	struct channels_reply reply;
};

TAILQ_HEAD(resolve_list, resolve);

struct resolver_lookup {
	TAILQ_ENTRY(resolver_lookup) link;  /* in resolver.lookups */
	TAILQ_ENTRY(resolver_lookup) touch; /* in resolver.touched, if touched */
	struct resolver *resolver;
	struct resolver_family families[2]; /* by enum channels_type */
	struct resolve_list waiters;
	struct event *grace;
	struct addr_entry *published; /* what the waiters were told; NULL before */
	uint64_t number;              /* of it in the cache; 0: it is not there */
	bool touched;
	bool grace_over;
	size_t name_len;
	char name[HOSTNAME_MAX + 1];
};

struct resolve {
	TAILQ_ENTRY(resolve) link;
	struct resolver *resolver;
	struct resolver_lookup *lookup; /* NULL once in resolver.ready */
	struct addr_entry *entry;       /* what to tell, once in resolver.ready */
	uint64_t turn;
	resolve_cb done;
	void *arg;
};

TAILQ_HEAD(lookup_list, resolver_lookup);

struct resolver {
	struct event_base *base;
	struct channels *channels;
	struct addr_cache *cache;
	struct map *by_name; /* the lookup that a new waiter may join */
	struct lookup_list lookups;
	struct lookup_list touched;
	struct resolve_list ready;
	struct event *wake;
	struct event *sweep;
	uint64_t turn; /* of on_resolver_wake: who gets ready in one is told in the next */
	bool *gone;    /* set by resolver_free while on_resolver_wake runs */
	size_t n_lookups;
	bool route_v6;
	uint64_t route_until_ms;
};

/* True if the kernel has a way to the global IPv6 internet. Connecting a datagram socket asks its
 * routing table and sends nothing. */
static bool resolver_route_probe(void)
{
	/* 2000::1, the first of the global unicast block: any address in it would do. */
	struct sockaddr_in6 to = {.sin6_family = AF_INET6, .sin6_port = htons(9)};
	int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool ok;

	if (fd < 0)
		return false;
	to.sin6_addr.s6_addr[0] = 0x20;
	to.sin6_addr.s6_addr[15] = 1;
	ok = connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0;
	close(fd);
	return ok;
}

static bool resolver_route_v6(struct resolver *r)
{
	uint64_t now_ms = clock_mono_ms();

	if (now_ms >= r->route_until_ms) {
		r->route_v6 = resolver_route_probe();
		r->route_until_ms = now_ms + RESOLVER_ROUTE_MS;
	}
	return r->route_v6;
}

/* Not event_active: a callback that always starts another lookup would keep the loop from its
 * sockets. */
static void resolver_wake(struct resolver *r)
{
	static const struct timeval at_once = {.tv_sec = 0};

	if (!evtimer_pending(r->wake, NULL))
		REQUIRE(evtimer_add(r->wake, &at_once) == 0);
}

static struct slice lookup_name(const struct resolver_lookup *l)
{
	return slice_make(l->name, l->name_len);
}

static void lookup_touch(struct resolver_lookup *l)
{
	if (!l->touched) {
		l->touched = true;
		TAILQ_INSERT_TAIL(&l->resolver->touched, l, touch);
	}
	resolver_wake(l->resolver);
}

static void on_lookup_grace(evutil_socket_t fd, short what, void *arg)
{
	struct resolver_lookup *l = arg;

	l->grace_over = true;
	lookup_touch(l);
}

static void on_lookup_reply(const struct channels_reply *reply, void *arg)
{
	struct resolver_family *f = arg;

	f->reply = *reply;
	f->state = FAMILY_ANSWERED;
	lookup_touch(f->lookup);
}

static void resolve_ready(struct resolve *q, struct addr_entry *entry)
{
	struct resolver *r = q->resolver;

	q->lookup = NULL;
	q->entry = addr_entry_ref(entry);
	q->turn = r->turn;
	TAILQ_INSERT_TAIL(&r->ready, q, link);
	resolver_wake(r);
}

static void resolve_free(struct resolve *q)
{
	addr_entry_unref(q->entry);
	free(q);
}

/* Ends the lookup. Its questions must be answered, or the channels be gone. */
static void lookup_free(struct resolver_lookup *l)
{
	struct resolver *r = l->resolver;
	struct resolve *q;

	while ((q = TAILQ_FIRST(&l->waiters))) {
		TAILQ_REMOVE(&l->waiters, q, link);
		resolve_free(q);
	}
	TAILQ_REMOVE(&r->lookups, l, link);
	r->n_lookups--;
	if (l->grace)
		event_free(l->grace);
	addr_entry_unref(l->published);
	free(l);
}

static bool lookup_is_open(const struct resolver_lookup *l)
{
	return l->families[CHANNELS_A].state == FAMILY_ASKED ||
		l->families[CHANNELS_AAAA].state == FAMILY_ASKED;
}

/* True if a family has said something that the other one need not confirm. */
static bool lookup_is_useful(const struct resolver_lookup *l)
{
	size_t i;

	for (i = 0; i < ARRAY_LEN(l->families); i++)
		if (l->families[i].state == FAMILY_ANSWERED && l->families[i].reply.err == 0)
			return true;
	/* Only of A: there are servers that deny the name when asked for AAAA (RFC 4074 4.2). */
	return l->families[CHANNELS_A].state == FAMILY_ANSWERED &&
		l->families[CHANNELS_A].reply.nxdomain;
}

/* What both answers together say, with the time it holds. */
static struct addr_entry *lookup_result(const struct resolver_lookup *l)
{
	struct netaddr addrs[2 * RESOLVER_ADDRS_MAX];
	uint64_t keep_ms = RESOLVER_TTL_MAX_S * UINT64_C(1000);
	const struct resolver_family *f;
	struct addr_entry *e;
	uint64_t ttl_ms;
	int err = E_NO_NAME;
	size_t n = 0;
	size_t i, k;

	for (i = 0; i < ARRAY_LEN(l->families); i++) {
		f = &l->families[i];
		if (f->state != FAMILY_ANSWERED)
			continue;
		if (f->reply.err != 0 && f->reply.err != E_NO_NAME)
			err = f->reply.err;
		for (k = 0; k < f->reply.n; k++)
			addrs[n++] = f->reply.addrs[k];
		ttl_ms = f->reply.ttl_s * UINT64_C(1000);
		if (f->reply.n > 0 && ttl_ms < keep_ms)
			keep_ms = ttl_ms;
	}
	if (n > 0)
		err = 0;
	else if (lookup_is_useful(l))
		err = E_NO_NAME;
	if (err == E_NO_NAME)
		keep_ms = RESOLVER_NEGATIVE_S * UINT64_C(1000);
	else if (err != 0)
		keep_ms = RESOLVER_FAILURE_MS;
	else if (keep_ms < RESOLVER_TTL_MIN_S * UINT64_C(1000))
		keep_ms = RESOLVER_TTL_MIN_S * UINT64_C(1000);
	e = addr_entry_new(err, addrs, n, resolver_route_v6(l->resolver));
	e->expires_ms = clock_mono_ms() + keep_ms;
	return e;
}

/* The first result: to the cache and to everybody who waits. */
static void lookup_publish(struct resolver_lookup *l)
{
	struct resolver *r = l->resolver;
	struct addr_entry *mine = lookup_result(l);
	struct addr_entry *e = addr_cache_put(r->cache, lookup_name(l), mine);
	struct resolve *q;

	l->published = addr_entry_ref(e->owner ? mine : e);
	l->number = e->number;
	addr_entry_unref(mine);
	map_remove(r->by_name, lookup_name(l));
	while ((q = TAILQ_FIRST(&l->waiters))) {
		TAILQ_REMOVE(&l->waiters, q, link);
		resolve_ready(q, l->published);
	}
}

/* The family that came after the grace. Its addresses join the answer, unless a later lookup has
 * already replaced it. What was known before lives no longer for that. */
static void lookup_amend(struct resolver_lookup *l)
{
	struct resolver *r = l->resolver;
	struct addr_entry *e = lookup_result(l);
	const struct addr_entry *now = addr_cache_peek(r->cache, lookup_name(l));

	if (e->expires_ms > l->published->expires_ms)
		e->expires_ms = l->published->expires_ms;
	if (now && now->number == l->number)
		(void)addr_cache_put(r->cache, lookup_name(l), e);
	addr_entry_unref(e);
}

/* Moves a lookup on after an answer or the end of its grace. */
static void lookup_step(struct resolver_lookup *l)
{
	static const struct timeval grace = {.tv_usec = RESOLVER_GRACE_MS * 1000};
	bool open = lookup_is_open(l);

	if (l->published) {
		if (!open)
			lookup_amend(l);
	} else if (!open || l->grace_over) {
		lookup_publish(l);
	} else if (lookup_is_useful(l) && !l->grace) {
		l->grace = evtimer_new(l->resolver->base, on_lookup_grace, l);
		REQUIRE(l->grace && evtimer_add(l->grace, &grace) == 0);
	}
	if (!open)
		lookup_free(l);
}

/* Takes in what has come, then tells the waiters. */
static void on_resolver_wake(evutil_socket_t fd, short what, void *arg)
{
	struct resolver *r = arg;
	struct resolver_lookup *l;
	struct resolve_answer answer;
	struct resolve *q;
	bool gone = false;

	while ((l = TAILQ_FIRST(&r->touched))) {
		TAILQ_REMOVE(&r->touched, l, touch);
		l->touched = false;
		lookup_step(l);
	}
	r->turn++;
	r->gone = &gone;
	/* The analyzer does not see that TAILQ_REMOVE moves the head on. */
	/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
	while ((q = TAILQ_FIRST(&r->ready)) && q->turn < r->turn) {
		TAILQ_REMOVE(&r->ready, q, link);
		answer.err = q->entry->err;
		answer.addrs = q->entry->addrs;
		answer.n = q->entry->n;
		q->done(&answer, q->arg);
		resolve_free(q);
		if (gone)
			return;
	}
	r->gone = NULL;
}

/* What the gate learned would else stay until 4096 other names push it out. */
static void on_resolver_sweep(evutil_socket_t fd, short what, void *arg)
{
	static const struct timeval every = {.tv_sec = RESOLVER_SWEEP_S};
	struct resolver *r = arg;

	if (addr_cache_sweep(r->cache) > 0)
		evtimer_add(r->sweep, &every);
}

void resolver_learn(struct resolver *r, struct slice name, const struct netaddr *addrs, size_t n,
	uint32_t ttl_s)
{
	struct netaddr all[2 * RESOLVER_ADDRS_MAX];
	const struct addr_entry *old = addr_cache_find(r->cache, name);
	uint64_t keep_ms = ttl_s < RESOLVER_TTL_MIN_S ? RESOLVER_TTL_MIN_S : ttl_s;
	bool v4 = netaddr_is_v4(&addrs[0]);
	struct addr_entry *e;
	size_t n_all = 0;
	size_t i;

	if (old && old->err != 0)
		old = NULL;
	if (!v4 && (!old || !resolver_route_v6(r)))
		return;
	for (i = 0; i < n && n_all < RESOLVER_ADDRS_MAX; i++)
		all[n_all++] = addrs[i];
	for (i = 0; old && i < old->n; i++)
		if (netaddr_is_v4(&old->addrs[i]) != v4)
			all[n_all++] = old->addrs[i];
	e = addr_entry_new(0, all, n_all, resolver_route_v6(r));
	if (keep_ms > RESOLVER_TTL_MAX_S)
		keep_ms = RESOLVER_TTL_MAX_S;
	e->expires_ms = clock_mono_ms() + keep_ms * 1000;
	/* The other family's addresses live no longer for it. */
	if (old && old->expires_ms < e->expires_ms)
		e->expires_ms = old->expires_ms;
	(void)addr_cache_put(r->cache, name, e);
	addr_entry_unref(e);
	if (!evtimer_pending(r->sweep, NULL))
		on_resolver_sweep(-1, 0, r);
}

int resolver_new(struct event_base *base, const struct upstreams *servers, uint32_t timeout_ms,
	struct resolver **out, struct errmsg *msg)
{
	struct channels *channels = NULL;
	struct resolver *r;
	int ret;

	ret = channels_new(base, servers, timeout_ms, &channels, msg);
	if (ret < 0)
		return ret;
	r = xcalloc(1, sizeof(*r));
	r->base = base;
	r->channels = channels;
	r->cache = addr_cache_new();
	r->by_name = map_new(0, NULL);
	TAILQ_INIT(&r->lookups);
	TAILQ_INIT(&r->touched);
	TAILQ_INIT(&r->ready);
	r->wake = evtimer_new(base, on_resolver_wake, r);
	r->sweep = evtimer_new(base, on_resolver_sweep, r);
	REQUIRE(r->wake && r->sweep);
	*out = r;
	return 0;
}

void resolver_free(struct resolver *r)
{
	struct resolver_lookup *l;
	struct resolve *q;

	if (!r)
		return;
	if (r->gone)
		*r->gone = true;
	channels_free(r->channels);
	/* As above: lookup_free takes it off the list. */
	while ((l = TAILQ_FIRST(&r->lookups)))
		lookup_free(l); /* NOLINT(clang-analyzer-unix.Malloc) */
	while ((q = TAILQ_FIRST(&r->ready))) {
		TAILQ_REMOVE(&r->ready, q, link);
		resolve_free(q);
	}
	event_free(r->wake);
	event_free(r->sweep);
	map_free(r->by_name);
	addr_cache_free(r->cache);
	free(r);
}

void resolver_set_hosts(struct resolver *r, struct slice text)
{
	size_t left_out = addr_cache_set_hosts(r->cache, text, resolver_route_v6(r));

	if (left_out > 0)
		log_warn("resolver", "hosts file: too many names, %zu left out", left_out);
}

bool resolver_find(struct resolver *r, struct slice name, struct resolve_answer *out)
{
	const struct addr_entry *e = addr_cache_find(r->cache, name);

	if (!e)
		return false;
	out->err = e->err;
	out->addrs = e->addrs;
	out->n = e->n;
	return true;
}

static void lookup_ask(struct resolver_lookup *l, enum channels_type type)
{
	l->families[type].lookup = l;
	l->families[type].state = FAMILY_ASKED;
	channels_ask(l->resolver->channels, l->name, type, on_lookup_reply, &l->families[type]);
}

static struct resolver_lookup *lookup_new(struct resolver *r, struct slice name)
{
	struct resolver_lookup *l = xcalloc(1, sizeof(*l));

	memcpy(l->name, name.p, name.len);
	l->resolver = r;
	l->name_len = name.len;
	TAILQ_INIT(&l->waiters);
	TAILQ_INSERT_TAIL(&r->lookups, l, link);
	r->n_lookups++;
	map_put(r->by_name, name, l);
	lookup_ask(l, CHANNELS_A);
	/* Without a way out for IPv6 its addresses would only cost the client a try. */
	if (resolver_route_v6(r))
		lookup_ask(l, CHANNELS_AAAA);
	return l;
}

/* An answer that is not kept: for what is not looked up at all. */
static void resolve_refuse(struct resolve *q, int err)
{
	struct addr_entry *e = addr_entry_new(err, NULL, 0, false);

	resolve_ready(q, e);
	addr_entry_unref(e);
}

struct resolve *resolve_start(struct resolver *r, struct slice name, resolve_cb done, void *arg)
{
	struct resolve *q = xcalloc(1, sizeof(*q));
	struct addr_entry *known = addr_cache_find(r->cache, name);
	struct resolver_lookup *l = known ? NULL : map_find(r->by_name, name);

	q->resolver = r;
	q->done = done;
	q->arg = arg;
	if (known) {
		resolve_ready(q, known);
		return q;
	}
	if (!l && (name.len == 0 || name.len > HOSTNAME_MAX)) {
		resolve_refuse(q, E_NO_NAME);
		return q;
	}
	if (!l && r->n_lookups >= RESOLVER_LOOKUPS_MAX) {
		resolve_refuse(q, E_RESOLVE);
		return q;
	}
	if (!l)
		l = lookup_new(r, name);
	q->lookup = l;
	TAILQ_INSERT_TAIL(&l->waiters, q, link);
	return q;
}

void resolve_cancel(struct resolve *q)
{
	if (!q)
		return;
	/* The lookup itself goes on: its answer is worth keeping, and its time is limited. */
	TAILQ_REMOVE(q->lookup ? &q->lookup->waiters : &q->resolver->ready, q, link);
	resolve_free(q);
}
