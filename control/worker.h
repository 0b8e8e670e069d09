/* The worker: owns and wires everything that serves the sandbox. One thread, one event loop.
 *
 * The supervisor forks and executes this program anew with `--worker`; main calls worker_main with
 * the control socket. The process is by then without rights (uid 10042 if the supervisor is root),
 * without capabilities, not dumpable, without core, with no_new_privs, and dies with the
 * supervisor. What it opens by path at start it opens as that user; after proc_seccomp
 * (base/proc.h) it opens nothing by path: every later file comes as a descriptor. */
#pragma once

#include "control/roles.h"
#include "control/settings.h"

#define WORKER_CONTROL_FD 3
/* As root: the worker's user and group (the replaced image's interceptor has the same). */
#define WORKER_UID 10042
#define WORKER_GID 10042

/* What worker_main returns, the process's exit code.
 * A worker that ends with WORKER_EXIT_SETTINGS before any worker was ever READY ends the supervisor
 * with the same code: the start cannot succeed, and the worker has said why on stderr. Every other
 * end is answered by a restart. */
enum worker_exit { WORKER_EXIT_OK = 0, WORKER_EXIT_FAILED = 1, WORKER_EXIT_SETTINGS = 2 };

struct ca;

/* What the START message brings, with the areas mapped. */
struct worker_start {
	struct roles roles;
	uint8_t *secret; /* control/areas.h has the layout */
	size_t secret_len;
	uint8_t *vault;
	size_t vault_len;
	uint8_t *plain;
	size_t plain_len;
	struct settings_source source; /* for settings_load; borrows roles and the environment */
};

/* Waits for START and maps the areas. On success worker_start_fini closes the descriptors; the
 * areas stay mapped until the process ends (base/state.h). */
CHECKED int worker_receive_start(int control_fd, struct worker_start *out, struct errmsg *msg);
void worker_start_fini(struct worker_start *w);
/* Takes what a RELOAD or AUDIT message brought into w, source included. */
void worker_start_update(struct worker_start *w, struct roles *from);

/* The CA that the supervisor made. ca_free frees it. */
CHECKED int worker_start_ca(const struct worker_start *w, struct ca **out);

/* Serves until STOP, SIGTERM or the supervisor's end (E_EOF on the control socket). SIGINT and
 * SIGHUP are the supervisor's: ignore them. */
int worker_main(int control_fd);
