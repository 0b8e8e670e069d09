/* Verdicts: names from the domain index, addresses from the address index and their class.
 *
 * Called for each request and each DNS answer; what is asked here is looked up in the compiled
 * policy, so the cost does not depend on its length. */
#include "policy/check.h"

#include "policy/policy_int.h"

static const struct verdict check_closed = {
	.reason = REASON_SANDBOX_CLOSED, .rule = POLICY_DEFAULT_RULE};

static bool check_rule_names_port(const struct policy *p, int32_t rule, uint16_t port)
{
	return port != 0 && p->rules[rule].n_ports > 0;
}

/* What the policy allows and the ceiling does not. */
static struct verdict check_above(struct verdict v, const struct verdict *ceiling)
{
	v.allow = v.exact = v.names_port = false;
	v.reason = REASON_ABOVE_CEILING;
	v.rule = POLICY_CEILING_RULE(ceiling->rule);
	return v;
}

static struct verdict check_name_alone(const struct policy *p, struct slice name, uint16_t port)
{
	int32_t rule = domain_index_find(p->names, name, port);
	const struct rule *r;

	if (p->closed)
		return check_closed;
	if (rule == RULE_NONE)
		return (struct verdict){
			.allow = p->default_allow,
			.reason = p->default_allow ? REASON_ALLOWED_BY_DEFAULT
						   : REASON_HOST_NOT_LISTED,
			.rule = POLICY_DEFAULT_RULE,
		};
	r = &p->rules[rule];
	return (struct verdict){
		.allow = r->allow,
		.reason = r->allow ? REASON_ALLOWED : REASON_DENIED,
		.rule = rule,
		.exact = r->kind == RULE_NAME,
		.names_port = check_rule_names_port(p, rule, port),
	};
}

struct verdict policy_check_name(const struct policy *p, struct slice name, uint16_t port)
{
	struct verdict v = check_name_alone(p, name, port);
	struct verdict most;

	if (!v.allow || !p->ceiling)
		return v;
	most = policy_check_name(p->ceiling, name, port);
	return most.allow ? v : check_above(v, &most);
}

bool policy_denies_name(const struct policy *p, struct slice name)
{
	return check_name_alone(p, name, 0).reason == REASON_DENIED ||
		(p->ceiling && policy_denies_name(p->ceiling, name));
}

bool policy_is_exact(const struct policy *p, struct slice name, const struct verdict *v)
{
	struct verdict most;

	if (!v->exact || !p->ceiling)
		return v->exact;
	most = policy_check_name(p->ceiling, name, 0);
	return most.exact || most.rule == POLICY_DEFAULT_RULE;
}

/* IPv4 addresses inside IPv6 ones. A packet to such an address ends at the IPv4 host, so a rule for
 * that host is a rule for it too. */
static const struct {
	struct netcidr block;
	uint8_t at;
	uint8_t mask;
	bool allows; /* what the rules allow the embedded address counts as well */
} check_embeddings[] = {
	{{{{0x00, 0x64, 0xff, 0x9b}}, 96}, 12, 0, true}, /* NAT64 (RFC 6052) */
	{{{{0x20, 0x02}}, 16}, 2, 0, true},              /* 6to4 (RFC 3056) */
	{{{{[8] = 0xff, [9] = 0xff}}, 96}, 12, 0, true}, /* SIIT (RFC 2765) */
	{{{{0}}, 96}, 12, 0, true},                      /* v4-compatible (RFC 4291 2.5.5.1) */
	/* Teredo (RFC 4380): that is the NAT in front of a host, not the host. */
	{{{{0x20, 0x01, 0x00, 0x00}}, 32}, 12, 0xff, false},
};

/* The index of the embedding, or -1; the IPv4 address in *v4. */
static int check_embedded(const struct netaddr *a, struct netaddr *v4)
{
	if (netaddr_is_v4(a))
		return -1;
	for (size_t i = 0; i < ARRAY_LEN(check_embeddings); i++) {
		if (!netcidr_contains(&check_embeddings[i].block, a))
			continue;
		*v4 = (struct netaddr){{[10] = 0xff, [11] = 0xff}};
		for (size_t k = 0; k < 4; k++)
			v4->b[12 + k] = a->b[check_embeddings[i].at + k] ^ check_embeddings[i].mask;
		return (int)i;
	}
	return -1;
}

static struct addr_hit check_index_find(
	const struct addr_index *ix, const struct netaddr *a, uint16_t port)
{
	struct addr_hit hit = addr_index_find(ix, a, port);
	struct netaddr v4;
	int embedding = check_embedded(a, &v4);

	if (embedding >= 0) {
		struct addr_hit inner = addr_index_find(ix, &v4, port);

		hit.deny = rule_first(hit.deny, inner.deny);
		if (check_embeddings[embedding].allows)
			hit.allow = rule_first(hit.allow, inner.allow);
	}
	return hit;
}

/* What the operator's files say counts before the rest: their denials, then what they allow, even
 * where a rule behind them denies it (the replaced image promises that and does not keep it). */
static struct addr_hit check_addr_find(
	const struct policy *p, const struct netaddr *a, uint16_t port)
{
	struct addr_hit hit;

	if (p->always) {
		hit = check_index_find(p->always, a, port);
		if (hit.deny != RULE_NONE || hit.allow != RULE_NONE)
			return hit;
	}
	return check_index_find(p->addrs, a, port);
}

/* Never reached by a name, a default or a rule for ports alone: only where a rule says the address.
 */
static bool check_is_special(const struct netaddr *a)
{
	enum addr_class class = netaddr_class(a);

	return class != ADDR_PUBLIC && class != ADDR_PRIVATE;
}

static struct verdict check_addr_alone(
	const struct policy *p, const struct netaddr *a, uint16_t port)
{
	struct addr_hit hit = check_addr_find(p, a, port);
	struct verdict v = {.reason = REASON_ADDRESS_NOT_LISTED, .rule = POLICY_DEFAULT_RULE};

	if (p->closed)
		return check_closed;
	if (hit.deny != RULE_NONE) {
		v.reason = REASON_DENIED;
		v.rule = hit.deny;
	} else if (hit.allow != RULE_NONE) {
		v.allow = true;
		v.rule = hit.allow;
	} else if (check_is_special(a)) {
		return v;
	} else if (hit.allow_any != RULE_NONE) {
		v.allow = true;
		v.rule = hit.allow_any;
	} else if (p->default_allow) {
		v.allow = true;
	}
	if (v.allow)
		v.reason =
			v.rule == POLICY_DEFAULT_RULE ? REASON_ALLOWED_BY_DEFAULT : REASON_ALLOWED;
	if (v.rule != POLICY_DEFAULT_RULE) {
		v.exact = p->rules[v.rule].kind == RULE_CIDR;
		v.names_port = check_rule_names_port(p, v.rule, port);
	}
	return v;
}

struct verdict policy_check_addr(const struct policy *p, const struct netaddr *a, uint16_t port)
{
	struct verdict v = check_addr_alone(p, a, port);
	struct verdict most;

	if (!v.allow || !p->ceiling)
		return v;
	most = policy_check_addr(p->ceiling, a, port);
	return most.allow ? v : check_above(v, &most);
}

bool private_names_has(const struct private_names *priv, struct slice name)
{
	if (name.len == 0)
		return false;
	if (slice_find_char(name, '.') == name.len)
		return true;
	for (size_t i = 0; i < priv->n; i++) {
		struct slice suffix = slice_str(priv->suffix[i]);

		if (slice_eq(name, suffix) || hostname_below(name, suffix))
			return true;
	}
	return false;
}

static bool check_answer_ok(const struct private_names *priv, struct slice name, bool exact,
	const struct addr_hit *hit, enum addr_class class)
{
	if (hit->deny != RULE_NONE)
		return false;
	if (class == ADDR_PUBLIC || hit->allow != RULE_NONE)
		return true;
	return class == ADDR_PRIVATE && (exact || private_names_has(priv, name));
}

static struct verdict check_answer_alone(const struct policy *p, const struct private_names *priv,
	struct slice name, const struct verdict *by, const struct netaddr *a, uint16_t port)
{
	struct verdict v = *by;
	struct addr_hit hit;

	hit = check_addr_find(p, a, port);
	if (check_answer_ok(priv, name, by->exact, &hit, netaddr_class(a)))
		return v;
	v.allow = false;
	v.reason = REASON_ADDRESS_REFUSED;
	if (hit.deny != RULE_NONE)
		v.rule = hit.deny;
	return v;
}

/* A ceiling says yes to an address of a name if it would as a policy, or to the address itself: one
 * that allows all but a few has no exact rules for private ones. */
struct verdict policy_check_answer(const struct policy *p, const struct private_names *priv,
	struct slice name, const struct verdict *by, const struct netaddr *a, uint16_t port)
{
	struct verdict v = *by;
	struct verdict most;

	if (!by->allow)
		return v;
	v = check_answer_alone(p, priv, name, by, a, port);
	if (!v.allow || !p->ceiling)
		return v;
	most = policy_check_name(p->ceiling, name, port);
	if (!most.allow)
		return check_above(v, &most);
	most = check_answer_alone(p->ceiling, priv, name, &most, a, port);
	return most.allow || policy_check_addr(p->ceiling, a, port).allow ? v
									  : check_above(v, &most);
}

bool policy_addr_rule_allows(const struct policy *p, const struct netaddr *a, uint16_t port)
{
	struct addr_hit hit = check_addr_find(p, a, port);

	return hit.deny == RULE_NONE && hit.allow != RULE_NONE &&
		(!p->ceiling || policy_check_addr(p->ceiling, a, port).allow);
}
