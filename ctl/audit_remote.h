/* Lines of the audit trail of a running egress, page by page from its API. Stands where
 * audit/audit_file and file_follow stand for a file. Before it: audit_query and audit_tail; after
 * it: api_client. No line is left out: where lines are gone from egress's memory it fails. */
#pragma once

#include "audit/audit_file.h"
#include "ctl/api_client.h"

#define AUDIT_REMOTE_ALL UINT64_MAX

struct audit_remote {
	const struct api_client *client;
	const char *name; /* the address asked, for messages */
	bool started;     /* `after` is set */
	uint64_t after;   /* number of the last line given */
	uint64_t number;  /* lines given */
	struct api_client_answer page;
	struct slice rest; /* of the page */
};

/* Stands before the last n lines that egress has, or all. client is borrowed. Negative with a
 * message: it does not answer, or refuses. audit_remote_close also after a failure. */
CHECKED int audit_remote_open(
	struct audit_remote *r, const struct api_client *client, uint64_t n, struct errmsg *msg);
void audit_remote_close(struct audit_remote *r);

/* 1: a line, valid until the next call; 0: there is none yet; negative with a message: egress does
 * not answer, refuses, or some of the lines are gone. */
CHECKED int audit_remote_next(struct audit_remote *r, struct audit_line *line, struct errmsg *msg);
