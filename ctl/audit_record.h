/* One line of the audit trail, decoded, as cells of text. Pure. Readers: filter and print. */
#pragma once

#include <jansson.h>

#include "base/err.h"
#include "base/slice.h"

/* In the order of the line; `count` only stands in lines that summarise. */
#define AUDIT_COLUMN_TABLE(X)       \
	X(SEQ, "seq")               \
	X(TS, "ts")                 \
	X(ID, "id")                 \
	X(SANDBOX, "sandbox")       \
	X(CONTEXT, "context")       \
	X(KIND, "kind")             \
	X(VERDICT, "verdict")       \
	X(REASON, "reason")         \
	X(METHOD, "method")         \
	X(URL, "url")               \
	X(HOST, "host")             \
	X(PORT, "port")             \
	X(ADDR, "addr")             \
	X(STATUS, "status")         \
	X(UP, "up")                 \
	X(DOWN, "down")             \
	X(MS, "ms")                 \
	X(VIA, "via")               \
	X(ALPN, "alpn")             \
	X(RULE, "rule")             \
	X(BINDING, "binding")       \
	X(REVISION, "revision")     \
	X(PROOF, "proof")           \
	X(UID, "uid")               \
	X(USER_AGENT, "user_agent") \
	X(COUNT, "count")           \
	X(PREV, "prev")

enum audit_column {
#define X(id, name) AUDIT_COLUMN_##id,
	AUDIT_COLUMN_TABLE(X)
#undef X
		AUDIT_COLUMN_MAX
};

const char *audit_column_name(enum audit_column c);

struct audit_record {
	json_t *root;
	uint64_t start_us; /* `ts` */
	struct slice
		cell[AUDIT_COLUMN_MAX]; /* points into root, context or number; null is empty */
	char *context;                  /* as compact JSON; NULL: none */
	char number[AUDIT_COLUMN_MAX][24];
};

/* line: without its newline. E_SYNTAX with a message if it is no JSON object, has no seq, time,
 * kind, verdict or reason, or a field that is neither text, number nor null (`context`: an object
 * or null). audit_record_fini also
 * after a failure. Unknown fields are left to newer versions. */
CHECKED int audit_record_decode(struct slice line, struct audit_record *r, struct errmsg *msg);
void audit_record_fini(struct audit_record *r);
