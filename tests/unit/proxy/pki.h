/* Certificates for the tests of ca, leaf, tls and trust: good ones, and each kind of bad one. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#define PKI_DAY 86400L

/* What is to be made; what is left out is ordinary. */
struct pki_spec {
	const char *cn;
	const char *san; /* "DNS:a.test,IP:10.0.0.1" */
	const char *eku;
	const char *usage;
	const char *constraints; /* basicConstraints */
	const char *names;       /* nameConstraints */
	const char *key_type;    /* "EC" (P-256) if NULL, else "P-384", "P-521", "ED25519", "RSA" */
	unsigned int rsa_bits;
	long from_s; /* from now; 0 is yesterday */
	long to_s;   /* from now; 0 is in 30 days */
	bool sha1;
};

struct pki_cert {
	X509 *cert;
	EVP_PKEY *key;
};

static inline EVP_PKEY *pki_key(const struct pki_spec *spec)
{
	EVP_PKEY *key;

	if (spec->rsa_bits)
		key = EVP_RSA_gen(spec->rsa_bits);
	else if (spec->key_type && strcmp(spec->key_type, "ED25519") == 0)
		key = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
	else
		key = EVP_EC_gen(spec->key_type ? spec->key_type : "P-256");
	assert_non_null(key);
	return key;
}

static inline void pki_add(X509 *cert, X509 *issuer, int nid, const char *value)
{
	X509V3_CTX ctx;
	X509_EXTENSION *ext;

	if (!value)
		return;
	X509V3_set_ctx(&ctx, issuer, cert, NULL, NULL, 0);
	X509V3_set_ctx_nodb(&ctx);
	ext = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
	assert_non_null(ext);
	assert_int_equal(X509_add_ext(cert, ext, -1), 1);
	X509_EXTENSION_free(ext);
}

/* issuer NULL: self-signed. */
static inline struct pki_cert pki_make(const struct pki_spec *spec, const struct pki_cert *issuer)
{
	struct pki_cert c = {X509_new(), pki_key(spec)};
	X509_NAME *name = X509_get_subject_name(c.cert);
	time_t now = time(NULL);
	static long serial = 1;
	const EVP_MD *md = spec->sha1 ? EVP_sha1() : EVP_sha256();

	if (EVP_PKEY_is_a(c.key, "ED25519") && !issuer)
		md = NULL;
	X509_set_version(c.cert, X509_VERSION_3);
	ASN1_INTEGER_set(X509_get_serialNumber(c.cert), ++serial);
	if (spec->cn)
		X509_NAME_add_entry_by_txt(
			name, "CN", MBSTRING_ASC, (const unsigned char *)spec->cn, -1, -1, 0);
	X509_set_issuer_name(c.cert, issuer ? X509_get_subject_name(issuer->cert) : name);
	ASN1_TIME_set(X509_getm_notBefore(c.cert), now + (spec->from_s ? spec->from_s : -PKI_DAY));
	ASN1_TIME_set(X509_getm_notAfter(c.cert), now + (spec->to_s ? spec->to_s : 30 * PKI_DAY));
	X509_set_pubkey(c.cert, c.key);
	pki_add(c.cert, c.cert, NID_subject_key_identifier, "hash");
	pki_add(c.cert, issuer ? issuer->cert : c.cert, NID_authority_key_identifier,
		"keyid:always");
	pki_add(c.cert, c.cert, NID_basic_constraints, spec->constraints);
	pki_add(c.cert, c.cert, NID_key_usage, spec->usage);
	pki_add(c.cert, c.cert, NID_ext_key_usage, spec->eku);
	pki_add(c.cert, c.cert, NID_subject_alt_name, spec->san);
	pki_add(c.cert, c.cert, NID_name_constraints, spec->names);
	assert_true(X509_sign(c.cert, issuer ? issuer->key : c.key, md) > 0);
	return c;
}

static inline struct pki_cert pki_ca(const char *cn, const struct pki_cert *issuer)
{
	return pki_make(&(struct pki_spec){.cn = cn,
				.constraints = "critical,CA:TRUE",
				.usage = "critical,keyCertSign,cRLSign"},
		issuer);
}

static inline void pki_free(struct pki_cert *c)
{
	X509_free(c->cert);
	EVP_PKEY_free(c->key);
}

/* Writes the certificates as PEM into the file. */
static inline void pki_write(const char *path, const struct pki_cert *certs, size_t n)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	for (size_t i = 0; i < n; i++)
		assert_int_equal(PEM_write_X509(f, certs[i].cert), 1);
	assert_int_equal(fclose(f), 0);
}

/* Runs both handshakes against each other in memory. 1 both done, 0 one of them failed. */
static inline int pki_handshake(SSL *client, SSL *server)
{
	BIO *a = NULL;
	BIO *b = NULL;
	int c = -1;
	int s = -1;

	if (!SSL_get_rbio(client)) {
		assert_int_equal(BIO_new_bio_pair(&a, 65536, &b, 65536), 1);
		SSL_set_bio(client, a, a);
		SSL_set_bio(server, b, b);
	}
	for (int i = 0; i < 20 && (c != 1 || s != 1); i++) {
		ERR_clear_error();
		if (c != 1)
			c = SSL_do_handshake(client);
		if (c < 1 && SSL_get_error(client, c) != SSL_ERROR_WANT_READ)
			return 0;
		ERR_clear_error();
		if (s != 1)
			s = SSL_do_handshake(server);
		/* The client reads the alert next; the server's own error stays for the test. */
		if (s < 1 && SSL_get_error(server, s) != SSL_ERROR_WANT_READ)
			return 0;
	}
	return c == 1 && s == 1;
}

/* One byte from server to client, which carries the tickets of TLS 1.3 with it. 1 if it arrived. */
static inline int pki_ping(SSL *client, SSL *server)
{
	char byte = 0;

	ERR_clear_error();
	if (SSL_write(server, "x", 1) != 1)
		return 0;
	return SSL_read(client, &byte, 1) == 1 && byte == 'x';
}
