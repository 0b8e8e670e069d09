/* Private to control/settings*.c: the table of settings, and the values while they are collected.
 *
 * settings.c drives: settings_table has the rows and finds names, settings_env reads the
 * environment, settings_decode and settings_text turn texts into values, settings_policy makes the
 * policy, settings_print writes the result out. */
#pragma once

#include "control/settings.h"
#include "control/settings_yaml.h"

/* How a value is written, for lists and messages. */
enum setting_kind {
	KIND_TEXT,     /* one scalar */
	KIND_LIST,     /* a YAML list, or one text with commas; empty is a value */
	KIND_DOCUMENT, /* the policy */
};

/* id, kind, YAML key, environment name, default (as documentation says it), meaning */
#define SETTINGS_TABLE(X)                                                                          \
	X(MODE, KIND_TEXT, "mode", "OPENSANDBOX_EGRESS_MODE", "dns",                               \
		"`dns`: the DNS gate alone; `dns+nft`: and the kernel lets out only what policy "  \
		"allows; `proxy`: explicit proxy, without privileges")                             \
	X(POLICY, KIND_DOCUMENT, "policy", "OPENSANDBOX_EGRESS_RULES", "deny all",                 \
		"OpenSandbox policy document: where the sandbox may connect. JSON in the "         \
		"environment, inline in YAML")                                                     \
	X(POLICY_FILE, KIND_TEXT, NULL, "OPENSANDBOX_EGRESS_POLICY_FILE", "none",                  \
		"file with a policy document that wins over `policy`. Missing: `policy` counts; "  \
		"empty or invalid: a warning, and `policy` counts")                                \
	X(MAX_RULES, KIND_TEXT, "max_rules", "OPENSANDBOX_EGRESS_MAX_RULES", "4096",               \
		"rules at most after a change by API; 0: no limit. The policy of the start is "    \
		"not counted")                                                                     \
	X(RULES_DIR, KIND_TEXT, NULL, "EGRESS_RULES_DIR", "/var/egress/rules",                     \
		"directory of the operator's rule files `deny.always`, `allow.always` and "        \
		"`log_skip.always`, one target a line. They are read again when they change")      \
	X(POLICY_CEILING, KIND_TEXT, "policy_ceiling", "EGRESS_POLICY_CEILING_FILE", "none",       \
		"file with a policy document, JSON or YAML: what may be allowed at most, whoever " \
		"asks for more. Read at start and on SIGHUP")                                      \
	X(API_ADDR, KIND_TEXT, "api_addr", "OPENSANDBOX_EGRESS_HTTP_ADDR",                         \
		":18080; in mode `proxy` none",                                                    \
		"where the API listens: `:port` (every address), `ip:port`, `[v6]:port`, "         \
		"`localhost:port`")                                                                \
	X(TOKEN, KIND_TEXT, NULL, "OPENSANDBOX_EGRESS_TOKEN", "none",                              \
		"what a caller of the API must send in the field OPENSANDBOX-EGRESS-AUTH. "        \
		"Without it everybody may")                                                        \
	X(DENY_WEBHOOK, KIND_TEXT, "deny_webhook", "OPENSANDBOX_EGRESS_DENY_WEBHOOK", "none",      \
		"URL that gets a POST for each name that was refused, one a second for a name")    \
	X(TRANSPARENT, KIND_TEXT, "transparent", "OPENSANDBOX_EGRESS_MITMPROXY_TRANSPARENT",       \
		"off", "modes `dns` and `dns+nft`: web traffic is redirected and decrypted")       \
	X(INBOUND_PORTS, KIND_LIST, "inbound_ports", "EGRESS_INBOUND_PORTS", "all",                \
		"TCP ports on which the sandbox may be reached from outside, 64 at most, where "   \
		"the kernel enforces; empty: none")                                                \
	X(BLOCK_DOH, KIND_TEXT, "block_doh", "OPENSANDBOX_EGRESS_BLOCK_DOH_443", "off",            \
		"TCP and UDP 443 are refused, where the kernel enforces: to `doh_blocklist`, or "  \
		"to every address if that is empty")                                               \
	X(DOH_BLOCKLIST, KIND_LIST, "doh_blocklist", "OPENSANDBOX_EGRESS_DOH_BLOCKLIST", "none",   \
		"addresses and blocks of DNS over HTTPS servers, for `block_doh`")                 \
	X(NAMESERVER_EXEMPT, KIND_LIST, "nameserver_exempt",                                       \
		"OPENSANDBOX_EGRESS_NAMESERVER_EXEMPT", "none",                                    \
		"resolvers that the sandbox may ask directly, past the DNS gate")                  \
	X(REQUIRE_PASS, KIND_TEXT, "require_pass", "EGRESS_REQUIRE_PASS", "off",                   \
		"health fails, and nothing gets out, where the kernel cannot tell our sockets by " \
		"cgroup")                                                                          \
	X(REQUIRE_RAW_GUARD, KIND_TEXT, "require_raw_guard", "EGRESS_REQUIRE_RAW_GUARD", "off",    \
		"health fails, and nothing gets out, where the kernel cannot stop raw frames")     \
	X(ALLOW_LOCAL_RESOLVER, KIND_TEXT, "allow_local_resolver", "EGRESS_ALLOW_LOCAL_RESOLVER",  \
		"off",                                                                             \
		"modes `dns` and `dns+nft`: a resolver may be an address of this namespace, "      \
		"where the sandbox could answer in its place")                                     \
	X(READ_ONLY, KIND_TEXT, "read_only", "EGRESS_READ_ONLY",                                   \
		"on if `write_hosts` is set (even empty), else off",                               \
		"the read-only rule: only GET, HEAD and OPTIONS without content, except to "       \
		"write hosts")                                                                     \
	X(WRITE_HOSTS, KIND_LIST, "write_hosts", "AGENTIC_WRITE_HOSTS", "none",                    \
		"hosts that may be written to: `name`, `*.name` (subdomains), `.name` (both); "    \
		"separated by commas and/or white space")                                          \
	X(READ_ONLY_GIT_FETCH, KIND_TEXT, "read_only_git_fetch", "EGRESS_READ_ONLY_GIT_FETCH",     \
		"off", "POST to `.../git-upload-pack` with its media type counts as a read")       \
	X(INTERCEPT, KIND_TEXT, "intercept", "EGRESS_INTERCEPT", "all",                            \
		"TLS that is decrypted: `all`, `bound` (hosts with a binding only), `off`")        \
	X(PASS_THROUGH, KIND_LIST, "pass_through", "EGRESS_PASS_THROUGH", "none",                  \
		"hosts never decrypted (pinned clients), written as `write_hosts`; under the "     \
		"read-only rule only write hosts may be listed")                                   \
	X(PRIVATE_NAMES, KIND_LIST, "private_names", "EGRESS_PRIVATE_NAMES",                       \
		"cluster.local internal home.arpa",                                                \
		"names, with all below them, whose private addresses are ordinary; single "        \
		"labels always are")                                                               \
	X(PROXY_ADDR, KIND_TEXT, "proxy_addr", "EGRESS_PROXY_ADDR", "127.0.0.1:18081",             \
		"where the proxy listens; with 127.0.0.1 also on [::1]")                           \
	X(PROXY_PORT, KIND_TEXT, NULL, "OPENSANDBOX_EGRESS_MITMPROXY_PORT", "18081",               \
		"moves the port of `proxy_addr`, unless `EGRESS_PROXY_ADDR` is set")               \
	X(EXTRA_PORTS, KIND_LIST, "extra_ports", "OPENSANDBOX_EGRESS_MITMPROXY_EXTRA_PORTS",       \
		"none", "ports that are inspected beside 80 and 443, 13 at most")                  \
	X(CA_CERT_OUT, KIND_TEXT, "ca_cert_out", "EGRESS_CA_CERT_OUT",                             \
		"/opt/opensandbox/mitmproxy-ca-cert.pem; mode `proxy`: "                           \
		"$XDG_STATE_HOME/egress/ca-cert.pem, else ~/.local/state/egress/ca-cert.pem",      \
		"file that the CA certificate is written to, for clients to trust")                \
	X(CA_KEY, KIND_TEXT, "ca_key", "EGRESS_CA_KEY", "none",                                    \
		"mode `proxy`: PEM file, mode 0600, that keeps the CA from start to start; made "  \
		"if it is not there")                                                              \
	X(UPSTREAM_TRUST, KIND_TEXT, "upstream_trust",                                             \
		"OPENSANDBOX_EGRESS_MITMPROXY_UPSTREAM_TRUST_DIR", "/etc/ssl/certs",               \
		"roots for origins: a PEM file, or a directory of them; read at start")            \
	X(UPSTREAM_INSECURE, KIND_TEXT, "upstream_insecure",                                       \
		"OPENSANDBOX_EGRESS_MITMPROXY_SSL_INSECURE", "off",                                \
		"origins are not verified; for tests only")                                        \
	X(DNS_UPSTREAM, KIND_LIST, "dns_upstream", "OPENSANDBOX_EGRESS_DNS_UPSTREAM",              \
		"/etc/resolv.conf, read once",                                                     \
		"resolvers, in order: `ip`, `ip:port`, `[v6]:port`")                               \
	X(DNS_TIMEOUT, KIND_TEXT, "dns_timeout", "OPENSANDBOX_EGRESS_DNS_UPSTREAM_TIMEOUT", "2s",  \
		"time for each resolver, 120s at most; a bare number is seconds")                  \
	X(DNS_PROBE, KIND_TEXT, "dns_probe", "OPENSANDBOX_EGRESS_DNS_UPSTREAM_PROBE", ".",         \
		"name that resolvers are probed with: `.` for the root's NS, else its A")          \
	X(DNS_PROBE_INTERVAL, KIND_TEXT, "dns_probe_interval",                                     \
		"OPENSANDBOX_EGRESS_DNS_UPSTREAM_PROBE_INTERVAL_SEC", "30",                        \
		"seconds between two probes, 1 to 3600")                                           \
	X(DNS_TYPES, KIND_LIST, "dns_types", "EGRESS_DNS_TYPES", "none",                           \
		"types that every allowed name may be asked for beside the usual ones, 32 at "     \
		"most: `TXT`, `TYPE65`, `65`, ...")                                                \
	X(AUDIT, KIND_LIST, "audit", "EGRESS_AUDIT", "stdout",                                     \
		"where the audit trail goes: `stdout`, a file (its path has a `/`), or both")      \
	X(AUDIT_MAX_BYTES, KIND_TEXT, "audit_max_bytes", "EGRESS_AUDIT_MAX_BYTES", "64MiB",        \
		"size at which the audit file is rotated (`FILE.1` to `FILE.5` are kept)")         \
	X(SANDBOX_ID, KIND_TEXT, "sandbox_id", "OPENSANDBOX_EGRESS_SANDBOX_ID", "empty",           \
		"`sandbox` in each audit line")                                                    \
	X(OPENSANDBOX_URL, KIND_TEXT, "opensandbox_url", "OPENSANDBOX_URL", "none",                \
		"the OpenSandbox server, whose word about the state of `sandbox_id` is followed. " \
		"Needs `opensandbox_api_key_file`")                                                \
	X(OPENSANDBOX_KEY, KIND_TEXT, "opensandbox_api_key_file", "OPENSANDBOX_API_KEY_FILE",      \
		"none",                                                                            \
		"file with the API key of that server; only its owner may read it. Read at start " \
		"and on SIGHUP")                                                                   \
	X(OPENSANDBOX_CA, KIND_TEXT, "opensandbox_ca_file", "OPENSANDBOX_CA_FILE",                 \
		"as `upstream_trust`",                                                             \
		"roots for that server alone: a PEM file, or a directory of them")                 \
	X(VAULT, KIND_TEXT, "vault", "EGRESS_VAULT_FILE", "none",                                  \
		"YAML or JSON file with credentials and bindings, in the shape of `POST "          \
		"/credential-vault`; only its owner may read it. Read at start, on SIGHUP and "    \
		"when it changes")                                                                 \
	X(UNBOUND_WRITES, KIND_TEXT, "unbound_writes", "EGRESS_UNBOUND_WRITES", "deny",            \
		"writes to a write host that has bindings, where none matches, under the "         \
		"read-only rule: `deny` or `allow`")                                               \
	X(PLACEHOLDERS, KIND_TEXT, "placeholders", "EGRESS_PLACEHOLDERS", "deny",                  \
		"a placeholder in target or fields that the request's binding does not have, or "  \
		"where none matches: `deny` (403), `strip` (the field is taken out; in a target: " \
		"403) or `pass`")                                                                  \
	X(HTTP_BINDINGS, KIND_TEXT, "http_bindings", "EGRESS_HTTP_BINDINGS", "off",                \
		"bindings may have scheme `http`: their keys can be read on the way")              \
	X(BODY_SURFACE, KIND_TEXT, "body_surface", "EGRESS_BODY_SURFACE", "off",                   \
		"under the read-only rule, bindings of write hosts may substitute anywhere in "    \
		"a body, not only in a named slot")                                                \
	X(REQUIRE_SCOPED_MATCH, KIND_TEXT, "require_scoped_match",                                 \
		"OPENSANDBOX_EGRESS_CREDENTIAL_VAULT_REQUIRE_SCOPED_MATCH", "off",                 \
		"bindings must name methods and paths, and no path may be `/*`")                   \
	X(REQUIRE_LOCKED_MEMORY, KIND_TEXT, "require_locked_memory",                               \
		"EGRESS_REQUIRE_LOCKED_MEMORY", "off",                                             \
		"a vault is refused where its memory cannot be locked (RLIMIT_MEMLOCK of 8 MiB "   \
		"is enough)")                                                                      \
	X(PACKET_SOCKETS, KIND_TEXT, "packet_sockets", "EGRESS_PACKET_SOCKETS", "deny",            \
		"writes to `/credential-vault` while somebody in the sandbox has a packet socket " \
		"open, who can read them: `deny` (412) or `allow`")                                \
	X(VAULT_REQUIRE_TLS, KIND_TEXT, "vault_require_tls",                                       \
		"OPENSANDBOX_EGRESS_CREDENTIAL_VAULT_REQUIRE_TLS", "off",                          \
		"writes to `/credential-vault` must come from a loopback address, or over TLS "    \
		"through one of `trusted_proxies`; else 426")                                      \
	X(TRUSTED_PROXIES, KIND_LIST, "trusted_proxies",                                           \
		"OPENSANDBOX_EGRESS_CREDENTIAL_VAULT_TRUSTED_PROXY_CIDRS", "none",                 \
		"addresses and blocks whose `X-Forwarded-Proto: https` is believed")               \
	X(LOG_LEVEL, KIND_TEXT, "log_level", "OPENSANDBOX_EGRESS_LOG_LEVEL", "info",               \
		"`debug`, `info`, `warn`, `error`")                                                \
	X(HEAD_TIMEOUT, KIND_TEXT, "head_timeout", "EGRESS_HEAD_TIMEOUT", "30s",                   \
		"a whole request head; then 408")                                                  \
	X(HANDSHAKE_TIMEOUT, KIND_TEXT, "handshake_timeout", "EGRESS_HANDSHAKE_TIMEOUT", "15s",    \
		"a TLS handshake, with clients and with origins")                                  \
	X(CLIENT_IDLE, KIND_TEXT, "client_idle", "EGRESS_CLIENT_IDLE", "5m",                       \
		"between the requests of a client's connection")                                   \
	X(CONNECT_TIMEOUT, KIND_TEXT, "connect_timeout", "EGRESS_CONNECT_TIMEOUT", "10s",          \
		"a TCP connection to an origin")                                                   \
	X(FIRST_BYTE, KIND_TEXT, "first_byte", "EGRESS_FIRST_BYTE", "15m",                         \
		"from a sent request to the first byte of its answer; then 504")                   \
	X(STREAM_IDLE, KIND_TEXT, "stream_idle", "EGRESS_STREAM_IDLE", "15m",                      \
		"silence inside a body or a tunnel")                                               \
	X(UPSTREAM_IDLE, KIND_TEXT, "upstream_idle", "EGRESS_UPSTREAM_IDLE", "30s",                \
		"how long an unused connection to an origin is kept")                              \
	X(MAX_CONNECTIONS, KIND_TEXT, "max_connections", "EGRESS_MAX_CONNECTIONS", "0",            \
		"clients at a time; 0: as many as the descriptor limit allows")

enum setting_id {
#define X(id, kind, key, env, def, meaning) SETTING_##id,
	SETTINGS_TABLE(X)
#undef X
		SETTING_MAX
};

struct setting_row {
	enum setting_kind kind;
	const char *key; /* NULL: environment only */
	const char *env;
	const char *def;
	const char *meaning;
};

/* What a variable that is no setting means. */
enum setting_other {
	OTHER_NO_EFFECT, /* the replaced image's, for what is done otherwise or not at all here */
	OTHER_REFUSED,   /* upstream's; ignoring it would weaken what the operator asked for */
};

struct setting_other_row {
	enum setting_other what;
	const char *env;
	const char *why; /* OTHER_NO_EFFECT: it has none */
};

/* A value before it is decoded. */
struct setting_value {
	bool set;
	char *text;         /* NULL for tree */
	const json_t *tree; /* policy in YAML; borrowed from the document */
	char source[320];   /* variable, or file:line */
};

/* One run of settings_load. */
struct settings_run {
	const struct settings_source *src;
	struct settings_yaml *yaml; /* NULL: no file */
	struct setting_value v[SETTING_MAX];
	struct settings *s;
	struct errmsg *msg;
};

/* settings_table.c */
const struct setting_row *setting_row(enum setting_id id);
/* The other names. NULL past the last. */
const struct setting_other_row *setting_other_row(size_t i);
/* The id, or -1. */
int setting_find_env(struct slice name);
int setting_find_key(const char *key);
const struct setting_other_row *setting_find_other_env(struct slice name);
/* It is a variable of ours but for what it begins with: OPENSANDBOX_EGRESS_, EGRESS_, AGENTIC_. */
bool setting_has_other_owner(struct slice name);
/* The known name nearest to this one by edit distance, without regard to what it begins with; by
 * key, too. Never NULL. */
const char *setting_nearest_env(struct slice name);
const char *setting_nearest_key(const char *key);

/* settings_env.c: takes what is set into run->v, over what is there. */
CHECKED int settings_env_read(struct settings_run *run);
/* Borrowed value of a variable, or NULL. */
const char *settings_env_get(char *const *env, const char *name);

/* settings_text.c: text to value. Each fails with E_VALUE and says `what: expected ...`, without
 * the source. */
CHECKED int settings_text_bool(struct slice s, bool *out, struct errmsg *msg);
/* Decimal, within limits. */
CHECKED int settings_text_number(
	struct slice s, uint64_t min, uint64_t max, uint64_t *out, struct errmsg *msg);
/* `300ms`, `10s`, `5m`, `1h`; 1 ms to 24 h. */
CHECKED int settings_text_duration(struct slice s, uint32_t *ms, struct errmsg *msg);
/* `64MiB`, `KiB`, `GiB`, or bytes. */
CHECKED int settings_text_size(
	struct slice s, uint64_t min, uint64_t max, uint64_t *out, struct errmsg *msg);
/* `ip:port` or `[v6]:port`. */
CHECKED int settings_text_addr(
	struct slice s, struct netaddr *addr, uint16_t *port, struct errmsg *msg);
/* As Go has it: a host may be left out (then *any), `localhost` is 127.0.0.1. */
CHECKED int settings_text_listen(
	struct slice s, struct netaddr *addr, bool *any, uint16_t *port, struct errmsg *msg);
CHECKED int settings_text_mode(struct slice s, enum egress_mode *out, struct errmsg *msg);
CHECKED int settings_text_intercept(struct slice s, enum intercept *out, struct errmsg *msg);
CHECKED int settings_text_allow(struct slice s, bool *allow, struct errmsg *msg);
CHECKED int settings_text_placeholders(struct slice s, enum placeholders *out, struct errmsg *msg);
CHECKED int settings_text_log_level(struct slice s, enum log_level *out, struct errmsg *msg);
CHECKED int settings_text_private_names(
	struct slice s, struct private_names *out, struct errmsg *msg);
/* At most max ports, none of them twice, 80 or 443. */
CHECKED int settings_text_ports(
	struct slice s, uint16_t *ports, size_t max, size_t *n, struct errmsg *msg);
CHECKED int settings_text_audit(struct slice s, bool *to_stdout, char **file, struct errmsg *msg);
/* A copy with a NUL behind it. */
char *settings_text_dup(struct slice s);
/* The next item of a list separated by commas and/or white space; false at its end. */
bool settings_text_item(struct slice *rest, struct slice *item);
const char *settings_mode_text(enum egress_mode mode);
const char *settings_intercept_text(enum intercept i);
const char *settings_placeholders_text(enum placeholders p);
const char *settings_log_level_text(enum log_level level);

/* settings_decode.c: the text of one setting, or the default of the table, into run->s. */
CHECKED int settings_decode(struct settings_run *run, enum setting_id id);

/* settings_gate.c: the settings of the modes dns and dns+nft. As setting_decode_fn. */
CHECKED int setting_transparent(struct settings_run *run, struct slice text);
CHECKED int setting_inbound_ports(struct settings_run *run, struct slice text);
CHECKED int setting_block_doh(struct settings_run *run, struct slice text);
CHECKED int setting_doh_blocklist(struct settings_run *run, struct slice text);
CHECKED int setting_trusted_proxies(struct settings_run *run, struct slice text);
CHECKED int setting_nameserver_exempt(struct settings_run *run, struct slice text);
CHECKED int setting_require_pass(struct settings_run *run, struct slice text);
CHECKED int setting_require_raw_guard(struct settings_run *run, struct slice text);
CHECKED int setting_allow_local_resolver(struct settings_run *run, struct slice text);
CHECKED int setting_dns_probe(struct settings_run *run, struct slice text);
CHECKED int setting_dns_probe_interval(struct settings_run *run, struct slice text);
CHECKED int setting_dns_types(struct settings_run *run, struct slice text);
/* What depends on more than one of them. */
CHECKED int settings_gate_together(struct settings_run *run);
/* The same of OPENSANDBOX_URL and what belongs to it. */
CHECKED int settings_opensandbox(struct settings_run *run);

/* settings_policy.c: the start policy, from file, variable or YAML (design 2), and in front of it
 * the operator's rule files, where a bad line is an error. */
CHECKED int settings_policy_load(struct settings_run *run);
CHECKED int settings_ceiling_load(struct settings_run *run);
CHECKED int settings_rules_load(struct settings_run *run);

/* settings.c: a warning for the operator, unless the source is read for the second time (quiet). */
void settings_warn(const struct settings_run *run, const char *fmt, ...) PRINTF(2, 3);
