/* The handlers of /credential-vault (control/api_vault) on a connection without a network: codes of
 * refusals, writes that wait for egress to be ready, writes and changes of the policy in turn. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>
#include <event2/event.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"
#include "control/api_int.h"
#include "control/api_vault.h"

#define STATE "{\"revision\":7,\"credentials\":[{\"name\":\"a/b\"}],\"bindings\":[]}"
#define MESSAGE "why it was refused"
#define ROUNDS 200
#define START_MS 1000u

struct bed {
	struct event_base *base;
	struct policy_change *changes;
	struct api_vault *vault;
	struct api *api;
	int fd; /* the client's end */
	bool ready;
	bool exists;
	int ret; /* of a write */
	int writes;
	bool later; /* a change of the policy under way stays there */
	struct policy *policy;
};

/* --- the outside --- */

static char *on_state(void *arg)
{
	const struct bed *b = arg;

	return b->exists ? xstrdup(STATE) : NULL;
}

static bool on_ready(void *arg)
{
	const struct bed *b = arg;

	return b->ready;
}

static int on_write(void *arg, const struct api_vault_write *w, struct errmsg *msg)
{
	struct bed *b = arg;

	assert_true(slice_eq(w->doc, SLICE("{}")));
	b->writes++;
	return b->ret < 0 ? errmsg_set(msg, b->ret, MESSAGE) : 0;
}

static int on_apply(void *arg, struct policy *policy)
{
	const struct bed *b = arg;

	return b->later ? POLICY_CHANGE_LATER : 0;
}

static struct policy *on_in_force(void *arg)
{
	const struct bed *b = arg;

	return b->policy;
}

static void on_route(struct api_call *call, void *arg)
{
	const struct bed *b = arg;

	api_vault_run(b->vault, call);
}

static void bed_up(struct bed *b)
{
	static const struct policy_change_ops changes = {
		.apply = on_apply, .in_force = on_in_force};
	static const struct api_vault_ops ops = {
		.state = on_state, .ready = on_ready, .write = on_write};
	static const struct api_route routes[] = {
		{API_VAULT_PATH, API_VAULT_METHODS, API_KEYS, on_route}};
	const struct netaddr peer = {.b = {0}};
	int pair[2];

	*b = (struct bed){.ready = true, .exists = true};
	clock_fake(START_MS * 1000, 0);
	log_setup(LOG_LEVEL_ERROR, STDERR_FILENO, "test");
	b->base = event_base_new();
	b->policy = policy_new(false, NULL, 0);
	b->changes = policy_change_new(b->base, &changes, b);
	b->vault = api_vault_new(b->base, b->changes, &ops, b);
	b->api = api_new(b->base, routes, ARRAY_LEN(routes), b);
	assert_int_equal(
		socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
	api_conn_new(b->api, pair[0], &peer, false);
	b->fd = pair[1];
}

static void bed_down(struct bed *b)
{
	policy_change_free(b->changes);
	api_vault_free(b->vault);
	api_free(b->api);
	policy_unref(b->policy);
	if (b->fd >= 0)
		(void)close(b->fd);
	event_base_free(b->base);
}

static void turn(struct bed *b)
{
	assert_true(event_base_loop(b->base, EVLOOP_NONBLOCK) >= 0);
}

/* With polls of the real clock in between: at most two seconds. */
static void turns(struct bed *b, size_t n)
{
	const struct timeval tick = {0, 10000};

	for (size_t i = 0; i < n; i++) {
		(void)event_base_loopexit(b->base, &tick);
		assert_true(event_base_dispatch(b->base) >= 0);
	}
}

static void ask(struct bed *b, const char *method)
{
	char text[200];
	int n = snprintf(text, sizeof(text),
		"%s " API_VAULT_PATH " HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", method);

	assert_int_equal(write(b->fd, text, (size_t)n), n);
	for (int i = 0; i < 6; i++)
		turn(b);
}

/* What has come; NULL if nothing. Valid until the next one. */
static const char *answer(struct bed *b)
{
	static char text[4096];
	ssize_t n = read(b->fd, text, sizeof(text) - 1);

	text[n > 0 ? n : 0] = '\0';
	return n > 0 ? text : NULL;
}

static void assert_answer(struct bed *b, int status, const char *part)
{
	const char *text = answer(b);
	char line[40];

	(void)snprintf(line, sizeof(line), "HTTP/1.1 %d ", status);
	if (!text || strncmp(text, line, strlen(line)) != 0 || !strstr(text, part))
		fail_msg("wanted %d with %s, got %s", status, part, text ? text : "nothing");
}

/* --- tests --- */

static void test_each_outcome_has_its_answer(void **state)
{
	static const struct {
		const char *method;
		int ret, status;
		const char *part;
	} rows[] = {
		{"POST", 0, 201, "\"revision\":7"},
		{"PATCH", 0, 200, "\"revision\":7"},
		{"DELETE", 0, 204, "\r\n\r\n"},
		{"POST", E_VALUE, 400, "\"invalid_vault\",\"message\":\"" MESSAGE "\""},
		{"POST", E_SYNTAX, 400, "\"invalid credential vault request: " MESSAGE "\""},
		{"POST", E_UNKNOWN, 400, "\"invalid credential vault request: " MESSAGE "\""},
		{"POST", E_LIMIT, 400, "\"invalid credential vault request: " MESSAGE "\""},
		{"PATCH", E_SYNTAX, 400, "\"invalid credential vault mutation request: " MESSAGE},
		{"POST", -EEXIST, 409, "\"vault_exists\""},
		{"PATCH", -ESTALE, 409, "\"revision_mismatch\""},
		{"PATCH", -ENOENT, 404, "\"vault_not_found\""},
		{"DELETE", -ENOENT, 404, "\"vault_not_found\""},
		{"POST", -ENOMEM, 412, "\"memory_not_locked\""},
		{"POST", E_FULL, 413, "\"vault_too_large\""},
		{"POST", -EFBIG, 413, "\"vault_too_large\""},
		{"POST", -EIO, 500, "\"internal_error\""},
	};
	struct bed b;

	bed_up(&b);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		b.ret = rows[i].ret;
		ask(&b, rows[i].method);
		assert_answer(&b, rows[i].status, rows[i].part);
	}
	assert_int_equal(b.writes, ARRAY_LEN(rows));
	bed_down(&b);
}

static void test_a_write_waits_until_egress_is_ready(void **state)
{
	struct bed b;

	bed_up(&b);
	b.ready = false;
	ask(&b, "POST");
	turns(&b, 3);
	assert_null(answer(&b));
	assert_int_equal(b.writes, 0);
	b.ready = true;
	for (int i = 0; i < ROUNDS && b.writes == 0; i++)
		turns(&b, 1);
	turn(&b);
	assert_answer(&b, 201, "\"revision\":7");
	bed_down(&b);
}

static void test_a_write_waits_for_30_seconds_and_no_longer(void **state)
{
	struct bed b;

	bed_up(&b);
	b.ready = false;
	ask(&b, "PATCH");
	clock_fake((START_MS + API_VAULT_READY_MS) * 1000 - 1, 0);
	turns(&b, 15);
	assert_null(answer(&b));
	clock_fake((START_MS + API_VAULT_READY_MS) * 1000, 0);
	turns(&b, 15);
	assert_answer(&b, 412, "credential proxy is not ready");
	assert_int_equal(b.writes, 0);
	bed_down(&b);
}

static void test_nobody_writes_for_a_caller_that_went_while_it_waited(void **state)
{
	struct bed b;

	bed_up(&b);
	b.ready = false;
	ask(&b, "POST");
	(void)close(b.fd);
	b.fd = -1;
	api_conn_free(TAILQ_FIRST(&b.api->conns));
	b.ready = true;
	turns(&b, 15);
	assert_int_equal(b.writes, 0);
	bed_down(&b);
}

/* --- a change of the policy --- */

static int on_policy_prepare(struct policy_request *r, struct errmsg *msg)
{
	r->policy = policy_new(true, NULL, 0);
	return 0;
}

static int on_policy_keep(struct policy_request *r, struct errmsg *msg)
{
	return 0;
}

static void on_policy_publish(struct policy_request *r)
{
}

static void on_policy_done(struct policy_request *r, const struct policy_result *result)
{
	free(r);
}

static void test_a_write_waits_for_the_change_before_it(void **state)
{
	static const struct policy_request_ops ops = {.prepare = on_policy_prepare,
		.keep = on_policy_keep,
		.publish = on_policy_publish,
		.done = on_policy_done};
	struct policy_request *r = xcalloc(1, sizeof(*r));
	struct bed b;

	bed_up(&b);
	b.later = true;
	r->ops = &ops;
	policy_change_submit(b.changes, r);
	ask(&b, "POST");
	assert_int_equal(b.writes, 0);
	assert_null(answer(&b));
	assert_true(policy_change_answer(b.changes, POLICY_STEP_APPLY, 0));
	for (int i = 0; i < 4; i++)
		turn(&b);
	assert_int_equal(b.writes, 1);
	assert_answer(&b, 201, "\"revision\":7");
	bed_down(&b);
}

static void test_what_waits_at_the_end_is_answered(void **state)
{
	struct policy_request *r;
	static const struct policy_request_ops ops = {.prepare = on_policy_prepare,
		.keep = on_policy_keep,
		.publish = on_policy_publish,
		.done = on_policy_done};
	struct bed b;

	/* for egress to be ready */
	bed_up(&b);
	b.ready = false;
	ask(&b, "DELETE");
	api_vault_free(b.vault);
	b.vault = NULL;
	assert_answer(&b, 503, "\"stopping\"");
	bed_down(&b);
	/* for its turn */
	bed_up(&b);
	b.later = true;
	r = xcalloc(1, sizeof(*r));
	r->ops = &ops;
	policy_change_submit(b.changes, r);
	ask(&b, "POST");
	policy_change_free(b.changes);
	b.changes = NULL;
	assert_answer(&b, 503, "\"stopping\"");
	assert_int_equal(b.writes, 0);
	bed_down(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_outcome_has_its_answer),
		cmocka_unit_test(test_a_write_waits_until_egress_is_ready),
		cmocka_unit_test(test_a_write_waits_for_30_seconds_and_no_longer),
		cmocka_unit_test(test_nobody_writes_for_a_caller_that_went_while_it_waited),
		cmocka_unit_test(test_a_write_waits_for_the_change_before_it),
		cmocka_unit_test(test_what_waits_at_the_end_is_answered),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
