/* What only the files of this folder may see of a policy and its rules. */
#pragma once

#include "base/hostname.h"
#include "policy/addr_index.h"
#include "policy/domain_index.h"
#include "policy/policy.h"

#define POLICY_PORT_WORDS (65536 / 64)

struct policy {
	size_t refs;
	bool default_allow;
	bool closed; /* see policy_new_closed */
	size_t n;
	size_t n_deny_always;
	size_t n_allow_always;
	struct rule *rules;
	struct domain_index *names;
	struct addr_index *addrs;
	struct addr_index *always; /* of the operator's rules alone; NULL: there are none */
	struct policy *ceiling;    /* the operator's; NULL: none */
	uint64_t *ports;           /* bit for each port that an allow rule lists; NULL: none */
};

/* A rule's texts and where they stand in the document: `egress ` or `egress[2]: `, put in front of
 * `target "x": ...` in messages. */
struct rule_source {
	const char *where;
	struct slice action;
	struct slice target;
	const uint16_t *ports;
	size_t n_ports;
};

/* rule_make with a place. On failure *out is empty. */
CHECKED int rule_decode(const struct rule_source *src, struct rule *out, struct errmsg *msg);

/* The first bytes of s, at most max, without half a UTF-8 character at the end. */
struct slice rule_text_cut(struct slice s, size_t max);

#define RULE_QUOTE_MAX 132
/* A text from outside, fit for a message: cut if long, control bytes and quotes become
 * `?`. Returns buf. */
const char *rule_quote(struct slice s, char buf[RULE_QUOTE_MAX]);

/* What is wrong with a text that should be a host name, and what to write instead; and its normal
 * form. Used for rules and for write hosts. 0, or E_VALUE with a message without the text. */
CHECKED int rule_name_decode(
	struct slice s, char buf[HOSTNAME_MAX + 1], size_t *len, struct errmsg *msg);
/* The faults that make a text no host name, no address and no block: URL, port, path, zone,
 * brackets, white space, a `*` or `.` in the wrong place. As rule_name_decode. */
CHECKED int rule_shape_check(struct slice s, struct errmsg *msg);
