/* Reads jansson's tree of an answer. Before it: proxy/fetch has the content; after it:
 * lifecycle_state, or whoever shows or follows sandboxes. */
#include "control/lifecycle_doc.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/strbuf.h"

static const char *const lifecycle_states[] = {
#define X(id, text) text,
	LIFECYCLE_STATE_TABLE(X)
#undef X
};

const char *lifecycle_state_text(enum lifecycle_state s)
{
	REQUIRE((unsigned int)s < ARRAY_LEN(lifecycle_states));
	return lifecycle_states[s];
}

int lifecycle_url_decode(struct slice *text, struct request_target *out)
{
	while (slice_ends(*text, SLICE("/")))
		text->len--;
	if (slice_ends(*text, SLICE("/v1")))
		text->len -= SLICE("/v1").len;
	if (request_target_decode_url(*text, out) < 0 || out->path.len != out->path_query.len)
		return E_VALUE;
	return 0;
}

/* One of the bytes of a class: letters and digits, or one of those in `more`. */
static bool doc_is_of(struct slice s, const char *more)
{
	for (size_t i = 0; i < s.len; i++) {
		char c = ascii_lower(s.p[i]);

		if (!ascii_digit(c) && (c < 'a' || c > 'z') && (c == '\0' || !strchr(more, c)))
			return false;
	}
	return s.len > 0;
}

bool lifecycle_id_ok(struct slice id)
{
	return id.len <= LIFECYCLE_ID_MAX && doc_is_of(id, "._-") && id.p[0] != '.';
}

static struct slice doc_text(const json_t *value)
{
	return slice_make(json_string_value(value), json_string_length(value));
}

/* The tree of an answer, which has to be an object. */
static int doc_load(struct slice text, json_t **root, struct errmsg *msg)
{
	*root = NULL;
	if (text.len > LIFECYCLE_DOC_MAX)
		return errmsg_set(msg, E_LIMIT, "an answer of %zu bytes", text.len);
	*root = json_loadb(text.p, text.len, JSON_REJECT_DUPLICATES, NULL);
	if (json_is_object(*root))
		return 0;
	json_decref(*root);
	*root = NULL;
	return errmsg_set(msg, E_SYNTAX, "the answer is no JSON object");
}

static int doc_metadata(json_t *object, struct errmsg *msg)
{
	size_t bytes = 0;
	const char *name;
	json_t *value;

	if (!json_is_object(object) || json_object_size(object) > LIFECYCLE_METADATA_MAX)
		return errmsg_set(msg, E_LIMIT, "metadata: expected an object of at most %d texts",
			LIFECYCLE_METADATA_MAX);
	json_object_foreach(object, name, value)
	{
		if (!json_is_string(value))
			return errmsg_set(msg, E_SYNTAX, "metadata: expected texts");
		bytes += strlen(name) + json_string_length(value);
	}
	if (bytes > LIFECYCLE_METADATA_BYTES)
		return errmsg_set(
			msg, E_LIMIT, "metadata: more than %d bytes", LIFECYCLE_METADATA_BYTES);
	return 0;
}

static int doc_sandbox(const json_t *object, struct lifecycle_sandbox *s, struct errmsg *msg)
{
	const json_t *state = json_object_get(json_object_get(object, "status"), "state");
	const json_t *expires = json_object_get(object, "expiresAt");
	json_t *metadata = json_object_get(object, "metadata");

	*s = (struct lifecycle_sandbox){
		.id = doc_text(json_object_get(object, "id")), .state_text = doc_text(state)};
	if (!lifecycle_id_ok(s->id))
		return errmsg_set(msg, E_SYNTAX, "id: expected 1 to %d of A-Z a-z 0-9 . _ -",
			LIFECYCLE_ID_MAX);
	if (s->state_text.len == 0 || s->state_text.len > LIFECYCLE_STATE_MAX)
		return errmsg_set(msg, E_SYNTAX, "status.state: expected a text");
	for (int i = 0; i < LIFECYCLE_STATES; i++)
		if (slice_eq(s->state_text, slice_str(lifecycle_states[i])))
			s->state = (enum lifecycle_state)i;
	if (expires && !json_is_null(expires) &&
		(!json_is_string(expires) ||
			!clock_parse(json_string_value(expires), &s->expires_us) ||
			s->expires_us == 0))
		return errmsg_set(msg, E_SYNTAX, "expiresAt: expected a time (RFC 3339)");
	if (!metadata || json_is_null(metadata))
		return 0;
	s->metadata = metadata;
	return doc_metadata(metadata, msg);
}

void lifecycle_list_fini(struct lifecycle_list *l)
{
	json_decref(l->root);
	l->root = NULL;
	l->n = 0;
	l->more = false;
}

int lifecycle_sandbox_decode(
	struct slice text, struct slice id, struct lifecycle_list *out, struct errmsg *msg)
{
	int ret = doc_load(text, &out->root, msg);

	if (ret == 0)
		ret = doc_sandbox(out->root, &out->v[0], msg);
	if (ret == 0 && !slice_eq(out->v[0].id, id))
		ret = errmsg_set(msg, E_VALUE, "the answer is about another sandbox");
	out->more = false;
	out->n = 1;
	if (ret < 0)
		lifecycle_list_fini(out);
	return ret;
}

int lifecycle_page_decode(struct slice text, struct lifecycle_list *out, struct errmsg *msg)
{
	int ret = doc_load(text, &out->root, msg);
	json_t *items = json_object_get(out->root, "items"), *more;

	more = json_object_get(json_object_get(out->root, "pagination"), "hasNextPage");
	out->more = json_is_true(more);
	out->n = json_array_size(items);
	if (ret == 0 && (!json_is_array(items) || !json_is_boolean(more)))
		ret = errmsg_set(msg, E_SYNTAX, "expected items and pagination.hasNextPage");
	if (ret == 0 && out->n > LIFECYCLE_PAGE_MAX)
		ret = errmsg_set(msg, E_LIMIT, "more than %d items", LIFECYCLE_PAGE_MAX);
	for (size_t i = 0; ret == 0 && i < out->n; i++)
		ret = doc_sandbox(json_array_get(items, i), &out->v[i], msg);
	if (ret < 0)
		lifecycle_list_fini(out);
	return ret;
}

static int doc_address(struct slice text, struct lifecycle_endpoint *e, struct errmsg *msg)
{
	struct slice path = slice_from(text, slice_find_char(text, '/')), rest;

	if (authority_decode(slice_first(text, text.len - path.len), &e->authority) < 0)
		return errmsg_set(msg, E_SYNTAX, "endpoint: expected host[:port][/path]");
	while (path.len > 0 && path.p[path.len - 1] == '/')
		path.len--;
	if (!slice_to_cstr(path, e->prefix, sizeof(e->prefix)))
		return errmsg_set(msg, E_LIMIT, "endpoint: the path is longer than %zu bytes",
			sizeof(e->prefix) - 1);
	for (rest = path.len > 0 ? slice_from(path, 1) : slice_make(NULL, 0); rest.p;) {
		struct slice part = slice_cut(&rest, '/');

		if (!doc_is_of(part, "._~-") || slice_eq(part, SLICE(".")) ||
			slice_eq(part, SLICE("..")))
			return errmsg_set(msg, E_SYNTAX, "endpoint: the path is not a plain one");
	}
	return 0;
}

/* The fields that no endpoint may set: they say where a message ends, goes, or what it is. */
static bool doc_is_framing(struct slice name)
{
	static const char *const names[] = {"host", "content-length", "content-type",
		"transfer-encoding", "connection", "keep-alive", "te", "trailer", "upgrade",
		"expect", "accept-encoding", "content-encoding", "range"};

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (slice_ieq_name(name, slice_str(names[i])))
			return true;
	return name.len >= 6 && slice_ieq_name(slice_first(name, 6), SLICE("proxy-"));
}

static int doc_header(const char *name, const json_t *value, struct strbuf *out, struct errmsg *msg)
{
	struct slice text = doc_text(value);

	if (!doc_is_of(slice_str(name), "-_") || doc_is_framing(slice_str(name)) || !text.p)
		return errmsg_set(msg, E_VALUE, "headers: \"%.40s\" is not to be sent", name);
	for (size_t i = 0; i < text.len; i++)
		if (text.p[i] < 0x20 || text.p[i] > 0x7e)
			return errmsg_set(msg, E_SYNTAX, "headers: %.40s: expected ASCII", name);
	strbuf_str(out, name);
	strbuf_str(out, ": ");
	strbuf_add(out, text);
	strbuf_str(out, "\r\n");
	return out->full
		? errmsg_set(msg, E_LIMIT, "headers: more than %d bytes", LIFECYCLE_HEADER_BYTES)
		: 0;
}

int lifecycle_endpoint_decode(struct slice text, struct lifecycle_endpoint *out, struct errmsg *msg)
{
	json_t *root, *address, *headers, *value;
	struct strbuf lines;
	const char *name;
	int ret;

	explicit_bzero(out, sizeof(*out));
	ret = doc_load(text, &root, msg);
	if (ret < 0)
		return ret;
	address = json_object_get(root, "endpoint");
	headers = json_object_get(root, "headers");
	strbuf_init_fixed(&lines, out->headers, sizeof(out->headers));
	if (!json_is_string(address))
		ret = errmsg_set(msg, E_SYNTAX, "endpoint: expected a text");
	else if (headers && !json_is_null(headers) &&
		(!json_is_object(headers) || json_object_size(headers) > LIFECYCLE_HEADERS_MAX))
		ret = errmsg_set(msg, E_SYNTAX, "headers: expected an object of at most %d texts",
			LIFECYCLE_HEADERS_MAX);
	else
		ret = doc_address(doc_text(address), out, msg);
	json_object_foreach(headers, name, value)
	{
		if (ret == 0)
			ret = doc_header(name, value, &lines, msg);
	}
	out->headers_len = lines.len;
	json_decref(root);
	if (ret < 0)
		explicit_bzero(out, sizeof(*out));
	return ret;
}

const char *lifecycle_error_text(struct slice text, char buf[LIFECYCLE_ERROR_MAX])
{
	json_t *root = json_loadb(text.p, text.len, JSON_REJECT_DUPLICATES, NULL);
	const char *code = json_string_value(json_object_get(root, "code"));
	const char *message = json_string_value(json_object_get(root, "message"));

	buf[0] = '\0';
	if (code && message)
		(void)snprintf(buf, LIFECYCLE_ERROR_MAX, "%s: %s", code, message);
	json_decref(root);
	return buf;
}
