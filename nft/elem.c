/* Sets and elements. Written by hand and not through libnftnl's objects: a policy may have 65,536
 * elements, and an answer of the DNS gate waits for this code. */
#include "nft/elem.h"

#include <arpa/inet.h>
#include <endian.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>

#include "nft/tables.h"

/* nft(8)'s numbers for the types of keys, 6 bits each in a concatenation; it reads them to print a
 * set, the kernel does not look at them. */
#define ELEM_TYPE_IPV4 7u
#define ELEM_TYPE_IPV6 8u
#define ELEM_TYPE_PROTO 12u
#define ELEM_TYPE_SERVICE 13u
#define ELEM_TYPE_BITS 6

#define ELEM_FIELDS_MAX 3

/* A message is closed before it could reach the 16 bits of a nested attribute's length. */
#define ELEM_MSG_FULL (NETLINK_MSG_MAX - 512)

/* A rule for ports and every protocol that has any: one range from TCP (6) to UDP (17). */
#define ELEM_PROTO_ANY_LO IPPROTO_TCP
#define ELEM_PROTO_ANY_HI IPPROTO_UDP

struct elem_fields {
	size_t n;
	uint8_t type[ELEM_FIELDS_MAX];
	uint8_t len[ELEM_FIELDS_MAX];
};

static void elem_field(struct elem_fields *f, uint8_t type, uint8_t len)
{
	f->type[f->n] = type;
	f->len[f->n++] = len;
}

static struct elem_fields elem_shape_fields(const struct elem_set *s)
{
	struct elem_fields f = {0};

	if (s->shape != ELEM_PORT)
		elem_field(&f, s->v6 ? ELEM_TYPE_IPV6 : ELEM_TYPE_IPV4, s->v6 ? 16 : 4);
	if (s->shape == ELEM_ADDR_PORTS)
		elem_field(&f, ELEM_TYPE_PROTO, 1);
	if (s->shape != ELEM_ADDR)
		elem_field(&f, ELEM_TYPE_SERVICE, 2);
	return f;
}

static size_t elem_pad(size_t len)
{
	return (len + 3) & ~(size_t)3;
}

static void elem_set_desc(struct nlmsghdr *m, const struct elem_set *s, const struct elem_fields *f)
{
	struct nlattr *desc = mnl_attr_nest_start(m, NFTA_SET_DESC);
	struct nlattr *concat;

	if (s->timeout)
		mnl_attr_put_u32(m, NFTA_SET_DESC_SIZE, htonl(ELEM_LEASES_MAX));
	if (f->n > 1) {
		concat = mnl_attr_nest_start(m, NFTA_SET_DESC_CONCAT);
		for (size_t i = 0; i < f->n; i++) {
			struct nlattr *field = mnl_attr_nest_start(m, NFTA_LIST_ELEM);

			mnl_attr_put_u32(m, NFTA_SET_FIELD_LEN, htonl(f->len[i]));
			mnl_attr_nest_end(m, field);
		}
		mnl_attr_nest_end(m, concat);
	}
	mnl_attr_nest_end(m, desc);
}

void elem_set_add(struct batch *b, const struct elem_set *s)
{
	const struct elem_fields f = elem_shape_fields(s);
	struct nlmsghdr *m =
		batch_open(b, NFT_MSG_NEWSET, NLM_F_CREATE, NFPROTO_INET, GUARD_PART_TABLE);
	uint32_t flags = 0;
	uint32_t type = 0;
	uint32_t len = 0;

	for (size_t i = 0; i < f.n; i++) {
		type = type << ELEM_TYPE_BITS | f.type[i];
		len += (uint32_t)(f.n > 1 ? elem_pad(f.len[i]) : f.len[i]);
	}
	if (s->interval)
		flags |= NFT_SET_INTERVAL;
	if (s->timeout)
		flags |= NFT_SET_TIMEOUT;
	if (f.n > 1)
		flags |= NFT_SET_CONCAT;
	mnl_attr_put_strz(m, NFTA_SET_TABLE, TABLES_NAME);
	mnl_attr_put_strz(m, NFTA_SET_NAME, s->name);
	mnl_attr_put_u32(m, NFTA_SET_FLAGS, htonl(flags));
	mnl_attr_put_u32(m, NFTA_SET_KEY_TYPE, htonl(type));
	mnl_attr_put_u32(m, NFTA_SET_KEY_LEN, htonl(len));
	mnl_attr_put_u32(m, NFTA_SET_ID, htonl(s->id));
	elem_set_desc(m, s, &f);
	batch_close(b, m);
}

static bool elem_has_ports(const struct ruleset_entry *e)
{
	return e->kind == RULESET_LEASE ? e->port_lo > 0
					: e->port_lo > 0 || e->port_hi < UINT16_MAX;
}

bool elem_takes(const struct elem_set *s, const struct ruleset_entry *e)
{
	if (s->shape == ELEM_PORT)
		return true;
	if (netaddr_is_v4(&e->lo) == s->v6)
		return false;
	switch (s->shape) {
	case ELEM_ADDR_PORTS:
		return elem_has_ports(e);
	case ELEM_ADDR:
		return !elem_has_ports(e);
	case ELEM_ADDR_PORT:
	case ELEM_PORT:
	case ELEM_SHAPE_MAX:
		break;
	}
	return true;
}

size_t elem_key(const struct elem_set *s, const struct netaddr *a, uint8_t proto, uint16_t port,
	uint8_t out[ELEM_KEY_MAX])
{
	const bool concat = s->shape == ELEM_ADDR_PORTS || s->shape == ELEM_ADDR_PORT;
	size_t n = 0;

	memset(out, 0, ELEM_KEY_MAX);
	if (s->shape != ELEM_PORT) {
		n = s->v6 ? 16 : 4;
		memcpy(out, a->b + (16 - n), n);
	}
	if (s->shape == ELEM_ADDR_PORTS) {
		out[n] = proto;
		n += 4;
	}
	if (s->shape != ELEM_ADDR) {
		out[n] = (uint8_t)(port >> 8);
		out[n + 1] = (uint8_t)port;
		n += concat ? 4 : 2;
	}
	return n;
}

static void elem_put_key(struct nlmsghdr *m, uint16_t type, const uint8_t *key, size_t len)
{
	struct nlattr *nest = mnl_attr_nest_start(m, type);

	mnl_attr_put(m, NFTA_DATA_VALUE, len, key);
	mnl_attr_nest_end(m, nest);
}

static void elem_put(struct nlmsghdr *m, const uint8_t *key, const uint8_t *key_end, size_t len,
	uint32_t flags, uint32_t seconds)
{
	struct nlattr *nest = mnl_attr_nest_start(m, NFTA_LIST_ELEM);

	elem_put_key(m, NFTA_SET_ELEM_KEY, key, len);
	if (key_end)
		elem_put_key(m, NFTA_SET_ELEM_KEY_END, key_end, len);
	if (flags)
		mnl_attr_put_u32(m, NFTA_SET_ELEM_FLAGS, htonl(flags));
	if (seconds)
		mnl_attr_put_u64(m, NFTA_SET_ELEM_TIMEOUT, htobe64((uint64_t)seconds * 1000));
	mnl_attr_nest_end(m, nest);
}

/* The key after this one; false if it was the last that there is. */
static bool elem_key_step(uint8_t *key, size_t len)
{
	for (size_t i = len; i-- > 0;) {
		if (++key[i] != 0)
			return true;
	}
	return false;
}

/* Ranges of one field are a begin and an end element; those of several have two keys. */
static void elem_put_entry(
	struct nlmsghdr *m, const struct elem_set *s, const struct ruleset_entry *e)
{
	uint8_t lo[ELEM_KEY_MAX];
	uint8_t hi[ELEM_KEY_MAX];
	const bool any = e->proto == 0 && s->interval;
	size_t len;

	len = elem_key(s, &e->lo, any ? ELEM_PROTO_ANY_LO : e->proto, e->port_lo, lo);
	(void)elem_key(s, &e->hi, any ? ELEM_PROTO_ANY_HI : e->proto, e->port_hi, hi);
	if (!s->interval) {
		elem_put(m, lo, NULL, len, 0, e->seconds);
	} else if (s->shape == ELEM_ADDR_PORTS) {
		elem_put(m, lo, hi, len, 0, 0);
	} else {
		elem_put(m, lo, NULL, len, 0, 0);
		if (elem_key_step(hi, len))
			elem_put(m, hi, NULL, len, NFT_SET_ELEM_INTERVAL_END, 0);
	}
}

static struct nlmsghdr *elem_open(struct batch *b, const struct elem_set *s, uint8_t type)
{
	struct nlmsghdr *m = batch_open(b, type, type == NFT_MSG_NEWSETELEM ? NLM_F_CREATE : 0,
		NFPROTO_INET, GUARD_PART_TABLE);

	mnl_attr_put_strz(m, NFTA_SET_ELEM_LIST_TABLE, TABLES_NAME);
	mnl_attr_put_strz(m, NFTA_SET_ELEM_LIST_SET, s->name);
	if (s->id)
		mnl_attr_put_u32(m, NFTA_SET_ELEM_LIST_SET_ID, htonl(s->id));
	return m;
}

/* A lease for a port and every protocol is two elements: a hash has no ranges. */
static void elem_send(struct batch *b, const struct elem_set *s, const struct ruleset_entry *e,
	size_t n, enum ruleset_kind kind, uint8_t type)
{
	struct nlmsghdr *m = NULL;
	struct nlattr *list = NULL;

	for (size_t i = 0; i < n; i++) {
		struct ruleset_entry one = e[i];

		if (e[i].kind != (uint8_t)kind || !elem_takes(s, &e[i]))
			continue;
		if (m && m->nlmsg_len > ELEM_MSG_FULL) {
			mnl_attr_nest_end(m, list);
			batch_close(b, m);
			m = NULL;
		}
		if (!m) {
			m = elem_open(b, s, type);
			list = mnl_attr_nest_start(m, NFTA_SET_ELEM_LIST_ELEMENTS);
		}
		if (s->shape == ELEM_ADDR_PORTS && !s->interval && one.proto == 0) {
			one.proto = IPPROTO_TCP;
			elem_put_entry(m, s, &one);
			one.proto = IPPROTO_UDP;
		}
		elem_put_entry(m, s, &one);
	}
	if (m) {
		mnl_attr_nest_end(m, list);
		batch_close(b, m);
	}
}

void elem_add(struct batch *b, const struct elem_set *s, const struct ruleset_entry *e, size_t n,
	enum ruleset_kind kind)
{
	elem_send(b, s, e, n, kind, NFT_MSG_NEWSETELEM);
}

void elem_add_known(struct batch *b, const struct elem_set *s, const struct ruleset_entry *e,
	size_t n, enum ruleset_kind kind)
{
	struct elem_set known = *s;

	known.id = 0;
	elem_send(b, &known, e, n, kind, NFT_MSG_NEWSETELEM);
}

void elem_renew(struct batch *b, const struct elem_set *s, const struct ruleset_entry *e, size_t n)
{
	struct elem_set known = *s;

	known.id = 0;
	elem_send(b, &known, e, n, RULESET_LEASE, NFT_MSG_NEWSETELEM);
	elem_send(b, &known, e, n, RULESET_LEASE, NFT_MSG_DELSETELEM);
	elem_send(b, &known, e, n, RULESET_LEASE, NFT_MSG_NEWSETELEM);
}
