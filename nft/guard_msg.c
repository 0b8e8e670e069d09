/* What a message between worker and guard must look like, for both sides, and the assembly of a
 * ruleset from its chunks. Pure; fuzzed. Before it: the socket; after it: guard.c, guard_client.c.
 */
#include "nft/guard_msg.h"

/* What goes over the wire has no padding: bytes that nobody set would not be zero. */
_Static_assert(sizeof(struct ruleset_entry) == 44, "padding");
_Static_assert(sizeof(struct ruleset_options) == 32, "padding");
_Static_assert(sizeof(struct guard_lease) == 24, "padding");
_Static_assert(sizeof(struct guard_flow) == 60, "padding");

static const struct {
	size_t size;
	bool from_guard;
} guard_msgs[GUARD_TYPE_MAX] = {
	[GUARD_ALLOW] = {sizeof(struct guard_allow), false},
	[GUARD_BEGIN] = {sizeof(struct guard_begin), false},
	[GUARD_ENTRIES] = {sizeof(struct guard_entries), false},
	[GUARD_COMMIT] = {sizeof(struct guard_commit), false},
	[GUARD_DONE] = {sizeof(struct guard_done), true},
	[GUARD_STATE] = {sizeof(struct guard_state), true},
	[GUARD_FLOW] = {sizeof(struct guard_flow), true},
	[GUARD_BEAT] = {sizeof(struct guard_head), true},
};

size_t guard_msg_size(uint32_t type)
{
	return type < GUARD_TYPE_MAX ? guard_msgs[type].size : 0;
}

static bool guard_is_zero(const void *p, size_t len)
{
	const uint8_t *b = p;

	for (size_t i = 0; i < len; i++) {
		if (b[i] != 0)
			return false;
	}
	return true;
}

static bool guard_lease_valid(const struct guard_lease *l)
{
	return l->zero == 0 && l->seconds > 0 && l->seconds <= GUARD_LEASE_SECONDS_MAX &&
		(l->proto == 0 || l->proto == IPPROTO_TCP || l->proto == IPPROTO_UDP) &&
		(l->port > 0 || l->proto == 0);
}

static bool guard_allow_valid(const struct guard_allow *m)
{
	if (m->n == 0 || m->n > GUARD_LEASES_MAX)
		return false;
	for (uint32_t i = 0; i < m->n; i++) {
		if (!guard_lease_valid(&m->lease[i]))
			return false;
	}
	return guard_is_zero(m->lease + m->n, sizeof(m->lease) - m->n * sizeof(m->lease[0]));
}

static bool guard_entries_valid(const struct guard_entries *m)
{
	if (m->n == 0 || m->n > GUARD_CHUNK_MAX)
		return false;
	for (uint32_t i = 0; i < m->n; i++) {
		if (!ruleset_entry_valid(&m->entry[i]))
			return false;
	}
	return guard_is_zero(m->entry + m->n, sizeof(m->entry) - m->n * sizeof(m->entry[0]));
}

static bool guard_state_valid(const struct guard_state *m)
{
	for (size_t i = 0; i < GUARD_PART_MAX; i++) {
		if (m->part[i].status >= GUARD_STATUS_MAX || m->part[i].err > 0 ||
			!guard_is_zero(m->part[i].zero, sizeof(m->part[i].zero)))
			return false;
	}
	return true;
}

static bool guard_flow_valid(const struct guard_flow *m)
{
	return m->verdict < GUARD_FLOW_MAX && m->has_uid <= 1 && m->zero == 0 && m->count > 0;
}

bool guard_msg_valid(const union guard_any *m, size_t len, bool from_guard)
{
	const uint32_t type = len >= sizeof(m->head) ? m->head.type : 0;

	if (guard_msg_size(type) != len || len == 0 || guard_msgs[type].from_guard != from_guard)
		return false;
	switch ((enum guard_type)type) {
	case GUARD_ALLOW:
		return guard_allow_valid(&m->allow);
	case GUARD_BEGIN:
		return ruleset_options_valid(&m->begin.options);
	case GUARD_ENTRIES:
		return guard_entries_valid(&m->entries);
	case GUARD_COMMIT:
		return m->commit.n <= RULESET_ENTRIES_MAX;
	case GUARD_DONE:
		return m->done.err <= 0;
	case GUARD_STATE:
		return guard_state_valid(&m->state);
	case GUARD_FLOW:
		return guard_flow_valid(&m->flow);
	case GUARD_BEAT:
		return true;
	case GUARD_TYPE_MAX:
		break;
	}
	return false;
}

const char *guard_part_name(enum guard_part p)
{
	static const char *const names[GUARD_PART_MAX] = {
#define X(id, name, text) [GUARD_PART_##id] = (name),
		GUARD_PART_TABLE(X)
#undef X
	};

	return names[p];
}

const char *guard_part_text(enum guard_part p)
{
	static const char *const texts[GUARD_PART_MAX] = {
#define X(id, name, text) [GUARD_PART_##id] = (text),
		GUARD_PART_TABLE(X)
#undef X
	};

	return texts[p];
}

void guard_draft_fini(struct guard_draft *d)
{
	ruleset_fini(&d->ruleset);
	d->open = false;
}

static int guard_draft_add(struct guard_draft *d, const struct guard_entries *m)
{
	for (uint32_t i = 0; i < m->n; i++) {
		int ret = ruleset_add(&d->ruleset, &m->entry[i]);

		if (ret < 0)
			return ret;
	}
	return E_MORE;
}

int guard_draft_take(struct guard_draft *d, const union guard_any *m)
{
	if (m->head.type == GUARD_BEGIN) {
		if (d->open)
			return E_SYNTAX;
		ruleset_fini(&d->ruleset);
		ruleset_init(&d->ruleset, &m->begin.options);
		d->open = true;
		return E_MORE;
	}
	if (!d->open)
		return E_SYNTAX;
	if (m->head.type == GUARD_ENTRIES)
		return guard_draft_add(d, &m->entries);
	if (m->head.type != GUARD_COMMIT || m->commit.n != d->ruleset.n)
		return E_SYNTAX;
	d->open = false;
	return 0;
}
