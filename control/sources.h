/* The texts that settings are made of, read once and kept as sealed copies, so that supervisor and
 * worker see the same ones whatever happens to the files. */
#pragma once

#include "control/roles.h"
#include "control/settings.h"

#define SOURCES_RESOLV_CONF "/etc/resolv.conf"
#define SOURCES_HOSTS "/etc/hosts"

/* Fills CONFIG, POLICY_FILE, CEILING, HOSTS and the operator's rule files, and RESOLV_CONF unless
 * `again` (design 2: read once, since the sandbox may change it later). config_path may be NULL. A
 * policy file that is not there is left out; `again`, an empty one stands for it, so that it
 * replaces the one before. For a rule file an empty one always does. */
CHECKED int sources_open(
	const char *config_path, char *const *env, bool again, struct roles *r, struct errmsg *msg);

/* The part of it that changes while we run: DENY_ALWAYS, ALLOW_ALWAYS and LOG_SKIP. A failure
 * leaves the ones that were opened in r. */
CHECKED int sources_rules(char *const *env, struct roles *r, struct errmsg *msg);
/* Where the file of one of these roles is. -ENAMETOOLONG. */
CHECKED int sources_rules_path(char *const *env, enum role role, char *path, size_t size);

/* For settings_load; borrows r. */
struct settings_source sources_settings(
	const struct roles *r, const char *config_path, char *const *env);

/* All of it for a process that only asks: reads the texts, loads, closes. */
CHECKED int sources_load(
	const char *config_path, char *const *env, struct settings **out, struct errmsg *msg);
