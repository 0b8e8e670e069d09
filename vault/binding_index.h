/* From a request's host and path to its binding: by hash over host names and suffixes, then by
 * binary search over the path patterns of that host. Sub-linear in both. */
#pragma once

#include "vault/binding.h"

/* Patterns times hosts, summed: 16 bytes each and two words. A binding of 1,000 hosts and 100 paths
 * fits twice. */
#define BINDING_INDEX_MAX (1u << 18)

struct binding_index;

/* bindings (sorted by name) are borrowed for the index's life. NULL if there is too much. */
struct binding_index *binding_index_new(const struct binding *bindings, size_t n);
void binding_index_free(struct binding_index *ix);

bool binding_index_has_host(const struct binding_index *ix, struct slice host);
enum binding_match binding_index_match(const struct binding_index *ix,
	const struct binding_request *r, const struct binding **out);
/* The first two, in order of names, that one request can match at equal precedence. */
bool binding_index_find_ambiguous(const struct binding_index *ix, size_t *first, size_t *second);
