/* The settings of the modes dns and dns+nft: what the kernel's rules and the DNS gate are made
 * from. Before it: settings_decode.c, with a text; after it: worker_gate.c. */
#include <stdlib.h>

#include "base/arena.h"
#include "control/settings_int.h"
#include "proxy/request_target.h"

#define PROBE_INTERVAL_DEFAULT_S 30 /* and its cap: as the replaced image */
#define PROBE_INTERVAL_MAX_S 3600
#define PROBE_NAME_MAX 255

int setting_transparent(struct settings_run *run, struct slice text)
{
	return settings_text_bool(text, &run->s->transparent, run->msg);
}

int setting_block_doh(struct settings_run *run, struct slice text)
{
	return settings_text_bool(text, &run->s->block_doh, run->msg);
}

int setting_require_pass(struct settings_run *run, struct slice text)
{
	return settings_text_bool(text, &run->s->require_pass, run->msg);
}

int setting_require_raw_guard(struct settings_run *run, struct slice text)
{
	return settings_text_bool(text, &run->s->require_raw_guard, run->msg);
}

int setting_allow_local_resolver(struct settings_run *run, struct slice text)
{
	return settings_text_bool(text, &run->s->allow_local_resolver, run->msg);
}

static bool setting_has_number(const uint16_t *list, size_t n, uint16_t number)
{
	for (size_t i = 0; i < n; i++)
		if (list[i] == number)
			return true;
	return false;
}

/* Empty: none. `all`: the default, spelt out. */
int setting_inbound_ports(struct settings_run *run, struct slice text)
{
	struct settings *s = run->s;
	struct slice rest = slice_strip(text);
	struct slice item;
	uint64_t port;

	s->inbound_all = slice_ieq(rest, SLICE("all"));
	if (s->inbound_all)
		return 0;
	while (settings_text_item(&rest, &item)) {
		if (!slice_to_u64(item, &port) || port == 0 || port > UINT16_MAX)
			return errmsg_set(run->msg, E_VALUE,
				"\"%.*s\": expected ports from 1 to 65535, or all",
				SLICE_FMT(slice_first(item, 40)));
		if (setting_has_number(s->inbound_ports, s->n_inbound_ports, (uint16_t)port))
			continue;
		if (s->n_inbound_ports == SETTINGS_INBOUND_MAX)
			return errmsg_set(run->msg, E_LIMIT, "too many ports: expected %d at most",
				SETTINGS_INBOUND_MAX);
		s->inbound_ports[s->n_inbound_ports++] = (uint16_t)port;
	}
	return 0;
}

/* Bad entries are left out with a warning, as the replaced image does. */
static void setting_blocks(struct settings_run *run, enum setting_id id, struct slice text,
	struct netcidr **list, size_t *n)
{
	struct slice rest = slice_strip(text);
	struct slice item;
	struct netcidr c;

	while (settings_text_item(&rest, &item)) {
		c.len = 128;
		if (!netcidr_parse(item, &c) && !netaddr_parse(item, &c.addr)) {
			settings_warn(run,
				"%s: \"%.*s\" is left out: expected an address or a block",
				setting_row(id)->key, SLICE_FMT(slice_first(item, 60)));
			continue;
		}
		*list = xrealloc(*list, (*n + 1) * sizeof(**list));
		(*list)[(*n)++] = c;
	}
}

int setting_doh_blocklist(struct settings_run *run, struct slice text)
{
	struct settings *s = run->s;

	setting_blocks(run, SETTING_DOH_BLOCKLIST, text, &s->doh, &s->n_doh);
	return 0;
}

int setting_trusted_proxies(struct settings_run *run, struct slice text)
{
	struct settings *s = run->s;

	setting_blocks(
		run, SETTING_TRUSTED_PROXIES, text, &s->trusted_proxies, &s->n_trusted_proxies);
	return 0;
}

static bool setting_is_exempt(const struct settings *s, const struct netaddr *a)
{
	for (size_t i = 0; i < s->n_exempt; i++)
		if (netaddr_eq(&s->exempt[i], a))
			return true;
	return false;
}

int setting_nameserver_exempt(struct settings_run *run, struct slice text)
{
	struct settings *s = run->s;
	struct slice rest = slice_strip(text);
	struct slice item;
	struct netaddr a;

	while (settings_text_item(&rest, &item)) {
		if (!netaddr_parse(item, &a)) {
			settings_warn(run,
				"nameserver_exempt: \"%.*s\" is left out: expected an address",
				SLICE_FMT(slice_first(item, 60)));
			continue;
		}
		if (setting_is_exempt(s, &a))
			continue;
		s->exempt = xrealloc(s->exempt, (s->n_exempt + 1) * sizeof(*s->exempt));
		s->exempt[s->n_exempt++] = a;
	}
	return 0;
}

int setting_dns_probe(struct settings_run *run, struct slice text)
{
	text = slice_strip(text);
	if (text.len > PROBE_NAME_MAX)
		return errmsg_set(run->msg, E_LIMIT, "%zu bytes: expected a name", text.len);
	run->s->dns_probe = settings_text_dup(slice_eq(text, SLICE(".")) ? SLICE_EMPTY : text);
	return 0;
}

int setting_dns_probe_interval(struct settings_run *run, struct slice text)
{
	uint64_t s;

	if (!slice_to_u64(slice_strip(text), &s) || s == 0) {
		settings_warn(run, "dns_probe_interval: \"%.*s\": %d s is used: expected seconds",
			SLICE_FMT(slice_first(text, 40)), PROBE_INTERVAL_DEFAULT_S);
		s = PROBE_INTERVAL_DEFAULT_S;
	}
	if (s > PROBE_INTERVAL_MAX_S) {
		settings_warn(run, "dns_probe_interval: more than %d: %d s is used",
			PROBE_INTERVAL_MAX_S, PROBE_INTERVAL_MAX_S);
		s = PROBE_INTERVAL_MAX_S;
	}
	run->s->dns_probe_interval_s = (uint32_t)s;
	return 0;
}

static bool setting_dns_type(struct slice item, uint16_t *out)
{
	static const struct {
		const char *name;
		uint16_t type;
	} known[] = {{"A", DNS_A}, {"NS", DNS_NS}, {"CNAME", DNS_CNAME}, {"SOA", DNS_SOA},
		{"PTR", DNS_PTR}, {"MX", DNS_MX}, {"TXT", DNS_TXT}, {"RP", 17}, {"AFSDB", 18},
		{"AAAA", DNS_AAAA}, {"LOC", 29}, {"SRV", DNS_SRV}, {"NAPTR", 35}, {"CERT", 37},
		{"DNAME", DNS_DNAME}, {"DS", DNS_DS}, {"SSHFP", 44}, {"DNSKEY", 48}, {"TLSA", 52},
		{"SMIMEA", 53}, {"OPENPGPKEY", 61}, {"SVCB", DNS_SVCB}, {"HTTPS", DNS_HTTPS},
		{"SPF", 99}, {"URI", 256}, {"CAA", DNS_CAA}};
	uint64_t n;

	for (size_t i = 0; i < ARRAY_LEN(known); i++) {
		if (slice_ieq(item, slice_str(known[i].name))) {
			*out = known[i].type;
			return true;
		}
	}
	if (item.len > 4 && slice_ieq(slice_first(item, 4), SLICE("TYPE")))
		item = slice_from(item, 4);
	/* As dns/judge.c: no type of a record, or all types at once. */
	if (!slice_to_u64(item, &n) || n == 0 || n == DNS_OPT || n > UINT16_MAX ||
		(n >= DNS_META_FIRST && n <= DNS_META_LAST))
		return false;
	*out = (uint16_t)n;
	return true;
}

int setting_dns_types(struct settings_run *run, struct slice text)
{
	struct settings *s = run->s;
	struct slice rest = slice_strip(text);
	struct slice item;
	uint16_t type;

	while (settings_text_item(&rest, &item)) {
		if (!setting_dns_type(item, &type))
			return errmsg_set(run->msg, E_VALUE,
				"\"%.*s\": expected a type of records such as TXT, NAPTR or TYPE65",
				SLICE_FMT(slice_first(item, 40)));
		if (setting_has_number(s->dns_types, s->n_dns_types, type))
			continue;
		if (s->n_dns_types == JUDGE_TYPES_MAX)
			return errmsg_set(run->msg, E_LIMIT, "too many types: expected %d at most",
				JUDGE_TYPES_MAX);
		s->dns_types[s->n_dns_types++] = type;
	}
	return 0;
}

/* Asked for in the environment of mode proxy, without a use there. A file may serve all modes. */
static void settings_gate_unused(const struct settings_run *run)
{
	static const enum setting_id ids[] = {SETTING_TRANSPARENT, SETTING_INBOUND_PORTS,
		SETTING_BLOCK_DOH, SETTING_DOH_BLOCKLIST, SETTING_NAMESERVER_EXEMPT,
		SETTING_REQUIRE_PASS, SETTING_REQUIRE_RAW_GUARD, SETTING_ALLOW_LOCAL_RESOLVER,
		SETTING_DNS_PROBE, SETTING_DNS_PROBE_INTERVAL, SETTING_DNS_TYPES};

	for (size_t i = 0; i < ARRAY_LEN(ids); i++)
		if (run->v[ids[i]].set &&
			strcmp(run->v[ids[i]].source, setting_row(ids[i])->env) == 0)
			settings_warn(run, "%s: no effect in mode proxy", run->v[ids[i]].source);
}

/* What only the kernel could do, in mode dns, where it stops nothing. */
static void settings_gate_open(const struct settings_run *run)
{
	const struct settings *s = run->s;
	const struct {
		enum setting_id id;
		bool wanted;
	} rows[] = {{SETTING_INBOUND_PORTS, !s->inbound_all}, {SETTING_BLOCK_DOH, s->block_doh},
		{SETTING_REQUIRE_PASS, s->require_pass},
		{SETTING_REQUIRE_RAW_GUARD, s->require_raw_guard}};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (rows[i].wanted)
			settings_warn(run,
				"%s: no effect: in mode dns the kernel stops nothing: expected "
				"mode dns+nft or the read-only rule",
				run->v[rows[i].id].source);
}

int settings_gate_together(struct settings_run *run)
{
	struct settings *s = run->s;

	if (s->mode == MODE_PROXY) {
		s->proxy = true;
		s->transparent = false;
		settings_gate_unused(run);
		return 0;
	}
	s->enforce = s->mode == MODE_DNS_NFT || s->read_only;
	s->proxy = s->transparent || s->read_only || run->v[SETTING_PROXY_ADDR].set;
	if (run->v[SETTING_CA_KEY].set)
		return errmsg_set(run->msg, E_VALUE, "%s: expected in mode proxy only",
			run->v[SETTING_CA_KEY].source);
	if (!s->enforce)
		settings_gate_open(run);
	if (run->v[SETTING_DOH_BLOCKLIST].set && !s->block_doh)
		settings_warn(run, "%s: no effect: block_doh is off",
			run->v[SETTING_DOH_BLOCKLIST].source);
	if (!s->transparent && s->intercept != INTERCEPT_OFF) {
		if (run->v[SETTING_INTERCEPT].set)
			settings_warn(run,
				"%s: no effect: nothing is decrypted without transparent "
				"interception",
				run->v[SETTING_INTERCEPT].source);
		s->intercept = INTERCEPT_OFF;
	}
	return 0;
}

/* A key that is sent in clear to where the sandbox could answer is the sandbox's. Addresses behind
 * a name are looked at when they are known. */
int settings_opensandbox(struct settings_run *run)
{
	const struct settings *s = run->s;
	struct request_target t;

	if (!s->opensandbox_url != !s->opensandbox_key)
		return errmsg_set(run->msg, E_VALUE,
			"OPENSANDBOX_URL and OPENSANDBOX_API_KEY_FILE: only one of them is set: "
			"expected both or neither");
	if (!s->opensandbox_url && s->opensandbox_ca)
		settings_warn(run, "OPENSANDBOX_CA_FILE: no effect without OPENSANDBOX_URL");
	if (!s->opensandbox_url)
		return 0;
	REQUIRE(request_target_decode_url(slice_str(s->opensandbox_url), &t) == 0);
	if (!t.https && s->opensandbox_ca)
		return errmsg_set(run->msg, E_VALUE,
			"OPENSANDBOX_CA_FILE: expected an OPENSANDBOX_URL that begins with "
			"https://");
	if (!t.https && s->mode != MODE_PROXY &&
		(slice_eq(authority_name(&t.authority), SLICE("localhost")) ||
			(t.authority.is_addr && netaddr_class(&t.authority.addr) == ADDR_LOOPBACK)))
		return errmsg_set(run->msg, E_VALUE,
			"OPENSANDBOX_URL: %s: the sandbox could answer there: expected an address "
			"outside of this namespace, or https://",
			s->opensandbox_url);
	if (!s->sandbox_id)
		settings_warn(run,
			"OPENSANDBOX_URL: no effect without OPENSANDBOX_EGRESS_SANDBOX_ID: which "
			"sandbox this is is not known");
	return 0;
}
