/* Reads the list of resolvers from a setting or from the text of a resolv.conf. Pure.
 *
 * Before it: settings, which has the value, and the supervisor, which reads the file once. After
 * it: resolver, which gives the list to c-ares, and later the forwarder of the DNS gate. */
#include "dns/upstreams.h"

#include "dns/word.h"

#define UPSTREAMS_PORT 53

/* What the setting may hold, for the message. */
#define UPSTREAMS_FORM "expected an address with an optional port (1 to 65535)"

/* False if the list is full. A resolver that is already there is kept once, at its first place. */
static bool upstreams_add(struct upstreams *u, const struct netaddr *addr, uint16_t port)
{
	size_t i;

	for (i = 0; i < u->n; i++)
		if (u->v[i].port == port && netaddr_eq(&u->v[i].addr, addr))
			return true;
	if (u->n == UPSTREAMS_MAX)
		return false;
	u->v[u->n].addr = *addr;
	u->v[u->n].port = port;
	u->n++;
	return true;
}

static bool upstreams_port_decode(struct slice s, uint16_t *port)
{
	uint64_t v;

	if (!slice_to_u64(s, &v) || v == 0 || v > UINT16_MAX)
		return false;
	*port = (uint16_t)v;
	return true;
}

/* `[v6]` or `[v6]:port`. Brackets around IPv4 are not a form that anybody writes on purpose. */
static bool upstreams_bracket_decode(struct slice item, struct netaddr *addr, uint16_t *port)
{
	size_t end = slice_find_char(item, ']');
	struct slice inner, rest;

	if (end == item.len)
		return false;
	inner = slice_make(item.p + 1, end - 1);
	rest = slice_from(item, end + 1);
	if (slice_find_char(inner, ':') == inner.len || !netaddr_parse(inner, addr))
		return false;
	return rest.len == 0 ||
		(rest.p[0] == ':' && upstreams_port_decode(slice_from(rest, 1), port));
}

static bool upstreams_item_decode(struct slice item, struct netaddr *addr, uint16_t *port)
{
	size_t colon;

	*port = UPSTREAMS_PORT;
	if (item.p[0] == '[')
		return upstreams_bracket_decode(item, addr, port);
	if (netaddr_parse(item, addr))
		return true;
	/* What is left is `ipv4:port`: a second colon would be IPv6, which was just refused. */
	colon = slice_find_char(item, ':');
	if (colon == item.len || slice_rfind_char(item, ':') != colon)
		return false;
	return netaddr_parse(slice_first(item, colon), addr) &&
		upstreams_port_decode(slice_from(item, colon + 1), port);
}

int upstreams_decode(struct slice list, struct upstreams *out, struct errmsg *msg)
{
	struct upstreams found = {.n = 0};
	struct slice rest = list;
	struct slice item;
	struct netaddr addr;
	uint16_t port;

	while (rest.p) {
		item = slice_strip(slice_cut(&rest, ','));
		if (item.len == 0)
			continue;
		if (!upstreams_item_decode(item, &addr, &port))
			return errmsg_set(msg, E_VALUE, "resolver \"%.*s\": " UPSTREAMS_FORM,
				SLICE_FMT(item));
		if (!upstreams_add(&found, &addr, port))
			return errmsg_set(msg, E_LIMIT, "resolver \"%.*s\": more than %d resolvers",
				SLICE_FMT(item), UPSTREAMS_MAX);
	}
	if (found.n == 0)
		return errmsg_set(msg, E_VALUE, "no resolver in the list: " UPSTREAMS_FORM);
	*out = found;
	return 0;
}

/* Adds the addresses of one kind. What is no address (a zone, a name) is passed over as libc
 * does: one odd line must not take the other resolvers away. */
static void upstreams_scan(struct slice text, bool loopback, struct upstreams *out)
{
	struct slice rest = text;
	struct slice line;
	struct netaddr addr;

	while (rest.p) {
		line = slice_cut(&rest, '\n');
		if (!slice_eq(word_cut(&line), SLICE("nameserver")))
			continue;
		if (!netaddr_parse(word_cut(&line), &addr))
			continue;
		if ((netaddr_class(&addr) == ADDR_LOOPBACK) != loopback)
			continue;
		/* Past the ceiling the first ones are enough; the file is not ours to refuse. */
		if (!upstreams_add(out, &addr, UPSTREAMS_PORT))
			return;
	}
}

int upstreams_from_resolv_conf(struct slice text, struct upstreams *out, struct errmsg *msg)
{
	struct upstreams found = {.n = 0};

	upstreams_scan(text, false, &found);
	upstreams_scan(text, true, &found);
	if (found.n == 0)
		return errmsg_set(msg, E_VALUE, "resolv.conf has no usable nameserver line");
	*out = found;
	return 0;
}

bool upstreams_eq(const struct upstreams *a, const struct upstreams *b)
{
	for (size_t i = 0; a->n == b->n && i < a->n; i++)
		if (!netaddr_eq(&a->v[i].addr, &b->v[i].addr) || a->v[i].port != b->v[i].port)
			return false;
	return a->n == b->n;
}
