/* netaddr_parse_host beside the C library: what a client's inet_aton(3) takes for an address must
 * be the same address for us, or policy would judge it as a name. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/netaddr.h"

#define INPUT_MAX 255
#define V4_BITS 96

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

static bool fuzz_has_space(const char *text)
{
	return text[strcspn(text, " \t\n\v\f\r")] != '\0';
}

/* What the C library makes of the text, in our form. */
static bool fuzz_oracle(const char *text, size_t len, struct netaddr *out)
{
	struct sockaddr_in v4 = {.sin_family = AF_INET};
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
	char inner[INPUT_MAX + 1];
	uint16_t port;

	/* inet_aton stops at white space, which no host may hold. */
	if (!fuzz_has_space(text) && inet_aton(text, &v4.sin_addr) == 1)
		return netaddr_from_sockaddr((const struct sockaddr *)&v4, out, &port);
	if (len < 2 || text[0] != '[' || text[len - 1] != ']')
		return false;
	memcpy(inner, text + 1, len - 2);
	inner[len - 2] = '\0';
	return inet_pton(AF_INET6, inner, &v6.sin6_addr) == 1 &&
		netaddr_from_sockaddr((const struct sockaddr *)&v6, out, &port);
}

/* The text of an address reads back as that address, in the strict form and as a host. */
static void fuzz_text_round(const struct netaddr *a)
{
	char text[NETADDR_TEXT_MAX + 2] = "[";
	size_t len = netaddr_text(a, text + 1);
	struct slice bare = slice_make(text + 1, len);
	struct slice host = bare;
	struct netaddr back;

	REQUIRE(netaddr_parse(bare, &back) && netaddr_eq(a, &back));
	if (!netaddr_is_v4(a)) {
		text[len + 1] = ']';
		host = slice_make(text, len + 2);
	}
	REQUIRE(netaddr_parse_host(host, &back) == HOST_ADDRESS && netaddr_eq(a, &back));
}

/* The kernel's form is the same address and port. */
static void fuzz_kernel_round(const struct netaddr *a)
{
	uint16_t port = (uint16_t)(a->b[14] << 8 | a->b[15]);
	struct sockaddr_storage ss;
	struct netaddr back;
	uint16_t back_port;
	socklen_t len = netaddr_to_sockaddr(a, port, &ss);

	REQUIRE(len ==
		(netaddr_is_v4(a) ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6)));
	REQUIRE(netaddr_from_sockaddr((const struct sockaddr *)&ss, &back, &back_port));
	REQUIRE(netaddr_eq(a, &back) && port == back_port);
	ss.ss_family = AF_UNIX;
	REQUIRE(!netaddr_from_sockaddr((const struct sockaddr *)&ss, &back, &back_port));
}

/* The classes that the C library knows, too. */
static void fuzz_class(const struct netaddr *a)
{
	enum addr_class class = netaddr_class(a);
	struct in6_addr v6;
	uint32_t v4;

	REQUIRE((unsigned)class < ADDR_CLASS_MAX);
	REQUIRE(strcmp(addr_class_text(class), addr_class_text(ADDR_CLASS_MAX)) != 0);
	memcpy(&v6, a->b, sizeof(v6));
	memcpy(&v4, a->b + 12, sizeof(v4));
	v4 = ntohl(v4);
	if (netaddr_is_v4(a)) {
		REQUIRE(v4 >> IN_CLASSA_NSHIFT != IN_LOOPBACKNET || class == ADDR_LOOPBACK);
		REQUIRE(!IN_MULTICAST(v4) || class == ADDR_MULTICAST);
		REQUIRE(!IN_BADCLASS(v4) || class == ADDR_RESERVED);
		return;
	}
	REQUIRE(!IN6_IS_ADDR_LOOPBACK(&v6) || class == ADDR_LOOPBACK);
	REQUIRE(!IN6_IS_ADDR_UNSPECIFIED(&v6) || class == ADDR_UNSPECIFIED);
	REQUIRE(!IN6_IS_ADDR_MULTICAST(&v6) || class == ADDR_MULTICAST);
	REQUIRE(!IN6_IS_ADDR_LINKLOCAL(&v6) || class == ADDR_LINK_LOCAL);
	REQUIRE(!IN6_IS_ADDR_SITELOCAL(&v6) || class == ADDR_LINK_LOCAL);
}

static unsigned fuzz_bit(const struct netaddr *a, unsigned i)
{
	return a->b[i / 8] >> (7 - i % 8) & 1;
}

/* Bit by bit. A block shorter than the prefix of mapped addresses holds no IPv4. */
static bool fuzz_holds(const struct netcidr *c, const struct netaddr *a)
{
	for (unsigned i = 0; i < c->len; i++) {
		if (fuzz_bit(a, i) != fuzz_bit(&c->addr, i))
			return false;
	}
	return c->len >= V4_BITS || !netaddr_is_v4(a);
}

/* `BLOCK` or `BLOCK ADDRESS`. */
static void fuzz_block(struct slice s)
{
	struct slice head = slice_cut(&s, ' ');
	char text[NETADDR_TEXT_MAX + 4];
	struct netcidr c;
	struct netcidr back;
	struct netaddr a;
	size_t n;

	if (!netcidr_parse(head, &c))
		return;
	REQUIRE(netcidr_contains(&c, &c.addr));
	n = netaddr_text(&c.addr, text);
	(void)snprintf(text + n, sizeof(text) - n, "/%u",
		netaddr_is_v4(&c.addr) ? c.len - V4_BITS : c.len);
	REQUIRE(netcidr_parse(slice_str(text), &back));
	REQUIRE(netaddr_eq(&c.addr, &back.addr) && c.len == back.len);
	if (s.p && netaddr_parse(s, &a))
		REQUIRE(netcidr_contains(&c, &a) == fuzz_holds(&c, &a));
	if (c.len > 0) {
		a = c.addr;
		a.b[(c.len - 1) / 8] ^= (uint8_t)(0x80 >> (c.len - 1) % 8);
		REQUIRE(!netcidr_contains(&c, &a));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	const struct slice s = slice_make((const char *)p, len);
	char text[INPUT_MAX + 1];
	struct netaddr ours;
	struct netaddr theirs;
	enum host_literal found;

	found = netaddr_parse_host(s, &ours);
	if (found == HOST_ADDRESS) {
		fuzz_text_round(&ours);
		fuzz_kernel_round(&ours);
		fuzz_class(&ours);
	}
	if (slice_to_cstr(s, text, sizeof(text)) && fuzz_oracle(text, len, &theirs))
		REQUIRE(found == HOST_ADDRESS && netaddr_eq(&ours, &theirs));
	/* The strict form is a part of the loose one. */
	if (netaddr_parse(s, &theirs) && netaddr_is_v4(&theirs) && slice_find_char(s, ':') == len)
		REQUIRE(found == HOST_ADDRESS && netaddr_eq(&ours, &theirs));
	fuzz_block(s);
	return 0;
}
