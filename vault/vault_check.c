/* What a whole candidate is checked against (reference 1.4, in its order, each in the order of
 * names): policy, pass-through hosts, the read-only rule, what may stand in a header. */
#include <stdlib.h>

#include "base/hostname.h"
#include "policy/key_table.h"
#include "policy/read_only.h"
#include "vault/vault_int.h"

/* A label that no rule names, to ask policy about "some name below". */
#define CHECK_PROBE_LABEL "_-any-name-below-_."

static struct slice check_wildcard_suffix(struct slice host)
{
	return slice_starts(host, SLICE("*.")) ? slice_from(host, 2) : SLICE_EMPTY;
}

static bool check_policy_allows(const struct policy *p, struct slice host, uint16_t port)
{
	struct slice suffix = check_wildcard_suffix(host);
	char probe[sizeof(CHECK_PROBE_LABEL) + HOSTNAME_MAX] = CHECK_PROBE_LABEL;
	size_t len = sizeof(CHECK_PROBE_LABEL) - 1;

	if (suffix.len == 0)
		return policy_check_name(p, host, port).allow;
	memcpy(probe + len, suffix.p, suffix.len);
	return policy_check_name(p, slice_make(probe, len + suffix.len), port).allow;
}

/* Can one name be under both? entry: "a.b", "*.b" or ".b". */
static bool check_entry_meets_wildcard(const char *entry, struct slice suffix)
{
	bool below = entry[0] == '*' || entry[0] == '.';
	struct slice name = slice_str(entry + (entry[0] == '*' ? 2 : entry[0] == '.'));

	return hostname_below(name, suffix) ||
		(below && (slice_eq(name, suffix) || hostname_below(suffix, name)));
}

static bool check_hosts_meet(const struct write_hosts *list, struct slice host)
{
	struct slice suffix = check_wildcard_suffix(host);

	if (!list)
		return false;
	if (suffix.len == 0)
		return write_hosts_match(list, host) != WRITE_NO;
	for (size_t i = 0; i < write_hosts_count(list); i++)
		if (check_entry_meets_wildcard(write_hosts_entry(list, i), suffix))
			return true;
	return false;
}

static int check_host(const struct binding *b, struct slice host, const struct vault_rules *rules,
	struct errmsg *msg)
{
	char quoted[2][VAULT_QUOTE_MAX];

	(void)vault_quote(b->name, quoted[0]);
	(void)vault_quote(host, quoted[1]);
	for (size_t https = 0; https < 2; https++)
		if (b->schemes[https] &&
			!check_policy_allows(rules->policy, host, https ? 443 : 80))
			return errmsg_set(msg, E_VALUE,
				"binding \"%s\" host \"%s\" is not allowed by egress policy",
				quoted[0], quoted[1]);
	if (check_hosts_meet(rules->pass_through, host))
		return errmsg_set(msg, E_VALUE,
			"binding \"%s\" host \"%s\" matches mitmproxy ignore_hosts", quoted[0],
			quoted[1]);
	return 0;
}

static int check_scope(const struct binding *b, struct errmsg *msg)
{
	static const char tail[] = "when scoped-match enforcement is enabled";
	char quoted[VAULT_QUOTE_MAX];

	(void)vault_quote(b->name, quoted);
	if (!b->methods_explicit)
		return errmsg_set(msg, E_VALUE, "binding \"%s\": match.methods must be explicit %s",
			quoted, tail);
	if (!b->paths_explicit)
		return errmsg_set(msg, E_VALUE, "binding \"%s\": match.paths must be explicit %s",
			quoted, tail);
	if (binding_has_any_path(b))
		return errmsg_set(msg, E_VALUE,
			"binding \"%s\": match.paths must not contain /* %s", quoted, tail);
	return 0;
}

/* Whoever may choose where in a body the key goes can have it sent back to him: "spell this
 * backwards" (design 6). */
static int check_body_surface(
	const struct binding *b, const struct vault_rules *rules, struct errmsg *msg)
{
	char quoted[2][VAULT_QUOTE_MAX];

	for (size_t i = 0; i < b->n_substitutions; i++) {
		const struct substitution *s = &b->substitutions[i];
		bool whole = false;

		for (size_t k = 0; k < s->n_places; k++)
			whole |= s->places[k].surface == SURFACE_BODY &&
				s->places[k].kind == PLACE_SURFACE;
		for (size_t k = 0; whole && k < b->hosts.n; k++)
			if (check_hosts_meet(rules->write_hosts, b->hosts.items[k]))
				return errmsg_set(msg, E_VALUE,
					"binding \"%s\": substitution %zu: surface body needs a "
					"slot on write host \"%s\"; write form:NAME or "
					"json:/POINTER",
					vault_quote(b->name, quoted[0]), i,
					vault_quote(b->hosts.items[k], quoted[1]));
	}
	return 0;
}

static int check_binding(
	const struct binding *b, const struct vault_rules *rules, struct errmsg *msg)
{
	char quoted[VAULT_QUOTE_MAX];

	if (b->schemes[false] && !rules->allow_http)
		return errmsg_set(msg, E_VALUE,
			"binding \"%s\": scheme \"http\" is refused: credentials only go over "
			"https",
			vault_quote(b->name, quoted));
	for (size_t i = 0; i < b->hosts.n; i++) {
		int ret = check_host(b, b->hosts.items[i], rules, msg);

		if (ret < 0)
			return ret;
	}
	return rules->read_only && !rules->allow_body_surface ? check_body_surface(b, rules, msg)
							      : 0;
}

/* Visible ASCII, and blanks inside: what every server reads as it was written (RFC 9110 5.5). */
static bool check_header_value_ok(struct slice v)
{
	if (slice_trim(v).len != v.len)
		return false;
	for (size_t i = 0; i < v.len; i++)
		if (((uint8_t)v.p[i] < 0x20 && v.p[i] != '\t') || (uint8_t)v.p[i] >= 0x7f)
			return false;
	return true;
}

static int check_header_values(const struct vault_view *view, struct errmsg *msg)
{
	for (size_t i = 0; i < view->n_credentials; i++) {
		const struct credential *c = &view->credentials[i];
		char quoted[VAULT_QUOTE_MAX];

		if (c->in_header && !check_header_value_ok(secret_form(c->value, SECRET_RAW)))
			return errmsg_set(msg, E_VALUE,
				"credential \"%s\": its value cannot stand in a header: control or "
				"non-ASCII bytes, or blanks or a newline at an end",
				vault_quote(c->name, quoted));
	}
	return 0;
}

/* A placeholder is known to the sandbox; one that is a key would give it away (C130). */
static int check_placeholders(const struct vault_view *view, struct errmsg *msg)
{
	struct key_table *values;
	size_t n = 0;
	int ret = 0;

	for (size_t i = 0; i < view->n_bindings; i++)
		n += view->bindings[i].n_substitutions;
	values = key_table_new(n);
	for (size_t i = 0; i < view->n_bindings; i++)
		for (size_t k = 0; k < view->bindings[i].n_substitutions; k++)
			(void)key_table_put(values, view->bindings[i].substitutions[k].placeholder);
	for (size_t i = 0; i < view->n_credentials && ret == 0; i++) {
		const struct credential *c = &view->credentials[i];
		char quoted[VAULT_QUOTE_MAX];

		if (key_table_find(values, secret_form(c->value, SECRET_RAW)) != KEY_NONE)
			ret = errmsg_set(msg, E_VALUE,
				"credential \"%s\": its value is also a placeholder",
				vault_quote(c->name, quoted));
	}
	key_table_free(values);
	return ret;
}

int vault_rules_check(
	const struct vault_view *view, const struct vault_rules *rules, struct errmsg *msg)
{
	int ret = 0;

	if (view->n_bindings > 0 && !rules->policy)
		return errmsg_set(
			msg, E_VALUE, "credential vault bindings require an egress policy");
	for (size_t i = 0; i < view->n_bindings && ret == 0 && rules->require_scoped_match; i++)
		ret = check_scope(&view->bindings[i], msg);
	for (size_t i = 0; i < view->n_bindings && ret == 0; i++)
		ret = check_binding(&view->bindings[i], rules, msg);
	return ret;
}

int vault_values_check(const struct vault_view *view, struct errmsg *msg)
{
	int ret = check_header_values(view, msg);

	return ret == 0 ? check_placeholders(view, msg) : ret;
}

int vault_ambiguity_check(const struct vault_view *view, struct errmsg *msg)
{
	char quoted[2][VAULT_QUOTE_MAX];
	size_t a;
	size_t b;

	if (!binding_index_find_ambiguous(view->index, &a, &b))
		return 0;
	return errmsg_set(msg, E_VALUE, "bindings \"%s\" and \"%s\" can match the same request",
		vault_quote(view->bindings[a].name, quoted[0]),
		vault_quote(view->bindings[b].name, quoted[1]));
}
