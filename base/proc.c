/* Dropping rights, and limits. The system call filter is in proc_seccomp.c. Called by supervisor
 * and worker at their start, before anything from outside is read. */
#include "base/proc.h"

#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/proc_int.h"

static int proc_fail(struct errmsg *msg, const char *what)
{
	int err = errno;

	return errmsg_set(msg, -err, "%s: %s", what, err_text(-err));
}

/* Every capability that this kernel knows. Without CAP_SETPCAP the set stays as it is, which is
 * harmless once no_new_privs is on. */
static void proc_drop_bounding(void)
{
	unsigned long cap;

	for (cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
		(void)prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
}

int proc_drop(uid_t uid, gid_t gid, struct errmsg *msg)
{
	uid_t r;
	uid_t e;
	uid_t s;

	proc_drop_bounding();
	if (setgroups(0, NULL) < 0)
		return proc_fail(msg, "setgroups (needs CAP_SETGID)");
	if (setresgid(gid, gid, gid) < 0)
		return proc_fail(msg, "setresgid (needs CAP_SETGID)");
	if (setresuid(uid, uid, uid) < 0)
		return proc_fail(msg, "setresuid (needs CAP_SETUID)");
	if (getresuid(&r, &e, &s) < 0 || r != uid || e != uid || s != uid ||
		(uid != 0 && setresuid((uid_t)-1, 0, (uid_t)-1) == 0))
		return errmsg_set(msg, -EPERM, "setresuid: the rights of root are still there");
	return 0;
}

int proc_drop_caps(struct errmsg *msg)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {{0}};

	/* Fails on kernels that have none, where there is nothing to clear. */
	(void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	if (syscall(SYS_capset, &header, none) < 0)
		return proc_fail(msg, "capset");
	return 0;
}

int proc_harden(bool die_with_parent, struct errmsg *msg)
{
	const struct rlimit none = {0, 0};

	if (setrlimit(RLIMIT_CORE, &none) < 0)
		return proc_fail(msg, "RLIMIT_CORE");
	/* The leak check at exit attaches to its own process. */
	if (!PROC_SANITIZED && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return proc_fail(msg, "PR_SET_DUMPABLE");
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return proc_fail(msg, "PR_SET_NO_NEW_PRIVS");
	if (die_with_parent && prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
		return proc_fail(msg, "PR_SET_PDEATHSIG");
	return 0;
}

size_t proc_raise_nofile(void)
{
	struct rlimit lim;

	if (getrlimit(RLIMIT_NOFILE, &lim) < 0)
		return 1024;
	if (lim.rlim_cur < lim.rlim_max) {
		lim.rlim_cur = lim.rlim_max;
		/* Refused: the limit stays as it was, which the second call tells. */
		(void)setrlimit(RLIMIT_NOFILE, &lim);
		if (getrlimit(RLIMIT_NOFILE, &lim) < 0)
			return 1024;
	}
	return (size_t)lim.rlim_cur;
}
