/* A copy of the trail of a running egress, collected page by page: each line once, whatever ends
 * the collector in between. Its files are base.jsonl, and where the trail did not go on from what
 * was there, base~2.jsonl and so on; each is a trail of its own for audit_verify. */
#pragma once

#include "audit/audit_file.h"

#define AUDIT_COPY_FILES_MAX 1000      /* of one trail: who lies fills no folder */
#define AUDIT_COPY_PAGE_MAX (1u << 20) /* bytes added at a time */

struct audit_copy {
	char *base;
	uint32_t number;         /* of the newest file, from 1 */
	uint64_t seq;            /* of the last line in it, 0: it is empty or not there yet */
	char hash[RING_HEX_LEN]; /* of that line */
	uint64_t bytes, max;     /* of all its files; what they may come to */
	bool full;               /* a page did not fit: lines are checked as ever, and not kept */
	bool named;              /* the newest file's name is on the disk, for certain */
};

/* Finds the newest file and its last whole line; a torn one behind it is cut off. base: a path,
 * copied. max: bytes of all files; where less than a page is left, nothing more is kept.
 * E_SYNTAX: the file is no trail, and was not touched. */
CHECKED int audit_copy_open(
	struct audit_copy *c, const char *base, uint64_t max, struct errmsg *msg);
/* Accepts one that is zeroed. */
void audit_copy_close(struct audit_copy *c);

/* Adds the lines at the front of *lines that continue the trail, each with its newline, and moves
 * *lines behind them. They are on the disk when it returns, under their file's name, or c->full
 * tells that they, and all that come after them, are not. 0, and *what is why the rest does not
 * continue it, or NONE; or a negated errno: nothing was added. */
CHECKED int audit_copy_add(
	struct audit_copy *c, struct slice *lines, enum audit_break *what, struct errmsg *msg);

/* The next line begins another file, and need not continue anything. E_LIMIT: too many. */
CHECKED int audit_copy_begin(struct audit_copy *c, struct errmsg *msg);
