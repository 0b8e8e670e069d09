/* YAML to a tree with lines (control/settings_yaml): what is accepted, what each thing becomes, and
 * what is refused at which line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "control/settings_yaml.h"

static struct settings_yaml *must_decode(const char *text)
{
	struct settings_yaml *y = NULL;
	struct errmsg msg = {""};

	if (settings_yaml_decode(slice_str(text), "f", &y, &msg) < 0)
		fail_msg("%s", msg.text);
	return y;
}

static void test_scalars_become_what_they_look_like(void **state)
{
	static const struct {
		const char *yaml;
		const char *json;
	} rows[] = {
		{"", "{}"},
		{"# only a comment\n", "{}"},
		{"---\n...\n", NULL},
		{"a: x", "{\"a\":\"x\"}"},
		{"a: 1", "{\"a\":1}"},
		{"a: -7", "{\"a\":-7}"},
		{"a: 0", "{\"a\":0}"},
		{"a: 9223372036854775807", "{\"a\":9223372036854775807}"},
		{"a: 9223372036854775808", "{\"a\":\"9223372036854775808\"}"},
		{"a: 007", "{\"a\":\"007\"}"},
		{"a: -0", "{\"a\":\"-0\"}"},
		{"a: -", NULL},
		{"a: 1e5", "{\"a\":\"1e5\"}"},
		{"a: 0x10", "{\"a\":\"0x10\"}"},
		{"a: 1.5", "{\"a\":\"1.5\"}"},
		{"a: true", "{\"a\":true}"},
		{"a: True", "{\"a\":\"True\"}"},
		{"a: off", "{\"a\":\"off\"}"},
		{"a: ~", "{\"a\":null}"},
		{"a:", "{\"a\":null}"},
		{"a: null", "{\"a\":null}"},
		{"a: \"null\"", "{\"a\":\"null\"}"},
		{"a: '1'", "{\"a\":\"1\"}"},
		{"a: |\n  x\n  y\n", "{\"a\":\"x\\ny\\n\"}"},
		{"a: [1, x, {b: c}]", "{\"a\":[1,\"x\",{\"b\":\"c\"}]}"},
		{"a:\n  - b\n  - c: d\n", "{\"a\":[\"b\",{\"c\":\"d\"}]}"},
		{"{\"a\": [\"b\"]}", "{\"a\":[\"b\"]}"},
	};
	size_t i;

	for (i = 0; i < ARRAY_LEN(rows); i++) {
		struct settings_yaml *y = NULL;
		struct errmsg msg = {""};
		char *json;
		int ret;

		ret = settings_yaml_decode(slice_str(rows[i].yaml), "f", &y, &msg);
		if (!rows[i].json) {
			assert_int_equal(ret, E_SYNTAX);
			assert_null(y);
			continue;
		}
		assert_int_equal(ret, 0);
		json = json_dumps(settings_yaml_root(y), JSON_COMPACT);
		assert_string_equal(json, rows[i].json);
		free(json);
		settings_yaml_free(y);
	}
}

static void test_what_is_refused_names_file_and_line(void **state)
{
	static const struct {
		const char *yaml;
		const char *want; /* start of the message */
	} rows[] = {
		{"a: 1\na: 2\n", "f:2: key \"a\" for the second time: expected each key once"},
		{"a:\n  b: 1\n  b: 2\n", "f:3: key \"b\" for the second time"},
		{"a: &x 1\nb: *x\n", "f:1: an anchor"},
		{"a: &x [1]\n", "f:1: an anchor or tag"},
		{"a: &x {}\n", "f:1: an anchor or tag"},
		{"a: *x\n", "f:1: an alias"},
		{"&k a: 1\n", "f:1: an anchor or tag"},
		{"a: !!str 1\n", "f:1: a tag"},
		{"a: !!python/object x\n", "f:1: a tag"},
		{"a: !!seq [1]\n", "f:1: an anchor or tag"},
		{"a: 1\n---\nb: 2\n", "f:2: a second document"},
		{"- a\n", "f:1: no mapping: expected `key: value` lines"},
		{"just text\n", "f:1: no mapping"},
		{"? [a]\n: b\n", "f:1: a key that is no text"},
		{"? {a: b}\n: c\n", "f:1: a key that is no text"},
		{"a: \"x\\0y\"\n", "f:1: a NUL byte"},
		{"\"a\\0b\": 1\n", "f:1: an empty or broken key"},
		{"\"\": 1\n", "f:1: an empty or broken key"},
		{"a: 1\n\tb: 2\n", "f:2: "},
		{"a: [1, 2\nb: 3\n", "f:"},
		{"a: 'x\n", "f:"},
		{"a: \xff\n", "f:1: "},
		{"a: b: c\n", "f:1: "},
	};
	size_t i;

	for (i = 0; i < ARRAY_LEN(rows); i++) {
		struct settings_yaml *y = NULL;
		struct errmsg msg = {""};

		assert_int_equal(
			settings_yaml_decode(slice_str(rows[i].yaml), "f", &y, &msg), E_SYNTAX);
		assert_null(y);
		if (strncmp(msg.text, rows[i].want, strlen(rows[i].want)) != 0)
			fail_msg("%s: got \"%s\"", rows[i].yaml, msg.text);
	}
}

/* a: [[...]] with n levels, the root's mapping being the first. */
static int decode_nested(unsigned n)
{
	struct settings_yaml *y = NULL;
	struct errmsg msg = {""};
	char text[128] = "a: ";
	int ret;

	memset(text + 3, '[', n - 1);
	memset(text + 3 + n - 1, ']', n - 1);
	ret = settings_yaml_decode(slice_str(text), "f", &y, &msg);
	settings_yaml_free(y);
	return ret;
}

static void test_depth_is_bounded(void **state)
{
	assert_int_equal(decode_nested(YAML_DEPTH_MAX), 0);
	assert_int_equal(decode_nested(YAML_DEPTH_MAX + 1), E_SYNTAX);
}

static void test_lines_of_keys_and_items_are_known(void **state)
{
	struct settings_yaml *y = must_decode("# one\n"
					      "first: 1\n"
					      "policy:\n"
					      "  egress:\n"
					      "    - {target: a}\n"
					      "\n"
					      "    - target: b\n"
					      "last: [x,\n"
					      "  y]\n");
	const json_t *policy = json_object_get(settings_yaml_root(y), "policy");
	const json_t *egress = json_object_get(policy, "egress");
	const json_t *last = json_object_get(settings_yaml_root(y), "last");

	assert_int_equal(settings_yaml_key_line(y, "first"), 2);
	assert_int_equal(settings_yaml_key_line(y, "policy"), 3);
	assert_int_equal(settings_yaml_key_line(y, "last"), 8);
	assert_int_equal(settings_yaml_key_line(y, "egress"), 0);
	assert_int_equal(settings_yaml_item_line(y, egress, 0), 5);
	assert_int_equal(settings_yaml_item_line(y, egress, 1), 7);
	assert_int_equal(settings_yaml_item_line(y, egress, 2), 0);
	assert_int_equal(settings_yaml_item_line(y, last, 1), 9);
	settings_yaml_free(y);
}

static void test_byte_order_mark_does_not_change_the_encoding(void **state)
{
	struct settings_yaml *y = NULL;
	struct errmsg msg = {""};

	assert_int_equal(settings_yaml_decode(SLICE("\xff\xfe"
						    "a\0:\0 \0b\0"),
				 "f", &y, &msg),
		E_SYNTAX);
	assert_null(y);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_scalars_become_what_they_look_like),
		cmocka_unit_test(test_what_is_refused_names_file_and_line),
		cmocka_unit_test(test_depth_is_bounded),
		cmocka_unit_test(test_lines_of_keys_and_items_are_known),
		cmocka_unit_test(test_byte_order_mark_does_not_change_the_encoding),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
