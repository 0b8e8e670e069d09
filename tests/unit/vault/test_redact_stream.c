/* Streams: no cut lets a form through, what is held back depends on classes only. A hold-back
 * by resemblance, which tells the key, is built as a control. */
#include "tests/unit/vault/redact_bed.h"

#define TEXT_MAX 4096
#define KEY_LEN 40
#define KEY_KNOWN 4

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/* What came out, and how much at each call. */
struct sink {
	char text[TEXT_MAX];
	size_t len;
	size_t puts;
};

static void sink_put(void *arg, struct slice piece)
{
	struct sink *s = arg;

	assert_true(piece.len > 0 && piece.len <= sizeof(s->text) - s->len);
	memcpy(s->text + s->len, piece.p, piece.len);
	s->len += piece.len;
	s->puts++;
}

/* Feeds a copy that is exactly as long as the piece. Returns how much was passed on. */
static size_t feed(
	struct redact_stream *s, const char *text, size_t len, bool end, struct sink *sink)
{
	char *p = len ? xmalloc(len) : NULL;
	size_t before = sink->len;

	if (len > 0)
		memcpy(p, text, len);
	sink->puts = 0;
	redact_stream_feed(s, p, len, end, sink_put, sink);
	assert_true(sink->puts <= 2);
	free(p);
	return sink->len - before;
}

/* In pieces of these lengths, the last repeated; 0 is the rest. */
static void check_stream(
	const struct bed *b, const char *text, size_t len, size_t first, size_t each)
{
	struct redact_stream s;
	struct sink sink = {.len = 0};
	char want[TEXT_MAX];
	bool found = bed_naive(b, text, len, want);
	size_t at = 0, n = first;

	assert_int_equal(redact_stream_init(&s, b->table), 0);
	do {
		if (n > len - at)
			n = len - at;
		feed(&s, text + at, n, false, &sink);
		/* What is not passed on is held, and in locked memory. */
		at += n;
		assert_int_equal(sink.len + s.held_len, at);
		assert_true(secmem_holds(b->mem, s.held));
		/* All that came out is as it has to be, whatever follows. */
		assert_memory_equal(sink.text, want, sink.len);
		n = each ? each : len - at;
	} while (at < len);
	feed(&s, NULL, 0, true, &sink);
	assert_int_equal(sink.len, len);
	assert_memory_equal(sink.text, want, len);
	assert_int_equal(s.found, found);
	assert_int_equal(s.held_len, 0);
	redact_stream_fini(&s);
}

static const char *const keys[] = {
	"sk-real-0001-AAAABBBBCCCC",
	"pa55",
	"correct horse \"battery\" staple",
	"Schl\xc3\xbcssel/+=",
	"BEGIN KEY\nMIIEvAIB ADAN\r\nBgkqhkiG9w0\nEND",
	"\nBEGIN\n\nMIIEvAIB\r\n\r\nEND\n",
};

static void test_no_form_passes_any_cut(void **state)
{
	char text[TEXT_MAX];
	struct bed b;

	for (size_t k = 0; k < ARRAY_LEN(keys); k++) {
		bed_open_key(&b, keys[k]);
		for (size_t i = 0; i < b.n; i++) {
			size_t len = b.len[i] + 9;

			memcpy(text, i % 2 ? "x y=" : "\n\nab", 4);
			memcpy(text + 4, b.form[i], b.len[i]);
			memcpy(text + 4 + b.len[i], "/z\n\n!", 5);
			for (size_t cut = 0; cut <= len; cut++)
				check_stream(&b, text, len, cut, 0);
			check_stream(&b, text, len, 1, 1);
			check_stream(&b, text, len, 2, 3);
			/* Ends with the form. */
			check_stream(&b, text, len - 5, 1, 1);
		}
		bed_close(&b);
	}
}

static void test_matches_that_overlap_across_cuts(void **state)
{
	static const char *const forms[][4] = {
		{"ABCDEFGHIJKLMNOPQRST", "PQRSTUVWXYZ012345678"},
		{"ABCDEFGHIJKLMNOPQRST", "RSTUVW x"},
		{"ABCD", "CDEFGHIJKLMNOPQRSTUVWXYZ", "Z01234567 89"},
		{"ABABABABABABABABABAB", "BABA"},
		{"KLMN", "ABCDEFGHIJKLMNOPQRSTUV", "V W\nX"},
	};
	static const char *const texts[] = {
		"..ABCDEFGHIJKLMNOPQRSTUVWXYZ012345678..",
		"..ABCDEFGHIJKLMNOPQRSTUVW x..",
		"..ABCDEFGHIJKLMNOPQRSTUVWXYZ01234567 89..",
		"..ABABABABABABABABABABABABABABABABABABABA..",
		"..ABCDEFGHIJKLMNOPQRSTUV W\nX KLMN..",
	};
	struct bed b;

	for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
		size_t len = strlen(texts[i]);

		bed_open_forms(&b, forms[i]);
		for (size_t first = 0; first <= len; first++) {
			for (size_t each = 0; each <= len - first; each++)
				check_stream(&b, texts[i], len, first, each);
		}
		bed_close(&b);
	}
}

static void test_random_streams_as_the_slow_search(void **state)
{
	static const char letters[] = "abA \n\r";
	char text[400], form[40];
	uint32_t r = 23;
	struct bed b;

	for (int round = 0; round < 300; round++) {
		uint32_t n_letters = 2 + bed_random(&r) % 5;
		size_t n = 1 + bed_random(&r) % 5;

		bed_open_sized(&b, BED_MEM_SMALL);
		for (size_t i = 0; i < n; i++) {
			size_t len = KEY_FORM_MIN + bed_random(&r) % (sizeof(form) - KEY_FORM_MIN);

			for (size_t j = 0; j < len; j++)
				form[j] = letters[bed_random(&r) % n_letters];
			bed_form(slice_make(form, len), &b);
		}
		assert_int_equal(redact_table_compile(b.table), 0);
		for (int i = 0; i < 10; i++) {
			size_t len = 1 + bed_random(&r) % sizeof(text);

			for (size_t j = 0; j < len; j++)
				text[j] = letters[bed_random(&r) % n_letters];
			for (int j = 0; j < 4; j++) {
				size_t f = bed_random(&r) % b.n;
				size_t at = bed_random(&r) % len;

				if (b.len[f] <= len - at)
					memcpy(text + at, b.form[f], b.len[f]);
			}
			check_stream(&b, text, len, bed_random(&r) % len, bed_random(&r) % 9);
			check_stream(&b, text, len, 1, 1);
		}
		bed_close(&b);
	}
}

/* Forms of 20 bytes: 19 at most are held. */
static const struct {
	const char *forms[3];
	const char *text;
	size_t hold;
} holds[] = {
	/* Token characters only: the run of them at the end. */
	{{"ABCDEFGHIJ0123456789"}, "", 0},
	{{"ABCDEFGHIJ0123456789"}, "data: {\"a\":\"b\"}\n\n", 0},
	{{"ABCDEFGHIJ0123456789"}, "{\"a\":\"b\"}", 0},
	{{"ABCDEFGHIJ0123456789"}, "{\"a\":\"bcd", 3},
	{{"ABCDEFGHIJ0123456789"}, "<p>x</p>", 0},
	{{"ABCDEFGHIJ0123456789"}, "x y", 1},
	{{"ABCDEFGHIJ0123456789"}, "x y ", 0},
	{{"ABCDEFGHIJ0123456789"}, " !#$%&*+-./:;=?@\\^_|", 19},
	{{"ABCDEFGHIJ0123456789"}, "\xc3\xa9z~", 2},
	{{"ABCDEFGHIJ0123456789"}, "..................", 18},
	{{"ABCDEFGHIJ0123456789"}, "...................", 19},
	{{"ABCDEFGHIJ0123456789"}, "....................", 19},
	{{"ABCDEFGHIJ0123456789", "ABCD"}, "....................", 19},
	{{"ABCD"}, "....................", 3},
	/* With a space: the last line as well, but no more of it than that form is long. */
	{{"ABCDEFGHI 0123456789"}, "data: {\"a\":\"b\"}\n\n", 0},
	{{"ABCDEFGHI 0123456789"}, "data\r", 0},
	{{"ABCDEFGHI 0123456789"}, "a\nb \"c\xff", 5},
	{{"ABCDEFGHI 0123456789"}, "{\"a\":\"b\", \"c\":\"d\"}", 18},
	{{"ABCDEFGHI 0123456789"}, "{\"a\":\"b\", \"cd\":\"ef\"}", 19},
	{{"AB CD", "ABCDEFGHIJ0123456789"}, "x, y, 0123456789", 10},
	{{"AB CD", "ABCDEFGHIJ0123456789"}, "{\"x\":\"y\"}", 4},
	/* With a line end: back to an empty line. */
	{{"ABCDEFGHI\n0123456789"}, "data: {\"a\":\"b\"}\n\n", 0},
	{{"ABCDEFGHI\n0123456789"}, "data: {\"a\":\"b\"}\r\n\r\n", 0},
	{{"ABCDEFGHI\r\n123456789"}, "event: a\r\ndata: b\r\n", 19},
	{{"ABCDEFGHI\r\n123456789"}, "x\n\na: b\nc d\n", 9},
	{{"ABCDEFGHI\r\n123456789"}, "x\r\n\r\na: b\r\n", 6},
	{{"ABCDEFGHI\n0123456789"}, "\n", 0},
	{{"ABCDEFGHI0123456789\n"}, "ab\n", 3},
	{{"A\nB\nC", "ABCDEFGHI0 123456789"}, "x\ny z\n", 4},
	{{"A\nB\nC", "ABCDEFGHI0 123456789"}, "x\ny z 1234", 8},
	/* With an empty line, or a line end before it: everything. */
	{{"ABCDEFGH\n\n0123456789"}, "data: {\"a\":\"b\"}\n\n", 17},
	{{"ABCDEFGH\n\r\n123456789"}, "data: {\"a\":\"bcd\"}\n\n", 19},
	{{"\nABCDEFGHI0123456789"}, "data: {\"a\":\"bcdef\"}\n\n", 19},
	{{"\rABCDEFGHI0123456789"}, "\n\n\n", 3},
	{{"A\n\nB"}, "12345", 3},
};

static void test_what_is_held_is_the_run_of_the_class(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(holds); i++) {
		size_t len = strlen(holds[i].text);
		struct sink sink = {.len = 0};
		struct redact_stream s;
		struct bed b;

		bed_open_forms(&b, holds[i].forms);
		assert_int_equal(redact_stream_init(&s, b.table), 0);
		feed(&s, holds[i].text, len, false, &sink);
		if (s.held_len != holds[i].hold)
			fail_msg("row %zu: %zu held", i, s.held_len);
		/* The same byte by byte. */
		sink.len = 0;
		feed(&s, NULL, 0, true, &sink);
		sink.len = 0;
		for (size_t j = 0; j < len; j++)
			feed(&s, holds[i].text + j, 1, false, &sink);
		assert_int_equal(s.held_len, holds[i].hold);
		redact_stream_fini(&s);
		bed_close(&b);
	}
}

static void test_no_forms_hold_nothing(void **state)
{
	static const char *const none[] = {NULL};
	struct bed b;

	bed_open_forms(&b, none);
	check_stream(&b, "token-characters", 16, 3, 5);
	bed_close(&b);
}

static void test_no_room_to_hold_is_told(void **state)
{
	struct redact_stream s, more[2000];
	size_t n = 0;
	struct bed b;

	bed_open_key(&b, keys[0]);
	while (n < ARRAY_LEN(more) && redact_stream_init(&more[n], b.table) == 0)
		n++;
	assert_true(n > 100 && n < ARRAY_LEN(more));
	assert_int_equal(redact_stream_init(&s, b.table), E_FULL);
	redact_stream_fini(&s);
	redact_stream_fini(&more[n]);
	while (n-- > 0)
		redact_stream_fini(&more[n]);
	bed_close(&b);
}

static void random_text(char *p, size_t len, uint32_t *r)
{
	for (size_t i = 0; i < len; i++)
		p[i] = alphabet[bed_random(r) % 64];
}

/* How much of a text two hold-backs pass on. */
typedef size_t (*passed_fn)(const struct bed *b, const char *text, size_t len);

static size_t passed_ours(const struct bed *b, const char *text, size_t len)
{
	struct sink sink = {.len = 0};
	struct redact_stream s;
	size_t n;

	assert_int_equal(redact_stream_init(&s, b->table), 0);
	n = feed(&s, text, len, false, &sink);
	redact_stream_fini(&s);
	return n;
}

/* The control: holds what a form may begin with, and nothing else. */
static size_t passed_naive(const struct bed *b, const char *text, size_t len)
{
	for (size_t at = 0; at < len; at++) {
		for (size_t i = 0; i < b->n; i++) {
			if (len - at < b->len[i] &&
				slice_ieq(slice_make(text + at, len - at),
					slice_make(b->form[i], len - at)))
				return at;
		}
	}
	return len;
}

/* Pairs of texts of the same class, one ending in the beginning of a form, one in a guess. */
static size_t count_told(const struct bed *b, passed_fn passed)
{
	uint32_t r = 99;
	size_t told = 0;

	for (int i = 0; i < 1000; i++) {
		size_t f = (size_t)i % b->n;
		size_t n = 4 + bed_random(&r) % (b->len[f] - 4);
		size_t len = 3 + n;
		char truth[TEXT_MAX] = "a: ", guess[TEXT_MAX] = "a: ";

		memcpy(truth + 3, b->form[f], n);
		random_text(guess + 3, n, &r);
		/* Half of the guesses are right but for the last few characters. */
		if (i % 2)
			memcpy(guess + 3, b->form[f], n - 3);
		told += passed(b, truth, len) != passed(b, guess, len);
	}
	return told;
}

/* Spells the key out by asking which next character is held. The first ones are known, as those of
 * most keys are. Returns how many were learned. */
static size_t count_learned(const struct bed *b, const char *key, passed_fn passed)
{
	char text[KEY_LEN + 2] = " ";
	size_t known = KEY_KNOWN;

	memcpy(text + 1, key, known);
	for (; known < KEY_LEN - 1; known++) {
		size_t hits = 0;
		char hit = 0;

		for (size_t c = 0; c < 64; c++) {
			text[1 + known] = alphabet[c];
			/* All of it is held: it is right, or any guess would be held. */
			if (passed(b, text, known + 2) > 1)
				continue;
			/* Letters come in two cases, which the search takes for one. */
			hits += ascii_lower(hit) != ascii_lower(alphabet[c]);
			hit = alphabet[c];
		}
		if (hits != 1 || ascii_lower(hit) != ascii_lower(key[known]))
			break;
		text[1 + known] = key[known];
	}
	return known - KEY_KNOWN;
}

static void test_held_sizes_tell_nothing(void **state)
{
	char key[KEY_LEN + 1] = "";
	uint32_t r = 4711;
	struct bed b;

	random_text(key, KEY_LEN, &r);
	bed_open_key(&b, key);
	assert_int_equal(count_told(&b, passed_ours), 0);
	assert_int_equal(count_learned(&b, key, passed_ours), 0);
	/* The same questions, asked of the control, are answered. */
	assert_true(count_told(&b, passed_naive) > 950);
	assert_int_equal(count_learned(&b, key, passed_naive), KEY_LEN - KEY_KNOWN - 1);
	bed_close(&b);
}

/* Another byte of the same class. */
static char twin_of(char c, uint32_t *r)
{
	static const char tokens[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
		"!#$%&*+-./:;=?@\\^_|~";
	static const char others[] = " \t\"'(),<>[]`{}\x01\x7f\x80\xc3\xff";

	if (c == '\r' || c == '\n')
		return c;
	if (memchr(tokens, c, sizeof(tokens) - 1))
		return tokens[bed_random(r) % (sizeof(tokens) - 1)];
	return others[bed_random(r) % (sizeof(others) - 1)];
}

/* Parts of forms, one after the other. */
static void fill_with_forms(const struct bed *b, char *text, size_t len, uint32_t *r)
{
	while (len > 0) {
		size_t f = bed_random(r) % b->n;
		size_t n = 1 + bed_random(r) % b->len[f];

		if (n > len)
			n = len;
		memcpy(text, b->form[f], n);
		text[n - 1] = " .\n."[bed_random(r) % 4];
		text += n;
		len -= n;
	}
}

/* Each piece of a stream full of forms, and of one in which each byte is another of its class. */
static void check_twins(const struct bed *b, uint32_t *r)
{
	struct sink sink = {.len = 0}, other = {.len = 0};
	char text[600], twin[600];
	struct redact_stream s, t;
	size_t n;

	fill_with_forms(b, text, sizeof(text), r);
	for (size_t i = 0; i < sizeof(text); i++)
		twin[i] = twin_of(text[i], r);
	assert_int_equal(redact_stream_init(&s, b->table), 0);
	assert_int_equal(redact_stream_init(&t, b->table), 0);
	for (size_t at = 0; at < sizeof(text); at += n) {
		n = 1 + bed_random(r) % 150;
		if (n > sizeof(text) - at)
			n = sizeof(text) - at;
		assert_int_equal(feed(&s, text + at, n, false, &sink),
			feed(&t, twin + at, n, false, &other));
		assert_int_equal(sink.puts, other.puts);
	}
	redact_stream_fini(&s);
	redact_stream_fini(&t);
}

static void test_sizes_follow_the_class_through_a_whole_stream(void **state)
{
	uint32_t r = 5;
	struct bed b;

	for (size_t k = 0; k < ARRAY_LEN(keys); k++) {
		bed_open_key(&b, keys[k]);
		for (int i = 0; i < 200; i++)
			check_twins(&b, &r);
		bed_close(&b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_form_passes_any_cut),
		cmocka_unit_test(test_matches_that_overlap_across_cuts),
		cmocka_unit_test(test_random_streams_as_the_slow_search),
		cmocka_unit_test(test_what_is_held_is_the_run_of_the_class),
		cmocka_unit_test(test_no_forms_hold_nothing),
		cmocka_unit_test(test_no_room_to_hold_is_told),
		cmocka_unit_test(test_held_sizes_tell_nothing),
		cmocka_unit_test(test_sizes_follow_the_class_through_a_whole_stream),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
