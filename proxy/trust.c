/* The roots that origins are verified against.
 *
 * tls makes one at start. OpenSSL takes 120 us to decode a certificate, 20 ms for Debian's 150, and
 * most of them are never asked for. So a root is kept as bytes under the hash of its subject, and
 * given to the store when a chain first ends at that name: a lookup method, as OpenSSL's own
 * for directories, but from memory. */
#include "proxy/trust.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/asn1.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/sha.h>
#include <openssl/x509_vfy.h>

#include "base/arena.h"
#include "base/log.h"
#include "base/map.h"
#include "base/strbuf.h"

#define TRUST_PATH_MAX 4096
#define TRUST_BUNDLE "ca-certificates.crt"

struct trust_root {
	struct trust_root *next; /* same hash of the subject */
	bool decoded;            /* given to the store, or found to be broken */
	size_t len;
	uint8_t der[];
};

struct trust {
	X509_STORE *store;
	X509_LOOKUP_METHOD *method;
	struct map *roots; /* hash of the subject -> struct trust_root */
	size_t n_roots;
};

/* While reading: where the bytes come from and what was there before. */
struct trust_reader {
	struct trust *trust;
	struct map *seen; /* digest of a PEM block, or device and inode of a file */
	size_t n_found;   /* certificates in it, the known ones too */
	bool full;
};

static void trust_roots_free(void *value)
{
	struct trust_root *r = value;
	struct trust_root *next;

	for (; r; r = next) {
		next = r->next;
		free(r);
	}
}

static struct slice trust_hash_key(const uint32_t *hash)
{
	return slice_make((const char *)hash, sizeof(*hash));
}

static void trust_decode(struct trust *t, struct trust_root *r)
{
	const unsigned char *p = r->der;
	X509 *cert = d2i_X509(NULL, &p, (long)r->len);

	r->decoded = true;
	if (!cert || !X509_STORE_add_cert(t->store, cert))
		log_warn("trust", "a root cannot be decoded and is left out");
	X509_free(cert);
}

/* X509_LOOKUP get_by_subject. The store asks here when it has no certificate of that name. */
static int trust_find(
	X509_LOOKUP *lookup, X509_LOOKUP_TYPE type, const X509_NAME *name, X509_OBJECT *ret)
{
	struct trust *t = X509_LOOKUP_get_method_data(lookup);
	uint32_t hash = (uint32_t)X509_NAME_hash_ex(name, NULL, NULL, NULL);
	struct trust_root *r = map_find(t->roots, trust_hash_key(&hash));
	STACK_OF(X509_OBJECT) * objects;
	X509_OBJECT *found;

	if (type != X509_LU_X509 || !r)
		return 0;
	/* All of that name at once: the store does not ask again when it has one. */
	for (; r; r = r->next)
		if (!r->decoded)
			trust_decode(t, r);
	objects = X509_STORE_get0_objects(t->store);
	found = X509_OBJECT_retrieve_by_subject(objects, type, name);
	if (!found)
		return 0;
	/* The caller counts the certificate up itself and takes ours as borrowed: give back the
	 * count that set1 takes. The store still holds one. */
	if (!X509_OBJECT_set1_X509(ret, X509_OBJECT_get0_X509(found)))
		return 0;
	X509_free(X509_OBJECT_get0_X509(found));
	return 1;
}

/* The subject of a certificate, by walking over what comes before it (RFC 5280 4.1), so that the
 * key is not decoded. NULL if it is not a certificate. */
static X509_NAME *trust_subject(struct slice der)
{
	const unsigned char *p = (const unsigned char *)der.p;
	const unsigned char *end = p + der.len;
	int tag;
	int class;
	long len;

	/* Certificate, and TBSCertificate in it; the outer one must be all there is. */
	for (int depth = 0; depth < 2; depth++) {
		if (ASN1_get_object(&p, &len, &tag, &class, end - p) != V_ASN1_CONSTRUCTED ||
			tag != V_ASN1_SEQUENCE || (depth == 0 && p + len != end))
			return NULL;
		end = p + len;
	}
	/* [0] version, serial, signature, issuer, validity. Version 1 lacks the first. */
	for (int i = 0; i < 5; i++) {
		if (ASN1_get_object(&p, &len, &tag, &class, end - p) & 0x80)
			return NULL;
		if (i == 0 && class != V_ASN1_CONTEXT_SPECIFIC)
			i++;
		p += len;
	}
	return d2i_X509_NAME(NULL, &p, end - p);
}

static bool trust_add_der(struct trust_reader *rd, struct slice der)
{
	X509_NAME *subject = trust_subject(der);
	struct trust *t = rd->trust;
	struct trust_root *r;
	struct trust_root *first;
	uint32_t hash;

	if (!subject)
		return false;
	hash = (uint32_t)X509_NAME_hash_ex(subject, NULL, NULL, NULL);
	X509_NAME_free(subject);
	if (t->n_roots == TRUST_ROOTS_MAX) {
		rd->full = true;
		return true;
	}
	r = xmalloc(sizeof(*r) + der.len);
	*r = (struct trust_root){.len = der.len};
	memcpy(r->der, der.p, der.len);
	/* Taken out and put back, since replacing would free the chain. */
	first = map_take(t->roots, trust_hash_key(&hash));
	r->next = first;
	map_put(t->roots, trust_hash_key(&hash), r);
	t->n_roots++;
	return true;
}

/* One block from BEGIN to END. False if it is a certificate that cannot be read. */
static bool trust_add_block(struct trust_reader *rd, struct slice block)
{
	uint8_t digest[SHA256_DIGEST_LENGTH];
	struct slice key = {(const char *)digest, sizeof(digest)};
	unsigned char *der = NULL;
	char *name = NULL;
	char *header = NULL;
	BIO *bio = NULL;
	long len = 0;
	bool ok;

	rd->n_found++;
	/* The files of a directory are the bundle's blocks again, byte for byte. */
	if (!SHA256((const unsigned char *)block.p, block.len, digest))
		return false;
	if (map_find(rd->seen, key))
		return true;
	map_put(rd->seen, key, rd);
	bio = BIO_new_mem_buf(block.p, (int)block.len);
	/* Not PEM_read_bio_X509: it asks at the terminal when the block says that it is encrypted.
	 */
	ok = bio && PEM_read_bio(bio, &name, &header, &der, &len) &&
		trust_add_der(rd, slice_make((const char *)der, (size_t)len));
	OPENSSL_free(name);
	OPENSSL_free(header);
	OPENSSL_free(der);
	BIO_free(bio);
	ERR_clear_error();
	return ok;
}

static void trust_add_text(struct trust_reader *rd, const char *path, struct slice text)
{
	static const char begin[] = "-----BEGIN CERTIFICATE-----";
	static const char end[] = "-----END CERTIFICATE-----";
	struct slice rest = text;
	struct slice block;
	size_t bad = 0;
	size_t at;

	rd->n_found = 0;
	for (;;) {
		rest = slice_from(rest, slice_find(rest, SLICE(begin)));
		at = slice_find(rest, SLICE(end));
		if (at == rest.len)
			break;
		block = slice_first(rest, at + sizeof(end) - 1);
		rest = slice_from(rest, block.len);
		if (!trust_add_block(rd, block))
			bad++;
	}
	if (rest.len)
		log_warn("trust", "%s: ends in the middle of a certificate", path);
	if (bad)
		log_warn("trust", "%s: certificates that cannot be read: %zu", path, bad);
	else if (!rd->n_found && !rest.len)
		log_warn("trust", "%s: holds no PEM certificate", path);
}

static void trust_read_file(
	struct trust_reader *rd, int fd, const char *path, const struct stat *st)
{
	/* Together in one array, since a struct of the two could have padding. */
	uint64_t file[2] = {st->st_dev, st->st_ino};
	struct slice key = {(const char *)file, sizeof(file)};
	struct strbuf text;
	int ret;

	/* Debian names each file twice, the second time by a link with its subject's hash. */
	if (map_find(rd->seen, key))
		return;
	map_put(rd->seen, key, rd);
	strbuf_init(&text, TRUST_FILE_MAX);
	ret = strbuf_pread_fd(&text, fd);
	if (ret < 0)
		log_warn("trust", "%s: %s", path, err_text(ret));
	else
		trust_add_text(rd, path, strbuf_slice(&text));
	strbuf_fini(&text);
}

static void trust_read_entry(struct trust_reader *rd, int dir_fd, const char *dir, const char *name)
{
	char path[TRUST_PATH_MAX];
	struct stat st;
	int fd;

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	/* Looked at before it is opened: opening a device may have effects. */
	if (fstatat(dir_fd, name, &st, 0) < 0) {
		log_warn("trust", "%s: %s", path, err_text(-errno));
		return;
	}
	if (!S_ISREG(st.st_mode))
		return;
	fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0) {
		log_warn("trust", "%s: %s", path, err_text(-errno));
		return;
	}
	if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode))
		trust_read_file(rd, fd, path, &st);
	(void)close(fd);
}

static int trust_read_dir(struct trust_reader *rd, int dir_fd, const char *name)
{
	const struct dirent *e;
	DIR *d = NULL;
	int fd = fcntl(dir_fd, F_DUPFD_CLOEXEC, 0);

	if (fd >= 0)
		d = fdopendir(fd);
	if (!d) {
		int ret = -errno;

		if (fd >= 0)
			(void)close(fd);
		return ret;
	}
	if (faccessat(dir_fd, TRUST_BUNDLE, F_OK, 0) == 0)
		trust_read_entry(rd, dir_fd, name, TRUST_BUNDLE);
	/* A copy shares the position, and the worker before us has read to the end. */
	rewinddir(d);
	while ((e = readdir(d)))
		trust_read_entry(rd, dir_fd, name, e->d_name);
	(void)closedir(d);
	return 0;
}

static int trust_read(struct trust_reader *rd, int fd, const char *name)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (S_ISDIR(st.st_mode))
		return trust_read_dir(rd, fd, name);
	/* Anything else could block for ever. */
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	trust_read_file(rd, fd, name, &st);
	return 0;
}

static bool trust_make_store(struct trust *t)
{
	X509_LOOKUP *lookup;

	t->store = X509_STORE_new();
	t->method = X509_LOOKUP_meth_new("roots in memory");
	if (!t->store || !t->method || !X509_LOOKUP_meth_set_get_by_subject(t->method, trust_find))
		return false;
	lookup = X509_STORE_add_lookup(t->store, t->method);
	return lookup && X509_LOOKUP_set_method_data(lookup, t);
}

int trust_new_fd(int fd, const char *name, struct trust **out, struct errmsg *msg)
{
	struct trust *t = xcalloc(1, sizeof(*t));
	struct trust_reader rd = {.trust = t};
	int ret;

	t->roots = map_new(0, trust_roots_free);
	rd.seen = map_new(0, NULL);
	if (!trust_make_store(t)) {
		ret = errmsg_set(msg, E_TLS, "cannot make a certificate store");
		goto out;
	}
	ret = trust_read(&rd, fd, name);
	if (ret < 0) {
		ret = errmsg_set(msg, ret, "%s: %s", name, err_text(ret));
		goto out;
	}
	if (!t->n_roots) {
		ret = errmsg_set(
			msg, E_CERT, "%s: holds no certificate to verify origins with", name);
		goto out;
	}
	if (rd.full)
		log_warn("trust", "%s: only the first %d certificates are used", name,
			TRUST_ROOTS_MAX);
	*out = t;
	t = NULL;
out:
	map_free(rd.seen);
	trust_free(t);
	return ret;
}

int trust_new(const char *path, struct trust **out, struct errmsg *msg)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	int ret;

	if (fd < 0)
		return errmsg_set(msg, -errno, "%s: %s", path, err_text(-errno));
	ret = trust_new_fd(fd, path, out, msg);
	(void)close(fd);
	return ret;
}

void trust_free(struct trust *t)
{
	if (!t)
		return;
	X509_STORE_free(t->store);
	X509_LOOKUP_meth_free(t->method);
	map_free(t->roots);
	free(t);
}

X509_STORE *trust_store(const struct trust *t)
{
	return t->store;
}

size_t trust_count(const struct trust *t)
{
	return t->n_roots;
}
