/* Writes a CA and minted leaves into a folder, for clients of other makers to verify:
 * ca.pem, name.pem (read.test), v4.pem (127.0.0.1), v6.pem (::1), key.pem (of the three leaves). */
#include <stdio.h>

#include <openssl/pem.h>

#include "base/clock.h"
#include "proxy/ca.h"
#include "proxy/leaf.h"

static FILE *chain_open(const char *dir, const char *name)
{
	char path[512];
	FILE *f;

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "w");
	if (!f)
		perror(path);
	return f;
}

static bool chain_write(const char *dir, const char *name, const X509 *cert, const EVP_PKEY *key)
{
	FILE *f = chain_open(dir, name);
	bool ok;

	if (!f)
		return false;
	if (key)
		ok = PEM_write_PrivateKey(f, key, NULL, NULL, 0, NULL, NULL) == 1;
	else
		ok = cert && PEM_write_X509(f, cert) == 1;
	return fclose(f) == 0 && ok;
}

static bool chain_write_all(const char *dir, const struct ca *ca, struct leaf_cache *leaves)
{
	uint64_t now = clock_wall_us();
	struct netaddr v4;
	struct netaddr v6;

	if (!netaddr_parse(SLICE("127.0.0.1"), &v4) || !netaddr_parse(SLICE("::1"), &v6))
		return false;
	return chain_write(dir, "ca.pem", ca->cert, NULL) &&
		chain_write(
			dir, "name.pem", leaf_get(leaves, SLICE("read.test"), NULL, now), NULL) &&
		chain_write(dir, "v4.pem", leaf_get(leaves, SLICE_EMPTY, &v4, now), NULL) &&
		chain_write(dir, "v6.pem", leaf_get(leaves, SLICE_EMPTY, &v6, now), NULL) &&
		chain_write(dir, "key.pem", NULL, leaf_key(leaves));
}

int main(int argc, char **argv)
{
	struct leaf_cache *leaves = NULL;
	struct ca *ca = NULL;
	bool ok;

	if (argc != 2) {
		(void)fputs("mint_chain FOLDER\n", stderr);
		return 2;
	}
	ok = ca_new(&ca, NULL) == 0 && leaf_cache_new(ca, LEAF_CACHE_MAX, &leaves) == 0 &&
		chain_write_all(argv[1], ca, leaves);
	leaf_cache_free(leaves);
	ca_free(ca);
	return ok ? 0 : 1;
}
