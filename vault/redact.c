/* The search table: takes the forms that key_forms.c spells, and builds what redact_search.c looks
 * through.
 *
 * One table belongs to one revision of the vault and is never changed after it was compiled. */
#include "vault/redact.h"

#include <stdlib.h>

#include "base/arena.h"
#include "base/err.h"
#include "vault/key_forms.h"
#include "vault/redact_int.h"

#define REDACT_CHUNK 2048
#define REDACT_BITS_MIN 8
/* A table that outgrows the nearer caches is slower than one that is full. */
#define REDACT_BITS_MAX 16
/* Entries of a table for each thing in it, so that other texts seldom meet one. A filter has an
 * entry a bit. */
#define REDACT_SPARSE 16
#define REDACT_SPARSE_BITS 256
/* With this part of the shift table in use, four leaps together mostly come true. */
#define REDACT_LEAP_SHARE 8
/* A table takes at most this part of the memory that all revisions and streams share. */
#define REDACT_SHARE 16

struct redact_table *redact_table_new(struct secmem *mem)
{
	struct redact_table *t = xcalloc(1, sizeof(*t));

	t->mem = mem;
	return t;
}

void redact_table_free(struct redact_table *t)
{
	if (!t)
		return;
	while (t->chunks) {
		struct redact_chunk *c = t->chunks;

		t->chunks = c->next;
		secmem_release(t->mem, c);
	}
	secmem_release(t->mem, t->whole.heads);
	secmem_release(t->mem, t->brief.heads);
	secmem_release(t->mem, t->shift);
	secmem_release(t->mem, t->first);
	free(t);
}

/* Room for len bytes, aligned for a struct redact_form. NULL: no room. */
static void *redact_table_room(struct redact_table *t, size_t len)
{
	struct redact_chunk *c = t->chunks;
	void *p;

	len = (len + _Alignof(struct redact_form) - 1) & ~(_Alignof(struct redact_form) - 1);
	if (!c || c->cap - c->used < len) {
		size_t cap = len < REDACT_CHUNK ? REDACT_CHUNK : len;

		c = secmem_alloc(t->mem, sizeof(*c) + cap);
		if (!c)
			return NULL;
		c->cap = cap;
		c->next = t->chunks;
		t->chunks = c;
	}
	p = c->bytes + c->used;
	c->used += len;
	return p;
}

int redact_table_add(struct redact_table *t, struct slice form)
{
	struct redact_lists *lists = form.len < REDACT_WINDOW ? &t->brief : &t->whole;
	enum redact_level level;
	struct redact_form *f;

	REQUIRE(!t->compiled);
	if (form.len < KEY_FORM_MIN)
		return 0;
	if (form.len > secmem_size(t->mem))
		return E_FULL;
	f = redact_table_room(t, sizeof(*f) + form.len);
	if (!f)
		return E_FULL;
	f->len = form.len;
	for (size_t i = 0; i < form.len; i++)
		f->text[i] = ascii_lower(form.p[i]);
	f->next = lists->all;
	lists->all = f;
	lists->n++;
	level = redact_form_level(form);
	if (form.len > t->longest[level])
		t->longest[level] = form.len;
	return 0;
}

/* Hashes for n things: the power of two that is at least that many, within limits. */
static unsigned int redact_bits_for(size_t n)
{
	unsigned int bits = REDACT_BITS_MIN;

	while (bits < REDACT_BITS_MAX && (size_t)1 << bits < n)
		bits++;
	return bits;
}

/* Divides the one list among as many as there are forms, at least. */
static int redact_lists_spread(struct secmem *mem, struct redact_lists *lists,
	uint32_t (*hash)(const char *, unsigned int))
{
	unsigned int bits = redact_bits_for(lists->n);
	struct redact_form *f, *next;

	if (lists->n == 0)
		return 0;
	lists->heads = secmem_alloc(mem, sizeof(struct redact_form *) * ((size_t)1 << bits));
	if (!lists->heads)
		return E_FULL;
	for (f = lists->all; f; f = next) {
		struct redact_form **head = &lists->heads[hash(f->text, bits)];

		next = f->next;
		f->next = *head;
		*head = f;
	}
	lists->all = NULL;
	lists->bits = bits;
	return 0;
}

/* A table for 1 << bits hashes, smaller if memory is short: it is then slower and finds the same.
 * each: hashes that share a byte. */
static uint8_t *redact_sparse_new(struct secmem *mem, unsigned int *bits, unsigned int each)
{
	uint8_t *p = NULL;

	while (*bits > REDACT_BITS_MIN &&
		((size_t)1 << *bits) / each > secmem_size(mem) / REDACT_SHARE)
		--*bits;
	while (*bits >= REDACT_BITS_MIN && !p) {
		p = secmem_alloc(mem, ((size_t)1 << *bits) / each);
		if (!p)
			--*bits;
	}
	return p;
}

static bool redact_is_sparse(const struct redact_table *t)
{
	size_t used = 0;

	for (size_t i = 0; i < (size_t)1 << t->shift_bits; i++)
		used += t->shift[i] != REDACT_BLOCKS;
	return used <= ((size_t)1 << t->shift_bits) / REDACT_LEAP_SHARE;
}

static int redact_compile_whole(struct redact_table *t)
{
	if (t->whole.n == 0)
		return 0;
	t->shift_bits = redact_bits_for(t->whole.n * REDACT_BLOCKS * REDACT_SPARSE);
	t->shift = redact_sparse_new(t->mem, &t->shift_bits, 1);
	if (!t->shift)
		return E_FULL;
	memset(t->shift, REDACT_BLOCKS, (size_t)1 << t->shift_bits);
	for (size_t i = 0; i < (size_t)1 << t->whole.bits; i++) {
		for (const struct redact_form *f = t->whole.heads[i]; f; f = f->next) {
			for (size_t at = 0; at < REDACT_BLOCKS; at++) {
				uint32_t h = redact_hash(redact_load(f->text + at), t->shift_bits);
				size_t left = REDACT_BLOCKS - 1 - at;

				if (left < t->shift[h])
					t->shift[h] = (uint8_t)left;
			}
		}
	}
	t->sparse = redact_is_sparse(t);
	return 0;
}

static int redact_compile_brief(struct redact_table *t)
{
	if (t->brief.n == 0)
		return 0;
	t->first_bits = redact_bits_for(t->brief.n * REDACT_SPARSE_BITS);
	t->first = redact_sparse_new(t->mem, &t->first_bits, 8);
	if (!t->first)
		return E_FULL;
	for (size_t i = 0; i < (size_t)1 << t->brief.bits; i++) {
		for (const struct redact_form *f = t->brief.heads[i]; f; f = f->next) {
			uint32_t h = redact_hash_block(f->text, t->first_bits);

			t->first[h / 8] |= (uint8_t)BIT(h % 8);
		}
	}
	return 0;
}

int redact_table_compile(struct redact_table *t)
{
	int ret;

	REQUIRE(!t->compiled);
	ret = redact_lists_spread(t->mem, &t->whole, redact_hash_window);
	if (ret == 0)
		ret = redact_lists_spread(t->mem, &t->brief, redact_hash_block);
	if (ret == 0)
		ret = redact_compile_whole(t);
	if (ret == 0)
		ret = redact_compile_brief(t);
	t->compiled = ret == 0;
	return ret;
}

size_t redact_table_longest(const struct redact_table *t)
{
	size_t longest = 0;

	for (int level = 0; level < REDACT_LEVEL_MAX; level++) {
		if (t->longest[level] > longest)
			longest = t->longest[level];
	}
	return longest;
}

bool redact_text(const struct redact_table *t, char *p, size_t len)
{
	struct redact_scan s = {.table = t, .p = p, .len = len, .starts = len};

	redact_scan_run(&s);
	return s.found;
}
