/* After keys were spelled, searched for and found, nothing of them is in ordinary memory: not
 * whole, not in any form, not in pieces of 8 bytes. Every readable page of the process but the
 * locked ones is looked through. A copy that is planted is found.
 *
 * Symbols are bound at the start: a library that binds one at its first call puts all vector
 * registers on the stack, with what the last copy left in them. */
#include <sys/random.h>
#include <unistd.h>

#include "tests/unit/vault/redact_bed.h"

#define KEY_LEN 48
#define PIECE 8
/* Not memory but room for the sanitizers' notes about it: terabytes. */
#define MAPPING_MAX ((uintptr_t)1 << 30)
#define MAPS_MAX 2048

/* The forms in lower case, one after the other, in locked memory of their own: the memory that is
 * tested is not to be told from what the test keeps. */
struct needles {
	struct secmem *mem;
	char *text;
	size_t size;
	size_t len;
	size_t ends[KEY_FORMS_MAX];
	size_t n;
	uint8_t first[65536 / 8]; /* which pairs of bytes a piece begins with */
};

static void needles_add(struct slice form, void *arg)
{
	struct needles *n = arg;

	assert_true(n->n < KEY_FORMS_MAX && form.len <= n->size - n->len);
	for (size_t i = 0; i < form.len; i++)
		n->text[n->len + i] = ascii_lower(form.p[i]);
	for (size_t i = 0; i + PIECE <= form.len; i++) {
		size_t pair = (size_t)(uint8_t)n->text[n->len + i] << 8 |
			(uint8_t)n->text[n->len + i + 1];

		n->first[pair / 8] |= (uint8_t)BIT(pair % 8);
	}
	n->len += form.len;
	n->ends[n->n++] = n->len;
}

/* Does a piece of any form lie here? By bytes, so that no more of one gets into a variable. The
 * sanitizer would object to the pages that are looked at. */
__attribute__((no_sanitize("address", "undefined"), noinline)) static bool needles_at(
	const struct needles *n, const char *p)
{
	size_t from = 0;

	for (size_t f = 0; f < n->n; f++) {
		for (size_t at = from; at + PIECE <= n->ends[f]; at++) {
			size_t i = 0;

			while (i < PIECE && ascii_lower(p[i]) == n->text[at + i])
				i++;
			if (i == PIECE)
				return true;
		}
		from = n->ends[f];
	}
	return false;
}

__attribute__((no_sanitize("address", "undefined"), noinline)) static size_t needles_count(
	const struct needles *n, const char *p, const char *end)
{
	size_t count = 0;

	for (; p + PIECE <= end; p++) {
		size_t pair = (size_t)(uint8_t)ascii_lower(p[0]) << 8 | (uint8_t)ascii_lower(p[1]);

		if (n->first[pair / 8] >> pair % 8 & 1)
			count += needles_at(n, p);
	}
	return count;
}

struct mapping {
	uintptr_t from;
	uintptr_t to;
};

/* Every readable mapping but the kernel's own and the sanitizers' notes. */
static size_t mappings_read(struct mapping *maps)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char line[512];
	size_t n = 0;

	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		char *end;
		uintptr_t from = strtoul(line, &end, 16);
		uintptr_t to = strtoul(end + 1, &end, 16);

		if (end[1] != 'r' || strstr(line, "[v") || to - from > MAPPING_MAX)
			continue;
		assert_true(n < MAPS_MAX);
		maps[n++] = (struct mapping){from, to};
	}
	(void)fclose(f);
	return n;
}

/* How many places of ordinary memory hold a piece. */
static size_t memory_search(const struct needles *n, const struct secmem *locked, size_t *bytes)
{
	static struct mapping maps[MAPS_MAX];
	size_t n_maps = mappings_read(maps);
	size_t count = 0;

	*bytes = 0;
	for (size_t i = 0; i < n_maps; i++) {
		const char *from = (const char *)maps[i].from;

		if (secmem_holds(locked, from) || secmem_holds(n->mem, from))
			continue;
		count += needles_count(n, from, (const char *)maps[i].to);
		*bytes += maps[i].to - maps[i].from;
	}
	return count;
}

static void drop(void *arg, struct slice piece)
{
	size_t *passed = arg;

	*passed += piece.len;
}

/* Every form echoed by an origin: in one piece, and cut in the middle. */
struct echo {
	struct redact_stream stream;
	char *piece; /* ordinary memory, as what was received is */
	size_t passed;
};

static void echo_form(struct slice form, void *arg)
{
	struct echo *e = arg;
	size_t half = form.len / 2;

	memcpy(e->piece, form.p, form.len);
	redact_stream_feed(&e->stream, e->piece, form.len, false, drop, &e->passed);
	memcpy(e->piece, form.p, half);
	redact_stream_feed(&e->stream, e->piece, half, false, drop, &e->passed);
	memcpy(e->piece, form.p + half, form.len - half);
	redact_stream_feed(&e->stream, e->piece, form.len - half, false, drop, &e->passed);
	memcpy(e->piece, form.p, form.len);
	assert_true(redact_text(e->stream.table, e->piece, form.len));
}

static int table_form_ret;

static void table_form(struct slice form, void *arg)
{
	table_form_ret |= redact_table_add(arg, form);
}

/* Random, made where it stays, so that the program never held it elsewhere. */
static struct slice key_new(struct secmem *mem)
{
	char *key = secmem_alloc(mem, KEY_LEN);

	assert_int_equal(getrandom(key, KEY_LEN, 0), KEY_LEN);
	for (size_t i = 0; i < KEY_LEN; i++)
		key[i] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
			[(uint8_t)key[i] % 64];
	return slice_make(key, KEY_LEN);
}

/* Byte by byte: a copy by registers might leave more than the one that is planted. */
static void plant(volatile char *to, const char *from, bool upper)
{
	for (size_t i = 0; i < PIECE; i++) {
		char c = from[i];

		to[i] = upper && c >= 'a' && c <= 'z' ? (char)(c - 32) : c;
	}
}

static void test_no_piece_of_a_key_is_in_ordinary_memory(void **state)
{
	static struct needles needles;
	struct echo echo = {.piece = xmalloc(KEY_LEN * 6)};
	struct redact_table *table;
	struct secmem *mem;
	struct slice key;
	size_t bytes;
	char *copy;

	assert_true(secmem_new(256 << 10, &mem) >= 0);
	assert_true(secmem_new(64 << 10, &needles.mem) >= 0);
	needles.size = 16384;
	needles.text = secmem_alloc(needles.mem, needles.size);
	key = key_new(mem);
	assert_true(key_forms_each(mem, key, false, needles_add, &needles));

	table = redact_table_new(mem);
	assert_true(key_forms_each(mem, key, false, table_form, table));
	assert_int_equal(table_form_ret, 0);
	assert_int_equal(redact_table_compile(table), 0);
	assert_int_equal(redact_stream_init(&echo.stream, table), 0);
	assert_true(key_forms_each(mem, key, false, echo_form, &echo));
	/* The last piece ends in a part of the key, which is held now, and only there. */
	memcpy(echo.piece, key.p, KEY_LEN / 2);
	redact_stream_feed(&echo.stream, echo.piece, KEY_LEN / 2, false, drop, &echo.passed);
	assert_true(echo.stream.found && echo.stream.held_len >= KEY_LEN / 2);

	/* In the middle of a stream, with something held, and after everything is over. */
	assert_int_equal(memory_search(&needles, mem, &bytes), 0);
	assert_true(bytes > 1 << 20);
	redact_stream_fini(&echo.stream);
	redact_table_free(table);
	assert_int_equal(memory_search(&needles, mem, &bytes), 0);

	/* Eight bytes from the middle of the key, and of the last form in the other case. */
	copy = xcalloc(3, PIECE);
	plant(copy + PIECE, key.p + 21, false);
	assert_int_equal(memory_search(&needles, mem, &bytes), 1);
	plant(copy + PIECE, needles.text + needles.len - PIECE - 5, true);
	assert_int_equal(memory_search(&needles, mem, &bytes), 1);
	explicit_bzero(copy, 3 * PIECE);
	assert_int_equal(memory_search(&needles, mem, &bytes), 0);

	free(copy);
	free(echo.piece);
	secmem_release(mem, (char *)(uintptr_t)key.p);
	secmem_release(needles.mem, needles.text);
	secmem_close(needles.mem);
	secmem_close(mem);
}

/* A region given back holds nothing: seen in pages that stay mapped. */
static void test_freed_tables_leave_nothing_in_the_region(void **state)
{
	struct secmem *mem;
	size_t size;
	char *all;
	struct redact_table *table;
	struct redact_stream s;
	size_t passed = 0;
	char piece[] = "Bearer sk-real-0001-AAAABBBBCCCC";

	assert_true(secmem_new(64 << 10, &mem) >= 0);
	table = redact_table_new(mem);
	assert_true(
		key_forms_each(mem, SLICE("sk-real-0001-AAAABBBBCCCC"), true, table_form, table));
	assert_int_equal(redact_table_compile(table), 0);
	assert_int_equal(redact_stream_init(&s, table), 0);
	redact_stream_feed(&s, piece, sizeof(piece) - 1, false, drop, &passed);
	redact_stream_fini(&s);
	redact_table_free(table);
	size = secmem_size(mem) - 16;
	all = secmem_alloc(mem, size);
	assert_non_null(all);
	for (size_t i = 0; i < size; i++)
		assert_int_equal(all[i], 0);
	secmem_release(mem, all);
	secmem_close(mem);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_piece_of_a_key_is_in_ordinary_memory),
		cmocka_unit_test(test_freed_tables_leave_nothing_in_the_region),
	};
	char *again[] = {argv[0], (char[]){"bound"}, NULL};

	if (argc == 1) {
		if (setenv("LD_BIND_NOW", "1", 1) == 0)
			(void)execv("/proc/self/exe", again);
		return 1;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
