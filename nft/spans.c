/* Ranges of addresses: collected, made disjoint, cut, intersected. Before it: ruleset_policy.c,
 * which knows what they mean. */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "nft/spans_int.h"

void spans_add(struct spans *s, const struct span *v)
{
	if (s->n == SPANS_MAX) {
		s->full = true;
		return;
	}
	if (s->n == s->cap) {
		s->cap = s->cap ? 2 * s->cap : 64;
		s->v = xrealloc(s->v, s->cap * sizeof(*s->v));
	}
	s->v[s->n++] = *v;
}

static int span_compare(const void *a, const void *b)
{
	const struct span *x = a;
	const struct span *y = b;

	if (x->port != y->port)
		return x->port < y->port ? -1 : 1;
	return memcmp(x->lo, y->lo, sizeof(x->lo));
}

/* Adds one, or takes one off. The caller knows that it does not wrap. */
static void addr_step(uint8_t a[16], bool up)
{
	for (size_t i = 16; i-- > 0;) {
		a[i] = (uint8_t)(a[i] + (up ? 1 : -1));
		if (a[i] != (up ? 0 : 0xff))
			return;
	}
}

static bool addr_is_last(const uint8_t a[16])
{
	for (size_t i = 0; i < 16; i++) {
		if (a[i] != 0xff)
			return false;
	}
	return true;
}

/* True if `next` (not before s) overlaps s or follows it without a gap. */
static bool span_touches(const struct span *s, const struct span *next)
{
	uint8_t after[16];

	if (s->port != next->port)
		return false;
	if (addr_is_last(s->hi))
		return true;
	memcpy(after, s->hi, sizeof(after));
	addr_step(after, true);
	return memcmp(next->lo, after, sizeof(after)) <= 0;
}

/* Sorts, and makes the spans of each port disjoint. */
void spans_merge(struct spans *s)
{
	size_t out = 0;

	if (s->n == 0)
		return;
	qsort(s->v, s->n, sizeof(*s->v), span_compare);
	for (size_t i = 1; i < s->n; i++) {
		if (!span_touches(&s->v[out], &s->v[i]))
			s->v[++out] = s->v[i];
		else if (memcmp(s->v[i].hi, s->v[out].hi, sizeof(s->v[i].hi)) > 0)
			memcpy(s->v[out].hi, s->v[i].hi, sizeof(s->v[i].hi));
	}
	s->n = out + 1;
}

/* The first of these spans (merged, of one port) that does not end before addr. */
static size_t spans_find(const struct spans *s, const uint8_t addr[16])
{
	size_t lo = 0;
	size_t hi = s->n;

	while (lo < hi) {
		const size_t mid = lo + (hi - lo) / 2;

		if (memcmp(s->v[mid].hi, addr, sizeof(s->v[mid].hi)) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* Adds to `out` what of `s` no span of `holes` (merged, for every port) covers. */
void spans_add_without(struct spans *out, struct span s, const struct spans *holes)
{
	for (size_t i = spans_find(holes, s.lo); i < holes->n; i++) {
		const struct span *h = &holes->v[i];
		struct span before = s;

		if (memcmp(h->lo, s.hi, sizeof(s.hi)) > 0)
			break;
		if (memcmp(h->lo, s.lo, sizeof(s.lo)) > 0) {
			memcpy(before.hi, h->lo, sizeof(before.hi));
			addr_step(before.hi, false);
			spans_add(out, &before);
		}
		if (memcmp(h->hi, s.hi, sizeof(s.hi)) >= 0)
			return;
		memcpy(s.lo, h->hi, sizeof(s.lo));
		addr_step(s.lo, true);
	}
	spans_add(out, &s);
}

void spans_add_all_without(struct spans *out, const struct spans *from, const struct spans *holes)
{
	for (size_t i = 0; i < from->n; i++)
		spans_add_without(out, from->v[i], holes);
}

/* The first span of this port, or of a higher one. */
static size_t spans_port_begin(const struct spans *s, uint32_t port)
{
	size_t lo = 0;
	size_t hi = s->n;

	while (lo < hi) {
		const size_t mid = lo + (hi - lo) / 2;

		if (s->v[mid].port < port)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

/* The spans of this port, as a view. */
static struct spans spans_of_port(const struct spans *s, uint16_t port)
{
	struct spans view = {.v = s->v + spans_port_begin(s, port)};

	view.n = spans_port_begin(s, (uint32_t)port + 1) - spans_port_begin(s, port);
	return view;
}

/* What s and one of these (merged, of one port) have in common. */
static void spans_add_common(struct spans *out, const struct span *s, const struct spans *group)
{
	for (size_t i = spans_find(group, s->lo); i < group->n; i++) {
		const struct span *g = &group->v[i];
		struct span both = *s;

		if (memcmp(g->lo, s->hi, sizeof(g->lo)) > 0)
			break;
		if (memcmp(g->lo, s->lo, sizeof(g->lo)) > 0)
			memcpy(both.lo, g->lo, sizeof(both.lo));
		if (memcmp(g->hi, s->hi, sizeof(g->hi)) < 0)
			memcpy(both.hi, g->hi, sizeof(both.hi));
		if (both.port == 0)
			both.port = g->port;
		spans_add(out, &both);
	}
}

void spans_intersect(struct spans *out, const struct spans *a, const struct spans *b)
{
	for (size_t i = 0; i < a->n && !out->full; i++) {
		const uint16_t port = a->v[i].port;
		struct spans group = spans_of_port(b, port);

		spans_add_common(out, &a->v[i], &group);
		if (port > 0) {
			group = spans_of_port(b, 0);
			spans_add_common(out, &a->v[i], &group);
		}
		/* For every port: with each that b has. */
		for (size_t k = spans_port_begin(b, 1); port == 0 && k < b->n; k += group.n) {
			group = spans_of_port(b, b->v[k].port);
			spans_add_common(out, &a->v[i], &group);
		}
	}
}
