/* Heads as they go on: which fields stay on this side of the proxy (RFC 9110 7.6.1), and the
 * writing of lines into a connection. */
#pragma once

#include "proxy/conn.h"
#include "proxy/exchange.h"

/* Removes, in place, from a request: hop-by-hop fields and those that Connection names, Proxy-* and
 * OPENSANDBOX-* fields, Host (written from the target), framing, and `Upgrade: h2c` with its
 * HTTP2-Settings. Upgrade itself stays out; rewrite_request_head writes it where it is allowed. */
void rewrite_request_fields(struct fields *f);

/* The same for a response: also Alt-Svc, which would lead the client around the proxy.
 * Content-Length stays (once) where it is true: content of that length, or an answer to HEAD, or a
 * 304. */
void rewrite_response_fields(struct h1_head *h, bool is_head);

/* The request line and fields of ex as sent to the origin, with the empty line. h is ex's decoded
 * head; its field table is changed. Sets *chunked to how the content is framed. Returns the bytes
 * written. */
size_t rewrite_request_head(struct exchange *ex, struct h1_head *h, struct conn *c, bool *chunked);

/* Lines `name: value`, runs of unchanged ones as they stand in their head. Returns the bytes. */
size_t rewrite_fields(const struct fields *f, struct conn *c);

/* The tokens of an Upgrade request but h2c; *only_h2c if there is no other. False if it asks for
 * none. */
bool rewrite_upgrade(const struct fields *f, bool *only_h2c);

/* One chunk around content (RFC 9112 7.1), and the last one with trailers (may be NULL). */
void rewrite_chunk(struct conn *c, struct slice content);
void rewrite_last_chunk(struct conn *c, const struct fields *trailers);
/* "Content-Length: N\r\n". */
size_t rewrite_length(struct conn *c, uint64_t length);
