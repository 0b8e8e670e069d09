/* The verdict of policy about a name, an address, and an address that a name resolved to. Pure.
 *
 * Names: first match in list order among name and wildcard rules, else the default action
 * (reference 4). Addresses: among IP and CIDR rules deny wins, wherever it stands (reference 6.2).
 *
 * Where the policy has a ceiling, what it allows has to be allowed by the ceiling as well, judged
 * as a policy of its own; else the reason is ABOVE_CEILING, and the rule the ceiling's.
 */
#pragma once

#include "policy/policy.h"

struct verdict {
	bool allow;
	enum reason reason;
	int32_t rule;    /* index, or POLICY_DEFAULT_RULE; below that: POLICY_CEILING_RULE */
	bool exact;      /* an exact name rule, or an IP or CIDR rule, matched */
	bool names_port; /* the rule that matched lists this port */
};

/* Names whose private answers are ordinary: suffixes in normal form; single labels always. */
struct private_names {
	char **suffix;
	size_t n;
};

/* name in normal form (hostname.h). port 0: whatever port (the DNS gate). */
struct verdict policy_check_name(const struct policy *p, struct slice name, uint16_t port);

/* A rule of the policy, or of its ceiling, denies this name (no default action does). */
bool policy_denies_name(const struct policy *p, struct slice name);
/* v, policy_check_name's verdict for it, is of an exact rule; and the ceiling has one too, or has
 * no rule about this name. */
bool policy_is_exact(const struct policy *p, struct slice name, const struct verdict *v);

/* A literal address as target. Loopback, link-local, metadata, shared, multicast, unspecified and
 * reserved ones need an IP or CIDR rule even when the default action is allow. */
struct verdict policy_check_addr(const struct policy *p, const struct netaddr *a, uint16_t port);

/* May we connect to `a`, which `name` resolved to? by: policy_check_name's verdict for it.
 * Denied addresses never; special classes only by an IP or CIDR rule; private ones by such a rule,
 * or for an exactly allowed name, or for one under private names. Rejects with ADDRESS_REFUSED. */
struct verdict policy_check_answer(const struct policy *p, const struct private_names *priv,
	struct slice name, const struct verdict *by, const struct netaddr *a, uint16_t port);

bool private_names_has(const struct private_names *priv, struct slice name);

/* An IP or CIDR rule allows this address and none denies it. A rule for ports alone says nothing
 * about an address, so it opens no private one to writes. */
bool policy_addr_rule_allows(const struct policy *p, const struct netaddr *a, uint16_t port);
