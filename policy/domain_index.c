/* One key for each target, with the exact rules and the wildcard rules for it side by side. */
#include "policy/domain_index.h"

#include <stdlib.h>

#include "base/arena.h"
#include "policy/key_table.h"

struct domain_index {
	struct key_table *keys;
	size_t n_sets;
	struct rule_set *sets; /* two for each key: exact, wildcard */
};

static bool domain_index_takes(const struct rule *r)
{
	return r->kind == RULE_NAME || r->kind == RULE_WILDCARD;
}

struct domain_index *domain_index_new(const struct rule *rules, size_t n)
{
	struct domain_index *ix = xcalloc(1, sizeof(*ix));
	size_t n_names = 0;

	for (size_t i = 0; i < n; i++)
		n_names += domain_index_takes(&rules[i]);
	ix->keys = key_table_new(n_names);
	ix->n_sets = 2 * n_names;
	ix->sets = rule_sets_new(ix->n_sets);
	for (size_t i = 0; i < n; i++) {
		uint32_t key;

		if (!domain_index_takes(&rules[i]))
			continue;
		key = key_table_put(ix->keys, slice_str(rules[i].target));
		rule_set_add(&ix->sets[2 * key + (rules[i].kind == RULE_WILDCARD)], &rules[i],
			(int32_t)i);
	}
	for (size_t i = 0; i < ix->n_sets; i++)
		rule_set_seal(&ix->sets[i]);
	return ix;
}

void domain_index_free(struct domain_index *ix)
{
	if (!ix)
		return;
	rule_sets_free(ix->sets, ix->n_sets);
	key_table_free(ix->keys);
	free(ix);
}

int32_t domain_index_find(const struct domain_index *ix, struct slice name, uint16_t port)
{
	struct key_suffixes s;
	int32_t first = RULE_NONE;

	key_table_find_suffixes(ix->keys, name, &s);
	if (s.whole != KEY_NONE)
		first = rule_set_find(&ix->sets[2 * s.whole], port);
	for (size_t i = 0; i < s.n; i++)
		first = rule_first(first, rule_set_find(&ix->sets[2 * s.below[i] + 1], port));
	return first;
}
