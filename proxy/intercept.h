/* Whether TLS of a client is opened, passed unread, or refused; and the opening. */
#pragma once

#include "proxy/client_hello.h"
#include "proxy/exchange.h"

struct session;

enum intercept_how { INTERCEPT_OPEN, INTERCEPT_PASS, INTERCEPT_REFUSE };

/* For a target that `how` allows. PASS and REFUSE: *how may change, as admit_tunnel does it. */
enum intercept_how intercept_check(
	const struct proxy *px, const struct authority *target, struct admission *how);

/* For CONNECT to a port where TLS is expected: an allowing reason, or CANNOT_INSPECT when TLS to it
 * could only be refused later. */
enum reason intercept_connect(
	const struct proxy *px, const struct authority *target, const struct admission *how);

/* A complete ClientHello came. Decides by its name and what CONNECT or the redirect said, and goes
 * on: handshake, tunnel, or the end of the session. */
void intercept_hello(struct session *s, const struct client_hello *hello);

/* Drives the handshake. The session may be gone when it returns. */
void intercept_handshake(struct session *s);
