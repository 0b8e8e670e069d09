/* Leaf certificates, minted when a name is first asked for and kept, least recently used out first.
 */
#pragma once

#include "base/netaddr.h"
#include "proxy/ca.h"

#define LEAF_CACHE_MAX 1024
#define LEAF_DAYS 30       /* notAfter; renewed at half of it */
#define LEAF_BACKDATE_H 48 /* notBefore: clients with a slow clock */

struct leaf_cache;

/* Makes the one P-256 key of all leaves, and the certificate skeleton. ca is borrowed. */
CHECKED int leaf_cache_new(const struct ca *ca, size_t max, struct leaf_cache **out);
void leaf_cache_free(struct leaf_cache *c);

EVP_PKEY *leaf_key(const struct leaf_cache *c);

/* The certificate for a name in normal form, or (addr not NULL) for an address, with an IP SAN.
 * Minted by changing serial, dates and SAN of the skeleton and signing, never built anew (design
 * 6). CN is left out, SAN is critical. Borrowed, valid until the next leaf_get; take X509_up_ref to
 * keep. NULL only if signing fails. now_us: clock_wall_us. */
X509 *leaf_get(
	struct leaf_cache *c, struct slice name, const struct netaddr *addr, uint64_t now_us);
size_t leaf_count(const struct leaf_cache *c);
