/* The rules of one target and one kind, folded into "which is the first for this port?". */
#pragma once

#include "policy/policy.h"

#define RULE_NONE (-1)

struct rule_port {
	uint16_t port;
	int32_t rule;
};

struct rule_set {
	int32_t any;  /* first rule for every port, or RULE_NONE */
	int32_t some; /* first rule that decides when the port is not known yet */
	uint32_t n, cap;
	struct rule_port *ports; /* sorted by port after rule_set_seal, each port once */
};

/* n of them, all empty. */
struct rule_set *rule_sets_new(size_t n);
void rule_sets_free(struct rule_set *sets, size_t n);

/* Rules are added in list order; then rule_set_seal once. */
void rule_set_add(struct rule_set *s, const struct rule *r, int32_t index);
void rule_set_seal(struct rule_set *s);

/* The lowest index for this port, or RULE_NONE. Port 0 is "whatever port": a rule that allows some
 * ports then counts, one that denies some ports does not, since others may still be allowed. */
int32_t rule_set_find(const struct rule_set *s, uint16_t port);

/* The lower of two indexes, where RULE_NONE is above all. */
static inline int32_t rule_first(int32_t a, int32_t b)
{
	if (a == RULE_NONE || b == RULE_NONE)
		return a == RULE_NONE ? b : a;
	return a < b ? a : b;
}
