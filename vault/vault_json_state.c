/* A view as text: for people, without any key (reference 1.8), and for the next worker, with them.
 *
 * Written by hand, twice: to count and to write, so that the text with keys is never anywhere but
 * in the locked memory it is written to. */
#include <inttypes.h>
#include <stdio.h>

#include "vault/vault_int.h"
#include "vault/vault_json.h"

struct json_out {
	char *to; /* NULL: count */
	size_t len;
	bool keys;
};

static void out_bytes(struct json_out *o, struct slice s)
{
	if (o->to && s.len > 0)
		memcpy(o->to + o->len, s.p, s.len);
	o->len += s.len;
}

static void out_raw(struct json_out *o, const char *s)
{
	out_bytes(o, slice_str(s));
}

static void out_string(struct json_out *o, struct slice s)
{
	out_raw(o, "\"");
	o->len += secret_json_escape(s, o->to ? o->to + o->len : NULL);
	out_raw(o, "\"");
}

static void out_u64(struct json_out *o, uint64_t v)
{
	char text[24];

	(void)snprintf(text, sizeof(text), "%" PRIu64, v);
	out_raw(o, text);
}

/* The separator in front of item i. */
static void out_comma(struct json_out *o, size_t i)
{
	if (i > 0)
		out_raw(o, ",");
}

static void out_texts(struct json_out *o, const char *name, const struct text_list *list)
{
	out_raw(o, name);
	out_raw(o, ":[");
	for (size_t i = 0; i < list->n; i++) {
		out_comma(o, i);
		out_string(o, list->items[i]);
	}
	out_raw(o, "]");
}

static void out_credential(struct json_out *o, const struct credential *c)
{
	out_raw(o, "{\"name\":");
	out_string(o, c->name);
	if (o->keys) {
		out_raw(o, ",\"source\":{\"type\":\"inline\",\"value\":");
		out_string(o, secret_form(c->value, SECRET_RAW));
		out_raw(o, "}");
	} else {
		out_raw(o, ",\"sourceType\":\"inline\"");
	}
	out_raw(o, ",\"revision\":");
	out_u64(o, c->revision);
	out_raw(o, "}");
}

static void out_match(struct json_out *o, const struct binding *b)
{
	static const struct slice names[] = {{"http", 4}, {"https", 5}};
	struct slice schemes[2];
	struct text_list list = {schemes, 0};

	for (size_t i = 0; i < 2; i++) {
		bool https = (i == 0) != b->http_first;

		if (b->schemes[https])
			schemes[list.n++] = names[https];
	}
	out_raw(o, ",\"match\":{");
	out_texts(o, "\"schemes\"", &list);
	out_texts(o, ",\"hosts\"", &b->hosts);
	/* The blob tells what was left out, for require_scoped_match at the next check. */
	if (!o->keys || b->methods_explicit)
		out_texts(o, ",\"methods\"", &b->methods);
	if (!o->keys || b->paths_explicit)
		out_texts(o, ",\"paths\"", &b->paths);
	out_raw(o, "}");
}

static void out_credential_name(struct json_out *o, const struct credential_use *use)
{
	out_raw(o, ",\"credential\":");
	out_string(o, use->name);
}

/* Which credential a binding's fields hold is not shown (1.8). */
static void out_use(struct json_out *o, const struct credential_use *use)
{
	if (o->keys)
		out_credential_name(o, use);
}

static void out_substitution(struct json_out *o, const struct substitution *s)
{
	out_raw(o, "{\"placeholder\":");
	out_string(o, s->placeholder);
	/* all of it, so that a caller can send it again */
	out_credential_name(o, &s->use);
	out_raw(o, ",\"in\":[");
	for (size_t i = 0; i < s->n_places; i++) {
		const struct place *p = &s->places[i];

		out_comma(o, i);
		out_raw(o, "\"");
		out_raw(o, place_prefix(p));
		o->len += secret_json_escape(p->name, o->to ? o->to + o->len : NULL);
		out_raw(o, "\"");
	}
	out_raw(o, "]}");
}

static void out_header(struct json_out *o, const struct binding_header *h)
{
	out_raw(o, ",\"name\":");
	out_string(o, h->name);
}

static void out_custom_headers(struct json_out *o, const struct binding *b)
{
	out_raw(o, ",\"headers\":[");
	for (size_t i = 0; i < b->n_headers; i++) {
		out_comma(o, i);
		out_raw(o, "{\"name\":");
		out_string(o, b->headers[i].name);
		out_use(o, &b->headers[i].use);
		out_raw(o, "}");
	}
	out_raw(o, "]");
}

static void out_auth(struct json_out *o, const struct binding *b)
{
	out_raw(o, ",\"auth\":{\"type\":");
	out_string(o, slice_str(auth_type_name(b->auth)));
	switch (b->auth) {
	case AUTH_API_KEY:
		out_header(o, &b->headers[0]);
		out_use(o, &b->headers[0].use);
		break;
	case AUTH_BEARER:
	case AUTH_BASIC:
		out_use(o, &b->headers[0].use);
		break;
	case AUTH_CUSTOM_HEADERS:
		/* Their names are not shown (1.8). */
		if (o->keys)
			out_custom_headers(o, b);
		break;
	case AUTH_PASSTHROUGH:
		break;
	}
	for (size_t i = 0; i < b->n_substitutions; i++) {
		out_raw(o, i == 0 ? ",\"substitutions\":[" : ",");
		out_substitution(o, &b->substitutions[i]);
	}
	out_raw(o, b->n_substitutions > 0 ? "]}" : "}");
}

static void out_view(struct json_out *o, const struct vault_view *view)
{
	out_raw(o, "{\"revision\":");
	out_u64(o, view->revision);
	out_raw(o, ",\"credentials\":[");
	for (size_t i = 0; i < view->n_credentials; i++) {
		out_comma(o, i);
		out_credential(o, &view->credentials[i]);
	}
	out_raw(o, "],\"bindings\":[");
	for (size_t i = 0; i < view->n_bindings; i++) {
		out_comma(o, i);
		out_raw(o, "{\"name\":");
		out_string(o, view->bindings[i].name);
		if (!o->keys) {
			out_raw(o, ",\"revision\":");
			out_u64(o, view->revision);
		}
		out_match(o, &view->bindings[i]);
		out_auth(o, &view->bindings[i]);
		out_raw(o, "}");
	}
	out_raw(o, "]}");
}

size_t vault_json_encode(const struct vault_view *view, char *to)
{
	struct json_out o = {.to = to, .keys = true};

	out_view(&o, view);
	return o.len;
}

char *vault_json_state(const struct vault_view *view)
{
	struct json_out o = {.to = NULL};

	out_view(&o, view);
	o.to = xmalloc(o.len + 1);
	o.len = 0;
	out_view(&o, view);
	o.to[o.len] = '\0';
	return o.to;
}
