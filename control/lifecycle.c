/* The polling. Before it: the worker's start, SIGHUP, the end of a freeze; after it: proxy/fetch
 * asks, lifecycle_doc reads, lifecycle_state judges. Every answer that is not one of ours in form
 * (another id, no JSON, too large, another type) counts as none. */
#include "control/lifecycle.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#include <event2/event.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/secmem.h"
#include "base/strbuf.h"
#include "proxy/fetch.h"
#include "proxy/proxy.h"

#define LIFECYCLE_FIELD "OPEN-SANDBOX-API-KEY: "

struct lifecycle {
	struct proxy *px;
	const struct lifecycle_ops *ops;
	void *arg;
	char *id;
	char *url[2]; /* of the sandbox, and of its policy */
	struct request_target target[2];
	char *secret; /* the key as a field's line, in locked memory */
	size_t secret_len;
	struct event *timer;
	struct fetch *fetch;
	unsigned failures;
	uint64_t not_before_ms; /* Retry-After: nothing is asked until then */
	unsigned polls;         /* since the server's policy was looked at */
	enum { POLICY_NOT_SEEN, POLICY_SAME, POLICY_OTHER, POLICY_NO_ROUTE } policy;
	struct lifecycle_known known;
	uint64_t success_us, failure_us;
	char failure[LIFECYCLE_ERROR_MAX + 64];
};

uint64_t lifecycle_wait_ms(unsigned failures, uint64_t *at_least_ms, uint32_t random)
{
	uint64_t ms = LIFECYCLE_POLL_MS;

	while (failures-- > 0 && ms < LIFECYCLE_BACKOFF_MS)
		ms *= 2;
	if (ms > LIFECYCLE_BACKOFF_MS)
		ms = LIFECYCLE_BACKOFF_MS;
	ms = ms * (100 - LIFECYCLE_JITTER_PERCENT) / 100 +
		random % (ms * 2 * LIFECYCLE_JITTER_PERCENT / 100);
	if (*at_least_ms > LIFECYCLE_RETRY_AFTER_MS)
		*at_least_ms = LIFECYCLE_RETRY_AFTER_MS;
	return ms < *at_least_ms ? *at_least_ms : ms;
}

static void lifecycle_wait(struct lifecycle *l, uint64_t at_least_ms)
{
	uint64_t now = clock_wall_us(), ms;
	uint32_t random = 0;
	struct timeval tv;

	REQUIRE(getrandom(&random, sizeof(random), 0) == (ssize_t)sizeof(random));
	ms = lifecycle_wait_ms(l->failures, &at_least_ms, random);
	/* What is being paused runs again soon, perhaps. */
	if (l->known.enforce == LIFECYCLE_NO_NEW_FLOWS && l->failures == 0)
		ms /= LIFECYCLE_PAUSING_TIMES;
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

static bool lifecycle_is_json(const struct h1_head *head)
{
	const struct field *type = fields_find(&head->fields, FIELD_CONTENT_TYPE);

	return type &&
		slice_ieq(slice_trim(slice_first(type->value, slice_find_char(type->value, ';'))),
			SLICE("application/json"));
}

static uint64_t lifecycle_retry_after_ms(const struct h1_head *head)
{
	uint64_t s = 0;

	for (size_t i = 0; head && i < head->fields.n; i++)
		if (slice_ieq(head->fields.v[i].name, SLICE("retry-after")) &&
			!slice_to_u64(head->fields.v[i].value, &s))
			s = 0; /* a date: the back-off counts */
	return s < LIFECYCLE_RETRY_AFTER_MS ? s * 1000 : LIFECYCLE_RETRY_AFTER_MS;
}

static enum reason on_lifecycle_admit(const struct netaddr *a, void *arg)
{
	const struct lifecycle *l = arg;

	return l->ops->admit(a, l->arg);
}

static void lifecycle_ask(struct lifecycle *l, int what, fetch_cb done)
{
	const struct fetch_request r = {
		.method = "GET",
		.admit = on_lifecycle_admit,
		.target = &l->target[what],
		.fields = SLICE("Accept: application/json\r\n"),
		.secret = slice_make(l->secret, l->secret_len),
		.answer_max = LIFECYCLE_ANSWER_MAX,
		.timeout_ms = LIFECYCLE_TIMEOUT_MS,
	};

	fetch_cancel(l->fetch);
	l->fetch = fetch_start(l->px, &r, done, l);
}

/* --- the policy that the server knows --- */

static void on_lifecycle_policy(const struct fetch_answer *a, void *arg)
{
	struct lifecycle *l = arg;
	json_t *doc, *policy;
	char *text = NULL;
	int before = l->policy;

	l->fetch = NULL;
	if (a->status == 404)
		l->policy = POLICY_NO_ROUTE;
	if (a->err || a->status != 200 || !lifecycle_is_json(a->head))
		return;
	doc = json_loadb(a->content.p, a->content.len, JSON_REJECT_DUPLICATES, NULL);
	policy = json_object_get(doc, "policy");
	if (json_is_object(policy))
		text = json_dumps(policy, JSON_COMPACT);
	json_decref(doc);
	if (!text)
		return;
	l->policy = l->ops->same_policy(slice_str(text), l->arg) ? POLICY_SAME : POLICY_OTHER;
	free(text);
	if ((int)l->policy != before && (before != POLICY_NOT_SEEN || l->policy == POLICY_OTHER))
		l->ops->policy_seen(l->policy == POLICY_SAME, l->arg);
}

/* Where it runs: a server hangs for minutes while the sandbox stands still. */
static void lifecycle_policy(struct lifecycle *l)
{
	if (l->known.state != LIFECYCLE_RUNNING || l->policy == POLICY_NO_ROUTE ||
		l->polls++ % LIFECYCLE_POLICY_POLLS != 0)
		return;
	lifecycle_ask(l, 1, on_lifecycle_policy);
}

/* --- the sandbox --- */

static void lifecycle_failed(struct lifecycle *l, const struct fetch_answer *a, const char *why)
{
	char text[LIFECYCLE_ERROR_MAX];
	int status = a->err ? 0 : a->status;

	(void)lifecycle_error_text(a->content, text);
	if (a->status != 0)
		(void)snprintf(l->failure, sizeof(l->failure), "status %d%s%s", a->status,
			why || text[0] ? ": " : "", why ? why : text);
	else
		(void)snprintf(l->failure, sizeof(l->failure), "%s", a->why);
	/* The server's words, cut anywhere. */
	for (char *p = l->failure; *p; p++)
		if (*p < ' ' || *p > '~')
			*p = '?';
	/* A 404 that does not look like the API's is from something in between. */
	if (status == 404 && text[0] == '\0')
		status = 0;
	lifecycle_take(l, NULL, status, lifecycle_retry_after_ms(a->head));
}

static void on_lifecycle_sandbox(const struct fetch_answer *a, void *arg)
{
	struct lifecycle *l = arg;
	struct lifecycle_list *list;
	struct errmsg msg = {""};

	l->fetch = NULL;
	if (a->err || a->status != 200) {
		lifecycle_failed(l, a, a->why);
		return;
	}
	if (!lifecycle_is_json(a->head)) {
		lifecycle_failed(l, a, "the answer is no JSON");
		return;
	}
	list = xcalloc(1, sizeof(*list));
	if (lifecycle_sandbox_decode(a->content, slice_str(l->id), list, &msg) < 0) {
		/* Who says 200 and something else does not say that a sandbox is gone. */
		lifecycle_failed(l, a, msg.text);
	} else {
		lifecycle_take(l, &list->v[0], a->status, 0);
		lifecycle_policy(l);
		lifecycle_list_fini(list);
	}
	free(list);
}

static void on_lifecycle_timer(evutil_socket_t fd, short what, void *arg)
{
	struct lifecycle *l = arg;

	/* The sandbox has expired while the API wants to be left alone. */
	if (clock_mono_ms() < l->not_before_ms) {
		(void)snprintf(l->failure, sizeof(l->failure), "expired within Retry-After");
		lifecycle_take(l, NULL, 0, l->not_before_ms - clock_mono_ms());
		return;
	}
	lifecycle_ask(l, 0, on_lifecycle_sandbox);
}

void lifecycle_poll(struct lifecycle *l)
{
	if (!l->secret)
		return;
	l->not_before_ms = 0;
	event_del(l->timer);
	event_active(l->timer, EV_TIMEOUT, 0);
}

int lifecycle_set_key(struct lifecycle *l, int fd, struct errmsg *msg)
{
	const size_t room = sizeof(LIFECYCLE_FIELD) - 1 + LIFECYCLE_KEY_MAX + 2;
	char *p = secmem_alloc(l->px->secmem, room + 1);
	char *key = p + sizeof(LIFECYCLE_FIELD) - 1;
	struct slice text;
	ssize_t n;

	if (!p)
		return errmsg_set(msg, -ENOMEM, "OPENSANDBOX_API_KEY_FILE: no locked memory");
	memcpy(p, LIFECYCLE_FIELD, sizeof(LIFECYCLE_FIELD) - 1);
	n = pread(fd, key, LIFECYCLE_KEY_MAX + 3, 0); /* an end of line, and one too many */
	text = slice_strip(slice_make(key, n > 0 ? (size_t)n : 0));
	if (text.len == 0 || text.len > LIFECYCLE_KEY_MAX || text.p != key ||
		!field_value_ok(text)) {
		secmem_release(l->px->secmem, p);
		return errmsg_set(msg, E_VALUE,
			"OPENSANDBOX_API_KEY_FILE: expected 1 to %d bytes that can stand in a "
			"field",
			LIFECYCLE_KEY_MAX);
	}
	memcpy(key + text.len, "\r\n", 2);
	fetch_cancel(l->fetch);
	l->fetch = NULL;
	secmem_release(l->px->secmem, l->secret);
	l->secret = p;
	l->secret_len = (size_t)(key - p) + text.len + 2;
	lifecycle_poll(l);
	return 0;
}

struct lifecycle *lifecycle_new(struct proxy *px, const char *url, struct slice id,
	const struct lifecycle_known *known, const struct lifecycle_ops *ops, void *arg)
{
	static const char *const ends[] = {"", "/networkpolicy"};
	struct lifecycle *l = xcalloc(1, sizeof(*l));
	struct strbuf text;

	REQUIRE(lifecycle_id_ok(id));
	l->px = px;
	l->ops = ops;
	l->arg = arg;
	l->known = *known;
	strbuf_init(&text, H1_TARGET_MAX);
	for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
		strbuf_clear(&text);
		strbuf_printf(&text, "%s/v1/sandboxes/%.*s%s", url, SLICE_FMT(id), ends[i]);
		l->url[i] = xstrdup(strbuf_cstr(&text));
		REQUIRE(request_target_decode(SLICE("GET"), slice_str(l->url[i]), &l->target[i]) ==
			0);
	}
	strbuf_clear(&text);
	strbuf_add(&text, id);
	l->id = xstrdup(strbuf_cstr(&text));
	strbuf_fini(&text);
	l->timer = event_new(px->base, -1, 0, on_lifecycle_timer, l);
	REQUIRE(l->timer != NULL);
	return l;
}

void lifecycle_free(struct lifecycle *l)
{
	if (!l)
		return;
	fetch_cancel(l->fetch);
	event_free(l->timer);
	secmem_release(l->px->secmem, l->secret);
	free(l->url[0]);
	free(l->url[1]);
	free(l->id);
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
		l->failure[0] ? l->failure : NULL, "serverPolicy", policies[l->policy]);
}
