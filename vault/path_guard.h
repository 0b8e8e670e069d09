/* Paths that two readers may see differently (reference 3.8): a key goes out only where proxy and
 * origin mean the same resource. Pure; what is not given is not kept. */
#pragma once

#include "base/slice.h"

#define PATH_GUARD_ROUNDS_MAX 10 /* of percent-decoding; nesting that goes on is refused */

enum path_guard_mode {
	/* Dot-dot segments and backslashes at any depth are refused. */
	PATH_GUARD_WIDE,
	/* The same for bindings narrower than all paths; and single dots, path parameters behind
	 * dots, NUL, CR and LF, over-long UTF-8, `%uXXXX`, and raw bytes that no target has. */
	PATH_GUARD_NARROW,
	/* For a path with a key in it: as wide, and no encoded separator and no single dot. */
	PATH_GUARD_STRICT,
};

/* Asked about each decoded form of the path, the raw one not included: is it still the same? */
struct path_guard_same {
	bool (*same)(void *arg, struct slice decoded);
	void *arg;
};

/* work: path.len bytes of the caller, overwritten (of his kind of memory: the path may hold a key).
 * same may be NULL. */
bool path_guard_ok(struct slice path, enum path_guard_mode mode, char *work,
	const struct path_guard_same *same);
