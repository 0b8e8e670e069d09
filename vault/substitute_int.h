/* The one pass over a text that replaces, shared by the files substitute*.c.
 *
 * A text is walked together with the slots in it: ranges in order, each with its name. */
#pragma once

#include "vault/vault_int.h"

/* A value inside the text that a slot may name. */
struct substitute_range {
	size_t from, to;
	struct slice name;
};

/* Where the slots are. next: the range that at lies in, else an empty one or one that does not hold
 * at; asked with rising at. */
struct substitute_slots {
	enum place_kind kind; /* PLACE_SURFACE: there are none */
	struct substitute_range (*next)(void *arg, size_t at);
	void *arg;
};

struct substitute_job {
	const struct binding *binding;
	enum surface surface;
	enum secret_form form;
	struct slice text;   /* what goes out */
	struct slice search; /* what is searched: the text, or what it decodes to */
	const uint32_t *map; /* offsets of search in text; NULL: the same */
	struct substitute_slots slots;
	const struct substitute_sink *sink; /* NULL: count */
	size_t len;                         /* of what was written */
};

/* Returns how many were replaced. */
size_t substitute_run(struct substitute_job *job);
/* Passes a piece on. */
void substitute_put(struct substitute_job *job, struct slice piece);
/* A job over a text without slots. */
struct substitute_job substitute_job_make(const struct binding *b, enum surface s,
	enum secret_form form, struct slice text, const struct substitute_sink *sink);

/* `name=value&...`, walked once from front to back. */
struct substitute_pairs {
	struct slice text;
	size_t from, to; /* of the pair */
	struct substitute_range value;
};

void substitute_pairs_init(struct substitute_pairs *pairs, struct slice text);
/* The value at `at`, if at lies in one. arg: the pairs. */
struct substitute_range substitute_pairs_next(void *arg, size_t at);
/* Is a, percent-decoded as in a form, equal to name? */
bool substitute_name_eq(struct slice a, struct slice name);

/* --- substitute_json.c --- */

struct json_range {
	size_t from, to;      /* between the quotes */
	struct slice pointer; /* the binding's */
};

struct json_ranges {
	struct json_range *items; /* in order */
	size_t n, cap;
	size_t at; /* of the walk */
};

/* Finds every string that a pointer of the binding names. False if text is no JSON, or deeper than
 * SUBSTITUTE_JSON_DEPTH_MAX; then there are no ranges. json_ranges_fini frees. */
#define SUBSTITUTE_JSON_DEPTH_MAX 64
CHECKED bool json_ranges_find(const struct binding *b, struct slice text, struct json_ranges *out);
void json_ranges_fini(struct json_ranges *r);
struct substitute_range json_ranges_next(void *arg, size_t at);
/* Is s a JSON pointer (RFC 6901) to something inside a document? */
bool json_pointer_is_valid(struct slice s);

/* --- substitute_basic.c --- */

/* `Basic base64(...)`: true if the decoded text holds a placeholder; then all was done. */
bool substitute_basic(struct substitute_job *job, size_t *n);
