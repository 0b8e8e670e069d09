/* HTTP/1.1 bodies. Each row is read whole, cut at every byte, and byte by byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/err.h"
#include "proxy/h1.h"

#define CHECK(row, x) check((x), (row)->fact, #x)

static void check(bool ok, const char *fact, const char *what)
{
	if (!ok)
		fail_msg("%s: %s", fact, what);
}

#define R(text)                          \
	{                                \
		(text), sizeof(text) - 1 \
	}

struct body_row {
	const char *fact;
	enum h1_framing framing;
	uint64_t length;
	struct slice in;
	enum h1_body_result want; /* END, MORE or ERROR */
	enum h1_error error;
	const char *content;
	const char *rest; /* END: what follows */
	const char *trailers;
};

#define CH H1_CHUNKED, 0
#define ENDS H1_BODY_END, H1_OK
#define MORE H1_BODY_MORE, H1_OK
#define FAILS(e) H1_BODY_ERROR, H1_##e
#define LAST "0\r\n\r\n"

static const struct body_row bodies[] = {
	{"no content", H1_NO_CONTENT, 0, R("GET"), ENDS, "", "GET", ""},
	{"length zero", H1_LENGTH, 0, R("GET"), ENDS, "", "GET", ""},
	{"length", H1_LENGTH, 3, R("abcGET"), ENDS, "abc", "GET", ""},
	{"length, nothing behind", H1_LENGTH, 3, R("abc"), ENDS, "abc", "", ""},
	{"length, not all", H1_LENGTH, 4, R("abc"), MORE, "abc", "", ""},
	{"largest length", H1_LENGTH, INT64_MAX, R("abc"), MORE, "abc", "", ""},
	{"until close", H1_UNTIL_CLOSE, 0, R("abc\r\n\r\n"), MORE, "abc\r\n\r\n", "", ""},
	{"chunks", CH, R("5\r\nAAAAA\r\n1\r\nB\r\n" LAST "GET"), ENDS, "AAAAAB", "GET", ""},
	{"no chunk", CH, R(LAST), ENDS, "", "", ""},
	{"two digits, letters in both cases", CH,
		R("0a\r\n0123456789\r\n0A\r\n0123456789\r\n" LAST), ENDS, "01234567890123456789",
		"", ""},
	{"zeros in front", CH, R("0000000000000001\r\na\r\n0000000000000000\r\n\r\n"), ENDS, "a",
		"", ""},
	{"one zero too many", CH, R("00000000000000001\r\na\r\n" LAST), FAILS(CHUNK_SIZE), "", "",
		""},
	{"content that looks like a chunk", CH, R("5\r\n0\r\n\r\n\r\n" LAST), ENDS, "0\r\n\r\n", "",
		""},
	{"not all of a chunk", CH, R("5\r\nAAA"), MORE, "AAA", "", ""},
	{"last chunk without the empty line", CH, R("0\r\n"), MORE, "", "", ""},
	{"last chunk and CR", CH, R("0\r\n\r"), MORE, "", "", ""},
	{"nothing", CH, R(""), MORE, "", "", ""},
	/* C48, numbered as there */
	{"C48 1", CH, R("5;a=b\r\nAAAAA\r\n" LAST), ENDS, "AAAAA", "", ""},
	{"C48 2", CH, R("5;a\nb\r\nAAAAA\r\n" LAST), FAILS(CHUNK_EXTENSION), "", "", ""},
	{"C48 4", CH, R("1000000000000000005\r\nAAAAA\r\n" LAST), FAILS(CHUNK_SIZE), "", "", ""},
	{"C48 5", CH, R("ffffffffffffffff\r\nAAAAA"), FAILS(CHUNK_SIZE), "", "", ""},
	{"C48 5, largest", CH, R("7fffffffffffffff\r\nAAAAA"), MORE, "AAAAA", "", ""},
	{"C48 5, one more", CH, R("8000000000000000\r\nAAAAA"), FAILS(CHUNK_SIZE), "", "", ""},
	{"C48 6", CH, R("-5\r\nAAAAA\r\n" LAST), FAILS(CHUNK_SIZE), "", "", ""},
	{"C48 6, plus", CH, R("+5\r\nAAAAA\r\n" LAST), FAILS(CHUNK_SIZE), "", "", ""},
	{"C48 7", CH, R("0x5\r\nAAAAA\r\n" LAST), FAILS(CHUNK_SIZE), "", "", ""},
	{"C48 8, in front", CH, R(" 5\r\nAAAAA\r\n" LAST), FAILS(CHUNK_SIZE), "", "", ""},
	{"C48 8, behind", CH, R("5 \r\nAAAAA\r\n" LAST), FAILS(CHUNK_EXTENSION), "", "", ""},
	{"C48 8, tab behind", CH, R("5\t\r\nAAAAA\r\n" LAST), FAILS(CHUNK_EXTENSION), "", "", ""},
	{"C48 9", CH, R("5\r\nAAAAAXX0\r\n\r\n"), FAILS(CHUNK_END), "AAAAA", "", ""},
	{"C48 10", CH, R("\r\nAAAAA\r\n" LAST), FAILS(CHUNK_SIZE), "", "", ""},
	{"C48 12", CH, R("0\r\n"), MORE, "", "", ""},
	{"LF after content", CH, R("1\r\nA\n" LAST), FAILS(CHUNK_END), "A", "", ""},
	{"CR after content without LF", CH, R("1\r\nA\rX" LAST), FAILS(CHUNK_END), "A", "", ""},
	{"empty line between chunks", CH, R("1\r\nA\r\n\r\n" LAST), FAILS(CHUNK_SIZE), "A", "", ""},
	{"bare LF after a size", CH, R("1\nA\r\n" LAST), FAILS(CHUNK_SIZE), "", "", ""},
	{"bare LF alone", CH, R("\n1\r\nA\r\n" LAST), FAILS(CHUNK_SIZE), "", "", ""},
	{"bare CR after a size", CH, R("1\rA\r\n" LAST), FAILS(CHUNK_SIZE), "", "", ""},
	{"CR CR LF", CH, R("1\r\r\nA\r\n" LAST), FAILS(CHUNK_SIZE), "", "", ""},
	{"NUL", CH, R("1\0\r\nA\r\n" LAST), FAILS(CHUNK_SIZE), "", "", ""},
	{"letter", CH, R("1g\r\nA\r\n" LAST), FAILS(CHUNK_SIZE), "", "", ""},
	/* extensions, RFC 9112 7.1.1 */
	{"name alone", CH, R("1;a\r\nA\r\n" LAST), ENDS, "A", "", ""},
	{"several", CH, R("1;a;b=c;d=\"e\"\r\nA\r\n0;x\r\n\r\n"), ENDS, "A", "", ""},
	{"bad whitespace", CH, R("1 ;\ta = b ;c\t=\t\"d\" ; e\r\nA\r\n" LAST), ENDS, "A", "", ""},
	{"name with blank before the next", CH, R("1;a ;b\r\nA\r\n" LAST), ENDS, "A", "", ""},
	{"quoted", CH, R("1;a=\"b;c=d,e f\t\\\"\\\\\xff\"\r\nA\r\n" LAST), ENDS, "A", "", ""},
	{"escaped bytes", CH, R("1;a=\"\\ \\;\\=\\x\\\xff\\(\"\r\nA\r\n" LAST), ENDS, "A", "", ""},
	{"empty quoted", CH, R("1;a=\"\"\r\nA\r\n" LAST), ENDS, "A", "", ""},
	{"no name", CH, R("1;\r\nA\r\n" LAST), FAILS(CHUNK_EXTENSION), "", "", ""},
	{"no name, blank", CH, R("1; \r\nA\r\n" LAST), FAILS(CHUNK_EXTENSION), "", "", ""},
	{"no name before another", CH, R("1;;a\r\nA\r\n" LAST), FAILS(CHUNK_EXTENSION), "", "", ""},
	{"no name before value", CH, R("1;=a\r\nA\r\n" LAST), FAILS(CHUNK_EXTENSION), "", "", ""},
	{"no value", CH, R("1;a=\r\nA\r\n" LAST), FAILS(CHUNK_EXTENSION), "", "", ""},
	{"two equals", CH, R("1;a==b\r\nA\r\n" LAST), FAILS(CHUNK_EXTENSION), "", "", ""},
	{"blank behind name", CH, R("1;a \r\nA\r\n" LAST), FAILS(CHUNK_EXTENSION), "", "", ""},
	{"blank behind value", CH, R("1;a=b \r\nA\r\n" LAST), FAILS(CHUNK_EXTENSION), "", "", ""},
	{"blank behind quotes", CH, R("1;a=\"b\" \r\nA\r\n" LAST), FAILS(CHUNK_EXTENSION), "", "",
		""},
	{"two names", CH, R("1;a b\r\nA\r\n" LAST), FAILS(CHUNK_EXTENSION), "", "", ""},
	{"two values", CH, R("1;a=b c\r\nA\r\n" LAST), FAILS(CHUNK_EXTENSION), "", "", ""},
	{"token behind quotes", CH, R("1;a=\"b\"c\r\nA\r\n" LAST), FAILS(CHUNK_EXTENSION), "", "",
		""},
	{"quote within value", CH, R("1;a=b\"c\"\r\nA\r\n" LAST), FAILS(CHUNK_EXTENSION), "", "",
		""},
	{"quoted name", CH, R("1;\"a\"\r\nA\r\n" LAST), FAILS(CHUNK_EXTENSION), "", "", ""},
	{"comma", CH, R("1,a\r\nA\r\n" LAST), FAILS(CHUNK_SIZE), "", "", ""},
	{"name without semicolon", CH, R("1 a\r\nA\r\n" LAST), FAILS(CHUNK_EXTENSION), "", "", ""},
	{"never closed quotes", CH, R("1;a=\"b\r\nA\r\n" LAST), FAILS(CHUNK_EXTENSION), "", "", ""},
	{"LF in quotes", CH, R("1;a=\"\n\"\r\nA\r\n" LAST), FAILS(CHUNK_EXTENSION), "", "", ""},
	{"escaped CR", CH, R("1;a=\"\\\r\n\"\r\nA\r\n" LAST), FAILS(CHUNK_EXTENSION), "", "", ""},
	{"NUL in quotes", CH, R("1;a=\"\0\"\r\nA\r\n" LAST), FAILS(CHUNK_EXTENSION), "", "", ""},
	{"DEL in quotes", CH, R("1;a=\"\x7f\"\r\nA\r\n" LAST), FAILS(CHUNK_EXTENSION), "", "", ""},
	{"CR within", CH, R("1;a\rb\r\nA\r\n" LAST), FAILS(CHUNK_SIZE), "", "", ""},
	{"CR without LF", CH, R("1;a\r\r\nA\r\n" LAST), FAILS(CHUNK_SIZE), "", "", ""},
	{"obs-text in name", CH, R("1;\xff\r\nA\r\n" LAST), FAILS(CHUNK_EXTENSION), "", "", ""},
	/* trailers */
	{"trailer", CH, R("0\r\nX-Sum: 1\r\n\r\nGET"), ENDS, "", "GET", "X-Sum: 1\r\n"},
	{"blanks around the value", CH, R("0\r\na: \t b c \t\r\nd:\r\n\r\n"), ENDS, "", "",
		"a: b c\r\nd: \r\n"},
	{"obs-text", CH, R("0\r\na:\xff\r\n\r\n"), ENDS, "", "", "a: \xff\r\n"},
	{"trailer not all there", CH, R("0\r\na: b\r\nc"), MORE, "", "", "a: b\r\n"},
	{"fold", CH, R("0\r\na: b\r\n c\r\n\r\n"), FAILS(TRAILER), "", "", "a: b\r\n"},
	{"fold first", CH, R("0\r\n a: b\r\n\r\n"), FAILS(TRAILER), "", "", ""},
	{"no colon", CH, R("0\r\nabc\r\n\r\n"), FAILS(TRAILER), "", "", ""},
	{"no name", CH, R("0\r\n: b\r\n\r\n"), FAILS(TRAILER), "", "", ""},
	{"blank before colon", CH, R("0\r\na : b\r\n\r\n"), FAILS(TRAILER), "", "", ""},
	{"odd name", CH, R("0\r\na[0]: b\r\n\r\n"), FAILS(TRAILER), "", "", ""},
	{"bare LF ends a trailer", CH, R("0\r\na: b\n\r\n"), FAILS(TRAILER), "", "", ""},
	{"bare LF as the empty line", CH, R("0\r\n\n"), FAILS(TRAILER), "", "", ""},
	{"bare CR", CH, R("0\r\na: b\rc\r\n\r\n"), FAILS(TRAILER), "", "", ""},
	{"CR CR LF", CH, R("0\r\n\r\r\n\r\n"), FAILS(TRAILER), "", "", ""},
	{"NUL in a trailer", CH, R("0\r\na: \0\r\n\r\n"), FAILS(TRAILER), "", "", ""},
	{"next request in place of the empty line", CH, R("0\r\nGET / HTTP/1.1\r\n\r\n"),
		FAILS(TRAILER), "", "", ""},
	{"Host", CH, R("0\r\nhost: b\r\n\r\n"), FAILS(TRAILER), "", "", ""},
	{"Content-Length", CH, R("0\r\nContent-Length: 1\r\n\r\n"), FAILS(TRAILER), "", "", ""},
	{"Transfer-Encoding", CH, R("0\r\nTransfer-Encoding: chunked\r\n\r\n"), FAILS(TRAILER), "",
		"", ""},
	{"Trailer", CH, R("0\r\nTrailer: a\r\n\r\n"), FAILS(TRAILER), "", "", ""},
	{"Authorization", CH, R("0\r\na: b\r\nAUTHORIZATION: b\r\n\r\n"), FAILS(TRAILER), "", "",
		"a: b\r\n"},
	{"Set-Cookie", CH, R("0\r\nset-COOKIE: b\r\n\r\n"), FAILS(TRAILER), "", "", ""},
	{"Content-Encoding", CH, R("0\r\nContent-Encoding: gzip\r\n\r\n"), FAILS(TRAILER), "", "",
		""},
	{"Connection", CH, R("0\r\nConnection: close\r\n\r\n"), FAILS(TRAILER), "", "", ""},
};

#define CONTENT_MAX 128

struct outcome {
	enum h1_body_result result;
	enum h1_error error;
	char content[CONTENT_MAX];
	size_t content_len;
	size_t used;
	char trailers[CONTENT_MAX];
};

/* Gives the parser `cut` bytes first, then `step` at a time. */
static void body_read(const struct body_row *row, size_t cut, size_t step, struct outcome *o)
{
	struct h1_body b;
	size_t from = 0, n = cut;

	memset(o, 0, sizeof(*o));
	h1_body_init(&b, row->framing, row->length);
	do {
		struct slice part = slice_first(slice_from(row->in, from), n);
		struct slice in = part, content;

		while ((o->result = h1_body_next(&b, &in, &content)) == H1_BODY_CONTENT) {
			CHECK(row, content.len > 0 && content.p >= part.p);
			CHECK(row, content.p + content.len == in.p);
			CHECK(row, o->content_len + content.len <= CONTENT_MAX);
			memcpy(o->content + o->content_len, content.p, content.len);
			o->content_len += content.len;
		}
		CHECK(row, o->result != H1_BODY_MORE || in.len == 0);
		from += part.len - in.len;
		n = step;
	} while (o->result == H1_BODY_MORE && from < row->in.len);
	o->used = from;
	o->error = b.error;
	(void)snprintf(
		o->trailers, sizeof(o->trailers), "%.*s", SLICE_FMT(strbuf_slice(&b.trailers)));
	CHECK(row, h1_body_done(&b) == (o->result == H1_BODY_END));
	CHECK(row,
		h1_body_close(&b) == (o->result == H1_BODY_END || row->framing == H1_UNTIL_CLOSE));
	h1_body_fini(&b);
}

static void test_bodies(void **state)
{
	static struct outcome whole, part;

	for (size_t i = 0; i < ARRAY_LEN(bodies); i++) {
		const struct body_row *row = &bodies[i];

		body_read(row, row->in.len, 1, &whole);
		if (whole.error != row->error)
			fail_msg("%s: %s", row->fact, h1_error_text(whole.error));
		CHECK(row, whole.result == row->want);
		CHECK(row, strcmp(whole.content, row->content) == 0);
		CHECK(row, strcmp(whole.trailers, row->trailers) == 0);
		if (row->want == H1_BODY_END)
			CHECK(row, row->in.len - whole.used == strlen(row->rest));
		for (size_t cut = 0; cut <= row->in.len; cut++) {
			body_read(row, cut, cut == 0 ? 1 : row->in.len, &part);
			CHECK(row, part.result == whole.result && part.error == whole.error);
			CHECK(row, strcmp(part.content, whole.content) == 0);
			CHECK(row, strcmp(part.trailers, whole.trailers) == 0);
			CHECK(row, whole.result == H1_BODY_ERROR || part.used == whole.used);
		}
	}
}

static enum h1_error read_all(struct slice in, struct h1_body *b)
{
	struct slice content;

	h1_body_init(b, H1_CHUNKED, 0);
	while (h1_body_next(b, &in, &content) == H1_BODY_CONTENT)
		;
	return b->error;
}

/* Writes "<before><n times c><after>" into buf. */
static struct slice fill(char *buf, const char *before, char c, size_t n, const char *after)
{
	size_t len = strlen(before);

	memcpy(buf, before, len);
	memset(buf + len, c, n);
	memcpy(buf + len + n, after, strlen(after));
	return slice_make(buf, len + n + strlen(after));
}

static void test_size_lines_are_taken_up_to_the_limit(void **state)
{
	static char buf[70100];
	struct h1_body b;
	struct slice in = fill(buf, "1;", 'a', H1_CHUNK_LINE_MAX - 2, "\r\nA\r\n" LAST);

	assert_int_equal(read_all(in, &b), H1_OK);
	assert_true(h1_body_done(&b));
	h1_body_fini(&b);
	in = fill(buf, "1;", 'a', H1_CHUNK_LINE_MAX - 1, "\r\nA\r\n" LAST);
	assert_int_equal(read_all(in, &b), H1_CHUNK_EXTENSION);
	h1_body_fini(&b);
	/* C48 (3) */
	in = fill(buf, "5;", 'a', 70000, "\r\nAAAAA\r\n" LAST);
	assert_int_equal(read_all(in, &b), H1_CHUNK_EXTENSION);
	h1_body_fini(&b);
}

static void test_extensions_of_a_body_are_taken_up_to_the_limit(void **state)
{
	static const char chunk[] = "1;aaaaaaaaaaaaaaa\r\nA\r\n"; /* 16 bytes of extension */
	struct h1_body b;
	struct slice content;

	h1_body_init(&b, H1_CHUNKED, 0);
	for (size_t i = 0; i < H1_EXTENSIONS_MAX / 16; i++) {
		struct slice in = SLICE(chunk);

		assert_int_equal(h1_body_next(&b, &in, &content), H1_BODY_CONTENT);
		assert_int_equal(h1_body_next(&b, &in, &content), H1_BODY_MORE);
	}
	assert_int_equal(b.error, H1_OK);
	content = SLICE("1;");
	assert_int_equal(h1_body_next(&b, &content, &content), H1_BODY_ERROR);
	assert_int_equal(b.error, H1_CHUNK_EXTENSION);
	h1_body_fini(&b);
}

/* C48 (11) */
static void test_a_million_small_chunks_need_no_memory(void **state)
{
	struct h1_body b;
	struct slice in, content;

	h1_body_init(&b, H1_CHUNKED, 0);
	for (size_t i = 0; i < 1000000; i++) {
		in = SLICE("1\r\nA\r\n");
		assert_int_equal(h1_body_next(&b, &in, &content), H1_BODY_CONTENT);
		assert_int_equal(h1_body_next(&b, &in, &content), H1_BODY_MORE);
	}
	in = SLICE(LAST);
	assert_int_equal(h1_body_next(&b, &in, &content), H1_BODY_END);
	assert_null(b.line.p);
	assert_null(b.trailers.p);
	h1_body_fini(&b);
}

/* Runs the section in parts of `step` bytes. */
static enum h1_error trailers_read(struct slice section, size_t step, struct h1_body *b)
{
	struct slice in = SLICE("0\r\n"), content;

	h1_body_init(b, H1_CHUNKED, 0);
	assert_int_equal(h1_body_next(b, &in, &content), H1_BODY_MORE);
	while (section.len > 0) {
		in = slice_first(section, step);
		section = slice_from(section, in.len);
		if (h1_body_next(b, &in, &content) != H1_BODY_MORE)
			break;
	}
	return b->error;
}

static void test_trailers_are_taken_up_to_the_limit(void **state)
{
	static char buf[H1_TRAILERS_MAX + 64];
	static const size_t steps[] = {1, 7, 4096, sizeof(buf)};
	struct h1_body b;

	for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
		struct slice in = fill(buf, "a:", 'v', H1_TRAILERS_MAX - 6, "\r\n\r\n");

		assert_int_equal(in.len, H1_TRAILERS_MAX);
		assert_int_equal(trailers_read(in, steps[i], &b), H1_OK);
		assert_true(h1_body_done(&b));
		h1_body_fini(&b);
		in = fill(buf, "a:", 'v', H1_TRAILERS_MAX - 5, "\r\n\r\n");
		assert_int_equal(trailers_read(in, steps[i], &b), H1_TRAILER);
		h1_body_fini(&b);
	}
}

static void test_as_many_trailers_are_taken_as_fields(void **state)
{
	static char buf[(FIELDS_MAX + 2) * 4];
	static struct fields f;
	struct h1_body b;

	for (size_t n = FIELDS_MAX; n <= FIELDS_MAX + 1; n++) {
		for (size_t i = 0; i < n; i++)
			memcpy(buf + i * 4, "a:\r\n", 4);
		memcpy(buf + n * 4, "\r\n", 2);
		assert_int_equal(trailers_read(slice_make(buf, n * 4 + 2), sizeof(buf), &b),
			n > FIELDS_MAX ? H1_TRAILER : H1_OK);
		assert_true(h1_body_trailers(&b, &f));
		assert_int_equal(f.n, FIELDS_MAX);
		h1_body_fini(&b);
	}
}

static void test_trailers_are_fields(void **state)
{
	static struct fields f;
	struct h1_body b;

	assert_int_equal(read_all(SLICE("0\r\nX-A:  b\r\nx-c:\td e \r\n\r\n"), &b), H1_OK);
	assert_true(h1_body_trailers(&b, &f));
	assert_int_equal(f.n, 2);
	assert_true(slice_eq(f.v[0].name, SLICE("X-A")));
	assert_true(slice_eq(f.v[0].value, SLICE("b")));
	assert_true(slice_eq(f.v[1].name, SLICE("x-c")));
	assert_true(slice_eq(f.v[1].value, SLICE("d e")));
	assert_int_equal(f.v[1].id, FIELD_OTHER);
	h1_body_fini(&b);
	assert_int_equal(read_all(SLICE(LAST), &b), H1_OK);
	assert_false(h1_body_trailers(&b, &f));
	h1_body_fini(&b);
}

static void test_the_end_and_an_error_stay(void **state)
{
	struct h1_body b;
	struct slice in, content;

	h1_body_init(&b, H1_LENGTH, 1);
	in = SLICE("ab");
	assert_int_equal(h1_body_next(&b, &in, &content), H1_BODY_CONTENT);
	assert_true(h1_body_done(&b));
	for (int i = 0; i < 2; i++) {
		assert_int_equal(h1_body_next(&b, &in, &content), H1_BODY_END);
		assert_int_equal(in.len, 1);
	}
	h1_body_fini(&b);
	assert_int_equal(read_all(SLICE("x"), &b), H1_CHUNK_SIZE);
	in = SLICE(LAST);
	assert_int_equal(h1_body_next(&b, &in, &content), H1_BODY_ERROR);
	assert_int_equal(in.len, strlen(LAST));
	assert_false(h1_body_close(&b));
	h1_body_fini(&b);
}

static void test_every_forbidden_trailer_is_refused(void **state)
{
	static const char *const more[] = {
		"cache-control", "content-encoding", "content-range", "cookie", "if-match",
		"if-modified-since", "if-none-match", "if-range", "if-unmodified-since", "location",
		"max-forwards", "range", "set-cookie", "www-authenticate",
#define X(id, name) name,
		FIELD_TABLE(X)
#undef X
	};
	struct h1_body b;

	for (size_t i = 0; i < ARRAY_LEN(more); i++) {
		char text[64];
		int n = snprintf(text, sizeof(text), "0\r\n%s: 1\r\n\r\n", more[i]);

		if (read_all(slice_make(text, (size_t)n), &b) != H1_TRAILER)
			fail_msg("%s", more[i]);
		h1_body_fini(&b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bodies),
		cmocka_unit_test(test_size_lines_are_taken_up_to_the_limit),
		cmocka_unit_test(test_extensions_of_a_body_are_taken_up_to_the_limit),
		cmocka_unit_test(test_a_million_small_chunks_need_no_memory),
		cmocka_unit_test(test_trailers_are_taken_up_to_the_limit),
		cmocka_unit_test(test_as_many_trailers_are_taken_as_fields),
		cmocka_unit_test(test_trailers_are_fields),
		cmocka_unit_test(test_the_end_and_an_error_stay),
		cmocka_unit_test(test_every_forbidden_trailer_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
