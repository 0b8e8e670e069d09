/* The vault of a vault file for a process that only asks, like `egressctl`: what is in it, without
 * any value, and which binding a request would meet. Loaded and judged as the worker does. */
#pragma once

#include "base/slice.h"
#include "control/settings.h"

struct vault;
struct vault_report;

/* *out is NULL where the settings name no vault file. The message names the file. */
CHECKED int vault_report_new(
	const struct settings *s, struct vault_report **out, struct errmsg *msg);
void vault_report_free(struct vault_report *r);

/* For struct proxy_config; borrowed. NULL for NULL. */
struct vault *vault_report_vault(const struct vault_report *r);
/* {"credentials":[...],"bindings":[...]}, sorted by name, without values; the caller frees it. The
 * revision is left out: only a running egress has one. */
char *vault_report_json(const struct vault_report *r);

enum vault_report_match {
	VAULT_REPORT_NONE,      /* no binding applies */
	VAULT_REPORT_BINDING,   /* this one */
	VAULT_REPORT_AMBIGUOUS, /* more than one: refused */
	VAULT_REPORT_PATH,      /* the path can be read in two ways: refused */
};

struct vault_report_request {
	bool https;
	uint16_t port;
	struct slice host; /* normal form */
	struct slice method;
	struct slice path; /* raw, before '?' */
};

/* *name, where a binding applies, is borrowed from r. */
enum vault_report_match vault_report_find(
	struct vault_report *r, const struct vault_report_request *q, struct slice *name);
