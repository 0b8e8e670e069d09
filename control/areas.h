/* The layout of the two areas that outlive a worker: what lies where. The supervisor makes them and
 * writes the CA once; the worker writes everything else. Offsets are page-aligned, and pages that
 * nobody touched cost nothing, so room is generous.
 *
 * A cell (base/state.h) keeps two copies of its content, each with a header. */
#pragma once

#include "audit/audit.h"
#include "policy/policy_json.h"
#include "proxy/ca.h"

#define AREA_PAGE 4096u
#define AREA_CELL_HEADERS AREA_PAGE /* room for both headers of a cell and its alignment */
#define AREA_CELL_LEN(max) (2 * (size_t)(max) + AREA_CELL_HEADERS)

/* Secret area: the CA cell alone. */
#define AREA_SECRET_CA 0
#define AREA_SECRET_CA_LEN AREA_CELL_LEN(CA_BLOB_MAX)
#define AREA_SECRET_LEN (AREA_SECRET_CA + AREA_SECRET_CA_LEN)

/* Plain area: the policy cell (the document as text), then the audit trail to the end. */
#define AREA_PLAIN_POLICY 0
#define AREA_PLAIN_POLICY_LEN AREA_CELL_LEN(POLICY_DOC_MAX)
#define AREA_PLAIN_AUDIT (AREA_PLAIN_POLICY + AREA_PLAIN_POLICY_LEN)

/* audit_area_size() rounded up, after the rest. */
static inline size_t area_plain_len(void)
{
	size_t audit = (audit_area_size() + AREA_PAGE - 1) / AREA_PAGE * AREA_PAGE;

	return AREA_PLAIN_AUDIT + audit;
}
