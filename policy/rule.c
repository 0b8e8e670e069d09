/* One rule from the texts of its author: classified, put into normal form, or refused with what to
 * write instead.
 *
 * The replaced server takes any text as a name; a URL or a name with a port then never matches, and
 * a deny written that way is a silent hole. So whatever cannot match is an error here. Comes after
 * policy_json (which reads the document), before policy (which compiles the rules). */
#include <stdlib.h>

#include "base/arena.h"
#include "policy/policy_int.h"

struct slice rule_text_cut(struct slice s, size_t max)
{
	size_t n = max;

	if (s.len <= max)
		return s;
	while (n > 0 && ((uint8_t)s.p[n] & 0xc0) == 0x80)
		n--;
	return slice_first(s, n);
}

const char *rule_quote(struct slice s, char buf[RULE_QUOTE_MAX])
{
	static const char dots[] = "...";
	size_t n = rule_text_cut(s, RULE_QUOTE_MAX - sizeof(dots)).len;

	for (size_t i = 0; i < n; i++) {
		uint8_t c = (uint8_t)s.p[i];

		buf[i] = c < 0x20 || c == 0x7f || c == '"' ? '?' : (char)c;
	}
	memcpy(buf + n, n < s.len ? dots : "", n < s.len ? sizeof(dots) : 1);
	return buf;
}

/* The host inside a URL, as far as it can be told; empty if it cannot. */
static struct slice rule_url_host(struct slice s)
{
	size_t end;
	size_t at;

	s = slice_from(s, slice_find(s, SLICE("://")) + 3);
	for (end = 0; end < s.len && !strchr("/?#", s.p[end]); end++)
		;
	s = slice_first(s, end);
	at = slice_rfind_char(s, '@');
	if (at < s.len)
		s = slice_from(s, at + 1);
	return slice_first(s, slice_rfind_char(s, ':'));
}

static int rule_url_refuse(struct slice s, struct errmsg *msg)
{
	struct slice host = rule_url_host(s);
	char quoted[RULE_QUOTE_MAX];

	if (host.len == 0)
		return errmsg_set(msg, E_VALUE, "a URL; write the host name");
	return errmsg_set(
		msg, E_VALUE, "a URL; write the host name: \"%s\"", rule_quote(host, quoted));
}

static int rule_slash_refuse(struct slice s, struct errmsg *msg)
{
	struct slice head = slice_first(s, slice_find_char(s, '/'));
	size_t colon = slice_find_char(head, ':');
	char quoted[RULE_QUOTE_MAX];
	struct netaddr addr;

	/* A name with a port, not an IPv6 address: then the part behind the name is a path. */
	if (colon == slice_rfind_char(head, ':'))
		head = slice_first(head, colon);
	if (head.len == 0 || netaddr_parse_host(head, &addr) != HOST_NAME)
		return errmsg_set(msg, E_VALUE,
			"a broken address block; write an address, a slash and a length, as in "
			"10.0.0.0/8 or 2001:db8::/32");
	return errmsg_set(msg, E_VALUE, "a path; write the host name alone: \"%s\"",
		rule_quote(head, quoted));
}

static int rule_colon_refuse(struct slice s, struct errmsg *msg)
{
	size_t colon = slice_find_char(s, ':');
	struct slice tail = slice_from(s, colon + 1);
	char quoted[RULE_QUOTE_MAX];

	if (slice_find_char(tail, ':') < tail.len || colon == 0)
		return errmsg_set(
			msg, E_VALUE, "a broken IPv6 address; write it as in 2001:db8::1");
	return errmsg_set(msg, E_VALUE,
		"a port; write \"%s\" alone, ports belong into \"ports\" of a policy rule",
		rule_quote(slice_first(s, colon), quoted));
}

static int rule_star_refuse(struct slice s, struct errmsg *msg)
{
	if (s.len == 1)
		return errmsg_set(msg, E_VALUE,
			"a bare \"*\"; write \"*.example.com\" for the names below one, or set "
			"\"defaultAction\" to \"allow\"");
	if (slice_eq(s, SLICE("*.")))
		return errmsg_set(
			msg, E_VALUE, "no name after \"*.\"; write it as in \"*.example.com\"");
	return errmsg_set(msg, E_VALUE,
		"a \"*\" may stand only once, in front and before a dot; write it as in "
		"\"*.example.com\"");
}

static bool rule_has_space(struct slice s)
{
	for (size_t i = 0; i < s.len; i++)
		if ((uint8_t)s.p[i] <= ' ')
			return true;
	return false;
}

static bool rule_has(struct slice s, char c)
{
	return slice_find_char(s, c) < s.len;
}

int rule_shape_check(struct slice s, struct errmsg *msg)
{
	if (slice_find(s, SLICE("://")) < s.len)
		return rule_url_refuse(s, msg);
	if (rule_has_space(s))
		return errmsg_set(msg, E_VALUE, "white space inside; write one name in each place");
	if (rule_has(s, '%'))
		return errmsg_set(msg, E_VALUE,
			rule_has(s, ':') ? "an address with a zone; write it without the zone"
					 : "a percent sign; write the name as it is");
	if (rule_has(s, '/'))
		return rule_slash_refuse(s, msg);
	if (rule_has(s, '[') || rule_has(s, ']'))
		return errmsg_set(msg, E_VALUE,
			"brackets; write the address without them, and without a port");
	if (rule_has(s, '@'))
		return errmsg_set(msg, E_VALUE, "a user before the host; write the host alone");
	if (rule_has(s, ':'))
		return rule_colon_refuse(s, msg);
	if (rule_has(s, '*'))
		return rule_star_refuse(s, msg);
	if (s.len > 0 && s.p[0] == '.')
		return errmsg_set(msg, E_VALUE,
			"a dot in front; write \"*.example.com\" for the names below one");
	return 0;
}

int rule_name_decode(struct slice s, char buf[HOSTNAME_MAX + 1], size_t *len, struct errmsg *msg)
{
	char text[NETADDR_TEXT_MAX];
	struct errmsg why = {""};
	struct netaddr addr;

	if (hostname_from_person(s, buf, len, &why) < 0)
		return errmsg_set(msg, E_VALUE, "not a host name: %s", why.text);
	switch (netaddr_parse_host(slice_make(buf, *len), &addr)) {
	case HOST_NAME:
		return 0;
	case HOST_ADDRESS:
		netaddr_text(&addr, text);
		return errmsg_set(
			msg, E_VALUE, "an address in an unusual spelling; write \"%s\"", text);
	case HOST_INVALID:
		break;
	}
	return errmsg_set(msg, E_VALUE,
		"a broken address; write four numbers from 0 to 255 without leading zeros, as in "
		"10.0.0.1");
}

static int rule_action_decode(struct slice action, bool *allow, struct errmsg *msg)
{
	char quoted[RULE_QUOTE_MAX];

	action = slice_strip(action);
	*allow = slice_ieq(action, SLICE("allow"));
	if (*allow || action.len == 0 || slice_ieq(action, SLICE("deny")))
		return 0;
	return errmsg_set(msg, E_VALUE, "unsupported action \"%s\"; write \"allow\" or \"deny\"",
		rule_quote(action, quoted));
}

static int rule_port_compare(const void *pa, const void *pb)
{
	return *(const uint16_t *)pa - *(const uint16_t *)pb;
}

static int rule_ports_decode(const uint16_t *ports, size_t n, struct rule *out, struct errmsg *msg)
{
	if (n > POLICY_RULE_PORTS_MAX)
		return errmsg_set(msg, E_LIMIT, "too many ports (%zu), max %d per rule", n,
			POLICY_RULE_PORTS_MAX);
	if (n == 0)
		return 0;
	out->ports = xmalloc(n * sizeof(*ports));
	out->n_ports = n;
	memcpy(out->ports, ports, n * sizeof(*ports));
	qsort(out->ports, n, sizeof(*ports), rule_port_compare);
	if (out->ports[0] == 0)
		return errmsg_set(msg, E_VALUE, "port 0 out of range 1-65535");
	for (size_t i = 1; i < n; i++)
		if (out->ports[i] == out->ports[i - 1])
			return errmsg_set(msg, E_VALUE, "duplicate port %u", out->ports[i]);
	return 0;
}

static int rule_target_decode(struct slice target, struct rule *out, struct errmsg *msg)
{
	char name[HOSTNAME_MAX + 1];
	size_t len;
	int ret;

	if (netaddr_parse(target, &out->cidr.addr)) {
		out->kind = RULE_CIDR;
		out->cidr.len = 128;
		return 0;
	}
	if (netcidr_parse(target, &out->cidr)) {
		out->kind = RULE_CIDR;
		return 0;
	}
	out->kind = RULE_NAME;
	if (target.len > 2 && slice_starts(target, SLICE("*.")) && target.p[2] != '.') {
		out->kind = RULE_WILDCARD;
		target = slice_from(target, 2);
	}
	ret = rule_shape_check(target, msg);
	if (ret == 0)
		ret = rule_name_decode(target, name, &len, msg);
	if (ret == 0)
		out->target = xstrdup(name);
	return ret;
}

int rule_decode(const struct rule_source *src, struct rule *out, struct errmsg *msg)
{
	struct slice target = slice_strip(src->target);
	char quoted[RULE_QUOTE_MAX];
	struct errmsg why = {""};
	struct rule r = {.kind = RULE_ANY};
	int ret;

	*out = (struct rule){.kind = RULE_ANY};
	if (target.len == 0 && src->n_ports == 0)
		return errmsg_set(msg, E_VALUE, "%starget cannot be empty", src->where);
	ret = rule_action_decode(src->action, &r.allow, &why);
	if (ret == 0)
		ret = rule_ports_decode(src->ports, src->n_ports, &r, &why);
	if (ret == 0 && target.len > 0)
		ret = rule_target_decode(target, &r, &why);
	if (ret < 0) {
		rule_fini(&r);
		return errmsg_set(msg, ret, "%starget \"%s\": %s", src->where,
			rule_quote(target, quoted), why.text);
	}
	r.written = xmalloc(target.len + 1);
	memcpy(r.written, target.p, target.len);
	r.written[target.len] = '\0';
	*out = r;
	return 0;
}

int rule_make(struct slice action, struct slice target, const uint16_t *ports, size_t n_ports,
	struct rule *out, struct errmsg *msg)
{
	const struct rule_source src = {"egress ", action, target, ports, n_ports};

	return rule_decode(&src, out, msg);
}

void rule_copy(const struct rule *from, struct rule *to)
{
	*to = *from;
	to->target = from->target ? xstrdup(from->target) : NULL;
	to->written = from->written ? xstrdup(from->written) : NULL;
	to->ports = NULL;
	if (from->n_ports == 0)
		return;
	to->ports = xmalloc(from->n_ports * sizeof(*from->ports));
	memcpy(to->ports, from->ports, from->n_ports * sizeof(*from->ports));
}

void rule_fini(struct rule *r)
{
	free(r->target);
	free(r->written);
	free(r->ports);
	*r = (struct rule){.kind = RULE_ANY};
}
