/* The one decision: may this request, tunnel or address be? From policy, read-only rule and the
 * facts of the connection. Only this file decides; only reply refuses. */
#pragma once

#include "audit/event.h"
#include "proxy/fields.h"
#include "proxy/proxy.h"
#include "proxy/request_target.h"

struct h1_head;

struct admission {
	enum reason reason;     /* an allowing one, or why not */
	struct verdict verdict; /* of policy, for the rule that is named */
	enum audit_kind kind;   /* READ, WRITE or TUNNEL */
	bool allow;
	bool write; /* needs leave to write, which admit_address gives */
};

/* What is asked for. */
struct admit_request {
	const struct authority *target; /* canonical; has_port is set */
	const struct authority *pinned; /* SNI, CONNECT's authority; NULL: none */
	uint16_t port;                  /* of the redirect or CONNECT; 0: none */
	const struct h1_head *head;
	const struct request_target *form; /* for path and query */
	bool upgrade;                      /* Upgrade to something but h2c */
};

/* A request whose head is well formed. */
void admit_request(
	const struct proxy_config *c, const struct admit_request *r, struct admission *out);

/* A CONNECT, or a redirected connection whose target has just become known: by name, address and
 * port (the table of design 4, before the first bytes are seen). */
void admit_connect(
	const struct proxy_config *c, const struct authority *target, struct admission *out);

/* Bytes that are no request and no TLS that we open: a tunnel. `how` as admit_connect left it. */
void admit_tunnel(
	const struct proxy_config *c, const struct authority *target, struct admission *how);

/* The address that is about to be connected to, for what `how` allowed. An allowing reason, or why
 * this address is not for it. */
enum reason admit_address(const struct proxy_config *c, const struct policy *p,
	const struct authority *target, const struct admission *how, const struct netaddr *a);

bool reason_allows(enum reason r);
