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
#include "base/strbuf.h"
#include "control/areas.h"
#include "control/settings_proxy.h"
#include "control/vault_feed.h"
#include "vault/vault.h"

#define VAULT_NAMES_LOGGED 8 /* of each kind, in a line that people read */
#define VAULT_NAMES_MAX (2 * (VAULT_NAMES_LOGGED + 1) * (CREDENTIAL_NAME_MAX + 16))

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

	if (!doc && len > 0)
		return errmsg_set(msg, E_FULL, "no locked memory is left to keep it");
	ret = state_cell_write(v->area, AREA_VAULT_LEN, doc ? slice_make(doc, len) : SLICE_EMPTY);
	secmem_release(v->mem, doc);
	if (ret < 0)
		return errmsg_set(msg, -EFBIG, "more than %zu bytes when it is kept",
			(size_t)AREA_VAULT_DOC_MAX);
	/* Keys that were taken away or replaced are nowhere from here on. */
	state_cell_wipe_older(v->area, AREA_VAULT_LEN);
	return 0;
}

static int worker_vault_delete(
	struct vault *v, struct slice doc, const struct vault_rules *rules, struct errmsg *msg)
{
	return vault_delete(v, msg);
}

typedef int (*worker_vault_fn)(
	struct vault *v, struct slice doc, const struct vault_rules *rules, struct errmsg *msg);

/* One way of changing it, and then it is kept; or nothing has changed. */
static int worker_vault_try(struct worker_vault *v, worker_vault_fn change, struct slice doc,
	const struct settings *s, struct errmsg *msg)
{
	struct vault_rules rules = settings_vault_rules(s);
	struct vault_view *before = vault_view_get(v->vault);
	int ret = change(v->vault, doc, &rules, msg);

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

static int worker_vault_change(struct worker_vault *v, worker_vault_fn change, struct slice doc,
	const struct settings *s, struct errmsg *msg)
{
	int ret;

	if (s->require_locked_memory && !secmem_is_locked(v->mem))
		return errmsg_set(msg, -ENOMEM,
			"memory for keys cannot be locked (RLIMIT_MEMLOCK), and "
			"require_locked_memory is on");
	ret = worker_vault_try(v, change, doc, s, msg);
	for (int all = 0; ret == E_FULL && v->make_room && all <= 1; all++) {
		v->make_room(v->arg, all);
		ret = worker_vault_try(v, change, doc, s, msg);
	}
	return ret;
}

static int worker_vault_load(
	struct worker_vault *v, struct slice doc, const struct settings *s, struct errmsg *msg)
{
	return worker_vault_change(v, vault_load, doc, s, msg);
}

int worker_vault_write(struct worker_vault *v, enum worker_vault_op op, struct slice doc,
	const struct settings *s, struct errmsg *msg)
{
	switch (op) {
	case WORKER_VAULT_CREATE:
		return worker_vault_change(v, vault_create, doc, s, msg);
	case WORKER_VAULT_PATCH:
		return worker_vault_change(v, vault_patch, doc, s, msg);
	case WORKER_VAULT_DELETE:
		break;
	}
	return worker_vault_change(v, worker_vault_delete, doc, s, msg);
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

int worker_vault_settings(
	struct worker_vault *v, const struct settings *s, bool had_file, struct errmsg *msg)
{
	struct vault_rules rules = settings_vault_rules(s);

	if (!vault_exists(v->vault))
		return 0;
	if (had_file && !s->vault_file)
		return worker_vault_load(v, SLICE("{}"), s, msg);
	return vault_check(v->vault, &rules, msg);
}

static void worker_vault_audit(
	struct audit *audit, const struct worker_vault_writer *who, uint64_t revision)
{
	char rule[40];
	int n = revision > 0
		? snprintf(rule, sizeof(rule), "revision %llu", (unsigned long long)revision)
		: snprintf(rule, sizeof(rule), "deleted");
	struct audit_event e = {
		.kind = AUDIT_VAULT,
		.verdict = AUDIT_ALLOWED,
		.reason = REASON_ALLOWED,
		.method = slice_str(who->method ? who->method : ""),
		.status = who->status,
		.revision = revision,
		.rule = slice_make(rule, (size_t)n),
		.uid = who->method ? who->uid : AUDIT_UID_NONE,
		.start_us = clock_wall_us(),
	};

	audit_note(audit, &e, NULL);
}

/* `"a", "b" and 3 more`: names only. */
static void worker_vault_names(const json_t *items, struct strbuf *out)
{
	size_t n = json_array_size(items);
	size_t shown = n < VAULT_NAMES_LOGGED ? n : VAULT_NAMES_LOGGED;

	for (size_t i = 0; i < shown; i++) {
		const json_t *item = json_array_get(items, i);

		strbuf_printf(out, "%s%s", i ? ", " : "",
			json_string_value(json_object_get(item, "name")));
	}
	if (n > shown)
		strbuf_printf(out, " and %zu more", n - shown);
	if (n == 0)
		strbuf_str(out, "none");
}

void worker_vault_note(
	const struct worker_vault *v, struct audit *audit, const struct worker_vault_writer *who)
{
	uint64_t revision = vault_revision(v->vault);
	char *text = vault_state_json(v->vault);
	json_t *state = text ? json_loads(text, JSON_ALLOW_NUL, NULL) : NULL;
	const json_t *credentials = json_object_get(state, "credentials");
	const json_t *bindings = json_object_get(state, "bindings");
	struct strbuf names;

	strbuf_init(&names, VAULT_NAMES_MAX);
	worker_vault_names(credentials, &names);
	strbuf_str(&names, "; bindings: ");
	worker_vault_names(bindings, &names);
	if (revision > 0)
		log_info("vault", "%s%srevision %llu: %zu credentials, %zu bindings",
			who->method ? who->method : "", who->method ? ": " : "",
			(unsigned long long)revision, json_array_size(credentials),
			json_array_size(bindings));
	else
		log_info("vault", "%s: there is no vault any more",
			who->method ? who->method : "file");
	if (revision > 0)
		log_info("vault", "credentials: %s", strbuf_cstr(&names));
	worker_vault_audit(audit, who, revision);
	strbuf_fini(&names);
	json_decref(state);
	free(text);
}
