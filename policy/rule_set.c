/* Ports of the rules of one target: collected in list order, sorted once, then searched. */
#include "policy/rule_set.h"

#include <stdlib.h>

#include "base/arena.h"

struct rule_set *rule_sets_new(size_t n)
{
	struct rule_set *sets = xcalloc(n ? n : 1, sizeof(*sets));

	for (size_t i = 0; i < n; i++) {
		sets[i].any = RULE_NONE;
		sets[i].some = RULE_NONE;
	}
	return sets;
}

void rule_sets_free(struct rule_set *sets, size_t n)
{
	if (!sets)
		return;
	for (size_t i = 0; i < n; i++)
		free(sets[i].ports);
	free(sets);
}

void rule_set_add(struct rule_set *s, const struct rule *r, int32_t index)
{
	/* Behind a rule for every port nothing can be first any more. */
	if (s->any != RULE_NONE)
		return;
	if (s->some == RULE_NONE && (r->allow || r->n_ports == 0))
		s->some = index;
	if (r->n_ports == 0) {
		s->any = index;
		return;
	}
	if (s->cap - s->n < r->n_ports) {
		s->cap = (s->n + (uint32_t)r->n_ports) * 2;
		s->ports = xrealloc(s->ports, s->cap * sizeof(*s->ports));
	}
	for (size_t i = 0; i < r->n_ports; i++)
		s->ports[s->n++] = (struct rule_port){r->ports[i], index};
}

static int rule_port_compare(const void *pa, const void *pb)
{
	const struct rule_port *a = pa;
	const struct rule_port *b = pb;

	if (a->port != b->port)
		return a->port < b->port ? -1 : 1;
	return (a->rule > b->rule) - (a->rule < b->rule);
}

void rule_set_seal(struct rule_set *s)
{
	uint32_t kept = 0;

	if (s->n == 0)
		return;
	qsort(s->ports, s->n, sizeof(*s->ports), rule_port_compare);
	for (uint32_t i = 0; i < s->n; i++)
		if (kept == 0 || s->ports[kept - 1].port != s->ports[i].port)
			s->ports[kept++] = s->ports[i];
	s->n = kept;
	s->cap = kept;
	s->ports = xrealloc(s->ports, kept * sizeof(*s->ports));
}

int32_t rule_set_find(const struct rule_set *s, uint16_t port)
{
	uint32_t low = 0;
	uint32_t high = s->n;

	if (port == 0)
		return s->some;
	while (low < high) {
		uint32_t mid = low + (high - low) / 2;

		if (s->ports[mid].port < port)
			low = mid + 1;
		else
			high = mid;
	}
	if (low < s->n && s->ports[low].port == port)
		return rule_first(s->ports[low].rule, s->any);
	return s->any;
}
