/* What one binding is asked: its fields, its methods, and the names that no binding may use. */
#include "vault/binding.h"

#include "vault/vault_int.h"

/* Fields that frame or route a request (reference 4 with its additions). */
static const char *const binding_reserved[] = {
	"alt-used",
	"connection",
	"content-length",
	"content-type",
	"expect",
	"forwarded",
	"host",
	"http2-settings",
	"keep-alive",
	"proxy-authenticate",
	"proxy-authorization",
	"proxy-connection",
	"te",
	"trailer",
	"transfer-encoding",
	"upgrade",
	"x-forwarded-for",
	"x-forwarded-host",
	"x-forwarded-proto",
};

/* Fields whose values stay as they are (reference 5.3). */
static const char *const binding_fixed[] = {
	"connection",
	"content-length",
	"forwarded",
	"host",
	"proxy-authenticate",
	"proxy-authorization",
	"te",
	"trailer",
	"transfer-encoding",
	"upgrade",
	"x-forwarded-for",
	"x-forwarded-host",
	"x-forwarded-proto",
};

static bool binding_list_has(const char *const *list, size_t n, struct slice name)
{
	for (size_t i = 0; i < n; i++)
		if (slice_ieq(name, slice_str(list[i])))
			return true;
	return false;
}

bool binding_field_is_reserved(struct slice name)
{
	struct slice websocket = SLICE("sec-websocket-");

	return slice_ieq(slice_first(name, websocket.len), websocket) ||
		binding_list_has(binding_reserved, ARRAY_LEN(binding_reserved), name);
}

bool binding_field_is_fixed(struct slice name)
{
	return binding_list_has(binding_fixed, ARRAY_LEN(binding_fixed), name);
}

bool binding_is_token(struct slice s)
{
	for (size_t i = 0; i < s.len; i++) {
		char c = s.p[i];

		if (!ascii_digit(c) && (ascii_lower(c) < 'a' || ascii_lower(c) > 'z') &&
			(c == '\0' || !strchr("!#$%&'*+-.^_`|~", c)))
			return false;
	}
	return s.len > 0;
}

struct slice binding_pattern(struct slice written, bool *prefix)
{
	*prefix = slice_ends(written, SLICE("*"));
	return slice_first(written, written.len - *prefix);
}

bool binding_has_any_path(const struct binding *b)
{
	for (size_t i = 0; i < b->paths.n; i++)
		if (slice_eq(b->paths.items[i], SLICE("/*")))
			return true;
	return false;
}

bool binding_has_method(const struct binding *b, struct slice method)
{
	for (size_t i = 0; i < b->methods.n; i++)
		if (slice_ieq(b->methods.items[i], method))
			return true;
	return false;
}

bool binding_overlaps(const struct binding *a, const struct binding *b)
{
	if (!(a->schemes[false] && b->schemes[false]) && !(a->schemes[true] && b->schemes[true]))
		return false;
	for (size_t i = 0; i < a->methods.n; i++)
		if (binding_has_method(b, a->methods.items[i]))
			return true;
	return false;
}

struct slice binding_name(const struct binding *b)
{
	return b->name;
}

size_t binding_n_fields(const struct binding *b)
{
	return b->n_headers;
}

struct binding_field binding_field(const struct binding *b, size_t i)
{
	struct binding_field f = {.prefix = SLICE_EMPTY};

	REQUIRE(i < b->n_headers);
	f.name = b->headers[i].name;
	f.value = secret_form(b->headers[i].use.credential->value, SECRET_RAW);
	switch (b->auth) {
	case AUTH_BEARER:
		f.prefix = SLICE("Bearer ");
		break;
	case AUTH_BASIC:
		f.prefix = SLICE("Basic ");
		break;
	case AUTH_API_KEY:
	case AUTH_CUSTOM_HEADERS:
	case AUTH_PASSTHROUGH:
		break;
	}
	return f;
}

bool binding_sets_field(const struct binding *b, struct slice name)
{
	for (size_t i = 0; i < b->n_headers; i++)
		if (slice_ieq_name(b->headers[i].name, name))
			return true;
	return false;
}
