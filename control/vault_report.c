/* A vault of its own, loaded from the file, for questions. Before it: settings_load; after it: the
 * printing of `egressctl` and `egress --check`. */
#include "control/vault_report.h"

#include <stdlib.h>
#include <unistd.h>

#include <jansson.h>

#include "base/arena.h"
#include "control/areas.h"
#include "control/settings_proxy.h"
#include "control/vault_feed.h"
#include "vault/vault.h"

struct vault_report {
	struct secmem *mem;
	struct vault *vault;
	struct vault_view *view;
};

static int report_load(struct vault_report *r, int fd, const struct settings *s, struct errmsg *msg)
{
	struct vault_rules rules = settings_vault_rules(s);
	struct vault_feed feed;
	int ret;

	ret = vault_feed_open(fd, &feed);
	if (ret < 0)
		return errmsg_set(msg, ret, "%s", err_text(ret));
	ret = secmem_new(secmem_size_for(AREA_WORK_MIN, area_work_len()), &r->mem);
	if (ret < 0) {
		(void)errmsg_set(msg, ret, "memory for keys: %s", err_text(ret));
	} else {
		r->vault = vault_new(r->mem);
		ret = vault_load(r->vault, feed.doc, &rules, msg);
	}
	vault_feed_close(&feed);
	if (ret < 0)
		return ret;
	r->view = vault_view_get(r->vault);
	return 0;
}

int vault_report_new(const struct settings *s, struct vault_report **out, struct errmsg *msg)
{
	struct vault_watch *watch = NULL;
	struct vault_report *r;
	int ret;
	int fd;

	*out = NULL;
	if (!s->vault_file)
		return 0;
	ret = vault_feed_read(s->vault_file, &fd, &watch, msg);
	vault_feed_watch_free(watch);
	if (ret < 0)
		return errmsg_prefix(msg, ret, "vault");
	r = xcalloc(1, sizeof(*r));
	ret = report_load(r, fd, s, msg);
	(void)close(fd);
	if (ret < 0) {
		vault_report_free(r);
		return errmsg_prefix(msg, ret, "vault: %s", s->vault_file);
	}
	*out = r;
	return 0;
}

void vault_report_free(struct vault_report *r)
{
	if (!r)
		return;
	vault_view_unref(r->view);
	vault_free(r->vault);
	secmem_close(r->mem);
	free(r);
}

struct vault *vault_report_vault(const struct vault_report *r)
{
	return r ? r->vault : NULL;
}

static void report_drop_revisions(json_t *items)
{
	json_t *item;
	size_t i;

	json_array_foreach(items, i, item)
	{
		(void)json_object_del(item, "revision");
	}
}

char *vault_report_json(const struct vault_report *r)
{
	char *text = vault_state_json(r->vault);
	json_t *state = text ? json_loads(text, JSON_ALLOW_NUL, NULL) : NULL;

	free(text);
	(void)json_object_del(state, "revision");
	report_drop_revisions(json_object_get(state, "credentials"));
	report_drop_revisions(json_object_get(state, "bindings"));
	text = json_dumps(state, JSON_COMPACT);
	json_decref(state);
	REQUIRE(text != NULL);
	return text;
}

enum vault_report_match vault_report_find(
	struct vault_report *r, const struct vault_report_request *q, struct slice *name)
{
	struct binding_request b = {
		.https = q->https,
		.port = q->port,
		.host = q->host,
		.method = q->method,
		.path = q->path,
	};
	const struct binding *found = NULL;

	*name = SLICE_EMPTY;
	switch (vault_view_match(r->view, &b, &found)) {
	case BINDING_NONE:
		break;
	case BINDING_ONE:
		*name = binding_name(found);
		return VAULT_REPORT_BINDING;
	case BINDING_AMBIGUOUS:
		return VAULT_REPORT_AMBIGUOUS;
	case BINDING_PATH:
		return VAULT_REPORT_PATH;
	}
	return VAULT_REPORT_NONE;
}
