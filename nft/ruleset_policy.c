/* From a policy to address ranges: merged, so that the kernel takes them, and with what the policy
 * means for IPv6 forms of IPv4 addresses and for special addresses spelled out. Worker side; after
 * it guard_client sends the result.
 *
 * A span is a range of addresses with one port (0: every one). Spans of one port are kept disjoint.
 */
#include <stdlib.h>

#include "base/arena.h"
#include "nft/ruleset.h"
#include "policy/policy.h"

/* 4096 rules of 64 ports each, before merging: 9.5 MB for a moment. */
#define SPANS_MAX (4u * RULESET_ENTRIES_MAX)

struct span {
	uint8_t lo[16];
	uint8_t hi[16];
	uint16_t port;
};

struct spans {
	struct span *v;
	size_t n;
	size_t cap;
	bool full;
};

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
	{{{0}}, 96},                                                 /* ::, v4-compatible */
	{{{[8] = 0xff, [9] = 0xff}}, 96},                            /* SIIT */
	{{{0x00, 0x64, 0xff, 0x9b, 0x00, 0x01}}, 48},                /* local NAT64, RFC 8215 */
	{{{0x20, 0x01}}, 32},                                        /* Teredo */
	{{{0xfd, 0x00, 0x0e, 0xc2, [14] = 0x02, [15] = 0x54}}, 128}, /* metadata */
	{{{0xfe, 0x80}}, 9},                                         /* link-local, site-local */
	{{{0xff}}, 8},                                               /* multicast */
};

static const struct netcidr ruleset_teredo = {{{0x20, 0x01}}, 32};

static void spans_add(struct spans *s, const struct span *v)
{
	if (s->n == SPANS_MAX) {
		s->full = true;
		return;
	}
	if (s->n == s->cap) {
		s->cap = s->cap ? 2 * s->cap : 64;
		s->v = xrealloc(s->v, s->cap * sizeof(*s->v));
	}
	s->v[s->n++] = *v;
}

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

static int span_compare(const void *a, const void *b)
{
	const struct span *x = a;
	const struct span *y = b;

	if (x->port != y->port)
		return x->port < y->port ? -1 : 1;
	return memcmp(x->lo, y->lo, sizeof(x->lo));
}

/* Adds one, or takes one off. The caller knows that it does not wrap. */
static void addr_step(uint8_t a[16], bool up)
{
	for (size_t i = 16; i-- > 0;) {
		a[i] = (uint8_t)(a[i] + (up ? 1 : -1));
		if (a[i] != (up ? 0 : 0xff))
			return;
	}
}

static bool addr_is_last(const uint8_t a[16])
{
	for (size_t i = 0; i < 16; i++) {
		if (a[i] != 0xff)
			return false;
	}
	return true;
}

/* True if `next` (not before s) overlaps s or follows it without a gap. */
static bool span_touches(const struct span *s, const struct span *next)
{
	uint8_t after[16];

	if (s->port != next->port)
		return false;
	if (addr_is_last(s->hi))
		return true;
	memcpy(after, s->hi, sizeof(after));
	addr_step(after, true);
	return memcmp(next->lo, after, sizeof(after)) <= 0;
}

/* Sorts, and makes the spans of each port disjoint. */
static void spans_merge(struct spans *s)
{
	size_t out = 0;

	if (s->n == 0)
		return;
	qsort(s->v, s->n, sizeof(*s->v), span_compare);
	for (size_t i = 1; i < s->n; i++) {
		if (!span_touches(&s->v[out], &s->v[i]))
			s->v[++out] = s->v[i];
		else if (memcmp(s->v[i].hi, s->v[out].hi, sizeof(s->v[i].hi)) > 0)
			memcpy(s->v[out].hi, s->v[i].hi, sizeof(s->v[i].hi));
	}
	s->n = out + 1;
}

/* The first of these spans (merged, of one port) that does not end before addr. */
static size_t spans_find(const struct spans *s, const uint8_t addr[16])
{
	size_t lo = 0;
	size_t hi = s->n;

	while (lo < hi) {
		const size_t mid = lo + (hi - lo) / 2;

		if (memcmp(s->v[mid].hi, addr, sizeof(s->v[mid].hi)) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* Adds to `out` what of `s` no span of `holes` (merged, for every port) covers. */
static void spans_add_without(struct spans *out, struct span s, const struct spans *holes)
{
	for (size_t i = spans_find(holes, s.lo); i < holes->n; i++) {
		const struct span *h = &holes->v[i];
		struct span before = s;

		if (memcmp(h->lo, s.hi, sizeof(s.hi)) > 0)
			break;
		if (memcmp(h->lo, s.lo, sizeof(s.lo)) > 0) {
			memcpy(before.hi, h->lo, sizeof(before.hi));
			addr_step(before.hi, false);
			spans_add(out, &before);
		}
		if (memcmp(h->hi, s.hi, sizeof(s.hi)) >= 0)
			return;
		memcpy(s.lo, h->hi, sizeof(s.lo));
		addr_step(s.lo, true);
	}
	spans_add(out, &s);
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

static void spans_add_all_without(
	struct spans *out, const struct spans *from, const struct spans *holes)
{
	for (size_t i = 0; i < from->n; i++)
		spans_add_without(out, from->v[i], holes);
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

static int ruleset_add_rules(struct ruleset *r, const struct policy *p)
{
	struct span_pair special = {0};
	struct span_pair allow = {0};
	struct span_pair deny = {0};
	struct span_pair named = {0}; /* addresses that some rule allows, whatever the port */
	int ret;

	span_pair_special(&special);
	for (size_t i = 0; i < policy_n_rules(p); i++) {
		const struct rule *rule = policy_rule(p, i);

		if (!rule->allow || (rule->kind != RULE_CIDR && rule->kind != RULE_ANY))
			continue;
		span_pair_add_rule(&allow, rule, &special);
		if (rule->kind == RULE_CIDR)
			span_pair_add(&named, &rule->cidr, 0, false);
	}
	span_pair_add_denials(&deny, p, &special);
	span_pair_merge(&named);
	/* Denied, so that not even our own sockets reach them, but for those that a rule names. */
	spans_add_all_without(&deny.v4, &special.v4, &named.v4);
	spans_add_all_without(&deny.v6, &special.v6, &named.v6);
	span_pair_merge(&allow);
	span_pair_merge(&deny);
	ret = ruleset_add_spans(r, &deny, RULESET_DENY);
	if (ret == 0)
		ret = ruleset_add_spans(r, &allow, RULESET_ALLOW);
	/* One that a rule names for some ports is not open on the others. */
	if (ret == 0 && r->options.accept_rest)
		ret = ruleset_add_spans(r, &special, RULESET_SPECIAL);
	span_pair_fini(&special);
	span_pair_fini(&allow);
	span_pair_fini(&deny);
	span_pair_fini(&named);
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
