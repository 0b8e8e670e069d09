/* Private to control/api.c and control/api_conn.c: a connection and the call on it. */
#pragma once

#include <sys/queue.h>

#include <event2/event_struct.h>

#include "base/secmem.h"
#include "base/strbuf.h"
#include "control/api.h"
#include "control/api_strangers.h"
#include "proxy/h1.h"

#define API_IN_BYTES 16384         /* of one recv */
#define API_ANSWER_MAX (64u << 20) /* more than any policy of POLICY_DOC_MAX takes */

/* A head and its content have to be there within these times, whatever dribbles in. */
#define API_HEAD_MS 10000
#define API_BODY_MS 30000
#define API_SEND_MS 30000
/* Longer than clients keep a connection for the next request (Go: 90 s), so that they close first;
 * a stranger gets no longer than for a head. */
#define API_IDLE_MS 120000
#define API_LINGER_MS 2000 /* so that an answer arrives before the reset of unread content */
#define API_LINGER_BYTES 4194304

enum api_conn_state {
	API_CONN_HEAD,
	API_CONN_BODY,
	API_CONN_CALL, /* a handler has it */
	API_CONN_SEND,
	API_CONN_LINGER,
	API_CONN_STATE_MAX
};

struct api_conn;
TAILQ_HEAD(api_conn_list, api_conn);

/* api_body.c */
struct api_body {
	struct api *api;
	bool locked;
	bool dropped;
	struct strbuf text; /* if neither */
	char *p;            /* if locked: of api->mem */
	size_t len, cap;
};

struct api_call {
	struct api *api;
	struct api_conn *conn; /* NULL: it went away */
	const struct api_route *route;
	char method[H1_METHOD_MAX + 1];
	struct strbuf below;
	struct strbuf query;
	uint32_t uid;
	struct api_body body;
	bool is_head;
};

struct api_conn {
	TAILQ_ENTRY(api_conn) link; /* the one that was quiet for longest first */
	struct api *api;
	int fd;
	enum api_conn_state state;
	struct netaddr peer;
	bool local;       /* from this network namespace, where the sandbox is */
	bool trusted;     /* has shown the token */
	bool running;     /* inside api_conn_run */
	uint32_t uid;     /* of the caller's socket; AUDIT_UID_NONE */
	bool uid_checked; /* asked again at the first byte */
	bool keep_alive;
	bool http_1_0;
	bool begun; /* some of a head is there */
	struct event readable, writable, timer;
	/* Of the step that it is in; 0: none. */
	uint32_t limit_ms;
	struct strbuf in; /* of a head */
	uint8_t line_end; /* how much of an empty line its last bytes are */
	size_t scanned;
	struct h1_body body;
	int body_ret; /* of what came last: 0, E_MORE, E_SYNTAX (body.error), E_LIMIT, E_FULL */
	struct api_call *call;
	struct strbuf out;
	size_t sent;
	size_t lingered;
};

struct api_listener {
	struct api *api;
	int fd;
	struct event readable, resume;
};

struct api {
	struct event_base *base;
	const struct api_route *routes;
	size_t n_routes;
	void *arg;
	const char *token;
	struct api_conn_list conns;
	size_t n_conns;
	struct api_listener listeners[API_LISTENERS_MAX];
	size_t n_listeners;
	int diag_fd; /* sock_diag; -1: users are not known */
	struct api_strangers strangers;
	const char *instance;
	bool draining;
	struct api_keys keys; /* all NULL: none were given */
	size_t locked_bytes;  /* of their memory, that content has */
	char *in;             /* API_IN_BYTES: of that memory if there is some */
};

/* api_conn.c */
void api_conn_free(struct api_conn *c);
/* Takes fd; may close another connection, or this one, where there are too many. */
void api_conn_new(struct api *a, int fd, const struct netaddr *peer, bool local);
void api_conn_thaw(struct api_conn *c);
/* Between requests, so that nothing is lost if it ends. */
bool api_conn_idle(const struct api_conn *c);
/* Everything that can be done with what is there. c may be gone when this returns. */
void api_conn_run(struct api_conn *c);
/* The answer is in c->out. */
void api_conn_send(struct api_conn *c);

/* flags: of the route. length: 0 if it is not known. E_FULL: no locked memory. */
CHECKED int api_body_init(struct api_body *b, struct api *a, unsigned flags, size_t length);
/* E_LIMIT past API_BODY_MAX, E_FULL. */
CHECKED int api_body_add(struct api_body *b, struct slice content);
struct slice api_body_slice(const struct api_body *b);
void api_body_fini(struct api_body *b);

/* api.c: judges a head. NULL: c->out has the answer. Else a call, and its content follows. */
struct api_call *api_begin(struct api_conn *c, const struct h1_head *h);
/* The content is whole. */
void api_run(struct api_call *call);
/* api_answer.c: an error into c->out. fields: whole lines, or "". */
void api_write_error(struct api_conn *c, int status, const char *code, const char *message,
	const char *fields, bool is_head);
/* The request cannot be read any further: c->out has the answer, after which c closes. */
void api_refuse(struct api_conn *c, int status, const char *code, const char *message);
/* The same for locked content that finds no room. */
void api_refuse_busy(struct api_conn *c);
void api_call_free(struct api_call *call);
