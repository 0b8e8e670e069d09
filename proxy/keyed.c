/* What the vault says to a request, before anything goes out. Comes after admit, which knows policy
 * and the read-only rule; the writing is keyed_request.c's, the answer keyed_answer.c's. */
#include "proxy/keyed.h"

#include "proxy/exchange.h"
#include "proxy/h1.h"
#include "vault/vault.h"

/* Query parameters that carry a credential where an API takes one there. */
static const struct slice credential_parameters[] = {SLICE("key"), SLICE("api_key"),
	SLICE("apikey"), SLICE("api-key"), SLICE("access_token"), SLICE("token"), SLICE("auth"),
	SLICE("private_token"), SLICE("job_token"), SLICE("subscription-key"), SLICE("sig"),
	SLICE("x-amz-signature"), SLICE("x-amz-security-token"), SLICE("x-goog-signature"),
	SLICE("client_secret")};

/* Is name, percent-decoded as an origin reads it, equal to want (lower case)? */
static bool parameter_is(struct slice name, struct slice want)
{
	size_t n = 0;

	for (size_t i = 0; i < name.len; n++) {
		int high = name.p[i] == '%' && name.len - i > 2 ? ascii_hex(name.p[i + 1]) : -1;
		int low = high >= 0 ? ascii_hex(name.p[i + 2]) : -1;
		char c = low >= 0 ? (char)(high << 4 | low) : name.p[i];

		if (n == want.len || ascii_lower(c) != want.p[n])
			return false;
		i += low >= 0 ? 3 : 1;
	}
	return n == want.len;
}

static bool parameter_is_credential(struct slice name)
{
	for (size_t i = 0; i < ARRAY_LEN(credential_parameters); i++)
		if (parameter_is(name, credential_parameters[i]))
			return true;
	return false;
}

static struct slice query_next(struct slice *query)
{
	size_t at = 0;

	while (at < query->len && query->p[at] != '&' && query->p[at] != ';')
		at++;
	return slice_cut(query, at < query->len ? query->p[at] : '&');
}

/* A credential in the query that the binding does not put there is the sandbox's own. Some origins
 * split at `;`, too. */
static bool query_has_own_credential(const struct exchange *ex, struct slice query)
{
	const struct binding *b = ex->keyed.binding;

	while (query.p && query.len > 0) {
		struct slice rest = query_next(&query);
		struct slice name = slice_cut(&rest, '=');

		if (!parameter_is_credential(name) || !rest.p || rest.len == 0)
			continue;
		if (!b ||
			substitute_text(
				b, SURFACE_QUERY, name, rest, SUBSTITUTE_PERCENT, NULL, NULL) == 0)
			return true;
	}
	return false;
}

/* What no binding of this request owns, anywhere in what would leave of its head. */
static bool head_has(const struct exchange *ex, const struct h1_head *h,
	struct slice (*find)(
		const struct vault_view *view, const struct binding *own, struct slice text))
{
	const struct keyed *k = &ex->keyed;

	if (find(k->view, k->binding, h->method).len > 0 ||
		find(k->view, k->binding, ex->path_query).len > 0)
		return true;
	for (size_t i = 0; i < h->fields.n; i++) {
		const struct field *x = &h->fields.v[i];

		if (k->binding && binding_sets_field(k->binding, x->name))
			continue; /* never leaves */
		if (find(k->view, k->binding, x->name).len > 0 ||
			find(k->view, k->binding, x->value).len > 0)
			return true;
	}
	return false;
}

/* A write to a bound write host goes only where a binding matches: else the sandbox could bring a
 * key of its own and write into an account of its own (design 4). */
static bool keyed_write_is_bound(
	struct exchange *ex, const struct request_target *t, const char **detail)
{
	const struct proxy_config *c = &ex->px->config;

	if (!c->read_only || !ex->admission.write || c->unbound_writes)
		return true;
	if (!ex->keyed.binding)
		return false;
	ex->keyed.own_credentials_out = true;
	if (query_has_own_credential(ex, t->query)) {
		*detail = "a credential in the query that no binding puts there";
		return false;
	}
	return true;
}

static enum reason keyed_match(
	struct exchange *ex, const struct h1_head *h, const struct request_target *t)
{
	struct keyed *k = &ex->keyed;
	struct binding_request r = {
		.https = ex->https,
		.port = ex->target.port,
		.host = authority_name(&ex->target),
		.method = h->method,
		.path = t->path,
	};

	switch (vault_view_match(k->view, &r, &k->binding)) {
	case BINDING_AMBIGUOUS:
		return REASON_BINDING_AMBIGUOUS;
	case BINDING_PATH:
		return REASON_PATH_AMBIGUOUS;
	case BINDING_ONE:
		if (substitute_has(k->binding, SURFACE_PATH) &&
			!substitute_path_ok(k->binding, t->path))
			return REASON_PATH_AMBIGUOUS;
		return ex->admission.reason;
	case BINDING_NONE:
		break;
	}
	k->binding = NULL;
	return ex->admission.reason;
}

void keyed_begin(struct exchange *ex)
{
	struct slice *const recorded[] = {&ex->method, &ex->url, &ex->user_agent};
	struct keyed *k = &ex->keyed;

	k->view = ex->px->config.vault ? vault_view_get(ex->px->config.vault) : NULL;
	if (!k->view)
		return;
	for (size_t i = 0; i < ARRAY_LEN(recorded); i++)
		if (substitute_find_key(k->view, NULL, *recorded[i]).len > 0)
			*recorded[i] = SLICE("*");
}

enum reason keyed_admit(struct exchange *ex, const struct h1_head *h,
	const struct request_target *t, const char **detail)
{
	struct keyed *k = &ex->keyed;
	enum reason r = ex->admission.reason;

	if (!k->view)
		return r;
	k->bound_host =
		!ex->target.is_addr && vault_view_binds_host(k->view, authority_name(&ex->target));
	if (k->bound_host)
		r = keyed_match(ex, h, t);
	if (!reason_allows(r))
		return r;
	if (k->bound_host && !keyed_write_is_bound(ex, t, detail))
		return REASON_WRITE_WITHOUT_BINDING;
	if (head_has(ex, h, substitute_find_key))
		return REASON_KEY_TO_UNBOUND_HOST;
	if (ex->px->config.placeholders == PROXY_PLACEHOLDERS_PASS ||
		!head_has(ex, h, substitute_find_placeholder))
		return r;
	if (ex->px->config.placeholders == PROXY_PLACEHOLDERS_DENY)
		return REASON_PLACEHOLDER_FOR_OTHER_HOST;
	/* a target cannot be sent without a part of it; a field can */
	if (substitute_find_placeholder(k->view, k->binding, ex->path_query).len > 0)
		return REASON_PLACEHOLDER_FOR_OTHER_HOST;
	k->strip = true;
	return r;
}

enum reason keyed_renew(struct exchange *ex, const struct h1_head *h, const char **detail)
{
	const struct proxy_config *c = &ex->px->config;
	struct keyed *k = &ex->keyed;
	struct vault_view *now = c->vault ? vault_view_get(c->vault) : NULL;
	bool same = now == k->view;
	struct request_target t;

	vault_view_unref(now);
	if (same)
		return ex->admission.reason;
	vault_view_unref(k->view);
	k->binding = NULL;
	k->bound_host = k->strip = k->own_credentials_out = false;
	keyed_begin(ex);
	REQUIRE(request_target_decode(h->method, h->target, &t) == 0);
	return keyed_admit(ex, h, &t, detail);
}

bool keyed_binds(const struct proxy *px, const struct authority *target)
{
	struct vault_view *view = px->config.vault ? vault_view_get(px->config.vault) : NULL;
	bool binds =
		view && !target->is_addr && vault_view_binds_host(view, authority_name(target));

	vault_view_unref(view);
	return binds;
}

bool keyed_wants_body(const struct exchange *ex, const struct h1_head *h)
{
	const struct binding *b = ex->keyed.binding;
	const struct field *coding = fields_find(&h->fields, FIELD_CONTENT_ENCODING);

	return b && ex->has_content && substitute_has(b, SURFACE_BODY) &&
		(!coding || slice_ieq(coding->value, SLICE("identity"))) &&
		(h->framing == H1_CHUNKED || h->length <= KEYED_BODY_MAX);
}

/* "address,sni,certificate,authority,binding", as far as they hold. */
static void keyed_facts_text(struct keyed *k, unsigned facts)
{
	static const char *const names[FACT_MAX] = {
#define X(id, name) [FACT_##id] = name,
		KEYED_FACT_TABLE(X)
#undef X
	};
	struct strbuf b;

	strbuf_init_fixed(&b, k->facts_text, sizeof(k->facts_text));
	for (size_t i = 0; i < FACT_MAX; i++) {
		if (!(facts & BIT(i)))
			continue;
		if (b.len > 0)
			strbuf_char(&b, ',');
		strbuf_str(&b, names[i]);
	}
	k->facts_len = b.len;
}

bool keyed_proof(struct exchange *ex, bool verified)
{
	struct keyed *k = &ex->keyed;
	unsigned needed = BIT(FACT_ADDRESS) | BIT(FACT_AUTHORITY) | BIT(FACT_BINDING);
	unsigned facts = BIT(FACT_AUTHORITY); /* admit refused everything else */

	if (!k->view)
		return true;
	if (ex->has_addr)
		facts |= BIT(FACT_ADDRESS); /* dial and pool know only addresses we looked up */
	if (ex->https) {
		facts |= BIT(FACT_SNI); /* tls_connect_new says this name */
		needed |= BIT(FACT_SNI) | BIT(FACT_CERTIFICATE);
	}
	if (verified)
		facts |= BIT(FACT_CERTIFICATE);
	if (k->binding)
		facts |= BIT(FACT_BINDING);
	keyed_facts_text(k, facts);
	return !k->binding || (facts & needed) == needed;
}
