/* Reading the texts of the settings. Called by the supervisor at start and after SIGHUP, and for
 * --check. After it: settings_load. */
#include "control/sources.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "control/files.h"
#include "policy/policy_json.h"

#define SOURCES_SYSTEM_MAX (1u << 20) /* /etc/hosts of a large cluster; resolv.conf is tiny */

static int sources_policy_file(char *const *env, bool again, int *fd, struct errmsg *msg)
{
	const char *path = settings_policy_path(env);
	int ret;

	if (!path)
		return 0;
	ret = files_snapshot(path, POLICY_DOC_MAX, true, fd);
	if (ret == -ENOENT)
		ret = again ? files_snapshot_text(SLICE_EMPTY, fd) : 0;
	if (ret < 0)
		return errmsg_set(msg, ret,
			"OPENSANDBOX_EGRESS_POLICY_FILE: %s: %s: expected a readable file, or none",
			path, err_text(ret));
	return 0;
}

/* The settings that name it may be in the file that was just read. */
static int sources_ceiling(
	const char *config_path, char *const *env, struct roles *r, struct errmsg *msg)
{
	const struct settings_source src = sources_settings(r, config_path, env);
	char *path = settings_ceiling_path(&src);
	int ret = 0;

	if (path)
		ret = files_snapshot(path, POLICY_DOC_MAX, true, &r->fd[ROLE_CEILING]);
	if (ret < 0)
		(void)errmsg_set(msg, ret,
			"EGRESS_POLICY_CEILING_FILE: %s: %s: expected a readable policy document",
			path, err_text(ret));
	free(path);
	return ret;
}

int sources_rules_path(char *const *env, enum role role, char *path, size_t size)
{
	const char *name = role == ROLE_DENY_ALWAYS ? SETTINGS_DENY_ALWAYS
		: role == ROLE_ALLOW_ALWAYS         ? SETTINGS_ALLOW_ALWAYS
						    : SETTINGS_LOG_SKIP;
	int n = snprintf(path, size, "%s/%s", settings_rules_dir(env), name);

	return n > 0 && (size_t)n < size ? 0 : -ENAMETOOLONG;
}

int sources_rules(char *const *env, struct roles *r, struct errmsg *msg)
{
	static const enum role roles[] = {ROLE_DENY_ALWAYS, ROLE_ALLOW_ALWAYS, ROLE_LOG_SKIP};
	char path[PATH_MAX];
	int ret = 0;

	for (size_t i = 0; ret == 0 && i < ARRAY_LEN(roles); i++) {
		ret = sources_rules_path(env, roles[i], path, sizeof(path));
		if (ret == 0)
			ret = files_snapshot(path, POLICY_DOC_MAX, true, &r->fd[roles[i]]);
		if (ret == -ENOENT || ret == -ENOTDIR)
			ret = files_snapshot_text(SLICE_EMPTY, &r->fd[roles[i]]);
		if (ret < 0)
			return errmsg_set(msg, ret,
				"EGRESS_RULES_DIR: %s: %s: expected a readable file, or none", path,
				err_text(ret));
	}
	return 0;
}

/* What the system may lack. */
static int sources_system(const char *path, int *fd, struct errmsg *msg)
{
	int ret;

	ret = files_snapshot(path, SOURCES_SYSTEM_MAX, true, fd);
	if (ret == 0 || ret == -ENOENT)
		return 0;
	return errmsg_set(
		msg, ret, "%s: %s: expected a readable file, or none", path, err_text(ret));
}

/* Only mode proxy looks names up in that file. In the other modes a sandbox may write it, and what
 * it writes must not end a start. */
static bool sources_want_hosts(const struct roles *r, const char *config_path, char *const *env)
{
	const struct settings_source src = sources_settings(r, config_path, env);

	return settings_mode_is_proxy(&src);
}

int sources_open(
	const char *config_path, char *const *env, bool again, struct roles *r, struct errmsg *msg)
{
	int ret = 0;

	roles_init(r);
	if (config_path) {
		ret = files_snapshot(config_path, POLICY_DOC_MAX, again, &r->fd[ROLE_CONFIG]);
		if (ret < 0)
			ret = errmsg_set(msg, ret, "%s: %s: expected a readable file", config_path,
				err_text(ret));
	}
	if (ret == 0)
		ret = sources_policy_file(env, again, &r->fd[ROLE_POLICY_FILE], msg);
	if (ret == 0)
		ret = sources_ceiling(config_path, env, r, msg);
	if (ret == 0)
		ret = sources_rules(env, r, msg);
	if (ret == 0 && !again)
		ret = sources_system(SOURCES_RESOLV_CONF, &r->fd[ROLE_RESOLV_CONF], msg);
	if (ret == 0 && sources_want_hosts(r, config_path, env))
		ret = sources_system(SOURCES_HOSTS, &r->fd[ROLE_HOSTS], msg);
	if (ret < 0)
		roles_fini(r);
	return ret;
}

struct settings_source sources_settings(
	const struct roles *r, const char *config_path, char *const *env)
{
	return (struct settings_source){
		.config_path = config_path,
		.config_fd = r->fd[ROLE_CONFIG],
		.policy_fd = r->fd[ROLE_POLICY_FILE],
		.resolv_conf_fd = r->fd[ROLE_RESOLV_CONF],
		.deny_fd = r->fd[ROLE_DENY_ALWAYS],
		.allow_fd = r->fd[ROLE_ALLOW_ALWAYS],
		.log_skip_fd = r->fd[ROLE_LOG_SKIP],
		.ceiling_fd = r->fd[ROLE_CEILING],
		.environ = env,
	};
}

int sources_load(
	const char *config_path, char *const *env, struct settings **out, struct errmsg *msg)
{
	struct settings_source src;
	struct roles roles;
	int ret;

	*out = NULL;
	ret = sources_open(config_path, env, false, &roles, msg);
	if (ret < 0)
		return ret;
	src = sources_settings(&roles, config_path, env);
	ret = settings_load(&src, out, msg);
	roles_fini(&roles);
	return ret;
}
