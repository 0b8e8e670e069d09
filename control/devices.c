/* Before it: a start, of supervisor or worker. After it: the DNS gate, which leaves neighbours out
 * of answers, and the check of the resolvers. */
#include "control/devices.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>

#include "base/log.h"

/* Length of a prefix in the 16-byte form, from a netmask. */
static uint8_t devices_prefix(const struct sockaddr *mask)
{
	const uint8_t *b = mask->sa_family == AF_INET
		? (const uint8_t *)&((const struct sockaddr_in *)(const void *)mask)->sin_addr
		: (const uint8_t *)&((const struct sockaddr_in6 *)(const void *)mask)->sin6_addr;
	size_t n = mask->sa_family == AF_INET ? 4 : 16;
	unsigned len = mask->sa_family == AF_INET ? 96 : 0;

	for (size_t i = 0; i < n; i++)
		len += (unsigned)__builtin_popcount(b[i]);
	return (uint8_t)len;
}

static void devices_add(struct devices *d, const struct ifaddrs *i)
{
	struct netcidr *c;
	uint16_t port;

	if (d->n_own == DEVICES_MAX) {
		log_warn("devices", "%s has more than the %d addresses that are looked at",
			i->ifa_name, DEVICES_MAX);
		return;
	}
	if (!netaddr_from_sockaddr(i->ifa_addr, &d->own[d->n_own], &port))
		return;
	d->n_own++;
	if (!i->ifa_netmask || (i->ifa_flags & IFF_LOOPBACK))
		return;
	c = &d->on_link[d->n_on_link++];
	c->addr = d->own[d->n_own - 1];
	c->len = devices_prefix(i->ifa_netmask);
	for (unsigned bit = c->len; bit < 128; bit++)
		c->addr.b[bit / 8] &= (uint8_t) ~(0x80u >> (bit % 8));
}

int devices_read(struct devices *d)
{
	struct ifaddrs *all;

	*d = (struct devices){.n_own = 0};
	if (getifaddrs(&all) < 0)
		return -errno;
	for (const struct ifaddrs *i = all; i; i = i->ifa_next)
		if (i->ifa_addr &&
			(i->ifa_addr->sa_family == AF_INET || i->ifa_addr->sa_family == AF_INET6))
			devices_add(d, i);
	freeifaddrs(all);
	return 0;
}

bool devices_has(const struct devices *d, const struct netaddr *a)
{
	if (netaddr_class(a) == ADDR_LOOPBACK || netaddr_class(a) == ADDR_UNSPECIFIED)
		return true;
	for (size_t i = 0; i < d->n_own; i++)
		if (netaddr_eq(&d->own[i], a))
			return true;
	return false;
}
