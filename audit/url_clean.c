/* Drops userinfo from a URL, masks secret parameters and cuts what is too long.
 *
 * One pass over the text that hands out pieces; a piece goes to the buffer while there is room, and
 * to a SHA-256 once there is not. When in doubt it masks more, never less. */
#include "audit/url_clean.h"

#include "audit/ring.h"

static const struct slice url_secrets[] = {
#define X(name) {name, sizeof(name) - 1},
	URL_SECRET_TABLE(X)
#undef X
};

struct url_out {
	char *buf;
	size_t len; /* of the clean form so far, beyond the buffer too */
	struct ring_sha *sha;
};

static void url_out_add(struct url_out *o, struct slice s)
{
	size_t room = o->len < AUDIT_URL_MAX ? AUDIT_URL_MAX - o->len : 0;

	if (s.len <= room) {
		if (s.len > 0)
			memcpy(o->buf + o->len, s.p, s.len);
	} else {
		if (!o->sha) {
			o->sha = ring_sha_new();
			ring_sha_add(o->sha, slice_make(o->buf, o->len));
		}
		if (room > 0)
			memcpy(o->buf + o->len, s.p, room);
		ring_sha_add(o->sha, s);
	}
	o->len += s.len;
}

/* Decimal digits of v at the end of buf. */
static struct slice url_decimal(uint64_t v, char buf[20])
{
	size_t at = 20;

	do {
		buf[--at] = (char)('0' + v % 10);
		v /= 10;
	} while (v > 0);
	return slice_make(buf + at, 20 - at);
}

static size_t url_put(char *buf, size_t at, struct slice s)
{
	memcpy(buf + at, s.p, s.len);
	return at + s.len;
}

/* The mark of a cut URL, in place of what is beyond the limit. */
static size_t url_out_end(struct url_out *o)
{
	char digits[20];
	char hex[RING_HEX_LEN];
	size_t at = o->len;

	if (!o->sha)
		return at;
	ring_sha_end(o->sha, hex);
	at = AUDIT_URL_MAX;
	/* Not in the middle of a character. */
	for (int i = 0; i < 3 && ((unsigned char)o->buf[at - 1] & 0xc0) == 0x80; i++)
		at--;
	if ((unsigned char)o->buf[at - 1] >= 0xc0)
		at--;
	at = url_put(o->buf, at, SLICE("\xe2\x80\xa6[len="));
	at = url_put(o->buf, at, url_decimal(o->len, digits));
	at = url_put(o->buf, at, SLICE(" sha256="));
	at = url_put(o->buf, at, slice_make(hex, RING_HEX_LEN));
	return url_put(o->buf, at, SLICE("]"));
}

/* Undoes percent-encoding and letter case; false if the name is too long to be one of ours. */
static bool url_name_plain(struct slice name, char buf[URL_SECRET_NAME_MAX], size_t *len)
{
	size_t n = 0;

	for (size_t i = 0; i < name.len; i++) {
		char c = name.p[i];
		int high = c == '%' && name.len - i > 2 ? ascii_hex(name.p[i + 1]) : -1;
		int low = high >= 0 ? ascii_hex(name.p[i + 2]) : -1;

		if (low >= 0) {
			c = (char)(high * 16 + low);
			i += 2;
		}
		if (n == URL_SECRET_NAME_MAX)
			return false;
		buf[n++] = ascii_lower(c);
	}
	*len = n;
	return true;
}

bool url_secret_name(struct slice name)
{
	char buf[URL_SECRET_NAME_MAX];
	size_t len;

	if (!url_name_plain(name, buf, &len) || len == 0)
		return false;
	for (size_t i = 0; i < ARRAY_LEN(url_secrets); i++) {
		if (len == url_secrets[i].len && memcmp(buf, url_secrets[i].p, len) == 0)
			return true;
	}
	return false;
}

/* Where a value that starts at s ends. In a query a `;` may belong to the value, in a path (matrix
 * parameters) it begins the next one. */
static size_t url_value_len(struct slice s, bool in_path)
{
	size_t i;

	for (i = 0; i < s.len; i++) {
		char c = s.p[i];

		if (c == '&' || c == '#' || (in_path && (c == '/' || c == ';' || c == '?')))
			break;
	}
	return i;
}

/* Bytes of userinfo with its '@' at the start of an authority, 0 if there is none. */
static size_t url_userinfo_len(struct slice s)
{
	size_t len = 0;

	for (size_t i = 0; i < s.len; i++) {
		char c = s.p[i];

		if (c == '/' || c == '?' || c == '#' || c == '&')
			break;
		if (c == '@')
			len = i + 1;
	}
	return len;
}

static bool url_is_mark(char c)
{
	return c == '?' || c == '&' || c == ';' || c == '#';
}

/* `name=value` at the start of s, after one of ? & ; #. Hands out the name and the mask; returns
 * the bytes used, 0 if it is no secret. */
static size_t url_param(struct url_out *o, struct slice s, bool in_path)
{
	char digits[20];
	size_t eq = 0;
	size_t value;

	while (eq < s.len && s.p[eq] != '=' && s.p[eq] != '/' && !url_is_mark(s.p[eq]))
		eq++;
	if (eq == s.len || s.p[eq] != '=' || !url_secret_name(slice_first(s, eq)))
		return 0;
	value = url_value_len(slice_from(s, eq + 1), in_path);
	url_out_add(o, slice_first(s, eq + 1));
	url_out_add(o, SLICE("<"));
	url_out_add(o, url_decimal(value, digits));
	url_out_add(o, SLICE(">"));
	return eq + 1 + value;
}

size_t url_clean(struct slice url, char buf[URL_CLEAN_MAX])
{
	struct url_out o = {.buf = buf};
	size_t from = 0; /* what is before this has been handed out */
	size_t i = 0;
	bool in_path = true;

	/* Authority form, host:port, has no scheme. */
	if (url.len > 0 && url.p[0] != '/')
		from = i = url_userinfo_len(url);
	while (i < url.len) {
		char c = url.p[i++];

		if (c == '/' && i >= 3 && url.p[i - 2] == '/' && url.p[i - 3] == ':') {
			url_out_add(&o, slice_make(url.p + from, i - from));
			i += url_userinfo_len(slice_from(url, i));
			from = i;
		} else if (url_is_mark(c)) {
			in_path = in_path && c == ';';
			url_out_add(&o, slice_make(url.p + from, i - from));
			i += url_param(&o, slice_from(url, i), in_path);
			from = i;
		}
	}
	if (from < url.len)
		url_out_add(&o, slice_from(url, from));
	return url_out_end(&o);
}
