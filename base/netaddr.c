/* IP addresses: every spelling becomes the same 16 bytes, then one class.
 *
 * Policy, DNS and proxy judge only what comes out of here. A spelling that a client or its C
 * library understands and we do not would be judged as a name, so netaddr_parse_host follows both
 * inet_aton(3) and the URL standard (WHATWG, "host parsing"). */
#include "base/netaddr.h"

#include <arpa/inet.h>
#include <stdio.h>

#define V4_BITS 96 /* length of the prefix that v4-mapped addresses share */
#define V4_PARTS_MAX 4

static const uint8_t netaddr_v4_prefix[12] = {[10] = 0xff, [11] = 0xff};

struct v4_block {
	uint32_t net;
	uint8_t len;
	enum addr_class class;
};

struct v6_block {
	uint8_t net[16];
	uint8_t len;
	uint8_t v4_at;         /* offset of an embedded IPv4 address, 0 for none */
	uint8_t v4_mask;       /* each byte of it is stored XORed with this */
	enum addr_class class; /* if an address is embedded: the class if that one is public */
};

/* Documentation blocks and 198.18.0.0/15 are public on purpose: test beds live there, and nothing
 * of ours does. */
static const struct v4_block v4_blocks[] = {
	{0x00000000, 8, ADDR_UNSPECIFIED},
	{0x0a000000, 8, ADDR_PRIVATE},
	{0x64400000, 10, ADDR_SHARED},
	{0x7f000000, 8, ADDR_LOOPBACK},
	{0xa83f8110, 32, ADDR_METADATA},
	{0xa9fe0000, 16, ADDR_LINK_LOCAL},
	{0xac100000, 12, ADDR_PRIVATE},
	{0xc0000000, 24, ADDR_RESERVED},
	{0xc0a80000, 16, ADDR_PRIVATE},
	{0xe0000000, 4, ADDR_MULTICAST},
	{0xf0000000, 4, ADDR_RESERVED},
};

/* The first block that holds the address counts, so a smaller one stands before the one around it.
 * v4-mapped addresses never come here. */
static const struct v6_block v6_blocks[] = {
	{{0}, 128, 0, 0, ADDR_UNSPECIFIED},
	{{[15] = 1}, 128, 0, 0, ADDR_LOOPBACK},
	/* IPv4-compatible, RFC 4291 2.5.5.1 */
	{{0}, 96, 12, 0, ADDR_RESERVED},
	/* IPv4-translated ::ffff:0:a.b.c.d, RFC 2765 2.1 */
	{{[8] = 0xff, [9] = 0xff}, 96, 12, 0, ADDR_RESERVED},
	/* NAT64, RFC 6052 2.1; the block for local use, RFC 8215 */
	{{0x00, 0x64, 0xff, 0x9b}, 96, 12, 0, ADDR_PUBLIC},
	{{0x00, 0x64, 0xff, 0x9b, 0x00, 0x01}, 48, 0, 0, ADDR_RESERVED},
	/* The rest of what the IETF keeps, RFC 4291 2.4 */
	{{0}, 8, 0, 0, ADDR_RESERVED},
	/* Teredo, RFC 4380 4: the client's address, inverted */
	{{0x20, 0x01}, 32, 12, 0xff, ADDR_RESERVED},
	/* 6to4, RFC 3056 2 */
	{{0x20, 0x02}, 16, 2, 0, ADDR_PUBLIC},
	/* Metadata services of Amazon, Google, Oracle and Scaleway */
	{{0xfd, 0x00, 0x0e, 0xc2, [14] = 0x02, [15] = 0x54}, 128, 0, 0, ADDR_METADATA},
	{{0xfd, 0x20, 0x00, 0xce, [14] = 0x02, [15] = 0x54}, 128, 0, 0, ADDR_METADATA},
	{{0xfd, 0x00, 0x00, 0xc1, [12] = 0xa9, 0xfe, 0xa9, 0xfe}, 128, 0, 0, ADDR_METADATA},
	{{0xfd, 0x00, 0x00, 0x42, [15] = 0x42}, 128, 0, 0, ADDR_METADATA},
	{{0xfc}, 7, 0, 0, ADDR_PRIVATE},
	{{0xfe, 0x80}, 10, 0, 0, ADDR_LINK_LOCAL},
	/* Site-local, RFC 3879: deprecated, yet still routed by some */
	{{0xfe, 0xc0}, 10, 0, 0, ADDR_LINK_LOCAL},
	{{0xff}, 8, 0, 0, ADDR_MULTICAST},
};

static const char *const addr_class_texts[] = {
#define X(name, text) [ADDR_##name] = (text),
	ADDR_CLASS_TABLE(X)
#undef X
};

static uint32_t netaddr_load_v4(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void netaddr_set_v4(struct netaddr *a, uint32_t v4)
{
	memcpy(a->b, netaddr_v4_prefix, sizeof(netaddr_v4_prefix));
	a->b[12] = (uint8_t)(v4 >> 24);
	a->b[13] = (uint8_t)(v4 >> 16);
	a->b[14] = (uint8_t)(v4 >> 8);
	a->b[15] = (uint8_t)v4;
}

bool netaddr_is_v4(const struct netaddr *a)
{
	return memcmp(a->b, netaddr_v4_prefix, sizeof(netaddr_v4_prefix)) == 0;
}

bool netaddr_eq(const struct netaddr *a, const struct netaddr *b)
{
	return memcmp(a->b, b->b, sizeof(a->b)) == 0;
}

static bool netaddr_parse_v6(struct slice s, struct netaddr *out)
{
	char text[INET6_ADDRSTRLEN];
	struct in6_addr v6;

	if (!slice_to_cstr(s, text, sizeof(text)) || inet_pton(AF_INET6, text, &v6) != 1)
		return false;
	memcpy(out->b, v6.s6_addr, sizeof(out->b));
	return true;
}

bool netaddr_parse(struct slice s, struct netaddr *out)
{
	char text[INET_ADDRSTRLEN];
	struct in_addr v4;

	if (slice_find_char(s, ':') < s.len)
		return netaddr_parse_v6(s, out);
	if (!slice_to_cstr(s, text, sizeof(text)) || inet_pton(AF_INET, text, &v4) != 1)
		return false;
	netaddr_set_v4(out, ntohl(v4.s_addr));
	return true;
}

/* One part of an IPv4 number: 0x or 0X hexadecimal (0x alone is zero), 0 octal, else decimal. Any
 * number of leading zeros is fine; a value past 32 bits is not. */
static bool netaddr_part(struct slice s, uint32_t *out)
{
	uint64_t v = 0;
	int base = 10;

	if (s.len == 0)
		return false;
	if (s.len >= 2 && s.p[0] == '0') {
		bool hex = ascii_lower(s.p[1]) == 'x';

		base = hex ? 16 : 8;
		s = slice_from(s, hex ? 2 : 1);
	}
	for (size_t i = 0; i < s.len; i++) {
		int digit = ascii_hex(s.p[i]);

		if (digit < 0 || digit >= base)
			return false;
		v = v * (unsigned)base + (unsigned)digit;
		if (v > UINT32_MAX)
			return false;
	}
	*out = (uint32_t)v;
	return true;
}

/* True if the last label makes this an IPv4 address or nothing (WHATWG, "ends in a number"). */
static bool netaddr_ends_in_number(struct slice s)
{
	size_t dot = slice_rfind_char(s, '.');
	struct slice last = dot < s.len ? slice_from(s, dot + 1) : s;
	bool digits = last.len > 0;
	size_t i;

	for (i = 0; i < last.len && digits; i++)
		digits = ascii_digit(last.p[i]);
	if (digits)
		return true;
	if (last.len < 2 || last.p[0] != '0' || ascii_lower(last.p[1]) != 'x')
		return false;
	for (i = 2; i < last.len; i++) {
		if (ascii_hex(last.p[i]) < 0)
			return false;
	}
	return true;
}

/* One to four parts; the last one fills all bytes that are left. */
static bool netaddr_parse_loose_v4(struct slice s, struct netaddr *out)
{
	uint32_t v4 = 0;
	int n = 0;

	while (s.p) {
		struct slice text = slice_cut(&s, '.');
		uint32_t part;

		if (n == V4_PARTS_MAX || !netaddr_part(text, &part))
			return false;
		if (s.p) {
			if (part > 0xff)
				return false;
			v4 |= part << (24 - 8 * (n < 3 ? n : 3));
		} else {
			if (part > UINT32_MAX >> (8 * n))
				return false;
			v4 |= part;
		}
		n++;
	}
	netaddr_set_v4(out, v4);
	return true;
}

enum host_literal netaddr_parse_host(struct slice s, struct netaddr *out)
{
	static const char not_in_names[] = ":[]%";

	if (s.len == 0)
		return HOST_INVALID;
	if (s.p[0] == '[') {
		if (s.len < 2 || s.p[s.len - 1] != ']')
			return HOST_INVALID;
		s = slice_make(s.p + 1, s.len - 2);
		return netaddr_parse_v6(s, out) ? HOST_ADDRESS : HOST_INVALID;
	}
	for (size_t i = 0; i < sizeof(not_in_names) - 1; i++) {
		if (slice_find_char(s, not_in_names[i]) < s.len)
			return HOST_INVALID;
	}
	if (s.len > 1 && s.p[s.len - 1] == '.')
		s.len--;
	if (!netaddr_ends_in_number(s))
		return HOST_NAME;
	return netaddr_parse_loose_v4(s, out) ? HOST_ADDRESS : HOST_INVALID;
}

/* By hand: each line of the audit trail has one, and snprintf took 1 % of a request. */
static size_t netaddr_text_v4(const struct netaddr *a, char *buf)
{
	char *p = buf;

	for (size_t i = V4_BITS / 8; i < sizeof(a->b); i++) {
		unsigned v = a->b[i];

		if (v >= 100)
			*p++ = (char)('0' + v / 100);
		if (v >= 10)
			*p++ = (char)('0' + v / 10 % 10);
		*p++ = (char)('0' + v % 10);
		*p++ = i + 1 < sizeof(a->b) ? '.' : '\0';
	}
	return (size_t)(p - buf) - 1;
}

size_t netaddr_text(const struct netaddr *a, char buf[NETADDR_TEXT_MAX])
{
	if (netaddr_is_v4(a))
		return netaddr_text_v4(a, buf);
	REQUIRE(inet_ntop(AF_INET6, a->b, buf, NETADDR_TEXT_MAX));
	return strlen(buf);
}

static bool netaddr_in(const uint8_t a[16], const uint8_t net[16], unsigned len)
{
	const unsigned whole = len / 8;
	const uint8_t mask = (uint8_t)(0xff00 >> (len % 8));

	if (memcmp(a, net, whole) != 0)
		return false;
	return len % 8 == 0 || ((a[whole] ^ net[whole]) & mask) == 0;
}

bool netcidr_parse(struct slice s, struct netcidr *out)
{
	size_t slash = slice_find_char(s, '/');
	struct netcidr c;
	struct slice len_text;
	uint64_t len;
	bool dotted;

	if (slash == s.len || !netaddr_parse(slice_first(s, slash), &c.addr))
		return false;
	len_text = slice_from(s, slash + 1);
	if (!slice_to_u64(len_text, &len) || (len_text.len > 1 && len_text.p[0] == '0'))
		return false;
	dotted = slice_find_char(slice_first(s, slash), ':') == slash;
	if (len > (dotted ? 32 : 128))
		return false;
	if (dotted)
		len += V4_BITS;
	/* A mapped address whose mask cuts into the mapping is neither an IPv4 nor an IPv6 block.
	 */
	if (netaddr_is_v4(&c.addr) && len < V4_BITS)
		return false;
	for (unsigned i = 0; i < sizeof(c.addr.b); i++) {
		unsigned kept = len > 8 * i ? (unsigned)len - 8 * i : 0;

		if (kept < 8)
			c.addr.b[i] &= (uint8_t)(0xff00 >> kept);
	}
	c.len = (uint8_t)len;
	*out = c;
	return true;
}

bool netcidr_contains(const struct netcidr *c, const struct netaddr *a)
{
	if (c->len < V4_BITS && netaddr_is_v4(a))
		return false;
	return netaddr_in(a->b, c->addr.b, c->len);
}

static enum addr_class netaddr_class_v4(uint32_t v4)
{
	for (size_t i = 0; i < ARRAY_LEN(v4_blocks); i++) {
		if ((v4 ^ v4_blocks[i].net) >> (32 - v4_blocks[i].len) == 0)
			return v4_blocks[i].class;
	}
	return ADDR_PUBLIC;
}

/* What private addresses may do must not be had through a translator that somebody else runs, so an
 * embedded private address is reserved, not private. */
static enum addr_class netaddr_class_embedded(const struct netaddr *a, const struct v6_block *block)
{
	uint8_t v4[4];
	enum addr_class class;

	for (size_t i = 0; i < sizeof(v4); i++)
		v4[i] = a->b[block->v4_at + i] ^ block->v4_mask;
	class = netaddr_class_v4(netaddr_load_v4(v4));
	if (class == ADDR_PUBLIC)
		return block->class;
	return class == ADDR_PRIVATE ? ADDR_RESERVED : class;
}

enum addr_class netaddr_class(const struct netaddr *a)
{
	if (netaddr_is_v4(a))
		return netaddr_class_v4(netaddr_load_v4(a->b + 12));
	for (size_t i = 0; i < ARRAY_LEN(v6_blocks); i++) {
		const struct v6_block *block = &v6_blocks[i];

		if (!netaddr_in(a->b, block->net, block->len))
			continue;
		return block->v4_at ? netaddr_class_embedded(a, block) : block->class;
	}
	return ADDR_PUBLIC;
}

const char *addr_class_text(enum addr_class c)
{
	return (unsigned)c < ADDR_CLASS_MAX ? addr_class_texts[c] : "unknown";
}

bool netaddr_from_sockaddr(const struct sockaddr *sa, struct netaddr *out, uint16_t *port)
{
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;

	switch (sa->sa_family) {
	case AF_INET:
		memcpy(&v4, sa, sizeof(v4));
		netaddr_set_v4(out, ntohl(v4.sin_addr.s_addr));
		*port = ntohs(v4.sin_port);
		return true;
	case AF_INET6:
		memcpy(&v6, sa, sizeof(v6));
		memcpy(out->b, v6.sin6_addr.s6_addr, sizeof(out->b));
		*port = ntohs(v6.sin6_port);
		return true;
	default:
		return false;
	}
}

socklen_t netaddr_to_sockaddr(const struct netaddr *a, uint16_t port, struct sockaddr_storage *out)
{
	struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};

	memset(out, 0, sizeof(*out));
	if (netaddr_is_v4(a)) {
		v4.sin_addr.s_addr = htonl(netaddr_load_v4(a->b + 12));
		memcpy(out, &v4, sizeof(v4));
		return sizeof(v4);
	}
	memcpy(v6.sin6_addr.s6_addr, a->b, sizeof(a->b));
	memcpy(out, &v6, sizeof(v6));
	return sizeof(v6);
}
