/* A worker of a start that cannot succeed, or after too many crashes: it says why on /healthz, and
 * the kernel lets nothing out. No proxy, no DNS, no vault. After crashes it ends what the workers
 * before left open in the audit trail, and gives it on /audit. Before it: supervisor_closed.c;
 * after it: nothing. */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include <event2/event.h>

#include "base/log.h"
#include "base/proc.h"
#include "control/api.h"
#include "control/api_audit.h"
#include "control/areas.h"
#include "control/worker_int.h"
#include "nft/guard_client.h"

static void on_closed_applied(int err, void *arg)
{
	if (err < 0)
		log_error("worker", "closed, but the kernel's rules are not in place: %s",
			err_text(err));
}

static void on_closed_lost(void *arg)
{
	const struct worker *w = arg;

	log_error("worker", "closed, and the guard is gone");
	if (control_send_code(w->control_fd, CONTROL_GUARD, w->gate.n_guards) < 0)
		log_error("worker", "the supervisor cannot be told");
}

static void closed_guard(struct worker *w, int *fd)
{
	static const struct guard_client_events events = {.lost = on_closed_lost};
	struct ruleset_options o =
		worker_ruleset_options(w->settings, w->gate.cgroup_id, w->gate.cgroup_level);
	struct ruleset r;

	guard_client_free(w->gate.guard);
	w->gate.guard = guard_client_new(w->base, *fd, &events, w);
	w->gate.n_guards++;
	*fd = -1;
	ruleset_init(&r, &o);
	if (!guard_apply_start(w->gate.guard, &r, on_closed_applied, w))
		on_closed_applied(E_GUARD, w);
	ruleset_fini(&r);
}

static void on_closed_control(evutil_socket_t fd, short what, void *arg)
{
	struct worker *w = arg;
	enum control_type type = CONTROL_MAX;
	struct roles got;
	int ret = control_receive(fd, &type, &got);

	if (ret == -EAGAIN)
		return;
	if (ret < 0) {
		w->exit_code = WORKER_EXIT_FAILED;
		event_base_loopbreak(w->base);
		return;
	}
	if (type == CONTROL_GUARD && got.fd[ROLE_GUARD] >= 0)
		closed_guard(w, &got.fd[ROLE_GUARD]);
	if (type == CONTROL_STOP)
		event_base_loopbreak(w->base);
	roles_fini(&got);
}

static void on_closed_healthz(struct api_call *call, void *arg)
{
	const struct worker *w = arg;

	api_answer_json(call, 503, health_cause(&w->health),
		json_pack("{s:s, s:s+}", "code", "closed", "message",
			"closed: ", health_cause(&w->health)));
}

/* Not 404: a caller would take it for a vault that is not there yet. */
static void on_closed_other(struct api_call *call, void *arg)
{
	const struct worker *w = arg;

	api_fail(call, 503, "closed", "closed: %s", health_cause(&w->health));
}

/* There is a trail where workers served before. */
static void on_closed_audit(struct api_call *call, void *arg)
{
	const struct worker *w = arg;

	if (w->audit)
		api_audit_run(w->audit, call);
	else
		on_closed_other(call, arg);
}

static void closed_cause(struct worker *w)
{
	struct strbuf text;

	strbuf_init(&text, HEALTH_CAUSE_MAX * 16);
	if (strbuf_pread_fd(&text, w->start.roles.fd[ROLE_CAUSE]) < 0)
		strbuf_str(&text, "the start cannot succeed");
	health_set(&w->health, HEALTH_START, HEALTH_FAILED, "%.*s", SLICE_FMT(strbuf_slice(&text)));
	strbuf_fini(&text);
}

/* Where there is one: slots that are open become lines, and what no sink has yet is written. */
static void closed_trail(struct worker *w)
{
	const struct settings *s = w->settings;
	struct errmsg msg = {""};
	int ret;

	if (!w->start.plain)
		return;
	ret = audit_open(w->start.plain + AREA_PLAIN_AUDIT,
		slice_str(s->sandbox_id ? s->sandbox_id : ""), w->start.roles.fd[ROLE_AUDIT],
		s->audit_stdout, &w->audit, &msg);
	if (ret < 0) {
		log_error("worker", "the audit trail: %s", msg.text);
		return;
	}
	w->start.roles.fd[ROLE_AUDIT] = -1; /* the trail's now */
	audit_start(w->audit, w->base);
	worker_note(w, AUDIT_START, REASON_INTERRUPTED, health_cause(&w->health));
}

static void closed_listen(struct worker *w)
{
	static const struct api_route routes[] = {
		{"/healthz", NULL, API_OPEN, on_closed_healthz},
		{"/audit", API_AUDIT_METHODS, 0, on_closed_audit},
		{"/", NULL, 0, on_closed_other},
	};
	static const enum role listeners[] = {ROLE_API, ROLE_API_V6};

	worker_meta_open(w);
	w->api = api_new(w->base, routes, ARRAY_LEN(routes), w);
	api_set_instance(w->api, w->meta.instance);
	api_set_token(w->api, w->settings->token);
	for (size_t i = 0; i < ARRAY_LEN(listeners); i++)
		if (w->start.roles.fd[listeners[i]] >= 0)
			api_listen(w->api, w->start.roles.fd[listeners[i]]);
}

static void closed_close(struct worker *w)
{
	api_free(w->api);
	if (w->audit)
		audit_close(w->audit);
	guard_client_free(w->gate.guard);
	if (w->on_control)
		event_free(w->on_control);
	event_base_free(w->base);
	settings_free(w->settings);
	worker_start_fini(&w->start);
	libevent_global_shutdown();
}

int worker_closed_main(struct worker *w)
{
	struct errmsg msg = {""};

	w->settings = settings_closed(&w->start.source);
	log_setup(w->settings->log_level, STDERR_FILENO, "egress[worker]");
	w->base = event_base_new();
	REQUIRE(w->base != NULL);
	w->gate.cgroup_id = worker_cgroup();
	closed_cause(w);
	closed_trail(w);
	closed_listen(w);
	if (w->start.roles.fd[ROLE_GUARD] >= 0)
		closed_guard(w, &w->start.roles.fd[ROLE_GUARD]);
	w->on_control =
		event_new(w->base, w->control_fd, EV_READ | EV_PERSIST, on_closed_control, w);
	REQUIRE(w->on_control != NULL);
	event_add(w->on_control, NULL);
	if (proc_seccomp(&msg) < 0) {
		log_error("worker", "%s", msg.text);
		w->exit_code = WORKER_EXIT_FAILED;
	} else {
		if (control_send(w->control_fd, CONTROL_READY, NULL) < 0)
			log_error("worker", "the supervisor cannot be told");
		event_base_dispatch(w->base);
	}
	closed_close(w);
	return w->exit_code;
}
