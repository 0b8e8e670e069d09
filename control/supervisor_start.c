/* What is made before the first worker: settings, CA, areas, listeners, files. After it:
 * supervisor.c, which starts the worker with all of it. */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "audit/audit_file.h"
#include "base/arena.h"
#include "base/state.h"
#include "control/areas.h"
#include "control/devices.h"
#include "control/files.h"
#include "control/ports.h"
#include "control/sources.h"
#include "control/supervisor.h"
#include "control/supervisor_int.h"
#include "control/vault_feed.h"
#include "control/worker.h"
#include "dns/dns_gate.h"
#include "proxy/ca.h"

#define CA_PEM_MAX (64u << 10)

static void supervisor_wipe(struct strbuf *b)
{
	if (b->p)
		explicit_bzero(b->p, b->cap);
	strbuf_fini(b);
}

/* The settings without their policy: it may be large, and the worker reads it by itself. */
static int supervisor_load(
	struct supervisor *s, const struct roles *r, struct settings **out, struct errmsg *msg)
{
	struct settings_source src = sources_settings(r, s->config_path, s->environ);
	int ret;

	ret = settings_load(&src, out, msg);
	if (ret < 0)
		return ret;
	settings_drop_policy(*out);
	(void)malloc_trim(0);
	return 0;
}

static int supervisor_ca_from_file(const char *path, struct ca **out, struct errmsg *msg)
{
	struct strbuf pem;
	int ret;
	int fd;

	ret = files_open_secret(path, &fd, msg);
	if (ret < 0)
		return ret;
	strbuf_init(&pem, CA_PEM_MAX);
	ret = strbuf_read_fd(&pem, fd);
	(void)close(fd);
	if (ret < 0)
		ret = errmsg_set(msg, ret, "%s: expected a PEM file", err_text(ret));
	else
		ret = ca_from_pem(strbuf_slice(&pem), out, msg);
	if (ret < 0)
		ret = errmsg_prefix(msg, ret, "%s", path);
	supervisor_wipe(&pem);
	return ret == -ENOENT ? -EIO : ret;
}

static int supervisor_ca_to_file(const char *path, const struct ca *ca, struct errmsg *msg)
{
	struct strbuf pem;
	int ret;

	strbuf_init(&pem, CA_PEM_MAX);
	ret = ca_to_pem(ca, &pem);
	if (ret < 0)
		ret = errmsg_set(msg, ret, "%s", err_text(ret));
	else
		ret = files_create_secret(path, strbuf_slice(&pem), msg);
	supervisor_wipe(&pem);
	return ret;
}

/* Loads the CA that is kept, or makes one, and keeps it where that is wanted. */
static int supervisor_make_ca(const struct supervisor *s, struct ca **out, struct errmsg *msg)
{
	const char *path = s->settings->ca_key;
	int ret;

	if (path) {
		ret = supervisor_ca_from_file(path, out, msg);
		if (ret != -ENOENT)
			return ret < 0 ? errmsg_prefix(msg, ret, "EGRESS_CA_KEY") : 0;
	}
	ret = ca_new(out, msg);
	if (ret == 0 && path) {
		ret = supervisor_ca_to_file(path, *out, msg);
		if (ret < 0)
			ret = errmsg_prefix(msg, ret, "EGRESS_CA_KEY");
	}
	return ret;
}

/* Writes the CA into the secret area and takes our own mapping away again. */
static int supervisor_store_ca(const struct ca *ca, int fd, struct errmsg *msg)
{
	struct strbuf blob;
	void *area = NULL;
	int ret;

	strbuf_init(&blob, CA_BLOB_MAX);
	ret = ca_encode(ca, &blob);
	if (ret == 0)
		ret = state_map(fd, AREA_SECRET_LEN, &area);
	if (ret == 0) {
		ret = state_cell_write(
			(uint8_t *)area + AREA_SECRET_CA, AREA_SECRET_CA_LEN, strbuf_slice(&blob));
		(void)munmap(area, AREA_SECRET_LEN);
	}
	supervisor_wipe(&blob);
	if (ret < 0)
		return errmsg_set(msg, ret, "secret area: %s", err_text(ret));
	return 0;
}

/* The vault's area: locked if a worker can lock all that it needs. */
static int supervisor_vault_area(struct supervisor *s, struct errmsg *msg)
{
	bool fits = area_lock_fits();
	int ret = state_create("egress-vault", AREA_VAULT_LEN, fits, &s->roles.fd[ROLE_AREA_VAULT]);

	if (ret < 0)
		return errmsg_set(msg, ret, "areas: %s", err_text(ret));
	return supervisor_vault_locked(s, fits && ret == 0, msg);
}

static int supervisor_areas(struct supervisor *s, const struct ca *ca, struct errmsg *msg)
{
	int ret;

	ret = state_create("egress-secret", AREA_SECRET_LEN, true, &s->roles.fd[ROLE_AREA_SECRET]);
	if (ret == STATE_DEGRADED)
		log_warn(
			"supervisor", "the secret area cannot be locked in memory (memlock limit)");
	if (ret >= 0)
		ret = state_create(
			"egress-plain", area_plain_len(), false, &s->roles.fd[ROLE_AREA_PLAIN]);
	if (ret < 0)
		return errmsg_set(msg, ret, "areas: %s", err_text(ret));
	ret = supervisor_vault_area(s, msg);
	if (ret < 0)
		return ret;
	return supervisor_store_ca(ca, s->roles.fd[ROLE_AREA_SECRET], msg);
}

/* CA, areas, certificate. The key leaves this process's memory with the end of this call. */
static int supervisor_secrets(struct supervisor *s, struct errmsg *msg)
{
	struct ca *ca = NULL;
	int ret;

	ret = supervisor_make_ca(s, &ca, msg);
	if (ret < 0)
		return ret;
	ret = supervisor_areas(s, ca, msg);
	if (ret == 0) {
		ret = ca_cert_pem(ca, &s->ca_cert);
		if (ret < 0)
			ret = errmsg_set(msg, ret, "CA certificate: %s", err_text(ret));
	}
	ca_free(ca);
	if (ret < 0)
		return ret;
	ret = supervisor_write_cert(s, msg);
	if (ret == 0 || s->settings->mode == MODE_PROXY)
		return ret;
	/* What stands in the way may be the sandbox's, and go: red until then (supervisor_ca.c). */
	log_error("supervisor", "%s", msg->text);
	s->ca_error = ret;
	return 0;
}

static int supervisor_open_trust(const char *name, const char *path, int *fd, struct errmsg *msg)
{
	*fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (*fd >= 0)
		return 0;
	return errmsg_set(msg, -errno, "%s: %s: %s: expected a PEM file or a directory of them",
		name, path, err_text(-errno));
}

#define TRUST_NAME "OPENSANDBOX_EGRESS_MITMPROXY_UPSTREAM_TRUST_DIR"

/* For whoever follows the sandbox's life: opened, and left to the worker to read. */
static int supervisor_open_opensandbox(
	const struct settings *set, struct roles *r, struct errmsg *msg)
{
	int ret;

	if (!set->opensandbox_key)
		return 0;
	ret = files_open_secret(set->opensandbox_key, &r->fd[ROLE_OPENSANDBOX_KEY], msg);
	if (ret == -ENOENT)
		(void)errmsg_set(msg, ret, "%s: expected a readable file", set->opensandbox_key);
	if (ret < 0)
		return errmsg_prefix(msg, ret, "OPENSANDBOX_API_KEY_FILE");
	if (!set->opensandbox_ca)
		return 0;
	return supervisor_open_trust(
		"OPENSANDBOX_CA_FILE", set->opensandbox_ca, &r->fd[ROLE_OPENSANDBOX_CA], msg);
}

int supervisor_listen_api(struct supervisor *s, const struct settings *set, struct errmsg *msg)
{
	const struct ports_place api = {
		.addr = set->api_addr,
		.port = set->api_port,
		.any = set->api_any,
		.owner = WORKER_UID,
		.setting = "set OPENSANDBOX_EGRESS_HTTP_ADDR, or `api_addr` in the file, to "
			   "another",
	};

	return ports_open(&api, &s->roles.fd[ROLE_API], &s->roles.fd[ROLE_API_V6], msg);
}

/* The DNS gate's place is fixed: the replaced image's clients may ask it there. */
static int supervisor_listen_dns(struct supervisor *s, struct errmsg *msg)
{
	struct ports_place dns = {
		.port = DNS_GATE_PORT, .udp = true, .owner = WORKER_UID, .setting = "the DNS gate"};
	int ret;

	REQUIRE(netaddr_parse(SLICE("127.0.0.1"), &dns.addr));
	ret = ports_open(&dns, &s->roles.fd[ROLE_DNS_UDP], &s->roles.fd[ROLE_DNS_UDP_V6], msg);
	dns.udp = false;
	if (ret == 0)
		ret = ports_open(
			&dns, &s->roles.fd[ROLE_DNS_TCP], &s->roles.fd[ROLE_DNS_TCP_V6], msg);
	return ret;
}

static int supervisor_listen(struct supervisor *s, struct errmsg *msg)
{
	const struct settings *set = s->settings;
	const struct ports_place proxy = {
		.addr = set->proxy_addr,
		.port = set->proxy_port,
		.owner = WORKER_UID,
		.setting = "set EGRESS_PROXY_ADDR, or `proxy_addr` in the file, to another",
	};
	int ret = 0;

	/* The API first: where it cannot listen nobody can be told anything. */
	if (set->api)
		ret = supervisor_listen_api(s, set, msg);
	if (ret < 0 && set->mode != MODE_PROXY)
		s->exit_code = SUPERVISOR_EXIT_API;
	if (ret == 0 && set->proxy)
		ret = ports_open(
			&proxy, &s->roles.fd[ROLE_PROXY], &s->roles.fd[ROLE_PROXY_V6], msg);
	if (ret == 0 && set->mode != MODE_PROXY)
		ret = supervisor_listen_dns(s, msg);
	return ret;
}

/* What somebody in this namespace answers in place of a resolver would be believed. */
static int supervisor_check_resolvers(const struct settings *set, struct errmsg *msg)
{
	char text[NETADDR_TEXT_MAX];
	struct devices d;
	int ret;

	if (set->mode == MODE_PROXY || set->allow_local_resolver)
		return 0;
	ret = devices_read(&d);
	if (ret < 0)
		return errmsg_set(msg, ret, "network devices: %s", err_text(ret));
	for (size_t i = 0; i < set->dns.n; i++) {
		if (!devices_has(&d, &set->dns.v[i].addr))
			continue;
		(void)netaddr_text(&set->dns.v[i].addr, text);
		return errmsg_set(msg, E_VALUE,
			"resolver %s is an address of this namespace, where the sandbox could "
			"answer: expected another in OPENSANDBOX_EGRESS_DNS_UPSTREAM (or "
			"EGRESS_ALLOW_LOCAL_RESOLVER=1)",
			text);
	}
	return 0;
}

static int supervisor_open_files(struct supervisor *s, struct errmsg *msg)
{
	const struct settings *set = s->settings;
	int ret;

	ret = supervisor_listen(s, msg);
	if (ret == 0)
		ret = supervisor_check_resolvers(set, msg);
	if (ret == 0 && set->mode != MODE_PROXY)
		ret = supervisor_guard_open(s, msg);
	if (ret == 0 && set->api) {
		s->roles.fd[ROLE_POLICY_NEW] = memfd_create("egress-policy", MFD_CLOEXEC);
		if (s->roles.fd[ROLE_POLICY_NEW] < 0)
			ret = errmsg_set(msg, -errno, "memory for a file: %s", err_text(-errno));
	}
	if (ret == 0)
		ret = supervisor_open_trust(
			TRUST_NAME, set->upstream_trust, &s->roles.fd[ROLE_TRUST], msg);
	if (ret == 0)
		ret = supervisor_open_opensandbox(set, &s->roles, msg);
	if (ret == 0 && set->audit_file) {
		ret = files_open_audit(set->audit_file, &s->roles.fd[ROLE_AUDIT], msg);
		if (ret < 0)
			ret = errmsg_prefix(msg, ret, "EGRESS_AUDIT, or `audit` in the file");
	}
	return ret;
}

int supervisor_start(struct supervisor *s, struct errmsg *msg)
{
	struct roles all;
	int ret;

	/* Before they are read: a change in between is seen as one. */
	supervisor_rules_watch(s);
	ret = sources_open(s->config_path, s->environ, false, &all, msg);
	if (ret < 0)
		return ret;
	roles_update(&s->roles, &all);
	ret = supervisor_load(s, &s->roles, &s->settings, msg);
	if (ret < 0)
		return ret;
	log_setup(s->settings->log_level, STDERR_FILENO, "egress");
	s->own_cert_dir = s->settings->ca_cert_default;
	/* Where the platform looks: our log may go elsewhere. */
	if (s->settings->no_effect && s->settings->mode != MODE_PROXY) {
		(void)printf(AUDIT_NOTE "no effect: %s\n", s->settings->no_effect);
		(void)fflush(stdout);
	}
	/* Listeners first: a second copy must not write its CA over the one in use. */
	ret = supervisor_open_files(s, msg);
	if (ret == 0)
		supervisor_remove_cert(s);
	if (ret == 0)
		ret = supervisor_vault_read(s, s->settings, &s->roles.fd[ROLE_VAULT], msg);
	if (ret < 0)
		return ret;
	return supervisor_secrets(s, msg);
}

void supervisor_init(struct supervisor *s, const char *config_path, char *const *env)
{
	*s = (struct supervisor){.config_path = config_path,
		.environ = env,
		.signal_fd = -1,
		.control_fd = -1,
		.rules_fd = -1,
		.exit_code = SUPERVISOR_EXIT_SETTINGS,
		.guard.program = -1,
		.backoff_ms = SUPERVISOR_BACKOFF_MS};
	roles_init(&s->roles);
	file_stage_init(&s->saved);
	strbuf_init(&s->ca_cert, CA_PEM_MAX);
}

void supervisor_fini(struct supervisor *s)
{
	roles_fini(&s->roles);
	supervisor_guard_fini(s);
	strbuf_fini(&s->ca_cert);
	vault_feed_watch_free(s->vault_watch);
	supervisor_rules_fini(s);
	file_stage_discard(&s->saved);
	settings_free(s->settings);
	s->settings = NULL;
	if (s->signal_fd >= 0)
		(void)close(s->signal_fd);
}

/* A change of these needs new sockets or a new CA: said, not done. */
static void supervisor_warn_fixed(const struct settings *was, const struct settings *is)
{
	if (!netaddr_eq(&was->proxy_addr, &is->proxy_addr) || was->proxy_port != is->proxy_port)
		log_warn("supervisor", "proxy_addr has changed: it counts after a restart only");
	if (was->api != is->api || was->api_port != is->api_port || was->api_any != is->api_any ||
		!netaddr_eq(&was->api_addr, &is->api_addr))
		log_warn("supervisor", "api_addr has changed: it counts after a restart only");
	if (!was->opensandbox_url != !is->opensandbox_url ||
		(was->opensandbox_url && strcmp(was->opensandbox_url, is->opensandbox_url) != 0))
		log_warn("supervisor",
			"opensandbox_url has changed: it counts after a restart only");
	if (was->proxy != is->proxy)
		log_warn("supervisor",
			"whether the proxy listens has changed: it counts after a "
			"restart only");
}

/* The audit file anew, if the settings name another one or it was moved away. */
static int supervisor_reopen_audit(
	const struct supervisor *s, const char *path, int *fd, struct errmsg *msg)
{
	if (!path)
		return 0;
	if (s->roles.fd[ROLE_AUDIT] >= 0 && files_is_same(path, s->roles.fd[ROLE_AUDIT]))
		return 0;
	return files_open_audit(path, fd, msg);
}

int supervisor_reload(struct supervisor *s, struct roles *fresh, struct errmsg *msg)
{
	struct settings *settings = NULL;
	struct roles all;
	int ret;

	ret = sources_open(s->config_path, s->environ, true, fresh, msg);
	if (ret < 0)
		return ret;
	all = *fresh; /* a view: fresh keeps the descriptors */
	all.fd[ROLE_RESOLV_CONF] = s->roles.fd[ROLE_RESOLV_CONF];
	ret = supervisor_load(s, &all, &settings, msg);
	if (ret < 0)
		goto fail;
	/* Another one would have no guard, or take the rules away from a sandbox that runs. */
	if (settings->mode != s->settings->mode) {
		ret = errmsg_set(msg, E_VALUE, "mode: expected the one of the start");
		goto fail;
	}
	/* The kernel would let out what goes to the new ones, and we would go on asking the old. */
	if (!upstreams_eq(&settings->dns, &s->settings->dns)) {
		ret = errmsg_set(msg, E_VALUE, "dns_upstream: expected the resolvers of the start");
		goto fail;
	}
	ret = supervisor_open_trust(
		TRUST_NAME, settings->upstream_trust, &fresh->fd[ROLE_TRUST], msg);
	if (ret == 0)
		ret = supervisor_open_opensandbox(settings, fresh, msg);
	if (ret < 0)
		goto fail;
	ret = supervisor_reopen_audit(s, settings->audit_file, &fresh->fd[ROLE_AUDIT], msg);
	if (ret < 0)
		goto fail;
	/* Last: once it is read it counts as read. */
	ret = supervisor_vault_read(s, settings, &fresh->fd[ROLE_VAULT], msg);
	if (ret < 0)
		goto fail;
	supervisor_warn_fixed(s->settings, settings);
	settings_free(s->settings);
	s->settings = settings;
	s->own_cert_dir = settings->ca_cert_default;
	log_setup(settings->log_level, STDERR_FILENO, "egress");
	/* Whoever removed it may want it back; failing to is no reason to refuse the rest. */
	ret = supervisor_write_cert(s, msg);
	if (ret < 0)
		log_error("supervisor", "%s", msg->text);
	return 0;
fail:
	settings_free(settings);
	roles_fini(fresh);
	return ret;
}

int supervisor_rotate(struct supervisor *s, struct errmsg *msg)
{
	struct roles fresh;
	int ret;

	if (!s->settings->audit_file)
		return errmsg_set(msg, E_VALUE, "no audit file");
	ret = files_rotate_audit(s->settings->audit_file, msg);
	if (ret < 0)
		return ret;
	roles_init(&fresh);
	ret = files_open_audit(s->settings->audit_file, &fresh.fd[ROLE_AUDIT], msg);
	if (ret < 0)
		return ret;
	roles_update(&s->roles, &fresh);
	return 0;
}
