/* A URL as the record may show it: no userinfo, no values of well-known secret parameters, bounded.
 *
 * Works on the text that the client sent, well-formed or not. event_json keeps the result. */
#pragma once

#include "audit/event.h"

/* Parameter names whose values are never recorded, in any letter case and percent-encoded or not.
 * A masked value is written as its length: token=<8>. Docs print these rows. */
#define URL_SECRET_TABLE(X)       \
	X("token")                \
	X("access_token")         \
	X("refresh_token")        \
	X("id_token")             \
	X("auth_token")           \
	X("oauth_token")          \
	X("private_token")        \
	X("csrf_token")           \
	X("key")                  \
	X("api_key")              \
	X("apikey")               \
	X("api-key")              \
	X("x-api-key")            \
	X("access_key")           \
	X("secret_key")           \
	X("subscription-key")     \
	X("sig")                  \
	X("signature")            \
	X("x-amz-signature")      \
	X("x-amz-security-token") \
	X("x-amz-credential")     \
	X("x-goog-signature")     \
	X("x-goog-credential")    \
	X("awsaccesskeyid")       \
	X("googleaccessid")       \
	X("key-pair-id")          \
	X("password")             \
	X("passwd")               \
	X("pwd")                  \
	X("pass")                 \
	X("passphrase")           \
	X("secret")               \
	X("client_secret")        \
	X("client_assertion")     \
	X("assertion")            \
	X("auth")                 \
	X("authorization")        \
	X("bearer")               \
	X("credential")           \
	X("credentials")          \
	X("code")                 \
	X("code_verifier")        \
	X("otp")                  \
	X("session")              \
	X("sessionid")            \
	X("session_id")           \
	X("sid")                  \
	X("jsessionid")           \
	X("phpsessid")            \
	X("jwt")                  \
	X("samlresponse")         \
	X("ticket")

/* Longest name above that matters; a longer name in a URL is not a secret one. */
#define URL_SECRET_NAME_MAX 32
/* Three bytes of an ellipsis (U+2026), "[len=", 20 digits, " sha256=", 64 digits, "]". */
#define URL_CUT_MARK_MAX 104
#define URL_CLEAN_MAX (AUDIT_URL_MAX + URL_CUT_MARK_MAX)

/* Writes the clean form of url into buf, without a NUL, and returns its length. When it would be
 * longer than AUDIT_URL_MAX it is cut at a character and ends in an ellipsis (U+2026) and
 * `[len=N sha256=HEX]`, both of the whole clean form. */
size_t url_clean(struct slice url, char buf[URL_CLEAN_MAX]);

/* True if the value of this parameter is masked. */
bool url_secret_name(struct slice name);
