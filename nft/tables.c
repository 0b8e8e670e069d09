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
	case RULESET_SPECIAL:
		return o->enforce && o->accept_rest &&
			tables_uses(t->ruleset, &tables_sets[i], RULESET_SPECIAL);
	case RULESET_INSPECT:
		return o->redirect_web;
	case RULESET_INBOUND:
		return o->enforce && !o->inbound_all;
	case RULESET_KIND_MAX:
		break;
	}
	return o->read_only;
}

/* The next entry from *i on that is an element of this set; NULL after the last. */
static const struct ruleset_entry *tables_next(const struct ruleset *r, size_t set, size_t *i)
{
	while (*i < r->n) {
		const struct ruleset_entry *e = &r->entry[(*i)++];

		if (e->kind == (uint8_t)tables_kinds[set] && elem_takes(&tables_sets[set], e))
			return e;
	}
	return NULL;
}

/* Entries come in the order of their maker, who sorts. Another order is another content here. */
static bool tables_set_same(const struct ruleset *a, const struct ruleset *b, size_t set)
{
	const struct ruleset_entry *x;
	const struct ruleset_entry *y;
	size_t i = 0;
	size_t k = 0;

	do {
		x = tables_next(a, set, &i);
		y = tables_next(b, set, &k);
		if (!x != !y || (x && memcmp(x, y, sizeof(*x)) != 0))
			return false;
	} while (x);
	return true;
}

/* The same chains and objects; sets may differ. */
static bool tables_fits(const struct tables *t, const struct tables *before)
{
	if (!before->ruleset || before->ruleset->options.enforce != t->ruleset->options.enforce)
		return false;
	for (int p = 0; p < GUARD_PART_MAX; p++) {
		if (tables_has(t, (enum guard_part)p) != tables_has(before, (enum guard_part)p))
			return false;
	}
	return true;
}

bool tables_sets_change(const struct tables *t, const struct tables *before)
{
	if (!tables_fits(t, before))
		return false;
	for (size_t i = 0; i < SET_MAX; i++) {
		if (tables_sets[i].interval && tables_has_set(t, (enum tables_set_index)i) &&
			!tables_set_same(t->ruleset, before->ruleset, i))
			return true;
	}
	return false;
}

static void tables_set_message(
	struct batch *b, uint8_t type, uint16_t table, uint16_t set, size_t i)
{
	struct nlmsghdr *m = batch_open(b, type, 0, NFPROTO_INET, GUARD_PART_TABLE);

	mnl_attr_put_strz(m, table, TABLES_NAME);
	mnl_attr_put_strz(m, set, tables_sets[i].name);
	batch_close(b, m);
}

/* A set that is in both tables, with the new elements. Leases always: their time begins anew. */
static void tables_refill(const struct tables *t, const struct tables *before, size_t i)
{
	if (tables_kinds[i] == RULESET_KIND_MAX ||
		(!tables_sets[i].timeout && tables_set_same(t->ruleset, before->ruleset, i)))
		return;
	/* Without a list of elements: all of them. */
	tables_set_message(
		t->batch, NFT_MSG_DELSETELEM, NFTA_SET_ELEM_LIST_TABLE, NFTA_SET_ELEM_LIST_SET, i);
	elem_add_known(
		t->batch, &tables_sets[i], t->ruleset->entry, t->ruleset->n, tables_kinds[i]);
}

static void tables_add_set(const struct tables *t, size_t i)
{
	elem_set_add(t->batch, &tables_sets[i]);
	if (tables_kinds[i] == RULESET_KIND_MAX)
		elem_add(t->batch, &tables_sets[i], tables_private, ARRAY_LEN(tables_private),
			RULESET_ALLOW);
	else
		elem_add(t->batch, &tables_sets[i], t->ruleset->entry, t->ruleset->n,
			tables_kinds[i]);
}

static void tables_build_sets(const struct tables *t, const struct tables *before)
{
	for (size_t i = 0; i < SET_MAX; i++) {
		const enum tables_set_index set = (enum tables_set_index)i;
		const bool had = before && tables_has_set(before, set);
		const bool has = tables_has_set(t, set);

		if (had && has)
			tables_refill(t, before, i);
		else if (had)
			tables_set_message(
				t->batch, NFT_MSG_DELSET, NFTA_SET_TABLE, NFTA_SET_NAME, i);
		else if (has)
			tables_add_set(t, i);
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

static void tables_make(const struct tables *t)
{
	struct tables_user user = {.type = TABLES_USER_TYPE, .len = sizeof(user.marks)};

	memcpy(user.marks, &t->marks.service, 4);
	memcpy(user.marks + 4, &t->marks.own, 4);
	tables_replace(t->batch, NFPROTO_INET, TABLES_NAME, &user, sizeof(user), GUARD_PART_TABLE);
	tables_add_timeouts(t);
	chains_add(t);
}

/* Takes the rules away; chains, and their hooks, stay. */
static void tables_drop_rules(struct batch *b)
{
	struct nlmsghdr *m = batch_open(b, NFT_MSG_DELRULE, 0, NFPROTO_INET, GUARD_PART_TABLE);

	mnl_attr_put_strz(m, NFTA_RULE_TABLE, TABLES_NAME);
	batch_close(b, m);
}

void tables_build(const struct tables *t, const struct tables *before)
{
	const bool fits = tables_fits(t, before);

	if (fits)
		tables_drop_rules(t->batch);
	else
		tables_make(t);
	tables_build_sets(t, fits ? before : NULL);
	chains_build(t);
}

void tables_build_rules(const struct tables *t)
{
	tables_drop_rules(t->batch);
	chains_build(t);
}

void tables_renew(struct batch *b, const struct ruleset_entry *e, size_t n)
{
	static const enum tables_set_index sets[] = {
		SET_DYN_V4, SET_DYN_V6, SET_DYN_PORTS_V4, SET_DYN_PORTS_V6};

	for (size_t i = 0; i < ARRAY_LEN(sets); i++)
		elem_renew(b, &tables_sets[sets[i]], e, n);
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
