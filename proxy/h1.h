/* HTTP/1.1 messages (RFC 9112), strict: what two parsers could read differently is an error. Pure.
 *
 * A head is read in two steps. h1_head_end() finds its end, however the bytes arrive, in time
 * linear in their number; h1_request_decode() or h1_response_decode() then reads it once, in place.
 * Bodies go through struct h1_body, which yields content as slices of the input. The control API
 * uses the same parser. */
#pragma once

#include <sys/types.h>

#include "base/strbuf.h"
#include "proxy/fields.h"

#define H1_HEAD_MAX 65536   /* bytes of a head, with the empty line: room for large cookies */
#define H1_TARGET_MAX 16384 /* bytes of a request target; beyond: H1_TARGET_TOO_LONG */
#define H1_METHOD_MAX 24
#define H1_CHUNK_LINE_MAX 256   /* bytes of a chunk-size line with its extensions */
#define H1_EXTENSIONS_MAX 16384 /* bytes of all chunk extensions of a body: nobody needs any */
#define H1_TRAILERS_MAX 8192    /* bytes of a trailer section */
#define H1_EMPTY_LINES_MAX 4    /* CRLF before a request line that are skipped (RFC 9112 2.2) */

/* Why a message was not accepted. Text for 400 bodies, log and audit. */
#define H1_ERROR_TABLE(X)                                                      \
	X(OK, "")                                                              \
	X(BARE_LF, "a line ends in LF without CR")                             \
	X(BARE_CR, "CR that is not followed by LF")                            \
	X(CONTROL_BYTE, "a control byte")                                      \
	X(REQUEST_LINE, "the request line is malformed")                       \
	X(STATUS_LINE, "the status line is malformed")                         \
	X(VERSION, "the HTTP version is not 1.0 or 1.1")                       \
	X(METHOD, "the method is not a token or is too long")                  \
	X(TARGET, "the request target is malformed")                           \
	X(TARGET_TOO_LONG, "the request target is too long")                   \
	X(FIELD_NAME, "a field name is not a token")                           \
	X(FIELD_VALUE, "a field value holds a control byte")                   \
	X(FIELD_FOLDED, "a folded field line")                                 \
	X(FIELD_NO_COLON, "a field line without colon")                        \
	X(TOO_MANY_FIELDS, "too many fields")                                  \
	X(HEAD_TOO_LARGE, "the head is too large")                             \
	X(HOST_MISSING, "no Host field")                                       \
	X(HOST_TWICE, "more than one Host field")                              \
	X(LENGTH_INVALID, "Content-Length is not a number")                    \
	X(LENGTH_TWICE, "more than one Content-Length")                        \
	X(LENGTH_AND_CODING, "Content-Length together with Transfer-Encoding") \
	X(CODING, "Transfer-Encoding is not exactly chunked")                  \
	X(CODING_1_0, "Transfer-Encoding in an HTTP/1.0 message")              \
	X(UPGRADE_WITH_CONTENT, "an upgrade or CONNECT request with content")  \
	X(CHUNK_SIZE, "a chunk size is malformed or too large")                \
	X(CHUNK_EXTENSION, "a chunk extension is malformed or too long")       \
	X(CHUNK_END, "chunk content is not followed by CRLF")                  \
	X(TRAILER, "the trailer section is malformed or too large")

enum h1_error {
#define X(id, text) H1_##id,
	H1_ERROR_TABLE(X)
#undef X
		H1_ERROR_MAX
};

const char *h1_error_text(enum h1_error e);

enum h1_framing {
	H1_NO_CONTENT,
	H1_LENGTH, /* `length` bytes, may be 0 (the field was there) */
	H1_CHUNKED,
	H1_UNTIL_CLOSE, /* responses only */
};

struct h1_head {
	uint8_t minor; /* HTTP/1.minor: 0 or 1 */
	/* request */
	struct slice method;
	struct slice target;
	/* response */
	uint16_t status;
	struct slice reason;
	/* both */
	enum h1_framing framing;
	uint64_t length;
	bool keep_alive; /* RFC 9112 9.3, Proxy-Connection counts as Connection (old curl, wget) */
	struct fields fields;
};

/* Looks for the end of the head in `in`, from *scanned on, and moves *scanned forward. Returns the
 * length of the head with its empty line; E_MORE; or E_SYNTAX (*error says what: a bare LF or CR, a
 * control byte, so that a broken head is refused before it is complete), E_LIMIT past H1_HEAD_MAX.
 * Requests: leading empty lines are part of the head. */
CHECKED ssize_t h1_head_end(struct slice in, size_t *scanned, enum h1_error *error);

/* head: exactly what h1_head_end measured. Everything in *out points into it. A Host field is
 * demanded in 1.1 (not in 1.0). Only `out->fields.v[0..n)` is written of the field table. */
CHECKED enum h1_error h1_request_decode(struct slice head, struct h1_head *out);

/* The response to a request with that method. Lenient where framing is not concerned (an empty
 * reason phrase without its space, a field name that is no token is dropped, obs-fold is an error);
 * strict where it is. 1xx, 204, 304 and answers to HEAD have no content; 2xx to CONNECT likewise.
 * Two equal Content-Lengths are one. */
CHECKED enum h1_error h1_response_decode(
	struct slice head, struct slice method, struct h1_head *out);

/* A body being read. */
struct h1_body {
	enum h1_framing framing;
	uint8_t state;
	uint64_t left; /* of the length, or of the chunk */
	enum h1_error error;
	struct strbuf line;     /* a trailer line that came in parts */
	struct strbuf trailers; /* complete `name: value CRLF` lines, checked and without folds */
	uint32_t line_len;      /* of the size line so far */
	uint32_t extension_bytes;
	uint32_t trailer_bytes;
	uint32_t n_trailers;
};

void h1_body_init(struct h1_body *b, enum h1_framing framing, uint64_t length);
void h1_body_fini(struct h1_body *b);

enum h1_body_result {
	H1_BODY_CONTENT, /* *content has at least one byte */
	H1_BODY_MORE,    /* all input used, the body goes on */
	H1_BODY_END,     /* complete; *in holds what follows */
	H1_BODY_ERROR,   /* b->error */
};

/* Takes bytes off the front of *in. *content is a slice of it. */
CHECKED enum h1_body_result h1_body_next(
	struct h1_body *b, struct slice *in, struct slice *content);

/* The peer closed: true if the body is complete now (H1_UNTIL_CLOSE, or nothing was left). */
bool h1_body_close(struct h1_body *b);
bool h1_body_done(const struct h1_body *b);

/* The trailers of a finished body as fields, pointing into b; false if there are none. */
bool h1_body_trailers(const struct h1_body *b, struct fields *out);
