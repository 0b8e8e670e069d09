/* One request of our own and its whole answer, over the proxy's dialling, TLS and HTTP parser. Who
 * asks names the place, so no policy of the sandbox judges it. A GET uses kept connections and is
 * sent once more on a fresh one when a kept one had ended; any other request has a connection of
 * its own. Redirects are answers like others: nothing goes to a place that was not named. */
#pragma once

#include "proxy/h1.h"

#define FETCH_LINES_MAX 32768               /* the head as it is sent, without the secret lines */
#define FETCH_CONTENT_MAX (4 * 1024 * 1024) /* content that is sent */
#define FETCH_METHOD_MAX 15
#define FETCH_HIDDEN_MIN 8 /* bytes of a secret that is hidden in what refuses it */
#define FETCH_1XX_MAX 32   /* informational heads before the final one */

struct fetch;
struct netaddr;
struct proxy;

/* All borrowed for fetch_start, which copies, but for `secret`. */
struct fetch_request {
	const char *method;
	/* May we connect to a, and send it what is here? NULL: wherever the name leads. */
	enum reason (*admit)(const struct netaddr *a, void *arg);
	struct slice url;    /* as request_target_decode_url takes it */
	struct slice fields; /* whole lines, each with its CRLF; not Host, User-Agent,
				Content-Length, Content-Type, Connection, Accept-Encoding */
	struct slice secret; /* lines as well, which hold a key: stay in the caller's locked memory
				until the callback; sent through the locked scratch, which is wiped
			      */
	const char *content_type; /* NULL: no content */
	struct slice content;
	size_t answer_max;   /* bytes of content; an answer with more ends as E_LIMIT */
	uint32_t timeout_ms; /* from now to the last byte */
};

/* Valid for the call. status and head are there as soon as a final head came, also with err. */
struct fetch_answer {
	int err; /* 0: a whole answer. E_LIMIT (also of the request), E_SYNTAX, E_EOF (closed before
		    or inside it), E_VALUE (a content coding, or no URL), -ETIMEDOUT, -ECONNREFUSED,
		    -EPERM (no address that admit lets in), E_RESOLVE, E_TLS, E_CERT, E_FULL (no
		    descriptors) */
	const char *why;            /* for a person, static; NULL without err */
	int status;                 /* 0: none came */
	const struct h1_head *head; /* NULL: none came */
	struct slice content; /* what came of it; not NUL-terminated. No success: with `*` where
				 it had the value of a secret line */
};

/* The value of the first field of that name (any letter case); empty: there is none. */
struct slice fetch_field(const struct fetch_answer *a, struct slice name);

typedef void (*fetch_cb)(const struct fetch_answer *answer, void *arg);

/* done runs once, from the loop, never before this returns; after fetch_cancel it does not run.
 * Either one ends the handle, and must before proxy_free. */
struct fetch *fetch_start(
	struct proxy *px, const struct fetch_request *r, fetch_cb done, void *arg);
/* Accepts NULL. */
void fetch_cancel(struct fetch *f);
