/* Each setting's text to its place in struct settings. Before it: settings.c and settings_env.c
 * have collected the texts. After it: settings.c checks what depends on more than one. */
#include <stdlib.h>

#include "control/lifecycle_doc.h"
#include "control/settings_int.h"
#include "proxy/fields.h"
#include "proxy/request_target.h"

#define EXTRA_PORTS_MAX 13 /* upstream's 15 with 80 and 443 */
#define SANDBOX_ID_MAX 128
#define DNS_TIMEOUT_MAX_MS 120000 /* upstream's cap */
#define CONNECTIONS_MAX 1000000
#define TOKEN_MAX 1024              /* so that it fits into a head many times over */
#define WEBHOOK_URL_MAX 2048        /* what other software takes */
#define OPENSANDBOX_URL_MAX 1024    /* with an id behind it */
#define AUDIT_MIN_BYTES (64u << 10) /* a rotation more often than this keeps nothing */
#define AUDIT_TOP_BYTES (1ull << 40)

typedef int (*setting_decode_fn)(struct settings_run *run, struct slice text);

/* The path of a file: not empty, no directory. */
static int setting_path(struct settings_run *run, struct slice text, char **out)
{
	if (text.len == 0 || text.p[text.len - 1] == '/')
		return errmsg_set(run->msg, E_VALUE, "\"%.*s\": expected the path of a file",
			SLICE_FMT(slice_first(text, 100)));
	*out = settings_text_dup(text);
	return 0;
}

static int setting_mode(struct settings_run *run, struct slice text)
{
	return settings_text_mode(text, &run->s->mode, run->msg);
}

static int setting_policy_file(struct settings_run *run, struct slice text)
{
	return setting_path(run, text, &run->s->policy_file);
}

static int setting_max_rules(struct settings_run *run, struct slice text)
{
	uint64_t n;
	int ret;

	ret = settings_text_number(text, 0, UINT32_MAX, &n, run->msg);
	if (ret == 0)
		run->s->max_rules = (size_t)n;
	return ret;
}

static int setting_policy_ceiling(struct settings_run *run, struct slice text)
{
	return setting_path(run, text, &run->s->policy_ceiling);
}

static int setting_rules_dir(struct settings_run *run, struct slice text)
{
	run->s->rules_dir = settings_text_dup(text);
	return 0;
}

static int setting_api_addr(struct settings_run *run, struct slice text)
{
	int ret = settings_text_listen(
		text, &run->s->api_addr, &run->s->api_any, &run->s->api_port, run->msg);

	run->s->api = ret == 0;
	return ret;
}

/* Compared as it is. One that no field can carry would shut everybody out; the message must not
 * quote it. */
static int setting_token(struct settings_run *run, struct slice text)
{
	struct slice trimmed = slice_trim(text);

	if (text.len == 0 || text.len > TOKEN_MAX || trimmed.len != text.len ||
		!field_value_ok(text))
		return errmsg_set(run->msg, E_VALUE,
			"cannot stand in a field: expected 1 to %d bytes without control "
			"characters, and no blanks around them",
			TOKEN_MAX);
	run->s->token = settings_text_dup(text);
	return 0;
}

static int setting_deny_webhook(struct settings_run *run, struct slice text)
{
	struct request_target t;

	if (text.len > WEBHOOK_URL_MAX || request_target_decode_url(text, &t) < 0)
		return errmsg_set(run->msg, E_VALUE,
			"expected a URL that begins with http:// or https://, without user and "
			"password");
	run->s->deny_webhook = settings_text_dup(text);
	return 0;
}

static int setting_opensandbox_url(struct settings_run *run, struct slice text)
{
	struct request_target t;

	if (lifecycle_url_decode(&text, &t) < 0 || text.len > OPENSANDBOX_URL_MAX)
		return errmsg_set(run->msg, E_VALUE,
			"expected a URL that begins with http:// or https://, without user, "
			"password and query");
	run->s->opensandbox_url = settings_text_dup(text);
	return 0;
}

static int setting_opensandbox_key(struct settings_run *run, struct slice text)
{
	return setting_path(run, text, &run->s->opensandbox_key);
}

static int setting_opensandbox_ca(struct settings_run *run, struct slice text)
{
	run->s->opensandbox_ca = settings_text_dup(text);
	return 0;
}

static int setting_read_only(struct settings_run *run, struct slice text)
{
	return settings_text_bool(text, &run->s->read_only, run->msg);
}

static int setting_write_hosts(struct settings_run *run, struct slice text)
{
	return write_hosts_decode(text, &run->s->write_hosts, run->msg);
}

static int setting_git_fetch(struct settings_run *run, struct slice text)
{
	return settings_text_bool(text, &run->s->read_only_git_fetch, run->msg);
}

static int setting_intercept(struct settings_run *run, struct slice text)
{
	return settings_text_intercept(text, &run->s->intercept, run->msg);
}

static int setting_pass_through(struct settings_run *run, struct slice text)
{
	return write_hosts_decode(text, &run->s->pass_through, run->msg);
}

static int setting_private_names(struct settings_run *run, struct slice text)
{
	return settings_text_private_names(text, &run->s->private_names, run->msg);
}

static int setting_proxy_addr(struct settings_run *run, struct slice text)
{
	return settings_text_addr(text, &run->s->proxy_addr, &run->s->proxy_port, run->msg);
}

static int setting_proxy_port(struct settings_run *run, struct slice text)
{
	const char *addr = settings_env_get(run->src->environ, "EGRESS_PROXY_ADDR");
	uint64_t port;
	int ret;

	ret = settings_text_number(text, 1, UINT16_MAX, &port, run->msg);
	if (ret == 0 && !addr)
		run->s->proxy_port = (uint16_t)port;
	return ret;
}

static int setting_extra_ports(struct settings_run *run, struct slice text)
{
	return settings_text_ports(
		text, run->s->extra_ports, EXTRA_PORTS_MAX, &run->s->n_extra_ports, run->msg);
}

static int setting_ca_cert_out(struct settings_run *run, struct slice text)
{
	return setting_path(run, text, &run->s->ca_cert_out);
}

static int setting_ca_key(struct settings_run *run, struct slice text)
{
	return setting_path(run, text, &run->s->ca_key);
}

static int setting_upstream_trust(struct settings_run *run, struct slice text)
{
	if (text.len == 0)
		return errmsg_set(run->msg, E_VALUE, "empty: expected a file or directory");
	run->s->upstream_trust = settings_text_dup(text);
	return 0;
}

static int setting_upstream_insecure(struct settings_run *run, struct slice text)
{
	return settings_text_bool(text, &run->s->upstream_insecure, run->msg);
}

static int setting_dns_upstream(struct settings_run *run, struct slice text)
{
	return upstreams_decode(text, &run->s->dns, run->msg);
}

static int setting_dns_timeout(struct settings_run *run, struct slice text)
{
	uint64_t seconds;
	int ret = 0;

	text = slice_strip(text);
	if (slice_to_u64(text, &seconds) && seconds > 0) {
		run->s->dns_timeout_ms = seconds > DNS_TIMEOUT_MAX_MS / 1000
			? DNS_TIMEOUT_MAX_MS + 1
			: (uint32_t)seconds * 1000;
	} else {
		ret = settings_text_duration(text, &run->s->dns_timeout_ms, run->msg);
	}
	if (ret == 0 && run->s->dns_timeout_ms > DNS_TIMEOUT_MAX_MS) {
		settings_warn(run, "dns_timeout: more than 120s: 120s is used");
		run->s->dns_timeout_ms = DNS_TIMEOUT_MAX_MS;
	}
	return ret;
}

static int setting_audit(struct settings_run *run, struct slice text)
{
	return settings_text_audit(text, &run->s->audit_stdout, &run->s->audit_file, run->msg);
}

static int setting_audit_max_bytes(struct settings_run *run, struct slice text)
{
	return settings_text_size(
		text, AUDIT_MIN_BYTES, AUDIT_TOP_BYTES, &run->s->audit_max_bytes, run->msg);
}

static int setting_sandbox_id(struct settings_run *run, struct slice text)
{
	if (text.len > SANDBOX_ID_MAX)
		return errmsg_set(run->msg, E_LIMIT, "%zu bytes: expected %d at most", text.len,
			SANDBOX_ID_MAX);
	run->s->sandbox_id = settings_text_dup(text);
	return 0;
}

static int setting_vault(struct settings_run *run, struct slice text)
{
	return setting_path(run, text, &run->s->vault_file);
}

static int setting_unbound_writes(struct settings_run *run, struct slice text)
{
	return settings_text_allow(text, &run->s->unbound_writes, run->msg);
}

static int setting_placeholders(struct settings_run *run, struct slice text)
{
	return settings_text_placeholders(text, &run->s->placeholders, run->msg);
}

static int setting_http_bindings(struct settings_run *run, struct slice text)
{
	return settings_text_bool(text, &run->s->http_bindings, run->msg);
}

static int setting_body_surface(struct settings_run *run, struct slice text)
{
	return settings_text_bool(text, &run->s->body_surface, run->msg);
}

static int setting_scoped_match(struct settings_run *run, struct slice text)
{
	return settings_text_bool(text, &run->s->require_scoped_match, run->msg);
}

static int setting_locked_memory(struct settings_run *run, struct slice text)
{
	return settings_text_bool(text, &run->s->require_locked_memory, run->msg);
}

static int setting_packet_sockets(struct settings_run *run, struct slice text)
{
	return settings_text_allow(text, &run->s->packet_sockets, run->msg);
}

static int setting_vault_require_tls(struct settings_run *run, struct slice text)
{
	return settings_text_bool(text, &run->s->vault_require_tls, run->msg);
}

static int setting_log_level(struct settings_run *run, struct slice text)
{
	return settings_text_log_level(text, &run->s->log_level, run->msg);
}

static int setting_max_connections(struct settings_run *run, struct slice text)
{
	uint64_t n;
	int ret;

	ret = settings_text_number(text, 0, CONNECTIONS_MAX, &n, run->msg);
	if (ret == 0)
		run->s->max_connections = (uint32_t)n;
	return ret;
}

/* How each text is decoded. A duration needs only its place. has_default: the default in the table
 * is a text of the same form and goes the same way. */
static const struct {
	setting_decode_fn decode;
	size_t duration;
	bool has_default;
} setting_steps[SETTING_MAX] = {
	[SETTING_MODE] = {setting_mode, 0, true},
	[SETTING_POLICY] = {NULL, 0, false}, /* settings_policy.c */
	[SETTING_POLICY_FILE] = {setting_policy_file, 0, false},
	[SETTING_MAX_RULES] = {setting_max_rules, 0, true},
	[SETTING_RULES_DIR] = {setting_rules_dir, 0, true},
	[SETTING_POLICY_CEILING] = {setting_policy_ceiling, 0, false},
	[SETTING_API_ADDR] = {setting_api_addr, 0, false},
	[SETTING_TOKEN] = {setting_token, 0, false},
	[SETTING_DENY_WEBHOOK] = {setting_deny_webhook, 0, false},
	[SETTING_TRANSPARENT] = {setting_transparent, 0, true},
	[SETTING_INBOUND_PORTS] = {setting_inbound_ports, 0, true},
	[SETTING_BLOCK_DOH] = {setting_block_doh, 0, true},
	[SETTING_DOH_BLOCKLIST] = {setting_doh_blocklist, 0, false},
	[SETTING_NAMESERVER_EXEMPT] = {setting_nameserver_exempt, 0, false},
	[SETTING_REQUIRE_PASS] = {setting_require_pass, 0, true},
	[SETTING_REQUIRE_RAW_GUARD] = {setting_require_raw_guard, 0, true},
	[SETTING_ALLOW_LOCAL_RESOLVER] = {setting_allow_local_resolver, 0, true},
	[SETTING_READ_ONLY] = {setting_read_only, 0, false},
	[SETTING_WRITE_HOSTS] = {setting_write_hosts, 0, false},
	[SETTING_READ_ONLY_GIT_FETCH] = {setting_git_fetch, 0, true},
	[SETTING_INTERCEPT] = {setting_intercept, 0, true},
	[SETTING_PASS_THROUGH] = {setting_pass_through, 0, false},
	[SETTING_PRIVATE_NAMES] = {setting_private_names, 0, true},
	[SETTING_PROXY_ADDR] = {setting_proxy_addr, 0, true},
	[SETTING_PROXY_PORT] = {setting_proxy_port, 0, false},
	[SETTING_EXTRA_PORTS] = {setting_extra_ports, 0, false},
	[SETTING_CA_CERT_OUT] = {setting_ca_cert_out, 0, false},
	[SETTING_CA_KEY] = {setting_ca_key, 0, false},
	[SETTING_UPSTREAM_TRUST] = {setting_upstream_trust, 0, true},
	[SETTING_UPSTREAM_INSECURE] = {setting_upstream_insecure, 0, true},
	[SETTING_DNS_UPSTREAM] = {setting_dns_upstream, 0, false},
	[SETTING_DNS_TIMEOUT] = {setting_dns_timeout, 0, true},
	[SETTING_DNS_PROBE] = {setting_dns_probe, 0, true},
	[SETTING_DNS_PROBE_INTERVAL] = {setting_dns_probe_interval, 0, true},
	[SETTING_DNS_TYPES] = {setting_dns_types, 0, false},
	[SETTING_AUDIT] = {setting_audit, 0, true},
	/* 64 MiB: about 150,000 lines, read in a second by the audit tools. */
	[SETTING_AUDIT_MAX_BYTES] = {setting_audit_max_bytes, 0, true},
	[SETTING_SANDBOX_ID] = {setting_sandbox_id, 0, false},
	[SETTING_OPENSANDBOX_URL] = {setting_opensandbox_url, 0, false},
	[SETTING_OPENSANDBOX_KEY] = {setting_opensandbox_key, 0, false},
	[SETTING_OPENSANDBOX_CA] = {setting_opensandbox_ca, 0, false},
	[SETTING_VAULT] = {setting_vault, 0, false},
	[SETTING_UNBOUND_WRITES] = {setting_unbound_writes, 0, true},
	[SETTING_PLACEHOLDERS] = {setting_placeholders, 0, true},
	[SETTING_HTTP_BINDINGS] = {setting_http_bindings, 0, true},
	[SETTING_BODY_SURFACE] = {setting_body_surface, 0, true},
	[SETTING_REQUIRE_SCOPED_MATCH] = {setting_scoped_match, 0, true},
	[SETTING_REQUIRE_LOCKED_MEMORY] = {setting_locked_memory, 0, true},
	[SETTING_PACKET_SOCKETS] = {setting_packet_sockets, 0, true},
	[SETTING_VAULT_REQUIRE_TLS] = {setting_vault_require_tls, 0, true},
	[SETTING_TRUSTED_PROXIES] = {setting_trusted_proxies, 0, false},
	[SETTING_LOG_LEVEL] = {setting_log_level, 0, true},
	/* 30 s: a slow line still sends 64 KiB of head; a slow attacker holds a socket no longer.
	 */
	[SETTING_HEAD_TIMEOUT] = {NULL, offsetof(struct settings, head_timeout_ms), true},
	/* 15 s: four lost packets of a handshake, with their retransmissions. */
	[SETTING_HANDSHAKE_TIMEOUT] = {NULL, offsetof(struct settings, handshake_timeout_ms), true},
	/* 5 min: longer than any client keeps a pooled connection, so that it closes first. */
	[SETTING_CLIENT_IDLE] = {NULL, offsetof(struct settings, client_idle_ms), true},
	/* 10 s: three SYNs. */
	[SETTING_CONNECT_TIMEOUT] = {NULL, offsetof(struct settings, connect_timeout_ms), true},
	/* 15 min: models answer after up to 10 minutes of silence, and so do long streams. */
	[SETTING_FIRST_BYTE] = {NULL, offsetof(struct settings, first_byte_ms), true},
	[SETTING_STREAM_IDLE] = {NULL, offsetof(struct settings, stream_idle_ms), true},
	/* 30 s: less than the 60 s after which common servers close, so that we rarely meet that.
	 */
	[SETTING_UPSTREAM_IDLE] = {NULL, offsetof(struct settings, upstream_idle_ms), true},
	[SETTING_MAX_CONNECTIONS] = {setting_max_connections, 0, true},
};

int settings_decode(struct settings_run *run, enum setting_id id)
{
	const struct setting_value *v = &run->v[id];
	struct slice text;
	int ret;

	if (id == SETTING_POLICY || (!v->set && !setting_steps[id].has_default))
		return 0;
	text = slice_str(v->set ? v->text : setting_row(id)->def);
	if (setting_steps[id].decode)
		ret = setting_steps[id].decode(run, text);
	else
		ret = settings_text_duration(text,
			(uint32_t *)(void *)((char *)run->s + setting_steps[id].duration),
			run->msg);
	if (ret == 0)
		return 0;
	if (v->set)
		return errmsg_prefix(run->msg, ret, "%s", v->source);
	return errmsg_prefix(run->msg, ret, "%s (default)", setting_row(id)->key);
}
