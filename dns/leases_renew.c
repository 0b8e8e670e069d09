/* Keeps leases that are in use: twice a minute it looks which addresses have live connections, and
 * asks the resolvers again for names that were asked for a short while ago (reference 6.5, 6.6).
 * Nothing new is granted here: only addresses that a client was given, and only while policy still
 * allows them. After it: leases.c, which programs. */
#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#include <event2/event.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/sock_diag.h"
#include "dns/conns.h"
#include "dns/forwarder.h"
#include "dns/leases_int.h"

/* Uniform, so that sidecars of one host do not ask in step. */
#define LEASES_TICK_MIN_MS 15000
#define LEASES_TICK_SPREAD_MS 30000
/* Asked again when the first lease ends within this time. */
#define LEASES_DUE_MS 60000
#define LEASES_RETRY_MS 30000
#define LEASES_RETRY_MAX_MS 600000

/* One name that is asked again, by both types. */
struct lease_refresh {
	TAILQ_ENTRY(lease_refresh) link;
	struct leases *owner;
	struct forward *asked[2];
	struct lease_grant *grant;
	uint64_t generation;
	bool failed;
	bool exists;
	size_t n;
	struct lease_addr v[LEASE_ADDRS_MAX];
	size_t name_len;
	char name[HOSTNAME_MAX + 1];
};

/* --- by connections --- */

static void on_lease_renewed(int err, void *arg)
{
	if (err != 0)
		log_warn(
			"leases", "leases of live connections were not renewed: %s", err_text(err));
}

static void lease_conn_seen(const struct netaddr *remote, void *arg)
{
	map_put(arg, slice_make((const char *)remote->b, sizeof(remote->b)), arg);
}

struct lease_look {
	struct leases *owner;
	struct map *seen; /* addresses with a connection */
	uint64_t now_ms;
};

/* An address in use gets its whole time again; when the use ends, once more, for whoever comes back
 * with the address it has. */
static void lease_look_one(struct slice key, void *value, void *arg)
{
	struct lease_look *look = arg;
	struct lease_name *ln = value;
	struct lease_addr due[LEASE_ADDRS_MAX];
	struct lease_want want = {key, due, 0};
	struct lease_grant *grant;
	struct judgement n;
	uint32_t i;
	int ret;

	for (i = 0; i < ln->n; i++) {
		struct lease *e = &ln->v[i];
		bool now = map_find(look->seen,
				   slice_make((const char *)e->addr.b, sizeof(e->addr.b))) != NULL;

		if (now || e->active)
			due[want.n++] = (struct lease_addr){e->addr, LEASE_MAX_S};
		if (now)
			ln->seen_ms = look->now_ms;
		e->active = now;
	}
	if (want.n == 0 || !leases_name_judge(look->owner, key, &n))
		return;
	ret = leases_renew_start(look->owner, &want, on_lease_renewed, NULL, &grant);
	if (ret < 0)
		on_lease_renewed(ret, NULL);
}

static void leases_look(struct leases *l, uint64_t now_ms)
{
	struct lease_look look = {.owner = l, .now_ms = now_ms};
	int ret;

	if (l->diag_fd < 0 || map_count(l->names) == 0)
		return;
	look.seen = map_new(LEASES_MAX, NULL);
	ret = conns_each(l->diag_fd, lease_conn_seen, look.seen);
	if (ret < 0)
		log_warn("leases", "live connections cannot be listed: %s", err_text(ret));
	map_each(l->names, lease_look_one, &look);
	map_free(look.seen);
}

/* --- by asking again --- */

static void lease_refresh_free(struct lease_refresh *f)
{
	struct leases *l = f->owner;

	TAILQ_REMOVE(&l->refreshes, f, link);
	l->n_refreshes--;
	forward_cancel(f->asked[0]);
	forward_cancel(f->asked[1]);
	lease_grant_cancel(f->grant);
	free(f);
}

/* Later and later, but so that one try fits in before the lease ends. */
static void lease_refresh_again(struct lease_name *ln, bool failed)
{
	uint64_t wait_ms = LEASES_RETRY_MS;

	ln->asking = false;
	ln->failures = failed ? ln->failures + 1 : 0;
	if (ln->failures > 1)
		wait_ms <<= ln->failures > 6 ? 5 : ln->failures - 1;
	if (wait_ms > LEASES_RETRY_MAX_MS)
		wait_ms = LEASES_RETRY_MAX_MS;
	ln->retry_ms = clock_mono_ms() + wait_ms;
}

static void leases_ask_due(struct leases *l);

static void lease_refresh_end(struct lease_refresh *f, bool failed)
{
	struct leases *l = f->owner;
	struct lease_name *ln = map_find(l->names, slice_make(f->name, f->name_len));

	if (ln)
		lease_refresh_again(ln, failed);
	lease_refresh_free(f);
	leases_ask_due(l);
}

static void on_lease_refresh_granted(int err, void *arg)
{
	struct lease_refresh *f = arg;

	f->grant = NULL;
	lease_refresh_end(f, err != 0);
}

/* Of the addresses that came, those that were granted before and would now last longer. Returns how
 * many are still the name's at all. */
static size_t lease_refresh_confirm(struct lease_refresh *f, struct lease_want *want)
{
	struct lease_name *ln = map_find(f->owner->names, want->name);
	uint64_t now_ms = clock_mono_ms();
	struct judgement n;
	const struct lease *e;
	size_t confirmed = 0;
	size_t i;

	if (!ln || !leases_name_judge(f->owner, want->name, &n))
		return 0;
	for (i = 0; i < f->n; i++) {
		e = lease_find(ln, &f->v[i].addr);
		if (!e || !judge_addr(f->owner->judge, &n, &e->addr))
			continue;
		confirmed++;
		if (e->end_ms < now_ms + f->v[i].seconds * UINT64_C(1000))
			f->v[want->n++] = f->v[i];
	}
	/* The name is gone, or its addresses are: no more questions about it. */
	if (confirmed == 0)
		ln->seen_ms = 0;
	return confirmed;
}

static void lease_refresh_grant(struct lease_refresh *f)
{
	struct lease_want want = {slice_make(f->name, f->name_len), f->v, 0};
	int ret = 0;

	if (lease_refresh_confirm(f, &want) > 0 && want.n > 0)
		ret = leases_renew_start(f->owner, &want, on_lease_refresh_granted, f, &f->grant);
	if (!f->grant)
		lease_refresh_end(f, ret < 0);
}

static void lease_refresh_add(struct lease_refresh *f, struct dns_answer *a, uint16_t type)
{
	struct dns_question q = {.type = type, .class = DNS_CLASS_IN};
	size_t i;

	q.name = a->name;
	if ((a->rcode != DNS_NOERROR && a->rcode != DNS_NXDOMAIN) || dns_answer_select(a, &q) < 0) {
		f->failed = true;
		return;
	}
	for (i = 0; i < a->n && f->n < LEASE_ADDRS_MAX; i++) {
		if (!a->v[i].keep || !dns_record_addr(a, &a->v[i], &f->v[f->n].addr))
			continue;
		f->v[f->n++].seconds = lease_seconds(a->v[i].ttl);
	}
}

static void lease_refresh_told(
	struct lease_refresh *f, size_t which, int err, struct dns_answer *answer)
{
	f->asked[which] = NULL;
	if (err != 0)
		f->failed = true;
	else
		lease_refresh_add(f, answer, which == 0 ? DNS_A : DNS_AAAA);
	if (f->asked[0] || f->asked[1])
		return;
	if (f->failed || f->generation != f->owner->generation)
		lease_refresh_end(f, f->failed);
	else
		lease_refresh_grant(f);
}

static void on_lease_refresh_a(int err, struct dns_answer *answer, void *arg)
{
	lease_refresh_told(arg, 0, err, answer);
}

static void on_lease_refresh_aaaa(int err, struct dns_answer *answer, void *arg)
{
	lease_refresh_told(arg, 1, err, answer);
}

static void lease_refresh_start(struct leases *l, struct lease_name *ln)
{
	struct dns_question q = {.flags = DNS_RD, .class = DNS_CLASS_IN};
	struct lease_refresh *f;

	if (!dns_name_from_text(slice_make(ln->name, ln->name_len), &q.name))
		return;
	f = xcalloc(1, sizeof(*f));
	f->owner = l;
	f->generation = l->generation;
	f->name_len = ln->name_len;
	memcpy(f->name, ln->name, ln->name_len);
	TAILQ_INSERT_TAIL(&l->refreshes, f, link);
	l->n_refreshes++;
	ln->asking = true;
	q.type = DNS_A;
	f->asked[0] = forward_start(l->forwarder, &q, on_lease_refresh_a, f);
	q.type = DNS_AAAA;
	f->asked[1] = forward_start(l->forwarder, &q, on_lease_refresh_aaaa, f);
}

struct lease_due {
	struct leases *owner;
	uint64_t now_ms;
	size_t n_seen;
};

static bool lease_is_due(const struct lease_name *ln, uint64_t now_ms)
{
	uint64_t first = UINT64_MAX;
	uint32_t i;

	if (ln->asking || ln->n == 0 || now_ms < ln->retry_ms ||
		now_ms > ln->seen_ms + LEASES_REFRESH_S * UINT64_C(1000))
		return false;
	for (i = 0; i < ln->n; i++)
		if (ln->v[i].end_ms < first)
			first = ln->v[i].end_ms;
	return first < now_ms + LEASES_DUE_MS;
}

/* map_each comes by in the order of use, so the first ones are those asked for last. */
static void lease_due_one(struct slice key, void *value, void *arg)
{
	struct lease_due *d = arg;

	if (d->n_seen++ < LEASES_REFRESH_NAMES && d->owner->n_refreshes < LEASES_REFRESH_OPEN_MAX &&
		lease_is_due(value, d->now_ms))
		lease_refresh_start(d->owner, value);
}

static void leases_ask_due(struct leases *l)
{
	struct lease_due due = {.owner = l, .now_ms = clock_mono_ms()};

	if (l->guard && !policy_default_allow(l->judge->policy))
		map_each(l->names, lease_due_one, &due);
}

/* --- the tick --- */

static void leases_tick_set(struct leases *l)
{
	uint32_t random = 0;
	struct timeval tv;
	uint32_t ms;

	(void)!getrandom(&random, sizeof(random), 0);
	ms = LEASES_TICK_MIN_MS + random % LEASES_TICK_SPREAD_MS;
	tv.tv_sec = ms / 1000;
	tv.tv_usec = (suseconds_t)(ms % 1000) * 1000;
	evtimer_add(l->tick, &tv);
}

void leases_tick(struct leases *l)
{
	uint64_t now_ms = clock_mono_ms();

	if (!l->guard)
		return;
	leases_look(l, now_ms);
	leases_sweep(l, now_ms);
	leases_ask_due(l);
}

static void lease_thaw_one(struct slice key, void *value, void *arg)
{
	const uint64_t *ms = arg;
	struct lease_name *ln = value;

	ln->seen_ms += *ms;
	ln->retry_ms = 0;
}

void leases_thaw(struct leases *l, uint64_t ms)
{
	map_each(l->names, lease_thaw_one, &ms);
	if (!l->guard)
		return;
	leases_look(l, clock_mono_ms());
	/* Ended ones too: they ended while nobody could use them. */
	leases_ask_due(l);
}

static void on_leases_tick(evutil_socket_t fd, short what, void *arg)
{
	leases_tick(arg);
	leases_tick_set(arg);
}

void leases_renew_init(struct leases *l)
{
	TAILQ_INIT(&l->refreshes);
	l->diag_fd = sock_diag_open();
	if (l->diag_fd < 0)
		log_warn("leases", "no sock_diag (%s): live connections do not renew leases",
			err_text(l->diag_fd));
	l->tick = evtimer_new(l->base, on_leases_tick, l);
	REQUIRE(l->tick);
	leases_tick_set(l);
}

void leases_renew_fini(struct leases *l)
{
	struct lease_refresh *f;

	/* The analyzer does not see that TAILQ_REMOVE moves the head on. */
	while ((f = TAILQ_FIRST(&l->refreshes)))
		lease_refresh_free(f); /* NOLINT(clang-analyzer-unix.Malloc) */
	event_free(l->tick);
	if (l->diag_fd >= 0)
		close(l->diag_fd);
}
