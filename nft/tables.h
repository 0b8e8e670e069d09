/* Our tables as messages of a batch: `inet opensandbox` from a ruleset, `netdev rawguard` for the
 * devices. What is in the kernel is either the old ruleset or the new one, whole. */
#pragma once

#include "nft/batch.h"

/* Clients and documents look for this name (docs/compatibility.md). */
#define TABLES_NAME "opensandbox"
#define TABLES_RAW_NAME "rawguard"
#define TABLES_LOG_GROUP 10043 /* of NFLOG; groups are per network namespace */

/* Marks of conntrack entries. Random, no secret, and nothing but our rules sets them. */
struct tables_marks {
	uint32_t revision; /* this ruleset's verdict; new with each batch */
	uint32_t service;  /* flows that outsiders opened to the user's ports */
	uint32_t own;      /* flows of the worker's sockets, and to the API port */
	uint32_t before;   /* the last ruleset's, while sets change; 0: it counts no more */
};

struct tables {
	struct batch *batch;
	const struct ruleset *ruleset;
	struct tables_marks marks;
	bool without[GUARD_PART_MAX]; /* parts that this kernel refused */
};

/* The ruleset as an empty batch's content: what changes against `before`, the table in place, or
 * with before->ruleset NULL all of it. A table made anew drops what is allowed for a moment of its
 * commit (its old chains are still asked when their rules are gone), so it is kept where that is
 * possible.
 */
void tables_build(const struct tables *t, const struct tables *before);
/* Rules alone; sets are as this ruleset wants them. */
void tables_build_rules(const struct tables *t);
/* True if tables_build gives a set of ranges other elements. Kernels before 6.17 may find neither
 * old nor new ones for a moment of that commit, so flows that are under way must not depend on
 * them: commit it with marks.before, then tables_build_rules without. */
bool tables_sets_change(const struct tables *t, const struct tables *before);
/* Leases for the dynamic sets of the table that is in place. */
void tables_renew(struct batch *b, const struct ruleset_entry *e, size_t n);
/* True if this part is in a table built like this. */
bool tables_has(const struct tables *t, enum guard_part p);

/* netdev rawguard. names: of the devices, NULL: every one, later ones too (kernels from 6.16). */
void tables_build_raw(struct batch *b, const char *const *names, size_t n);

/* The marks that the table in place was made with (its user bytes), so that connections to the
 * user's ports live on when the guard is restarted. -ENOENT: there is no such table. */
CHECKED int tables_read_marks(struct netlink *n, struct tables_marks *out);
