/* The files that a vault was read from, and how they looked: by that the supervisor sees that one
 * has changed. Filled by vault_file while it reads. */
#pragma once

#include <limits.h>
#include <stdbool.h>

#include "base/attr.h"

#define VAULT_WATCH_MAX 257 /* the vault's own file and 256 that credentials name */

/* All zero: there is no such file, or it cannot be looked at. */
struct vault_stamp {
	uint64_t dev;
	uint64_t ino;
	uint64_t size;
	uint64_t mtime_ns;
	uint64_t ctime_ns; /* a mode that was put right */
};

struct vault_watched {
	struct vault_stamp stamp;
	char path[PATH_MAX];
};

/* Large; lies in memory that costs nothing until it is touched. */
struct vault_watch {
	size_t n;
	struct vault_watched file[VAULT_WATCH_MAX];
};

/* Notes how the file looks now, so before it is opened: a change in between is seen as one. False
 * when there is no room, or the path is too long. */
CHECKED bool vault_watch_add(struct vault_watch *w, const char *path);
/* One number for how all of them looked. */
uint64_t vault_watch_noted(const struct vault_watch *w);
/* The same for how they look now: another number, another look. */
uint64_t vault_watch_now(const struct vault_watch *w);
