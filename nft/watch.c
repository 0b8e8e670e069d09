/* The look at what is in the kernel. Before and after it: guard.c. */
#include "nft/watch.h"

#include <errno.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>

#include "nft/tables.h"

/* FNV-1a: nobody who could choose its input could not also stop us. */
#define WATCH_BASIS 0xcbf29ce484222325u
#define WATCH_PRIME 0x100000001b3u

/* The attributes of one kind of object that tell where it belongs, and those that change by
 * themselves. */
struct watch_kind {
	uint8_t get;
	uint8_t family;
	uint16_t table;
	uint16_t chain;   /* 0: objects of this kind are in no chain */
	uint16_t skip[3]; /* 0 ends */
	uint16_t only[2]; /* if set, nothing else counts */
};

static const struct watch_kind watch_kinds[] = {
	{NFT_MSG_GETCHAIN, NFPROTO_INET, NFTA_CHAIN_TABLE, NFTA_CHAIN_NAME,
		{NFTA_CHAIN_USE, NFTA_CHAIN_COUNTERS}, {0}},
	{NFT_MSG_GETRULE, NFPROTO_INET, NFTA_RULE_TABLE, NFTA_RULE_CHAIN, {0}, {0}},
	/* The rest of a set says how full it is. */
	{NFT_MSG_GETSET, NFPROTO_INET, NFTA_SET_TABLE, 0, {0}, {NFTA_SET_NAME, NFTA_SET_HANDLE}},
	{NFT_MSG_GETCHAIN, NFPROTO_NETDEV, NFTA_CHAIN_TABLE, NFTA_CHAIN_NAME,
		{NFTA_CHAIN_USE, NFTA_CHAIN_COUNTERS}, {0}},
	{NFT_MSG_GETRULE, NFPROTO_NETDEV, NFTA_RULE_TABLE, NFTA_RULE_CHAIN, {0}, {0}},
};

struct watch_reader {
	const struct watch_kind *kind;
	struct watch_print *print;
};

static void watch_mix(uint64_t *h, const void *p, size_t len)
{
	const uint8_t *b = p;

	for (size_t i = 0; i < len; i++)
		*h = (*h ^ b[i]) * WATCH_PRIME;
}

static bool watch_counts(const struct watch_kind *k, uint16_t type)
{
	if (k->only[0])
		return type == k->only[0] || type == k->only[1];
	for (size_t i = 0; i < ARRAY_LEN(k->skip) && k->skip[i]; i++) {
		if (k->skip[i] == type)
			return false;
	}
	return true;
}

static bool watch_is(const struct nlattr *a, const char *name)
{
	return a && mnl_attr_validate(a, MNL_TYPE_NUL_STRING) >= 0 &&
		strcmp(mnl_attr_get_str(a), name) == 0;
}

/* The print that an object belongs to, NULL if it is not ours. */
static uint64_t *watch_place(
	const struct watch_reader *w, const struct nlattr *table, const struct nlattr *chain)
{
	if (w->kind->family == NFPROTO_NETDEV)
		return watch_is(table, TABLES_RAW_NAME) ? &w->print->raw : NULL;
	if (!watch_is(table, TABLES_NAME))
		return NULL;
	return watch_is(chain, "nato") ? &w->print->redirect : &w->print->table;
}

static int watch_on_object(const struct nlmsghdr *m, void *arg)
{
	const struct watch_reader *w = arg;
	const struct nlattr *table = NULL;
	const struct nlattr *chain = NULL;
	struct nlattr *a;
	uint64_t *h;

	mnl_attr_for_each(a, m, sizeof(struct nfgenmsg))
	{
		if (mnl_attr_get_type(a) == w->kind->table)
			table = a;
		else if (w->kind->chain && mnl_attr_get_type(a) == w->kind->chain)
			chain = a;
	}
	h = watch_place(w, table, chain);
	if (!h)
		return MNL_CB_OK;
	if (*h == 0)
		*h = WATCH_BASIS;
	mnl_attr_for_each(a, m, sizeof(struct nfgenmsg))
	{
		if (watch_counts(w->kind, mnl_attr_get_type(a)))
			watch_mix(h, a, a->nla_len);
	}
	return MNL_CB_OK;
}

int watch_read(struct netlink *n, struct watch_print *out)
{
	*out = (struct watch_print){0};
	for (size_t i = 0; i < ARRAY_LEN(watch_kinds); i++) {
		_Alignas(struct nlmsghdr) uint8_t buf[256];
		struct watch_reader w = {&watch_kinds[i], out};
		struct nlmsghdr *m =
			netlink_nft_msg(buf, (uint16_t)(NFNL_SUBSYS_NFTABLES << 8 | w.kind->get),
				NLM_F_DUMP, w.kind->family);
		int ret;

		ret = netlink_ask(n, m, watch_on_object, &w);
		/* A kernel without the family has nothing of ours in it. */
		if (ret == -EAFNOSUPPORT || ret == -EOPNOTSUPP)
			ret = 0;
		if (ret < 0)
			return ret;
	}
	return 0;
}
