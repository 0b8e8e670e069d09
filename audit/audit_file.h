/* Reading an audit file, and the older ones that rotation left beside it (.1 is the newest of
 * those), line by line from the oldest on; and checking number and chain of each line.
 *
 * Works on raw lines: it knows `seq` and `prev` and leaves the other fields to the reader. */
#pragma once

#include <stdio.h>

#include "audit/ring.h"

#define AUDIT_FILE_OLDER_MAX 1000 /* rotated files looked for */

/* With this begins what egress says on stdout beside the trail: no line of it, and no break. */
#define AUDIT_NOTE "egress: "

#define AUDIT_BREAK_TABLE(X)                                  \
	X(NONE, "whole")                                      \
	X(MALFORMED, "the line is not one of an audit trail") \
	X(TORN, "the line does not end in a newline")         \
	X(HOLE, "lines are missing before this one")          \
	X(REPEAT, "the line's number was already used")       \
	X(CHAIN, "prev is not the SHA-256 of the line before: one of the two was changed")

enum audit_break {
#define X(id, text) AUDIT_BREAK_##id,
	AUDIT_BREAK_TABLE(X)
#undef X
};

const char *audit_break_text(enum audit_break b);

bool audit_line_is_note(struct slice text);

struct audit_line {
	struct slice text; /* without the newline, valid until the next call */
	const char *path;  /* of the file it is in, valid until audit_file_close */
	uint64_t number;   /* in that file, from 1 */
	uint64_t seq;      /* 0: the line is malformed */
	struct slice prev; /* as text */
	bool torn;         /* no newline at its end: it is being written, or was cut off */
};

/* Does a line continue a trail whose last line has this number and hash? last_seq 0: there is none
 * (hash is not looked at), and any line will do, unless it says to be line 1 and to follow one. */
enum audit_break audit_line_check(
	const struct audit_line *line, uint64_t last_seq, const char hash[RING_HEX_LEN]);

struct audit_file;

/* older: path.N down to path.1 come first. -ENOENT if there is no file at all. */
CHECKED int audit_file_open(
	const char *path, bool older, struct audit_file **out, struct errmsg *msg);
void audit_file_close(struct audit_file *f);

/* 1: a line, and no note; 0: the end; or a negated errno. */
CHECKED int audit_file_next(struct audit_file *f, struct audit_line *line);

struct audit_verify {
	uint64_t lines; /* read, the one that breaks it included */
	uint64_t first_seq, last_seq;
	enum audit_break what;
	uint64_t number; /* line of the break in `path` */
	uint64_t seq;    /* of that line, 0 if it has none */
	char path[4096];
};

/* Checks the trail up to its first break. 0 also when there is one (see `what`); negative if it
 * cannot be read. The first line is taken as it is, unless it says to be line 1. Repeated lines at
 * the seam of two files count as breaks too. */
CHECKED int audit_verify(const char *path, bool older, struct audit_verify *v, struct errmsg *msg);
