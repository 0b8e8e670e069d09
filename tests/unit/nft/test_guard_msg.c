/* Messages between worker and guard: what is taken and what ends the guard, at each limit and one
 * past it, and rulesets put together from chunks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "nft/guard_msg.h"

#define ADDR                                                  \
	{                                                     \
		{                                             \
			[10] = 0xff, [11] = 0xff, 10, 0, 0, 1 \
		}                                             \
	}

static const struct netaddr addr = ADDR;
static const struct ruleset_options options = {
	.uid = 10042, .api_port = 18080, .web_port = 18081, .dns_port = 15353, .enforce = 1};

static union guard_any msg_allow(uint32_t n)
{
	union guard_any m;

	memset(&m, 0, sizeof(m));
	m.allow.head.type = GUARD_ALLOW;
	m.allow.n = n;
	for (uint32_t i = 0; i < n && i < GUARD_LEASES_MAX; i++)
		m.allow.lease[i] = (struct guard_lease){.addr = addr, .seconds = 60};
	return m;
}

static union guard_any msg_begin(void)
{
	union guard_any m;

	memset(&m, 0, sizeof(m));
	m.begin.head.type = GUARD_BEGIN;
	m.begin.options = options;
	return m;
}

static union guard_any msg_entries(uint32_t n)
{
	union guard_any m;

	memset(&m, 0, sizeof(m));
	m.entries.head.type = GUARD_ENTRIES;
	m.entries.n = n;
	for (uint32_t i = 0; i < n && i < GUARD_CHUNK_MAX; i++)
		m.entries.entry[i] = (struct ruleset_entry){
			.lo = addr, .hi = addr, .kind = RULESET_ALLOW, .port_hi = UINT16_MAX};
	return m;
}

static union guard_any msg_commit(uint32_t n)
{
	union guard_any m;

	memset(&m, 0, sizeof(m));
	m.commit.head.type = GUARD_COMMIT;
	m.commit.n = n;
	return m;
}

static void test_sizes_are_those_of_the_python_bed(void **state)
{
	static const size_t sizes[GUARD_TYPE_MAX] = {
		[GUARD_ALLOW] = 1548,
		[GUARD_BEGIN] = 40,
		[GUARD_ENTRIES] = 5644,
		[GUARD_COMMIT] = 12,
		[GUARD_DONE] = 12,
		[GUARD_STATE] = 108,
		[GUARD_FLOW] = 60,
		[GUARD_BEAT] = 8,
	};

	for (uint32_t i = 0; i < GUARD_TYPE_MAX + 2; i++)
		assert_int_equal(guard_msg_size(i), i < GUARD_TYPE_MAX ? sizes[i] : 0);
}

static void test_only_the_exact_size_and_direction_is_taken(void **state)
{
	for (uint32_t type = 0; type < GUARD_TYPE_MAX + 2; type++) {
		for (size_t len = 0; len <= sizeof(union guard_any) + 1; len++) {
			union guard_any m = type == GUARD_ALLOW ? msg_allow(1)
				: type == GUARD_BEGIN           ? msg_begin()
				: type == GUARD_ENTRIES         ? msg_entries(1)
								: msg_commit(0);
			const bool exact = len > 0 && len == guard_msg_size(type);
			const bool from_guard = type >= GUARD_DONE;

			m.head.type = type;
			if (type == GUARD_FLOW)
				m.flow.count = 1;
			assert_int_equal(guard_msg_valid(&m, len, from_guard), exact);
			assert_false(guard_msg_valid(&m, len, !from_guard));
		}
	}
}

static void test_leases_at_their_limits(void **state)
{
	static const struct {
		uint32_t n;
		struct guard_lease first;
		bool good;
	} rows[] = {
		{0, {ADDR, 0, 0, 0, 60}, false},
		{1, {ADDR, 0, 0, 0, 60}, true},
		{GUARD_LEASES_MAX, {ADDR, 0, 0, 0, 60}, true},
		{GUARD_LEASES_MAX + 1, {ADDR, 0, 0, 0, 60}, false},
		{1, {ADDR, 0, 0, 0, 0}, false},
		{1, {ADDR, 0, 0, 0, 1}, true},
		{1, {ADDR, 0, 0, 0, GUARD_LEASE_SECONDS_MAX}, true},
		{1, {ADDR, 0, 0, 0, GUARD_LEASE_SECONDS_MAX + 1}, false},
		{1, {ADDR, IPPROTO_TCP, 0, 443, 60}, true},
		{1, {ADDR, IPPROTO_UDP, 0, 443, 60}, true},
		{1, {ADDR, IPPROTO_ICMP, 0, 443, 60}, false},
		{1, {ADDR, IPPROTO_TCP, 0, 0, 60}, false},
		{1, {ADDR, 0, 0, 443, 60}, true},
		{1, {ADDR, 0, 1, 0, 60}, false},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		union guard_any m = msg_allow(rows[i].n);

		m.allow.lease[0] = rows[i].first;
		assert_int_equal(guard_msg_valid(&m, sizeof(m.allow), false), rows[i].good);
	}
}

/* What lies behind the message could be read as one more. */
static void test_a_count_past_the_message_is_refused(void **state)
{
	union guard_any m = msg_allow(GUARD_LEASES_MAX + 1);

	memcpy((uint8_t *)&m + sizeof(m.allow), &m.allow.lease[0], sizeof(m.allow.lease[0]));
	assert_false(guard_msg_valid(&m, sizeof(m.allow), false));
}

static void test_what_lies_behind_the_count_is_zero(void **state)
{
	union guard_any m = msg_allow(3);

	m.allow.lease[3].addr.b[5] = 1;
	assert_false(guard_msg_valid(&m, sizeof(m.allow), false));
	m = msg_allow(3);
	m.allow.lease[GUARD_LEASES_MAX - 1].seconds = 1;
	assert_false(guard_msg_valid(&m, sizeof(m.allow), false));
	m = msg_entries(1);
	m.entries.entry[GUARD_CHUNK_MAX - 1].seconds = 1;
	assert_false(guard_msg_valid(&m, sizeof(m.entries), false));
}

static void test_entries_at_their_limits(void **state)
{
	static const uint32_t counts[] = {0, 1, GUARD_CHUNK_MAX, GUARD_CHUNK_MAX + 1, UINT32_MAX};
	static const bool good[] = {false, true, true, false, false};
	union guard_any m;

	for (size_t i = 0; i < ARRAY_LEN(counts); i++) {
		m = msg_entries(counts[i]);
		assert_int_equal(guard_msg_valid(&m, sizeof(m.entries), false), good[i]);
	}
	m = msg_entries(GUARD_CHUNK_MAX);
	m.entries.entry[GUARD_CHUNK_MAX - 1].kind = RULESET_KIND_MAX;
	assert_false(guard_msg_valid(&m, sizeof(m.entries), false));
	m = msg_commit(RULESET_ENTRIES_MAX);
	assert_true(guard_msg_valid(&m, sizeof(m.commit), false));
	m = msg_commit(RULESET_ENTRIES_MAX + 1);
	assert_false(guard_msg_valid(&m, sizeof(m.commit), false));
	m = msg_begin();
	m.begin.options.uid = 0;
	assert_false(guard_msg_valid(&m, sizeof(m.begin), false));
}

static void test_answers_of_the_guard_are_checked_too(void **state)
{
	union guard_any m;

	memset(&m, 0, sizeof(m));
	m.head.type = GUARD_DONE;
	m.done.err = 1;
	assert_false(guard_msg_valid(&m, sizeof(m.done), true));
	m.done.err = -1;
	assert_true(guard_msg_valid(&m, sizeof(m.done), true));

	memset(&m, 0, sizeof(m));
	m.head.type = GUARD_STATE;
	assert_true(guard_msg_valid(&m, sizeof(m.state), true));
	m.state.part[GUARD_PART_QUEUES].status = GUARD_STATUS_MAX;
	assert_false(guard_msg_valid(&m, sizeof(m.state), true));
	m.state.part[GUARD_PART_QUEUES].status = GUARD_LOST;
	m.state.part[GUARD_PART_QUEUES].err = 1;
	assert_false(guard_msg_valid(&m, sizeof(m.state), true));
	m.state.part[GUARD_PART_QUEUES].err = -1;
	m.state.part[0].zero[2] = 1;
	assert_false(guard_msg_valid(&m, sizeof(m.state), true));

	memset(&m, 0, sizeof(m));
	m.head.type = GUARD_FLOW;
	assert_false(guard_msg_valid(&m, sizeof(m.flow), true));
	m.flow.count = 1;
	assert_true(guard_msg_valid(&m, sizeof(m.flow), true));
	m.flow.verdict = GUARD_FLOW_MAX;
	assert_false(guard_msg_valid(&m, sizeof(m.flow), true));
	m.flow.verdict = 0;
	m.flow.has_uid = 2;
	assert_false(guard_msg_valid(&m, sizeof(m.flow), true));
}

static void test_a_ruleset_is_put_together_from_chunks(void **state)
{
	struct guard_draft d = {0};
	union guard_any begin = msg_begin();
	union guard_any full = msg_entries(GUARD_CHUNK_MAX);
	union guard_any rest = msg_entries(3);
	union guard_any commit = msg_commit(GUARD_CHUNK_MAX + 3);

	for (int round = 0; round < 2; round++) {
		assert_int_equal(guard_draft_take(&d, &begin), E_MORE);
		assert_int_equal(guard_draft_take(&d, &full), E_MORE);
		assert_int_equal(guard_draft_take(&d, &rest), E_MORE);
		assert_int_equal(guard_draft_take(&d, &commit), 0);
		assert_int_equal(d.ruleset.n, GUARD_CHUNK_MAX + 3);
		assert_int_equal(d.ruleset.options.uid, 10042);
	}
	guard_draft_fini(&d);
}

static void test_messages_out_of_order_are_an_error(void **state)
{
	struct guard_draft d = {0};
	union guard_any begin = msg_begin();
	union guard_any part = msg_entries(2);
	union guard_any wrong = msg_commit(3);
	union guard_any right = msg_commit(2);

	assert_int_equal(guard_draft_take(&d, &part), E_SYNTAX);
	assert_int_equal(guard_draft_take(&d, &right), E_SYNTAX);
	assert_int_equal(guard_draft_take(&d, &begin), E_MORE);
	assert_int_equal(guard_draft_take(&d, &begin), E_SYNTAX);
	assert_int_equal(guard_draft_take(&d, &part), E_MORE);
	assert_int_equal(guard_draft_take(&d, &wrong), E_SYNTAX);
	assert_int_equal(guard_draft_take(&d, &right), 0);
	assert_int_equal(guard_draft_take(&d, &right), E_SYNTAX);
	guard_draft_fini(&d);
}

static void test_a_draft_has_a_ceiling(void **state)
{
	struct guard_draft d = {0};
	union guard_any begin = msg_begin();
	union guard_any full = msg_entries(GUARD_CHUNK_MAX);
	union guard_any one = msg_entries(1);

	assert_int_equal(guard_draft_take(&d, &begin), E_MORE);
	for (size_t i = 0; i < RULESET_ENTRIES_MAX / GUARD_CHUNK_MAX; i++)
		assert_int_equal(guard_draft_take(&d, &full), E_MORE);
	assert_int_equal(guard_draft_take(&d, &one), E_LIMIT);
	guard_draft_fini(&d);
}

static void test_every_part_has_a_name(void **state)
{
	for (int p = 0; p < GUARD_PART_MAX; p++) {
		assert_non_null(guard_part_name((enum guard_part)p));
		assert_non_null(guard_part_text((enum guard_part)p));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sizes_are_those_of_the_python_bed),
		cmocka_unit_test(test_only_the_exact_size_and_direction_is_taken),
		cmocka_unit_test(test_leases_at_their_limits),
		cmocka_unit_test(test_a_count_past_the_message_is_refused),
		cmocka_unit_test(test_what_lies_behind_the_count_is_zero),
		cmocka_unit_test(test_entries_at_their_limits),
		cmocka_unit_test(test_answers_of_the_guard_are_checked_too),
		cmocka_unit_test(test_a_ruleset_is_put_together_from_chunks),
		cmocka_unit_test(test_messages_out_of_order_are_an_error),
		cmocka_unit_test(test_a_draft_has_a_ceiling),
		cmocka_unit_test(test_every_part_has_a_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
