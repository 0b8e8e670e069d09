/* /audit: pages of the audit trail as it stands in every sink, and /audit/context, the labels that
 * its lines carry. Before it: api.c; after it: audit/audit.h, which has the lines in memory. A
 * caller is answered with a copy at once: one that reads slowly holds nothing up. */
#pragma once

#include "audit/audit.h"
#include "control/api.h"

#define API_AUDIT_METHODS "GET"
#define API_AUDIT_CONTEXT_METHODS "GET, PUT"

/* Lines of one answer, and bytes, whichever comes first. */
#define API_AUDIT_LINES_DEFAULT 100
#define API_AUDIT_LINES_MAX 1000
#define API_AUDIT_BYTES_MAX (256u << 10)

/* Labels of AUDIT_CONTEXT_MAX bytes, each byte as an escape, and room for white space. */
#define API_AUDIT_CONTEXT_BODY_MAX 4096u

struct api_audit_query {
	bool has_after; /* else from the oldest line on that is there */
	uint64_t after;
	uint32_t limit;
};

/* --- api_audit_decode.c --- */

/* `after=SEQ&limit=N`, each at most once, in any order. E_VALUE: the message says what was expected
 * where. */
CHECKED int api_audit_query_decode(
	struct slice query, struct api_audit_query *q, struct errmsg *msg);
/* `{"labels": {"name": "value"}}`; `{}` has none. E_SYNTAX, E_VALUE; E_LIMIT: too long. */
CHECKED int api_audit_context_decode(struct slice body, struct context *c, struct errmsg *msg);

/* --- api_audit.c: each answers --- */

void api_audit_run(const struct audit *a, struct api_call *call);
/* complete: puts what is not the caller's to the caller's labels. */
void api_audit_context_run(struct audit *a, struct api_call *call,
	void (*complete)(struct context *c, void *arg), void *arg);
