/* A start that cannot succeed, or a worker that ends again and again, in a mode that guards a
 * sandbox: to exit would take the container's network away and hide why. So everything that was
 * opened is given back, a worker is started that serves /healthz alone (after crashes it has the
 * audit trail, too), and the rules let nothing out. Before it: a failed supervisor_start, or
 * workers that ended; after it: the loop, as always. */
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "audit/audit_file.h"
#include "control/files.h"
#include "control/sources.h"
#include "control/supervisor.h"
#include "control/supervisor_int.h"
#include "control/vault_feed.h"

static const enum role closed_trail[] = {ROLE_AREA_PLAIN, ROLE_AUDIT};

static int closed_listen(struct supervisor *s, struct errmsg *msg)
{
	const struct settings *set = s->settings;

	if (s->roles.fd[ROLE_API] >= 0)
		return 0;
	return supervisor_listen_api(s, set, msg);
}

static void closed_keep(struct supervisor *s, struct roles *kept, const enum role *roles, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		kept->fd[roles[i]] = s->roles.fd[roles[i]];
		s->roles.fd[roles[i]] = -1;
	}
}

/* Only what that worker needs. */
static void closed_drop(struct supervisor *s, bool with_trail)
{
	static const enum role always[] = {ROLE_API, ROLE_API_V6, ROLE_CONFIG};
	struct roles kept;

	roles_init(&kept);
	closed_keep(s, &kept, always, ARRAY_LEN(always));
	if (with_trail)
		closed_keep(s, &kept, closed_trail, ARRAY_LEN(closed_trail));
	roles_fini(&s->roles);
	s->roles = kept;
	vault_feed_watch_free(s->vault_watch);
	s->vault_watch = NULL;
	supervisor_rules_fini(s);
	settings_free(s->settings);
}

static int closed_start(struct supervisor *s, const char *cause, bool with_trail)
{
	struct settings_source src = sources_settings(&s->roles, s->config_path, s->environ);
	struct settings *settings = settings_closed(&src);
	struct errmsg msg = {""};
	int ret;

	closed_drop(s, with_trail);
	s->settings = settings;
	s->closed = true;
	s->n_crashes = 0;
	log_setup(settings->log_level, STDERR_FILENO, "egress");
	log_error("supervisor", "closed: %s", cause);
	(void)printf(AUDIT_NOTE "closed: %s\n", cause);
	(void)fflush(stdout);
	ret = closed_listen(s, &msg);
	if (ret < 0) {
		supervisor_complain(msg.text);
		return SUPERVISOR_EXIT_API;
	}
	supervisor_remove_cert(s);
	if (s->guard.program < 0 && supervisor_guard_open(s, &msg) < 0)
		log_error("supervisor", "the rules cannot be set: %s", msg.text);
	ret = files_snapshot_text(slice_str(cause), &s->roles.fd[ROLE_CAUSE]);
	if (ret < 0) {
		supervisor_complain(err_text(ret));
		return SUPERVISOR_EXIT_FAILED;
	}
	return 0;
}

int supervisor_start_closed(struct supervisor *s, const char *cause)
{
	return closed_start(s, cause, false);
}

/* Perhaps it is the trail itself that they cannot live with. */
static void closed_drop_trail(struct supervisor *s)
{
	for (size_t i = 0; i < ARRAY_LEN(closed_trail); i++) {
		int *fd = &s->roles.fd[closed_trail[i]];

		if (*fd < 0)
			continue;
		log_error("supervisor", "closed: from here on without the %s",
			role_text(closed_trail[i]));
		(void)close(*fd);
		*fd = -1;
	}
	s->n_crashes = 0;
}

int supervisor_start_crashed(struct supervisor *s, int status)
{
	char cause[160];

	if (s->closed) {
		closed_drop_trail(s);
		return 0;
	}
	(void)snprintf(cause, sizeof(cause),
		"the worker ended %u times in a row, the last time %s %d: nothing gets out until "
		"egress is started anew",
		s->n_crashes, WIFSIGNALED(status) ? "by signal" : "with code",
		WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	return closed_start(s, cause, true);
}
