/* The search through a stream of pieces: what is passed on, and what is held back.
 *
 * Two promises. No form passes, however the stream is cut: so whatever may be the beginning of one
 * is held. And the lengths passed on tell nothing about a key: so they depend on the classes of the
 * bytes at the end of the text and on the lengths of the longest forms, never on a comparison.
 *
 * Bytes have fixed classes: token characters, CR, LF, others. A form belongs to the first level
 * that its bytes allow (enum redact_level), and for each level that has forms the trailing run of
 * bytes that could be the beginning of one is held, up to its longest form less one:
 *   token    token characters: nearly every key, and every escaped form of any key
 *   line     all but CR and LF: a key with a space, a quote or a byte that is not ASCII, raw
 *   lines    no empty line, not beginning with a line end: a key of several lines, raw
 *   any      all bytes
 * Only a key with an empty line in it or a line end before it reaches the last level and delays
 * every piece. An event of a server-sent stream ends in an empty line and passes at once. */
#include "base/err.h"
#include "vault/redact_int.h"

enum redact_class { REDACT_OTHER, REDACT_CHAR, REDACT_CR, REDACT_LF };

/* Letters and digits, and the others that keys and escapes are made of. Not what ends a piece of
 * JSON or HTML: quotes, brackets, comma, white space. */
static enum redact_class redact_class(char c)
{
	static const uint8_t classes[256] = {
		['!'] = REDACT_CHAR,
		['#' ... '&'] = REDACT_CHAR,
		['*' ... '+'] = REDACT_CHAR,
		['-' ... '/'] = REDACT_CHAR,
		['0' ... '9'] = REDACT_CHAR,
		[':' ... ';'] = REDACT_CHAR,
		['='] = REDACT_CHAR,
		['?' ... '@'] = REDACT_CHAR,
		['A' ... 'Z'] = REDACT_CHAR,
		['\\'] = REDACT_CHAR,
		['^' ... '_'] = REDACT_CHAR,
		['a' ... 'z'] = REDACT_CHAR,
		['|'] = REDACT_CHAR,
		['~'] = REDACT_CHAR,
		['\n'] = REDACT_LF,
		['\r'] = REDACT_CR,
	};

	return (enum redact_class)classes[(uint8_t)c];
}

/* Trailing runs of a text, read from its end, of max bytes at most. */
struct redact_runs {
	size_t seen;
	size_t max[REDACT_LEVEL_MAX];
	size_t run[REDACT_LEVEL_MAX];
	bool over[REDACT_LEVEL_MAX];
	enum { RUNS_NO_LF, RUNS_LF, RUNS_CR_LF } behind; /* what follows the byte read next */
};

static void redact_runs_byte(struct redact_runs *r, enum redact_class c)
{
	bool line_end = c == REDACT_CR || c == REDACT_LF;

	r->seen++;
	if (c != REDACT_CHAR)
		r->over[REDACT_TOKEN] = true;
	if (line_end)
		r->over[REDACT_LINE] = true;
	if (c == REDACT_LF && r->behind != RUNS_NO_LF)
		r->over[REDACT_LINES] = true;
	if (c == REDACT_LF)
		r->behind = RUNS_LF;
	else
		r->behind = c == REDACT_CR && r->behind == RUNS_LF ? RUNS_CR_LF : RUNS_NO_LF;
	for (int level = 0; level < REDACT_LEVEL_MAX; level++) {
		/* A run of lines begins with a byte of a line. */
		if (!r->over[level] && r->seen <= r->max[level] &&
			!(level == REDACT_LINES && line_end))
			r->run[level] = r->seen;
	}
}

/* The level of what was read so far. */
static enum redact_level redact_runs_level(const struct redact_runs *r)
{
	int level = 0;

	while (level < REDACT_ANY && r->run[level] < r->seen)
		level++;
	return (enum redact_level)level;
}

enum redact_level redact_form_level(struct slice form)
{
	struct redact_runs r = {.max = {form.len, form.len, form.len, form.len}};

	for (size_t i = form.len; i-- > 0;)
		redact_runs_byte(&r, redact_class(form.p[i]));
	return redact_runs_level(&r);
}

/* Token characters at the end of what is left: up to the first other byte all runs are one. Returns
 * how many there are. */
static size_t redact_runs_tokens(struct redact_runs *r, const char *p, size_t len)
{
	size_t longest = 0;
	size_t n = 0;

	for (int level = 0; level < REDACT_LEVEL_MAX; level++)
		longest = r->max[level] > longest ? r->max[level] : longest;
	while (n < len && r->seen + n < longest && redact_class(p[len - 1 - n]) == REDACT_CHAR)
		n++;
	r->seen += n;
	for (int level = 0; level < REDACT_LEVEL_MAX; level++)
		r->run[level] = r->seen < r->max[level] ? r->seen : r->max[level];
	return n;
}

/* Reads on towards the front of the text. False when no run can become longer. */
static bool redact_runs_read(struct redact_runs *r, const char *p, size_t len)
{
	if (!r->over[REDACT_TOKEN])
		len -= redact_runs_tokens(r, p, len);
	while (len-- > 0) {
		bool more = false;

		for (int level = 0; level < REDACT_LEVEL_MAX; level++)
			more = more || (!r->over[level] && r->seen < r->max[level]);
		if (!more)
			return false;
		redact_runs_byte(r, redact_class(p[len]));
	}
	return true;
}

/* How much of the end of held + p[0..len) stays. */
static size_t redact_hold(const struct redact_stream *s, const char *p, size_t len)
{
	struct redact_runs r = {0};
	size_t hold = 0;

	for (int level = 0; level < REDACT_LEVEL_MAX; level++) {
		if (s->table->longest[level] > 0)
			r.max[level] = s->table->longest[level] - 1;
	}
	if (redact_runs_read(&r, p, len))
		(void)redact_runs_read(&r, s->held, s->held_len);
	for (int level = 0; level < REDACT_LEVEL_MAX; level++) {
		if (r.run[level] > hold)
			hold = r.run[level];
	}
	return hold;
}

int redact_stream_init(struct redact_stream *s, const struct redact_table *t)
{
	size_t longest = redact_table_longest(t);

	/* What is held, and behind it enough of the next piece to see matches that end there. */
	*s = (struct redact_stream){.table = t};
	s->held = secmem_alloc(t->mem, 2 * longest);
	return s->held ? 0 : E_FULL;
}

void redact_stream_fini(struct redact_stream *s)
{
	if (s->table)
		secmem_release(s->table->mem, s->held);
	*s = (struct redact_stream){0};
}

/* Passes on what begins in the first `first` held bytes. */
static void redact_feed_held(
	struct redact_stream *s, struct redact_scan *scan, size_t first, const char *p, size_t len)
{
	size_t longest = redact_table_longest(s->table);
	size_t join = len < longest ? len : longest - 1;

	if (join > 0)
		memcpy(s->held + s->held_len, p, join);
	scan->p = s->held;
	scan->len = s->held_len + join;
	scan->starts = first;
	scan->to = s->covered;
	redact_scan_run(scan);
	s->covered = scan->to > first ? scan->to - first : 0;
}

static void redact_feed_piece(
	struct redact_stream *s, struct redact_scan *scan, size_t pass, char *p, size_t len)
{
	scan->p = p;
	scan->len = len;
	scan->starts = pass;
	scan->from = 0;
	scan->to = s->covered;
	redact_scan_run(scan);
	s->covered = scan->to > pass ? scan->to - pass : 0;
}

void redact_stream_feed(struct redact_stream *s, char *p, size_t len, bool end,
	void (*put)(void *arg, struct slice piece), void *arg)
{
	struct redact_scan scan = {.table = s->table, .found = s->found};
	size_t hold = end ? 0 : redact_hold(s, p, len);
	size_t pass = s->held_len + len - hold;
	size_t first = pass < s->held_len ? pass : s->held_len;
	size_t keep = s->held_len - first;

	/* Matches that begin in what was held, then those that begin in the piece. */
	if (first > 0) {
		redact_feed_held(s, &scan, first, p, len);
		put(arg, slice_make(s->held, first));
	}
	if (pass > first) {
		redact_feed_piece(s, &scan, pass - first, p, len);
		put(arg, slice_make(p, pass - first));
	}
	s->found = scan.found;
	s->held_len = hold;
	if (hold == 0)
		return;
	if (keep > 0)
		memmove(s->held, s->held + first, keep);
	/* The end of the piece may be a part of a key, and p is ordinary memory. */
	if (hold > keep) {
		char *rest = p + (len - (hold - keep));

		memcpy(s->held + keep, rest, hold - keep);
		explicit_bzero(rest, hold - keep);
	}
}
