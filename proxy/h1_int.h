/* What the two halves of the HTTP/1.1 parser share: h1.c reads heads, h1_body.c reads bodies. */
#pragma once

#include "proxy/h1.h"

/* Reads one field line with its CRLF from *p and moves *p behind it. On H1_FIELD_NAME and the other
 * errors *p stays. */
CHECKED enum h1_error h1_field_line(const char **p, const char *end, struct field *out);
