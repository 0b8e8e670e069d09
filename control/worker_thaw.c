/* After a freeze: a paused container, a suspended host. All that waits for a time finds it passed,
 * and what was agreed with others may have ended without a word. So before anything else of the
 * loop runs, limits get the time back that nobody could use, and what may be stale is given up or
 * asked for again. Before it: a timer that comes late; after it: proxy, API and DNS gate go on. */
#include <stdio.h>

#include <event2/event.h>

#include "base/clock.h"
#include "base/log.h"
#include "control/api.h"
#include "control/worker_int.h"
#include "dns/dns_gate.h"
#include "proxy/proxy.h"

#define THAW_TICK_MS 1000
#define THAW_LATE_MS 2000 /* a busy machine is not that late */

static void thaw_all(struct worker *w, uint64_t gap_ms)
{
	char what[64];

	(void)snprintf(what, sizeof(what), "frozen for about %llu.%llu s",
		(unsigned long long)gap_ms / 1000, (unsigned long long)gap_ms % 1000 / 100);
	log_info("worker", "%s", what);
	worker_note(w, AUDIT_LIFECYCLE, REASON_ALLOWED, what);
	worker_lifecycle_thaw(w, gap_ms);
	proxy_thaw(w->proxy, gap_ms);
	if (w->api)
		api_thaw(w->api);
	if (w->gate.dns)
		dns_gate_thaw(w->gate.dns, gap_ms);
}

static void on_thaw_tick(evutil_socket_t fd, short what, void *arg)
{
	struct worker *w = arg;
	uint64_t now = clock_mono_ms();
	uint64_t gap = now - w->thaw_seen_ms;

	w->thaw_seen_ms = now;
	if (gap >= THAW_TICK_MS + THAW_LATE_MS)
		thaw_all(w, gap);
}

void worker_thaw_base(struct event_base *base)
{
	/* Ours is the first of two; every other event has the second by default. */
	REQUIRE(event_base_priority_init(base, 2) == 0);
}

void worker_thaw_start(struct worker *w)
{
	const struct timeval period = {THAW_TICK_MS / 1000, 0};

	w->thaw = event_new(w->base, -1, EV_PERSIST, on_thaw_tick, w);
	REQUIRE(w->thaw != NULL && event_priority_set(w->thaw, 0) == 0);
	w->thaw_seen_ms = clock_mono_ms();
	(void)event_add(w->thaw, &period);
}

void worker_thaw_close(struct worker *w)
{
	if (w->thaw)
		event_free(w->thaw);
	w->thaw = NULL;
}
