/* The table of leases and the way of a grant: to the guard, and into the table once the kernel has
 * it. Before it: dns_query with a filtered answer. After it: nft/guard_client. Renewal is in
 * leases_renew.c, what outlives a worker in leases_keep.c. */
#include "dns/leases.h"

#include <malloc.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/pool.h"
#include "dns/leases_int.h"
#include "nft/guard_client.h"
#include "nft/ruleset.h"

/* Two answers within a second program the kernel once: timeouts are in seconds anyway. */
#define LEASE_SLACK_MS 1000

struct lease_grant {
	TAILQ_ENTRY(lease_grant) link;
	struct leases *owner;
	struct guard_call *call;
	lease_cb done;
	void *arg;
	size_t at; /* next of n * n_ports */
	size_t n;
	size_t n_ports; /* 0: every port */
	struct lease_addr v[LEASE_ADDRS_MAX];
	uint16_t *ports;
	size_t name_len;
	char name[HOSTNAME_MAX + 1];
};

uint32_t lease_seconds(uint32_t ttl_s)
{
	if (ttl_s >= LEASE_MAX_S - LEASE_EXTRA_S)
		return LEASE_MAX_S;
	return ttl_s + LEASE_EXTRA_S < LEASE_MIN_S ? LEASE_MIN_S : ttl_s + LEASE_EXTRA_S;
}

/* --- the table --- */

static void lease_name_free(void *value)
{
	struct lease_name *ln = value;
	struct leases *l = ln->owner;

	l->n -= ln->n;
	pool_put(l->pool, ln->v, ln->cap * sizeof(*ln->v));
	pool_put(l->pool, ln, sizeof(*ln) + ln->name_len + 1);
}

static struct lease_name *lease_name_new(struct leases *l, struct slice name)
{
	struct lease_name *ln = pool_get(l->pool, sizeof(*ln) + name.len + 1);

	*ln = (struct lease_name){.owner = l, .name_len = name.len};
	memcpy(ln->name, name.p, name.len);
	ln->name[name.len] = '\0';
	map_put(l->names, name, ln);
	return ln;
}

struct lease *lease_find(struct lease_name *ln, const struct netaddr *a)
{
	size_t i;

	for (i = 0; i < ln->n; i++)
		if (netaddr_eq(&ln->v[i].addr, a))
			return &ln->v[i];
	return NULL;
}

static void lease_name_grow(struct lease_name *ln)
{
	uint32_t cap = ln->cap ? 2 * ln->cap : 2;
	struct lease *v = pool_get(ln->owner->pool, cap * sizeof(*v));

	if (ln->n > 0)
		memcpy(v, ln->v, ln->n * sizeof(*v));
	pool_put(ln->owner->pool, ln->v, ln->cap * sizeof(*v));
	ln->v = v;
	ln->cap = cap;
}

/* Past LEASE_ADDRS_MAX the one that ends first makes room: a name whose addresses rotate. */
static struct lease *lease_add(struct lease_name *ln, const struct netaddr *a)
{
	struct lease *to = NULL;
	size_t i;

	if (ln->n < LEASE_ADDRS_MAX) {
		if (ln->n == ln->cap)
			lease_name_grow(ln);
		to = &ln->v[ln->n++];
		ln->owner->n++;
	} else {
		for (i = 0; i < ln->n; i++)
			if (!to || ln->v[i].end_ms < to->end_ms)
				to = &ln->v[i];
	}
	*to = (struct lease){.addr = *a};
	return to;
}

struct lease_name *lease_put(
	struct leases *l, struct slice name, const struct netaddr *a, uint64_t end_ms)
{
	struct lease_name *ln = map_find(l->names, name);
	struct lease *e;

	if (!ln)
		ln = lease_name_new(l, name);
	e = lease_find(ln, a);
	if (!e)
		e = lease_add(ln, a);
	e->end_ms = end_ms;
	return ln;
}

static void leases_record(struct leases *l, const struct lease_grant *g)
{
	uint64_t now_ms = clock_mono_ms();
	size_t i;

	for (i = 0; i < g->n; i++)
		(void)lease_put(l, slice_make(g->name, g->name_len), &g->v[i].addr,
			now_ms + g->v[i].seconds * UINT64_C(1000));
	leases_keep_soon(l);
}

struct lease_sweep {
	uint64_t now_ms;
	size_t n;
	struct lease_name **empty;
};

static void lease_sweep_one(struct slice key, void *value, void *arg)
{
	struct lease_name *ln = value;
	struct lease_sweep *s = arg;
	uint32_t i = 0;

	while (i < ln->n) {
		if (ln->v[i].end_ms > s->now_ms) {
			i++;
			continue;
		}
		ln->v[i] = ln->v[--ln->n];
		ln->owner->n--;
	}
	if (ln->n == 0)
		s->empty[s->n++] = ln;
}

static void *lease_name_move(void *value, void *arg)
{
	struct lease_name *from = value;
	size_t size = sizeof(*from) + from->name_len + 1;
	struct lease_name *to = memcpy(pool_get(arg, size), from, size);

	to->v = pool_get(arg, to->cap * sizeof(*to->v));
	if (to->n > 0)
		memcpy(to->v, from->v, to->n * sizeof(*to->v));
	pool_put(from->owner->pool, from->v, from->cap * sizeof(*from->v));
	pool_put(from->owner->pool, from, size);
	return to;
}

static void leases_fit(struct leases *l)
{
	struct pool *fresh;

	if (!pool_is_sparse(l->pool))
		return;
	fresh = pool_new();
	map_fit(l->names, lease_name_move, fresh);
	pool_free(l->pool);
	l->pool = fresh;
	malloc_trim(0);
}

void leases_sweep(struct leases *l, uint64_t now_ms)
{
	struct lease_sweep s = {.now_ms = now_ms};
	size_t i;

	if (map_count(l->names) == 0)
		return;
	s.empty = xcalloc(map_count(l->names), sizeof(struct lease_name *));
	map_each(l->names, lease_sweep_one, &s);
	for (i = 0; i < s.n; i++)
		(void)map_remove(l->names, slice_make(s.empty[i]->name, s.empty[i]->name_len));
	free(s.empty);
	leases_fit(l);
}

/* --- grants --- */

static void lease_grant_free(struct lease_grant *g)
{
	TAILQ_REMOVE(&g->owner->grants, g, link);
	guard_call_cancel(g->call);
	free(g->ports);
	free(g);
}

static size_t lease_grant_total(const struct lease_grant *g)
{
	return g->n * (g->n_ports ? g->n_ports : 1);
}

bool leases_name_judge(const struct leases *l, struct slice name, struct judgement *out)
{
	struct dns_question q = {.type = DNS_A, .class = DNS_CLASS_IN};

	if (!dns_name_from_text(name, &q.name))
		return false;
	judge_question(l->judge, &q, out);
	return out->result != JUDGE_DENIED;
}

static bool lease_grant_is_allowed(const struct lease_grant *g)
{
	const struct leases *l = g->owner;
	struct judgement n;
	size_t i;

	if (!leases_name_judge(l, slice_make(g->name, g->name_len), &n))
		return false;
	for (i = 0; i < g->n; i++)
		if (!judge_addr(l->judge, &n, &g->v[i].addr))
			return false;
	return true;
}

static void on_lease_acked(int err, void *arg);

/* The next batch of the grant. */
static int lease_grant_send(struct lease_grant *g)
{
	struct guard_lease v[GUARD_LEASES_MAX];
	size_t per = g->n_ports ? g->n_ports : 1;
	size_t n = 0;

	memset(v, 0, sizeof(v));
	for (; n < GUARD_LEASES_MAX && g->at < lease_grant_total(g); n++, g->at++) {
		v[n].addr = g->v[g->at / per].addr;
		v[n].seconds = g->v[g->at / per].seconds;
		if (g->n_ports > 0) {
			v[n].proto = IPPROTO_TCP;
			v[n].port = g->ports[g->at % per];
		}
	}
	g->call = guard_allow_start(g->owner->guard, v, n, on_lease_acked, g);
	return g->call ? 0 : E_GUARD;
}

static void on_lease_acked(int err, void *arg)
{
	struct lease_grant *g = arg;
	lease_cb done = g->done;
	void *done_arg = g->arg;

	g->call = NULL;
	/* Policy may have changed since it was sent: then the kernel's new ruleset is without it.
	 */
	if (err == 0 && !lease_grant_is_allowed(g))
		err = E_VALUE;
	if (err == 0 && g->at < lease_grant_total(g)) {
		err = lease_grant_send(g);
		if (err == 0)
			return;
	}
	if (err == 0)
		leases_record(g->owner, g);
	lease_grant_free(g);
	done(err, done_arg);
}

int leases_renew_start(struct leases *l, const struct lease_want *want, lease_cb done, void *arg,
	struct lease_grant **out)
{
	uint16_t ports[JUDGE_PORTS_MAX];
	struct lease_grant *g;
	bool every = true;
	size_t n_ports = 0;

	*out = NULL;
	if (l->by_port)
		n_ports = judge_ports(l->judge, want->name, ports, &every);
	if (!every && n_ports == 0)
		return 0;
	if (l->n + want->n > LEASES_MAX)
		return E_FULL;
	g = xcalloc(1, sizeof(*g));
	g->owner = l;
	g->done = done;
	g->arg = arg;
	g->n = want->n;
	memcpy(g->v, want->v, want->n * sizeof(g->v[0]));
	memcpy(g->name, want->name.p, want->name.len);
	g->name_len = want->name.len;
	if (!every) {
		g->n_ports = n_ports;
		g->ports = xcalloc(n_ports, sizeof(*g->ports));
		memcpy(g->ports, ports, n_ports * sizeof(*ports));
	}
	TAILQ_INSERT_TAIL(&l->grants, g, link);
	if (lease_grant_send(g) < 0) {
		lease_grant_free(g);
		return E_GUARD;
	}
	*out = g;
	return 0;
}

int leases_grant_start(struct leases *l, const struct lease_want *want, lease_cb done, void *arg,
	struct lease_grant **out)
{
	struct lease_addr due[LEASE_ADDRS_MAX];
	struct lease_want rest = {want->name, due, 0};
	uint64_t now_ms = clock_mono_ms();
	struct lease_name *ln;
	const struct lease *e;
	size_t i;

	*out = NULL;
	if (!l->guard)
		return 0;
	REQUIRE(want->n <= LEASE_ADDRS_MAX);
	ln = map_find(l->names, want->name);
	if (ln)
		ln->seen_ms = now_ms;
	for (i = 0; i < want->n; i++) {
		e = ln ? lease_find(ln, &want->v[i].addr) : NULL;
		if (!e || e->end_ms + LEASE_SLACK_MS < now_ms + want->v[i].seconds * UINT64_C(1000))
			due[rest.n++] = want->v[i];
	}
	if (rest.n == 0)
		return 0;
	if (!ln)
		lease_name_new(l, want->name)->seen_ms = now_ms;
	return leases_renew_start(l, &rest, done, arg, out);
}

void lease_grant_cancel(struct lease_grant *g)
{
	if (g)
		lease_grant_free(g);
}

/* --- policy --- */

struct lease_collect {
	struct leases *owner;
	struct ruleset *to; /* NULL: forget what is not allowed */
	uint64_t now_ms;
	int err;
};

static int lease_collect_addr(struct lease_collect *c, const struct judgement *n,
	const struct netaddr *a, uint64_t end_ms)
{
	uint16_t ports[JUDGE_PORTS_MAX];
	uint32_t seconds = (uint32_t)((end_ms - c->now_ms + 999) / 1000);
	bool every = true;
	size_t n_ports = 0;
	size_t i;
	int ret = 0;

	if (c->owner->by_port)
		n_ports = judge_ports(c->owner->judge, slice_make(n->text, n->len), ports, &every);
	if (every)
		return ruleset_add_lease(c->to, a, 0, 0, seconds);
	for (i = 0; i < n_ports && ret == 0; i++)
		ret = ruleset_add_lease(c->to, a, IPPROTO_TCP, ports[i], seconds);
	return ret;
}

static void lease_collect_one(struct slice key, void *value, void *arg)
{
	struct lease_name *ln = value;
	struct lease_collect *c = arg;
	struct judgement n;
	bool allowed = leases_name_judge(c->owner, key, &n);
	uint32_t i;

	for (i = 0; i < ln->n && c->err == 0; i++) {
		struct lease *e = &ln->v[i];
		bool ok = allowed && judge_addr(c->owner->judge, &n, &e->addr);

		if (!c->to && !ok)
			e->end_ms = 0;
		else if (c->to && ok && e->end_ms > c->now_ms)
			c->err = lease_collect_addr(c, &n, &e->addr, e->end_ms);
	}
}

static bool leases_policy_has_ports(const struct policy *p)
{
	size_t i;

	if (policy_ceiling(p) && leases_policy_has_ports(policy_ceiling(p)))
		return true;
	for (i = 0; i < policy_n_rules(p); i++)
		if (policy_rule(p, i)->n_ports > 0 && policy_rule(p, i)->kind != RULE_ANY &&
			policy_rule(p, i)->kind != RULE_CIDR)
			return true;
	return false;
}

int leases_collect(struct leases *l, struct ruleset *r)
{
	struct lease_collect c = {.owner = l, .to = r, .now_ms = clock_mono_ms()};
	const struct lease_grant *g;
	struct judgement n;
	size_t i;

	/* Also for what is granted from now until the next policy is in force. */
	if (l->judge->next && leases_policy_has_ports(l->judge->next))
		l->by_port = true;
	map_each(l->names, lease_collect_one, &c);
	TAILQ_FOREACH(g, &l->grants, link) {
		if (!leases_name_judge(l, slice_make(g->name, g->name_len), &n))
			continue;
		for (i = 0; i < g->n && c.err == 0; i++)
			if (judge_addr(l->judge, &n, &g->v[i].addr))
				c.err = lease_collect_addr(&c, &n, &g->v[i].addr,
					c.now_ms + g->v[i].seconds * UINT64_C(1000));
	}
	return c.err;
}

void leases_configure(struct leases *l, struct guard_client *guard)
{
	struct lease_collect c = {.owner = l, .now_ms = clock_mono_ms()};

	l->guard = guard;
	l->generation++;
	l->by_port = leases_policy_has_ports(l->judge->policy);
	map_each(l->names, lease_collect_one, &c);
	leases_sweep(l, c.now_ms);
	leases_keep_soon(l);
}

/* --- start and end --- */

struct leases *leases_new(
	struct event_base *base, struct forwarder *forwarder, const struct judge *judge)
{
	struct leases *l = xcalloc(1, sizeof(*l));

	l->base = base;
	l->forwarder = forwarder;
	l->judge = judge;
	l->names = map_new(LEASES_NAMES_MAX, lease_name_free);
	l->pool = pool_new();
	TAILQ_INIT(&l->grants);
	leases_renew_init(l);
	return l;
}

void leases_free(struct leases *l)
{
	struct lease_grant *g;

	if (!l)
		return;
	leases_renew_fini(l);
	/* The analyzer does not see that TAILQ_REMOVE moves the head on. */
	while ((g = TAILQ_FIRST(&l->grants)))
		lease_grant_free(g); /* NOLINT(clang-analyzer-unix.Malloc) */
	leases_keep_fini(l);
	map_free(l->names);
	pool_free(l->pool);
	free(l);
}

size_t leases_n_names(const struct leases *l)
{
	return map_count(l->names);
}

size_t leases_n(const struct leases *l)
{
	return l->n;
}
