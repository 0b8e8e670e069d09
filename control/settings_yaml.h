/* YAML text to a jansson tree that remembers its lines, for messages. settings reads the tree.
 *
 * A small YAML: one document, no anchors, aliases or tags, string keys, each key once. A plain
 * scalar is null (`~`, `null`, empty), a boolean (`true`, `false`) or an integer (canonical
 * decimal) and else a string, so that its text can always be had back. */
#pragma once

#include <jansson.h>

#include "base/err.h"
#include "base/slice.h"

#define YAML_DEPTH_MAX 16 /* a policy needs five */

struct settings_yaml;

/* name: of the file, for messages: "name:12: duplicate key ...: expected ...". Borrowed for the
 * call. An empty text is an empty mapping; the root is always a mapping. */
CHECKED int settings_yaml_decode(
	struct slice text, const char *name, struct settings_yaml **out, struct errmsg *msg);
/* The same of a text that may hold secrets: no message quotes any of it, a key neither. */
CHECKED int settings_yaml_decode_secret(
	struct slice text, const char *name, struct settings_yaml **out, struct errmsg *msg);
void settings_yaml_free(struct settings_yaml *y);

/* Borrowed, a JSON object. */
json_t *settings_yaml_root(const struct settings_yaml *y);
/* Line of a key of the root, 0 if there is none. */
unsigned settings_yaml_key_line(const struct settings_yaml *y, const char *key);
/* Line of an item of an array anywhere in the tree, 0 if it is not in the tree. */
unsigned settings_yaml_item_line(const struct settings_yaml *y, const json_t *array, size_t index);
