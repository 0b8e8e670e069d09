/* What tls.c knows about an SSL and tls_error.c asks for. */
#pragma once

#include <stdbool.h>

#include <openssl/ssl.h>

/* True if the origin has sent a CertificateRequest on this SSL. */
bool tls_was_asked_for_certificate(const SSL *ssl);
