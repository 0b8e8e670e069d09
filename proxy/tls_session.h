/* Sessions of origins, kept for resumption: as bytes, and without the certificate. */
#pragma once

#include <openssl/ssl.h>

#include "base/slice.h"

#define TLS_SESSION_KEEP_S 3600    /* a resumed session skips verification: not for longer */
#define TLS_SESSION_BYTES_MAX 8192 /* encoded, with a ticket */
#define TLS_SESSION_KEY_MAX 272    /* a name and four more bytes */

/* An SSL_SESSION would hold the whole decoded chain. Up to two for each key, for servers that send
 * two single-use tickets. */
struct tls_sessions;

/* max: sessions at most; the least recently used goes first. */
struct tls_sessions *tls_sessions_new(size_t max);
void tls_sessions_free(struct tls_sessions *s);
/* Keeps a copy. One that cannot be resumed or is too large is not kept. */
void tls_sessions_put(struct tls_sessions *s, struct slice key, SSL_SESSION *session);
/* The caller's, or NULL. One of TLS 1.3 is given out once (RFC 8446 C.4), one of TLS 1.2 stays. */
SSL_SESSION *tls_sessions_take(struct tls_sessions *s, struct slice key);
size_t tls_sessions_count(const struct tls_sessions *s);
