/* The worker. Comes after main has dropped what it may not keep; wires settings, areas, TLS,
 * resolver, audit trail and proxy together, and serves until it is told to stop. */
#include "control/worker.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <event2/event.h>
#include <jansson.h>

#include "audit/audit.h"
#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/proc.h"
#include "base/state.h"
#include "control/areas.h"
#include "control/settings_proxy.h"
#include "control/worker_vault.h"
#include "dns/resolver.h"
#include "policy/policy_json.h"
#include "proxy/ca.h"
#include "proxy/proxy.h"
#include "proxy/tls.h"
#include "vault/vault.h"

/* Of the 8 s that a stop may take, what open exchanges get; the rest is for the audit trail. */
#define WORKER_DRAIN_MS 6000
#define WORKER_DRAIN_TICK_MS 100

struct worker {
	int control_fd;
	struct worker_start start;
	struct settings *settings;
	struct event_base *base;
	struct ca *ca;
	struct tls *tls;
	struct resolver *resolver;
	struct audit *audit;
	struct worker_vault vault;
	struct proxy *proxy;
	struct event *on_control;
	struct event *on_term;
	struct event *drain_tick;
	uint64_t drain_until_ms;
	int exit_code;
};

static void worker_note(
	struct worker *w, enum audit_kind kind, enum reason reason, const char *what)
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

/* --- configuration --- */

static void worker_configure(struct worker *w)
{
	struct proxy_config c = settings_proxy_config(w->settings);

	c.vault = w->vault.vault;
	proxy_configure(w->proxy, &c);
}

/* The policy in force goes into the plain area, so that the next worker goes on with it. */
static int worker_keep_policy(struct worker *w)
{
	json_t *doc = policy_json_encode(w->settings->policy);
	char *text = json_dumps(doc, JSON_COMPACT);
	int ret;

	REQUIRE(text != NULL);
	ret = state_cell_write(
		w->start.plain + AREA_PLAIN_POLICY, AREA_PLAIN_POLICY_LEN, slice_str(text));
	free(text);
	json_decref(doc);
	return ret;
}

/* After a crash the area wins over the files (design 3.7): same policy, whatever became of them. */
static int worker_restore_policy(struct worker *w, struct errmsg *msg)
{
	struct policy *p = NULL;
	struct slice doc;
	int ret;

	if (!state_cell_read(w->start.plain + AREA_PLAIN_POLICY, AREA_PLAIN_POLICY_LEN, &doc))
		return worker_keep_policy(w);
	ret = policy_json_decode(doc, 0, &p, msg);
	if (ret < 0)
		return errmsg_prefix(msg, ret, "the policy kept in memory");
	policy_unref(w->settings->policy);
	w->settings->policy = p;
	return 0;
}

static void worker_set_hosts(struct worker *w)
{
	struct strbuf text;
	int fd = w->start.roles.fd[ROLE_HOSTS];

	if (fd < 0)
		return;
	strbuf_init(&text, 1u << 20);
	if (strbuf_pread_fd(&text, fd) == 0)
		resolver_set_hosts(w->resolver, strbuf_slice(&text));
	strbuf_fini(&text);
}

static bool worker_has_feed(const struct worker *w)
{
	return w->start.roles.fd[ROLE_VAULT] >= 0;
}

/* A document that a message brought has been dealt with, in whatever way. */
static void worker_end_feed(struct worker *w)
{
	int *fd = &w->start.roles.fd[ROLE_VAULT];

	if (*fd < 0)
		return;
	worker_vault_drop(*fd);
	close(*fd);
	*fd = -1;
	if (control_send(w->control_fd, CONTROL_VAULT, NULL) < 0)
		log_warn("worker", "the supervisor cannot be told that a vault was read");
}

/* Policy into its area and the vault against it, or a new vault: each whole or not at all. */
static int worker_adopt(struct worker *w, struct errmsg *msg)
{
	int ret = worker_keep_policy(w);

	if (ret < 0)
		return errmsg_set(msg, ret, "the policy cannot be kept: %s", err_text(ret));
	if (worker_has_feed(w))
		ret = worker_vault_take(&w->vault, w->start.roles.fd[ROLE_VAULT], w->settings, msg);
	else
		ret = worker_vault_settings(&w->vault, w->settings, msg);
	return ret < 0 ? errmsg_prefix(msg, ret, "vault") : 0;
}

static void worker_reload_refused(struct worker *w, struct settings *before, const char *why)
{
	log_error("worker", "reload: %s; the configuration before stays in force", why);
	if (w->settings == before)
		return;
	settings_free(w->settings);
	w->settings = before;
	/* It has been in the area before: it fits. */
	REQUIRE(worker_keep_policy(w) == 0);
}

/* SIGHUP: the files anew. A bad one changes nothing. */
static void worker_reload(struct worker *w)
{
	struct settings *before = w->settings, *now = NULL;
	uint64_t revision = vault_revision(w->vault.vault);
	struct errmsg msg = {""};
	int ret = settings_load(&w->start.source, &now, &msg);

	if (ret == 0) {
		w->settings = now;
		ret = worker_adopt(w, &msg);
	}
	worker_end_feed(w);
	if (ret < 0) {
		worker_reload_refused(w, before, msg.text);
		return;
	}
	worker_configure(w);
	worker_set_hosts(w);
	settings_free(before);
	worker_note(w, AUDIT_POLICY, REASON_ALLOWED, "reloaded");
	if (vault_revision(w->vault.vault) != revision)
		worker_vault_note(&w->vault, w->audit);
	log_info("worker", "reload: %zu rules in force", policy_n_rules(w->settings->policy));
}

/* The vault file has changed. */
static void worker_new_vault(struct worker *w)
{
	struct errmsg msg = {""};
	int ret;

	if (!worker_has_feed(w))
		return;
	ret = worker_vault_take(&w->vault, w->start.roles.fd[ROLE_VAULT], w->settings, &msg);
	worker_end_feed(w);
	if (ret < 0)
		log_error("vault", "%s; revision %llu stays in force", msg.text,
			(unsigned long long)vault_revision(w->vault.vault));
	else
		worker_vault_note(&w->vault, w->audit);
}

/* --- stopping --- */

static void on_worker_drain(evutil_socket_t fd, short what, void *arg)
{
	struct worker *w = arg;

	if (proxy_busy(w->proxy) == 0 || clock_mono_ms() >= w->drain_until_ms)
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

static void on_worker_control(evutil_socket_t fd, short what, void *arg)
{
	struct worker *w = arg;
	enum control_type type;
	struct roles got;
	int ret = control_receive(fd, &type, &got);

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
		worker_start_update(&w->start, &got);
		worker_reload(w);
		break;
	case CONTROL_AUDIT:
		worker_new_audit(w, &got);
		break;
	case CONTROL_VAULT:
		worker_start_update(&w->start, &got);
		worker_new_vault(w);
		break;
	case CONTROL_STOP:
		worker_stop(w);
		break;
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
	int ret = worker_receive_start(w->control_fd, &w->start, msg);

	if (ret < 0)
		return ret;
	ret = settings_load(&w->start.source, &w->settings, msg);
	if (ret < 0)
		return ret;
	log_setup(w->settings->log_level, STDERR_FILENO, "egress[worker]");
	w->base = event_base_new();
	REQUIRE(w->base != NULL);
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
	ret = worker_restore_policy(w, msg);
	if (ret < 0)
		return ret;
	ret = worker_open_vault(w, msg);
	if (ret < 0)
		return ret;
	ret = worker_open_audit(w, msg);
	if (ret < 0)
		return ret;
	return proxy_new(w->base, w->tls, w->resolver, w->audit, w->vault.mem, &w->proxy);
}

static void worker_serve(struct worker *w)
{
	static const enum role listeners[] = {ROLE_PROXY, ROLE_PROXY_V6};

	worker_configure(w);
	worker_set_hosts(w);
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
	worker_note(w, AUDIT_START, REASON_ALLOWED, "egress " EGRESS_VERSION);
	if (vault_exists(w->vault.vault))
		worker_vault_note(&w->vault, w->audit);
}

static void worker_close(struct worker *w)
{
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

	(void)signal(SIGPIPE, SIG_IGN);
	(void)signal(SIGINT, SIG_IGN);
	(void)signal(SIGHUP, SIG_IGN);
	/* Before and after the loop: CONTROL_STOP says it too, and while closing it must not kill.
	 */
	(void)signal(SIGTERM, SIG_IGN);
	roles_init(&w.start.roles);
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
