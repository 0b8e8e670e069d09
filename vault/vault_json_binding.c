/* One binding of the document: name and match (reference 1.4). Everything is brought to the form in
 * which requests are compared. */
#include "base/hostname.h"
#include "base/netaddr.h"
#include "vault/vault_json_int.h"

#define METHODS_MAX 64 /* registered methods are about 40 */

static bool host_label_ok(struct slice label)
{
	if (label.len == 0 || label.len > LABEL_MAX || label.p[0] == '-' ||
		label.p[label.len - 1] == '-')
		return false;
	for (size_t i = 0; i < label.len; i++)
		if (!ascii_digit(label.p[i]) && label.p[i] != '-' &&
			(label.p[i] < 'a' || label.p[i] > 'z'))
			return false;
	return true;
}

/* Labels of letters, digits and hyphens, at least two. */
static bool host_is_fqdn(struct slice host)
{
	if (host.len > HOSTNAME_MAX || slice_find_char(host, '.') == host.len)
		return false;
	while (host.p)
		if (!host_label_ok(slice_cut(&host, '.')))
			return false;
	return true;
}

static bool host_is_address(struct slice host)
{
	struct netaddr a;

	if (host.len > 2 && host.p[0] == '[' && host.p[host.len - 1] == ']')
		host = slice_make(host.p + 1, host.len - 2);
	return netaddr_parse(host, &a);
}

static int host_wildcard_check(struct slice host, const char *quoted, struct errmsg *msg)
{
	struct slice suffix = slice_from(host, 1);

	if (suffix.len > 0)
		suffix = slice_from(suffix, 1);
	if (slice_starts(host, SLICE("*.")) && host_is_address(suffix))
		return errmsg_set(
			msg, E_VALUE, "wildcard host \"%s\" cannot target an IP address", quoted);
	if (!slice_starts(host, SLICE("*.")) || !host_is_fqdn(suffix))
		return errmsg_set(msg, E_VALUE, "invalid wildcard host \"%s\"", quoted);
	return 0;
}

static int host_normal(char *text, size_t *len, struct errmsg *msg)
{
	char quoted[VAULT_QUOTE_MAX];
	struct slice host;

	for (size_t i = 0; i < *len; i++)
		text[i] = ascii_lower(text[i]);
	if (*len > 0 && text[*len - 1] == '.')
		(*len)--;
	host = slice_make(text, *len);
	if (host.len == 0)
		return errmsg_set(msg, E_VALUE, "host cannot be blank");
	(void)vault_quote(host, quoted);
	if (slice_find_char(host, '/') < host.len)
		return errmsg_set(
			msg, E_VALUE, "host \"%s\" must not include scheme or path", quoted);
	if (slice_find_char(host, '*') < host.len)
		return host_wildcard_check(host, quoted, msg);
	if (host_is_address(host))
		return errmsg_set(msg, E_VALUE,
			"credential binding host \"%s\" must be an FQDN, not an IP address",
			quoted);
	if (!host_is_fqdn(host))
		return errmsg_set(
			msg, E_VALUE, "credential binding host \"%s\" must be an FQDN", quoted);
	return 0;
}

static int scheme_normal(char *text, size_t *len, struct errmsg *msg)
{
	char quoted[VAULT_QUOTE_MAX];
	struct slice scheme;

	for (size_t i = 0; i < *len; i++)
		text[i] = ascii_lower(text[i]);
	scheme = slice_make(text, *len);
	if (slice_eq(scheme, SLICE("https")) || slice_eq(scheme, SLICE("http")))
		return 0;
	return errmsg_set(msg, E_VALUE, "unsupported scheme \"%s\"", vault_quote(scheme, quoted));
}

/* Their answer is the request, key and all (W-30), or a tunnel that nobody reads. */
static bool method_is_refused(struct slice method)
{
	return slice_eq(method, SLICE("TRACE")) || slice_eq(method, SLICE("TRACK")) ||
		slice_eq(method, SLICE("CONNECT"));
}

static int method_normal(char *text, size_t *len, struct errmsg *msg)
{
	char quoted[VAULT_QUOTE_MAX];
	struct slice method = slice_make(text, *len);

	for (size_t i = 0; i < *len; i++)
		if (text[i] >= 'a' && text[i] <= 'z')
			text[i] = (char)(text[i] - 'a' + 'A');
	if (method.len == 0)
		return errmsg_set(msg, E_VALUE, "method cannot be blank");
	(void)vault_quote(method, quoted);
	if (!binding_is_token(method))
		return errmsg_set(msg, E_VALUE, "invalid method \"%s\"", quoted);
	if (method_is_refused(method))
		return errmsg_set(msg, E_VALUE,
			"method \"%s\" cannot be bound: its answer would show the credential",
			quoted);
	return 0;
}

static int path_normal(char *text, size_t *len, struct errmsg *msg)
{
	if (*len == 0 || text[0] != '/')
		return errmsg_set(msg, E_VALUE, "path pattern must start with /");
	for (size_t i = 0; i < *len; i++)
		if ((uint8_t)text[i] < 0x20 || text[i] == 0x7f)
			return errmsg_set(msg, E_VALUE, "path pattern has a control byte");
	return 0;
}

static int match_ports(const json_t *list, struct errmsg *msg)
{
	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *port = json_array_get(list, i);
		json_int_t number = json_integer_value(port);

		if (!json_is_integer(port))
			return errmsg_set(msg, E_SYNTAX,
				"match.ports: a list of whole numbers "
				"was expected");
		if (number != 80 && number != 443)
			return errmsg_set(msg, E_VALUE,
				"unsupported port %" JSON_INTEGER_FORMAT
				": only ports 80 and 443 are supported (derived from scheme)",
				number);
	}
	return 0;
}

static int match_schemes(struct json_reader *r, const json_t *list, struct binding *out)
{
	struct text_list schemes;
	int ret = json_texts_read(r, list, "match.schemes", scheme_normal, &schemes);

	if (ret < 0)
		return ret;
	for (size_t i = 0; i < schemes.n; i++) {
		bool https = slice_eq(schemes.items[i], SLICE("https"));

		out->http_first |= i == 0 && !https;
		out->schemes[https] = true;
	}
	if (schemes.n == 0)
		out->schemes[true] = true;
	return 0;
}

/* What stands for a list that was left out. */
static void match_default(
	struct text_list *list, const struct slice *items, size_t n, struct arena *arena)
{
	list->items = arena_alloc(arena, n * sizeof(*items));
	memcpy(list->items, items, n * sizeof(*items));
	list->n = n;
}

static int match_methods(struct json_reader *r, const json_t *list, struct binding *out)
{
	static const struct slice defaults[] = {
		{"GET", 3}, {"POST", 4}, {"PUT", 3}, {"PATCH", 5}, {"DELETE", 6}};
	int ret = json_texts_read(r, list, "match.methods", method_normal, &out->methods);

	if (ret < 0)
		return ret;
	if (out->methods.n > METHODS_MAX)
		return errmsg_set(
			r->msg, E_VALUE, "match.methods: more than %d methods", METHODS_MAX);
	out->methods_explicit = out->methods.n > 0;
	if (!out->methods_explicit)
		match_default(&out->methods, defaults, ARRAY_LEN(defaults), &r->view->arena);
	return 0;
}

static int match_paths(struct json_reader *r, const json_t *list, struct binding *out)
{
	static const struct slice defaults[] = {{"/*", 2}};
	int ret = json_texts_read(r, list, "match.paths", path_normal, &out->paths);

	if (ret < 0)
		return ret;
	out->paths_explicit = out->paths.n > 0;
	if (!out->paths_explicit)
		match_default(&out->paths, defaults, ARRAY_LEN(defaults), &r->view->arena);
	return 0;
}

static int binding_match_read(struct json_reader *r, const json_t *value, struct binding *out)
{
	struct json_field f[] = {
		{"schemes", JSON_ARRAY, NULL},
		{"ports", JSON_ARRAY, NULL},
		{"hosts", JSON_ARRAY, NULL},
		{"methods", JSON_ARRAY, NULL},
		{"paths", JSON_ARRAY, NULL},
	};
	int ret = value ? json_fields_read(value, f, ARRAY_LEN(f), r->msg) : 0;

	if (ret < 0)
		return errmsg_prefix(r->msg, ret, "match");
	ret = match_schemes(r, f[0].value, out);
	if (ret == 0)
		ret = match_ports(f[1].value, r->msg);
	if (ret == 0 && json_array_size(f[2].value) == 0)
		ret = errmsg_set(r->msg, E_VALUE, "match.hosts cannot be empty");
	if (ret == 0)
		ret = json_texts_read(r, f[2].value, "match.hosts", host_normal, &out->hosts);
	if (ret == 0)
		ret = match_methods(r, f[3].value, out);
	if (ret == 0)
		ret = match_paths(r, f[4].value, out);
	return ret;
}

int vault_json_binding(struct json_reader *r, const json_t *value, struct binding *out)
{
	struct json_field f[] = {
		{"name", JSON_STRING, NULL},
		{"match", JSON_OBJECT, NULL},
		{"auth", JSON_OBJECT, NULL},
	};
	char quoted[VAULT_QUOTE_MAX];
	int ret = json_fields_read(value, f, ARRAY_LEN(f), r->msg);

	if (ret == 0)
		ret = json_name_read(r, f[0].value, "binding", &out->name);
	if (ret < 0)
		return ret;
	ret = binding_match_read(r, f[1].value, out);
	if (ret == 0)
		ret = vault_json_auth(r, f[2].value, out);
	if (ret < 0)
		return errmsg_prefix(r->msg, ret, "binding \"%s\"", vault_quote(out->name, quoted));
	return 0;
}
