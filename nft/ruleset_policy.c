/* From a policy to address ranges: merged, so that the kernel takes them, and with what the policy
 * means for IPv6 forms of IPv4 addresses and for special addresses spelled out. Worker side; after
 * it guard_client sends the result. The arithmetic of ranges is spans.c.
 */
#include <stdlib.h>

#include "nft/ruleset.h"
#include "nft/spans_int.h"
#include "policy/policy.h"

/* IPv4 and IPv6 apart: a block of IPv6 addresses never holds an IPv4 one, however short it is. */
struct span_pair {
	struct spans v4;
	struct spans v6;
};

#define V4_PREFIX 96 /* bits before an IPv4 address in its mapped form */

/* Where IPv4 addresses stand inside IPv6 ones, as policy/check.c has them. */
static const struct {
	uint8_t prefix[16];
	uint8_t at;  /* offset of the address; what follows it is free */
	bool allows; /* what is allowed for the address is allowed for this form. Only where such a
			form is in use; narrower than the policy is safe. */
} ruleset_forms[] = {
	{{0x00, 0x64, 0xff, 0x9b}, 12, true},  /* NAT64, RFC 6052 */
	{{0x20, 0x02}, 2, false},              /* 6to4, RFC 3056 */
	{{[8] = 0xff, [9] = 0xff}, 12, false}, /* SIIT, RFC 2765 */
	{{0}, 12, false},                      /* v4-compatible, RFC 4291 */
};

#define MAPPED(a, b, c, d)                                           \
	{                                                            \
		{                                                    \
			[10] = 0xff, [11] = 0xff, (a), (b), (c), (d) \
		}                                                    \
	}

/* Never reached by a name, a default or a rule for ports alone. Loopback is missing: it does not
 * leave. */
static const struct netcidr ruleset_special_v4[] = {
	{MAPPED(0, 0, 0, 0), V4_PREFIX + 8},
	{MAPPED(100, 64, 0, 0), V4_PREFIX + 10},
	{MAPPED(168, 63, 129, 16), V4_PREFIX + 32},
	{MAPPED(169, 254, 0, 0), V4_PREFIX + 16},
	{MAPPED(192, 0, 0, 0), V4_PREFIX + 24},
	{MAPPED(224, 0, 0, 0), V4_PREFIX + 4},
	{MAPPED(240, 0, 0, 0), V4_PREFIX + 4},
};

/* Only inside IPv6 addresses: a translator must not lend its way to them. */
static const struct netcidr ruleset_inner_v4[] = {
	{MAPPED(10, 0, 0, 0), V4_PREFIX + 8},
	{MAPPED(127, 0, 0, 0), V4_PREFIX + 8},
	{MAPPED(172, 16, 0, 0), V4_PREFIX + 12},
	{MAPPED(192, 168, 0, 0), V4_PREFIX + 16},
};

static const struct netcidr ruleset_special_v6[] = {
	{{{0}}, 96},                                  /* ::, v4-compatible */
	{{{[8] = 0xff, [9] = 0xff}}, 96},             /* SIIT */
	{{{0x00, 0x64, 0xff, 0x9b, 0x00, 0x01}}, 48}, /* local NAT64, RFC 8215 */
	{{{0x20, 0x01}}, 32},                         /* Teredo */
	/* metadata services, as base/netaddr has them */
	{{{0xfd, 0x00, 0x0e, 0xc2, [14] = 0x02, [15] = 0x54}}, 128},
	{{{0xfd, 0x20, 0x00, 0xce, [14] = 0x02, [15] = 0x54}}, 128},
	{{{0xfd, 0x00, 0x00, 0xc1, [12] = 0xa9, 0xfe, 0xa9, 0xfe}}, 128},
	{{{0xfd, 0x00, 0x00, 0x42, [15] = 0x42}}, 128},
	{{{0xfe, 0x80}}, 9}, /* link-local, site-local */
	{{{0xff}}, 8},       /* multicast */
};

static const struct netcidr ruleset_teredo = {{{0x20, 0x01}}, 32};

static void span_pair_fini(struct span_pair *p)
{
	free(p->v4.v);
	free(p->v6.v);
}

static bool cidr_is_v4(const struct netcidr *c)
{
	return c->len >= V4_PREFIX && netaddr_is_v4(&c->addr);
}

static struct span cidr_span(const struct netcidr *c, uint16_t port)
{
	struct span s = {.port = port};

	memcpy(s.lo, c->addr.b, sizeof(s.lo));
	memcpy(s.hi, c->addr.b, sizeof(s.hi));
	for (unsigned i = 0; i < sizeof(s.hi); i++) {
		unsigned kept = c->len > 8 * i ? c->len - 8 * i : 0;

		if (kept < 8)
			s.hi[i] |= (uint8_t)(0xff >> kept);
	}
	return s;
}

/* The IPv6 form of a range of IPv4 addresses. */
static struct span span_form(const struct span *v4, size_t form)
{
	const size_t at = ruleset_forms[form].at;
	struct span s = {.port = v4->port};

	memcpy(s.lo, ruleset_forms[form].prefix, sizeof(s.lo));
	memcpy(s.hi, ruleset_forms[form].prefix, sizeof(s.hi));
	memset(s.hi + at, 0xff, sizeof(s.hi) - at);
	memcpy(s.lo + at, v4->lo + 12, 4);
	memcpy(s.hi + at, v4->hi + 12, 4);
	return s;
}

/* A block and, for IPv4, its forms: all of them (deny), or those that count as allowed. */
static void span_pair_add(
	struct span_pair *p, const struct netcidr *c, uint16_t port, bool every_form)
{
	struct span s = cidr_span(c, port);

	if (!cidr_is_v4(c)) {
		spans_add(&p->v6, &s);
		return;
	}
	spans_add(&p->v4, &s);
	for (size_t i = 0; i < ARRAY_LEN(ruleset_forms); i++) {
		struct span form = span_form(&s, i);

		if (every_form || ruleset_forms[i].allows)
			spans_add(&p->v6, &form);
	}
	if (every_form) {
		/* Teredo hides the address in bits that a range cannot name. */
		s = cidr_span(&ruleset_teredo, port);
		spans_add(&p->v6, &s);
	}
}

/* Special addresses, private ones inside IPv6 forms too, disjoint. */
static void span_pair_special(struct span_pair *out)
{
	for (size_t i = 0; i < ARRAY_LEN(ruleset_special_v4); i++)
		span_pair_add(out, &ruleset_special_v4[i], 0, true);
	for (size_t i = 0; i < ARRAY_LEN(ruleset_inner_v4); i++) {
		struct span s = cidr_span(&ruleset_inner_v4[i], 0);

		for (size_t k = 0; k < ARRAY_LEN(ruleset_forms); k++) {
			struct span form = span_form(&s, k);

			spans_add(&out->v6, &form);
		}
	}
	for (size_t i = 0; i < ARRAY_LEN(ruleset_special_v6); i++)
		span_pair_add(out, &ruleset_special_v6[i], 0, true);
	spans_merge(&out->v4);
	spans_merge(&out->v6);
}

/* A rule for ports alone is about every address, but an allow not about special ones. */
static void span_pair_add_any(
	struct span_pair *to, bool allow, uint16_t port, const struct span_pair *special)
{
	static const struct netcidr all_v4 = {MAPPED(0, 0, 0, 0), V4_PREFIX};
	static const struct netcidr all_v6 = {{{0}}, 0};
	static const struct spans none = {0};

	spans_add_without(&to->v4, cidr_span(&all_v4, port), allow ? &special->v4 : &none);
	spans_add_without(&to->v6, cidr_span(&all_v6, port), allow ? &special->v6 : &none);
}

static void span_pair_add_rule(
	struct span_pair *to, const struct rule *r, const struct span_pair *special)
{
	for (size_t i = 0; i < (r->n_ports ? r->n_ports : 1); i++) {
		uint16_t port = r->n_ports ? r->ports[i] : 0;

		if (r->kind == RULE_CIDR)
			span_pair_add(to, &r->cidr, port, !r->allow);
		else
			span_pair_add_any(to, r->allow, port, special);
	}
}

static void span_pair_merge(struct span_pair *p)
{
	spans_merge(&p->v4);
	spans_merge(&p->v6);
}

static struct ruleset_entry span_entry(const struct span *s, enum ruleset_kind kind)
{
	struct ruleset_entry e = {.kind = (uint8_t)kind,
		.port_lo = s->port,
		.port_hi = s->port > 0 ? s->port : UINT16_MAX};

	memcpy(e.lo.b, s->lo, sizeof(e.lo.b));
	memcpy(e.hi.b, s->hi, sizeof(e.hi.b));
	/* OpenSandbox: ports of a rule are TCP ports. A deny may be wider. */
	if (s->port > 0 && kind == RULESET_ALLOW)
		e.proto = IPPROTO_TCP;
	return e;
}

/* True if the entries from a (na of them) and from b name the same ranges, and b's port is the one
 * after a's: one port range says both. */
static bool entries_extend(
	const struct ruleset_entry *a, size_t na, const struct ruleset_entry *b, size_t nb)
{
	if (na != nb || na == 0 || a->port_hi == UINT16_MAX || a->port_hi + 1 != b->port_lo)
		return false;
	for (size_t i = 0; i < na; i++) {
		if (!netaddr_eq(&a[i].lo, &b[i].lo) || !netaddr_eq(&a[i].hi, &b[i].hi))
			return false;
	}
	return true;
}

static int spans_emit(struct ruleset *r, const struct spans *s, enum ruleset_kind kind)
{
	size_t last = r->n; /* entries of the port before begin here */
	size_t n_last = 0;
	size_t i = 0;
	int ret;

	if (s->full)
		return E_LIMIT;
	while (i < s->n) {
		const uint16_t port = s->v[i].port;
		const size_t begin = r->n;

		for (; i < s->n && s->v[i].port == port; i++) {
			struct ruleset_entry e = span_entry(&s->v[i], kind);

			ret = ruleset_add(r, &e);
			if (ret < 0)
				return ret;
		}
		if (port > 0 &&
			entries_extend(r->entry + last, n_last, r->entry + begin, r->n - begin)) {
			for (size_t k = 0; k < n_last; k++)
				r->entry[last + k].port_hi = port;
			r->n = begin;
			continue;
		}
		last = begin;
		n_last = port > 0 ? r->n - begin : 0;
	}
	return 0;
}

static int ruleset_add_spans(struct ruleset *r, const struct span_pair *p, enum ruleset_kind kind)
{
	int ret = spans_emit(r, &p->v4, kind);

	return ret < 0 ? ret : spans_emit(r, &p->v6, kind);
}

/* What rules deny. The operator's denials count whole, the others but for what the operator always
 * allows, as in policy/check.c. An allowance for some ports leaves the others denied. */
static void span_pair_add_denials(
	struct span_pair *to, const struct policy *p, const struct span_pair *special)
{
	const size_t n_deny = policy_n_deny_always(p);
	const size_t n_always = n_deny + policy_n_allow_always(p);
	struct span_pair allowed = {0};
	struct span_pair deny = {0};

	for (size_t i = 0; i < policy_n_rules(p); i++) {
		const struct rule *rule = policy_rule(p, i);

		if (rule->kind != RULE_CIDR && rule->kind != RULE_ANY)
			continue;
		if (!rule->allow)
			span_pair_add_rule(i < n_deny ? to : &deny, rule, special);
		else if (i < n_always && rule->kind == RULE_CIDR && rule->n_ports == 0)
			span_pair_add(&allowed, &rule->cidr, 0, false);
	}
	span_pair_merge(&allowed);
	spans_add_all_without(&to->v4, &deny.v4, &allowed.v4);
	spans_add_all_without(&to->v6, &deny.v6, &allowed.v6);
	to->v4.full |= deny.v4.full | allowed.v4.full;
	to->v6.full |= deny.v6.full | allowed.v6.full;
	span_pair_fini(&allowed);
	span_pair_fini(&deny);
}

/* What one policy says of addresses. */
struct policy_spans {
	struct span_pair allow; /* by rules, or by the default action if that was asked for */
	struct span_pair named; /* addresses that some rule allows, whatever the port */
};

static void policy_spans_init(struct policy_spans *out, const struct policy *p, bool by_default,
	const struct span_pair *special)
{
	for (size_t i = 0; i < policy_n_rules(p); i++) {
		const struct rule *rule = policy_rule(p, i);

		if (!rule->allow || (rule->kind != RULE_CIDR && rule->kind != RULE_ANY))
			continue;
		span_pair_add_rule(&out->allow, rule, special);
		if (rule->kind == RULE_CIDR)
			span_pair_add(&out->named, &rule->cidr, 0, false);
	}
	if (by_default)
		span_pair_add_any(&out->allow, true, 0, special);
	span_pair_merge(&out->allow);
	span_pair_merge(&out->named);
}

static void policy_spans_fini(struct policy_spans *s)
{
	span_pair_fini(&s->allow);
	span_pair_fini(&s->named);
}

static void span_pair_intersect(struct span_pair *p, const struct span_pair *most)
{
	struct span_pair both = {0};

	spans_intersect(&both.v4, &p->v4, &most->v4);
	spans_intersect(&both.v6, &p->v6, &most->v6);
	both.v4.full |= p->v4.full | most->v4.full;
	both.v6.full |= p->v6.full | most->v6.full;
	span_pair_merge(&both);
	span_pair_fini(p);
	*p = both;
}

/* Only what the ceiling has as well; what it denies is denied. */
static void policy_spans_under(struct policy_spans *s, struct span_pair *deny,
	const struct policy *ceiling, const struct span_pair *special)
{
	struct policy_spans most = {0};

	policy_spans_init(&most, ceiling, policy_default_alone(ceiling), special);
	span_pair_intersect(&s->allow, &most.allow);
	span_pair_intersect(&s->named, &most.named);
	span_pair_add_denials(deny, ceiling, special);
	policy_spans_fini(&most);
}

static int ruleset_add_rules(struct ruleset *r, const struct policy *p)
{
	const struct policy *ceiling = policy_ceiling(p);
	struct policy_spans s = {0};
	struct span_pair special = {0};
	struct span_pair deny = {0};
	int ret;

	span_pair_special(&special);
	/* What the default action allows is the rest, unless the ceiling takes only a part of it.
	 */
	policy_spans_init(&s, p, policy_default_alone(p) && !r->options.accept_rest, &special);
	span_pair_add_denials(&deny, p, &special);
	if (ceiling)
		policy_spans_under(&s, &deny, ceiling, &special);
	/* Denied, so that not even our own sockets reach them, but for those that a rule names. */
	spans_add_all_without(&deny.v4, &special.v4, &s.named.v4);
	spans_add_all_without(&deny.v6, &special.v6, &s.named.v6);
	span_pair_merge(&deny);
	ret = ruleset_add_spans(r, &deny, RULESET_DENY);
	if (ret == 0)
		ret = ruleset_add_spans(r, &s.allow, RULESET_ALLOW);
	/* One that a rule names for some ports is not open on the others. */
	if (ret == 0 && r->options.accept_rest)
		ret = ruleset_add_spans(r, &special, RULESET_SPECIAL);
	span_pair_fini(&special);
	policy_spans_fini(&s);
	span_pair_fini(&deny);
	return ret;
}

static int ruleset_add_ports(
	struct ruleset *r, const uint16_t *ports, size_t n, enum ruleset_kind kind)
{
	for (size_t i = 0; i < n; i++) {
		const struct ruleset_entry e = {
			.kind = (uint8_t)kind, .port_lo = ports[i], .port_hi = ports[i]};
		int ret;

		ret = ruleset_entry_valid(&e) ? ruleset_add(r, &e) : E_VALUE;
		if (ret < 0)
			return ret;
	}
	return 0;
}

static int ruleset_add_addr(
	struct ruleset *r, const struct netaddr *a, uint16_t port, enum ruleset_kind kind)
{
	const struct ruleset_entry e = {.lo = *a,
		.hi = *a,
		.kind = (uint8_t)kind,
		.port_lo = port,
		.port_hi = port > 0 ? port : UINT16_MAX};

	return ruleset_entry_valid(&e) ? ruleset_add(r, &e) : E_VALUE;
}

static int ruleset_add_doh(struct ruleset *r, const struct ruleset_lists *lists)
{
	struct span_pair doh = {0};
	int ret;

	for (size_t i = 0; i < lists->n_doh; i++)
		span_pair_add(&doh, &lists->doh[i], 0, false);
	span_pair_merge(&doh);
	ret = ruleset_add_spans(r, &doh, RULESET_DOH);
	span_pair_fini(&doh);
	return ret;
}

static int ruleset_add_lists(struct ruleset *r, const struct ruleset_lists *lists)
{
	int ret;

	ret = ruleset_add_ports(r, lists->inspected, lists->n_inspected, RULESET_INSPECT);
	if (ret == 0)
		ret = ruleset_add_ports(r, lists->inbound, lists->n_inbound, RULESET_INBOUND);
	if (ret == 0)
		ret = ruleset_add_doh(r, lists);
	for (size_t i = 0; ret == 0 && i < lists->n_exempt; i++)
		ret = ruleset_add_addr(r, &lists->exempt[i], 0, RULESET_EXEMPT);
	for (size_t i = 0; ret == 0 && i < lists->n_resolvers; i++)
		ret = ruleset_add_addr(
			r, &lists->resolvers[i].addr, lists->resolvers[i].port, RULESET_RESOLVER);
	return ret;
}

int ruleset_from_policy(struct ruleset *r, const struct policy *p,
	const struct ruleset_lists *lists, struct errmsg *msg)
{
	int ret;

	r->options.accept_rest = policy_default_allow(p);
	ret = ruleset_add_rules(r, p);
	if (ret == E_LIMIT)
		return errmsg_set(msg, ret,
			"the IP, CIDR and port rules need more than %u entries of the kernel's "
			"sets",
			RULESET_ENTRIES_MAX);
	if (ret == 0)
		ret = ruleset_add_lists(r, lists);
	if (ret < 0)
		return errmsg_set(msg, ret, "kernel rules: %s", err_text(ret));
	return 0;
}
