/* Messages to and from the guard: whatever a worker sends, what is taken is in range, and a ruleset
 * that is whole has only entries that the kernel could be given. What is taken can be written
 * again.
 *
 * covers: nft/guard_msg.c
 *
 * The input is a sequence of packets: two bytes of length (low byte first), then the packet; the
 * top bit of the length says that it comes from the guard. */
#include "nft/guard_msg.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

static void entry_check(const struct ruleset_entry *e)
{
	REQUIRE(e->kind < RULESET_KIND_MAX);
	REQUIRE(netaddr_is_v4(&e->lo) == netaddr_is_v4(&e->hi));
	REQUIRE(memcmp(e->lo.b, e->hi.b, sizeof(e->lo.b)) <= 0);
	REQUIRE(e->port_lo <= e->port_hi);
}

static void msg_check(const union guard_any *m)
{
	if (m->head.type == GUARD_ALLOW) {
		for (uint32_t i = 0; i < m->allow.n; i++)
			REQUIRE(m->allow.lease[i].seconds > 0);
	} else if (m->head.type == GUARD_STATE) {
		for (int i = 0; i < GUARD_PART_MAX; i++) {
			REQUIRE(m->state.part[i].status < GUARD_STATUS_MAX);
			REQUIRE(guard_part_name((enum guard_part)i));
			REQUIRE(guard_part_text((enum guard_part)i));
		}
	} else if (m->head.type == GUARD_FLOW) {
		REQUIRE(m->flow.verdict < GUARD_FLOW_MAX);
	}
}

/* False after what ends the guard. */
static bool draft_step(struct guard_draft *d, const union guard_any *m)
{
	int ret = guard_draft_take(d, m);

	REQUIRE(ret <= 0);
	if (ret == 0) {
		REQUIRE(!d->open);
		for (size_t i = 0; i < d->ruleset.n; i++)
			entry_check(&d->ruleset.entry[i]);
	}
	return ret == 0 || ret == E_MORE;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	struct guard_draft d = {0};
	bool alive = true;

	while (alive && len >= 2) {
		const bool from_guard = p[1] & 0x80;
		size_t n = p[0] | (size_t)(p[1] & 0x7f) << 8;
		union {
			union guard_any m;
			uint8_t room[1 << 15];
		} in;

		p += 2;
		len -= 2;
		n = n < len ? n : len;
		memset(&in, 0, sizeof(in));
		memcpy(&in, p, n);
		p += n;
		len -= n;
		alive = guard_msg_valid(&in.m, n, from_guard);
		if (!alive)
			break;
		REQUIRE(guard_msg_size(in.m.head.type) == n);
		REQUIRE(!guard_msg_valid(&in.m, n, !from_guard));
		msg_check(&in.m);
		if (!from_guard && in.m.head.type != GUARD_ALLOW)
			alive = draft_step(&d, &in.m);
	}
	guard_draft_fini(&d);
	return 0;
}
