/* The supervisor's side of the policy: it writes the policy file for the worker, and watches the
 * operator's rule files. Before it: the loop of supervisor.c; after it: the worker, which reads
 * what it is given. Nothing is parsed here. */
#include <limits.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "control/sources.h"
#include "control/supervisor_int.h"
#include "policy/policy_json.h"

#define RULES_EVENTS                                                                    \
	(IN_CLOSE_WRITE | IN_MODIFY | IN_ATTRIB | IN_CREATE | IN_DELETE | IN_MOVED_TO | \
		IN_MOVED_FROM | IN_DELETE_SELF | IN_MOVE_SELF)

static void rules_note(struct supervisor *s)
{
	static const enum role roles[] = {ROLE_DENY_ALWAYS, ROLE_ALLOW_ALWAYS, ROLE_LOG_SKIP};
	char path[PATH_MAX];

	s->rules->n = 0;
	for (size_t i = 0; i < ARRAY_LEN(roles); i++)
		if (sources_rules_path(s->environ, roles[i], path, sizeof(path)) == 0)
			REQUIRE(vault_watch_add(s->rules, path));
	s->rules_look = vault_watch_noted(s->rules);
	s->rules_look_last = s->rules_look;
}

/* Again after each look: the directory may be another one by now. */
static void rules_listen(struct supervisor *s)
{
	if (s->rules_fd >= 0)
		(void)inotify_add_watch(s->rules_fd, settings_rules_dir(s->environ), RULES_EVENTS);
}

void supervisor_rules_watch(struct supervisor *s)
{
	s->rules = xcalloc(1, sizeof(*s->rules));
	s->rules_fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	rules_listen(s);
	rules_note(s);
	s->rules_look_at = clock_mono_ms() + SUPERVISOR_RULES_MS;
}

void supervisor_rules_fini(struct supervisor *s)
{
	if (s->rules_fd >= 0)
		(void)close(s->rules_fd);
	s->rules_fd = -1;
	free(s->rules);
	s->rules = NULL;
}

void supervisor_rules_event(struct supervisor *s)
{
	_Alignas(struct inotify_event) char events[4096];

	/* What it was does not matter: the files are looked at. */
	while (read(s->rules_fd, events, sizeof(events)) > 0)
		;
	s->rules_look_at = clock_mono_ms() + SUPERVISOR_RULES_STILL_MS;
}

bool supervisor_rules_look(struct supervisor *s)
{
	struct errmsg msg = {""};
	struct roles fresh;
	uint64_t last = s->rules_look_last;
	uint64_t now = vault_watch_now(s->rules);
	int ret;

	rules_listen(s);
	s->rules_look_last = now;
	s->rules_look_at = clock_mono_ms() +
		(now == s->rules_look || now == last ? SUPERVISOR_RULES_MS
						     : SUPERVISOR_RULES_STILL_MS);
	if (now == s->rules_look || now != last)
		return false;
	roles_init(&fresh);
	rules_note(s); /* before they are read: a change in between is seen as one */
	ret = sources_rules(s->environ, &fresh, &msg);
	if (ret < 0) {
		log_error("supervisor", "%s; the rules before stay in force", msg.text);
		roles_fini(&fresh);
		return false;
	}
	roles_update(&s->roles, &fresh);
	return true;
}

int supervisor_save(struct supervisor *s, struct errmsg *msg)
{
	struct strbuf text;
	int ret;

	if (!s->settings->policy_file)
		return errmsg_set(msg, E_VALUE, "there is no file to write to");
	strbuf_init(&text, POLICY_DOC_MAX);
	ret = strbuf_pread_fd(&text, s->roles.fd[ROLE_POLICY_NEW]);
	if (ret < 0)
		(void)errmsg_set(msg, ret, "%s", err_text(ret));
	else
		ret = file_stage_write(
			&s->saved, s->settings->policy_file, strbuf_slice(&text), msg);
	strbuf_fini(&text);
	return ret;
}

int supervisor_commit(struct supervisor *s, struct errmsg *msg)
{
	return file_stage_commit(&s->saved, msg);
}
