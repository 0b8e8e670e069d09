/* Which lines of the audit trail are asked for. Pure. */
#pragma once

#include "base/hostname.h"
#include "ctl/audit_record.h"

/* Zero: every line. Texts are borrowed. */
struct audit_filter {
	uint64_t since_us; /* the line's time is at or after */
	uint64_t until_us; /* and before; 0: no end */
	bool host_wild;    /* every name below host, not host itself */
	char host[HOSTNAME_MAX + 1];
	struct slice verdict;
	struct slice kind;
	struct slice reason;
	struct slice method;
	bool has_uid;
	uint64_t uid;
	struct slice label; /* of the context; empty: any */
	struct slice label_value;
};

/* A time as clock_parse reads it, or `90s`, `10m`, `2h`, `1d`: that long before now. */
CHECKED int audit_filter_time(
	const char *text, uint64_t now_us, uint64_t *wall_us, struct errmsg *msg);

/* A name, an address, or `*.name`. */
CHECKED int audit_filter_host(const char *text, struct audit_filter *f, struct errmsg *msg);

/* `NAME=VALUE`: the context has this label. */
CHECKED int audit_filter_context(const char *text, struct audit_filter *f, struct errmsg *msg);

/* Each takes one word of its table, and names the nearest one for another. */
CHECKED int audit_filter_verdict(const char *text, struct audit_filter *f, struct errmsg *msg);
CHECKED int audit_filter_kind(const char *text, struct audit_filter *f, struct errmsg *msg);
CHECKED int audit_filter_reason(const char *text, struct audit_filter *f, struct errmsg *msg);

bool audit_filter_match(const struct audit_filter *f, const struct audit_record *r);
