/* Finds forms in a text and overwrites them.
 *
 * Two searches run through the text, for forms that fill a window and for shorter ones; each finds
 * the next place where one begins. Places are taken in order, and a match is overwritten only when
 * the search is past its end: until then its bytes may be the start of another match. */
#include "vault/redact_int.h"

static bool redact_form_is(const struct redact_form *f, const char *p)
{
	for (size_t i = 0; i < f->len; i++) {
		if (ascii_lower(p[i]) != f->text[i])
			return false;
	}
	return true;
}

/* Length of the longest form that the text begins with, or 0. */
static size_t redact_longest_at(const struct redact_form *f, const char *p, size_t left)
{
	size_t best = 0;

	for (; f; f = f->next) {
		if (f->len > best && f->len <= left && redact_form_is(f, p))
			best = f->len;
	}
	return best;
}

/* How far a window at p may move, less than REDACT_BLOCKS if its last block is in a form. */
static unsigned int redact_shift(const struct redact_table *t, const char *p)
{
	return t->shift[redact_hash_block(p + REDACT_WINDOW - REDACT_BLOCK, t->shift_bits)];
}

/* Moves on by whole windows while no form is near. One step alone waits for its load before the
 * next can begin; four at places that are known beforehand cost little more than one. */
static size_t redact_leap(const struct redact_scan *s, size_t at, size_t end)
{
	const struct redact_table *t = s->table;
	const size_t step = REDACT_BLOCKS;

	while (end - at > 4 * step) {
		const char *p = s->p + at;

		if (((redact_shift(t, p) ^ step) | (redact_shift(t, p + step) ^ step) |
			    (redact_shift(t, p + 2 * step) ^ step) |
			    (redact_shift(t, p + 3 * step) ^ step)) != 0)
			break;
		at += 4 * step;
	}
	return at;
}

/* The first match of a window that begins at `at` or later; starts if there is none. */
static size_t redact_next_whole(const struct redact_scan *s, size_t at, size_t *len)
{
	const struct redact_table *t = s->table;
	const bool leap = t->sparse;
	size_t end = s->starts;

	if (t->whole.n == 0 || s->len < REDACT_WINDOW)
		return s->starts;
	if (end > s->len - REDACT_WINDOW + 1)
		end = s->len - REDACT_WINDOW + 1;
	while (at < end) {
		const char *p = s->p + at;
		unsigned int skip = redact_shift(t, p);

		if (skip != 0) {
			at += skip;
			if (leap && skip == REDACT_BLOCKS && at < end)
				at = redact_leap(s, at, end);
			continue;
		}
		*len = redact_longest_at(
			t->whole.heads[redact_hash_window(p, t->whole.bits)], p, s->len - at);
		if (*len > 0)
			return at;
		at++;
	}
	return s->starts;
}

/* May a short form begin here? */
static unsigned int redact_maybe_brief(const struct redact_table *t, const char *p)
{
	uint32_t h = redact_hash_block(p, t->first_bits);

	return (unsigned int)t->first[h / 8] >> h % 8 & 1;
}

/* The same for forms that are shorter than a window. */
static size_t redact_next_brief(const struct redact_scan *s, size_t at, size_t *len)
{
	const struct redact_table *t = s->table;
	size_t end = s->starts;

	if (t->brief.n == 0 || s->len < REDACT_BLOCK)
		return s->starts;
	if (end > s->len - REDACT_BLOCK + 1)
		end = s->len - REDACT_BLOCK + 1;
	while (at < end) {
		const char *p = s->p + at;

		/* One branch for four bytes is half of the cost. */
		if (end - at >= 4 &&
			(redact_maybe_brief(t, p) | redact_maybe_brief(t, p + 1) |
				redact_maybe_brief(t, p + 2) | redact_maybe_brief(t, p + 3)) == 0) {
			at += 4;
			continue;
		}
		*len = 0;
		if (redact_maybe_brief(t, p) != 0)
			*len = redact_longest_at(
				t->brief.heads[redact_hash_block(p, t->brief.bits)], p,
				s->len - at);
		if (*len > 0)
			return at;
		at++;
	}
	return s->starts;
}

static void redact_scan_overwrite(struct redact_scan *s)
{
	size_t to = s->to < s->starts ? s->to : s->starts;

	if (s->from < to)
		memset(s->p + s->from, '*', to - s->from);
}

static void redact_scan_cover(struct redact_scan *s, size_t at, size_t len)
{
	s->found = true;
	if (at > s->to) {
		redact_scan_overwrite(s);
		s->from = at;
	}
	if (at + len > s->to)
		s->to = at + len;
}

void redact_scan_run(struct redact_scan *s)
{
	size_t whole_len = 0, brief_len = 0;
	size_t whole, brief;

	REQUIRE(s->table->compiled);
	whole = redact_next_whole(s, 0, &whole_len);
	brief = redact_next_brief(s, 0, &brief_len);
	while (whole < s->starts || brief < s->starts) {
		if (whole <= brief) {
			redact_scan_cover(s, whole, whole_len);
			whole = redact_next_whole(s, whole + 1, &whole_len);
		} else {
			redact_scan_cover(s, brief, brief_len);
			brief = redact_next_brief(s, brief + 1, &brief_len);
		}
	}
	redact_scan_overwrite(s);
}
