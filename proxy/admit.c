/* The decision. Comes after the parsers (h1, request_target, client_hello), before upstream. Rules
 * about names and addresses are policy's; what counts as a read is policy/read_only's. */
#include "proxy/admit.h"

#include "proxy/h1.h"

bool reason_allows(enum reason r)
{
	return r == REASON_ALLOWED || r == REASON_ALLOWED_BY_DEFAULT || r == REASON_WRITE_HOST ||
		r == REASON_WRITE_PRIVATE || r == REASON_GIT_FETCH;
}

static void admission_set(struct admission *out, enum reason reason)
{
	out->reason = reason;
	out->allow = reason_allows(reason);
}

static void admit_policy(
	const struct proxy_config *c, const struct authority *target, struct admission *out)
{
	if (target->is_addr)
		out->verdict = policy_check_addr(c->policy, &target->addr, target->port);
	else
		out->verdict = policy_check_name(c->policy, authority_name(target), target->port);
	admission_set(out, out->verdict.reason);
}

/* Is leave to write certain, impossible, or a matter of the address? */
static void admit_write(const struct proxy_config *c, const struct authority *target,
	enum reason not_read, struct admission *out)
{
	struct slice name = target->is_addr ? SLICE_EMPTY : authority_name(target);
	enum reason leave;

	out->write = true;
	if (target->is_addr) {
		leave = read_only_write_check(c->write_hosts, c->policy, c->private_names, name,
			&target->addr, target->port);
		admission_set(out, reason_allows(leave) ? leave : not_read);
		return;
	}
	if (write_hosts_match(c->write_hosts, name) != WRITE_NO)
		admission_set(out, REASON_WRITE_HOST);
	else if (!read_only_needs_address(c->write_hosts, c->private_names, name))
		admission_set(out, not_read);
}

static bool port_is_inspected(const struct proxy_config *c, uint16_t port)
{
	if (port == 80 || port == 443)
		return true;
	for (size_t i = 0; i < c->n_extra_ports; i++)
		if (c->extra_ports[i] == port)
			return true;
	return policy_names_port(c->policy, port);
}

/* Under the rule a port that nobody named is open only where writing is. */
static void admit_port(
	const struct proxy_config *c, const struct authority *target, struct admission *out)
{
	if (c->read_only && out->allow && !port_is_inspected(c, target->port))
		admit_write(c, target, REASON_PORT_NOT_ALLOWED, out);
}

static struct read_request read_facts(const struct admit_request *r)
{
	const struct h1_head *h = r->head;
	const struct field *type = fields_find(&h->fields, FIELD_CONTENT_TYPE);
	struct read_request facts = {
		.method = h->method,
		.path = r->form->path,
		.query = r->form->query,
		.content_type = type ? type->value : SLICE_EMPTY,
		.content = h->framing == H1_CHUNKED || (h->framing == H1_LENGTH && h->length > 0),
		.trailers = fields_have(&h->fields, FIELD_TRAILER),
		.upgrade = r->upgrade,
	};

	for (size_t i = 0; i < h->fields.n && !facts.override_field; i++)
		if (h->fields.v[i].id == FIELD_OTHER)
			facts.override_field = read_only_is_override(h->fields.v[i].name);
	return facts;
}

static bool method_is_never_forwarded(struct slice m)
{
	return slice_ieq(m, SLICE("TRACE")) || slice_ieq(m, SLICE("TRACK")) ||
		slice_eq(m, SLICE("CONNECT"));
}

static bool method_reads(struct slice m)
{
	return slice_eq(m, SLICE("GET")) || slice_eq(m, SLICE("HEAD")) ||
		slice_eq(m, SLICE("OPTIONS"));
}

void admit_request(
	const struct proxy_config *c, const struct admit_request *r, struct admission *out)
{
	struct read_request facts;
	enum reason read;

	memset(out, 0, sizeof(*out));
	out->kind = method_reads(r->head->method) ? AUDIT_READ : AUDIT_WRITE;
	out->verdict.rule = POLICY_DEFAULT_RULE;
	if ((r->pinned && !authority_same(r->target, r->pinned, r->pinned->port)) ||
		(r->port != 0 && r->target->port != r->port)) {
		admission_set(out, REASON_NAME_MISMATCH);
		return;
	}
	admit_policy(c, r->target, out);
	admit_port(c, r->target, out);
	if (!out->allow)
		return;
	if (method_is_never_forwarded(r->head->method)) {
		admission_set(out, REASON_METHOD_NOT_FORWARDED);
		return;
	}
	facts = read_facts(r);
	read = read_only_check(&facts, c->git_fetch);
	if (read == REASON_GIT_FETCH)
		out->kind = AUDIT_READ;
	else if (!reason_allows(read))
		out->kind = AUDIT_WRITE;
	if (!c->read_only)
		return;
	if (read == REASON_GIT_FETCH)
		admission_set(out, read);
	else if (!reason_allows(read))
		admit_write(c, r->target, read, out);
}

void admit_connect(
	const struct proxy_config *c, const struct authority *target, struct admission *out)
{
	memset(out, 0, sizeof(*out));
	out->kind = AUDIT_TUNNEL;
	admit_policy(c, target, out);
	admit_port(c, target, out);
}

void admit_tunnel(
	const struct proxy_config *c, const struct authority *target, struct admission *how)
{
	how->kind = AUDIT_TUNNEL;
	if (c->read_only && how->allow)
		admit_write(c, target, REASON_CANNOT_INSPECT, how);
}

enum reason admit_address(const struct proxy_config *c, const struct policy *p,
	const struct authority *target, const struct admission *how, const struct netaddr *a)
{
	struct slice name = target->is_addr ? SLICE_EMPTY : authority_name(target);
	struct verdict v;

	if (!target->is_addr) {
		v = policy_check_answer(p, c->private_names, name, &how->verdict, a, target->port);
		if (!v.allow)
			return v.reason;
	}
	if (!c->read_only || !how->write)
		return how->reason;
	return read_only_write_check(c->write_hosts, p, c->private_names, name, a, target->port);
}
