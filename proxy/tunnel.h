/* Bytes both ways, unread: what may pass without being inspected, and what follows a 101. */
#pragma once

#include "proxy/conn.h"
#include "proxy/exchange.h"

struct session;
struct tunnel;

/* To s->pinned, as s->connect allowed it; the client's bytes so far are in its connection. Takes
 * the audit slot before it connects. A failure closes the session. */
struct tunnel *tunnel_dial(struct session *s);

/* Between a session and the connection of a switched exchange; the slot moves. to_client and
 * to_origin were read already. Takes ex->upstream's connection and frees it. */
struct tunnel *tunnel_switch(
	struct session *s, struct exchange *ex, struct slice to_client, struct slice to_origin);

/* The exchange that it carries on (frames behind a 101, a CONNECT); borrowed. */
const struct exchange *tunnel_exchange(const struct tunnel *t);
/* Ends it; its line says reason. Accepts NULL. */
void tunnel_free(struct tunnel *t, enum reason reason);

/* The configuration in force now would allow it, too. */
bool tunnel_is_allowed(const struct tunnel *t);

/* The client's side, from the session's connection. The session may be gone when they return. */
void tunnel_client_readable(struct tunnel *t);
void tunnel_client_drained(struct tunnel *t);
