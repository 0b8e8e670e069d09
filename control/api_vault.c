/* The handlers of /credential-vault. Before them: api.c, which has the whole content in locked
 * memory; after them: policy_change, whose turn a write waits for, so that bindings and policy are
 * always judged by each other as they are. Nothing here reads the content. */
#include "control/api_vault.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <event2/event.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/strbuf.h"

#define READY_POLL_MS 100
#define NAME_MAX_LEN 4096 /* of a name in a path, decoded: longer than any that exists */

/* A write that was asked for, until it is answered. */
struct api_vault_request {
	struct policy_request r; /* the first, so that the one is the other */
	TAILQ_ENTRY(api_vault_request) link;
	struct api_vault *v;
	struct api_call *call;
	enum api_vault_method method;
	uint64_t until_ms; /* clock_mono_ms */
	int ret;           /* of the write */
	bool written;      /* or refused; not: its turn never came */
	struct errmsg msg;
};

TAILQ_HEAD(api_vault_list_head, api_vault_request);

struct api_vault {
	struct policy_change *changes;
	const struct api_vault_ops *ops;
	void *arg;
	struct api_vault_list_head waiting; /* for egress to be ready */
	struct event *poll;
};

/* --- what is there --- */

/* NULL: there is no vault, and that was answered. Else a new reference. */
static json_t *vault_state(const struct api_vault *v, struct api_call *call)
{
	char *text = v->ops->state(v->arg);
	json_t *state = text ? json_loads(text, JSON_ALLOW_NUL, NULL) : NULL;

	REQUIRE(!text || state);
	free(text);
	if (!state)
		api_fail(call, 404, "vault_not_found", "credential vault not found");
	return state;
}

void api_vault_list(struct api_vault *v, struct api_call *call, const char *kind)
{
	json_t *state = vault_state(v, call);

	if (!state)
		return;
	api_answer_json(call, 200, NULL,
		json_pack("{s:O, s:O}", "revision", json_object_get(state, "revision"), kind,
			json_object_get(state, kind)));
	json_decref(state);
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = ascii_lower(c);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* False: a `%` without two digits. */
static bool path_decode(struct slice path, struct strbuf *out)
{
	for (size_t i = 0; i < path.len; i++) {
		int high, low;

		if (path.p[i] != '%') {
			strbuf_char(out, path.p[i]);
			continue;
		}
		high = i + 2 < path.len ? hex_digit(path.p[i + 1]) : -1;
		low = high >= 0 ? hex_digit(path.p[i + 2]) : -1;
		if (low < 0)
			return false;
		strbuf_char(out, (char)(high * 16 + low));
		i += 2;
	}
	return true;
}

static json_t *item_find(json_t *items, struct slice name)
{
	json_t *item;
	size_t i;

	json_array_foreach(items, i, item)
	{
		const json_t *text = json_object_get(item, "name");

		if (slice_eq(name, slice_make(json_string_value(text), json_string_length(text))))
			return item;
	}
	return NULL;
}

static void item_answer(
	struct api_vault *v, struct api_call *call, const char *kind, struct slice name)
{
	bool credential = strcmp(kind, "credentials") == 0;
	json_t *state = vault_state(v, call);
	json_t *item;

	if (!state)
		return;
	item = item_find(json_object_get(state, kind), name);
	if (item)
		api_answer_json(call, 200, NULL, json_incref(item));
	else
		api_fail(call, 404, credential ? "credential_not_found" : "binding_not_found",
			"%s not found", credential ? "credential" : "binding");
	json_decref(state);
}

void api_vault_item(struct api_vault *v, struct api_call *call, const char *kind)
{
	struct strbuf name;

	strbuf_init(&name, NAME_MAX_LEN);
	if (path_decode(api_call_below(call), &name))
		item_answer(v, call, kind, slice_strip(strbuf_slice(&name)));
	else
		api_fail(
			call, 400, "malformed", "the path has a %% without two hexadecimal digits");
	strbuf_fini(&name);
}

/* --- a write --- */

static struct api_vault_request *request_of(struct policy_request *r)
{
	return (struct api_vault_request *)(void *)r;
}

/* There is no policy to change: when this returns, everything is done. The message stays here,
 * since it may quote a name that somebody took for the place of a value. */
static int on_write_prepare(struct policy_request *r, struct errmsg *msg)
{
	struct api_vault_request *q = request_of(r);
	struct api_vault *v = q->v;
	const struct api_vault_write w = {q->method, api_call_body(q->call), api_call_uid(q->call)};

	q->written = true;
	q->ret = v->ops->write(v->arg, &w, &q->msg);
	return q->ret;
}

static const char *const method_names[] = {
	[API_VAULT_POST] = "POST", [API_VAULT_PATCH] = "PATCH", [API_VAULT_DELETE] = "DELETE"};

struct write_refusal {
	int status;
	const char *code;
	bool unread; /* the document could not be read (reference 1.3) */
};

static struct write_refusal write_refusal(int ret)
{
	switch (ret) {
	case E_SYNTAX:
	case E_UNKNOWN:
	case E_LIMIT:
		return (struct write_refusal){400, "invalid_vault", true};
	case E_VALUE:
		return (struct write_refusal){400, "invalid_vault", false};
	case -ENOENT:
		return (struct write_refusal){404, "vault_not_found", false};
	case -EEXIST:
		return (struct write_refusal){409, "vault_exists", false};
	case -ESTALE:
		return (struct write_refusal){409, "revision_mismatch", false};
	case -ENOMEM:
		return (struct write_refusal){412, "memory_not_locked", false};
	case E_FULL:
	case -EFBIG:
		return (struct write_refusal){413, "vault_too_large", false};
	default:
		return (struct write_refusal){500, "internal_error", false};
	}
}

static void write_refused(const struct api_vault_request *q)
{
	struct write_refusal refusal = write_refusal(q->ret);
	const char *prefix = "";

	if (refusal.unread && q->method == API_VAULT_PATCH)
		prefix = "invalid credential vault mutation request: ";
	else if (refusal.unread)
		prefix = "invalid credential vault request: ";
	log_info("vault", "%s refused: %s", method_names[q->method], refusal.code);
	api_fail(q->call, refusal.status, refusal.code, "%s%s", prefix, q->msg.text);
}

static void write_done(const struct api_vault_request *q)
{
	json_t *state;

	if (q->method == API_VAULT_DELETE) {
		api_answer(q->call, 204, NULL, "application/json", SLICE_EMPTY);
		return;
	}
	state = vault_state(q->v, q->call);
	if (state)
		api_answer_json(q->call, q->method == API_VAULT_POST ? 201 : 200, NULL, state);
}

static void request_free(struct api_vault_request *q)
{
	explicit_bzero(q, sizeof(*q));
	free(q);
}

static void on_write_done(struct policy_request *r, const struct policy_result *result)
{
	struct api_vault_request *q = request_of(r);

	if (!q->written)
		api_fail(q->call, 503, "stopping", "%s", result->msg.text);
	else if (q->ret < 0)
		write_refused(q);
	else
		write_done(q);
	request_free(q);
}

static const struct policy_request_ops write_ops = {
	.prepare = on_write_prepare,
	.done = on_write_done,
};

/* --- a write that comes before egress is ready --- */

static void vault_poll_again(struct api_vault *v)
{
	const struct timeval tick = {0, READY_POLL_MS * 1000};

	if (!TAILQ_EMPTY(&v->waiting) && !evtimer_pending(v->poll, NULL))
		evtimer_add(v->poll, &tick);
}

static void on_vault_poll(evutil_socket_t fd, short what, void *arg)
{
	struct api_vault *v = arg;
	struct api_vault_request *q, *next;
	bool ready = v->ops->ready(v->arg);
	uint64_t now = clock_mono_ms();

	for (q = TAILQ_FIRST(&v->waiting); q; q = next) {
		bool over = now >= q->until_ms || !api_call_wanted(q->call);

		next = TAILQ_NEXT(q, link);
		if (!ready && !over)
			continue;
		TAILQ_REMOVE(&v->waiting, q, link);
		if (over) {
			api_fail(q->call, 412, "not_ready", "credential proxy is not ready");
			request_free(q);
		} else {
			policy_change_submit(v->changes, &q->r);
		}
	}
	vault_poll_again(v);
}

static void vault_submit(struct api_vault *v, struct api_call *call, enum api_vault_method method)
{
	struct api_vault_request *q = xcalloc(1, sizeof(*q));

	q->r.ops = &write_ops;
	q->v = v;
	q->call = call;
	q->method = method;
	if (v->ops->ready(v->arg)) {
		policy_change_submit(v->changes, &q->r);
		return;
	}
	q->until_ms = clock_mono_ms() + API_VAULT_READY_MS;
	TAILQ_INSERT_TAIL(&v->waiting, q, link);
	vault_poll_again(v);
}

void api_vault_run(struct api_vault *v, struct api_call *call)
{
	struct slice method = api_call_method(call);
	json_t *state;

	if (slice_eq(method, SLICE("GET"))) {
		state = vault_state(v, call);
		if (state)
			api_answer_json(call, 200, NULL, state);
	} else if (slice_eq(method, SLICE("POST"))) {
		vault_submit(v, call, API_VAULT_POST);
	} else if (slice_eq(method, SLICE("PATCH"))) {
		vault_submit(v, call, API_VAULT_PATCH);
	} else {
		vault_submit(v, call, API_VAULT_DELETE);
	}
}

struct api_vault *api_vault_new(struct event_base *base, struct policy_change *changes,
	const struct api_vault_ops *ops, void *arg)
{
	struct api_vault *v = xcalloc(1, sizeof(*v));

	v->changes = changes;
	v->ops = ops;
	v->arg = arg;
	TAILQ_INIT(&v->waiting);
	v->poll = evtimer_new(base, on_vault_poll, v);
	REQUIRE(v->poll != NULL);
	return v;
}

void api_vault_free(struct api_vault *v)
{
	struct api_vault_request *q;

	if (!v)
		return;
	while ((q = TAILQ_FIRST(&v->waiting)) != NULL) {
		TAILQ_REMOVE(&v->waiting, q, link);
		api_fail(q->call, 503, "stopping", "egress is being stopped");
		request_free(q);
	}
	event_free(v->poll);
	free(v);
}
