/* Reads DIR/wanted. Before it: watch, at its start and at SIGHUP; after it: watch_box sends what is
 * wanted. Keys are read when they are sent, and not kept. */
#include "ctl/watch_wanted.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "audit/ring.h"
#include "base/arena.h"
#include "control/settings_yaml.h"
#include "policy/policy_json.h"

void wanted_free(struct wanted *w)
{
	while (w) {
		struct wanted *next = w->next;

		json_decref(w->metadata);
		free(w->name);
		free(w->vault);
		free(w->policy);
		json_decref(w->normal);
		free(w);
		w = next;
	}
}

static int wanted_decode(json_t *root, const char *dir, struct wanted *w, struct errmsg *msg)
{
	json_t *metadata = json_object_get(json_object_get(root, "select"), "metadata");
	json_t *policy = json_object_get(root, "policy"), *vault = json_object_get(root, "vault");
	const char *name;
	json_t *value;

	json_object_foreach(root, name, value)
	{
		if (strcmp(name, "select") != 0 && strcmp(name, "policy") != 0 &&
			strcmp(name, "vault") != 0)
			return errmsg_set(msg, E_UNKNOWN,
				"\"%.40s\": expected select, policy or vault", name);
	}
	if (!json_is_object(metadata) || !json_is_object(policy))
		return errmsg_set(msg, E_VALUE,
			"expected `select: {metadata: {NAME: VALUE}}` and `policy: {...}`");
	json_object_foreach(metadata, name, value)
	{
		if (!json_is_string(value))
			return errmsg_set(msg, E_VALUE, "%.60s: expected a text in quotes", name);
	}
	if (vault && !json_is_string(vault))
		return errmsg_set(msg, E_VALUE, "vault: expected the name of a file");
	w->metadata = json_incref(metadata);
	w->policy = json_dumps(policy, JSON_COMPACT);
	w->normal = policy_json_normal(policy, msg);
	if (vault &&
		asprintf(&w->vault, "%s%s%s", json_string_value(vault)[0] == '/' ? "" : dir,
			json_string_value(vault)[0] == '/' ? "" : "/",
			json_string_value(vault)) < 0)
		return -ENOMEM;
	return w->normal ? 0 : E_VALUE;
}

static int wanted_read(const char *dir, const char *name, struct wanted **out, struct errmsg *msg)
{
	struct wanted *w = xcalloc(1, sizeof(*w));
	struct settings_yaml *yaml = NULL;
	struct strbuf text, path;
	int ret;

	*out = w;
	w->name = xstrdup(name);
	strbuf_init(&path, WANTED_FILE_MAX);
	strbuf_init(&text, WANTED_FILE_MAX);
	strbuf_printf(&path, "%s/%s", dir, name);
	ret = strbuf_read_file(&text, strbuf_cstr(&path));
	if (ret < 0) {
		(void)errmsg_set(msg, ret, "%s: %s", strbuf_cstr(&path), err_text(ret));
		goto out;
	}
	ret = settings_yaml_decode(strbuf_slice(&text), strbuf_cstr(&path), &yaml, msg);
	if (ret < 0)
		goto out;
	ret = wanted_decode(settings_yaml_root(yaml), dir, w, msg);
	if (ret < 0)
		(void)errmsg_prefix(msg, ret, "%s", strbuf_cstr(&path));
out:
	settings_yaml_free(yaml);
	strbuf_fini(&path);
	strbuf_fini(&text);
	return ret;
}

static int wanted_is_file(const struct dirent *e)
{
	return e->d_name[0] != '.' && slice_ends(slice_str(e->d_name), SLICE(".yaml"));
}

int wanted_load(const char *dir, struct wanted **out, struct errmsg *msg)
{
	struct wanted *first = NULL, **last = &first;
	struct dirent **names = NULL;
	int n = scandir(dir, &names, wanted_is_file, alphasort);
	int ret = 0;

	if (n < 0 && errno != ENOENT)
		return errmsg_set(msg, -errno, "%s: %s", dir, err_text(-errno));
	if (n > WANTED_FILES_MAX)
		ret = errmsg_set(msg, E_LIMIT, "%s: more than %d files", dir, WANTED_FILES_MAX);
	for (int i = 0; i < n; i++) {
		if (ret == 0) {
			ret = wanted_read(dir, names[i]->d_name, last, msg);
			last = &(*last)->next;
		}
		free(names[i]);
	}
	free(names);
	wanted_free(ret == 0 ? *out : first);
	if (ret == 0)
		*out = first;
	return ret;
}

const struct wanted *wanted_find(const struct wanted *w, const json_t *metadata)
{
	const char *name;
	json_t *value;

	for (; w; w = w->next) {
		bool fits = true;

		json_object_foreach(w->metadata, name, value)
		{
			fits = fits && json_equal(json_object_get(metadata, name), value);
		}
		if (fits)
			return w;
	}
	return NULL;
}

bool wanted_is_policy(const struct wanted *w, struct slice answer)
{
	json_t *doc = json_loadb(answer.p, answer.len, 0, NULL);
	json_t *policy = json_object_get(doc, "policy");
	json_t *theirs = json_is_object(policy) ? policy_json_normal(policy, NULL) : NULL;
	bool same = json_equal(theirs, w->normal);

	json_decref(theirs);
	json_decref(doc);
	return same;
}

int wanted_vault(const struct wanted *w, const char *instance, struct strbuf *text,
	char stamp[WANTED_STAMP_MAX], struct errmsg *msg)
{
	int fd = open(w->vault, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	char hash[RING_HEX_LEN];
	struct stat st = {0};
	int ret = fd < 0 || fstat(fd, &st) < 0 ? -errno : 0;

	if (ret == 0 && (!S_ISREG(st.st_mode) || (st.st_mode & 077)))
		ret = errmsg_set(msg, E_VALUE,
			"%s: others than its owner may read it: expected mode 0600", w->vault);
	else if (ret == 0)
		ret = strbuf_read_fd(text, fd);
	if (ret < 0 && ret != E_VALUE)
		(void)errmsg_set(msg, ret, "%s: %s", w->vault, err_text(ret));
	if (fd >= 0)
		(void)close(fd);
	ring_sha_hex(strbuf_slice(text), hash);
	(void)snprintf(stamp, WANTED_STAMP_MAX, "%.64s %.64s", instance, hash);
	return ret;
}
