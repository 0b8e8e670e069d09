/* What the tests of keyed_answer.c share, beside keyed_bed.h: an answer from text, and its content
 * fed in pieces. */
#pragma once

#include "tests/unit/proxy/keyed_bed.h"

struct answer {
	struct h1_head head;
	char text[4096];
	enum reason reason;
};

/* An admitted request to that host, and its answer's head. */
static inline void answer(struct keyed_bed *b, const char *host, const char *method,
	const char *line, const char *fields, struct answer *a)
{
	char request[256];

	(void)snprintf(request, sizeof(request), "%s /v1/x", method);
	keyed_bed_request(b, host, request, "");
	assert_int_equal(keyed_bed_admit(b), REASON_ALLOWED);
	(void)snprintf(a->text, sizeof(a->text), "HTTP/1.1 %s\r\n%s\r\n", line, fields);
	assert_int_equal(h1_response_decode(slice_str(a->text), b->ex.method, &a->head), H1_OK);
	a->reason = keyed_answer(&b->ex, &a->head);
}

struct gathered {
	size_t len;
	char *text;
	size_t room;
};

static inline void gathered_put(void *arg, struct slice piece)
{
	struct gathered *g = arg;

	assert_true(piece.len <= g->room - g->len);
	memcpy(g->text + g->len, piece.p, piece.len);
	g->len += piece.len;
}

/* Feeds content in pieces of that size, then its end. False if the answer was ended. */
static inline bool feed(struct keyed_bed *b, struct slice content, size_t size, struct gathered *g)
{
	char *copy = xmalloc(content.len + 1);
	struct slice rest = slice_make(copy, content.len);
	bool ok = true;

	memcpy(copy, content.p, content.len);
	g->len = 0;
	while (ok && rest.len > 0) {
		struct slice piece = slice_first(rest, size);

		ok = keyed_content(&b->ex, piece, false, gathered_put, g);
		rest = slice_from(rest, piece.len);
	}
	ok = ok && keyed_content(&b->ex, SLICE_EMPTY, true, gathered_put, g);
	free(copy);
	return ok;
}
