/* The supervisor's side of the vault file: when it is read, and who has what was read. Before it:
 * supervisor_start.c and supervisor.c's loop; after it: vault_feed, whose child does the reading.
 */
#include <errno.h>
#include <unistd.h>

#include "base/clock.h"
#include "control/supervisor_int.h"
#include "control/vault_feed.h"

static bool supervisor_vault_same(const struct supervisor *s, const struct settings *set)
{
	const char *was = s->settings ? s->settings->vault_file : NULL;

	return was && set->vault_file && strcmp(was, set->vault_file) == 0;
}

static void supervisor_vault_watch(struct supervisor *s, struct vault_watch *watch)
{
	vault_feed_watch_free(s->vault_watch);
	s->vault_watch = watch;
	s->vault_look = watch ? vault_watch_noted(watch) : 0;
	s->vault_look_last = s->vault_look;
	s->vault_look_at = clock_mono_ms() + SUPERVISOR_VAULT_MS;
}

int supervisor_vault_read(
	struct supervisor *s, const struct settings *set, int *fd, struct errmsg *msg)
{
	struct vault_watch *watch = NULL;
	int ret = 0;

	*fd = -1;
	if (set->vault_file)
		ret = vault_feed_read(set->vault_file, fd, &watch, msg);
	if (ret == 0 || (watch && supervisor_vault_same(s, set))) {
		supervisor_vault_watch(s, watch);
	} else {
		/* Settings that were refused, or a reader that ended without a word: what was
		 * watched is, and is not read again before it changes. */
		vault_feed_watch_free(watch);
		if (s->vault_watch)
			s->vault_look = vault_watch_now(s->vault_watch);
	}
	return ret < 0 ? errmsg_prefix(msg, ret, "vault") : 0;
}

void supervisor_vault_sent(struct supervisor *s)
{
	if (s->worker > 0)
		s->vault_sent++;
}

static void supervisor_vault_close(struct supervisor *s)
{
	int *fd = &s->roles.fd[ROLE_VAULT];

	if (s->vault_sent > 0 || *fd < 0)
		return;
	/* From here on the worker's area has it. */
	(void)close(*fd);
	*fd = -1;
}

void supervisor_vault_taken(struct supervisor *s)
{
	s->vault_sent--;
	supervisor_vault_close(s);
}

void supervisor_vault_ready(struct supervisor *s)
{
	supervisor_vault_close(s);
}

uint64_t supervisor_vault_due(const struct supervisor *s)
{
	return s->vault_watch ? s->vault_look_at : UINT64_MAX;
}

bool supervisor_vault_look(struct supervisor *s)
{
	struct roles fresh;
	struct errmsg msg = {""};
	uint64_t last = s->vault_look_last;
	uint64_t now;
	int ret;

	s->vault_look_at = clock_mono_ms() + SUPERVISOR_VAULT_MS;
	now = vault_watch_now(s->vault_watch);
	s->vault_look_last = now;
	/* One that still changes is being written. */
	if (now == s->vault_look || now != last)
		return false;
	roles_init(&fresh);
	ret = supervisor_vault_read(s, s->settings, &fresh.fd[ROLE_VAULT], &msg);
	if (ret < 0) {
		log_error("supervisor", "%s; the vault before stays in force", msg.text);
		return false;
	}
	roles_update(&s->roles, &fresh);
	return true;
}

int supervisor_vault_locked(const struct supervisor *s, bool locked, struct errmsg *msg)
{
	if (locked || !s->settings->vault_file || !s->settings->require_locked_memory)
		return 0;
	return errmsg_set(msg, -ENOMEM,
		"require_locked_memory: memory for the vault cannot be locked: expected a larger "
		"RLIMIT_MEMLOCK (8 MiB)");
}
