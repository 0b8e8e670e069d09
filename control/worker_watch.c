/* The watch over the modes dns and dns+nft: what guard, resolvers and listeners are found to be,
 * turned into health; what has been lost is asked for again; and what the kernel did by itself,
 * onto the record. Before it: worker_gate.c. After it: health, audit. */
#include <netinet/in.h>
#include <stdio.h>

#include <event2/event.h>

#include "base/clock.h"
#include "base/log.h"
#include "control/ports.h"
#include "control/worker_int.h"
#include "dns/dns_gate.h"
#include "nft/guard_client.h"

#define WATCH_MS 500
/* However soon a loss is mended: whoever asks ten times a second must not miss it. */
#define WATCH_SEEN_MS 1000
/* What refuses a part may go away: somebody else's AF_XDP socket, or a device full of hooks. */
#define WATCH_REFUSED_MS 2000

static enum guard_status watch_status(const struct guard_state *s, enum guard_part p)
{
	return (enum guard_status)s->part[p].status;
}

/* Of parts without which less holds: refused by the kernel, or lost. */
static void watch_part(struct worker *w, const struct guard_state *s, enum guard_part p,
	enum health_part to, bool required)
{
	switch (watch_status(s, p)) {
	case GUARD_UNUSED:
	case GUARD_IN_PLACE:
	case GUARD_STATUS_MAX:
		health_ok(&w->health, to);
		break;
	case GUARD_REFUSED:
		health_set(&w->health, to, required ? HEALTH_FAILED : HEALTH_DEGRADED,
			"the kernel refuses %s: %s", guard_part_text(p), err_text(s->part[p].err));
		break;
	case GUARD_LOST:
		health_set(&w->health, to, HEALTH_FAILED, "%s: removed or changed",
			guard_part_text(p));
		break;
	}
}

static void watch_pass(struct worker *w, const struct guard_state *s)
{
	const struct settings *set = w->settings;

	watch_part(w, s, GUARD_PART_PASS, HEALTH_PASS, set->require_pass);
	if (set->enforce && w->gate.cgroup_id == 0)
		health_set(&w->health, HEALTH_PASS,
			set->require_pass ? HEALTH_FAILED : HEALTH_DEGRADED,
			"pass: cgroups do not tell our sockets, the user alone does");
}

static void watch_queues(struct worker *w, const struct guard_state *s)
{
	if (s->queues_taken > 0)
		health_set(&w->health, HEALTH_QUEUES, HEALTH_FAILED,
			"%u device queues are taken by somebody else's AF_XDP socket",
			s->queues_taken);
	else if (s->queues_short > 0)
		health_set(&w->health, HEALTH_QUEUES, HEALTH_DEGRADED,
			"%u device queues are not held by us: no socket is left for them",
			s->queues_short);
	else
		watch_part(w, s, GUARD_PART_QUEUES, HEALTH_QUEUES, w->settings->require_raw_guard);
}

/* Parts that have no line of their own in health. */
static void watch_table(struct worker *w, const struct guard_state *s)
{
	static const enum guard_part small[] = {GUARD_PART_SOURCES, GUARD_PART_HEADERS,
		GUARD_PART_UNTRACK, GUARD_PART_TIMEOUTS, GUARD_PART_LOG};

	watch_part(w, s, GUARD_PART_TABLE, HEALTH_TABLE, true);
	for (size_t i = 0; watch_status(s, GUARD_PART_TABLE) != GUARD_LOST && i < ARRAY_LEN(small);
		i++)
		if (watch_status(s, small[i]) == GUARD_REFUSED)
			watch_part(w, s, small[i], HEALTH_TABLE, false);
}

/* What is asked for and not there shuts the sandbox; once it is there it opens again. */
static void watch_required(struct worker *w)
{
	const struct settings *set = w->settings;
	const struct health *h = &w->health;
	bool shut = (set->require_pass && h->state[HEALTH_PASS] == HEALTH_FAILED) ||
		(set->require_raw_guard &&
			(h->state[HEALTH_RAW_GUARD] == HEALTH_FAILED ||
				h->state[HEALTH_QUEUES] == HEALTH_FAILED));

	if (shut == w->gate.shut)
		return;
	w->gate.shut = shut;
	worker_gate_again(w);
}

static bool watch_is_lost(const struct guard_state *s)
{
	for (int i = 0; i < GUARD_PART_QUEUES; i++)
		if (watch_status(s, (enum guard_part)i) == GUARD_LOST)
			return true;
	return false;
}

void worker_watch_gone(struct worker *w)
{
	const bool silent = guard_client_is_silent(w->gate.guard);
	const char *why = silent ? "the guard is silent" : "the guard is gone";

	log_error("worker", "%s; the kernel's rules stay", why);
	health_set(&w->health, HEALTH_GUARD, HEALTH_FAILED, "%s (%s)", why,
		silent ? "stopped, or stuck in the kernel"
		       : "CAP_NET_ADMIN, nf_tables? its log says why");
	worker_note(w, AUDIT_GUARD, REASON_INTERRUPTED, why);
	w->gate.red_until_ms = clock_mono_ms() + WATCH_SEEN_MS;
	/* It may be there and not answer. */
	if (control_send_code(w->control_fd, CONTROL_GUARD, w->gate.n_guards) < 0)
		log_error("worker", "the supervisor cannot be told");
}

void worker_watch_state(struct worker *w, const struct guard_state *s)
{
	char what[HEALTH_CAUSE_MAX];
	bool was = health_state(&w->health) == HEALTH_FAILED;
	bool lost = watch_is_lost(s);

	if (!lost && w->gate.red_until_ms != 0)
		return; /* on_watch takes it later */
	health_ok(&w->health, HEALTH_GUARD);
	watch_table(w, s);
	watch_part(w, s, GUARD_PART_REDIRECT, HEALTH_REDIRECT, true);
	watch_part(w, s, GUARD_PART_RAW_GUARD, HEALTH_RAW_GUARD, w->settings->require_raw_guard);
	watch_queues(w, s);
	watch_pass(w, s);
	if (lost) {
		w->gate.red_until_ms = clock_mono_ms() + WATCH_SEEN_MS;
		log_error("worker", "%s; made anew", health_cause(&w->health));
		(void)snprintf(what, sizeof(what), "%s", health_cause(&w->health));
		worker_note(w, AUDIT_GUARD, REASON_INTERRUPTED, what);
		worker_gate_again(w);
	} else if (!was && health_state(&w->health) == HEALTH_FAILED) {
		worker_note(w, AUDIT_GUARD, REASON_INTERRUPTED, health_cause(&w->health));
	}
	watch_required(w);
}

void worker_watch_flow(struct worker *w, const struct guard_flow *f)
{
	char host[NETADDR_TEXT_MAX];
	char protocol[8];
	struct audit_event e = {
		.kind = AUDIT_FLOW,
		.verdict = f->verdict == GUARD_FLOW_PASSED ? AUDIT_ALLOWED : AUDIT_BLOCKED,
		.reason = f->verdict == GUARD_FLOW_PASSED ? REASON_ALLOWED
							  : REASON_ADDRESS_NOT_LISTED,
		.via = SLICE("direct"),
		.addr = f->to,
		.has_addr = true,
		.port = f->to_port,
		.uid = f->has_uid ? f->uid : AUDIT_UID_NONE,
		.start_us = clock_wall_us(),
		.count = f->count,
	};

	(void)netaddr_text(&f->to, host);
	e.host = slice_str(host);
	if (f->proto == IPPROTO_TCP || f->proto == IPPROTO_UDP)
		e.method = f->proto == IPPROTO_TCP ? SLICE("TCP") : SLICE("UDP");
	else {
		(void)snprintf(protocol, sizeof(protocol), "IP-%u", f->proto);
		e.method = slice_str(protocol);
	}
	if (f->lost > 0)
		log_warn("worker", "%u records of direct flows were lost", f->lost);
	audit_note(w->audit, &e, NULL);
}

void worker_watch_resolvers(struct worker *w)
{
	if (!w->gate.dns)
		return;
	if (dns_gate_resolvers_alive(w->gate.dns) > 0)
		health_ok(&w->health, HEALTH_RESOLVERS);
	else
		health_set(&w->health, HEALTH_RESOLVERS, HEALTH_FAILED, "no resolver answers");
}

/* That the kernel resets what would reach others, and that nobody else has a port of ours. */
static void watch_listeners(struct worker *w)
{
	const bool was = w->health.state[HEALTH_LISTENERS] == HEALTH_FAILED;
	struct conns_listener l;
	char text[PORTS_TEXT_MAX];
	int ret = foreign_look(&w->gate.foreign, w->gate.diag_fd, &l);

	watch_part(w, guard_client_state(w->gate.guard), GUARD_PART_LISTENERS, HEALTH_LISTENERS,
		false);
	if (ret < 0)
		health_set(&w->health, HEALTH_LISTENERS, HEALTH_DEGRADED,
			"listeners of others cannot be seen: %s", err_text(ret));
	if (ret <= 0)
		return;
	ports_text(&l.addr, l.port, text);
	health_set(&w->health, HEALTH_LISTENERS, HEALTH_FAILED,
		"somebody else listens on our port: %s%s", text, l.udp ? " (UDP)" : "");
	if (!was)
		worker_note(w, AUDIT_GUARD, REASON_INTERRUPTED, w->health.cause[HEALTH_LISTENERS]);
}

static void on_watch_packet_socket(const struct packet_socket *s, void *arg)
{
	char what[80];

	if (s->uid == UINT32_MAX)
		(void)snprintf(what, sizeof(what), "a packet socket was opened in the sandbox");
	else
		(void)snprintf(what, sizeof(what),
			"a packet socket was opened in the sandbox by user %u", s->uid);
	log_warn("worker", "%s: clear traffic can be read there", what);
	worker_note(arg, AUDIT_GUARD, REASON_ALLOWED, what);
}

void worker_watch_packets(struct worker *w)
{
	struct worker_gate *g = &w->gate;

	if (g->dns && packet_sockets_look(&g->packets, g->diag_fd, on_watch_packet_socket, w) < 0)
		log_debug("worker", "packet sockets cannot be seen");
}

static bool watch_is_refused(const struct worker *w)
{
	return w->health.state[HEALTH_QUEUES] == HEALTH_FAILED ||
		w->health.state[HEALTH_RAW_GUARD] == HEALTH_FAILED;
}

static void on_watch(evutil_socket_t fd, short what, void *arg)
{
	struct worker *w = arg;
	struct worker_gate *g = &w->gate;
	uint64_t now = clock_mono_ms();

	worker_watch_resolvers(w);
	watch_listeners(w);
	worker_watch_packets(w);
	if (g->red_until_ms != 0 && now >= g->red_until_ms) {
		g->red_until_ms = 0;
		if (g->applied)
			worker_watch_state(w, guard_client_state(g->guard));
	}
	if (g->again_ms == 0 && watch_is_refused(w))
		g->again_ms = now + WATCH_REFUSED_MS;
	/* Also the self-test, which comes after the rules. */
	if (g->again_ms != 0 && now >= g->again_ms) {
		g->again_ms = 0;
		worker_gate_again(w);
	}
}

void worker_watch_start(struct worker *w)
{
	const struct timeval period = {0, WATCH_MS * 1000};

	w->gate.watch = event_new(w->base, -1, EV_PERSIST, on_watch, w);
	REQUIRE(w->gate.watch != NULL);
	(void)event_add(w->gate.watch, &period);
}

void worker_watch_close(struct worker *w)
{
	if (w->gate.watch)
		event_free(w->gate.watch);
	w->gate.watch = NULL;
}
