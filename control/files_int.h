/* What files.c and file_stage.c share. */
#pragma once

#include "control/files.h"

#define FILES_NAME_MAX 40

CHECKED int files_write_all(int fd, struct slice text);
/* The directory of path, not through a link at its end; *name is the part behind it. A descriptor,
 * or a negated errno. */
CHECKED int files_open_dir(const char *path, const char **name);
CHECKED int files_random_name(char name[FILES_NAME_MAX]);
