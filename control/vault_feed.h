/* The vault file on its way into a worker. A child of the supervisor reads it (vault_file) and
 * leaves the document in an area of its own, whose descriptor goes on to the worker: no process
 * that lives on ever has the text in ordinary memory.
 *
 * The child is a fork without exec: all that it needs is there, and it ends with one answer. */
#pragma once

#include "base/err.h"
#include "base/slice.h"
#include "control/vault_watch.h"

#define VAULT_FEED_WAIT_MS 10000 /* for a file system that answers slowly */

/* Reads; takes as long as that takes. *fd: the area, close-on-exec. *watch: the files that were
 * tried, also on failure, unless it is NULL then: the child did not get far enough. */
CHECKED int vault_feed_read(
	const char *path, int *fd, struct vault_watch **watch, struct errmsg *msg);
void vault_feed_watch_free(struct vault_watch *w);

/* A document in an area. */
struct vault_feed {
	void *area;
	size_t len;
	struct slice doc;
};

/* The child's side. */
CHECKED int vault_feed_put(struct slice doc, int *fd);
/* The worker's. An area whose text was wiped is an empty document. fd stays the caller's. */
CHECKED int vault_feed_open(int fd, struct vault_feed *out);
/* Wipes the text, for whoever else has it mapped or open, and unmaps. */
void vault_feed_close(struct vault_feed *f);
