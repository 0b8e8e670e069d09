/* A view: one revision of the vault, complete and unchanging, counted by whoever works with it.
 *
 * Built in three steps: vault_json fills it, vault_view_resolve ties names together,
 * vault_view_compile makes what requests ask. */
#include <stdlib.h>

#include "vault/key_forms.h"
#include "vault/redact.h"
#include "vault/vault_int.h"

struct vault_view *vault_view_new(struct secmem *mem)
{
	struct vault_view *view = xcalloc(1, sizeof(*view));

	view->refs = 1;
	view->mem = mem;
	arena_init(&view->arena);
	return view;
}

struct vault_view *vault_view_ref(struct vault_view *view)
{
	view->refs++;
	return view;
}

void vault_view_unref(struct vault_view *view)
{
	if (!view || --view->refs > 0)
		return;
	redact_table_free(view->redactions);
	pattern_set_free(view->placeholders);
	pattern_set_free(view->keys);
	binding_index_free(view->index);
	for (size_t i = 0; i < view->n_bindings; i++)
		pattern_set_free(view->bindings[i].patterns);
	for (size_t i = 0; i < view->n_credentials; i++)
		secret_unref(view->credentials[i].value);
	free(view->bindings);
	free(view->credentials);
	arena_fini(&view->arena);
	free(view);
}

uint64_t vault_view_revision(const struct vault_view *view)
{
	return view->revision;
}

bool vault_view_binds_host(const struct vault_view *view, struct slice host)
{
	return binding_index_has_host(view->index, host);
}

enum binding_match vault_view_match(
	const struct vault_view *view, const struct binding_request *r, const struct binding **out)
{
	return binding_index_match(view->index, r, out);
}

const struct redact_table *vault_view_redactions(const struct vault_view *view)
{
	return view->redactions;
}

static int view_name_compare(struct slice a, struct slice b)
{
	int diff = memcmp(a.p, b.p, a.len < b.len ? a.len : b.len);

	return diff != 0 ? diff : (a.len > b.len) - (a.len < b.len);
}

static int view_credential_compare(const void *a, const void *b)
{
	const struct credential *x = a;
	const struct credential *y = b;

	return view_name_compare(x->name, y->name);
}

static int view_binding_compare(const void *a, const void *b)
{
	const struct binding *x = a;
	const struct binding *y = b;

	return view_name_compare(x->name, y->name);
}

static struct credential *view_credential_find(const struct vault_view *view, struct slice name)
{
	const struct credential key = {.name = name};

	return bsearch(
		&key, view->credentials, view->n_credentials, sizeof(key), view_credential_compare);
}

const struct credential *vault_view_credential(const struct vault_view *view, struct slice name)
{
	return view_credential_find(view, name);
}

const struct binding *vault_view_binding(const struct vault_view *view, struct slice name)
{
	const struct binding key = {.name = name};

	return bsearch(&key, view->bindings, view->n_bindings, sizeof(key), view_binding_compare);
}

/* What a binding does with a credential, beside using it. */
struct view_use {
	bool in_header;
	bool basic;
};

static int view_tie(struct vault_view *view, const struct binding *b, struct credential_use *use,
	struct view_use how, struct errmsg *msg)
{
	struct credential *c = view_credential_find(view, use->name);
	char quoted[2][VAULT_QUOTE_MAX];

	if (!c)
		return errmsg_set(msg, E_VALUE,
			"binding \"%s\" references unknown credential \"%s\"",
			vault_quote(b->name, quoted[0]), vault_quote(use->name, quoted[1]));
	c->used = true;
	c->in_header |= how.in_header;
	c->basic |= how.basic;
	use->credential = c;
	return 0;
}

static bool view_substitutes_header(const struct substitution *s)
{
	for (size_t i = 0; i < s->n_places; i++)
		if (s->places[i].surface == SURFACE_HEADER)
			return true;
	return false;
}

static int view_tie_binding(struct vault_view *view, struct binding *b, struct errmsg *msg)
{
	const struct view_use header = {.in_header = true, .basic = b->auth == AUTH_BASIC};

	for (size_t i = 0; i < b->n_headers; i++) {
		int ret = view_tie(view, b, &b->headers[i].use, header, msg);

		if (ret < 0)
			return ret;
	}
	for (size_t i = 0; i < b->n_substitutions; i++) {
		struct substitution *s = &b->substitutions[i];
		const struct view_use how = {.in_header = view_substitutes_header(s)};
		int ret = view_tie(view, b, &s->use, how, msg);

		if (ret < 0)
			return ret;
	}
	return 0;
}

static int view_double(const char *what, struct slice name, struct errmsg *msg)
{
	char quoted[VAULT_QUOTE_MAX];

	return errmsg_set(
		msg, E_VALUE, "duplicate %s name \"%s\"", what, vault_quote(name, quoted));
}

int vault_view_resolve(struct vault_view *view, struct errmsg *msg)
{
	qsort(view->credentials, view->n_credentials, sizeof(*view->credentials),
		view_credential_compare);
	qsort(view->bindings, view->n_bindings, sizeof(*view->bindings), view_binding_compare);
	for (size_t i = 1; i < view->n_credentials; i++)
		if (slice_eq(view->credentials[i - 1].name, view->credentials[i].name))
			return view_double("credential", view->credentials[i].name, msg);
	for (size_t i = 1; i < view->n_bindings; i++)
		if (slice_eq(view->bindings[i - 1].name, view->bindings[i].name))
			return view_double("binding", view->bindings[i].name, msg);
	for (size_t i = 0; i < view->n_bindings; i++) {
		int ret = view_tie_binding(view, &view->bindings[i], msg);

		if (ret < 0)
			return ret;
	}
	return 0;
}

/* The placeholders of each binding, and of all. */
static void view_compile_placeholders(struct vault_view *view)
{
	struct pattern *all;
	size_t n = 0;

	for (size_t i = 0; i < view->n_bindings; i++)
		n += view->bindings[i].n_substitutions;
	all = xcalloc(n ? n : 1, sizeof(*all));
	n = 0;
	for (size_t i = 0; i < view->n_bindings; i++) {
		struct binding *b = &view->bindings[i];
		size_t first = n;

		for (size_t k = 0; k < b->n_substitutions; k++)
			all[n++] = (struct pattern){b->substitutions[k].placeholder, (uint32_t)k};
		if (n > first)
			b->patterns = pattern_set_new(NULL, false, all + first, n - first);
		for (size_t k = first; k < n; k++)
			all[k].id = (uint32_t)i;
	}
	view->placeholders = pattern_set_new(NULL, false, all, n);
	free(all);
}

/* Every credential's spellings in a request, bound or not. Shorter ones are left out: ordinary text
 * would be taken for them, and requests refused. */
static bool view_compile_keys(struct vault_view *view)
{
	struct pattern *patterns =
		xcalloc(view->n_credentials * SECRET_FORMS + 1, sizeof(*patterns));
	size_t n = 0;

	for (size_t i = 0; i < view->n_credentials; i++) {
		const struct secret *value = view->credentials[i].value;
		struct slice raw = secret_form(value, SECRET_RAW);

		if (raw.len < PATTERN_WINDOW)
			continue;
		for (enum secret_form f = SECRET_RAW; f < SECRET_FORMS; f++) {
			struct slice form = secret_form(value, f);

			if (f == SECRET_RAW || form.p != raw.p)
				patterns[n++] = (struct pattern){form, (uint32_t)i};
		}
	}
	view->keys = pattern_set_new(view->mem, true, patterns, n);
	free(patterns);
	return view->keys;
}

struct view_redact {
	struct redact_table *table;
	int ret;
};

static void view_redact_add(struct slice form, void *arg)
{
	struct view_redact *r = arg;

	if (r->ret == 0)
		r->ret = redact_table_add(r->table, form);
}

/* What may come back: the keys that bindings send. */
static bool view_compile_redactions(struct vault_view *view)
{
	struct view_redact r = {.ret = 0};

	for (size_t i = 0; i < view->n_credentials && r.ret == 0; i++) {
		const struct credential *c = &view->credentials[i];

		if (!c->used)
			continue;
		if (!r.table)
			r.table = redact_table_new(view->mem);
		if (!key_forms_each(view->mem, secret_form(c->value, SECRET_RAW), c->basic,
			    view_redact_add, &r))
			r.ret = E_FULL;
	}
	if (r.table && r.ret == 0)
		r.ret = redact_table_compile(r.table);
	view->redactions = r.table;
	return r.ret == 0;
}

int vault_view_compile(struct vault_view *view, struct errmsg *msg)
{
	view_compile_placeholders(view);
	view->index = binding_index_new(view->bindings, view->n_bindings);
	if (!view->index)
		return errmsg_set(msg, E_LIMIT,
			"bindings have more than %u pairs of host and path pattern",
			BINDING_INDEX_MAX);
	if (!view_compile_keys(view) || !view_compile_redactions(view))
		return errmsg_set(msg, E_FULL, "no locked memory is left to search for the keys");
	return 0;
}
