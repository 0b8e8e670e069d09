/* Where the audit file is. Comes before the audit commands. */
#include "ctl/environment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "control/settings.h"

const char *environment_get(char *const *env, const char *name)
{
	size_t len = strlen(name);

	for (; *env; env++)
		if (strncmp(*env, name, len) == 0 && (*env)[len] == '=')
			return *env + len + 1;
	return NULL;
}

/* settings_load sees only what `audit` needs: the others may be wrong, or meant for another host.
 */
static int environment_audit_setting(
	const char *config_path, const char *audit, char **path, struct errmsg *msg)
{
	char mode[] = "OPENSANDBOX_EGRESS_MODE=proxy";
	char resolver[] = "OPENSANDBOX_EGRESS_DNS_UPSTREAM=127.0.0.1";
	char home[] = "HOME=/";
	char *variable = NULL;
	char *variables[5] = {mode, resolver, home};
	struct settings_source src = {.config_path = config_path,
		.config_fd = -1,
		.policy_fd = -1,
		.resolv_conf_fd = -1,
		.deny_fd = -1,
		.allow_fd = -1,
		.log_skip_fd = -1,
		.ceiling_fd = SETTINGS_CEILING_UNREAD,
		.environ = variables,
		.quiet = true};
	struct settings *s = NULL;
	int ret;

	if (audit && audit[0]) {
		REQUIRE(asprintf(&variable, "EGRESS_AUDIT=%s", audit) >= 0);
		variables[3] = variable;
	}
	if (config_path) {
		src.config_fd = open(config_path, O_RDONLY | O_CLOEXEC);
		if (src.config_fd < 0) {
			ret = errmsg_set(msg, -errno, "%s: %s: expected a readable file",
				config_path, err_text(-errno));
			goto out;
		}
	}
	ret = settings_load(&src, &s, msg);
	if (ret < 0)
		goto out;
	*path = s->audit_file;
	s->audit_file = NULL;
out:
	if (src.config_fd >= 0)
		(void)close(src.config_fd);
	settings_free(s);
	free(variable);
	return ret;
}

int environment_audit_path(
	const char *config_path, char *const *env, char **path, struct errmsg *msg)
{
	const char *state = environment_get(env, "XDG_STATE_HOME");
	const char *home = environment_get(env, "HOME");
	int ret;

	*path = NULL;
	ret = environment_audit_setting(
		config_path, environment_get(env, "EGRESS_AUDIT"), path, msg);
	if (ret < 0 || *path)
		return ret;
	/* A relative XDG_STATE_HOME is ignored, as its specification says. */
	if (state && state[0] == '/')
		ret = asprintf(path, "%s/egress/audit.jsonl", state);
	else if (home && home[0] == '/')
		ret = asprintf(path, "%s/.local/state/egress/audit.jsonl", home);
	else
		return errmsg_set(msg, E_VALUE,
			"no audit file: expected --file, or EGRESS_AUDIT, XDG_STATE_HOME or HOME "
			"in the environment");
	REQUIRE(ret >= 0);
	return 0;
}
