/* Starting the worker, waiting, starting it again. Before it: supervisor_start.c. One blocking
 * poll(2) over two descriptors: signals and the worker's control socket. */
#include "control/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/proc.h"
#include "control/areas.h"
#include "control/ports.h"
#include "control/supervisor_int.h"
#include "control/worker.h"

void supervisor_complain(const char *message)
{
	char line[2048];
	size_t n = 0;
	size_t i;

	for (i = 0; message[i] && n < sizeof(line) - 8; i++) {
		unsigned char c = (unsigned char)message[i];

		if (c >= 0x20 && c != 0x7f)
			line[n++] = (char)c;
		else
			n += (size_t)snprintf(line + n, sizeof(line) - n, "\\x%02x", c);
	}
	(void)fprintf(stderr, "egress: %.*s\n", (int)n, line);
}

static void supervisor_mask(sigset_t *set)
{
	(void)sigemptyset(set);
	(void)sigaddset(set, SIGTERM);
	(void)sigaddset(set, SIGINT);
	(void)sigaddset(set, SIGHUP);
	(void)sigaddset(set, SIGCHLD);
}

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

/* In the child: leaves only 0, 1, 2 and the control socket open, drops every right, and becomes the
 * worker. Returns only on failure. */
static int supervisor_become_worker(const struct supervisor *s, int control, struct errmsg *msg)
{
	char *const argv[] = {(char[]){"egress"}, (char[]){"--worker"}, NULL};
	char bind_now[] = "LD_BIND_NOW=1";
	char **env = supervisor_worker_environ(s->environ, bind_now);
	sigset_t set;
	int ret;

	/* dup2 also takes close-on-exec off, but not onto itself. */
	if (control == WORKER_CONTROL_FD)
		ret = fcntl(control, F_SETFD, 0);
	else
		ret = dup2(control, WORKER_CONTROL_FD);
	if (ret < 0 || syscall(SYS_close_range, WORKER_CONTROL_FD + 1, ~0U, 0) < 0)
		return errmsg_set(msg, -errno, "descriptors: %s", err_text(-errno));
	supervisor_mask(&set);
	(void)sigprocmask(SIG_UNBLOCK, &set, NULL);
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

static void supervisor_kill(const struct supervisor *s, int sig)
{
	/* 0 would be our own process group. */
	if (s->worker > 0)
		(void)kill(s->worker, sig);
}

static void supervisor_close_control(struct supervisor *s)
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
	s->ready = false;
	s->vault_sent = 0; /* START counts by READY */
	/* The packet waits in the socket until the worker reads it. */
	ret = control_send(s->control_fd, CONTROL_START, &s->roles);
	if (ret < 0) {
		log_error("supervisor", "worker %d: start message: %s", (int)s->worker,
			err_text(ret));
		supervisor_kill(s, SIGKILL);
	}
	return 0;
}

static void supervisor_try_worker(struct supervisor *s)
{
	int ret;

	ret = supervisor_start_worker(s);
	if (ret == 0)
		return;
	log_error("supervisor", "worker: cannot be started: %s", err_text(ret));
	s->restart_at = clock_mono_ms() + s->backoff_ms;
}

static void supervisor_tell(
	const struct supervisor *s, enum control_type type, const struct roles *r)
{
	int ret;

	if (s->control_fd < 0)
		return;
	ret = control_send(s->control_fd, type, r);
	if (ret < 0)
		log_error("supervisor", "worker %d: %s message: %s", (int)s->worker,
			control_text(type), err_text(ret));
}

static void supervisor_on_ready(struct supervisor *s)
{
	const struct settings *set = s->settings;
	char addr[PORTS_TEXT_MAX];
	char addr6[PORTS_TEXT_MAX];

	s->ready = true;
	s->ever_ready = true;
	s->backoff_ms = SUPERVISOR_BACKOFF_MS;
	supervisor_vault_ready(s);
	ports_text(&set->proxy_addr, set->proxy_port, addr);
	(void)snprintf(addr6, sizeof(addr6), " and [::1]:%u", (unsigned)set->proxy_port);
	log_info("supervisor", "ready: worker %d listens on %s%s, CA certificate in %s",
		(int)s->worker, addr, s->roles.fd[ROLE_PROXY_V6] >= 0 ? addr6 : "",
		set->ca_cert_out);
}

static void supervisor_on_rotate(struct supervisor *s)
{
	struct errmsg msg = {""};
	struct roles answer;
	int ret;

	roles_init(&answer);
	ret = supervisor_rotate(s, &msg);
	if (ret < 0)
		log_error("supervisor", "audit file: rotation: %s", msg.text);
	else
		answer.fd[ROLE_AUDIT] = s->roles.fd[ROLE_AUDIT];
	supervisor_tell(s, CONTROL_AUDIT, &answer);
}

/* The worker has a policy for the file. False for a message of another kind. */
static bool supervisor_on_save(struct supervisor *s, enum control_type type)
{
	struct errmsg msg = {""};
	int ret;

	if (type == CONTROL_DISCARD) {
		file_stage_discard(&s->saved);
		return true;
	}
	if (type == CONTROL_SAVE)
		ret = supervisor_save(s, &msg);
	else if (type == CONTROL_COMMIT)
		ret = supervisor_commit(s, &msg);
	else
		return false;
	if (ret < 0)
		log_error("supervisor", "policy file: %s", msg.text);
	if (s->control_fd >= 0 && control_send_code(s->control_fd, type, ret) < 0) {
		log_error("supervisor", "worker %d: no answer could be given: it is ended",
			(int)s->worker);
		supervisor_kill(s, SIGKILL);
	}
	return true;
}

/* A worker that sends what no worker sends has been taken over, or has lost its mind. */
static void supervisor_on_message(struct supervisor *s)
{
	enum control_type type = CONTROL_STOP;
	struct roles sent;
	int ret;

	ret = control_receive(s->control_fd, &type, &sent);
	if (ret == -EAGAIN)
		return;
	if (ret == E_EOF) {
		supervisor_close_control(s);
		supervisor_kill(s, SIGKILL);
		return;
	}
	if (ret == 0 && type == CONTROL_READY && !s->ready) {
		supervisor_on_ready(s);
	} else if (ret == 0 && type == CONTROL_ROTATE) {
		supervisor_on_rotate(s);
	} else if (ret == 0 && type == CONTROL_VAULT && s->vault_sent > 0) {
		supervisor_vault_taken(s);
	} else if (ret == 0 && supervisor_on_save(s, type)) {
		/* answered */
	} else {
		log_error("supervisor", "worker %d: bad message: it is ended", (int)s->worker);
		supervisor_close_control(s);
		supervisor_kill(s, SIGKILL);
	}
	roles_fini(&sent);
}

static void supervisor_on_hup(struct supervisor *s)
{
	struct errmsg msg = {""};
	struct roles fresh;
	struct roles sent;
	int ret;
	int i;

	ret = supervisor_reload(s, &fresh, &msg);
	if (ret < 0) {
		log_error("supervisor", "reload refused, nothing is changed: %s", msg.text);
		return;
	}
	sent = fresh; /* the numbers stay the same when they move */
	for (i = 0; i < ROLE_MAX; i++) {
		if (i == ROLE_TRUST)
			sent.fd[i] = -1; /* for the next worker */
	}
	roles_update(&s->roles, &fresh);
	if (sent.fd[ROLE_VAULT] >= 0)
		supervisor_vault_sent(s);
	supervisor_tell(s, CONTROL_RELOAD, &sent);
	log_info("supervisor", "reloaded");
}

static void supervisor_on_vault(struct supervisor *s)
{
	struct roles sent;

	if (!supervisor_vault_look(s))
		return;
	roles_init(&sent);
	sent.fd[ROLE_VAULT] = s->roles.fd[ROLE_VAULT];
	supervisor_vault_sent(s);
	supervisor_tell(s, CONTROL_VAULT, &sent);
}

static void supervisor_on_rules(struct supervisor *s)
{
	struct roles sent;

	if (!supervisor_rules_look(s))
		return;
	roles_init(&sent);
	sent.fd[ROLE_DENY_ALWAYS] = s->roles.fd[ROLE_DENY_ALWAYS];
	sent.fd[ROLE_ALLOW_ALWAYS] = s->roles.fd[ROLE_ALLOW_ALWAYS];
	sent.fd[ROLE_LOG_SKIP] = s->roles.fd[ROLE_LOG_SKIP];
	supervisor_tell(s, CONTROL_ALWAYS, &sent);
}

static void supervisor_on_stop(struct supervisor *s)
{
	if (!s->worker) {
		s->stopping = true;
		return;
	}
	if (s->stopping) {
		supervisor_kill(s, SIGKILL);
		return;
	}
	s->stopping = true;
	s->kill_at = clock_mono_ms() + SUPERVISOR_STOP_MS;
	supervisor_tell(s, CONTROL_STOP, NULL);
	supervisor_kill(s, SIGTERM);
}

/* What to do about a worker that is gone: an exit code for the program, or -1 to go on. */
static int supervisor_on_worker_end(struct supervisor *s, int status)
{
	pid_t worker = s->worker;

	supervisor_close_control(s);
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
	if (!s->ever_ready && WIFEXITED(status) && WEXITSTATUS(status) == WORKER_EXIT_SETTINGS)
		return SUPERVISOR_EXIT_SETTINGS;
	if (s->ready) {
		s->restart_at = 0;
	} else {
		s->restart_at = clock_mono_ms() + s->backoff_ms;
		s->backoff_ms *= 2;
		if (s->backoff_ms > SUPERVISOR_BACKOFF_MAX)
			s->backoff_ms = SUPERVISOR_BACKOFF_MAX;
	}
	return -1;
}

/* As process 1 of a container we also inherit orphans: reaped and forgotten. */
static int supervisor_reap(struct supervisor *s)
{
	int code = -1;
	int status;
	pid_t pid;

	for (;;) {
		pid = waitpid(-1, &status, WNOHANG);
		if (pid <= 0)
			return code;
		if (pid == s->worker)
			code = supervisor_on_worker_end(s, status);
	}
}

static int supervisor_on_signal(struct supervisor *s)
{
	struct signalfd_siginfo info;

	if (read(s->signal_fd, &info, sizeof(info)) != (ssize_t)sizeof(info))
		return -1;
	switch (info.ssi_signo) {
	case SIGCHLD:
		return supervisor_reap(s);
	case SIGHUP:
		supervisor_on_hup(s);
		return -1;
	default:
		supervisor_on_stop(s);
		return -1;
	}
}

/* Milliseconds until something is due, -1 for never. */
static int supervisor_timeout(const struct supervisor *s)
{
	uint64_t now = clock_mono_ms();
	uint64_t due = s->stopping ? UINT64_MAX : supervisor_vault_due(s);

	if (!s->stopping && s->rules_look_at < due)
		due = s->rules_look_at;
	if (!s->worker && s->restart_at < due)
		due = s->restart_at;
	if (s->worker && s->stopping)
		due = s->kill_at;
	if (due == UINT64_MAX)
		return -1;
	return due > now ? (int)(due - now) : 0;
}

static int supervisor_turn(struct supervisor *s)
{
	struct pollfd fds[3] = {
		{.fd = s->signal_fd, .events = POLLIN},
		{.fd = s->control_fd, .events = POLLIN}, /* -1 is left out by poll */
		{.fd = s->rules_fd, .events = POLLIN},
	};
	int n;

	n = poll(fds, 3, supervisor_timeout(s));
	if (n < 0)
		return errno == EINTR ? -1 : SUPERVISOR_EXIT_FAILED;
	if (fds[1].revents)
		supervisor_on_message(s);
	if (fds[2].revents)
		supervisor_rules_event(s);
	if (fds[0].revents)
		return supervisor_on_signal(s);
	if (!s->stopping && clock_mono_ms() >= supervisor_vault_due(s))
		supervisor_on_vault(s);
	if (!s->stopping && clock_mono_ms() >= s->rules_look_at)
		supervisor_on_rules(s);
	if (s->worker && s->stopping && clock_mono_ms() >= s->kill_at) {
		log_warn("supervisor", "worker %d: does not stop: it is ended", (int)s->worker);
		s->kill_at = UINT64_MAX >> 1;
		supervisor_kill(s, SIGKILL);
	}
	return -1;
}

/* Until told to stop, or the first start turns out to be impossible. */
static int supervisor_loop(struct supervisor *s)
{
	int code = -1;

	while (code < 0) {
		if (!s->worker && s->stopping)
			return SUPERVISOR_EXIT_OK;
		if (!s->worker && clock_mono_ms() >= s->restart_at)
			supervisor_try_worker(s);
		code = supervisor_turn(s);
	}
	return code;
}

int supervisor_run(const char *config_path, char *const *env)
{
	struct supervisor s;
	struct errmsg msg = {""};
	sigset_t set;
	int ret;

	supervisor_init(&s, config_path, env);
	ret = proc_harden(false, &msg);
	if (ret == 0) {
		(void)proc_raise_nofile();
		area_raise_limit();
		(void)signal(SIGPIPE, SIG_IGN);
		supervisor_mask(&set);
		(void)sigprocmask(SIG_BLOCK, &set, NULL);
		s.signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
		if (s.signal_fd < 0)
			ret = errmsg_set(&msg, -errno, "signalfd: %s", err_text(-errno));
		else
			ret = supervisor_start(&s, &msg);
	}
	if (ret < 0) {
		supervisor_complain(msg.text);
		ret = SUPERVISOR_EXIT_SETTINGS;
	} else {
		ret = supervisor_loop(&s);
	}
	supervisor_fini(&s);
	return ret;
}
