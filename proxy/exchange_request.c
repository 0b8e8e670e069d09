/* The beginning of an exchange: what a request head asks for, and what admit says to it. What
 * follows, from the first connection on, is exchange.c's. */
#include "proxy/exchange_int.h"
#include "proxy/intercept.h"
#include "proxy/rewrite.h"
#include "proxy/session.h"

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
	session_connected(s, &ex->target, &ex->admission);
	ex->ops->head(ex->driver, h);
	ex->ops->end(ex->driver, NULL);
}

/* The origin hears of this request when its content is here: then its length is known. */
static void exchange_collect(struct exchange *ex, const struct h1_head *h)
{
	struct h1_head *go_on = &ex->px->response;

	ex->keyed.body = xcalloc(1, sizeof(*ex->keyed.body));
	strbuf_init(ex->keyed.body, KEYED_BODY_MAX + IO_PLAIN_BYTES);
	exchange_move(ex, EXCHANGE_COLLECT);
	if (fields_have(&h->fields, FIELD_EXPECT)) {
		go_on->status = 100;
		go_on->reason = SLICE("Continue");
		go_on->framing = H1_NO_CONTENT;
		go_on->fields.n = 0;
		go_on->fields.seen = 0;
		ex->ops->head(ex->driver, go_on);
	}
	ex->ops->want_more(ex->driver);
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
	keyed_begin(ex);
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
	r.port = s->port;
	admit_request(&ex->px->config, &r, &ex->admission);
	exchange_set_rule(ex);
	ex->reason = s->refuse != REASON_ALLOWED ? s->refuse : ex->admission.reason;
	if (!reason_allows(ex->reason)) {
		exchange_refuse(ex, ex->reason, NULL);
		return;
	}
	ex->reason = keyed_admit(ex, h, &t, &wrong);
	if (!reason_allows(ex->reason)) {
		exchange_refuse(ex, ex->reason, wrong);
		return;
	}
	if (fields_have(&h->fields, FIELD_EXPECT) &&
		!slice_ieq(field_text(&h->fields, FIELD_EXPECT), SLICE("100-continue"))) {
		exchange_refuse(ex, REASON_EXPECTATION, NULL);
		return;
	}
	if (keyed_wants_body(ex, h))
		exchange_collect(ex, h);
	else
		exchange_start(ex);
}
