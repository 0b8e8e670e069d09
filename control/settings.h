/* Every setting: environment names, YAML keys, defaults, and what a wrong value is (design 2).
 * The only place that reads the environment. docs/configuration.md is checked against its table. */
#pragma once

#include "base/log.h"
#include "base/netaddr.h"
#include "base/strbuf.h"
#include "dns/judge.h"
#include "dns/upstreams.h"
#include "policy/check.h"
#include "policy/policy_merge.h"
#include "policy/read_only.h"

enum egress_mode { MODE_PROXY, MODE_DNS, MODE_DNS_NFT };
enum intercept { INTERCEPT_ALL, INTERCEPT_BOUND, INTERCEPT_OFF };
enum placeholders { PLACEHOLDERS_DENY, PLACEHOLDERS_STRIP, PLACEHOLDERS_PASS };

#define SETTINGS_INBOUND_MAX 64

/* Owned strings; NULL where nothing was set and there is no default. */
struct settings {
	enum egress_mode mode;
	struct policy *policy;        /* in force, the operator's rules in front; one reference */
	struct policy *user_policy;   /* without them: what /policy shows and changes */
	char *policy_ceiling;         /* the operator's file, and what it says; NULL: none */
	struct policy *ceiling;       /* in `policy`, too */
	struct rule_list deny_always; /* the operator's rule files */
	struct rule_list allow_always;
	struct policy *log_skip; /* allows the names whose lookups are not logged; NULL: none */
	char *rules_dir;         /* where those files are */
	char *policy_file;       /* OPENSANDBOX_EGRESS_POLICY_FILE */
	size_t max_rules;
	bool api;     /* it listens: always, but in mode proxy only where an address is set */
	bool api_any; /* on every address of both families */
	struct netaddr api_addr;
	uint16_t api_port;
	char *token;           /* NULL: none, so whoever reaches the API may use it */
	char *deny_webhook;    /* a URL that webhook.c can read */
	char *opensandbox_url; /* without a `/` at its end; NULL: nobody's word is followed */
	char *opensandbox_key; /* file */
	char *opensandbox_ca;  /* file or directory; NULL: as upstream_trust */
	bool transparent;      /* modes dns, dns+nft: web traffic is redirected and decrypted */
	bool enforce;          /* the kernel lets out what policy allows, nothing else */
	bool proxy;            /* it listens: redirected connections come, or clients may */
	bool inbound_all;
	uint16_t inbound_ports[SETTINGS_INBOUND_MAX]; /* used if not inbound_all */
	size_t n_inbound_ports;
	bool block_doh; /* TCP 443: to doh, or to everybody if there is none */
	struct netcidr *doh;
	size_t n_doh;
	struct netaddr *exempt; /* resolvers that the sandbox may ask directly */
	size_t n_exempt;
	bool require_pass;
	bool require_raw_guard;
	bool allow_local_resolver;
	bool read_only;
	struct write_hosts *write_hosts; /* never NULL */
	bool read_only_git_fetch;
	enum intercept intercept;
	struct write_hosts *pass_through; /* same patterns */
	struct private_names private_names;
	struct netaddr proxy_addr;
	uint16_t proxy_port;
	uint16_t extra_ports[15]; /* inspected beside 80 and 443 */
	size_t n_extra_ports;
	char *ca_cert_out;
	bool ca_cert_default; /* nobody named it: its directories are made */
	char *ca_key;         /* mode proxy: PEM file that keeps the CA */
	char *upstream_trust;
	bool upstream_insecure;
	struct upstreams dns;
	uint32_t dns_timeout_ms;
	char *dns_probe; /* name that resolvers are probed with; "": the root's NS */
	uint32_t dns_probe_interval_s;
	uint16_t dns_types[JUDGE_TYPES_MAX]; /* allowed for every allowed name */
	size_t n_dns_types;
	bool audit_stdout;
	char *audit_file;
	uint64_t audit_max_bytes; /* rotation */
	char *sandbox_id;
	char *no_effect; /* names of variables that are set, known and not acted on; NULL: none */
	char *vault_file;
	bool unbound_writes; /* allowed */
	enum placeholders placeholders;
	bool http_bindings;
	bool body_surface;
	bool require_scoped_match;
	bool require_locked_memory;
	bool packet_sockets; /* keys are taken from the API although somebody has one */
	bool vault_require_tls;
	struct netcidr *trusted_proxies; /* whose X-Forwarded-Proto counts */
	size_t n_trusted_proxies;
	enum log_level log_level;
	/* proxy limits, each with its default beside its reason in settings.c */
	uint32_t head_timeout_ms; /* a whole request head: 408 */
	uint32_t handshake_timeout_ms;
	uint32_t client_idle_ms; /* between requests */
	uint32_t connect_timeout_ms;
	uint32_t first_byte_ms;    /* of an answer: 504 */
	uint32_t stream_idle_ms;   /* inside a body or tunnel */
	uint32_t upstream_idle_ms; /* in the pool */
	uint32_t max_connections;  /* clients; 0: by the descriptor limit */
};

#define SETTINGS_CEILING_UNREAD (-2)

/* Where the texts come from: descriptors so that a worker without rights can read them again.
 * fd < 0: that source is not used. They are read from the start (pread or lseek), not closed. */
struct settings_source {
	const char *config_path; /* for messages */
	int config_fd;
	int policy_fd; /* OPENSANDBOX_EGRESS_POLICY_FILE */
	int resolv_conf_fd;
	int deny_fd; /* deny.always, allow.always, log_skip.always */
	int allow_fd;
	int log_skip_fd;
	/* EGRESS_POLICY_CEILING_FILE. Where the settings name one, -1 is an error;
	 * SETTINGS_CEILING_UNREAD is for those who decide nothing by the policy. */
	int ceiling_fd;
	char *const *environ;
	bool quiet; /* no warnings: the supervisor has given them already (worker) */
};

/* Environment over YAML over defaults. On failure *out is NULL and the message names the source
 * (file and line, or variable), the value and what was expected, with the nearest known name for an
 * unknown one. Warnings go to the log. */
CHECKED int settings_load(
	const struct settings_source *src, struct settings **out, struct errmsg *msg);
void settings_free(struct settings *s);
/* What mode the texts ask for, as far as they can be read: a start that fails in another one than
 * proxy must not end. */
bool settings_mode_is_proxy(const struct settings_source *src);
/* Where the ceiling is, as far as that can be read; NULL: nowhere. The caller frees it. */
char *settings_ceiling_path(const struct settings_source *src);
/* For such a start: mode dns+nft, nothing is allowed, nothing listens but the API, where the texts
 * want it if that can be read. Never fails. */
struct settings *settings_closed(const struct settings_source *src);
/* Frees all rules but the ceiling's: for a process that does not decide by them. */
void settings_drop_policy(struct settings *s);

/* The path settings alone, before anything can be opened as descriptor: policy_file. May be NULL.
 */
const char *settings_policy_path(char *const *env);
/* The directory of the operator's rule files, and their names in it. Never NULL. */
const char *settings_rules_dir(char *const *env);
#define SETTINGS_DENY_ALWAYS "deny.always"
#define SETTINGS_ALLOW_ALWAYS "allow.always"
#define SETTINGS_LOG_SKIP "log_skip.always"

/* The effective configuration as YAML, without secrets (`egress --check`). */
void settings_print(const struct settings *s, struct strbuf *out);
/* A table row for each setting: YAML key, environment name, default, meaning (docs, `--help`). */
void settings_print_table(struct strbuf *out);
/* The same for `--help`: names, default and meaning, wrapped for a terminal. */
void settings_print_help(struct strbuf *out);
