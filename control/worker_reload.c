/* Changes that the worker itself asks for: SIGHUP, the operator's rule files, the vault file.
 * (Those of the API are api_policy.c and worker_api.c.) Before it: messages of the supervisor,
 * whose descriptors are in w->start; after it: policy_change, where each waits for its turn. */
#include <stdlib.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/log.h"
#include "control/worker_int.h"
#include "policy/policy_file.h"
#include "policy/policy_json.h"
#include "vault/vault.h"

/* A request of the worker itself. */
struct worker_request {
	struct policy_request r;
	struct worker *w;
	/* SIGHUP */
	struct settings *now;
	uint64_t vault_revision;
	/* rule files */
	struct rule_list deny, allow;
	struct policy *log_skip;
	char *doc;
};

/* --- the vault's document --- */

static bool worker_has_feed(const struct worker *w)
{
	return w->start.roles.fd[ROLE_VAULT] >= 0;
}

/* What messages brought has been dealt with, in whatever way; the last one has replaced those
 * before it. */
static void worker_end_feed(struct worker *w)
{
	int *fd = &w->start.roles.fd[ROLE_VAULT];

	if (*fd >= 0) {
		worker_vault_drop(*fd);
		close(*fd);
		*fd = -1;
	}
	for (; w->n_feeds > 0; w->n_feeds--)
		if (control_send(w->control_fd, CONTROL_VAULT, NULL) < 0)
			log_warn("worker", "the supervisor cannot be told that a vault was read");
}

static struct worker_request *request_of(struct policy_request *r)
{
	return (struct worker_request *)(void *)r; /* its first member */
}

static void worker_submit(struct worker *w, const struct policy_request_ops *ops)
{
	struct worker_request *q = xcalloc(1, sizeof(*q));

	q->r.ops = ops;
	q->w = w;
	policy_change_submit(w->changes, &q->r);
}

static int on_vault_prepare(struct policy_request *r, struct errmsg *msg)
{
	struct worker *w = request_of(r)->w;
	int ret = 0;

	if (!worker_has_feed(w))
		return 0; /* a reload before us has taken it */
	ret = worker_vault_take(&w->vault, w->start.roles.fd[ROLE_VAULT], w->settings, msg);
	worker_end_feed(w);
	if (ret == 0)
		worker_vault_note(
			&w->vault, w->audit, &(struct worker_vault_writer){.method = NULL});
	return ret;
}

static void on_vault_done(struct policy_request *r, const struct policy_result *result)
{
	const struct worker *w = request_of(r)->w;

	if (result->ret < 0)
		log_error("vault", "%s; revision %llu stays in force", result->msg.text,
			(unsigned long long)vault_revision(w->vault.vault));
	free(r);
}

void worker_policy_vault(struct worker *w)
{
	static const struct policy_request_ops ops = {
		.prepare = on_vault_prepare, .done = on_vault_done};

	worker_submit(w, &ops);
}

/* --- SIGHUP: the files anew. A bad one changes nothing --- */

/* The policy file was written after the supervisor read it for this reload: what is in force is
 * what it has in it now. */
static void worker_keep_committed(const struct worker *w, struct settings *now)
{
	policy_unref(now->user_policy);
	policy_unref(now->policy);
	now->user_policy = policy_ref(w->settings->user_policy);
	now->policy = policy_merge_always(
		now->user_policy, &now->deny_always, &now->allow_always, now->ceiling);
}

static int on_reload_prepare(struct policy_request *r, struct errmsg *msg)
{
	struct worker_request *q = request_of(r);
	struct worker *w = q->w;
	int ret = settings_load(&w->start.source, &q->now, msg);

	q->vault_revision = vault_revision(w->vault.vault);
	if (ret < 0)
		return ret;
	if (w->committed)
		worker_keep_committed(w, q->now);
	r->policy = policy_ref(q->now->policy);
	return 0;
}

/* Policy into its area and the vault against it, or a new vault: each whole or not at all. */
static int on_reload_keep(struct policy_request *r, struct errmsg *msg)
{
	struct worker_request *q = request_of(r);
	struct worker *w = q->w;
	int ret = worker_keep_settings(w, q->now);

	if (ret < 0)
		return errmsg_set(msg, ret, "the policy cannot be kept: %s", err_text(ret));
	if (worker_has_feed(w))
		ret = worker_vault_take(&w->vault, w->start.roles.fd[ROLE_VAULT], q->now, msg);
	else
		ret = worker_vault_settings(
			&w->vault, q->now, w->settings->vault_file != NULL, msg);
	if (ret == 0)
		return 0;
	/* It has been in the area before: it fits. */
	REQUIRE(worker_keep_settings(w, w->settings) == 0);
	return errmsg_prefix(msg, ret, "vault");
}

static void on_reload_publish(struct policy_request *r)
{
	struct worker_request *q = request_of(r);
	struct worker *w = q->w;
	struct settings *before = w->settings;

	w->settings = q->now;
	q->now = NULL;
	worker_configure(w);
	worker_api_configure(w);
	worker_set_hosts(w);
	worker_lifecycle_key(w);
	worker_gate_again(w); /* with what is no policy, too */
	settings_free(before);
	rule_list_fini(&w->deny_good);
	rule_list_copy(&w->settings->deny_always, &w->deny_good);
	health_ok(&w->health, HEALTH_RULE_FILES);
	worker_note(w, AUDIT_POLICY, REASON_ALLOWED, "reloaded");
	if (vault_revision(w->vault.vault) != q->vault_revision)
		worker_vault_note(
			&w->vault, w->audit, &(struct worker_vault_writer){.method = NULL});
	log_info("worker", "reload: %zu rules in force", policy_n_rules(w->settings->policy));
}

static void on_reload_done(struct policy_request *r, const struct policy_result *result)
{
	struct worker_request *q = request_of(r);

	worker_end_feed(q->w);
	if (result->ret < 0)
		log_error("worker", "reload: %s; the configuration before stays in force",
			result->msg.text);
	settings_free(q->now);
	free(q);
}

void worker_policy_reload(struct worker *w)
{
	static const struct policy_request_ops ops = {.prepare = on_reload_prepare,
		.keep = on_reload_keep,
		.publish = on_reload_publish,
		.done = on_reload_done};

	w->committed = false;
	worker_submit(w, &ops);
}

/* --- the operator's rule files, while we run --- */

/* A bad line is on record and does not drop the others. */
static size_t worker_read_rules(struct worker *w, enum role role, enum policy_file_kind kind,
	struct rule_list *out, struct errmsg *why)
{
	int fd = w->start.roles.fd[role];
	struct strbuf text;
	struct errmsg msg = {""};
	size_t n_bad = 0;

	if (fd < 0)
		return 0;
	strbuf_init(&text, POLICY_DOC_MAX);
	if (strbuf_pread_fd(&text, fd) == 0)
		n_bad = policy_file_decode(strbuf_slice(&text), kind, out, &msg);
	strbuf_fini(&text);
	if (n_bad > 0) {
		(void)errmsg_set(why, E_VALUE, "%s: %s", role_text(role), msg.text);
		log_error("worker", "%s (%zu bad lines); the other lines count", why->text, n_bad);
	}
	return n_bad;
}

/* True if the area has this document: nothing has changed but, perhaps, what is logged. */
static bool worker_rules_same(const struct worker *w, const char *doc)
{
	struct slice kept;

	return worker_kept(w, &kept) && slice_eq(kept, slice_str(doc));
}

static int on_rules_prepare(struct policy_request *r, struct errmsg *msg)
{
	struct worker_request *q = request_of(r);
	struct worker *w = q->w;
	struct rule_list skip = {.v = NULL};
	struct errmsg why = {""};
	size_t n_bad_deny;
	size_t n_bad;

	n_bad = worker_read_rules(w, ROLE_ALLOW_ALWAYS, POLICY_FILE_ALLOW, &q->allow, &why);
	n_bad += worker_read_rules(w, ROLE_LOG_SKIP, POLICY_FILE_LOG_SKIP, &skip, &why);
	n_bad_deny = worker_read_rules(w, ROLE_DENY_ALWAYS, POLICY_FILE_DENY, &q->deny, &why);
	if (n_bad_deny > 0) {
		/* What the bad line meant to deny is denied still, if it was before. */
		rule_list_add_missing(&q->deny, &w->deny_good);
	} else {
		rule_list_fini(&w->deny_good);
		rule_list_copy(&q->deny, &w->deny_good);
	}
	if (skip.n > 0)
		q->log_skip = policy_new(false, skip.v, skip.n);
	if (n_bad + n_bad_deny > 0)
		health_set(&w->health, HEALTH_RULE_FILES, HEALTH_DEGRADED, "%s", why.text);
	else
		health_ok(&w->health, HEALTH_RULE_FILES);
	q->doc = worker_policy_doc(w->settings->user_policy, &q->deny, &q->allow);
	if (worker_rules_same(w, q->doc)) {
		policy_unref(w->settings->log_skip);
		w->settings->log_skip = q->log_skip;
		q->log_skip = NULL;
	} else {
		r->policy = policy_merge_always(
			w->settings->user_policy, &q->deny, &q->allow, w->settings->ceiling);
	}
	return 0;
}

static int on_rules_keep(struct policy_request *r, struct errmsg *msg)
{
	struct worker_request *q = request_of(r);
	int ret = worker_policy_keep(q->w, q->doc);

	if (ret < 0)
		return errmsg_set(msg, ret, "too many rules to be kept");
	return 0;
}

static void on_rules_publish(struct policy_request *r)
{
	struct worker_request *q = request_of(r);
	struct settings *s = q->w->settings;
	struct rule_list deny = s->deny_always;
	struct rule_list allow = s->allow_always;
	struct policy *log_skip = s->log_skip;
	struct policy *policy = s->policy;

	s->deny_always = q->deny;
	s->allow_always = q->allow;
	s->log_skip = q->log_skip;
	s->policy = policy_ref(r->policy);
	q->deny = deny;
	q->allow = allow;
	q->log_skip = log_skip;
	worker_configure(q->w);
	policy_unref(policy);
	worker_note(q->w, AUDIT_POLICY, REASON_ALLOWED, "rule files");
	log_info("worker", "rule files: %zu deny, %zu allow", s->deny_always.n, s->allow_always.n);
}

static void on_rules_done(struct policy_request *r, const struct policy_result *result)
{
	struct worker_request *q = request_of(r);

	if (result->ret < 0)
		log_error("worker", "rule files: %s; the rules before stay in force",
			result->msg.text);
	rule_list_fini(&q->deny);
	rule_list_fini(&q->allow);
	policy_unref(q->log_skip);
	free(q->doc);
	free(q);
}

void worker_policy_rules(struct worker *w)
{
	static const struct policy_request_ops ops = {.prepare = on_rules_prepare,
		.keep = on_rules_keep,
		.publish = on_rules_publish,
		.done = on_rules_done};

	worker_submit(w, &ops);
}
