/* One binding of the document: auth and substitutions (reference 4 and 5.1), with named slots
 * beside upstream's surfaces. */
#include "policy/key_table.h"
#include "vault/substitute_int.h"
#include "vault/vault_json_int.h"

#define SUBSTITUTIONS_MAX 1000 /* of a binding: each is compared with those of its placeholder */
#define PLACES_MAX 64          /* of a substitution */

static const char *const auth_types[] = {
	[AUTH_BEARER] = "bearer",
	[AUTH_BASIC] = "basic",
	[AUTH_API_KEY] = "apiKey",
	[AUTH_CUSTOM_HEADERS] = "customHeaders",
	[AUTH_PASSTHROUGH] = "passthrough",
};

const char *auth_type_name(enum auth_type type)
{
	return auth_types[type];
}

enum auth_field { AUTH_TYPE, AUTH_CREDENTIAL, AUTH_NAME, AUTH_HEADERS, AUTH_SUBSTITUTIONS };

/* Which fields belong to a type, beside type and substitutions. */
static const uint32_t auth_takes[] = {
	[AUTH_BEARER] = BIT(AUTH_CREDENTIAL),
	[AUTH_BASIC] = BIT(AUTH_CREDENTIAL),
	[AUTH_API_KEY] = BIT(AUTH_CREDENTIAL) | BIT(AUTH_NAME),
	[AUTH_CUSTOM_HEADERS] = BIT(AUTH_HEADERS),
	[AUTH_PASSTHROUGH] = 0,
};

/* A reference to a credential; empty if there is none. */
static struct slice auth_credential(struct json_reader *r, const json_t *value)
{
	return arena_dup(&r->view->arena, slice_strip(json_text(value)));
}

/* `x-api-key` and `X-API-KEY` become `X-Api-Key`. */
static struct slice auth_canonical(struct json_reader *r, struct slice name)
{
	char *p = arena_alloc(&r->view->arena, name.len + 1);
	bool upper = true;

	for (size_t i = 0; i < name.len; i++) {
		char c = ascii_lower(name.p[i]);

		p[i] = upper && c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
		upper = c == '-';
	}
	return slice_make(p, name.len);
}

static int auth_header_name(struct json_reader *r, struct slice name, struct slice *out)
{
	char quoted[VAULT_QUOTE_MAX];

	(void)vault_quote(name, quoted);
	if (!binding_is_token(name))
		return errmsg_set(r->msg, E_VALUE, "invalid credential header name \"%s\"", quoted);
	if (binding_field_is_reserved(name))
		return errmsg_set(
			r->msg, E_VALUE, "reserved credential header name \"%s\"", quoted);
	*out = auth_canonical(r, name);
	return 0;
}

static int auth_custom_header(
	struct json_reader *r, const json_t *value, struct binding_header *out)
{
	struct json_field f[] = {
		{"name", JSON_STRING, NULL},
		{"credential", JSON_STRING, NULL},
	};
	char quoted[VAULT_QUOTE_MAX];
	int ret = json_fields_read(value, f, ARRAY_LEN(f), r->msg);

	if (ret < 0)
		return errmsg_prefix(r->msg, ret, "auth.headers");
	ret = auth_header_name(r, json_text(f[0].value), &out->name);
	if (ret < 0)
		return ret;
	out->use.name = auth_credential(r, f[1].value);
	if (out->use.name.len == 0)
		return errmsg_set(r->msg, E_VALUE, "customHeaders entry \"%s\" requires credential",
			vault_quote(out->name, quoted));
	return 0;
}

static int auth_custom_headers(struct json_reader *r, const json_t *list, struct binding *out)
{
	size_t n = json_array_size(list);
	struct key_table *known;
	int ret = 0;

	if (n == 0)
		return errmsg_set(r->msg, E_VALUE, "customHeaders auth requires headers");
	known = key_table_new(n);
	out->headers = arena_alloc(&r->view->arena, n * sizeof(*out->headers));
	for (size_t i = 0; i < n && ret == 0; i++) {
		struct binding_header *h = &out->headers[i];
		char quoted[VAULT_QUOTE_MAX];

		*h = (struct binding_header){.name = SLICE_EMPTY};
		ret = auth_custom_header(r, json_array_get(list, i), h);
		/* Names are canonical, so that equal ones are equal bytes. */
		if (ret == 0 && key_table_put(known, h->name) != i)
			ret = errmsg_set(r->msg, E_VALUE, "duplicate custom header name \"%s\"",
				vault_quote(h->name, quoted));
		if (ret == 0)
			out->n_headers++;
	}
	key_table_free(known);
	return ret;
}

/* bearer, basic, apiKey: one field. */
static int auth_one_header(struct json_reader *r, const struct json_field *f, struct binding *out)
{
	struct binding_header *h = arena_alloc(&r->view->arena, sizeof(*h));

	*h = (struct binding_header){.name = SLICE("Authorization")};
	h->use.name = auth_credential(r, f[AUTH_CREDENTIAL].value);
	if (h->use.name.len == 0)
		return errmsg_set(
			r->msg, E_VALUE, "%s auth requires credential", auth_types[out->auth]);
	out->headers = h;
	out->n_headers = 1;
	if (out->auth != AUTH_API_KEY)
		return 0;
	if (json_text(f[AUTH_NAME].value).len == 0)
		return errmsg_set(r->msg, E_VALUE, "apiKey auth requires name");
	return auth_header_name(r, json_text(f[AUTH_NAME].value), &h->name);
}

struct place_name {
	const char *prefix;
	enum place_kind kind;
	enum surface surface;
};

static const struct place_name place_names[] = {
	{"path", PLACE_SURFACE, SURFACE_PATH},
	{"query", PLACE_SURFACE, SURFACE_QUERY},
	{"header", PLACE_SURFACE, SURFACE_HEADER},
	{"body", PLACE_SURFACE, SURFACE_BODY},
	{"header:", PLACE_HEADER, SURFACE_HEADER},
	{"query:", PLACE_QUERY, SURFACE_QUERY},
	{"form:", PLACE_FORM, SURFACE_BODY},
	{"json:", PLACE_JSON, SURFACE_BODY},
};

static bool place_name_ok(enum place_kind kind, struct slice name)
{
	for (size_t i = 0; i < name.len; i++)
		if ((uint8_t)name.p[i] < 0x20 || name.p[i] == 0x7f)
			return false;
	switch (kind) {
	case PLACE_SURFACE:
		return true;
	case PLACE_HEADER:
		return binding_is_token(name) && !binding_field_is_fixed(name);
	case PLACE_QUERY:
	case PLACE_FORM:
		return name.len > 0;
	case PLACE_JSON:
		return json_pointer_is_valid(name);
	}
	return false;
}

/* What `in` may hold, made the same for the same place: prefix lower case, header names too. */
static int place_normal(char *text, size_t *len, struct errmsg *msg)
{
	size_t colon = slice_find_char(slice_make(text, *len), ':');
	size_t n = colon;

	(void)msg;
	if (slice_ieq(slice_make(text, colon), SLICE("header")))
		n = *len;
	for (size_t i = 0; i < n; i++)
		text[i] = ascii_lower(text[i]);
	return 0;
}

const char *place_prefix(const struct place *p)
{
	for (size_t i = 0; i < ARRAY_LEN(place_names); i++)
		if (place_names[i].kind == p->kind && place_names[i].surface == p->surface)
			return place_names[i].prefix;
	return "";
}

static bool place_decode(struct slice text, struct place *out)
{
	size_t colon = slice_find_char(text, ':');
	struct slice prefix = slice_first(text, colon + 1);

	for (size_t i = 0; i < ARRAY_LEN(place_names); i++) {
		const struct place_name *p = &place_names[i];

		if (!slice_eq(prefix, slice_str(p->prefix)))
			continue;
		*out = (struct place){p->surface, p->kind, slice_from(text, prefix.len)};
		return place_name_ok(p->kind, out->name);
	}
	return false;
}

static int substitution_places(
	struct json_reader *r, size_t index, const json_t *list, struct substitution *out)
{
	struct text_list texts;
	char quoted[VAULT_QUOTE_MAX];
	int ret = json_texts_read(r, list, "in", place_normal, &texts);

	if (ret < 0)
		return ret;
	if (texts.n == 0)
		return errmsg_set(r->msg, E_VALUE,
			"substitution %zu requires at least one target surface", index);
	if (texts.n > PLACES_MAX)
		return errmsg_set(r->msg, E_VALUE, "substitution %zu has more than %d targets",
			index, PLACES_MAX);
	out->places = arena_alloc(&r->view->arena, texts.n * sizeof(*out->places));
	for (size_t i = 0; i < texts.n; i++)
		if (!place_decode(texts.items[i], &out->places[i]))
			return errmsg_set(r->msg, E_VALUE,
				"substitution %zu has unsupported target surface \"%s\"", index,
				vault_quote(texts.items[i], quoted));
	out->n_places = texts.n;
	return 0;
}

static int substitution_placeholder(
	struct json_reader *r, size_t index, struct slice text, struct substitution *out)
{
	if (slice_strip(text).len == 0)
		return errmsg_set(r->msg, E_VALUE, "substitution %zu requires placeholder", index);
	if (text.len < PLACEHOLDER_MIN)
		return errmsg_set(r->msg, E_VALUE,
			"substitution %zu: a placeholder has at least %d bytes", index,
			PLACEHOLDER_MIN);
	if (slice_find_char(text, '\r') < text.len || slice_find_char(text, '\n') < text.len)
		return errmsg_set(r->msg, E_VALUE,
			"substitution %zu: a placeholder has no CR and no LF", index);
	out->placeholder = arena_dup(&r->view->arena, text);
	return 0;
}

static int substitution_read(
	struct json_reader *r, size_t index, const json_t *value, struct substitution *out)
{
	struct json_field f[] = {
		{"credential", JSON_STRING, NULL},
		{"placeholder", JSON_STRING, NULL},
		{"in", JSON_ARRAY, NULL},
	};
	int ret = json_fields_read(value, f, ARRAY_LEN(f), r->msg);

	if (ret < 0)
		return errmsg_prefix(r->msg, ret, "substitution %zu", index);
	out->use.name = auth_credential(r, f[0].value);
	if (out->use.name.len == 0)
		return errmsg_set(r->msg, E_VALUE, "substitution %zu requires credential", index);
	ret = substitution_placeholder(r, index, json_text(f[1].value), out);
	return ret == 0 ? substitution_places(r, index, f[2].value, out) : ret;
}

static const char *const surface_names[] = {
	[SURFACE_PATH] = "path",
	[SURFACE_QUERY] = "query",
	[SURFACE_HEADER] = "header",
	[SURFACE_BODY] = "body",
};

/* Would both replace the same text? A surface holds all of its slots. */
static bool places_meet(const struct place *a, const struct place *b)
{
	if (a->surface != b->surface)
		return false;
	if (a->kind == PLACE_SURFACE || b->kind == PLACE_SURFACE)
		return true;
	return a->kind == b->kind && slice_eq(a->name, b->name);
}

static const struct place *substitutions_meet(
	const struct substitution *a, const struct substitution *b)
{
	for (size_t i = 0; i < a->n_places; i++)
		for (size_t k = 0; k < b->n_places; k++)
			if (places_meet(&a->places[i], &b->places[k]))
				return &a->places[i];
	return NULL;
}

static int substitution_check_earlier(struct json_reader *r, const struct binding *b, size_t index)
{
	const struct substitution *s = &b->substitutions[index];

	for (size_t i = 0; i < index; i++) {
		const struct place *place;
		char quoted[VAULT_QUOTE_MAX];

		if (!slice_eq(s->placeholder, b->substitutions[i].placeholder))
			continue;
		place = substitutions_meet(s, &b->substitutions[i]);
		if (place)
			return errmsg_set(r->msg, E_VALUE,
				"substitution %zu duplicates placeholder \"%s\" on %s surface from "
				"substitution %zu",
				index, vault_quote(s->placeholder, quoted),
				surface_names[place->surface], i);
	}
	return 0;
}

static int auth_substitutions(struct json_reader *r, const json_t *list, struct binding *out)
{
	size_t n = json_array_size(list);
	int ret = 0;

	if (n > SUBSTITUTIONS_MAX)
		return errmsg_set(r->msg, E_VALUE, "more than %d substitutions", SUBSTITUTIONS_MAX);
	out->substitutions =
		arena_alloc(&r->view->arena, (n ? n : 1) * sizeof(*out->substitutions));
	for (size_t i = 0; i < n && ret == 0; i++) {
		struct substitution *s = &out->substitutions[i];

		*s = (struct substitution){.n_places = 0};
		ret = substitution_read(r, i, json_array_get(list, i), s);
		if (ret == 0)
			ret = substitution_check_earlier(r, out, i);
		for (size_t k = 0; k < s->n_places; k++) {
			out->surfaces |= BIT(s->places[k].surface);
			if (s->places[k].kind != PLACE_SURFACE)
				out->slots |= BIT(s->places[k].surface);
		}
		out->n_substitutions++;
	}
	return ret;
}

static bool auth_is_set(const struct json_field *f)
{
	if (f->type == JSON_STRING)
		return slice_strip(json_text(f->value)).len > 0;
	return json_array_size(f->value) > 0;
}

static int auth_type_read(struct json_reader *r, struct slice text, enum auth_type *out)
{
	char quoted[VAULT_QUOTE_MAX];

	for (size_t i = 0; i < ARRAY_LEN(auth_types); i++) {
		if (slice_eq(text, slice_str(auth_types[i]))) {
			*out = (enum auth_type)i;
			return 0;
		}
	}
	return errmsg_set(
		r->msg, E_VALUE, "unsupported auth type \"%s\"", vault_quote(text, quoted));
}

int vault_json_auth(struct json_reader *r, const json_t *value, struct binding *out)
{
	struct json_field f[] = {
		[AUTH_TYPE] = {"type", JSON_STRING, NULL},
		[AUTH_CREDENTIAL] = {"credential", JSON_STRING, NULL},
		[AUTH_NAME] = {"name", JSON_STRING, NULL},
		[AUTH_HEADERS] = {"headers", JSON_ARRAY, NULL},
		[AUTH_SUBSTITUTIONS] = {"substitutions", JSON_ARRAY, NULL},
	};
	int ret = value ? json_fields_read(value, f, ARRAY_LEN(f), r->msg) : 0;

	if (ret < 0)
		return errmsg_prefix(r->msg, ret, "auth");
	ret = auth_type_read(r, json_text(f[AUTH_TYPE].value), &out->auth);
	if (ret < 0)
		return ret;
	for (size_t i = AUTH_CREDENTIAL; i <= AUTH_HEADERS; i++)
		if (auth_is_set(&f[i]) && (auth_takes[out->auth] & BIT(i)) == 0)
			return errmsg_set(r->msg, E_VALUE, "%s auth does not accept %s",
				auth_types[out->auth], f[i].name);
	switch (out->auth) {
	case AUTH_BEARER:
	case AUTH_BASIC:
	case AUTH_API_KEY:
		ret = auth_one_header(r, f, out);
		break;
	case AUTH_CUSTOM_HEADERS:
		ret = auth_custom_headers(r, f[AUTH_HEADERS].value, out);
		break;
	case AUTH_PASSTHROUGH:
		break;
	}
	return ret == 0 ? auth_substitutions(r, f[AUTH_SUBSTITUTIONS].value, out) : ret;
}
