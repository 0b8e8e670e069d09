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
#include "control/sources.h"
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

static void supervisor_on_ready(struct supervisor *s)
{
	const struct settings *set = s->settings;
	char addr[PORTS_TEXT_MAX];
	char addr6[PORTS_TEXT_MAX];
	bool cert;

	s->ready = true;
	s->ever_ready = true;
	s->backoff_ms = SUPERVISOR_BACKOFF_MS;
	supervisor_vault_ready(s);
	/* What was found before concerns this worker too. */
	if (supervisor_ca_due(s) != UINT64_MAX)
		supervisor_tell_code(s, CONTROL_CA, s->ca_error);
	if (!set->proxy) {
		log_info("supervisor", "ready: worker %d", (int)s->worker);
		return;
	}
	ports_text(&set->proxy_addr, set->proxy_port, addr);
	(void)snprintf(addr6, sizeof(addr6), " and [::1]:%u", (unsigned)set->proxy_port);
	cert = set->mode == MODE_PROXY || set->intercept != INTERCEPT_OFF;
	log_info("supervisor", "ready: worker %d listens on %s%s%s%s", (int)s->worker, addr,
		s->roles.fd[ROLE_PROXY_V6] >= 0 ? addr6 : "", cert ? ", CA certificate in " : "",
		cert ? set->ca_cert_out : "");
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
	supervisor_tell_code(s, type, ret);
	return true;
}

/* A worker that sends what no worker sends has been taken over, or has lost its mind. */
static void supervisor_on_message(struct supervisor *s)
{
	enum control_type type = CONTROL_STOP;
	struct roles sent;
	int code = 0;
	int ret;

	ret = control_receive_code(s->control_fd, &type, &sent, &code);
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
	} else if (ret == 0 && type == CONTROL_PROBE && s->guard.program >= 0) {
		supervisor_probe_start(s, code);
	} else if (ret == 0 && type == CONTROL_GUARD && s->guard.program >= 0) {
		supervisor_guard_lost(s, code);
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

	if (s->closed) {
		log_error("supervisor", "reload refused: egress is closed; start it anew");
		return;
	}
	ret = supervisor_reload(s, &fresh, &msg);
	if (ret < 0) {
		log_error("supervisor", "reload refused, nothing is changed: %s", msg.text);
		return;
	}
	sent = fresh; /* the numbers stay the same when they move */
	for (i = 0; i < ROLE_MAX; i++) {
		if (i == ROLE_TRUST || i == ROLE_OPENSANDBOX_CA)
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
		else if (pid == s->guard.pid)
			supervisor_guard_end(s, status);
		else if (pid == s->prober)
			supervisor_probe_end(s, status);
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

/* What has to be looked at from time to time, and when. */
struct supervisor_chore {
	uint64_t (*due)(const struct supervisor *s);
	void (*run)(struct supervisor *s);
};

static uint64_t supervisor_rules_due(const struct supervisor *s)
{
	return s->closed ? UINT64_MAX : s->rules_look_at;
}

static const struct supervisor_chore supervisor_chores[] = {
	{supervisor_vault_due, supervisor_on_vault},
	{supervisor_rules_due, supervisor_on_rules},
	{supervisor_guard_due, supervisor_guard_again},
	{supervisor_ca_due, supervisor_ca_look},
};

/* Milliseconds until something is due, -1 for never. */
static int supervisor_timeout(const struct supervisor *s)
{
	uint64_t now = clock_mono_ms();
	uint64_t due = UINT64_MAX;

	for (size_t i = 0; !s->stopping && i < ARRAY_LEN(supervisor_chores); i++) {
		uint64_t at = supervisor_chores[i].due(s);

		due = at < due ? at : due;
	}
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
	for (size_t i = 0; !s->stopping && i < ARRAY_LEN(supervisor_chores); i++)
		if (clock_mono_ms() >= supervisor_chores[i].due(s))
			supervisor_chores[i].run(s);
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

/* The start has failed. 0: go on, closed. */
static int supervisor_fail(struct supervisor *s, const struct errmsg *msg)
{
	struct settings_source src = sources_settings(&s->roles, s->config_path, s->environ);

	supervisor_complain(msg->text);
	if (s->exit_code == SUPERVISOR_EXIT_API || s->signal_fd < 0 || settings_mode_is_proxy(&src))
		return s->exit_code;
	return supervisor_start_closed(s, msg->text);
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
	if (ret < 0)
		ret = supervisor_fail(&s, &msg);
	if (ret == 0)
		ret = supervisor_loop(&s);
	supervisor_fini(&s);
	return ret;
}
