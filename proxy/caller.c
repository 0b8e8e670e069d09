/* Puts the parts together that fetch works with. Before it: a command; after it: proxy/fetch. */
#include "proxy/caller.h"

#include <event2/event.h>

#include "base/secmem.h"
#include "base/strbuf.h"
#include "dns/resolver.h"
#include "dns/upstreams.h"
#include "policy/policy.h"
#include "proxy/proxy.h"
#include "proxy/tls.h"

#define CALLER_MEM_MIN (128u << 10) /* scratch, one record, keys of some hundred others */
#define CALLER_MEM_MAX (2u << 20)
#define CALLER_FILE_MAX (1u << 20) /* resolv.conf, hosts */
#define CALLER_DNS_MS 2000         /* each resolver */
#define CALLER_CONNECT_MS 5000
#define CALLER_IDLE_MS 30000 /* kept connections */

static int caller_resolver(struct caller *c, struct errmsg *msg)
{
	struct upstreams servers = {.n = 0};
	struct strbuf text;
	int ret;

	strbuf_init(&text, CALLER_FILE_MAX);
	/* Without one, what it cannot find is at this machine or in the hosts file. */
	if (strbuf_read_file(&text, "/etc/resolv.conf") < 0 ||
		upstreams_from_resolv_conf(strbuf_slice(&text), &servers, NULL) < 0)
		ret = upstreams_decode(SLICE("127.0.0.1"), &servers, msg);
	else
		ret = 0;
	if (ret == 0)
		ret = resolver_new(c->base, &servers, CALLER_DNS_MS, &c->resolver, msg);
	strbuf_clear(&text);
	if (ret == 0 && strbuf_read_file(&text, "/etc/hosts") == 0)
		resolver_set_hosts(c->resolver, strbuf_slice(&text));
	strbuf_fini(&text);
	return ret;
}

static void caller_configure(struct caller *c)
{
	static const struct private_names none;
	const struct proxy_config config = {.policy = c->policy,
		.private_names = &none,
		.intercept = PROXY_INTERCEPT_OFF,
		.handshake_timeout_ms = CALLER_CONNECT_MS,
		.connect_timeout_ms = CALLER_CONNECT_MS,
		.upstream_idle_ms = CALLER_IDLE_MS};

	proxy_configure(c->px, &config);
}

int caller_open(struct caller *c, const char *trust, struct errmsg *msg)
{
	int ret = secmem_new(secmem_size_for(CALLER_MEM_MIN, CALLER_MEM_MAX), &c->mem);

	if (ret < 0)
		return errmsg_set(msg, ret, "memory for keys: %s", err_text(ret));
	c->base = event_base_new();
	REQUIRE(c->base != NULL);
	c->policy = policy_new(false, NULL, 0);
	ret = tls_new(NULL, trust ? trust : CALLER_TRUST, false, &c->tls, msg);
	if (ret == 0)
		ret = caller_resolver(c, msg);
	if (ret == 0)
		ret = proxy_new(c->base, c->tls, c->resolver, NULL, c->mem, &c->px);
	if (ret == 0)
		caller_configure(c);
	return ret;
}

void caller_close(struct caller *c)
{
	if (c->px)
		proxy_free(c->px);
	resolver_free(c->resolver);
	tls_free(c->tls);
	policy_unref(c->policy);
	secmem_close(c->mem);
	if (c->base)
		event_base_free(c->base);
	*c = (struct caller){.base = NULL};
}
