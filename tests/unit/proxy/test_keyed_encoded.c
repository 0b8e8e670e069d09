/* Answers of bound hosts that come in gzip or deflate: they are searched decoded, within limits,
 * and go on only as far as their text was searched. */
#include <zlib.h>

#include "proxy/keyed.h"
#include "tests/unit/proxy/keyed_answer_bed.h"

#define BOMB_MAX (KEYED_FREE_BYTES + (1u << 20))

/* bits: 15 zlib, 31 gzip, -15 neither. Returns the length. */
static size_t pack(int bits, struct slice text, char *out, size_t size)
{
	z_stream z = {.next_in = (Bytef *)(uintptr_t)text.p, .avail_in = (uInt)text.len};

	assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, bits, 8, Z_DEFAULT_STRATEGY), Z_OK);
	z.next_out = (Bytef *)out;
	z.avail_out = (uInt)size;
	assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
	deflateEnd(&z);
	return size - z.avail_out;
}

/* What a client makes of the bytes that it got. */
static void unpack(struct slice packed, struct gathered *g)
{
	z_stream z = {.next_in = (Bytef *)(uintptr_t)packed.p, .avail_in = (uInt)packed.len};
	int ret = Z_OK;

	assert_int_equal(inflateInit2(&z, 15 + 32), Z_OK);
	z.next_out = (Bytef *)g->text;
	z.avail_out = (uInt)g->room;
	while (ret == Z_OK && z.avail_in > 0) {
		ret = inflate(&z, Z_SYNC_FLUSH);
		if (ret == Z_STREAM_END && z.avail_in > 0)
			ret = inflateReset(&z);
	}
	inflateEnd(&z);
	g->len = g->room - z.avail_out;
}

/* Not even the first half of a key is in what a client got. */
static void check_unseen(struct slice got)
{
	char room[4096];
	struct gathered g = {0, room, sizeof(room)};

	unpack(got, &g);
	assert_int_equal(slice_find(slice_make(room, g.len), SLICE("sk-real-0001")), g.len);
}

/* Packed content in pieces: does it pass, and as it came? */
static bool passes(struct keyed_bed *b, const char *coding, struct slice packed, size_t size)
{
	struct gathered g = {0, xmalloc(packed.len + 1), packed.len};
	struct answer a;
	char fields[64];
	bool ok;

	(void)snprintf(fields, sizeof(fields), "Content-Encoding: %s\r\n", coding);
	answer(b, "api.test", "GET", "200 OK", fields, &a);
	assert_int_equal(a.reason, REASON_ALLOWED);
	ok = feed(b, packed, size, &g);
	if (ok) {
		assert_int_equal(g.len, packed.len);
		assert_memory_equal(g.text, packed.p, packed.len);
	} else {
		check_unseen(slice_make(g.text, g.len));
	}
	free(g.text);
	return ok;
}

static void test_encoded_content_is_searched_decoded(void **state)
{
	static const struct {
		const char *coding;
		int bits;
		const char *text;
		bool want;
	} rows[] = {
		{"gzip", 31, "nothing", true},
		{"gzip", 31, "a " KEY " b", false},
		{"gzip", 31, KEY, false},
		{"x-gzip", 31, "a " OTHER, false},
		{"deflate", 15, "nothing", true},
		{"deflate", 15, "a " KEY " b", false},
		{"gzip", 31, "", true},
		/* what is not what it says cannot be searched */
		{"gzip", -15, "nothing at all", false},
		{"deflate", -15, "nothing at all", false},
	};
	struct keyed_bed *b = *state;
	char packed[512];

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		size_t len = pack(rows[i].bits, slice_str(rows[i].text), packed, sizeof(packed));

		for (size_t size = 1; size <= 512; size *= 8)
			if (passes(b, rows[i].coding, slice_make(packed, len), size) !=
				rows[i].want)
				fail_msg("row %zu in %zu", i, size);
	}
	assert_false(passes(b, "gzip", SLICE("no gzip at all, plain text"), 512));
	assert_true(passes(b, "gzip", SLICE_EMPTY, 512));
}

/* A text of zeros with one key at its very end, and the same without. */
static void test_key_behind_a_long_encoded_text_is_found(void **state)
{
	struct keyed_bed *b = *state;
	size_t size = 4 * IO_RECORD;
	char *text = xcalloc(1, size), *packed = xmalloc(size);

	/* ends at, before and behind the end of what is decoded at a time */
	for (int off = -30; off <= 30; off += 5) {
		size_t end = 2 * IO_RECORD + (size_t)(off + 30) - 30, len;

		memset(text, 0, size);
		memcpy(text + end - strlen(KEY), KEY, strlen(KEY));
		len = pack(31, slice_make(text, end), packed, size);
		assert_false(passes(b, "gzip", slice_make(packed, len), size));
		text[end - 1] ^= 1;
		len = pack(31, slice_make(text, end), packed, size);
		assert_true(passes(b, "gzip", slice_make(packed, len), size));
	}
	free(text);
	free(packed);
}

/* Readers put gzip members together (RFC 1952 2.2): a key may be cut by their border. */
static void test_key_in_two_gzip_members_is_found(void **state)
{
	static const char *const cuts[][2] = {
		{"a " KEY, "b"},
		{"a", KEY " b"},
		{"a sk-real-0001", "-AAAABBBBCCCC b"},
		{"s", "k-real-0001-AAAABBBBCCCC"},
	};
	struct keyed_bed *b = *state;
	char packed[512];
	size_t len;

	for (size_t i = 0; i < ARRAY_LEN(cuts); i++) {
		len = pack(31, slice_str(cuts[i][0]), packed, sizeof(packed));
		len += pack(31, slice_str(cuts[i][1]), packed + len, sizeof(packed) - len);
		for (size_t size = 1; size <= 512; size *= 8)
			if (passes(b, "gzip", slice_make(packed, len), size))
				fail_msg("row %zu in %zu", i, size);
	}
	len = pack(31, SLICE("one"), packed, sizeof(packed));
	len += pack(31, SLICE("two"), packed + len, sizeof(packed) - len);
	assert_true(passes(b, "gzip", slice_make(packed, len), 512));
	assert_true(passes(b, "gzip", slice_make(packed, len), 1));
}

/* A text in parts, each flushed by the origin: what a client can have after each. */
static void test_encoded_bytes_wait_for_their_text(void **state)
{
	static const struct {
		const char *part;
		bool passes; /* all so far is with the client */
	} parts[] = {
		{"data: one\n\n", true}, /* an event: nothing of it can be a key */
		{"data: sk-real-", false},
		{"0001-AAA", false},
		{"A something else\n\n", true},
		{"data: abc", false},
	};
	struct keyed_bed *b = *state;
	char packed[512], room[512];
	struct gathered g = {0, room, sizeof(room)};
	z_stream z = {.next_out = (Bytef *)packed, .avail_out = sizeof(packed)};
	struct answer a;

	assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY), Z_OK);
	answer(b, "api.test", "GET", "200 OK", "Content-Encoding: gzip\r\n", &a);
	for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
		Bytef *before = z.next_out;

		z.next_in = (Bytef *)(uintptr_t)parts[i].part;
		z.avail_in = (uInt)strlen(parts[i].part);
		assert_int_equal(deflate(&z, Z_SYNC_FLUSH), Z_OK);
		assert_true(keyed_content(&b->ex,
			slice_make((char *)before, (size_t)(z.next_out - before)), false,
			gathered_put, &g));
		if ((g.len == sizeof(packed) - z.avail_out) != parts[i].passes)
			fail_msg("part %zu: %zu bytes", i, g.len);
		if (i == 2)
			check_unseen(slice_make(room, g.len));
	}
	assert_true(keyed_content(&b->ex, SLICE_EMPTY, true, gathered_put, &g));
	assert_int_equal(g.len, sizeof(packed) - z.avail_out);
	assert_memory_equal(room, packed, g.len);
	deflateEnd(&z);
}

/* One run of token characters, of which the last are always held back, passes all the same. */
static void test_long_encoded_run_of_token_characters_passes(void **state)
{
	struct keyed_bed *b = *state;
	size_t size = 1u << 20;
	char *text = xmalloc(size), *packed = xmalloc(size + 4096);
	uint32_t x = 1;
	size_t len;

	for (size_t i = 0; i < size; i++) {
		x = x * 1664525 + 1013904223;
		text[i] = (char)('a' + (x >> 24) % 26);
	}
	len = pack(31, slice_make(text, size), packed, size + 4096);
	for (size_t piece = 100; piece <= IO_RECORD; piece = piece == 100 ? 5000 : piece + 11384)
		assert_true(passes(b, "gzip", slice_make(packed, len), piece));
	memcpy(text + size / 2, KEY, strlen(KEY));
	len = pack(31, slice_make(text, size), packed, size + 4096);
	assert_false(passes(b, "gzip", slice_make(packed, len), IO_RECORD));
	free(text);
	free(packed);
}

/* Stored blocks without a byte in them (RFC 1951 3.2.4), behind half a word. */
static void test_encoded_bytes_wait_up_to_a_limit(void **state)
{
	struct keyed_bed *b = *state;
	char head[128], block[5] = {0, 0, 0, (char)0xff, (char)0xff};
	struct gathered g = {0, xmalloc(1), 0};
	z_stream z = {.next_in = (Bytef *)(uintptr_t) "abc",
		.avail_in = 3,
		.next_out = (Bytef *)head,
		.avail_out = sizeof(head)};
	struct answer a;
	size_t used;

	assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY), Z_OK);
	assert_int_equal(deflate(&z, Z_SYNC_FLUSH), Z_OK);
	used = sizeof(head) - z.avail_out;
	deflateEnd(&z);
	answer(b, "api.test", "GET", "200 OK", "Content-Encoding: gzip\r\n", &a);
	assert_true(keyed_content(&b->ex, slice_make(head, used), false, gathered_put, &g));
	for (; used + sizeof(block) <= KEYED_BEHIND_MAX; used += sizeof(block))
		assert_true(keyed_content(
			&b->ex, slice_make(block, sizeof(block)), false, gathered_put, &g));
	/* to the last byte, and one more */
	used = KEYED_BEHIND_MAX - used;
	assert_true(keyed_content(&b->ex, slice_make(block, used), false, gathered_put, &g));
	assert_false(keyed_content(&b->ex, slice_make(block + used, 1), false, gathered_put, &g));
	free(g.text);
}

/* zeros, packed, behind a gzip header that is as long as it takes to make the whole `total` bytes
 * (0: as short as it gets). Returns the length. */
static size_t pack_zeros(size_t zeros, size_t total, char *out, size_t size)
{
	char *text = xcalloc(1, zeros), *body = xmalloc(size);
	size_t len = pack(31, slice_make(text, zeros), body, size), at = 10;

	memcpy(out, body, 10);
	if (total > 0) {
		out[3] = 0x10; /* FCOMMENT: text up to a NUL */
		while (at + 1 + len - 10 < total)
			out[at++] = 'c';
		out[at++] = '\0';
	}
	memcpy(out + at, body + 10, len - 10);
	free(text);
	free(body);
	return at + len - 10;
}

static void test_answer_may_unfold_so_far(void **state)
{
	const size_t size = BOMB_MAX / 16;
	const size_t piece = 45000; /* the last one holds all that unfolds */
	struct keyed_bed *b = *state;
	char *packed = xmalloc(size);
	static const struct {
		size_t zeros, total;
		bool want;
	} rows[] = {
		/* a first part may be anything */
		{KEYED_FREE_BYTES, 0, true},
		{KEYED_FREE_BYTES + 1, 0, false},
		/* beyond it, so many times its size */
		{BOMB_MAX, BOMB_MAX / KEYED_RATIO_MAX, true},
		{BOMB_MAX, BOMB_MAX / KEYED_RATIO_MAX - 1, false},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		size_t len = pack_zeros(rows[i].zeros, rows[i].total, packed, size);

		if (rows[i].total > 0)
			assert_int_equal(len, rows[i].total);
		if (passes(b, "gzip", slice_make(packed, len), piece) != rows[i].want)
			fail_msg("row %zu", i);
	}
	free(packed);
}

/* Window and decoded text lie in locked memory; without room for them there is no answer. */
static void test_without_locked_memory_an_encoded_answer_does_not_pass(void **state)
{
	struct keyed_bed *b = *state;
	void *rest[1024];
	struct answer a;
	size_t n = 0;

	answer(b, "api.test", "GET", "200 OK", "Content-Encoding: gzip\r\n", &a);
	assert_int_equal(a.reason, REASON_ALLOWED);
	assert_true(secmem_holds(b->f.mem, b->ex.keyed.unfolded));
	assert_true(secmem_holds(b->f.mem, b->ex.keyed.behind));
	assert_true(secmem_holds(b->f.mem, b->ex.keyed.inflate->state));
	keyed_bed_request(b, "api.test", "GET /v1/x", "");
	for (size_t size = 1u << 20; size >= 16; size /= 2)
		while (n < ARRAY_LEN(rest) && (rest[n] = secmem_alloc(b->f.mem, size)) != NULL)
			n++;
	answer(b, "api.test", "GET", "200 OK", "Content-Encoding: gzip\r\n", &a);
	assert_int_equal(a.reason, REASON_ENCODED_ANSWER);
	answer(b, "api.test", "GET", "200 OK", "", &a);
	assert_int_equal(a.reason, REASON_OVERLOADED);
	answer(b, "api.test", "GET", "101 Switching Protocols", "", &a);
	assert_int_equal(a.reason, REASON_OVERLOADED);
	while (n > 0)
		secmem_release(b->f.mem, rest[--n]);
	answer(b, "api.test", "GET", "200 OK", "Content-Encoding: gzip\r\n", &a);
	assert_int_equal(a.reason, REASON_ALLOWED);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, keyed_bed_open, keyed_bed_close)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_encoded_content_is_searched_decoded),
		TEST(test_key_behind_a_long_encoded_text_is_found),
		TEST(test_key_in_two_gzip_members_is_found),
		TEST(test_encoded_bytes_wait_for_their_text),
		TEST(test_long_encoded_run_of_token_characters_passes),
		TEST(test_encoded_bytes_wait_up_to_a_limit),
		TEST(test_answer_may_unfold_so_far),
		TEST(test_without_locked_memory_an_encoded_answer_does_not_pass),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
