/* The control API's server: HTTP/1.1 by proxy/h1 on the worker's loop, a table of routes, and the
 * checks that come before each of them. Knows no route by itself; api_policy, api_vault and others
 * bring theirs. Only heads lie in its own memory; content stays in the socket until it goes where
 * its route wants it.
 *
 * Order of the checks: the head is well formed (400, 431), no page of another origin asks (403), a
 * path that has to be cleaned (301), the token (401, before it is told whether there is such a
 * path), the path (404), the method (405), what the route itself admits, the length of the content
 * (413). */
#pragma once

#include <stdbool.h>

#include <jansson.h>

#include "base/attr.h"
#include "base/err.h"
#include "base/netaddr.h"
#include "base/slice.h"
#include "control/api_strangers.h"

#define API_BODY_MAX (1u << 20)     /* reference 3.1 */
#define API_LOCKED_MAX API_BODY_MAX /* content in locked memory, of all requests together */
#define API_CONNS_MAX 128           /* the proxy leaves descriptors for as many */
#define API_LISTENERS_MAX 2

struct api;
struct api_call;
struct event_base;
struct secmem;

/* Who asks for what, before any content was read. */
struct api_asked {
	struct slice method;
	struct netaddr from;
	bool forwarded_https; /* X-Forwarded-Proto, once, says so */
};

struct api_refusal {
	int status; /* 0: none */
	const char *code;
	struct errmsg msg;
};

enum api_route_flag {
	API_OPEN = BIT(0), /* without the token; its content is not kept */
	/* Its content may hold keys: it is admitted by api_set_keys, and lies in that memory and
	 * nowhere else. Where API_LOCKED_MAX has no room for it: 503 `busy`. */
	API_KEYS = BIT(1),
};

struct api_route {
	const char *path;    /* ends in '/': and all that is below it and no row before it has */
	const char *methods; /* as Allow lists them: "GET, POST"; NULL: every one */
	unsigned flags;
	/* Answers, at once or later, exactly once. */
	void (*run)(struct api_call *call, void *arg);
};

/* For routes with API_KEYS. */
struct api_keys {
	struct secmem *mem; /* for their content, and for what is received of any request */
	/* Before any content is read: fills a refusal, or not. */
	void (*admit)(const struct api_asked *q, void *arg, struct api_refusal *out);
	/* There is no memory for content of somebody who may: gives some back. */
	void (*make_room)(void *arg, bool all);
};

/* routes and arg are borrowed for its life. */
struct api *api_new(
	struct event_base *base, const struct api_route *routes, size_t n_routes, void *arg);
/* Ends every connection. No call may be unanswered. Accepts NULL. */
void api_free(struct api *a);
/* What a caller must send in OPENSANDBOX-EGRESS-AUTH; NULL: nothing. Borrowed until the next one.
 */
void api_set_token(struct api *a, const char *token);
/* Before api_listen; borrowed for its life. Without it such routes are served as any other. */
void api_set_keys(struct api *a, const struct api_keys *keys);
/* What every answer has in X-Egress-Instance; NULL: none. Borrowed for its life. */
void api_set_instance(struct api *a, const char *instance);
/* Whom to tell of requests without the token. */
void api_on_strangers(struct api *a, api_strangers_cb told, void *arg);
/* How many there were. */
uint64_t api_n_strangers(const struct api *a);
/* Serves a listening socket, which stays the caller's. At most API_LISTENERS_MAX. */
void api_listen(struct api *a, int fd);
/* After a freeze: each connection gets the whole time of its step again. */
void api_thaw(struct api *a);
/* No new connections; those that wait for nothing end. */
void api_drain(struct api *a);
/* Connections with a call or an answer under way. */
size_t api_busy(const struct api *a);

/* --- for handlers --- */

struct slice api_call_method(const struct api_call *call);
/* What follows the path of its route, as it was sent. */
struct slice api_call_below(const struct api_call *call);
/* False: whoever asked is not there any more. */
bool api_call_wanted(const struct api_call *call);
/* What stands behind the `?` of the target, empty if nothing does. */
struct slice api_call_query(const struct api_call *call);
/* Linux user of the caller's socket, for the audit trail; AUDIT_UID_NONE: not known, as for every
 * caller outside our network namespace. */
uint32_t api_call_uid(const struct api_call *call);
/* The content, whole; not changed by anybody but the handler; wiped after the answer. */
struct slice api_call_body(const struct api_call *call);

/* Each ends the call. phrase: NULL for the usual one of that status; bytes that cannot stand in a
 * status line are left out. */
void api_answer(
	struct api_call *call, int status, const char *phrase, const char *type, struct slice body);
/* fields: whole lines ("Name: value\r\n") beside those that every answer has. */
void api_answer_fields(
	struct api_call *call, int status, const char *type, const char *fields, struct slice body);
/* One object and a newline, as the replaced server writes it (`<`, `>` and `&` escaped). Takes the
 * reference. */
void api_answer_json(struct api_call *call, int status, const char *phrase, json_t *doc);
/* {"code": code, "message": ...} */
void api_fail(struct api_call *call, int status, const char *code, const char *fmt, ...)
	PRINTF(4, 5);
