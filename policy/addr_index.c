/* The keys are the blocks themselves (16 bytes and a length); the empty key holds the ports-only
 * rules. An address is masked to each prefix length that some rule of its family uses. */
#include "policy/addr_index.h"

#include <stdlib.h>

#include "base/arena.h"
#include "policy/key_table.h"

#define ADDR_BITS 128
#define ADDR_V4_PREFIX 96 /* bits before the IPv4 address in its v4-mapped form */

struct addr_lengths {
	size_t n;
	uint8_t v[ADDR_BITS + 1]; /* longest first */
};

struct addr_index {
	struct key_table *keys;
	size_t n_sets;
	struct rule_set *sets; /* two for each key: allow, deny */
	uint32_t any;          /* the empty key, or KEY_NONE */
	struct addr_lengths v4, v6;
};

_Static_assert(sizeof(struct netcidr) == 17, "a block is hashed as its bytes");

static struct slice addr_index_key(const struct netcidr *c)
{
	return (struct slice){(const char *)c, sizeof(*c)};
}

static bool addr_index_takes(const struct rule *r)
{
	return r->kind == RULE_CIDR || r->kind == RULE_ANY;
}

static bool addr_index_is_v4(const struct netcidr *c)
{
	return c->len >= ADDR_V4_PREFIX && netaddr_is_v4(&c->addr);
}

static void addr_lengths_make(struct addr_lengths *l, const bool used[ADDR_BITS + 1])
{
	for (int len = ADDR_BITS; len >= 0; len--)
		if (used[len])
			l->v[l->n++] = (uint8_t)len;
}

struct addr_index *addr_index_new(const struct rule *rules, size_t n)
{
	struct addr_index *ix = xcalloc(1, sizeof(*ix));
	bool used[2][ADDR_BITS + 1] = {0};
	size_t n_addrs = 0;

	for (size_t i = 0; i < n; i++)
		n_addrs += addr_index_takes(&rules[i]);
	ix->keys = key_table_new(n_addrs);
	ix->n_sets = 2 * n_addrs;
	ix->sets = rule_sets_new(ix->n_sets);
	for (size_t i = 0; i < n; i++) {
		const struct rule *r = &rules[i];
		uint32_t key;

		if (!addr_index_takes(r))
			continue;
		if (r->kind == RULE_CIDR)
			used[addr_index_is_v4(&r->cidr)][r->cidr.len] = true;
		key = key_table_put(
			ix->keys, r->kind == RULE_CIDR ? addr_index_key(&r->cidr) : SLICE_EMPTY);
		rule_set_add(&ix->sets[2 * key + !r->allow], r, (int32_t)i);
	}
	for (size_t i = 0; i < ix->n_sets; i++)
		rule_set_seal(&ix->sets[i]);
	ix->any = key_table_find(ix->keys, SLICE_EMPTY);
	addr_lengths_make(&ix->v6, used[0]);
	addr_lengths_make(&ix->v4, used[1]);
	return ix;
}

void addr_index_free(struct addr_index *ix)
{
	if (!ix)
		return;
	rule_sets_free(ix->sets, ix->n_sets);
	key_table_free(ix->keys);
	free(ix);
}

/* Lengths come longest first, so masking only ever clears more. */
static void addr_index_mask(struct netcidr *c, uint8_t len)
{
	size_t whole = len / 8;

	if (whole < sizeof(c->addr.b)) {
		c->addr.b[whole] &= (uint8_t)(0xff00 >> (len % 8));
		memset(c->addr.b + whole + 1, 0, sizeof(c->addr.b) - whole - 1);
	}
	c->len = len;
}

struct addr_hit addr_index_find(const struct addr_index *ix, const struct netaddr *a, uint16_t port)
{
	const struct addr_lengths *lengths = netaddr_is_v4(a) ? &ix->v4 : &ix->v6;
	struct addr_hit hit = {RULE_NONE, RULE_NONE, RULE_NONE};
	struct netcidr block = {*a, ADDR_BITS};

	if (ix->any != KEY_NONE) {
		hit.allow_any = rule_set_find(&ix->sets[2 * ix->any], port);
		hit.deny = rule_set_find(&ix->sets[2 * ix->any + 1], port);
	}
	for (size_t i = 0; i < lengths->n; i++) {
		uint32_t key;

		addr_index_mask(&block, lengths->v[i]);
		key = key_table_find(ix->keys, addr_index_key(&block));
		if (key == KEY_NONE)
			continue;
		hit.allow = rule_first(hit.allow, rule_set_find(&ix->sets[2 * key], port));
		hit.deny = rule_first(hit.deny, rule_set_find(&ix->sets[2 * key + 1], port));
	}
	return hit;
}
