/* Private to control/supervisor*.c: what the supervisor holds. supervisor_start.c makes it,
 * supervisor.c lives on it. */
#pragma once

#include <signal.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "base/strbuf.h"
#include "control/file_stage.h"
#include "control/roles.h"
#include "control/settings.h"
#include "control/vault_watch.h"
#include "nft/guard_msg.h"

/* The guard's process, and what outlives it. */
struct supervisor_guard {
	int program;             /* egress-guard, opened at the start; -1: this mode has none */
	pid_t pid;               /* 0: none */
	int held[GUARD_XSK_MAX]; /* its AF_XDP sockets: a queue stays ours while it is restarted */
	size_t n_held;
	int number;          /* of this one, among those that this worker was given */
	uint64_t started_at; /* clock_mono_ms */
	uint64_t restart_at; /* used while there is none */
	uint32_t backoff_ms;
};

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

	struct supervisor_guard guard;
	pid_t prober;        /* 0: none; see supervisor_guard.c */
	bool closed;         /* the start could not succeed: supervisor_closed.c */
	int exit_code;       /* of a start that fails */
	uint64_t ca_look_at; /* clock_mono_ms of the next look at the CA's file */
	struct stat ca_seen; /* how it looked when we wrote it */
	int ca_error;        /* 0, or why it cannot be put there */

	int signal_fd;
	int control_fd;     /* -1: no worker, or it has closed its end */
	pid_t worker;       /* 0: none */
	uint64_t worker_at; /* clock_mono_ms of its start */
	unsigned
		n_crashes; /* in a row: each of a worker that lived less than SUPERVISOR_LIVED_MS */
	bool ready;        /* this worker has said so */
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
/* Opens the API's listeners into s->roles. */
CHECKED int supervisor_listen_api(
	struct supervisor *s, const struct settings *set, struct errmsg *msg);

/* After SIGHUP: reads the files anew. 0: *fresh has what changed, moved into s->roles by the
 * caller. On failure everything stays as it is. */
CHECKED int supervisor_reload(struct supervisor *s, struct roles *fresh, struct errmsg *msg);
/* The answer to ROTATE: s->roles has the new audit file. */
CHECKED int supervisor_rotate(struct supervisor *s, struct errmsg *msg);

/* supervisor_worker.c */

/* The signals that the loop reads from a descriptor; a new process gets them back. */
void supervisor_mask(sigset_t *set);
/* In a child before exec: the descriptors from `first` on are closed, signals are as usual. */
CHECKED int supervisor_child_clean(unsigned first, struct errmsg *msg);
/* Starts one; on failure its time comes again. */
void supervisor_try_worker(struct supervisor *s);
void supervisor_kill(const struct supervisor *s, int sig);
void supervisor_close_control(struct supervisor *s);
void supervisor_tell(const struct supervisor *s, enum control_type type, const struct roles *r);
void supervisor_tell_code(const struct supervisor *s, enum control_type type, int code);
/* What to do about a worker that is gone: an exit code for the program, or -1 to go on. */
int supervisor_on_worker_end(struct supervisor *s, int status);

/* supervisor_guard.c */

/* Finds the program. Only in modes with rules in the kernel. */
CHECKED int supervisor_guard_open(struct supervisor *s, struct errmsg *msg);
void supervisor_guard_fini(struct supervisor *s);
/* Ends the guard there is, and starts another; s->roles has the worker's end of the pair. If none
 * can be started, that end is a closed one. Nothing in mode proxy. */
void supervisor_guard_start(struct supervisor *s);
/* The worker has its end: with a copy of ours the guard would not see the worker's death. */
void supervisor_guard_handed(struct supervisor *s);
/* It was reaped. */
void supervisor_guard_end(struct supervisor *s, int status);
/* When another one is due: clock_mono_ms, UINT64_MAX for never. Then: starts it. */
uint64_t supervisor_guard_due(const struct supervisor *s);
void supervisor_guard_again(struct supervisor *s);
/* The worker has given up the guard with this number; see GUARD in roles.h. */
void supervisor_guard_lost(const struct supervisor *s, int number);
/* The worker asks whether the rules hold for others (PROBE). */
void supervisor_probe_start(struct supervisor *s, int code);
/* Its worker has ended: what it finds is not for the next one. */
void supervisor_probe_forget(struct supervisor *s);
/* The prober was reaped. */
void supervisor_probe_end(struct supervisor *s, int status);

/* supervisor_closed.c */

/* Instead of supervisor_start, or after it: only /healthz is served, with the cause, and the rules
 * let nothing out (design 2). 0, or an exit code where not even that can be done. */
CHECKED int supervisor_start_closed(struct supervisor *s, const char *cause);
/* The same after SUPERVISOR_CRASHES_MAX of n_crashes, with the audit trail; status is of the last
 * one. Called again when the workers that serve it end as well: without the trail. */
CHECKED int supervisor_start_crashed(struct supervisor *s, int status);

/* supervisor_ca.c */

/* Every half second: the sandbox can remove the file, and its clients need it. */
#define SUPERVISOR_CA_MS 500

CHECKED int supervisor_write_cert(struct supervisor *s, struct errmsg *msg);
/* At a start, and when egress closes: what is there is of an earlier CA, and clients that wait for
 * the file would trust that one. Nothing in mode proxy, where a CA may be kept. */
void supervisor_remove_cert(struct supervisor *s);
/* When supervisor_ca_look is due: clock_mono_ms, UINT64_MAX for never. */
uint64_t supervisor_ca_due(const struct supervisor *s);
/* Puts the file back if it is not what we wrote; tells the worker if that fails. */
void supervisor_ca_look(struct supervisor *s);

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
