/* The snapshot: owns the rules and the two indexes made from them. Nothing in it changes after
 * policy_new, so whoever holds a reference may keep slices and indexes of it. */
#include "policy/policy.h"

#include <stdlib.h>

#include "base/arena.h"
#include "base/strbuf.h"
#include "policy/policy_int.h"

static uint64_t *policy_ports_new(const struct rule *rules, size_t n)
{
	uint64_t *words = NULL;

	for (size_t i = 0; i < n; i++) {
		if (!rules[i].allow || rules[i].n_ports == 0)
			continue;
		if (!words)
			words = xcalloc(POLICY_PORT_WORDS, sizeof(*words));
		for (size_t k = 0; k < rules[i].n_ports; k++)
			words[rules[i].ports[k] / 64] |= UINT64_C(1) << rules[i].ports[k] % 64;
	}
	return words;
}

struct policy *policy_new_always(
	bool default_allow, struct rule *rules, size_t n, size_t n_deny, size_t n_allow)
{
	struct policy *p = xcalloc(1, sizeof(*p));

	REQUIRE(n < INT32_MAX && n_deny <= n && n_allow <= n - n_deny);
	p->n_deny_always = n_deny;
	p->n_allow_always = n_allow;
	if (n_deny + n_allow > 0)
		p->always = addr_index_new(rules, n_deny + n_allow);
	p->refs = 1;
	p->default_allow = default_allow;
	p->n = n;
	p->rules = rules;
	p->names = domain_index_new(rules, n);
	p->addrs = addr_index_new(rules, n);
	p->ports = policy_ports_new(rules, n);
	return p;
}

struct policy *policy_new(bool default_allow, struct rule *rules, size_t n)
{
	return policy_new_always(default_allow, rules, n, 0, 0);
}

struct policy *policy_new_closed(void)
{
	struct policy *p = policy_new(false, NULL, 0);

	p->closed = true;
	return p;
}

struct policy *policy_ref(struct policy *p)
{
	p->refs++;
	return p;
}

void policy_unref(struct policy *p)
{
	if (!p || --p->refs > 0)
		return;
	domain_index_free(p->names);
	addr_index_free(p->addrs);
	addr_index_free(p->always);
	policy_unref(p->ceiling);
	for (size_t i = 0; i < p->n; i++)
		rule_fini(&p->rules[i]);
	free(p->rules);
	free(p->ports);
	free(p);
}

size_t policy_n_rules(const struct policy *p)
{
	return p->n;
}

size_t policy_n_deny_always(const struct policy *p)
{
	return p->n_deny_always;
}

size_t policy_n_allow_always(const struct policy *p)
{
	return p->n_allow_always;
}

bool policy_default_allow(const struct policy *p)
{
	return p->default_allow && (!p->ceiling || p->ceiling->default_allow);
}

bool policy_default_alone(const struct policy *p)
{
	return p->default_allow;
}

const struct policy *policy_ceiling(const struct policy *p)
{
	return p->ceiling;
}

const struct rule *policy_rule(const struct policy *p, size_t index)
{
	REQUIRE(index < p->n);
	return &p->rules[index];
}

bool policy_names_port(const struct policy *p, uint16_t port)
{
	return p->ports && (p->ports[port / 64] >> port % 64 & 1) != 0;
}

/* Ports as far as they fit; what is left out shows as dots. */
static void policy_ports_text(struct strbuf *b, const struct rule *r)
{
	static const size_t tail = sizeof(",65535,...");

	for (size_t i = 0; i < r->n_ports; i++) {
		if (b->max - b->len < tail) {
			strbuf_str(b, ",...");
			return;
		}
		strbuf_str(b, i == 0 ? " ports " : ",");
		strbuf_u64(b, r->ports[i]);
	}
}

/* Whose rule it is, and the how manieth of theirs. */
static void policy_rule_number(struct strbuf *b, const struct policy *p, size_t rule)
{
	size_t n = rule + 1;

	if (rule < p->n_deny_always) {
		strbuf_str(b, "deny.always ");
	} else if (rule < p->n_deny_always + p->n_allow_always) {
		strbuf_str(b, "allow.always ");
		n -= p->n_deny_always;
	} else {
		strbuf_str(b, "rule ");
		n -= p->n_deny_always + p->n_allow_always;
	}
	strbuf_u64(b, n);
}

size_t policy_rule_text(const struct policy *p, int32_t rule, char buf[RULE_TEXT_MAX])
{
	/* Room for the number, the action and some ports: IDN can be longer than its A-labels. */
	static const size_t written_max = RULE_TEXT_MAX - 70;
	const struct rule *r;
	struct strbuf b;

	strbuf_init_fixed(&b, buf, RULE_TEXT_MAX);
	if (rule < POLICY_DEFAULT_RULE) {
		REQUIRE(p->ceiling);
		strbuf_str(&b, "ceiling: ");
		p = p->ceiling;
		rule = POLICY_CEILING_RULE(rule);
	}
	if (rule == POLICY_DEFAULT_RULE) {
		strbuf_str(&b,
			p->closed                  ? "lifecycle: deny"
				: p->default_allow ? "default action: allow"
						   : "default action: deny");
	} else {
		r = policy_rule(p, (size_t)rule);
		policy_rule_number(&b, p, (size_t)rule);
		strbuf_str(&b, r->allow ? ": allow" : ": deny");
		if (r->kind != RULE_ANY) {
			strbuf_char(&b, ' ');
			strbuf_add(&b, rule_text_cut(slice_str(r->written), written_max));
		}
		policy_ports_text(&b, r);
	}
	strbuf_cstr(&b);
	return b.len;
}
