/* Requests of our own. Before it: the webhook and the followers of a sandbox's life in control and
 * ctl. After it: dial or the pool of upstream, whose connections are driven here in place of
 * h1_upstream while a request is out. */
#include "proxy/fetch.h"

#include <errno.h>

#include <event2/event.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/strbuf.h"
#include "proxy/dial.h"
#include "proxy/request_target.h"
#include "proxy/upstream.h"

#define FETCH_READS_MAX 16 /* of one event: others wait */

struct fetch {
	struct proxy *px;
	enum reason (*admit)(const struct netaddr *a, void *arg);
	fetch_cb done;
	void *arg;                /* of both */
	struct event start;       /* the first step comes from the loop, not from fetch_start */
	struct deadline deadline; /* of all of it */
	struct authority to;      /* with port; none: there was no URL */
	enum upstream_kind kind;
	bool keeps; /* a GET: kept connections, and once more */
	char method[FETCH_METHOD_MAX + 1];
	struct strbuf lines; /* request line and fields, without the secret and the empty line */
	struct slice secret; /* the caller's */
	struct strbuf sent;  /* content */
	struct dial *dial;
	struct upstream *u;
	struct strbuf in; /* the head, which `head` points into */
	size_t scanned;
	unsigned n_1xx;
	bool has_head;
	struct h1_head head;
	struct strbuf content;
};

static void fetch_send(struct fetch *f);

static void fetch_free(struct fetch *f)
{
	dial_cancel(f->dial);
	upstream_free(f->u);
	event_del(&f->start);
	deadline_remove(&f->px->deadlines, &f->deadline);
	strbuf_fini(&f->lines);
	strbuf_fini(&f->sent);
	strbuf_fini(&f->in);
	strbuf_fini(&f->content);
	free(f);
}

void fetch_cancel(struct fetch *f)
{
	if (f)
		fetch_free(f);
}

/* Who refuses may quote what was sent, and what refuses is logged. */
static void fetch_hide_secret(struct fetch *f)
{
	struct slice lines = f->secret;

	while (lines.p) {
		struct slice value = slice_cut(&lines, '\n');
		size_t at = 0;

		(void)slice_cut(&value, ':');
		value = slice_strip(value);
		while (value.len >= FETCH_HIDDEN_MIN && at < f->content.len) {
			at += slice_find(slice_from(strbuf_slice(&f->content), at), value);
			if (at < f->content.len)
				memset(f->content.p + at, '*', value.len);
		}
	}
}

/* Frees f. */
static void fetch_finish(struct fetch *f, int err, const char *why)
{
	const struct fetch_answer answer = {
		.err = err,
		.why = why,
		.status = f->has_head ? f->head.status : 0,
		.head = f->has_head ? &f->head : NULL,
		.content = strbuf_slice(&f->content),
	};

	if (err < 0 || f->head.status >= 300)
		fetch_hide_secret(f);
	upstream_free(f->u);
	f->u = NULL;
	f->deadline.at_ms = 0;
	f->done(&answer, f->arg);
	fetch_free(f);
}

static void on_fetch_late(void *arg)
{
	fetch_finish(arg, -ETIMEDOUT, "no whole answer in time");
}

/* Who asked named the place: the sandbox's policy does not judge it. */
static enum reason on_fetch_admit(const struct netaddr *a, void *arg)
{
	const struct fetch *f = arg;

	return f->admit ? f->admit(a, f->arg) : REASON_ALLOWED;
}

static int fetch_dial_err(enum reason r)
{
	if (r == REASON_CERTIFICATE)
		return E_CERT;
	if (r == REASON_TLS_FAILED)
		return E_TLS;
	if (r == REASON_RESOLVE_FAILED)
		return E_RESOLVE;
	if (r == REASON_OVERLOADED)
		return E_FULL;
	if (r == REASON_ADDRESS_REFUSED)
		return -EPERM;
	return r == REASON_CONNECT_FAILED ? -ECONNREFUSED : -ETIMEDOUT;
}

static void on_fetch_dialled(const struct dial_result *result, void *arg)
{
	struct fetch *f = arg;
	struct dial *d = f->dial;

	f->dial = NULL;
	if (result->reason != REASON_ALLOWED) {
		fetch_finish(f, fetch_dial_err(result->reason),
			result->detail ? result->detail : reason_text(result->reason));
		return;
	}
	f->u = upstream_new(f->px, &f->to, f->kind, d, result);
	fetch_send(f);
}

static void fetch_dial(struct fetch *f)
{
	static const struct dial_ops ops = {.admit = on_fetch_admit, .done = on_fetch_dialled};

	f->dial = dial_start(f->px, &f->to, f->kind == UPSTREAM_OWN_TLS, &ops, f);
}

/* The answer is whole; a connection at its orderly end goes into the pool. */
static void fetch_whole(struct fetch *f, bool clean)
{
	struct upstream *u = f->u;

	f->u = NULL;
	u->keep = clean && f->keeps && f->head.keep_alive && f->head.framing != H1_UNTIL_CLOSE;
	h1_body_fini(&u->body);
	h1_body_init(&u->body, H1_NO_CONTENT, 0);
	u->conn.ops = &upstream_conn_ops;
	u->conn.arg = u;
	upstream_release(u);
	fetch_finish(f, 0, NULL);
}

/* False when f is gone. */
static bool fetch_body(struct fetch *f, struct slice in)
{
	struct slice content;

	for (;;) {
		switch (h1_body_next(&f->u->body, &in, &content)) {
		case H1_BODY_CONTENT:
			strbuf_add(&f->content, content);
			if (!f->content.full)
				break;
			fetch_finish(f, E_LIMIT, "the answer is too large");
			return false;
		case H1_BODY_MORE:
			return true;
		case H1_BODY_END:
			fetch_whole(f, in.len == 0);
			return false;
		case H1_BODY_ERROR:
			fetch_finish(f, E_SYNTAX, h1_error_text(f->u->body.error));
			return false;
		}
	}
}

/* A final head. False when f is gone. */
static bool fetch_head(struct fetch *f, struct slice rest)
{
	const struct field *coding = fields_find(&f->head.fields, FIELD_CONTENT_ENCODING);

	f->has_head = true;
	if (coding && !slice_ieq(coding->value, SLICE("identity"))) {
		fetch_finish(f, E_VALUE, "the answer is in a coding that was not asked for");
		return false;
	}
	if (f->head.framing == H1_LENGTH && f->head.length > f->content.max) {
		fetch_finish(f, E_LIMIT, "the answer is too large");
		return false;
	}
	h1_body_init(&f->u->body, f->head.framing, f->head.length);
	return fetch_body(f, rest);
}

/* False when f is gone. */
static bool fetch_input(struct fetch *f, struct slice in)
{
	enum h1_error error = H1_OK;
	ssize_t n;

	f->u->answered = true;
	if (f->has_head)
		return fetch_body(f, in);
	strbuf_add(&f->in, in);
	for (;;) {
		n = h1_head_end(strbuf_slice(&f->in), &f->scanned, &error);
		if (n == E_MORE)
			return true;
		if (n >= 0)
			error = h1_response_decode(slice_first(strbuf_slice(&f->in), (size_t)n),
				slice_str(f->method), &f->head);
		if (n < 0 || error != H1_OK) {
			fetch_finish(f, E_SYNTAX, h1_error_text(error));
			return false;
		}
		if (f->head.status >= 200)
			return fetch_head(f, slice_from(strbuf_slice(&f->in), (size_t)n));
		if (f->head.status == 101 || ++f->n_1xx > FETCH_1XX_MAX) {
			fetch_finish(f, E_SYNTAX, "the answer does not come to a final head");
			return false;
		}
		strbuf_consume(&f->in, (size_t)n);
		f->scanned = 0;
	}
}

/* No more bytes come. Without close_notify the end of TLS is no end of a message. */
static void fetch_ended(struct fetch *f, ssize_t why)
{
	struct upstream *u = f->u;

	if (f->has_head) {
		if (why == E_EOF && conn_clean_end(&u->conn) && h1_body_close(&u->body))
			fetch_whole(f, false);
		else
			fetch_finish(f, E_EOF, "the connection ended inside the answer");
		return;
	}
	if (u->used_before && !u->answered) {
		f->u = NULL;
		upstream_free(u);
		fetch_dial(f);
		return;
	}
	fetch_finish(f, E_EOF, "the connection ended without an answer");
}

static void on_fetch_readable(void *arg)
{
	struct fetch *f = arg;
	struct io *io = f->px->io;
	ssize_t n;

	for (int reads = 0; reads < FETCH_READS_MAX || conn_buffered(&f->u->conn); reads++) {
		n = conn_read(&f->u->conn, io->plain, IO_PLAIN_BYTES);
		if (n == -EAGAIN)
			return;
		if (n < 0) {
			fetch_ended(f, n);
			return;
		}
		if (!fetch_input(f, slice_make(io->plain, (size_t)n)))
			return;
	}
}

/* A broken connection is told by the read event, after what the other side still managed to say. */
static void on_fetch_drained(void *arg)
{
}

static const struct conn_ops fetch_conn_ops = {on_fetch_readable, on_fetch_drained};

static void fetch_send(struct fetch *f)
{
	struct conn *c = &f->u->conn;

	f->u->answered = false;
	c->ops = &fetch_conn_ops;
	c->arg = f;
	conn_set_keyed(c, f->secret.len > 0);
	conn_write(c, strbuf_slice(&f->lines));
	conn_write(c, f->secret);
	conn_write(c, SLICE("\r\n"));
	conn_write(c, strbuf_slice(&f->sent));
	upstream_flush(f->u);
	conn_resume(c); /* what TLS received behind its handshake causes no event */
}

static void on_fetch_start(evutil_socket_t fd, short what, void *arg)
{
	struct fetch *f = arg;

	if (!f->to.has_port) {
		fetch_finish(f, E_VALUE, "no URL that can be asked");
		return;
	}
	if (f->lines.full || f->sent.full) {
		fetch_finish(f, E_LIMIT, "the request is too large");
		return;
	}
	if (f->keeps)
		f->u = upstream_find(f->px, &f->to, f->kind, on_fetch_admit, f);
	if (f->u)
		fetch_send(f);
	else
		fetch_dial(f);
}

static void fetch_write_lines(struct fetch *f, const struct fetch_request *r)
{
	char host[AUTHORITY_TEXT_MAX];
	struct request_target target;

	if (request_target_decode_url(r->url, &target) < 0)
		return;
	f->to = target.authority;
	f->kind = target.https ? UPSTREAM_OWN_TLS : UPSTREAM_OWN_CLEAR;
	(void)authority_text(&f->to, target.https ? 443 : 80, host);
	strbuf_printf(&f->lines, "%s %.*s HTTP/1.1\r\nHost: %s\r\n", r->method,
		SLICE_FMT(target.path_query), host);
	strbuf_str(&f->lines,
		"User-Agent: egress/" EGRESS_VERSION "\r\nAccept-Encoding: identity\r\n");
	if (!f->keeps)
		strbuf_str(&f->lines, "Connection: close\r\n");
	if (r->content_type)
		strbuf_printf(&f->lines, "Content-Type: %s\r\nContent-Length: %zu\r\n",
			r->content_type, r->content.len);
	strbuf_add(&f->lines, r->fields);
	if (r->content_type)
		strbuf_add(&f->sent, r->content);
}

struct fetch *fetch_start(struct proxy *px, const struct fetch_request *r, fetch_cb done, void *arg)
{
	struct fetch *f = xcalloc(1, sizeof(*f));

	REQUIRE(slice_to_cstr(slice_str(r->method), f->method, sizeof(f->method)));
	f->px = px;
	f->admit = r->admit;
	f->done = done;
	f->arg = arg;
	f->keeps = strcmp(r->method, "GET") == 0;
	f->secret = r->secret;
	strbuf_init(&f->lines, FETCH_LINES_MAX);
	strbuf_init(&f->sent, FETCH_CONTENT_MAX);
	strbuf_init(&f->in, H1_HEAD_MAX + IO_PLAIN_BYTES);
	strbuf_init(&f->content, r->answer_max);
	f->lines.wipe = f->sent.wipe = f->in.wipe = f->content.wipe = true;
	fetch_write_lines(f, r);
	deadline_add(&px->deadlines, &f->deadline, on_fetch_late, f);
	f->deadline.at_ms = clock_mono_ms() + r->timeout_ms;
	event_assign(&f->start, px->base, -1, EV_TIMEOUT, on_fetch_start, f);
	event_active(&f->start, EV_TIMEOUT, 0);
	return f;
}

struct slice fetch_field(const struct fetch_answer *a, struct slice name)
{
	for (size_t i = 0; a->head && i < a->head->fields.n; i++)
		if (slice_ieq(a->head->fields.v[i].name, name))
			return a->head->fields.v[i].value;
	return SLICE_EMPTY;
}
