/* Rule by rule: does the ceiling allow what this one is about? Before it: /policy with a new
 * policy, and the start. After it: policy_merge, whose policy is narrowed by the ceiling whatever
 * was said here. */
#include "policy/ceiling.h"

#include "policy/check.h"
#include "policy/policy_int.h"

/* Names below a wildcard are judged by one that no rule mentions: `*` is in no name. */
#define CEILING_PROBE "*."

static struct verdict ceiling_name(
	const struct policy *ceiling, const struct rule *r, uint16_t port)
{
	char probe[sizeof(CEILING_PROBE) + HOSTNAME_MAX] = CEILING_PROBE;
	const size_t len = sizeof(CEILING_PROBE) - 1;
	struct slice target = slice_str(r->target);

	if (r->kind == RULE_NAME)
		return policy_check_name(ceiling, target, port);
	memcpy(probe + len, target.p, target.len);
	return policy_check_name(ceiling, slice_make(probe, len + target.len), port);
}

static bool ceiling_has_port(const struct rule *c, uint16_t port)
{
	if (port == 0 || c->n_ports == 0)
		return true;
	for (size_t i = 0; i < c->n_ports; i++)
		if (c->ports[i] == port)
			return true;
	return false;
}

static bool ceiling_holds(const struct netcidr *outer, const struct netcidr *inner)
{
	return outer->len <= inner->len && netcidr_contains(outer, &inner->addr);
}

static struct netaddr ceiling_last(const struct netcidr *c)
{
	struct netaddr a = c->addr;

	for (unsigned i = c->len; i < 128; i++)
		a.b[i / 8] |= (uint8_t)(0x80 >> i % 8);
	return a;
}

/* Where no rule holds all of the block: what the ceiling says of its first and last address, unless
 * they are of different classes, as in 0.0.0.0/0, whose first and last one are special. */
static struct verdict ceiling_rest(
	const struct policy *ceiling, const struct netcidr *block, uint16_t port)
{
	struct netaddr last = ceiling_last(block);
	struct verdict v = policy_check_addr(ceiling, &block->addr, port);

	if (netaddr_class(&block->addr) != netaddr_class(&last))
		return (struct verdict){
			.allow = ceiling->default_allow, .rule = POLICY_DEFAULT_RULE};
	return v.allow ? policy_check_addr(ceiling, &last, port) : v;
}

static struct verdict ceiling_block(
	const struct policy *ceiling, const struct rule *r, uint16_t port)
{
	struct verdict v = {.rule = RULE_NONE};
	bool found = false;

	for (size_t i = 0; i < ceiling->n; i++) {
		const struct rule *c = &ceiling->rules[i];

		if (c->kind != RULE_CIDR || !ceiling_holds(&c->cidr, &r->cidr) ||
			!(c->allow || port != 0 || c->n_ports == 0) || !ceiling_has_port(c, port))
			continue;
		if (found && c->allow)
			continue;
		v = (struct verdict){.allow = c->allow, .rule = (int32_t)i};
		found = true;
		if (!c->allow)
			break;
	}
	return found ? v : ceiling_rest(ceiling, &r->cidr, port);
}

/* A rule for a port alone, by what the ceiling says of that port alone. */
static struct verdict ceiling_port(const struct policy *ceiling, uint16_t port)
{
	for (size_t i = 0; i < ceiling->n; i++) {
		const struct rule *c = &ceiling->rules[i];

		if (c->kind == RULE_ANY && ceiling_has_port(c, port))
			return (struct verdict){.allow = c->allow, .rule = (int32_t)i};
	}
	return (struct verdict){.allow = ceiling->default_allow, .rule = POLICY_DEFAULT_RULE};
}

static struct verdict ceiling_one(const struct policy *ceiling, const struct rule *r, uint16_t port)
{
	switch (r->kind) {
	case RULE_NAME:
	case RULE_WILDCARD:
		return ceiling_name(ceiling, r, port);
	case RULE_CIDR:
		return ceiling_block(ceiling, r, port);
	case RULE_ANY:
		break;
	}
	return ceiling_port(ceiling, port);
}

static bool ceiling_same(const struct rule *a, const struct rule *b)
{
	if (a->kind != b->kind || a->allow != b->allow || a->n_ports != b->n_ports)
		return false;
	if (a->target && strcmp(a->target, b->target) != 0)
		return false;
	if (a->kind == RULE_CIDR && memcmp(&a->cidr, &b->cidr, sizeof(a->cidr)) != 0)
		return false;
	return a->n_ports == 0 || memcmp(a->ports, b->ports, a->n_ports * sizeof(*a->ports)) == 0;
}

static bool ceiling_was(const struct policy *before, const struct rule *r)
{
	for (size_t i = 0; before && i < before->n; i++)
		if (ceiling_same(&before->rules[i], r))
			return true;
	return false;
}

static int ceiling_refuse(const struct policy *ceiling, const struct policy *user, int32_t rule,
	int32_t by, struct errmsg *msg)
{
	char asked[RULE_TEXT_MAX];
	char least[RULE_TEXT_MAX];

	(void)policy_rule_text(user, rule, asked);
	(void)policy_rule_text(ceiling, by, least);
	return errmsg_set(msg, E_VALUE, "%s: above the operator's ceiling (%s)", asked, least);
}

int ceiling_check(const struct policy *ceiling, const struct policy *user,
	const struct policy *before, struct errmsg *msg)
{
	if (!ceiling)
		return 0;
	if (user->default_allow && !ceiling->default_allow && !(before && before->default_allow))
		return ceiling_refuse(ceiling, user, POLICY_DEFAULT_RULE, POLICY_DEFAULT_RULE, msg);
	for (size_t i = 0; i < user->n; i++) {
		const struct rule *r = &user->rules[i];

		for (size_t k = 0; r->allow && k < (r->n_ports ? r->n_ports : 1); k++) {
			struct verdict v = ceiling_one(ceiling, r, r->n_ports ? r->ports[k] : 0);

			if (v.allow || ceiling_was(before, r))
				continue;
			return ceiling_refuse(ceiling, user, (int32_t)i, v.rule, msg);
		}
	}
	return 0;
}
