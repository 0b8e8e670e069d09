/* Decides about names, types and addresses. Before it: dns_msg, which has read them. After it:
 * dns_query, which acts on it, and leases, which asks again when something is renewed. */
#include "dns/judge.h"

/* Types that say where a host or service is. The others carry free text or keys, and are answered
 * only for names that a rule spells out: whoever runs such a name runs the host as well. */
static const uint16_t judge_usual_types[] = {DNS_A, DNS_AAAA, DNS_HTTPS, DNS_SVCB, DNS_CNAME,
	DNS_MX, DNS_SRV, DNS_NS, DNS_SOA, DNS_PTR, DNS_CAA};

/* Names with which software finds a resolver that is not us (RFC 9462 4; Firefox' canary). */
static const char *const judge_never[] = {"use-application-dns.net", "_dns.resolver.arpa"};

static bool judge_is_never(struct slice name)
{
	size_t i;

	for (i = 0; i < ARRAY_LEN(judge_never); i++)
		if (slice_eq(name, slice_str(judge_never[i])) ||
			hostname_below(name, slice_str(judge_never[i])))
			return true;
	return false;
}

static bool judge_type_ok(const struct judge *j, uint16_t type, bool exact)
{
	size_t i;

	/* Of no record at all, or of all at once. */
	if (type == 0 || type == DNS_OPT || (type >= DNS_META_FIRST && type <= DNS_META_LAST))
		return false;
	if (exact)
		return true;
	for (i = 0; i < ARRAY_LEN(judge_usual_types); i++)
		if (judge_usual_types[i] == type)
			return true;
	for (i = 0; i < j->n_types; i++)
		if (j->types[i] == type)
			return true;
	return false;
}

static struct slice judgement_name(const struct judgement *n)
{
	return slice_make(n->text, n->len);
}

static void judge_verdicts(const struct judge *j, struct judgement *n)
{
	n->verdict = policy_check_name(j->policy, judgement_name(n), 0);
	n->next = j->next ? policy_check_name(j->next, judgement_name(n), 0) : n->verdict;
}

void judge_question(const struct judge *j, const struct dns_question *q, struct judgement *out)
{
	bool exact;

	out->odd = !dns_name_host(&q->name, out->text, &out->len);
	out->result = JUDGE_DENIED;
	if (out->odd) {
		/* No rule can name it, and its text could be taken for another name. */
		out->len = dns_name_text(&q->name, out->text);
		out->verdict = (struct verdict){
			.reason = REASON_HOST_NOT_LISTED, .rule = POLICY_DEFAULT_RULE};
		out->next = out->verdict;
		return;
	}
	judge_verdicts(j, out);
	if (judge_is_never(judgement_name(out))) {
		out->verdict.allow = false;
		out->verdict.reason = REASON_DENIED;
		out->verdict.rule = POLICY_DEFAULT_RULE;
	}
	if (!out->verdict.allow)
		return;
	if (!out->next.allow) {
		out->verdict = out->next;
		/* Its index is of a policy that nobody can look up yet. */
		out->verdict.rule = POLICY_DEFAULT_RULE;
		return;
	}
	exact = policy_is_exact(j->policy, judgement_name(out), &out->verdict) &&
		policy_is_exact(j->next ? j->next : j->policy, judgement_name(out), &out->next);
	out->result = q->class == DNS_CLASS_IN && judge_type_ok(j, q->type, exact) ? JUDGE_FORWARD
										   : JUDGE_NO_DATA;
}

static bool judge_alias_by(const struct policy *p, struct slice name)
{
	return !policy_denies_name(p, name);
}

bool judge_alias(const struct judge *j, const struct dns_name *alias)
{
	char text[HOSTNAME_MAX + 1];
	size_t len;

	if (!dns_name_host(alias, text, &len))
		return false;
	return judge_alias_by(j->policy, slice_make(text, len)) &&
		(!j->next || judge_alias_by(j->next, slice_make(text, len)));
}

static bool judge_is_on_link(const struct judge *j, const struct netaddr *a)
{
	size_t i;

	for (i = 0; i < j->n_on_link; i++)
		if (netcidr_contains(&j->on_link[i], a))
			return true;
	return false;
}

static bool judge_addr_by(const struct judge *j, const struct policy *p, struct slice name,
	const struct verdict *by, const struct netaddr *a)
{
	if (!policy_check_answer(p, j->private_names, name, by, a, 0).allow)
		return false;
	/* A neighbour: another sandbox may be there, whatever the name is (design 5). */
	return !j->read_only || !judge_is_on_link(j, a) || policy_addr_rule_allows(p, a, 0) ||
		private_names_has(j->private_names, name);
}

bool judge_addr(const struct judge *j, const struct judgement *name, const struct netaddr *a)
{
	struct slice text = judgement_name(name);

	return judge_addr_by(j, j->policy, text, &name->verdict, a) &&
		(!j->next || judge_addr_by(j, j->next, text, &name->next, a));
}

static bool judge_rule_matches(const struct rule *r, struct slice name)
{
	if (r->kind == RULE_NAME)
		return slice_eq(name, slice_str(r->target));
	return r->kind == RULE_WILDCARD && hostname_below(name, slice_str(r->target));
}

static bool judge_port_ok(const struct judge *j, struct slice name, uint16_t port)
{
	return policy_check_name(j->policy, name, port).allow &&
		(!j->next || policy_check_name(j->next, name, port).allow);
}

struct judge_port_list {
	struct slice name;
	uint16_t *ports;
	size_t n;
	bool every;
	bool any_denied;
};

static void judge_ports_add(const struct judge *j, uint16_t port, struct judge_port_list *l)
{
	size_t i;

	for (i = 0; i < l->n; i++)
		if (l->ports[i] == port)
			return;
	if (l->n < JUDGE_PORTS_MAX && judge_port_ok(j, l->name, port))
		l->ports[l->n++] = port;
}

/* The ports that the rules of p for this name list, up to the first rule that is for all. */
static void judge_ports_of(const struct judge *j, const struct policy *p, struct judge_port_list *l)
{
	bool any_denied = false;
	size_t i, k;

	for (i = 0; i < policy_n_rules(p); i++) {
		const struct rule *r = policy_rule(p, i);

		if (!judge_rule_matches(r, l->name))
			continue;
		if (r->n_ports == 0)
			break;
		any_denied |= !r->allow;
		for (k = 0; r->allow && k < r->n_ports; k++)
			judge_ports_add(j, r->ports[k], l);
	}
	l->every &= !any_denied &&
		(i < policy_n_rules(p) ? policy_rule(p, i)->allow : policy_default_allow(p));
	l->any_denied |= any_denied;
}

static void judge_ports_under(
	const struct judge *j, const struct policy *p, struct judge_port_list *l)
{
	judge_ports_of(j, p, l);
	if (policy_ceiling(p))
		judge_ports_of(j, policy_ceiling(p), l);
}

/* A walk over the rules, but only in policies where rules for names list ports at all. */
size_t judge_ports(
	const struct judge *j, struct slice name, uint16_t ports[JUDGE_PORTS_MAX], bool *every)
{
	struct judge_port_list l = {.name = name, .ports = ports, .every = true};

	judge_ports_under(j, j->policy, &l);
	if (j->next)
		judge_ports_under(j, j->next, &l);
	/* A lease can say "this port", not "all but this port": of the rest, what the web needs. */
	if (l.any_denied) {
		judge_ports_add(j, 443, &l);
		judge_ports_add(j, 80, &l);
	}
	*every = l.every;
	return l.n;
}
