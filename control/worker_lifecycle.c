/* What OpenSandbox says of our sandbox, laid over what is in force. Before it: control/lifecycle,
 * which asks; after it: proxy, DNS gate, kernel and vault.
 *
 * Closer counts at once: in the area, so that no worker after this one is wider; in proxy and DNS
 * gate; then in the kernel, in turn with the changes of policy, and again until it has it. Wider
 * goes the way of every change of policy: the kernel first. The policy itself stays as it is; a
 * closed one takes its place where decisions are made. */
#include <stdio.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"
#include "control/lifecycle.h"
#include "control/worker_int.h"
#include "dns/resolver.h"
#include "policy/policy_json.h"
#include "proxy/proxy.h"
#include "proxy/tls.h"
#include "vault/vault.h"

#define LIFE_LABEL "sandbox." /* in front of the names of metadata */

struct life_request {
	struct policy_request r;
	struct worker *w;
};

static struct worker *life_request_of(struct policy_request *r)
{
	return ((struct life_request *)(void *)r)->w; /* its first member */
}

struct policy *worker_lifecycle_policy(
	const struct worker *w, enum lifecycle_enforce e, struct policy *policy)
{
	return e < LIFECYCLE_CLOSED ? policy : w->life.closed;
}

/* --- keys --- */

static bool life_must_erase(const struct worker *w)
{
	return w->life.want == LIFECYCLE_CLOSED_ERASE && vault_exists(w->vault.vault);
}

static int life_erase(struct worker *w, struct errmsg *msg)
{
	int ret = worker_vault_write(&w->vault, WORKER_VAULT_DELETE, SLICE_EMPTY, w->settings, msg);

	if (ret == 0)
		worker_vault_note(&w->vault, w->audit,
			&(struct worker_vault_writer){
				.method = "lifecycle", .uid = AUDIT_UID_NONE});
	return ret;
}

/* --- closer, wider --- */

static void life_narrow(struct worker *w)
{
	struct worker_life *life = &w->life;

	life->now = life->want;
	if (life->kernel < life->now)
		life->kernel = life->now;
	worker_configure(w);
	worker_gate_again(w);
}

static int on_life_prepare(struct policy_request *r, struct errmsg *msg)
{
	struct worker *w = life_request_of(r);

	if (life_must_erase(w))
		return life_erase(w, msg);
	if (w->life.want >= w->life.now)
		return 0; /* it is over */
	w->life.kernel = w->life.want;
	r->policy = policy_ref(w->settings->policy);
	return 0;
}

static int on_life_keep(struct policy_request *r, struct errmsg *msg)
{
	struct worker *w = life_request_of(r);
	int ret;

	w->meta.life.enforce = w->life.kernel;
	ret = worker_meta_keep(w);
	if (ret < 0)
		w->life.kernel = w->life.now; /* as the rules are, once they are put back */
	return ret;
}

/* Closer meanwhile: then that is what `kernel` says, and its rules are on their way. */
static void on_life_publish(struct policy_request *r)
{
	struct worker *w = life_request_of(r);

	w->life.now = w->life.kernel;
	worker_configure(w);
}

static void life_settle(struct worker *w);

static void on_life_done(struct policy_request *r, const struct policy_result *result)
{
	struct worker *w = life_request_of(r);

	w->life.settling = false;
	w->life.kernel = w->life.now;
	free(r);
	if (result->ret == 0)
		life_settle(w); /* something else was seen meanwhile, perhaps */
	else
		log_error("lifecycle", "%s: %s",
			life_must_erase(w) ? "the keys are still there" : "still closed",
			result->msg.text);
}

/* What takes its turn among the changes of policy: keys go, or more is let through. What fails is
 * tried again when something is seen again. */
static void life_settle(struct worker *w)
{
	static const struct policy_request_ops ops = {.prepare = on_life_prepare,
		.keep = on_life_keep,
		.publish = on_life_publish,
		.done = on_life_done};
	struct life_request *q;

	if (w->life.settling || (!life_must_erase(w) && w->life.want >= w->life.now))
		return;
	w->life.settling = true;
	q = xcalloc(1, sizeof(*q));
	q->r.ops = &ops;
	q->w = w;
	policy_change_submit(w->changes, &q->r);
}

/* --- labels --- */

/* c: somebody's labels. What does not fit beside them is left out. */
void worker_lifecycle_labels(struct context *c, void *arg)
{
	const struct worker *w = arg;
	struct context_label list[CONTEXT_LABELS_MAX];
	json_t *own = json_loadb(c->text, c->len, 0, NULL), *all = json_object(), *value;
	char text[sizeof(LIFE_LABEL) + AUDIT_CONTEXT_MAX];
	size_t n = 0, n_own;
	const char *name;

	if (!w->life.follows)
		goto out;
	json_object_foreach(own, name, value)
	{
		if (!slice_starts(slice_str(name), SLICE(LIFE_LABEL)))
			json_object_set(all, name, value);
	}
	n_own = json_object_size(all);
	json_object_foreach(w->life.metadata, name, value)
	{
		(void)snprintf(text, sizeof(text), LIFE_LABEL "%s", name);
		json_object_set(all, text, value);
	}
	json_object_foreach(all, name, value)
	{
		if (n < ARRAY_LEN(list))
			list[n++] = (struct context_label){slice_str(name),
				slice_make(json_string_value(value), json_string_length(value))};
	}
	while (context_set(c, list, n, NULL) < 0 && n > n_own)
		n--;
out:
	json_decref(own);
	json_decref(all);
}

static void life_metadata(struct worker *w, json_t *metadata)
{
	struct slice before = audit_context(w->audit);
	struct context c = {.len = (uint16_t)before.len};

	json_decref(w->life.metadata);
	w->life.metadata = json_incref(metadata);
	memcpy(c.text, before.p, before.len);
	worker_lifecycle_labels(&c, w);
	if (!slice_eq(before, slice_make(c.text, c.len)) &&
		audit_set_context(w->audit, &c, AUDIT_UID_NONE) < 0)
		log_warn("lifecycle", "the audit trail has no room for new labels");
}

/* --- what is seen --- */

static void life_note(struct worker *w, const struct lifecycle_known *k)
{
	char until[CLOCK_TEXT_MAX] = "never", what[AUDIT_RULE_MAX];

	if (k->expires_us != 0)
		clock_text(k->expires_us, until);
	(void)snprintf(what, sizeof(what), "%s, expires %s: %s (%s)",
		k->found ? lifecycle_state_text(k->state) : "not seen",
		k->found ? until : "not known", lifecycle_enforce_text(k->enforce),
		lifecycle_cause_text(k->cause));
	log_info("lifecycle", "%s", what);
	worker_note(w, AUDIT_LIFECYCLE,
		k->enforce == LIFECYCLE_OPEN ? REASON_ALLOWED : REASON_SANDBOX_CLOSED, what);
}

static void on_life_seen(
	const struct lifecycle_known *k, const struct lifecycle_sandbox *s, bool changed, void *arg)
{
	struct worker *w = arg;
	struct worker_life *life = &w->life;

	life->want = k->enforce;
	w->meta.life = *k;
	if (life->now > k->enforce)
		w->meta.life.enforce = life->now;
	if (worker_meta_keep(w) < 0)
		log_error("lifecycle", "what is known cannot be kept");
	if (life->want > life->now)
		life_narrow(w);
	life_settle(w);
	if (changed)
		life_note(w, k);
	if (s)
		life_metadata(w, s->metadata);
}

/* In clear, to where the sandbox could answer: its key. */
static enum reason on_life_admit(const struct netaddr *a, void *arg)
{
	const struct worker *w = arg;

	return !w->life.api.https && w->settings->mode != MODE_PROXY &&
			devices_has(&w->gate.devices, a)
		? REASON_ADDRESS_REFUSED
		: REASON_ALLOWED;
}

static bool on_life_same_policy(const json_t *document, void *arg)
{
	const struct worker *w = arg;
	json_t *theirs = policy_json_normal(document, NULL);
	json_t *ours = policy_json_encode(w->settings->user_policy);
	bool same = json_equal(theirs, ours);

	json_decref(theirs);
	json_decref(ours);
	return same;
}

static void on_life_policy_seen(bool same, void *arg)
{
	const char *what = same ? "the server sees the policy in force"
				: "the policy that the server sees is not the one in force";

	log_warn("lifecycle", "%s", what);
	worker_note(arg, AUDIT_LIFECYCLE, REASON_ALLOWED, what);
}

json_t *worker_lifecycle_status(const struct worker *w)
{
	return w->life.follows ? lifecycle_json(w->life.follows) : json_null();
}

/* --- life --- */

static int life_proxy(struct worker *w, struct errmsg *msg)
{
	const int own = w->start.roles.fd[ROLE_OPENSANDBOX_CA];
	const struct settings *s = w->settings;
	const struct tls_trust trust = {
		.fd = own >= 0 ? own : w->start.roles.fd[ROLE_TRUST],
		.name = own >= 0 ? s->opensandbox_ca : s->upstream_trust,
	};
	const struct proxy_config c = {
		.policy = w->life.closed,
		.connect_timeout_ms = s->connect_timeout_ms,
		.upstream_idle_ms = s->upstream_idle_ms,
	};
	struct worker_life *life = &w->life;
	int ret = 0;

	/* The roots are those of the origins, read already; but not if origins are not verified. */
	if (own >= 0 || s->upstream_insecure)
		ret = tls_new_trust(w->ca, &trust, false, &life->tls, msg);
	if (ret == 0)
		ret = resolver_new(w->base, &s->dns, s->dns_timeout_ms, &life->resolver, msg);
	if (ret == 0)
		ret = proxy_new(w->base, life->tls ? life->tls : w->tls, life->resolver, NULL,
			w->vault.mem, &life->api.px);
	if (ret == 0)
		proxy_configure(life->api.px, &c);
	return ret;
}

int worker_lifecycle_open(struct worker *w, struct errmsg *msg)
{
	static const struct lifecycle_ops ops = {
		on_life_seen, on_life_admit, on_life_same_policy, on_life_policy_seen};
	const struct settings *s = w->settings;
	struct worker_life *life = &w->life;
	int ret;

	if (!s->opensandbox_url || !s->sandbox_id)
		return 0;
	if (!lifecycle_id_ok(slice_str(s->sandbox_id)))
		return errmsg_set(msg, E_VALUE,
			"OPENSANDBOX_EGRESS_SANDBOX_ID: expected letters, digits, `.`, `_` and "
			"`-`, so that OPENSANDBOX_URL can be asked for it");
	REQUIRE(lifecycle_api_init(&life->api, s->opensandbox_url) == 0);
	life->closed = policy_new_closed();
	ret = life_proxy(w, msg);
	if (ret < 0)
		return ret;
	life->want = life->now = life->kernel = w->meta.life.enforce;
	life->follows = lifecycle_new(&life->api, s->sandbox_id, &w->meta.life, &ops, w);
	return lifecycle_set_key(life->follows, w->start.roles.fd[ROLE_OPENSANDBOX_KEY], msg);
}

void worker_lifecycle_start(struct worker *w)
{
	if (w->life.follows)
		life_settle(w);
}

void worker_lifecycle_key(struct worker *w)
{
	struct errmsg msg = {""};

	if (w->life.follows && w->start.roles.fd[ROLE_OPENSANDBOX_KEY] >= 0 &&
		lifecycle_set_key(w->life.follows, w->start.roles.fd[ROLE_OPENSANDBOX_KEY], &msg) <
			0)
		log_error("lifecycle", "%s; the key before counts", msg.text);
}

void worker_lifecycle_thaw(struct worker *w, uint64_t ms)
{
	if (!w->life.follows)
		return;
	proxy_thaw(w->life.api.px, ms);
	lifecycle_poll(w->life.follows);
}

void worker_lifecycle_close(struct worker *w)
{
	struct worker_life *life = &w->life;

	lifecycle_free(life->follows);
	life->follows = NULL;
	lifecycle_api_fini(&life->api);
	proxy_free(life->api.px);
	resolver_free(life->resolver);
	tls_free(life->tls);
	policy_unref(life->closed);
	json_decref(life->metadata);
}
