/* The worker's process: made, told, ended, and made again. Before it: supervisor_start.c, which has
 * opened everything that a worker gets. After it: the loop of supervisor.c. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/proc.h"
#include "control/supervisor.h"
#include "control/supervisor_int.h"
#include "control/worker.h"

/* A library that binds a symbol at its first call puts all vector registers on the stack, with what
 * the last copy left in them: a piece of a key. So the worker binds everything at its start. The
 * memory ends with the exec. */
static char **supervisor_worker_environ(char *const *env, char *last)
{
	size_t n = 0;
	char **out;

	while (env[n])
		n++;
	out = xcalloc(n + 2, sizeof(*out));
	for (size_t i = 0; i < n; i++)
		out[i] = env[i];
	out[n] = last; /* of two with one name the last one counts */
	return out;
}

void supervisor_mask(sigset_t *set)
{
	(void)sigemptyset(set);
	(void)sigaddset(set, SIGTERM);
	(void)sigaddset(set, SIGINT);
	(void)sigaddset(set, SIGHUP);
	(void)sigaddset(set, SIGCHLD);
}

int supervisor_child_clean(unsigned first, struct errmsg *msg)
{
	sigset_t set;

	if (syscall(SYS_close_range, first, ~0U, 0) < 0)
		return errmsg_set(msg, -errno, "descriptors: %s", err_text(-errno));
	supervisor_mask(&set);
	(void)sigprocmask(SIG_UNBLOCK, &set, NULL);
	return 0;
}

/* In the child: leaves only 0, 1, 2 and the control socket open, drops every right, and becomes the
 * worker. Returns only on failure. */
static int supervisor_become_worker(const struct supervisor *s, int control, struct errmsg *msg)
{
	char *const argv[] = {(char[]){"egress"}, (char[]){"--worker"}, NULL};
	char bind_now[] = "LD_BIND_NOW=1";
	char **env = supervisor_worker_environ(s->environ, bind_now);
	int ret;

	/* dup2 also takes close-on-exec off, but not onto itself. */
	if (control == WORKER_CONTROL_FD)
		ret = fcntl(control, F_SETFD, 0);
	else
		ret = dup2(control, WORKER_CONTROL_FD);
	if (ret < 0)
		return errmsg_set(msg, -errno, "descriptors: %s", err_text(-errno));
	ret = supervisor_child_clean(WORKER_CONTROL_FD + 1, msg);
	if (ret < 0)
		return ret;
	if (geteuid() == 0) {
		ret = proc_drop(WORKER_UID, WORKER_GID, msg);
		if (ret < 0)
			return ret;
	}
	ret = proc_drop_caps(msg);
	if (ret < 0)
		return ret;
	(void)execve("/proc/self/exe", argv, env);
	return errmsg_set(msg, -errno, "/proc/self/exe: %s", err_text(-errno));
}

void supervisor_kill(const struct supervisor *s, int sig)
{
	/* 0 would be our own process group. */
	if (s->worker > 0)
		(void)kill(s->worker, sig);
}

void supervisor_close_control(struct supervisor *s)
{
	if (s->control_fd >= 0)
		(void)close(s->control_fd);
	s->control_fd = -1;
}

/* Forks the worker and hands it everything. A failure counts as a worker that died at once. */
static int supervisor_start_worker(struct supervisor *s)
{
	struct errmsg msg = {""};
	int pair[2];
	int ret;

	/* The one before may still be busy with what the dead worker asked of it. */
	supervisor_guard_start(s);
	ret = control_pair(pair);
	if (ret < 0)
		return ret;
	s->worker = fork();
	if (s->worker < 0) {
		ret = -errno;
		s->worker = 0;
		(void)close(pair[0]);
		(void)close(pair[1]);
		return ret;
	}
	if (s->worker == 0) {
		ret = supervisor_become_worker(s, pair[1], &msg);
		supervisor_complain(ret < 0 ? msg.text : "no worker");
		_exit(WORKER_EXIT_SETTINGS);
	}
	(void)close(pair[1]);
	s->control_fd = pair[0];
	s->worker_at = clock_mono_ms();
	s->ready = false;
	s->vault_sent = 0; /* START counts by READY */
	/* The packet waits in the socket until the worker reads it. */
	ret = control_send(s->control_fd, CONTROL_START, &s->roles);
	supervisor_guard_handed(s);
	if (ret < 0) {
		log_error("supervisor", "worker %d: start message: %s", (int)s->worker,
			err_text(ret));
		supervisor_kill(s, SIGKILL);
	}
	return 0;
}

void supervisor_try_worker(struct supervisor *s)
{
	int ret;

	ret = supervisor_start_worker(s);
	if (ret == 0)
		return;
	log_error("supervisor", "worker: cannot be started: %s", err_text(ret));
	s->restart_at = clock_mono_ms() + s->backoff_ms;
}

void supervisor_tell(const struct supervisor *s, enum control_type type, const struct roles *r)
{
	int ret;

	if (s->control_fd < 0)
		return;
	ret = control_send(s->control_fd, type, r);
	if (ret < 0)
		log_error("supervisor", "worker %d: %s message: %s", (int)s->worker,
			control_text(type), err_text(ret));
}

void supervisor_tell_code(const struct supervisor *s, enum control_type type, int code)
{
	if (s->control_fd < 0)
		return;
	if (control_send_code(s->control_fd, type, code) == 0)
		return;
	log_error("supervisor", "worker %d: no answer could be given: it is ended", (int)s->worker);
	supervisor_kill(s, SIGKILL);
}

/* True if it is time to close. A developer's proxy, which guards nobody, goes on trying. */
static bool supervisor_count_crash(struct supervisor *s)
{
	const bool lived = clock_mono_ms() - s->worker_at >= SUPERVISOR_LIVED_MS;

	s->n_crashes = lived ? 1 : s->n_crashes + 1;
	return s->n_crashes >= SUPERVISOR_CRASHES_MAX && s->settings->mode != MODE_PROXY;
}

/* What to do about a worker that is gone: an exit code for the program, or -1 to go on. */
int supervisor_on_worker_end(struct supervisor *s, int status)
{
	pid_t worker = s->worker;
	int ret;

	supervisor_close_control(s);
	supervisor_probe_forget(s);
	file_stage_discard(&s->saved);
	s->worker = 0;
	if (WIFSIGNALED(status))
		log_error("supervisor", "worker %d: ended by signal %d", (int)worker,
			WTERMSIG(status));
	else if (!s->stopping || WEXITSTATUS(status) != WORKER_EXIT_OK)
		log_error("supervisor", "worker %d: ended with code %d", (int)worker,
			WEXITSTATUS(status));
	if (s->stopping)
		return -1;
	if (!s->ever_ready && WIFEXITED(status) && WEXITSTATUS(status) == WORKER_EXIT_SETTINGS &&
		!s->closed) {
		if (s->settings->mode == MODE_PROXY)
			return SUPERVISOR_EXIT_SETTINGS;
		ret = supervisor_start_closed(s, "the worker cannot start: its log says why");
		return ret == 0 ? -1 : ret;
	}
	if (supervisor_count_crash(s)) {
		ret = supervisor_start_crashed(s, status);
		if (ret != 0)
			return ret;
	}
	if (s->closed) {
		s->restart_at = clock_mono_ms() + SUPERVISOR_BACKOFF_MS;
	} else if (s->ready) {
		s->restart_at = 0;
	} else {
		s->restart_at = clock_mono_ms() + s->backoff_ms;
		s->backoff_ms *= 2;
		if (s->backoff_ms > SUPERVISOR_BACKOFF_MAX)
			s->backoff_ms = SUPERVISOR_BACKOFF_MAX;
	}
	return -1;
}
