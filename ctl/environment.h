/* The few variables that concern egressctl itself, and the place of the audit file. Settings of the
 * proxy are control/settings'. */
#pragma once

#include "base/err.h"

/* Borrowed value, or NULL. The first of two with one name counts, as for getenv. */
const char *environment_get(char *const *env, const char *name);

/* The audit file that is meant when none was named: EGRESS_AUDIT or the file's `audit`, where that
 * is a file; else $XDG_STATE_HOME/egress/audit.jsonl (or below $HOME/.local/state). config_path may
 * be NULL. The caller frees *path. A setting that is wrong in another place does not hide the audit
 * trail; a broken `audit` or YAML file does. */
CHECKED int environment_audit_path(
	const char *config_path, char *const *env, char **path, struct errmsg *msg);
