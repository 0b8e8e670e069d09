/* Finds the strings that JSON pointers name, by their place in the text, without building a tree:
 * only those bytes are rewritten, all others go out as they came.
 *
 * The scanner takes exactly the texts of RFC 8259. While it is inside a value, each pointer knows
 * how many of its tokens the path so far has matched. */
#include <stdio.h>
#include <stdlib.h>

#include "vault/substitute_int.h"

#define JSON_INDEX_MAX 24 /* digits of an array index */

struct json_pointer {
	struct slice text;
	size_t n_tokens;
	size_t matched;
};

struct json_scan {
	const char *p;
	size_t len;
	size_t at;
	size_t depth;
	struct json_pointer *pointers;
	size_t n_pointers;
	struct json_ranges *out;
};

bool json_pointer_is_valid(struct slice s)
{
	if (s.len == 0 || s.p[0] != '/')
		return false;
	for (size_t i = 0; i < s.len; i++) {
		if ((uint8_t)s.p[i] < 0x20)
			return false;
		if (s.p[i] == '~' && (i + 1 == s.len || (s.p[i + 1] != '0' && s.p[i + 1] != '1')))
			return false;
	}
	return true;
}

/* Token number i of the pointer, still with its `~0` and `~1`. */
static struct slice json_pointer_token(const struct json_pointer *p, size_t i)
{
	struct slice rest = slice_from(p->text, 1);

	while (i-- > 0)
		(void)slice_cut(&rest, '/');
	return slice_cut(&rest, '/');
}

static bool json_scan_is(const struct json_scan *s, char c)
{
	return s->at < s->len && s->p[s->at] == c;
}

static void json_scan_space(struct json_scan *s)
{
	while (s->at < s->len && s->p[s->at] != '\0' && strchr(" \t\r\n", s->p[s->at]))
		s->at++;
}

/* Four hexadecimal digits at p, or UINT32_MAX. */
static uint32_t json_hex4(const char *p, size_t len)
{
	uint32_t v = 0;

	if (len < 4)
		return UINT32_MAX;
	for (size_t i = 0; i < 4; i++) {
		if (ascii_hex(p[i]) < 0)
			return UINT32_MAX;
		v = v << 4 | (uint32_t)ascii_hex(p[i]);
	}
	return v;
}

/* The contents of the string that begins here. */
static bool json_scan_string(struct json_scan *s, struct slice *out)
{
	size_t from = ++s->at;

	for (; s->at < s->len; s->at++) {
		char c = s->p[s->at];

		if (c == '"') {
			*out = slice_make(s->p + from, s->at++ - from);
			return true;
		}
		if ((uint8_t)c < 0x20)
			return false;
		if (c != '\\')
			continue;
		if (++s->at == s->len || s->p[s->at] == '\0' || !strchr("\"\\/bfnrtu", s->p[s->at]))
			return false;
		if (s->p[s->at] == 'u' &&
			json_hex4(s->p + s->at + 1, s->len - s->at - 1) == UINT32_MAX)
			return false;
	}
	return false;
}

static bool json_scan_digits(struct json_scan *s)
{
	size_t from = s->at;

	while (s->at < s->len && ascii_digit(s->p[s->at]))
		s->at++;
	return s->at > from;
}

static bool json_scan_number(struct json_scan *s)
{
	if (json_scan_is(s, '-'))
		s->at++;
	if (json_scan_is(s, '0'))
		s->at++;
	else if (!json_scan_digits(s))
		return false;
	if (json_scan_is(s, '.')) {
		s->at++;
		if (!json_scan_digits(s))
			return false;
	}
	if (json_scan_is(s, 'e') || json_scan_is(s, 'E')) {
		s->at++;
		if (json_scan_is(s, '+') || json_scan_is(s, '-'))
			s->at++;
		if (!json_scan_digits(s))
			return false;
	}
	return true;
}

static bool json_scan_word(struct json_scan *s, struct slice word)
{
	if (!slice_starts(slice_make(s->p + s->at, s->len - s->at), word))
		return false;
	s->at += word.len;
	return true;
}

/* Writes c as UTF-8; returns its length. */
static size_t json_utf8(uint32_t c, char to[4])
{
	if (c < 0x80) {
		to[0] = (char)c;
		return 1;
	}
	if (c < 0x800) {
		to[0] = (char)(0xc0 | c >> 6);
		to[1] = (char)(0x80 | (c & 63));
		return 2;
	}
	if (c < 0x10000) {
		to[0] = (char)(0xe0 | c >> 12);
		to[1] = (char)(0x80 | (c >> 6 & 63));
		to[2] = (char)(0x80 | (c & 63));
		return 3;
	}
	to[0] = (char)(0xf0 | c >> 18);
	to[1] = (char)(0x80 | (c >> 12 & 63));
	to[2] = (char)(0x80 | (c >> 6 & 63));
	to[3] = (char)(0x80 | (c & 63));
	return 4;
}

/* One character of a key, escapes undone; *key moves behind it. Half a surrogate gives bytes that
 * no pointer has. */
static size_t json_key_next(struct slice *key, char to[4])
{
	static const char letter[] = "bfnrt";
	static const char named[] = "\b\f\n\r\t";
	uint32_t c;
	uint32_t low;
	const char *at;

	to[0] = key->p[0];
	*key = slice_from(*key, 1);
	if (to[0] != '\\')
		return 1;
	at = strchr(letter, key->p[0]);
	to[0] = at ? named[at - letter] : key->p[0];
	*key = slice_from(*key, 1);
	if (key->p[-1] != 'u')
		return 1;
	c = json_hex4(key->p, key->len);
	*key = slice_from(*key, 4);
	if (c >= 0xd800 && c < 0xdc00 && slice_starts(*key, SLICE("\\u"))) {
		low = json_hex4(key->p + 2, key->len - 2);
		if (low >= 0xdc00 && low < 0xe000) {
			*key = slice_from(*key, 6);
			c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
		}
	}
	return json_utf8(c, to);
}

static bool json_key_is(struct slice key, struct slice token)
{
	while (key.len > 0) {
		char c[4];
		size_t n = json_key_next(&key, c);

		for (size_t i = 0; i < n; i++) {
			char want;

			if (token.len == 0)
				return false;
			want = token.p[0];
			token = slice_from(token, 1);
			if (want == '~') {
				want = token.p[0] == '0' ? '~' : '/';
				token = slice_from(token, 1);
			}
			if (want != c[i])
				return false;
		}
	}
	return token.len == 0;
}

/* The path grows by a member or an element. */
static void json_scan_enter(struct json_scan *s, struct slice key)
{
	for (size_t i = 0; i < s->n_pointers; i++) {
		struct json_pointer *p = &s->pointers[i];

		if (p->matched == s->depth - 1 && p->n_tokens >= s->depth &&
			json_key_is(key, json_pointer_token(p, s->depth - 1)))
			p->matched = s->depth;
	}
}

static void json_scan_leave(struct json_scan *s)
{
	for (size_t i = 0; i < s->n_pointers; i++)
		if (s->pointers[i].matched == s->depth)
			s->pointers[i].matched = s->depth - 1;
}

static void json_scan_found(struct json_scan *s, struct slice string)
{
	struct json_ranges *out = s->out;

	for (size_t i = 0; i < s->n_pointers; i++) {
		const struct json_pointer *p = &s->pointers[i];

		if (p->matched != s->depth || p->n_tokens != s->depth)
			continue;
		if (out->n == out->cap) {
			out->cap = out->cap ? 2 * out->cap : 4;
			out->items = xrealloc(out->items, out->cap * sizeof(*out->items));
		}
		out->items[out->n++] = (struct json_range){
			.from = (size_t)(string.p - s->p),
			.to = (size_t)(string.p - s->p) + string.len,
			.pointer = p->text,
		};
	}
}

static bool json_scan_value(struct json_scan *s);

/* Depth is bounded, and so is the recursion. */
static bool json_scan_item(struct json_scan *s, bool object, size_t index)
{
	char number[JSON_INDEX_MAX];
	struct slice key = SLICE_EMPTY;
	bool ok;

	if (object) {
		if (!json_scan_is(s, '"') || !json_scan_string(s, &key))
			return false;
		json_scan_space(s);
		if (!json_scan_is(s, ':'))
			return false;
		s->at++;
	} else {
		key = slice_make(number, (size_t)snprintf(number, sizeof(number), "%zu", index));
	}
	json_scan_enter(s, key);
	ok = json_scan_value(s);
	json_scan_leave(s);
	return ok;
}

static bool json_scan_container(struct json_scan *s)
{
	bool object = s->p[s->at++] == '{';
	char end = object ? '}' : ']';

	if (++s->depth > SUBSTITUTE_JSON_DEPTH_MAX)
		return false;
	json_scan_space(s);
	for (size_t i = 0; !json_scan_is(s, end); i++) {
		if (i > 0) {
			if (!json_scan_is(s, ','))
				return false;
			s->at++;
			json_scan_space(s);
		}
		if (!json_scan_item(s, object, i))
			return false;
	}
	s->at++;
	s->depth--;
	return true;
}

/* With the blanks around it. */
static bool json_scan_value(struct json_scan *s)
{
	struct slice string;
	bool ok;

	json_scan_space(s);
	if (s->at == s->len)
		return false;
	switch (s->p[s->at]) {
	case '{':
	case '[':
		ok = json_scan_container(s);
		break;
	case '"':
		ok = json_scan_string(s, &string);
		if (ok)
			json_scan_found(s, string);
		break;
	case 't':
		ok = json_scan_word(s, SLICE("true"));
		break;
	case 'f':
		ok = json_scan_word(s, SLICE("false"));
		break;
	case 'n':
		ok = json_scan_word(s, SLICE("null"));
		break;
	default:
		ok = json_scan_number(s);
		break;
	}
	json_scan_space(s);
	return ok;
}

/* The pointers of a binding, each once. */
static void json_scan_pointers(struct json_scan *s, const struct binding *b)
{
	size_t max = 0;

	for (size_t i = 0; i < b->n_substitutions; i++)
		max += b->substitutions[i].n_places;
	s->pointers = xcalloc(max ? max : 1, sizeof(*s->pointers));
	for (size_t i = 0; i < b->n_substitutions; i++) {
		const struct substitution *sub = &b->substitutions[i];

		for (size_t k = 0; k < sub->n_places; k++) {
			struct json_pointer *p = &s->pointers[s->n_pointers];
			size_t known = 0;

			if (sub->places[k].kind != PLACE_JSON)
				continue;
			p->text = sub->places[k].name;
			while (!slice_eq(s->pointers[known].text, p->text))
				known++;
			if (known < s->n_pointers)
				continue;
			for (size_t c = 0; c < p->text.len; c++)
				p->n_tokens += p->text.p[c] == '/';
			s->n_pointers++;
		}
	}
}

bool json_ranges_find(const struct binding *b, struct slice text, struct json_ranges *out)
{
	struct json_scan s = {.p = text.p, .len = text.len, .out = out};
	bool ok;

	*out = (struct json_ranges){.n = 0};
	json_scan_pointers(&s, b);
	ok = json_scan_value(&s) && s.at == s.len;
	free(s.pointers);
	if (!ok)
		json_ranges_fini(out);
	return ok;
}

void json_ranges_fini(struct json_ranges *r)
{
	free(r->items);
	*r = (struct json_ranges){.n = 0};
}

struct substitute_range json_ranges_next(void *arg, size_t at)
{
	struct json_ranges *r = arg;
	const struct json_range *item;

	while (r->at < r->n && r->items[r->at].to < at)
		r->at++;
	if (r->at == r->n)
		return (struct substitute_range){.from = 1, .to = 0};
	item = &r->items[r->at];
	return (struct substitute_range){item->from, item->to, item->pointer};
}
