/* `egressctl audit query`: every line of the audit file and of its rotated parts, from the oldest
 * on, that a filter lets through. Memory does not grow with the files. */
#pragma once

#include "ctl/api_client.h"
#include "ctl/audit_filter.h"
#include "ctl/command.h"

enum audit_format { AUDIT_FORMAT_TABLE, AUDIT_FORMAT_CSV, AUDIT_FORMAT_JSON };

struct audit_query {
	const char *path; /* NULL: ask api, for the lines that it has in memory */
	const struct api_client *api;
	struct audit_filter filter;
	enum audit_format format;
	uint64_t limit; /* lines printed at most, 0: all */
	bool color;
};

/* A line that cannot be parsed goes to stderr with its place, and makes this COMMAND_NO. */
enum command_exit audit_query_run(const struct audit_query *q);

/* What to say when there is no audit file: which one was looked for, and how to name another. */
void audit_query_complain(const char *path, const struct errmsg *msg, int code);
