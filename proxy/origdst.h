/* Where a redirected connection wanted to go. */
#pragma once

#include "base/netaddr.h"

/* False for a connection that was made to us: no translation is on record, or it says our own
 * address. */
CHECKED bool origdst_find(int fd, struct netaddr *addr, uint16_t *port);
