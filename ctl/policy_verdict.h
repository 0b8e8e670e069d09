/* What the proxy would decide about one request, without sending it: composes the request, reads it
 * with the proxy's parser and asks proxy/admit and proxy/intercept, step by step as a client that
 * uses the proxy goes. Nothing is decided here. Pure. */
#pragma once

#include "control/vault_report.h"
#include "policy/policy.h"
#include "proxy/admit.h"

struct policy_question {
	struct slice method;
	struct slice url;         /* http:// or https://; CONNECT: host:port */
	const char *const *field; /* "Name: value" */
	size_t n_fields;
	bool content; /* with one byte of content */
	bool has_address;
	struct netaddr address;     /* that the name resolves to */
	struct vault_report *vault; /* NULL: none */
};

enum policy_verdict { POLICY_VERDICT_ALLOWED, POLICY_VERDICT_BLOCKED, POLICY_VERDICT_DEPENDS };

/* Where it was decided. */
enum policy_step {
	POLICY_STEP_HEAD,
	POLICY_STEP_CONNECT,
	POLICY_STEP_REQUEST,
	POLICY_STEP_ADDRESS
};

struct policy_answer {
	enum policy_verdict verdict;
	enum policy_step step;
	enum reason reason;
	const char *detail; /* of MALFORMED, static; else NULL */
	struct authority target;
	struct admission admission;
	enum vault_report_match match; /* NONE also where no request is seen */
	struct slice binding;          /* of BINDING; lives as long as the vault */
	bool unread;                   /* TLS goes through undecrypted: no request in it is seen */
	bool uncertain;                /* ALLOWED, unless the name resolves to a private address */
	char rule[RULE_TEXT_MAX];
};

/* E_VALUE with a message if the question is none: no URL, an address beside a literal one, a line
 * break, a Host field (it comes from the URL). */
CHECKED int policy_verdict_find(const struct proxy_config *c, const struct policy_question *q,
	struct policy_answer *out, struct errmsg *msg);

/* What would allow it, in the words of the proxy's own answer; false if nothing would. */
bool policy_verdict_remedy(const struct policy_answer *a, struct strbuf *out);
