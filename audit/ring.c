/* Committed lines: the ring, its double state, the hash chain and the cursors of the sinks. */
#include "audit/ring.h"

#include <stdlib.h>

#include <openssl/evp.h>

#include "base/arena.h"
#include "base/state.h"

#define RING_PREFIX "{\"v\":1,\"seq\":"
#define RING_PREV ",\"prev\":\""
#define RING_SUFFIX "\"}"
#define RING_HASH_LEN 32

/* Everything that one commit changes. There are two of these; the lowest bit of `gen` tells which
 * one counts. */
struct ring_state {
	uint64_t head;
	uint64_t seq;
	struct ring_source src;
	char hash[RING_HEX_LEN]; /* of the last line */
};

struct ring_area {
	uint64_t gen;
	struct ring_state state[2];
	uint64_t cursor[RING_CURSOR_MAX];
	char bytes[AUDIT_RING_BYTES];
};

struct ring {
	struct ring_area *area;
	EVP_MD_CTX *ctx;
	bool open[RING_CURSOR_MAX];
	char line[RING_LINE_MAX];
};

struct ring_sha {
	EVP_MD_CTX *ctx;
};

static const char ring_hex[] = "0123456789abcdef";

static const struct ring_state *ring_state(const struct ring *r)
{
	return &r->area->state[r->area->gen & 1];
}

size_t ring_area_size(void)
{
	return sizeof(struct ring_area);
}

struct ring *ring_new(struct ring_area *area)
{
	struct ring *r = xcalloc(1, sizeof(*r));

	r->area = area;
	r->ctx = EVP_MD_CTX_new();
	REQUIRE(r->ctx && EVP_DigestInit_ex(r->ctx, EVP_sha256(), NULL) == 1);
	if (area->gen == 0) {
		memset(area->state[1].hash, '0', RING_HEX_LEN);
		state_store(&area->gen, 1);
	}
	return r;
}

void ring_free(struct ring *r)
{
	if (!r)
		return;
	EVP_MD_CTX_free(r->ctx);
	free(r);
}

/* Makes the state that was written beside the current one count. */
static void ring_flip(struct ring *r)
{
	state_store(&r->area->gen, r->area->gen + 1);
}

static struct ring_state *ring_next(struct ring *r)
{
	return &r->area->state[(r->area->gen + 1) & 1];
}

void ring_set_origin(struct ring *r, uint64_t seq, const char hash[RING_HEX_LEN])
{
	struct ring_state *next = ring_next(r);

	*next = *ring_state(r);
	next->seq = seq;
	memcpy(next->hash, hash, RING_HEX_LEN);
	ring_flip(r);
}

uint64_t ring_seq(const struct ring *r)
{
	return ring_state(r)->seq;
}

uint64_t ring_head(const struct ring *r)
{
	return ring_state(r)->head;
}

struct ring_source ring_source(const struct ring *r)
{
	return ring_state(r)->src;
}

uint64_t ring_used(const struct ring *r)
{
	uint64_t head = ring_head(r);
	uint64_t used = 0;

	for (int c = 0; c < RING_CURSOR_MAX; c++) {
		if (r->open[c] && head - r->area->cursor[c] > used)
			used = head - r->area->cursor[c];
	}
	return used;
}

bool ring_fits(const struct ring *r, size_t body_len)
{
	return AUDIT_RING_BYTES - ring_used(r) >= body_len + (RING_LINE_MAX - EVENT_JSON_MAX);
}

static void ring_to_hex(const unsigned char *md, char hex[RING_HEX_LEN])
{
	for (size_t i = 0; i < RING_HASH_LEN; i++) {
		hex[2 * i] = ring_hex[md[i] >> 4];
		hex[2 * i + 1] = ring_hex[md[i] & 0xf];
	}
}

/* Reuses the context: to look up the digest anew costs more than to hash a line. */
static void ring_line_hash(struct ring *r, struct slice line, char hex[RING_HEX_LEN])
{
	unsigned char md[EVP_MAX_MD_SIZE];

	REQUIRE(EVP_DigestInit_ex(r->ctx, NULL, NULL) == 1 &&
		EVP_DigestUpdate(r->ctx, line.p, line.len) == 1 &&
		EVP_DigestFinal_ex(r->ctx, md, NULL) == 1);
	ring_to_hex(md, hex);
}

static size_t ring_put(char *buf, size_t at, struct slice s)
{
	memcpy(buf + at, s.p, s.len);
	return at + s.len;
}

static size_t ring_put_u64(char *buf, size_t at, uint64_t v)
{
	char digits[20];
	size_t from = sizeof(digits);

	do {
		digits[--from] = (char)('0' + v % 10);
		v /= 10;
	} while (v > 0);
	return ring_put(buf, at, slice_make(digits + from, sizeof(digits) - from));
}

static void ring_copy_in(struct ring_area *area, uint64_t pos, struct slice s)
{
	size_t at = pos % AUDIT_RING_BYTES;
	size_t first = AUDIT_RING_BYTES - at;

	if (first > s.len)
		first = s.len;
	memcpy(area->bytes + at, s.p, first);
	if (s.len > first)
		memcpy(area->bytes, s.p + first, s.len - first);
}

void ring_commit(struct ring *r, struct slice body, const struct ring_source *src)
{
	const struct ring_state *now = ring_state(r);
	struct ring_state *next = ring_next(r);
	size_t len;

	REQUIRE(body.len <= EVENT_JSON_MAX && ring_fits(r, body.len));
	len = ring_put(r->line, 0, SLICE(RING_PREFIX));
	len = ring_put_u64(r->line, len, now->seq + 1);
	len = ring_put(r->line, len, SLICE(","));
	len = ring_put(r->line, len, body);
	len = ring_put(r->line, len, SLICE(RING_PREV));
	len = ring_put(r->line, len, slice_make(now->hash, RING_HEX_LEN));
	len = ring_put(r->line, len, SLICE(RING_SUFFIX));
	r->line[len] = '\n';
	ring_copy_in(r->area, now->head, slice_make(r->line, len + 1));
	ring_line_hash(r, slice_make(r->line, len), next->hash);
	next->head = now->head + len + 1;
	next->seq = now->seq + 1;
	next->src = *src;
	ring_flip(r);
}

void ring_cursor_open(struct ring *r, enum ring_cursor c)
{
	/* One that was closed for long may stand where newer lines are now. */
	if (ring_head(r) - r->area->cursor[c] > AUDIT_RING_BYTES)
		ring_cursor_set(r, c, ring_head(r));
	r->open[c] = true;
}

void ring_cursor_close(struct ring *r, enum ring_cursor c)
{
	r->open[c] = false;
}

uint64_t ring_cursor(const struct ring *r, enum ring_cursor c)
{
	return r->area->cursor[c];
}

void ring_cursor_set(struct ring *r, enum ring_cursor c, uint64_t to)
{
	state_store(&r->area->cursor[c], to);
}

static char ring_byte(const struct ring *r, uint64_t pos)
{
	return r->area->bytes[pos % AUDIT_RING_BYTES];
}

/* Where the next line begins, from any byte of a line on. */
static uint64_t ring_line_after(const struct ring *r, uint64_t pos)
{
	while (ring_byte(r, pos) != '\n')
		pos++;
	return pos + 1;
}

/* The number in the line that begins here. */
static uint64_t ring_line_seq(const struct ring *r, uint64_t pos)
{
	uint64_t seq = 0;
	char c;

	for (pos += sizeof(RING_PREFIX) - 1; (c = ring_byte(r, pos)) >= '0' && c <= '9'; pos++)
		seq = seq * 10 + (uint64_t)(c - '0');
	return seq;
}

/* Where the oldest whole line begins. One that was being written in a crash may lie behind the
 * head, over the oldest ones. */
static uint64_t ring_low(const struct ring *r)
{
	uint64_t written = ring_head(r) + RING_LINE_MAX;

	return written <= AUDIT_RING_BYTES ? 0 : ring_line_after(r, written - AUDIT_RING_BYTES);
}

uint64_t ring_oldest(const struct ring *r)
{
	uint64_t low = ring_low(r);

	return low == ring_head(r) ? ring_seq(r) + 1 : ring_line_seq(r, low);
}

bool ring_find(const struct ring *r, uint64_t seq, uint64_t *pos)
{
	uint64_t at = ring_low(r); /* the line that begins here is not behind the one asked for */
	uint64_t end = ring_head(r);

	if (seq > ring_seq(r) + 1 || seq < ring_oldest(r))
		return false;
	if (seq == ring_seq(r) + 1)
		at = end;
	while (at < end && ring_line_seq(r, at) < seq) {
		uint64_t mid = ring_line_after(r, at + (end - at) / 2);

		if (mid < end && ring_line_seq(r, mid) > seq)
			end = mid;
		else
			at = mid < end ? mid : ring_line_after(r, at);
	}
	*pos = at;
	return true;
}

bool ring_cursor_seek(struct ring *r, enum ring_cursor c, uint64_t seq)
{
	uint64_t pos;

	if (!ring_find(r, seq + 1, &pos))
		return false;
	ring_cursor_set(r, c, pos);
	return true;
}

int ring_view(const struct ring *r, uint64_t from, struct iovec iov[2])
{
	size_t len = (size_t)(ring_head(r) - from);
	size_t at = from % AUDIT_RING_BYTES;
	size_t first = AUDIT_RING_BYTES - at;

	if (len == 0)
		return 0;
	if (first > len)
		first = len;
	iov[0] = (struct iovec){r->area->bytes + at, first};
	if (len == first)
		return 1;
	iov[1] = (struct iovec){r->area->bytes, len - first};
	return 2;
}

size_t ring_whole(const struct ring *r, uint64_t from, size_t n)
{
	while (n > 0 && ring_byte(r, from + n - 1) != '\n')
		n--;
	return n;
}

uint32_t ring_copy_lines(const struct ring *r, uint64_t from, uint32_t max, struct strbuf *out)
{
	uint64_t to = from;
	uint32_t n;

	for (n = 0; n < max && to < ring_head(r); n++) {
		uint64_t next = ring_line_after(r, to);

		if (next - from > out->max - out->len)
			break;
		to = next;
	}
	while (from < to) {
		size_t at = from % AUDIT_RING_BYTES;
		size_t len = AUDIT_RING_BYTES - at;

		if (len > to - from)
			len = (size_t)(to - from);
		strbuf_add(out, slice_make(r->area->bytes + at, len));
		from += len;
	}
	return n;
}

bool ring_line_parse(struct slice line, uint64_t *seq, struct slice *prev)
{
	const struct slice tail = SLICE(RING_SUFFIX);
	struct slice s = line;
	size_t comma;

	if (!slice_starts(s, SLICE(RING_PREFIX)) || !slice_ends(s, tail))
		return false;
	s = slice_from(s, sizeof(RING_PREFIX) - 1);
	comma = slice_find_char(s, ',');
	if (comma == s.len || !slice_to_u64(slice_first(s, comma), seq) || *seq == 0)
		return false;
	s = slice_from(s, comma);
	if (s.len < sizeof(RING_PREV) - 1 + RING_HEX_LEN + tail.len)
		return false;
	s = slice_from(s, s.len - tail.len - RING_HEX_LEN - (sizeof(RING_PREV) - 1));
	if (!slice_starts(s, SLICE(RING_PREV)))
		return false;
	*prev = slice_make(s.p + sizeof(RING_PREV) - 1, RING_HEX_LEN);
	for (size_t i = 0; i < RING_HEX_LEN; i++) {
		if (ascii_hex(prev->p[i]) < 0)
			return false;
	}
	return true;
}

struct ring_sha *ring_sha_new(void)
{
	struct ring_sha *h = xcalloc(1, sizeof(*h));

	h->ctx = EVP_MD_CTX_new();
	REQUIRE(h->ctx && EVP_DigestInit_ex(h->ctx, EVP_sha256(), NULL) == 1);
	return h;
}

void ring_sha_add(struct ring_sha *h, struct slice s)
{
	REQUIRE(EVP_DigestUpdate(h->ctx, s.p, s.len) == 1);
}

void ring_sha_end(struct ring_sha *h, char hex[RING_HEX_LEN])
{
	unsigned char md[EVP_MAX_MD_SIZE];

	REQUIRE(EVP_DigestFinal_ex(h->ctx, md, NULL) == 1);
	ring_to_hex(md, hex);
	EVP_MD_CTX_free(h->ctx);
	free(h);
}

void ring_sha_hex(struct slice s, char hex[RING_HEX_LEN])
{
	struct ring_sha *h = ring_sha_new();

	ring_sha_add(h, s);
	ring_sha_end(h, hex);
}
