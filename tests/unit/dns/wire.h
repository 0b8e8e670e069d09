/* DNS messages for tests, put together record by record; counts in the header follow. */
#pragma once

#include <string.h>

#include "base/attr.h"
#include "dns/dns_msg.h"

struct wire {
	size_t len;
	uint8_t b[DNS_MSG_MAX + 1];
};

static inline void wire_add(struct wire *w, const void *p, size_t len)
{
	REQUIRE(w->len + len <= sizeof(w->b));
	memcpy(w->b + w->len, p, len);
	w->len += len;
}

static inline void wire_u16(struct wire *w, unsigned v)
{
	uint8_t b[2] = {(uint8_t)(v >> 8), (uint8_t)v};

	wire_add(w, b, 2);
}

static inline void wire_u32(struct wire *w, uint32_t v)
{
	wire_u16(w, v >> 16);
	wire_u16(w, v & 0xffff);
}

/* Labels separated by dots, bytes as they are; "" is the root. */
static inline void wire_name(struct wire *w, const char *name)
{
	struct slice rest = slice_str(name);
	struct slice label;
	uint8_t n;

	while (rest.p && rest.len > 0) {
		label = slice_cut(&rest, '.');
		n = (uint8_t)label.len;
		wire_add(w, &n, 1);
		wire_add(w, label.p, label.len);
	}
	wire_add(w, "", 1);
}

static inline void wire_count(struct wire *w, size_t which)
{
	w->b[5 + 2 * which]++;
	if (w->b[5 + 2 * which] == 0)
		w->b[4 + 2 * which]++;
}

static inline void wire_init(struct wire *w, unsigned id, unsigned flags)
{
	memset(w->b, 0, DNS_HEADER_LEN);
	w->len = 0;
	wire_u16(w, id);
	wire_u16(w, flags);
	w->len = DNS_HEADER_LEN;
}

static inline void wire_question(struct wire *w, const char *name, unsigned type)
{
	wire_count(w, 0);
	wire_name(w, name);
	wire_u16(w, type);
	wire_u16(w, 1);
}

static inline struct slice wire_bytes(const void *p, size_t len)
{
	return slice_make(p, len);
}

static inline void wire_rr(struct wire *w, enum dns_section section, const char *owner,
	unsigned type, uint32_t ttl, struct slice rdata)
{
	wire_count(w, 1 + (size_t)section);
	wire_name(w, owner);
	wire_u16(w, type);
	wire_u16(w, 1);
	wire_u32(w, ttl);
	wire_u16(w, (unsigned)rdata.len);
	wire_add(w, rdata.p, rdata.len);
}

static inline void wire_rr_name(struct wire *w, enum dns_section section, const char *owner,
	unsigned type, uint32_t ttl, const char *target)
{
	struct wire *r = w;
	size_t at;

	wire_rr(r, section, owner, type, ttl, wire_bytes("", 0));
	at = r->len;
	wire_name(r, target);
	r->b[at - 2] = (uint8_t)((r->len - at) >> 8);
	r->b[at - 1] = (uint8_t)(r->len - at);
}

static inline void wire_a(struct wire *w, const char *owner, uint32_t ttl, const char *v4)
{
	struct netaddr a;

	REQUIRE(netaddr_parse(slice_str(v4), &a));
	if (netaddr_is_v4(&a))
		wire_rr(w, DNS_ANSWER, owner, DNS_A, ttl, wire_bytes(a.b + 12, 4));
	else
		wire_rr(w, DNS_ANSWER, owner, DNS_AAAA, ttl, wire_bytes(a.b, 16));
}

static inline void wire_opt(struct wire *w, unsigned size, unsigned version, bool dnssec)
{
	wire_count(w, 3);
	wire_add(w, "", 1);
	wire_u16(w, DNS_OPT);
	wire_u16(w, size);
	wire_u16(w, version);
	wire_u16(w, dnssec ? 0x8000 : 0);
	wire_u16(w, 0);
}

static inline void wire_soa(
	struct wire *w, enum dns_section section, const char *zone, uint32_t ttl)
{
	static const uint8_t rdata[22] = {[21] = 60};

	wire_rr(w, section, zone, DNS_SOA, ttl, wire_bytes(rdata, sizeof(rdata)));
}

static inline struct slice wire_slice(const struct wire *w)
{
	return slice_make((const char *)w->b, w->len);
}
