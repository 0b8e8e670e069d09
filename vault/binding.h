/* Bindings: which requests a key belongs to, and what it does to them. */
#pragma once

#include "base/slice.h"

enum binding_match {
	BINDING_NONE, /* ordinary traffic */
	BINDING_ONE,
	BINDING_AMBIGUOUS, /* more than one of the highest precedence: 403 */
	BINDING_PATH, /* the path has segments that two readers see differently (reference 3.8): 403
		       */
};

struct binding_request {
	bool https;
	uint16_t port;     /* must be the scheme's own: 443, 80 */
	struct slice host; /* normal form */
	struct slice method;
	struct slice path; /* raw, before '?' */
};

struct binding;

struct slice binding_name(const struct binding *b);
/* A path on this host that no binding covers, or a method: still bound as far as redaction goes. */

/* A header field that the binding sets: every field of that name is taken out of the request first.
 * The value is in two parts, both to be written one after the other; value lies in locked memory.
 */
struct binding_field {
	struct slice name;   /* canonical spelling: X-Api-Key */
	struct slice prefix; /* "Bearer ", "Basic ", "" */
	struct slice value;
};

size_t binding_n_fields(const struct binding *b);
struct binding_field binding_field(const struct binding *b, size_t i);
/* Does the binding set (auth) this field? Letter case is ignored, and `_` is `-`: an origin behind
 * CGI or WSGI reads both names as one. */
bool binding_sets_field(const struct binding *b, struct slice name);
