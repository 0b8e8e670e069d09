/* Owns the parts of the gate and what it is configured with. Before it: the worker. After it:
 * dns_server (sockets), dns_query (one question), forwarder and leases. */
#include "dns/dns_gate.h"

#include <stdlib.h>
#include <unistd.h>

#include "audit/client_uid.h"
#include "base/arena.h"
#include "dns/dns_gate_int.h"
#include "dns/leases.h"

/* As the image we replace: so many lines of allowed lookups a second at first. */
#define GATE_LOG_BURST 100
#define GATE_LOG_EVERY_MS 100

int dns_gate_new(struct event_base *base, const struct forwarder_config *forward,
	const struct dns_gate_config *config, struct dns_gate **out, struct errmsg *msg)
{
	struct dns_gate *g = xcalloc(1, sizeof(*g));
	int ret;

	g->base = base;
	TAILQ_INIT(&g->queries);
	LIST_INIT(&g->servers);
	g->outbound.burst = GATE_LOG_BURST;
	g->outbound.every_ms = GATE_LOG_EVERY_MS;
	g->diag_fd = -1;
	ret = forwarder_new(base, forward, &g->forwarder, msg);
	if (ret < 0) {
		free(g);
		return ret;
	}
	g->leases = leases_new(base, g->forwarder, &g->judge);
	dns_gate_configure(g, config);
	if (config->audit)
		g->diag_fd = client_uid_open();
	if (config->guard && config->keep)
		leases_keep(g->leases, config->keep, config->keep_len);
	*out = g;
	return 0;
}

void dns_gate_free(struct dns_gate *g)
{
	struct dns_server *s;

	if (!g)
		return;
	dns_query_cancel(g, NULL);
	/* The analyzer does not see that LIST_REMOVE moves the head on. */
	while ((s = LIST_FIRST(&g->servers)))
		dns_server_free(s); /* NOLINT(clang-analyzer-unix.Malloc) */
	leases_free(g->leases);
	forwarder_free(g->forwarder);
	policy_unref(g->judge.policy);
	policy_unref(g->judge.next);
	if (g->diag_fd >= 0)
		close(g->diag_fd);
	free(g);
}

void dns_gate_configure(struct dns_gate *g, const struct dns_gate_config *config)
{
	struct judge *j = &g->judge;
	struct policy *before = j->policy;

	REQUIRE(config->n_types <= JUDGE_TYPES_MAX);
	g->config = *config;
	j->policy = policy_ref(config->policy);
	j->private_names = config->private_names;
	j->read_only = config->read_only;
	j->on_link = config->on_link;
	j->n_on_link = config->n_on_link;
	j->n_types = config->n_types;
	if (config->n_types > 0)
		memcpy(j->types, config->types, config->n_types * sizeof(j->types[0]));
	policy_unref(before);
	dns_gate_abandon(g);
	leases_configure(g->leases, config->guard);
}

int dns_gate_collect(struct dns_gate *g, struct policy *next, struct ruleset *r)
{
	int ret;

	policy_unref(g->judge.next);
	g->judge.next = policy_ref(next);
	ret = leases_collect(g->leases, r);
	if (ret < 0)
		dns_gate_abandon(g);
	return ret;
}

void dns_gate_abandon(struct dns_gate *g)
{
	policy_unref(g->judge.next);
	g->judge.next = NULL;
}

void dns_gate_listen(struct dns_gate *g, int fd, enum dns_gate_kind kind)
{
	dns_server_new(g, fd, kind);
}

const struct dns_gate_stats *dns_gate_stats(const struct dns_gate *g)
{
	return &g->stats;
}

void dns_gate_thaw(struct dns_gate *g, uint64_t ms)
{
	leases_thaw(g->leases, ms);
}

size_t dns_gate_resolvers_alive(const struct dns_gate *g)
{
	return forwarder_n_alive(g->forwarder);
}

size_t dns_gate_leases(const struct dns_gate *g)
{
	return leases_n(g->leases);
}
