/* The guard's process (nft/): found, started before each worker and again when it ends, and the
 * prober, which tries the rules as somebody else. Before it: the loop of supervisor.c; after it:
 * the worker, which gets the way to the guard and tells it what to do.
 *
 * What the guard has put into the kernel stays there while no guard runs. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/proc.h"
#include "control/probe.h"
#include "control/supervisor.h"
#include "control/supervisor_int.h"
#include "nft/guard_hold.h"

#define GUARD_PROGRAM "egress-guard"
#define GUARD_ANSWER_S 2 /* it opens its sockets in milliseconds, or never */
#define GUARD_LIVED_MS 1000
#define PROBER_SECONDS 5

int supervisor_guard_open(struct supervisor *s, struct errmsg *msg)
{
	char path[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - sizeof(GUARD_PROGRAM));
	char *name;

	if (n < 0)
		return errmsg_set(msg, -errno, "/proc/self/exe: %s", err_text(-errno));
	path[n] = '\0';
	name = strrchr(path, '/');
	REQUIRE(name != NULL);
	memcpy(name + 1, GUARD_PROGRAM, sizeof(GUARD_PROGRAM));
	s->guard.program = open(path, O_PATH | O_CLOEXEC);
	if (s->guard.program < 0)
		return errmsg_set(msg, -errno,
			"%.1000s: %s: expected the guard's program beside egress", path,
			err_text(-errno));
	return 0;
}

void supervisor_guard_fini(struct supervisor *s)
{
	struct supervisor_guard *g = &s->guard;

	for (size_t i = 0; i < g->n_held; i++)
		(void)close(g->held[i]);
	g->n_held = 0;
	if (g->program >= 0)
		(void)close(g->program);
	g->program = -1;
}

/* In the child: the two ends as the guard expects them, nothing else. Returns only on failure. */
static int guard_become(const struct supervisor *s, int worker, int hold, struct errmsg *msg)
{
	char *const argv[] = {(char[]){GUARD_PROGRAM}, NULL};
	char *const env[] = {NULL};
	int program = fcntl(s->guard.program, F_DUPFD_CLOEXEC, GUARD_HOLD_FD + 1);
	int ret;

	/* Out of each other's way first. */
	worker = fcntl(worker, F_DUPFD, program + 1);
	hold = fcntl(hold, F_DUPFD, program + 1);
	if (program < 0 || dup2(worker, GUARD_WORKER_FD) < 0 || dup2(hold, GUARD_HOLD_FD) < 0 ||
		dup2(program, GUARD_HOLD_FD + 1) < 0 ||
		fcntl(GUARD_HOLD_FD + 1, F_SETFD, FD_CLOEXEC) < 0)
		return errmsg_set(msg, -errno, "descriptors: %s", err_text(-errno));
	ret = supervisor_child_clean(GUARD_HOLD_FD + 2, msg);
	if (ret < 0)
		return ret;
	/* A terminal's signals go to all of us; it ends when the worker has. Inherited by exec. */
	(void)signal(SIGINT, SIG_IGN);
	(void)signal(SIGHUP, SIG_IGN);
	(void)signal(SIGTERM, SIG_IGN);
	(void)syscall(SYS_execveat, GUARD_HOLD_FD + 1, "", argv, env, AT_EMPTY_PATH);
	return errmsg_set(msg, -errno, GUARD_PROGRAM ": %s", err_text(-errno));
}

/* Copies of the sockets that it has made, if it could. */
static void guard_take_held(struct supervisor_guard *g, int fd)
{
	const struct timeval limit = {GUARD_ANSWER_S, 0};
	int ret;

	(void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	ret = guard_hold_receive(fd, g->held, &g->n_held);
	if (ret < 0 && ret != E_EOF) /* an ended one has said why */
		log_error("supervisor", "guard: no answer: %s", err_text(ret));
}

/* A frozen one too: what the dead worker asked of it must not be done after what the next asks. */
static void guard_kill(struct supervisor_guard *g)
{
	if (g->pid <= 0)
		return;
	(void)kill(g->pid, SIGKILL);
	while (waitpid(g->pid, NULL, 0) < 0 && errno == EINTR)
		;
	g->pid = 0;
}

static int guard_fork(struct supervisor *s, const int worker[2], const int hold[2])
{
	struct errmsg msg = {""};
	pid_t pid = fork();
	int ret;

	if (pid < 0)
		return -errno;
	if (pid == 0) {
		ret = guard_become(s, worker[1], hold[1], &msg);
		supervisor_complain(ret < 0 ? msg.text : "no guard");
		_exit(SUPERVISOR_EXIT_FAILED);
	}
	s->guard.pid = pid;
	s->guard.started_at = clock_mono_ms();
	return 0;
}

static int guard_start(struct supervisor *s, const int worker[2])
{
	struct supervisor_guard *g = &s->guard;
	int hold[2];
	int ret;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, hold) < 0)
		return -errno;
	ret = guard_fork(s, worker, hold);
	(void)close(hold[1]);
	if (ret == 0)
		ret = guard_hold_send(hold[0], g->held, g->n_held);
	if (ret == 0 && g->n_held == 0)
		guard_take_held(g, hold[0]);
	(void)close(hold[0]);
	return ret;
}

void supervisor_guard_start(struct supervisor *s)
{
	struct supervisor_guard *g = &s->guard;
	int worker[2];
	int ret;

	if (g->program < 0)
		return;
	guard_kill(g);
	g->number = 1;
	supervisor_guard_handed(s);
	ret = socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, worker) < 0 ? -errno : 0;
	if (ret == 0) {
		ret = guard_start(s, worker);
		(void)close(worker[1]);
		s->roles.fd[ROLE_GUARD] = worker[0];
	}
	if (ret < 0) {
		log_error("supervisor", "guard: cannot be started: %s", err_text(ret));
		g->restart_at = clock_mono_ms() + SUPERVISOR_BACKOFF_MS;
	}
}

void supervisor_guard_handed(struct supervisor *s)
{
	int *fd = &s->roles.fd[ROLE_GUARD];

	if (*fd >= 0)
		(void)close(*fd);
	*fd = -1;
}

void supervisor_guard_end(struct supervisor *s, int status)
{
	struct supervisor_guard *g = &s->guard;
	uint64_t now = clock_mono_ms();
	int pid = (int)g->pid;

	g->pid = 0;
	if (WIFSIGNALED(status))
		log_error("supervisor", "guard %d: ended by signal %d", pid, WTERMSIG(status));
	else if (WEXITSTATUS(status) != 0)
		log_error("supervisor", "guard %d: ended with code %d", pid, WEXITSTATUS(status));
	if (now - g->started_at >= GUARD_LIVED_MS || g->backoff_ms == 0)
		g->backoff_ms = SUPERVISOR_BACKOFF_MS / 2;
	g->restart_at = now - g->started_at >= GUARD_LIVED_MS ? now : now + g->backoff_ms;
	g->backoff_ms *= 2;
	if (g->backoff_ms > SUPERVISOR_BACKOFF_MAX)
		g->backoff_ms = SUPERVISOR_BACKOFF_MAX;
}

uint64_t supervisor_guard_due(const struct supervisor *s)
{
	/* Without a worker the next one brings a guard with it. */
	return s->guard.program >= 0 && s->guard.pid == 0 && s->worker ? s->guard.restart_at
								       : UINT64_MAX;
}

void supervisor_guard_lost(const struct supervisor *s, int number)
{
	/* Dead already, or replaced meanwhile. */
	if (s->guard.pid <= 0 || number != s->guard.number)
		return;
	log_error("supervisor", "guard %d: the worker has lost it: it is ended", (int)s->guard.pid);
	(void)kill(s->guard.pid, SIGKILL);
}

void supervisor_guard_again(struct supervisor *s)
{
	struct roles sent;
	const int before = s->guard.number;

	supervisor_guard_start(s);
	s->guard.number = s->roles.fd[ROLE_GUARD] >= 0 ? before + 1 : before;
	roles_init(&sent);
	sent.fd[ROLE_GUARD] = s->roles.fd[ROLE_GUARD];
	if (sent.fd[ROLE_GUARD] >= 0)
		supervisor_tell(s, CONTROL_GUARD, &sent);
	supervisor_guard_handed(s);
}

/* --- the prober --- */

void supervisor_probe_forget(struct supervisor *s)
{
	if (s->prober > 0)
		(void)kill(s->prober, SIGKILL);
	s->prober = 0; /* an orphan by now, and reaped as one */
}

/* In the child: somebody with no rights, and no user of ours. */
static int prober_run(int code)
{
	struct errmsg msg = {""};
	int ret = supervisor_child_clean(STDERR_FILENO + 1, &msg);

	(void)signal(SIGALRM, SIG_DFL);
	(void)alarm(PROBER_SECONDS);
	if (ret == 0 && geteuid() == 0)
		ret = proc_drop(PROBE_UID, PROBE_UID, &msg);
	if (ret == 0)
		ret = proc_drop_caps(&msg);
	if (ret < 0) {
		supervisor_complain(msg.text);
		return PROBE_NOT_DONE;
	}
	return probe_run(code);
}

void supervisor_probe_start(struct supervisor *s, int code)
{
	pid_t pid = s->prober ? -1 : fork();

	if (pid == 0)
		_exit(prober_run(code));
	if (pid < 0) {
		supervisor_tell_code(s, CONTROL_PROBE, PROBE_NOT_DONE);
		return;
	}
	s->prober = pid;
}

void supervisor_probe_end(struct supervisor *s, int status)
{
	s->prober = 0;
	supervisor_tell_code(
		s, CONTROL_PROBE, WIFEXITED(status) ? WEXITSTATUS(status) : PROBE_NOT_DONE);
}
