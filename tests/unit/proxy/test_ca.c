/* The CA: its fields (C75), the two ways it is stored, and what is refused (C81). */
#include "base/clock.h"
#include "base/strbuf.h"
#include "proxy/ca.h"
#include "tests/unit/proxy/pki.h"

static struct ca *make(void)
{
	struct ca *ca = NULL;
	struct errmsg msg;

	assert_int_equal(ca_new(&ca, &msg), 0);
	return ca;
}

static void assert_critical(const X509 *cert, int nid, int want)
{
	int at = X509_get_ext_by_NID(cert, nid, -1);

	assert_true(at >= 0);
	assert_int_equal(X509_EXTENSION_get_critical(X509_get_ext(cert, at)), want);
	/* Only once. */
	assert_int_equal(X509_get_ext_by_NID(cert, nid, at), -1);
}

static void test_new_ca_has_the_fields_strict_clients_want(void **state)
{
	struct ca *ca = make();
	const ASN1_OCTET_STRING *ski = X509_get0_subject_key_id(ca->cert);
	const ASN1_OCTET_STRING *aki = X509_get0_authority_key_id(ca->cert);
	const ASN1_INTEGER *serial = X509_get0_serialNumber(ca->cert);
	char cn[64];

	assert_int_equal(X509_get_version(ca->cert), X509_VERSION_3);
	assert_int_equal(X509_check_ca(ca->cert), 1);
	assert_int_equal(X509_get_pathlen(ca->cert), 0);
	assert_int_equal(X509_get_key_usage(ca->cert), KU_KEY_CERT_SIGN | KU_CRL_SIGN);
	assert_critical(ca->cert, NID_basic_constraints, 1);
	assert_critical(ca->cert, NID_key_usage, 1);
	assert_critical(ca->cert, NID_subject_key_identifier, 0);
	assert_critical(ca->cert, NID_authority_key_identifier, 0);
	assert_int_equal(ASN1_OCTET_STRING_cmp(ski, aki), 0);
	assert_int_equal(ASN1_STRING_length(ski), ca->key_id_len);
	assert_memory_equal(ASN1_STRING_get0_data(ski), ca->key_id, ca->key_id_len);
	assert_int_equal(ASN1_STRING_type(serial), V_ASN1_INTEGER);
	assert_in_range(ASN1_STRING_length(serial), 8, 20);
	assert_int_equal(X509_get_signature_nid(ca->cert), NID_ecdsa_with_SHA256);
	assert_int_equal(X509_NAME_get_text_by_NID(
				 X509_get_subject_name(ca->cert), NID_commonName, cn, sizeof(cn)),
		strlen("egress CA 01234567"));
	assert_memory_equal(cn, "egress CA ", 10);
	assert_int_equal(strspn(cn + 10, "0123456789abcdef"), 8);
	ca_free(ca);
}

static void test_new_ca_is_valid_from_48_hours_ago_for_its_days(void **state)
{
	uint64_t now_s = 1790000000;
	time_t from = (time_t)now_s - 48 * 3600;
	time_t end = from + CA_DAYS * PKI_DAY;
	struct ca *ca;

	clock_fake(1, now_s * 1000000);
	ca = make();
	assert_int_equal(ASN1_TIME_cmp_time_t(X509_get0_notBefore(ca->cert), from), 0);
	assert_int_equal(ASN1_TIME_cmp_time_t(X509_get0_notAfter(ca->cert), end), 0);
	ca_free(ca);
	clock_fake(1, (uint64_t)time(NULL) * 1000000);
}

static void test_two_cas_differ_in_key_name_and_serial(void **state)
{
	struct ca *a = make();
	struct ca *b = make();

	assert_int_not_equal(EVP_PKEY_eq(a->key, b->key), 1);
	assert_int_not_equal(
		X509_NAME_cmp(X509_get_subject_name(a->cert), X509_get_subject_name(b->cert)), 0);
	assert_int_not_equal(
		ASN1_INTEGER_cmp(X509_get0_serialNumber(a->cert), X509_get0_serialNumber(b->cert)),
		0);
	ca_free(a);
	ca_free(b);
}

static void test_encoded_ca_comes_back_the_same(void **state)
{
	struct ca *a = make();
	struct ca *b = NULL;
	struct strbuf blob;

	strbuf_init(&blob, CA_BLOB_MAX);
	assert_int_equal(ca_encode(a, &blob), 0);
	assert_int_equal(ca_decode(strbuf_slice(&blob), &b), 0);
	assert_int_equal(X509_cmp(a->cert, b->cert), 0);
	assert_int_equal(EVP_PKEY_eq(a->key, b->key), 1);
	assert_int_equal(a->key_id_len, b->key_id_len);
	assert_memory_equal(a->key_id, b->key_id, a->key_id_len);
	ca_free(b);
	ca_free(a);
	strbuf_fini(&blob);
}

static void test_cut_or_extended_blob_is_refused(void **state)
{
	struct ca *a = make();
	struct ca *b = NULL;
	struct strbuf blob;
	size_t whole;

	strbuf_init(&blob, CA_BLOB_MAX);
	assert_int_equal(ca_encode(a, &blob), 0);
	whole = blob.len;
	for (size_t n = 0; n < whole; n++) {
		assert_int_equal(ca_decode(slice_first(strbuf_slice(&blob), n), &b), E_TRUNCATED);
		assert_null(b);
	}
	strbuf_char(&blob, 'x');
	assert_int_equal(ca_decode(strbuf_slice(&blob), &b), E_SYNTAX);
	/* The certificate's outermost tag. */
	blob.p[2] = 0;
	assert_int_equal(ca_decode(slice_first(strbuf_slice(&blob), whole), &b), E_SYNTAX);
	assert_null(b);
	ca_free(a);
	strbuf_fini(&blob);
}

static void test_blob_with_the_key_of_another_ca_is_refused(void **state)
{
	struct ca *a = make();
	struct ca *b = make();
	struct ca *got = NULL;
	struct strbuf blob;
	EVP_PKEY *key = a->key;

	strbuf_init(&blob, CA_BLOB_MAX);
	a->key = b->key;
	assert_int_equal(ca_encode(a, &blob), 0);
	assert_int_equal(ca_decode(strbuf_slice(&blob), &got), E_VALUE);
	assert_null(got);
	a->key = key;
	ca_free(a);
	ca_free(b);
	strbuf_fini(&blob);
}

static void test_output_that_does_not_fit_is_a_limit(void **state)
{
	struct ca *ca = make();
	struct strbuf b;
	size_t whole;

	strbuf_init(&b, CA_BLOB_MAX);
	assert_int_equal(ca_encode(ca, &b), 0);
	whole = b.len;
	strbuf_fini(&b);
	strbuf_init(&b, whole - 1);
	assert_int_equal(ca_encode(ca, &b), E_LIMIT);
	strbuf_fini(&b);
	strbuf_init(&b, 100);
	assert_int_equal(ca_to_pem(ca, &b), E_LIMIT);
	strbuf_fini(&b);
	strbuf_init(&b, 100);
	assert_int_equal(ca_cert_pem(ca, &b), E_LIMIT);
	strbuf_fini(&b);
	ca_free(ca);
}

static void test_pem_comes_back_the_same_and_the_certificate_alone_has_no_key(void **state)
{
	struct ca *a = make();
	struct ca *b = NULL;
	struct errmsg msg;
	struct strbuf pem;

	strbuf_init(&pem, 16384);
	assert_int_equal(ca_cert_pem(a, &pem), 0);
	assert_int_equal(slice_find(strbuf_slice(&pem), SLICE("PRIVATE")), pem.len);
	assert_int_equal(ca_from_pem(strbuf_slice(&pem), &b, &msg), E_VALUE);
	assert_non_null(strstr(msg.text, "no private key"));
	strbuf_clear(&pem);
	assert_int_equal(ca_to_pem(a, &pem), 0);
	assert_int_equal(ca_from_pem(strbuf_slice(&pem), &b, &msg), 0);
	assert_int_equal(X509_cmp(a->cert, b->cert), 0);
	assert_int_equal(EVP_PKEY_eq(a->key, b->key), 1);
	assert_memory_equal(a->key_id, b->key_id, a->key_id_len);
	ca_free(a);
	ca_free(b);
	strbuf_fini(&pem);
}

#define CA_TRUE "critical,CA:TRUE"
#define CA_USE "critical,keyCertSign"

static const struct {
	struct pki_spec spec;
	const char *want; /* part of the message; NULL: accepted */
} pem_rows[] = {
	{{.cn = "ok", .constraints = CA_TRUE, .usage = CA_USE}, NULL},
	{{.cn = "ok", .constraints = CA_TRUE}, NULL},
	{{.cn = "p384", .constraints = CA_TRUE, .key_type = "P-384"}, NULL},
	{{.cn = "rsa2048", .constraints = CA_TRUE, .rsa_bits = 2048}, NULL},
	{{.cn = "rsa2047", .constraints = CA_TRUE, .rsa_bits = 2047}, "at least 2048"},
	{{.cn = "rsa1024", .constraints = CA_TRUE, .rsa_bits = 1024}, "at least 2048"},
	{{.cn = "p521", .constraints = CA_TRUE, .key_type = "P-521"}, "EC P-256"},
	{{.cn = "ed", .constraints = CA_TRUE, .key_type = "ED25519"}, "EC P-256"},
	{{.cn = "old", .constraints = CA_TRUE, .to_s = -60}, "expired"},
	{{.cn = "new", .constraints = CA_TRUE, .from_s = 60}, "not valid yet"},
	{{.cn = "leaf", .constraints = "CA:FALSE"}, "not a CA"},
	{{.cn = "plain"}, "not a CA"},
	{{.cn = "use", .constraints = CA_TRUE, .usage = "digitalSignature"}, "not a CA"},
};

static void add_pem(
	struct strbuf *out, X509 *cert, EVP_PKEY *key, const EVP_CIPHER *cipher, const char *pass)
{
	BIO *bio = BIO_new(BIO_s_mem());
	char *text = NULL;
	long len;

	if (cert)
		assert_int_equal(PEM_write_bio_X509(bio, cert), 1);
	if (key)
		assert_int_equal(
			PEM_write_bio_PrivateKey(bio, key, cipher, (const unsigned char *)pass,
				pass ? (int)strlen(pass) : 0, NULL, NULL),
			1);
	len = BIO_get_mem_data(bio, &text);
	strbuf_add(out, slice_make(text, (size_t)len));
	BIO_free(bio);
}

static void test_pem_of_a_ca_that_cannot_serve_is_refused_with_its_reason(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(pem_rows); i++) {
		struct pki_cert c = pki_make(&pem_rows[i].spec, NULL);
		struct errmsg msg = {"(accepted)"};
		struct ca *ca = NULL;
		struct strbuf pem;
		int ret;

		strbuf_init(&pem, 16384);
		/* The key first: the order is free. */
		add_pem(&pem, NULL, c.key, NULL, NULL);
		add_pem(&pem, c.cert, NULL, NULL, NULL);
		ret = ca_from_pem(strbuf_slice(&pem), &ca, &msg);
		if (ret != (pem_rows[i].want ? E_VALUE : 0) ||
			(pem_rows[i].want && !strstr(msg.text, pem_rows[i].want)))
			fail_msg("%s: %d %s", pem_rows[i].spec.cn, ret, msg.text);
		ca_free(ca);
		strbuf_fini(&pem);
		pki_free(&c);
	}
}

static void test_pem_with_wrong_encrypted_or_missing_parts_is_refused(void **state)
{
	struct ca *a = make();
	struct ca *b = make();
	struct ca *got = NULL;
	struct errmsg msg;
	struct strbuf pem;

	strbuf_init(&pem, 16384);
	add_pem(&pem, a->cert, b->key, NULL, NULL);
	assert_int_equal(ca_from_pem(strbuf_slice(&pem), &got, &msg), E_VALUE);
	assert_non_null(strstr(msg.text, "does not fit"));
	strbuf_clear(&pem);
	add_pem(&pem, NULL, a->key, NULL, NULL);
	assert_int_equal(ca_from_pem(strbuf_slice(&pem), &got, &msg), E_VALUE);
	assert_non_null(strstr(msg.text, "no certificate"));
	strbuf_clear(&pem);
	/* Must not ask at a terminal either, or this test would hang. */
	add_pem(&pem, a->cert, a->key, EVP_aes_128_cbc(), "secret");
	assert_int_equal(ca_from_pem(strbuf_slice(&pem), &got, &msg), E_VALUE);
	assert_non_null(strstr(msg.text, "encrypted"));
	assert_int_equal(ca_from_pem(SLICE_EMPTY, &got, &msg), E_VALUE);
	assert_int_equal(ca_from_pem(SLICE("-----BEGIN CERTIFICATE-----\nAAAA\n"
					   "-----END CERTIFICATE-----\n"),
				 &got, &msg),
		E_SYNTAX);
	assert_null(got);
	/* Nothing is left for the next user of OpenSSL to stumble over. */
	assert_int_equal(ERR_peek_error(), 0);
	ca_free(a);
	ca_free(b);
	strbuf_fini(&pem);
}

static void test_ca_without_key_identifier_gets_one_for_its_leaves(void **state)
{
	struct ca *a = make();
	struct ca *b = NULL;
	struct errmsg msg;
	struct strbuf pem;
	uint8_t want[EVP_MAX_MD_SIZE];
	unsigned int want_len = 0;
	int at = X509_get_ext_by_NID(a->cert, NID_subject_key_identifier, -1);

	X509_EXTENSION_free(X509_delete_ext(a->cert, at));
	assert_true(X509_sign(a->cert, a->key, EVP_sha256()) > 0);
	strbuf_init(&pem, 16384);
	add_pem(&pem, a->cert, a->key, NULL, NULL);
	assert_int_equal(ca_from_pem(strbuf_slice(&pem), &b, &msg), 0);
	assert_int_equal(X509_pubkey_digest(a->cert, EVP_sha1(), want, &want_len), 1);
	assert_int_equal(b->key_id_len, want_len);
	assert_memory_equal(b->key_id, want, want_len);
	ca_free(a);
	ca_free(b);
	strbuf_fini(&pem);
}

/* The key identifier is under the control of whoever wrote the file. */
static void test_key_identifier_of_64_bytes_is_taken_and_of_65_refused(void **state)
{
	for (int len = CA_KEY_ID_MAX; len <= CA_KEY_ID_MAX + 1; len++) {
		struct ca *a = make();
		struct ca *b = NULL;
		ASN1_OCTET_STRING *id = ASN1_OCTET_STRING_new();
		uint8_t bytes[CA_KEY_ID_MAX + 1];
		struct strbuf pem;

		memset(bytes, 7, sizeof(bytes));
		ASN1_OCTET_STRING_set(id, bytes, len);
		assert_int_equal(X509_add1_ext_i2d(a->cert, NID_subject_key_identifier, id, 0,
					 X509V3_ADD_REPLACE),
			1);
		assert_true(X509_sign(a->cert, a->key, EVP_sha256()) > 0);
		strbuf_init(&pem, 16384);
		add_pem(&pem, a->cert, a->key, NULL, NULL);
		assert_int_equal(ca_from_pem(strbuf_slice(&pem), &b, NULL),
			len == CA_KEY_ID_MAX ? 0 : E_LIMIT);
		ASN1_OCTET_STRING_free(id);
		ca_free(a);
		ca_free(b);
		strbuf_fini(&pem);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_new_ca_has_the_fields_strict_clients_want),
		cmocka_unit_test(test_new_ca_is_valid_from_48_hours_ago_for_its_days),
		cmocka_unit_test(test_two_cas_differ_in_key_name_and_serial),
		cmocka_unit_test(test_encoded_ca_comes_back_the_same),
		cmocka_unit_test(test_cut_or_extended_blob_is_refused),
		cmocka_unit_test(test_blob_with_the_key_of_another_ca_is_refused),
		cmocka_unit_test(test_output_that_does_not_fit_is_a_limit),
		cmocka_unit_test(test_pem_comes_back_the_same_and_the_certificate_alone_has_no_key),
		cmocka_unit_test(test_pem_of_a_ca_that_cannot_serve_is_refused_with_its_reason),
		cmocka_unit_test(test_pem_with_wrong_encrypted_or_missing_parts_is_refused),
		cmocka_unit_test(test_ca_without_key_identifier_gets_one_for_its_leaves),
		cmocka_unit_test(test_key_identifier_of_64_bytes_is_taken_and_of_65_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
