/* The vault: holds the view in force and replaces it as a whole.
 *
 * A write builds a candidate beside what is there, checks it, and only then moves one pointer: a
 * refused document changes nothing. */
#include "vault/vault.h"

#include <errno.h>
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
	ret = vault_rules_check(view, rules, msg);
	if (ret == 0)
		ret = vault_values_check(view, msg);
	if (ret == 0)
		ret = vault_view_compile(view, msg);
	return ret == 0 ? vault_ambiguity_check(view, msg) : ret;
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

int vault_load(
	struct vault *v, struct slice doc, const struct vault_rules *rules, struct errmsg *msg)
{
	struct vault_view *view = vault_view_new(v->mem);
	int ret = vault_candidate(doc, rules, v->view, view, msg);

	if (ret < 0) {
		vault_view_unref(view);
		return ret;
	}
	vault_publish(v, view);
	return 0;
}

int vault_create(
	struct vault *v, struct slice doc, const struct vault_rules *rules, struct errmsg *msg)
{
	if (v->view)
		return errmsg_set(msg, -EEXIST, "credential vault already exists");
	return vault_load(v, doc, rules, msg);
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
