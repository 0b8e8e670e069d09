/* Private to control/supervisor*.c: what the supervisor holds. supervisor_start.c makes it,
 * supervisor.c lives on it. */
#pragma once

#include <sys/types.h>

#include "base/strbuf.h"
#include "control/file_stage.h"
#include "control/roles.h"
#include "control/settings.h"
#include "control/vault_watch.h"

struct supervisor {
	const char *config_path; /* NULL: no file */
	char *const *environ;
	struct settings *settings; /* without the policy, which only the worker needs */
	struct roles roles;        /* everything a worker gets */
	struct strbuf ca_cert;     /* PEM, written again after SIGHUP */
	bool own_cert_dir;         /* ca_cert_out is the default: its directory is made */

	struct vault_watch *vault_watch; /* NULL: no vault file */
	uint64_t vault_look;             /* how its files looked when they were read */
	uint64_t vault_look_last;        /* and at the last look at them */
	uint64_t vault_look_at;          /* clock_mono_ms of the next one */
	unsigned vault_sent;             /* to this worker, and not dealt with yet */

	int rules_fd; /* inotify, -1: none; see supervisor_policy.c */
	struct vault_watch *rules;
	uint64_t rules_look; /* as vault_look */
	uint64_t rules_look_last;
	uint64_t rules_look_at;
	struct file_stage saved; /* a policy file that was written and has no name yet */

	int signal_fd;
	int control_fd; /* -1: no worker, or it has closed its end */
	pid_t worker;   /* 0: none */
	bool ready;     /* this worker has said so */
	bool ever_ready;
	bool stopping;
	uint32_t backoff_ms; /* for the next one that dies before it is ready */
	uint64_t restart_at; /* clock_mono_ms; used while there is no worker */
	uint64_t kill_at;    /* used while stopping */
};

void supervisor_init(struct supervisor *s, const char *config_path, char *const *env);
/* Everything up to the first worker, in the order of design 2. The message is for the operator. */
CHECKED int supervisor_start(struct supervisor *s, struct errmsg *msg);
void supervisor_fini(struct supervisor *s);

/* After SIGHUP: reads the files anew. 0: *fresh has what changed, moved into s->roles by the
 * caller. On failure everything stays as it is. */
CHECKED int supervisor_reload(struct supervisor *s, struct roles *fresh, struct errmsg *msg);
/* The answer to ROTATE: s->roles has the new audit file. */
CHECKED int supervisor_rotate(struct supervisor *s, struct errmsg *msg);

/* supervisor_vault.c */

/* Every two seconds: cheap, and soon enough for a key that was rotated. */
#define SUPERVISOR_VAULT_MS 2000

/* Reads the vault file of these settings, if they name one, into *fd (else -1), and watches what it
 * was read from. The files of a failed read are watched too: they may be mended. */
CHECKED int supervisor_vault_read(
	struct supervisor *s, const struct settings *set, int *fd, struct errmsg *msg);
/* A new document is on its way to the worker. */
void supervisor_vault_sent(struct supervisor *s);
/* The worker has dealt with one of those. */
void supervisor_vault_taken(struct supervisor *s);
/* The worker is ready, so it has dealt with the one that came with START. */
void supervisor_vault_ready(struct supervisor *s);
/* When supervisor_vault_look is due: clock_mono_ms, UINT64_MAX for never. */
uint64_t supervisor_vault_due(const struct supervisor *s);
/* True if the files have changed, have stayed so for one look, and could be read: s->roles has the
 * document for the worker. A failure is logged. */
bool supervisor_vault_look(struct supervisor *s);
/* Refuses a vault whose area is not locked, where the settings ask for that. */
CHECKED int supervisor_vault_locked(const struct supervisor *s, bool locked, struct errmsg *msg);

/* supervisor_policy.c */

/* A change is read when the files looked the same twice, this long after inotify's last word and
 * once more: whoever writes a file in pieces must not be read in the middle. */
#define SUPERVISOR_RULES_STILL_MS 750
/* A look without being told, where inotify cannot tell: no directory, a network file system. */
#define SUPERVISOR_RULES_MS 30000

/* Watches the operator's rule files from here on. */
void supervisor_rules_watch(struct supervisor *s);
void supervisor_rules_fini(struct supervisor *s);
/* inotify said something. */
void supervisor_rules_event(struct supervisor *s);
/* True if the files have changed and could be read: s->roles has them for the worker. */
bool supervisor_rules_look(struct supervisor *s);
/* The answer to SAVE, COMMIT and DISCARD from the worker. */
CHECKED int supervisor_save(struct supervisor *s, struct errmsg *msg);
CHECKED int supervisor_commit(struct supervisor *s, struct errmsg *msg);
