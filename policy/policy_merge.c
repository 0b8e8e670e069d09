/* Lists of rules, merged. Before it: policy_json reads what a caller sent, policy_file what the
 * operator wrote. After it: policy_new compiles the result.
 *
 * A hash table over keys: the cost grows with the number of rules, not with its square. */
#include "policy/policy_merge.h"

#include <stdlib.h>

#include "base/arena.h"
#include "base/map.h"
#include "base/strbuf.h"
#include "policy/policy_int.h"

#define MERGE_KEY_MAX (1024 + 2 * POLICY_RULE_PORTS_MAX)

void rule_list_fini(struct rule_list *l)
{
	for (size_t i = 0; i < l->n; i++)
		rule_fini(&l->v[i]);
	free(l->v);
	*l = (struct rule_list){.v = NULL};
}

void rule_list_add(struct rule_list *l, struct rule *r)
{
	/* doubled at each power of two */
	if ((l->n & (l->n - 1)) == 0)
		l->v = xrealloc(l->v, (l->n ? 2 * l->n : 1) * sizeof(*l->v));
	l->v[l->n++] = *r;
	*r = (struct rule){.kind = RULE_ANY};
}

static void rule_list_add_copies(struct rule_list *out, const struct rule_list *from)
{
	struct rule r;

	for (size_t i = 0; i < from->n; i++) {
		rule_copy(&from->v[i], &r);
		rule_list_add(out, &r);
	}
}

void rule_list_copy(const struct rule_list *from, struct rule_list *to)
{
	*to = (struct rule_list){.v = NULL};
	rule_list_add_copies(to, from);
}

/* What two rules for the same target have in common, as bytes; ports, where they count. */
static struct slice merge_key(const struct rule *r, bool ports, struct strbuf *b)
{
	strbuf_clear(b);
	strbuf_char(b, (char)('0' + (int)r->kind));
	if (r->target)
		strbuf_str(b, r->target);
	else if (r->kind == RULE_CIDR)
		strbuf_add(b, slice_make((const char *)&r->cidr, sizeof(r->cidr)));
	strbuf_char(b, '\0');
	if (ports && r->n_ports > 0)
		strbuf_add(b, slice_make((const char *)r->ports, r->n_ports * sizeof(*r->ports)));
	REQUIRE(!b->full);
	return strbuf_slice(b);
}

/* True if the key was not there before. */
static bool merge_note(struct map *seen, struct slice key)
{
	if (map_find(seen, key))
		return false;
	map_put(seen, key, seen);
	return true;
}

void rule_list_add_missing(struct rule_list *to, const struct rule_list *from)
{
	struct map *seen = map_new(0, NULL);
	struct strbuf key;
	struct rule r;

	strbuf_init(&key, MERGE_KEY_MAX);
	for (size_t i = 0; i < to->n; i++)
		(void)merge_note(seen, merge_key(&to->v[i], true, &key));
	for (size_t i = 0; i < from->n; i++) {
		if (!merge_note(seen, merge_key(&from->v[i], true, &key)))
			continue;
		rule_copy(&from->v[i], &r);
		rule_list_add(to, &r);
	}
	strbuf_fini(&key);
	map_free(seen);
}

struct policy *policy_merge_patch(const struct policy *base, struct rule_list *patch)
{
	struct map *seen = map_new(0, NULL);
	struct rule_list out = {.v = NULL};
	struct strbuf key;
	struct rule r;

	strbuf_init(&key, MERGE_KEY_MAX);
	for (size_t i = 0; i < patch->n; i++)
		if (merge_note(seen, merge_key(&patch->v[i], true, &key)))
			rule_list_add(&out, &patch->v[i]);
	for (size_t i = 0; i < policy_n_rules(base); i++) {
		if (!merge_note(seen, merge_key(policy_rule(base, i), true, &key)))
			continue;
		rule_copy(policy_rule(base, i), &r);
		rule_list_add(&out, &r);
	}
	rule_list_fini(patch);
	strbuf_fini(&key);
	map_free(seen);
	return policy_new(policy_default_allow(base), out.v, out.n);
}

/* A rule for ports alone has no target: the empty text must not find it. */
static void merge_note_target(struct map *gone, struct slice target, struct strbuf *key)
{
	struct rule r;

	if (rule_make(SLICE("allow"), target, NULL, 0, &r, NULL) < 0)
		return;
	(void)merge_note(gone, merge_key(&r, false, key));
	rule_fini(&r);
}

struct policy *policy_merge_delete(
	const struct policy *base, const struct slice *targets, size_t n_targets)
{
	struct map *gone = map_new(0, NULL);
	struct rule_list out = {.v = NULL};
	struct policy *result = NULL;
	struct strbuf key;
	struct rule r;

	strbuf_init(&key, MERGE_KEY_MAX);
	for (size_t i = 0; i < n_targets; i++)
		merge_note_target(gone, targets[i], &key);
	for (size_t i = 0; i < policy_n_rules(base); i++) {
		if (map_find(gone, merge_key(policy_rule(base, i), false, &key)))
			continue;
		rule_copy(policy_rule(base, i), &r);
		rule_list_add(&out, &r);
	}
	if (out.n < policy_n_rules(base))
		result = policy_new(policy_default_allow(base), out.v, out.n);
	else
		rule_list_fini(&out);
	strbuf_fini(&key);
	map_free(gone);
	return result;
}

struct policy *policy_merge_always(struct policy *user, const struct rule_list *deny,
	const struct rule_list *allow, struct policy *ceiling)
{
	struct rule_list out = {.v = NULL};
	struct policy *p;
	struct rule r;

	if (deny->n + allow->n == 0 && !ceiling)
		return policy_ref(user);
	rule_list_add_copies(&out, deny);
	rule_list_add_copies(&out, allow);
	for (size_t i = 0; i < policy_n_rules(user); i++) {
		rule_copy(policy_rule(user, i), &r);
		rule_list_add(&out, &r);
	}
	p = policy_new_always(policy_default_allow(user), out.v, out.n, deny->n, allow->n);
	if (ceiling) {
		REQUIRE(!ceiling->ceiling);
		p->ceiling = policy_ref(ceiling);
	}
	return p;
}
