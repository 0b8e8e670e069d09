/* Reading jansson's tree strictly: shared by vault_json.c (document, credentials) and
 * vault_json_binding.c and vault_patch.c. Messages name fields, never a value of a credential. */
#pragma once

#include <jansson.h>

#include "vault/vault_int.h"
#include "vault/vault_json.h"

struct json_reader {
	enum vault_json_kind kind;
	struct vault_view *view;
	struct errmsg *msg;
};

/* A field that an object may have: NULL if absent or null. */
struct json_field {
	const char *name;
	json_type type;
	const json_t *value;
};

/* Bounds and parses doc, and lets read look at the tree, every block of which is wiped. */
CHECKED int vault_json_read(struct slice doc, struct json_reader *r,
	int (*read)(struct json_reader *r, const json_t *root));
/* Fills the values. E_UNKNOWN for any other field, E_SYNTAX for a value of another type. */
CHECKED int json_fields_read(
	const json_t *object, struct json_field *fields, size_t n, struct errmsg *msg);
/* Borrowed from the tree; empty for NULL. */
struct slice json_text(const json_t *value);
/* Strings of a list, trimmed and each once, in the view's arena; NULL gives none. each, if not
 * NULL, checks and normalises one in place: room for its own length. */
CHECKED int json_texts_read(struct json_reader *r, const json_t *list, const char *field,
	int (*each)(char *text, size_t *len, struct errmsg *msg), struct text_list *out);
/* A name: trimmed, not blank, no control byte, at most CREDENTIAL_NAME_MAX bytes. */
CHECKED int json_name_read(
	struct json_reader *r, const json_t *value, const char *what, struct slice *out);

CHECKED int vault_json_credential(
	struct json_reader *r, const json_t *value, struct credential *out);

/* --- vault_json_binding.c --- */
CHECKED int vault_json_binding(struct json_reader *r, const json_t *value, struct binding *out);
/* --- vault_json_auth.c --- */
CHECKED int vault_json_auth(struct json_reader *r, const json_t *value, struct binding *out);
