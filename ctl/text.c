/* What comes out of the audit trail was written by clients: each character is looked at once more
 * before it reaches a terminal or a spreadsheet, whoever wrote the file. */
#include "ctl/text.h"

#define TEXT_BAD UINT32_MAX /* not UTF-8 */

/* Reads one character of UTF-8 (RFC 3629). */
static uint32_t text_code(struct slice s, size_t *len)
{
	const unsigned char *p = (const unsigned char *)s.p;
	size_t n = p[0] < 0x80 ? 1 : p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
	uint32_t min = n == 4 ? 0x10000 : n == 3 ? 0x800 : n == 2 ? 0x80 : 0;
	uint32_t code = n == 1 ? p[0] : p[0] & (0x7fU >> n);

	*len = 1;
	if ((p[0] >= 0x80 && p[0] < 0xc2) || p[0] > 0xf4 || s.len < n)
		return TEXT_BAD;
	for (size_t i = 1; i < n; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return TEXT_BAD;
		code = code << 6 | (p[i] & 0x3fU);
	}
	if (code < min || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
		return TEXT_BAD;
	*len = n;
	return code;
}

static bool text_hidden(uint32_t code)
{
	return code < 0x20 || (code >= 0x7f && code <= 0xa0) || code == 0xad || code == 0x61c ||
		(code >= 0x200b && code <= 0x200f) || (code >= 0x2028 && code <= 0x202e) ||
		(code >= 0x2060 && code <= 0x206f) || code == 0xfeff || code >= 0xe0000;
}

static bool text_plain(char c)
{
	return c >= 0x20 && c < 0x7f;
}

/* One character that is not printable ASCII; *s moves past it. Returns its columns. */
static size_t text_odd(struct strbuf *b, struct slice *s)
{
	size_t before = b->len, len;
	uint32_t code = text_code(*s, &len);
	bool escaped = true;

	if (code == TEXT_BAD) {
		strbuf_printf(b, "\\x%02x", (unsigned char)s->p[0]);
	} else if (text_hidden(code)) {
		strbuf_printf(b, "\\u%04x", code);
	} else {
		strbuf_add(b, slice_first(*s, len));
		escaped = false;
	}
	*s = slice_from(*s, len);
	return escaped ? b->len - before : 1;
}

size_t text_visible(struct strbuf *b, struct slice s)
{
	size_t columns = 0, n;

	while (s.len > 0) {
		for (n = 0; n < s.len && text_plain(s.p[n]); n++)
			;
		strbuf_add(b, slice_first(s, n));
		columns += n;
		s = slice_from(s, n);
		if (s.len > 0)
			columns += text_odd(b, &s);
	}
	return columns;
}

void text_csv(struct strbuf *b, struct slice s)
{
	bool quoted = slice_find_char(s, '"') < s.len || slice_find_char(s, ',') < s.len;

	if (quoted)
		strbuf_char(b, '"');
	if (s.len > 0 && memchr("=+-@", s.p[0], 4))
		strbuf_char(b, '\'');
	while (s.len > 0) {
		size_t n = slice_find_char(s, '"');

		(void)text_visible(b, slice_first(s, n));
		if (n < s.len)
			strbuf_str(b, "\"\"");
		s = slice_from(s, n < s.len ? n + 1 : n);
	}
	if (quoted)
		strbuf_char(b, '"');
}

void text_column(struct strbuf *b, struct slice s, size_t width)
{
	size_t n = text_visible(b, s);

	do {
		strbuf_char(b, ' ');
	} while (n++ < width);
}
