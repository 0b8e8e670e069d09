/* Host names: one normal form (RFC 1123 letters, digits, hyphen; also underscore, which real names
 * use), lower case, without the trailing dot. */
#pragma once

#include "base/err.h"
#include "base/slice.h"

#define HOSTNAME_MAX 253 /* RFC 1035 2.3.4, without the root's dot */
#define LABEL_MAX 63

/* Writes the normal form with a NUL into buf and gives its length. Lower-cases ASCII and drops
 * exactly one trailing dot. E_SYNTAX for an empty name or label, a leading dot, any byte outside
 * [a-z0-9_-] (so for every non-ASCII byte and for '%'); E_LIMIT for a label or name too long.
 * Never maps Unicode. */
CHECKED int hostname_normal(struct slice s, char buf[HOSTNAME_MAX + 1], size_t *len);

/* As hostname_normal, for names that people write into configuration: a non-ASCII name is turned
 * into A-labels (IDNA 2008, non-transitional, libidn2). The message says what is wrong. */
CHECKED int hostname_from_person(
	struct slice s, char buf[HOSTNAME_MAX + 1], size_t *len, struct errmsg *msg);

/* True if name is below suffix: "a.b" and "x.a.b" are below "b", "b" is not. Both normal. */
bool hostname_below(struct slice name, struct slice suffix);
