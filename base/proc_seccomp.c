/* The system call filter: a list of what an event loop needs, in BPF (seccomp(2)). Called by the
 * worker between its start and its loop. Before it: proc_harden, whose no_new_privs it needs.
 *
 * Calls that are allowed whatever their arguments stand first and cost nothing: the kernel keeps
 * those in a bitmap (since 5.11). */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/proc.h"
#include "base/proc_int.h"

#ifdef __x86_64__
#define PROC_ARCH AUDIT_ARCH_X86_64
#else
#define PROC_ARCH AUDIT_ARCH_AARCH64
#endif
#define PROC_X32_BIT 0x40000000u /* numbers of the x32 ABI; no such number is on arm64 */
#define PROC_FILTER_MAX 512      /* instructions; far below BPF_MAXINSNS (4096) */

#define RET_NO(err) (SECCOMP_RET_ERRNO | (err))

struct proc_filter {
	struct sock_filter ins[PROC_FILTER_MAX];
	unsigned short n;
};

static const int proc_allowed[] = {
	/* descriptors */
	SYS_read,
	SYS_write,
	SYS_readv,
	SYS_writev,
	SYS_pread64,
	SYS_pwrite64,
	SYS_close,
	SYS_close_range,
	SYS_dup,
	SYS_dup3,
	SYS_fcntl,
	SYS_lseek,
	SYS_fstat,
	SYS_fsync,
	SYS_fdatasync,
	SYS_ftruncate,
	SYS_pipe2,
	SYS_eventfd2,
	SYS_signalfd4,
	SYS_timerfd_create,
	SYS_timerfd_settime,
	/* sockets */
	SYS_connect,
	SYS_bind,
	SYS_accept,
	SYS_accept4,
	SYS_sendto,
	SYS_recvfrom,
	SYS_sendmsg,
	SYS_recvmsg,
	SYS_sendmmsg,
	SYS_recvmmsg,
	SYS_shutdown,
	SYS_getsockopt,
	SYS_setsockopt,
	SYS_getsockname,
	SYS_getpeername,
	/* waiting */
	SYS_epoll_create1,
	SYS_epoll_ctl,
	SYS_epoll_pwait,
	SYS_epoll_pwait2,
	SYS_ppoll,
	SYS_pselect6,
	SYS_nanosleep,
	SYS_clock_nanosleep,
	SYS_futex,
	SYS_sched_yield,
	SYS_restart_syscall,
	/* memory; mmap and mprotect have conditions */
	SYS_munmap,
	SYS_mremap,
	SYS_madvise,
	SYS_brk,
	SYS_mlock,
	SYS_mlock2,
	SYS_munlock,
	SYS_msync,
	/* time, signals, facts */
	SYS_clock_gettime,
	SYS_clock_getres,
	SYS_gettimeofday,
	SYS_rt_sigaction,
	SYS_rt_sigprocmask,
	SYS_rt_sigreturn,
	SYS_sigaltstack,
	SYS_getrandom,
	SYS_getpid,
	SYS_getppid,
	SYS_gettid,
	SYS_getuid,
	SYS_geteuid,
	SYS_getgid,
	SYS_getegid,
	SYS_prlimit64,
	SYS_getrusage,
	SYS_sysinfo,
	SYS_uname,
	SYS_getcpu,
	SYS_sched_getaffinity,
	SYS_membarrier,
	SYS_exit,
	SYS_exit_group,
#ifdef __x86_64__
	SYS_poll,
	SYS_select,
	SYS_epoll_wait,
	SYS_epoll_create,
	SYS_pipe,
	SYS_dup2,
	SYS_time,
	SYS_getrlimit,
#endif
};

/* Calls that name a path: libraries look for files that they can do without. */
static const int proc_no_path[] = {
	SYS_openat,
	SYS_openat2,
	SYS_statx,
	SYS_faccessat,
	SYS_faccessat2,
	SYS_readlinkat,
	SYS_getcwd,
#ifdef __x86_64__
	SYS_open,
	SYS_stat,
	SYS_lstat,
	SYS_access,
	SYS_readlink,
#endif
};

/* What the runtime of AddressSanitizer needs to print a report and to look for leaks at exit. */
static const int proc_sanitizer[] = {
	SYS_openat,
	SYS_readlinkat,
	SYS_clone,
	SYS_ptrace,
	SYS_wait4,
	SYS_kill,
	SYS_tgkill,
	SYS_prctl,
	SYS_getdents64,
	SYS_sched_getparam,
	SYS_sched_getscheduler,
	SYS_mmap,
	SYS_mprotect,
	SYS_newfstatat,
	SYS_set_robust_list,
	SYS_rseq,
	SYS_process_vm_readv,
#ifdef __x86_64__
	SYS_open,
	SYS_stat,
	SYS_readlink,
	SYS_arch_prctl,
	SYS_getdents,
#endif
};

static void proc_add(struct proc_filter *f, struct sock_filter ins)
{
	REQUIRE(f->n < PROC_FILTER_MAX);
	f->ins[f->n++] = ins;
}

static void proc_load(struct proc_filter *f, size_t offset)
{
	proc_add(f, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset));
}

static void proc_return(struct proc_filter *f, uint32_t action)
{
	proc_add(f, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action));
}

/* If what is loaded equals value, goes on with the next instruction, else skips `skip` of them. */
static void proc_if_eq(struct proc_filter *f, uint32_t value, uint8_t skip)
{
	proc_add(f, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skip));
}

static void proc_call(struct proc_filter *f, int nr, uint32_t action)
{
	proc_if_eq(f, (uint32_t)nr, 1);
	proc_return(f, action);
}

/* The low half of an argument. (All these conditions are about ints.) */
static void proc_load_arg(struct proc_filter *f, unsigned arg)
{
	proc_load(f, offsetof(struct seccomp_data, args) + arg * sizeof(uint64_t));
}

/* Allowed if the argument is one of the values, else `action`. */
static void proc_call_one_of(
	struct proc_filter *f, int nr, unsigned arg, const uint32_t *values, uint32_t action)
{
	uint8_t n = 0;
	uint8_t i;

	while (values[n] != UINT32_MAX)
		n++;
	proc_if_eq(f, (uint32_t)nr, (uint8_t)(2 + 2 * n));
	proc_load_arg(f, arg);
	for (i = 0; i < n; i++)
		proc_call(f, (int)values[i], SECCOMP_RET_ALLOW);
	proc_return(f, action);
}

/* `when` if the argument has one of these bits, else `otherwise`. */
static void proc_call_bits(struct proc_filter *f, int nr, unsigned arg, uint32_t bits,
	uint32_t when, uint32_t otherwise)
{
	proc_if_eq(f, (uint32_t)nr, 4);
	proc_load_arg(f, arg);
	proc_add(f, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, bits, 0, 1));
	proc_return(f, when);
	proc_return(f, otherwise);
}

/* IPv4, IPv6, and netlink to ask which user has a socket (sock_diag). */
static void proc_call_socket(struct proc_filter *f)
{
	proc_if_eq(f, SYS_socket, 10);
	proc_load_arg(f, 0);
	proc_call(f, AF_INET, SECCOMP_RET_ALLOW);
	proc_call(f, AF_INET6, SECCOMP_RET_ALLOW);
	proc_if_eq(f, AF_NETLINK, 3);
	proc_load_arg(f, 2);
	proc_call(f, NETLINK_SOCK_DIAG, SECCOMP_RET_ALLOW);
	proc_return(f, RET_NO(EAFNOSUPPORT));
}

static void proc_conditions(struct proc_filter *f)
{
	const uint32_t self[] = {(uint32_t)getpid(), UINT32_MAX};
	static const uint32_t ioctls[] = {FIONBIO, FIONREAD, UINT32_MAX};
	static const uint32_t prctls[] = {PR_SET_NAME, PR_GET_NAME, PR_SET_VMA, UINT32_MAX};

	proc_call_socket(f);
	proc_call_bits(f, SYS_mmap, 2, PROT_EXEC, SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_ALLOW);
	proc_call_bits(f, SYS_mprotect, 2, PROT_EXEC, SECCOMP_RET_KILL_PROCESS, SECCOMP_RET_ALLOW);
	/* fstat(3) of today's C library. */
	proc_call_bits(f, SYS_newfstatat, 3, AT_EMPTY_PATH, SECCOMP_RET_ALLOW, RET_NO(ENOENT));
	proc_call_one_of(f, SYS_ioctl, 1, ioctls, RET_NO(ENOTTY));
	proc_call_one_of(f, SYS_prctl, 0, prctls, RET_NO(EPERM));
	/* abort(3) */
	proc_call_one_of(f, SYS_tgkill, 0, self, SECCOMP_RET_KILL_PROCESS);
}

static void proc_filter_make(struct proc_filter *f)
{
	size_t i;

	proc_load(f, offsetof(struct seccomp_data, arch));
	proc_add(f, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PROC_ARCH, 1, 0));
	proc_return(f, SECCOMP_RET_KILL_PROCESS);
	proc_load(f, offsetof(struct seccomp_data, nr));
	proc_add(f, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, PROC_X32_BIT, 0, 1));
	proc_return(f, SECCOMP_RET_KILL_PROCESS);
	for (i = 0; i < ARRAY_LEN(proc_allowed); i++)
		proc_call(f, proc_allowed[i], SECCOMP_RET_ALLOW);
	for (i = 0; PROC_SANITIZED && i < ARRAY_LEN(proc_sanitizer); i++)
		proc_call(f, proc_sanitizer[i], SECCOMP_RET_ALLOW);
#ifdef __x86_64__
	/* clang's runtime starts a program that names the functions in a report: a report without
	 * names is better than none. */
	if (PROC_SANITIZED)
		proc_call(f, SYS_fork, RET_NO(EPERM));
#endif
	for (i = 0; i < ARRAY_LEN(proc_no_path); i++)
		proc_call(f, proc_no_path[i], RET_NO(ENOENT));
	proc_conditions(f);
	proc_return(f, SECCOMP_RET_KILL_PROCESS);
}

int proc_seccomp(struct errmsg *msg)
{
	struct proc_filter f = {.n = 0};
	struct sock_fprog prog = {.filter = f.ins};
	int err;

	proc_filter_make(&f);
	prog.len = f.n;
	/* SPEC_ALLOW: kernels before 5.16 else slow the whole process down (SSBD), against an
	 * attack from code that runs inside it; the worker runs none. */
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &prog) ==
		0)
		return 0;
	if (errno == EINVAL && syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0u, &prog) == 0)
		return 0;
	err = errno;
	return errmsg_set(msg, -err, "seccomp: %s", err_text(-err));
}
