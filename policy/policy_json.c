/* The policy document: text, then jansson's tree, then rules, then policy_new; and back.
 *
 * The text is walked once before jansson sees it: nesting is bounded there (jansson recurses), and
 * field names are lower-cased there, so that of `target` and `Target` the later one wins, as in the
 * server we replace. */
#include "policy/policy_json.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/arena.h"
#include "policy/policy_int.h"

/* A document needs 4: object, array, rule, ports. */
#define POLICY_JSON_DEPTH_MAX 64

#define POLICY_JSON_WHERE_MAX 40

/* An object costs the reader about 250 bytes, however short it is: `{}` a hundred times over. A
 * rule has 14 bytes at least, with ports 24. */
#define POLICY_JSON_CONTAINER_BYTES 8
#define POLICY_JSON_CONTAINERS_MIN 64

/* Of an object: the values of the fields we know; NULL if absent. */
struct policy_json_fields {
	const char *names[3];
	const json_t *values[3];
};

static bool policy_json_is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* Offset behind the closing quote of the string that begins at `from`, or len. */
static size_t policy_json_string_end(const char *p, size_t len, size_t from)
{
	for (size_t i = from + 1; i < len; i++) {
		if (p[i] == '\\')
			i++;
		else if (p[i] == '"')
			return i + 1;
	}
	return len;
}

static bool policy_json_is_field_name(const char *p, size_t len, size_t end)
{
	while (end < len && policy_json_is_space(p[end]))
		end++;
	return end < len && p[end] == ':';
}

/* Lower-cases field names in place; E_LIMIT for deep nesting. What is no JSON passes: jansson says
 * what is wrong with it. */
static int policy_json_walk(char *p, size_t len, struct errmsg *msg)
{
	size_t depth = 0;
	size_t left = POLICY_JSON_CONTAINERS_MIN + len / POLICY_JSON_CONTAINER_BYTES;

	for (size_t i = 0; i < len; i++) {
		size_t end;

		if (p[i] == '[' || p[i] == '{') {
			if (left-- == 0)
				return errmsg_set(msg, E_LIMIT,
					"byte %zu: more objects and lists than rules of this "
					"length can have",
					i);
			if (++depth > POLICY_JSON_DEPTH_MAX)
				return errmsg_set(msg, E_LIMIT,
					"byte %zu: nested deeper than %d; a policy needs 4", i,
					POLICY_JSON_DEPTH_MAX);
		} else if ((p[i] == ']' || p[i] == '}') && depth > 0) {
			depth--;
		}
		if (p[i] != '"')
			continue;
		end = policy_json_string_end(p, len, i);
		if (policy_json_is_field_name(p, len, end))
			for (size_t k = i; k < end; k++)
				p[k] = ascii_lower(p[k]);
		i = end - 1;
	}
	return 0;
}

static void policy_json_fields_read(const json_t *object, struct policy_json_fields *f)
{
	/* jansson has no iterator for const objects; this one changes nothing. */
	json_t *open = (json_t *)(uintptr_t)object;

	for (void *it = json_object_iter(open); it; it = json_object_iter_next(open, it)) {
		struct slice key = slice_str(json_object_iter_key(it));

		for (size_t i = 0; i < ARRAY_LEN(f->names); i++)
			if (f->names[i] && slice_ieq(key, slice_str(f->names[i])))
				f->values[i] = json_object_iter_value(it);
	}
}

/* Absent and null are the empty text. */
static int policy_json_text(const json_t *value, const char *where, const char *name,
	struct slice *out, struct errmsg *msg)
{
	*out = SLICE_EMPTY;
	if (!value || json_is_null(value))
		return 0;
	if (!json_is_string(value))
		return errmsg_set(msg, E_VALUE, "%s%s: a text was expected", where, name);
	*out = slice_make(json_string_value(value), json_string_length(value));
	return 0;
}

static int policy_json_ports(const json_t *value, const struct rule_source *src,
	uint16_t ports[POLICY_RULE_PORTS_MAX], struct errmsg *msg)
{
	size_t n = json_array_size(value);
	char quoted[RULE_QUOTE_MAX];

	rule_quote(slice_strip(src->target), quoted);
	if (!json_is_array(value))
		return errmsg_set(msg, E_VALUE,
			"%starget \"%s\": ports: a list of numbers was expected", src->where,
			quoted);
	if (n > POLICY_RULE_PORTS_MAX)
		return errmsg_set(msg, E_LIMIT,
			"%starget \"%s\": too many ports (%zu), max %d per rule", src->where,
			quoted, n, POLICY_RULE_PORTS_MAX);
	for (size_t i = 0; i < n; i++) {
		const json_t *port = json_array_get(value, i);

		if (!json_is_integer(port))
			return errmsg_set(msg, E_VALUE,
				"%starget \"%s\": ports[%zu]: a number from 1 to 65535 was "
				"expected",
				src->where, quoted, i);
		if (json_integer_value(port) < 1 || json_integer_value(port) > UINT16_MAX)
			return errmsg_set(msg, E_VALUE,
				"%starget \"%s\": port %" JSON_INTEGER_FORMAT
				" out of range 1-65535",
				src->where, quoted, json_integer_value(port));
		ports[i] = (uint16_t)json_integer_value(port);
	}
	return 0;
}

static int policy_json_rule(
	const json_t *value, const char *list, size_t index, struct rule *out, struct errmsg *msg)
{
	struct policy_json_fields f = {.names = {"action", "target", "ports"}};
	char where[POLICY_JSON_WHERE_MAX];
	uint16_t ports[POLICY_RULE_PORTS_MAX];
	struct rule_source src = {.where = where, .ports = ports};
	int ret;

	(void)snprintf(where, sizeof(where), "%s[%zu]: ", list, index);
	if (json_is_object(value))
		policy_json_fields_read(value, &f);
	else if (!json_is_null(value))
		return errmsg_set(
			msg, E_VALUE, "%san object with action and target was expected", where);
	ret = policy_json_text(f.values[0], where, "action", &src.action, msg);
	if (ret == 0)
		ret = policy_json_text(f.values[1], where, "target", &src.target, msg);
	if (ret == 0 && f.values[2] && !json_is_null(f.values[2])) {
		src.n_ports = json_array_size(f.values[2]);
		ret = policy_json_ports(f.values[2], &src, ports, msg);
	}
	return ret == 0 ? rule_decode(&src, out, msg) : ret;
}

static int policy_json_default_action(const json_t *value, bool *allow, struct errmsg *msg)
{
	char quoted[RULE_QUOTE_MAX];
	struct slice text;
	int ret = policy_json_text(value, "", "defaultAction", &text, msg);

	if (ret < 0)
		return ret;
	text = slice_strip(text);
	*allow = slice_ieq(text, SLICE("allow"));
	if (*allow || text.len == 0 || slice_ieq(text, SLICE("deny")))
		return 0;
	return errmsg_set(msg, E_VALUE,
		"unsupported defaultAction \"%s\"; write \"allow\" or \"deny\"",
		rule_quote(text, quoted));
}

static int policy_json_rules(
	const json_t *array, size_t max_rules, struct rule **rules, size_t *n, struct errmsg *msg)
{
	size_t count = json_array_size(array);

	if (!array || json_is_null(array))
		return 0;
	if (!json_is_array(array))
		return errmsg_set(msg, E_VALUE, "egress: a list of rules was expected");
	if (max_rules > 0 && count > max_rules)
		return errmsg_set(msg, E_LIMIT, "egress rule total count %zu exceeds limit %zu",
			count, max_rules);
	*rules = xcalloc(count ? count : 1, sizeof(**rules));
	for (*n = 0; *n < count; ++*n) {
		int ret = policy_json_rule(
			json_array_get(array, *n), "egress", *n, &(*rules)[*n], msg);

		if (ret < 0)
			return ret;
	}
	return 0;
}

int policy_json_decode_tree(
	const json_t *root, size_t max_rules, struct policy **out, struct errmsg *msg)
{
	struct policy_json_fields f = {.names = {"egress", "defaultAction"}};
	struct rule *rules = NULL;
	bool default_allow = false;
	size_t n = 0;
	int ret;

	*out = NULL;
	if (json_is_object(root))
		policy_json_fields_read(root, &f);
	else if (!json_is_null(root))
		return errmsg_set(
			msg, E_VALUE, "a policy is an object with defaultAction and a list egress");
	ret = policy_json_default_action(f.values[1], &default_allow, msg);
	if (ret == 0)
		ret = policy_json_rules(f.values[0], max_rules, &rules, &n, msg);
	if (ret < 0) {
		for (size_t i = 0; i < n; i++)
			rule_fini(&rules[i]);
		free(rules);
		return ret;
	}
	*out = policy_new(default_allow, rules, n);
	return 0;
}

static int policy_json_parse(struct slice text, json_t **root, struct errmsg *msg)
{
	char quoted[RULE_QUOTE_MAX];
	char *copy = xmalloc(text.len);
	json_error_t error;
	int ret;

	memcpy(copy, text.p, text.len);
	ret = policy_json_walk(copy, text.len, msg);
	if (ret == 0) {
		*root = json_loadb(copy, text.len, JSON_DECODE_ANY, &error);
		if (!*root)
			ret = errmsg_set(msg, E_SYNTAX, "line %d, column %d: %s", error.line,
				error.column, rule_quote(slice_str(error.text), quoted));
	}
	free(copy);
	return ret;
}

static int policy_json_text_check(struct slice text, struct errmsg *msg)
{
	if (text.len > POLICY_DOC_MAX)
		return errmsg_set(msg, E_LIMIT, "%zu bytes; a policy has at most %u", text.len,
			POLICY_DOC_MAX);
	if (slice_find_char(text, '\0') < text.len)
		return errmsg_set(
			msg, E_SYNTAX, "byte %zu: a NUL byte", slice_find_char(text, '\0'));
	return 0;
}

int policy_json_decode(struct slice text, size_t max_rules, struct policy **out, struct errmsg *msg)
{
	json_t *root = NULL;
	int ret;

	*out = NULL;
	ret = policy_json_text_check(text, msg);
	if (ret < 0)
		return ret;
	if (slice_strip(text).len == 0) {
		*out = policy_new(false, NULL, 0);
		return 0;
	}
	ret = policy_json_parse(text, &root, msg);
	if (ret == 0)
		ret = policy_json_decode_tree(root, max_rules, out, msg);
	json_decref(root);
	return ret;
}

/* A document that has to be a list with something in it. */
static int policy_json_list(struct slice text, json_t **list, struct errmsg *msg)
{
	int ret;

	*list = NULL;
	ret = policy_json_text_check(text, msg);
	if (ret == 0)
		ret = policy_json_parse(text, list, msg);
	if (ret < 0)
		return ret;
	if (json_is_array(*list) && json_array_size(*list) > 0)
		return 0;
	ret = json_is_array(*list) || json_is_null(*list)
		? errmsg_set(msg, E_VALUE, "empty array")
		: errmsg_set(msg, E_VALUE, "a list was expected");
	json_decref(*list);
	*list = NULL;
	return ret;
}

int policy_json_decode_patch(struct slice text, struct rule_list *out, struct errmsg *msg)
{
	json_t *list;
	struct rule r;
	int ret = policy_json_list(text, &list, msg);

	*out = (struct rule_list){.v = NULL};
	for (size_t i = 0; ret == 0 && i < json_array_size(list); i++) {
		ret = policy_json_rule(json_array_get(list, i), "rule", i, &r, msg);
		if (ret == 0)
			rule_list_add(out, &r);
	}
	if (ret < 0)
		rule_list_fini(out);
	json_decref(list);
	return ret;
}

int policy_json_decode_targets(struct slice text, struct policy_targets *out, struct errmsg *msg)
{
	char where[POLICY_JSON_WHERE_MAX];
	int ret;

	*out = (struct policy_targets){.n = 0};
	ret = policy_json_list(text, &out->doc, msg);
	if (ret < 0)
		return ret;
	out->v = xcalloc(json_array_size(out->doc), sizeof(*out->v));
	for (; ret == 0 && out->n < json_array_size(out->doc); out->n++) {
		(void)snprintf(where, sizeof(where), "target[%zu]: ", out->n);
		ret = policy_json_text(
			json_array_get(out->doc, out->n), where, "", &out->v[out->n], msg);
	}
	if (ret < 0)
		policy_targets_fini(out);
	return ret;
}

void policy_targets_fini(struct policy_targets *t)
{
	json_decref(t->doc);
	free(t->v);
	*t = (struct policy_targets){.n = 0};
}

static json_t *policy_json_encode_rule(const struct rule *r)
{
	json_t *object = json_object();
	json_t *ports;

	json_object_set_new(object, "action", json_string(r->allow ? "allow" : "deny"));
	json_object_set_new(object, "target", json_string(r->written));
	if (r->n_ports == 0)
		return object;
	ports = json_array();
	for (size_t i = 0; i < r->n_ports; i++)
		json_array_append_new(ports, json_integer(r->ports[i]));
	json_object_set_new(object, "ports", ports);
	return object;
}

json_t *policy_json_encode(const struct policy *p)
{
	json_t *root = json_object();
	json_t *egress = json_array();

	for (size_t i = 0; i < policy_n_rules(p); i++)
		json_array_append_new(egress, policy_json_encode_rule(policy_rule(p, i)));
	json_object_set_new(root, "egress", egress);
	json_object_set_new(
		root, "defaultAction", json_string(policy_default_allow(p) ? "allow" : "deny"));
	return root;
}

json_t *policy_json_normal(const json_t *root, struct errmsg *msg)
{
	struct policy *p = NULL;
	json_t *doc;

	if (policy_json_decode_tree(root, 0, &p, msg) < 0)
		return NULL;
	doc = policy_json_encode(p);
	policy_unref(p);
	return doc;
}
