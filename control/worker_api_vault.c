/* The worker's side of /credential-vault: what a write needs before anybody reads its content, and
 * what a write does. Before it: api.c, api_vault.c; after it: worker_vault. */
#include "audit/event.h"
#include "control/api_vault.h"
#include "control/settings_int.h"
#include "control/worker_int.h"
#include "proxy/proxy.h"
#include "vault/vault.h"

static int api_vault_refuse(
	struct api_refusal *out, int status, const char *code, const char *message)
{
	out->status = status;
	out->code = code;
	return errmsg_set(&out->msg, E_VALUE, "%s", message);
}

/* Web traffic of the sandbox comes to us, and is decrypted. */
static bool api_vault_intercepts(const struct settings *s)
{
	return (s->mode == MODE_PROXY || s->transparent) && s->intercept != INTERCEPT_OFF;
}

static bool api_vault_trusts(const struct settings *s, const struct netaddr *from)
{
	for (size_t i = 0; i < s->n_trusted_proxies; i++)
		if (netcidr_contains(&s->trusted_proxies[i], from))
			return true;
	return false;
}

/* Reference 1.5, in its order, and then what is ours. */
static int api_vault_ready(struct worker *w, struct api_refusal *out)
{
	const struct settings *s = w->settings;

	if (!s->token)
		return api_vault_refuse(out, 412, "token_missing",
			"credential vault requires egress API auth token");
	if (!api_vault_intercepts(s))
		return api_vault_refuse(out, 412, "interception_off",
			"credential vault requires transparent mitmproxy");
	if (s->upstream_insecure)
		return api_vault_refuse(out, 412, "upstream_insecure",
			"credential vault rejects insecure upstream TLS mode");
	if (s->mode != MODE_PROXY && !s->enforce)
		return api_vault_refuse(out, 412, "not_enforced",
			"credential vault requires dns+nft egress enforcement");
	if (s->require_locked_memory && !secmem_is_locked(w->vault.mem))
		return api_vault_refuse(out, 412, "memory_not_locked",
			"credential vault requires locked memory (RLIMIT_MEMLOCK), which there is "
			"none of");
	worker_watch_packets(w);
	if (w->gate.packets.open > 0 && !s->packet_sockets)
		return api_vault_refuse(out, 412, "packet_socket_present",
			"a packet socket is open in the sandbox: it could read the keys of this "
			"request");
	return 0;
}

void worker_api_vault_admit(const struct api_asked *q, void *arg, struct api_refusal *out)
{
	struct worker *w = arg;
	const struct settings *s = w->settings;

	if (slice_eq(q->method, SLICE("GET")) || api_vault_ready(w, out) < 0)
		return;
	if (s->vault_require_tls && netaddr_class(&q->from) != ADDR_LOOPBACK &&
		!(q->forwarded_https && api_vault_trusts(s, &q->from)))
		(void)api_vault_refuse(out, 426, "tls_required",
			"credential vault writes require TLS or loopback transport");
}

static char *on_api_vault_state(void *arg)
{
	const struct worker *w = arg;

	return vault_state_json(w->vault.vault);
}

static bool on_api_vault_ready(void *arg)
{
	const struct worker *w = arg;

	return w->health.state[HEALTH_START] == HEALTH_OK;
}

static int on_api_vault_write(void *arg, const struct api_vault_write *q, struct errmsg *msg)
{
	static const struct {
		enum worker_vault_op op;
		struct worker_vault_writer who;
	} ways[] = {
		[API_VAULT_POST] = {WORKER_VAULT_CREATE, {"POST", 201, AUDIT_UID_NONE}},
		[API_VAULT_PATCH] = {WORKER_VAULT_PATCH, {"PATCH", 200, AUDIT_UID_NONE}},
		[API_VAULT_DELETE] = {WORKER_VAULT_DELETE, {"DELETE", 204, AUDIT_UID_NONE}},
	};
	struct worker *w = arg;
	struct worker_vault_writer who = ways[q->method].who;
	int ret = worker_vault_write(&w->vault, ways[q->method].op, q->doc, w->settings, msg);

	if (ret < 0)
		return ret;
	who.uid = q->uid;
	worker_vault_note(&w->vault, w->audit, &who);
	return 0;
}

void worker_vault_make_room(void *arg, bool all)
{
	struct worker *w = arg;
	size_t n = proxy_free_keys(w->proxy, all);

	if (n > 0)
		log_warn("vault", "locked memory was needed: %zu exchanges %s were ended", n,
			all ? "that held keys" : "of an earlier revision");
}

/* --- routes --- */

void worker_api_vault(struct api_call *call, void *arg)
{
	const struct worker *w = arg;

	api_vault_run(w->api_vault, call);
}

void worker_api_vault_credentials(struct api_call *call, void *arg)
{
	const struct worker *w = arg;

	api_vault_list(w->api_vault, call, "credentials");
}

void worker_api_vault_credential(struct api_call *call, void *arg)
{
	const struct worker *w = arg;

	api_vault_item(w->api_vault, call, "credentials");
}

void worker_api_vault_bindings(struct api_call *call, void *arg)
{
	const struct worker *w = arg;

	api_vault_list(w->api_vault, call, "bindings");
}

void worker_api_vault_binding(struct api_call *call, void *arg)
{
	const struct worker *w = arg;

	api_vault_item(w->api_vault, call, "bindings");
}

/* What the replaced image gives its proxy is nobody's here; it is refused as there (1.2). */
void worker_api_vault_active(struct api_call *call, void *arg)
{
	api_fail(call, 403, "forbidden", "forbidden");
}

void worker_api_vault_other(struct api_call *call, void *arg)
{
	api_fail(call, 404, "not_found", "not found");
}

void worker_api_vault_open(struct worker *w)
{
	static const struct api_vault_ops ops = {
		.state = on_api_vault_state,
		.ready = on_api_vault_ready,
		.write = on_api_vault_write,
	};

	w->api_vault = api_vault_new(w->base, w->changes, &ops, w);
}
