/* Lines of the audit trail for people and for spreadsheets. Pure: text to text. */
#pragma once

#include "base/strbuf.h"
#include "ctl/audit_record.h"

/* Six times the longest line and more: every character may become an escape. */
#define AUDIT_PRINT_MAX (1u << 20)

/* Time, verdict, kind, method, status, what it was about, reason. Each with its newline. */
void audit_print_table_head(struct strbuf *out);
void audit_print_table_row(struct strbuf *out, const struct audit_record *r, bool color);

/* RFC 4180: every field of the line, CRLF at the end. */
void audit_print_csv_head(struct strbuf *out);
void audit_print_csv_row(struct strbuf *out, const struct audit_record *r);

/* Colours only for a terminal that can show them and a reader who wants them (NO_COLOR). */
bool audit_print_color(bool terminal, char *const *env);
