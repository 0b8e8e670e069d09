/* Text of a line as people may see it: nothing in it can move a cursor, hide, or run in a
 * spreadsheet. Pure. */
#pragma once

#include "base/strbuf.h"

/* Appends s; control and direction characters become \uNNNN, bytes that are no UTF-8 \xNN. Returns
 * the number of columns that were added. */
size_t text_visible(struct strbuf *b, struct slice s);

/* Appends one cell of CSV (RFC 4180): as text_visible; quoted where it has to be; with an
 * apostrophe in front where a spreadsheet would take it for a formula. */
void text_csv(struct strbuf *b, struct slice s);

/* Appends s as text_visible and fills up with spaces to a width; longer ones get one space. */
void text_column(struct strbuf *b, struct slice s, size_t width);
