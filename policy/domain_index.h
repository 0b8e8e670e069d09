/* Name and wildcard rules, compiled: the same answer as a scan of the list, at a cost that does not
 * depend on its length. */
#pragma once

#include "policy/rule_set.h"

struct domain_index;

/* rules are borrowed for the index's life; those of other kinds are skipped. Never NULL. */
struct domain_index *domain_index_new(const struct rule *rules, size_t n);
void domain_index_free(struct domain_index *ix);

/* The lowest index among the exact and wildcard rules that match name (normal form) and port (see
 * rule_set_find), or RULE_NONE. */
int32_t domain_index_find(const struct domain_index *ix, struct slice name, uint16_t port);
