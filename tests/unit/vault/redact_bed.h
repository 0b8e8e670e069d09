/* A table with its forms written down beside it, and the slow search that must agree with it. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/err.h"
#include "vault/key_forms.h"
#include "vault/redact.h"

#define BED_FORMS_MAX 4096
#define BED_MEM (256u << 10)
#define BED_MEM_SMALL (64u << 10)
#define BED_MEM_LARGE (1u << 20)

struct bed {
	struct secmem *mem;
	struct redact_table *table;
	char *form[BED_FORMS_MAX];
	size_t len[BED_FORMS_MAX];
	size_t n;
};

static inline void bed_open_sized(struct bed *b, size_t mem)
{
	*b = (struct bed){0};
	assert_true(secmem_new(mem, &b->mem) >= 0);
	b->table = redact_table_new(b->mem);
}

static inline void bed_open(struct bed *b)
{
	bed_open_sized(b, BED_MEM);
}

static inline void bed_form(struct slice form, void *arg)
{
	struct bed *b = arg;

	assert_true(b->n < BED_FORMS_MAX);
	assert_int_equal(redact_table_add(b->table, form), 0);
	b->form[b->n] = xmalloc(form.len);
	memcpy(b->form[b->n], form.p, form.len);
	b->len[b->n++] = form.len;
}

static inline void bed_key(struct bed *b, struct slice key)
{
	assert_true(key_forms_each(b->mem, key, false, bed_form, b));
}

/* With the forms as they are given, ended by NULL. */
static inline void bed_open_forms(struct bed *b, const char *const *forms)
{
	bed_open(b);
	for (; *forms; forms++)
		bed_form(slice_str(*forms), b);
	assert_int_equal(redact_table_compile(b->table), 0);
}

static inline void bed_open_key(struct bed *b, const char *key)
{
	bed_open(b);
	bed_key(b, slice_str(key));
	assert_int_equal(redact_table_compile(b->table), 0);
}

static inline void bed_close(struct bed *b)
{
	redact_table_free(b->table);
	for (size_t i = 0; i < b->n; i++)
		free(b->form[i]);
	assert_int_equal(secmem_used(b->mem), 0);
	secmem_close(b->mem);
}

/* Overwrites by comparing every form at every place. */
static inline bool bed_naive(const struct bed *b, const char *text, size_t len, char *out)
{
	bool found = false;

	memcpy(out, text, len);
	for (size_t at = 0; at < len; at++) {
		for (size_t i = 0; i < b->n; i++) {
			if (b->len[i] < KEY_FORM_MIN || b->len[i] > len - at)
				continue;
			if (!slice_ieq(slice_make(text + at, b->len[i]),
				    slice_make(b->form[i], b->len[i])))
				continue;
			memset(out + at, '*', b->len[i]);
			found = true;
		}
	}
	return found;
}

static inline uint32_t bed_random(uint32_t *r)
{
	*r = *r * 1664525 + 1013904223;
	return *r >> 8;
}
