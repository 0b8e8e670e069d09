/* The vault: credentials, bindings, revisions (OpenSandbox Credential Vault). The sandbox holds
 * placeholders; what is here is lent to the requests it belongs to.
 *
 * Writing validates the whole candidate, then publishes a new immutable view. An exchange takes a
 * reference at its start and keeps it to its end; the next request sees the new one. Names of
 * fields and rules, defaults and messages: reference credential-vault 1.3, 1.4, 2 to 5, mended as
 * its [R] marks and section 10 say. */
#pragma once

#include "base/err.h"
#include "base/secmem.h"
#include "policy/check.h"
#include "vault/binding.h"

#define VAULT_DOC_MAX (1u << 20)   /* bytes of an API body */
#define CREDENTIAL_VALUE_MAX 65536 /* reference 2.1 [R] */
#define CREDENTIAL_NAME_MAX 253
#define PLACEHOLDER_MIN 8 /* shorter ones are refused: they would match by accident (C130) */

struct vault;
struct vault_view;

/* What a write is checked against, beside itself. Borrowed for the call. */
struct vault_rules {
	const struct policy *policy; /* every binding host must be allowed (1.4 step 4) */
	const struct write_hosts
		*pass_through; /* a host both passed through and bound is refused */
	const struct write_hosts *write_hosts;
	bool read_only;          /* then surface `body` without a slot on a write host is refused */
	bool allow_body_surface; /* setting: lift that */
	bool allow_http;         /* setting: bindings of scheme http (W-2, C120) */
	bool require_scoped_match; /* reference 1.4 */
};

/* mem: where every key, rendered form and table lives; borrowed, must outlive the vault. */
struct vault *vault_new(struct secmem *mem);
void vault_free(struct vault *v);

/* POST: the vault must be absent (-EEXIST, unless doc cannot even be read). doc: JSON text in
 * memory of the caller, who wipes it. E_VALUE, E_SYNTAX, E_UNKNOWN (unknown field), E_LIMIT (too
 * large), E_FULL (no locked memory left): nothing changed, the message never quotes a value. 0:
 * revision 1 is published. */
CHECKED int vault_create(
	struct vault *v, struct slice doc, const struct vault_rules *rules, struct errmsg *msg);
/* PATCH (reference 1.7): deletes, then replaces, then adds, on a copy; the revision goes up by 1,
 * whatever the mutation says. -ENOENT: there is no vault; -ESTALE: its expectedRevision is not the
 * one in force; else as vault_create. */
CHECKED int vault_patch(
	struct vault *v, struct slice doc, const struct vault_rules *rules, struct errmsg *msg);
/* DELETE: -ENOENT, or there is no vault any more, and the next one begins with revision 1. */
CHECKED int vault_delete(struct vault *v, struct errmsg *msg);
/* The whole content from a file (EGRESS_VAULT_FILE, shape of POST), at start and again when the
 * file changed: replaces what is there, revision goes up by 1. */
CHECKED int vault_load(
	struct vault *v, struct slice doc, const struct vault_rules *rules, struct errmsg *msg);
/* Back to a view that was in force before (vault_view_get; NULL: there was none), which moves into
 * the vault: for a write that could not be kept. */
void vault_restore(struct vault *v, struct vault_view *view);
/* Do the bindings still fit these rules (a policy change)? E_VALUE with
 * `binding "b" host "h" is not allowed by egress policy`. */
CHECKED int vault_check(const struct vault *v, const struct vault_rules *rules, struct errmsg *msg);

bool vault_exists(const struct vault *v);
uint64_t vault_revision(const struct vault *v);

/* The content as one document for the secret area, with values; into memory of mem. The caller
 * releases it. NULL when there is no vault. *len is set. E_FULL by NULL and *len > 0. */
char *vault_encode(const struct vault *v, size_t *len);
/* What vault_encode wrote, in the next worker. */
CHECKED int vault_decode(struct vault *v, struct slice blob, struct errmsg *msg);

/* State without any value, as GET shows it: {"revision","credentials":[...],"bindings":[...]}
 * sorted by name (1.8); substitutions whole (placeholder, credential name, `in`), to be sent again.
 * Text, freed by the caller; NULL when there is no vault. */
char *vault_state_json(const struct vault *v);

/* The view in force: a reference for the caller, or NULL when there is no vault. */
struct vault_view *vault_view_get(struct vault *v);
struct vault_view *vault_view_ref(struct vault_view *view);
void vault_view_unref(struct vault_view *view);
uint64_t vault_view_revision(const struct vault_view *view);

/* --- asked for each request; see binding.h --- */

/* Is this name covered by a host pattern of any binding (whatever its scheme, method, path)?
 * Towards such hosts answers are searched, and requests ask for identity coding. Normal form. */
bool vault_view_binds_host(const struct vault_view *view, struct slice host);

enum binding_match vault_view_match(
	const struct vault_view *view, const struct binding_request *r, const struct binding **out);

/* Everything to search answers of bound hosts for: NULL when there are no keys. See redact.h. */
struct redact_table;
const struct redact_table *vault_view_redactions(const struct vault_view *view);
