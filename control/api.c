/* Listening and routing. Before it: api_conn has read a head, and later its content; after it: the
 * handler of the route, which answers by api_answer.c. */
#include "control/api.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/event.h>

#include "audit/client_uid.h"
#include "base/arena.h"
#include "base/log.h"
#include "control/api_int.h"
#include "proxy/request_target.h"

#define API_ACCEPTS_MAX 32 /* of one event */
#define API_PAUSE_MS 100   /* until descriptors are tried again */

struct slice api_call_method(const struct api_call *call)
{
	return slice_str(call->method);
}

struct slice api_call_below(const struct api_call *call)
{
	return strbuf_slice(&call->below);
}

bool api_call_wanted(const struct api_call *call)
{
	return call->conn != NULL;
}

struct slice api_call_query(const struct api_call *call)
{
	return strbuf_slice(&call->query);
}

uint32_t api_call_uid(const struct api_call *call)
{
	return call->uid;
}

struct slice api_call_body(const struct api_call *call)
{
	return api_body_slice(&call->body);
}

/* --- a head is judged --- */

/* Length first, then every byte, so that the time does not tell how many were right. */
static bool api_token_is(struct slice given, const char *token)
{
	volatile unsigned char differs = 0;

	if (given.len != strlen(token))
		return false;
	for (size_t i = 0; i < given.len; i++)
		differs |= (unsigned char)(given.p[i] ^ token[i]);
	return differs == 0;
}

/* Exactly one field with exactly the token. One with blanks behind it is somebody's mistake. */
static bool api_authorized(const struct api *a, const struct h1_head *h)
{
	const struct field *f = fields_find(&h->fields, FIELD_EGRESS_AUTH);

	if (!a->token)
		return true;
	return f && fields_count(&h->fields, FIELD_EGRESS_AUTH) == 1 &&
		api_token_is(f->value, a->token) && f->value.p[f->value.len] == '\r';
}

/* Without `//`, `/./` and `/../`, as Go's path.Clean: a slash at the end stays. Returns false if it
 * was clean. */
static bool api_path_clean(struct slice path, struct strbuf *out)
{
	struct slice rest = path;

	while (rest.p) {
		struct slice part = slice_cut(&rest, '/');

		if (part.len == 0 || slice_eq(part, SLICE(".")))
			continue;
		if (slice_eq(part, SLICE(".."))) {
			out->len = slice_rfind_char(strbuf_slice(out), '/');
			continue;
		}
		strbuf_char(out, '/');
		strbuf_add(out, part);
	}
	if (out->len == 0 || (path.len > 0 && path.p[path.len - 1] == '/'))
		strbuf_char(out, '/');
	return !slice_eq(strbuf_slice(out), path);
}

/* True if the path has to be asked for in another spelling, and that was answered. */
static bool api_moved(struct api_conn *c, const struct request_target *t, bool is_head)
{
	struct strbuf path, field;
	bool moved = false;

	if (t->path.len == 0 || t->path.p[0] != '/')
		return false;
	strbuf_init(&path, H1_TARGET_MAX);
	strbuf_init(&field, 2 * H1_TARGET_MAX);
	if (api_path_clean(t->path, &path)) {
		strbuf_printf(&field, "Location: %.*s%s%.*s\r\n", SLICE_FMT(strbuf_slice(&path)),
			t->query.len > 0 ? "?" : "", SLICE_FMT(t->query));
		api_write_error(c, 301, "moved", "this path has a shorter spelling: see Location",
			strbuf_cstr(&field), is_head);
		moved = true;
	}
	strbuf_fini(&path);
	strbuf_fini(&field);
	return moved;
}

static const struct api_route *api_find(const struct api *a, struct slice path)
{
	for (size_t i = 0; i < a->n_routes; i++) {
		struct slice route = slice_str(a->routes[i].path);

		if (slice_eq(path, route) ||
			(slice_ends(route, SLICE("/")) && slice_starts(path, route)))
			return &a->routes[i];
	}
	return NULL;
}

static bool api_has_method(const struct api_route *r, struct slice method)
{
	struct slice rest = slice_str(r->methods ? r->methods : "");

	while (r->methods && rest.p)
		if (slice_eq(slice_trim(slice_cut(&rest, ',')), method))
			return true;
	return !r->methods;
}

/* Two fields, or a list of several proxies, are nobody's word. */
static bool api_forwarded_https(const struct fields *fields)
{
	size_t n = 0;
	bool https = false;

	for (size_t i = 0; i < fields->n; i++) {
		if (!slice_ieq(fields->v[i].name, SLICE("x-forwarded-proto")))
			continue;
		n++;
		https = slice_ieq(fields->v[i].value, SLICE("https"));
	}
	return n == 1 && https;
}

/* True if the route refuses it, and that was answered. */
static bool api_unadmitted(
	struct api_conn *c, const struct h1_head *h, const struct api_route *route)
{
	struct api_asked q = {
		.method = h->method,
		.from = c->peer,
		.forwarded_https = api_forwarded_https(&h->fields),
	};
	struct api_refusal refusal = {.status = 0};

	if (!(route->flags & API_KEYS) || !c->api->keys.admit)
		return false;
	c->api->keys.admit(&q, c->api->arg, &refusal);
	if (refusal.status == 0)
		return false;
	api_write_error(c, refusal.status, refusal.code, refusal.msg.text, "",
		slice_eq(h->method, SLICE("HEAD")));
	return true;
}

/* The answer to a request that no handler sees; false if one shall. */
static bool api_judge(struct api_conn *c, const struct h1_head *h, const struct request_target *t,
	const struct api_route *route)
{
	bool is_head = slice_eq(h->method, SLICE("HEAD"));
	char allow[128];

	if (fields_have(&h->fields, FIELD_ORIGIN)) {
		/* We serve no pages, so each origin is a foreign one. */
		api_write_error(c, 403, "foreign_origin",
			"requests of web pages (with an Origin field) are refused", "", is_head);
	} else if (api_moved(c, t, is_head)) {
		return true;
	} else if (!(route && (route->flags & API_OPEN)) && !api_authorized(c->api, h)) {
		api_strangers_count(&c->api->strangers, c->uid);
		api_write_error(c, 401, "unauthorized", "unauthorized", "", is_head);
	} else if (!route) {
		api_write_error(c, 404, "not_found", "404 page not found", "", is_head);
	} else if (!api_has_method(route, h->method)) {
		(void)snprintf(allow, sizeof(allow), "Allow: %s\r\n", route->methods);
		api_write_error(c, 405, "method_not_allowed", "method not allowed", allow, is_head);
	} else if (api_unadmitted(c, h, route)) {
		return true;
	} else if (h->framing == H1_LENGTH && h->length > API_BODY_MAX) {
		api_refuse(c, 413, "body_too_large", "the body is larger than 1048576 bytes");
	} else {
		return false;
	}
	return true;
}

static bool api_expectation(struct api_conn *c, const struct h1_head *h)
{
	const struct field *f = fields_find(&h->fields, FIELD_EXPECT);

	if (!f || c->http_1_0)
		return true;
	if (!slice_ieq(f->value, SLICE("100-continue"))) {
		api_refuse(c, 417, "expectation_failed", "only Expect: 100-continue is known");
		return false;
	}
	if (h->framing != H1_NO_CONTENT)
		strbuf_str(&c->out, "HTTP/1.1 100 Continue\r\n\r\n");
	return true;
}

struct api_call *api_begin(struct api_conn *c, const struct h1_head *h)
{
	const struct api_route *route;
	struct request_target t;
	struct api_call *call;

	c->keep_alive = h->keep_alive;
	c->http_1_0 = h->minor == 0;
	if (request_target_decode(h->method, h->target, &t) < 0) {
		api_refuse(c, 400, "malformed", h1_error_text(H1_TARGET));
		return NULL;
	}
	route = api_find(c->api, t.path);
	if (api_judge(c, h, &t, route)) {
		/* What it would have sent is not read as the next request. */
		if (h->framing != H1_NO_CONTENT && !(h->framing == H1_LENGTH && h->length == 0))
			c->keep_alive = false;
		return NULL;
	}
	if (!(route->flags & API_OPEN))
		c->trusted = c->api->token != NULL;
	if (!api_expectation(c, h))
		return NULL;
	call = xcalloc(1, sizeof(*call));
	if (api_body_init(&call->body, c->api, route->flags,
		    h->framing == H1_LENGTH ? (size_t)h->length : 0) < 0) {
		free(call);
		api_refuse_busy(c);
		return NULL;
	}
	call->api = c->api;
	call->conn = c;
	call->route = route;
	call->is_head = slice_eq(h->method, SLICE("HEAD"));
	call->uid = c->uid;
	strbuf_init(&call->below, H1_TARGET_MAX);
	strbuf_add(&call->below, slice_from(t.path, strlen(route->path)));
	strbuf_init(&call->query, H1_TARGET_MAX);
	strbuf_add(&call->query, t.query);
	/* h1 refuses longer ones */
	REQUIRE(slice_to_cstr(h->method, call->method, sizeof(call->method)));
	return call;
}

void api_run(struct api_call *call)
{
	call->route->run(call, call->api->arg);
}

/* --- listening --- */

/* From the namespace that the sandbox shares with us, as addresses tell: from or to loopback, or to
 * an address of ours from the same one. From another one of ours only the kernel knows it. */
static bool api_is_local(int fd, const struct netaddr *peer)
{
	struct sockaddr_storage own;
	socklen_t len = sizeof(own);
	struct netaddr a;
	uint16_t port;

	if (netaddr_class(peer) == ADDR_LOOPBACK)
		return true;
	return getsockname(fd, (struct sockaddr *)&own, &len) == 0 &&
		netaddr_from_sockaddr((const struct sockaddr *)&own, &a, &port) &&
		(netaddr_class(&a) == ADDR_LOOPBACK || netaddr_eq(peer, &a));
}

static void api_accepted(struct api *a, int fd, const struct sockaddr_storage *from)
{
	const int on = 1;
	struct netaddr peer;
	uint16_t port;

	/* An answer is one write; a second one need not wait until the first has arrived. */
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (!netaddr_from_sockaddr((const struct sockaddr *)from, &peer, &port))
		memset(&peer, 0, sizeof(peer)); /* a stranger's */
	api_conn_new(a, fd, &peer, api_is_local(fd, &peer));
}

static void on_api_resume(evutil_socket_t fd, short what, void *arg)
{
	struct api_listener *l = arg;

	event_add(&l->readable, NULL);
}

static void on_api_accept(evutil_socket_t fd, short what, void *arg)
{
	struct api_listener *l = arg;

	for (int i = 0; i < API_ACCEPTS_MAX; i++) {
		struct timeval wait = {0, API_PAUSE_MS * 1000};
		struct sockaddr_storage peer;
		socklen_t len = sizeof(peer);
		int conn = accept4(
			l->fd, (struct sockaddr *)&peer, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (conn >= 0) {
			api_accepted(l->api, conn, &peer);
			continue;
		}
		if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
			log_warn("api", "%s: no new connections for a moment", err_text(-errno));
			event_del(&l->readable);
			event_add(&l->resume, &wait);
		}
		return;
	}
}

struct api *api_new(
	struct event_base *base, const struct api_route *routes, size_t n_routes, void *arg)
{
	struct api *a = xcalloc(1, sizeof(*a));

	a->base = base;
	a->routes = routes;
	a->n_routes = n_routes;
	a->arg = arg;
	a->diag_fd = client_uid_open();
	a->in = xmalloc(API_IN_BYTES);
	TAILQ_INIT(&a->conns);
	api_strangers_init(&a->strangers, base);
	return a;
}

void api_set_instance(struct api *a, const char *instance)
{
	a->instance = instance;
}

void api_on_strangers(struct api *a, api_strangers_cb told, void *arg)
{
	a->strangers.told = told;
	a->strangers.arg = arg;
}

uint64_t api_n_strangers(const struct api *a)
{
	return a->strangers.total;
}

static void api_drop_in(struct api *a)
{
	explicit_bzero(a->in, API_IN_BYTES);
	if (a->keys.mem)
		secmem_release(a->keys.mem, a->in);
	else
		free(a->in);
}

void api_set_keys(struct api *a, const struct api_keys *keys)
{
	char *in = secmem_alloc(keys->mem, API_IN_BYTES);

	REQUIRE(in && !a->keys.mem && a->n_listeners == 0);
	api_drop_in(a);
	a->keys = *keys;
	a->in = in;
}

void api_set_token(struct api *a, const char *token)
{
	struct api_conn *c;

	if (a->token && (!token || strcmp(a->token, token) != 0))
		TAILQ_FOREACH(c, &a->conns, link)
			c->trusted = false;
	a->token = token;
}

void api_listen(struct api *a, int fd)
{
	struct api_listener *l = &a->listeners[a->n_listeners];

	REQUIRE(a->n_listeners < API_LISTENERS_MAX);
	a->n_listeners++;
	l->api = a;
	l->fd = fd;
	event_assign(&l->readable, a->base, fd, EV_READ | EV_PERSIST, on_api_accept, l);
	event_assign(&l->resume, a->base, -1, 0, on_api_resume, l);
	event_add(&l->readable, NULL);
}

void api_thaw(struct api *a)
{
	struct api_conn *c;

	TAILQ_FOREACH(c, &a->conns, link)
		api_conn_thaw(c);
}

void api_drain(struct api *a)
{
	struct api_conn *c, *next;

	a->draining = true;
	for (size_t i = 0; i < a->n_listeners; i++) {
		event_del(&a->listeners[i].readable);
		event_del(&a->listeners[i].resume);
	}
	a->n_listeners = 0;
	for (c = TAILQ_FIRST(&a->conns); c; c = next) {
		next = TAILQ_NEXT(c, link);
		if (api_conn_idle(c))
			api_conn_free(c);
	}
}

size_t api_busy(const struct api *a)
{
	const struct api_conn *c;
	size_t n = 0;

	TAILQ_FOREACH(c, &a->conns, link)
		n += c->state == API_CONN_CALL || c->state == API_CONN_SEND;
	return n;
}

void api_free(struct api *a)
{
	struct api_conn *c;

	if (!a)
		return;
	api_drain(a);
	while ((c = TAILQ_FIRST(&a->conns)) != NULL) {
		REQUIRE(!c->call || c->state != API_CONN_CALL);
		api_conn_free(c);
	}
	api_strangers_fini(&a->strangers);
	if (a->diag_fd >= 0)
		(void)close(a->diag_fd);
	api_drop_in(a);
	free(a);
}
