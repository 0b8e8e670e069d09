/* The roots that origins are verified against, from a PEM bundle or a directory of PEM files. */
#pragma once

#include <openssl/x509.h>

#include "base/err.h"

#define TRUST_FILE_MAX (8 * 1024 * 1024) /* bytes; Debian's bundle has 225 KB */
#define TRUST_ROOTS_MAX 4096             /* Debian has 150 */

struct trust;

/* Reads the whole of path now and nothing later. Of a directory: ca-certificates.crt first, then
 * every other regular file; what was seen already is skipped. A problem of one file is a warning
 * in the log; no certificate at all is an error that names the path. */
CHECKED int trust_new(const char *path, struct trust **out, struct errmsg *msg);
/* The same from a descriptor, so that whoever has opened it decides who may read: a file needs no
 * right of ours, the files of a directory do. fd stays the caller's, a file's position is left
 * alone. name: of what fd has open, for messages. */
CHECKED int trust_new_fd(int fd, const char *name, struct trust **out, struct errmsg *msg);
/* After every SSL that verifies against the store. */
void trust_free(struct trust *t);

/* Borrowed. Finds a root by its subject and decodes it when a chain first asks for it. */
X509_STORE *trust_store(const struct trust *t);
size_t trust_count(const struct trust *t);
