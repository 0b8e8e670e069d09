/* Sessions of origins for resumption.
 *
 * tls puts what OpenSSL reports after a handshake and takes one for the next connection with the
 * same key: name, port and whether it is verified. So a session never serves another name. */
#include "proxy/tls_session.h"

#include <stdlib.h>

#include <openssl/err.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/map.h"

#define TLS_SESSION_SLOTS 2 /* servers commonly send two tickets */
#define TLS_SESSION_CERTIFICATE 3
#define US_PER_S 1000000ULL

struct tls_session {
	uint64_t from_us;
	uint64_t end_us;
	bool once;
	size_t len;
	uint8_t der[];
};

struct tls_sessions {
	struct map *map; /* key and slot number -> struct tls_session */
};

static void tls_session_free(void *value)
{
	struct tls_session *s = value;

	/* It holds the secret that resumption rests on. */
	OPENSSL_cleanse(s->der, s->len);
	free(s);
}

struct tls_sessions *tls_sessions_new(size_t max)
{
	struct tls_sessions *s = xcalloc(1, sizeof(*s));

	s->map = map_new(max, tls_session_free);
	return s;
}

void tls_sessions_free(struct tls_sessions *s)
{
	if (!s)
		return;
	map_free(s->map);
	free(s);
}

size_t tls_sessions_count(const struct tls_sessions *s)
{
	return map_count(s->map);
}

/* key with the slot behind it, in buf; empty if it is too long, which no host name is. */
static struct slice tls_session_key(struct slice key, char slot, char buf[TLS_SESSION_KEY_MAX])
{
	if (key.len >= TLS_SESSION_KEY_MAX)
		return SLICE_EMPTY;
	memcpy(buf, key.p, key.len);
	buf[key.len] = slot;
	return slice_make(buf, key.len + 1);
}

/* A free slot, else the one whose session is older. TLS 1.2 needs one only. */
static char tls_session_slot(const struct tls_sessions *s, struct slice key, bool once)
{
	char buf[TLS_SESSION_KEY_MAX];
	uint64_t oldest = UINT64_MAX;
	char slot = 0;

	for (char i = 0; once && i < TLS_SESSION_SLOTS; i++) {
		const struct tls_session *k = map_find(s->map, tls_session_key(key, i, buf));

		if (!k)
			return i;
		if (k->from_us < oldest) {
			oldest = k->from_us;
			slot = i;
		}
	}
	return slot;
}

/* Takes the origin's certificate ([3] in OpenSSL's SSL_SESSION_ASN1) out of an encoded session and
 * gives the new length: decoding it takes 150 us, nearly half of what resumption saves. That
 * it was verified is kept as verify_result. What is not as expected stays as it is. */
static size_t tls_session_drop_certificate(uint8_t *der, size_t len)
{
	const unsigned char *p = der;
	const unsigned char *end = der + len;
	uint8_t *body;
	uint8_t *from;
	uint8_t *head = der;
	size_t rest;
	long n;
	int tag;
	int class;

	if ((ASN1_get_object(&p, &n, &tag, &class, (long)len) & 0x80) || p + n != end)
		return len;
	body = der + (p - der);
	do {
		from = der + (p - der);
		if (p == end || (ASN1_get_object(&p, &n, &tag, &class, end - p) & 0x80))
			return len;
		p += n;
	} while (class != V_ASN1_CONTEXT_SPECIFIC || tag != TLS_SESSION_CERTIFICATE);
	rest = (size_t)(end - p);
	memmove(from, p, rest);
	/* The outer head may be shorter now. */
	n = from + rest - body;
	ASN1_put_object(&head, 1, (int)n, V_ASN1_SEQUENCE, V_ASN1_UNIVERSAL);
	memmove(head, body, (size_t)n);
	return (size_t)(head - der + n);
}

static struct tls_session *tls_session_new(SSL_SESSION *session)
{
	unsigned long keep_s = SSL_SESSION_get_ticket_lifetime_hint(session);
	struct tls_session *k = NULL;
	unsigned char *der = NULL;
	int encoded = i2d_SSL_SESSION(session, &der);
	size_t len;

	if (encoded <= 0)
		return NULL;
	len = tls_session_drop_certificate(der, (size_t)encoded);
	if (len > TLS_SESSION_BYTES_MAX)
		goto out;
	if (keep_s == 0 || keep_s > TLS_SESSION_KEEP_S)
		keep_s = TLS_SESSION_KEEP_S;
	k = xmalloc(sizeof(*k) + len);
	k->from_us = clock_wall_us();
	k->end_us = k->from_us + keep_s * US_PER_S;
	k->once = SSL_SESSION_get_protocol_version(session) >= TLS1_3_VERSION;
	k->len = len;
	memcpy(k->der, der, len);
out:
	OPENSSL_clear_free(der, (size_t)encoded);
	return k;
}

void tls_sessions_put(struct tls_sessions *s, struct slice key, SSL_SESSION *session)
{
	char buf[TLS_SESSION_KEY_MAX];
	struct tls_session *k;

	if (!SSL_SESSION_is_resumable(session) || key.len >= TLS_SESSION_KEY_MAX)
		return;
	k = tls_session_new(session);
	if (k)
		map_put(s->map, tls_session_key(key, tls_session_slot(s, key, k->once), buf), k);
}

SSL_SESSION *tls_sessions_take(struct tls_sessions *s, struct slice key)
{
	uint64_t now = clock_wall_us();
	char buf[TLS_SESSION_KEY_MAX];
	SSL_SESSION *session = NULL;

	for (char i = TLS_SESSION_SLOTS - 1; !session && i >= 0; i--) {
		struct slice slot = tls_session_key(key, i, buf);
		const struct tls_session *k = map_find(s->map, slot);
		const unsigned char *p;
		bool good;

		if (!k)
			continue;
		p = k->der;
		good = now >= k->from_us && now < k->end_us;
		if (good)
			session = d2i_SSL_SESSION(NULL, &p, (long)k->len);
		if (!session || k->once)
			(void)map_remove(s->map, slot);
	}
	ERR_clear_error();
	return session;
}
