/* A file that is written now and gets its name later: first on the disk under a random name beside
 * its place, then, when everything else has worked out, renamed. Used by the supervisor for the
 * policy file, with the kernel's rules in between. */
#pragma once

#include "control/files.h"

struct file_stage {
	int dir; /* -1: nothing is staged */
	int fd;  /* what was written, open for reading */
	char *path;
	char temporary[40];
};

void file_stage_init(struct file_stage *f);
/* Writes and fsyncs. Mode, owner and group are those of the file that is at path, else 0600. What
 * was staged before is removed. */
CHECKED int file_stage_write(
	struct file_stage *f, const char *path, struct slice text, struct errmsg *msg);
/* Renames, and fsyncs the directory. Where the place is a mount of its own and so cannot be renamed
 * over (a container's single mounted file), it is written in place. E_VALUE if nothing is staged.
 * Nothing is staged afterwards, in any case. */
CHECKED int file_stage_commit(struct file_stage *f, struct errmsg *msg);
/* Removes it. Nothing staged is fine. */
void file_stage_discard(struct file_stage *f);
