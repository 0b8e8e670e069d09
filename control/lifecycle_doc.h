/* What OpenSandbox's lifecycle API answers, as values: sandboxes, where a port of one is reached,
 * errors. Pure, strict about types and sizes, and blind to fields that it does not know. Used by
 * the sidecar (control/lifecycle) and outside it (`egressctl watch`, `sandboxes`). */
#pragma once

#include <jansson.h>

#include "base/err.h"
#include "proxy/request_target.h"

#define LIFECYCLE_DOC_MAX (4u << 20)  /* bytes of an answer: a full page with 20 KiB each */
#define LIFECYCLE_PAGE_MAX 200        /* sandboxes of a page: as many as the API gives */
#define LIFECYCLE_ID_MAX 128          /* as long as an audit line can name */
#define LIFECYCLE_STATE_MAX 64        /* bytes of a state's text */
#define LIFECYCLE_METADATA_MAX 64     /* entries */
#define LIFECYCLE_METADATA_BYTES 8192 /* of their names and values */
#define LIFECYCLE_PREFIX_MAX 256      /* bytes of an endpoint's path */
#define LIFECYCLE_HEADERS_MAX 8       /* fields that an endpoint asks for */
#define LIFECYCLE_HEADER_BYTES 2048   /* all of them, as lines */
#define LIFECYCLE_ERROR_MAX 256       /* bytes of an error as text, NUL included */

/* The first is what the API itself calls so, and every state that is not known here. */
#define LIFECYCLE_STATE_TABLE(X)    \
	X(UNKNOWN, "Unknown")       \
	X(PENDING, "Pending")       \
	X(RUNNING, "Running")       \
	X(PAUSING, "Pausing")       \
	X(PAUSED, "Paused")         \
	X(RESUMING, "Resuming")     \
	X(STOPPING, "Stopping")     \
	X(TERMINATED, "Terminated") \
	X(FAILED, "Failed")

enum lifecycle_state {
#define X(id, text) LIFECYCLE_##id,
	LIFECYCLE_STATE_TABLE(X)
#undef X
		LIFECYCLE_STATES
};

const char *lifecycle_state_text(enum lifecycle_state s);

/* The API's URL, as settings and options have it: a path before the API's own stays, `/` and `/v1`
 * at the end of *text, which every client adds, do not. E_VALUE: other than http or https, with
 * userinfo or a query. */
CHECKED int lifecycle_url_decode(struct slice *text, struct request_target *out);

/* An id goes into URLs and names of files: letters, digits, `.`, `_`, `-`, no `.` in front. */
bool lifecycle_id_ok(struct slice id);

struct lifecycle_sandbox {
	struct slice id;
	enum lifecycle_state state;
	struct slice state_text; /* as it was called */
	uint64_t expires_us;     /* wall clock; 0: never */
	json_t *metadata;        /* an object of strings; NULL: none */
};

/* Slices and metadata are borrowed from root. */
struct lifecycle_list {
	json_t *root;
	size_t n;
	bool more; /* the API says that there is another page */
	struct lifecycle_sandbox v[LIFECYCLE_PAGE_MAX];
};

/* One sandbox, as v[0]: E_VALUE if it has another id than the one asked for. A page of the list.
 * E_LIMIT: something is larger than above; E_SYNTAX: no JSON, a wrong type, a field that is needed
 * is not there. After a failure there is nothing in out, and nothing to free. */
CHECKED int lifecycle_sandbox_decode(
	struct slice text, struct slice id, struct lifecycle_list *out, struct errmsg *msg);
CHECKED int lifecycle_page_decode(
	struct slice text, struct lifecycle_list *out, struct errmsg *msg);
void lifecycle_list_fini(struct lifecycle_list *l);

/* Where a port of a sandbox is reached. Holds a token: keep it in locked memory, and wipe it. */
struct lifecycle_endpoint {
	struct authority authority;
	char prefix[LIFECYCLE_PREFIX_MAX]; /* what stands before each path: "", or "/proxy/18080" */
	size_t headers_len;
	char headers[LIFECYCLE_HEADER_BYTES]; /* fields of every request, each with its CRLF */
};

/* `host[:port][/path]`: no scheme, userinfo, query or escape, no empty, `.` or `..` segment. Fields
 * that frame a message, or would send it elsewhere, are E_VALUE. out is wiped after a failure. */
CHECKED int lifecycle_endpoint_decode(
	struct slice text, struct lifecycle_endpoint *out, struct errmsg *msg);

/* "CODE: message" of an error, cut at its size; "" where it is none. Text from outside: to be
 * escaped where it is shown. */
const char *lifecycle_error_text(struct slice text, char buf[LIFECYCLE_ERROR_MAX]);
