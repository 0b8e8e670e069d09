/* `egressctl audit tail`: the last lines of the audit file, or of a running egress, and those that
 * follow. */
#pragma once

#include "ctl/api_client.h"
#include "ctl/command.h"

#define AUDIT_TAIL_LINES_MAX 1000000

struct audit_tail {
	const char *path;             /* NULL: ask api */
	const struct api_client *api; /* polled once a second, also over a worker that ended */
	uint64_t lines;               /* 0: only what follows */
	bool follow;
	bool json; /* lines as they stand in the file */
	bool color;
};

/* Lines of rotated files are taken in when the newest file is too short. With follow it ends when
 * nobody reads stdout any more, or by a signal. */
enum command_exit audit_tail_run(const struct audit_tail *t);
