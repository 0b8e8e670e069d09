/* Private to control/supervisor*.c: what the supervisor holds. supervisor_start.c makes it,
 * supervisor.c lives on it. */
#pragma once

#include <sys/types.h>

#include "base/strbuf.h"
#include "control/roles.h"
#include "control/settings.h"

struct supervisor {
	const char *config_path; /* NULL: no file */
	char *const *environ;
	struct settings *settings; /* without the policy, which only the worker needs */
	struct roles roles;        /* everything a worker gets */
	struct strbuf ca_cert;     /* PEM, written again after SIGHUP */
	bool own_cert_dir;         /* ca_cert_out is the default: its directory is made */

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
