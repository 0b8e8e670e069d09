/* The life of one request and its response. See exchange.h for who calls; the moves between states
 * are in exchange_moves. */
#include "proxy/exchange.h"

#include "audit/audit.h"
#include "base/clock.h"
#include "proxy/exchange_int.h"
#include "proxy/reply.h"
#include "proxy/rewrite.h"
#include "proxy/session.h"
#include "proxy/upstream.h"
#include "vault/vault.h"

static const uint8_t exchange_moves[EXCHANGE_STATE_MAX] = {
	[EXCHANGE_COLLECT] = BIT(EXCHANGE_DIAL) | BIT(EXCHANGE_SENT) | BIT(EXCHANGE_DONE),
	[EXCHANGE_NEW] = BIT(EXCHANGE_COLLECT) | BIT(EXCHANGE_DIAL) | BIT(EXCHANGE_SENT) |
		BIT(EXCHANGE_DONE),
	[EXCHANGE_DIAL] = BIT(EXCHANGE_SENT) | BIT(EXCHANGE_DONE),
	[EXCHANGE_SENT] = BIT(EXCHANGE_RESPONSE) | BIT(EXCHANGE_DIAL) | BIT(EXCHANGE_DONE),
	[EXCHANGE_RESPONSE] = BIT(EXCHANGE_DONE),
};

void exchange_move(struct exchange *ex, enum exchange_state to)
{
	REQUIRE(exchange_moves[ex->state] & BIT(to));
	ex->state = to;
}

static void on_exchange_long(void *arg)
{
	struct exchange *ex = arg;
	struct audit_event e;

	if (!ex->slot)
		return;
	exchange_event(ex, &e);
	e.verdict = AUDIT_OPEN;
	audit_still_open(ex->px->audit, ex->slot, &e);
}

struct exchange *exchange_new(struct session *s, const struct client_ops *ops, void *driver)
{
	struct proxy *px = s->px;
	struct exchange *ex = px->spare;

	if (ex)
		px->spare = NULL;
	else
		ex = xmalloc(sizeof(*ex));
	memset(ex, 0, offsetof(struct exchange, arena));
	arena_init(&ex->arena);
	ex->px = px;
	ex->session = s;
	ex->ops = ops;
	ex->driver = driver;
	ex->policy = policy_ref(px->config.policy);
	ex->reason = REASON_MALFORMED;
	ex->start_wall_us = clock_wall_us();
	ex->start_mono_ms = clock_mono_ms();
	deadline_add(&px->deadlines, &ex->long_deadline, on_exchange_long, ex);
	return ex;
}

void exchange_event(const struct exchange *ex, struct audit_event *e)
{
	const struct session *s = ex->session;

	memset(e, 0, sizeof(*e));
	e->kind = ex->admission.kind;
	e->reason = ex->reason;
	if (ex->own_answer && reason_status(ex->reason) < 500)
		e->verdict = AUDIT_BLOCKED;
	else
		e->verdict = reason_allows(ex->reason) ? AUDIT_ALLOWED : AUDIT_FAILED;
	e->method = ex->method;
	e->url = ex->url;
	e->host = authority_name(&ex->target);
	e->via = session_via_name(s);
	e->alpn = s->tls ? SLICE("http/1.1") : SLICE_EMPTY;
	e->rule = slice_make(ex->rule, ex->rule_len);
	if (ex->keyed.view) {
		e->revision = vault_view_revision(ex->keyed.view);
		e->proof = slice_make(ex->keyed.facts_text, ex->keyed.facts_len);
		if (ex->keyed.binding)
			e->binding = binding_name(ex->keyed.binding);
	}
	e->user_agent = ex->user_agent;
	e->addr = ex->addr;
	e->has_addr = ex->has_addr;
	e->port = ex->target.port;
	e->status = ex->status;
	e->uid = s->uid;
	e->up = ex->up;
	e->down = ex->down;
	e->start_us = ex->start_wall_us;
	e->ms = clock_mono_ms() - ex->start_mono_ms;
}

/* Everything that belongs to this exchange upstream ends; a connection in the middle of an exchange
 * is of no use to anyone else. */
static void exchange_drop_upstream(struct exchange *ex)
{
	if (ex->dial)
		dial_cancel(ex->dial);
	ex->dial = NULL;
	if (ex->upstream)
		upstream_free(ex->upstream);
	ex->upstream = NULL;
}

/* The line of an exchange that took a slot. Without one there was no decision to let anything out,
 * and reply wrote what there was to write. */
static void exchange_record(struct exchange *ex)
{
	struct audit_event e;

	if (!ex->slot)
		return;
	exchange_event(ex, &e);
	audit_end(ex->px->audit, ex->slot, &e);
	ex->slot = NULL;
}

void exchange_free(struct exchange *ex)
{
	struct proxy *px;

	if (!ex)
		return;
	px = ex->px;
	exchange_drop_upstream(ex);
	exchange_record(ex);
	keyed_fini(ex);
	deadline_remove(&px->deadlines, &ex->long_deadline);
	policy_unref(ex->policy);
	arena_fini(&ex->arena);
	if (px->spare)
		free(ex);
	else
		px->spare = ex;
}

void exchange_refuse(struct exchange *ex, enum reason reason, const char *detail)
{
	exchange_drop_upstream(ex);
	ex->reason = reason;
	ex->detail = detail;
	if (ex->state == EXCHANGE_RESPONSE) {
		exchange_move(ex, EXCHANGE_DONE);
		ex->ops->reset(ex->driver);
		return;
	}
	exchange_move(ex, EXCHANGE_DONE);
	reply_send(ex);
}

/* Whether the policy of now lets this request go where it goes. What it asks there was judged when
 * it began, but for leave to write: it may have been taken back, or not been asked for then. */
static enum reason exchange_reach(const struct exchange *ex, struct admission *now)
{
	const struct proxy_config *c = &ex->px->config;

	admit_connect(c, &ex->target, now);
	now->write = now->write || ex->admission.kind == AUDIT_WRITE;
	if (!now->allow || !ex->has_addr)
		return now->reason;
	return admit_address(c, c->policy, &ex->target, now, &ex->addr);
}

void exchange_rejudge(struct exchange *ex)
{
	struct admission now;
	enum reason r;

	if (ex->state == EXCHANGE_NEW || ex->state == EXCHANGE_DONE)
		return;
	r = exchange_reach(ex, &now);
	if (!reason_allows(r)) {
		exchange_refuse(ex, ex->state == EXCHANGE_RESPONSE ? REASON_POLICY_CHANGED : r,
			"the policy has changed");
		return;
	}
	/* An address that is yet to come is judged by this one. */
	ex->admission.verdict = now.verdict;
	policy_unref(ex->policy);
	ex->policy = policy_ref(ex->px->config.policy);
	exchange_set_rule(ex);
}

void exchange_abort(struct exchange *ex, enum reason reason)
{
	exchange_drop_upstream(ex);
	if (ex->state != EXCHANGE_DONE) {
		ex->reason = reason;
		exchange_move(ex, EXCHANGE_DONE);
	}
}

void exchange_set_rule(struct exchange *ex)
{
	ex->rule_len = policy_rule_text(ex->policy, ex->admission.verdict.rule, ex->rule);
}

struct exchange *exchange_new_tunnel(struct session *s)
{
	struct exchange *ex = exchange_new(s, NULL, NULL);
	char text[AUTHORITY_TEXT_MAX];

	ex->target = s->pinned;
	ex->admission = s->connect;
	ex->method = SLICE("CONNECT");
	ex->url = arena_dup(&ex->arena, slice_make(text, authority_text(&ex->target, 0, text)));
	exchange_set_rule(ex);
	ex->reason = ex->admission.reason;
	ex->long_deadline.at_ms = ex->start_mono_ms + EXCHANGE_LONG_MS;
	return ex;
}

enum reason exchange_admit_address(const struct netaddr *a, void *arg)
{
	struct exchange *ex = arg;
	enum reason r = admit_address(&ex->px->config, ex->policy, &ex->target, &ex->admission, a);
	struct audit_event e;

	if (!reason_allows(r))
		return r;
	ex->reason = r;
	ex->addr = *a;
	ex->has_addr = true;
	exchange_event(ex, &e);
	if (!ex->slot)
		ex->slot = audit_begin(ex->px->audit, &e);
	else
		audit_update(ex->px->audit, ex->slot, &e);
	return ex->slot ? r : REASON_OVERLOADED;
}

/* Collected content: with keys in it if it is whole, else as it came, and the rest follows. */
static void exchange_send_collected(struct exchange *ex, const struct h1_head *h)
{
	ex->body_started = true;
	if (ex->keyed.body_whole) {
		keyed_write_body(ex, h, &ex->upstream->conn);
		return;
	}
	ex->up += ex->keyed.body->len;
	upstream_send_body(ex->upstream, strbuf_slice(ex->keyed.body));
}

/* The head goes out. It is read again from the arena when other heads were read meanwhile. */
static void exchange_send(struct exchange *ex)
{
	struct h1_head *h = &ex->px->request;
	enum reason r = ex->admission.reason;
	const char *detail = NULL;

	if (ex->state != EXCHANGE_NEW) {
		enum h1_error error = h1_request_decode(ex->raw, h);

		REQUIRE(error == H1_OK);
		r = keyed_renew(ex, h, &detail);
	}
	if (!reason_allows(r)) {
		exchange_refuse(ex, r, detail);
		return;
	}
	if (!keyed_proof(ex, ex->upstream->verified)) {
		exchange_refuse(
			ex, REASON_IDENTITY_UNPROVEN, "the origin's certificate was not verified");
		return;
	}
	exchange_move(ex, EXCHANGE_SENT);
	ex->long_deadline.at_ms = ex->start_mono_ms + EXCHANGE_LONG_MS;
	upstream_send_head(ex->upstream, ex);
	if (ex->keyed.body)
		exchange_send_collected(ex, h);
	if (ex->request_ended) {
		if (!ex->keyed.body)
			upstream_send_end(ex->upstream, NULL);
		upstream_flush(ex->upstream);
		return;
	}
	/* content that is there already leaves with the head: the driver flushes */
	ex->ops->want_more(ex->driver);
}

static void on_exchange_dialled(const struct dial_result *result, void *arg)
{
	struct exchange *ex = arg;
	struct dial *d = ex->dial;

	ex->dial = NULL;
	if (result->reason != REASON_ALLOWED) {
		(void)keyed_proof(ex, false); /* for the line: which facts did hold */
		exchange_refuse(ex, result->reason, result->detail);
		return;
	}
	ex->upstream = upstream_new(
		ex->px, &ex->target, ex->https ? UPSTREAM_TLS : UPSTREAM_CLEAR, d, result);
	exchange_send(ex);
}

static const struct dial_ops exchange_dial_ops = {exchange_admit_address, on_exchange_dialled};

static void exchange_dial(struct exchange *ex)
{
	exchange_move(ex, EXCHANGE_DIAL);
	ex->dial = dial_start(ex->px, &ex->target, ex->https, &exchange_dial_ops, ex);
}

/* Allowed, as far as the address lets it: find a connection and go. */
void exchange_start(struct exchange *ex)
{
	struct upstream *u = NULL;

	if (ex->tries++ == 0)
		u = upstream_find(ex->px, &ex->target, ex->https ? UPSTREAM_TLS : UPSTREAM_CLEAR,
			exchange_admit_address, ex);
	if (u) {
		ex->upstream = u;
		exchange_send(ex);
	} else {
		exchange_dial(ex);
	}
}

bool exchange_wants_body(const struct exchange *ex)
{
	if (ex->state == EXCHANGE_COLLECT)
		return true;
	return (ex->state == EXCHANGE_SENT || ex->state == EXCHANGE_RESPONSE) && ex->upstream &&
		!conn_backlogged(&ex->upstream->conn);
}

void exchange_body(struct exchange *ex, struct slice content)
{
	if (ex->state == EXCHANGE_COLLECT) {
		strbuf_add(ex->keyed.body, content);
		if (ex->keyed.body->len > KEYED_BODY_MAX)
			exchange_start(ex); /* too long to put keys in: it goes as it is */
		return;
	}
	if (!ex->upstream)
		return;
	ex->body_started = true;
	ex->up += content.len;
	upstream_send_body(ex->upstream, content);
}

void exchange_end(struct exchange *ex, struct fields *trailers)
{
	ex->request_ended = true;
	if (ex->state == EXCHANGE_COLLECT) {
		ex->keyed.body_whole = true;
		exchange_start(ex);
		return;
	}
	keyed_request_trailers(ex, trailers);
	if (ex->upstream)
		upstream_send_end(ex->upstream, trailers);
}

void exchange_flush_upstream(struct exchange *ex)
{
	if (ex->upstream)
		upstream_flush(ex->upstream);
}

void exchange_upstream_drained(struct exchange *ex)
{
	if (!ex->request_ended)
		ex->ops->want_more(ex->driver);
}

void exchange_want_more(struct exchange *ex)
{
	if (ex->upstream)
		upstream_want_more(ex->upstream);
}

bool exchange_backlogged(const struct exchange *ex)
{
	return ex->ops->backlogged(ex->driver);
}

void exchange_flush(struct exchange *ex)
{
	ex->ops->flush(ex->driver);
}

void exchange_response_head(struct exchange *ex, struct h1_head *h)
{
	if (h->status >= 200 || h->status == 101) {
		exchange_move(ex, EXCHANGE_RESPONSE);
		ex->status = h->status;
		ex->answered = true;
	}
	if (h->status != 101)
		rewrite_response_fields(h, ex->is_head);
	ex->ops->head(ex->driver, h);
}

static void on_exchange_content(void *arg, struct slice piece)
{
	struct exchange *ex = arg;

	ex->down += piece.len;
	ex->ops->body(ex->driver, piece);
}

bool exchange_response_body(struct exchange *ex, struct slice content)
{
	return keyed_content(ex, content, false, on_exchange_content, ex);
}

void exchange_response_end(struct exchange *ex, struct fields *trailers)
{
	bool whole = keyed_content(ex, SLICE_EMPTY, true, on_exchange_content, ex);

	keyed_trailers(ex, trailers);
	exchange_move(ex, EXCHANGE_DONE);
	if (!whole) {
		ex->reason = REASON_KEY_IN_ANSWER;
		ex->ops->reset(ex->driver);
		return;
	}
	exchange_record(ex);
	ex->ops->end(ex->driver, trailers);
}

/* RFC 9110 9.2.2: only an idempotent request may be sent twice, and only if nothing of it is gone.
 */
static bool exchange_may_repeat(const struct exchange *ex)
{
	static const struct slice idempotent[] = {
		SLICE("GET"), SLICE("HEAD"), SLICE("OPTIONS"), SLICE("PUT"), SLICE("DELETE")};

	if (ex->state != EXCHANGE_SENT || ex->tries >= EXCHANGE_TRIES_MAX || ex->body_started)
		return false;
	for (size_t i = 0; i < ARRAY_LEN(idempotent); i++)
		if (slice_eq(ex->method, idempotent[i]))
			return true;
	return false;
}

void exchange_upstream_failed(struct exchange *ex, enum reason reason, bool retry)
{
	if (retry && exchange_may_repeat(ex)) {
		ex->up = 0;
		exchange_start(ex);
		return;
	}
	exchange_refuse(ex, reason, ex->detail);
}

void exchange_switched(struct exchange *ex, struct slice rest)
{
	exchange_move(ex, EXCHANGE_DONE);
	ex->ops->switched(ex->driver, rest);
}
