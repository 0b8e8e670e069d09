/* The worker's vault: its memory, its copy in the area that outlives the worker, and how a new
 * document gets into both. Before it: the supervisor's messages; after it: the proxy, which asks
 * the vault at each request. */
#pragma once

#include "base/secmem.h"
#include "control/settings.h"

struct audit;
struct vault;

struct worker_vault {
	struct secmem *mem;
	/* Asked to give locked memory back when there is none left for a change: at first what
	 * holds keys that are no longer in force, then (all) whoever has some. NULL: nobody does.
	 */
	void (*make_room)(void *arg, bool all);
	void *arg;
	struct vault *vault; /* the same one from worker_vault_init to the end */
	uint8_t *area;       /* AREA_VAULT_LEN bytes, borrowed */
};

/* Makes the memory; one that cannot be locked is a warning. */
CHECKED int worker_vault_init(struct worker_vault *v, uint8_t *area, struct errmsg *msg);
/* After the proxy. */
void worker_vault_fini(struct worker_vault *v);

/* The content at the start of a worker: the document of fd (control/vault_feed.h) if there is one
 * (fd >= 0) that no worker has taken, else what is kept in the area. A document that is refused is
 * an error only where nothing is kept. */
CHECKED int worker_vault_start(
	struct worker_vault *v, int fd, const struct settings *s, struct errmsg *msg);
/* Takes the document of fd: all of it or, on failure, nothing: then vault and area are as before.
 * fd stays the caller's. */
CHECKED int worker_vault_take(
	struct worker_vault *v, int fd, const struct settings *s, struct errmsg *msg);
/* What the API asks for, by the rules of s: codes and messages of vault_create, vault_patch and
 * vault_delete; -ENOMEM: memory has to be locked and is not; -EFBIG: too large to be kept. Kept
 * when it returns 0; else vault and area are as before. doc stays the caller's, who wipes it. */
enum worker_vault_op { WORKER_VAULT_CREATE, WORKER_VAULT_PATCH, WORKER_VAULT_DELETE };
CHECKED int worker_vault_write(struct worker_vault *v, enum worker_vault_op op, struct slice doc,
	const struct settings *s, struct errmsg *msg);
/* Wipes a document that nobody will take. fd stays the caller's. */
void worker_vault_drop(int fd);
/* After a change of settings without a new document: what is in force still fits, or, where there
 * was a vault file and is none any more, goes. */
CHECKED int worker_vault_settings(
	struct worker_vault *v, const struct settings *s, bool had_file, struct errmsg *msg);

/* Who changed the vault by the API; all zero: the operator, by its file. */
struct worker_vault_writer {
	const char *method;
	uint16_t status;
	uint32_t uid;
};

/* A line in log and audit trail about what is in force now, with names and without values. */
void worker_vault_note(
	const struct worker_vault *v, struct audit *audit, const struct worker_vault_writer *who);
