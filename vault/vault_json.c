/* The vault document: text, then jansson's tree in memory that is wiped, then a view.
 *
 * The text is walked once before jansson sees it: nesting and the number of containers are bounded
 * there. The tree lies in ordinary memory, since a document of 1 MiB would not fit into the locked
 * one where that is small; every block of it is wiped when it is given back. */
#include "vault/vault_json.h"

#include <stdlib.h>

#include "policy/key_table.h"
#include "vault/vault_json_int.h"

/* In front of each block of a tree: its size, for the wiping. */
#define WIPED_HEAD 16

static void *wiped_alloc(size_t len)
{
	char *p = xmalloc(WIPED_HEAD + len);

	memcpy(p, &len, sizeof(len));
	return p + WIPED_HEAD;
}

static void wiped_free(void *block)
{
	char *p = block;
	size_t len;

	if (!p)
		return;
	p -= WIPED_HEAD;
	memcpy(&len, p, sizeof(len));
	explicit_bzero(p, WIPED_HEAD + len);
	free(p);
}

const char *vault_quote(struct slice s, char buf[VAULT_QUOTE_MAX])
{
	size_t room = VAULT_QUOTE_MAX - sizeof("...");
	size_t n = s.len < room ? s.len : room;

	for (size_t i = 0; i < n; i++) {
		char c = s.p[i];

		buf[i] = c >= 0x20 && c < 0x7f && c != '"' ? c : '?';
	}
	memcpy(buf + n, n < s.len ? "..." : "", n < s.len ? sizeof("...") : 1);
	return buf;
}

/* Offset behind the closing quote of the string that begins at `from`, or len. */
static size_t vault_json_string_end(struct slice doc, size_t from)
{
	for (size_t i = from + 1; i < doc.len; i++) {
		if (doc.p[i] == '\\')
			i++;
		else if (doc.p[i] == '"')
			return i + 1;
	}
	return doc.len;
}

/* What is no JSON passes: jansson says where. */
static int vault_json_walk(struct slice doc, struct errmsg *msg)
{
	size_t depth = 0;
	size_t containers = 0;

	for (size_t i = 0; i < doc.len; i++) {
		char c = doc.p[i];

		if (c == '"') {
			i = vault_json_string_end(doc, i) - 1;
		} else if (c == '[' || c == '{') {
			if (++depth > VAULT_JSON_DEPTH_MAX)
				return errmsg_set(msg, E_LIMIT, "nested deeper than %d",
					VAULT_JSON_DEPTH_MAX);
			if (++containers > VAULT_JSON_CONTAINERS_MAX)
				return errmsg_set(msg, E_LIMIT, "more than %u objects and lists",
					VAULT_JSON_CONTAINERS_MAX);
		} else if ((c == ']' || c == '}') && depth > 0) {
			depth--;
		}
	}
	return 0;
}

static const char *json_type_name(json_type type)
{
	switch (type) {
	case JSON_STRING:
		return "a text";
	case JSON_ARRAY:
		return "a list";
	case JSON_OBJECT:
		return "an object";
	case JSON_INTEGER:
		return "a whole number";
	case JSON_REAL:
	case JSON_TRUE:
	case JSON_FALSE:
	case JSON_NULL:
		break;
	}
	return "something else";
}

int json_fields_read(const json_t *object, struct json_field *fields, size_t n, struct errmsg *msg)
{
	/* jansson has no iterator for const objects; this one changes nothing. */
	json_t *open = (json_t *)(uintptr_t)object;

	if (!json_is_object(object))
		return errmsg_set(msg, E_SYNTAX, "an object was expected");
	for (void *it = json_object_iter(open); it; it = json_object_iter_next(open, it)) {
		const char *key = json_object_iter_key(it);
		const json_t *value = json_object_iter_value(it);
		char quoted[VAULT_QUOTE_MAX];
		size_t i = 0;

		while (i < n && strcmp(fields[i].name, key) != 0)
			i++;
		if (i == n)
			return errmsg_set(msg, E_UNKNOWN, "unknown field \"%s\"",
				vault_quote(slice_str(key), quoted));
		if (json_is_null(value))
			continue;
		if (json_typeof(value) != fields[i].type)
			return errmsg_set(msg, E_SYNTAX, "%s: %s was expected", fields[i].name,
				json_type_name(fields[i].type));
		fields[i].value = value;
	}
	return 0;
}

struct slice json_text(const json_t *value)
{
	if (!value)
		return SLICE_EMPTY;
	return slice_make(json_string_value(value), json_string_length(value));
}

int json_texts_read(struct json_reader *r, const json_t *list, const char *field,
	int (*each)(char *text, size_t *len, struct errmsg *msg), struct text_list *out)
{
	size_t n = json_array_size(list);
	struct key_table *known = key_table_new(n);
	int ret = 0;

	out->n = 0;
	out->items = arena_alloc(&r->view->arena, (n ? n : 1) * sizeof(*out->items));
	for (size_t i = 0; i < n && ret == 0; i++) {
		const json_t *item = json_array_get(list, i);
		char *copy;
		struct slice text;

		if (!json_is_string(item)) {
			ret = errmsg_set(
				r->msg, E_SYNTAX, "%s: a list of texts was expected", field);
			break;
		}
		text = slice_strip(json_text(item));
		copy = arena_alloc(&r->view->arena, text.len + 1);
		memcpy(copy, text.p, text.len);
		if (each)
			ret = each(copy, &text.len, r->msg);
		text.p = copy;
		if (ret == 0 && key_table_put(known, text) == out->n)
			out->items[out->n++] = text;
	}
	key_table_free(known);
	return ret;
}

static bool json_has_control(struct slice s)
{
	for (size_t i = 0; i < s.len; i++)
		if ((uint8_t)s.p[i] < 0x20 || s.p[i] == 0x7f)
			return true;
	return false;
}

int json_name_read(struct json_reader *r, const json_t *value, const char *what, struct slice *out)
{
	struct slice name = slice_strip(json_text(value));

	if (name.len == 0)
		return errmsg_set(r->msg, E_VALUE, "%s name cannot be blank", what);
	if (name.len > CREDENTIAL_NAME_MAX)
		return errmsg_set(r->msg, E_VALUE, "%s name is longer than %d bytes", what,
			CREDENTIAL_NAME_MAX);
	if (json_has_control(name))
		return errmsg_set(r->msg, E_VALUE, "%s name has a control byte", what);
	*out = arena_dup(&r->view->arena, name);
	return 0;
}

/* The value moves into locked memory. jansson took neither NUL nor broken UTF-8. */
static int vault_json_value(struct json_reader *r, struct slice value, struct credential *out)
{
	if (value.len == 0)
		return errmsg_set(r->msg, E_VALUE, "inline credential value cannot be empty");
	if (value.len > CREDENTIAL_VALUE_MAX)
		return errmsg_set(r->msg, E_VALUE,
			"inline credential value is longer than %d bytes", CREDENTIAL_VALUE_MAX);
	out->value = secret_new(r->view->mem, value);
	if (!out->value)
		return errmsg_set(r->msg, E_FULL, "no locked memory is left for its value");
	return 0;
}

static int vault_json_source(struct json_reader *r, const json_t *value, struct credential *out)
{
	struct json_field f[] = {
		{"type", JSON_STRING, NULL},
		{"value", JSON_STRING, NULL},
	};
	char quoted[VAULT_QUOTE_MAX];
	struct slice type;
	int ret = value ? json_fields_read(value, f, ARRAY_LEN(f), r->msg) : 0;

	if (ret < 0)
		return errmsg_prefix(r->msg, ret, "parse inline credential source");
	type = json_text(f[0].value);
	if (type.len > 0 && !slice_eq(type, SLICE("inline")))
		return errmsg_set(r->msg, E_VALUE, "unsupported credential source type \"%s\"",
			vault_quote(type, quoted));
	return vault_json_value(r, json_text(f[1].value), out);
}

/* Only the blob has revisions: elsewhere the field, the last of its table, is unknown. */
static size_t vault_json_n_fields(const struct json_reader *r, size_t n)
{
	return r->kind == VAULT_JSON_BLOB ? n : n - 1;
}

static int vault_json_revision(struct json_reader *r, const json_t *value, uint64_t *out)
{
	if (r->kind != VAULT_JSON_BLOB)
		return 0;
	if (!value || json_integer_value(value) < 1)
		return errmsg_set(r->msg, E_VALUE, "revision: at least 1 was expected");
	*out = (uint64_t)json_integer_value(value);
	return 0;
}

int vault_json_credential(struct json_reader *r, const json_t *value, struct credential *out)
{
	struct json_field f[] = {
		{"name", JSON_STRING, NULL},
		{"source", JSON_OBJECT, NULL},
		{"revision", JSON_INTEGER, NULL},
	};
	char quoted[VAULT_QUOTE_MAX];
	int ret = json_fields_read(value, f, vault_json_n_fields(r, ARRAY_LEN(f)), r->msg);

	if (ret == 0)
		ret = vault_json_revision(r, f[2].value, &out->revision);
	if (ret == 0)
		ret = json_name_read(r, f[0].value, "credential", &out->name);
	if (ret < 0)
		return ret;
	ret = vault_json_source(r, f[1].value, out);
	if (ret < 0)
		return errmsg_prefix(
			r->msg, ret, "credential \"%s\"", vault_quote(out->name, quoted));
	return 0;
}

static int vault_json_tree(struct json_reader *r, const json_t *root)
{
	struct json_field f[] = {
		{"credentials", JSON_ARRAY, NULL},
		{"bindings", JSON_ARRAY, NULL},
		{"revision", JSON_INTEGER, NULL},
	};
	struct vault_view *view = r->view;
	int ret = json_fields_read(root, f, vault_json_n_fields(r, ARRAY_LEN(f)), r->msg);
	size_t n_credentials = json_array_size(f[0].value);
	size_t n_bindings = json_array_size(f[1].value);

	if (ret == 0)
		ret = vault_json_revision(r, f[2].value, &view->revision);
	if (ret < 0)
		return ret;
	view->credentials = xcalloc(n_credentials + 1, sizeof(*view->credentials));
	view->bindings = xcalloc(n_bindings + 1, sizeof(*view->bindings));
	for (size_t i = 0; i < n_credentials; i++) {
		/* Counted before it is filled, so that the view frees what is there. */
		view->n_credentials++;
		ret = vault_json_credential(
			r, json_array_get(f[0].value, i), &view->credentials[i]);
		if (ret < 0)
			return ret;
	}
	for (size_t i = 0; i < n_bindings; i++) {
		view->n_bindings++;
		view->bindings[i].mem = view->mem;
		ret = vault_json_binding(r, json_array_get(f[1].value, i), &view->bindings[i]);
		if (ret < 0)
			return ret;
	}
	return 0;
}

/* jansson's own text quotes the document, and with it a value: only the place is told. */
static json_t *vault_json_load(struct slice doc, struct errmsg *msg)
{
	json_error_t error;
	json_t *root = json_loadb(doc.p, doc.len, JSON_REJECT_DUPLICATES, &error);

	if (!root && json_error_code(&error) == json_error_duplicate_key)
		(void)errmsg_set(msg, E_SYNTAX, "line %d, column %d: a field stands there twice",
			error.line, error.column);
	else if (!root)
		(void)errmsg_set(msg, E_SYNTAX, "line %d, column %d: not valid JSON", error.line,
			error.column);
	explicit_bzero(&error, sizeof(error));
	return root;
}

int vault_json_read(struct slice doc, struct json_reader *r,
	int (*read)(struct json_reader *r, const json_t *root))
{
	json_malloc_t old_malloc;
	json_free_t old_free;
	json_t *root;
	int ret;

	if (doc.len > VAULT_DOC_MAX && r->kind != VAULT_JSON_BLOB)
		return errmsg_set(r->msg, E_LIMIT, "%zu bytes; a vault document has at most %u",
			doc.len, VAULT_DOC_MAX);
	ret = vault_json_walk(doc, r->msg);
	if (ret < 0)
		return ret;
	json_get_alloc_funcs(&old_malloc, &old_free);
	json_set_alloc_funcs(wiped_alloc, wiped_free);
	root = vault_json_load(doc, r->msg);
	ret = root ? read(r, root) : E_SYNTAX;
	json_decref(root);
	json_set_alloc_funcs(old_malloc, old_free);
	return ret;
}

int vault_json_decode(
	struct slice doc, enum vault_json_kind kind, struct vault_view *view, struct errmsg *msg)
{
	struct json_reader r = {kind, view, msg};

	return vault_json_read(doc, &r, vault_json_tree);
}
