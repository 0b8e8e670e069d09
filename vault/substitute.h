/* Placeholders become keys, piece by piece, in the order of the text: nothing is built in memory,
 * the pieces go straight to where the request is composed (locked scratch). One pass from left to
 * right, the longest placeholder wins, what was put in is never looked at again (reference 5.2). */
#pragma once

#include "vault/binding.h"

enum surface { SURFACE_PATH, SURFACE_QUERY, SURFACE_HEADER, SURFACE_BODY, SURFACE_MAX };

/* How a key is written where it goes (reference 5.3). */
enum substitute_style {
	SUBSTITUTE_RAW,
	SUBSTITUTE_PERCENT, /* unreserved stay, upper-case hex, space is %20 */
	SUBSTITUTE_FORM,    /* the same, space is + */
	SUBSTITUTE_JSON,    /* contents of a JSON string, ASCII only */
	SUBSTITUTE_BASIC,   /* header value `Basic base64(...)`: decoded, replaced, encoded again */
};

/* Gets the pieces. They lie in the text or in locked memory and are valid during the call. */
struct substitute_sink {
	void (*put)(void *arg, struct slice piece);
	void *arg;
};

/* Does the binding replace anything on this surface (named slots of it included)? */
bool substitute_has(const struct binding *b, enum surface s);

/* Writes text with its placeholders replaced. slot: the name of the field or parameter that the
 * text is the value of, empty if none: substitutions bound to a slot apply only there. Returns how
 * many were replaced; with sink NULL it only counts. *len, if not NULL: length of what was (would
 * be) written. */
size_t substitute_text(const struct binding *b, enum surface s, struct slice slot,
	struct slice text, enum substitute_style style, const struct substitute_sink *sink,
	size_t *len);

/* A whole query (without '?'): names and values, slots `query:NAME`. */
size_t substitute_query(const struct binding *b, struct slice query,
	const struct substitute_sink *sink, size_t *len);

/* A whole body by its media type (may be empty): surface body, slots `form:NAME` and
 * `json:/pointer`. A body that is no valid JSON or form is treated as text for the surface and has
 * no slots. b NULL: as it is. */
size_t substitute_body(const struct binding *b, struct slice media_type, struct slice body,
	const struct substitute_sink *sink, size_t *len);

/* May a path with this key in it go out? False if the key would add a separator or a dot segment at
 * any depth of percent-decoding (reference 5.3). path: the original. */
bool substitute_path_ok(const struct binding *b, struct slice path);

struct vault_view;
/* Is any placeholder of the vault in this text (target or field)? own: the binding that the request
 * matches, whose placeholders are none of these, wherever they stand; NULL: there is none. The name
 * of its binding, or empty. */
struct slice substitute_find_placeholder(
	const struct vault_view *view, const struct binding *own, struct slice text);
/* Is any key of the vault, raw or rendered, in this text? Towards a host it is not bound to it must
 * not leave (key_to_unbound_host). own: the binding that the request matches, whose keys may go;
 * NULL: there is none. The credential's name, or empty. */
struct slice substitute_find_key(
	const struct vault_view *view, const struct binding *own, struct slice text);
