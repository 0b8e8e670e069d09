/* The table inet opensandbox: its sets, elements and objects. Its chains are in chains.c. Before
 * it: guard.c with a ruleset; after it: batch.c. */
#include "nft/tables.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_cttimeout.h>

#include "nft/tables_int.h"

/* Younger than some headers: NFTA_TABLE_USERDATA is from Linux 5.10. */
#define TABLE_USERDATA 6

#define TABLES_USER_TYPE 0x45 /* nft(8) knows none of this number and goes on */

_Static_assert(SET_MAX <= TABLES_SETS_MAX, "sets of a shape");

/* The user bytes of our table: one type-length-value, as nft(8) expects them. */
struct tables_user {
	uint8_t type;
	uint8_t len;
	uint8_t marks[8]; /* service, own */
};

const struct elem_set tables_sets[SET_MAX] = {
#define X(key, name_, shape_, v6_, interval_, timeout_, kind_) \
	[SET_##key] = {.name = (name_),                        \
		.shape = ELEM_##shape_,                        \
		.v6 = (v6_),                                   \
		.interval = (interval_),                       \
		.timeout = (timeout_),                         \
		.id = SET_##key + 1},
	TABLES_SET_TABLE(X)
#undef X
};

#define RULESET_MAX RULESET_KIND_MAX /* filled from tables_private */
static const enum ruleset_kind tables_kinds[SET_MAX] = {
#define X(key, name_, shape_, v6_, interval_, timeout_, kind_) [SET_##key] = RULESET_##kind_,
	TABLES_SET_TABLE(X)
#undef X
};

#define MAPPED(a, b, c, d)                                           \
	{                                                            \
		{                                                    \
			[10] = 0xff, [11] = 0xff, (a), (b), (c), (d) \
		}                                                    \
	}

/* What counts as private (base/netaddr.h), for the read-only rule. */
static const struct ruleset_entry tables_private[] = {
	{.lo = MAPPED(10, 0, 0, 0), .hi = MAPPED(10, 255, 255, 255), .port_hi = UINT16_MAX},
	{.lo = MAPPED(172, 16, 0, 0), .hi = MAPPED(172, 31, 255, 255), .port_hi = UINT16_MAX},
	{.lo = MAPPED(192, 168, 0, 0), .hi = MAPPED(192, 168, 255, 255), .port_hi = UINT16_MAX},
	{.lo = {{0xfc}},
		.hi = {{0xfd, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
			0xff, 0xff, 0xff, 0xff}},
		.port_hi = UINT16_MAX},
};

/* Seconds. A sandbox that opens and abandons flows must not fill the table; established ones are
 * long-lived on purpose. */
static const struct {
	uint16_t state;
	uint32_t seconds;
} tables_short[] = {
	{CTA_TIMEOUT_TCP_SYN_SENT, 20},
	{CTA_TIMEOUT_TCP_SYN_RECV, 20},
	{CTA_TIMEOUT_TCP_FIN_WAIT, 20},
	{CTA_TIMEOUT_TCP_CLOSE_WAIT, 60},
	{CTA_TIMEOUT_TCP_LAST_ACK, 20},
	{CTA_TIMEOUT_TCP_TIME_WAIT, 10},
	{CTA_TIMEOUT_TCP_CLOSE, 5},
	{CTA_TIMEOUT_TCP_RETRANS, 60},
	{CTA_TIMEOUT_TCP_UNACK, 60},
};

bool tables_has(const struct tables *t, enum guard_part p)
{
	const struct ruleset_options *o = &t->ruleset->options;

	if (t->without[p])
		return false;
	switch (p) {
	case GUARD_PART_TABLE:
		return true;
	case GUARD_PART_REDIRECT:
		return o->redirect_dns || o->redirect_web;
	case GUARD_PART_PASS:
		return o->cgroup_id != 0;
	case GUARD_PART_LISTENERS:
		/* The user of a listening socket cannot be asked at this hook, only its cgroup. */
		return o->enforce && o->cgroup_id != 0 && !t->without[GUARD_PART_PASS];
	case GUARD_PART_SOURCES:
	case GUARD_PART_HEADERS:
	case GUARD_PART_UNTRACK:
	case GUARD_PART_TIMEOUTS:
		return o->enforce;
	case GUARD_PART_LOG:
		return o->enforce && o->log;
	case GUARD_PART_RAW_GUARD:
	case GUARD_PART_QUEUES:
	case GUARD_PART_MAX:
		break;
	}
	return false;
}

static bool tables_uses(const struct ruleset *r, const struct elem_set *s, enum ruleset_kind kind)
{
	for (size_t i = 0; i < r->n; i++) {
		if (r->entry[i].kind == (uint8_t)kind && elem_takes(s, &r->entry[i]))
			return true;
	}
	return false;
}

bool tables_has_set(const struct tables *t, enum tables_set_index i)
{
	const struct ruleset_options *o = &t->ruleset->options;

	switch (tables_kinds[i]) {
	case RULESET_ALLOW:
	case RULESET_LEASE:
		return o->enforce;
	case RULESET_DENY:
	case RULESET_RESOLVER:
		/* Rules that look into a set without elements would cost each packet something. */
		return o->enforce && tables_uses(t->ruleset, &tables_sets[i], tables_kinds[i]);
	case RULESET_EXEMPT:
		return tables_uses(t->ruleset, &tables_sets[i], RULESET_EXEMPT);
	case RULESET_DOH:
		return o->enforce && o->doh_block &&
			tables_uses(t->ruleset, &tables_sets[i], RULESET_DOH);
	case RULESET_INSPECT:
		return o->redirect_web;
	case RULESET_INBOUND:
		return o->enforce && !o->inbound_all;
	case RULESET_KIND_MAX:
		break;
	}
	return o->read_only;
}

static void tables_add_sets(const struct tables *t)
{
	for (size_t i = 0; i < SET_MAX; i++) {
		if (tables_has_set(t, (enum tables_set_index)i))
			elem_set_add(t->batch, &tables_sets[i]);
	}
	for (size_t i = 0; i < SET_MAX; i++) {
		if (!tables_has_set(t, (enum tables_set_index)i) ||
			tables_kinds[i] == RULESET_KIND_MAX)
			continue;
		elem_add(t->batch, &tables_sets[i], t->ruleset->entry, t->ruleset->n,
			tables_kinds[i]);
	}
	if (t->ruleset->options.read_only) {
		elem_add(t->batch, &tables_sets[SET_PRIVATE_V4], tables_private,
			ARRAY_LEN(tables_private), RULESET_ALLOW);
		elem_add(t->batch, &tables_sets[SET_PRIVATE_V6], tables_private,
			ARRAY_LEN(tables_private), RULESET_ALLOW);
	}
}

static void tables_add_timeouts(const struct tables *t)
{
	struct nlmsghdr *m;
	struct nlattr *of_object;
	struct nlattr *of_state;

	if (!tables_has(t, GUARD_PART_TIMEOUTS))
		return;
	m = batch_open(t->batch, NFT_MSG_NEWOBJ, NLM_F_CREATE, NFPROTO_INET, GUARD_PART_TIMEOUTS);
	mnl_attr_put_strz(m, NFTA_OBJ_TABLE, TABLES_NAME);
	mnl_attr_put_strz(m, NFTA_OBJ_NAME, TABLES_SHORT);
	mnl_attr_put_u32(m, NFTA_OBJ_TYPE, htonl(NFT_OBJECT_CT_TIMEOUT));
	of_object = mnl_attr_nest_start(m, NFTA_OBJ_DATA);
	mnl_attr_put_u16(m, NFTA_CT_TIMEOUT_L3PROTO, htons(NFPROTO_INET));
	mnl_attr_put_u8(m, NFTA_CT_TIMEOUT_L4PROTO, IPPROTO_TCP);
	of_state = mnl_attr_nest_start(m, NFTA_CT_TIMEOUT_DATA);
	for (size_t i = 0; i < ARRAY_LEN(tables_short); i++)
		mnl_attr_put_u32(m, tables_short[i].state, htonl(tables_short[i].seconds));
	mnl_attr_nest_end(m, of_state);
	mnl_attr_nest_end(m, of_object);
	batch_close(t->batch, m);
}

static void tables_put(struct batch *b, uint8_t type, uint16_t flags, uint8_t family,
	const char *name, enum guard_part part)
{
	struct nlmsghdr *m = batch_open(b, type, flags, family, part);

	mnl_attr_put_strz(m, NFTA_TABLE_NAME, name);
	batch_close(b, m);
}

void tables_replace(struct batch *b, uint8_t family, const char *table, const void *user,
	size_t user_len, enum guard_part part)
{
	struct nlmsghdr *m;

	tables_put(b, NFT_MSG_NEWTABLE, NLM_F_CREATE, family, table, part);
	tables_put(b, NFT_MSG_DELTABLE, 0, family, table, part);
	m = batch_open(b, NFT_MSG_NEWTABLE, NLM_F_CREATE, family, part);
	mnl_attr_put_strz(m, NFTA_TABLE_NAME, table);
	if (user_len > 0)
		mnl_attr_put(m, TABLE_USERDATA, user_len, user);
	batch_close(b, m);
}

void tables_add_chain(struct batch *b, uint8_t family, const char *table,
	const struct tables_chain *c, enum guard_part part)
{
	struct nlmsghdr *m = batch_open(b, NFT_MSG_NEWCHAIN, NLM_F_CREATE, family, part);
	struct nlattr *hook;

	mnl_attr_put_strz(m, NFTA_CHAIN_TABLE, table);
	mnl_attr_put_strz(m, NFTA_CHAIN_NAME, c->name);
	if (c->type) {
		hook = mnl_attr_nest_start(m, NFTA_CHAIN_HOOK);
		mnl_attr_put_u32(m, NFTA_HOOK_HOOKNUM, htonl(c->hook));
		mnl_attr_put_u32(m, NFTA_HOOK_PRIORITY, htonl((uint32_t)c->priority));
		mnl_attr_nest_end(m, hook);
		mnl_attr_put_u32(m, NFTA_CHAIN_POLICY, htonl(c->drop ? NF_DROP : NF_ACCEPT));
		mnl_attr_put_strz(m, NFTA_CHAIN_TYPE, c->type);
	}
	batch_close(b, m);
}

struct tables_shape tables_shape_of(const struct tables *t)
{
	struct tables_shape s = {.made = true, .enforce = t->ruleset->options.enforce};

	for (int p = 0; p < GUARD_PART_MAX; p++)
		s.has[p] = tables_has(t, (enum guard_part)p);
	for (int i = 0; i < SET_MAX; i++)
		s.set[i] = tables_has_set(t, (enum tables_set_index)i);
	return s;
}

/* The same chains and objects; sets may differ. */
static bool tables_fits(const struct tables *t, const struct tables_shape *before)
{
	const struct tables_shape s = tables_shape_of(t);

	return before->made && before->enforce == s.enforce &&
		memcmp(before->has, s.has, sizeof(s.has)) == 0;
}

/* Takes rules and sets away; chains, and their hooks, stay. */
static void tables_empty(const struct tables *t, const struct tables_shape *before)
{
	struct nlmsghdr *m =
		batch_open(t->batch, NFT_MSG_DELRULE, 0, NFPROTO_INET, GUARD_PART_TABLE);

	mnl_attr_put_strz(m, NFTA_RULE_TABLE, TABLES_NAME);
	batch_close(t->batch, m);
	for (int i = 0; i < SET_MAX; i++) {
		if (!before->set[i])
			continue;
		m = batch_open(t->batch, NFT_MSG_DELSET, 0, NFPROTO_INET, GUARD_PART_TABLE);
		mnl_attr_put_strz(m, NFTA_SET_TABLE, TABLES_NAME);
		mnl_attr_put_strz(m, NFTA_SET_NAME, tables_sets[i].name);
		batch_close(t->batch, m);
	}
}

static void tables_make(const struct tables *t)
{
	struct tables_user user = {.type = TABLES_USER_TYPE, .len = sizeof(user.marks)};

	memcpy(user.marks, &t->marks.service, 4);
	memcpy(user.marks + 4, &t->marks.own, 4);
	tables_replace(t->batch, NFPROTO_INET, TABLES_NAME, &user, sizeof(user), GUARD_PART_TABLE);
	tables_add_timeouts(t);
	chains_add(t);
}

void tables_build(const struct tables *t, const struct tables_shape *before)
{
	if (tables_fits(t, before))
		tables_empty(t, before);
	else
		tables_make(t);
	tables_add_sets(t);
	chains_build(t);
}

void tables_renew(struct batch *b, const struct ruleset_entry *e, size_t n)
{
	static const enum tables_set_index sets[] = {
		SET_DYN_V4, SET_DYN_V6, SET_DYN_PORTS_V4, SET_DYN_PORTS_V6};

	for (size_t i = 0; i < ARRAY_LEN(sets); i++) {
		struct elem_set s = tables_sets[sets[i]];

		s.id = 0; /* it was made by an earlier batch: found by its name */
		elem_renew(b, &s, e, n);
	}
}

static int tables_on_table(const struct nlmsghdr *m, void *arg)
{
	struct tables_marks *marks = arg;
	struct tables_user user;
	struct nlattr *a;

	mnl_attr_for_each(a, m, sizeof(struct nfgenmsg))
	{
		if (mnl_attr_get_type(a) != TABLE_USERDATA ||
			mnl_attr_get_payload_len(a) != sizeof(user))
			continue;
		memcpy(&user, mnl_attr_get_payload(a), sizeof(user));
		if (user.type != TABLES_USER_TYPE)
			continue;
		memcpy(&marks->service, user.marks, 4);
		memcpy(&marks->own, user.marks + 4, 4);
	}
	return MNL_CB_OK;
}

int tables_read_marks(struct netlink *n, struct tables_marks *out)
{
	_Alignas(struct nlmsghdr) uint8_t buf[256];
	struct nlmsghdr *m = netlink_nft_msg(
		buf, NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_GETTABLE, NLM_F_ACK, NFPROTO_INET);

	mnl_attr_put_strz(m, NFTA_TABLE_NAME, TABLES_NAME);
	return netlink_ask(n, m, tables_on_table, out);
}
