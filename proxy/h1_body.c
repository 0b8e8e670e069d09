/* HTTP/1.1 bodies: content by length, in chunks (RFC 9112 7.1) or until the end of the connection.
 *
 * relay and the control API push what they receive through it and get slices of content back.
 * Chunk extensions are checked and dropped; trailers are checked and kept. State is kept between
 * bytes, so nothing is stored for a size line that comes in parts, and only a trailer line is. */
#include "proxy/chars_int.h"
#include "proxy/h1_int.h"

#define H1_CHUNK_DIGITS_MAX 16 /* of a 64-bit number; more could only be leading zeros */

enum h1_body_state {
	BODY_DONE,
	BODY_FAILED,
	BODY_COUNTED,
	BODY_UNTIL_CLOSE,
	/* Within a size line; chunk-ext = *( BWS ";" BWS name [ BWS "=" BWS value ] ). */
	BODY_SIZE,
	BODY_EXT_BLANK,       /* behind a size or a value: only ';' may follow */
	BODY_EXT_BEFORE_NAME, /* behind ';' */
	BODY_EXT_NAME,
	BODY_EXT_AFTER_NAME,
	BODY_EXT_BEFORE_VALUE, /* behind '=' */
	BODY_EXT_VALUE,
	BODY_EXT_QUOTED,
	BODY_EXT_ESCAPED,
	BODY_EXT_AFTER_QUOTED,
	BODY_SIZE_LF,
	BODY_CHUNK,
	BODY_CHUNK_CR,
	BODY_CHUNK_LF,
	BODY_TRAILER,
	BODY_STATE_MAX
};

enum h1_ext_class {
	EXT_OTHER, /* bytes that only a quoted string may hold */
	EXT_CONTROL,
	EXT_CR,
	EXT_BLANK,
	EXT_TOKEN,
	EXT_SEMICOLON,
	EXT_EQUALS,
	EXT_QUOTE,
	EXT_BACKSLASH,
	EXT_CLASS_MAX
};

/* 0, which is BODY_DONE, stands for a byte that must not be there. */
static const uint8_t h1_ext_moves[BODY_STATE_MAX][EXT_CLASS_MAX] = {
	[BODY_EXT_BLANK] = {[EXT_BLANK] = BODY_EXT_BLANK, [EXT_SEMICOLON] = BODY_EXT_BEFORE_NAME},
	[BODY_EXT_BEFORE_NAME] = {[EXT_BLANK] = BODY_EXT_BEFORE_NAME, [EXT_TOKEN] = BODY_EXT_NAME},
	[BODY_EXT_NAME] = {[EXT_TOKEN] = BODY_EXT_NAME,
		[EXT_BLANK] = BODY_EXT_AFTER_NAME,
		[EXT_EQUALS] = BODY_EXT_BEFORE_VALUE,
		[EXT_SEMICOLON] = BODY_EXT_BEFORE_NAME,
		[EXT_CR] = BODY_SIZE_LF},
	[BODY_EXT_AFTER_NAME] = {[EXT_BLANK] = BODY_EXT_AFTER_NAME,
		[EXT_EQUALS] = BODY_EXT_BEFORE_VALUE,
		[EXT_SEMICOLON] = BODY_EXT_BEFORE_NAME},
	[BODY_EXT_BEFORE_VALUE] = {[EXT_BLANK] = BODY_EXT_BEFORE_VALUE,
		[EXT_TOKEN] = BODY_EXT_VALUE,
		[EXT_QUOTE] = BODY_EXT_QUOTED},
	[BODY_EXT_VALUE] = {[EXT_TOKEN] = BODY_EXT_VALUE,
		[EXT_BLANK] = BODY_EXT_BLANK,
		[EXT_SEMICOLON] = BODY_EXT_BEFORE_NAME,
		[EXT_CR] = BODY_SIZE_LF},
	[BODY_EXT_QUOTED] = {[EXT_OTHER] = BODY_EXT_QUOTED,
		[EXT_BLANK] = BODY_EXT_QUOTED,
		[EXT_TOKEN] = BODY_EXT_QUOTED,
		[EXT_SEMICOLON] = BODY_EXT_QUOTED,
		[EXT_EQUALS] = BODY_EXT_QUOTED,
		[EXT_BACKSLASH] = BODY_EXT_ESCAPED,
		[EXT_QUOTE] = BODY_EXT_AFTER_QUOTED},
	[BODY_EXT_ESCAPED] = {[EXT_OTHER] = BODY_EXT_QUOTED,
		[EXT_BLANK] = BODY_EXT_QUOTED,
		[EXT_TOKEN] = BODY_EXT_QUOTED,
		[EXT_SEMICOLON] = BODY_EXT_QUOTED,
		[EXT_EQUALS] = BODY_EXT_QUOTED,
		[EXT_BACKSLASH] = BODY_EXT_QUOTED,
		[EXT_QUOTE] = BODY_EXT_QUOTED},
	[BODY_EXT_AFTER_QUOTED] = {[EXT_BLANK] = BODY_EXT_BLANK,
		[EXT_SEMICOLON] = BODY_EXT_BEFORE_NAME,
		[EXT_CR] = BODY_SIZE_LF},
};

/* Fields with a meaning for framing, routing, authentication, request control or the coding of
 * content must not come late (RFC 9110 6.5.1). Those that have an id are in h1_trailer_id_ok. */
static const struct slice h1_trailers_refused[] = {
	SLICE("cache-control"),
	SLICE("content-encoding"),
	SLICE("content-range"),
	SLICE("cookie"),
	SLICE("if-match"),
	SLICE("if-modified-since"),
	SLICE("if-none-match"),
	SLICE("if-range"),
	SLICE("if-unmodified-since"),
	SLICE("location"),
	SLICE("max-forwards"),
	SLICE("range"),
	SLICE("set-cookie"),
	SLICE("www-authenticate"),
};

static bool h1_trailer_ok(const struct field *f)
{
	if (f->id != FIELD_OTHER)
		return false;
	for (size_t i = 0; i < ARRAY_LEN(h1_trailers_refused); i++) {
		if (slice_ieq(f->name, h1_trailers_refused[i]))
			return false;
	}
	return true;
}

void h1_body_init(struct h1_body *b, enum h1_framing framing, uint64_t length)
{
	*b = (struct h1_body){.framing = framing, .state = BODY_DONE};
	/* A line grows by one blank at most when it is written in our form. */
	strbuf_init(&b->trailers, H1_TRAILERS_MAX + FIELDS_MAX);
	strbuf_init(&b->line, H1_TRAILERS_MAX);
	b->trailers.wipe = b->line.wipe = true; /* a bound host could put a key there */
	switch (framing) {
	case H1_NO_CONTENT:
		break;
	case H1_LENGTH:
		b->left = length;
		b->state = length > 0 ? BODY_COUNTED : BODY_DONE;
		break;
	case H1_CHUNKED:
		b->state = BODY_SIZE;
		break;
	case H1_UNTIL_CLOSE:
		b->state = BODY_UNTIL_CLOSE;
		break;
	}
}

void h1_body_fini(struct h1_body *b)
{
	strbuf_fini(&b->line);
	strbuf_fini(&b->trailers);
}

static void h1_body_fail(struct h1_body *b, enum h1_error e)
{
	b->error = e;
	b->state = BODY_FAILED;
}

static enum h1_ext_class h1_ext_class(char c)
{
	if (char_is_token(c))
		return EXT_TOKEN;
	switch (c) {
	case ' ':
	case '\t':
		return EXT_BLANK;
	case '\r':
		return EXT_CR;
	case ';':
		return EXT_SEMICOLON;
	case '=':
		return EXT_EQUALS;
	case '"':
		return EXT_QUOTE;
	case '\\':
		return EXT_BACKSLASH;
	default:
		return (uint8_t)c < 0x20 || c == 0x7f ? EXT_CONTROL : EXT_OTHER;
	}
}

/* A byte behind the digits of a size. */
static void h1_body_ext_byte(struct h1_body *b, char c)
{
	uint8_t to = h1_ext_moves[b->state][h1_ext_class(c)];

	if (to != BODY_SIZE_LF &&
		(++b->extension_bytes > H1_EXTENSIONS_MAX || ++b->line_len > H1_CHUNK_LINE_MAX))
		to = BODY_DONE;
	b->state = to;
	if (to == BODY_DONE)
		h1_body_fail(b, H1_CHUNK_EXTENSION);
}

static void h1_body_size_byte(struct h1_body *b, char c)
{
	int digit = ascii_hex(c);

	if (digit >= 0) {
		if (++b->line_len > H1_CHUNK_DIGITS_MAX || b->left > INT64_MAX >> 4)
			h1_body_fail(b, H1_CHUNK_SIZE);
		else
			b->left = b->left << 4 | (uint64_t)digit;
		return;
	}
	if (b->line_len > 0 && c == '\r') {
		b->state = BODY_SIZE_LF;
	} else if (b->line_len > 0 && (c == ';' || char_is_ows(c))) {
		b->state = BODY_EXT_BLANK;
		h1_body_ext_byte(b, c);
	} else {
		h1_body_fail(b, H1_CHUNK_SIZE);
	}
}

static void h1_body_size_line(struct h1_body *b, struct slice *in)
{
	size_t i = 0;

	while (i < in->len) {
		char c = in->p[i++];

		if (b->state == BODY_SIZE) {
			h1_body_size_byte(b, c);
		} else if (b->state != BODY_SIZE_LF) {
			h1_body_ext_byte(b, c);
		} else if (c != '\n') {
			h1_body_fail(b, H1_CHUNK_SIZE);
		} else {
			b->line_len = 0;
			b->state = b->left > 0 ? BODY_CHUNK : BODY_TRAILER;
			break;
		}
		if (b->state == BODY_FAILED)
			break;
	}
	*in = slice_from(*in, i);
}

static struct slice h1_body_take(struct h1_body *b, struct slice *in)
{
	struct slice content = *in;

	if (b->state != BODY_UNTIL_CLOSE) {
		content = slice_first(*in, b->left);
		b->left -= content.len;
		if (b->left == 0)
			b->state = b->state == BODY_CHUNK ? BODY_CHUNK_CR : BODY_DONE;
	}
	*in = slice_from(*in, content.len);
	return content;
}

static void h1_body_chunk_end(struct h1_body *b, struct slice *in)
{
	if (in->p[0] != (b->state == BODY_CHUNK_CR ? '\r' : '\n'))
		h1_body_fail(b, H1_CHUNK_END);
	else
		b->state = b->state == BODY_CHUNK_CR ? BODY_CHUNK_LF : BODY_SIZE;
	*in = slice_from(*in, 1);
}

/* line: with its LF, which is the only one in it. */
static void h1_body_trailer_line(struct h1_body *b, struct slice line)
{
	const char *p = line.p;
	struct field f;

	if (slice_eq(line, SLICE("\r\n"))) {
		b->state = BODY_DONE;
		return;
	}
	if (h1_field_line(&p, line.p + line.len, &f) != H1_OK || !h1_trailer_ok(&f) ||
		++b->n_trailers > FIELDS_MAX) {
		h1_body_fail(b, H1_TRAILER);
		return;
	}
	strbuf_add(&b->trailers, f.name);
	strbuf_add(&b->trailers, SLICE(": "));
	strbuf_add(&b->trailers, f.value);
	strbuf_add(&b->trailers, SLICE("\r\n"));
	REQUIRE(!b->trailers.full);
}

static void h1_body_trailer(struct h1_body *b, struct slice *in)
{
	const char *lf = memchr(in->p, '\n', in->len);
	struct slice part = lf ? slice_first(*in, (size_t)(lf - in->p) + 1) : *in;

	*in = slice_from(*in, part.len);
	if (part.len > H1_TRAILERS_MAX - b->trailer_bytes) {
		h1_body_fail(b, H1_TRAILER);
		return;
	}
	b->trailer_bytes += (uint32_t)part.len;
	if (lf && b->line.len == 0) {
		h1_body_trailer_line(b, part);
		return;
	}
	strbuf_add(&b->line, part);
	if (lf) {
		h1_body_trailer_line(b, strbuf_slice(&b->line));
		strbuf_clear(&b->line);
	}
}

enum h1_body_result h1_body_next(struct h1_body *b, struct slice *in, struct slice *content)
{
	for (;;) {
		if (b->state == BODY_DONE)
			return H1_BODY_END;
		if (b->state == BODY_FAILED)
			return H1_BODY_ERROR;
		if (in->len == 0)
			return H1_BODY_MORE;
		switch ((enum h1_body_state)b->state) {
		case BODY_COUNTED:
		case BODY_UNTIL_CLOSE:
		case BODY_CHUNK:
			*content = h1_body_take(b, in);
			return H1_BODY_CONTENT;
		case BODY_CHUNK_CR:
		case BODY_CHUNK_LF:
			h1_body_chunk_end(b, in);
			break;
		case BODY_TRAILER:
			h1_body_trailer(b, in);
			break;
		case BODY_SIZE:
		case BODY_EXT_BLANK:
		case BODY_EXT_BEFORE_NAME:
		case BODY_EXT_NAME:
		case BODY_EXT_AFTER_NAME:
		case BODY_EXT_BEFORE_VALUE:
		case BODY_EXT_VALUE:
		case BODY_EXT_QUOTED:
		case BODY_EXT_ESCAPED:
		case BODY_EXT_AFTER_QUOTED:
		case BODY_SIZE_LF:
			h1_body_size_line(b, in);
			break;
		case BODY_DONE:
		case BODY_FAILED:
		case BODY_STATE_MAX:
			break;
		}
	}
}

bool h1_body_close(struct h1_body *b)
{
	if (b->state == BODY_UNTIL_CLOSE)
		b->state = BODY_DONE;
	return h1_body_done(b);
}

bool h1_body_done(const struct h1_body *b)
{
	return b->state == BODY_DONE;
}

bool h1_body_trailers(const struct h1_body *b, struct fields *out)
{
	struct slice s = strbuf_slice(&b->trailers);
	const char *p = s.p, *end = s.p + s.len;

	out->n = 0;
	out->seen = 0;
	while (p < end && h1_field_line(&p, end, &out->v[out->n]) == H1_OK)
		out->n++;
	return out->n > 0;
}
