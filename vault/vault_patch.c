/* A mutation of the vault (reference 1.7): text, then jansson's tree, then a view that has what the
 * mutation brings and, of the view before it, what it does not name. Before it: vault_patch, which
 * publishes the view or drops it; so a refused mutation changes nothing. */
#include <stdio.h>
#include <stdlib.h>

#include "policy/key_table.h"
#include "vault/vault_json_int.h"

enum patch_op { PATCH_DELETE, PATCH_REPLACE, PATCH_ADD, PATCH_OP_MAX };

struct patch {
	struct json_reader r; /* the first, so that a reader is a patch */
	const struct vault_view *old;
	struct vault_expected *expected;
};

/* What differs between credentials and bindings. */
struct patch_kind {
	const char *what;
	bool (*exists)(const struct vault_view *view, struct slice name);
	/* Into the next place of the candidate. */
	int (*read)(struct patch *p, const json_t *value, struct slice *name);
};

/* The operations of one kind. */
struct patch_set {
	const struct patch_kind *kind;
	const json_t *lists[PATCH_OP_MAX];
	struct key_table *names; /* that they mention */
	enum patch_op *ops;      /* by the number of the name */
	size_t n;
};

/* --- the two kinds --- */

static bool patch_has_credential(const struct vault_view *view, struct slice name)
{
	return vault_view_credential(view, name) != NULL;
}

static bool patch_has_binding(const struct vault_view *view, struct slice name)
{
	return vault_view_binding(view, name) != NULL;
}

/* Counted before it is filled, so that the view frees what is there. */
static struct credential *patch_next_credential(struct vault_view *view)
{
	return &view->credentials[view->n_credentials++];
}

static struct binding *patch_next_binding(struct vault_view *view)
{
	struct binding *b = &view->bindings[view->n_bindings++];

	b->mem = view->mem;
	return b;
}

static int patch_read_credential(struct patch *p, const json_t *value, struct slice *name)
{
	struct credential *c = patch_next_credential(p->r.view);
	int ret = vault_json_credential(&p->r, value, c);

	c->revision = p->r.view->revision;
	*name = c->name;
	return ret;
}

static int patch_read_binding(struct patch *p, const json_t *value, struct slice *name)
{
	struct binding *b = patch_next_binding(p->r.view);
	int ret = vault_json_binding(&p->r, value, b);

	*name = b->name;
	return ret;
}

static const struct patch_kind patch_credentials = {
	"credential", patch_has_credential, patch_read_credential};
static const struct patch_kind patch_bindings = {"binding", patch_has_binding, patch_read_binding};

/* --- what stays --- */

static void patch_keep_credential(struct vault_view *view, const struct credential *before)
{
	struct credential *c = patch_next_credential(view);

	c->name = arena_dup(&view->arena, before->name);
	c->revision = before->revision;
	c->value = secret_ref(before->value);
}

static struct text_list patch_copy_texts(struct arena *arena, const struct text_list *from)
{
	struct text_list to = {arena_alloc(arena, (from->n + 1) * sizeof(*to.items)), from->n};

	for (size_t i = 0; i < from->n; i++)
		to.items[i] = arena_dup(arena, from->items[i]);
	return to;
}

/* Credentials are tied to the candidate's own later. */
static struct credential_use patch_copy_use(struct arena *arena, const struct credential_use *from)
{
	return (struct credential_use){.name = arena_dup(arena, from->name)};
}

static void patch_copy_headers(struct arena *arena, const struct binding *from, struct binding *to)
{
	to->n_headers = from->n_headers;
	to->headers = arena_alloc(arena, (from->n_headers + 1) * sizeof(*to->headers));
	for (size_t i = 0; i < from->n_headers; i++)
		to->headers[i] =
			(struct binding_header){.name = arena_dup(arena, from->headers[i].name),
				.use = patch_copy_use(arena, &from->headers[i].use)};
}

static void patch_copy_substitution(
	struct arena *arena, const struct substitution *from, struct substitution *to)
{
	*to = (struct substitution){.placeholder = arena_dup(arena, from->placeholder),
		.use = patch_copy_use(arena, &from->use),
		.places = arena_alloc(arena, (from->n_places + 1) * sizeof(*to->places)),
		.n_places = from->n_places};
	for (size_t i = 0; i < from->n_places; i++) {
		to->places[i] = from->places[i];
		to->places[i].name = arena_dup(arena, from->places[i].name);
	}
}

static void patch_keep_binding(struct vault_view *view, const struct binding *before)
{
	struct binding *b = patch_next_binding(view);
	struct arena *arena = &view->arena;

	*b = *before;
	b->patterns = NULL; /* of the view before; made anew */
	b->name = arena_dup(arena, before->name);
	b->hosts = patch_copy_texts(arena, &before->hosts);
	b->methods = patch_copy_texts(arena, &before->methods);
	b->paths = patch_copy_texts(arena, &before->paths);
	patch_copy_headers(arena, before, b);
	b->substitutions =
		arena_alloc(arena, (before->n_substitutions + 1) * sizeof(*b->substitutions));
	for (size_t i = 0; i < before->n_substitutions; i++)
		patch_copy_substitution(arena, &before->substitutions[i], &b->substitutions[i]);
}

/* --- operations --- */

/* The name is mentioned by this operation: once only, and it is there, or not. */
static int patch_mention(
	struct patch *p, struct patch_set *set, struct slice name, enum patch_op op)
{
	const char *what = set->kind->what;
	uint32_t number = key_table_put(set->names, name);
	bool exists = p->old && set->kind->exists(p->old, name);
	char quoted[VAULT_QUOTE_MAX];

	(void)vault_quote(name, quoted);
	if (number < set->n && op == PATCH_ADD && set->ops[number] == PATCH_ADD)
		return errmsg_set(p->r.msg, E_VALUE, "duplicate %s add name \"%s\"", what, quoted);
	if (number < set->n)
		return errmsg_set(p->r.msg, E_VALUE, "%s \"%s\" mentioned by multiple operations",
			what, quoted);
	set->ops[set->n++] = op;
	if (exists && op == PATCH_ADD)
		return errmsg_set(p->r.msg, E_VALUE, "%s \"%s\" already exists", what, quoted);
	if (!exists && op != PATCH_ADD)
		return errmsg_set(p->r.msg, E_VALUE, "%s \"%s\" does not exist", what, quoted);
	return 0;
}

static int patch_delete_name(
	struct patch *p, const json_t *value, const char *kind, struct slice *out)
{
	char what[sizeof("credential delete")];

	if (!json_is_string(value))
		return errmsg_set(
			p->r.msg, E_SYNTAX, "%ss: delete: a list of names was expected", kind);
	(void)snprintf(what, sizeof(what), "%s delete", kind);
	return json_name_read(&p->r, value, what, out);
}

static int patch_operations(struct patch *p, struct patch_set *set)
{
	for (enum patch_op op = PATCH_DELETE; op < PATCH_OP_MAX; op++) {
		for (size_t i = 0; i < json_array_size(set->lists[op]); i++) {
			const json_t *value = json_array_get(set->lists[op], i);
			struct slice name = SLICE_EMPTY;
			int ret;

			if (op == PATCH_DELETE)
				ret = patch_delete_name(p, value, set->kind->what, &name);
			else
				ret = set->kind->read(p, value, &name);
			if (ret == 0)
				ret = patch_mention(p, set, name, op);
			if (ret < 0)
				return ret;
		}
	}
	return 0;
}

/* object: NULL for no operations of this kind. */
static int patch_set_init(struct patch *p, struct patch_set *set, const json_t *object)
{
	struct json_field f[] = {
		[PATCH_DELETE] = {"delete", JSON_ARRAY, NULL},
		[PATCH_REPLACE] = {"replace", JSON_ARRAY, NULL},
		[PATCH_ADD] = {"add", JSON_ARRAY, NULL},
	};
	size_t n = 0;
	int ret = object ? json_fields_read(object, f, ARRAY_LEN(f), p->r.msg) : 0;

	if (ret < 0) {
		(void)errmsg_prefix(p->r.msg, ret, "%ss", set->kind->what);
		return ret;
	}
	for (size_t i = 0; i < ARRAY_LEN(f); i++) {
		set->lists[i] = f[i].value;
		n += json_array_size(f[i].value);
	}
	set->names = key_table_new(n);
	set->ops = xcalloc(n + 1, sizeof(*set->ops));
	return 0;
}

static void patch_set_fini(struct patch_set *set)
{
	key_table_free(set->names);
	free(set->ops);
}

static bool patch_mentions(const struct patch_set *set, struct slice name)
{
	return key_table_find(set->names, name) != KEY_NONE;
}

static void patch_keep(
	struct patch *p, const struct patch_set *credentials, const struct patch_set *bindings)
{
	const struct vault_view *old = p->old;

	for (size_t i = 0; old && i < old->n_credentials; i++)
		if (!patch_mentions(credentials, old->credentials[i].name))
			patch_keep_credential(p->r.view, &old->credentials[i]);
	for (size_t i = 0; old && i < old->n_bindings; i++)
		if (!patch_mentions(bindings, old->bindings[i].name))
			patch_keep_binding(p->r.view, &old->bindings[i]);
}

/* Room for all that stays and all that comes. */
static void patch_make_room(
	struct patch *p, const struct patch_set *credentials, const struct patch_set *bindings)
{
	size_t n = json_array_size(credentials->lists[PATCH_REPLACE]) +
		json_array_size(credentials->lists[PATCH_ADD]) + 1;
	size_t m = json_array_size(bindings->lists[PATCH_REPLACE]) +
		json_array_size(bindings->lists[PATCH_ADD]) + 1;
	struct vault_view *view = p->r.view;

	if (p->old) {
		n += p->old->n_credentials;
		m += p->old->n_bindings;
	}
	view->credentials = xcalloc(n, sizeof(*view->credentials));
	view->bindings = xcalloc(m, sizeof(*view->bindings));
}

static int patch_tree(struct json_reader *r, const json_t *root)
{
	struct patch *p = (struct patch *)(void *)r;
	struct patch_set credentials = {.kind = &patch_credentials};
	struct patch_set bindings = {.kind = &patch_bindings};
	struct json_field f[] = {
		{"expectedRevision", JSON_INTEGER, NULL},
		{"credentials", JSON_OBJECT, NULL},
		{"bindings", JSON_OBJECT, NULL},
	};
	int ret = json_fields_read(root, f, ARRAY_LEN(f), r->msg);

	if (ret < 0)
		return ret;
	p->expected->given = f[0].value != NULL;
	p->expected->revision = json_integer_value(f[0].value);
	ret = patch_set_init(p, &credentials, f[1].value);
	if (ret == 0)
		ret = patch_set_init(p, &bindings, f[2].value);
	if (ret == 0) {
		patch_make_room(p, &credentials, &bindings);
		ret = patch_operations(p, &credentials);
	}
	if (ret == 0)
		ret = patch_operations(p, &bindings);
	if (ret == 0)
		patch_keep(p, &credentials, &bindings);
	patch_set_fini(&credentials);
	patch_set_fini(&bindings);
	return ret;
}

int vault_patch_decode(struct slice doc, const struct vault_view *old, struct vault_view *view,
	struct vault_expected *expected, struct errmsg *msg)
{
	struct patch p = {{VAULT_JSON_POST, view, msg}, old, expected};

	return vault_json_read(doc, &p.r, patch_tree);
}
