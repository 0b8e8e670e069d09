/* Domain names in wire form (RFC 1035 3.1): a row of labels, each behind its length, ended by the
 * root's zero. Policy is asked about the text of one, which not every name has. */
#pragma once

#include "base/hostname.h"
#include "base/slice.h"

#define DNS_NAME_MAX 255 /* RFC 1035 2.3.4, with the root's octet */
/* Text with each byte escaped as \DDD, and a NUL. */
#define DNS_NAME_TEXT_MAX (4 * DNS_NAME_MAX + 1)

struct dns_name {
	uint8_t len;             /* 1 to DNS_NAME_MAX */
	uint8_t b[DNS_NAME_MAX]; /* uncompressed; letters as they came */
};

/* Reads the name at msg[at]. A pointer must go backwards, before every place that was read for this
 * name, so that reading ends, and not into the header; pointers may be forbidden. Returns the
 * offset behind the name where it stands, or 0 if it is malformed. */
size_t dns_name_read(struct slice msg, size_t at, bool pointers, struct dns_name *out);

/* Equal but for ASCII letter case (RFC 4343). */
bool dns_name_eq(const struct dns_name *a, const struct dns_name *b);
/* True if `name` is `zone` or below it. */
bool dns_name_within(const struct dns_name *name, const struct dns_name *zone);

/* The name in normal form (hostname.h) if each of its labels is made of letters, digits, `-` and
 * `_`: then its text says what it is. False for every other name: a label that holds a dot would
 * read like two. The root is "". */
CHECKED bool dns_name_host(const struct dns_name *n, char buf[HOSTNAME_MAX + 1], size_t *len);
/* For people: lower case, odd bytes as \DDD (RFC 1035 5.1), no dot at the end, the root ".". */
size_t dns_name_text(const struct dns_name *n, char buf[DNS_NAME_TEXT_MAX]);
/* From normal form; "" and "." are the root. False if it has no wire form. */
CHECKED bool dns_name_from_text(struct slice s, struct dns_name *out);
