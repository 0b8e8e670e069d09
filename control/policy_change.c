/* The one way of a change. Before it: the API and the worker submit requests; after it: what is in
 * force is another policy, everywhere, or the same as before. */
#include "control/policy_change.h"

#include <errno.h>
#include <stdlib.h>

#include <event2/event.h>

#include "base/arena.h"
#include "base/log.h"

TAILQ_HEAD(policy_request_list, policy_request);

struct policy_change {
	const struct policy_change_ops *ops;
	void *arg;
	struct event *turn;
	struct policy_request_list waiting;
	struct policy_request *now;
	enum policy_step step; /* of now */
	bool saved;            /* there is a temporary file */
	struct policy_result result;
};

/* Where a step may lead: the next one, or back. */
static const uint8_t policy_change_moves[POLICY_STEP_MAX] = {
	[POLICY_STEP_PREPARE] = BIT(POLICY_STEP_SAVE) | BIT(POLICY_STEP_DONE),
	[POLICY_STEP_SAVE] = BIT(POLICY_STEP_APPLY) | BIT(POLICY_STEP_DONE),
	[POLICY_STEP_APPLY] = BIT(POLICY_STEP_COMMIT) | BIT(POLICY_STEP_DONE),
	[POLICY_STEP_COMMIT] = BIT(POLICY_STEP_KEEP) | BIT(POLICY_STEP_UNDO),
	[POLICY_STEP_KEEP] = BIT(POLICY_STEP_DONE) | BIT(POLICY_STEP_UNDO),
	[POLICY_STEP_UNDO] = BIT(POLICY_STEP_DONE),
	[POLICY_STEP_DONE] = BIT(POLICY_STEP_PREPARE),
};

static void policy_change_move(struct policy_change *c, enum policy_step to)
{
	REQUIRE(c->step < POLICY_STEP_MAX && (policy_change_moves[c->step] & BIT(to)));
	c->step = to;
}

static int policy_change_save(struct policy_change *c)
{
	int ret;

	if (!c->now->text)
		return 0;
	ret = c->ops->save(c->arg, slice_str(c->now->text));
	c->saved = ret >= 0;
	return ret;
}

static int policy_change_run(struct policy_change *c)
{
	struct policy_request *r = c->now;
	int ret;

	switch (c->step) {
	case POLICY_STEP_PREPARE:
		return r->ops->prepare(r, &c->result.msg);
	case POLICY_STEP_SAVE:
		return policy_change_save(c);
	case POLICY_STEP_APPLY:
		return c->ops->apply(c->arg, r->policy);
	case POLICY_STEP_COMMIT:
		return c->saved ? c->ops->commit(c->arg) : 0;
	case POLICY_STEP_KEEP:
		ret = r->ops->keep(r, &c->result.msg);
		if (ret == 0)
			r->ops->publish(r);
		return ret;
	case POLICY_STEP_UNDO:
		return c->ops->apply(c->arg, c->ops->in_force(c->arg));
	case POLICY_STEP_DONE:
	case POLICY_STEP_MAX:
		break;
	}
	return 0;
}

/* A step failed: what it leaves behind goes, and the kernel gets its old rules back. */
static void policy_change_fail(struct policy_change *c, int ret)
{
	if (c->step == POLICY_STEP_UNDO) {
		log_error("policy", "the rules before could not be put back: %s", err_text(ret));
		policy_change_move(c, POLICY_STEP_DONE);
		return;
	}
	c->result.step = c->step;
	c->result.ret = ret;
	if (c->result.msg.text[0] == '\0')
		(void)errmsg_set(&c->result.msg, ret, "%s", err_text(ret));
	if (c->saved && c->step != POLICY_STEP_KEEP)
		c->ops->discard(c->arg);
	c->saved = false;
	policy_change_move(c,
		c->step == POLICY_STEP_COMMIT || c->step == POLICY_STEP_KEEP ? POLICY_STEP_UNDO
									     : POLICY_STEP_DONE);
}

static void policy_change_next(struct policy_change *c)
{
	switch (c->step) {
	case POLICY_STEP_PREPARE:
		policy_change_move(c, c->now->policy ? POLICY_STEP_SAVE : POLICY_STEP_DONE);
		break;
	case POLICY_STEP_SAVE:
		policy_change_move(c, POLICY_STEP_APPLY);
		break;
	case POLICY_STEP_APPLY:
		policy_change_move(c, POLICY_STEP_COMMIT);
		break;
	case POLICY_STEP_COMMIT:
		policy_change_move(c, POLICY_STEP_KEEP);
		break;
	case POLICY_STEP_KEEP:
	case POLICY_STEP_UNDO:
	case POLICY_STEP_DONE:
	case POLICY_STEP_MAX:
		policy_change_move(c, POLICY_STEP_DONE);
		break;
	}
}

static void policy_change_end(struct policy_change *c)
{
	struct policy_request *r = c->now;
	struct policy_result result = c->result;

	c->now = NULL;
	c->saved = false;
	policy_unref(r->policy);
	free(r->text);
	r->policy = NULL;
	r->text = NULL;
	if (!TAILQ_EMPTY(&c->waiting))
		event_active(c->turn, EV_TIMEOUT, 0);
	r->ops->done(r, &result);
}

/* The current step has an answer: takes it and those behind it that have theirs at once. */
static void policy_change_go(struct policy_change *c, int ret)
{
	for (;;) {
		if (ret < 0)
			policy_change_fail(c, ret);
		else
			policy_change_next(c);
		if (c->step == POLICY_STEP_DONE) {
			policy_change_end(c);
			return;
		}
		ret = policy_change_run(c);
		if (ret == POLICY_CHANGE_LATER)
			return;
	}
}

static void on_policy_change_turn(evutil_socket_t fd, short what, void *arg)
{
	struct policy_change *c = arg;

	if (c->now || TAILQ_EMPTY(&c->waiting))
		return;
	c->now = TAILQ_FIRST(&c->waiting);
	TAILQ_REMOVE(&c->waiting, c->now, link);
	c->result = (struct policy_result){.step = POLICY_STEP_DONE};
	policy_change_move(c, POLICY_STEP_PREPARE);
	policy_change_go(c, policy_change_run(c));
}

bool policy_change_answer(struct policy_change *c, enum policy_step step, int ret)
{
	bool undo = step == POLICY_STEP_APPLY && c->step == POLICY_STEP_UNDO;

	if (!c->now || (step != c->step && !undo) || ret > 0)
		return false;
	policy_change_go(c, ret);
	return true;
}

void policy_change_submit(struct policy_change *c, struct policy_request *r)
{
	TAILQ_INSERT_TAIL(&c->waiting, r, link);
	event_active(c->turn, EV_TIMEOUT, 0);
}

bool policy_change_busy(const struct policy_change *c)
{
	return c->now || !TAILQ_EMPTY(&c->waiting);
}

struct policy_change *policy_change_new(
	struct event_base *base, const struct policy_change_ops *ops, void *arg)
{
	struct policy_change *c = xcalloc(1, sizeof(*c));

	c->ops = ops;
	c->arg = arg;
	c->step = POLICY_STEP_DONE;
	TAILQ_INIT(&c->waiting);
	c->turn = event_new(base, -1, 0, on_policy_change_turn, c);
	REQUIRE(c->turn != NULL);
	return c;
}

void policy_change_free(struct policy_change *c)
{
	struct policy_request *r;

	if (!c)
		return;
	c->result.step = c->now ? c->step : POLICY_STEP_PREPARE;
	c->result.ret = errmsg_set(&c->result.msg, -ECANCELED, "egress is being stopped");
	if (c->now && c->saved)
		c->ops->discard(c->arg);
	if (c->now)
		policy_change_end(c);
	while ((r = TAILQ_FIRST(&c->waiting)) != NULL) {
		TAILQ_REMOVE(&c->waiting, r, link);
		c->now = r;
		policy_change_end(c);
	}
	event_free(c->turn);
	free(c);
}
