/* Rewriting of heads. Comes after admit; the connection's scratch gathers what is written here, so
 * a head and its first content leave in one piece. */
#include "proxy/rewrite.h"

static size_t write_slice(struct conn *c, struct slice s)
{
	conn_write(c, s);
	return s.len;
}

/* Fields that Connection names are the sender's to this hop only. Ours to keep even then: names
 * that would change what the message is. */
static bool connection_names(const struct fields *f, struct slice name)
{
	return fields_list_has(f, FIELD_CONNECTION, name) ||
		fields_list_has(f, FIELD_PROXY_CONNECTION, name);
}

#define FIELD_BIT(id) (1ULL << FIELD_##id)
static const uint64_t hop_by_hop = FIELD_BIT(CONNECTION) | FIELD_BIT(PROXY_CONNECTION) |
	FIELD_BIT(KEEP_ALIVE) | FIELD_BIT(TE) | FIELD_BIT(TRANSFER_ENCODING) |
	FIELD_BIT(CONTENT_LENGTH) | FIELD_BIT(TRAILER) | FIELD_BIT(UPGRADE) |
	FIELD_BIT(HTTP2_SETTINGS) | FIELD_BIT(PROXY_AUTHORIZATION) | FIELD_BIT(PROXY_AUTHENTICATE) |
	FIELD_BIT(PROXY_AUTHENTICATION_INFO);

static bool field_is_hop_by_hop(const struct field *x)
{
	return (hop_by_hop >> x->id & 1) != 0;
}

static bool slice_istarts(struct slice s, struct slice prefix)
{
	return s.len >= prefix.len && slice_ieq(slice_first(s, prefix.len), prefix);
}

/* Proxy-* is for us, OPENSANDBOX-* for the control API: neither is the origin's business (C58). */
static bool field_is_ours(const struct field *x)
{
	char c = x->name.len > 6 ? ascii_lower(x->name.p[0]) : 0;

	if (x->id == FIELD_EGRESS_AUTH)
		return true;
	return (c == 'p' && slice_istarts(x->name, SLICE("proxy-"))) ||
		(c == 'o' && slice_istarts(x->name, SLICE("opensandbox-")));
}

/* Connection names more than the usual tokens, so each field has to be compared with it. */
static bool connection_is_special(const struct fields *f)
{
	static const enum field_id ids[] = {FIELD_CONNECTION, FIELD_PROXY_CONNECTION};

	for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
		struct slice rest, member;

		if (!fields_have(f, ids[i]))
			continue;
		for (size_t k = 0; k < f->n; k++) {
			if (f->v[k].id != ids[i])
				continue;
			rest = f->v[k].value;
			while (field_list_next(&rest, &member))
				if (!slice_ieq(member, SLICE("keep-alive")) &&
					!slice_ieq(member, SLICE("close")))
					return true;
		}
	}
	return false;
}

static void fields_keep(struct fields *f, size_t n)
{
	f->n = n;
	f->seen = 0;
	for (size_t i = 0; i < n; i++)
		if (f->v[i].id != FIELD_OTHER)
			f->seen |= 1ULL << f->v[i].id;
}

void rewrite_request_fields(struct fields *f)
{
	bool special = connection_is_special(f);
	struct fields lists;
	size_t n = 0;

	if (special)
		lists = *f; /* the names in Connection are asked for while the table shrinks */
	for (size_t i = 0; i < f->n; i++) {
		const struct field *x = &f->v[i];

		if (x->id == FIELD_HOST || field_is_hop_by_hop(x) || field_is_ours(x))
			continue;
		if (special && connection_names(&lists, x->name))
			continue;
		f->v[n++] = *x;
	}
	fields_keep(f, n);
}

void rewrite_response_fields(struct h1_head *h, bool is_head)
{
	bool keep_length = h->framing == H1_LENGTH || is_head || h->status == 304;
	struct fields *f = &h->fields;
	bool special = connection_is_special(f);
	struct fields lists;
	size_t n = 0;

	if (special)
		lists = *f;
	for (size_t i = 0; i < f->n; i++) {
		const struct field *x = &f->v[i];

		if (x->id == FIELD_CONTENT_LENGTH && keep_length) {
			keep_length = false;
			f->v[n++] = *x;
			continue;
		}
		if (x->id == FIELD_ALT_SVC || field_is_hop_by_hop(x))
			continue;
		if (special && connection_names(&lists, x->name))
			continue;
		f->v[n++] = *x;
	}
	fields_keep(f, n);
}

/* True if the field stands in its head exactly as we would write it. */
static bool field_is_canonical(const struct field *x)
{
	const char *end = x->name.p + x->name.len;

	return end[0] == ':' && end[1] == ' ' && x->value.p == end + 2 &&
		x->value.p[x->value.len] == '\r';
}

size_t rewrite_fields(const struct fields *f, struct conn *c)
{
	const char *run = NULL, *run_end = NULL;
	size_t total = 0;

	for (size_t i = 0; i < f->n; i++) {
		const struct field *x = &f->v[i];

		if (run && x->name.p == run_end && field_is_canonical(x)) {
			run_end = x->value.p + x->value.len + 2;
			continue;
		}
		if (run)
			total += write_slice(c, slice_make(run, (size_t)(run_end - run)));
		run = NULL;
		if (field_is_canonical(x)) {
			run = x->name.p;
			run_end = x->value.p + x->value.len + 2;
			continue;
		}
		total += write_slice(c, x->name);
		total += write_slice(c, SLICE(": "));
		total += write_slice(c, x->value);
		total += write_slice(c, SLICE("\r\n"));
	}
	if (run)
		total += write_slice(c, slice_make(run, (size_t)(run_end - run)));
	return total;
}

bool rewrite_upgrade(const struct fields *f, bool *only_h2c)
{
	bool any = false;

	*only_h2c = true;
	for (size_t i = 0; i < f->n; i++) {
		struct slice rest = f->v[i].value, member;

		if (f->v[i].id != FIELD_UPGRADE)
			continue;
		any = true;
		while (field_list_next(&rest, &member))
			if (!slice_ieq(member, SLICE("h2c")))
				*only_h2c = false;
	}
	*only_h2c = *only_h2c && any;
	return any;
}

static size_t write_upgrade(const struct fields *f, struct conn *c)
{
	size_t total = write_slice(c, SLICE("Connection: Upgrade\r\nUpgrade: "));
	bool first = true;

	for (size_t i = 0; i < f->n; i++) {
		struct slice rest = f->v[i].value, member;

		if (f->v[i].id != FIELD_UPGRADE)
			continue;
		while (field_list_next(&rest, &member)) {
			if (slice_ieq(member, SLICE("h2c")))
				continue;
			if (!first)
				total += write_slice(c, SLICE(", "));
			first = false;
			total += write_slice(c, member);
		}
	}
	return total + write_slice(c, SLICE("\r\n"));
}

size_t rewrite_length(struct conn *c, uint64_t length)
{
	char text[20];
	size_t at = sizeof(text);
	size_t total = write_slice(c, SLICE("Content-Length: "));

	do
		text[--at] = (char)('0' + length % 10);
	while ((length /= 10) > 0);
	total += write_slice(c, slice_make(text + at, sizeof(text) - at));
	return total + write_slice(c, SLICE("\r\n"));
}

size_t rewrite_request_head(struct exchange *ex, struct h1_head *h, struct conn *c, bool *chunked)
{
	char host[AUTHORITY_TEXT_MAX];
	size_t host_len = authority_text(&ex->target, ex->https ? 443 : 80, host);
	size_t total;

	total = write_slice(c, h->method);
	total += write_slice(c, SLICE(" "));
	total += keyed_write_target(ex, c);
	total += write_slice(c, SLICE(" HTTP/1.1\r\nHost: "));
	total += write_slice(c, slice_make(host, host_len));
	total += write_slice(c, SLICE("\r\n"));
	if (ex->upgrade)
		total += write_upgrade(&h->fields, c);
	rewrite_request_fields(&h->fields);
	if (ex->keyed.bound_host || ex->keyed.strip)
		total += keyed_write_fields(ex, &h->fields, c);
	else
		total += rewrite_fields(&h->fields, c);
	*chunked = h->framing == H1_CHUNKED && !ex->keyed.body_whole;
	if (ex->keyed.body_whole)
		total += rewrite_length(c, keyed_body_len(ex, h));
	else if (*chunked)
		total += write_slice(c, SLICE("Transfer-Encoding: chunked\r\n"));
	else if (h->framing == H1_LENGTH)
		total += rewrite_length(c, h->length);
	return total + write_slice(c, SLICE("\r\n"));
}

void rewrite_chunk(struct conn *c, struct slice content)
{
	static const char digits[] = "0123456789abcdef";
	char line[18];
	size_t at = sizeof(line) - 2, n = content.len;

	line[at] = '\r';
	line[at + 1] = '\n';
	do
		line[--at] = digits[n & 15];
	while ((n >>= 4) > 0);
	conn_write(c, slice_make(line + at, sizeof(line) - at));
	conn_write(c, content);
	write_slice(c, SLICE("\r\n"));
}

void rewrite_last_chunk(struct conn *c, const struct fields *trailers)
{
	write_slice(c, SLICE("0\r\n"));
	if (trailers)
		rewrite_fields(trailers, c);
	write_slice(c, SLICE("\r\n"));
}
