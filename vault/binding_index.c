/* The index of bindings: names to lists of path patterns, each list in order.
 *
 * In an ordered list all patterns that are a prefix of a text stand on one chain: from the last
 * pattern that is not greater than the text, each to the longest other prefix of itself. So a
 * lookup is a binary search and a walk over what matches or nearly matches. */
#include "vault/binding_index.h"

#include <stdlib.h>

#include "policy/key_table.h"
#include "vault/path_guard.h"
#include "vault/vault_int.h"

#define INDEX_NONE UINT32_MAX

struct index_path {
	struct slice text; /* without the star */
	uint32_t binding;
	uint32_t parent; /* the nearest prefix pattern that this text begins with */
	bool prefix;
};

struct index_list {
	struct index_path *paths;
	size_t n;
};

struct binding_index {
	const struct binding *bindings;
	size_t n;
	size_t n_hosts;
	struct key_table *hosts;  /* without "*." */
	struct index_list *lists; /* two for each host: exact, below */
};

static struct slice index_host(struct slice written, bool *below)
{
	*below = slice_starts(written, SLICE("*."));
	return slice_from(written, *below ? 2 : 0);
}

static int index_text_compare(struct slice a, struct slice b)
{
	size_t n = a.len < b.len ? a.len : b.len;
	int diff = n > 0 ? memcmp(a.p, b.p, n) : 0;

	return diff != 0 ? diff : (a.len > b.len) - (a.len < b.len);
}

/* Of equal texts the prefix pattern is first: it covers the other. */
static int index_path_compare(const void *a, const void *b)
{
	const struct index_path *x = a;
	const struct index_path *y = b;
	int diff = index_text_compare(x->text, y->text);

	if (diff != 0)
		return diff;
	if (x->prefix != y->prefix)
		return x->prefix ? -1 : 1;
	return (x->binding > y->binding) - (x->binding < y->binding);
}

static void index_list_seal(struct index_list *list)
{
	uint32_t top = INDEX_NONE;

	qsort(list->paths, list->n, sizeof(*list->paths), index_path_compare);
	for (size_t i = 0; i < list->n; i++) {
		struct index_path *p = &list->paths[i];

		while (top != INDEX_NONE && !slice_starts(p->text, list->paths[top].text))
			top = list->paths[top].parent;
		p->parent = top;
		if (p->prefix)
			top = (uint32_t)i;
	}
}

static struct index_list *index_list_of(const struct binding_index *ix,
	uint32_t (*number)(struct key_table *, struct slice), struct slice written)
{
	bool below;
	struct slice name = index_host(written, &below);

	return &ix->lists[2 * number(ix->hosts, name) + below];
}

static void index_add(struct binding_index *ix, size_t binding)
{
	const struct binding *b = &ix->bindings[binding];

	for (size_t i = 0; i < b->hosts.n; i++) {
		struct index_list *list = index_list_of(ix, key_table_put, b->hosts.items[i]);

		for (size_t k = 0; k < b->paths.n; k++) {
			struct index_path *p = &list->paths[list->n++];

			p->text = binding_pattern(b->paths.items[k], &p->prefix);
			p->binding = (uint32_t)binding;
		}
	}
}

/* Gives every list its exact size. */
static void index_reserve(struct binding_index *ix)
{
	for (size_t i = 0; i < ix->n; i++)
		for (size_t k = 0; k < ix->bindings[i].hosts.n; k++)
			index_list_of(ix, key_table_put, ix->bindings[i].hosts.items[k])->n +=
				ix->bindings[i].paths.n;
	for (size_t i = 0; i < 2 * ix->n_hosts; i++) {
		struct index_list *list = &ix->lists[i];

		if (list->n > 0)
			list->paths = xcalloc(list->n, sizeof(*list->paths));
		list->n = 0;
	}
}

struct binding_index *binding_index_new(const struct binding *bindings, size_t n)
{
	struct binding_index *ix;
	size_t n_hosts = 0;
	size_t n_paths = 0;

	for (size_t i = 0; i < n; i++) {
		/* Neither factor is greater than the bytes of a document: no overflow. */
		n_paths += bindings[i].hosts.n * bindings[i].paths.n;
		n_hosts += bindings[i].hosts.n;
	}
	if (n_paths > BINDING_INDEX_MAX)
		return NULL;
	ix = xcalloc(1, sizeof(*ix));
	ix->bindings = bindings;
	ix->n = n;
	ix->n_hosts = n_hosts;
	ix->hosts = key_table_new(n_hosts);
	ix->lists = xcalloc(n_hosts ? 2 * n_hosts : 1, sizeof(*ix->lists));
	index_reserve(ix);
	for (size_t i = 0; i < n; i++)
		index_add(ix, i);
	for (size_t i = 0; i < 2 * n_hosts; i++)
		if (ix->lists[i].n > 0)
			index_list_seal(&ix->lists[i]);
	return ix;
}

void binding_index_free(struct binding_index *ix)
{
	if (!ix)
		return;
	for (size_t i = 0; i < 2 * ix->n_hosts; i++)
		free(ix->lists[i].paths);
	free(ix->lists);
	key_table_free(ix->hosts);
	free(ix);
}

bool binding_index_has_host(const struct binding_index *ix, struct slice host)
{
	struct key_suffixes s;

	key_table_find_suffixes(ix->hosts, host, &s);
	if (s.whole != KEY_NONE && ix->lists[2 * s.whole].n > 0)
		return true;
	for (size_t i = 0; i < s.n; i++)
		if (ix->lists[2 * s.below[i] + 1].n > 0)
			return true;
	return false;
}

/* How many texts of the list are less than text, or not greater if equal ones count. */
static size_t index_list_bound(const struct index_list *list, struct slice text, bool equal)
{
	size_t low = 0;
	size_t high = list->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (index_text_compare(list->paths[middle].text, text) < (equal ? 1 : 0))
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Calls each for every pattern that fits the path. */
static void index_list_each(const struct index_list *list, struct slice path,
	void (*each)(void *arg, uint32_t binding), void *arg)
{
	size_t end = index_list_bound(list, path, true);
	uint32_t i;

	for (size_t k = end; k > 0 && slice_eq(list->paths[k - 1].text, path); k--)
		if (!list->paths[k - 1].prefix)
			each(arg, list->paths[k - 1].binding);
	for (i = end > 0 ? (uint32_t)end - 1 : INDEX_NONE; i != INDEX_NONE;
		i = list->paths[i].parent)
		if (list->paths[i].prefix && slice_starts(path, list->paths[i].text))
			each(arg, list->paths[i].binding);
}

/* The bindings that match one form of a path. Writing refuses what would make two of a kind. */
struct index_found {
	const struct binding_index *ix;
	const struct binding_request *request;
	uint32_t one[2]; /* exact, below */
	bool several[2];
	bool below;
};

static void index_found_add(void *arg, uint32_t binding)
{
	struct index_found *f = arg;
	const struct binding *b = &f->ix->bindings[binding];

	if (!b->schemes[f->request->https] || !binding_has_method(b, f->request->method))
		return;
	if (f->one[f->below] == INDEX_NONE)
		f->one[f->below] = binding;
	else if (f->one[f->below] != binding)
		f->several[f->below] = true;
}

static struct index_found index_find(const struct binding_index *ix,
	const struct binding_request *r, const struct key_suffixes *s, struct slice path)
{
	struct index_found f = {.ix = ix, .request = r, .one = {INDEX_NONE, INDEX_NONE}};

	if (s->whole != KEY_NONE)
		index_list_each(&ix->lists[2 * s->whole], path, index_found_add, &f);
	f.below = true;
	for (size_t i = 0; i < s->n; i++)
		index_list_each(&ix->lists[2 * s->below[i] + 1], path, index_found_add, &f);
	return f;
}

struct index_same {
	const struct index_found *raw;
	const struct key_suffixes *suffixes;
};

static bool index_is_same(void *arg, struct slice decoded)
{
	const struct index_same *same = arg;
	const struct index_found *raw = same->raw;
	struct index_found f = index_find(raw->ix, raw->request, same->suffixes, decoded);

	return f.one[0] == raw->one[0] && f.one[1] == raw->one[1] && !f.several[0] && !f.several[1];
}

static bool index_path_is_safe(
	const struct index_found *f, const struct key_suffixes *s, const struct binding *b)
{
	struct slice path = f->request->path;
	struct index_same same = {f, s};
	const struct path_guard_same check = {index_is_same, &same};
	char *work = xmalloc(path.len + 1);
	bool ok = path_guard_ok(
		path, binding_has_any_path(b) ? PATH_GUARD_WIDE : PATH_GUARD_NARROW, work, &check);

	free(work);
	return ok;
}

enum binding_match binding_index_match(
	const struct binding_index *ix, const struct binding_request *r, const struct binding **out)
{
	struct key_suffixes s;
	struct index_found f;
	size_t kind;

	*out = NULL;
	if (r->port != (r->https ? 443 : 80))
		return BINDING_NONE;
	key_table_find_suffixes(ix->hosts, r->host, &s);
	f = index_find(ix, r, &s, r->path.len > 0 ? r->path : SLICE("/"));
	kind = f.one[0] != INDEX_NONE ? 0 : 1;
	if (f.one[kind] == INDEX_NONE)
		return BINDING_NONE;
	if (f.several[kind])
		return BINDING_AMBIGUOUS;
	if (!index_path_is_safe(&f, &s, &ix->bindings[f.one[kind]]))
		return BINDING_PATH;
	*out = &ix->bindings[f.one[kind]];
	return BINDING_ONE;
}

/* The least pair of bindings that overlap, as far as was looked. */
struct index_pair {
	const struct binding_index *ix;
	uint32_t self;
	uint32_t first, second;
};

static void index_pair_add(struct index_pair *pair, uint32_t other)
{
	uint32_t first = other < pair->self ? other : pair->self;
	uint32_t second = other < pair->self ? pair->self : other;

	if (other == pair->self || first > pair->first ||
		(first == pair->first && second >= pair->second))
		return;
	if (!binding_overlaps(&pair->ix->bindings[first], &pair->ix->bindings[second]))
		return;
	pair->first = first;
	pair->second = second;
}

/* Every pattern of the list that has a path in common with this one. */
static void index_list_overlaps(
	const struct index_list *list, struct slice written, struct index_pair *pair)
{
	bool prefix;
	struct slice text = binding_pattern(written, &prefix);
	size_t end = index_list_bound(list, text, true);
	uint32_t i;

	for (size_t k = end; k > 0 && slice_eq(list->paths[k - 1].text, text); k--)
		index_pair_add(pair, list->paths[k - 1].binding);
	for (i = end > 0 ? (uint32_t)end - 1 : INDEX_NONE; i != INDEX_NONE;
		i = list->paths[i].parent)
		if (list->paths[i].prefix && slice_starts(text, list->paths[i].text))
			index_pair_add(pair, list->paths[i].binding);
	for (size_t k = end; prefix && k < list->n; k++) {
		if (!slice_starts(list->paths[k].text, text))
			break;
		index_pair_add(pair, list->paths[k].binding);
	}
}

static void index_host_overlaps(
	const struct binding_index *ix, struct slice written, struct index_pair *pair)
{
	const struct text_list *paths = &ix->bindings[pair->self].paths;
	bool below;
	struct slice name = index_host(written, &below);
	struct key_suffixes s;

	key_table_find_suffixes(ix->hosts, name, &s);
	for (size_t i = 0; i < paths->n; i++) {
		index_list_overlaps(&ix->lists[2 * s.whole + below], paths->items[i], pair);
		for (size_t k = 0; below && k < s.n; k++)
			index_list_overlaps(&ix->lists[2 * s.below[k] + 1], paths->items[i], pair);
	}
}

bool binding_index_find_ambiguous(const struct binding_index *ix, size_t *first, size_t *second)
{
	struct index_pair pair = {.ix = ix, .first = INDEX_NONE, .second = INDEX_NONE};

	for (size_t i = 0; i < ix->n; i++) {
		pair.self = (uint32_t)i;
		for (size_t k = 0; k < ix->bindings[i].hosts.n; k++)
			index_host_overlaps(ix, ix->bindings[i].hosts.items[k], &pair);
	}
	*first = pair.first;
	*second = pair.second;
	return pair.first != INDEX_NONE;
}
