/* Private to nft/ruleset_policy.c: ranges of addresses, each with one port. */
#pragma once

#include "nft/ruleset.h"

/* 4096 rules of 64 ports each, before merging: 9.5 MB for a moment. */
#define SPANS_MAX (4u * RULESET_ENTRIES_MAX)

/* port 0: every one. */
struct span {
	uint8_t lo[16];
	uint8_t hi[16];
	uint16_t port;
};

/* All zero: none. free(v) ends it. `merged` means sorted by port and address, and disjoint for each
 * port. full: there were more than SPANS_MAX. */
struct spans {
	struct span *v;
	size_t n;
	size_t cap;
	bool full;
};

void spans_add(struct spans *s, const struct span *v);
void spans_merge(struct spans *s);
/* Adds to `out` what of s no span of `holes` (merged, for every port) covers. */
void spans_add_without(struct spans *out, struct span s, const struct spans *holes);
void spans_add_all_without(struct spans *out, const struct spans *from, const struct spans *holes);
/* Adds to `out` what is in both (merged). Port 0 has every port in common with another. */
void spans_intersect(struct spans *out, const struct spans *a, const struct spans *b);
