/* TLS towards clients (minted certificates) and origins (verified against the roots): contexts,
 * sessions, errors. The BIO under an SSL is tls_io's. */
#pragma once

#include <openssl/ssl.h>

#include "base/netaddr.h"
#include "proxy/leaf.h"

#define TLS_SESSIONS_MAX 1024 /* of origins, kept for resumption */

struct tls;

/* ca is borrowed; NULL: there are no clients, only origins. trust: descriptor-free path of a PEM
 * bundle or of a directory of PEM files, read whole now, nothing later; every file's problem is a
 * warning, no usable root at all is an error that names the path. insecure: origins are not
 * verified (setting ..._SSL_INSECURE). */
CHECKED int tls_new(const struct ca *ca, const char *trust, bool insecure, struct tls **out,
	struct errmsg *msg);
/* The same with roots that somebody with more rights has opened (proxy/trust.h). */
struct tls_trust {
	int fd; /* borrowed for the call; a file or a directory */
	const char *name;
};
CHECKED int tls_new_trust(const struct ca *ca, const struct tls_trust *trust, bool insecure,
	struct tls **out, struct errmsg *msg);
/* After every SSL made from it. */
void tls_free(struct tls *t);
struct leaf_cache *tls_leaves(struct tls *t);

/* A server-side SSL for a client, with the leaf for that name (or address, if addr is not NULL)
 * already set. TLS 1.2 and 1.3, AES-128-GCM first; ALPN answers http/1.1 if offered, else http/1.0,
 * and refuses a list that lacks both (no_application_protocol). Tickets and session ids work, but
 * only for the same name (session id context = hash of the name and of epoch): C83. No early data,
 * no renegotiation. SSL_MODE_RELEASE_BUFFERS. NULL if minting failed. */
SSL *tls_accept_new(struct tls *t, struct slice name, const struct netaddr *addr, uint64_t epoch);

/* A client-side SSL towards an origin: SNI (none for an address), verification of chain and name
 * (no partial wildcards, no CN fallback), ALPN http/1.1, a kept session of the same name, port and
 * verification if there is one; new sessions are kept. port is part of that key. */
SSL *tls_connect_new(struct tls *t, struct slice name, const struct netaddr *addr, uint16_t port);

/* True if the origin's certificate was verified (false in insecure mode). */
bool tls_is_verified(const SSL *ssl);

/* After a failed handshake or read: what went wrong, for a person, without peer text: "certificate
 * expired", "certificate is for another name", "self-signed certificate", "the origin asks for a
 * client certificate, which cannot pass interception", "protocol version", ... Empties
 * OpenSSL's error queue. *certificate: it was about the origin's certificate. */
const char *tls_error_text(SSL *ssl, bool *certificate);
