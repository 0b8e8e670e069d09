/* Dropping rights and the system call filter (base/proc, base/proc_seccomp). Each case runs in a
 * child of its own, since nothing of it can be taken back. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/proc.h"
#include "base/proc_int.h"

#define UID 10042
#define SKIPPED 77

/* Runs fn in a child; its exit code, or minus the signal that ended it. */
static int in_child(int (*fn)(void))
{
	int status;
	pid_t pid;

	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		_exit(fn());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

/* The line of the check that failed, so that the parent's message tells it. 0 is good. */
#define CHECK(x)                                     \
	do {                                         \
		if (!(x))                            \
			return 100 + __LINE__ % 100; \
	} while (0)

static int filtered(void)
{
	struct errmsg msg;

	CHECK(proc_harden(false, &msg) == 0);
	CHECK(proc_seccomp(&msg) == 0);
	return 0;
}

/* --- rights --- */

static int child_drops_root(void)
{
	struct errmsg msg;
	gid_t groups[8];
	uid_t r;
	uid_t e;
	uid_t s;

	if (geteuid() != 0)
		return SKIPPED;
	CHECK(setgroups(1, (const gid_t[]){4}) == 0);
	CHECK(proc_drop(UID, UID, &msg) == 0);
	CHECK(getresuid(&r, &e, &s) == 0 && r == UID && e == UID && s == UID);
	CHECK(getgid() == UID && getegid() == UID);
	CHECK(getgroups(8, groups) == 0);
	CHECK(setuid(0) < 0 && setresuid(0, 0, 0) < 0 && setgid(0) < 0);
	CHECK(prctl(PR_CAPBSET_READ, 0, 0, 0, 0) == 0);
	CHECK(prctl(PR_CAPBSET_READ, 12, 0, 0, 0) == 0); /* CAP_NET_ADMIN */
	return 0;
}

static void test_root_is_dropped_for_good(void **state)
{
	int code = in_child(child_drops_root);

	if (code == SKIPPED)
		skip();
	assert_int_equal(code, 0);
}

static int child_drops_without_right(void)
{
	struct errmsg msg;

	if (geteuid() != 0)
		return SKIPPED;
	CHECK(setresuid(UID, UID, UID) == 0);
	CHECK(proc_drop(UID + 1, UID, &msg) == -EPERM);
	CHECK(strstr(msg.text, "CAP_SETGID"));
	return 0;
}

static void test_drop_without_the_right_to_is_an_error(void **state)
{
	int code = in_child(child_drops_without_right);

	if (code == SKIPPED)
		skip();
	assert_int_equal(code, 0);
}

static int child_drops_caps(void)
{
	struct errmsg msg;

	if (geteuid() != 0)
		return SKIPPED;
	CHECK(proc_drop_caps(&msg) == 0);
	CHECK(setgroups(0, NULL) < 0 && errno == EPERM);
	CHECK(setresuid(UID, UID, UID) < 0 && errno == EPERM);
	return 0;
}

static void test_capabilities_are_dropped(void **state)
{
	int code = in_child(child_drops_caps);

	if (code == SKIPPED)
		skip();
	assert_int_equal(code, 0);
}

static int child_hardens(void)
{
	struct errmsg msg;
	struct rlimit lim;
	int sig = 0;

	CHECK(proc_harden(true, &msg) == 0);
	CHECK(getrlimit(RLIMIT_CORE, &lim) == 0 && lim.rlim_cur == 0 && lim.rlim_max == 0);
	CHECK(prctl(PR_GET_DUMPABLE) == PROC_SANITIZED);
	CHECK(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1);
	CHECK(prctl(PR_GET_PDEATHSIG, &sig) == 0 && sig == SIGKILL);
	return 0;
}

static void test_hardened_process_leaves_no_core_and_gains_nothing(void **state)
{
	assert_int_equal(in_child(child_hardens), 0);
}

static int child_hardens_alone(void)
{
	struct errmsg msg;
	int sig = -1;

	CHECK(proc_harden(false, &msg) == 0);
	CHECK(prctl(PR_GET_PDEATHSIG, &sig) == 0 && sig == 0);
	return 0;
}

static void test_supervisor_does_not_die_with_its_parent(void **state)
{
	assert_int_equal(in_child(child_hardens_alone), 0);
}

static int child_raises_nofile(void)
{
	struct rlimit lim = {16, 40};

	CHECK(setrlimit(RLIMIT_NOFILE, &lim) == 0);
	CHECK(proc_raise_nofile() == 40);
	CHECK(getrlimit(RLIMIT_NOFILE, &lim) == 0 && lim.rlim_cur == 40);
	CHECK(proc_raise_nofile() == 40);
	return 0;
}

static void test_descriptor_limit_is_raised_to_the_hard_one(void **state)
{
	assert_int_equal(in_child(child_raises_nofile), 0);
}

/* --- the filter --- */

static int child_needs_harden(void)
{
	struct errmsg msg;

	if (geteuid() == 0 && setresuid(UID, UID, UID) < 0)
		return SKIPPED;
	CHECK(proc_seccomp(&msg) == -EACCES);
	return 0;
}

static void test_filter_needs_no_new_privileges(void **state)
{
	assert_int_equal(in_child(child_needs_harden), 0);
}

static int child_works(void)
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	struct stat st;
	char byte;
	void *p;
	int pair[2];
	int ep;
	int s;

	CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0);
	CHECK(filtered() == 0);
	s = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	CHECK(s >= 0);
	CHECK(bind(s, (struct sockaddr *)&sa, sizeof(sa)) == 0);
	CHECK(fstat(s, &st) == 0);
	ep = epoll_create1(EPOLL_CLOEXEC);
	CHECK(ep >= 0);
	CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, s, &(struct epoll_event){.events = EPOLLIN}) == 0);
	CHECK(epoll_wait(ep, &(struct epoll_event){0}, 1, 0) >= 0);
	CHECK(write(pair[0], "x", 1) == 1 && read(pair[1], &byte, 1) == 1);
	p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(p != MAP_FAILED && mprotect(p, 4096, PROT_READ) == 0 && munmap(p, 4096) == 0);
	p = malloc(1u << 20);
	CHECK(p);
	free(p);
	return 0;
}

static void test_an_event_loop_works_under_the_filter(void **state)
{
	assert_int_equal(in_child(child_works), 0);
}

static int child_finds_no_path(void)
{
	struct stat st;

	CHECK(filtered() == 0);
#if !PROC_SANITIZED
	CHECK(open("/etc/passwd", O_RDONLY) < 0 && errno == ENOENT);
	CHECK(openat(AT_FDCWD, "/", O_RDONLY | O_DIRECTORY) < 0 && errno == ENOENT);
	CHECK(stat("/etc/passwd", &st) < 0 && errno == ENOENT);
#endif
	CHECK(access("/etc/passwd", R_OK) < 0 && errno == ENOENT);
	CHECK(syscall(SYS_statx, AT_FDCWD, "/", 0, 0, NULL) < 0 && errno == ENOENT);
	(void)st;
	return 0;
}

static void test_paths_do_not_exist_under_the_filter(void **state)
{
	assert_int_equal(in_child(child_finds_no_path), 0);
}

static int child_lacks_families(void)
{
	static const int families[] = {AF_UNIX, AF_PACKET, AF_VSOCK, AF_ALG, AF_XDP, AF_BLUETOOTH};
	size_t i;
	int s;

	CHECK(filtered() == 0);
	for (i = 0; i < ARRAY_LEN(families); i++)
		CHECK(socket(families[i], SOCK_STREAM, 0) < 0 && errno == EAFNOSUPPORT);
	CHECK(socket(AF_NETLINK, SOCK_RAW, 0) < 0 && errno == EAFNOSUPPORT);  /* route */
	CHECK(socket(AF_NETLINK, SOCK_RAW, 12) < 0 && errno == EAFNOSUPPORT); /* netfilter */
	s = socket(AF_NETLINK, SOCK_RAW, 4);                                  /* sock_diag */
	CHECK(s >= 0 || errno == EPROTONOSUPPORT);
	s = socket(AF_INET6, SOCK_DGRAM, 0);
	CHECK(s >= 0 || errno == EAFNOSUPPORT);
	return 0;
}

static void test_other_socket_families_do_not_exist(void **state)
{
	assert_int_equal(in_child(child_lacks_families), 0);
}

static int child_refuses_ioctl(void)
{
	int value = 0;

	CHECK(filtered() == 0);
	CHECK(ioctl(0, TIOCSTI, &value) < 0 && errno == ENOTTY);
#if !PROC_SANITIZED
	CHECK(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0 && errno == EPERM);
#endif
	return 0;
}

static void test_other_ioctls_and_prctls_are_refused(void **state)
{
	assert_int_equal(in_child(child_refuses_ioctl), 0);
}

/* Each of these must end the process. */
static int child_execve(void)
{
	char *const argv[] = {(char[]){"true"}, NULL};

	CHECK(filtered() == 0);
	(void)execve("/bin/true", argv, NULL);
	return 1;
}

static int child_mount(void)
{
	CHECK(filtered() == 0);
	(void)syscall(SYS_mount, "a", "b", "c", 0, NULL);
	return 1;
}

static int child_bpf(void)
{
	CHECK(filtered() == 0);
	(void)syscall(SYS_bpf, 0, NULL, 0);
	return 1;
}

static int child_unlink(void)
{
	CHECK(filtered() == 0);
	(void)syscall(SYS_unlinkat, AT_FDCWD, "/nonexistent", 0);
	return 1;
}

static int child_setuid(void)
{
	CHECK(filtered() == 0);
	(void)syscall(SYS_setresuid, 0, 0, 0);
	return 1;
}

static int child_io_uring(void)
{
	CHECK(filtered() == 0);
	(void)syscall(SYS_io_uring_setup, 1, NULL);
	return 1;
}

static int child_memfd(void)
{
	CHECK(filtered() == 0);
	(void)memfd_create("x", 0);
	return 1;
}

static int child_unshare(void)
{
	CHECK(filtered() == 0);
	(void)syscall(SYS_unshare, 0x10000000);
	return 1;
}

static void test_forbidden_calls_end_the_process(void **state)
{
	static int (*const calls[])(void) = {child_execve, child_mount, child_bpf, child_unlink,
		child_setuid, child_io_uring, child_memfd, child_unshare};
	size_t i;

	for (i = 0; i < ARRAY_LEN(calls); i++) {
		int code = in_child(calls[i]);

		if (code != -SIGSYS)
			fail_msg("call %zu: %d", i, code);
	}
}

#if !PROC_SANITIZED
/* What the sanitizer's runtime needs itself is forbidden in the real build only. */
static int child_exec_memory(void)
{
	CHECK(filtered() == 0);
	(void)mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return 1;
}

static int child_fork(void)
{
	CHECK(filtered() == 0);
	(void)fork();
	return 1;
}

static int child_kill(void)
{
	CHECK(filtered() == 0);
	(void)kill(getppid(), 0);
	return 1;
}

static int child_ptrace(void)
{
	CHECK(filtered() == 0);
	(void)syscall(SYS_ptrace, 0, 0, 0, 0);
	return 1;
}

static void test_what_only_sanitizers_need_ends_the_process(void **state)
{
	static int (*const calls[])(void) = {
		child_exec_memory, child_fork, child_kill, child_ptrace};
	size_t i;

	for (i = 0; i < ARRAY_LEN(calls); i++) {
		int code = in_child(calls[i]);

		if (code != -SIGSYS)
			fail_msg("call %zu: %d", i, code);
	}
}
#endif

static int child_aborts(void)
{
	CHECK(filtered() == 0);
	abort();
}

static void test_abort_is_an_abort_under_the_filter(void **state)
{
	assert_int_equal(in_child(child_aborts), -SIGABRT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_root_is_dropped_for_good),
		cmocka_unit_test(test_drop_without_the_right_to_is_an_error),
		cmocka_unit_test(test_capabilities_are_dropped),
		cmocka_unit_test(test_hardened_process_leaves_no_core_and_gains_nothing),
		cmocka_unit_test(test_supervisor_does_not_die_with_its_parent),
		cmocka_unit_test(test_descriptor_limit_is_raised_to_the_hard_one),
		cmocka_unit_test(test_filter_needs_no_new_privileges),
		cmocka_unit_test(test_an_event_loop_works_under_the_filter),
		cmocka_unit_test(test_paths_do_not_exist_under_the_filter),
		cmocka_unit_test(test_other_socket_families_do_not_exist),
		cmocka_unit_test(test_other_ioctls_and_prctls_are_refused),
		cmocka_unit_test(test_forbidden_calls_end_the_process),
#if !PROC_SANITIZED
		cmocka_unit_test(test_what_only_sanitizers_need_ends_the_process),
#endif
		cmocka_unit_test(test_abort_is_an_abort_under_the_filter),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
