/* netaddr_parse_host beside the C library: what a client's inet_aton(3) takes for an address must
 * be the same address for us, or policy would judge it as a name. */
#include <arpa/inet.h>
#include <stdlib.h>

#include "base/netaddr.h"

#define INPUT_MAX 255

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
	REQUIRE((unsigned)netaddr_class(a) < ADDR_CLASS_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	const struct slice s = slice_make((const char *)p, len);
	char text[INPUT_MAX + 1];
	struct netaddr ours;
	struct netaddr theirs;
	struct netcidr block;
	enum host_literal found;

	found = netaddr_parse_host(s, &ours);
	if (found == HOST_ADDRESS)
		fuzz_text_round(&ours);
	if (slice_to_cstr(s, text, sizeof(text)) && fuzz_oracle(text, len, &theirs))
		REQUIRE(found == HOST_ADDRESS && netaddr_eq(&ours, &theirs));
	/* The strict form is a part of the loose one. */
	if (netaddr_parse(s, &theirs) && netaddr_is_v4(&theirs) && slice_find_char(s, ':') == len)
		REQUIRE(found == HOST_ADDRESS && netaddr_eq(&ours, &theirs));
	if (netcidr_parse(s, &block))
		REQUIRE(netcidr_contains(&block, &block.addr));
	return 0;
}
