/* What a process gives up before it meets input from outside: rights, dumps, system calls.
 *
 * The supervisor calls proc_drop between fork and exec; the new program calls proc_harden first and
 * proc_seccomp when it has opened what it needs. Each step is final. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"

/* Root only: empties the supplementary groups and the capability bounding set, changes all user and
 * group ids, leaves no capability, and checks that there is no way back. */
CHECKED int proc_drop(uid_t uid, gid_t gid, struct errmsg *msg);

/* No core (RLIMIT_CORE 0), not dumpable (no ptrace, no /proc/PID/mem by others of the same user),
 * no new privileges, and no capability where there is one. die_with_parent: SIGKILL when the parent
 * ends; after proc_drop, which would clear it. */
CHECKED int proc_harden(bool die_with_parent, struct errmsg *msg);

/* Allows the system calls of an event loop with sockets and memory, and no other. Forbidden calls
 * end the process (SIGSYS), but for those that libraries try and can do without: opening a path and
 * looking at one fail with ENOENT. Needs proc_harden. A sanitizer build has a wider list. */
CHECKED int proc_seccomp(struct errmsg *msg);

/* Raises the soft descriptor limit to the hard one and returns it. */
size_t proc_raise_nofile(void);
