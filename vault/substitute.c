/* The pass over a text: the search finds placeholders, the binding says which of them count at that
 * place, the key goes to the sink in the spelling of the place.
 *
 * Placeholders of a binding are searched for together; which surface and slot each belongs to is
 * asked only where one stands. */
#include "vault/substitute.h"

#include "vault/path_guard.h"
#include "vault/substitute_int.h"

void substitute_put(struct substitute_job *job, struct slice piece)
{
	job->len += piece.len;
	if (job->sink && piece.len > 0)
		job->sink->put(job->sink->arg, piece);
}

bool substitute_has(const struct binding *b, enum surface s)
{
	return (b->surfaces & BIT(s)) != 0;
}

static bool substitute_slot_is(const struct place *p, struct slice name)
{
	switch (p->kind) {
	case PLACE_SURFACE:
		return true;
	case PLACE_HEADER:
		return slice_ieq(p->name, name);
	case PLACE_QUERY:
	case PLACE_FORM:
		return substitute_name_eq(name, p->name);
	case PLACE_JSON:
		return slice_eq(p->name, name);
	}
	return false;
}

struct substitute_job substitute_job_make(const struct binding *b, enum surface s,
	enum secret_form form, struct slice text, const struct substitute_sink *sink)
{
	return (struct substitute_job){
		.binding = b,
		.surface = s,
		.form = form,
		.text = text,
		.search = text,
		.slots = {.kind = PLACE_SURFACE},
		.sink = sink,
	};
}

/* Does this substitution count for text[at, end)? */
static bool substitute_counts(
	const struct substitute_job *job, const struct substitution *s, size_t at, size_t end)
{
	struct substitute_range range = {.from = 1, .to = 0};

	for (size_t i = 0; i < s->n_places; i++) {
		const struct place *p = &s->places[i];

		if (p->surface != job->surface)
			continue;
		if (p->kind == PLACE_SURFACE)
			return true;
		if (p->kind != job->slots.kind)
			continue;
		if (range.from > range.to)
			range = job->slots.next(job->slots.arg, at);
		if (range.from <= at && end <= range.to && substitute_slot_is(p, range.name))
			return true;
	}
	return false;
}

static size_t substitute_offset(const struct substitute_job *job, size_t at)
{
	return job->map ? job->map[at] : at;
}

/* The substitution that replaces what stands at `at`, the longest first; or NULL. */
static const struct substitution *substitute_pick(
	const struct substitute_job *job, size_t at, size_t which)
{
	const struct binding *b = job->binding;

	do {
		const struct pattern *p = pattern_set_get(b->patterns, which);

		if (substitute_counts(job, &b->substitutions[p->id], substitute_offset(job, at),
			    substitute_offset(job, at + p->text.len)))
			return &b->substitutions[p->id];
	} while (pattern_set_next(b->patterns, job->search, at, &which));
	return NULL;
}

size_t substitute_run(struct substitute_job *job)
{
	size_t n = 0;
	size_t done = 0;
	size_t at = 0;
	size_t which;

	if (!substitute_has(job->binding, job->surface)) {
		substitute_put(job, job->text);
		return 0;
	}
	while (pattern_set_find(job->binding->patterns, job->search, at, &at, &which)) {
		const struct substitution *s = substitute_pick(job, at, which);
		size_t from = substitute_offset(job, at);

		if (!s) {
			at++;
			continue;
		}
		substitute_put(job, slice_make(job->text.p + done, from - done));
		substitute_put(job, secret_form(s->use.credential->value, job->form));
		at += s->placeholder.len;
		done = substitute_offset(job, at);
		n++;
	}
	substitute_put(job, slice_from(job->text, done));
	return n;
}

/* The whole text is the value of one field or parameter. */
static struct substitute_range substitute_whole_next(void *arg, size_t at)
{
	const struct substitute_range *whole = arg;

	(void)at;
	return *whole;
}

static enum secret_form substitute_form_of(enum substitute_style style)
{
	switch (style) {
	case SUBSTITUTE_PERCENT:
		return SECRET_PERCENT;
	case SUBSTITUTE_FORM:
		return SECRET_FORM;
	case SUBSTITUTE_JSON:
		return SECRET_JSON;
	case SUBSTITUTE_RAW:
	case SUBSTITUTE_BASIC:
		break;
	}
	return SECRET_RAW;
}

static enum place_kind substitute_kind_of(enum surface s, enum substitute_style style)
{
	switch (s) {
	case SURFACE_HEADER:
		return PLACE_HEADER;
	case SURFACE_QUERY:
		return PLACE_QUERY;
	case SURFACE_BODY:
		return style == SUBSTITUTE_JSON ? PLACE_JSON : PLACE_FORM;
	case SURFACE_PATH:
	case SURFACE_MAX:
		break;
	}
	return PLACE_SURFACE;
}

/* One parameter too many: none of them belongs to another.
 * NOLINTNEXTLINE(readability-function-size) */
size_t substitute_text(const struct binding *b, enum surface s, struct slice slot,
	struct slice text, enum substitute_style style, const struct substitute_sink *sink,
	size_t *len)
{
	struct substitute_range whole = {.to = text.len, .name = slot};
	struct substitute_job job =
		substitute_job_make(b, s, substitute_form_of(style), text, sink);
	size_t n = 0;

	job.slots.kind = substitute_kind_of(s, style);
	job.slots.next = substitute_whole_next;
	job.slots.arg = &whole;
	if (s == SURFACE_HEADER && binding_field_is_fixed(slot))
		substitute_put(&job, text);
	else if (style != SUBSTITUTE_BASIC || !substitute_basic(&job, &n))
		n = substitute_run(&job);
	if (len)
		*len = job.len;
	return n;
}

bool substitute_name_eq(struct slice a, struct slice name)
{
	size_t n = 0;

	for (size_t i = 0; i < a.len; n++) {
		int high = a.p[i] == '%' && a.len - i > 2 ? ascii_hex(a.p[i + 1]) : -1;
		int low = high >= 0 ? ascii_hex(a.p[i + 2]) : -1;
		char c = low >= 0 ? (char)(high << 4 | low) : a.p[i] == '+' ? ' ' : a.p[i];

		if (n == name.len || name.p[n] != c)
			return false;
		i += low >= 0 ? 3 : 1;
	}
	return n == name.len;
}

static void substitute_pairs_read(struct substitute_pairs *pairs, size_t from)
{
	struct slice pair = slice_from(pairs->text, from);
	size_t name_len;

	pair = slice_first(pair, slice_find_char(pair, '&'));
	name_len = slice_find_char(pair, '=');
	pairs->from = from;
	pairs->to = from + pair.len;
	pairs->value = (struct substitute_range){.from = pairs->to, .to = pairs->to};
	if (name_len < pair.len) {
		pairs->value.from = from + name_len + 1;
		pairs->value.name = slice_first(pair, name_len);
	}
}

void substitute_pairs_init(struct substitute_pairs *pairs, struct slice text)
{
	pairs->text = text;
	substitute_pairs_read(pairs, 0);
}

struct substitute_range substitute_pairs_next(void *arg, size_t at)
{
	struct substitute_pairs *pairs = arg;

	while (at > pairs->to)
		substitute_pairs_read(pairs, pairs->to + 1);
	return pairs->value;
}

size_t substitute_query(const struct binding *b, struct slice query,
	const struct substitute_sink *sink, size_t *len)
{
	struct substitute_job job =
		substitute_job_make(b, SURFACE_QUERY, SECRET_PERCENT, query, sink);
	struct substitute_pairs pairs;
	size_t n;

	substitute_pairs_init(&pairs, query);
	job.slots = (struct substitute_slots){PLACE_QUERY, substitute_pairs_next, &pairs};
	n = substitute_run(&job);
	if (len)
		*len = job.len;
	return n;
}

/* Composes a text in memory of the view. */
struct substitute_copy {
	char *p;
	size_t len;
};

static void substitute_copy_put(void *arg, struct slice piece)
{
	struct substitute_copy *copy = arg;

	memcpy(copy->p + copy->len, piece.p, piece.len);
	copy->len += piece.len;
}

bool substitute_path_ok(const struct binding *b, struct slice path)
{
	struct substitute_copy copy = {NULL, 0};
	struct substitute_sink sink = {substitute_copy_put, &copy};
	size_t len;
	bool ok = false;

	if (substitute_text(b, SURFACE_PATH, SLICE_EMPTY, path, SUBSTITUTE_PERCENT, NULL, &len) ==
		0)
		return true;
	/* The text and room to decode it. Without memory the request is refused. */
	copy.p = secmem_alloc(b->mem, 2 * len + 1);
	if (!copy.p)
		return false;
	(void)substitute_text(b, SURFACE_PATH, SLICE_EMPTY, path, SUBSTITUTE_PERCENT, &sink, NULL);
	ok = path_guard_ok(
		slice_make(copy.p, copy.len), PATH_GUARD_STRICT, copy.p + copy.len, NULL);
	secmem_release(b->mem, copy.p);
	return ok;
}

/* Several bindings may share a placeholder. */
static bool substitute_owns_placeholder(
	const struct vault_view *view, const struct binding *b, const struct pattern *p)
{
	(void)view;
	for (size_t i = 0; i < b->n_substitutions; i++)
		if (slice_eq(b->substitutions[i].placeholder, p->text))
			return true;
	return false;
}

/* Another credential with the same value is the same key. */
static bool substitute_owns_key(
	const struct vault_view *view, const struct binding *b, const struct pattern *p)
{
	struct slice value = secret_form(view->credentials[p->id].value, SECRET_RAW);

	for (size_t i = 0; i < b->n_headers; i++)
		if (slice_eq(secret_form(b->headers[i].use.credential->value, SECRET_RAW), value))
			return true;
	for (size_t i = 0; i < b->n_substitutions; i++)
		if (slice_eq(secret_form(b->substitutions[i].use.credential->value, SECRET_RAW),
			    value))
			return true;
	return false;
}

struct substitute_owner {
	const struct vault_view *view;
	const struct binding *binding; /* NULL: owns nothing */
	bool (*owns)(
		const struct vault_view *view, const struct binding *b, const struct pattern *p);
};

/* The first pattern in the text that the owner does not own, or NULL. One that lies within what it
 * owns is no find: an own placeholder may begin with another's. */
static const struct pattern *substitute_find_foreign(
	const struct pattern_set *set, const struct substitute_owner *owner, struct slice text)
{
	size_t covered = 0;
	size_t at = 0;
	size_t which;

	for (; pattern_set_find(set, text, at, &at, &which); at++) {
		const struct pattern *foreign = NULL;

		do {
			const struct pattern *p = pattern_set_get(set, which);

			if (!owner->binding || !owner->owns(owner->view, owner->binding, p)) {
				if (!foreign)
					foreign = p; /* the longest comes first */
			} else if (covered < at + p->text.len) {
				covered = at + p->text.len;
			}
		} while (pattern_set_next(set, text, at, &which));
		if (foreign && at + foreign->text.len > covered)
			return foreign;
	}
	return NULL;
}

struct slice substitute_find_placeholder(
	const struct vault_view *view, const struct binding *own, struct slice text)
{
	const struct substitute_owner owner = {view, own, substitute_owns_placeholder};
	const struct pattern *p = substitute_find_foreign(view->placeholders, &owner, text);

	return p ? view->bindings[p->id].name : SLICE_EMPTY;
}

struct slice substitute_find_key(
	const struct vault_view *view, const struct binding *own, struct slice text)
{
	const struct substitute_owner owner = {view, own, substitute_owns_key};
	const struct pattern *p = substitute_find_foreign(view->keys, &owner, text);

	return p ? view->credentials[p->id].name : SLICE_EMPTY;
}
