/* Spells a key in every way that programs usually do, for the search of answers.
 *
 * The vault asks when a revision is published and hands each form to the search table. A form is
 * written byte by byte: once into locked memory, and again to compare it with the forms that came
 * before, so that none has to be kept. Not spelled: reversed, encrypted or compressed keys, one
 * encoding inside another, and texts that escape some characters of a kind and not others. */
#include "vault/key_forms.h"

#define KEY_FORM_GROWTH 6 /* bytes of a form for one of the key: \u0041, &#x41; */
#define KEY_TEXTS_MAX 3   /* the key, and Basic's user:pass and pass */

/* Writes to p, or compares with what is there. */
struct form_out {
	char *p;
	size_t len;
	size_t max;
	bool compare;
	bool differs;
};

struct form_style {
	void (*write)(struct form_out *out, struct slice key, const struct form_style *style);
	const char *chars;      /* what JSON and HTML escape more, what percent leaves alone */
	const char *quote;      /* HTML: how '"' is written, NULL as it is */
	const char *apostrophe; /* the same for '\'' */
	unsigned int shift;     /* base64: bytes before the key, modulo 3 */
	bool all;               /* escape every character */
	bool ascii;             /* JSON: escape what is not ASCII */
	bool url;               /* base64url */
	bool plus;              /* percent: a space is '+' */
	bool hex;               /* HTML: numbers are hexadecimal */
};

static void form_char(struct form_out *out, char c)
{
	if (!out->compare && out->len < out->max)
		out->p[out->len] = c;
	else if (out->len >= out->max || ascii_lower(out->p[out->len]) != ascii_lower(c))
		out->differs = true;
	out->len++;
}

static void form_str(struct form_out *out, const char *s)
{
	for (; *s; s++)
		form_char(out, *s);
}

/* The lowest `digits` hexadecimal digits of v. */
static void form_hex(struct form_out *out, uint32_t v, unsigned int digits)
{
	while (digits-- > 0)
		form_char(out, "0123456789abcdef"[v >> 4 * digits & 15]);
}

static void form_decimal(struct form_out *out, uint32_t v)
{
	if (v >= 10)
		form_decimal(out, v / 10);
	form_char(out, (char)('0' + v % 10));
}

/* The character at *at, which moves behind it. Bytes that are not UTF-8 count as Latin-1. */
static uint32_t form_decode(struct slice key, size_t *at)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	uint8_t c = (uint8_t)key.p[*at];
	size_t n = c >= 0xf0 && c < 0xf8 ? 4 : c >= 0xe0 && c < 0xf0 ? 3 : c >= 0xc0 ? 2 : 1;
	uint32_t v = n == 1 ? c : c & (0x7fU >> n);

	if (c >= 0xf8 || n > key.len - *at)
		n = 1;
	for (size_t i = 1; i < n; i++) {
		uint8_t next = (uint8_t)key.p[*at + i];

		if ((next & 0xc0) != 0x80) {
			n = 1;
			break;
		}
		v = v << 6 | (next & 0x3f);
	}
	if (n == 1 || v < least[n] || v > 0x10ffff || (v >= 0xd800 && v < 0xe000)) {
		*at += 1;
		return c;
	}
	*at += n;
	return v;
}

static bool form_alnum(char c)
{
	return ascii_digit(c) || (ascii_lower(c) >= 'a' && ascii_lower(c) <= 'z');
}

/* Is it one of the style's? A NUL never is. */
static bool form_listed(const struct form_style *style, uint32_t c)
{
	return c != 0 && c < 0x80 && strchr(style->chars, (int)c) != NULL;
}

static void form_raw(struct form_out *out, struct slice key, const struct form_style *style)
{
	for (size_t i = 0; i < key.len; i++)
		form_char(out, key.p[i]);
}

static void form_hex_digits(struct form_out *out, struct slice key, const struct form_style *style)
{
	for (size_t i = 0; i < key.len; i++)
		form_hex(out, (uint8_t)key.p[i], 2);
}

/* Only the characters all of whose bits come from the key: those around them depend on the text
 * that the key stands in. */
static void form_base64(struct form_out *out, struct slice key, const struct form_style *style)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
	/* Bits of the key that share a character with the bytes before it. */
	static const unsigned int shared[] = {0, 4, 2};

	for (size_t bit = shared[style->shift]; bit + 6 <= 8 * key.len; bit += 6) {
		size_t i = bit / 8;
		uint32_t two = (uint32_t)(uint8_t)key.p[i] << 8;
		uint32_t v;

		if (i + 1 < key.len)
			two |= (uint8_t)key.p[i + 1];
		v = two >> (10 - bit % 8) & 63;
		form_char(out, v < 62 ? digits[v] : (style->url ? "-_" : "+/")[v - 62]);
	}
}

static void form_percent(struct form_out *out, struct slice key, const struct form_style *style)
{
	for (size_t i = 0; i < key.len; i++) {
		char c = key.p[i];

		if (c == ' ' && style->plus) {
			form_char(out, '+');
		} else if (!style->all && (form_alnum(c) || form_listed(style, (uint8_t)c))) {
			form_char(out, c);
		} else {
			form_char(out, '%');
			form_hex(out, (uint8_t)c, 2);
		}
	}
}

static void form_utf16(struct form_out *out, uint32_t c)
{
	if (c >= 0x10000) {
		form_utf16(out, 0xd800 + ((c - 0x10000) >> 10));
		c = 0xdc00 + (c & 0x3ff);
	}
	form_str(out, "\\u");
	form_hex(out, c, 4);
}

/* The escape of two characters that JSON has for c, or 0. */
static char form_json_short(uint32_t c, const struct form_style *style)
{
	static const char shorts[] = {'\b', 'b', '\f', 'f', '\n', 'n', '\r', 'r', '\t', 't'};

	if (style->all)
		return 0;
	if (c == '\\' || (c == '"' && !form_listed(style, c)))
		return (char)c;
	if (c == '/' && form_listed(style, c))
		return '/';
	for (size_t i = 0; i < sizeof(shorts); i += 2) {
		if (c == (uint8_t)shorts[i])
			return shorts[i + 1];
	}
	return 0;
}

static void form_json(struct form_out *out, struct slice key, const struct form_style *style)
{
	size_t at = 0;

	while (at < key.len) {
		size_t from = at;
		uint32_t c = form_decode(key, &at);
		char two = form_json_short(c, style);

		if (two != 0) {
			form_char(out, '\\');
			form_char(out, two);
		} else if (style->all || c < 0x20 || form_listed(style, c) ||
			(c >= 0x80 && style->ascii) ||
			/* Who escapes for HTML escapes these for JavaScript. */
			((c == 0x2028 || c == 0x2029) && form_listed(style, '<'))) {
			form_utf16(out, c);
		} else {
			form_raw(out, slice_make(key.p + from, at - from), style);
		}
	}
}

static void form_entity(struct form_out *out, uint32_t c, bool hex)
{
	unsigned int digits = 2;

	form_str(out, hex ? "&#x" : "&#");
	while (c >> 4 * digits != 0)
		digits++;
	/* No leading zero: a tab is &#x9; */
	if (hex)
		form_hex(out, c, c < 16 ? 1 : digits);
	else
		form_decimal(out, c);
	form_char(out, ';');
}

static void form_html(struct form_out *out, struct slice key, const struct form_style *style)
{
	size_t at = 0;

	while (at < key.len) {
		size_t from = at;
		uint32_t c = form_decode(key, &at);

		if (style->all || form_listed(style, c))
			form_entity(out, c, style->hex);
		else if (c == '&')
			form_str(out, "&amp;");
		else if (c == '<')
			form_str(out, "&lt;");
		else if (c == '>')
			form_str(out, "&gt;");
		else if (c == '"' && style->quote)
			form_str(out, style->quote);
		else if (c == '\'' && style->apostrophe)
			form_str(out, style->apostrophe);
		else
			form_raw(out, slice_make(key.p + from, at - from), style);
	}
}

/* In brackets: who writes it so. Most keys have few of these characters, and most of these forms
 * are then the same as one before. */
static const struct form_style form_styles[] = {
	{form_raw, .chars = ""}, {form_hex_digits, .chars = ""},
	{form_base64, .chars = "", .shift = 0}, {form_base64, .chars = "", .shift = 1},
	{form_base64, .chars = "", .shift = 2}, {form_base64, .chars = "", .shift = 0, .url = true},
	{form_base64, .chars = "", .shift = 1, .url = true},
	{form_base64, .chars = "", .shift = 2, .url = true},
	{form_percent, .chars = "", .all = true},
	{form_percent, .chars = ""}, /* [what passes letters and digits alone] */
	{form_percent, .chars = "", .plus = true}, {form_percent, .chars = "-_.~"},
	{form_percent, .chars = "-_.~", .plus = true},
	{form_percent, .chars = "-_.*", .plus = true},   /* [browsers' forms, Java] */
	{form_percent, .chars = "-_.~/"},                /* [Python's quote] */
	{form_percent, .chars = "-_.~!*'()"},            /* [encodeURIComponent] */
	{form_percent, .chars = "-_.~!*'();,/?:@&=+$#"}, /* [encodeURI] */
	{form_json, .chars = "", .all = true}, {form_json, .chars = ""},
	{form_json, .chars = "<>&"},                     /* [Go, Rails] */
	{form_json, .chars = "", .ascii = true},         /* [Python] */
	{form_json, .chars = "/", .ascii = true},        /* [PHP] */
	{form_json, .chars = "<>&'", .ascii = true},     /* [Django, Jinja] */
	{form_json, .chars = "<>&'\"+`", .ascii = true}, /* [.NET] */
	{form_html, .chars = "", .all = true}, {form_html, .chars = "", .all = true, .hex = true},
	{form_html, .chars = ""},
	{form_html, .chars = "", .quote = "&quot;", .apostrophe = "&#39;"},
	{form_html, .chars = "", .quote = "&quot;", .apostrophe = "&apos;"},
	{form_html, .chars = "", .quote = "&quot;", .apostrophe = "&#x27;"},
	{form_html, .chars = "", .quote = "&#34;", .apostrophe = "&#39;"},
	{form_html, .chars = "+", .quote = "&#34;", .apostrophe = "&#39;"}, /* [Go templates] */
};

_Static_assert(ARRAY_LEN(form_styles) <= KEY_FORMS_MAX, "KEY_FORMS_MAX is a promise");

/* One call of key_forms_each. */
struct form_run {
	struct slice texts[KEY_TEXTS_MAX];
	size_t n_texts;
	size_t lens[KEY_TEXTS_MAX][ARRAY_LEN(form_styles)];
	struct form_out out;
};

/* Was this form already written from an earlier text or in an earlier style? */
static bool form_is_known(struct form_run *run, size_t text, size_t style)
{
	for (size_t i = 0; i < text * ARRAY_LEN(form_styles) + style; i++) {
		size_t t = i / ARRAY_LEN(form_styles);
		size_t s = i % ARRAY_LEN(form_styles);
		struct form_out again = {.p = run->out.p, .max = run->out.len, .compare = true};

		if (run->lens[t][s] != run->out.len)
			continue;
		form_styles[s].write(&again, run->texts[t], &form_styles[s]);
		if (!again.differs)
			return true;
	}
	return false;
}

static int form_base64_value(char c)
{
	if (ascii_digit(c))
		return c - '0' + 52;
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	if (c >= 'a' && c <= 'z')
		return c - 'a' + 26;
	if (c == '+' || c == '-')
		return 62;
	return c == '/' || c == '_' ? 63 : -1;
}

/* Either alphabet, padded or not. Into p, which has room for text.len bytes; false if text is not
 * base64. */
static bool form_base64_decode(struct slice text, char *p, size_t *len)
{
	uint32_t bits = 0;
	unsigned int n_bits = 0;

	*len = 0;
	while (text.len > 0 && text.p[text.len - 1] == '=')
		text.len--;
	for (size_t i = 0; i < text.len; i++) {
		int v = form_base64_value(text.p[i]);

		if (v < 0)
			return false;
		bits = (bits << 6 | (uint32_t)v) & 0xffff;
		n_bits += 6;
		if (n_bits >= 8) {
			n_bits -= 8;
			p[(*len)++] = (char)(bits >> n_bits & 0xff);
		}
	}
	return *len > 0;
}

/* user:pass, and the half of it that is secret. That is the password, but where a token stands in
 * for the user it is the user. */
static void form_add_basic(struct form_run *run, struct slice text)
{
	size_t colon = slice_find_char(text, ':');
	struct slice user = slice_first(text, colon);
	struct slice pass = slice_from(text, colon < text.len ? colon + 1 : colon);

	run->texts[run->n_texts++] = text;
	if (colon == text.len)
		return;
	if (pass.len < KEY_FORM_MIN || slice_eq(pass, SLICE("x-oauth-basic")))
		pass = user;
	run->texts[run->n_texts++] = pass;
}

bool key_forms_each(struct secmem *mem, struct slice key, bool basic,
	void (*each)(struct slice form, void *arg), void *arg)
{
	struct form_run run = {.texts = {key}, .n_texts = 1};
	char *decoded = NULL;
	size_t len;

	if (key.len == 0)
		return true;
	if (key.len > SIZE_MAX / KEY_FORM_GROWTH)
		return false;
	run.out.max = key.len * KEY_FORM_GROWTH;
	run.out.p = secmem_alloc(mem, run.out.max);
	if (basic)
		decoded = secmem_alloc(mem, key.len);
	if (!run.out.p || (basic && !decoded)) {
		secmem_release(mem, run.out.p);
		secmem_release(mem, decoded);
		return false;
	}
	if (basic && form_base64_decode(key, decoded, &len))
		form_add_basic(&run, slice_make(decoded, len));
	for (size_t t = 0; t < run.n_texts; t++) {
		for (size_t s = 0; s < ARRAY_LEN(form_styles); s++) {
			run.out.len = 0;
			form_styles[s].write(&run.out, run.texts[t], &form_styles[s]);
			REQUIRE(run.out.len <= run.out.max);
			run.lens[t][s] = run.out.len;
			if (run.out.len >= KEY_FORM_MIN && !form_is_known(&run, t, s))
				each(slice_make(run.out.p, run.out.len), arg);
			explicit_bzero(run.out.p, run.out.len);
		}
	}
	secmem_release(mem, run.out.p);
	secmem_release(mem, decoded);
	return true;
}
