/* A policy: an immutable, counted snapshot of an OpenSandbox policy document, compiled.
 *
 * Built by policy_json; asked by check. Cost of a decision does not depend on the number of
 * rules. An exchange takes a reference at its start and keeps it to its end. */
#pragma once

#include "base/err.h"
#include "base/netaddr.h"
#include "policy/reason.h"

#define POLICY_RULE_PORTS_MAX 256
#define POLICY_DEFAULT_RULE (-1)
/* As which the rules of the ceiling, and its default action, stand among those of the policy. */
#define POLICY_CEILING_RULE(rule) (-3 - (rule))
#define RULE_TEXT_MAX 320

struct policy;

enum rule_kind { RULE_NAME, RULE_WILDCARD, RULE_CIDR, RULE_ANY /* ports only */ };

/* One rule as written by its author; target is a normal form. Input of policy_new. */
struct rule {
	enum rule_kind kind;
	bool allow;
	struct netcidr cidr; /* RULE_CIDR; an IP is a /128 */
	char *target;        /* RULE_NAME: "a.b"; RULE_WILDCARD: "b" of "*.b"; else NULL */
	char *written;       /* the target as the author wrote it, trimmed, for people and GET */
	uint16_t *ports;     /* sorted; NULL: every port */
	size_t n_ports;
};

/* Parses and normalises one rule from its texts; ports may be NULL. On error the message names the
 * target and what was expected: "egress target "http://x": a URL; write the host name". action and
 * target as in reference 3.10, with URLs, ports in the target, bad wildcards, broken addresses and
 * names refused, one trailing dot dropped, IDN turned to A-labels. rule_fini frees. */
CHECKED int rule_make(struct slice action, struct slice target, const uint16_t *ports,
	size_t n_ports, struct rule *out, struct errmsg *msg);
void rule_fini(struct rule *r);
void rule_copy(const struct rule *from, struct rule *to);

/* Takes the rules (their ownership moves, also on failure; never fails). One reference. */
struct policy *policy_new(bool default_allow, struct rule *rules, size_t n);
/* As policy_new, for rules of which the first n_deny are the operator's denials and the next
 * n_allow what the operator always allows (policy_file.h). By name they come first as the first of
 * the list; by address, too, whatever the rules behind them say. */
struct policy *policy_new_always(
	bool default_allow, struct rule *rules, size_t n, size_t n_deny, size_t n_allow);
/* Allows nothing, whatever asks, with the reason SANDBOX_CLOSED. */
struct policy *policy_new_closed(void);
struct policy *policy_ref(struct policy *p);
void policy_unref(struct policy *p);

/* All rules, the operator's included. */
size_t policy_n_rules(const struct policy *p);
/* Of the first ones: see policy_new_always. */
size_t policy_n_deny_always(const struct policy *p);
size_t policy_n_allow_always(const struct policy *p);
/* What no rule names is allowed, by the ceiling too if there is one. */
bool policy_default_allow(const struct policy *p);
/* The same of the policy alone, whatever the ceiling says. */
bool policy_default_alone(const struct policy *p);
/* What this policy may allow at most (policy/ceiling.h), borrowed; NULL: there is no ceiling. */
const struct policy *policy_ceiling(const struct policy *p);
/* Borrowed. index < policy_n_rules. */
const struct rule *policy_rule(const struct policy *p, size_t index);
/* `rule 3: allow *.example.com` (counted from 1, without the operator's), `deny.always 2: deny
 * a.test`, or `default action: deny`; the ceiling's with `ceiling: ` in front. Returns its length.
 */
size_t policy_rule_text(const struct policy *p, int32_t rule, char buf[RULE_TEXT_MAX]);
/* True if some allow rule lists this port. */
bool policy_names_port(const struct policy *p, uint16_t port);
