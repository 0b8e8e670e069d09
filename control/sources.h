/* The texts that settings are made of, read once and kept as sealed copies, so that supervisor and
 * worker see the same ones whatever happens to the files. */
#pragma once

#include "control/roles.h"
#include "control/settings.h"

#define SOURCES_RESOLV_CONF "/etc/resolv.conf"
#define SOURCES_HOSTS "/etc/hosts"

/* Fills CONFIG, POLICY_FILE and HOSTS, and RESOLV_CONF unless `again` (design 2: read once, since
 * the sandbox may change it later). config_path may be NULL. A policy file that is not there is
 * left out; `again`, an empty one stands for it, so that it replaces the one before. */
CHECKED int sources_open(
	const char *config_path, char *const *env, bool again, struct roles *r, struct errmsg *msg);

/* For settings_load; borrows r. */
struct settings_source sources_settings(
	const struct roles *r, const char *config_path, char *const *env);

/* All of it for a process that only asks: reads the texts, loads, closes. */
CHECKED int sources_load(
	const char *config_path, char *const *env, struct settings **out, struct errmsg *msg);
