/* One event as JSON text, written by hand: no allocation and no printf on the path of a request.
 *
 * Text from outside becomes valid UTF-8 without control or direction characters. A byte that is not
 * part of valid UTF-8 is written as \\xNN, so that nothing is lost. */
#include "audit/event_json.h"

#include "base/clock.h"

#define EVENT_CODE_BAD UINT32_MAX /* not UTF-8 */

static const char *const event_kinds[] = {
#define X(id, name) name,
	AUDIT_KIND_TABLE(X)
#undef X
};

static const char *const event_verdicts[] = {
#define X(id, name) name,
	AUDIT_VERDICT_TABLE(X)
#undef X
};

static const char event_hex[] = "0123456789abcdef";

const char *event_kind_name(enum audit_kind kind)
{
	REQUIRE((unsigned int)kind < ARRAY_LEN(event_kinds));
	return event_kinds[kind];
}

const char *event_verdict_name(enum audit_verdict verdict)
{
	REQUIRE((unsigned int)verdict < ARRAY_LEN(event_verdicts));
	return event_verdicts[verdict];
}

/* Adds one text to the record, cut at max bytes, not inside a character. */
static void event_rec_text(
	struct event_rec *r, size_t *at, enum event_text which, struct slice s, size_t max)
{
	size_t n = s.len;

	if (n > max) {
		n = max;
		for (int i = 0; i < 3 && n > 0 && ((unsigned char)s.p[n] & 0xc0) == 0x80; i++)
			n--;
	}
	if (n > 0)
		memcpy(r->text + *at, s.p, n);
	if (n < s.len) {
		memcpy(r->text + *at + n, EVENT_CUT_MARK, EVENT_CUT_MARK_LEN);
		n += EVENT_CUT_MARK_LEN;
	}
	r->len[which] = (uint16_t)n;
	*at += n;
}

void event_rec_set(struct event_rec *r, const struct audit_event *e)
{
	size_t at = 0;

	r->start_us = e->start_us;
	r->up = e->up;
	r->down = e->down;
	r->ms = e->ms;
	r->revision = e->revision;
	r->uid = e->uid;
	r->count = e->count;
	r->port = e->port;
	r->status = e->status;
	r->kind = (uint8_t)e->kind;
	r->verdict = (uint8_t)e->verdict;
	r->reason = (uint8_t)e->reason;
	r->has_addr = e->has_addr;
	r->addr = e->addr;
	event_rec_text(r, &at, EVENT_METHOD, e->method, AUDIT_METHOD_MAX);
	/* Room for the longest clean form is left by the sum of the maxima. */
	r->len[EVENT_URL] = (uint16_t)url_clean(e->url, r->text + at);
	at += r->len[EVENT_URL];
	event_rec_text(r, &at, EVENT_HOST, e->host, EVENT_HOST_MAX);
	event_rec_text(r, &at, EVENT_VIA, e->via, EVENT_VIA_MAX);
	event_rec_text(r, &at, EVENT_ALPN, e->alpn, EVENT_ALPN_MAX);
	event_rec_text(r, &at, EVENT_RULE, e->rule, AUDIT_RULE_MAX);
	event_rec_text(r, &at, EVENT_BINDING, e->binding, EVENT_BINDING_MAX);
	event_rec_text(r, &at, EVENT_PROOF, e->proof, EVENT_PROOF_MAX);
	event_rec_text(r, &at, EVENT_AGENT, e->user_agent, AUDIT_AGENT_MAX);
}

static char *event_put(char *p, struct slice s)
{
	memcpy(p, s.p, s.len);
	return p + s.len;
}

static char *event_put_str(char *p, const char *s)
{
	return event_put(p, slice_str(s));
}

static char *event_put_u64(char *p, uint64_t v)
{
	char digits[20];
	size_t at = sizeof(digits);

	do {
		digits[--at] = (char)('0' + v % 10);
		v /= 10;
	} while (v > 0);
	return event_put(p, slice_make(digits + at, sizeof(digits) - at));
}

/* Reads one character of UTF-8 (RFC 3629: no surrogates, no overlong forms). */
static uint32_t event_code(struct slice s, size_t *len)
{
	const unsigned char *p = (const unsigned char *)s.p;
	size_t n = p[0] >= 0xf0 ? 4 : p[0] >= 0xe0 ? 3 : 2;
	uint32_t min = n == 4 ? 0x10000 : n == 3 ? 0x800 : 0x80;
	uint32_t code = p[0] & (0x7fU >> n);

	*len = 1;
	if (p[0] < 0xc2 || p[0] > 0xf4 || s.len < n)
		return EVENT_CODE_BAD;
	for (size_t i = 1; i < n; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return EVENT_CODE_BAD;
		code = code << 6 | (p[i] & 0x3fU);
	}
	if (code < min || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
		return EVENT_CODE_BAD;
	*len = n;
	return code;
}

/* Characters that could make a terminal or an editor show something else than what is there. */
static bool event_code_hidden(uint32_t code)
{
	return (code >= 0x7f && code <= 0x9f) || (code >= 0x200b && code <= 0x200f) ||
		(code >= 0x2028 && code <= 0x202e) || (code >= 0x2060 && code <= 0x206f) ||
		code == 0xfeff;
}

static char *event_put_code(char *p, uint32_t code)
{
	p = event_put(p, SLICE("\\u"));
	for (int shift = 12; shift >= 0; shift -= 4)
		*p++ = event_hex[code >> shift & 0xf];
	return p;
}

/* One character that is not plain printable ASCII; *i moves past it. */
static char *event_put_odd(char *p, struct slice s, size_t *i)
{
	unsigned char c = (unsigned char)s.p[*i];
	uint32_t code = c;
	size_t len = 1;

	if (c == '"' || c == '\\') {
		*p++ = '\\';
		*p++ = (char)c;
	} else if (c < 0x80) {
		p = event_put_code(p, code);
	} else {
		code = event_code(slice_from(s, *i), &len);
		if (code == EVENT_CODE_BAD) {
			p = event_put(p, SLICE("\\\\x"));
			*p++ = event_hex[c >> 4];
			*p++ = event_hex[c & 0xf];
		} else if (event_code_hidden(code)) {
			p = event_put_code(p, code);
		} else {
			p = event_put(p, slice_make(s.p + *i, len));
		}
	}
	*i += len;
	return p;
}

static bool event_plain(unsigned char c)
{
	return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
}

static char *event_put_string(char *p, struct slice s)
{
	size_t i = 0;

	*p++ = '"';
	while (i < s.len) {
		size_t from = i;

		while (i < s.len && event_plain((unsigned char)s.p[i]))
			i++;
		p = event_put(p, slice_make(s.p + from, i - from));
		if (i < s.len)
			p = event_put_odd(p, s, &i);
	}
	*p++ = '"';
	return p;
}

size_t event_json_string(char *buf, struct slice s)
{
	return (size_t)(event_put_string(buf, s) - buf);
}

/* A string, or null when it is empty. */
static char *event_put_text(char *p, struct slice s)
{
	return s.len > 0 ? event_put_string(p, s) : event_put(p, SLICE("null"));
}

static char *event_put_known(char *p, bool known, uint64_t v)
{
	return known ? event_put_u64(p, v) : event_put(p, SLICE("null"));
}

static char *event_put_facts(char *p, const struct event_rec *r)
{
	char addr[NETADDR_TEXT_MAX];

	p = event_put(p, SLICE(",\"port\":"));
	p = event_put_known(p, r->port != 0, r->port);
	p = event_put(p, SLICE(",\"addr\":"));
	if (r->has_addr)
		p = event_put_text(p, slice_make(addr, netaddr_text(&r->addr, addr)));
	else
		p = event_put(p, SLICE("null"));
	p = event_put(p, SLICE(",\"status\":"));
	p = event_put_known(p, r->status != 0, r->status);
	p = event_put(p, SLICE(",\"up\":"));
	p = event_put_u64(p, r->up);
	p = event_put(p, SLICE(",\"down\":"));
	p = event_put_u64(p, r->down);
	p = event_put(p, SLICE(",\"ms\":"));
	return event_put_u64(p, r->ms);
}

size_t event_json_body(char buf[EVENT_JSON_MAX], const struct event_rec *r, const char *id,
	struct slice sandbox, struct slice context)
{
	struct slice text[EVENT_TEXT_MAX];
	char ts[CLOCK_TEXT_MAX];
	size_t at = 0;
	char *p = buf;

	for (size_t i = 0; i < EVENT_TEXT_MAX; i++) {
		text[i] = slice_make(r->text + at, r->len[i]);
		at += r->len[i];
	}
	clock_text(r->start_us, ts);
	p = event_put(p, SLICE("\"ts\":\""));
	p = event_put_str(p, ts);
	p = event_put(p, SLICE("\",\"id\":\""));
	p = event_put(p, slice_make(id, AUDIT_ID_LEN));
	p = event_put(p, SLICE("\",\"sandbox\":"));
	p = event_put_text(p, slice_first(sandbox, EVENT_SANDBOX_MAX));
	p = event_put(p, SLICE(",\"context\":"));
	p = event_put(p, context.len > 0 ? context : SLICE("null"));
	p = event_put(p, SLICE(",\"kind\":\""));
	p = event_put_str(p, event_kind_name((enum audit_kind)r->kind));
	p = event_put(p, SLICE("\",\"verdict\":\""));
	p = event_put_str(p, event_verdict_name((enum audit_verdict)r->verdict));
	p = event_put(p, SLICE("\",\"reason\":\""));
	p = event_put_str(p, reason_name((enum reason)r->reason));
	p = event_put(p, SLICE("\",\"method\":"));
	p = event_put_text(p, text[EVENT_METHOD]);
	p = event_put(p, SLICE(",\"url\":"));
	p = event_put_text(p, text[EVENT_URL]);
	p = event_put(p, SLICE(",\"host\":"));
	p = event_put_text(p, text[EVENT_HOST]);
	p = event_put_facts(p, r);
	p = event_put(p, SLICE(",\"via\":"));
	p = event_put_text(p, text[EVENT_VIA]);
	p = event_put(p, SLICE(",\"alpn\":"));
	p = event_put_text(p, text[EVENT_ALPN]);
	p = event_put(p, SLICE(",\"rule\":"));
	p = event_put_text(p, text[EVENT_RULE]);
	p = event_put(p, SLICE(",\"binding\":"));
	p = event_put_text(p, text[EVENT_BINDING]);
	p = event_put(p, SLICE(",\"revision\":"));
	p = event_put_known(p, r->revision != 0, r->revision);
	p = event_put(p, SLICE(",\"proof\":"));
	p = event_put_text(p, text[EVENT_PROOF]);
	p = event_put(p, SLICE(",\"uid\":"));
	p = event_put_known(p, r->uid != AUDIT_UID_NONE, r->uid);
	p = event_put(p, SLICE(",\"user_agent\":"));
	p = event_put_text(p, text[EVENT_AGENT]);
	if (r->count > 1) {
		p = event_put(p, SLICE(",\"count\":"));
		p = event_put_u64(p, r->count);
	}
	REQUIRE(p <= buf + EVENT_JSON_MAX);
	return (size_t)(p - buf);
}
