/* What a process gives up before it meets input from outside: rights, dumps, system calls.
 *
 * The supervisor calls proc_drop and proc_drop_caps between fork and exec; the new program calls
 * proc_harden first, and proc_seccomp when it has opened what it needs. Each step is final. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"

/* Root only: no supplementary groups, an empty capability bounding set, all user and group ids
 * changed, and checked that there is no way back. */
CHECKED int proc_drop(uid_t uid, gid_t gid, struct errmsg *msg);
/* No capability, ambient ones included. */
CHECKED int proc_drop_caps(struct errmsg *msg);

/* No core (RLIMIT_CORE 0), not dumpable (no ptrace and no /proc/PID/mem by others of the same
 * user; a sanitizer build stays dumpable), no new privileges. die_with_parent: SIGKILL when the
 * parent ends; after proc_drop, which would clear it. */
CHECKED int proc_harden(bool die_with_parent, struct errmsg *msg);

/* Allows the system calls of an event loop with sockets, descriptors it has, and memory that is
 * not executable. Other calls end the process (SIGSYS), but for those that libraries try and can
 * do without: whatever looks at a path fails with ENOENT, a socket of another family than IPv4,
 * IPv6 and sock_diag with EAFNOSUPPORT, a prctl with EPERM. Needs proc_harden.
 * A sanitizer build has a wider list. */
CHECKED int proc_seccomp(struct errmsg *msg);

/* Raises the soft descriptor limit to the hard one and returns it. */
size_t proc_raise_nofile(void);
