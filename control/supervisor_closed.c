/* A start that cannot succeed, in a mode that guards a sandbox: to exit would take the container's
 * network away and hide why. So everything that was opened is given back, a worker is started that
 * serves /healthz alone, and the rules let nothing out. Before it: a failed supervisor_start, or a
 * worker that cannot start; after it: the loop, as always. */
#include <stdio.h>

#include "control/files.h"
#include "control/sources.h"
#include "control/supervisor.h"
#include "control/supervisor_int.h"
#include "control/vault_feed.h"

static int closed_listen(struct supervisor *s, struct errmsg *msg)
{
	const struct settings *set = s->settings;

	if (s->roles.fd[ROLE_API] >= 0)
		return 0;
	return supervisor_listen_api(s, set, msg);
}

/* Only what that worker needs. */
static void closed_drop(struct supervisor *s)
{
	struct roles kept;

	roles_init(&kept);
	kept.fd[ROLE_API] = s->roles.fd[ROLE_API];
	kept.fd[ROLE_API_V6] = s->roles.fd[ROLE_API_V6];
	kept.fd[ROLE_CONFIG] = s->roles.fd[ROLE_CONFIG];
	s->roles.fd[ROLE_API] = s->roles.fd[ROLE_API_V6] = s->roles.fd[ROLE_CONFIG] = -1;
	roles_fini(&s->roles);
	s->roles = kept;
	vault_feed_watch_free(s->vault_watch);
	s->vault_watch = NULL;
	supervisor_rules_fini(s);
	settings_free(s->settings);
}

int supervisor_start_closed(struct supervisor *s, const char *cause)
{
	struct settings_source src = sources_settings(&s->roles, s->config_path, s->environ);
	struct settings *settings = settings_closed(&src);
	struct errmsg msg = {""};
	int ret;

	closed_drop(s);
	s->settings = settings;
	s->closed = true;
	log_setup(settings->log_level, STDERR_FILENO, "egress");
	log_error("supervisor", "closed: %s", cause);
	(void)printf("egress: closed: %s\n", cause);
	(void)fflush(stdout);
	ret = closed_listen(s, &msg);
	if (ret < 0) {
		supervisor_complain(msg.text);
		return SUPERVISOR_EXIT_API;
	}
	if (s->guard.program < 0 && supervisor_guard_open(s, &msg) < 0)
		log_error("supervisor", "the rules cannot be set: %s", msg.text);
	ret = files_snapshot_text(slice_str(cause), &s->roles.fd[ROLE_CAUSE]);
	if (ret < 0) {
		supervisor_complain(err_text(ret));
		return SUPERVISOR_EXIT_FAILED;
	}
	return 0;
}
