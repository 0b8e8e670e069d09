/* Every rule of every kind of ruleset, as the messages say it, against a text that was read by
 * people and attacked in namespaces (tests/netns). A changed rule shows here first.
 *
 * After a change on purpose: run with the name of a new file as argument, read the difference. */
#include <arpa/inet.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#include <libnftnl/rule.h>

#include "base/strbuf.h"
#include "nft/tables.h"

#define TEXT_MAX (1u << 20)
#define V4(a, b, c, d)                                               \
	{                                                            \
		{                                                    \
			[10] = 0xff, [11] = 0xff, (a), (b), (c), (d) \
		}                                                    \
	}
#define ONE(...) __VA_ARGS__, __VA_ARGS__

static const struct ruleset_entry full[] = {
	{ONE(V4(169, 254, 169, 254)), RULESET_DENY, 0, 0, 65535, 0, 0},
	{ONE({{0xfe, 0x80}}), RULESET_DENY, 0, 0, 65535, 0, 0},
	{ONE(V4(10, 0, 0, 9)), RULESET_DENY, 0, 22, 22, 0, 0},
	{ONE({{0x20, 0x01}}), RULESET_DENY, 0, 22, 22, 0, 0},
	{ONE(V4(1, 1, 1, 1)), RULESET_RESOLVER, 0, 53, 53, 0, 0},
	{ONE({{0x20, 0x02}}), RULESET_RESOLVER, 0, 53, 53, 0, 0},
	{ONE(V4(8, 8, 8, 8)), RULESET_EXEMPT, 0, 0, 65535, 0, 0},
	{ONE({{0x20, 0x03}}), RULESET_EXEMPT, 0, 0, 65535, 0, 0},
	{ONE(V4(9, 9, 9, 9)), RULESET_DOH, 0, 0, 65535, 0, 0},
	{ONE({{0x20, 0x04}}), RULESET_DOH, 0, 0, 65535, 0, 0},
	{ONE({{0}}), RULESET_INSPECT, 0, 80, 80, 0, 0},
	{ONE({{0}}), RULESET_INBOUND, 0, 8080, 8080, 0, 0},
	{ONE(V4(100, 64, 0, 1)), RULESET_SPECIAL, 0, 0, 65535, 0, 0},
	{ONE({{0xfe, 0xc0}}), RULESET_SPECIAL, 0, 0, 65535, 0, 0},
};

#define PORTS .uid = 10042, .api_port = 18080, .web_port = 18081, .dns_port = 15353
#define BASE PORTS, .enforce = 1, .redirect_dns = 1

static const struct {
	const char *name;
	struct ruleset_options o;
	bool with_lists;
	uint32_t without; /* bits of parts that the kernel has not got */
} variants[] = {
	{"everything",
		{BASE, .cgroup_id = 77, .redirect_web = 1, .doh_block = 1, .log = 1,
			.accept_rest = 1},
		true, 0},
	{"read-only", {BASE, .cgroup_id = 77, .redirect_web = 1, .read_only = 1, .inbound_all = 1},
		false, 0},
	{"plain, uid alone, DoH to all", {BASE, .doh_block = 1, .inbound_all = 1}, false, 0},
	{"mode dns", {PORTS, .redirect_dns = 1}, true, 0},
	{"a kernel that lacks what it may",
		{BASE, .cgroup_id = 77, .redirect_web = 1, .inbound_all = 1, .log = 1}, false,
		BIT(GUARD_PART_PASS) | BIT(GUARD_PART_SOURCES) | BIT(GUARD_PART_HEADERS) |
			BIT(GUARD_PART_UNTRACK) | BIT(GUARD_PART_TIMEOUTS) |
			BIT(GUARD_PART_LISTENERS) | BIT(GUARD_PART_LOG)},
};

static struct tables tables_of(struct batch *b, struct ruleset *r, size_t variant)
{
	struct tables t = {.batch = b,
		.ruleset = r,
		.marks = {.revision = 0x11111111, .service = 0x22222222, .own = 0x33333333}};

	ruleset_init(r, &variants[variant].o);
	for (size_t i = 0; variants[variant].with_lists && i < ARRAY_LEN(full); i++) {
		assert_true(ruleset_entry_valid(&full[i]));
		assert_int_equal(ruleset_add(r, &full[i]), 0);
	}
	for (int p = 0; p < GUARD_PART_MAX; p++)
		t.without[p] = (variants[variant].without & BIT(p)) != 0;
	return t;
}

static const char *attr_text(const struct nlmsghdr *m, uint16_t type)
{
	struct nlattr *a;

	mnl_attr_for_each(a, m, sizeof(struct nfgenmsg))
	{
		if (mnl_attr_get_type(a) == type)
			return mnl_attr_get_str(a);
	}
	return "?";
}

static void rule_print(const struct nlmsghdr *m, struct strbuf *out)
{
	struct nftnl_rule *r = nftnl_rule_alloc();
	char text[8192];
	char *p;

	assert_int_equal(nftnl_rule_nlmsg_parse(m, r), 0);
	strbuf_printf(out, "rule %s:", nftnl_rule_get_str(r, NFTNL_RULE_CHAIN));
	assert_true(nftnl_rule_snprintf(text, sizeof(text), r, NFTNL_OUTPUT_DEFAULT, 0) > 0);
	/* The head (family, table, chain) ends with the first bracket. */
	for (p = strchr(text, '['); p && *p; p++)
		strbuf_char(out, *p == '\n' ? ' ' : *p);
	strbuf_char(out, '\n');
	nftnl_rule_free(r);
}

static void chain_print(const struct nlmsghdr *m, struct strbuf *out)
{
	struct nlattr *a;
	struct nlattr *h;

	strbuf_printf(out, "chain %s", attr_text(m, NFTA_CHAIN_NAME));
	mnl_attr_for_each(a, m, sizeof(struct nfgenmsg))
	{
		if (mnl_attr_get_type(a) == NFTA_CHAIN_POLICY)
			strbuf_printf(out, " policy %u", ntohl(mnl_attr_get_u32(a)));
		if (mnl_attr_get_type(a) != NFTA_CHAIN_HOOK)
			continue;
		mnl_attr_for_each_nested(h, a)
		{
			if (mnl_attr_get_type(h) == NFTA_HOOK_HOOKNUM)
				strbuf_printf(out, " hook %u", ntohl(mnl_attr_get_u32(h)));
			if (mnl_attr_get_type(h) == NFTA_HOOK_PRIORITY)
				strbuf_printf(out, " priority %d", (int)ntohl(mnl_attr_get_u32(h)));
			if (mnl_attr_get_type(h) == NFTA_HOOK_DEVS)
				strbuf_printf(out, " devices %u", mnl_attr_get_payload_len(h));
		}
	}
	strbuf_char(out, '\n');
}

static void message_print(const struct nlmsghdr *m, struct strbuf *out)
{
	switch (m->nlmsg_type & 0xff) {
	case NFT_MSG_NEWTABLE:
		strbuf_printf(out, "table %s\n", attr_text(m, NFTA_TABLE_NAME));
		break;
	case NFT_MSG_DELTABLE:
		strbuf_printf(out, "delete table %s\n", attr_text(m, NFTA_TABLE_NAME));
		break;
	case NFT_MSG_NEWCHAIN:
		chain_print(m, out);
		break;
	case NFT_MSG_NEWRULE:
		rule_print(m, out);
		break;
	case NFT_MSG_DELRULE:
		strbuf_printf(out, "delete rules %s\n", attr_text(m, NFTA_RULE_TABLE));
		break;
	case NFT_MSG_NEWSET:
		strbuf_printf(out, "set %s\n", attr_text(m, NFTA_SET_NAME));
		break;
	case NFT_MSG_DELSET:
		strbuf_printf(out, "delete set %s\n", attr_text(m, NFTA_SET_NAME));
		break;
	case NFT_MSG_NEWSETELEM:
		strbuf_printf(out, "elements %s\n", attr_text(m, NFTA_SET_ELEM_LIST_SET));
		break;
	case NFT_MSG_DELSETELEM:
		strbuf_printf(out, "delete elements %s\n", attr_text(m, NFTA_SET_ELEM_LIST_SET));
		break;
	case NFT_MSG_NEWOBJ:
		strbuf_printf(out, "object %s\n", attr_text(m, NFTA_OBJ_NAME));
		break;
	default:
		fail_msg("message %u", m->nlmsg_type);
	}
}

static void batch_print(const struct batch *b, struct strbuf *out)
{
	size_t at = 0;

	while (at < b->len) {
		const struct nlmsghdr *m = (const struct nlmsghdr *)(const void *)(b->p + at);

		if (m->nlmsg_type != NFNL_MSG_BATCH_BEGIN)
			message_print(m, out);
		at += NLMSG_ALIGN(m->nlmsg_len);
	}
}

static void all_print(struct strbuf *out)
{
	static const char *const names[] = {"lo", "eth0"};
	const struct tables none = {0};
	struct batch b;

	batch_init(&b);
	for (size_t i = 0; i < ARRAY_LEN(variants); i++) {
		struct ruleset r;
		struct tables t = tables_of(&b, &r, i);

		batch_clear(&b);
		tables_build(&t, &none);
		strbuf_printf(out, "== %s\n", variants[i].name);
		batch_print(&b, out);
		ruleset_fini(&r);
	}
	for (size_t i = 0; i < 2; i++) {
		batch_clear(&b);
		tables_build_raw(&b, i ? names : NULL, i ? ARRAY_LEN(names) : 0);
		strbuf_printf(out, "== raw guard%s\n", i ? ", devices by name" : "");
		batch_print(&b, out);
	}
	batch_fini(&b);
}

static void test_rules_are_those_that_were_attacked(void **state)
{
	struct strbuf is;
	struct strbuf should;
	struct slice a;
	struct slice b;

	strbuf_init(&is, TEXT_MAX);
	strbuf_init(&should, TEXT_MAX);
	all_print(&is);
	assert_int_equal(strbuf_read_file(&should, TABLES_TEXT), 0);
	a = strbuf_slice(&is);
	b = strbuf_slice(&should);
	while (a.p || b.p) {
		struct slice x = a.p ? slice_cut(&a, '\n') : SLICE_EMPTY;
		struct slice y = b.p ? slice_cut(&b, '\n') : SLICE_EMPTY;

		if (!slice_eq(x, y))
			fail_msg("is     %.*s\nshould %.*s", SLICE_FMT(x), SLICE_FMT(y));
	}
	strbuf_fini(&is);
	strbuf_fini(&should);
}

/* What the second ruleset sends after the first. */
static void change(struct ruleset *first, struct ruleset *second, bool *sets, struct strbuf *out)
{
	struct batch b;
	struct tables before = {.ruleset = first};
	struct tables t = {.batch = &b, .ruleset = second, .marks = {1, 2, 3, 0}};
	struct slice rest;

	batch_init(&b);
	*sets = tables_sets_change(&t, &before);
	tables_build(&t, &before);
	strbuf_clear(out);
	batch_print(&b, out);
	/* Rules are the same as ever. */
	rest = strbuf_slice(out);
	rest = slice_first(rest, slice_find(rest, SLICE("rule ")));
	out->len = rest.len;
	batch_fini(&b);
}

static void expect_change(
	struct ruleset *first, struct ruleset *second, bool sets, const char *should)
{
	struct strbuf text;
	bool changed;

	strbuf_init(&text, TEXT_MAX);
	change(first, second, &changed, &text);
	assert_int_equal(changed, sets);
	assert_string_equal(strbuf_cstr(&text), should);
	strbuf_fini(&text);
}

static void test_sets_that_stay_the_same_are_left_alone(void **state)
{
	const struct ruleset_options o = {BASE, .inbound_all = 1};
	const struct ruleset_entry allow = {ONE(V4(10, 0, 0, 1)), RULESET_ALLOW, 0, 0, 65535, 0, 0};
	const struct ruleset_entry more = {ONE(V4(10, 0, 0, 3)), RULESET_ALLOW, 0, 0, 65535, 0, 0};
	struct ruleset first;
	struct ruleset second;

	ruleset_init(&first, &o);
	ruleset_init(&second, &o);
	assert_int_equal(ruleset_add(&first, &allow), 0);
	assert_int_equal(ruleset_add(&second, &allow), 0);
#define LEASES                                                         \
	"delete elements dyn_allow_v4\ndelete elements dyn_allow_v6\n" \
	"delete elements dyn_ports_v4\ndelete elements dyn_ports_v6\n"
	expect_change(&first, &second, false, "delete rules opensandbox\n" LEASES);
	assert_int_equal(ruleset_add_lease(&second, &allow.lo, 0, 0, 60), 0);
	expect_change(&first, &second, false,
		"delete rules opensandbox\ndelete elements dyn_allow_v4\nelements dyn_allow_v4\n"
		"delete elements dyn_allow_v6\ndelete elements dyn_ports_v4\n"
		"delete elements dyn_ports_v6\n");
	assert_int_equal(ruleset_add(&second, &more), 0);
	second.entry[1] = more;
	second.n = 2;
	expect_change(&first, &second, true,
		"delete rules opensandbox\ndelete elements allow_v4\nelements allow_v4\n" LEASES);
	expect_change(&second, &first, true,
		"delete rules opensandbox\ndelete elements allow_v4\nelements allow_v4\n" LEASES);
	/* A set that comes, and one that goes. */
	second.entry[1] = full[0];
	expect_change(&first, &second, true,
		"delete rules opensandbox\nset deny_v4\nelements deny_v4\n" LEASES);
	expect_change(
		&second, &first, false, "delete rules opensandbox\ndelete set deny_v4\n" LEASES);
	ruleset_fini(&first);
	ruleset_fini(&second);
}

static void test_other_chains_make_the_table_anew(void **state)
{
	struct batch b;
	struct ruleset dns;
	struct ruleset all;
	struct tables before = tables_of(&b, &dns, 3);
	struct tables t = tables_of(&b, &all, 2);
	struct strbuf text;

	strbuf_init(&text, TEXT_MAX);
	batch_init(&b);
	assert_false(tables_sets_change(&t, &before));
	tables_build(&t, &before);
	batch_print(&b, &text);
	assert_true(slice_starts(strbuf_slice(&text),
		SLICE("table opensandbox\ndelete table opensandbox\ntable opensandbox\n")));
	batch_fini(&b);
	strbuf_fini(&text);
	ruleset_fini(&dns);
	ruleset_fini(&all);
}

static void test_flows_of_the_ruleset_before_pass_while_sets_change(void **state)
{
	struct batch b;
	struct ruleset r;
	struct tables t = tables_of(&b, &r, 2);
	struct strbuf text;

	strbuf_init(&text, TEXT_MAX);
	batch_init(&b);
	t.marks.before = 0x44444444;
	tables_build_rules(&t);
	batch_print(&b, &text);
	assert_true(slice_find(strbuf_slice(&text), SLICE("0x44444444")) < text.len);
	batch_clear(&b);
	strbuf_clear(&text);
	t.marks.before = 0;
	tables_build_rules(&t);
	batch_print(&b, &text);
	assert_true(slice_starts(strbuf_slice(&text), SLICE("delete rules opensandbox\nrule ")));
	assert_true(slice_find(strbuf_slice(&text), SLICE("0x44444444")) == text.len);
	assert_true(slice_find(strbuf_slice(&text),
			    SLICE("load mark => reg 1 ]   [ cmp eq reg 1 "
				  "0x00000000")) == text.len);
	batch_fini(&b);
	strbuf_fini(&text);
	ruleset_fini(&r);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rules_are_those_that_were_attacked),
		cmocka_unit_test(test_sets_that_stay_the_same_are_left_alone),
		cmocka_unit_test(test_other_chains_make_the_table_anew),
		cmocka_unit_test(test_flows_of_the_ruleset_before_pass_while_sets_change),
	};
	struct strbuf text;
	FILE *f;

	if (argc == 1)
		return cmocka_run_group_tests(tests, NULL, NULL);
	strbuf_init(&text, TEXT_MAX);
	all_print(&text);
	f = fopen(argv[1], "w");
	if (!f || fwrite(text.p, 1, text.len, f) != text.len || fclose(f) != 0)
		return 1;
	strbuf_fini(&text);
	return 0;
}
