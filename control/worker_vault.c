/* Documents into the vault and its area. Each change is kept before the event loop goes on, so
 * before any request can be decided by it: a worker that dies leaves the revision that was in
 * force. */
#include "control/worker_vault.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <jansson.h>

#include "audit/audit.h"
#include "base/clock.h"
#include "base/state.h"
#include "control/areas.h"
#include "control/settings_proxy.h"
#include "control/vault_feed.h"
#include "vault/vault.h"

int worker_vault_init(struct worker_vault *v, uint8_t *area, struct errmsg *msg)
{
	int ret = secmem_new(secmem_size_for(AREA_WORK_MIN, area_work_len()), &v->mem);

	if (ret < 0)
		return errmsg_set(msg, ret, "memory for keys: %s", err_text(ret));
	v->area = area;
	v->vault = vault_new(v->mem);
	return 0;
}

void worker_vault_fini(struct worker_vault *v)
{
	vault_free(v->vault);
	secmem_close(v->mem);
	*v = (struct worker_vault){.vault = NULL};
}

/* True if there is a document in the area. */
static bool worker_vault_kept(const struct worker_vault *v, struct slice *doc)
{
	return state_cell_read(v->area, AREA_VAULT_LEN, doc) && doc->len > 0;
}

static int worker_vault_keep(struct worker_vault *v, struct errmsg *msg)
{
	size_t len = 0;
	char *doc = vault_encode(v->vault, &len);
	int ret;

	if (!doc)
		return errmsg_set(msg, E_FULL, "no locked memory is left to keep it");
	ret = state_cell_write(v->area, AREA_VAULT_LEN, slice_make(doc, len));
	secmem_release(v->mem, doc);
	if (ret < 0)
		return errmsg_set(msg, ret, "more than %zu bytes when it is kept",
			(size_t)AREA_VAULT_DOC_MAX);
	return 0;
}

static int worker_vault_load(
	struct worker_vault *v, struct slice doc, const struct settings *s, struct errmsg *msg)
{
	struct vault_rules rules = settings_vault_rules(s);
	struct vault_view *before;
	int ret;

	if (s->require_locked_memory && !secmem_is_locked(v->mem))
		return errmsg_set(msg, -ENOMEM,
			"memory for keys cannot be locked (RLIMIT_MEMLOCK), and "
			"require_locked_memory is on");
	before = vault_view_get(v->vault);
	ret = vault_load(v->vault, doc, &rules, msg);
	if (ret == 0) {
		ret = worker_vault_keep(v, msg);
		if (ret < 0) {
			vault_restore(v->vault, before);
			return ret;
		}
	}
	vault_view_unref(before);
	return ret;
}

int worker_vault_take(struct worker_vault *v, int fd, const struct settings *s, struct errmsg *msg)
{
	struct vault_feed feed;
	int ret;

	ret = vault_feed_open(fd, &feed);
	if (ret < 0)
		return errmsg_set(msg, ret, "the document cannot be mapped: %s", err_text(ret));
	/* Wiped by a worker that took it and died before it could say so. */
	if (feed.doc.len > 0)
		ret = worker_vault_load(v, feed.doc, s, msg);
	vault_feed_close(&feed);
	return ret;
}

void worker_vault_drop(int fd)
{
	struct vault_feed feed;

	if (vault_feed_open(fd, &feed) == 0)
		vault_feed_close(&feed);
}

int worker_vault_start(struct worker_vault *v, int fd, const struct settings *s, struct errmsg *msg)
{
	struct slice kept;
	int ret = 0;

	if (worker_vault_kept(v, &kept))
		ret = vault_decode(v->vault, kept, msg);
	if (ret < 0)
		return errmsg_prefix(msg, ret, "the vault kept in memory");
	if (fd < 0)
		return 0;
	ret = worker_vault_take(v, fd, s, msg);
	if (ret == 0)
		return 0;
	if (!vault_exists(v->vault))
		return errmsg_prefix(msg, ret, "%s", s->vault_file ? s->vault_file : "vault");
	log_error("vault", "%s; revision %llu stays in force", msg->text,
		(unsigned long long)vault_revision(v->vault));
	return 0;
}

int worker_vault_settings(struct worker_vault *v, const struct settings *s, struct errmsg *msg)
{
	struct vault_rules rules = settings_vault_rules(s);

	if (!vault_exists(v->vault))
		return 0;
	if (!s->vault_file)
		return worker_vault_load(v, SLICE("{}"), s, msg);
	return vault_check(v->vault, &rules, msg);
}

static void worker_vault_audit(struct audit *audit, uint64_t revision)
{
	char rule[40];
	int n = snprintf(rule, sizeof(rule), "revision %llu", (unsigned long long)revision);
	struct audit_event e = {
		.kind = AUDIT_VAULT,
		.verdict = AUDIT_ALLOWED,
		.reason = REASON_ALLOWED,
		.rule = slice_make(rule, (size_t)n),
		.uid = AUDIT_UID_NONE,
		.start_us = clock_wall_us(),
	};

	audit_note(audit, &e, NULL);
}

static void worker_vault_names(const json_t *items, const char *what)
{
	const json_t *item;
	size_t i;

	json_array_foreach(items, i, item)
	{
		log_debug("vault", "%s %s", what, json_string_value(json_object_get(item, "name")));
	}
}

void worker_vault_note(const struct worker_vault *v, struct audit *audit)
{
	uint64_t revision = vault_revision(v->vault);
	char *text = vault_state_json(v->vault);
	json_t *state = text ? json_loads(text, JSON_ALLOW_NUL, NULL) : NULL;
	const json_t *credentials = json_object_get(state, "credentials");
	const json_t *bindings = json_object_get(state, "bindings");

	log_info("vault", "revision %llu: %zu credentials, %zu bindings",
		(unsigned long long)revision, json_array_size(credentials),
		json_array_size(bindings));
	worker_vault_names(credentials, "credential");
	worker_vault_names(bindings, "binding");
	worker_vault_audit(audit, revision);
	json_decref(state);
	free(text);
}
