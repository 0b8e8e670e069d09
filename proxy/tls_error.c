/* Why a handshake or a read failed, in sentences of our own.
 *
 * conn asks after a failure; the text goes into answers, log and audit. OpenSSL's own texts and
 * anything of the peer's (names in certificates) stay out: the peer may be the attacker. */
#include <openssl/err.h>
#include <openssl/sslerr.h>
#include <openssl/x509_vfy.h>

#include "proxy/tls.h"
#include "proxy/tls_int.h"

/* A received alert has the reason 1000 and its number (RFC 8446 6). */
#define TLS_ALERT(n) (SSL_AD_REASON_OFFSET + (n))

struct tls_text {
	int code;
	const char *text;
};

#define NAME_TEXT "certificate is for another name"
#define ISSUER_TEXT \
	"certificate is from an unknown authority, or the origin left out an intermediate"
#define WEAK_TEXT "certificate has a key or signature that is too weak"
#define CA_TEXT "an intermediate certificate may not sign this certificate"
#define BROKEN_TEXT "certificate is malformed or its signature is wrong"

static const struct tls_text tls_verify_texts[] = {
	{X509_V_ERR_CERT_HAS_EXPIRED, "certificate expired"},
	{X509_V_ERR_CERT_NOT_YET_VALID, "certificate is not valid yet"},
	{X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT, "self-signed certificate"},
	{X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN, "certificate is from an unknown authority"},
	{X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT, ISSUER_TEXT},
	{X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY, ISSUER_TEXT},
	{X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE, ISSUER_TEXT},
	{X509_V_ERR_HOSTNAME_MISMATCH, NAME_TEXT},
	{X509_V_ERR_IP_ADDRESS_MISMATCH, "certificate is for another address"},
	{X509_V_ERR_INVALID_PURPOSE, "certificate is not for servers"},
	{X509_V_ERR_CERT_REJECTED, "certificate is not for servers"},
	{X509_V_ERR_CERT_UNTRUSTED, "certificate is not trusted"},
	{X509_V_ERR_CERT_REVOKED, "certificate was revoked"},
	{X509_V_ERR_CERT_CHAIN_TOO_LONG, "certificate chain is too long"},
	{X509_V_ERR_EE_KEY_TOO_SMALL, WEAK_TEXT},
	{X509_V_ERR_CA_KEY_TOO_SMALL, WEAK_TEXT},
	{X509_V_ERR_CA_MD_TOO_WEAK, WEAK_TEXT},
	{X509_V_ERR_INVALID_CA, CA_TEXT},
	{X509_V_ERR_PATH_LENGTH_EXCEEDED, CA_TEXT},
	{X509_V_ERR_KEYUSAGE_NO_CERTSIGN, CA_TEXT},
	{X509_V_ERR_PERMITTED_VIOLATION, "certificate is for a name its authority may not certify"},
	{X509_V_ERR_EXCLUDED_VIOLATION, "certificate is for a name its authority may not certify"},
	{X509_V_ERR_CERT_SIGNATURE_FAILURE, BROKEN_TEXT},
	{X509_V_ERR_UNABLE_TO_DECODE_ISSUER_PUBLIC_KEY, BROKEN_TEXT},
	{X509_V_ERR_ERROR_IN_CERT_NOT_BEFORE_FIELD, BROKEN_TEXT},
	{X509_V_ERR_ERROR_IN_CERT_NOT_AFTER_FIELD, BROKEN_TEXT},
	{X509_V_ERR_INVALID_EXTENSION, BROKEN_TEXT},
	{X509_V_ERR_UNHANDLED_CRITICAL_EXTENSION,
		"certificate has a critical extension that is not understood"},
};

#define VERSION_TEXT "protocol version: the peer offers neither TLS 1.2 nor TLS 1.3"
#define PARAMETER_TEXT "no common cipher, group or signature algorithm"
#define NO_TLS_TEXT "the peer does not speak TLS"
#define NO_ALPN_TEXT "the peer does not accept http/1.1"
#define NOT_TRUSTED_TEXT "the peer did not accept the certificate"

static const struct tls_text tls_reason_texts[] = {
	{SSL_R_UNSUPPORTED_PROTOCOL, VERSION_TEXT},
	{SSL_R_NO_PROTOCOLS_AVAILABLE, VERSION_TEXT},
	{SSL_R_WRONG_SSL_VERSION, VERSION_TEXT},
	{SSL_R_VERSION_TOO_LOW, VERSION_TEXT},
	{TLS_ALERT(SSL_AD_PROTOCOL_VERSION), VERSION_TEXT},
	{SSL_R_WRONG_VERSION_NUMBER, NO_TLS_TEXT},
	{SSL_R_HTTP_REQUEST, NO_TLS_TEXT},
	{SSL_R_HTTPS_PROXY_REQUEST, NO_TLS_TEXT},
	{SSL_R_NO_SHARED_CIPHER, PARAMETER_TEXT},
	{SSL_R_NO_SUITABLE_KEY_SHARE, PARAMETER_TEXT},
	{SSL_R_NO_SHARED_SIGNATURE_ALGORITHMS, PARAMETER_TEXT},
	{SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM, PARAMETER_TEXT},
	{SSL_R_WRONG_SIGNATURE_TYPE, PARAMETER_TEXT},
	{SSL_R_WRONG_CURVE, PARAMETER_TEXT},
	{SSL_R_DH_KEY_TOO_SMALL, PARAMETER_TEXT},
	{SSL_R_UNSAFE_LEGACY_RENEGOTIATION_DISABLED,
		"the origin lacks secure renegotiation (RFC 5746)"},
	{SSL_R_NO_APPLICATION_PROTOCOL, NO_ALPN_TEXT},
	{TLS_ALERT(SSL_AD_NO_APPLICATION_PROTOCOL), NO_ALPN_TEXT},
	{SSL_R_UNEXPECTED_EOF_WHILE_READING, "the peer closed without ending TLS"},
	{SSL_R_BAD_SIGNATURE, "the peer does not hold the key of its certificate"},
	{SSL_R_DIGEST_CHECK_FAILED, "a message was altered"},
	{SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC, "a message was altered"},
	{SSL_R_CERTIFICATE_VERIFY_FAILED, "certificate was not accepted"},
	{TLS_ALERT(SSL_AD_HANDSHAKE_FAILURE), "the peer refused the handshake"},
	{TLS_ALERT(SSL_AD_INSUFFICIENT_SECURITY), "the peer refused the handshake"},
	{TLS_ALERT(SSL_AD_UNRECOGNIZED_NAME), "the peer does not know this name"},
	{TLS_ALERT(SSL_AD_ACCESS_DENIED), "the peer denied access"},
	{TLS_ALERT(SSL_AD_INTERNAL_ERROR), "the peer had an internal error"},
	{TLS_ALERT(SSL_AD_BAD_CERTIFICATE), NOT_TRUSTED_TEXT},
	{TLS_ALERT(SSL_AD_UNSUPPORTED_CERTIFICATE), NOT_TRUSTED_TEXT},
	{TLS_ALERT(SSL_AD_CERTIFICATE_REVOKED), NOT_TRUSTED_TEXT},
	{TLS_ALERT(SSL_AD_CERTIFICATE_EXPIRED), NOT_TRUSTED_TEXT},
	{TLS_ALERT(SSL_AD_CERTIFICATE_UNKNOWN), NOT_TRUSTED_TEXT},
	{TLS_ALERT(SSL_AD_UNKNOWN_CA), NOT_TRUSTED_TEXT},
	{TLS_ALERT(SSL_AD_CERTIFICATE_REQUIRED), "the peer asks for a client certificate"},
};

#define CLIENT_CERTIFICATE_TEXT \
	"the origin asks for a client certificate, which cannot pass interception"

static const char *tls_text_find(
	const struct tls_text *table, size_t n, int code, const char *otherwise)
{
	for (size_t i = 0; i < n; i++)
		if (table[i].code == code)
			return table[i].text;
	return otherwise;
}

/* The origin asked for a client certificate, got none, and ended it: by an alert, or, before the
 * handshake was done, without a word. After it an end without a word can have any cause. */
static bool tls_is_about_client_certificate(const SSL *ssl, int reason)
{
	if (!tls_was_asked_for_certificate(ssl))
		return false;
	switch (reason) {
	case TLS_ALERT(SSL_AD_CERTIFICATE_REQUIRED):
	case TLS_ALERT(SSL_AD_HANDSHAKE_FAILURE):
	case TLS_ALERT(SSL_AD_BAD_CERTIFICATE):
	case TLS_ALERT(SSL_AD_CERTIFICATE_UNKNOWN):
	case TLS_ALERT(SSL_AD_UNKNOWN_CA):
	case TLS_ALERT(SSL_AD_ACCESS_DENIED):
		return true;
	default:
		return !SSL_is_init_finished(ssl) && reason < SSL_AD_REASON_OFFSET;
	}
}

const char *tls_error_text(SSL *ssl, bool *certificate)
{
	/* The oldest: what follows it in the queue are its consequences. */
	unsigned long e = ERR_peek_error();
	int reason = ERR_GET_LIB(e) == ERR_LIB_SSL ? ERR_GET_REASON(e) : 0;
	long verify = SSL_get_verify_result(ssl);

	ERR_clear_error();
	/* We never verify a client, so this is about an origin. */
	*certificate = verify != X509_V_OK && (SSL_get_verify_mode(ssl) & SSL_VERIFY_PEER);
	if (*certificate)
		return tls_text_find(tls_verify_texts, ARRAY_LEN(tls_verify_texts), (int)verify,
			"certificate was not accepted");
	if (tls_is_about_client_certificate(ssl, reason))
		return CLIENT_CERTIFICATE_TEXT;
	return tls_text_find(tls_reason_texts, ARRAY_LEN(tls_reason_texts), reason, "TLS failed");
}
