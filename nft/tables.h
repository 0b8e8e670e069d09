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
};

/* What of a table does not follow from its rules: with the same shape the next ruleset can take its
 * place. Else the table is made anew, and for a moment of that commit the kernel asks old chains
 * that have lost their rules: they drop what is allowed (tried; never the reverse). */
#define TABLES_SETS_MAX 32
struct tables_shape {
	bool made;
	bool enforce;
	bool has[GUARD_PART_MAX];
	bool set[TABLES_SETS_MAX];
};

struct tables {
	struct batch *batch;
	const struct ruleset *ruleset;
	struct tables_marks marks;
	bool without[GUARD_PART_MAX]; /* parts that this kernel refused */
};

/* The whole of inet opensandbox, for an empty batch: in the place of a table that has the shape
 * `before`, or anew if that is not possible or nothing is there. */
void tables_build(const struct tables *t, const struct tables_shape *before);
/* The shape of what tables_build makes. */
struct tables_shape tables_shape_of(const struct tables *t);
/* Leases for the dynamic sets of the table that is in place. */
void tables_renew(struct batch *b, const struct ruleset_entry *e, size_t n);
/* True if this part is in a table built like this. */
bool tables_has(const struct tables *t, enum guard_part p);

/* netdev rawguard. names: of the devices, NULL: every one, later ones too (kernels from 6.16). */
void tables_build_raw(struct batch *b, const char *const *names, size_t n);

/* The marks that the table in place was made with (its user bytes), so that connections to the
 * user's ports live on when the guard is restarted. -ENOENT: there is no such table. */
CHECKED int tables_read_marks(struct netlink *n, struct tables_marks *out);
