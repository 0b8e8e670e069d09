/* One question from in to out: policy, resolvers, filter, kernel, reply. Before it: dns_server with
 * a message. After it: forwarder, then leases, then dns_server again. Policy is asked when the
 * question comes and once more when its answer does, since it may have changed in between. */
#include <stdlib.h>

#include "audit/audit.h"
#include "audit/client_uid.h"
#include "base/arena.h"
#include "base/clock.h"
#include "dns/dns_gate_int.h"
#include "dns/dns_reply.h"
#include "dns/leases.h"
#include "dns/resolver.h"

#define DNS_ASKED_MAX 3 /* resolvers that libc takes from resolv.conf (MAXNS) */

struct dns_query {
	TAILQ_ENTRY(dns_query) link;
	struct dns_gate *gate;
	struct dns_client client;
	struct forward *forward;
	struct lease_grant *grant;
	struct dns_question question;
	struct slice reply; /* waits for the kernel; owned */
};

/* --- records --- */

/* Who asked. The kernel has to be told where the client's socket points to, which a redirect hides
 * from us: to one of the resolvers that its libc knows, if to anything. */
static uint32_t dns_query_uid(const struct dns_gate *g, const struct dns_client *client)
{
	const struct upstreams *asked = g->config.asked;
	uint32_t uid = AUDIT_UID_NONE;

	for (size_t i = 0; asked && i < asked->n && i < DNS_ASKED_MAX && uid == AUDIT_UID_NONE;
		i++) {
		const struct client_uid_to to = {asked->v[i].addr, asked->v[i].port};

		uid = client->conn ? client_uid_find(g->diag_fd, dns_conn_fd(client->conn), &to)
				   : client_uid_find_udp(g->diag_fd, &client->peer, &to);
	}
	return uid;
}

static void dns_query_note(struct dns_gate *g, const struct dns_client *client,
	const struct judgement *j, enum reason reason, const struct netaddr *addr)
{
	char rule[RULE_TEXT_MAX];
	struct audit_event e = {
		.kind = AUDIT_DNS,
		.verdict = AUDIT_BLOCKED,
		.reason = reason,
		.host = slice_make(j->text, j->len),
		.start_us = clock_wall_us(),
	};

	if (!g->config.audit)
		return;
	e.uid = dns_query_uid(g, client);
	e.rule = slice_make(rule, policy_rule_text(g->judge.policy, j->verdict.rule, rule));
	if (addr) {
		e.addr = *addr;
		e.has_addr = true;
	}
	audit_note(g->config.audit, &e, NULL);
}

/* Allowed lookups are for the operator's log; what is done with the address is on record. */
static void dns_query_log(struct dns_gate *g, const struct judgement *j, const char *error)
{
	struct slice name = slice_make(j->text, j->len);
	uint32_t left_out;

	if (!log_enabled(LOG_LEVEL_INFO) ||
		(!error && g->config.log_skip &&
			policy_check_name(g->config.log_skip, name, 0).allow))
		return;
	if (!log_rate_ok(&g->outbound, clock_mono_ms(), &left_out))
		return;
	if (error)
		log_info("dns", "egress outbound: %.*s: %s", SLICE_FMT(name), error);
	else
		log_info("dns", "egress outbound: %.*s", SLICE_FMT(name));
}

/* --- replies --- */

static void dns_query_send(
	struct dns_gate *g, const struct dns_client *client, const struct dns_reply *r)
{
	size_t len = dns_reply_encode(r, g->reply);

	dns_server_reply(g, client, slice_make((const char *)g->reply, len));
}

static void dns_query_fail(struct dns_gate *g, const struct dns_client *client,
	const struct dns_question *q, enum dns_ede ede, const char *why)
{
	struct dns_reply r = {
		.question = q,
		.rcode = DNS_SERVFAIL,
		.ede = ede,
		.text = slice_str(why),
		.tcp = client->conn != NULL,
	};

	dns_query_send(g, client, &r);
}

/* NXDOMAIN, as the image we replace; and where a type alone is refused, no data. */
static void dns_query_refuse(struct dns_gate *g, const struct dns_client *client,
	const struct dns_question *q, const struct judgement *j, enum reason reason)
{
	bool denied = j->result != JUDGE_NO_DATA;
	struct dns_reply r = {
		.question = q,
		.rcode = denied ? DNS_NXDOMAIN : DNS_NOERROR,
		.soa = true,
		.ede = DNS_EDE_BLOCKED,
		.text = denied ? slice_str(reason_text(reason))
			       : SLICE("this type is not answered for this name"),
		.tcp = client->conn != NULL,
	};

	if (denied) {
		g->stats.denied++;
		dns_query_note(g, client, j, reason, NULL);
		/* The root is no name that anybody was refused (reference 9.4). */
		if (g->config.denied && j->len > 0 && reason != REASON_SANDBOX_CLOSED)
			g->config.denied(slice_make(j->text, j->len), g->config.arg);
	} else {
		g->stats.no_data++;
	}
	dns_query_send(g, client, &r);
}

/* --- the end --- */

static void dns_query_free(struct dns_query *q)
{
	struct dns_gate *g = q->gate;

	TAILQ_REMOVE(&g->queries, q, link);
	g->n_queries--;
	forward_cancel(q->forward);
	lease_grant_cancel(q->grant);
	if (q->client.conn)
		dns_conn_release(q->client.conn);
	free((void *)(uintptr_t)q->reply.p);
	free(q);
}

void dns_query_cancel(struct dns_gate *g, const struct dns_conn *conn)
{
	struct dns_query *q = TAILQ_FIRST(&g->queries);
	struct dns_query *next;

	for (; q; q = next) {
		next = TAILQ_NEXT(q, link);
		if (!conn || q->client.conn == conn)
			dns_query_free(q);
	}
}

/* --- the answer --- */

static void on_query_granted(int err, void *arg)
{
	struct dns_query *q = arg;
	struct dns_gate *g = q->gate;

	q->grant = NULL;
	if (err == 0) {
		dns_server_reply(g, &q->client, q->reply);
	} else {
		/* An address that cannot be reached is worse than none. */
		g->stats.kernel_refused++;
		log_warn("dns", "the kernel did not take a lease: %s", err_text(err));
		dns_query_fail(
			g, &q->client, &q->question, DNS_EDE_OTHER, "the filter is not ready");
	}
	dns_query_free(q);
}

struct dns_found {
	struct lease_addr v[LEASE_ADDRS_MAX];
	size_t n;
	uint32_t ttl_s; /* the lowest of the records that are kept */
	size_t n_refused;
	struct netaddr refused; /* the last one */
};

/* Leaves out the addresses that the sandbox must not have, and those past the ceiling: what it
 * learns it must be able to reach. */
static void dns_query_filter(
	struct dns_gate *g, struct dns_answer *a, const struct judgement *j, struct dns_found *f)
{
	struct netaddr addr;
	size_t i;

	for (i = 0; i < a->n; i++) {
		if (!a->v[i].keep)
			continue;
		if (a->v[i].ttl < f->ttl_s)
			f->ttl_s = a->v[i].ttl;
		if (!dns_record_addr(a, &a->v[i], &addr))
			continue;
		if (f->n == LEASE_ADDRS_MAX) {
			dns_answer_drop(a, i);
		} else if (judge_addr(&g->judge, j, &addr)) {
			f->v[f->n].addr = addr;
			f->v[f->n++].seconds = lease_seconds(a->v[i].ttl);
		} else {
			dns_answer_drop(a, i);
			f->refused = addr;
			f->n_refused++;
		}
	}
	g->stats.refused_addrs += f->n_refused;
	dns_answer_filter_services(a, g->reply);
}

static bool dns_query_aliases_ok(const struct dns_gate *g, const struct dns_answer *a)
{
	size_t i;

	for (i = 1; i < a->n_chain; i++)
		if (!judge_alias(&g->judge, &a->chain[i]))
			return false;
	return true;
}

/* The proxy connects to what was found for the client, without a question of its own. */
static void dns_query_teach(
	const struct dns_gate *g, const struct judgement *j, const struct dns_found *f)
{
	struct netaddr addrs[LEASE_ADDRS_MAX];
	size_t i;

	if (!g->config.resolver || f->n == 0)
		return;
	for (i = 0; i < f->n; i++)
		addrs[i] = f->v[i].addr;
	resolver_learn(g->config.resolver, slice_make(j->text, j->len), addrs, f->n, f->ttl_s);
}

/* Starts the grant, or sends at once if there is nothing to wait for. */
static void dns_query_finish(struct dns_query *q, const struct judgement *j,
	const struct dns_found *f, const struct dns_reply *r)
{
	struct lease_want want = {slice_make(j->text, j->len), f->v, f->n};
	struct dns_gate *g = q->gate;
	size_t len;
	char *copy;
	int ret = 0;

	if (f->n > 0)
		ret = leases_grant_start(g->leases, &want, on_query_granted, q, &q->grant);
	if (ret < 0) {
		on_query_granted(ret, q);
		return;
	}
	if (!q->grant) {
		dns_query_send(g, &q->client, r);
		dns_query_free(q);
		return;
	}
	g->stats.granted++;
	len = dns_reply_encode(r, g->reply);
	copy = xmalloc(len);
	memcpy(copy, g->reply, len);
	q->reply = slice_make(copy, len);
}

static void dns_query_answer(struct dns_query *q, struct dns_answer *a, struct judgement *j)
{
	struct dns_gate *g = q->gate;
	struct dns_found f = {.ttl_s = UINT32_MAX};
	struct dns_reply r = {
		.question = &q->question,
		.answer = a,
		.ede = DNS_EDE_NONE,
		.tcp = q->client.conn != NULL,
	};

	dns_query_filter(g, a, j, &f);
	if (f.n == 0 && f.n_refused > 0) {
		dns_query_note(g, &q->client, j, REASON_ADDRESS_REFUSED, &f.refused);
		r.ede = DNS_EDE_FILTERED;
		r.text = slice_str(reason_text(REASON_ADDRESS_REFUSED));
	}
	/* Nothing is left of it, so its own SOA, if any, spoke of something else. */
	r.soa = a->altered && dns_answer_n_kept(a, &q->question) == 0;
	dns_query_teach(g, j, &f);
	dns_query_log(g, j, NULL);
	dns_query_finish(q, j, &f, &r);
}

static void on_query_answer(int err, struct dns_answer *answer, void *arg)
{
	struct dns_query *q = arg;
	struct dns_gate *g = q->gate;
	struct judgement j;

	q->forward = NULL;
	judge_question(&g->judge, &q->question, &j);
	if (j.result == JUDGE_FORWARD && err == 0)
		err = dns_answer_select(answer, &q->question);
	if (j.result != JUDGE_FORWARD) {
		dns_query_refuse(g, &q->client, &q->question, &j, j.verdict.reason);
	} else if (err != 0) {
		g->stats.failed++;
		dns_query_log(g, &j, err_text(err));
		dns_query_fail(
			g, &q->client, &q->question, DNS_EDE_NO_REACHABLE_AUTHORITY, err_text(err));
	} else if (!dns_query_aliases_ok(g, answer)) {
		dns_query_refuse(g, &q->client, &q->question, &j, REASON_DENIED);
	} else {
		dns_query_answer(q, answer, &j);
		return;
	}
	dns_query_free(q);
}

/* --- the question --- */

static void dns_query_forward(
	struct dns_gate *g, const struct dns_client *client, const struct dns_question *question)
{
	struct dns_query *q;

	if (g->n_queries >= DNS_GATE_QUERIES_MAX) {
		g->stats.overloaded++;
		dns_query_fail(g, client, question, DNS_EDE_OTHER, "too many open questions");
		return;
	}
	g->stats.forwarded++;
	q = xcalloc(1, sizeof(*q));
	q->gate = g;
	q->client = *client;
	q->question = *question;
	TAILQ_INSERT_TAIL(&g->queries, q, link);
	g->n_queries++;
	if (client->conn)
		dns_conn_hold(client->conn);
	q->forward = forward_start(g->forwarder, question, on_query_answer, q);
}

void dns_query_start(struct dns_gate *g, const struct dns_client *client, struct slice msg)
{
	struct dns_question question;
	struct dns_reply r = {.question = &question, .ede = DNS_EDE_NONE};
	struct judgement j;
	int ret = dns_question_decode(msg, &question);

	if (ret == E_TRUNCATED)
		return;
	g->stats.queries++;
	if (ret < 0) {
		g->stats.malformed++;
		r.rcode = question.rcode;
		r.tcp = client->conn != NULL;
		dns_query_send(g, client, &r);
		return;
	}
	judge_question(&g->judge, &question, &j);
	if (g->config.hold && j.verdict.allow) {
		j.result = JUDGE_DENIED;
		j.verdict = (struct verdict){
			.reason = REASON_SANDBOX_CLOSED, .rule = POLICY_DEFAULT_RULE};
	}
	if (j.result == JUDGE_FORWARD)
		dns_query_forward(g, client, &question);
	else
		dns_query_refuse(g, client, &question, &j, j.verdict.reason);
}
