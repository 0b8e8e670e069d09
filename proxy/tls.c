/* TLS towards clients and origins: two contexts, and the SSL objects made from them.
 *
 * intercept asks for the client's side when the ClientHello is read, upstream for the origin's side
 * when its socket is connected; the handshake runs in conn over the BIO of tls_io. There is no
 * context for each host: what differs (certificate, session context, name) is set on the SSL. */
#include "proxy/tls.h"

#include <stdlib.h>

#include <openssl/err.h>
#include <openssl/sha.h>
#include <openssl/x509v3.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/hostname.h"
#include "base/reader.h"
#include "proxy/tls_int.h"
#include "proxy/tls_session.h"
#include "proxy/trust.h"

/* AES-128-GCM is the fastest with the CPU's AES instructions; no cipher without forward secrecy or
 * with CBC. */
#define TLS_SUITES_13 "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256"
#define TLS_CIPHERS_12                                               \
	"ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:" \
	"ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384:" \
	"ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305"
#define TLS_SERVER_GROUPS "X25519:P-256"
#define TLS_CLIENT_GROUPS "X25519:P-256:P-384"

#define TLS_LEVEL 2          /* 112 bits: no SHA-1, no RSA below 2048 */
#define TLS_LEVEL_INSECURE 0 /* origins that nobody verifies may be weak, too */
#define TLS_CHAIN_DEPTH 8
#define TLS_CLIENT_IDS_MAX 1024  /* session ids of TLS 1.2 clients without tickets */
#define TLS_CLIENT_RESUME_S 7200 /* a client's ticket is good for this long */
#define TLS_KEY_HEAD 4           /* verified, address or name, port */

static const unsigned char tls_alpn[] = "\x08http/1.1";

struct tls {
	SSL_CTX *server;
	SSL_CTX *client;
	struct leaf_cache *leaves;
	struct trust *trust;
	struct tls_sessions *sessions;
	int peer_index; /* of struct tls_peer in an SSL */
	bool insecure;
};

/* Hangs from the SSL of an origin. */
struct tls_peer {
	bool asked_for_certificate;
	size_t key_len;
	char key[]; /* of its sessions */
};

static void on_peer_free(
	void *parent, void *ptr, CRYPTO_EX_DATA *ad, int index, long argl, void *argp)
{
	free(ptr);
}

static struct tls_peer *tls_peer(const SSL *ssl)
{
	const struct tls *t = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));

	return SSL_get_ex_data(ssl, t->peer_index);
}

bool tls_was_asked_for_certificate(const SSL *ssl)
{
	const struct tls_peer *p = tls_peer(ssl);

	return p && p->asked_for_certificate;
}

/* We have no certificate to show; only remember that it was asked for. */
static int on_certificate_request(SSL *ssl, X509 **cert, EVP_PKEY **key)
{
	struct tls_peer *p = tls_peer(ssl);

	if (p)
		p->asked_for_certificate = true;
	return 0;
}

/* Called after the verification, so that no session of an unverified origin is kept as verified.
 * 0: OpenSSL keeps its reference. */
static int on_new_session(SSL *ssl, SSL_SESSION *session)
{
	const struct tls *t = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
	const struct tls_peer *p = tls_peer(ssl);

	if (p)
		tls_sessions_put(t->sessions, slice_make(p->key, p->key_len), session);
	return 0;
}

/* A client that lists protocols must list one that we speak; otherwise it would go on in another.
 * curl --http1.0 lists http/1.0 alone; one that lists both gets 1.1. */
static int on_alpn(SSL *ssl, const unsigned char **out, unsigned char *out_len,
	const unsigned char *in, unsigned int in_len, void *arg)
{
	struct reader r = reader_make(slice_make((const char *)in, in_len));
	struct slice best = SLICE_EMPTY;
	struct slice p;

	while (r.left && !r.bad) {
		p = reader_slice(&r, reader_u8(&r));
		if (slice_eq(p, SLICE("http/1.1")) || (!best.len && slice_eq(p, SLICE("http/1.0"))))
			best = p;
	}
	if (!best.len)
		return SSL_TLSEXT_ERR_ALERT_FATAL;
	*out = (const unsigned char *)best.p;
	*out_len = (unsigned char)best.len;
	return SSL_TLSEXT_ERR_OK;
}

static SSL_CTX *tls_context_new(const SSL_METHOD *method, struct tls *t)
{
	SSL_CTX *ctx = SSL_CTX_new(method);

	if (ctx && SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) &&
		SSL_CTX_set_max_proto_version(ctx, TLS1_3_VERSION) &&
		SSL_CTX_set_ciphersuites(ctx, TLS_SUITES_13) &&
		SSL_CTX_set_cipher_list(ctx, TLS_CIPHERS_12) && SSL_CTX_set_app_data(ctx, t)) {
		SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS);
		SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
		SSL_CTX_set_security_level(ctx, TLS_LEVEL);
		return ctx;
	}
	SSL_CTX_free(ctx);
	return NULL;
}

static bool tls_make_server(struct tls *t)
{
	t->server = tls_context_new(TLS_server_method(), t);
	if (!t->server || !SSL_CTX_set1_groups_list(t->server, TLS_SERVER_GROUPS))
		return false;
	SSL_CTX_set_options(t->server, SSL_OP_CIPHER_SERVER_PREFERENCE);
	SSL_CTX_set_alpn_select_cb(t->server, on_alpn, NULL);
	/* Tickets are stateless. The cache takes only session ids of TLS 1.2. */
	SSL_CTX_set_session_cache_mode(t->server, SSL_SESS_CACHE_SERVER);
	SSL_CTX_sess_set_cache_size(t->server, TLS_CLIENT_IDS_MAX);
	SSL_CTX_set_timeout(t->server, TLS_CLIENT_RESUME_S);
	return SSL_CTX_set_num_tickets(t->server, 1) && SSL_CTX_set_max_early_data(t->server, 0) &&
		SSL_CTX_set_recv_max_early_data(t->server, 0);
}

static bool tls_make_client(struct tls *t)
{
	t->client = tls_context_new(TLS_client_method(), t);
	if (!t->client || !SSL_CTX_set1_groups_list(t->client, TLS_CLIENT_GROUPS))
		return false;
	SSL_CTX_set1_cert_store(t->client, trust_store(t->trust));
	SSL_CTX_set_verify(t->client, t->insecure ? SSL_VERIFY_NONE : SSL_VERIFY_PEER, NULL);
	SSL_CTX_set_verify_depth(t->client, TLS_CHAIN_DEPTH);
	if (t->insecure)
		SSL_CTX_set_security_level(t->client, TLS_LEVEL_INSECURE);
	SSL_CTX_set_client_cert_cb(t->client, on_certificate_request);
	SSL_CTX_set_session_cache_mode(
		t->client, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
	SSL_CTX_sess_set_new_cb(t->client, on_new_session);
	/* This one gives 0 for success. */
	return SSL_CTX_set_alpn_protos(t->client, tls_alpn, sizeof(tls_alpn) - 1) == 0;
}

/* Takes the roots, whatever comes of it. */
static int tls_make(const struct ca *ca, struct trust *roots, bool insecure, struct tls **out,
	struct errmsg *msg)
{
	struct tls *t = xcalloc(1, sizeof(*t));
	int ret;

	t->insecure = insecure;
	t->trust = roots;
	t->sessions = tls_sessions_new(TLS_SESSIONS_MAX);
	t->peer_index = SSL_get_ex_new_index(0, NULL, NULL, NULL, on_peer_free);
	ret = ca ? leaf_cache_new(ca, LEAF_CACHE_MAX, &t->leaves) : 0;
	if (ret < 0) {
		ret = errmsg_set(msg, ret, "cannot make the key of the minted certificates");
		goto out;
	}
	if (t->peer_index < 0 || !tls_make_server(t) || !tls_make_client(t)) {
		ret = errmsg_set(msg, E_TLS, "cannot set up TLS");
		goto out;
	}
	*out = t;
	t = NULL;
out:
	ERR_clear_error();
	tls_free(t);
	return ret;
}

int tls_new(
	const struct ca *ca, const char *trust, bool insecure, struct tls **out, struct errmsg *msg)
{
	struct trust *roots;
	int ret = trust_new(trust, &roots, msg);

	ERR_clear_error();
	return ret < 0 ? ret : tls_make(ca, roots, insecure, out, msg);
}

int tls_new_trust(const struct ca *ca, const struct tls_trust *trust, bool insecure,
	struct tls **out, struct errmsg *msg)
{
	struct trust *roots;
	int ret = trust_new_fd(trust->fd, trust->name, &roots, msg);

	ERR_clear_error();
	return ret < 0 ? ret : tls_make(ca, roots, insecure, out, msg);
}

void tls_free(struct tls *t)
{
	if (!t)
		return;
	SSL_CTX_free(t->server);
	SSL_CTX_free(t->client);
	if (t->peer_index >= 0)
		(void)CRYPTO_free_ex_index(CRYPTO_EX_INDEX_SSL, t->peer_index);
	leaf_cache_free(t->leaves);
	trust_free(t->trust);
	tls_sessions_free(t->sessions);
	free(t);
}

struct leaf_cache *tls_leaves(struct tls *t)
{
	return t->leaves;
}

/* A session may be resumed only where this is the same: same name, same policy (C83). */
static bool tls_set_session_context(
	SSL *ssl, struct slice name, const struct netaddr *addr, uint64_t epoch)
{
	uint8_t text[1 + sizeof(epoch) + HOSTNAME_MAX];
	uint8_t digest[SHA256_DIGEST_LENGTH];
	struct slice id = addr ? slice_make((const char *)addr->b, sizeof(addr->b)) : name;

	if (id.len > HOSTNAME_MAX)
		return false;
	text[0] = addr ? 1 : 0;
	memcpy(text + 1, &epoch, sizeof(epoch));
	memcpy(text + 1 + sizeof(epoch), id.p, id.len);
	return SHA256(text, 1 + sizeof(epoch) + id.len, digest) &&
		SSL_set_session_id_context(ssl, digest, sizeof(digest));
}

SSL *tls_accept_new(struct tls *t, struct slice name, const struct netaddr *addr, uint64_t epoch)
{
	X509 *leaf = leaf_get(t->leaves, name, addr, clock_wall_us());
	SSL *ssl = NULL;

	if (!leaf)
		return NULL;
	ssl = SSL_new(t->server);
	/* The key last, and not in the context: a certificate set beside a key costs 25 us more,
	 * for a copy of its parameters. */
	if (ssl && tls_set_session_context(ssl, name, addr, epoch) &&
		SSL_use_certificate(ssl, leaf) && SSL_use_PrivateKey(ssl, leaf_key(t->leaves))) {
		SSL_set_accept_state(ssl);
		return ssl;
	}
	ERR_clear_error();
	SSL_free(ssl);
	return NULL;
}

static bool tls_set_peer(struct tls *t, SSL *ssl, struct slice id, bool is_addr, uint16_t port)
{
	struct tls_peer *p = xcalloc(1, sizeof(*p) + TLS_KEY_HEAD + id.len);

	p->key_len = TLS_KEY_HEAD + id.len;
	p->key[0] = t->insecure ? 0 : 1;
	p->key[1] = is_addr ? 1 : 0;
	p->key[2] = (char)(port >> 8);
	p->key[3] = (char)port;
	memcpy(p->key + TLS_KEY_HEAD, id.p, id.len);
	if (SSL_set_ex_data(ssl, t->peer_index, p))
		return true;
	free(p);
	return false;
}

/* Whom the certificate must be for. Wildcards cover one whole label; the subject's CN never counts.
 */
static bool tls_set_name(SSL *ssl, char *name, const struct netaddr *addr)
{
	SSL_set_hostflags(
		ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
	if (addr) {
		size_t len = netaddr_is_v4(addr) ? 4 : 16;

		return X509_VERIFY_PARAM_set1_ip(
			SSL_get0_param(ssl), addr->b + sizeof(addr->b) - len, len);
	}
	return SSL_set1_host(ssl, name) && SSL_set_tlsext_host_name(ssl, name);
}

SSL *tls_connect_new(struct tls *t, struct slice name, const struct netaddr *addr, uint16_t port)
{
	struct slice id = addr ? slice_make((const char *)addr->b, sizeof(addr->b)) : name;
	char host[HOSTNAME_MAX + 1] = "";
	SSL_SESSION *session = NULL;
	const struct tls_peer *p;
	SSL *ssl = NULL;

	/* An empty name would switch the check of the name off. */
	if (!addr && (!name.len || !slice_to_cstr(name, host, sizeof(host))))
		return NULL;
	ssl = SSL_new(t->client);
	if (!ssl || !tls_set_peer(t, ssl, id, addr, port) || !tls_set_name(ssl, host, addr)) {
		ERR_clear_error();
		SSL_free(ssl);
		return NULL;
	}
	p = tls_peer(ssl);
	session = tls_sessions_take(t->sessions, slice_make(p->key, p->key_len));
	if (session)
		(void)SSL_set_session(ssl, session);
	SSL_SESSION_free(session);
	SSL_set_connect_state(ssl);
	return ssl;
}

bool tls_is_verified(const SSL *ssl)
{
	return !SSL_is_server(ssl) && SSL_is_init_finished(ssl) &&
		(SSL_get_verify_mode(ssl) & SSL_VERIFY_PEER) &&
		SSL_get_verify_result(ssl) == X509_V_OK;
}
