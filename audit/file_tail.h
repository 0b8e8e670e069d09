/* The end of an audit file at start: a torn last line is cut off, the last whole one is read.
 *
 * audit_open goes on from there. A file that does not end like an audit trail is not touched. */
#pragma once

#include "audit/ring.h"

struct file_tail {
	uint64_t seq; /* of the last line, 0: the file is empty */
	char hash[RING_HEX_LEN];
	bool stopped; /* the last line says that the proxy was stopped */
};

/* fd: open for reading and writing. Anything but a regular file counts as empty. E_SYNTAX if the
 * file holds something else than a trail. */
CHECKED int file_tail_read(int fd, struct file_tail *t, struct errmsg *msg);
