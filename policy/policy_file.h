/* The operator's rule files, one target a line: `deny.always`, `allow.always` and `log_skip.always`
 * (reference 4). Pure: who opens and watches them is the supervisor, who reads them the worker. */
#pragma once

#include "policy/policy_merge.h"

#define POLICY_FILE_LINE_MAX 65536 /* bytes; longer ones are no target */

enum policy_file_kind {
	POLICY_FILE_DENY,
	POLICY_FILE_ALLOW,
	POLICY_FILE_LOG_SKIP, /* names only: an address is a fault */
};

/* Adds a rule for each line; blank lines and those that begin with `#` are left out, so are a byte
 * order mark and CR before LF. Returns the number of lines that hold no target; those are left out,
 * and msg says the first: `line 3: target "http://x": a URL; ...`. */
CHECKED size_t policy_file_decode(
	struct slice text, enum policy_file_kind kind, struct rule_list *out, struct errmsg *msg);
