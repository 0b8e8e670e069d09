/* The privileged process: takes messages of fixed shape from the worker, makes nftables batches of
 * them, waits for the kernel's acknowledgement and answers. It watches its tables and the devices,
 * and reports flows. It opens nothing, reads no path, and knows no policy.
 *
 * Rules stay in the kernel when it ends. */
#pragma once

#include "nft/batch.h"
#include "nft/flow_log.h"
#include "nft/links.h"
#include "nft/tables.h"
#include "nft/watch.h"
#include "nft/xsk.h"

/* Design 5: red within a second when a table is lost. */
#define GUARD_WATCH_MS 500
#define GUARD_FLOW_MS 1000

struct guard {
	int worker_fd;         /* the pair with the worker; blocking */
	struct netlink nft;    /* changes and questions */
	struct netlink links;  /* questions about devices */
	struct netlink events; /* devices that come and go */
	struct flow_log *flows;
	int flows_err; /* why there is none */
	struct xsk *xsk;
	int xsk_err; /* why there is none */

	struct guard_draft draft;
	struct batch batch;
	struct tables tables;   /* marks and what this kernel refused */
	struct tables before;   /* the table in place; its ruleset is NULL or &current */
	struct ruleset current; /* what is committed */
	bool have_marks;
	bool enforce; /* the last ruleset that was committed */
	bool applied;
	bool by_name; /* the kernel has no device prefix: rawguard names each device */
	struct watch_print print;
	uint32_t generation;
	struct guard_state state;
	uint64_t flows_at; /* clock_mono_ms of the next report */
	uint64_t watch_at;
	uint64_t beat_at; /* later for each message that was sent */
};

/* Descriptors and sockets are set by the caller (guard_main.c); the rest is zero. Returns when the
 * worker's end is closed (0), or something is wrong with it or the kernel: E_SYNTAX for a message
 * that is none, else a negated errno. */
CHECKED int guard_run(struct guard *g);
void guard_fini(struct guard *g);
