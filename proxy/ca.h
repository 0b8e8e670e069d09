/* The root certificate whose leaves the sandbox trusts. One P-256 key; made by the supervisor, kept
 * in the secret area, so that a worker that comes back signs with the same one. */
#pragma once

#include <openssl/evp.h>
#include <openssl/x509.h>

#include "base/err.h"
#include "base/strbuf.h"

#define CA_DAYS 3650
#define CA_BLOB_MAX 4096 /* bytes of ca_encode */
#define CA_KEY_ID_MAX 64 /* a CA given by PEM may have a longer one than the usual 20 bytes */

struct ca {
	X509 *cert;
	EVP_PKEY *key;
	uint8_t key_id[CA_KEY_ID_MAX]; /* SKI, and AKI of its leaves */
	size_t key_id_len;
};

/* Self-signed: CN "egress CA <8 hex digits>", SKI, AKI, critical keyUsage keyCertSign+cRLSign,
 * critical basicConstraints CA:TRUE pathlen 0, notBefore 48 h back, CA_DAYS. */
CHECKED int ca_new(struct ca **out, struct errmsg *msg);
void ca_free(struct ca *ca);

/* Certificate and key as DER with lengths before them, for the secret area. */
CHECKED int ca_encode(const struct ca *ca, struct strbuf *out);
CHECKED int ca_decode(struct slice blob, struct ca **out);

/* From one PEM text with certificate and private key (setting ca_key, mode `proxy`). Refused with a
 * message: expired or not yet valid, not a CA, key that does not fit, neither EC P-256/P-384 nor
 * RSA >= 2048. */
CHECKED int ca_from_pem(struct slice pem, struct ca **out, struct errmsg *msg);
CHECKED int ca_to_pem(const struct ca *ca, struct strbuf *out); /* both, for ca_key */
CHECKED int ca_cert_pem(const struct ca *ca, struct strbuf *out);
