/* Settings to the proxy's configuration. Before it: settings_load; after it: proxy_configure, or
 * the steps of `egressctl policy check`. */
#include "control/settings_proxy.h"

#include "vault/vault.h"

static enum proxy_intercept settings_proxy_intercept(enum intercept i)
{
	switch (i) {
	case INTERCEPT_ALL:
		return PROXY_INTERCEPT_ALL;
	case INTERCEPT_BOUND:
		return PROXY_INTERCEPT_BOUND;
	case INTERCEPT_OFF:
		break;
	}
	return PROXY_INTERCEPT_OFF;
}

static enum proxy_placeholders settings_proxy_placeholders(enum placeholders p)
{
	switch (p) {
	case PLACEHOLDERS_DENY:
		break;
	case PLACEHOLDERS_STRIP:
		return PROXY_PLACEHOLDERS_STRIP;
	case PLACEHOLDERS_PASS:
		return PROXY_PLACEHOLDERS_PASS;
	}
	return PROXY_PLACEHOLDERS_DENY;
}

struct proxy_config settings_proxy_config(const struct settings *s)
{
	struct proxy_config c = {
		.policy = s->policy,
		.read_only = s->read_only,
		.git_fetch = s->read_only_git_fetch,
		.write_hosts = s->write_hosts,
		.pass_through = s->pass_through,
		.private_names = &s->private_names,
		.intercept = settings_proxy_intercept(s->intercept),
		.placeholders = settings_proxy_placeholders(s->placeholders),
		.unbound_writes = s->unbound_writes,
		.n_extra_ports = s->n_extra_ports,
		.head_timeout_ms = s->head_timeout_ms,
		.handshake_timeout_ms = s->handshake_timeout_ms,
		.client_idle_ms = s->client_idle_ms,
		.connect_timeout_ms = s->connect_timeout_ms,
		.first_byte_ms = s->first_byte_ms,
		.stream_idle_ms = s->stream_idle_ms,
		.upstream_idle_ms = s->upstream_idle_ms,
		.max_connections = s->max_connections,
	};

	memcpy(c.extra_ports, s->extra_ports, sizeof(s->extra_ports));
	return c;
}

struct vault_rules settings_vault_rules(const struct settings *s)
{
	return (struct vault_rules){
		.policy = s->policy,
		.pass_through = s->pass_through,
		.write_hosts = s->write_hosts,
		.read_only = s->read_only,
		.allow_body_surface = s->body_surface,
		.allow_http = s->http_bindings,
		.require_scoped_match = s->require_scoped_match,
	};
}
