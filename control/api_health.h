/* Probes of /healthz that come while egress starts: they wait a little for the end of the start.
 * Whoever creates a sandbox asks, sleeps and asks again (OpenSandbox: 0.2 s, Kubernetes: 1 s), so
 * an early no would cost the creation of each sandbox that sleep, for a start of a few hundredths
 * of a second. Before it: api; after it: whoever knows the health. */
#pragma once

#include <stdbool.h>

#define API_HEALTH_WAIT_MS 500 /* probes of OpenSandbox and Kubernetes give up after a second */

struct api_call;
struct api_health;
struct event_base;

struct api_health_ops {
	bool (*starting)(void *arg); /* nobody can say yet */
	void (*answer)(struct api_call *call, void *arg);
};

/* ops and arg are borrowed for its life. */
struct api_health *api_health_new(
	struct event_base *base, const struct api_health_ops *ops, void *arg);
/* Answers what waits. Before api_free. Accepts NULL. */
void api_health_free(struct api_health *h);
/* Answers call: at once, or while egress is starting when it is not any more, at the latest after
 * API_HEALTH_WAIT_MS. */
void api_health_run(struct api_health *h, struct api_call *call);
