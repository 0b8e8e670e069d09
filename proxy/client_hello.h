/* Peeks into a TLS ClientHello (RFC 8446 4.1.2, RFC 6066 3) for the name a client asks for. Pure.
 *
 * The hello may be split over any number of records and segments. */
#pragma once

#include "base/hostname.h"

#define CLIENT_HELLO_MAX 65536 /* bytes of records; OpenSSL's own limit is of that order */

#define CLIENT_HELLO_ERROR_TABLE(X)                     \
	X(OK, "")                                       \
	X(NOT_TLS, "not a TLS handshake record")        \
	X(MALFORMED, "a malformed ClientHello")         \
	X(TOO_LARGE, "a ClientHello that is too large") \
	X(NAME_MALFORMED, "a malformed server name")    \
	X(NAME_TWICE, "more than one server name")

enum client_hello_error {
#define X(id, text) CLIENT_HELLO_##id,
	CLIENT_HELLO_ERROR_TABLE(X)
#undef X
		CLIENT_HELLO_ERROR_MAX
};

const char *client_hello_error_text(enum client_hello_error e);

struct client_hello {
	enum client_hello_error error;
	size_t name_len;             /* 0: no SNI, or an address literal in it */
	char name[HOSTNAME_MAX + 1]; /* normal form */
	bool alpn;                   /* the extension is there */
	bool alpn_h2, alpn_http11;
	bool ech;             /* encrypted_client_hello (0xfe0d), GREASE or not */
	uint16_t max_version; /* highest offered, 0x0303 or 0x0304 */
};

/* True as soon as one byte can no longer begin a TLS handshake record; false for an empty slice. */
bool client_hello_is_not_tls(struct slice in);

/* in: everything received so far, from the first byte. 0: decided, *out (also when out->error is
 * set); E_MORE: more is needed. */
CHECKED int client_hello_decode(struct slice in, struct client_hello *out);
