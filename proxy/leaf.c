/* Minted certificates: one for each name that a client asks for, all with the same key.
 *
 * intercept asks through tls when a ClientHello has been read. A certificate object of its own is
 * needed for each name, because an SSL keeps it; copying one with X509_dup costs 120 us, nearly all
 * of it decoding the public key. So the skeleton lends its parts (name, key, extensions) to a new
 * object, and only serial, dates and SAN are new. */
#include "proxy/leaf.h"

#include <stdlib.h>
#include <time.h>

#include <openssl/err.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include "base/arena.h"
#include "base/map.h"

#define LEAF_SERIAL_LEN 16 /* 128 random bits, below the 20 bytes of RFC 5280 4.1.2.2 */
#define LEAF_HOUR_S 3600
#define LEAF_DAY_S 86400
#define US_PER_S 1000000ULL

struct leaf {
	X509 *cert;
	/* Served while from_us <= now < renew_us. The lower end is for a clock set back. */
	uint64_t from_us;
	uint64_t renew_us;
};

struct leaf_cache {
	const struct ca *ca;
	EVP_PKEY *key;
	EVP_PKEY *public_key;
	X509 *skeleton;
	struct map *leaves;
	uint64_t ca_end_us; /* no leaf outlives its CA */
};

static void leaf_free(void *value)
{
	struct leaf *l = value;

	if (!l)
		return;
	X509_free(l->cert);
	free(l);
}

/* The public half in OpenSSL's older key form: X509_set_pubkey takes 5 us with it, and 175 us with
 * a key of a provider, which it encodes and decodes each time. Where OpenSSL gives no such form
 * back, everything works the same and takes longer. */
static EVP_PKEY *leaf_public_key(const EVP_PKEY *key)
{
	EVP_PKEY *public_key = EVP_PKEY_new();
	unsigned char *point = NULL;
	const unsigned char *p;
	EVP_PKEY *ret = NULL;
	size_t len;

	len = EVP_PKEY_get1_encoded_public_key((EVP_PKEY *)(uintptr_t)key, &point);
	p = point;
	if (!public_key || !len || !EVP_PKEY_copy_parameters(public_key, key))
		goto out;
	ret = d2i_PublicKey(EVP_PKEY_EC, &public_key, &p, (long)len);
	if (ret)
		public_key = NULL;
out:
	OPENSSL_free(point);
	EVP_PKEY_free(public_key);
	return ret;
}

static bool leaf_add_key_ids(X509 *cert, const struct ca *ca)
{
	AUTHORITY_KEYID *akid = AUTHORITY_KEYID_new();
	ASN1_OCTET_STRING *skid = ASN1_OCTET_STRING_new();
	uint8_t digest[EVP_MAX_MD_SIZE];
	unsigned int len = 0;
	bool ok = false;

	if (!akid || !skid)
		goto out;
	akid->keyid = ASN1_OCTET_STRING_new();
	ok = akid->keyid && X509_pubkey_digest(cert, EVP_sha1(), digest, &len) &&
		ASN1_OCTET_STRING_set(skid, digest, (int)len) &&
		ASN1_OCTET_STRING_set(akid->keyid, ca->key_id, (int)ca->key_id_len) &&
		X509_add1_ext_i2d(cert, NID_authority_key_identifier, akid, 0, X509V3_ADD_APPEND) &&
		X509_add1_ext_i2d(cert, NID_subject_key_identifier, skid, 0, X509V3_ADD_APPEND);
out:
	AUTHORITY_KEYID_free(akid);
	ASN1_OCTET_STRING_free(skid);
	return ok;
}

static bool leaf_add_usages(X509 *cert)
{
	static const struct {
		int nid;
		const char *value;
	} rows[] = {
		{NID_key_usage, "critical,digitalSignature"},
		{NID_ext_key_usage, "serverAuth"},
	};
	X509_EXTENSION *ext = NULL;
	bool ok = true;

	for (size_t i = 0; ok && i < ARRAY_LEN(rows); i++) {
		ext = X509V3_EXT_conf_nid(NULL, NULL, rows[i].nid, rows[i].value);
		ok = ext && X509_add_ext(cert, ext, -1);
		X509_EXTENSION_free(ext);
	}
	return ok;
}

static uint64_t leaf_time_us(const ASN1_TIME *t)
{
	struct tm tm;
	time_t s;

	if (!ASN1_TIME_to_tm(t, &tm))
		return 0;
	s = timegm(&tm);
	return s > 0 ? (uint64_t)s * US_PER_S : 0;
}

int leaf_cache_new(const struct ca *ca, size_t max, struct leaf_cache **out)
{
	struct leaf_cache *c = xcalloc(1, sizeof(*c));
	int ret = E_TLS;

	c->ca = ca;
	c->ca_end_us = leaf_time_us(X509_get0_notAfter(ca->cert));
	c->leaves = map_new(max, leaf_free);
	c->key = EVP_EC_gen("P-256");
	c->skeleton = X509_new();
	if (!c->key || !c->skeleton)
		goto out;
	c->public_key = leaf_public_key(c->key);
	if (!c->public_key || !X509_set_version(c->skeleton, X509_VERSION_3) ||
		!X509_set_issuer_name(c->skeleton, X509_get_subject_name(ca->cert)) ||
		!X509_set_pubkey(c->skeleton, c->public_key) || !leaf_add_usages(c->skeleton) ||
		!leaf_add_key_ids(c->skeleton, ca))
		goto out;
	*out = c;
	c = NULL;
	ret = 0;
out:
	ERR_clear_error();
	leaf_cache_free(c);
	return ret;
}

void leaf_cache_free(struct leaf_cache *c)
{
	if (!c)
		return;
	map_free(c->leaves);
	X509_free(c->skeleton);
	EVP_PKEY_free(c->public_key);
	EVP_PKEY_free(c->key);
	free(c);
}

EVP_PKEY *leaf_key(const struct leaf_cache *c)
{
	return c->key;
}

size_t leaf_count(const struct leaf_cache *c)
{
	return map_count(c->leaves);
}

static ASN1_STRING *leaf_san_value(struct slice name, const struct netaddr *addr)
{
	ASN1_STRING *value = ASN1_STRING_type_new(addr ? V_ASN1_OCTET_STRING : V_ASN1_IA5STRING);
	const void *p = name.p;
	size_t len = name.len;

	if (addr) {
		len = netaddr_is_v4(addr) ? 4 : 16;
		p = addr->b + sizeof(addr->b) - len;
	}
	if (value && !ASN1_STRING_set(value, p, (int)len)) {
		ASN1_STRING_free(value);
		return NULL;
	}
	return value;
}

/* Critical, because the subject is empty (RFC 5280 4.2.1.6). */
static bool leaf_add_san(X509 *cert, struct slice name, const struct netaddr *addr)
{
	GENERAL_NAMES *names = GENERAL_NAMES_new();
	GENERAL_NAME *one = GENERAL_NAME_new();
	ASN1_STRING *value = leaf_san_value(name, addr);
	bool ok = false;

	if (!names || !one || !value)
		goto out;
	GENERAL_NAME_set0_value(one, addr ? GEN_IPADD : GEN_DNS, value);
	value = NULL;
	if (!sk_GENERAL_NAME_push(names, one))
		goto out;
	one = NULL;
	ok = X509_add1_ext_i2d(cert, NID_subject_alt_name, names, 1, X509V3_ADD_APPEND) == 1;
out:
	ASN1_STRING_free(value);
	GENERAL_NAME_free(one);
	GENERAL_NAMES_free(names);
	return ok;
}

static bool leaf_set_serial(X509 *cert)
{
	uint8_t serial[LEAF_SERIAL_LEN];

	if (RAND_bytes(serial, sizeof(serial)) != 1)
		return false;
	/* The top bit clear makes it positive, the next one set keeps its length. */
	serial[0] = (uint8_t)((serial[0] & 0x7f) | 0x40);
	return ASN1_STRING_set(X509_get_serialNumber(cert), serial, sizeof(serial)) == 1;
}

/* A new object with the skeleton's parts. X509_set_pubkey only counts the key up, and X509_add_ext
 * copies encoded bytes, so nothing is decoded. Nothing has been encoded before X509_sign, so no
 * cached encoding can be signed by mistake. */
static X509 *leaf_from_skeleton(const struct leaf_cache *c)
{
	X509 *cert = X509_new();
	bool ok = cert && X509_set_version(cert, X509_VERSION_3) &&
		X509_set_issuer_name(cert, X509_get_issuer_name(c->skeleton)) &&
		X509_set_pubkey(cert, c->public_key);

	for (int i = 0; ok && i < X509_get_ext_count(c->skeleton); i++)
		ok = X509_add_ext(cert, X509_get_ext(c->skeleton, i), -1) == 1;
	if (ok)
		return cert;
	X509_free(cert);
	return NULL;
}

static struct leaf *leaf_mint(
	const struct leaf_cache *c, struct slice name, const struct netaddr *addr, uint64_t now_us)
{
	struct leaf *l = xcalloc(1, sizeof(*l));
	uint64_t end_us = now_us + LEAF_DAYS * LEAF_DAY_S * US_PER_S;
	time_t from = (time_t)(now_us / US_PER_S) - LEAF_BACKDATE_H * LEAF_HOUR_S;

	if (end_us > c->ca_end_us)
		end_us = c->ca_end_us;
	l->from_us = now_us - LEAF_BACKDATE_H / 2 * LEAF_HOUR_S * US_PER_S;
	l->renew_us = end_us > now_us ? now_us + (end_us - now_us) / 2 : now_us;
	l->cert = leaf_from_skeleton(c);
	if (l->cert && leaf_set_serial(l->cert) &&
		ASN1_TIME_set(X509_getm_notBefore(l->cert), from) &&
		ASN1_TIME_set(X509_getm_notAfter(l->cert), (time_t)(end_us / US_PER_S)) &&
		leaf_add_san(l->cert, name, addr) && X509_sign(l->cert, c->ca->key, EVP_sha256()))
		return l;
	ERR_clear_error();
	leaf_free(l);
	return NULL;
}

X509 *leaf_get(struct leaf_cache *c, struct slice name, const struct netaddr *addr, uint64_t now_us)
{
	struct slice key = name;
	char addr_key[1 + sizeof(addr->b)] = {0};
	struct leaf *l;

	if (addr) {
		/* A NUL first: no name has one, so no name can be an address's key. */
		memcpy(addr_key + 1, addr->b, sizeof(addr->b));
		key = slice_make(addr_key, sizeof(addr_key));
	}
	l = map_find(c->leaves, key);
	if (l && now_us >= l->from_us && now_us < l->renew_us)
		return l->cert;
	l = leaf_mint(c, name, addr, now_us);
	if (!l)
		return NULL;
	map_put(c->leaves, key, l);
	return l->cert;
}
