/* Waiting probes, in the order in which they came. Before it: the route of /healthz; after it: its
 * answer. */
#include "control/api_health.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/queue.h>

#include <event2/event.h>

#include "base/arena.h"
#include "base/attr.h"
#include "base/clock.h"
#include "control/api.h"

#define API_HEALTH_TICK_US 2000 /* small beside a start, of which 20 to 50 ms are the rule */

struct api_probe {
	TAILQ_ENTRY(api_probe) link;
	struct api_call *call;
	uint64_t until_ms;
};

struct api_health {
	const struct api_health_ops *ops;
	void *arg;
	struct event *tick;
	TAILQ_HEAD(api_probes, api_probe) waiting; /* not more than the API has connections */
};

static void api_health_answer(struct api_health *h, struct api_probe *p)
{
	TAILQ_REMOVE(&h->waiting, p, link);
	h->ops->answer(p->call, h->arg);
	free(p);
}

static void api_health_again(struct api_health *h)
{
	const struct timeval tick = {0, API_HEALTH_TICK_US};

	if (!TAILQ_EMPTY(&h->waiting) && !evtimer_pending(h->tick, NULL))
		evtimer_add(h->tick, &tick);
}

static void on_api_health_tick(evutil_socket_t fd, short what, void *arg)
{
	struct api_health *h = arg;
	bool starting = h->ops->starting(h->arg);
	uint64_t now = clock_mono_ms();
	struct api_probe *p, *next;

	for (p = TAILQ_FIRST(&h->waiting); p; p = next) {
		next = TAILQ_NEXT(p, link);
		if (!starting || now >= p->until_ms || !api_call_wanted(p->call))
			api_health_answer(h, p);
	}
	api_health_again(h);
}

struct api_health *api_health_new(
	struct event_base *base, const struct api_health_ops *ops, void *arg)
{
	struct api_health *h = xcalloc(1, sizeof(*h));

	h->ops = ops;
	h->arg = arg;
	TAILQ_INIT(&h->waiting);
	h->tick = evtimer_new(base, on_api_health_tick, h);
	REQUIRE(h->tick != NULL);
	return h;
}

void api_health_free(struct api_health *h)
{
	struct api_probe *p, *next;

	if (!h)
		return;
	for (p = TAILQ_FIRST(&h->waiting); p; p = next) {
		next = TAILQ_NEXT(p, link);
		api_health_answer(h, p);
	}
	event_free(h->tick);
	free(h);
}

void api_health_run(struct api_health *h, struct api_call *call)
{
	struct api_probe *p;

	if (!h->ops->starting(h->arg)) {
		h->ops->answer(call, h->arg);
		return;
	}
	p = xcalloc(1, sizeof(*p));
	p->call = call;
	p->until_ms = clock_mono_ms() + API_HEALTH_WAIT_MS;
	TAILQ_INSERT_TAIL(&h->waiting, p, link);
	api_health_again(h);
}
