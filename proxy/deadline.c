/* The sweep behind every time limit. See deadline.h. */
#include "proxy/deadline.h"

#include <event2/event.h>

#include "base/clock.h"

void deadlines_sweep(struct deadlines *d, uint64_t now_ms)
{
	struct deadline *x;

	for (x = TAILQ_FIRST(&d->list); x; x = d->next) {
		d->next = TAILQ_NEXT(x, link);
		if (x->at_ms != 0 && x->at_ms <= now_ms) {
			x->at_ms = 0;
			x->passed(x->arg);
		}
	}
}

void deadlines_shift(struct deadlines *d, uint64_t ms)
{
	struct deadline *x;

	TAILQ_FOREACH(x, &d->list, link)
		if (x->at_ms != 0)
			x->at_ms += ms;
}

static void on_sweep(evutil_socket_t fd, short what, void *arg)
{
	deadlines_sweep(arg, clock_mono_ms());
}

/* The timer runs only while there is something to watch: an idle proxy does not wake up. */
static void deadlines_arm(struct deadlines *d)
{
	struct timeval every = {0, DEADLINE_SWEEP_MS * 1000};

	if (TAILQ_EMPTY(&d->list))
		event_del(d->timer);
	else if (!event_pending(d->timer, EV_TIMEOUT, NULL))
		event_add(d->timer, &every);
}

void deadlines_init(struct deadlines *d, struct event_base *base)
{
	TAILQ_INIT(&d->list);
	d->next = NULL;
	d->timer = event_new(base, -1, EV_PERSIST, on_sweep, d);
	REQUIRE(d->timer != NULL);
}

void deadlines_fini(struct deadlines *d)
{
	REQUIRE(TAILQ_EMPTY(&d->list));
	if (d->timer)
		event_free(d->timer);
	d->timer = NULL;
}

void deadline_add(struct deadlines *d, struct deadline *x, void (*passed)(void *arg), void *arg)
{
	x->at_ms = 0;
	x->passed = passed;
	x->arg = arg;
	TAILQ_INSERT_TAIL(&d->list, x, link);
	if (TAILQ_FIRST(&d->list) == x)
		deadlines_arm(d);
}

void deadline_remove(struct deadlines *d, struct deadline *x)
{
	if (!x->passed)
		return;
	if (d->next == x)
		d->next = TAILQ_NEXT(x, link);
	TAILQ_REMOVE(&d->list, x, link);
	x->passed = NULL;
	if (TAILQ_EMPTY(&d->list))
		deadlines_arm(d);
}
