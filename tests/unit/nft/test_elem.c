/* Elements as the kernel wants them: keys with padded fields, ranges as two elements or two keys,
 * leases with their time. */
#include <arpa/inet.h>
#include <endian.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/strbuf.h"
#include "nft/elem.h"

#define V4(a, b, c, d)                                               \
	{                                                            \
		{                                                    \
			[10] = 0xff, [11] = 0xff, (a), (b), (c), (d) \
		}                                                    \
	}
#define TEXT_MAX 65536

static void hex(struct strbuf *out, const struct nlattr *key)
{
	const struct nlattr *value = mnl_attr_get_payload(key);
	const uint8_t *p = mnl_attr_get_payload(value);

	for (size_t i = 0; i < mnl_attr_get_payload_len(value); i++)
		strbuf_printf(out, "%02x", p[i]);
}

static void elem_text(struct strbuf *out, const struct nlattr *elem)
{
	struct nlattr *a;

	strbuf_char(out, ' ');
	mnl_attr_for_each_nested(a, elem)
	{
		switch (mnl_attr_get_type(a)) {
		case NFTA_SET_ELEM_KEY:
			hex(out, a);
			break;
		case NFTA_SET_ELEM_KEY_END:
			strbuf_char(out, '-');
			hex(out, a);
			break;
		case NFTA_SET_ELEM_FLAGS:
			strbuf_printf(out, "|%u", ntohl(mnl_attr_get_u32(a)));
			break;
		case NFTA_SET_ELEM_TIMEOUT:
			strbuf_printf(
				out, "@%llu", (unsigned long long)be64toh(mnl_attr_get_u64(a)));
			break;
		default:
			fail_msg("attribute %u", mnl_attr_get_type(a));
		}
	}
}

/* "+set elem elem" for each message; '-' for those that delete. */
static const char *batch_text(const struct batch *b, struct strbuf *out)
{
	size_t at = 0;

	strbuf_clear(out);
	while (at < b->len) {
		const struct nlmsghdr *m = (const struct nlmsghdr *)(const void *)(b->p + at);
		const uint8_t type = m->nlmsg_type & 0xff;
		struct nlattr *a;
		struct nlattr *e;

		at += NLMSG_ALIGN(m->nlmsg_len);
		if (m->nlmsg_type == NFNL_MSG_BATCH_BEGIN)
			continue;
		strbuf_char(out, type == NFT_MSG_NEWSETELEM ? '+' : '-');
		mnl_attr_for_each(a, m, sizeof(struct nfgenmsg))
		{
			if (mnl_attr_get_type(a) == NFTA_SET_ELEM_LIST_SET)
				strbuf_str(out, mnl_attr_get_str(a));
			if (mnl_attr_get_type(a) != NFTA_SET_ELEM_LIST_ELEMENTS)
				continue;
			mnl_attr_for_each_nested(e, a) elem_text(out, e);
		}
		strbuf_char(out, '\n');
	}
	return strbuf_cstr(out);
}

static void expect(const struct elem_set *s, const struct ruleset_entry *e, size_t n,
	enum ruleset_kind kind, const char *should)
{
	struct strbuf text;
	struct batch b;

	strbuf_init(&text, TEXT_MAX);
	batch_init(&b);
	elem_add(&b, s, e, n, kind);
	assert_string_equal(batch_text(&b, &text), should);
	batch_fini(&b);
	strbuf_fini(&text);
}

static void test_keys_and_ranges(void **state)
{
	const struct elem_set v4 = {.name = "s", .shape = ELEM_ADDR, .interval = true};
	const struct elem_set v6 = {.name = "s", .shape = ELEM_ADDR, .v6 = true, .interval = true};
	const struct elem_set ports = {.name = "s", .shape = ELEM_ADDR_PORTS, .interval = true};
	const struct elem_set pair = {.name = "s", .shape = ELEM_ADDR_PORT};
	const struct elem_set service = {.name = "s", .shape = ELEM_PORT, .interval = true};
	const struct ruleset_entry rows[] = {
		{V4(10, 0, 0, 0), V4(10, 255, 255, 255), RULESET_ALLOW, 0, 0, 65535, 0, 0},
		{V4(240, 0, 0, 0), V4(255, 255, 255, 255), RULESET_ALLOW, 0, 0, 65535, 0, 0},
		{{{0x20, 1}}, {{0x20, 1, [15] = 5}}, RULESET_ALLOW, 0, 0, 65535, 0, 0},
		{V4(10, 0, 0, 1), V4(10, 0, 0, 9), RULESET_ALLOW, IPPROTO_TCP, 80, 81, 0, 0},
		{V4(10, 0, 0, 1), V4(10, 0, 0, 1), RULESET_DENY, 0, 22, 22, 0, 0},
		{V4(1, 1, 1, 1), V4(1, 1, 1, 1), RULESET_RESOLVER, 0, 53, 53, 0, 0},
		{{{0}}, {{0}}, RULESET_INSPECT, 0, 80, 80, 0, 0},
		{{{0}}, {{0}}, RULESET_INSPECT, 0, 65535, 65535, 0, 0},
	};
	const size_t n = ARRAY_LEN(rows);

	expect(&v4, rows, n, RULESET_ALLOW, "+s 0a000000 0b000000|1 f0000000\n");
	expect(&v6, rows, n, RULESET_ALLOW,
		"+s 20010000000000000000000000000000 20010000000000000000000000000006|1\n");
	expect(&ports, rows, n, RULESET_ALLOW,
		"+s 0a0000010600000000500000-0a0000090600000000510000\n");
	/* A deny of ports is about every protocol that has any. */
	expect(&ports, rows, n, RULESET_DENY,
		"+s 0a0000010600000000160000-0a0000011100000000160000\n");
	expect(&pair, rows, n, RULESET_RESOLVER, "+s 0101010100350000\n");
	expect(&service, rows, n, RULESET_INSPECT, "+s 0050 0051|1 ffff\n");
	expect(&v4, rows, n, RULESET_DOH, "");
}

static void test_a_lease_is_added_removed_and_added(void **state)
{
	const struct elem_set every = {.name = "a", .shape = ELEM_ADDR, .timeout = true, .id = 3};
	const struct elem_set ports = {
		.name = "p", .shape = ELEM_ADDR_PORTS, .v6 = true, .timeout = true};
	const struct ruleset_entry rows[] = {
		{V4(10, 0, 0, 1), V4(10, 0, 0, 1), RULESET_LEASE, 0, 0, 0, 0, 70},
		{{{0x20, 1}}, {{0x20, 1}}, RULESET_LEASE, 0, 443, 443, 0, 60},
		{{{0x20, 1}}, {{0x20, 1}}, RULESET_LEASE, IPPROTO_UDP, 443, 443, 0, 60},
	};
	struct strbuf text;
	struct batch b;

	strbuf_init(&text, TEXT_MAX);
	batch_init(&b);
	elem_renew(&b, &every, rows, ARRAY_LEN(rows));
	assert_string_equal(
		batch_text(&b, &text), "+a 0a000001@70000\n-a 0a000001@70000\n+a 0a000001@70000\n");
	batch_clear(&b);
	elem_renew(&b, &ports, rows, ARRAY_LEN(rows));
#define KEY(proto) " 20010000000000000000000000000000" proto "00000001bb0000@60000"
	assert_string_equal(batch_text(&b, &text),
		"+p" KEY("06") KEY("11") KEY("11") "\n-p" KEY("06") KEY("11")
			KEY("11") "\n+p" KEY("06") KEY("11") KEY("11") "\n");
	batch_fini(&b);
	strbuf_fini(&text);
}

static void test_many_elements_are_several_messages(void **state)
{
	static struct ruleset_entry rows[4096];
	const struct elem_set ports = {
		.name = "s", .shape = ELEM_ADDR_PORTS, .v6 = true, .interval = true};
	struct batch b;
	size_t at = 0;
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		rows[i] = (struct ruleset_entry){
			.lo = {{0x20, 1, [14] = (uint8_t)(i >> 8), (uint8_t)i}},
			.hi = {{0x20, 1, [14] = (uint8_t)(i >> 8), (uint8_t)i}},
			.kind = RULESET_ALLOW,
			.proto = IPPROTO_TCP,
			.port_lo = 443,
			.port_hi = 443};
	batch_init(&b);
	elem_add(&b, &ports, rows, ARRAY_LEN(rows), RULESET_ALLOW);
	assert_false(b.full);
	while (at < b.len) {
		const struct nlmsghdr *m = (const struct nlmsghdr *)(const void *)(b.p + at);
		struct nlattr *a;
		struct nlattr *e;

		assert_true(m->nlmsg_len < NETLINK_MSG_MAX);
		at += NLMSG_ALIGN(m->nlmsg_len);
		mnl_attr_for_each(a, m, sizeof(struct nfgenmsg))
		{
			if (m->nlmsg_type == NFNL_MSG_BATCH_BEGIN ||
				mnl_attr_get_type(a) != NFTA_SET_ELEM_LIST_ELEMENTS)
				continue;
			mnl_attr_for_each_nested(e, a) n++;
		}
	}
	assert_int_equal(n, ARRAY_LEN(rows));
	assert_true(b.n > 1);
	batch_fini(&b);
}

static void test_a_batch_has_a_ceiling(void **state)
{
	static struct ruleset_entry rows[65536];
	const struct elem_set s = {.name = "s", .shape = ELEM_ADDR, .interval = true};
	struct batch b;

	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		rows[i] = (struct ruleset_entry){.lo = V4(10, 0, (uint8_t)(i >> 8), (uint8_t)i),
			.hi = V4(10, 0, (uint8_t)(i >> 8), (uint8_t)i),
			.kind = RULESET_ALLOW,
			.port_hi = UINT16_MAX};
	batch_init(&b);
	for (int i = 0; i < 8 && !b.full; i++)
		elem_add(&b, &s, rows, ARRAY_LEN(rows), RULESET_ALLOW);
	assert_true(b.full);
	assert_true(b.len <= BATCH_MAX);
	batch_clear(&b);
	assert_false(b.full);
	batch_fini(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_keys_and_ranges),
		cmocka_unit_test(test_a_lease_is_added_removed_and_added),
		cmocka_unit_test(test_many_elements_are_several_messages),
		cmocka_unit_test(test_a_batch_has_a_ceiling),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
