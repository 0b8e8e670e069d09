/* The modes dns and dns+nft: the DNS gate, and the rules that the guard puts into the kernel.
 * Before it: worker.c at the start, policy_change at a change of policy. After it: dns/,
 * nft/guard_client.
 *
 * A start: rules of the policy in force, then a look whether our own sockets pass (the level of our
 * cgroup is found by trying), then the self-test by the supervisor's prober; then health is green.
 * Whatever is lost later is asked for again, in turn with the changes of policy, so that the kernel
 * never gets an older ruleset after a newer one. */
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <event2/event.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/sock_diag.h"
#include "control/areas.h"
#include "control/policy_change.h"
#include "control/probe.h"
#include "control/webhook.h"
#include "control/worker_int.h"
#include "dns/dns_gate.h"
#include "nft/guard_client.h"

#define CGROUP_ROOT "/sys/fs/cgroup"
#define CGROUP2_MAGIC 0x63677270 /* linux/magic.h */
/* On older kernels a level counts from the real root: nested containers are not deeper. */
#define GATE_LEVEL_MAX 8
#define GATE_AGAIN_MS 1000
#define GATE_RESOLV_CONF_MAX (1u << 20) /* as the supervisor reads it */

uint64_t worker_cgroup(void)
{
	struct statfs fs;
	struct stat st;

	if (statfs(CGROUP_ROOT, &fs) < 0 || fs.f_type != CGROUP2_MAGIC ||
		stat(CGROUP_ROOT, &st) < 0)
		return 0;
	/* The real root holds everybody. */
	return st.st_ino == 1 ? 0 : st.st_ino;
}

struct ruleset_options worker_ruleset_options(
	const struct settings *s, uint64_t cgroup_id, uint32_t cgroup_level)
{
	return (struct ruleset_options){
		.cgroup_id = cgroup_id,
		.cgroup_level = cgroup_id ? cgroup_level : 0,
		.uid = geteuid(),
		.api_port = s->api_port,
		.web_port = s->proxy_port,
		.dns_port = DNS_GATE_PORT,
		.enforce = s->enforce,
		.read_only = s->read_only,
		.inbound_all = s->inbound_all,
		.log = 1,
	};
}

/* --- the ruleset --- */

static int gate_rules(
	const struct worker *w, struct policy *policy, struct ruleset *r, struct errmsg *msg)
{
	const struct settings *s = w->settings;
	struct ruleset_resolver resolvers[UPSTREAMS_MAX + 1];
	const struct authority *api = &w->life.api.authority;
	const bool closed = w->life.kernel >= LIFECYCLE_CLOSED;
	uint16_t inspected[2 + ARRAY_LEN(s->extra_ports)] = {80, 443};
	struct ruleset_lists lists = {
		.inspected = inspected,
		.n_inspected = 2 + s->n_extra_ports,
		.inbound = s->inbound_ports,
		.n_inbound = s->n_inbound_ports,
		.doh = s->doh,
		.n_doh = s->n_doh,
		.exempt = s->exempt,
		.n_exempt = closed ? 0 : s->n_exempt,
		.resolvers = resolvers,
		.n_resolvers = s->dns.n,
	};
	int ret;

	memcpy(inspected + 2, s->extra_ports, s->n_extra_ports * sizeof(inspected[0]));
	for (size_t i = 0; i < s->dns.n; i++)
		resolvers[i] = (struct ruleset_resolver){s->dns.v[i].addr, s->dns.v[i].port};
	/* Ours to reach, whatever the policy denies the sandbox. */
	if (w->life.follows && api->is_addr)
		resolvers[lists.n_resolvers++] = (struct ruleset_resolver){api->addr, api->port};
	ret = ruleset_from_policy(r, policy, &lists, msg);
	if (ret == 0 && s->enforce)
		ret = dns_gate_collect(w->gate.dns, policy, r);
	return ret;
}

/* Nothing gets out, and nothing is redirected to where it would. */
static int gate_rules_shut(struct ruleset *r, struct errmsg *msg)
{
	struct policy *nothing = policy_new(false, NULL, 0);
	const struct ruleset_lists none = {.inspected = NULL};
	int ret = ruleset_from_policy(r, nothing, &none, msg);

	policy_unref(nothing);
	return ret;
}

static void on_gate_applied(int err, void *arg)
{
	struct worker *w = arg;

	w->gate.applied = err == 0;
	if (err < 0) {
		log_error("worker", "the kernel's rules: %s", err_text(err));
		if (w->settings->enforce)
			dns_gate_abandon(w->gate.dns);
	}
	if (!policy_change_answer(w->changes, POLICY_STEP_APPLY, err))
		log_error("worker", "rules that nobody asked for");
}

int worker_gate_apply(struct worker *w, struct policy *policy)
{
	const struct worker_gate *g = &w->gate;
	const struct worker_life *life = &w->life;
	const struct settings *s = w->settings;
	struct ruleset_options o;
	struct errmsg msg = {""};
	struct ruleset r;
	int ret;

	if (!g->dns)
		return 0;
	o = worker_ruleset_options(s, g->cgroup_id, g->cgroup_level);
	o.enforce = o.enforce || g->shut || life->kernel >= LIFECYCLE_CLOSED;
	o.hold = s->enforce && life->kernel == LIFECYCLE_NO_NEW_FLOWS;
	policy = worker_lifecycle_policy(w, life->kernel, policy);
	o.redirect_dns = !g->shut;
	o.redirect_web = !g->shut && s->proxy && (s->transparent || s->read_only);
	o.doh_block = s->block_doh;
	ruleset_init(&r, &o);
	ret = g->shut ? gate_rules_shut(&r, &msg) : gate_rules(w, policy, &r, &msg);
	if (ret < 0)
		log_error(
			"worker", "the kernel's rules: %s", msg.text[0] ? msg.text : err_text(ret));
	else if (guard_apply_start(g->guard, &r, on_gate_applied, w))
		ret = POLICY_CHANGE_LATER;
	else
		ret = E_GUARD;
	if (ret < 0 && s->enforce)
		dns_gate_abandon(g->dns);
	ruleset_fini(&r);
	return ret;
}

/* --- the self-test --- */

/* Whether a datagram of ours to our first resolver may leave. Empty: nobody has to answer it. */
static bool gate_passes(const struct settings *s)
{
	struct sockaddr_storage sa;
	socklen_t len = netaddr_to_sockaddr(&s->dns.v[0].addr, s->dns.v[0].port, &sa);
	int fd = socket(sa.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	bool passes = true;

	if (fd < 0)
		return false;
	if (connect(fd, (const struct sockaddr *)&sa, len) == 0)
		passes = send(fd, "", 0, MSG_NOSIGNAL) == 0 || errno != EPERM;
	(void)close(fd);
	return passes;
}

/* The rules are in the kernel: true if our own sockets pass, else the next thing is tried. */
static bool gate_find_cgroup(struct worker *w)
{
	struct worker_gate *g = &w->gate;

	if (g->cgroup_found || g->cgroup_id == 0 ||
		(!w->settings->enforce && w->life.kernel < LIFECYCLE_CLOSED))
		return true;
	if (gate_passes(w->settings)) {
		g->cgroup_found = true;
		log_info("worker", "our cgroup is seen at level %u", g->cgroup_level);
		return true;
	}
	if (g->cgroup_level == GATE_LEVEL_MAX)
		g->cgroup_id = 0;
	else
		g->cgroup_level++;
	worker_gate_again(w);
	return false;
}

static void gate_probe(struct worker *w)
{
	struct worker_gate *g = &w->gate;
	int code = w->settings->enforce ? probe_choose(w->settings->policy) : PROBE_NO_ADDRESS;

	if (g->probing)
		return;
	if (!g->shut)
		code |= PROBE_DNS;
	if (control_send_code(w->control_fd, CONTROL_PROBE, code) == 0)
		g->probing = true;
	else
		g->again_ms = clock_mono_ms() + GATE_AGAIN_MS;
}

void worker_gate_probed(struct worker *w, int result)
{
	struct worker_gate *g = &w->gate;
	const char *why = probe_text((enum probe_result)result);

	g->probing = false;
	if (result == PROBE_OK) {
		if (!g->tested)
			log_info("worker", "the self-test has passed");
		g->tested = true;
		health_ok(&w->health, HEALTH_START);
		return;
	}
	log_error("worker", "self-test: %s", why);
	g->tested = false;
	health_set(&w->health, HEALTH_START, HEALTH_FAILED, "self-test: %s", why);
	g->again_ms = clock_mono_ms() + GATE_AGAIN_MS;
}

/* --- the rules in force, once more --- */

struct gate_request {
	struct policy_request r;
	struct worker *w;
};

static struct worker *gate_request_of(struct policy_request *r)
{
	return ((struct gate_request *)(void *)r)->w; /* its first member */
}

static int on_gate_prepare(struct policy_request *r, struct errmsg *msg)
{
	struct worker *w = gate_request_of(r);

	w->gate.submitted = false;
	r->policy = policy_ref(w->settings->policy);
	return 0;
}

static int on_gate_keep(struct policy_request *r, struct errmsg *msg)
{
	return 0;
}

static void on_gate_publish(struct policy_request *r)
{
	struct worker *w = gate_request_of(r);

	if (w->settings->enforce)
		dns_gate_abandon(w->gate.dns);
	if (gate_find_cgroup(w) && !w->gate.tested)
		gate_probe(w);
}

static void on_gate_done(struct policy_request *r, const struct policy_result *result)
{
	struct worker *w = gate_request_of(r);

	w->gate.submitted = false;
	if (result->ret < 0)
		w->gate.again_ms = clock_mono_ms() + GATE_AGAIN_MS;
	free(r);
}

void worker_gate_again(struct worker *w)
{
	static const struct policy_request_ops ops = {.prepare = on_gate_prepare,
		.keep = on_gate_keep,
		.publish = on_gate_publish,
		.done = on_gate_done};
	struct gate_request *q;

	if (!w->gate.dns || w->gate.submitted || !w->changes)
		return;
	w->gate.submitted = true;
	q = xcalloc(1, sizeof(*q));
	q->r.ops = &ops;
	q->w = w;
	policy_change_submit(w->changes, &q->r);
}

/* --- the guard --- */

static void on_gate_lost(void *arg)
{
	struct worker *w = arg;

	w->gate.applied = false;
	worker_watch_gone(w);
}

static void on_gate_state(const struct guard_state *s, void *arg)
{
	worker_watch_state(arg, s);
}

static void on_gate_flow(const struct guard_flow *f, void *arg)
{
	worker_watch_flow(arg, f);
}

static void gate_attach(struct worker *w, int fd)
{
	static const struct guard_client_events events = {
		.lost = on_gate_lost, .flow = on_gate_flow, .state = on_gate_state};

	w->gate.guard = guard_client_new(w->base, fd, &events, w);
	w->gate.n_guards++;
}

void worker_gate_guard(struct worker *w, int fd)
{
	struct guard_client *before = w->gate.guard;

	if (!w->gate.dns) {
		(void)close(fd);
		return;
	}
	gate_attach(w, fd);
	worker_gate_configure(w);
	guard_client_free(before);
	log_info("worker", "another guard");
	worker_gate_again(w);
}

/* --- life --- */

static void on_gate_denied(struct slice name, void *arg)
{
	const struct worker *w = arg;

	/* while the proxy is closed there is none any more */
	if (w->webhook)
		webhook_denied(w->webhook, name);
}

static struct dns_gate_config gate_config(struct worker *w)
{
	const struct settings *s = w->settings;

	return (struct dns_gate_config){
		.policy = worker_lifecycle_policy(w, w->life.now, s->policy),
		.hold = w->life.now == LIFECYCLE_NO_NEW_FLOWS,
		.private_names = &s->private_names,
		.read_only = s->read_only,
		.on_link = w->gate.devices.on_link,
		.n_on_link = w->gate.devices.n_on_link,
		.types = s->dns_types,
		.n_types = s->n_dns_types,
		.guard = s->enforce ? w->gate.guard : NULL,
		.audit = w->audit,
		.asked = &w->gate.asked,
		.resolver = w->resolver,
		.log_skip = s->log_skip,
		.denied = w->webhook ? on_gate_denied : NULL,
		.arg = w,
		.keep = w->start.plain + AREA_PLAIN_LEASES,
		.keep_len = AREA_PLAIN_LEASES_LEN,
	};
}

void worker_gate_configure(struct worker *w)
{
	struct dns_gate_config c;

	if (!w->gate.dns)
		return;
	c = gate_config(w);
	dns_gate_configure(w->gate.dns, &c);
}

/* So that listeners of others are told from ours. */
static int gate_own(struct worker *w)
{
	static const struct {
		enum role role;
		bool udp;
	} own[] = {{ROLE_PROXY, false}, {ROLE_PROXY_V6, false}, {ROLE_API, false},
		{ROLE_API_V6, false}, {ROLE_DNS_TCP, false}, {ROLE_DNS_TCP_V6, false},
		{ROLE_DNS_UDP, true}, {ROLE_DNS_UDP_V6, true}};
	int ret = 0;

	for (size_t i = 0; i < ARRAY_LEN(own) && ret == 0; i++)
		ret = foreign_add(&w->gate.foreign, w->start.roles.fd[own[i].role], own[i].udp);
	return ret;
}

/* Clients go by the resolv.conf that was there when the container was made, which need not name our
 * resolvers. Without one nobody's user is known. */
static void gate_asked(struct worker *w)
{
	struct strbuf text;
	struct errmsg msg;

	strbuf_init(&text, GATE_RESOLV_CONF_MAX);
	if (w->start.roles.fd[ROLE_RESOLV_CONF] < 0 ||
		strbuf_pread_fd(&text, w->start.roles.fd[ROLE_RESOLV_CONF]) < 0 ||
		upstreams_from_resolv_conf(strbuf_slice(&text), &w->gate.asked, &msg) < 0)
		w->gate.asked.n = 0;
	strbuf_fini(&text);
}

int worker_gate_open(struct worker *w, struct errmsg *msg)
{
	const struct settings *s = w->settings;
	const struct forwarder_config forward = {
		.upstreams = &s->dns,
		.timeout_ms = s->dns_timeout_ms,
		.probe_name = slice_str(s->dns_probe),
		.probe_interval_s = s->dns_probe_interval_s,
	};
	struct worker_gate *g = &w->gate;
	struct dns_gate_config c;
	int ret;

	g->diag_fd = -1;
	if (s->mode == MODE_PROXY)
		return 0;
	if (w->start.roles.fd[ROLE_GUARD] < 0)
		return errmsg_set(msg, E_SYNTAX, "start message without %s", role_text(ROLE_GUARD));
	ret = devices_read(&g->devices);
	if (ret < 0)
		return errmsg_set(msg, ret, "network devices: %s", err_text(ret));
	ret = gate_own(w);
	if (ret < 0)
		return errmsg_set(msg, ret, "our listeners: %s", err_text(ret));
	g->diag_fd = sock_diag_open();
	g->cgroup_id = worker_cgroup();
	gate_asked(w);
	gate_attach(w, w->start.roles.fd[ROLE_GUARD]);
	w->start.roles.fd[ROLE_GUARD] = -1; /* the client's now */
	c = gate_config(w);
	return dns_gate_new(w->base, &forward, &c, &g->dns, msg);
}

void worker_gate_start(struct worker *w)
{
	static const struct {
		enum role role;
		enum dns_gate_kind kind;
	} sockets[] = {{ROLE_DNS_UDP, DNS_GATE_UDP}, {ROLE_DNS_UDP_V6, DNS_GATE_UDP},
		{ROLE_DNS_TCP, DNS_GATE_TCP}, {ROLE_DNS_TCP_V6, DNS_GATE_TCP}};

	if (!w->gate.dns) {
		health_ok(&w->health, HEALTH_START);
		return;
	}
	for (size_t i = 0; i < ARRAY_LEN(sockets); i++)
		if (w->start.roles.fd[sockets[i].role] >= 0)
			dns_gate_listen(
				w->gate.dns, w->start.roles.fd[sockets[i].role], sockets[i].kind);
	worker_watch_start(w);
	worker_gate_again(w);
}

void worker_gate_close(struct worker *w)
{
	struct worker_gate *g = &w->gate;

	worker_watch_close(w);
	dns_gate_free(g->dns);
	g->dns = NULL;
	guard_client_free(g->guard);
	g->guard = NULL;
	if (g->diag_fd >= 0)
		(void)close(g->diag_fd);
	g->diag_fd = -1;
}
