/* The life of one request and its response. See exchange.h for who calls; the moves between states
 * are in exchange_moves. */
#include "proxy/exchange.h"

#include "audit/audit.h"
#include "base/clock.h"
#include "proxy/intercept.h"
#include "proxy/reply.h"
#include "proxy/rewrite.h"
#include "proxy/session.h"
#include "proxy/upstream.h"

static const uint8_t exchange_moves[EXCHANGE_STATE_MAX] = {
	[EXCHANGE_NEW] = BIT(EXCHANGE_DIAL) | BIT(EXCHANGE_SENT) | BIT(EXCHANGE_DONE),
	[EXCHANGE_DIAL] = BIT(EXCHANGE_SENT) | BIT(EXCHANGE_DONE),
	[EXCHANGE_SENT] = BIT(EXCHANGE_RESPONSE) | BIT(EXCHANGE_DIAL) | BIT(EXCHANGE_DONE),
	[EXCHANGE_RESPONSE] = BIT(EXCHANGE_DONE),
};

static void exchange_move(struct exchange *ex, enum exchange_state to)
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

void exchange_abort(struct exchange *ex, enum reason reason)
{
	exchange_drop_upstream(ex);
	if (ex->state != EXCHANGE_DONE) {
		ex->reason = reason;
		exchange_move(ex, EXCHANGE_DONE);
	}
}

/* The target's authority, from the absolute-form, Host, or the connection. A detail if the request
 * contradicts itself. */
static const char *exchange_target(
	struct exchange *ex, const struct h1_head *h, const struct request_target *t)
{
	const struct session *s = ex->session;
	const struct field *host = fields_find(&h->fields, FIELD_HOST);
	struct authority said;

	ex->https = s->tls;
	if (host && authority_decode(host->value, &said) < 0)
		return "the Host field is malformed";
	if (t->form == TARGET_ABSOLUTE) {
		ex->https = t->https;
		ex->target = t->authority;
		if (host && !authority_same(&said, &ex->target, ex->https ? 443 : 80))
			return "the request target and Host disagree";
		if (s->via != VIA_PROXY && t->https != s->tls)
			return "the request target's scheme is not the connection's";
	} else if (s->via == VIA_PROXY) {
		return "a proxy needs the absolute form of the request target (http://host/path)";
	} else if (host) {
		ex->target = said;
	} else if (s->has_pinned) {
		ex->target = s->pinned;
	} else {
		ex->target.is_addr = true;
		ex->target.addr = s->origdst;
		ex->target.name_len = netaddr_text(&s->origdst, ex->target.name);
	}
	if (!ex->target.has_port) {
		ex->target.has_port = true;
		ex->target.port = s->port ? s->port : ex->https ? 443 : 80;
	}
	return NULL;
}

static void exchange_set_url(
	struct exchange *ex, const struct request_target *t, struct slice target)
{
	char authority[AUTHORITY_TEXT_MAX];
	size_t n, scheme;
	char *p;

	if (t->form == TARGET_ABSOLUTE) {
		ex->url = target;
		return;
	}
	n = authority_text(&ex->target, ex->https ? 443 : 80, authority);
	scheme = ex->https ? 8 : 7;
	p = arena_alloc(&ex->arena, scheme + n + t->path_query.len);
	memcpy(p, ex->https ? "https://" : "http://", scheme);
	memcpy(p + scheme, authority, n);
	memcpy(p + scheme + n, t->path_query.p, t->path_query.len);
	ex->url = slice_make(p, scheme + n + t->path_query.len);
}

static struct slice field_text(const struct fields *f, enum field_id id)
{
	const struct field *x = fields_find(f, id);

	return x ? x->value : SLICE_EMPTY;
}

static void exchange_dial(struct exchange *ex);
static void exchange_send(struct exchange *ex);

/* Allowed, as far as the address lets it: find a connection and go. */
static void exchange_start(struct exchange *ex)
{
	struct upstream *u = NULL;

	if (ex->tries++ == 0)
		u = upstream_find(ex->px, &ex->target, ex->https, exchange_admit_address, ex);
	if (u) {
		ex->upstream = u;
		exchange_send(ex);
	} else {
		exchange_dial(ex);
	}
}

/* A request upgrade: none, one that is to be judged, or Java's h2c on a plain read, which is taken
 * out. */
static void exchange_upgrade(struct exchange *ex, const struct h1_head *h)
{
	bool only_h2c = false;

	if (fields_have(&h->fields, FIELD_UPGRADE))
		ex->upgrade = rewrite_upgrade(&h->fields, &only_h2c) && !only_h2c;
}

static const char *exchange_read_head(
	struct exchange *ex, const struct h1_head *h, struct request_target *t)
{
	const char *wrong;

	ex->method = h->method;
	ex->is_head = slice_eq(h->method, SLICE("HEAD"));
	ex->user_agent = field_text(&h->fields, FIELD_USER_AGENT);
	ex->accept = field_text(&h->fields, FIELD_ACCEPT);
	ex->url = h->target;
	ex->has_content = h->framing == H1_CHUNKED || (h->framing == H1_LENGTH && h->length > 0);
	ex->request_ended = !ex->has_content;
	if (request_target_decode(h->method, h->target, t) < 0)
		return "the request target is malformed";
	if (t->form == TARGET_AUTHORITY) {
		ex->target = t->authority;
		return NULL;
	}
	wrong = exchange_target(ex, h, t);
	if (wrong)
		return wrong;
	ex->path_query = t->path_query;
	exchange_set_url(ex, t, h->target);
	exchange_upgrade(ex, h);
	return NULL;
}

static void exchange_set_rule(struct exchange *ex)
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

/* CONNECT: answered at once when name and port may be; the origin is not contacted before the first
 * bytes inside were judged. */
static void exchange_connect(struct exchange *ex)
{
	struct session *s = ex->session;
	struct h1_head *h = &ex->px->response;

	if (s->via != VIA_PROXY) {
		exchange_refuse(ex, REASON_METHOD_NOT_FORWARDED, "CONNECT inside a tunnel");
		return;
	}
	ex->admission.kind = AUDIT_TUNNEL;
	admit_connect(&ex->px->config, &ex->target, &ex->admission);
	exchange_set_rule(ex);
	if (ex->admission.allow)
		ex->admission.reason = intercept_connect(s->px, &ex->target, &ex->admission);
	ex->reason = ex->admission.reason;
	if (!reason_allows(ex->reason)) {
		exchange_refuse(ex, ex->reason, NULL);
		return;
	}
	exchange_move(ex, EXCHANGE_DONE);
	h->status = 200;
	h->reason = SLICE("Connection established");
	h->framing = H1_NO_CONTENT;
	h->fields.n = 0;
	h->fields.seen = 0;
	ex->status = 200;
	ex->ops->head(ex->driver, h);
	session_connected(s, &ex->target, &ex->admission);
	ex->ops->end(ex->driver, NULL);
}

void exchange_head(struct exchange *ex, struct slice raw)
{
	struct h1_head *h = &ex->px->request;
	const struct session *s = ex->session;
	struct admit_request r = {.target = &ex->target, .head = h};
	struct request_target t;
	const char *wrong;

	ex->raw = raw;
	wrong = exchange_read_head(ex, h, &t);
	if (wrong) {
		ex->admission.kind = AUDIT_READ;
		exchange_refuse(ex, REASON_MALFORMED, wrong);
		return;
	}
	if (t.form == TARGET_AUTHORITY) {
		exchange_connect(ex);
		return;
	}
	r.form = &t;
	r.upgrade = ex->upgrade;
	r.pinned = s->has_pinned ? &s->pinned : NULL;
	admit_request(&ex->px->config, &r, &ex->admission);
	exchange_set_rule(ex);
	ex->reason = s->refuse != REASON_ALLOWED ? s->refuse : ex->admission.reason;
	if (!reason_allows(ex->reason)) {
		exchange_refuse(ex, ex->reason, NULL);
		return;
	}
	if (fields_have(&h->fields, FIELD_EXPECT) &&
		!slice_ieq(field_text(&h->fields, FIELD_EXPECT), SLICE("100-continue"))) {
		exchange_refuse(ex, REASON_EXPECTATION, NULL);
		return;
	}
	exchange_start(ex);
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

static void on_exchange_dialled(const struct dial_result *result, void *arg)
{
	struct exchange *ex = arg;
	struct dial *d = ex->dial;

	ex->dial = NULL;
	if (result->reason != REASON_ALLOWED) {
		exchange_refuse(ex, result->reason, result->detail);
		return;
	}
	ex->upstream = upstream_new(ex->px, &ex->target, ex->https, d, &result->addr);
	exchange_send(ex);
}

static const struct dial_ops exchange_dial_ops = {exchange_admit_address, on_exchange_dialled};

static void exchange_dial(struct exchange *ex)
{
	exchange_move(ex, EXCHANGE_DIAL);
	ex->dial = dial_start(ex->px, &ex->target, ex->https, &exchange_dial_ops, ex);
}

/* The head goes out. It is read again from the arena when other heads were read meanwhile. */
static void exchange_send(struct exchange *ex)
{
	struct h1_head *h = &ex->px->request;

	if (ex->state == EXCHANGE_DIAL) {
		enum h1_error error = h1_request_decode(ex->raw, h);

		REQUIRE(error == H1_OK);
	}
	exchange_move(ex, EXCHANGE_SENT);
	ex->long_deadline.at_ms = ex->start_mono_ms + EXCHANGE_LONG_MS;
	upstream_send_head(ex->upstream, ex);
	if (!ex->has_content) {
		upstream_send_end(ex->upstream, NULL);
		upstream_flush(ex->upstream);
		return;
	}
	/* content that is there already leaves with the head: the driver flushes */
	ex->ops->want_more(ex->driver);
}

bool exchange_wants_body(const struct exchange *ex)
{
	return (ex->state == EXCHANGE_SENT || ex->state == EXCHANGE_RESPONSE) && ex->upstream &&
		!conn_backlogged(&ex->upstream->conn);
}

void exchange_body(struct exchange *ex, struct slice content)
{
	if (!ex->upstream)
		return;
	ex->body_started = true;
	ex->up += content.len;
	upstream_send_body(ex->upstream, content);
}

void exchange_end(struct exchange *ex, const struct fields *trailers)
{
	ex->request_ended = true;
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

void exchange_response_body(struct exchange *ex, struct slice content)
{
	ex->down += content.len;
	ex->ops->body(ex->driver, content);
}

void exchange_response_end(struct exchange *ex, const struct fields *trailers)
{
	exchange_move(ex, EXCHANGE_DONE);
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
