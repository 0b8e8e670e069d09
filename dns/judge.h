/* What policy says about a question and about each address of its answer: the one place where the
 * DNS gate decides. Pure.
 *
 * While a change of policy waits for the kernel, an answer must be allowed by the policy in force
 * and by the next one: what the new one forbids must not be granted behind its back. */
#pragma once

#include "dns/dns_msg.h"
#include "policy/check.h"

#define JUDGE_TYPES_MAX 32
#define JUDGE_PORTS_MAX 256 /* ports under which one name is granted */

struct judge {
	struct policy *policy;
	struct policy *next; /* NULL: no change is under way */
	const struct private_names *private_names;
	bool read_only;
	const struct netcidr *on_link; /* subnets of our own devices */
	size_t n_on_link;
	uint16_t types[JUDGE_TYPES_MAX]; /* allowed for every allowed name, beside the usual ones */
	size_t n_types;
};

enum judge_result {
	JUDGE_FORWARD,
	JUDGE_DENIED,  /* NXDOMAIN: no such name for this sandbox */
	JUDGE_NO_DATA, /* NOERROR without records: the name is allowed, this type is not */
};

struct judgement {
	enum judge_result result;
	struct verdict verdict;
	struct verdict next; /* of judge.next; as verdict if there is none */
	bool odd;            /* not a host name; text is for people only */
	size_t len;
	char text[DNS_NAME_TEXT_MAX]; /* normal form; odd names escaped; the root "" */
};

/* May this name be asked for, by this type? */
void judge_question(const struct judge *j, const struct dns_question *q, struct judgement *out);
/* May the client learn that the name it asked leads to this one? Not to one that a rule denies:
 * an alias is no way round it. Names that no rule mentions may be led to. */
CHECKED bool judge_alias(const struct judge *j, const struct dns_name *alias);
/* May the client have this address of the name that was judged? */
CHECKED bool judge_addr(
	const struct judge *j, const struct judgement *name, const struct netaddr *a);
/* The TCP ports under which an allowed name may be reached, if rules for names list ports; *every:
 * all of them. */
size_t judge_ports(
	const struct judge *j, struct slice name, uint16_t ports[JUDGE_PORTS_MAX], bool *every);
