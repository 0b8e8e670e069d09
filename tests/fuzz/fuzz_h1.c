/* HTTP/1.1 messages: however the bytes arrive, the same comes out, and what we accept we accept
 * again in our own words.
 *
 * The first byte of an input says what it is: 'Q' a request; 'P', 'H', 'C' the response to GET,
 * HEAD or CONNECT; 'B' a chunked body alone. What follows the head is its body. */
#include "base/err.h"
#include "proxy/h1.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

#define CONTENT_MAX (1U << 20)
/* Every cut is tried on inputs up to here; longer ones are cut in three places. */
#define ALL_CUTS_MAX 400

struct body_outcome {
	enum h1_body_result result;
	enum h1_error error;
	size_t rest; /* bytes not taken; only if it ended well */
	uint32_t n_trailers;
	struct strbuf content;
	struct strbuf trailers;
};

static void slice_check(struct slice part, struct slice in)
{
	REQUIRE(part.len == 0 || (part.p >= in.p && part.p + part.len <= in.p + in.len));
}

static void body_outcome_fini(struct body_outcome *o)
{
	strbuf_fini(&o->content);
	strbuf_fini(&o->trailers);
}

/* Gives the body `cut` bytes, then `step` at a time. */
static void body_run(
	const struct h1_head *h, struct slice body, size_t cut, size_t step, struct body_outcome *o)
{
	static struct fields trailers;
	struct h1_body b;
	size_t n = cut;

	strbuf_init(&o->content, CONTENT_MAX);
	strbuf_init(&o->trailers, CONTENT_MAX);
	h1_body_init(&b, h->framing, h->length);
	do {
		struct slice part = slice_first(body, n), in = part, content;

		while ((o->result = h1_body_next(&b, &in, &content)) == H1_BODY_CONTENT) {
			REQUIRE(content.len > 0);
			slice_check(content, part);
			strbuf_add(&o->content, content);
		}
		REQUIRE(o->result != H1_BODY_MORE || in.len == 0);
		body = slice_from(body, part.len - in.len);
		n = step;
	} while (o->result == H1_BODY_MORE && body.len > 0);
	o->error = b.error;
	o->rest = o->result == H1_BODY_END ? body.len : 0;
	o->n_trailers = b.n_trailers;
	strbuf_add(&o->trailers, strbuf_slice(&b.trailers));
	REQUIRE((o->result == H1_BODY_ERROR) == (o->error != H1_OK));
	REQUIRE(h1_body_done(&b) == (o->result == H1_BODY_END));
	if (h->framing == H1_LENGTH)
		REQUIRE((o->result == H1_BODY_END) == (o->content.len == h->length));
	if (o->result == H1_BODY_END) {
		REQUIRE(h1_body_trailers(&b, &trailers) == (b.n_trailers > 0));
		REQUIRE(trailers.n == b.n_trailers);
	}
	h1_body_fini(&b);
}

static void body_same(const struct body_outcome *a, const struct body_outcome *b)
{
	REQUIRE(a->result == b->result && a->error == b->error && a->rest == b->rest);
	REQUIRE(a->n_trailers == b->n_trailers || a->result == H1_BODY_ERROR);
	REQUIRE(slice_eq(strbuf_slice(&a->content), strbuf_slice(&b->content)));
	REQUIRE(slice_eq(strbuf_slice(&a->trailers), strbuf_slice(&b->trailers)));
}

/* One chunk and the trailers as we keep them: the same again. */
static void body_again(const struct h1_head *h, const struct body_outcome *whole)
{
	struct body_outcome again;
	struct strbuf text;

	strbuf_init(&text, CONTENT_MAX * 2);
	if (whole->content.len > 0) {
		strbuf_printf(&text, "%zx\r\n", whole->content.len);
		strbuf_add(&text, strbuf_slice(&whole->content));
		strbuf_str(&text, "\r\n");
	}
	strbuf_str(&text, "0\r\n");
	strbuf_add(&text, strbuf_slice(&whole->trailers));
	strbuf_str(&text, "\r\n");
	body_run(h, strbuf_slice(&text), text.len, 1, &again);
	again.rest = whole->rest;
	body_same(whole, &again);
	body_outcome_fini(&again);
	strbuf_fini(&text);
}

static void body_fuzz(const struct h1_head *h, struct slice body)
{
	size_t cut_step = body.len > ALL_CUTS_MAX ? body.len / 3 : 1;
	struct body_outcome whole;

	body_run(h, body, body.len, 1, &whole);
	for (size_t cut = 0; cut <= body.len; cut += cut_step) {
		struct body_outcome part;

		body_run(h, body, cut, cut == 0 ? 1 : body.len, &part);
		body_same(&whole, &part);
		body_outcome_fini(&part);
	}
	if (h->framing == H1_CHUNKED && whole.result == H1_BODY_END)
		body_again(h, &whole);
	body_outcome_fini(&whole);
}

static ssize_t head_end(struct slice in, size_t cut, size_t step, enum h1_error *error)
{
	size_t scanned = 0, n = cut;
	ssize_t ret;

	for (;;) {
		ret = h1_head_end(slice_first(in, n), &scanned, error);
		REQUIRE(scanned <= n);
		if (ret != E_MORE || n >= in.len)
			return ret;
		n += step;
	}
}

static enum h1_error head_decode(char kind, struct slice head, struct h1_head *out)
{
	switch (kind) {
	case 'Q':
		return h1_request_decode(head, out);
	case 'H':
		return h1_response_decode(head, SLICE("HEAD"), out);
	case 'C':
		return h1_response_decode(head, SLICE("CONNECT"), out);
	default:
		return h1_response_decode(head, SLICE("GET"), out);
	}
}

static void head_write(char kind, const struct h1_head *h, struct strbuf *text)
{
	if (kind == 'Q')
		strbuf_printf(text, "%.*s %.*s HTTP/1.%u\r\n", SLICE_FMT(h->method),
			SLICE_FMT(h->target), h->minor);
	else
		strbuf_printf(
			text, "HTTP/1.%u %u %.*s\r\n", h->minor, h->status, SLICE_FMT(h->reason));
	for (size_t i = 0; i < h->fields.n; i++)
		strbuf_printf(text, "%.*s: %.*s\r\n", SLICE_FMT(h->fields.v[i].name),
			SLICE_FMT(h->fields.v[i].value));
	strbuf_str(text, "\r\n");
}

static void head_check(char kind, struct slice head, const struct h1_head *h)
{
	static struct h1_head again;
	struct strbuf text, twice;
	size_t scanned = 0;
	enum h1_error e;

	slice_check(h->method, head);
	slice_check(h->target, head);
	slice_check(h->reason, head);
	for (size_t i = 0; i < h->fields.n; i++) {
		const struct field *f = &h->fields.v[i];

		slice_check(f->name, head);
		slice_check(f->value, head);
		REQUIRE(field_name_ok(f->name) && field_value_ok(f->value));
		REQUIRE(slice_eq(f->value, slice_trim(f->value)));
		REQUIRE(f->id == field_id_find(f->name));
		REQUIRE(f->id == FIELD_OTHER || fields_have(&h->fields, f->id));
	}
	strbuf_init(&text, CONTENT_MAX);
	strbuf_init(&twice, CONTENT_MAX);
	head_write(kind, h, &text);
	/* A blank after each colon may have made it too large. */
	if (text.len <= H1_HEAD_MAX) {
		REQUIRE(h1_head_end(strbuf_slice(&text), &scanned, &e) == (ssize_t)text.len);
		REQUIRE(head_decode(kind, strbuf_slice(&text), &again) == H1_OK);
		REQUIRE(again.framing == h->framing && again.length == h->length);
		REQUIRE(again.keep_alive == h->keep_alive && again.fields.n == h->fields.n);
		REQUIRE(again.fields.seen == h->fields.seen);
		head_write(kind, &again, &twice);
		REQUIRE(slice_eq(strbuf_slice(&text), strbuf_slice(&twice)));
	}
	strbuf_fini(&text);
	strbuf_fini(&twice);
}

static void head_fuzz(char kind, struct slice in)
{
	static struct h1_head h;
	size_t cut_step = in.len > ALL_CUTS_MAX ? in.len / 3 : 1;
	enum h1_error error, part;
	ssize_t n = head_end(in, in.len, 1, &error);

	for (size_t cut = 0; cut <= in.len; cut += cut_step) {
		REQUIRE(head_end(in, cut, cut == 0 ? 1 : in.len, &part) == n);
		REQUIRE(part == error);
	}
	/* The decoders are not asked to trust the search. */
	(void)!head_decode(kind, in, &h);
	if (n < 0)
		return;
	if (head_decode(kind, slice_first(in, (size_t)n), &h) != H1_OK)
		return;
	head_check(kind, slice_first(in, (size_t)n), &h);
	body_fuzz(&h, slice_from(in, (size_t)n));
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	static struct h1_head chunked = {.framing = H1_CHUNKED};
	struct slice in;

	if (len == 0)
		return 0;
	in = slice_make((const char *)p + 1, len - 1);
	if (p[0] == 'B')
		body_fuzz(&chunked, in);
	else
		head_fuzz((char)p[0], in);
	return 0;
}
