/* The flat list of what the kernel shall enforce. Filled by ruleset_policy.c (worker) or from
 * messages (guard_msg.c); read by tables.c. */
#include "nft/ruleset.h"

#include <stdlib.h>

#include "base/arena.h"

#define RULESET_SECONDS_MAX 86400u

void ruleset_init(struct ruleset *r, const struct ruleset_options *o)
{
	*r = (struct ruleset){.options = *o};
}

void ruleset_fini(struct ruleset *r)
{
	free(r->entry);
	r->entry = NULL;
	r->n = 0;
	r->cap = 0;
}

int ruleset_add(struct ruleset *r, const struct ruleset_entry *e)
{
	if (r->n == RULESET_ENTRIES_MAX)
		return E_LIMIT;
	if (r->n == r->cap) {
		r->cap = r->cap ? 2 * r->cap : 64;
		r->entry = xrealloc(r->entry, r->cap * sizeof(*r->entry));
	}
	r->entry[r->n++] = *e;
	return 0;
}

static bool ruleset_range_valid(const struct ruleset_entry *e)
{
	return memcmp(e->lo.b, e->hi.b, sizeof(e->lo.b)) <= 0 &&
		netaddr_is_v4(&e->lo) == netaddr_is_v4(&e->hi);
}

static bool ruleset_lease_valid(const struct ruleset_entry *e)
{
	return e->seconds > 0 && e->seconds <= RULESET_SECONDS_MAX && e->port_lo == e->port_hi &&
		(e->port_lo > 0 || e->proto == 0);
}

bool ruleset_entry_valid(const struct ruleset_entry *e)
{
	const bool one = netaddr_eq(&e->lo, &e->hi);

	if (e->zero != 0 || e->port_lo > e->port_hi || !ruleset_range_valid(e) ||
		(e->proto != 0 && e->proto != IPPROTO_TCP && e->proto != IPPROTO_UDP) ||
		e->kind >= RULESET_KIND_MAX || (e->kind != RULESET_LEASE && e->seconds != 0))
		return false;
	switch ((enum ruleset_kind)e->kind) {
	case RULESET_ALLOW:
	case RULESET_DENY:
	case RULESET_DOH:
	case RULESET_SPECIAL:
		return true;
	case RULESET_LEASE:
		return one && ruleset_lease_valid(e);
	case RULESET_RESOLVER:
		return one && e->port_lo > 0 && e->port_lo == e->port_hi;
	case RULESET_EXEMPT:
		return one;
	case RULESET_INSPECT:
	case RULESET_INBOUND:
		return e->port_lo > 0;
	case RULESET_KIND_MAX:
		break;
	}
	return false;
}

bool ruleset_options_valid(const struct ruleset_options *o)
{
	const uint8_t flags[] = {o->enforce, o->read_only, o->accept_rest, o->redirect_dns,
		o->redirect_web, o->doh_block, o->inbound_all, o->log, o->hold};

	for (size_t i = 0; i < ARRAY_LEN(flags); i++) {
		if (flags[i] > 1)
			return false;
	}
	/* Inode 1 is the root of the real hierarchy: every socket of the machine is in it. Uid 0 is
	 * the sandbox's own root. */
	return o->zero[0] == 0 && o->cgroup_id != 1 && o->uid != 0 && o->cgroup_level <= 255 &&
		o->api_port > 0 && o->web_port > 0 && o->dns_port > 0 &&
		(o->enforce || !o->read_only);
}

int ruleset_add_lease(struct ruleset *r, const struct netaddr *addr, uint8_t proto, uint16_t port,
	uint32_t seconds)
{
	const struct ruleset_entry e = {.lo = *addr,
		.hi = *addr,
		.kind = RULESET_LEASE,
		.proto = proto,
		.port_lo = port,
		.port_hi = port,
		.seconds = seconds};

	return ruleset_entry_valid(&e) ? ruleset_add(r, &e) : E_VALUE;
}
