/* A request's head and body with keys in them: written piece by piece into the connection's
 * scratch, which is locked, leaves by one SSL_write, and is wiped. Comes after keyed_proof. */
#include "proxy/conn.h"
#include "proxy/exchange.h"
#include "proxy/keyed.h"
#include "proxy/rewrite.h"
#include "vault/vault.h"

/* A connection as the sink of a substitution; counts what it takes. */
struct conn_sink {
	struct conn *c;
	size_t len;
};

static void conn_sink_put(void *arg, struct slice piece)
{
	struct conn_sink *s = arg;

	conn_write(s->c, piece);
	s->len += piece.len;
}

size_t keyed_write_target(struct exchange *ex, struct conn *c)
{
	const struct binding *b = ex->keyed.binding;
	struct slice rest = ex->path_query, path = slice_cut(&rest, '?');
	struct conn_sink sink = {c, 0};
	struct substitute_sink out = {conn_sink_put, &sink};

	if (!b) {
		conn_write(c, ex->path_query);
		return ex->path_query.len;
	}
	substitute_text(b, SURFACE_PATH, SLICE_EMPTY, path, SUBSTITUTE_PERCENT, &out, NULL);
	if (rest.p) {
		conn_sink_put(&sink, SLICE("?"));
		substitute_query(b, rest, &out, NULL);
	}
	return sink.len;
}

/* Fields that carry a credential. */
static bool field_is_credential(struct slice name)
{
	static const struct slice names[] = {SLICE("authorization"), SLICE("cookie"),
		SLICE("x-api-key"), SLICE("api-key"), SLICE("apikey"), SLICE("x-auth-token"),
		SLICE("x-access-token"), SLICE("x-goog-api-key"), SLICE("private-token"),
		SLICE("x-amz-security-token"), SLICE("openai-organization"),
		SLICE("openai-project"), SLICE("ocp-apim-subscription-key"), SLICE("job-token"),
		SLICE("deploy-token"), SLICE("cf-aig-authorization")};

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (slice_ieq_name(name, names[i]))
			return true;
	return false;
}

/* Fields by which an origin could be told of another host or client, while a key is with them. */
static bool field_forwards(struct slice name)
{
	struct slice prefix = SLICE("x-forwarded-");

	return slice_ieq_name(name, SLICE("forwarded")) || slice_ieq_name(name, SLICE("x-host")) ||
		slice_ieq_name(slice_first(name, prefix.len), prefix);
}

/* What the client says in such a field is not for the origin while a binding matches. */
static bool field_is_ours(const struct keyed *k, const struct field *x)
{
	return k->binding && (binding_sets_field(k->binding, x->name) || field_forwards(x->name));
}

/* A placeholder that the request's binding does not own. */
static bool field_has_foreign(const struct keyed *k, const struct field *x)
{
	return substitute_find_placeholder(k->view, k->binding, x->name).len > 0 ||
		substitute_find_placeholder(k->view, k->binding, x->value).len > 0;
}

/* A key that the request's binding does not own. */
static bool field_has_key(const struct keyed *k, const struct field *x)
{
	return substitute_find_key(k->view, k->binding, x->name).len > 0 ||
		substitute_find_key(k->view, k->binding, x->value).len > 0;
}

/* Towards a bound host an answer must be readable and whole: a key can be fetched a byte at a time.
 */
static bool field_hides_answer(const struct field *x)
{
	static const struct slice names[] = {SLICE("accept-encoding"), SLICE("range"),
		SLICE("if-range"), SLICE("sec-websocket-extensions")};

	for (size_t i = 0; i < ARRAY_LEN(names); i++)
		if (slice_ieq_name(x->name, names[i]))
			return true;
	return false;
}

static enum substitute_style field_style(const struct field *x)
{
	return x->id == FIELD_AUTHORIZATION ? SUBSTITUTE_BASIC : SUBSTITUTE_RAW;
}

static void keyed_write_field(struct exchange *ex, const struct field *x, struct conn_sink *sink)
{
	const struct keyed *k = &ex->keyed;
	struct substitute_sink out = {conn_sink_put, sink};
	size_t replaced;

	if (k->bound_host && field_hides_answer(x))
		return;
	if (k->body && x->id == FIELD_EXPECT)
		return; /* the client was told to go on by us */
	if (field_is_ours(k, x))
		return;
	if (k->strip && field_has_foreign(k, x))
		return;
	replaced = k->binding ? substitute_text(k->binding, SURFACE_HEADER, x->name, x->value,
					field_style(x), NULL, NULL)
			      : 0;
	if (replaced == 0 && k->own_credentials_out && field_is_credential(x->name))
		return;
	conn_sink_put(sink, x->name);
	conn_sink_put(sink, SLICE(": "));
	if (replaced > 0)
		substitute_text(
			k->binding, SURFACE_HEADER, x->name, x->value, field_style(x), &out, NULL);
	else
		conn_sink_put(sink, x->value);
	conn_sink_put(sink, SLICE("\r\n"));
}

size_t keyed_write_fields(struct exchange *ex, const struct fields *f, struct conn *c)
{
	const struct keyed *k = &ex->keyed;
	struct conn_sink sink = {c, 0};

	for (size_t i = 0; i < f->n; i++)
		keyed_write_field(ex, &f->v[i], &sink);
	if (k->bound_host)
		conn_sink_put(&sink, SLICE("Accept-Encoding: identity\r\n"));
	if (!k->binding)
		return sink.len;
	for (size_t i = 0; i < binding_n_fields(k->binding); i++) {
		struct binding_field x = binding_field(k->binding, i);

		conn_sink_put(&sink, x.name);
		conn_sink_put(&sink, SLICE(": "));
		conn_sink_put(&sink, x.prefix);
		conn_sink_put(&sink, x.value);
		conn_sink_put(&sink, SLICE("\r\n"));
	}
	return sink.len;
}

/* Some origins read a trailer as a field, so what no field may bring no trailer may. Its content is
 * out by now: what is not taken away cannot be refused. */
static bool trailer_stays_here(const struct exchange *ex, const struct field *x)
{
	const struct keyed *k = &ex->keyed;
	bool deny = ex->px->config.placeholders != PROXY_PLACEHOLDERS_PASS;

	return field_is_ours(k, x) || field_has_key(k, x) || (deny && field_has_foreign(k, x)) ||
		(k->own_credentials_out && field_is_credential(x->name));
}

void keyed_request_trailers(const struct exchange *ex, struct fields *trailers)
{
	size_t n = 0;

	if (!ex->keyed.view || !trailers)
		return;
	for (size_t i = 0; i < trailers->n; i++)
		if (!trailer_stays_here(ex, &trailers->v[i]))
			trailers->v[n++] = trailers->v[i];
	trailers->n = n;
}

static struct slice media_type(const struct h1_head *h)
{
	const struct field *type = fields_find(&h->fields, FIELD_CONTENT_TYPE);

	return type ? type->value : SLICE_EMPTY;
}

uint64_t keyed_body_len(const struct exchange *ex, const struct h1_head *h)
{
	size_t len = 0;

	substitute_body(ex->keyed.binding, media_type(h), strbuf_slice(ex->keyed.body), NULL, &len);
	return len;
}

void keyed_write_body(struct exchange *ex, const struct h1_head *h, struct conn *c)
{
	struct conn_sink sink = {c, 0};
	struct substitute_sink out = {conn_sink_put, &sink};

	substitute_body(ex->keyed.binding, media_type(h), strbuf_slice(ex->keyed.body), &out, NULL);
	ex->up += sink.len;
}
