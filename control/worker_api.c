/* What the API says and changes: the routes, and the worker's side of each. Before it: api.c, which
 * has the request; after it: policy_change. */
#include <stdlib.h>

#include <jansson.h>

#include "base/clock.h"
#include "base/log.h"
#include "control/api_audit.h"
#include "control/api_health.h"
#include "control/api_policy.h"
#include "control/api_vault.h"
#include "control/areas.h"
#include "control/settings_int.h"
#include "control/settings_proxy.h"
#include "control/worker_int.h"
#include "policy/ceiling.h"
#include "vault/vault.h"

/* --- /policy --- */

static struct policy *on_api_user(void *arg)
{
	const struct worker *w = arg;

	return w->settings->user_policy;
}

static const struct policy *on_api_ceiling(void *arg)
{
	const struct worker *w = arg;

	return w->settings->ceiling;
}

static size_t on_api_max_rules(void *arg)
{
	const struct worker *w = arg;

	return w->settings->max_rules;
}

static const char *on_api_mode(void *arg)
{
	const struct worker *w = arg;

	return settings_mode_text(w->settings->mode);
}

static bool on_api_has_file(void *arg)
{
	const struct worker *w = arg;

	return w->settings->policy_file != NULL;
}

static int on_api_check(void *arg, struct api_policy_next *next, struct errmsg *msg)
{
	struct worker *w = arg;
	const struct settings *s = w->settings;
	struct vault_rules rules = settings_vault_rules(s);

	next->doc = worker_policy_doc(next->user, &s->deny_always, &s->allow_always);
	if (strlen(next->doc) > POLICY_DOC_MAX)
		return errmsg_set(
			msg, E_LIMIT, "the policy is larger than %u bytes", POLICY_DOC_MAX);
	next->policy =
		policy_merge_always(next->user, &s->deny_always, &s->allow_always, s->ceiling);
	rules.policy = next->policy;
	return vault_exists(w->vault.vault) ? vault_check(w->vault.vault, &rules, msg) : 0;
}

static int on_api_keep(void *arg, const struct api_policy_next *next, struct errmsg *msg)
{
	int ret = worker_policy_keep(arg, next->doc);

	return ret < 0 ? errmsg_set(msg, ret, "the policy cannot be kept: %s", err_text(ret)) : 0;
}

static void on_api_publish(void *arg, struct api_policy_next *next)
{
	struct worker *w = arg;
	struct settings *s = w->settings;
	struct policy *user = s->user_policy;
	struct policy *policy = s->policy;
	char what[80];

	s->user_policy = next->user;
	s->policy = next->policy;
	worker_configure(w);
	policy_unref(user);
	policy_unref(policy);
	(void)snprintf(what, sizeof(what), "%s: revision %llu, %zu rules", next->what,
		(unsigned long long)w->meta.policy_revision, policy_n_rules(s->user_policy));
	audit_note(w->audit,
		&(struct audit_event){
			.kind = AUDIT_POLICY,
			.verdict = AUDIT_ALLOWED,
			.reason = REASON_ALLOWED,
			.rule = slice_str(what),
			.uid = next->uid,
			.start_us = clock_wall_us(),
		},
		NULL);
	log_info("api", "%s", what);
}

static void on_api_policy(struct api_call *call, void *arg)
{
	static const struct api_policy_ops ops = {
		.user = on_api_user,
		.ceiling = on_api_ceiling,
		.max_rules = on_api_max_rules,
		.mode = on_api_mode,
		.has_file = on_api_has_file,
		.check = on_api_check,
		.keep = on_api_keep,
		.publish = on_api_publish,
	};
	struct worker *w = arg;

	w->api_policy = (struct api_policy){&ops, w, w->changes};
	api_policy_run(&w->api_policy, call);
}

/* --- /healthz, /status --- */

static bool on_api_starting(void *arg)
{
	const struct worker *w = arg;

	return health_starting(&w->health);
}

static void on_api_health(struct api_call *call, void *arg)
{
	struct worker *w = arg;
	const char *cause;

	worker_watch_resolvers(w);
	cause = health_cause(&w->health);
	if (health_state(&w->health) == HEALTH_FAILED)
		api_answer_json(call, 503, cause,
			json_pack("{s:s, s:s+}", "code", "not_ready", "message",
				"not ready: ", cause));
	else
		api_answer(call, 200, NULL, "text/plain; charset=utf-8", SLICE("ok"));
}

static void on_api_healthz(struct api_call *call, void *arg)
{
	const struct worker *w = arg;

	api_health_run(w->api_health, call);
}

static json_t *worker_status_policy(const struct worker *w)
{
	const struct settings *s = w->settings;

	return json_pack("{s:I, s:s, s:s, s:I, s:I, s:I}", "revision",
		(json_int_t)w->meta.policy_revision, "mode", api_policy_mode(s->user_policy),
		"defaultAction", policy_default_allow(s->user_policy) ? "allow" : "deny", "rules",
		(json_int_t)policy_n_rules(s->user_policy), "denyAlways",
		(json_int_t)s->deny_always.n, "allowAlways", (json_int_t)s->allow_always.n);
}

static json_t *worker_status_write_hosts(const struct settings *s)
{
	json_t *hosts = json_array();

	for (size_t i = 0; i < write_hosts_count(s->write_hosts); i++)
		json_array_append_new(hosts, json_string(write_hosts_entry(s->write_hosts, i)));
	return hosts;
}

/* What an operator should look at. */
static json_t *worker_status_warnings(const struct worker *w)
{
	const struct settings *s = w->settings;
	const char *host = write_hosts_not_allowed(s->write_hosts, s->policy);
	json_t *warnings = json_array();
	struct errmsg above = {""};

	if (s->read_only && host)
		json_array_append_new(warnings,
			json_sprintf("write host %s is not allowed by policy: it cannot be reached",
				host));
	if (ceiling_check(s->ceiling, s->user_policy, NULL, &above) < 0)
		json_array_append_new(warnings, json_sprintf("policy: %s", above.text));
	if (!s->token)
		json_array_append_new(warnings,
			json_string("the API has no token: whoever reaches it may change the "
				    "policy"));
	if (w->life.follows && w->meta.life.cause >= LIFECYCLE_CAUSE_NEW_STATE)
		json_array_append_new(warnings,
			json_sprintf("lifecycle: %s", lifecycle_cause_text(w->meta.life.cause)));
	if (s->upstream_insecure)
		json_array_append_new(
			warnings, json_string("origins are not verified (upstream_insecure)"));
	if (w->gate.packets.open > 0)
		json_array_append_new(warnings,
			json_sprintf("%zu packet sockets are open in the sandbox: clear traffic "
				     "can be read there",
				w->gate.packets.open));
	if (health_state(&w->health) == HEALTH_DEGRADED)
		json_array_append_new(warnings, json_string(health_cause(&w->health)));
	return warnings;
}

static json_t *worker_status_audit(const struct audit *a)
{
	struct slice labels = audit_context(a);
	json_t *context = json_loadb(labels.p, labels.len, 0, NULL);
	struct audit_counts counts = audit_counts(a);
	char last[CLOCK_TEXT_MAX];

	clock_text(counts.last_us, last);
	return json_pack("{s:I, s:I, s:I, s:I, s:s?, s:o}", "seq", (json_int_t)audit_seq(a),
		"oldest", (json_int_t)audit_oldest(a), "reads", (json_int_t)counts.reads,
		"refusals", (json_int_t)counts.refusals, "last", counts.last_us ? last : NULL,
		"context", context ? context : json_object());
}

static void on_api_status(struct api_call *call, void *arg)
{
	const struct worker *w = arg;
	const struct settings *s = w->settings;
	char started[CLOCK_TEXT_MAX];
	uint64_t now = clock_wall_us();
	json_t *doc;

	clock_text(w->meta.started_us, started);
	doc = json_pack("{s:s, s:s, s:s?, s:s, s:I, s:s, s:b}", "version", EGRESS_VERSION,
		"instance", w->meta.instance, "sandbox", s->sandbox_id, "started", started,
		"uptimeSeconds",
		(json_int_t)(now > w->meta.started_us ? (now - w->meta.started_us) / 1000000 : 0),
		"mode", settings_mode_text(s->mode), "readOnly", (int)s->read_only);
	json_object_set_new(doc, "health", health_json(&w->health));
	json_object_set_new(doc, "policy", worker_status_policy(w));
	json_object_set_new(doc, "writeHosts", worker_status_write_hosts(s));
	json_object_set_new(doc, "vault",
		vault_exists(w->vault.vault)
			? json_pack("{s:I}", "revision", (json_int_t)vault_revision(w->vault.vault))
			: json_null());
	json_object_set_new(doc, "lifecycle", worker_lifecycle_status(w));
	json_object_set_new(doc, "audit", worker_status_audit(w->audit));
	json_object_set_new(doc, "api",
		json_pack("{s:I}", "unauthorized", (json_int_t)api_n_strangers(w->api)));
	json_object_set_new(doc, "warnings", worker_status_warnings(w));
	api_answer_json(call, 200, NULL, doc);
}

/* --- /audit --- */

static void on_api_audit(struct api_call *call, void *arg)
{
	const struct worker *w = arg;

	api_audit_run(w->audit, call);
}

static void on_api_audit_context(struct api_call *call, void *arg)
{
	struct worker *w = arg;

	api_audit_context_run(w->audit, call, worker_lifecycle_labels, w);
}

/* --- life --- */

static void on_api_strangers(void *arg, uint32_t n, uint32_t uid)
{
	const struct worker *w = arg;
	char what[64];
	const struct audit_event e = {
		.kind = AUDIT_GUARD,
		.verdict = AUDIT_BLOCKED,
		.reason = REASON_WRONG_TOKEN,
		.rule = slice_make(what,
			(size_t)snprintf(
				what, sizeof(what), "%u requests to the API without its token", n)),
		.uid = uid,
		.start_us = clock_wall_us(),
		.count = n,
	};

	log_warn("api", "%s", what);
	audit_note(w->audit, &e, NULL);
}

void worker_api_open(struct worker *w)
{
	static const struct api_route routes[] = {
		{"/healthz", NULL, API_OPEN, on_api_healthz},
		{"/policy", API_POLICY_METHODS, 0, on_api_policy},
		{"/audit", API_AUDIT_METHODS, 0, on_api_audit},
		{"/audit/context", API_AUDIT_CONTEXT_METHODS, 0, on_api_audit_context},
		{"/status", "GET", 0, on_api_status},
		{API_VAULT_PATH, API_VAULT_METHODS, API_KEYS, worker_api_vault},
		{API_VAULT_PATH "/_active", "GET", API_OPEN, worker_api_vault_active},
		{API_VAULT_PATH "/credentials", "GET", 0, worker_api_vault_credentials},
		{API_VAULT_PATH "/credentials/", "GET", 0, worker_api_vault_credential},
		{API_VAULT_PATH "/bindings", "GET", 0, worker_api_vault_bindings},
		{API_VAULT_PATH "/bindings/", "GET", 0, worker_api_vault_binding},
		{API_VAULT_PATH "/", NULL, 0, worker_api_vault_other},
	};
	static const struct api_health_ops health = {on_api_starting, on_api_health};
	static const enum role listeners[] = {ROLE_API, ROLE_API_V6};

	if (w->start.roles.fd[ROLE_API] < 0)
		return;
	w->api = api_new(w->base, routes, ARRAY_LEN(routes), w);
	api_set_keys(w->api,
		&(struct api_keys){w->vault.mem, worker_api_vault_admit, worker_vault_make_room});
	worker_api_vault_open(w);
	w->api_health = api_health_new(w->base, &health, w);
	api_set_instance(w->api, w->meta.instance);
	api_on_strangers(w->api, on_api_strangers, w);
	worker_api_configure(w);
	for (size_t i = 0; i < ARRAY_LEN(listeners); i++)
		if (w->start.roles.fd[listeners[i]] >= 0)
			api_listen(w->api, w->start.roles.fd[listeners[i]]);
}

void worker_api_configure(struct worker *w)
{
	if (w->api)
		api_set_token(w->api, w->settings->token);
}

void worker_api_close(struct worker *w)
{
	api_vault_free(w->api_vault);
	w->api_vault = NULL;
	api_health_free(w->api_health);
	w->api_health = NULL;
	api_free(w->api);
	w->api = NULL;
}
