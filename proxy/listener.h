/* A listening socket of the proxy: accepts, tells redirected connections from explicit ones, and
 * stops for a moment when descriptors or connections run out. */
#pragma once

#include "proxy/proxy.h"

struct listener;

/* fd stays the caller's. */
struct listener *listener_new(struct proxy *px, int fd);
void listener_free(struct listener *l);
