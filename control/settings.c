/* Settings from file and environment to one struct. Before it: nothing; supervisor and worker both
 * load, from the same texts. After it: everything, since what it let through is taken as right.
 *
 * Three steps: collect texts (file, then environment over it), decode each, check them together. */
#include "control/settings.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/hostname.h"
#include "control/settings_int.h"
#include "policy/policy_json.h"

#define CONFIG_TEXT_MAX POLICY_DOC_MAX /* it may hold a policy */
#define RESOLV_CONF_MAX (64u << 10)
#define TOKEN_WEAK 16 /* bytes; shorter ones people make up */
/* Where the replaced image has it. */
#define CA_CERT_IMAGE "/opt/opensandbox/mitmproxy-ca-cert.pem"

void settings_warn(const struct settings_run *run, const char *fmt, ...)
{
	char text[700];
	va_list ap;

	if (run->src->quiet)
		return;
	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	log_warn("settings", "%s", text);
}

/* A scalar of the file as the text that an environment variable would have. NULL if it is none. */
static char *settings_scalar(const json_t *value)
{
	char number[32];

	switch (json_typeof(value)) {
	case JSON_STRING:
		return xstrdup(json_string_value(value));
	case JSON_INTEGER:
		(void)snprintf(
			number, sizeof(number), "%" JSON_INTEGER_FORMAT, json_integer_value(value));
		return xstrdup(number);
	case JSON_TRUE:
		return xstrdup("true");
	case JSON_FALSE:
		return xstrdup("false");
	case JSON_OBJECT:
	case JSON_ARRAY:
	case JSON_REAL:
	case JSON_NULL:
		break;
	}
	return NULL;
}

/* A list as one text with commas. NULL if an item is no scalar. */
static char *settings_list(const json_t *array)
{
	struct strbuf text;
	char *item;
	size_t i;

	strbuf_init(&text, CONFIG_TEXT_MAX + 1);
	for (i = 0; i < json_array_size(array); i++) {
		item = settings_scalar(json_array_get(array, i));
		if (!item) {
			strbuf_fini(&text);
			return NULL;
		}
		if (i > 0)
			strbuf_char(&text, ',');
		strbuf_str(&text, item);
		free(item);
	}
	item = settings_text_dup(strbuf_slice(&text));
	strbuf_fini(&text);
	return item;
}

static int settings_take_key(struct settings_run *run, const char *key, const json_t *value)
{
	unsigned line = settings_yaml_key_line(run->yaml, key);
	const struct setting_row *row;
	struct setting_value *v;
	int id;

	id = setting_find_key(key);
	if (id < 0)
		return errmsg_set(run->msg, E_UNKNOWN,
			"%s:%u: unknown key \"%.80s\": expected a known one like %s",
			run->src->config_path, line, key, setting_nearest_key(key));
	row = setting_row((enum setting_id)id);
	v = &run->v[id];
	(void)snprintf(v->source, sizeof(v->source), "%.255s:%u", run->src->config_path, line);
	if (row->kind == KIND_DOCUMENT) {
		v->tree = value;
		v->set = true;
		return 0;
	}
	if (row->kind == KIND_LIST && json_is_null(value))
		v->text = xstrdup("");
	else if (row->kind == KIND_LIST && json_is_array(value))
		v->text = settings_list(value);
	else
		v->text = settings_scalar(value);
	v->set = v->text && (v->text[0] || row->kind == KIND_LIST);
	if (v->set)
		return 0;
	return errmsg_set(run->msg, E_VALUE, "%s: %s: %s: expected %s", v->source, key,
		v->text || json_is_null(value) ? "empty" : "not a plain value",
		row->kind == KIND_LIST ? "a list of texts" : "one value");
}

/* Leaves run->yaml NULL if there is no file. */
static int settings_read_yaml(struct settings_run *run)
{
	struct strbuf text;
	int ret;

	if (run->src->config_fd < 0)
		return 0;
	strbuf_init(&text, CONFIG_TEXT_MAX);
	ret = strbuf_pread_fd(&text, run->src->config_fd);
	if (ret < 0)
		ret = errmsg_set(run->msg, ret,
			"%s: %s: expected a readable file of 16 MiB at most", run->src->config_path,
			err_text(ret));
	else
		ret = settings_yaml_decode(
			strbuf_slice(&text), run->src->config_path, &run->yaml, run->msg);
	strbuf_fini(&text);
	return ret;
}

static int settings_read_file(struct settings_run *run)
{
	int ret = settings_read_yaml(run);
	const char *key;
	json_t *value;

	if (ret < 0 || !run->yaml)
		return ret;
	json_object_foreach(settings_yaml_root(run->yaml), key, value)
	{
		ret = settings_take_key(run, key, value);
		if (ret < 0)
			break;
	}
	return ret;
}

/* $XDG_STATE_HOME/egress/ca-cert.pem; a relative XDG_STATE_HOME is ignored, as its specification
 * says. */
static int settings_default_cert(struct settings_run *run)
{
	const char *state = settings_env_get(run->src->environ, "XDG_STATE_HOME");
	const char *home = settings_env_get(run->src->environ, "HOME");
	struct strbuf path;

	if (run->s->ca_cert_out)
		return 0;
	if (run->s->mode != MODE_PROXY) {
		run->s->ca_cert_out = xstrdup(CA_CERT_IMAGE);
		return 0;
	}
	strbuf_init(&path, 4096);
	if (state && state[0] == '/')
		strbuf_printf(&path, "%s/egress/ca-cert.pem", state);
	else if (home && home[0] == '/')
		strbuf_printf(&path, "%s/.local/state/egress/ca-cert.pem", home);
	run->s->ca_cert_default = true;
	if (path.len > 0 && !path.full)
		run->s->ca_cert_out = settings_text_dup(strbuf_slice(&path));
	strbuf_fini(&path);
	if (run->s->ca_cert_out)
		return 0;
	return errmsg_set(run->msg, E_VALUE,
		"ca_cert_out: no place for the CA certificate: expected EGRESS_CA_CERT_OUT (a "
		"file), or XDG_STATE_HOME or HOME (an absolute directory)");
}

static int settings_resolvers(struct settings_run *run)
{
	struct strbuf text;
	int ret = E_VALUE;

	if (run->s->dns.n > 0)
		return 0;
	strbuf_init(&text, RESOLV_CONF_MAX);
	if (run->src->resolv_conf_fd >= 0)
		ret = strbuf_pread_fd(&text, run->src->resolv_conf_fd);
	if (ret == 0)
		ret = upstreams_from_resolv_conf(strbuf_slice(&text), &run->s->dns, run->msg);
	strbuf_fini(&text);
	if (ret == 0)
		return 0;
	return errmsg_set(run->msg, E_VALUE,
		"/etc/resolv.conf: no nameserver: expected OPENSANDBOX_EGRESS_DNS_UPSTREAM (or "
		"`dns_upstream`) to name the resolvers");
}

/* True if every name that an entry (".b", "*.b", "b") stands for is a write host. */
static bool settings_is_writable(const struct write_hosts *w, struct slice entry)
{
	bool wild = slice_starts(entry, SLICE("*."));
	bool both = slice_starts(entry, SLICE("."));
	struct slice name = slice_from(entry, wild ? 2 : both ? 1 : 0);
	struct slice listed;
	bool below;
	size_t i;

	if (!wild && write_hosts_match(w, name) == WRITE_NO)
		return false;
	if (!wild && !both)
		return true;
	/* All below name: some listed suffix must be it or above it. */
	for (i = 0; i < write_hosts_count(w); i++) {
		listed = slice_str(write_hosts_entry(w, i));
		below = slice_starts(listed, SLICE("*.")) || slice_starts(listed, SLICE("."));
		(void)slice_cut(&listed, '.');
		if (below && (slice_eq(name, listed) || hostname_below(name, listed)))
			return true;
	}
	return false;
}

static int settings_check_pass_through(const struct settings_run *run)
{
	const struct settings *s = run->s;
	const char *entry;
	size_t i;

	for (i = 0; s->read_only && i < write_hosts_count(s->pass_through); i++) {
		entry = write_hosts_entry(s->pass_through, i);
		if (!settings_is_writable(s->write_hosts, slice_str(entry)))
			return errmsg_set(run->msg, E_VALUE,
				"%s: \"%s\": expected write hosts only while the read-only rule is "
				"on",
				run->v[SETTING_PASS_THROUGH].source, entry);
	}
	return 0;
}

static void settings_warn_together(const struct settings_run *run)
{
	const struct settings *s = run->s;
	const char *entry = write_hosts_not_allowed(s->write_hosts, s->policy);

	if (s->read_only && entry)
		settings_warn(
			run, "write host %s is not allowed by policy: it cannot be reached", entry);
	if (!s->read_only && run->v[SETTING_WRITE_HOSTS].set)
		settings_warn(run, "write hosts have no effect: the read-only rule is off");
	if (s->upstream_insecure)
		settings_warn(run, "origins are not verified (upstream_insecure)");
	if (s->intercept == INTERCEPT_BOUND && !s->vault_file && !s->token)
		settings_warn(run,
			"intercept is bound, and without a vault file and a token for the API "
			"there are no bindings: TLS is never decrypted");
	if (!s->proxy && s->vault_file)
		settings_warn(run, "%s: no effect: no traffic comes to the proxy",
			run->v[SETTING_VAULT].source);
	else if (s->intercept == INTERCEPT_OFF && s->vault_file)
		settings_warn(run,
			"intercept is off: keys of the vault go out in plain HTTP only, if at all");
	if (netaddr_class(&s->proxy_addr) != ADDR_LOOPBACK)
		settings_warn(run,
			"proxy_addr is not a loopback address: other hosts may use the "
			"proxy");
}

/* Where the API listens if nobody said so: as the replaced image does, but not in mode proxy, which
 * may run on a developer's machine. */
static int settings_api(struct settings_run *run)
{
	struct settings *s = run->s;
	int ret;

	if (!s->api && s->mode != MODE_PROXY) {
		ret = settings_text_listen(
			SLICE(":18080"), &s->api_addr, &s->api_any, &s->api_port, run->msg);
		if (ret < 0)
			return ret;
		s->api = true;
	}
	if (s->api && !s->token)
		settings_warn(run,
			"OPENSANDBOX_EGRESS_TOKEN is not set: whoever reaches the API may change "
			"the policy");
	if (s->api && s->token && strlen(s->token) < TOKEN_WEAK)
		settings_warn(run,
			"OPENSANDBOX_EGRESS_TOKEN has %zu bytes, and guesses are not held back: "
			"expected %d random ones or more",
			strlen(s->token), TOKEN_WEAK);
	if (!s->api && s->token)
		settings_warn(run, "OPENSANDBOX_EGRESS_TOKEN: no effect without api_addr");
	return 0;
}

/* What depends on more than one setting. */
static int settings_together(struct settings_run *run)
{
	struct settings *s = run->s;
	int ret;

	if (!run->v[SETTING_READ_ONLY].set)
		s->read_only = run->v[SETTING_WRITE_HOSTS].set;
	if (!s->write_hosts)
		ret = write_hosts_decode(SLICE_EMPTY, &s->write_hosts, run->msg);
	else
		ret = 0;
	if (ret == 0 && !s->pass_through)
		ret = write_hosts_decode(SLICE_EMPTY, &s->pass_through, run->msg);
	if (ret == 0)
		ret = settings_policy_load(run);
	if (ret == 0)
		ret = settings_ceiling_load(run);
	if (ret == 0)
		ret = settings_rules_load(run);
	if (ret == 0)
		ret = settings_check_pass_through(run);
	if (ret == 0)
		ret = settings_gate_together(run);
	if (ret == 0)
		ret = settings_opensandbox(run);
	if (ret == 0)
		ret = settings_default_cert(run);
	if (ret == 0)
		ret = settings_api(run);
	if (ret == 0)
		ret = settings_resolvers(run);
	if (ret == 0)
		settings_warn_together(run);
	return ret;
}

static void settings_run_fini(struct settings_run *run)
{
	for (int id = 0; id < SETTING_MAX; id++)
		free(run->v[id].text);
	settings_yaml_free(run->yaml);
}

int settings_load(const struct settings_source *src, struct settings **out, struct errmsg *msg)
{
	struct settings_run run = {.src = src, .msg = msg};
	int ret;
	int id;

	*out = NULL;
	run.s = xcalloc(1, sizeof(*run.s));
	ret = settings_read_file(&run);
	if (ret == 0)
		ret = settings_env_read(&run);
	for (id = 0; ret == 0 && id < SETTING_MAX; id++)
		ret = settings_decode(&run, (enum setting_id)id);
	if (ret == 0)
		ret = settings_together(&run);
	settings_run_fini(&run);
	if (ret < 0) {
		settings_free(run.s);
		return ret;
	}
	*out = run.s;
	return 0;
}

/* The text of one setting, whatever else is wrong with file and environment. */
static void settings_take_one(struct settings_run *run, enum setting_id id)
{
	const struct setting_row *row = setting_row(id);
	const char *value = settings_env_get(run->src->environ, row->env);
	const json_t *in_file =
		run->yaml ? json_object_get(settings_yaml_root(run->yaml), row->key) : NULL;

	if (value && value[0]) {
		run->v[id].text = xstrdup(value);
		run->v[id].set = true;
	} else if (in_file && settings_take_key(run, row->key, in_file) < 0) {
		run->v[id].set = false;
	}
}

/* Settings that have a key and, as text, a default or none: what can be read, else the default. */
static struct settings *settings_read_some(
	const struct settings_source *src, const enum setting_id *ids, size_t n)
{
	struct settings_source quiet = *src;
	struct errmsg msg = {""};
	struct settings_run run = {.src = &quiet, .msg = &msg};

	quiet.quiet = true;
	run.s = xcalloc(1, sizeof(*run.s));
	(void)settings_read_yaml(&run);
	for (size_t i = 0; i < n; i++) {
		settings_take_one(&run, ids[i]);
		if (settings_decode(&run, ids[i]) == 0)
			continue;
		run.v[ids[i]].set = false;
		REQUIRE(settings_decode(&run, ids[i]) == 0);
	}
	settings_run_fini(&run);
	return run.s;
}

bool settings_mode_is_proxy(const struct settings_source *src)
{
	static const enum setting_id ids[] = {SETTING_MODE};
	struct settings *s = settings_read_some(src, ids, ARRAY_LEN(ids));
	bool proxy = s->mode == MODE_PROXY;

	settings_free(s);
	return proxy;
}

char *settings_ceiling_path(const struct settings_source *src)
{
	static const enum setting_id ids[] = {SETTING_POLICY_CEILING};
	struct settings *s = settings_read_some(src, ids, ARRAY_LEN(ids));
	char *path = s->policy_ceiling;

	s->policy_ceiling = NULL;
	settings_free(s);
	return path;
}

struct settings *settings_closed(const struct settings_source *src)
{
	static const enum setting_id ids[] = {SETTING_API_ADDR, SETTING_PROXY_ADDR,
		SETTING_LOG_LEVEL, SETTING_SANDBOX_ID, SETTING_TOKEN, SETTING_AUDIT,
		SETTING_CA_CERT_OUT};
	struct settings *s = settings_read_some(src, ids, ARRAY_LEN(ids));
	struct errmsg msg;

	s->mode = MODE_DNS_NFT;
	s->enforce = s->read_only = s->inbound_all = true;
	s->intercept = INTERCEPT_OFF;
	s->user_policy = policy_new(false, NULL, 0);
	s->policy = policy_ref(s->user_policy);
	s->dns_probe = xstrdup("");
	if (!s->ca_cert_out)
		s->ca_cert_out = xstrdup(CA_CERT_IMAGE);
	REQUIRE(write_hosts_decode(SLICE_EMPTY, &s->write_hosts, &msg) == 0);
	REQUIRE(write_hosts_decode(SLICE_EMPTY, &s->pass_through, &msg) == 0);
	if (!s->api) {
		REQUIRE(settings_text_listen(SLICE(":18080"), &s->api_addr, &s->api_any,
				&s->api_port, &msg) == 0);
		s->api = true;
	}
	return s;
}

void settings_free(struct settings *s)
{
	size_t i;

	if (!s)
		return;
	settings_drop_policy(s);
	write_hosts_free(s->write_hosts);
	write_hosts_free(s->pass_through);
	for (i = 0; i < s->private_names.n; i++)
		free(s->private_names.suffix[i]);
	free((void *)s->private_names.suffix);
	free(s->doh);
	free(s->trusted_proxies);
	free(s->exempt);
	free(s->dns_probe);
	policy_unref(s->ceiling);
	free(s->policy_ceiling);
	free(s->policy_file);
	free(s->rules_dir);
	free(s->token);
	free(s->deny_webhook);
	free(s->opensandbox_url);
	free(s->opensandbox_key);
	free(s->opensandbox_ca);
	free(s->ca_cert_out);
	free(s->ca_key);
	free(s->upstream_trust);
	free(s->audit_file);
	free(s->sandbox_id);
	free(s->no_effect);
	free(s->vault_file);
	free(s);
}

void settings_drop_policy(struct settings *s)
{
	policy_unref(s->policy);
	policy_unref(s->user_policy);
	policy_unref(s->log_skip);
	rule_list_fini(&s->deny_always);
	rule_list_fini(&s->allow_always);
	s->policy = s->user_policy = s->log_skip = NULL;
}

const char *settings_policy_path(char *const *env)
{
	const char *path = settings_env_get(env, "OPENSANDBOX_EGRESS_POLICY_FILE");

	return path && path[0] ? path : NULL;
}

const char *settings_rules_dir(char *const *env)
{
	const char *path = settings_env_get(env, setting_row(SETTING_RULES_DIR)->env);

	return path && path[0] ? path : setting_row(SETTING_RULES_DIR)->def;
}
