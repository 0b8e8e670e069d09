/* The table and the CSV of `egressctl audit`. Comes after audit_record and audit_filter. */
#include "ctl/audit_print.h"

#include "ctl/environment.h"
#include "ctl/text.h"

#define PRINT_TIME_LEN 23 /* to the millisecond, without `Z` */

static const struct {
	const char *title;
	size_t width;
} print_columns[] = {
	{"TIME (UTC)", PRINT_TIME_LEN},
	{"VERDICT", 7},
	{"KIND", 9},
	{"METHOD", 7},
	{"STATUS", 6},
	{"URL", 48},
};

static const char print_color_end[] = "\033[0m";

static const char *print_color(struct slice verdict)
{
	if (slice_eq(verdict, SLICE("allowed")))
		return "\033[32m";
	if (slice_eq(verdict, SLICE("blocked")))
		return "\033[31m";
	return "\033[33m";
}

bool audit_print_color(bool terminal, char *const *env)
{
	const char *no_color = environment_get(env, "NO_COLOR");
	const char *term = environment_get(env, "TERM");

	return terminal && (!no_color || !no_color[0]) && term && strcmp(term, "dumb") != 0;
}

void audit_print_table_head(struct strbuf *out)
{
	for (size_t i = 0; i < ARRAY_LEN(print_columns); i++)
		text_column(out, slice_str(print_columns[i].title), print_columns[i].width);
	strbuf_str(out, "REASON\n");
}

static void print_time(struct strbuf *out, struct slice ts)
{
	char text[PRINT_TIME_LEN];
	struct slice shown = slice_first(ts, sizeof(text));

	memcpy(text, shown.p, shown.len);
	for (size_t i = 0; i < shown.len; i++)
		if (text[i] == 'T' || text[i] == 'Z')
			text[i] = ' ';
	text_column(out, slice_make(text, shown.len), PRINT_TIME_LEN);
}

/* What the line is about: lines of the proxy itself have no URL. */
static struct slice print_subject(const struct audit_record *r)
{
	static const enum audit_column order[] = {
		AUDIT_COLUMN_URL, AUDIT_COLUMN_HOST, AUDIT_COLUMN_ADDR, AUDIT_COLUMN_RULE};

	for (size_t i = 0; i < ARRAY_LEN(order); i++)
		if (r->cell[order[i]].len > 0)
			return r->cell[order[i]];
	return SLICE("-");
}

static struct slice print_or_dash(struct slice s)
{
	return s.len > 0 ? s : SLICE("-");
}

void audit_print_table_row(struct strbuf *out, const struct audit_record *r, bool color)
{
	struct slice verdict = r->cell[AUDIT_COLUMN_VERDICT];

	print_time(out, r->cell[AUDIT_COLUMN_TS]);
	if (color)
		strbuf_str(out, print_color(verdict));
	text_column(out, verdict, print_columns[1].width);
	if (color)
		strbuf_str(out, print_color_end);
	text_column(out, r->cell[AUDIT_COLUMN_KIND], print_columns[2].width);
	text_column(out, print_or_dash(r->cell[AUDIT_COLUMN_METHOD]), print_columns[3].width);
	text_column(out, print_or_dash(r->cell[AUDIT_COLUMN_STATUS]), print_columns[4].width);
	text_column(out, print_subject(r), print_columns[5].width);
	(void)text_visible(out, r->cell[AUDIT_COLUMN_REASON]);
	if (r->cell[AUDIT_COLUMN_COUNT].len > 0) {
		strbuf_str(out, " x");
		(void)text_visible(out, r->cell[AUDIT_COLUMN_COUNT]);
	}
	strbuf_char(out, '\n');
}

void audit_print_csv_head(struct strbuf *out)
{
	for (int c = 0; c < AUDIT_COLUMN_MAX; c++) {
		if (c > 0)
			strbuf_char(out, ',');
		text_csv(out, slice_str(audit_column_name((enum audit_column)c)));
	}
	strbuf_str(out, "\r\n");
}

void audit_print_csv_row(struct strbuf *out, const struct audit_record *r)
{
	for (int c = 0; c < AUDIT_COLUMN_MAX; c++) {
		if (c > 0)
			strbuf_char(out, ',');
		text_csv(out, r->cell[c]);
	}
	strbuf_str(out, "\r\n");
}
