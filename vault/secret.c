/* Keys and their encodings (reference 5.3), made once when a view is built, so that a request only
 * copies. Each encoder runs twice, to count and to write: what it writes goes straight into locked
 * memory, nothing is built elsewhere. */
#include "vault/secret.h"

#include "base/attr.h"

struct secret {
	size_t refs;
	struct secmem *mem;
	struct slice forms[SECRET_FORMS];
	char *blocks[SECRET_FORMS]; /* NULL: the same as raw */
};

static const char secret_hex_upper[] = "0123456789ABCDEF";
static const char secret_hex_lower[] = "0123456789abcdef";

static bool secret_is_unreserved(char c)
{
	return ascii_digit(c) || (ascii_lower(c) >= 'a' && ascii_lower(c) <= 'z') || c == '-' ||
		c == '_' || c == '.' || c == '~';
}

static size_t secret_percent(struct slice s, bool form, char *to)
{
	size_t n = 0;

	for (size_t i = 0; i < s.len; i++) {
		uint8_t c = (uint8_t)s.p[i];
		bool plain = secret_is_unreserved(s.p[i]) || (form && c == ' ');

		if (to && plain) {
			to[n] = form && c == ' ' ? '+' : (char)c;
		} else if (to) {
			to[n] = '%';
			to[n + 1] = secret_hex_upper[c >> 4];
			to[n + 2] = secret_hex_upper[c & 15];
		}
		n += plain ? 1 : 3;
	}
	return n;
}

/* The character at s.p[*at], which is moved behind it; UINT32_MAX if it is no UTF-8. */
static uint32_t secret_utf8_next(struct slice s, size_t *at)
{
	static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
	uint8_t lead = (uint8_t)s.p[(*at)++];
	size_t more = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1;
	uint32_t c;

	if (lead < 0x80)
		return lead;
	if (lead < 0xc2 || lead > 0xf4 || s.len - *at < more)
		return UINT32_MAX;
	c = lead & (0x3fU >> more);
	for (size_t i = 0; i < more; i++) {
		uint8_t b = (uint8_t)s.p[(*at)++];

		if ((b & 0xc0) != 0x80)
			return UINT32_MAX;
		c = c << 6 | (b & 0x3f);
	}
	if (c < least[more] || (c >= 0xd800 && c < 0xe000) || c > 0x10ffff)
		return UINT32_MAX;
	return c;
}

bool secret_is_utf8(struct slice s)
{
	size_t at = 0;

	while (at < s.len)
		if (secret_utf8_next(s, &at) == UINT32_MAX)
			return false;
	return true;
}

static size_t secret_json_unit(uint32_t unit, char *to)
{
	if (to) {
		to[0] = '\\';
		to[1] = 'u';
		for (size_t i = 0; i < 4; i++)
			to[2 + i] = secret_hex_lower[unit >> (12 - 4 * i) & 15];
	}
	return 6;
}

static size_t secret_json_char(uint32_t c, char *to)
{
	static const char named[] = "\"\\\b\f\n\r\t";
	static const char letter[] = "\"\\bfnrt";
	const char *at = c < 0x80 && c != 0 ? memchr(named, (int)c, sizeof(named) - 1) : NULL;
	size_t n;

	if (at) {
		if (to) {
			to[0] = '\\';
			to[1] = letter[at - named];
		}
		return 2;
	}
	if (c >= 0x20 && c < 0x7f) {
		if (to)
			to[0] = (char)c;
		return 1;
	}
	if (c < 0x10000)
		return secret_json_unit(c, to);
	n = secret_json_unit(0xd800 + ((c - 0x10000) >> 10), to);
	return n + secret_json_unit(0xdc00 + ((c - 0x10000) & 0x3ff), to ? to + n : NULL);
}

size_t secret_json_escape(struct slice s, char *to)
{
	size_t n = 0;
	size_t at = 0;

	while (at < s.len) {
		uint32_t c = secret_utf8_next(s, &at);

		n += secret_json_char(c == UINT32_MAX ? 0xfffd : c, to ? to + n : NULL);
	}
	return n;
}

static size_t secret_encode(struct slice raw, enum secret_form form, char *to)
{
	switch (form) {
	case SECRET_PERCENT:
		return secret_percent(raw, false, to);
	case SECRET_FORM:
		return secret_percent(raw, true, to);
	case SECRET_JSON:
		return secret_json_escape(raw, to);
	case SECRET_RAW:
	case SECRET_FORMS:
		break;
	}
	return 0;
}

/* Is the form the raw bytes? Every escape is longer than what it stands for, but for the space
 * that becomes `+`. */
static bool secret_form_is_raw(struct slice raw, enum secret_form form, size_t len)
{
	return len == raw.len && (form != SECRET_FORM || slice_find_char(raw, ' ') == raw.len);
}

struct secret *secret_new(struct secmem *mem, struct slice value)
{
	struct secret *s = secmem_alloc(mem, sizeof(*s));
	char *raw = secmem_alloc(mem, value.len + 1);

	if (!s || !raw) {
		secmem_release(mem, s);
		secmem_release(mem, raw);
		return NULL;
	}
	*s = (struct secret){.refs = 1, .mem = mem};
	memcpy(raw, value.p, value.len);
	s->blocks[SECRET_RAW] = raw;
	s->forms[SECRET_RAW] = slice_make(raw, value.len);
	for (enum secret_form form = SECRET_PERCENT; form < SECRET_FORMS; form++) {
		size_t len = secret_encode(value, form, NULL);

		s->forms[form] = s->forms[SECRET_RAW];
		if (secret_form_is_raw(value, form, len))
			continue;
		s->blocks[form] = secmem_alloc(mem, len);
		if (!s->blocks[form]) {
			secret_unref(s);
			return NULL;
		}
		s->forms[form] =
			slice_make(s->blocks[form], secret_encode(value, form, s->blocks[form]));
	}
	return s;
}

struct secret *secret_ref(struct secret *s)
{
	s->refs++;
	return s;
}

void secret_unref(struct secret *s)
{
	if (!s || --s->refs > 0)
		return;
	for (size_t i = 0; i < SECRET_FORMS; i++)
		secmem_release(s->mem, s->blocks[i]);
	secmem_release(s->mem, s);
}

struct slice secret_form(const struct secret *s, enum secret_form form)
{
	REQUIRE(form < SECRET_FORMS);
	return s->forms[form];
}
