/* The roots: read once, each one once, found by subject, and what is wrong with a file is told. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/arena.h"
#include "base/log.h"
#include "base/strbuf.h"
#include "proxy/trust.h"
#include "tests/unit/proxy/pki.h"

static struct pki_cert a, b, c;
static char dir[] = "/tmp/test_trust.XXXXXX";
static int log_fd = -1;
static char path[256];

static const char *in_dir(const char *name)
{
	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	return path;
}

static void write_text(const char *name, const char *text, size_t len)
{
	int fd = open(in_dir(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, len), len);
	close(fd);
}

/* PEM of one certificate, to be freed. */
static char *pem_of(X509 *cert)
{
	BIO *bio = BIO_new(BIO_s_mem());
	char *text = NULL;
	char *ret;
	long len;

	assert_int_equal(PEM_write_bio_X509(bio, cert), 1);
	len = BIO_get_mem_data(bio, &text);
	ret = xcalloc(1, (size_t)len + 1);
	memcpy(ret, text, (size_t)len);
	BIO_free(bio);
	return ret;
}

static int setup(void **state)
{
	a = pki_ca("a", NULL);
	b = pki_ca("b", NULL);
	c = pki_ca("c", NULL);
	return 0;
}

static int teardown(void **state)
{
	pki_free(&a);
	pki_free(&b);
	pki_free(&c);
	return 0;
}

static int fresh(void **state)
{
	char log_path[] = "/tmp/test_trust_log.XXXXXX";

	memcpy(dir + strlen(dir) - 6, "XXXXXX", 6);
	assert_non_null(mkdtemp(dir));
	log_fd = mkstemp(log_path);
	unlink(log_path);
	log_setup(LOG_LEVEL_WARN, log_fd, "test");
	return 0;
}

static int on_entry(const char *entry, const struct stat *st, int type, struct FTW *at)
{
	return remove(entry);
}

static int drop(void **state)
{
	close(log_fd);
	log_setup(LOG_LEVEL_WARN, 2, "test");
	return nftw(dir, on_entry, 8, FTW_DEPTH | FTW_PHYS);
}

static bool logged(const char *text)
{
	char all[8192] = "";
	ssize_t n = pread(log_fd, all, sizeof(all) - 1, 0);

	assert_true(n >= 0);
	return strstr(all, text) != NULL;
}

static bool logged_nothing(void)
{
	return lseek(log_fd, 0, SEEK_END) == 0;
}

static struct trust *load(const char *from)
{
	struct trust *t = NULL;
	struct errmsg msg = {""};

	if (trust_new(from, &t, &msg) != 0)
		fail_msg("%s", msg.text);
	return t;
}

/* Whether the certificate's chain ends at one of the roots. */
static bool verifies(const struct trust *t, X509 *cert)
{
	X509_STORE_CTX *ctx = X509_STORE_CTX_new();
	bool ok;

	assert_int_equal(X509_STORE_CTX_init(ctx, trust_store(t), cert, NULL), 1);
	ok = X509_verify_cert(ctx) == 1;
	X509_STORE_CTX_free(ctx);
	ERR_clear_error();
	return ok;
}

static void test_bundle_is_read_and_only_its_roots_are_trusted(void **state)
{
	struct pki_cert of_a = pki_make(&(struct pki_spec){.cn = "leaf"}, &a);
	struct pki_cert of_b = pki_make(&(struct pki_spec){.cn = "leaf"}, &b);
	struct pki_cert of_c = pki_make(&(struct pki_spec){.cn = "leaf"}, &c);
	struct trust *t;

	pki_write(in_dir("bundle.pem"), (struct pki_cert[]){a, b, a}, 3);
	t = load(path);
	assert_int_equal(trust_count(t), 2);
	for (int i = 0; i < 2; i++) {
		assert_true(verifies(t, of_a.cert));
		assert_true(verifies(t, of_b.cert));
		assert_false(verifies(t, of_c.cert));
	}
	assert_true(verifies(t, a.cert));
	assert_true(logged_nothing());
	trust_free(t);
	pki_free(&of_a);
	pki_free(&of_b);
	pki_free(&of_c);
}

/* The store counts references: a chain may outlive the next one. */
static void test_roots_are_freed_once_however_often_they_are_asked_for(void **state)
{
	struct pki_cert leaf = pki_make(&(struct pki_spec){.cn = "leaf"}, &a);
	STACK_OF(X509) * chain;
	X509_STORE_CTX *ctx = X509_STORE_CTX_new();
	struct trust *t;

	pki_write(in_dir("a.pem"), &a, 1);
	t = load(path);
	assert_int_equal(X509_STORE_CTX_init(ctx, trust_store(t), leaf.cert, NULL), 1);
	assert_int_equal(X509_verify_cert(ctx), 1);
	chain = X509_STORE_CTX_get1_chain(ctx);
	X509_STORE_CTX_free(ctx);
	trust_free(t);
	assert_int_equal(sk_X509_num(chain), 2);
	assert_int_equal(X509_cmp(sk_X509_value(chain, 1), a.cert), 0);
	sk_X509_pop_free(chain, X509_free);
	pki_free(&leaf);
}

static void test_directory_is_read_with_its_bundle_and_each_root_once(void **state)
{
	struct pki_cert of_c = pki_make(&(struct pki_spec){.cn = "leaf"}, &c);
	char target[256];
	struct trust *t;

	pki_write(in_dir("ca-certificates.crt"), (struct pki_cert[]){a, b}, 2);
	pki_write(in_dir("a.pem"), &a, 1);
	pki_write(in_dir("c.pem"), &c, 1);
	memcpy(target, path, sizeof(target));
	assert_int_equal(symlink(target, in_dir("01234567.0")), 0);
	assert_int_equal(mkdir(in_dir("sub"), 0700), 0);
	/* Opening it would wait for a writer for ever. */
	assert_int_equal(mkfifo(in_dir("pipe"), 0600), 0);
	t = load(dir);
	assert_int_equal(trust_count(t), 3);
	assert_true(verifies(t, of_c.cert));
	assert_true(logged_nothing());
	trust_free(t);
	pki_free(&of_c);
}

static void test_directory_without_a_bundle_is_read_too(void **state)
{
	struct trust *t;

	pki_write(in_dir("a.pem"), &a, 1);
	pki_write(in_dir("b.crt"), &b, 1);
	t = load(dir);
	assert_int_equal(trust_count(t), 2);
	trust_free(t);
}

static void test_problem_of_one_file_is_a_warning_and_the_others_count(void **state)
{
	char *pem = pem_of(b.cert);
	char *bad = pem_of(c.cert);
	static const char locked[] = "-----BEGIN CERTIFICATE-----\nProc-Type: 4,ENCRYPTED\n"
				     "DEK-Info: AES-128-CBC,00000000000000000000000000000000\n\n"
				     "AAAA\n-----END CERTIFICATE-----\n";
	struct trust *t;

	pki_write(in_dir("good.pem"), &a, 1);
	write_text("cut.pem", pem, strlen(pem) - 30);
	write_text("empty.pem", "", 0);
	write_text("README", "hello", 5);
	bad[40] = '*';
	write_text("broken.pem", bad, strlen(bad));
	/* Must not ask for a password at the terminal. */
	write_text("locked.pem", locked, sizeof(locked) - 1);
	write_text(
		"small.pem", "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n", 59);
	assert_int_equal(symlink("/nonexistent", in_dir("gone.pem")), 0);
	t = load(dir);
	assert_int_equal(trust_count(t), 1);
	assert_true(logged("cut.pem: ends in the middle of a certificate"));
	assert_true(logged("empty.pem: holds no PEM certificate"));
	assert_true(logged("README: holds no PEM certificate"));
	assert_true(logged("broken.pem: certificates that cannot be read: 1"));
	assert_true(logged("locked.pem: certificates that cannot be read: 1"));
	assert_true(logged("small.pem: certificates that cannot be read: 1"));
	assert_true(logged("gone.pem: "));
	assert_false(logged("good.pem"));
	assert_int_equal(ERR_peek_error(), 0);
	trust_free(t);
	free(pem);
	free(bad);
}

static void test_good_roots_around_a_broken_one_are_kept(void **state)
{
	char *first = pem_of(a.cert);
	char *second = pem_of(c.cert);
	struct strbuf text;
	struct trust *t;

	strbuf_init(&text, 65536);
	strbuf_printf(&text,
		"# a comment\n%s-----BEGIN CERTIFICATE-----\nnonsense\n"
		"-----END CERTIFICATE-----\n%s",
		first, second);
	write_text("mixed.pem", text.p, text.len);
	t = load(path);
	assert_int_equal(trust_count(t), 2);
	assert_true(logged("mixed.pem: certificates that cannot be read: 1"));
	trust_free(t);
	strbuf_fini(&text);
	free(first);
	free(second);
}

/* Some old roots are of version 1, which has one field less before the subject. */
static void test_root_of_version_1_is_found(void **state)
{
	struct pki_cert old = pki_ca("old", NULL);
	struct pki_cert leaf = pki_make(&(struct pki_spec){.cn = "leaf"}, &old);
	struct trust *t;

	while (X509_get_ext_count(old.cert))
		X509_EXTENSION_free(X509_delete_ext(old.cert, 0));
	assert_int_equal(X509_set_version(old.cert, X509_VERSION_1), 1);
	assert_true(X509_sign(old.cert, old.key, EVP_sha256()) > 0);
	pki_write(in_dir("old.pem"), &old, 1);
	t = load(path);
	assert_true(verifies(t, leaf.cert));
	trust_free(t);
	pki_free(&leaf);
	pki_free(&old);
}

static void test_certificate_with_a_byte_behind_it_is_not_read(void **state)
{
	struct trust *t = NULL;
	unsigned char *der = NULL;
	int len = i2d_X509(a.cert, &der);

	der = OPENSSL_realloc(der, (size_t)len + 1);
	assert_non_null(der);
	der[len] = 0;
	for (int more = 0; more <= 1; more++) {
		FILE *f = fopen(in_dir("a.pem"), "w");

		assert_non_null(f);
		assert_true(PEM_write(f, "CERTIFICATE", "", der, len + more) > 0);
		assert_int_equal(fclose(f), 0);
		assert_int_equal(trust_new(path, &t, NULL), more ? E_CERT : 0);
		trust_free(t);
		t = NULL;
	}
	OPENSSL_free(der);
}

/* Its shell is right, so it is found at its first use only. */
static void test_root_with_a_broken_key_is_no_trust(void **state)
{
	struct pki_cert leaf = pki_make(&(struct pki_spec){.cn = "leaf"}, &a);
	X509 *broken = X509_dup(a.cert);
	ASN1_BIT_STRING *bits = X509_get0_pubkey_bitstr(broken);
	uint8_t *der = NULL;
	const uint8_t *found;
	struct trust *t;
	FILE *f;
	int len = i2d_X509(broken, &der);

	found = memmem(der, (size_t)len, ASN1_STRING_get0_data(bits), 65);
	assert_non_null(found);
	der[found - der + 10] ^= 1;
	f = fopen(in_dir("a.pem"), "w");
	assert_non_null(f);
	assert_true(PEM_write(f, "CERTIFICATE", "", der, len) > 0);
	assert_int_equal(fclose(f), 0);
	t = load(path);
	assert_int_equal(trust_count(t), 1);
	assert_false(verifies(t, leaf.cert));
	assert_false(verifies(t, leaf.cert));
	trust_free(t);
	OPENSSL_free(der);
	X509_free(broken);
	pki_free(&leaf);
}

static void test_two_roots_of_one_name_are_both_trusted(void **state)
{
	struct pki_cert twin = pki_ca("a", NULL);
	struct pki_cert of_a = pki_make(&(struct pki_spec){.cn = "leaf"}, &a);
	struct pki_cert of_twin = pki_make(&(struct pki_spec){.cn = "leaf"}, &twin);
	struct trust *t;

	pki_write(in_dir("both.pem"), (struct pki_cert[]){a, twin}, 2);
	t = load(path);
	assert_int_equal(trust_count(t), 2);
	assert_true(verifies(t, of_a.cert));
	assert_true(verifies(t, of_twin.cert));
	trust_free(t);
	pki_free(&twin);
	pki_free(&of_a);
	pki_free(&of_twin);
}

/* RFC 5280 7.1 compares names without letter case, kind of string and repeated spaces. */
static void test_issuer_spelt_otherwise_still_finds_its_root(void **state)
{
	struct pki_cert upper = pki_ca("Some  Root", NULL);
	struct pki_cert leaf = pki_make(&(struct pki_spec){.cn = "leaf"}, &upper);
	X509_NAME *name = X509_NAME_new();
	struct trust *t;

	X509_NAME_add_entry_by_txt(
		name, "CN", V_ASN1_PRINTABLESTRING, (const unsigned char *)"some root", -1, -1, 0);
	X509_set_issuer_name(leaf.cert, name);
	assert_true(X509_sign(leaf.cert, upper.key, EVP_sha256()) > 0);
	pki_write(in_dir("upper.pem"), &upper, 1);
	t = load(path);
	assert_true(verifies(t, leaf.cert));
	trust_free(t);
	X509_NAME_free(name);
	pki_free(&leaf);
	pki_free(&upper);
}

static void test_nothing_usable_is_an_error_that_names_the_path(void **state)
{
	struct trust *t = NULL;
	struct errmsg msg;

	assert_int_equal(trust_new(dir, &t, &msg), E_CERT);
	assert_non_null(strstr(msg.text, dir));
	write_text("README", "hello", 5);
	assert_int_equal(trust_new(dir, &t, &msg), E_CERT);
	assert_int_equal(trust_new(in_dir("none"), &t, &msg), -ENOENT);
	assert_non_null(strstr(msg.text, path));
	assert_int_equal(mkfifo(in_dir("pipe"), 0600), 0);
	assert_int_equal(trust_new(path, &t, &msg), -EINVAL);
	assert_null(t);
}

static void test_file_at_the_limit_is_read_and_one_byte_more_is_not(void **state)
{
	struct trust *t = NULL;
	struct errmsg msg;

	pki_write(in_dir("big.pem"), &a, 1);
	assert_int_equal(truncate(path, TRUST_FILE_MAX), 0);
	t = load(path);
	assert_int_equal(trust_count(t), 1);
	trust_free(t);
	t = NULL;
	assert_int_equal(truncate(path, TRUST_FILE_MAX + 1), 0);
	assert_int_equal(trust_new(path, &t, &msg), E_CERT);
	assert_true(logged("big.pem: "));
}

static void test_roots_past_the_ceiling_are_left_out_with_a_warning(void **state)
{
	unsigned char *der = NULL;
	int len = i2d_X509(a.cert, &der);
	struct trust *t;
	FILE *f;

	for (int n = TRUST_ROOTS_MAX; n <= TRUST_ROOTS_MAX + 1; n++) {
		f = fopen(in_dir("many.pem"), "w");
		assert_non_null(f);
		for (int i = 0; i < n; i++) {
			/* Only the signature differs. */
			der[len - 1] = (unsigned char)i;
			der[len - 2] = (unsigned char)(i >> 8);
			assert_true(PEM_write(f, "CERTIFICATE", "", der, len) > 0);
		}
		assert_int_equal(fclose(f), 0);
		t = load(path);
		assert_int_equal(trust_count(t), TRUST_ROOTS_MAX);
		assert_int_equal(logged("only the first 4096"), n > TRUST_ROOTS_MAX);
		trust_free(t);
	}
	OPENSSL_free(der);
}

/* In a child that has given up root's rights for good: the number of roots, or 255 for an error. */
static int count_without_rights(int fd)
{
	struct trust *t = NULL;
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		if (setgid(65534) < 0 || setuid(65534) < 0 || access(path, R_OK) == 0)
			_exit(254);
		if (trust_new_fd(fd, "roots", &t, NULL) < 0)
			_exit(255);
		_exit((int)trust_count(t));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* The supervisor opens as root, and each worker reads what it opened, from the start. */
static void test_file_that_only_root_may_read_serves_every_worker(void **state)
{
	int fd;

	if (geteuid() != 0)
		skip();
	pki_write(in_dir("root.pem"), (struct pki_cert[]){a, b}, 2);
	assert_int_equal(chmod(path, 0600), 0);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(count_without_rights(fd), 2);
	assert_int_equal(count_without_rights(fd), 2);
	assert_true(logged_nothing());
	close(fd);
}

static void test_directory_gives_what_the_worker_may_read_and_names_the_rest(void **state)
{
	int fd;

	if (geteuid() != 0)
		skip();
	assert_int_equal(chmod(dir, 0755), 0);
	pki_write(in_dir("open.pem"), &b, 1);
	assert_int_equal(chmod(path, 0644), 0);
	pki_write(in_dir("closed.pem"), &a, 1);
	assert_int_equal(chmod(path, 0600), 0);
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(count_without_rights(fd), 1);
	assert_true(logged("roots/closed.pem: "));
	assert_false(logged("open.pem"));
	assert_int_equal(count_without_rights(fd), 1);
	/* none is readable: said so */
	assert_int_equal(unlink(in_dir("open.pem")), 0);
	in_dir("closed.pem");
	assert_int_equal(count_without_rights(fd), 255);
	close(fd);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, fresh, drop)
	const struct CMUnitTest tests[] = {
		T(test_bundle_is_read_and_only_its_roots_are_trusted),
		T(test_roots_are_freed_once_however_often_they_are_asked_for),
		T(test_directory_is_read_with_its_bundle_and_each_root_once),
		T(test_directory_without_a_bundle_is_read_too),
		T(test_problem_of_one_file_is_a_warning_and_the_others_count),
		T(test_good_roots_around_a_broken_one_are_kept),
		T(test_root_of_version_1_is_found),
		T(test_certificate_with_a_byte_behind_it_is_not_read),
		T(test_root_with_a_broken_key_is_no_trust),
		T(test_two_roots_of_one_name_are_both_trusted),
		T(test_issuer_spelt_otherwise_still_finds_its_root),
		T(test_nothing_usable_is_an_error_that_names_the_path),
		T(test_file_at_the_limit_is_read_and_one_byte_more_is_not),
		T(test_roots_past_the_ceiling_are_left_out_with_a_warning),
		T(test_file_that_only_root_may_read_serves_every_worker),
		T(test_directory_gives_what_the_worker_may_read_and_names_the_rest),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
