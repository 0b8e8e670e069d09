/* The effective configuration as YAML (`--check`). What it prints can be read back by
 * settings_load and means the same; there is no secret among the settings. */
#include <stdlib.h>

#include "control/settings_int.h"
#include "policy/policy_json.h"

/* In double quotes; JSON's escapes are YAML's. */
static void settings_print_text(struct strbuf *out, const char *text)
{
	json_t *string = json_string(text);
	char *quoted = string ? json_dumps(string, JSON_ENCODE_ANY) : NULL;

	/* Not UTF-8: cannot be written in YAML at all. */
	strbuf_str(out, quoted ? quoted : "\"?\"");
	free(quoted);
	json_decref(string);
}

static void settings_print_line(struct strbuf *out, const char *key, const char *text)
{
	if (!text)
		return;
	strbuf_printf(out, "%s: ", key);
	settings_print_text(out, text);
	strbuf_char(out, '\n');
}

static void settings_print_bool(struct strbuf *out, const char *key, bool value)
{
	strbuf_printf(out, "%s: %s\n", key, value ? "true" : "false");
}

static void settings_print_duration(struct strbuf *out, const char *key, uint32_t ms)
{
	static const struct {
		uint32_t factor;
		const char *unit;
	} units[] = {{3600000, "h"}, {60000, "m"}, {1000, "s"}, {1, "ms"}};
	size_t i = 0;

	while (ms % units[i].factor != 0)
		i++;
	strbuf_printf(out, "%s: %u%s\n", key, ms / units[i].factor, units[i].unit);
}

static void settings_print_hosts(struct strbuf *out, const char *key, const struct write_hosts *w)
{
	size_t i;

	strbuf_printf(out, "%s: [", key);
	for (i = 0; i < write_hosts_count(w); i++) {
		strbuf_str(out, i > 0 ? ", " : "");
		settings_print_text(out, write_hosts_entry(w, i));
	}
	strbuf_str(out, "]\n");
}

static void settings_print_endpoint(struct strbuf *out, const struct netaddr *a, uint16_t port)
{
	char text[NETADDR_TEXT_MAX];

	(void)netaddr_text(a, text);
	strbuf_printf(out, netaddr_is_v4(a) ? "\"%s:%u\"" : "\"[%s]:%u\"", text, (unsigned)port);
}

static void settings_print_policy(struct strbuf *out, const struct policy *p)
{
	json_t *doc = policy_json_encode(p);
	json_t *rules = json_object_get(doc, "egress");
	char *rule;
	size_t i;

	strbuf_printf(
		out, "policy:\n  defaultAction: %s\n", policy_default_allow(p) ? "allow" : "deny");
	strbuf_str(out, json_array_size(rules) > 0 ? "  egress:\n" : "  egress: []\n");
	for (i = 0; i < json_array_size(rules); i++) {
		rule = json_dumps(json_array_get(rules, i), 0);
		strbuf_printf(out, "    - %s\n", rule ? rule : "?");
		free(rule);
	}
	json_decref(doc);
}

static void settings_print_lists(const struct settings *s, struct strbuf *out)
{
	size_t i;

	settings_print_hosts(out, "write_hosts", s->write_hosts);
	settings_print_bool(out, "read_only_git_fetch", s->read_only_git_fetch);
	settings_print_line(out, "intercept", settings_intercept_text(s->intercept));
	settings_print_hosts(out, "pass_through", s->pass_through);
	strbuf_str(out, "private_names: [");
	for (i = 0; i < s->private_names.n; i++) {
		strbuf_str(out, i > 0 ? ", " : "");
		settings_print_text(out, s->private_names.suffix[i]);
	}
	/* To name it would open it. */
	strbuf_str(out, s->proxy ? "]\nproxy_addr: " : "]\n# proxy_addr: closed; else ");
	settings_print_endpoint(out, &s->proxy_addr, s->proxy_port);
	strbuf_str(out, "\nextra_ports: [");
	for (i = 0; i < s->n_extra_ports; i++)
		strbuf_printf(out, "%s%u", i > 0 ? ", " : "", (unsigned)s->extra_ports[i]);
	strbuf_str(out, "]\n");
}

static void settings_print_addr(struct strbuf *out, const struct netaddr *a, int len)
{
	char text[NETADDR_TEXT_MAX];

	(void)netaddr_text(a, text);
	if (len < 0)
		strbuf_printf(out, "\"%s\"", text);
	else
		strbuf_printf(out, "\"%s/%d\"", text, netaddr_is_v4(a) ? len - 96 : len);
}

static void settings_print_blocks(
	struct strbuf *out, const char *key, const struct netcidr *list, size_t n)
{
	strbuf_printf(out, "%s: [", key);
	for (size_t i = 0; i < n; i++) {
		strbuf_str(out, i > 0 ? ", " : "");
		settings_print_addr(out, &list[i].addr, list[i].len);
	}
	strbuf_str(out, "]\n");
}

/* What the kernel's rules are made from. */
static void settings_print_gate(const struct settings *s, struct strbuf *out)
{
	size_t i;

	settings_print_bool(out, "transparent", s->transparent);
	strbuf_str(out, "inbound_ports: [");
	if (s->inbound_all)
		strbuf_str(out, "all");
	for (i = 0; i < s->n_inbound_ports; i++)
		strbuf_printf(out, "%s%u", i > 0 ? ", " : "", (unsigned)s->inbound_ports[i]);
	strbuf_str(out, "]\n");
	settings_print_bool(out, "block_doh", s->block_doh);
	settings_print_blocks(out, "doh_blocklist", s->doh, s->n_doh);
	strbuf_str(out, "nameserver_exempt: [");
	for (i = 0; i < s->n_exempt; i++) {
		strbuf_str(out, i > 0 ? ", " : "");
		settings_print_addr(out, &s->exempt[i], -1);
	}
	strbuf_str(out, "]\n");
	settings_print_bool(out, "require_pass", s->require_pass);
	settings_print_bool(out, "require_raw_guard", s->require_raw_guard);
	settings_print_bool(out, "allow_local_resolver", s->allow_local_resolver);
}

static void settings_print_dns(const struct settings *s, struct strbuf *out)
{
	size_t i;

	strbuf_str(out, "dns_upstream: [");
	for (i = 0; i < s->dns.n; i++) {
		strbuf_str(out, i > 0 ? ", " : "");
		settings_print_endpoint(out, &s->dns.v[i].addr, s->dns.v[i].port);
	}
	strbuf_str(out, "]\n");
	settings_print_duration(out, "dns_timeout", s->dns_timeout_ms);
	settings_print_line(out, "dns_probe", s->dns_probe[0] ? s->dns_probe : ".");
	strbuf_printf(out, "dns_probe_interval: %u\ndns_types: [", s->dns_probe_interval_s);
	for (i = 0; i < s->n_dns_types; i++)
		strbuf_printf(out, "%sTYPE%u", i > 0 ? ", " : "", (unsigned)s->dns_types[i]);
	strbuf_str(out, "]\n");
}

static void settings_print_vault(const struct settings *s, struct strbuf *out)
{
	settings_print_line(out, "vault", s->vault_file);
	settings_print_line(out, "unbound_writes", s->unbound_writes ? "allow" : "deny");
	settings_print_line(out, "placeholders", settings_placeholders_text(s->placeholders));
	settings_print_bool(out, "http_bindings", s->http_bindings);
	settings_print_bool(out, "body_surface", s->body_surface);
	settings_print_bool(out, "require_scoped_match", s->require_scoped_match);
	settings_print_bool(out, "require_locked_memory", s->require_locked_memory);
	settings_print_line(out, "packet_sockets", s->packet_sockets ? "allow" : "deny");
	settings_print_bool(out, "vault_require_tls", s->vault_require_tls);
	settings_print_blocks(out, "trusted_proxies", s->trusted_proxies, s->n_trusted_proxies);
}

/* Never the token. */
static void settings_print_api(const struct settings *s, struct strbuf *out)
{
	strbuf_str(out, "# EGRESS_RULES_DIR: ");
	settings_print_text(out, s->rules_dir);
	strbuf_char(out, '\n');
	if (s->api) {
		strbuf_str(out, "api_addr: ");
		if (s->api_any)
			strbuf_printf(out, "\":%u\"", (unsigned)s->api_port);
		else
			settings_print_endpoint(out, &s->api_addr, s->api_port);
		strbuf_char(out, '\n');
	}
	if (s->token)
		strbuf_str(out, "# OPENSANDBOX_EGRESS_TOKEN: set\n");
	settings_print_line(out, "deny_webhook", s->deny_webhook);
}

void settings_print(const struct settings *s, struct strbuf *out)
{
	settings_print_line(out, "mode", settings_mode_text(s->mode));
	if (s->policy_file) {
		strbuf_str(out, "# OPENSANDBOX_EGRESS_POLICY_FILE: ");
		settings_print_text(out, s->policy_file);
		strbuf_char(out, '\n');
	}
	settings_print_policy(out, s->user_policy);
	settings_print_line(out, "policy_ceiling", s->policy_ceiling);
	strbuf_printf(out, "max_rules: %zu\n", s->max_rules);
	settings_print_api(s, out);
	settings_print_gate(s, out);
	settings_print_bool(out, "read_only", s->read_only);
	settings_print_lists(s, out);
	settings_print_line(out, "ca_cert_out", s->ca_cert_out);
	settings_print_line(out, "ca_key", s->ca_key);
	settings_print_line(out, "upstream_trust", s->upstream_trust);
	settings_print_bool(out, "upstream_insecure", s->upstream_insecure);
	settings_print_dns(s, out);
	strbuf_printf(out, "audit: [%s%s", s->audit_stdout ? "stdout" : "",
		s->audit_stdout && s->audit_file ? ", " : "");
	if (s->audit_file)
		settings_print_text(out, s->audit_file);
	strbuf_printf(out, "]\naudit_max_bytes: %llu\n", (unsigned long long)s->audit_max_bytes);
	settings_print_line(out, "sandbox_id", s->sandbox_id);
	settings_print_line(out, "opensandbox_url", s->opensandbox_url);
	settings_print_line(out, "opensandbox_api_key_file", s->opensandbox_key);
	settings_print_line(out, "opensandbox_ca_file", s->opensandbox_ca);
	settings_print_vault(s, out);
	settings_print_line(out, "log_level", settings_log_level_text(s->log_level));
	settings_print_duration(out, "head_timeout", s->head_timeout_ms);
	settings_print_duration(out, "handshake_timeout", s->handshake_timeout_ms);
	settings_print_duration(out, "client_idle", s->client_idle_ms);
	settings_print_duration(out, "connect_timeout", s->connect_timeout_ms);
	settings_print_duration(out, "first_byte", s->first_byte_ms);
	settings_print_duration(out, "stream_idle", s->stream_idle_ms);
	settings_print_duration(out, "upstream_idle", s->upstream_idle_ms);
	strbuf_printf(out, "max_connections: %u\n", s->max_connections);
}
