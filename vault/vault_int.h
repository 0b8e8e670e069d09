/* What a vault view is made of: credentials, bindings, substitutions and their indexes.
 *
 * Private to this folder. Everything here is written while a view is built and never again. Texts
 * (names, hosts, paths, placeholders) lie in the view's arena, key bytes only in struct secret. */
#pragma once

#include "base/arena.h"
#include "vault/binding_index.h"
#include "vault/pattern_set.h"
#include "vault/secret.h"
#include "vault/substitute.h"
#include "vault/vault.h"

struct credential {
	struct slice name;
	uint64_t revision; /* of the vault, when it was last added or replaced */
	struct secret *value;
	bool used;      /* by a binding */
	bool in_header; /* some binding puts it there */
	bool basic;     /* some binding of type basic uses it */
};

enum auth_type { AUTH_BEARER, AUTH_BASIC, AUTH_API_KEY, AUTH_CUSTOM_HEADERS, AUTH_PASSTHROUGH };

/* A credential by its name, and once the candidate is complete the thing itself. */
struct credential_use {
	struct slice name;
	const struct credential *credential;
};

struct binding_header {
	struct slice name; /* canonical spelling */
	struct credential_use use;
};

/* Where a placeholder is replaced: a whole surface, or one named slot of it. */
struct place {
	enum surface surface;
	enum place_kind { PLACE_SURFACE, PLACE_HEADER, PLACE_QUERY, PLACE_FORM, PLACE_JSON } kind;
	struct slice name; /* of a slot; PLACE_JSON: the pointer */
};

struct substitution {
	struct slice placeholder;
	struct credential_use use;
	struct place *places;
	size_t n_places;
};

struct text_list {
	struct slice *items;
	size_t n;
};

struct binding {
	struct slice name;
	struct secmem *mem;
	bool schemes[2];       /* by binding_request.https */
	bool http_first;       /* as written */
	bool methods_explicit; /* for require_scoped_match */
	bool paths_explicit;
	struct text_list hosts; /* normal form, "*." in front of a wildcard */
	struct text_list methods;
	struct text_list paths;
	enum auth_type auth;
	struct binding_header *headers;
	size_t n_headers;
	struct substitution *substitutions;
	size_t n_substitutions;
	uint32_t surfaces;            /* BIT(enum surface) of any place */
	uint32_t slots;               /* the same, of slots only */
	struct pattern_set *patterns; /* placeholders, numbered as the substitutions */
};

struct vault_view {
	size_t refs;
	uint64_t revision;
	struct secmem *mem;
	struct arena arena;
	struct credential *credentials; /* by name */
	size_t n_credentials;
	struct binding *bindings; /* by name */
	size_t n_bindings;
	struct binding_index *index;
	struct redact_table *redactions;
	struct pattern_set *placeholders; /* of all bindings, numbered by the binding */
	struct pattern_set *keys;         /* numbered by the credential */
};

/* The most of a text from outside that a message shows, with room for the dots. */
#define VAULT_QUOTE_MAX 272

/* For messages: control bytes, quotes and non-ASCII become `?`, long texts are cut. */
const char *vault_quote(struct slice s, char buf[VAULT_QUOTE_MAX]);

/* --- view.c --- */
struct vault_view *vault_view_new(struct secmem *mem);
/* Sorts by name, finds doubles, ties names to credentials. */
CHECKED int vault_view_resolve(struct vault_view *view, struct errmsg *msg);
/* Builds the indexes and what is searched. E_FULL, E_LIMIT. */
CHECKED int vault_view_compile(struct vault_view *view, struct errmsg *msg);
const struct credential *vault_view_credential(const struct vault_view *view, struct slice name);
const struct binding *vault_view_binding(const struct vault_view *view, struct slice name);

/* --- vault_patch.c --- */

/* Of a mutation: what the caller thinks is in force. */
struct vault_expected {
	bool given;
	int64_t revision;
};

/* Fills the empty view, whose revision is set, with what is left of old (NULL: there is no vault)
 * and what the mutation brings. As vault_json_decode. */
CHECKED int vault_patch_decode(struct slice doc, const struct vault_view *old,
	struct vault_view *view, struct vault_expected *expected, struct errmsg *msg);

/* --- vault_check.c --- */
CHECKED int vault_rules_check(
	const struct vault_view *view, const struct vault_rules *rules, struct errmsg *msg);
/* What does not depend on rules: values that cannot stand where they go. */
CHECKED int vault_values_check(const struct vault_view *view, struct errmsg *msg);
/* The pairwise check of a compiled view: E_VALUE with both names. */
CHECKED int vault_ambiguity_check(const struct vault_view *view, struct errmsg *msg);

/* --- vault_json_auth.c --- */
const char *auth_type_name(enum auth_type type);
/* `body`, `header:` and so on: what stands before the name of a slot. */
const char *place_prefix(const struct place *p);

/* --- binding.c --- */
bool binding_has_method(const struct binding *b, struct slice method);
/* Can one request have a scheme and a method of both? */
bool binding_overlaps(const struct binding *a, const struct binding *b);
/* Does every path fit (pattern "/" with a star)? */
bool binding_has_any_path(const struct binding *b);
/* Splits "/v1" with a star into "/v1" and true. */
struct slice binding_pattern(struct slice written, bool *prefix);
bool binding_is_token(struct slice s);
/* A field that no credential may be put into. */
bool binding_field_is_reserved(struct slice name);
/* A field whose value no substitution touches (reference 5.3). */
bool binding_field_is_fixed(struct slice name);
