/* The supervisor: the process that is started, and that outlives every worker.
 *
 * It loads the settings, makes the CA and the areas, opens every listener and file, starts the
 * worker, and waits: for signals, for the worker's end, and for the two messages that a worker may
 * send. It reads nothing from the sandbox. */
#pragma once

#include "base/attr.h"

/* Exit codes of the program. */
enum supervisor_exit {
	SUPERVISOR_EXIT_OK = 0,       /* stopped by SIGTERM or SIGINT */
	SUPERVISOR_EXIT_FAILED = 1,   /* the system let us down: no process, no memory */
	SUPERVISOR_EXIT_SETTINGS = 2, /* a start that cannot succeed; the reason is on stderr */
	SUPERVISOR_EXIT_API = 3,      /* modes dns, dns+nft: not even the API can listen */
};

#define SUPERVISOR_STOP_MS 8000      /* for a worker to end; Docker gives us 10 s in all */
#define SUPERVISOR_BACKOFF_MS 100    /* after a worker that died before it was ready */
#define SUPERVISOR_BACKOFF_MAX 5000u /* doubled up to this */
/* Workers that end one after the other, none after a longer life: then egress closes. Somebody may
 * be trying what makes it end. */
#define SUPERVISOR_CRASHES_MAX 10
#define SUPERVISOR_LIVED_MS 10000

/* Runs until it is told to stop. config_path may be NULL. */
int supervisor_run(const char *config_path, char *const *env);

/* `egress: <message>` on stderr as one line, control bytes escaped. */
void supervisor_complain(const char *message);
