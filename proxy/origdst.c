/* SO_ORIGINAL_DST: what conntrack remembers of a connection that a nat rule redirected. */
#include "proxy/origdst.h"

#include <linux/netfilter_ipv4.h>

#ifndef IP6T_SO_ORIGINAL_DST
#define IP6T_SO_ORIGINAL_DST \
	80 /* linux/netfilter_ipv6/ip6_tables.h cannot be included beside netinet */
#endif

bool origdst_find(int fd, struct netaddr *addr, uint16_t *port)
{
	struct sockaddr_storage orig, local;
	socklen_t len = sizeof(local);
	struct netaddr own;
	uint16_t own_port;
	int ret;

	if (getsockname(fd, (struct sockaddr *)&local, &len) < 0 ||
		!netaddr_from_sockaddr((struct sockaddr *)&local, &own, &own_port))
		return false;
	len = sizeof(orig);
	if (netaddr_is_v4(&own))
		ret = getsockopt(fd, SOL_IP, SO_ORIGINAL_DST, &orig, &len);
	else
		ret = getsockopt(fd, SOL_IPV6, IP6T_SO_ORIGINAL_DST, &orig, &len);
	if (ret < 0 || !netaddr_from_sockaddr((struct sockaddr *)&orig, addr, port))
		return false;
	return *port != own_port || !netaddr_eq(addr, &own);
}
