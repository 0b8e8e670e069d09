/* The guard's loop. Before it: guard_main.c, which opened everything and gave up all other rights.
 *
 * One message at a time: while the kernel is asked nothing else happens, so answers are in order
 * and there is no state between two messages but the ruleset that is being put together. */
#include "nft/guard.h"

#include <errno.h>
#include <linux/rtnetlink.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

/* Messages taken before flows and devices are looked at again. */
#define GUARD_BURST 64

struct guard_op {
	int (*run)(struct guard *g, const union guard_any *m);
};

static uint32_t guard_random(void)
{
	uint32_t v = 0;

	/* 0 is what an entry has that no rule marked. */
	while (v == 0) {
		if (getrandom(&v, sizeof(v), 0) != (ssize_t)sizeof(v))
			v = 0;
	}
	return v;
}

/* The worker takes what it is sent; one that does not is no longer there. */
static int guard_send(struct guard *g, const void *m, size_t len, int flags)
{
	ssize_t n;

	do {
		n = send(g->worker_fd, m, len, MSG_NOSIGNAL | flags);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	g->beat_at = clock_mono_ms() + GUARD_BEAT_MS;
	return 0;
}

static int guard_answer(struct guard *g, uint32_t id, int err)
{
	const struct guard_done m = {.head = {GUARD_DONE, id}, .err = err};

	return guard_send(g, &m, sizeof(m), 0);
}

static void guard_set(struct guard *g, enum guard_part p, enum guard_status status, int err)
{
	g->state.part[p].status = (uint8_t)status;
	g->state.part[p].err = err;
}

static int guard_report(struct guard *g)
{
	g->state.head = (struct guard_head){.type = GUARD_STATE};
	g->state.queues_held = g->xsk ? (uint32_t)xsk_held(g->xsk) : 0;
	g->state.queues_taken = g->xsk ? g->xsk->taken : 0;
	g->state.queues_short = g->xsk ? g->xsk->shortage : 0;
	return guard_send(g, &g->state, sizeof(g->state), 0);
}

/* True if a kernel without this part answers like that; false for a passing shortage, where leaving
 * the part out would weaken us for good. */
static bool guard_is_missing(int err)
{
	return err != -ENOMEM && err != -ENOBUFS && err != -EINTR && err != -EAGAIN &&
		err != -ENFILE && err != -ENOSPC && err != -ETIMEDOUT && err != -EPERM;
}

static bool guard_is_optional(enum guard_part p)
{
	return p != GUARD_PART_TABLE && p != GUARD_PART_REDIRECT && p != GUARD_PART_MAX;
}

/* One batch; parts that the kernel refuses are left out from then on. */
static int guard_commit(struct guard *g)
{
	enum guard_part part = GUARD_PART_MAX;
	int ret;

	do {
		batch_clear(&g->batch);
		tables_build(&g->tables, &g->before);
		ret = batch_commit(&g->batch, &g->nft, &part);
		if (ret == 0)
			break;
		if (ret == -ENOENT && g->before.ruleset) {
			/* Somebody took it away since the last look: make it anew. */
			g->before.ruleset = NULL;
		} else if (guard_is_missing(ret) && guard_is_optional(part)) {
			g->tables.without[part] = true;
			guard_set(g, part, GUARD_REFUSED, ret);
			log_warn("guard", "the kernel refuses a part: %s: %s",
				guard_part_text(part), err_text(ret));
		} else {
			break;
		}
	} while (true);
	batch_clear(&g->batch);
	return ret;
}

/* Ends the time in which flows of the ruleset before still pass. */
static int guard_commit_rules(struct guard *g)
{
	enum guard_part part;
	int ret;

	batch_clear(&g->batch);
	tables_build_rules(&g->tables);
	ret = batch_commit(&g->batch, &g->nft, &part);
	batch_clear(&g->batch);
	return ret;
}

/* Takes *r: it becomes what is committed. On failure the table may have the new sets already, with
 * the flows of the old ruleset: the next one is made anew. */
static int guard_commit_ruleset(struct guard *g, struct ruleset *r)
{
	const uint32_t last = g->tables.marks.revision;
	int ret;

	g->tables.batch = &g->batch;
	g->tables.ruleset = r;
	g->tables.marks.revision = guard_random();
	g->tables.marks.before = tables_sets_change(&g->tables, &g->before) ? last : 0;
	ret = guard_commit(g);
	if (ret == 0 && g->tables.marks.before != 0) {
		g->tables.marks.before = 0;
		ret = guard_commit_rules(g);
		if (ret < 0)
			g->before.ruleset = NULL;
	}
	if (ret < 0)
		return ret;
	ruleset_fini(&g->current);
	g->current = *r;
	*r = (struct ruleset){0};
	g->tables.ruleset = &g->current;
	g->before = g->tables;
	return 0;
}

static int guard_raw_try(struct guard *g, const struct links *l)
{
	const char *names[LINKS_MAX];
	enum guard_part part;
	size_t n = 0;
	int ret;

	for (; l && n < l->n; n++)
		names[n] = l->v[n].name;
	batch_clear(&g->batch);
	tables_build_raw(&g->batch, l ? names : NULL, n);
	ret = batch_commit(&g->batch, &g->nft, &part);
	batch_clear(&g->batch);
	return ret;
}

/* Every device by prefix, or each by name on a kernel that does not know prefixes. */
static int guard_raw(struct guard *g, const struct links *l)
{
	int ret = g->by_name ? -EOPNOTSUPP : guard_raw_try(g, NULL);

	if (ret < 0 && guard_is_missing(ret)) {
		g->by_name = true;
		ret = guard_raw_try(g, l);
	}
	guard_set(g, GUARD_PART_RAW_GUARD, ret < 0 ? GUARD_REFUSED : GUARD_IN_PLACE, ret);
	g->tables.without[GUARD_PART_RAW_GUARD] = ret < 0;
	return ret < 0 && !guard_is_missing(ret) ? ret : 0;
}

static void guard_queues(struct guard *g, const struct links *l)
{
	int ret = g->xsk ? xsk_hold(g->xsk, l) : g->xsk_err;
	enum guard_status status = GUARD_IN_PLACE;

	if (ret < 0) {
		status = GUARD_REFUSED;
	} else if (g->xsk && (g->xsk->taken > 0 || g->xsk->shortage > 0 || l->more)) {
		status = GUARD_LOST;
		ret = g->xsk->taken > 0 ? -EBUSY : -EMFILE;
	}
	guard_set(g, GUARD_PART_QUEUES, status, ret);
}

/* The hook and the queues of every device there is. */
static int guard_devices(struct guard *g, bool hook)
{
	struct links l;
	int ret;

	ret = links_read(&g->links, &l);
	if (ret < 0)
		return ret;
	if (hook)
		ret = guard_raw(g, &l);
	guard_queues(g, &l);
	return ret;
}

/* What is in the kernel now is what we made. */
static int guard_take_print(struct guard *g)
{
	int ret;

	do {
		ret = watch_read(&g->nft, &g->print);
	} while (ret == -EINTR);
	if (ret == 0)
		ret = netlink_generation(&g->nft, &g->generation);
	return ret;
}

static void guard_set_parts(struct guard *g)
{
	for (int i = 0; i < GUARD_PART_RAW_GUARD; i++) {
		const enum guard_part p = (enum guard_part)i;

		if (!g->tables.without[p])
			guard_set(
				g, p, tables_has(&g->tables, p) ? GUARD_IN_PLACE : GUARD_UNUSED, 0);
	}
}

static int guard_marks(struct guard *g)
{
	int ret;

	if (g->have_marks)
		return 0;
	/* From the table of the guard before us, or new ones. */
	ret = tables_read_marks(&g->nft, &g->tables.marks);
	if (ret < 0 && ret != -ENOENT)
		return ret;
	if (g->tables.marks.service == 0 || g->tables.marks.own == 0) {
		g->tables.marks.service = guard_random();
		g->tables.marks.own = guard_random();
	}
	g->have_marks = true;
	return 0;
}

static bool guard_compare(struct guard *g, enum guard_part p, uint64_t was, uint64_t is)
{
	const enum guard_status status = is == was ? GUARD_IN_PLACE : GUARD_LOST;

	if (was == 0 || g->state.part[p].status == GUARD_UNUSED ||
		g->state.part[p].status == GUARD_REFUSED || g->state.part[p].status == status)
		return false;
	guard_set(g, p, status, 0);
	return true;
}

/* Are the tables still ours? */
static int guard_watch(struct guard *g)
{
	struct watch_print now;
	uint32_t generation = 0;
	bool changed = false;
	int ret;

	ret = netlink_generation(&g->nft, &generation);
	if (ret < 0 || generation == g->generation)
		return ret;
	ret = watch_read(&g->nft, &now);
	if (ret < 0)
		return ret == -EINTR ? 0 : ret;
	g->generation = generation;
	changed |= guard_compare(g, GUARD_PART_TABLE, g->print.table, now.table);
	changed |= guard_compare(g, GUARD_PART_REDIRECT, g->print.redirect, now.redirect);
	changed |= guard_compare(g, GUARD_PART_RAW_GUARD, g->print.raw, now.raw);
	return changed ? guard_report(g) : 0;
}

static bool guard_in_place(const struct guard *g, enum guard_part p)
{
	return g->state.part[p].status == GUARD_IN_PLACE;
}

/* First the hook and the queues, then the rules: a ruleset that lets something out is never alone.
 * What is in place stays; made anew it would drop what is under way. */
static int guard_apply(struct guard *g, struct ruleset *r)
{
	int ret;

	ret = guard_marks(g);
	if (ret == 0 && g->applied)
		ret = guard_watch(g);
	if (ret == 0 && r->options.enforce)
		ret = guard_devices(g, !guard_in_place(g, GUARD_PART_RAW_GUARD));
	if (g->state.part[GUARD_PART_TABLE].status == GUARD_LOST ||
		g->state.part[GUARD_PART_REDIRECT].status == GUARD_LOST)
		g->before.ruleset = NULL;
	if (ret == 0)
		ret = guard_commit_ruleset(g, r);
	if (ret < 0)
		return ret;
	g->enforce = g->current.options.enforce;
	g->applied = true;
	guard_set_parts(g);
	return guard_take_print(g);
}

static int guard_on_commit(struct guard *g, const union guard_any *m)
{
	int ret = guard_apply(g, &g->draft.ruleset);
	int sent;

	/* Before the answer, so that whoever waits for it knows what it got. */
	sent = guard_report(g);
	if (sent == 0)
		sent = guard_answer(g, m->head.id, ret);
	guard_draft_fini(&g->draft);
	/* It had room for a whole ruleset; what comes next are grants. */
	batch_fini(&g->batch);
	batch_init(&g->batch);
	return sent;
}

static int guard_on_draft(struct guard *g, const union guard_any *m)
{
	int ret = guard_draft_take(&g->draft, m);

	if (ret == E_MORE)
		return 0;
	return ret < 0 ? ret : guard_on_commit(g, m);
}

static int guard_on_allow(struct guard *g, const union guard_any *m)
{
	struct ruleset_entry e[GUARD_LEASES_MAX];
	enum guard_part part;
	int ret = 0;

	for (uint32_t i = 0; i < m->allow.n; i++) {
		const struct guard_lease *l = &m->allow.lease[i];

		e[i] = (struct ruleset_entry){.lo = l->addr,
			.hi = l->addr,
			.kind = RULESET_LEASE,
			.proto = l->proto,
			.port_lo = l->port,
			.port_hi = l->port,
			.seconds = l->seconds};
	}
	if (!g->applied || !g->enforce)
		ret = -ENOENT;
	if (ret == 0) {
		batch_clear(&g->batch);
		tables_renew(&g->batch, e, m->allow.n);
		ret = batch_commit(&g->batch, &g->nft, &part);
		batch_clear(&g->batch);
	}
	return guard_answer(g, m->head.id, ret);
}

static const struct guard_op guard_ops[GUARD_TYPE_MAX] = {
	[GUARD_ALLOW] = {guard_on_allow},
	[GUARD_BEGIN] = {guard_on_draft},
	[GUARD_ENTRIES] = {guard_on_draft},
	[GUARD_COMMIT] = {guard_on_draft},
};

/* Takes messages while there are any. E_EOF: the worker is gone. */
static int guard_take(struct guard *g)
{
	for (int i = 0; i < GUARD_BURST; i++) {
		/* One byte more than the largest message: what is too long is seen as such. */
		union {
			union guard_any m;
			uint8_t room[sizeof(union guard_any) + 1];
		} in;
		ssize_t n = recv(g->worker_fd, &in, sizeof(in), MSG_DONTWAIT);
		int ret;

		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return 0;
		if (n == 0 || (n < 0 && errno == ECONNRESET))
			return E_EOF;
		if (n < 0)
			return -errno;
		if (!guard_msg_valid(&in.m, (size_t)n, false))
			return E_SYNTAX;
		ret = guard_ops[in.m.head.type].run(g, &in.m);
		if (ret < 0)
			return ret == -EPIPE ? E_EOF : ret;
	}
	return 0;
}

/* True if a device came or went. */
static bool guard_links_changed(struct guard *g)
{
	_Alignas(struct nlmsghdr) uint8_t buf[NETLINK_MSG_MAX];
	bool changed = false;

	while (true) {
		ssize_t n = recv(netlink_fd(&g->events), buf, sizeof(buf), MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		/* Events were lost: look for ourselves. */
		if (n < 0 && errno == ENOBUFS)
			return true;
		if (n <= 0)
			return changed;
		changed = true;
	}
}

static int guard_on_links(struct guard *g)
{
	const struct guard_state before = g->state;
	const size_t held = g->xsk ? xsk_held(g->xsk) : 0;
	int ret;

	if (!guard_links_changed(g) || !g->applied || !g->enforce)
		return 0;
	ret = guard_devices(g, g->by_name);
	if (ret == 0 && g->by_name)
		ret = guard_take_print(g);
	if (ret < 0)
		return ret;
	if (memcmp(before.part, g->state.part, sizeof(before.part)) != 0 ||
		(g->xsk && xsk_held(g->xsk) != held))
		return guard_report(g);
	return 0;
}

static int guard_send_flows(struct guard *g)
{
	struct flow_log *f = g->flows;

	for (size_t i = 0; i < f->n; i++) {
		int ret;

		f->v[i].lost = f->lost;
		/* Records must not hold up the kernel's answers. */
		ret = guard_send(g, &f->v[i], sizeof(f->v[i]), MSG_DONTWAIT);
		if (ret == -EAGAIN) {
			f->lost += f->v[i].count;
			continue;
		}
		if (ret < 0)
			return ret;
		f->lost = 0;
	}
	f->n = 0;
	return 0;
}

/* Where nothing else told the worker that we live. */
static int guard_beat(struct guard *g)
{
	const struct guard_head m = {.type = GUARD_BEAT};
	int ret;

	/* A worker that is stopped reads later; waiting for it would end our own watch. */
	ret = guard_send(g, &m, sizeof(m), MSG_DONTWAIT);
	return ret == -EAGAIN ? 0 : ret;
}

static int guard_on_time(struct guard *g)
{
	const uint64_t now = clock_mono_ms();
	int ret = 0;

	if (now >= g->watch_at) {
		g->watch_at = now + GUARD_WATCH_MS;
		if (g->applied)
			ret = guard_watch(g);
	}
	if (ret == 0 && now >= g->flows_at) {
		g->flows_at = now + GUARD_FLOW_MS;
		if (g->flows)
			ret = guard_send_flows(g);
	}
	if (ret == 0 && now >= g->beat_at)
		ret = guard_beat(g);
	return ret;
}

int guard_run(struct guard *g)
{
	struct pollfd p[] = {
		{.fd = g->worker_fd, .events = POLLIN},
		{.fd = netlink_fd(&g->events), .events = POLLIN},
		{.fd = g->flows ? netlink_fd(&g->flows->log) : -1, .events = POLLIN},
	};
	int ret = 0;

	batch_init(&g->batch);
	if (!g->flows) {
		g->tables.without[GUARD_PART_LOG] = true;
		guard_set(g, GUARD_PART_LOG, GUARD_REFUSED, g->flows_err);
	}
	while (ret == 0) {
		if (poll(p, ARRAY_LEN(p), GUARD_WATCH_MS / 2) < 0 && errno != EINTR)
			return -errno;
		if (p[0].revents)
			ret = guard_take(g);
		if (ret == 0 && p[1].revents)
			ret = guard_on_links(g);
		if (ret == 0 && p[2].revents)
			ret = flow_log_read(g->flows);
		if (ret == 0)
			ret = guard_on_time(g);
	}
	return ret == E_EOF || ret == -EPIPE ? 0 : ret;
}

void guard_fini(struct guard *g)
{
	guard_draft_fini(&g->draft);
	ruleset_fini(&g->current);
	batch_fini(&g->batch);
	netlink_close(&g->nft);
	netlink_close(&g->links);
	netlink_close(&g->events);
	if (g->flows)
		flow_log_close(g->flows);
	if (g->xsk)
		xsk_close(g->xsk);
	(void)close(g->worker_fd);
}
