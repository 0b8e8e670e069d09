/* The vault file (control/vault_file): what it becomes, and that no message quotes it. */
#include <errno.h>

#include "control/vault_file.h"
#include "tests/unit/control/place.h"
#include "vault/vault.h"

#define SECRET "sk-S3cr3t"

static struct vault_watch watch;

static int read_file(const char *path, char **json, struct errmsg *msg)
{
	watch.n = 0;
	msg->text[0] = '\0';
	return vault_file_read(path, json, &watch, msg);
}

static void must_read(const char *path, const char *want)
{
	struct errmsg msg;
	char *json;

	if (read_file(path, &json, &msg) < 0)
		fail_msg("%s", msg.text);
	assert_string_equal(json, want);
	free(json);
}

static void must_refuse(const char *path, int ret, const char *want)
{
	struct errmsg msg;
	char *json;
	int got = read_file(path, &json, &msg);

	if (got != ret || !strstr(msg.text, want))
		fail_msg("%d \"%s\", expected %d \"%s\"", got, msg.text, ret, want);
	if (strstr(msg.text, "S3cr"))
		fail_msg("quoted: %s", msg.text);
	assert_null(json);
	assert_true(watch.n > 0);
}

static void test_yaml_and_json_become_one_compact_document(void **state)
{
	static const struct {
		const char *text;
		const char *json;
	} rows[] = {
		{"credentials:\n  - name: k\n    source: {value: '" SECRET "'}\n",
			"{\"credentials\":[{\"name\":\"k\",\"source\":{\"value\":\"" SECRET
			"\"}}]}"},
		{" \n\t{ \"bindings\": [ ] }\n", "{\"bindings\":[]}"},
		/* JSON only from its first byte: this is YAML */
		{"bindings: []\n", "{\"bindings\":[]}"},
		{"# {\nbindings: []\n", "{\"bindings\":[]}"},
		{"", "{}"},
		{"{\"a\":\"\\u0000\"}", "{\"a\":\"\\u0000\"}"},
		/* judged by the vault */
		{"{\"a\":1,\"credentials\":3}", "{\"a\":1,\"credentials\":3}"},
		{"credentials: [1, {source: x}, {source: {type: 3}}]",
			"{\"credentials\":[1,{\"source\":\"x\"},{\"source\":{\"type\":3}}]}"},
		{"credentials: [{source: {type: http, url: x}}]",
			"{\"credentials\":[{\"source\":{\"type\":\"http\",\"url\":\"x\"}}]}"},
	};
	struct place *p = *state;

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		place_put(p->path, rows[i].text, 0600);
		must_read(p->path, rows[i].json);
		assert_int_equal(watch.n, 1);
	}
}

static void test_broken_file_is_refused_at_its_place_and_not_quoted(void **state)
{
	static const struct {
		const char *text;
		const char *want;
	} rows[] = {
		{"a: b\n" SECRET ": [", "/file:3: "},
		{"a: b\n\t" SECRET, "/file:2: "},
		{"a: " SECRET "\n" SECRET "\n", "/file:"},
		{SECRET ": 1\n" SECRET ": 2\n", "/file:2: a key for the second time"},
		{"a: &" SECRET " 1\n", "/file:1: an anchor"},
		{"a: *" SECRET "\n", "/file:1: an alias"},
		{"a: !" SECRET " b\n", "/file:1: a tag"},
		{SECRET, "/file:1: no mapping"},
		{"- " SECRET, "/file:1: no mapping"},
		{"a: 1\n---\n" SECRET ": 1\n", "/file:2: a second document"},
		{"a: \"" SECRET "\xff\"\n", "/file:"},
		{"{\"a\":\n\"" SECRET "\",}", "/file:2:"},
		{"{\"" SECRET "\":1,\"" SECRET "\":2}", "a key for the second time"},
		{"{\"a\":\"" SECRET "\"} " SECRET, "something behind the document"},
		{"{\"a\":\"" SECRET, "it ends too early"},
		{"{\"a\":" SECRET "}", "malformed JSON"},
		{"{\"a\":\"" SECRET "\xff\"}", "a text that is not UTF-8"},
		{"{", "it ends too early"},
	};
	struct place *p = *state;

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		place_put(p->path, rows[i].text, 0600);
		must_refuse(p->path, E_SYNTAX, rows[i].want);
	}
}

static void test_file_that_others_may_read_is_refused_with_its_mode(void **state)
{
	struct place *p = *state;

	place_put(p->path, "a: " SECRET, 0644);
	must_refuse(p->path, -EPERM, "mode 0644: expected a file that only its owner can read");
	place_put(p->path, "a: " SECRET, 0640);
	must_refuse(p->path, -EPERM, "mode 0640");
	place_put(p->path, "a: b", 0400);
	must_read(p->path, "{\"a\":\"b\"}");
}

static void test_what_is_no_file_is_refused(void **state)
{
	struct place *p = *state;

	must_refuse(p->path, -ENOENT, "/file: No such file or directory: expected a readable");
	assert_int_equal(mkfifo(p->path, 0600), 0);
	must_refuse(p->path, -EPERM, "expected a regular file");
	must_refuse(p->dir, -EPERM, "expected a regular file");
}

static void test_file_of_1_mib_is_read_and_one_byte_more_is_not(void **state)
{
	struct place *p = *state;
	char *text = malloc(VAULT_DOC_MAX + 1);
	struct errmsg msg;
	char *json;

	memset(text, 'x', VAULT_DOC_MAX + 1);
	memcpy(text, "{\"a\":\"", 6);
	memcpy(text + VAULT_DOC_MAX - 2, "\"}", 2);
	place_put_bytes(p->path, text, VAULT_DOC_MAX, 0600);
	assert_int_equal(read_file(p->path, &json, &msg), 0);
	assert_int_equal(strlen(json), VAULT_DOC_MAX);
	free(json);
	text[VAULT_DOC_MAX] = '\n';
	place_put_bytes(p->path, text, VAULT_DOC_MAX + 1, 0600);
	must_refuse(p->path, E_LIMIT, "expected 1048576 bytes at most");
	free(text);
}

/* A vault whose credential k has the file p->other as its source. */
static void put_with_source(struct place *p)
{
	char text[400];

	(void)snprintf(text, sizeof(text),
		"credentials:\n- name: a\n  source: {value: v}\n- name: k\n"
		"  source: {type: file, path: %s}\n",
		p->other);
	place_put(p->path, text, 0600);
}

#define BEFORE "{\"credentials\":[{\"name\":\"a\",\"source\":{\"value\":\"v\"}},"
#define VALUE(v) BEFORE "{\"name\":\"k\",\"source\":{\"type\":\"inline\",\"value\":\"" v "\"}}]}"

static void test_source_file_becomes_the_value_without_its_last_newline(void **state)
{
	static const struct {
		const char *text;
		const char *json;
	} rows[] = {
		{SECRET, VALUE(SECRET)},
		{SECRET "\n", VALUE(SECRET)},
		{SECRET "\r\n", VALUE(SECRET)},
		{SECRET "\r", VALUE(SECRET "\\r")},
		{SECRET "\n\n", VALUE(SECRET "\\n")},
		{" " SECRET " ", VALUE(" " SECRET " ")},
		{"\"q\"", VALUE("\\\"q\\\"")},
	};
	struct place *p = *state;

	put_with_source(p);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		place_put(p->other, rows[i].text, 0600);
		must_read(p->path, rows[i].json);
		assert_int_equal(watch.n, 2);
		assert_string_equal(watch.file[1].path, p->other);
	}
}

static void test_source_file_that_cannot_be_used_is_named(void **state)
{
	struct place *p = *state;
	char *large = malloc(CREDENTIAL_VALUE_MAX + 2);

	put_with_source(p);
	must_refuse(p->path, -ENOENT, "/file: credentials[1]: ");
	must_refuse(p->path, -ENOENT, "/other: No such file");
	assert_int_equal(watch.n, 2);
	place_put(p->other, SECRET, 0604);
	must_refuse(p->path, -EPERM, "/other: mode 0604");
	place_put(p->other, "\n", 0600);
	must_refuse(p->path, E_VALUE, "/other: empty");
	place_put(p->other, SECRET "\xff", 0600);
	must_refuse(p->path, E_VALUE, "/other: not UTF-8");
	memset(large, 'x', CREDENTIAL_VALUE_MAX + 1);
	large[CREDENTIAL_VALUE_MAX + 1] = '\n';
	place_put_bytes(p->other, large, CREDENTIAL_VALUE_MAX + 2, 0600);
	must_refuse(p->path, E_LIMIT, "/other: expected 65536 bytes at most");
	large[CREDENTIAL_VALUE_MAX] = '\n';
	place_put_bytes(p->other, large, CREDENTIAL_VALUE_MAX + 1, 0600);
	{
		struct errmsg msg;
		char *json;

		assert_int_equal(read_file(p->path, &json, &msg), 0);
		free(json);
	}
	free(large);
}

static void test_source_of_another_shape_is_refused_without_a_word_of_it(void **state)
{
	static const char *const rows[] = {
		"{type: file}",
		"{type: file, path: " SECRET "}",
		"{type: file, path: 3}",
		"{type: file, path: /x, value: " SECRET "}",
		"{type: file, file: /x}",
		"{type: file, path: \"/x\\0" SECRET "\"}",
	};
	struct place *p = *state;
	char text[300];

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		(void)snprintf(text, sizeof(text), "credentials: [{name: k, source: %s}]", rows[i]);
		place_put(p->path, text, 0600);
		/* a NUL is refused by the YAML reader already */
		must_refuse(p->path, strstr(rows[i], "\\0") ? E_SYNTAX : E_VALUE, "expected ");
	}
	place_put(p->path,
		"{\"credentials\":[{\"source\":{\"type\":\"file\",\"path\":\"/x\\u0000" SECRET
		"\"}}]}",
		0600);
	must_refuse(p->path, E_VALUE, "credentials[0]: source of type file");
}

/* Each escape of JSON makes six bytes of one. */
static void test_document_that_grows_past_1_mib_is_refused(void **state)
{
	struct place *p = *state;
	char *value = malloc(CREDENTIAL_VALUE_MAX);
	char text[4096] = "credentials:\n";

	memset(value, '\x01', CREDENTIAL_VALUE_MAX);
	place_put_bytes(p->other, value, CREDENTIAL_VALUE_MAX, 0600);
	for (int i = 0; i < 3; i++)
		(void)snprintf(text + strlen(text), sizeof(text) - strlen(text),
			"- {name: k%d, source: {type: file, path: %s}}\n", i, p->other);
	place_put(p->path, text, 0600);
	must_refuse(p->path, E_LIMIT, "with the files that it names");
	free(value);
}

static void test_files_at_the_limit_are_watched_and_one_more_is_refused(void **state)
{
	struct place *p = *state;
	char *text = malloc(1u << 16);

	place_put(p->other, "v", 0600);
	for (int n = VAULT_WATCH_MAX - 1; n <= VAULT_WATCH_MAX; n++) {
		size_t at = (size_t)snprintf(text, 1u << 16, "credentials:\n");
		struct errmsg msg;
		char *json;

		for (int i = 0; i < n; i++)
			at += (size_t)snprintf(text + at, (1u << 16) - at,
				"- {name: k%d, source: {type: file, path: %s}}\n", i, p->other);
		place_put(p->path, text, 0600);
		if (n == VAULT_WATCH_MAX) {
			must_refuse(p->path, E_LIMIT, "too many files: expected 256 at most");
			continue;
		}
		assert_int_equal(read_file(p->path, &json, &msg), 0);
		assert_int_equal(watch.n, VAULT_WATCH_MAX);
		free(json);
	}
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		PLACE_TEST(test_yaml_and_json_become_one_compact_document),
		PLACE_TEST(test_broken_file_is_refused_at_its_place_and_not_quoted),
		PLACE_TEST(test_file_that_others_may_read_is_refused_with_its_mode),
		PLACE_TEST(test_what_is_no_file_is_refused),
		PLACE_TEST(test_file_of_1_mib_is_read_and_one_byte_more_is_not),
		PLACE_TEST(test_source_file_becomes_the_value_without_its_last_newline),
		PLACE_TEST(test_source_file_that_cannot_be_used_is_named),
		PLACE_TEST(test_source_of_another_shape_is_refused_without_a_word_of_it),
		PLACE_TEST(test_document_that_grows_past_1_mib_is_refused),
		PLACE_TEST(test_files_at_the_limit_are_watched_and_one_more_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
