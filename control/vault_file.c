/* Reads the vault file. Before it: vault_feed has forked; after it: the text goes into an area and
 * this process ends. The vault itself judges the content. */
#include "control/vault_file.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include <jansson.h>

#include "base/strbuf.h"
#include "control/files.h"
#include "control/settings_yaml.h"
#include "vault/vault.h"

struct vault_reading {
	const char *path;
	struct vault_watch *watch;
	struct errmsg *msg;
	struct strbuf text;
	struct settings_yaml *yaml;
	json_t *root;
};

/* What is wrong with a text, without a word of it: jansson's own message quotes. */
static const char *vault_file_json_problem(const json_error_t *e)
{
	switch ((int)json_error_code(e)) {
	case json_error_duplicate_key:
		return "a key for the second time";
	case json_error_invalid_utf8:
		return "a text that is not UTF-8";
	case json_error_end_of_input_expected:
		return "something behind the document";
	case json_error_premature_end_of_input:
		return "it ends too early";
	default:
		return "malformed JSON";
	}
}

static int vault_file_json(struct vault_reading *r, struct slice text)
{
	json_error_t e;

	/* NUL bytes are the vault's to judge. */
	r->root = json_loadb(text.p, text.len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &e);
	if (r->root)
		return 0;
	return errmsg_set(r->msg, E_SYNTAX, "%s:%d:%d: %s: expected one JSON object", r->path,
		e.line, e.column, vault_file_json_problem(&e));
}

static int vault_file_open(struct vault_reading *r, const char *path, size_t max)
{
	int ret;
	int fd;

	if (!vault_watch_add(r->watch, path))
		return errmsg_set(r->msg, E_LIMIT,
			"%s: too many files: expected %d at most, with short paths", r->path,
			VAULT_WATCH_MAX - 1);
	ret = files_open_secret(path, &fd, r->msg);
	if (ret == -ENOENT)
		ret = errmsg_set(
			r->msg, ret, "%s: %s: expected a readable file", path, err_text(ret));
	if (ret < 0)
		return ret;
	strbuf_init(&r->text, max);
	ret = strbuf_read_fd(&r->text, fd);
	(void)close(fd);
	if (ret == E_LIMIT)
		return errmsg_set(r->msg, ret, "%s: expected %zu bytes at most", path, max);
	if (ret < 0)
		return errmsg_set(
			r->msg, ret, "%s: %s: expected a readable file", path, err_text(ret));
	return 0;
}

static int vault_file_parse(struct vault_reading *r)
{
	struct slice text = strbuf_slice(&r->text);
	int ret;

	if (slice_starts(slice_strip(text), SLICE("{")))
		return vault_file_json(r, text);
	ret = settings_yaml_decode_secret(text, r->path, &r->yaml, r->msg);
	if (ret == 0)
		r->root = json_incref(settings_yaml_root(r->yaml));
	return ret;
}

/* The text of a file as the value: without the newline that editors put at its end. */
static int vault_file_value(struct vault_reading *r, const char *path, json_t **out)
{
	struct slice text;
	int ret;

	strbuf_fini(&r->text);
	ret = vault_file_open(r, path, CREDENTIAL_VALUE_MAX + sizeof("\r\n") - 1);
	if (ret < 0)
		return ret;
	text = strbuf_slice(&r->text);
	if (slice_ends(text, SLICE("\n")))
		text.len--;
	if (slice_ends(text, SLICE("\r")) && text.len < r->text.len)
		text.len--;
	if (text.len == 0)
		return errmsg_set(r->msg, E_VALUE, "%s: empty: expected a value", path);
	if (text.len > CREDENTIAL_VALUE_MAX)
		return errmsg_set(r->msg, E_LIMIT, "%s: expected %d bytes at most", path,
			CREDENTIAL_VALUE_MAX);
	*out = json_stringn(text.p, text.len);
	if (!*out)
		return errmsg_set(r->msg, E_VALUE, "%s: not UTF-8: expected a text", path);
	return 0;
}

/* {"type":"file","path":P} becomes {"type":"inline","value":TEXT}. Other types are the vault's. */
static int vault_file_source(struct vault_reading *r, json_t *source)
{
	const json_t *path = json_object_get(source, "path");
	const char *type = json_string_value(json_object_get(source, "type"));
	json_t *value = NULL;
	int ret;

	if (!type || strcmp(type, "file") != 0)
		return 0;
	if (json_object_size(source) != 2 || !json_string_value(path) ||
		json_string_value(path)[0] != '/' ||
		strlen(json_string_value(path)) != json_string_length(path))
		return errmsg_set(r->msg, E_VALUE,
			"source of type file: expected `path`, an absolute one, and nothing else");
	ret = vault_file_value(r, json_string_value(path), &value);
	if (ret < 0)
		return ret;
	if (json_object_set_new(source, "value", value) < 0 ||
		json_object_set_new(source, "type", json_string("inline")) < 0 ||
		json_object_del(source, "path") < 0)
		return errmsg_set(r->msg, E_LIMIT, "out of memory");
	return 0;
}

static int vault_file_sources(struct vault_reading *r)
{
	const json_t *credentials = json_object_get(r->root, "credentials");
	json_t *credential;
	size_t i;
	int ret;

	json_array_foreach(credentials, i, credential)
	{
		ret = vault_file_source(r, json_object_get(credential, "source"));
		if (ret < 0)
			return errmsg_prefix(r->msg, ret, "%s: credentials[%zu]", r->path, i);
	}
	return 0;
}

static int vault_file_dump(struct vault_reading *r, char **json)
{
	*json = json_dumps(r->root, JSON_COMPACT);
	if (!*json)
		return errmsg_set(r->msg, E_LIMIT, "%s: out of memory", r->path);
	if (strlen(*json) <= VAULT_DOC_MAX)
		return 0;
	free(*json);
	*json = NULL;
	return errmsg_set(r->msg, E_LIMIT,
		"%s: %d bytes with the files that it names: expected that much at most", r->path,
		VAULT_DOC_MAX);
}

int vault_file_read(const char *path, char **json, struct vault_watch *watch, struct errmsg *msg)
{
	struct vault_reading r = {.path = path, .watch = watch, .msg = msg};
	int ret;

	*json = NULL;
	ret = vault_file_open(&r, path, VAULT_DOC_MAX);
	if (ret == 0)
		ret = vault_file_parse(&r);
	if (ret == 0)
		ret = vault_file_sources(&r);
	if (ret == 0)
		ret = vault_file_dump(&r, json);
	json_decref(r.root);
	settings_yaml_free(r.yaml);
	strbuf_fini(&r.text);
	return ret;
}
