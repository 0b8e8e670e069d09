/* Which origins are accepted (C79): each kind of bad certificate is refused with its sentence. */
#include "base/clock.h"
#include "proxy/tls.h"
#include "tests/unit/proxy/pki.h"

enum {
	ISSUED_BY_ROOT,
	ISSUED_BY_INTERMEDIATE,
	ISSUED_BY_STRANGER,
	ISSUED_BY_ITSELF,
	ISSUED_BY_LEAF,
	ISSUED_BY_CONSTRAINED
};

struct row {
	const char *fact;
	struct pki_spec spec;
	const char *want; /* the sentence; NULL: accepted */
	int issuer;
	bool no_chain;    /* the origin leaves the intermediate out */
	const char *addr; /* connect to this address, not to api.model.test */
	int max_version;  /* of the origin */
};

#define SAN .san = "DNS:api.model.test"
#define UNKNOWN "certificate is from an unknown authority, or the origin left out an intermediate"
#define WEAK "certificate has a key or signature that is too weak"
#define OTHER "certificate is for another name"
#define MAY_NOT "certificate is for a name its authority may not certify"
#define OLD "protocol version: the peer offers neither TLS 1.2 nor TLS 1.3"

static const struct row rows[] = {
	{.fact = "good", .spec = {SAN}},
	{.fact = "good rsa", .spec = {SAN, .rsa_bits = 2048}},
	{.fact = "good p384", .spec = {SAN, .key_type = "P-384"}},
	{.fact = "good second name", .spec = {.san = "DNS:a.test,DNS:api.model.test"}},
	{.fact = "good upper case", .spec = {.san = "DNS:API.Model.TEST"}},
	{.fact = "good wildcard", .spec = {.san = "DNS:*.model.test"}},
	{.fact = "good intermediate", .spec = {SAN}, .issuer = ISSUED_BY_INTERMEDIATE},
	{.fact = "good server use", .spec = {SAN, .eku = "serverAuth,clientAuth"}},
	{.fact = "good v4", .spec = {.san = "IP:10.77.0.2"}, .addr = "10.77.0.2"},
	{.fact = "good v6", .spec = {.san = "IP:fd00::2"}, .addr = "fd00::2"},
	{.fact = "good permitted name",
		.spec = {.san = "DNS:api.model.test"},
		.issuer = ISSUED_BY_INTERMEDIATE},
	{.fact = "expired", .spec = {SAN, .to_s = -60}, .want = "certificate expired"},
	{.fact = "not yet", .spec = {SAN, .from_s = 60}, .want = "certificate is not valid yet"},
	{.fact = "self-signed",
		.spec = {SAN, .cn = "api.model.test"},
		.want = "self-signed certificate",
		.issuer = ISSUED_BY_ITSELF},
	{.fact = "unknown CA, sent along",
		.spec = {SAN},
		.want = "certificate is from an unknown authority",
		.issuer = ISSUED_BY_STRANGER},
	{.fact = "unknown CA",
		.spec = {SAN},
		.want = UNKNOWN,
		.issuer = ISSUED_BY_STRANGER,
		.no_chain = true},
	{.fact = "other name", .spec = {.san = "DNS:other.test"}, .want = OTHER},
	{.fact = "CN only", .spec = {.cn = "api.model.test"}, .want = OTHER},
	{.fact = "CN beside an address",
		.spec = {.cn = "api.model.test", .san = "IP:10.0.0.1"},
		.want = OTHER},
	{.fact = "SHA-1", .spec = {SAN, .sha1 = true}, .want = WEAK},
	{.fact = "RSA-1024", .spec = {SAN, .rsa_bits = 1024}, .want = WEAK},
	{.fact = "missing intermediate",
		.spec = {SAN},
		.want = UNKNOWN,
		.issuer = ISSUED_BY_INTERMEDIATE,
		.no_chain = true},
	{.fact = "client use only",
		.spec = {SAN, .eku = "clientAuth"},
		.want = "certificate is not for servers"},
	{.fact = "wildcard too high", .spec = {.san = "DNS:*.test"}, .want = OTHER},
	{.fact = "wildcard below", .spec = {.san = "DNS:*.api.model.test"}, .want = OTHER},
	{.fact = "partial wildcard", .spec = {.san = "DNS:a*.model.test"}, .want = OTHER},
	{.fact = "wildcard within", .spec = {.san = "DNS:api.*.test"}, .want = OTHER},
	{.fact = "bare star", .spec = {.san = "DNS:*"}, .want = OTHER},
	{.fact = "parent name", .spec = {.san = "DNS:model.test"}, .want = OTHER},
	{.fact = "signed by a leaf",
		.spec = {SAN},
		.want = "an intermediate certificate may not sign this certificate",
		.issuer = ISSUED_BY_LEAF},
	{.fact = "name constraint",
		.spec = {SAN},
		.want = MAY_NOT,
		.issuer = ISSUED_BY_CONSTRAINED},
	{.fact = "other address",
		.spec = {.san = "IP:10.77.0.3"},
		.addr = "10.77.0.2",
		.want = "certificate is for another address"},
	{.fact = "address as a name",
		.spec = {.san = "DNS:10.77.0.2", .cn = "10.77.0.2"},
		.addr = "10.77.0.2",
		.want = "certificate is for another address"},
	{.fact = "TLS 1.0 only", .spec = {SAN}, .want = OLD, .max_version = TLS1_VERSION},
	{.fact = "TLS 1.1 only", .spec = {SAN}, .want = OLD, .max_version = TLS1_1_VERSION},
};

static struct pki_cert root, intermediate, stranger, leaf_signer, constrained;
static struct ca *ca;
static struct tls *strict, *insecure;
static char roots_path[] = "/tmp/test_tls_verify.XXXXXX";

static int setup(void **state)
{
	struct errmsg msg;
	int fd = mkstemp(roots_path);

	assert_true(fd >= 0);
	close(fd);
	root = pki_ca("root", NULL);
	intermediate = pki_ca("intermediate", &root);
	stranger = pki_ca("stranger", NULL);
	leaf_signer = pki_make(&(struct pki_spec){.cn = "leaf", .constraints = "CA:FALSE"}, &root);
	constrained = pki_make(&(struct pki_spec){.cn = "constrained",
				       .constraints = "critical,CA:TRUE",
				       .names = "critical,permitted;DNS:other.test"},
		&root);
	pki_write(roots_path, &root, 1);
	assert_int_equal(ca_new(&ca, &msg), 0);
	assert_int_equal(tls_new(ca, roots_path, false, &strict, &msg), 0);
	assert_int_equal(tls_new(ca, roots_path, true, &insecure, &msg), 0);
	return 0;
}

static int teardown(void **state)
{
	tls_free(strict);
	tls_free(insecure);
	ca_free(ca);
	pki_free(&root);
	pki_free(&intermediate);
	pki_free(&stranger);
	pki_free(&leaf_signer);
	pki_free(&constrained);
	unlink(roots_path);
	return 0;
}

static const struct pki_cert *issuer_of(const struct row *r)
{
	switch (r->issuer) {
	case ISSUED_BY_ROOT:
		return &root;
	case ISSUED_BY_INTERMEDIATE:
		return &intermediate;
	case ISSUED_BY_STRANGER:
		return &stranger;
	case ISSUED_BY_LEAF:
		return &leaf_signer;
	case ISSUED_BY_CONSTRAINED:
		return &constrained;
	default:
		return NULL;
	}
}

/* An origin as weak as OpenSSL lets it be. */
static SSL_CTX *origin(const struct row *r, int version)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
	const struct pki_cert *issuer = issuer_of(r);
	struct pki_cert c = pki_make(&r->spec, issuer);

	SSL_CTX_set_security_level(ctx, 0);
	SSL_CTX_set_min_proto_version(ctx, 0);
	SSL_CTX_set_max_proto_version(ctx, r->max_version ? r->max_version : version);
	assert_int_equal(SSL_CTX_use_certificate(ctx, c.cert), 1);
	assert_int_equal(SSL_CTX_use_PrivateKey(ctx, c.key), 1);
	if (issuer && issuer != &root && !r->no_chain)
		assert_int_equal(SSL_CTX_add1_chain_cert(ctx, issuer->cert), 1);
	pki_free(&c);
	return ctx;
}

static SSL *connect_to(struct tls *t, const struct row *r)
{
	struct netaddr addr;

	if (!r->addr)
		return tls_connect_new(t, SLICE("api.model.test"), NULL, 443);
	assert_true(netaddr_parse(slice_str(r->addr), &addr));
	return tls_connect_new(t, SLICE_EMPTY, &addr, 443);
}

static void check_row(const struct row *r, int version)
{
	SSL_CTX *ctx = origin(r, version);
	SSL *server = SSL_new(ctx);
	SSL *client = connect_to(strict, r);
	bool certificate = !r->want;
	const char *text = "(accepted)";
	int done;

	SSL_set_accept_state(server);
	done = pki_handshake(client, server);
	if (!done)
		text = tls_error_text(client, &certificate);
	if (done != !r->want || (r->want && strcmp(text, r->want) != 0))
		fail_msg("%s, version %x: %s", r->fact, version, text);
	/* The answer to the caller says certificate only where that was the cause. */
	if (certificate != !r->max_version)
		fail_msg("%s: certificate=%d", r->fact, certificate);
	assert_int_equal(tls_is_verified(client), !r->want);
	SSL_set_verify_result(client, X509_V_ERR_CERT_UNTRUSTED);
	assert_false(tls_is_verified(client));
	/* The next user of OpenSSL must not find our errors. */
	if (r->want)
		assert_int_equal(ERR_peek_error(), 0);
	SSL_free(client);
	SSL_free(server);
	SSL_CTX_free(ctx);
	ERR_clear_error();
}

static void test_each_kind_of_origin_is_accepted_or_refused_with_its_sentence(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		check_row(&rows[i], TLS1_2_VERSION);
		check_row(&rows[i], TLS1_3_VERSION);
	}
}

static void test_insecure_mode_connects_to_all_of_them_and_calls_none_verified(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		bool certificate = true;
		SSL_CTX *ctx;
		SSL *server;
		SSL *client;

		if (rows[i].max_version)
			continue;
		ctx = origin(&rows[i], TLS1_3_VERSION);
		server = SSL_new(ctx);
		client = connect_to(insecure, &rows[i]);
		SSL_set_accept_state(server);
		if (!pki_handshake(client, server))
			fail_msg("%s: refused", rows[i].fact);
		assert_false(tls_is_verified(client));
		/* What fails later is not put down to the certificate. */
		assert_string_equal(tls_error_text(client, &certificate), "TLS failed");
		assert_false(certificate);
		SSL_free(client);
		SSL_free(server);
		SSL_CTX_free(ctx);
	}
}

static void test_nothing_is_verified_before_the_handshake_is_done(void **state)
{
	SSL *client = tls_connect_new(strict, SLICE("api.model.test"), NULL, 443);

	assert_false(tls_is_verified(client));
	SSL_free(client);
}

/* Without a name OpenSSL would check none. */
static void test_connection_without_a_name_or_with_a_nul_in_it_is_not_made(void **state)
{
	assert_null(tls_connect_new(strict, SLICE_EMPTY, NULL, 443));
	assert_null(tls_connect_new(strict, slice_make("api.model.test\0.evil", 20), NULL, 443));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_kind_of_origin_is_accepted_or_refused_with_its_sentence),
		cmocka_unit_test(
			test_insecure_mode_connects_to_all_of_them_and_calls_none_verified),
		cmocka_unit_test(test_nothing_is_verified_before_the_handshake_is_done),
		cmocka_unit_test(test_connection_without_a_name_or_with_a_nul_in_it_is_not_made),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
