/* Tables of credentials and bindings. Before it: vault_cmd has the state as JSON. */
#include "ctl/vault_print.h"

#include "ctl/text.h"

#define PRINT_NAME_MAX 40 /* longer names push the rest of their line to the right */

static struct slice print_text(const json_t *value)
{
	if (!json_is_string(value))
		return SLICE("-");
	return slice_make(json_string_value(value), json_string_length(value));
}

/* The column that the longest name needs. */
static size_t print_name_width(const json_t *items)
{
	size_t width = sizeof("NAME") - 1;
	const json_t *item;
	size_t i;

	json_array_foreach(items, i, item)
	{
		size_t len = print_text(json_object_get(item, "name")).len;

		if (len > width)
			width = len < PRINT_NAME_MAX ? len : PRINT_NAME_MAX;
	}
	return width + 1; /* text_column leaves one space at least */
}

static void print_list(const char *label, const json_t *list, struct strbuf *out)
{
	const json_t *item;
	size_t i;

	strbuf_printf(out, "    %-9s", label);
	json_array_foreach(list, i, item)
	{
		strbuf_str(out, i > 0 ? " " : "");
		(void)text_visible(out, print_text(item));
	}
	strbuf_char(out, '\n');
}

static void print_auth(const json_t *auth, struct strbuf *out)
{
	const json_t *field = json_object_get(auth, "name");

	strbuf_str(out, "    auth     ");
	(void)text_visible(out, print_text(json_object_get(auth, "type")));
	if (field) {
		strbuf_char(out, ' ');
		(void)text_visible(out, print_text(field));
	}
	strbuf_char(out, '\n');
}

static void print_binding(const json_t *binding, struct strbuf *out)
{
	const json_t *match = json_object_get(binding, "match");

	strbuf_str(out, "  ");
	(void)text_visible(out, print_text(json_object_get(binding, "name")));
	strbuf_char(out, '\n');
	print_auth(json_object_get(binding, "auth"), out);
	print_list("schemes", json_object_get(match, "schemes"), out);
	print_list("hosts", json_object_get(match, "hosts"), out);
	print_list("methods", json_object_get(match, "methods"), out);
	print_list("paths", json_object_get(match, "paths"), out);
}

void vault_print(const json_t *state, const char *file, struct strbuf *out)
{
	const json_t *credentials = json_object_get(state, "credentials");
	const json_t *bindings = json_object_get(state, "bindings");
	size_t width = print_name_width(credentials);
	const json_t *item;
	size_t i;

	strbuf_str(out, "file      ");
	(void)text_visible(out, slice_str(file));
	strbuf_str(out, "\nrevision  known to the running egress only\n");
	strbuf_printf(out, "\ncredentials: %zu\n", json_array_size(credentials));
	json_array_foreach(credentials, i, item)
	{
		strbuf_str(out, "  ");
		text_column(out, print_text(json_object_get(item, "name")), width);
		(void)text_visible(out, print_text(json_object_get(item, "sourceType")));
		strbuf_char(out, '\n');
	}
	strbuf_printf(out, "\nbindings: %zu\n", json_array_size(bindings));
	json_array_foreach(bindings, i, item)
	{
		print_binding(item, out);
	}
}
