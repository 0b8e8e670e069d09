/* What is in force: kept in the area, restored from it, handed to those who decide; and the outside
 * of policy_change, by which it becomes another. Before it: worker.c, and the requests of
 * worker_reload.c and api_policy.c; after it: supervisor and kernel. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#include <event2/event.h>
#include <jansson.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/state.h"
#include "control/api.h"
#include "control/areas.h"
#include "control/settings_proxy.h"
#include "control/webhook.h"
#include "control/worker_int.h"
#include "dns/dns_gate.h"
#include "dns/resolver.h"
#include "policy/policy_json.h"
#include "proxy/proxy.h"

/* In the area's document, beside the user's policy. */
#define DENY_FIELD "denyAlways"
#define ALLOW_FIELD "allowAlways"

/* --- the area --- */

static json_t *worker_targets(const struct rule_list *l)
{
	json_t *array = json_array();

	for (size_t i = 0; i < l->n; i++)
		json_array_append_new(array, json_string(l->v[i].written));
	return array;
}

char *worker_policy_doc(
	const struct policy *user, const struct rule_list *deny, const struct rule_list *allow)
{
	json_t *doc = policy_json_encode(user);
	char *text;

	if (deny->n > 0)
		json_object_set_new(doc, DENY_FIELD, worker_targets(deny));
	if (allow->n > 0)
		json_object_set_new(doc, ALLOW_FIELD, worker_targets(allow));
	text = json_dumps(doc, JSON_COMPACT);
	REQUIRE(text != NULL);
	json_decref(doc);
	return text;
}

int worker_meta_keep(struct worker *w)
{
	return state_cell_write(w->start.plain + AREA_PLAIN_META, AREA_PLAIN_META_LEN,
		slice_make((const char *)&w->meta, sizeof(w->meta)));
}

int worker_policy_keep(struct worker *w, const char *doc)
{
	int ret = state_cell_write(
		w->start.plain + AREA_PLAIN_POLICY, AREA_PLAIN_POLICY_LEN, slice_str(doc));

	if (ret < 0)
		return ret;
	w->meta.policy_revision++;
	return worker_meta_keep(w);
}

static char *worker_doc_of(const struct settings *s)
{
	return worker_policy_doc(s->user_policy, &s->deny_always, &s->allow_always);
}

int worker_keep_settings(struct worker *w, const struct settings *s)
{
	char *doc = worker_doc_of(s);
	int ret = worker_policy_keep(w, doc);

	free(doc);
	return ret;
}

void worker_meta_open(struct worker *w)
{
	unsigned char r[WORKER_INSTANCE_LEN / 2];
	struct slice kept;

	if (w->start.plain &&
		state_cell_read(w->start.plain + AREA_PLAIN_META, AREA_PLAIN_META_LEN, &kept) &&
		kept.len == sizeof(w->meta)) {
		memcpy(&w->meta, kept.p, sizeof(w->meta));
		return;
	}
	REQUIRE(getrandom(r, sizeof(r), 0) == (ssize_t)sizeof(r));
	for (size_t i = 0; i < sizeof(r); i++)
		(void)snprintf(w->meta.instance + 2 * i, 3, "%02x", r[i]);
	w->meta.started_us = clock_wall_us();
}

static int worker_restore_rules(
	const json_t *targets, struct slice action, struct rule_list *out, struct errmsg *msg)
{
	const json_t *target;
	struct rule r;
	size_t i;
	int ret;

	json_array_foreach(targets, i, target)
	{
		ret = rule_make(action, slice_str(json_string_value(target)), NULL, 0, &r, msg);
		if (ret < 0)
			return ret;
		rule_list_add(out, &r);
	}
	return 0;
}

/* After a crash the area wins over the files (design 3.7): same policy, whatever became of them. */
static int worker_restore(struct worker *w, struct slice text, struct errmsg *msg)
{
	struct settings *s = w->settings;
	json_t *doc = json_loadb(text.p, text.len, 0, NULL);
	int ret;

	settings_drop_policy(s);
	ret = policy_json_decode(text, 0, &s->user_policy, msg);
	if (ret == 0)
		ret = worker_restore_rules(
			json_object_get(doc, DENY_FIELD), SLICE("deny"), &s->deny_always, msg);
	if (ret == 0)
		ret = worker_restore_rules(
			json_object_get(doc, ALLOW_FIELD), SLICE("allow"), &s->allow_always, msg);
	json_decref(doc);
	if (ret < 0)
		return errmsg_prefix(msg, ret, "the policy kept in memory");
	s->policy =
		policy_merge_always(s->user_policy, &s->deny_always, &s->allow_always, s->ceiling);
	return 0;
}

bool worker_kept(const struct worker *w, struct slice *doc)
{
	return state_cell_read(w->start.plain + AREA_PLAIN_POLICY, AREA_PLAIN_POLICY_LEN, doc);
}

void worker_policy_prefer_area(struct worker *w)
{
	struct slice doc;

	if (!worker_kept(w, &doc))
		return;
	w->start.source.deny_fd = -1;
	w->start.source.allow_fd = -1;
	w->start.source.log_skip_fd = -1;
}

int worker_policy_open(struct worker *w, struct errmsg *msg)
{
	struct slice doc;
	int ret;

	worker_meta_open(w);
	if (worker_kept(w, &doc))
		ret = worker_restore(w, doc, msg);
	else
		ret = worker_keep_settings(w, w->settings);
	rule_list_copy(&w->settings->deny_always, &w->deny_good);
	return ret;
}

/* --- those who decide --- */

static void on_worker_denied(void *arg, struct slice name)
{
	struct worker *w = arg;

	/* while the proxy is closed there is none any more */
	if (w->webhook)
		webhook_denied(w->webhook, name);
}

/* The receiver may be another one; what was meant for the one before is not sent any more. */
static void worker_set_webhook(struct worker *w)
{
	const char *url = w->settings->deny_webhook;
	bool same = w->webhook && url && strcmp(webhook_url(w->webhook), url) == 0;

	if (same)
		return;
	webhook_free(w->webhook);
	w->webhook = url ? webhook_new(w->base, w->proxy, url, w->settings->sandbox_id) : NULL;
}

void worker_configure(struct worker *w)
{
	struct proxy_config c;

	worker_set_webhook(w);
	c = settings_proxy_config(w->settings);
	if (w->life.now != LIFECYCLE_OPEN)
		c.policy = w->life.closed;
	c.keep_running = w->life.now == LIFECYCLE_NO_NEW_FLOWS;
	c.vault = w->vault.vault;
	c.denied = w->webhook ? on_worker_denied : NULL;
	c.denied_arg = w;
	c.reserved_descriptors = w->start.roles.fd[ROLE_API] < 0 ? 0 : API_CONNS_MAX;
	if (w->gate.dns)
		c.reserved_descriptors += DNS_GATE_CONNS_MAX * DNS_GATE_TCP_MAX;
	proxy_configure(w->proxy, &c);
	worker_gate_configure(w);
}

void worker_set_hosts(struct worker *w)
{
	struct strbuf text;
	int fd = w->start.roles.fd[ROLE_HOSTS];

	/* Where a sandbox shares our namespace it may rewrite that file. */
	if (fd < 0 || w->settings->mode != MODE_PROXY)
		return;
	strbuf_init(&text, 1u << 20);
	if (strbuf_pread_fd(&text, fd) == 0)
		resolver_set_hosts(w->resolver, strbuf_slice(&text));
	strbuf_fini(&text);
}

/* --- the supervisor writes the file, the kernel has the rules --- */

static int on_change_save(void *arg, struct slice text)
{
	struct worker *w = arg;
	int fd = w->start.roles.fd[ROLE_POLICY_NEW];
	size_t done = 0;
	int ret;

	if (fd < 0 || ftruncate(fd, 0) < 0)
		return -EBADF;
	while (done < text.len) {
		ssize_t n = pwrite(fd, text.p + done, text.len - done, (off_t)done);

		if (n < 0)
			return -errno;
		done += (size_t)n;
	}
	ret = control_send(w->control_fd, CONTROL_SAVE, NULL);
	return ret < 0 ? ret : POLICY_CHANGE_LATER;
}

static int on_change_commit(void *arg)
{
	struct worker *w = arg;
	int ret = control_send(w->control_fd, CONTROL_COMMIT, NULL);

	return ret < 0 ? ret : POLICY_CHANGE_LATER;
}

static void on_change_discard(void *arg)
{
	struct worker *w = arg;

	if (control_send(w->control_fd, CONTROL_DISCARD, NULL) < 0)
		log_warn("worker", "a temporary policy file is left behind");
}

static int on_change_apply(void *arg, struct policy *policy)
{
	return worker_gate_apply(arg, policy);
}

static struct policy *on_change_in_force(void *arg)
{
	const struct worker *w = arg;

	return w->settings->policy;
}

bool worker_policy_saved(struct worker *w, enum control_type type, int code)
{
	if (type == CONTROL_COMMIT && code == 0)
		w->committed = true;
	return policy_change_answer(
		w->changes, type == CONTROL_SAVE ? POLICY_STEP_SAVE : POLICY_STEP_COMMIT, code);
}

void worker_policy_start(struct worker *w)
{
	static const struct policy_change_ops ops = {
		.save = on_change_save,
		.commit = on_change_commit,
		.discard = on_change_discard,
		.apply = on_change_apply,
		.in_force = on_change_in_force,
	};

	w->changes = policy_change_new(w->base, &ops, w);
	worker_configure(w);
	worker_set_hosts(w);
	health_ok(&w->health, HEALTH_RULE_FILES);
	/* They were left out of the settings of a worker after a crash. */
	if (w->start.source.deny_fd < 0 &&
		(w->start.roles.fd[ROLE_DENY_ALWAYS] >= 0 ||
			w->start.roles.fd[ROLE_ALLOW_ALWAYS] >= 0 ||
			w->start.roles.fd[ROLE_LOG_SKIP] >= 0))
		worker_policy_rules(w);
}

void worker_policy_close(struct worker *w)
{
	policy_change_free(w->changes);
	w->changes = NULL;
	webhook_free(w->webhook);
	w->webhook = NULL;
	rule_list_fini(&w->deny_good);
}
