/* The vault: holds the view in force and replaces it as a whole.
 *
 * A write builds a candidate beside what is there, checks it, and only then moves one pointer: a
 * refused document changes nothing. */
#include "vault/vault.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "vault/vault_int.h"
#include "vault/vault_json.h"

struct vault {
	struct secmem *mem;
	struct vault_view *view; /* NULL: there is no vault */
};

struct vault *vault_new(struct secmem *mem)
{
	struct vault *v = xcalloc(1, sizeof(*v));

	v->mem = mem;
	return v;
}

void vault_free(struct vault *v)
{
	if (!v)
		return;
	vault_view_unref(v->view);
	free(v);
}

/* Credentials that stayed the same keep their revision and share the memory of their value. */
static void vault_inherit(struct vault_view *view, const struct vault_view *old)
{
	for (size_t i = 0; i < view->n_credentials; i++) {
		struct credential *c = &view->credentials[i];
		const struct credential *before = old ? vault_view_credential(old, c->name) : NULL;

		c->revision = view->revision;
		if (!before ||
			!slice_eq(secret_form(before->value, SECRET_RAW),
				secret_form(c->value, SECRET_RAW)))
			continue;
		secret_unref(c->value);
		c->value = secret_ref(before->value);
		c->revision = before->revision;
	}
}

/* What every candidate goes through when its content is there. */
static int vault_finish(
	struct vault_view *view, const struct vault_rules *rules, struct errmsg *msg)
{
	int ret = vault_rules_check(view, rules, msg);

	if (ret == 0)
		ret = vault_values_check(view, msg);
	if (ret == 0)
		ret = vault_view_compile(view, msg);
	return ret == 0 ? vault_ambiguity_check(view, msg) : ret;
}

static int vault_candidate(struct slice doc, const struct vault_rules *rules,
	const struct vault_view *old, struct vault_view *view, struct errmsg *msg)
{
	int ret = vault_json_decode(doc, VAULT_JSON_POST, view, msg);

	if (ret == 0)
		ret = vault_view_resolve(view, msg);
	if (ret < 0)
		return ret;
	view->revision = old ? old->revision + 1 : 1;
	vault_inherit(view, old);
	return vault_finish(view, rules, msg);
}

/* Could the document be read? Only then is it compared with what is there (reference 1.5). */
static bool vault_is_read(int ret)
{
	return ret == 0 || ret == E_VALUE || ret == E_FULL;
}

static void vault_publish(struct vault *v, struct vault_view *view)
{
	vault_view_unref(v->view);
	v->view = view;
}

void vault_restore(struct vault *v, struct vault_view *view)
{
	vault_publish(v, view);
}

/* The candidate takes the place of what is there, or goes. */
static int vault_end(struct vault *v, struct vault_view *view, int ret)
{
	if (ret < 0)
		vault_view_unref(view);
	else
		vault_publish(v, view);
	return ret;
}

int vault_load(
	struct vault *v, struct slice doc, const struct vault_rules *rules, struct errmsg *msg)
{
	struct vault_view *view = vault_view_new(v->mem);

	return vault_end(v, view, vault_candidate(doc, rules, v->view, view, msg));
}

int vault_create(
	struct vault *v, struct slice doc, const struct vault_rules *rules, struct errmsg *msg)
{
	struct vault_view *view = vault_view_new(v->mem);
	int ret = vault_candidate(doc, rules, NULL, view, msg);

	if (v->view && vault_is_read(ret))
		ret = errmsg_set(msg, -EEXIST, "credential vault already exists");
	return vault_end(v, view, ret);
}

static int vault_expect(
	const struct vault *v, const struct vault_expected *expected, int ret, struct errmsg *msg)
{
	if (!vault_is_read(ret))
		return ret;
	if (!v->view)
		return errmsg_set(msg, -ENOENT, "credential vault not found");
	if (expected->given && (uint64_t)expected->revision != v->view->revision)
		return errmsg_set(msg, -ESTALE,
			"expectedRevision %" PRId64 " does not match current revision %" PRIu64,
			expected->revision, v->view->revision);
	return ret;
}

int vault_patch(
	struct vault *v, struct slice doc, const struct vault_rules *rules, struct errmsg *msg)
{
	struct vault_view *view = vault_view_new(v->mem);
	struct vault_expected expected = {.given = false};
	int ret;

	view->revision = vault_revision(v) + 1;
	ret = vault_patch_decode(doc, v->view, view, &expected, msg);
	ret = vault_expect(v, &expected, ret, msg);
	if (ret == 0)
		ret = vault_view_resolve(view, msg);
	if (ret == 0)
		ret = vault_finish(view, rules, msg);
	return vault_end(v, view, ret);
}

int vault_delete(struct vault *v, struct errmsg *msg)
{
	if (!v->view)
		return errmsg_set(msg, -ENOENT, "credential vault not found");
	vault_publish(v, NULL);
	return 0;
}

int vault_check(const struct vault *v, const struct vault_rules *rules, struct errmsg *msg)
{
	return v->view ? vault_rules_check(v->view, rules, msg) : 0;
}

bool vault_exists(const struct vault *v)
{
	return v->view != NULL;
}

uint64_t vault_revision(const struct vault *v)
{
	return v->view ? v->view->revision : 0;
}

char *vault_encode(const struct vault *v, size_t *len)
{
	char *blob;

	*len = 0;
	if (!v->view)
		return NULL;
	*len = vault_json_encode(v->view, NULL);
	blob = secmem_alloc(v->mem, *len);
	if (blob)
		(void)vault_json_encode(v->view, blob);
	return blob;
}

int vault_decode(struct vault *v, struct slice blob, struct errmsg *msg)
{
	struct vault_view *view = vault_view_new(v->mem);
	int ret = vault_json_decode(blob, VAULT_JSON_BLOB, view, msg);

	if (ret == 0)
		ret = vault_view_resolve(view, msg);
	if (ret == 0)
		ret = vault_view_compile(view, msg);
	if (ret < 0) {
		vault_view_unref(view);
		return ret;
	}
	vault_publish(v, view);
	return 0;
}

char *vault_state_json(const struct vault *v)
{
	return v->view ? vault_json_state(v->view) : NULL;
}

struct vault_view *vault_view_get(struct vault *v)
{
	return v->view ? vault_view_ref(v->view) : NULL;
}
