/* Answers of bound hosts: keys in names, values, reason, content and trailers are overwritten, and
 * what is in a coding that cannot be searched does not pass. */
#include "proxy/keyed.h"

#include "tests/unit/proxy/keyed_answer_bed.h"

static void fields_text(const struct fields *f, char *out, size_t size)
{
	size_t n = 0;

	out[0] = '\0';
	for (size_t i = 0; i < f->n; i++)
		n += (size_t)snprintf(out + n, size - n, "%.*s: %.*s\n", SLICE_FMT(f->v[i].name),
			SLICE_FMT(f->v[i].value));
}

static void test_keys_in_a_head_are_overwritten(void **state)
{
	static const struct {
		const char *host, *line, *fields, *reason, *want;
	} rows[] = {
		{"api.test", "200 OK", "X: a " KEY " b\r\n", "OK", "X: a " STARS " b\n"},
		{"api.test", "200 OK", "A: 1\r\n" KEY ": 2\r\nB: 3\r\n", "OK",
			"A: 1\n" STARS ": 2\nB: 3\n"},
		{"api.test", "500 no " KEY " here", "A: 1\r\n", "no " STARS " here", "A: 1\n"},
		{"api.test", "302 Found", "Location: /?k=sk-REAL-0001-aaaabbbbCCCC\r\n", "Found",
			"Location: /?k=" STARS "\n"},
		/* any key of the vault, whatever the request's binding */
		{"api.test", "200 OK", "X: " OTHER "\r\n", "OK", "X: " STARS "\n"},
		{"http://api.test", "200 OK", "X: " KEY "\r\n", "OK", "X: " STARS "\n"},
		{"api.test", "200 OK", "Set-Cookie: a=" KEY "\r\nSet-Cookie: b=2\r\n", "OK",
			"Set-Cookie: a=" STARS "\nSet-Cookie: b=2\n"},
		{"api.test", "103 Early Hints", "Link: <" KEY ">\r\n", "Early Hints",
			"Link: <" STARS ">\n"},
		{"api.test", "101 Switching " KEY, "X: " KEY "\r\n", "Switching " STARS,
			"X: " STARS "\n"},
		{"api.test", "304 Not Modified", "X: " KEY "\r\n", "Not Modified",
			"X: " STARS "\n"},
		{"free.test", "200 OK", "X: " KEY "\r\n", "OK", "X: " KEY "\n"},
	};
	struct keyed_bed *b = *state;
	struct answer a;
	char text[1024];

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		answer(b, rows[i].host, "GET", rows[i].line, rows[i].fields, &a);
		fields_text(&a.head.fields, text, sizeof(text));
		if (a.reason != REASON_ALLOWED || strcmp(text, rows[i].want) != 0 ||
			!slice_eq(a.head.reason, slice_str(rows[i].reason)))
			fail_msg("row %zu: %.*s, %s", i, SLICE_FMT(a.head.reason), text);
	}
}

static void test_digests_go_and_validators_of_what_was_altered(void **state)
{
	static const char fields[] =
		"Digest: a\r\nETag: \"1\"\r\nContent-Digest: b\r\nLast-Modified: c\r\n"
		"Repr-Digest: d\r\ncontent-MD5: e\r\nX: 1\r\n";
	static const struct {
		const char *host, *more, *want;
	} rows[] = {
		{"api.test", "", "ETag: \"1\"\nLast-Modified: c\nX: 1\n"},
		{"api.test", "Y: " KEY "\r\n", "X: 1\nY: " STARS "\n"},
		{"free.test", "",
			"Digest: a\nETag: \"1\"\nContent-Digest: b\nLast-Modified: c\n"
			"Repr-Digest: d\ncontent-MD5: e\nX: 1\n"},
	};
	struct keyed_bed *b = *state;
	struct answer a;
	char text[1024], all[1024];

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		(void)snprintf(all, sizeof(all), "Content-Length: 1\r\n%s%s", fields, rows[i].more);
		answer(b, rows[i].host, "GET", "200 OK", all, &a);
		fields_text(&a.head.fields, text, sizeof(text));
		assert_string_equal(text + strlen("Content-Length: 1\n"), rows[i].want);
	}
}

static void test_coding_that_cannot_be_searched_does_not_pass(void **state)
{
	static const struct {
		const char *host, *line, *fields;
		enum reason want;
		bool decoded;
	} rows[] = {
		{"api.test", "200 OK", "", REASON_ALLOWED, false},
		{"api.test", "200 OK", "Content-Encoding: identity\r\n", REASON_ALLOWED, false},
		{"api.test", "200 OK", "Content-Encoding: \r\n", REASON_ALLOWED, false},
		{"api.test", "200 OK", "Content-Encoding: gzip\r\n", REASON_ALLOWED, true},
		{"api.test", "200 OK", "Content-Encoding: X-GZIP\r\n", REASON_ALLOWED, true},
		{"api.test", "200 OK", "Content-Encoding: deflate\r\n", REASON_ALLOWED, true},
		{"api.test", "200 OK", "Content-Encoding: identity, gzip\r\n", REASON_ALLOWED,
			true},
		{"api.test", "200 OK", "Content-Encoding: br\r\n", REASON_ENCODED_ANSWER, false},
		{"api.test", "200 OK", "Content-Encoding: zstd\r\n", REASON_ENCODED_ANSWER, false},
		{"api.test", "200 OK", "Content-Encoding: compress\r\n", REASON_ENCODED_ANSWER,
			false},
		{"api.test", "200 OK", "Content-Encoding: gzip, gzip\r\n", REASON_ENCODED_ANSWER,
			false},
		{"api.test", "200 OK",
			"Content-Encoding: gzip\r\nA: 1\r\nContent-Encoding: deflate\r\n",
			REASON_ENCODED_ANSWER, false},
		{"api.test", "200 OK", "Content-Encoding: gzip, br\r\n", REASON_ENCODED_ANSWER,
			false},
		{"api.test", "404 No", "Content-Encoding: br\r\n", REASON_ENCODED_ANSWER, false},
		/* without content there is nothing to search */
		{"api.test", "304 Not Modified", "Content-Encoding: br\r\n", REASON_ALLOWED, false},
		{"api.test", "204 No", "Content-Encoding: br\r\n", REASON_ALLOWED, false},
		{"free.test", "200 OK", "Content-Encoding: br\r\n", REASON_ALLOWED, false},
	};
	struct keyed_bed *b = *state;
	struct answer a;

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		answer(b, rows[i].host, "GET", rows[i].line, rows[i].fields, &a);
		if (a.reason != rows[i].want || !b->ex.keyed.inflate == rows[i].decoded)
			fail_msg("row %zu: %s", i, reason_name(a.reason));
	}
	answer(b, "api.test", "HEAD", "200 OK", "Content-Encoding: br\r\n", &a);
	assert_int_equal(a.reason, REASON_ALLOWED);
}

static void test_keys_in_content_are_overwritten_however_it_is_cut(void **state)
{
	static const struct {
		const char *host, *content, *want;
	} rows[] = {
		{"api.test", "a " KEY " b", "a " STARS " b"},
		{"api.test", KEY, STARS},
		{"api.test", KEY KEY OTHER, STARS STARS STARS},
		{"api.test", "nothing", "nothing"},
		{"api.test", "", ""},
		{"api.test", "a sk-real-0001-AAAABBBBCCC", "a sk-real-0001-AAAABBBBCCC"},
		{"free.test", "a " KEY " b", "a " KEY " b"},
	};
	char room[256];
	struct gathered g = {0, room, sizeof(room)};
	struct keyed_bed *b = *state;
	struct answer a;

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		for (size_t size = 1; size < 90; size += 1 + size / 2) {
			answer(b, rows[i].host, "GET", "200 OK", "", &a);
			assert_true(feed(b, slice_str(rows[i].content), size, &g));
			if (!slice_eq(slice_make(room, g.len), slice_str(rows[i].want)))
				fail_msg("row %zu in %zu: %.*s", i, size, (int)g.len, room);
		}
	}
}

/* Frames behind a 101 are searched; nothing else of an informational head begins a search. */
static void test_frames_after_an_upgrade_are_searched(void **state)
{
	char room[256];
	struct gathered g = {0, room, sizeof(room)};
	struct keyed_bed *b = *state;
	struct answer a;

	answer(b, "api.test", "GET", "101 Switching Protocols", "", &a);
	assert_int_equal(a.reason, REASON_ALLOWED);
	assert_true(b->ex.keyed.redacting);
	assert_true(feed(b, SLICE("x" KEY "\n"), 3, &g));
	assert_true(slice_eq(slice_make(room, g.len), SLICE("x" STARS "\n")));
	answer(b, "api.test", "GET", "103 Early Hints", "", &a);
	assert_false(b->ex.keyed.redacting);
}

static void test_keys_in_trailers_are_overwritten(void **state)
{
	struct keyed_bed *b = *state;
	struct fields *f = xcalloc(1, sizeof(*f));
	char text[] = KEY ": 1\r\nX: a " KEY "\r\n";
	const size_t first = sizeof(KEY) - 1, line = first + sizeof(": 1\r\n") - 1;
	struct answer a;

	f->n = 2;
	f->v[0] = (struct field){
		slice_make(text, first), slice_make(text + first + 2, 1), FIELD_OTHER};
	f->v[1] = (struct field){slice_make(text + line, 1),
		slice_make(text + line + 3, sizeof("a " KEY) - 1), FIELD_OTHER};
	answer(b, "free.test", "GET", "200 OK", "", &a);
	keyed_trailers(&b->ex, f);
	assert_string_equal(text, KEY ": 1\r\nX: a " KEY "\r\n");
	answer(b, "api.test", "GET", "200 OK", "", &a);
	keyed_trailers(&b->ex, NULL);
	keyed_trailers(&b->ex, f);
	assert_string_equal(text, STARS ": 1\r\nX: a " STARS "\r\n");
	free(f);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, keyed_bed_open, keyed_bed_close)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_keys_in_a_head_are_overwritten),
		TEST(test_digests_go_and_validators_of_what_was_altered),
		TEST(test_coding_that_cannot_be_searched_does_not_pass),
		TEST(test_keys_in_content_are_overwritten_however_it_is_cut),
		TEST(test_frames_after_an_upgrade_are_searched),
		TEST(test_keys_in_trailers_are_overwritten),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
