/* Every spelling of a key reads back as the key, and the usual ones are all there.
 *
 * The first byte of an input: 1 the key is said to be Basic's, 2 it is the base64 of the rest.
 * The readers know nothing of the writers: each form must be understood by one of them. */
#include <stdlib.h>

#include "base/arena.h"
#include "vault/key_forms.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

#define KEY_MAX 192
#define FORMS_MAX (3 * KEY_FORMS_MAX)
#define MEM_SIZE (64u << 10)

struct points {
	uint32_t v[16 * KEY_MAX];
	size_t n;
};

struct forms {
	struct slice v[FORMS_MAX];
	size_t n;
};

static struct secmem *mem;

static void forms_add(struct slice form, void *arg)
{
	struct forms *f = arg;
	char *p = xmalloc(form.len);

	REQUIRE(secmem_holds(mem, form.p) && form.len >= KEY_FORM_MIN && f->n < FORMS_MAX);
	memcpy(p, form.p, form.len);
	f->v[f->n++] = slice_make(p, form.len);
}

static bool forms_have(const struct forms *f, struct slice want)
{
	for (size_t i = 0; i < f->n; i++) {
		if (slice_ieq(f->v[i], want))
			return true;
	}
	return want.len < KEY_FORM_MIN;
}

static size_t utf8_write(uint32_t c, char *p)
{
	size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;

	for (size_t i = n; i-- > 1; c >>= 6)
		p[i] = (char)(0x80 | (c & 0x3f));
	p[0] = (char)(n == 1 ? c : (0xf00U >> n & 0xff) | c);
	return n;
}

/* The character whose encoding is what stands there, else the byte. */
static size_t utf8_read(struct slice s, uint32_t *c)
{
	for (size_t n = 2; n <= 4 && n <= s.len; n++) {
		char again[4];
		uint32_t v = (uint8_t)s.p[0] & 0x7fU >> n;

		for (size_t i = 1; i < n; i++)
			v = v << 6 | ((uint8_t)s.p[i] & 0x3f);
		if (v <= 0x10ffff && (v < 0xd800 || v > 0xdfff) && utf8_write(v, again) == n &&
			memcmp(again, s.p, n) == 0) {
			*c = v;
			return n;
		}
	}
	*c = (uint8_t)s.p[0];
	return 1;
}

/* Each reader takes one character off the front, or nothing. */
static size_t read_json(struct slice s, uint32_t *c)
{
	static const char escapes[] = "\"\"\\\\//b\bf\fn\nr\rt\t";
	uint32_t v = 0, low = 0;

	if (s.p[0] != '\\' || s.len < 2)
		return 0;
	for (size_t i = 0; i < sizeof(escapes) - 1; i += 2) {
		if (s.p[1] == escapes[i]) {
			*c = (uint8_t)escapes[i + 1];
			return 2;
		}
	}
	if (s.p[1] != 'u' || s.len < 6)
		return 0;
	for (size_t i = 2; i < 6; i++)
		v = v * 16 + (uint32_t)ascii_hex(s.p[i]);
	*c = v;
	if (v < 0xd800 || v > 0xdbff)
		return 6;
	REQUIRE(s.len >= 12 && s.p[6] == '\\' && s.p[7] == 'u');
	for (size_t i = 8; i < 12; i++)
		low = low * 16 + (uint32_t)ascii_hex(s.p[i]);
	REQUIRE(low >= 0xdc00 && low <= 0xdfff);
	*c = 0x10000 + ((v - 0xd800) << 10) + (low - 0xdc00);
	return 12;
}

static size_t read_html(struct slice s, uint32_t *c)
{
	static const struct {
		struct slice name;
		char c;
	} names[] = {{{"amp;", 4}, '&'}, {{"lt;", 3}, '<'}, {{"gt;", 3}, '>'}, {{"quot;", 5}, '"'},
		{{"apos;", 5}, '\''}};
	size_t at = 2;

	if (s.p[0] != '&')
		return 0;
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		if (slice_starts(slice_from(s, 1), names[i].name)) {
			*c = (uint8_t)names[i].c;
			return 1 + names[i].name.len;
		}
	}
	if (s.len < 4 || s.p[1] != '#')
		return 0;
	*c = 0;
	if (s.p[2] == 'x') {
		for (at = 3; at < s.len && ascii_hex(s.p[at]) >= 0; at++)
			*c = *c * 16 + (uint32_t)ascii_hex(s.p[at]);
	} else {
		for (; at < s.len && ascii_digit(s.p[at]); at++)
			*c = *c * 10 + (uint32_t)(s.p[at] - '0');
	}
	return at < s.len && s.p[at] == ';' ? at + 1 : 0;
}

static size_t read_none(struct slice s, uint32_t *c)
{
	return 0;
}

static void points_read(
	struct points *out, struct slice s, size_t (*escape)(struct slice, uint32_t *))
{
	out->n = 0;
	while (s.len > 0) {
		uint32_t c;
		size_t n = escape(s, &c);

		if (n == 0)
			n = utf8_read(s, &c);
		out->v[out->n++] = c;
		s = slice_from(s, n);
	}
}

static bool points_same(
	struct slice form, struct slice key, size_t (*escape)(struct slice, uint32_t *))
{
	static struct points a, b;

	points_read(&a, form, escape);
	points_read(&b, key, read_none);
	return a.n == b.n && memcmp(a.v, b.v, a.n * sizeof(a.v[0])) == 0;
}

/* Percent, plain hexadecimal, or as it is. */
static bool bytes_same(struct slice form, struct slice key, bool plus, bool hex)
{
	size_t n = 0;

	while (form.len > 0) {
		size_t digits = hex ? 0 : 1;
		char c = form.p[0];

		if (hex || c == '%') {
			if (form.len < digits + 2 || ascii_hex(form.p[digits]) < 0)
				return false;
			c = (char)(ascii_hex(form.p[digits]) * 16 + ascii_hex(form.p[digits + 1]));
			form = slice_from(form, digits + 1);
		} else if (plus && c == '+') {
			c = ' ';
		}
		if (n == key.len || key.p[n++] != c)
			return false;
		form = slice_from(form, 1);
	}
	return n == key.len;
}

static size_t base64(struct slice s, bool url, char *out)
{
	const char *digits = url
		? "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
		: "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	size_t n = 0;

	for (size_t i = 0; i < s.len; i += 3) {
		uint32_t v = (uint32_t)(uint8_t)s.p[i] << 16;

		if (i + 1 < s.len)
			v |= (uint32_t)(uint8_t)s.p[i + 1] << 8;
		if (i + 2 < s.len)
			v |= (uint8_t)s.p[i + 2];
		for (unsigned int d = 0; d < 4; d++)
			out[n++] = d > s.len - i ? '=' : digits[v >> (18 - 6 * d) & 63];
	}
	return n;
}

/* The form is in the base64 of a text that holds the key, and so long that only the characters at
 * its ends may be missing. */
static bool base64_same(struct slice form, struct slice key)
{
	char text[KEY_MAX + 8], coded[2 * KEY_MAX + 16];

	for (size_t i = 0; i < 12; i++) {
		size_t before = i % 3, n;

		memset(text, i < 6 ? '\0' : '\xff', sizeof(text));
		memcpy(text + before, key.p, key.len);
		n = base64(slice_make(text, before + key.len + 2), i / 3 % 2, coded);
		if (memmem(coded, n, form.p, form.len) && form.len * 6 + 10 >= key.len * 8)
			return true;
	}
	return false;
}

static bool form_reads_as(struct slice form, struct slice key)
{
	return bytes_same(form, key, false, false) || bytes_same(form, key, true, false) ||
		bytes_same(form, key, false, true) || points_same(form, key, read_json) ||
		points_same(form, key, read_html) || points_same(form, key, read_none) ||
		base64_same(form, key);
}

/* Letter case is ignored, as in the search: of forms alike but for it only one is there. */
static bool stands_in(struct slice text, struct slice form)
{
	for (; text.len >= form.len; text = slice_from(text, 1)) {
		if (slice_ieq(slice_first(text, form.len), form))
			return true;
	}
	return false;
}

/* In any base64 of a text with the key in it there is a form. */
static void check_base64(const struct forms *f, struct slice key)
{
	char text[KEY_MAX + 8], coded[2 * KEY_MAX + 16];

	for (size_t i = 0; i < 24; i++) {
		size_t before = i % 4, n;
		bool hit = false;

		memset(text, (int)(i * 37), sizeof(text));
		memcpy(text + before, key.p, key.len);
		n = base64(slice_make(text, before + key.len + i / 8), i / 4 % 2, coded);
		for (size_t j = 0; j < f->n && !hit; j++)
			hit = stands_in(slice_make(coded, n), f->v[j]);
		REQUIRE(hit || key.len < 6);
	}
}

static void check_usual(const struct forms *f, struct slice key)
{
	static const char digits[] = "0123456789ABCDEF";
	char hex[2 * KEY_MAX], percent[3 * KEY_MAX];

	for (size_t i = 0; i < key.len; i++) {
		uint8_t c = (uint8_t)key.p[i];

		percent[3 * i] = '%';
		hex[2 * i] = percent[3 * i + 1] = digits[c >> 4];
		hex[2 * i + 1] = percent[3 * i + 2] = digits[c & 15];
	}
	REQUIRE(forms_have(f, key));
	REQUIRE(forms_have(f, slice_make(hex, 2 * key.len)));
	REQUIRE(forms_have(f, slice_make(percent, 3 * key.len)));
	check_base64(f, key);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	struct slice rest = slice_make((const char *)p, len < KEY_MAX / 2 ? len : KEY_MAX / 2);
	char coded[2 * KEY_MAX];
	struct slice key, text, pass;
	struct forms f = {.n = 0};
	uint8_t how;

	if (!mem)
		REQUIRE(secmem_new(MEM_SIZE, &mem) >= 0);
	if (rest.len < 2)
		return 0;
	how = p[0] & 3;
	text = slice_from(rest, 1);
	key = text;
	if (how & 2)
		key = slice_make(coded, base64(text, false, coded));
	REQUIRE(key_forms_each(mem, key, how & 1, forms_add, &f));
	REQUIRE(secmem_used(mem) == 0 && f.n <= (how & 1 ? FORMS_MAX : KEY_FORMS_MAX));
	check_usual(&f, key);
	pass = slice_find_char(text, ':') < text.len
		? slice_from(text, slice_find_char(text, ':') + 1)
		: text;
	if (how == 3) {
		check_usual(&f, text);
		if (pass.len >= KEY_FORM_MIN && !slice_eq(pass, SLICE("x-oauth-basic")))
			check_usual(&f, pass);
		else
			pass = slice_first(text, slice_find_char(text, ':'));
	}
	for (size_t i = 0; i < f.n; i++) {
		for (size_t j = 0; j < i; j++)
			REQUIRE(!slice_ieq(f.v[i], f.v[j]));
		/* A rest that is base64 by chance has a text of its own inside. */
		REQUIRE(how == 1 || form_reads_as(f.v[i], key) ||
			(how == 3 && (form_reads_as(f.v[i], text) || form_reads_as(f.v[i], pass))));
	}
	for (size_t i = 0; i < f.n; i++)
		free((char *)(uintptr_t)f.v[i].p);
	return 0;
}
