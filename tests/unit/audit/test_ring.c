/* Committed lines: number, chain, room, cursors, and the state after a new start. */
#include "tests/unit/audit/trail.h"

#define BODY "\"ts\":\"x\""

static struct ring *ring_of(void **area)
{
	*area = trail_area(ring_area_size());
	return ring_new(*area);
}

static void ring_done(struct ring *r, void *area)
{
	ring_free(r);
	munmap(area, ring_area_size());
}

static void commit(struct ring *r, const char *body)
{
	struct ring_source src = {0};

	ring_commit(r, slice_str(body), &src);
}

/* The bytes from a position on, in one piece with a NUL. */
static char *view(const struct ring *r, uint64_t from)
{
	struct iovec iov[2];
	int n = ring_view(r, from, iov);
	char *text = calloc(1, AUDIT_RING_BYTES + 1);
	size_t at = 0;

	for (int i = 0; i < n; i++) {
		memcpy(text + at, iov[i].iov_base, iov[i].iov_len);
		at += iov[i].iov_len;
	}
	return text;
}

static void test_lines_are_numbered_and_chained(void **state)
{
	void *area;
	struct ring *r = ring_of(&area);
	char hash[RING_HEX_LEN + 1] = {0};
	char want[512];
	char *text;
	char *second;

	commit(r, BODY);
	commit(r, BODY ",\"a\":2");
	text = view(r, 0);
	second = strchr(text, '\n') + 1;
	ring_sha_hex(slice_make(text, (size_t)(second - text) - 1), hash);
	(void)snprintf(want, sizeof(want),
		"{\"v\":1,\"seq\":1," BODY ",\"prev\":"
		"\"0000000000000000000000000000000000000000000000000000000000000000\"}\n"
		"{\"v\":1,\"seq\":2," BODY ",\"a\":2,\"prev\":\"%s\"}\n",
		hash);
	assert_string_equal(text, want);
	assert_int_equal(ring_seq(r), 2);
	assert_int_equal(ring_head(r), strlen(want));
	free(text);
	ring_done(r, area);
}

static void test_sha_is_that_of_the_standard(void **state)
{
	char hex[RING_HEX_LEN];

	ring_sha_hex(SLICE("abc"), hex);
	assert_memory_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
		RING_HEX_LEN);
}

static void test_new_start_goes_on_with_number_chain_and_source(void **state)
{
	struct ring_source src = {.serial = 77, .staged_tail = 8};
	void *area;
	struct ring *r = ring_of(&area);
	char *text;
	char *second;
	struct slice prev;
	uint64_t seq;
	char hash[RING_HEX_LEN];

	ring_commit(r, SLICE(BODY), &src);
	ring_free(r);
	r = ring_new(area);
	assert_int_equal(ring_seq(r), 1);
	assert_int_equal(ring_source(r).serial, 77);
	assert_int_equal(ring_source(r).staged_tail, 8);
	commit(r, BODY);
	text = view(r, 0);
	second = strchr(text, '\n') + 1;
	ring_sha_hex(slice_make(text, (size_t)(second - text) - 1), hash);
	assert_true(ring_line_parse(slice_make(second, strlen(second) - 1), &seq, &prev));
	assert_int_equal(seq, 2);
	assert_true(slice_eq(prev, slice_make(hash, RING_HEX_LEN)));
	free(text);
	ring_done(r, area);
}

static void test_origin_sets_number_and_hash_before_the_first_line(void **state)
{
	static const char hash[] =
		"00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
	void *area;
	struct ring *r = ring_of(&area);
	char *text;

	ring_set_origin(r, 41, hash);
	commit(r, BODY);
	text = view(r, 0);
	assert_non_null(strstr(text, "\"seq\":42,"));
	assert_non_null(strstr(text, hash));
	free(text);
	ring_done(r, area);
}

static void test_without_a_sink_the_ring_is_never_full(void **state)
{
	void *area;
	struct ring *r = ring_of(&area);

	for (int i = 0; i < 60000; i++)
		commit(r, BODY);
	assert_true(ring_head(r) > AUDIT_RING_BYTES);
	assert_int_equal(ring_used(r), 0);
	assert_true(ring_fits(r, EVENT_JSON_MAX));
	ring_done(r, area);
}

static void test_slowest_open_cursor_decides_about_room(void **state)
{
	void *area;
	struct ring *r = ring_of(&area);
	uint64_t before = 0;

	ring_cursor_open(r, RING_FILE);
	ring_cursor_open(r, RING_STDOUT);
	while (ring_fits(r, sizeof(BODY) - 1)) {
		before = ring_head(r);
		commit(r, BODY);
	}
	assert_true(ring_used(r) <= AUDIT_RING_BYTES);
	assert_true(ring_used(r) > AUDIT_RING_BYTES - 2 * RING_LINE_MAX);
	ring_cursor_set(r, RING_FILE, before);
	assert_false(ring_fits(r, sizeof(BODY) - 1));
	ring_cursor_set(r, RING_STDOUT, ring_head(r));
	assert_int_equal(ring_used(r), ring_head(r) - before);
	assert_true(ring_fits(r, EVENT_JSON_MAX));
	ring_cursor_set(r, RING_FILE, 0);
	assert_false(ring_fits(r, sizeof(BODY) - 1));
	ring_cursor_close(r, RING_FILE);
	assert_int_equal(ring_used(r), 0);
	ring_done(r, area);
}

static void test_line_across_the_end_of_the_ring_is_whole(void **state)
{
	static char big[EVENT_JSON_MAX];
	void *area;
	struct ring *r = ring_of(&area);
	uint64_t from;
	char *text;

	memset(big, 'x', sizeof(big));
	while (ring_head(r) + RING_LINE_MAX < AUDIT_RING_BYTES) {
		struct ring_source src = {0};

		ring_commit(r, slice_make(big, sizeof(big)), &src);
	}
	commit(r, BODY);
	from = ring_head(r);
	while (ring_head(r) < AUDIT_RING_BYTES) {
		from = ring_head(r);
		commit(r, BODY);
	}
	assert_true(ring_head(r) % AUDIT_RING_BYTES != 0);
	text = view(r, from);
	assert_int_equal(strncmp(text, "{\"v\":1,\"seq\":", 13), 0);
	assert_int_equal(strlen(text), ring_head(r) - from);
	assert_int_equal(text[strlen(text) - 1], '\n');
	assert_int_equal(ring_whole(r, from, strlen(text)), strlen(text));
	assert_int_equal(ring_whole(r, from, strlen(text) - 1), 0);
	free(text);
	ring_done(r, area);
}

static void test_seek_finds_the_line_after_a_number(void **state)
{
	void *area;
	struct ring *r = ring_of(&area);
	uint64_t after[4] = {0};

	for (int i = 1; i < 4; i++) {
		commit(r, BODY);
		after[i] = ring_head(r);
	}
	for (uint64_t i = 0; i < 4; i++) {
		assert_true(ring_cursor_seek(r, RING_FILE, i));
		assert_int_equal(ring_cursor(r, RING_FILE), after[i]);
	}
	assert_false(ring_cursor_seek(r, RING_FILE, 4));
	assert_int_equal(ring_cursor(r, RING_FILE), after[3]);
	ring_done(r, area);
}

static void test_seek_does_not_find_lines_that_were_written_over(void **state)
{
	void *area;
	struct ring *r = ring_of(&area);
	uint64_t oldest = 0;

	for (int i = 0; i < 60000; i++)
		commit(r, BODY);
	assert_false(ring_cursor_seek(r, RING_FILE, 1));
	assert_true(ring_cursor_seek(r, RING_FILE, ring_seq(r) - 1000));
	for (uint64_t seq = ring_seq(r); ring_cursor_seek(r, RING_FILE, seq); seq -= 500)
		oldest = ring_cursor(r, RING_FILE);
	assert_true(ring_head(r) - oldest <= AUDIT_RING_BYTES - RING_LINE_MAX);
	ring_done(r, area);
}

/* All lines of the ring by their number, and where each begins. */
static void find_all(const struct ring *r)
{
	uint64_t oldest = ring_oldest(r);
	uint64_t first = 0;
	uint64_t want = 0;
	uint64_t pos;

	assert_true(oldest > 0 && ring_find(r, oldest, &first));
	want = first;
	for (uint64_t seq = oldest; seq <= ring_seq(r); seq++) {
		char digits[40];
		int n = snprintf(
			digits, sizeof(digits), "{\"v\":1,\"seq\":%llu,", (unsigned long long)seq);
		struct strbuf line;

		assert_true(ring_find(r, seq, &pos));
		assert_int_equal(pos, want);
		strbuf_init(&line, RING_LINE_MAX);
		assert_int_equal(ring_copy_lines(r, pos, 1, &line), 1);
		assert_int_equal(strncmp(strbuf_cstr(&line), digits, (size_t)n), 0);
		assert_int_equal(line.p[line.len - 1], '\n');
		want += line.len;
		strbuf_fini(&line);
	}
	assert_int_equal(want, ring_head(r));
	assert_true(ring_find(r, ring_seq(r) + 1, &pos));
	assert_int_equal(pos, ring_head(r));
	assert_false(ring_find(r, ring_seq(r) + 2, &pos));
	assert_false(ring_find(r, oldest - 1, &pos));
}

static void test_find_gives_the_beginning_of_every_line_that_is_there(void **state)
{
	static char body[EVENT_JSON_MAX];
	static const char hash[RING_HEX_LEN] = "";
	struct ring_source src = {0};
	void *area;
	struct ring *r = ring_of(&area);
	uint64_t pos;

	memset(body, 'x', sizeof(body));
	assert_int_equal(ring_oldest(r), 1);
	assert_true(ring_find(r, 1, &pos));
	assert_int_equal(pos, 0);
	assert_false(ring_find(r, 0, &pos));
	ring_set_origin(r, 99, hash);
	assert_int_equal(ring_oldest(r), 100);
	/* Lengths of every kind, three times round. */
	for (uint64_t i = 0; ring_head(r) < UINT64_C(3) * AUDIT_RING_BYTES; i++) {
		size_t len = i % 97 == 0 ? sizeof(body) : i * 7919 % 900;

		ring_commit(r, slice_make(body, len), &src);
		if (i == 0 || i == 10)
			find_all(r);
	}
	find_all(r);
	ring_done(r, area);
}

/* Up to the last byte that is written anew when the next line is torn. */
static void test_oldest_line_is_none_that_a_torn_one_may_lie_over(void **state)
{
	struct ring_source src = {0};
	static char body[EVENT_JSON_MAX];
	void *area;
	struct ring *r = ring_of(&area);
	uint64_t pos;

	memset(body, 'x', sizeof(body));
	while (ring_head(r) + RING_LINE_MAX <= AUDIT_RING_BYTES) {
		assert_int_equal(ring_oldest(r), 1);
		ring_commit(r, slice_make(body, 3000), &src);
	}
	assert_true(ring_oldest(r) > 1);
	for (int i = 0; i < 3000; i++) {
		assert_true(ring_find(r, ring_oldest(r), &pos));
		assert_true(ring_head(r) + RING_LINE_MAX - pos <= AUDIT_RING_BYTES);
		ring_commit(r, slice_make(body, 3000), &src);
	}
	ring_done(r, area);
}

static void test_copy_takes_whole_lines_up_to_either_limit(void **state)
{
	void *area;
	struct ring *r = ring_of(&area);
	struct strbuf out;
	uint64_t second = 0, third = 0;

	for (int i = 0; i < 3; i++)
		commit(r, BODY);
	assert_true(ring_find(r, 2, &second) && ring_find(r, 3, &third));
	strbuf_init(&out, RING_LINE_MAX);
	assert_int_equal(ring_copy_lines(r, 0, 0, &out), 0);
	assert_int_equal(ring_copy_lines(r, 0, 2, &out), 2);
	assert_int_equal(out.len, third);
	strbuf_clear(&out);
	assert_int_equal(ring_copy_lines(r, second, 100, &out), 2);
	assert_int_equal(out.len, ring_head(r) - second);
	strbuf_clear(&out);
	assert_int_equal(ring_copy_lines(r, ring_head(r), 100, &out), 0);
	strbuf_fini(&out);
	strbuf_init(&out, (size_t)third);
	assert_int_equal(ring_copy_lines(r, 0, 100, &out), 2);
	strbuf_fini(&out);
	strbuf_init(&out, (size_t)third - 1);
	assert_int_equal(ring_copy_lines(r, 0, 100, &out), 1);
	assert_false(out.full);
	strbuf_fini(&out);
	ring_done(r, area);
}

static void test_cursor_that_was_closed_too_long_starts_at_the_head(void **state)
{
	void *area;
	struct ring *r = ring_of(&area);

	for (int i = 0; i < 60000; i++)
		commit(r, BODY);
	ring_cursor_open(r, RING_FILE);
	assert_int_equal(ring_cursor(r, RING_FILE), ring_head(r));
	ring_done(r, area);
}

static void test_line_parse_takes_our_lines_only(void **state)
{
#define H "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	static const struct {
		const char *line;
		uint64_t seq;
	} rows[] = {
		{"{\"v\":1,\"seq\":1,\"a\":2,\"prev\":\"" H "\"}", 1},
		{"{\"v\":1,\"seq\":18446744073709551615,\"prev\":\"" H "\"}", UINT64_MAX},
		{"{\"v\":1,\"seq\":18446744073709551616,\"prev\":\"" H "\"}", 0},
		{"{\"v\":1,\"seq\":0,\"prev\":\"" H "\"}", 0},
		{"{\"v\":1,\"seq\":-1,\"prev\":\"" H "\"}", 0},
		{"{\"v\":2,\"seq\":1,\"prev\":\"" H "\"}", 0},
		{"{\"v\":1,\"seq\":1,\"prev\":\"" H "\"} ", 0},
		{"{\"v\":1,\"seq\":1,\"prev\":\"" H "0\"}", 0},
		{"{\"v\":1,\"seq\":1,\"prev\":\"x" H "\"}", 0},
		{"{\"v\":1,\"seq\":1,\"prev\":"
		 "\"g123456789abcdef0123456789abcdef0123456789abcdef01234"
		 "56789abcdef\"}",
			0},
		{"{\"v\":1,\"seq\":1,\"" H "\"}", 0},
		{"{\"v\":1,\"seq\":1\"}", 0},
		{"{\"v\":1,\"seq\":\"}", 0},
		{"", 0},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct slice prev = SLICE_EMPTY;
		uint64_t seq = 0;
		bool ok = ring_line_parse(slice_str(rows[i].line), &seq, &prev);

		assert_int_equal(ok, rows[i].seq != 0);
		if (ok) {
			assert_int_equal(seq, rows[i].seq);
			assert_true(slice_eq(prev, SLICE(H)));
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lines_are_numbered_and_chained),
		cmocka_unit_test(test_sha_is_that_of_the_standard),
		cmocka_unit_test(test_new_start_goes_on_with_number_chain_and_source),
		cmocka_unit_test(test_origin_sets_number_and_hash_before_the_first_line),
		cmocka_unit_test(test_without_a_sink_the_ring_is_never_full),
		cmocka_unit_test(test_slowest_open_cursor_decides_about_room),
		cmocka_unit_test(test_line_across_the_end_of_the_ring_is_whole),
		cmocka_unit_test(test_seek_finds_the_line_after_a_number),
		cmocka_unit_test(test_seek_does_not_find_lines_that_were_written_over),
		cmocka_unit_test(test_find_gives_the_beginning_of_every_line_that_is_there),
		cmocka_unit_test(test_oldest_line_is_none_that_a_torn_one_may_lie_over),
		cmocka_unit_test(test_copy_takes_whole_lines_up_to_either_limit),
		cmocka_unit_test(test_cursor_that_was_closed_too_long_starts_at_the_head),
		cmocka_unit_test(test_line_parse_takes_our_lines_only),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
