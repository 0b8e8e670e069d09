/* YAML by libyaml's events. After it comes settings, which knows what the keys mean.
 *
 * Events, not libyaml's document tree: depth is bounded while reading, and an alias (with which a
 * few lines become gigabytes) is refused before anything is built from it. */
#include "control/settings_yaml.h"

#include <stdio.h>
#include <stdlib.h>

#include <yaml.h>

#include "base/arena.h"

/* Where one array item, or one key of the root, stands. */
struct yaml_pos {
	const json_t *array; /* NULL: a key of the root */
	size_t index;
	char *key;
	unsigned line;
};

struct settings_yaml {
	json_t *root;
	struct yaml_pos *pos;
	size_t n_pos;
	size_t cap_pos;
};

struct yaml_reader {
	yaml_parser_t parser;
	struct settings_yaml *doc;
	const char *name;
	bool secret; /* messages must not quote */
	struct errmsg *msg;
};

static int settings_yaml_value(
	struct yaml_reader *r, const yaml_event_t *ev, unsigned depth, json_t **out);

static unsigned settings_yaml_line(const yaml_event_t *ev)
{
	return (unsigned)ev->start_mark.line + 1;
}

static int settings_yaml_fail(
	const struct yaml_reader *r, const yaml_event_t *ev, const char *what, const char *expected)
{
	return errmsg_set(r->msg, E_SYNTAX, "%s:%u: %s: expected %s", r->name,
		settings_yaml_line(ev), what, expected);
}

/* key moves into the document. */
static void settings_yaml_pos_add(
	struct settings_yaml *y, const json_t *array, size_t index, char *key, unsigned line)
{
	if (y->n_pos == y->cap_pos) {
		y->cap_pos = y->cap_pos ? 2 * y->cap_pos : 32;
		y->pos = xrealloc(y->pos, y->cap_pos * sizeof(*y->pos));
	}
	y->pos[y->n_pos++] = (struct yaml_pos){array, index, key, line};
}

static int settings_yaml_next(struct yaml_reader *r, yaml_event_t *ev)
{
	const yaml_parser_t *p = &r->parser;

	if (yaml_parser_parse(&r->parser, ev))
		return 0;
	/* libyaml gives texts of its own only, never a part of the input. */
	return errmsg_set(r->msg, E_SYNTAX, "%s:%zu: %s: expected YAML", r->name,
		(p->error == YAML_READER_ERROR ? (size_t)0 : p->problem_mark.line) + 1,
		p->problem ? p->problem : "malformed text");
}

/* An integer is one only if printing it gives the same text again: 007 and 1_000 are strings. */
static bool settings_yaml_integer(struct slice s, json_int_t *out)
{
	char back[32];
	char text[32];
	int n;

	if (s.len == 0 || !(ascii_digit(s.p[0]) || s.p[0] == '-') ||
		!slice_to_cstr(s, text, sizeof(text)))
		return false;
	*out = strtoll(text, NULL, 10);
	n = snprintf(back, sizeof(back), "%" JSON_INTEGER_FORMAT, *out);
	return n > 0 && slice_eq(s, slice_make(back, (size_t)n));
}

static json_t *settings_yaml_plain(struct slice s)
{
	json_int_t number;

	if (s.len == 0 || slice_eq(s, SLICE("~")) || slice_eq(s, SLICE("null")))
		return json_null();
	if (slice_eq(s, SLICE("true")))
		return json_true();
	if (slice_eq(s, SLICE("false")))
		return json_false();
	if (settings_yaml_integer(s, &number))
		return json_integer(number);
	return json_stringn(s.p, s.len);
}

static struct slice settings_yaml_text(const yaml_event_t *ev)
{
	return slice_make((const char *)ev->data.scalar.value, ev->data.scalar.length);
}

static int settings_yaml_scalar(struct yaml_reader *r, const yaml_event_t *ev, json_t **out)
{
	struct slice s = settings_yaml_text(ev);

	if (ev->data.scalar.anchor)
		return settings_yaml_fail(r, ev, "an anchor", "plain values, without & and *");
	if (ev->data.scalar.tag)
		return settings_yaml_fail(r, ev, "a tag", "plain values, without !");
	if (slice_find_char(s, '\0') < s.len)
		return settings_yaml_fail(r, ev, "a NUL byte", "text");
	if (ev->data.scalar.style == YAML_PLAIN_SCALAR_STYLE)
		*out = settings_yaml_plain(s);
	else
		*out = json_stringn(s.p, s.len);
	return *out ? 0 : settings_yaml_fail(r, ev, "a text that is not UTF-8", "UTF-8");
}

static int settings_yaml_sequence(struct yaml_reader *r, unsigned depth, json_t *array)
{
	yaml_event_t ev;
	json_t *item;
	bool last;
	int ret;

	for (;;) {
		item = NULL;
		ret = settings_yaml_next(r, &ev);
		if (ret < 0)
			return ret;
		last = ev.type == YAML_SEQUENCE_END_EVENT;
		if (!last)
			ret = settings_yaml_value(r, &ev, depth, &item);
		if (!last && ret == 0)
			settings_yaml_pos_add(r->doc, array, json_array_size(array), NULL,
				settings_yaml_line(&ev));
		yaml_event_delete(&ev);
		if (last || ret < 0)
			return ret;
		if (json_array_append_new(array, item) < 0)
			return errmsg_set(r->msg, E_LIMIT, "%s: out of memory", r->name);
	}
}

/* Checks the event as a key of object and copies it. */
static int settings_yaml_key(
	struct yaml_reader *r, const yaml_event_t *ev, const json_t *object, char **out)
{
	struct slice s;
	char what[160];

	if (ev->type != YAML_SCALAR_EVENT)
		return settings_yaml_fail(r, ev, "a key that is no text", "`key: value`");
	if (ev->data.scalar.anchor || ev->data.scalar.tag)
		return settings_yaml_fail(r, ev, "an anchor or tag", "plain keys");
	s = settings_yaml_text(ev);
	if (s.len == 0 || slice_find_char(s, '\0') < s.len)
		return settings_yaml_fail(r, ev, "an empty or broken key", "a name");
	if (json_object_getn(object, s.p, s.len)) {
		if (r->secret)
			return settings_yaml_fail(r, ev, "a key for the second time", "each once");
		(void)snprintf(what, sizeof(what), "key \"%.*s\" for the second time",
			(int)(s.len < 80 ? s.len : 80), s.p);
		return settings_yaml_fail(r, ev, what, "each key once");
	}
	*out = xstrdup((const char *)ev->data.scalar.value);
	return 0;
}

static int settings_yaml_member(
	struct yaml_reader *r, const yaml_event_t *key_ev, unsigned depth, json_t *object)
{
	json_t *value = NULL;
	char *key = NULL;
	yaml_event_t ev;
	int ret;

	ret = settings_yaml_key(r, key_ev, object, &key);
	if (ret < 0)
		return ret;
	ret = settings_yaml_next(r, &ev);
	if (ret < 0)
		goto out;
	ret = settings_yaml_value(r, &ev, depth, &value);
	yaml_event_delete(&ev);
	if (ret < 0)
		goto out;
	if (json_object_set_new(object, key, value) < 0) {
		ret = settings_yaml_fail(r, key_ev, "a key that is not UTF-8", "UTF-8");
		goto out;
	}
	if (depth == 1) {
		settings_yaml_pos_add(r->doc, NULL, 0, key, settings_yaml_line(key_ev));
		key = NULL;
	}
out:
	free(key);
	return ret;
}

static int settings_yaml_mapping(struct yaml_reader *r, unsigned depth, json_t *object)
{
	yaml_event_t ev;
	bool last;
	int ret;

	for (;;) {
		ret = settings_yaml_next(r, &ev);
		if (ret < 0)
			return ret;
		last = ev.type == YAML_MAPPING_END_EVENT;
		if (!last)
			ret = settings_yaml_member(r, &ev, depth, object);
		yaml_event_delete(&ev);
		if (last || ret < 0)
			return ret;
	}
}

static int settings_yaml_collection(
	struct yaml_reader *r, const yaml_event_t *ev, unsigned depth, json_t **out)
{
	bool mapping = ev->type == YAML_MAPPING_START_EVENT;
	json_t *made;
	int ret;

	if (depth >= YAML_DEPTH_MAX)
		return settings_yaml_fail(r, ev, "nested too deeply", "16 levels at most");
	if (mapping ? (ev->data.mapping_start.anchor || ev->data.mapping_start.tag)
		    : (ev->data.sequence_start.anchor || ev->data.sequence_start.tag))
		return settings_yaml_fail(r, ev, "an anchor or tag", "plain values, without & ! *");
	made = mapping ? json_object() : json_array();
	if (mapping)
		ret = settings_yaml_mapping(r, depth + 1, made);
	else
		ret = settings_yaml_sequence(r, depth + 1, made);
	if (ret < 0) {
		json_decref(made);
		return ret;
	}
	*out = made;
	return 0;
}

static int settings_yaml_value(
	struct yaml_reader *r, const yaml_event_t *ev, unsigned depth, json_t **out)
{
	if (ev->type == YAML_SCALAR_EVENT)
		return settings_yaml_scalar(r, ev, out);
	if (ev->type == YAML_MAPPING_START_EVENT || ev->type == YAML_SEQUENCE_START_EVENT)
		return settings_yaml_collection(r, ev, depth, out);
	return settings_yaml_fail(r, ev, "an alias", "plain values, without & and *");
}

/* What stands at the top: nothing, or one document whose root is a mapping. */
static int settings_yaml_top(struct yaml_reader *r, const yaml_event_t *ev, bool *done)
{
	switch ((int)ev->type) {
	case YAML_STREAM_START_EVENT:
	case YAML_DOCUMENT_END_EVENT:
		return 0;
	case YAML_STREAM_END_EVENT:
		*done = true;
		return 0;
	case YAML_DOCUMENT_START_EVENT:
		if (r->doc->root)
			return settings_yaml_fail(r, ev, "a second document", "one document");
		return 0;
	case YAML_MAPPING_START_EVENT:
		return settings_yaml_value(r, ev, 0, &r->doc->root);
	default:
		return settings_yaml_fail(r, ev, "no mapping", "`key: value` lines");
	}
}

static int settings_yaml_read(struct yaml_reader r, struct slice text, struct settings_yaml **out)
{
	yaml_event_t ev;
	bool done = false;
	int ret = 0;

	*out = NULL;
	REQUIRE(yaml_parser_initialize(&r.parser));
	/* Else a byte order mark could make it UTF-16, which no other reader of the file sees. */
	yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&r.parser, (const unsigned char *)text.p, text.len);
	r.doc = xcalloc(1, sizeof(*r.doc));
	while (!done && ret == 0) {
		ret = settings_yaml_next(&r, &ev);
		if (ret < 0)
			break;
		ret = settings_yaml_top(&r, &ev, &done);
		yaml_event_delete(&ev);
	}
	yaml_parser_delete(&r.parser);
	if (ret < 0) {
		settings_yaml_free(r.doc);
		return ret;
	}
	if (!r.doc->root)
		r.doc->root = json_object();
	*out = r.doc;
	return 0;
}

int settings_yaml_decode(
	struct slice text, const char *name, struct settings_yaml **out, struct errmsg *msg)
{
	return settings_yaml_read((struct yaml_reader){.name = name, .msg = msg}, text, out);
}

int settings_yaml_decode_secret(
	struct slice text, const char *name, struct settings_yaml **out, struct errmsg *msg)
{
	return settings_yaml_read(
		(struct yaml_reader){.name = name, .secret = true, .msg = msg}, text, out);
}

void settings_yaml_free(struct settings_yaml *y)
{
	size_t i;

	if (!y)
		return;
	for (i = 0; i < y->n_pos; i++)
		free(y->pos[i].key);
	free(y->pos);
	json_decref(y->root);
	free(y);
}

json_t *settings_yaml_root(const struct settings_yaml *y)
{
	return y->root;
}

unsigned settings_yaml_key_line(const struct settings_yaml *y, const char *key)
{
	size_t i;

	for (i = 0; i < y->n_pos; i++) {
		if (y->pos[i].key && strcmp(y->pos[i].key, key) == 0)
			return y->pos[i].line;
	}
	return 0;
}

unsigned settings_yaml_item_line(const struct settings_yaml *y, const json_t *array, size_t index)
{
	size_t i;

	for (i = 0; i < y->n_pos; i++) {
		if (y->pos[i].array == array && !y->pos[i].key && y->pos[i].index == index)
			return y->pos[i].line;
	}
	return 0;
}
