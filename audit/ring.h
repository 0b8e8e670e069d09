/* The ring of committed lines in the plain area: sequence without holes, chain of SHA-256.
 *
 * A line is committed when its text is in the ring and the state behind it points past it; both
 * happen by one store of eight bytes, so a worker that is killed has either committed a line or
 * not. What the line was made from (a slot, a staged refusal) is consumed by the same store.
 * Sinks drain by cursors, which stand between lines. Positions are counted in bytes, never wrap. */
#pragma once

#include <sys/uio.h>

#include "audit/audit.h"
#include "audit/event_json.h"
#include "base/strbuf.h"

#define RING_HEX_LEN 64
/* `{"v":1,"seq":` and 20 digits; `,"prev":"`, 64 digits, `"}`, newline. */
#define RING_LINE_MAX (EVENT_JSON_MAX + 128)
#define RING_HALF (AUDIT_RING_BYTES / 2)

enum ring_cursor { RING_FILE, RING_STDOUT, RING_CURSOR_MAX };

struct ring_area;
struct ring;

/* What the commit of a line uses up. */
struct ring_source {
	uint64_t serial;      /* of the slot or summary that became the line, 0: none */
	uint64_t staged_tail; /* refusals staged before this position are lines now */
};

size_t ring_area_size(void);

/* area: ring_area_size() bytes, aligned to 8, zero or as a former worker left it. */
struct ring *ring_new(struct ring_area *area);
void ring_free(struct ring *r);

/* Only before the first line: number and hash (hexadecimal) of the line that came before. */
void ring_set_origin(struct ring *r, uint64_t seq, const char hash[RING_HEX_LEN]);

/* A line with a body of this length fits now. Every line fits where EVENT_JSON_MAX does. */
bool ring_fits(const struct ring *r, size_t body_len);
/* Bytes of lines that the slowest sink has not taken. */
uint64_t ring_used(const struct ring *r);
/* Adds the line; it must fit. */
void ring_commit(struct ring *r, struct slice body, const struct ring_source *src);

uint64_t ring_seq(const struct ring *r);
/* Position behind the last line. */
uint64_t ring_head(const struct ring *r);
/* What the last commit used up. */
struct ring_source ring_source(const struct ring *r);

/* From now on lines stay in the ring until this cursor has passed them. */
void ring_cursor_open(struct ring *r, enum ring_cursor c);
void ring_cursor_close(struct ring *r, enum ring_cursor c);
uint64_t ring_cursor(const struct ring *r, enum ring_cursor c);
/* to: the start of a line, or the head. */
void ring_cursor_set(struct ring *r, enum ring_cursor c, uint64_t to);
/* Moves the cursor to behind line `seq` if that is one of the last lines, still in the ring. */
bool ring_cursor_seek(struct ring *r, enum ring_cursor c, uint64_t seq);

/* The oldest line that is still whole in the ring, taken by all sinks or not; ring_seq() + 1 if
 * there is none. */
uint64_t ring_oldest(const struct ring *r);
/* Where line `seq` begins, from ring_oldest() to ring_seq() + 1, which begins at the head. False
 * for other lines. Looks at a few lines, not at all. */
CHECKED bool ring_find(const struct ring *r, uint64_t seq, uint64_t *pos);

/* The committed bytes from a position to the head, in at most two pieces; returns their number. */
int ring_view(const struct ring *r, uint64_t from, struct iovec iov[2]);
/* How many of the n bytes from a position are whole lines. */
size_t ring_whole(const struct ring *r, uint64_t from, size_t n);
/* Adds to out the lines from a position on, where one begins: at most max of them, as many as fit.
 * Returns their number. */
uint32_t ring_copy_lines(const struct ring *r, uint64_t from, uint32_t max, struct strbuf *out);

/* Number of a line as the ring writes it, and its `prev` (RING_HEX_LEN characters, borrowed). line:
 * without its newline. False if it is not such a line. */
CHECKED bool ring_line_parse(struct slice line, uint64_t *seq, struct slice *prev);

/* SHA-256 as hexadecimal digits, without a NUL. */
void ring_sha_hex(struct slice s, char hex[RING_HEX_LEN]);
/* The same in pieces. ring_sha_end frees. */
struct ring_sha;
struct ring_sha *ring_sha_new(void);
void ring_sha_add(struct ring_sha *h, struct slice s);
void ring_sha_end(struct ring_sha *h, char hex[RING_HEX_LEN]);
