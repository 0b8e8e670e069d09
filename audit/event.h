/* What the audit trail can say: kinds, and the facts of one decision. */
#pragma once

#include "base/netaddr.h"
#include "policy/reason.h"

#define AUDIT_KIND_TABLE(X)       \
	X(READ, "read")           \
	X(WRITE, "write")         \
	X(TUNNEL, "tunnel")       \
	X(FLOW, "flow")           \
	X(DNS, "dns")             \
	X(POLICY, "policy")       \
	X(VAULT, "vault")         \
	X(CONTEXT, "context")     \
	X(LIFECYCLE, "lifecycle") \
	X(GUARD, "guard")         \
	X(START, "start")         \
	X(STOP, "stop")           \
	X(GAP, "gap")

enum audit_kind {
#define X(id, name) AUDIT_##id,
	AUDIT_KIND_TABLE(X)
#undef X
		AUDIT_KIND_MAX
};

#define AUDIT_VERDICT_TABLE(X)                                           \
	X(ALLOWED, "allowed")                                            \
	X(BLOCKED, "blocked") /* refused by us: nothing went upstream */ \
	X(FAILED, "failed")   /* allowed, but it did not work out */     \
	X(OPEN, "open")       /* long tunnels and streams, while they run */

enum audit_verdict {
#define X(id, name) AUDIT_##id,
	AUDIT_VERDICT_TABLE(X)
#undef X
		AUDIT_VERDICT_MAX
};

#define AUDIT_ID_LEN 16     /* X-Egress-Decision: hexadecimal digits */
#define AUDIT_URL_MAX 1024  /* bytes kept; longer ones carry their length and SHA-256 */
#define AUDIT_AGENT_MAX 128 /* bytes of User-Agent kept */
#define AUDIT_METHOD_MAX 24
#define AUDIT_RULE_MAX 96 /* bytes of the rule's text kept */
#define AUDIT_UID_NONE UINT32_MAX
/* Bytes of a context as it stands in a line. It is in every line and slot. */
#define AUDIT_CONTEXT_MAX 512

/* All slices are borrowed for the call; empty means "not known" and is written as null. */
struct audit_event {
	enum audit_kind kind;
	enum audit_verdict verdict;
	enum reason reason;
	struct slice method;
	struct slice url;     /* as the client sent it, scheme and authority included; event_json
				 drops userinfo and masks secret query values */
	struct slice host;    /* the name that was judged, or the address */
	struct slice via;     /* "proxy", "connect", "redirect" */
	struct slice alpn;    /* "http/1.1", "h2", empty */
	struct slice rule;    /* policy_rule_text */
	struct slice binding; /* name of the credential binding */
	struct slice proof;   /* which facts about the origin held, when there is a vault */
	uint64_t revision;    /* of the vault, 0 if there is none */
	struct slice user_agent;
	struct netaddr addr; /* the address we connected to */
	bool has_addr;
	uint16_t port;
	uint16_t status;   /* sent to the client, 0 if none */
	uint32_t uid;      /* Linux user of the client's socket, AUDIT_UID_NONE */
	uint64_t up, down; /* bytes of head and content sent upstream; of content to the client */
	uint64_t start_us; /* clock_wall_us at the start: `ts` */
	uint64_t ms;       /* duration */
	uint32_t count;    /* of a summarised refusal; 0 and 1: itself */
};
