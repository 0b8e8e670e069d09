/* The one way of a change (control/policy_change): in which order the steps come, what a failed one
 * takes back, and that requests wait for each other. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#include <event2/event.h>

#include "base/arena.h"
#include "control/policy_change.h"

struct bed {
	struct event_base *base;
	struct policy_change *c;
	struct policy *before;
	char log[512];
	/* what each step answers */
	int prepare, save, apply, commit, keep, undo;
	bool nothing; /* prepare finds nothing to do */
};

struct request {
	struct policy_request r;
	struct bed *b;
	const char *name;
	bool file;
};

static void note(struct bed *b, const char *what)
{
	size_t n = strlen(b->log);

	(void)snprintf(b->log + n, sizeof(b->log) - n, "%s ", what);
}

static int on_prepare(struct policy_request *r, struct errmsg *msg)
{
	struct request *q = (struct request *)(void *)r;

	note(q->b, q->name);
	if (q->b->prepare < 0)
		return errmsg_set(msg, q->b->prepare, "not wanted");
	if (q->b->nothing)
		return 0;
	r->policy = policy_new(true, NULL, 0);
	r->text = q->file ? xstrdup("text") : NULL;
	return 0;
}

static int on_keep(struct policy_request *r, struct errmsg *msg)
{
	struct request *q = (struct request *)(void *)r;

	note(q->b, "keep");
	return q->b->keep;
}

static void on_publish(struct policy_request *r)
{
	note(((struct request *)(void *)r)->b, "publish");
}

static void on_done(struct policy_request *r, const struct policy_result *result)
{
	static const char *const steps[POLICY_STEP_MAX] = {
#define X(id, text) [POLICY_STEP_##id] = (text),
		POLICY_STEP_TABLE(X)
#undef X
	};
	struct request *q = (struct request *)(void *)r;
	char text[64];

	(void)snprintf(text, sizeof(text), "=%s:%d", steps[result->step], result->ret);
	note(q->b, text);
	if (result->ret < 0)
		assert_true(result->msg.text[0] != '\0');
	free(q);
}

static const struct policy_request_ops ops = {on_prepare, on_keep, on_publish, on_done};

static int on_save(void *arg, struct slice text)
{
	struct bed *b = arg;

	assert_true(slice_eq(text, SLICE("text")));
	note(b, "save");
	return b->save;
}

static int on_commit(void *arg)
{
	note(arg, "commit");
	return ((struct bed *)arg)->commit;
}

static void on_discard(void *arg)
{
	note(arg, "discard");
}

static int on_apply(void *arg, struct policy *policy)
{
	struct bed *b = arg;

	note(b, policy == b->before ? "undo" : "apply");
	return policy == b->before ? b->undo : b->apply;
}

static struct policy *on_in_force(void *arg)
{
	return ((struct bed *)arg)->before;
}

static void bed_up(struct bed *b)
{
	static const struct policy_change_ops outside = {
		on_save, on_commit, on_discard, on_apply, on_in_force};

	memset(b, 0, sizeof(*b));
	b->base = event_base_new();
	b->before = policy_new(false, NULL, 0);
	b->c = policy_change_new(b->base, &outside, b);
}

static void bed_down(struct bed *b)
{
	policy_change_free(b->c);
	policy_unref(b->before);
	event_base_free(b->base);
	libevent_global_shutdown();
}

static void submit(struct bed *b, const char *name, bool file)
{
	struct request *q = xcalloc(1, sizeof(*q));

	q->r.ops = &ops;
	q->b = b;
	q->name = name;
	q->file = file;
	policy_change_submit(b->c, &q->r);
}

static void turn(struct bed *b)
{
	for (int i = 0; i < 5; i++)
		(void)event_base_loop(b->base, EVLOOP_NONBLOCK);
}

static void test_each_failure_takes_back_what_was_done(void **state)
{
	static const struct {
		struct bed b;
		bool file;
		const char *want;
	} rows[] = {
		{{.save = 0}, true, "r save apply commit keep publish =done:0 "},
		{{.save = 0}, false, "r apply keep publish =done:0 "},
		{{.nothing = true}, true, "r =done:0 "},
		{{.prepare = -22}, true, "r =prepare:-22 "},
		{{.save = -28}, true, "r save =save:-28 "},
		{{.apply = -5}, true, "r save apply discard =apply:-5 "},
		{{.apply = -5}, false, "r apply =apply:-5 "},
		{{.commit = -13}, true, "r save apply commit discard undo =commit:-13 "},
		{{.keep = -7}, false, "r apply keep undo =keep:-7 "},
		/* the file has its name already, nothing is left to remove */
		{{.keep = -7}, true, "r save apply commit keep undo =keep:-7 "},
		{{.commit = -13, .undo = -5}, true,
			"r save apply commit discard undo =commit:-13 "},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct bed b;

		bed_up(&b);
		b.prepare = rows[i].b.prepare;
		b.save = rows[i].b.save;
		b.apply = rows[i].b.apply;
		b.commit = rows[i].b.commit;
		b.keep = rows[i].b.keep;
		b.undo = rows[i].b.undo;
		b.nothing = rows[i].b.nothing;
		submit(&b, "r", rows[i].file);
		assert_string_equal(b.log, ""); /* never before it returns */
		turn(&b);
		assert_string_equal(b.log, rows[i].want);
		assert_false(policy_change_busy(b.c));
		bed_down(&b);
	}
}

static void test_answers_that_come_later(void **state)
{
	struct bed b;

	bed_up(&b);
	b.save = b.apply = b.commit = POLICY_CHANGE_LATER;
	submit(&b, "1", true);
	turn(&b);
	submit(&b, "2", true);
	turn(&b);
	assert_string_equal(b.log, "1 save ");
	/* nobody asked for these */
	assert_false(policy_change_answer(b.c, POLICY_STEP_APPLY, 0));
	assert_false(policy_change_answer(b.c, POLICY_STEP_COMMIT, 0));
	assert_false(policy_change_answer(b.c, POLICY_STEP_SAVE, 1));
	assert_true(policy_change_answer(b.c, POLICY_STEP_SAVE, 0));
	assert_string_equal(b.log, "1 save apply ");
	assert_true(policy_change_answer(b.c, POLICY_STEP_APPLY, 0));
	turn(&b);
	assert_string_equal(b.log, "1 save apply commit ");
	assert_true(policy_change_busy(b.c));
	assert_true(policy_change_answer(b.c, POLICY_STEP_COMMIT, 0));
	/* the second one has waited for it */
	assert_string_equal(b.log, "1 save apply commit keep publish =done:0 ");
	turn(&b);
	assert_non_null(strstr(b.log, "=done:0 2 save "));
	assert_true(policy_change_answer(b.c, POLICY_STEP_SAVE, 0));
	assert_true(policy_change_answer(b.c, POLICY_STEP_APPLY, 0));
	b.undo = POLICY_CHANGE_LATER;
	assert_true(policy_change_answer(b.c, POLICY_STEP_COMMIT, -13));
	assert_true(policy_change_busy(b.c));
	assert_true(policy_change_answer(b.c, POLICY_STEP_APPLY, 0));
	assert_non_null(strstr(b.log, "2 save apply commit discard undo =commit:-13 "));
	assert_false(policy_change_answer(b.c, POLICY_STEP_APPLY, 0));
	bed_down(&b);
}

static void test_end_tells_all_that_wait(void **state)
{
	struct bed b;

	bed_up(&b);
	b.apply = POLICY_CHANGE_LATER;
	submit(&b, "1", true);
	submit(&b, "2", true);
	turn(&b);
	bed_down(&b);
	assert_string_equal(b.log, "1 save apply discard =apply:-125 =apply:-125 ");
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_failure_takes_back_what_was_done),
		cmocka_unit_test(test_answers_that_come_later),
		cmocka_unit_test(test_end_tells_all_that_wait),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
