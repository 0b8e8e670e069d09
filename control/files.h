/* Files, opened and renamed by fixed role for the worker, which opens none by itself. Nothing is
 * parsed here. Every path is the operator's, but what lies in a directory may be the sandbox's: a
 * new file is made with O_EXCL under a random name and renamed, and no link is followed. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/slice.h"

#define FILES_AUDIT_KEEP 5 /* rotated audit files */

/* A sealed copy in memory of a file's text, as the descriptor of a memfd. regular: refuse anything
 * but a regular file (a reload must not wait at a FIFO). E_LIMIT past max. */
CHECKED int files_snapshot(const char *path, size_t max, bool regular, int *fd);
/* The same of a text. */
CHECKED int files_snapshot_text(struct slice text, int *fd);

/* The audit file, for reading and appending, made with mode 0600. Refuses what is no regular file
 * and what another process has open as its trail (flock). */
CHECKED int files_open_audit(const char *path, int *fd, struct errmsg *msg);
/* FILE.4 becomes FILE.5, ... FILE becomes FILE.1. The next files_open_audit makes a new one. */
CHECKED int files_rotate_audit(const char *path, struct errmsg *msg);
/* True if the path still names the file that fd has open. */
bool files_is_same(const char *path, int fd);

/* Writes a file in one step: a random name beside it, then rename. make_dirs: missing directories
 * are made, mode 0700. */
CHECKED int files_replace(
	const char *path, struct slice text, mode_t mode, bool make_dirs, struct errmsg *msg);
/* Takes away what has this name, whatever it is but a directory. 0 if there is nothing. */
CHECKED int files_remove(const char *path, struct errmsg *msg);
/* Makes a new file with mode 0600; -EEXIST if there is one already. */
CHECKED int files_create_secret(const char *path, struct slice text, struct errmsg *msg);
/* Opens a file of secrets for reading: regular, and neither group nor others may read it. -ENOENT
 * without message if there is none. */
CHECKED int files_open_secret(const char *path, int *fd, struct errmsg *msg);
