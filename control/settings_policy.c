/* The policy of the start: the policy file if it is there and valid, else the variable, else YAML,
 * else deny all (design 2). And the operator's ceiling over it. Before it: settings.c has collected
 * the texts. */
#include <errno.h>

#include "control/settings_int.h"
#include "policy/ceiling.h"
#include "policy/policy_file.h"
#include "policy/policy_json.h"

/* True if *policy came from the file. A file that cannot be used is a warning only: an upgrade of
 * the sidecar must not fail on what an older one has saved, and what counts instead is stricter or
 * what the operator wrote. */
static bool settings_policy_file(struct settings_run *run, const char *path)
{
	struct errmsg why = {""};
	struct strbuf text;
	bool found = false;
	int ret;

	strbuf_init(&text, POLICY_DOC_MAX);
	ret = strbuf_pread_fd(&text, run->src->policy_fd);
	if (ret < 0)
		(void)errmsg_set(&why, ret, "%s", err_text(ret));
	else if (slice_strip(strbuf_slice(&text)).len == 0)
		(void)errmsg_set(&why, E_VALUE, "empty");
	else
		found = policy_json_decode(strbuf_slice(&text), 0, &run->s->user_policy, &why) == 0;
	if (!found)
		settings_warn(run, "%s: %s: expected a policy document; the file is left out", path,
			why.text);
	strbuf_fini(&text);
	return found;
}

/* `egress[3]: ...` of the policy reader becomes the line of that item. */
static unsigned settings_policy_line(const struct settings_run *run, const char *why)
{
	static const struct slice egress = {"egress[", 7};
	struct slice rest = slice_str(why);
	const json_t *array;
	struct slice number;
	uint64_t index;

	array = json_object_get(run->v[SETTING_POLICY].tree, "egress");
	if (!array || !slice_starts(rest, egress))
		return 0;
	rest = slice_from(rest, egress.len);
	number = slice_cut(&rest, ']');
	if (!slice_to_u64(number, &index))
		return 0;
	return settings_yaml_item_line(run->yaml, array, index);
}

static int settings_policy_yaml(struct settings_run *run)
{
	const struct setting_value *v = &run->v[SETTING_POLICY];
	struct errmsg why = {""};
	unsigned line;
	int ret;

	ret = policy_json_decode_tree(v->tree, 0, &run->s->user_policy, &why);
	if (ret == 0)
		return 0;
	line = settings_policy_line(run, why.text);
	if (line > 0)
		return errmsg_set(
			run->msg, ret, "%s:%u: policy: %s", run->src->config_path, line, why.text);
	return errmsg_set(run->msg, ret, "%s: policy: %s", v->source, why.text);
}

int settings_policy_load(struct settings_run *run)
{
	const struct setting_value *v = &run->v[SETTING_POLICY];
	int ret;

	if (run->src->policy_fd >= 0 && run->s->policy_file &&
		settings_policy_file(run, run->s->policy_file))
		return 0;
	if (v->tree)
		return settings_policy_yaml(run);
	if (!v->set)
		settings_warn(run, "policy: not set: everything is denied");
	ret = policy_json_decode(
		slice_str(v->set ? v->text : ""), 0, &run->s->user_policy, run->msg);
	if (ret < 0)
		return errmsg_prefix(run->msg, ret, "%s", v->source);
	return 0;
}

static int settings_ceiling_decode(
	struct settings_run *run, struct slice text, const char *path, struct errmsg *why)
{
	struct settings_yaml *yaml = NULL;
	int ret;

	if (slice_strip(text).len == 0)
		return errmsg_set(why, E_VALUE, "empty: expected a policy document");
	if (slice_starts(slice_strip(text), SLICE("{")))
		return policy_json_decode(text, 0, &run->s->ceiling, why);
	ret = settings_yaml_decode(text, path, &yaml, why);
	if (ret == 0)
		ret = policy_json_decode_tree(settings_yaml_root(yaml), 0, &run->s->ceiling, why);
	settings_yaml_free(yaml);
	return ret;
}

/* What it says and cannot be read must not mean that everything may be allowed. */
int settings_ceiling_load(struct settings_run *run)
{
	const char *path = run->s->policy_ceiling;
	struct errmsg why = {""};
	struct strbuf text;
	int ret = -ENOENT;

	if (!path || run->src->ceiling_fd == SETTINGS_CEILING_UNREAD)
		return 0;
	strbuf_init(&text, POLICY_DOC_MAX);
	if (run->src->ceiling_fd >= 0)
		ret = strbuf_pread_fd(&text, run->src->ceiling_fd);
	if (ret < 0)
		(void)errmsg_set(&why, ret, "%s: expected a readable file", err_text(ret));
	else
		ret = settings_ceiling_decode(run, strbuf_slice(&text), path, &why);
	strbuf_fini(&text);
	if (ret < 0)
		return errmsg_set(run->msg, ret, "%s: %s: %s",
			run->v[SETTING_POLICY_CEILING].source, path, why.text);
	if (ceiling_check(run->s->ceiling, run->s->user_policy, NULL, &why) < 0)
		settings_warn(run, "policy: %s; it counts as far as the ceiling goes", why.text);
	return 0;
}

/* fd < 0: there is no such file. */
static int settings_rules_file(struct settings_run *run, int fd, const char *name,
	enum policy_file_kind kind, struct rule_list *out)
{
	struct errmsg why = {""};
	struct strbuf text;
	int ret;

	if (fd < 0)
		return 0;
	strbuf_init(&text, POLICY_DOC_MAX);
	ret = strbuf_pread_fd(&text, fd);
	if (ret < 0)
		(void)errmsg_set(&why, ret, "%s", err_text(ret));
	else if (policy_file_decode(strbuf_slice(&text), kind, out, &why) > 0)
		ret = E_VALUE;
	strbuf_fini(&text);
	if (ret < 0)
		return errmsg_set(run->msg, ret, "%s/%s: %s", run->s->rules_dir, name, why.text);
	return 0;
}

int settings_rules_load(struct settings_run *run)
{
	struct settings *s = run->s;
	struct rule_list skip = {.v = NULL};
	int ret;

	ret = settings_rules_file(
		run, run->src->deny_fd, SETTINGS_DENY_ALWAYS, POLICY_FILE_DENY, &s->deny_always);
	if (ret == 0)
		ret = settings_rules_file(run, run->src->allow_fd, SETTINGS_ALLOW_ALWAYS,
			POLICY_FILE_ALLOW, &s->allow_always);
	if (ret == 0)
		ret = settings_rules_file(
			run, run->src->log_skip_fd, SETTINGS_LOG_SKIP, POLICY_FILE_LOG_SKIP, &skip);
	if (ret < 0) {
		rule_list_fini(&skip);
		return ret;
	}
	if (skip.n > 0)
		s->log_skip = policy_new(false, skip.v, skip.n);
	s->policy =
		policy_merge_always(s->user_policy, &s->deny_always, &s->allow_always, s->ceiling);
	return 0;
}
