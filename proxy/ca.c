/* The root certificate: made, stored as bytes, read back.
 *
 * The supervisor makes it or reads it from a file before a worker exists and hands it on in the
 * secret area; leaf signs with it. Nothing here is on the path of a connection. Private keys pass
 * through buffers that are wiped. */
#include "proxy/ca.h"

#include <stdio.h>
#include <stdlib.h>

#include <openssl/bio.h>
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/reader.h"

#define CA_BACKDATE_S (48 * 3600) /* clients with a slow clock */
#define CA_RSA_BITS_MIN 2048
#define CA_SERIAL_LEN 16 /* 128 random bits, well below the 20 bytes of RFC 5280 4.1.2.2 */

void ca_free(struct ca *ca)
{
	if (!ca)
		return;
	X509_free(ca->cert);
	EVP_PKEY_free(ca->key);
	free(ca);
}

/* Every failure of libcrypto here is one of memory, randomness or of our own. */
static int ca_crypto_failed(struct errmsg *msg, const char *what)
{
	ERR_clear_error();
	return errmsg_set(msg, E_TLS, "cannot %s", what);
}

/* Fills key_id: what leaves name as their issuer's key. */
static int ca_set_key_id(struct ca *ca)
{
	const ASN1_OCTET_STRING *ski = X509_get0_subject_key_id(ca->cert);
	unsigned int len = 0;

	if (!ski) {
		if (!X509_pubkey_digest(ca->cert, EVP_sha1(), ca->key_id, &len))
			return E_TLS;
		ca->key_id_len = len;
		return 0;
	}
	if (ASN1_STRING_length(ski) <= 0 || ASN1_STRING_length(ski) > CA_KEY_ID_MAX)
		return E_LIMIT;
	ca->key_id_len = (size_t)ASN1_STRING_length(ski);
	memcpy(ca->key_id, ASN1_STRING_get0_data(ski), ca->key_id_len);
	return 0;
}

static bool ca_add_extensions(X509 *cert)
{
	static const struct {
		int nid;
		const char *value;
	} rows[] = {
		{NID_basic_constraints, "critical,CA:TRUE,pathlen:0"},
		{NID_key_usage, "critical,keyCertSign,cRLSign"},
		{NID_subject_key_identifier, "hash"},
		/* Copies the SKI, so it comes after it. */
		{NID_authority_key_identifier, "keyid:always"},
	};
	X509_EXTENSION *ext = NULL;
	X509V3_CTX ctx;
	bool ok = true;

	X509V3_set_ctx(&ctx, cert, cert, NULL, NULL, 0);
	X509V3_set_ctx_nodb(&ctx);
	for (size_t i = 0; ok && i < ARRAY_LEN(rows); i++) {
		ext = X509V3_EXT_conf_nid(NULL, &ctx, rows[i].nid, rows[i].value);
		ok = ext && X509_add_ext(cert, ext, -1);
		X509_EXTENSION_free(ext);
	}
	return ok;
}

static bool ca_set_serial_and_name(X509 *cert)
{
	uint8_t serial[CA_SERIAL_LEN];
	uint8_t mark[4];
	char cn[32];
	X509_NAME *name = X509_get_subject_name(cert);

	if (RAND_bytes(serial, sizeof(serial)) != 1 || RAND_bytes(mark, sizeof(mark)) != 1)
		return false;
	/* The top bit clear makes it positive, the next one set keeps its length. */
	serial[0] = (uint8_t)((serial[0] & 0x7f) | 0x40);
	(void)snprintf(
		cn, sizeof(cn), "egress CA %02x%02x%02x%02x", mark[0], mark[1], mark[2], mark[3]);
	return ASN1_STRING_set(X509_get_serialNumber(cert), serial, sizeof(serial)) &&
		X509_NAME_add_entry_by_txt(
			name, "CN", MBSTRING_ASC, (const unsigned char *)cn, -1, -1, 0) &&
		X509_set_issuer_name(cert, name);
}

int ca_new(struct ca **out, struct errmsg *msg)
{
	struct ca *ca = xcalloc(1, sizeof(*ca));
	time_t from = (time_t)(clock_wall_us() / 1000000) - CA_BACKDATE_S;
	X509 *cert = X509_new();
	int ret;

	ca->cert = cert;
	ca->key = EVP_EC_gen("P-256");
	if (!cert || !ca->key) {
		ret = ca_crypto_failed(msg, "make the CA key");
		goto out;
	}
	if (!X509_set_version(cert, X509_VERSION_3) || !ca_set_serial_and_name(cert) ||
		!ASN1_TIME_set(X509_getm_notBefore(cert), from) ||
		!ASN1_TIME_adj(X509_getm_notAfter(cert), from, CA_DAYS, 0) ||
		!X509_set_pubkey(cert, ca->key) || !ca_add_extensions(cert) ||
		!X509_sign(cert, ca->key, EVP_sha256())) {
		ret = ca_crypto_failed(msg, "make the CA certificate");
		goto out;
	}
	ret = ca_set_key_id(ca);
	if (ret < 0) {
		ret = ca_crypto_failed(msg, "read the CA key identifier");
		goto out;
	}
	*out = ca;
	ca = NULL;
out:
	ca_free(ca);
	return ret;
}

static void ca_add_sized(struct strbuf *out, const uint8_t *der, int len)
{
	strbuf_char(out, (char)(len >> 8));
	strbuf_char(out, (char)len);
	strbuf_add(out, slice_make((const char *)der, (size_t)len));
}

int ca_encode(const struct ca *ca, struct strbuf *out)
{
	unsigned char *cert = NULL;
	unsigned char *key = NULL;
	int cert_len = i2d_X509(ca->cert, &cert);
	int key_len = i2d_PrivateKey(ca->key, &key);
	int ret = 0;

	if (cert_len <= 0 || key_len <= 0) {
		ret = ca_crypto_failed(NULL, "encode the CA");
		goto out;
	}
	if (cert_len > UINT16_MAX || key_len > UINT16_MAX) {
		ret = E_LIMIT;
		goto out;
	}
	/* The key comes last: a buffer that grew after it would leave a copy behind. */
	ca_add_sized(out, cert, cert_len);
	ca_add_sized(out, key, key_len);
	if (out->full)
		ret = E_LIMIT;
out:
	OPENSSL_free(cert);
	OPENSSL_clear_free(key, key_len > 0 ? (size_t)key_len : 0);
	return ret;
}

int ca_decode(struct slice blob, struct ca **out)
{
	struct ca *ca = xcalloc(1, sizeof(*ca));
	struct reader r = reader_make(blob);
	struct slice cert = reader_slice(&r, reader_u16(&r));
	struct slice key = reader_slice(&r, reader_u16(&r));
	const unsigned char *cert_p = (const unsigned char *)cert.p;
	const unsigned char *key_p = (const unsigned char *)key.p;
	int ret = E_SYNTAX;

	if (r.bad) {
		ret = E_TRUNCATED;
		goto out;
	}
	ca->cert = d2i_X509(NULL, &cert_p, (long)cert.len);
	ca->key = d2i_AutoPrivateKey(NULL, &key_p, (long)key.len);
	if (!ca->cert || !ca->key || r.left || (const char *)cert_p != cert.p + cert.len ||
		(const char *)key_p != key.p + key.len)
		goto out;
	if (X509_check_private_key(ca->cert, ca->key) != 1) {
		ret = E_VALUE;
		goto out;
	}
	ret = ca_set_key_id(ca);
	if (ret < 0)
		goto out;
	*out = ca;
	ca = NULL;
out:
	ERR_clear_error();
	ca_free(ca);
	return ret;
}

/* EC P-256, P-384, or RSA of enough bits. */
static bool ca_key_is_good(const EVP_PKEY *key)
{
	char group[32] = "";

	if (EVP_PKEY_is_a(key, "RSA"))
		return EVP_PKEY_get_bits(key) >= CA_RSA_BITS_MIN;
	if (!EVP_PKEY_is_a(key, "EC") ||
		!EVP_PKEY_get_utf8_string_param(
			key, OSSL_PKEY_PARAM_GROUP_NAME, group, sizeof(group), NULL))
		return false;
	return strcmp(group, "prime256v1") == 0 || strcmp(group, "secp384r1") == 0;
}

static int ca_check(const struct ca *ca, struct errmsg *msg)
{
	time_t now = (time_t)(clock_wall_us() / 1000000);

	if (!ca->cert)
		return errmsg_set(msg, E_VALUE, "no certificate (BEGIN CERTIFICATE) found");
	if (!ca->key)
		return errmsg_set(msg, E_VALUE, "no private key (BEGIN PRIVATE KEY) found");
	/* X509_cmp_time gives -1 for "at or before", 1 for "after", 0 for an unreadable time. */
	if (X509_cmp_time(X509_get0_notAfter(ca->cert), &now) != 1)
		return errmsg_set(msg, E_VALUE, "the CA certificate has expired");
	if (X509_cmp_time(X509_get0_notBefore(ca->cert), &now) != -1)
		return errmsg_set(msg, E_VALUE, "the CA certificate is not valid yet");
	/* 1 means CA:TRUE, and keyCertSign if there is a keyUsage; other numbers are guesses. */
	if (X509_check_ca(ca->cert) != 1)
		return errmsg_set(msg, E_VALUE,
			"the certificate is not a CA (basicConstraints CA:TRUE, keyUsage "
			"keyCertSign)");
	if (!ca_key_is_good(ca->key))
		return errmsg_set(msg, E_VALUE,
			"the CA key must be EC P-256, EC P-384 or RSA of at least %d bits",
			CA_RSA_BITS_MIN);
	if (X509_check_private_key(ca->cert, ca->key) != 1)
		return errmsg_set(msg, E_VALUE, "the private key does not fit the certificate");
	return 0;
}

/* Keeps the first certificate and the first private key, ignores what else there is. */
static int ca_take_block(
	struct ca *ca, struct slice name, struct slice header, struct slice der, struct errmsg *msg)
{
	const unsigned char *p = (const unsigned char *)der.p;

	if (slice_eq(name, SLICE(PEM_STRING_X509)) && !ca->cert) {
		ca->cert = d2i_X509(NULL, &p, (long)der.len);
		if (!ca->cert)
			return errmsg_set(msg, E_SYNTAX, "the certificate cannot be read");
	} else if (slice_ends(name, SLICE("PRIVATE KEY")) && !ca->key) {
		if (slice_eq(name, SLICE(PEM_STRING_PKCS8)) || header.len)
			return errmsg_set(msg, E_VALUE, "the private key is encrypted");
		ca->key = d2i_AutoPrivateKey(NULL, &p, (long)der.len);
		if (!ca->key)
			return errmsg_set(msg, E_SYNTAX, "the private key cannot be read");
	}
	return 0;
}

int ca_from_pem(struct slice pem, struct ca **out, struct errmsg *msg)
{
	struct ca *ca = xcalloc(1, sizeof(*ca));
	BIO *bio = NULL;
	unsigned char *der = NULL;
	char *name = NULL;
	char *header = NULL;
	long len;
	int ret = 0;

	if (pem.len == 0 || pem.len > INT32_MAX) {
		ret = errmsg_set(msg, E_VALUE, "the CA file is empty or too large");
		goto out;
	}
	bio = BIO_new_mem_buf(pem.p, (int)pem.len);
	while (ret == 0 && bio && PEM_read_bio(bio, &name, &header, &der, &len)) {
		ret = ca_take_block(ca, slice_str(name), slice_str(header),
			slice_make((const char *)der, (size_t)len), msg);
		OPENSSL_free(name);
		OPENSSL_free(header);
		OPENSSL_clear_free(der, (size_t)len);
	}
	if (ret == 0)
		ret = ca_check(ca, msg);
	if (ret < 0)
		goto out;
	ret = ca_set_key_id(ca);
	if (ret < 0) {
		ret = errmsg_set(msg, ret, "the subject key identifier is empty or too long");
		goto out;
	}
	*out = ca;
	ca = NULL;
out:
	ERR_clear_error();
	BIO_free(bio);
	ca_free(ca);
	return ret;
}

static int ca_write_pem(const struct ca *ca, bool with_key, struct strbuf *out)
{
	/* BIO_free wipes what a memory BIO holds. */
	BIO *bio = BIO_new(BIO_s_mem());
	char *text = NULL;
	long len;
	int ret = 0;

	if (!bio || !PEM_write_bio_X509(bio, ca->cert) ||
		(with_key && !PEM_write_bio_PrivateKey(bio, ca->key, NULL, NULL, 0, NULL, NULL))) {
		ret = ca_crypto_failed(NULL, "write the CA");
		goto out;
	}
	len = BIO_get_mem_data(bio, &text);
	strbuf_add(out, slice_make(text, (size_t)len));
	if (out->full)
		ret = E_LIMIT;
out:
	BIO_free(bio);
	return ret;
}

int ca_to_pem(const struct ca *ca, struct strbuf *out)
{
	return ca_write_pem(ca, true, out);
}

int ca_cert_pem(const struct ca *ca, struct strbuf *out)
{
	return ca_write_pem(ca, false, out);
}
