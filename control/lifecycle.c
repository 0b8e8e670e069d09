/* The polling. Before it: the worker's start, SIGHUP, the end of a freeze; after it: proxy/fetch
 * asks, lifecycle_doc reads, lifecycle_state judges. Every answer that is not one of ours in form
 * (another id, no JSON, too large, another type) counts as none. */
#include "control/lifecycle.h"

#include <stdlib.h>

#include <event2/event.h>

#include "base/arena.h"
#include "base/backoff.h"
#include "base/clock.h"
#include "proxy/proxy.h"

struct lifecycle {
	struct lifecycle_api *api;
	const struct lifecycle_ops *ops;
	void *arg;
	char id[LIFECYCLE_ID_MAX + 1];
	struct event *timer;
	struct fetch *fetch;
	unsigned failures;
	uint64_t not_before_ms; /* Retry-After: nothing is asked until then */
	unsigned polls;         /* since the server's policy was looked at */
	enum { POLICY_NOT_SEEN, POLICY_SAME, POLICY_OTHER, POLICY_NO_ROUTE } policy;
	struct lifecycle_known known;
	uint64_t success_us, failure_us;
	struct errmsg failure; /* the last one */
};

static void lifecycle_wait(struct lifecycle *l, uint64_t at_least_ms)
{
	uint64_t now = clock_wall_us(), ms = backoff_ms(LIFECYCLE_POLL_MS, l->failures);
	struct timeval tv;

	/* What is being paused runs again soon, perhaps. */
	if (l->known.enforce == LIFECYCLE_NO_NEW_FLOWS && l->failures == 0)
		ms /= LIFECYCLE_PAUSING_TIMES;
	if (ms < at_least_ms)
		ms = at_least_ms;
	l->not_before_ms = clock_mono_ms() + at_least_ms;
	if (l->known.expires_us > now && l->known.expires_us - now < ms * 1000)
		ms = (l->known.expires_us - now) / 1000 + 1;
	tv = (struct timeval){(time_t)(ms / 1000), (suseconds_t)(ms % 1000 * 1000)};
	event_add(l->timer, &tv);
}

static void lifecycle_take(
	struct lifecycle *l, const struct lifecycle_sandbox *s, int status, uint64_t at_least_ms)
{
	bool changed = lifecycle_state_see(&l->known, s, status, clock_wall_us());

	l->failures = s || status == 404 ? 0 : l->failures + 1;
	*(s ? &l->success_us : &l->failure_us) = clock_wall_us();
	lifecycle_wait(l, at_least_ms);
	l->ops->seen(&l->known, s, changed, l->arg);
}

static enum reason on_lifecycle_admit(const struct netaddr *a, void *arg)
{
	const struct lifecycle *l = arg;

	return l->ops->admit(a, l->arg);
}

static void lifecycle_ask(struct lifecycle *l, const char *more, fetch_cb done)
{
	fetch_cancel(l->fetch);
	l->fetch = lifecycle_api_get(l->api, slice_str(l->id), more, done, l);
}

static void on_lifecycle_policy(const struct fetch_answer *a, void *arg)
{
	struct lifecycle *l = arg;
	json_t *doc, *policy;
	struct errmsg msg;
	int before = l->policy;

	l->fetch = NULL;
	if (a->status == 404)
		l->policy = POLICY_NO_ROUTE;
	if (lifecycle_api_check(a, &msg) < 0)
		return;
	doc = json_loadb(a->content.p, a->content.len, JSON_REJECT_DUPLICATES, NULL);
	policy = json_object_get(doc, "policy");
	if (json_is_object(policy))
		l->policy = l->ops->same_policy(policy, l->arg) ? POLICY_SAME : POLICY_OTHER;
	json_decref(doc);
	if ((int)l->policy != before && (before != POLICY_NOT_SEEN || l->policy == POLICY_OTHER))
		l->ops->policy_seen(l->policy == POLICY_SAME, l->arg);
}

/* Where it runs: a server hangs for minutes while the sandbox stands still. */
static void lifecycle_ask_policy(struct lifecycle *l)
{
	if (l->known.state == LIFECYCLE_RUNNING && l->policy != POLICY_NO_ROUTE &&
		l->polls++ % LIFECYCLE_POLICY_POLLS == 0)
		lifecycle_ask(l, "/networkpolicy", on_lifecycle_policy);
}

static void on_lifecycle_sandbox(const struct fetch_answer *a, void *arg)
{
	struct lifecycle *l = arg;
	int status = a->err ? 0 : a->status;
	struct lifecycle_list list;
	char text[LIFECYCLE_ERROR_MAX];

	l->fetch = NULL;
	if (lifecycle_api_check(a, &l->failure) == 0 &&
		lifecycle_sandbox_decode(a->content, slice_str(l->id), &list, &l->failure) == 0) {
		lifecycle_take(l, &list.v[0], status, 0);
		lifecycle_ask_policy(l);
		lifecycle_list_fini(&list);
		return;
	}
	/* The server's words, cut anywhere. */
	for (char *p = l->failure.text; *p; p++)
		if (*p < ' ' || *p > '~')
			*p = '?';
	/* A 404 that does not look like the API's is from something in between. */
	if (status == 404 && lifecycle_error_text(a->content, text)[0] == '\0')
		status = 0;
	lifecycle_take(l, NULL, status, lifecycle_retry_after_ms(a));
}

static void on_lifecycle_timer(evutil_socket_t fd, short what, void *arg)
{
	struct lifecycle *l = arg;

	/* The sandbox has expired while the API wants to be left alone. */
	if (clock_mono_ms() < l->not_before_ms) {
		(void)errmsg_set(&l->failure, 0, "expired within Retry-After");
		lifecycle_take(l, NULL, 0, l->not_before_ms - clock_mono_ms());
		return;
	}
	lifecycle_ask(l, "", on_lifecycle_sandbox);
}

void lifecycle_poll(struct lifecycle *l)
{
	if (!l->api->key)
		return;
	l->not_before_ms = 0;
	event_del(l->timer);
	event_active(l->timer, EV_TIMEOUT, 0);
}

int lifecycle_set_key(struct lifecycle *l, int fd, struct errmsg *msg)
{
	int ret;

	fetch_cancel(l->fetch);
	l->fetch = NULL;
	ret = lifecycle_api_read_key(l->api, fd, "OPENSANDBOX_API_KEY_FILE", msg);
	lifecycle_poll(l);
	return ret;
}

struct lifecycle *lifecycle_new(struct lifecycle_api *api, const char *id,
	const struct lifecycle_known *known, const struct lifecycle_ops *ops, void *arg)
{
	struct lifecycle *l = xcalloc(1, sizeof(*l));

	*l = (struct lifecycle){.api = api, .known = *known, .ops = ops, .arg = arg};
	REQUIRE(lifecycle_id_ok(slice_str(id)) &&
		slice_to_cstr(slice_str(id), l->id, sizeof(l->id)));
	api->answer_max = LIFECYCLE_ANSWER_MAX;
	api->admit = on_lifecycle_admit;
	l->timer = event_new(api->px->base, -1, 0, on_lifecycle_timer, l);
	REQUIRE(l->timer != NULL);
	return l;
}

void lifecycle_free(struct lifecycle *l)
{
	if (!l)
		return;
	fetch_cancel(l->fetch);
	event_free(l->timer);
	free(l);
}

static json_t *lifecycle_time(uint64_t us)
{
	char text[CLOCK_TEXT_MAX];

	if (us == 0)
		return json_null();
	clock_text(us, text);
	return json_string(text);
}

json_t *lifecycle_json(const struct lifecycle *l)
{
	static const char *const policies[] = {"not seen", "same", "other", "no route"};

	return json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:s?, s:s}", "state",
		lifecycle_state_text(l->known.state), "enforced",
		lifecycle_enforce_text(l->known.enforce), "cause",
		lifecycle_cause_text(l->known.cause), "expiresAt",
		lifecycle_time(l->known.expires_us), "lastSuccess", lifecycle_time(l->success_us),
		"lastFailure", lifecycle_time(l->failure_us), "failure",
		l->failure.text[0] ? l->failure.text : NULL, "serverPolicy", policies[l->policy]);
}
