/* The worker. Comes after main has dropped what it may not keep; wires settings, areas, TLS,
 * resolver, audit trail and proxy together, and serves until it is told to stop. */
#include "control/worker.h"

#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include <event2/event.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/proc.h"
#include "control/api.h"
#include "control/areas.h"
#include "control/webhook.h"
#include "control/worker_int.h"
#include "dns/resolver.h"
#include "proxy/ca.h"
#include "proxy/proxy.h"
#include "proxy/tls.h"
#include "vault/vault.h"

/* Of the 8 s that a stop may take, what open exchanges get; the rest is for the audit trail. */
#define WORKER_DRAIN_MS 6000
#define WORKER_DRAIN_TICK_MS 100
/* glibc's own, as it is at first. */
#define WORKER_MMAP_THRESHOLD (128 * 1024)

void worker_note(struct worker *w, enum audit_kind kind, enum reason reason, const char *what)
{
	struct audit_event e = {
		.kind = kind,
		.verdict = AUDIT_ALLOWED,
		.reason = reason,
		.rule = slice_str(what),
		.uid = AUDIT_UID_NONE,
		.start_us = clock_wall_us(),
	};

	audit_note(w->audit, &e, NULL);
}

/* --- stopping --- */

static void on_worker_drain(evutil_socket_t fd, short what, void *arg)
{
	struct worker *w = arg;

	size_t busy = proxy_busy(w->proxy) + (w->api ? api_busy(w->api) : 0) +
		(w->webhook && webhook_busy(w->webhook) ? 1 : 0);

	if (busy == 0 || clock_mono_ms() >= w->drain_until_ms)
		event_base_loopbreak(w->base);
}

static void worker_stop(struct worker *w)
{
	struct timeval tick = {0, WORKER_DRAIN_TICK_MS * 1000};

	if (w->drain_until_ms)
		return;
	log_info("worker", "stopping: %zu exchanges are open", proxy_busy(w->proxy));
	w->drain_until_ms = clock_mono_ms() + WORKER_DRAIN_MS;
	proxy_drain(w->proxy);
	if (w->api)
		api_drain(w->api);
	event_add(w->drain_tick, &tick);
	on_worker_drain(-1, 0, w);
}

static void on_worker_term(evutil_socket_t fd, short what, void *arg)
{
	worker_stop(arg);
}

/* --- the supervisor --- */

static void worker_new_audit(struct worker *w, struct roles *got)
{
	if (got->fd[ROLE_AUDIT] < 0)
		return;
	audit_set_file(w->audit, got->fd[ROLE_AUDIT]);
	got->fd[ROLE_AUDIT] = -1; /* the trail's now */
}

/* Descriptors that came with a message take the place of those before. */
static void worker_policy_update(struct worker *w, struct roles *got)
{
	if (got->fd[ROLE_VAULT] >= 0)
		w->n_feeds++;
	worker_start_update(&w->start, got);
}

static void on_worker_control(evutil_socket_t fd, short what, void *arg)
{
	struct worker *w = arg;
	enum control_type type;
	struct roles got;
	int code;
	int ret = control_receive_code(fd, &type, &got, &code);

	if (ret == -EAGAIN)
		return;
	if (ret < 0) {
		/* without a supervisor nobody would restart us or hold the areas */
		log_error("worker", "the supervisor is gone");
		w->exit_code = WORKER_EXIT_FAILED;
		event_base_loopbreak(w->base);
		return;
	}
	switch (type) {
	case CONTROL_RELOAD:
		worker_new_audit(w, &got);
		worker_policy_update(w, &got);
		worker_policy_reload(w);
		break;
	case CONTROL_ALWAYS:
		worker_policy_update(w, &got);
		worker_policy_rules(w);
		break;
	case CONTROL_SAVE:
	case CONTROL_COMMIT:
		if (!worker_policy_saved(w, type, code))
			log_error("worker", "an answer that nobody asked for");
		break;
	case CONTROL_AUDIT:
		worker_new_audit(w, &got);
		break;
	case CONTROL_GUARD:
		if (got.fd[ROLE_GUARD] >= 0)
			worker_gate_guard(w, got.fd[ROLE_GUARD]);
		got.fd[ROLE_GUARD] = -1; /* the gate's now */
		break;
	case CONTROL_PROBE:
		worker_gate_probed(w, code);
		break;
	case CONTROL_CA:
		if (code < 0)
			health_set(&w->health, HEALTH_CA_FILE, HEALTH_FAILED,
				"the CA certificate cannot be written: %s", err_text(code));
		else
			health_ok(&w->health, HEALTH_CA_FILE);
		break;
	case CONTROL_VAULT:
		worker_policy_update(w, &got);
		worker_policy_vault(w);
		break;
	case CONTROL_STOP:
		worker_stop(w);
		break;
	case CONTROL_DISCARD:
	case CONTROL_START:
	case CONTROL_READY:
	case CONTROL_ROTATE:
	case CONTROL_MAX:
		break;
	}
	roles_fini(&got);
}

static void on_audit_full(void *arg)
{
	struct worker *w = arg;

	if (control_send(w->control_fd, CONTROL_ROTATE, NULL) < 0)
		log_warn("worker", "the audit file could not be rotated: the supervisor is busy");
}

/* --- start --- */

static int worker_open_audit(struct worker *w, struct errmsg *msg)
{
	struct settings *s = w->settings;
	int fd = w->start.roles.fd[ROLE_AUDIT];
	int ret = audit_open(w->start.plain + AREA_PLAIN_AUDIT,
		slice_str(s->sandbox_id ? s->sandbox_id : ""), fd, s->audit_stdout, &w->audit, msg);

	if (ret < 0)
		return ret;
	w->start.roles.fd[ROLE_AUDIT] = -1; /* the trail's now */
	audit_start(w->audit, w->base);
	if (s->audit_max_bytes > 0 && fd >= 0)
		audit_on_rotate(w->audit, s->audit_max_bytes, on_audit_full, w);
	return 0;
}

static int worker_open_vault(struct worker *w, struct errmsg *msg)
{
	int fd = w->start.roles.fd[ROLE_VAULT];
	int ret = worker_vault_init(&w->vault, w->start.vault, msg);

	if (ret == 0)
		ret = worker_vault_start(&w->vault, fd, w->settings, msg);
	if (ret == 0 && secmem_is_locked(w->vault.mem))
		health_ok(&w->health, HEALTH_MEMORY);
	else if (ret == 0)
		health_set(&w->health, HEALTH_MEMORY,
			w->settings->require_locked_memory ? HEALTH_FAILED : HEALTH_DEGRADED,
			"memory for keys cannot be locked (RLIMIT_MEMLOCK)");
	if (ret == 0 && fd >= 0 && !secmem_is_locked(w->vault.mem))
		log_warn("vault",
			"keys are in memory that cannot be locked (RLIMIT_MEMLOCK): degraded");
	if (ret == 0 && fd >= 0) {
		/* READY says the rest. */
		worker_vault_drop(fd);
		close(fd);
		w->start.roles.fd[ROLE_VAULT] = -1;
	}
	return ret;
}

static int worker_open(struct worker *w, struct errmsg *msg)
{
	struct tls_trust trust;
	int ret;

	worker_policy_prefer_area(w);
	ret = settings_load(&w->start.source, &w->settings, msg);
	if (ret < 0)
		return ret;
	log_setup(w->settings->log_level, STDERR_FILENO, "egress[worker]");
	w->base = event_base_new();
	REQUIRE(w->base != NULL);
	worker_thaw_base(w->base);
	ret = worker_start_ca(&w->start, &w->ca);
	if (ret < 0)
		return errmsg_set(msg, ret, "the CA cannot be read: %s", err_text(ret));
	trust.fd = w->start.roles.fd[ROLE_TRUST];
	trust.name = w->settings->upstream_trust;
	ret = tls_new_trust(w->ca, &trust, w->settings->upstream_insecure, &w->tls, msg);
	if (ret < 0)
		return ret;
	ret = resolver_new(
		w->base, &w->settings->dns, w->settings->dns_timeout_ms, &w->resolver, msg);
	if (ret < 0)
		return ret;
	ret = worker_policy_open(w, msg);
	if (ret < 0)
		return ret;
	ret = worker_open_vault(w, msg);
	if (ret < 0)
		return ret;
	ret = worker_open_audit(w, msg);
	if (ret < 0)
		return ret;
	ret = proxy_new(w->base, w->tls, w->resolver, w->audit, w->vault.mem, &w->proxy);
	if (ret < 0)
		return ret;
	w->vault.make_room = worker_vault_make_room;
	w->vault.arg = w;
	ret = worker_lifecycle_open(w, msg);
	return ret < 0 ? ret : worker_gate_open(w, msg);
}

static void worker_note_start(struct worker *w)
{
	char what[AUDIT_RULE_MAX];

	(void)snprintf(
		what, sizeof(what), "egress " EGRESS_VERSION ", instance %s", w->meta.instance);
	worker_note(w, AUDIT_START, REASON_ALLOWED, what);
}

static void worker_serve(struct worker *w)
{
	static const enum role listeners[] = {ROLE_PROXY, ROLE_PROXY_V6};

	worker_policy_start(w);
	w->on_control =
		event_new(w->base, w->control_fd, EV_READ | EV_PERSIST, on_worker_control, w);
	w->on_term = evsignal_new(w->base, SIGTERM, on_worker_term, w);
	w->drain_tick = event_new(w->base, -1, EV_PERSIST, on_worker_drain, w);
	REQUIRE(w->on_control && w->on_term && w->drain_tick);
	event_add(w->on_control, NULL);
	event_add(w->on_term, NULL);
	for (size_t i = 0; i < ARRAY_LEN(listeners); i++)
		if (w->start.roles.fd[listeners[i]] >= 0)
			proxy_listen(w->proxy, w->start.roles.fd[listeners[i]]);
	worker_api_open(w);
	worker_note_start(w);
	if (vault_exists(w->vault.vault))
		worker_vault_note(
			&w->vault, w->audit, &(struct worker_vault_writer){.method = NULL});
	worker_gate_start(w);
	worker_lifecycle_start(w);
	worker_thaw_start(w);
}

static void worker_close(struct worker *w)
{
	worker_thaw_close(w);
	worker_lifecycle_close(w);
	worker_policy_close(w);
	worker_api_close(w);
	worker_gate_close(w);
	proxy_free(w->proxy);
	worker_vault_fini(&w->vault);
	if (w->audit) {
		if (w->drain_until_ms)
			worker_note(w, AUDIT_STOP, REASON_SHUTDOWN, "ordered");
		audit_close(w->audit);
	}
	resolver_free(w->resolver);
	tls_free(w->tls);
	ca_free(w->ca);
	if (w->on_control)
		event_free(w->on_control);
	if (w->on_term)
		event_free(w->on_term);
	if (w->drain_tick)
		event_free(w->drain_tick);
	if (w->base)
		event_base_free(w->base);
	settings_free(w->settings);
	worker_start_fini(&w->start);
	libevent_global_shutdown();
}

int worker_main(int control_fd)
{
	struct worker w = {.control_fd = control_fd, .exit_code = WORKER_EXIT_OK};
	struct errmsg msg = {""};
	int ret;

	/* Fixed, or glibc raises it with the first large piece that is freed: then tables of a
	 * flood of names would come from the heap, and their room stay there. */
	(void)mallopt(M_MMAP_THRESHOLD, WORKER_MMAP_THRESHOLD);
	(void)signal(SIGPIPE, SIG_IGN);
	(void)signal(SIGINT, SIG_IGN);
	(void)signal(SIGHUP, SIG_IGN);
	/* Before and after the loop: CONTROL_STOP says it too, and while closing it must not kill.
	 */
	(void)signal(SIGTERM, SIG_IGN);
	roles_init(&w.start.roles);
	health_init(&w.health);
	ret = worker_receive_start(control_fd, &w.start, &msg);
	if (ret == 0 && w.start.roles.fd[ROLE_CAUSE] >= 0)
		return worker_closed_main(&w);
	if (ret == 0)
		ret = worker_open(&w, &msg);
	if (ret < 0) {
		(void)fprintf(stderr, "egress: %s\n", msg.text[0] ? msg.text : err_text(ret));
		worker_close(&w);
		return WORKER_EXIT_SETTINGS;
	}
	worker_serve(&w);
	ret = proc_seccomp(&msg);
	if (ret < 0) {
		log_error("worker", "%s", msg.text);
		worker_close(&w);
		return WORKER_EXIT_FAILED;
	}
	ret = control_send(control_fd, CONTROL_READY, NULL);
	if (ret < 0)
		log_error("worker", "the supervisor cannot be told: %s", err_text(ret));
	event_base_dispatch(w.base);
	worker_close(&w);
	return w.exit_code;
}
