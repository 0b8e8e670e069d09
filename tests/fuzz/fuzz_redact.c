/* The search for keys, in whole texts and in streams cut anywhere, against comparing every form at
 * every place; and what is held back against its definition.
 *
 * An input: how many forms, each behind its length; how many cuts, each the length of a piece; the
 * text, whose cuts repeat. covers: vault/redact.c vault/redact_search.c vault/redact_stream.c */
#include <stdlib.h>

#include "base/arena.h"
#include "vault/key_forms.h"
#include "vault/redact.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

#define FORMS_MAX 8
#define FORM_MAX 64
#define CUTS_MAX 8
#define TEXT_MAX 4096
#define MEM_SIZE (128u << 10)

struct input {
	struct slice forms[FORMS_MAX];
	size_t n_forms;
	uint8_t cuts[CUTS_MAX];
	size_t n_cuts;
	struct slice text;
};

struct out {
	char text[TEXT_MAX];
	size_t len;
	size_t puts;
};

static size_t input_byte(struct slice *in, size_t max)
{
	size_t v;

	if (in->len == 0)
		return 0;
	v = (uint8_t)in->p[0] % (max + 1);
	*in = slice_from(*in, 1);
	return v;
}

static void input_read(struct input *i, struct slice in)
{
	i->n_forms = input_byte(&in, FORMS_MAX);
	for (size_t f = 0; f < i->n_forms; f++) {
		size_t n = input_byte(&in, FORM_MAX);

		i->forms[f] = slice_first(in, n);
		in = slice_from(in, i->forms[f].len);
	}
	i->n_cuts = input_byte(&in, CUTS_MAX);
	for (size_t c = 0; c < i->n_cuts; c++)
		i->cuts[c] = (uint8_t)input_byte(&in, UINT8_MAX);
	i->text = slice_first(in, TEXT_MAX);
}

static bool naive(const struct input *i, char *out)
{
	bool found = false;

	if (i->text.len > 0)
		memcpy(out, i->text.p, i->text.len);
	for (size_t at = 0; at < i->text.len; at++) {
		for (size_t f = 0; f < i->n_forms; f++) {
			size_t len = i->forms[f].len;

			if (len < KEY_FORM_MIN || len > i->text.len - at ||
				!slice_ieq(slice_make(i->text.p + at, len), i->forms[f]))
				continue;
			memset(out + at, '*', len);
			found = true;
		}
	}
	return found;
}

static bool is_token(char c)
{
	char lower = ascii_lower(c);

	return (lower >= 'a' && lower <= 'z') || (c >= '#' && c <= '&') || c == '!' ||
		(c >= '*' && c <= '+') || (c >= '-' && c <= ';') || c == '=' || c == '?' ||
		c == '@' || c == '\\' || c == '^' || c == '_' || c == '|' || c == '~';
}

/* May s begin a form of this level? */
static bool fits(struct slice s, int level)
{
	if (level == 2) {
		if (s.len > 0 && (s.p[0] == '\n' || s.p[0] == '\r'))
			return false;
		return slice_find(s, SLICE("\n\n")) == s.len &&
			slice_find(s, SLICE("\n\r\n")) == s.len;
	}
	for (size_t i = 0; i < s.len; i++) {
		if (level == 0 && !is_token(s.p[i]))
			return false;
		if (level == 1 && (s.p[i] == '\n' || s.p[i] == '\r'))
			return false;
	}
	return true;
}

static size_t hold_of(const struct input *in, struct slice text)
{
	size_t longest[4] = {0}, hold = 0;

	for (size_t f = 0; f < in->n_forms; f++) {
		int level = 0;

		while (level < 3 && !fits(in->forms[f], level))
			level++;
		if (in->forms[f].len >= KEY_FORM_MIN && in->forms[f].len > longest[level])
			longest[level] = in->forms[f].len;
	}
	for (int level = 0; level < 4; level++) {
		for (size_t n = 1; n < longest[level] && n <= text.len; n++) {
			if (n > hold && fits(slice_from(text, text.len - n), level))
				hold = n;
		}
	}
	return hold;
}

static void out_put(void *arg, struct slice piece)
{
	struct out *o = arg;

	REQUIRE(piece.len > 0 && piece.len <= sizeof(o->text) - o->len);
	memcpy(o->text + o->len, piece.p, piece.len);
	o->len += piece.len;
	o->puts++;
}

static void check_stream(const struct input *in, const struct redact_table *t, const char *want)
{
	struct redact_stream s;
	struct out out = {.len = 0};
	size_t at = 0;

	REQUIRE(redact_stream_init(&s, t) == 0);
	for (size_t c = 0; at < in->text.len; c++) {
		size_t n = in->n_cuts ? in->cuts[c % in->n_cuts] : in->text.len;
		size_t visible = s.held_len;
		char *piece;

		/* Cuts of nothing only would never end. */
		n = c < 3 * TEXT_MAX ? n : in->text.len;
		n = n < in->text.len - at ? n : in->text.len - at;
		piece = xmalloc(n);
		memcpy(piece, in->text.p + at, n);
		out.puts = 0;
		redact_stream_feed(&s, piece, n, false, out_put, &out);
		free(piece);
		visible += n;
		at += n;
		REQUIRE(out.puts <= 2 && out.len + s.held_len == at);
		REQUIRE(s.held_len == hold_of(in, slice_make(in->text.p + at - visible, visible)));
		REQUIRE(memcmp(out.text, want, out.len) == 0);
	}
	redact_stream_feed(&s, NULL, 0, true, out_put, &out);
	REQUIRE(out.len == in->text.len && memcmp(out.text, want, out.len) == 0);
	redact_stream_fini(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	static struct secmem *mem;
	struct redact_table *t;
	struct input in;
	char want[TEXT_MAX];
	char *got;
	bool found;

	if (!mem)
		REQUIRE(secmem_new(MEM_SIZE, &mem) >= 0);
	input_read(&in, slice_make((const char *)p, len));
	t = redact_table_new(mem);
	for (size_t f = 0; f < in.n_forms; f++)
		REQUIRE(redact_table_add(t, in.forms[f]) == 0);
	REQUIRE(redact_table_compile(t) == 0);

	found = naive(&in, want);
	got = xmalloc(in.text.len);
	if (in.text.len > 0)
		memcpy(got, in.text.p, in.text.len);
	REQUIRE(redact_text(t, got, in.text.len) == found);
	REQUIRE(in.text.len == 0 || memcmp(got, want, in.text.len) == 0);
	free(got);
	check_stream(&in, t, want);
	redact_table_free(t);
	REQUIRE(secmem_used(mem) == 0);
	return 0;
}
