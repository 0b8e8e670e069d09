/* HTTP/1.1 heads: where one ends, its start line, its fields, and the framing of what follows.
 *
 * The session and the control API feed it from their input buffers, upstream from the origin's;
 * bodies go on in h1_body.c. Whatever two parsers could read differently is refused here, so that
 * nobody behind us ever sees it. */
#include "proxy/h1.h"

#include "base/err.h"
#include "proxy/chars_int.h"
#include "proxy/h1_int.h"

#define H1_VERSION_LEN 8 /* "HTTP/1.1" */
#define H1_EMPTY_LINES_LEN_MAX (2U * H1_EMPTY_LINES_MAX)

static const char *const h1_error_texts[H1_ERROR_MAX] = {
#define X(id, text) [H1_##id] = (text),
	H1_ERROR_TABLE(X)
#undef X
};

const char *h1_error_text(enum h1_error e)
{
	return h1_error_texts[e];
}

/* Bytes of the empty lines in front; counts one more than are allowed at most. */
static size_t h1_empty_lines_len(struct slice in)
{
	size_t len = 0;

	while (len <= H1_EMPTY_LINES_LEN_MAX && in.len - len >= 2 && in.p[len] == '\r' &&
		in.p[len + 1] == '\n')
		len += 2;
	return len;
}

static ssize_t h1_head_refuse(int ret, enum h1_error e, enum h1_error *error)
{
	*error = e;
	return ret;
}

ssize_t h1_head_end(struct slice in, size_t *scanned, enum h1_error *error)
{
	/* Nothing past the limit is looked at: the answer must not depend on what came along. */
	struct slice s = slice_first(in, H1_HEAD_MAX);
	size_t start = h1_empty_lines_len(s);
	const char *end = s.p + s.len, *p;

	*error = H1_OK;
	if (start > H1_EMPTY_LINES_LEN_MAX)
		return h1_head_refuse(E_SYNTAX, H1_REQUEST_LINE, error);
	p = s.p + (*scanned > start ? *scanned : start);
	while (p < end) {
		p = chars_find_control(p, end);
		if (p == end)
			break;
		if (*p != '\r')
			return h1_head_refuse(
				E_SYNTAX, *p == '\n' ? H1_BARE_LF : H1_CONTROL_BYTE, error);
		if (end - p < 2)
			break;
		if (p[1] != '\n')
			return h1_head_refuse(E_SYNTAX, H1_BARE_CR, error);
		/* The line is empty if another ended right before it; leading empty lines are
		 * behind us. */
		if (p > s.p + start && p[-1] == '\n')
			return p + 2 - s.p;
		p += 2;
	}
	*scanned = (size_t)(p - s.p);
	if (s.len == H1_HEAD_MAX)
		return h1_head_refuse(E_LIMIT, H1_HEAD_TOO_LARGE, error);
	return E_MORE;
}

/* Moves *p over CRLF. */
static enum h1_error h1_line_end(const char **p, const char *end, enum h1_error otherwise)
{
	const char *s = *p;

	if (end - s >= 2 && s[0] == '\r' && s[1] == '\n') {
		*p = s + 2;
		return H1_OK;
	}
	if (s < end && *s == '\n')
		return H1_BARE_LF;
	return s < end && *s == '\r' ? H1_BARE_CR : otherwise;
}

static enum h1_error h1_field_value(const char **p, const char *end, struct slice *value)
{
	const char *from = *p, *to;

	while (from < end && char_is_ows(*from))
		from++;
	to = chars_find_control(from, end);
	*p = to;
	while (to > from && char_is_ows(to[-1]))
		to--;
	*value = (struct slice){from, (size_t)(to - from)};
	return h1_line_end(p, end, H1_FIELD_VALUE);
}

/* line: where it begins; p: where its token ended without a colon. */
static enum h1_error h1_field_name_error(const char *line, const char *p, const char *end)
{
	if (line < end && char_is_ows(*line))
		return H1_FIELD_FOLDED;
	if (p == line || p == end)
		return H1_FIELD_NAME;
	if (*p == '\n')
		return H1_BARE_LF;
	return *p == '\r' ? H1_FIELD_NO_COLON : H1_FIELD_NAME;
}

enum h1_error h1_field_line(const char **p, const char *end, struct field *out)
{
	const char *line = *p, *s = line;

	while (s < end && char_is_token(*s))
		s++;
	if (s == line || s == end || *s != ':')
		return h1_field_name_error(line, s, end);
	out->name = (struct slice){line, (size_t)(s - line)};
	out->id = field_id_find(out->name);
	*p = s + 1;
	return h1_field_value(p, end, &out->value);
}

/* A response line whose name is no token: taken out, unless a more tolerant reader would find a
 * length in it (RFC 9112 5.1 lets a client remove blanks before the colon). */
static enum h1_error h1_field_drop(const char **p, const char *end)
{
	const char *line = *p, *to = chars_find_control(line, end);
	const char *colon = memchr(line, ':', (size_t)(to - line));
	enum field_id id;

	if (!colon)
		return H1_FIELD_NO_COLON;
	id = field_id_find(slice_trim((struct slice){line, (size_t)(colon - line)}));
	if (id == FIELD_CONTENT_LENGTH || id == FIELD_TRANSFER_ENCODING)
		return H1_FIELD_NAME;
	*p = to;
	return h1_line_end(p, end, H1_FIELD_VALUE);
}

/* Reads field lines up to and with the empty line, which must be the end. *twice has a bit for
 * each known field that is there more than once. */
static enum h1_error h1_fields_decode(
	struct slice s, bool drop_odd_names, struct fields *f, uint64_t *twice)
{
	const char *p = s.p, *end = s.p + s.len;

	f->n = 0;
	f->seen = 0;
	*twice = 0;
	while (end - p != 2 || p[0] != '\r' || p[1] != '\n') {
		enum h1_error e;
		uint64_t bit;

		if (f->n == FIELDS_MAX)
			return H1_TOO_MANY_FIELDS;
		e = h1_field_line(&p, end, &f->v[f->n]);
		if (e == H1_FIELD_NAME && drop_odd_names) {
			e = h1_field_drop(&p, end);
			if (e != H1_OK)
				return e;
			continue;
		}
		if (e != H1_OK)
			return e;
		bit = UINT64_C(1) << f->v[f->n].id;
		*twice |= f->seen & bit;
		f->seen |= bit;
		f->n++;
	}
	f->seen &= ~(UINT64_C(1) << FIELD_OTHER);
	return H1_OK;
}

static enum h1_error h1_version(
	const char **p, const char *end, uint8_t *minor, enum h1_error otherwise)
{
	const char *s = *p;

	if (end - s < H1_VERSION_LEN || memcmp(s, "HTTP/", 5) != 0 || !ascii_digit(s[5]) ||
		s[6] != '.' || !ascii_digit(s[7]))
		return otherwise;
	if (s[5] != '1' || s[7] > '1')
		return H1_VERSION;
	*minor = (uint8_t)(s[7] - '0');
	*p = s + H1_VERSION_LEN;
	return H1_OK;
}

static enum h1_error h1_request_line(const char **p, const char *end, struct h1_head *out)
{
	const char *from = *p, *s = from;
	enum h1_error e;

	while (s < end && char_is_token(*s))
		s++;
	out->method = (struct slice){from, (size_t)(s - from)};
	if (s == end || *s == '\r')
		return H1_REQUEST_LINE;
	if (*s != ' ' || out->method.len == 0 || out->method.len > H1_METHOD_MAX)
		return H1_METHOD;
	from = s + 1;
	s = chars_find_below(from, end, '!');
	out->target = (struct slice){from, (size_t)(s - from)};
	if (out->target.len > H1_TARGET_MAX)
		return H1_TARGET_TOO_LONG;
	if (s == end || *s == '\r' || (*s == ' ' && s == from))
		return H1_REQUEST_LINE;
	if (*s != ' ')
		return H1_TARGET;
	*p = s + 1;
	e = h1_version(p, end, &out->minor, H1_REQUEST_LINE);
	return e == H1_OK ? h1_line_end(p, end, H1_REQUEST_LINE) : e;
}

static enum h1_error h1_status_line(const char **p, const char *end, struct h1_head *out)
{
	const char *s;
	enum h1_error e = h1_version(p, end, &out->minor, H1_STATUS_LINE);

	if (e != H1_OK)
		return e;
	s = *p;
	if (end - s < 4 || s[0] != ' ' || s[1] < '1' || s[1] > '9' || !ascii_digit(s[2]) ||
		!ascii_digit(s[3]))
		return H1_STATUS_LINE;
	out->status = (uint16_t)((s[1] - '0') * 100 + (s[2] - '0') * 10 + (s[3] - '0'));
	s += 4;
	if (s < end && *s == ' ')
		s++;
	else if (s < end && *s != '\r')
		return H1_STATUS_LINE;
	*p = chars_find_control(s, end);
	out->reason = (struct slice){s, (size_t)(*p - s)};
	return h1_line_end(p, end, H1_STATUS_LINE);
}

/* RFC 9112 9.3. "close" wins over "keep-alive", whichever of the two fields says it. */
static bool h1_keep_alive(const struct h1_head *h)
{
	const struct fields *f = &h->fields;
	bool keep = h->minor == 1;

	for (size_t i = 0; i < f->n; i++) {
		struct slice rest = f->v[i].value, member;

		if (f->v[i].id != FIELD_CONNECTION && f->v[i].id != FIELD_PROXY_CONNECTION)
			continue;
		while (field_list_next(&rest, &member)) {
			if (slice_ieq(member, SLICE("close")))
				return false;
			if (slice_ieq(member, SLICE("keep-alive")))
				keep = true;
		}
	}
	return keep;
}

/* The value is one number, or with `list` (responses) the same number in each member. */
static enum h1_error h1_length_decode(struct slice value, bool list, bool *any, uint64_t *length)
{
	struct slice rest = value;

	do {
		struct slice member = list ? slice_trim(slice_cut(&rest, ',')) : value;
		uint64_t v;

		if (!slice_to_u64(member, &v) || v > INT64_MAX)
			return H1_LENGTH_INVALID;
		if (*any && v != *length)
			return H1_LENGTH_TWICE;
		*length = v;
		*any = true;
	} while (list && rest.p);
	return H1_OK;
}

/* What both directions demand of Transfer-Encoding and Content-Length. Leaves H1_NO_CONTENT if
 * neither is there. */
static enum h1_error h1_framing_decode(struct h1_head *h, uint64_t twice, bool response)
{
	const struct fields *f = &h->fields;
	bool any = false;

	h->framing = H1_NO_CONTENT;
	h->length = 0;
	if (fields_have(f, FIELD_TRANSFER_ENCODING)) {
		if (fields_have(f, FIELD_CONTENT_LENGTH))
			return H1_LENGTH_AND_CODING;
		if (h->minor == 0)
			return H1_CODING_1_0;
		if ((twice >> FIELD_TRANSFER_ENCODING & 1) != 0 ||
			!slice_ieq(
				fields_find(f, FIELD_TRANSFER_ENCODING)->value, SLICE("chunked")))
			return H1_CODING;
		h->framing = H1_CHUNKED;
		return H1_OK;
	}
	if (!fields_have(f, FIELD_CONTENT_LENGTH))
		return H1_OK;
	if (!response && (twice >> FIELD_CONTENT_LENGTH & 1) != 0)
		return H1_LENGTH_TWICE;
	for (size_t i = 0; i < f->n; i++) {
		enum h1_error e;

		if (f->v[i].id != FIELD_CONTENT_LENGTH)
			continue;
		e = h1_length_decode(f->v[i].value, response, &any, &h->length);
		if (e != H1_OK)
			return e;
	}
	h->framing = H1_LENGTH;
	return H1_OK;
}

enum h1_error h1_request_decode(struct slice head, struct h1_head *out)
{
	size_t empty = h1_empty_lines_len(head);
	const char *p = head.p + empty, *end = head.p + head.len;
	uint64_t twice;
	enum h1_error e;

	if (empty > H1_EMPTY_LINES_LEN_MAX)
		return H1_REQUEST_LINE;
	out->status = 0;
	out->reason = SLICE_EMPTY;
	e = h1_request_line(&p, end, out);
	if (e != H1_OK)
		return e;
	e = h1_fields_decode((struct slice){p, (size_t)(end - p)}, false, &out->fields, &twice);
	if (e != H1_OK)
		return e;
	if ((twice >> FIELD_HOST & 1) != 0)
		return H1_HOST_TWICE;
	if (out->minor == 1 && !fields_have(&out->fields, FIELD_HOST))
		return H1_HOST_MISSING;
	e = h1_framing_decode(out, twice, false);
	if (e != H1_OK)
		return e;
	/* Where the content ends and the other protocol begins, nobody could tell for sure. */
	if ((out->framing == H1_CHUNKED || out->length > 0) &&
		(fields_have(&out->fields, FIELD_UPGRADE) ||
			slice_eq(out->method, SLICE("CONNECT"))))
		return H1_UPGRADE_WITH_CONTENT;
	out->keep_alive = h1_keep_alive(out);
	return H1_OK;
}

/* RFC 9112 6.3, the first two rules. */
static bool h1_response_has_content(struct slice method, uint16_t status)
{
	if (status < 200 || status == 204 || status == 304)
		return false;
	if (slice_eq(method, SLICE("HEAD")))
		return false;
	return status >= 300 || !slice_eq(method, SLICE("CONNECT"));
}

enum h1_error h1_response_decode(struct slice head, struct slice method, struct h1_head *out)
{
	const char *p = head.p, *end = head.p + head.len;
	uint64_t twice;
	enum h1_error e;

	out->method = SLICE_EMPTY;
	out->target = SLICE_EMPTY;
	e = h1_status_line(&p, end, out);
	if (e != H1_OK)
		return e;
	e = h1_fields_decode((struct slice){p, (size_t)(end - p)}, true, &out->fields, &twice);
	if (e != H1_OK)
		return e;
	e = h1_framing_decode(out, twice, true);
	if (e != H1_OK)
		return e;
	out->keep_alive = h1_keep_alive(out);
	if (!h1_response_has_content(method, out->status)) {
		out->framing = H1_NO_CONTENT;
		out->length = 0;
	} else if (out->framing == H1_NO_CONTENT) {
		out->framing = H1_UNTIL_CLOSE;
		out->keep_alive = false;
	}
	return H1_OK;
}
