/* What a program needs that sends requests of its own and serves nobody: resolver, TLS, locked
 * memory, and the proxy that fetch goes through. */
#pragma once

#include "base/err.h"

#define CALLER_TRUST "/etc/ssl/certs" /* the system's roots */

struct caller {
	struct event_base *base;
	struct secmem *mem; /* keys lie here; what is sent with one is composed here, too */
	struct proxy *px;
	struct tls *tls;
	struct resolver *resolver;
	struct policy *policy;
};

/* Names are looked up as the system's resolv.conf and hosts file say. trust: the one PEM bundle or
 * directory that counts; NULL: CALLER_TRUST. c is zeroed; caller_close also after a failure. */
CHECKED int caller_open(struct caller *c, const char *trust, struct errmsg *msg);
/* After every fetch and everything in c->mem. */
void caller_close(struct caller *c);
