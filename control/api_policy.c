/* The handlers of /policy. Before them: api.c, which has the whole body; after them: policy_change,
 * which makes the change, and calls back for the answer. */
#include "control/api_policy.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>

#include "base/arena.h"
#include "policy/ceiling.h"
#include "policy/policy_json.h"

#define POLICY_TRIM_BYTES 65536 /* a body whose reading leaves much memory behind */

/* A change that was asked for, until it is answered. */
struct api_policy_request {
	struct policy_request r;
	const struct api_policy *p;
	struct api_call *call;
	struct api_policy_next next;
	int status; /* of a refusal in prepare */
	const char *code;
	const char *reason; /* field of a good answer; NULL: none */
	bool reset;         /* no enforcementMode then (reference 3.4) */
};

const char *api_policy_mode(const struct policy *user)
{
	if (policy_n_rules(user) > 0)
		return "enforcing";
	return policy_default_allow(user) ? "allow_all" : "deny_all";
}

static json_t *api_policy_state(const struct api_policy *p, const char *reason, bool reset)
{
	json_t *doc = json_pack(
		"{s:s, s:s}", "status", "ok", "mode", api_policy_mode(p->ops->user(p->arg)));

	if (!reset)
		json_object_set_new(doc, "enforcementMode", json_string(p->ops->mode(p->arg)));
	if (reason)
		json_object_set_new(doc, "reason", json_string(reason));
	return doc;
}

static void api_policy_get(const struct api_policy *p, struct api_call *call)
{
	json_t *doc = api_policy_state(p, NULL, false);

	json_object_set_new(doc, "policy", policy_json_encode(p->ops->user(p->arg)));
	api_answer_json(call, 200, NULL, doc);
}

/* --- a change --- */

static struct api_policy_request *request_of(struct policy_request *r)
{
	return (struct api_policy_request *)(void *)r; /* its first member */
}

static int request_refuse(struct api_policy_request *q, int status, const char *code, int ret)
{
	q->status = status;
	q->code = code;
	return ret;
}

static int request_replace(struct api_policy_request *q, struct slice body, struct errmsg *msg)
{
	int ret;

	q->reset = body.len == 0;
	if (q->reset)
		q->reason = "policy reset to default deny-all";
	ret = policy_json_decode(body, 0, &q->next.user, msg);
	if (ret < 0)
		ret = errmsg_prefix(msg, ret, "invalid policy");
	return ret < 0 ? request_refuse(q, 400, "invalid_policy", ret) : 0;
}

static int request_patch(struct api_policy_request *q, struct slice body, struct errmsg *msg)
{
	struct rule_list patch;
	int ret;

	if (body.len == 0)
		return request_refuse(
			q, 400, "invalid_patch", errmsg_set(msg, E_VALUE, "empty body"));
	ret = policy_json_decode_patch(body, &patch, msg);
	if (ret < 0) {
		ret = errmsg_prefix(msg, ret, "invalid patch rules");
		return request_refuse(q, 400, "invalid_patch", ret);
	}
	q->next.user = policy_merge_patch(q->p->ops->user(q->p->arg), &patch);
	return 0;
}

static int request_delete(struct api_policy_request *q, struct slice body, struct errmsg *msg)
{
	struct policy_targets targets;
	int ret;

	if (body.len == 0)
		return request_refuse(
			q, 400, "invalid_targets", errmsg_set(msg, E_VALUE, "empty body"));
	ret = policy_json_decode_targets(body, &targets, msg);
	if (ret < 0) {
		ret = errmsg_prefix(msg, ret, "invalid delete targets");
		return request_refuse(q, 400, "invalid_targets", ret);
	}
	q->next.user = policy_merge_delete(q->p->ops->user(q->p->arg), targets.v, targets.n);
	policy_targets_fini(&targets);
	if (!q->next.user)
		q->reason = "no matching targets found";
	return 0;
}

/* The file as the replaced image writes it. */
static char *request_file_text(const struct policy *user)
{
	json_t *doc = policy_json_encode(user);
	char *text = json_dumps(doc, JSON_INDENT(2));
	size_t len = strlen(text);

	text = xrealloc(text, len + 2);
	memcpy(text + len, "\n", 2);
	json_decref(doc);
	return text;
}

static int request_check(struct api_policy_request *q, bool capped, struct errmsg *msg)
{
	const struct api_policy *p = q->p;
	size_t max = p->ops->max_rules(p->arg);
	size_t n = policy_n_rules(q->next.user);
	int ret = 0;

	if (capped && max > 0 && n > max) {
		ret = errmsg_set(
			msg, E_LIMIT, "egress rule total count %zu exceeds limit %zu", n, max);
		return request_refuse(q, 413, "too_many_rules", ret);
	}
	/* What is taken away leaves nothing that was not there. */
	if (capped)
		ret = ceiling_check(
			p->ops->ceiling(p->arg), q->next.user, p->ops->user(p->arg), msg);
	if (ret < 0)
		return request_refuse(q, 400, "above_ceiling", ret);
	ret = p->ops->check(p->arg, &q->next, msg);
	if (ret == E_LIMIT)
		return request_refuse(q, 413, "policy_too_large", ret);
	if (ret < 0) {
		ret = errmsg_prefix(msg, ret, "credential vault policy validation");
		return request_refuse(q, 400, "vault_conflict", ret);
	}
	if (p->ops->has_file(p->arg))
		q->r.text = request_file_text(q->next.user);
	q->r.policy = policy_ref(q->next.policy);
	return 0;
}

/* For log and trail. */
static const char *request_what(struct slice method)
{
	static const char *const whats[] = {
		"PATCH /policy", "DELETE /policy", "PUT /policy", "POST /policy"};

	for (size_t i = 0; i < ARRAY_LEN(whats); i++)
		if (slice_starts(slice_str(whats[i]), method))
			return whats[i];
	return "/policy";
}

static int on_request_prepare(struct policy_request *r, struct errmsg *msg)
{
	struct api_policy_request *q = request_of(r);
	struct slice method = api_call_method(q->call);
	struct slice body = slice_strip(api_call_body(q->call));
	bool patch = slice_eq(method, SLICE("PATCH"));
	bool delete = slice_eq(method, SLICE("DELETE"));
	int ret;

	q->next.what = request_what(method);
	if (patch)
		ret = request_patch(q, body, msg);
	else if (delete)
		ret = request_delete(q, body, msg);
	else
		ret = request_replace(q, body, msg);
	if (ret == 0 && q->next.user)
		ret = request_check(q, !delete, msg);
	return ret;
}

static int on_request_keep(struct policy_request *r, struct errmsg *msg)
{
	struct api_policy_request *q = request_of(r);

	return q->p->ops->keep(q->p->arg, &q->next, msg);
}

static void on_request_publish(struct policy_request *r)
{
	struct api_policy_request *q = request_of(r);

	q->p->ops->publish(q->p->arg, &q->next);
	q->next.user = q->next.policy = NULL;
}

/* Reference 3.7. */
static void request_failed(struct api_policy_request *q, const struct policy_result *result)
{
	const char *text = result->msg.text;

	switch (result->step) {
	case POLICY_STEP_SAVE:
	case POLICY_STEP_COMMIT:
		api_fail(q->call, 500, "not_saved", "failed to persist policy: %s", text);
		return;
	case POLICY_STEP_APPLY:
		api_fail(q->call, 500, "not_applied", "failed to apply nftables policy: %s", text);
		return;
	case POLICY_STEP_PREPARE:
	case POLICY_STEP_KEEP:
	case POLICY_STEP_UNDO:
	case POLICY_STEP_DONE:
	case POLICY_STEP_MAX:
		break;
	}
	if (q->status)
		api_fail(q->call, q->status, q->code, "%s", text);
	else if (result->ret == -ECANCELED)
		api_fail(q->call, 503, "stopping", "%s", text);
	else
		api_fail(q->call, 500, "internal_error", "internal error: %s", text);
}

static void on_request_done(struct policy_request *r, const struct policy_result *result)
{
	struct api_policy_request *q = request_of(r);
	bool large = api_call_body(q->call).len > POLICY_TRIM_BYTES;

	if (result->ret < 0)
		request_failed(q, result);
	else
		api_answer_json(q->call, 200, NULL, api_policy_state(q->p, q->reason, q->reset));
	policy_unref(q->next.user);
	policy_unref(q->next.policy);
	free(q->next.doc);
	free(q);
	/* Many small objects of a tree: else a single body would keep its memory for good. */
	if (large)
		(void)malloc_trim(0);
}

static const struct policy_request_ops api_policy_request_ops = {
	.prepare = on_request_prepare,
	.keep = on_request_keep,
	.publish = on_request_publish,
	.done = on_request_done,
};

void api_policy_run(const struct api_policy *p, struct api_call *call)
{
	struct api_policy_request *q;

	if (slice_eq(api_call_method(call), SLICE("GET"))) {
		api_policy_get(p, call);
		return;
	}
	q = xcalloc(1, sizeof(*q));
	q->r.ops = &api_policy_request_ops;
	q->p = p;
	q->call = call;
	q->next.uid = api_call_uid(call);
	policy_change_submit(p->changes, &q->r);
}
