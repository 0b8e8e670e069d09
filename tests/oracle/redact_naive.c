/* The hold-back that must not be: it keeps what may be the beginning of a form, and nothing else.
 *
 * Linked into egress-naive in the place of vault/redact_stream.c. tests/e2e/holdback.py asks both
 * programs the same questions: this one spells the key out. */
#include <stdlib.h>

#include "base/arena.h"
#include "base/err.h"
#include "vault/redact_int.h"

enum redact_level redact_form_level(struct slice form)
{
	return REDACT_TOKEN;
}

int redact_stream_init(struct redact_stream *s, const struct redact_table *t)
{
	*s = (struct redact_stream){.table = t};
	s->held = secmem_alloc(t->mem, redact_table_longest(t));
	return s->held ? 0 : E_FULL;
}

void redact_stream_fini(struct redact_stream *s)
{
	if (s->table)
		secmem_release(s->table->mem, s->held);
	*s = (struct redact_stream){0};
}

/* Does a form of these lists begin with the text, and go on? */
static bool naive_lists_begin(const struct redact_lists *lists, struct slice text)
{
	for (size_t i = 0; lists->heads && i < (size_t)1 << lists->bits; i++) {
		for (const struct redact_form *f = lists->heads[i]; f; f = f->next) {
			if (text.len < f->len && slice_ieq(text, slice_make(f->text, text.len)))
				return true;
		}
	}
	return false;
}

static size_t naive_pass(const struct redact_table *t, struct slice text)
{
	size_t longest = redact_table_longest(t);
	size_t at = text.len < longest ? 0 : text.len - longest + 1;

	while (at < text.len && !naive_lists_begin(&t->whole, slice_from(text, at)) &&
		!naive_lists_begin(&t->brief, slice_from(text, at)))
		at++;
	return at;
}

void redact_stream_feed(struct redact_stream *s, char *p, size_t len, bool end,
	void (*put)(void *arg, struct slice piece), void *arg)
{
	size_t n = s->held_len + len;
	char *text = xmalloc(n);
	size_t pass;

	if (s->held_len > 0)
		memcpy(text, s->held, s->held_len);
	if (len > 0)
		memcpy(text + s->held_len, p, len);
	s->found = redact_text(s->table, text, n) || s->found;
	pass = end ? n : naive_pass(s->table, slice_make(text, n));
	if (pass > 0)
		put(arg, slice_make(text, pass));
	s->held_len = n - pass;
	if (s->held_len > 0)
		memcpy(s->held, text + pass, s->held_len);
	free(text);
}
