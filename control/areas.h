/* The layout of the areas that outlive a worker: what lies where. The supervisor makes them and
 * writes the CA once; the worker writes everything else. Offsets are page-aligned, and pages that
 * nobody touched cost nothing, so room is generous.
 *
 * A cell (base/state.h) keeps two copies of its content, each with a header.
 *
 * Secret and vault area are locked in memory. They are two, so that the CA stays locked where the
 * limit (RLIMIT_MEMLOCK) has no room for a vault: 64 KiB on older container hosts. */
#pragma once

#include "audit/audit.h"
#include "dns/leases.h"
#include "policy/policy_json.h"
#include "proxy/ca.h"
#include "vault/vault.h"

#define AREA_PAGE 4096u
#define AREA_CELL_HEADERS AREA_PAGE /* room for both headers of a cell and its alignment */
#define AREA_CELL_LEN(max) (2 * (size_t)(max) + AREA_CELL_HEADERS)

/* Secret area: the CA cell alone. */
#define AREA_SECRET_CA 0
#define AREA_SECRET_CA_LEN AREA_CELL_LEN(CA_BLOB_MAX)
#define AREA_SECRET_LEN (AREA_SECRET_CA + AREA_SECRET_CA_LEN)

/* Vault area: one cell. A document as it is kept has more in it than what was read: defaults
 * written out, revisions. */
#define AREA_VAULT_DOC_MAX (VAULT_DOC_MAX + VAULT_DOC_MAX / 2)
#define AREA_VAULT_LEN AREA_CELL_LEN(AREA_VAULT_DOC_MAX)

/* What a worker has to lock at the same time: both areas, a document that is just being handed over
 * (control/vault_feed.h), and the memory that the vault works in. */
#define AREA_FEED_LEN_MAX (VAULT_DOC_MAX + AREA_PAGE)
#define AREA_WORK_MIN ((size_t)3 << 20) /* a document of 1 MiB, its keys in all their forms */
#define AREA_WORK_MAX ((size_t)16 << 20)
#define AREA_LOCKED_FIXED (AREA_SECRET_LEN + AREA_VAULT_LEN + AREA_FEED_LEN_MAX)

/* Takes the limit up as far as we may, for this process and those that it starts. */
void area_raise_limit(void);
/* Does the limit let a worker lock all of it? Else the vault's part is not locked at all: the
 * document has to fit, and a lock of some of it would promise what it does not keep. */
bool area_lock_fits(void);
/* The size of the memory that the vault works in. */
size_t area_work_len(void);

/* Plain area: the policy cell (the document as text, and with it the operator's rules), a small
 * cell for what the worker has to remember (struct worker_meta), leases in use, then the audit
 * trail to the end. */
#define AREA_PLAIN_POLICY 0
#define AREA_PLAIN_POLICY_LEN AREA_CELL_LEN(POLICY_DOC_MAX)
#define AREA_PLAIN_META (AREA_PLAIN_POLICY + AREA_PLAIN_POLICY_LEN)
#define AREA_PLAIN_META_LEN AREA_PAGE
#define AREA_PLAIN_LEASES (AREA_PLAIN_META + AREA_PLAIN_META_LEN)
#define AREA_PLAIN_LEASES_LEN AREA_CELL_LEN(LEASES_KEEP_MAX)
#define AREA_PLAIN_AUDIT (AREA_PLAIN_LEASES + AREA_PLAIN_LEASES_LEN)

/* audit_area_size() rounded up, after the rest. */
static inline size_t area_plain_len(void)
{
	size_t audit = (audit_area_size() + AREA_PAGE - 1) / AREA_PAGE * AREA_PAGE;

	return AREA_PLAIN_AUDIT + audit;
}
