/* The API documents of the vault (reference credential-vault 1.3, 1.4, 1.8), as JSON.
 *
 * jansson's allocators are global to the process. While a document is decoded they are ours, which
 * wipe what they give back, and afterwards they are what they were: whoever decodes must not be
 * called in between (one thread). */
#pragma once

#include "vault/vault.h"

#define VAULT_JSON_DEPTH_MAX 64
/* Objects and lists in a document: each costs the decoder about 250 bytes. 1 MiB of the shortest
 * credentials has 60,000. */
#define VAULT_JSON_CONTAINERS_MAX (1u << 17)

enum vault_json_kind {
	VAULT_JSON_POST, /* what an API user or an operator may write */
	VAULT_JSON_BLOB, /* vault_encode: the same with revisions, of any length */
};

/* Fills the empty view with what the document says: names, hosts and rules in normal form, keys in
 * the view's locked memory. Looks at each item alone; vault_view_resolve and vault_rules_check look
 * at the whole. E_SYNTAX (no JSON, or a field of the wrong kind), E_UNKNOWN, E_LIMIT, E_VALUE,
 * E_FULL. */
CHECKED int vault_json_decode(
	struct slice doc, enum vault_json_kind kind, struct vault_view *view, struct errmsg *msg);

/* Length of the blob of vault_encode; to: where to write it, NULL to count. */
size_t vault_json_encode(const struct vault_view *view, char *to);
/* See vault_state_json. */
char *vault_json_state(const struct vault_view *view);
