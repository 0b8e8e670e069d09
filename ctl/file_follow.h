/* Reads a growing file line by line, at the pace of its writer, and goes over to the next one when
 * it is rotated (FILE becomes FILE.1, FILE.1 becomes FILE.2). No line is lost or seen twice. */
#pragma once

#include <sys/types.h>

#include "base/err.h"
#include "base/slice.h"

#define FILE_FOLLOW_OLDER_MAX 100   /* rotated files looked for; the proxy keeps five */
#define FILE_FOLLOW_LINE_MAX 262144 /* longer than any line of an audit trail */

struct file_follow {
	const char *path;
	int fd;
	off_t at;    /* start of the next line */
	char *buf;   /* FILE_FOLLOW_LINE_MAX bytes */
	size_t from; /* in buf, what was read already */
	size_t to;
	bool inside;   /* what comes next belongs to a line that was too long */
	unsigned lost; /* times that the open file was under none of its names */
};

/* Stands before the last n lines, in a rotated file if need be. path is borrowed. */
CHECKED int file_follow_open(
	struct file_follow *f, const char *path, uint64_t n, struct errmsg *msg);
void file_follow_close(struct file_follow *f);

/* 1: a line without its newline, valid until the next call; 0: no whole line is there yet, in this
 * file and those after it; E_LIMIT: a line was too long, and is skipped; or a negated errno. */
CHECKED int file_follow_next(struct file_follow *f, struct slice *line);

/* After file_follow_next gave 0: what stands behind the last newline, empty if nothing does. */
CHECKED int file_follow_torn(struct file_follow *f, struct slice *rest);
