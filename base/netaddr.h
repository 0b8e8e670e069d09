/* IP addresses in one canonical form, their spellings, their classes, and CIDR blocks.
 *
 * An address is 16 bytes; IPv4 is kept v4-mapped, so that a v4-mapped literal and the dotted quad
 * are one value before anything is judged. */
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include "base/slice.h"

#define NETADDR_TEXT_MAX 48 /* text with NUL */

struct netaddr {
	uint8_t b[16];
};

struct netcidr {
	struct netaddr addr; /* host bits are zero */
	uint8_t len;         /* 0..128, of the 16-byte form: IPv4 /24 is 120 */
};

#define ADDR_CLASS_TABLE(X)                                                         \
	X(PUBLIC, "public")                                                         \
	X(PRIVATE, "private") /* 10/8 172.16/12 192.168/16 fc00::/7 */              \
	X(LOOPBACK, "loopback")                                                     \
	X(LINK_LOCAL, "link-local")       /* 169.254/16 fe80::/10 fec0::/10 */      \
	X(METADATA, "metadata")           /* of clouds: fd00:ec2::254 and others */ \
	X(SHARED, "shared address space") /* 100.64/10 */                           \
	X(MULTICAST, "multicast")                                                   \
	X(UNSPECIFIED, "unspecified") /* 0/8 and :: */                              \
	X(RESERVED, "reserved")       /* 192.0.0/24 240/4 ::/8 2001::/32 */

enum addr_class {
#define X(name, text) ADDR_##name,
	ADDR_CLASS_TABLE(X)
#undef X
		ADDR_CLASS_MAX
};

/* What netaddr_parse_host found. */
enum host_literal {
	HOST_NAME,    /* not an address: a name, judged as one */
	HOST_ADDRESS, /* an address, in *out */
	HOST_INVALID, /* meant as an address but has no canonical form: zone, bad
			 brackets, 1.2.3.999 */
};

bool netaddr_is_v4(const struct netaddr *a);
bool netaddr_eq(const struct netaddr *a, const struct netaddr *b);

/* Strict: dotted quad without leading zeros, or IPv6 (RFC 4291) without zone or brackets. */
CHECKED bool netaddr_parse(struct slice s, struct netaddr *out);

/* A host as a client may spell it: every form that inet_aton(3) or a URL parser (WHATWG) takes for
 * an IPv4 address (decimal, octal, hexadecimal, one to four parts, trailing dot), and IPv6 in
 * brackets. `s` without port. IPv6 without brackets is HOST_INVALID here, and so is an empty text,
 * one with '%', and one whose last label is a number although the whole is no address. */
enum host_literal netaddr_parse_host(struct slice s, struct netaddr *out);

/* "10.1.2.3" or "2001:db8::1" (RFC 5952), without brackets; returns its length. */
size_t netaddr_text(const struct netaddr *a, char buf[NETADDR_TEXT_MAX]);

/* address/len; host bits are masked off. A bare address is not a block. Zones are refused. */
CHECKED bool netcidr_parse(struct slice s, struct netcidr *out);
/* A block shorter than 96 holds IPv6 only: ::/0 is not every IPv4 address. */
bool netcidr_contains(const struct netcidr *c, const struct netaddr *a);

/* The class of the address. v4-mapped is IPv4. One that embeds an IPv4 address (NAT64 64:ff9b::/96,
 * 6to4 2002::/16, ::a.b.c.d, ::ffff:0:a.b.c.d, Teredo) has the class of the embedded one if that is
 * not public, but RESERVED where that is private: PRIVATE is an exemption, and a translator must
 * not lend it. Around a public one NAT64 and 6to4 are PUBLIC, the others RESERVED. */
enum addr_class netaddr_class(const struct netaddr *a);
const char *addr_class_text(enum addr_class c);

/* Between the kernel's form and ours. A v4-mapped sockaddr_in6 becomes IPv4. */
CHECKED bool netaddr_from_sockaddr(const struct sockaddr *sa, struct netaddr *out, uint16_t *port);
socklen_t netaddr_to_sockaddr(const struct netaddr *a, uint16_t port, struct sockaddr_storage *out);
