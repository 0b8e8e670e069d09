/* Minted certificates: fields and strict verification (C75, C77), renewal (C81), the cache. */
#include "base/clock.h"
#include "base/hostname.h"
#include "proxy/leaf.h"
#include "tests/unit/proxy/pki.h"

#define NOW_S 1790000000ULL
#define NOW_US (NOW_S * 1000000)
#define DAY_US (86400ULL * 1000000)

static struct ca *ca;
static struct leaf_cache *cache;

static int setup(void **state)
{
	clock_fake(1, NOW_US);
	assert_int_equal(ca_new(&ca, NULL), 0);
	assert_int_equal(leaf_cache_new(ca, LEAF_CACHE_MAX, &cache), 0);
	return 0;
}

static int teardown(void **state)
{
	leaf_cache_free(cache);
	ca_free(ca);
	return 0;
}

static struct netaddr address(const char *text)
{
	struct netaddr a;

	assert_true(netaddr_parse(slice_str(text), &a));
	return a;
}

/* The verifier's answer, with the strictest flags, at a time of the fake clock. */
static int verify(X509 *leaf, const char *host, const char *ip)
{
	X509_STORE *store = X509_STORE_new();
	X509_STORE_CTX *ctx = X509_STORE_CTX_new();
	X509_VERIFY_PARAM *param;
	int ret;

	X509_STORE_add_cert(store, ca->cert);
	assert_int_equal(X509_STORE_CTX_init(ctx, store, leaf, NULL), 1);
	param = X509_STORE_CTX_get0_param(ctx);
	X509_VERIFY_PARAM_set_flags(param,
		X509_V_FLAG_X509_STRICT | X509_V_FLAG_CHECK_SS_SIGNATURE |
			X509_V_FLAG_POLICY_CHECK);
	X509_VERIFY_PARAM_set_time(param, (time_t)(clock_wall_us() / 1000000));
	X509_VERIFY_PARAM_set_auth_level(param, 2);
	X509_VERIFY_PARAM_set_purpose(param, X509_PURPOSE_SSL_SERVER);
	X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
	if (host)
		X509_VERIFY_PARAM_set1_host(param, host, 0);
	if (ip)
		X509_VERIFY_PARAM_set1_ip_asc(param, ip);
	ret = X509_verify_cert(ctx) == 1 ? X509_V_OK : X509_STORE_CTX_get_error(ctx);
	X509_STORE_CTX_free(ctx);
	X509_STORE_free(store);
	return ret;
}

static void test_leaf_has_the_fields_strict_clients_want(void **state)
{
	X509 *x = leaf_get(cache, SLICE("read.test"), NULL, NOW_US);
	static const struct {
		int nid;
		int critical;
	} rows[] = {
		{NID_subject_alt_name, 1},
		{NID_key_usage, 1},
		{NID_ext_key_usage, 0},
		{NID_subject_key_identifier, 0},
		{NID_authority_key_identifier, 0},
	};
	const ASN1_OCTET_STRING *aki;

	assert_non_null(x);
	assert_int_equal(X509_get_version(x), X509_VERSION_3);
	assert_int_equal(X509_get_ext_count(x), ARRAY_LEN(rows));
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		int at = X509_get_ext_by_NID(x, rows[i].nid, -1);

		assert_true(at >= 0);
		assert_int_equal(
			X509_EXTENSION_get_critical(X509_get_ext(x, at)), rows[i].critical);
	}
	assert_int_equal(X509_NAME_entry_count(X509_get_subject_name(x)), 0);
	assert_int_equal(
		X509_NAME_cmp(X509_get_issuer_name(x), X509_get_subject_name(ca->cert)), 0);
	assert_int_equal(X509_get_key_usage(x), KU_DIGITAL_SIGNATURE);
	assert_int_equal(X509_get_extended_key_usage(x), XKU_SSL_SERVER);
	aki = X509_get0_authority_key_id(x);
	assert_int_equal(ASN1_OCTET_STRING_cmp(aki, X509_get0_subject_key_id(ca->cert)), 0);
	assert_int_equal(ASN1_STRING_length(X509_get0_subject_key_id(x)), 20);
	assert_int_not_equal(ASN1_OCTET_STRING_cmp(aki, X509_get0_subject_key_id(x)), 0);
	assert_int_equal(X509_get_signature_nid(x), NID_ecdsa_with_SHA256);
	assert_int_equal(X509_check_private_key(x, leaf_key(cache)), 1);
}

static void test_leaf_is_valid_from_48_hours_ago_for_30_days(void **state)
{
	X509 *x = leaf_get(cache, SLICE("read.test"), NULL, NOW_US);
	time_t from = (time_t)NOW_S - LEAF_BACKDATE_H * 3600;
	time_t end = (time_t)NOW_S + LEAF_DAYS * PKI_DAY;

	assert_int_equal(ASN1_TIME_cmp_time_t(X509_get0_notBefore(x), from), 0);
	assert_int_equal(ASN1_TIME_cmp_time_t(X509_get0_notAfter(x), end), 0);
	assert_true(end - from <= 397 * PKI_DAY);
	/* A client whose clock is 25 hours behind. */
	clock_fake(1, NOW_US - 25 * 3600 * 1000000ULL);
	assert_int_equal(verify(x, "read.test", NULL), X509_V_OK);
	clock_fake(1, NOW_US);
}

static int serial_order(const void *a, const void *b)
{
	return memcmp(a, b, 16);
}

static void test_serials_are_positive_short_and_unique(void **state)
{
	static char seen[2000][16];
	char name[32];

	for (size_t i = 0; i < ARRAY_LEN(seen); i++) {
		const ASN1_INTEGER *s;
		X509 *x;

		(void)snprintf(name, sizeof(name), "h%zu.test", i);
		x = leaf_get(cache, slice_str(name), NULL, NOW_US);
		s = X509_get0_serialNumber(x);
		assert_int_equal(ASN1_STRING_type(s), V_ASN1_INTEGER);
		assert_int_equal(ASN1_STRING_length(s), sizeof(seen[i]));
		/* The encoding adds no byte for the sign, so the value is what DER holds. */
		assert_true(ASN1_STRING_get0_data(s)[0] < 0x80);
		memcpy(seen[i], ASN1_STRING_get0_data(s), sizeof(seen[i]));
	}
	qsort(seen, ARRAY_LEN(seen), sizeof(seen[0]), serial_order);
	for (size_t i = 1; i < ARRAY_LEN(seen); i++)
		assert_memory_not_equal(seen[i - 1], seen[i], sizeof(seen[i]));
}

static void test_strict_verification_accepts_leaves_for_their_name_only(void **state)
{
	static char longest[HOSTNAME_MAX + 1];
	static const char *names[] = {
		"read.test", "a_b.test", "single", "xn--bcher-kva.test", "127name.test", longest};

	for (int i = 0; i < HOSTNAME_MAX; i++)
		longest[i] = i % 64 == 63 ? '.' : 'a';
	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		X509 *x = leaf_get(cache, slice_str(names[i]), NULL, NOW_US);

		assert_non_null(x);
		assert_int_equal(verify(x, names[i], NULL), X509_V_OK);
		assert_int_equal(verify(x, "other.test", NULL), X509_V_ERR_HOSTNAME_MISMATCH);
		assert_int_equal(verify(x, NULL, "10.0.0.1"), X509_V_ERR_IP_ADDRESS_MISMATCH);
	}
}

static void test_strict_verification_accepts_leaves_for_their_address_only(void **state)
{
	static const char *addrs[] = {"10.77.0.2", "255.255.255.255", "fd00::2", "2001:db8::1"};

	for (size_t i = 0; i < ARRAY_LEN(addrs); i++) {
		struct netaddr a = address(addrs[i]);
		X509 *x = leaf_get(cache, SLICE_EMPTY, &a, NOW_US);

		assert_int_equal(verify(x, NULL, addrs[i]), X509_V_OK);
		assert_int_equal(verify(x, NULL, "10.77.0.3"), X509_V_ERR_IP_ADDRESS_MISMATCH);
		assert_int_equal(verify(x, addrs[i], NULL), X509_V_ERR_HOSTNAME_MISMATCH);
	}
}

/* What a client receives is the encoding, not the object: read that back. */
static void test_encoding_of_a_leaf_carries_its_own_name_and_signature(void **state)
{
	static const char *names[] = {"one.test", "two.test", "three.test"};

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		X509 *x = leaf_get(cache, slice_str(names[i]), NULL, NOW_US);
		unsigned char *der = NULL;
		int len = i2d_X509(x, &der);
		const unsigned char *p = der;
		X509 *back = d2i_X509(NULL, &p, len);

		assert_non_null(back);
		assert_int_equal(verify(back, names[i], NULL), X509_V_OK);
		assert_int_equal(X509_check_host(back, names[(i + 1) % 3], 0, 0, NULL), 0);
		X509_free(back);
		OPENSSL_free(der);
	}
}

static void test_all_leaves_have_one_key(void **state)
{
	X509 *a = leaf_get(cache, SLICE("one.test"), NULL, NOW_US);
	X509 *b;

	X509_up_ref(a);
	b = leaf_get(cache, SLICE("two.test"), NULL, NOW_US);
	assert_int_equal(EVP_PKEY_eq(X509_get0_pubkey(a), X509_get0_pubkey(b)), 1);
	assert_int_equal(EVP_PKEY_eq(X509_get0_pubkey(a), leaf_key(cache)), 1);
	assert_int_not_equal(EVP_PKEY_eq(X509_get0_pubkey(a), ca->key), 1);
	X509_free(a);
}

static void test_second_request_gets_the_kept_leaf(void **state)
{
	struct netaddr v4 = address("10.0.0.1");
	struct leaf_cache *c = NULL;
	X509 *name;
	X509 *addr;

	assert_int_equal(leaf_cache_new(ca, 8, &c), 0);
	name = leaf_get(c, SLICE("kept.test"), NULL, NOW_US);
	addr = leaf_get(c, SLICE_EMPTY, &v4, NOW_US);
	assert_ptr_equal(leaf_get(c, SLICE("kept.test"), NULL, NOW_US + 1), name);
	assert_ptr_equal(leaf_get(c, SLICE_EMPTY, &v4, NOW_US + 1), addr);
	assert_int_equal(leaf_count(c), 2);
	/* A name that reads like the address has a leaf of its own. */
	assert_ptr_not_equal(leaf_get(c, SLICE("10.0.0.1"), NULL, NOW_US), addr);
	assert_int_equal(leaf_count(c), 3);
	leaf_cache_free(c);
}

static void test_leaf_is_minted_anew_at_half_of_its_life(void **state)
{
	uint64_t half = NOW_US + LEAF_DAYS / 2 * DAY_US;
	X509 *first = leaf_get(cache, SLICE("half.test"), NULL, NOW_US);
	X509 *second;

	X509_up_ref(first);
	assert_ptr_equal(leaf_get(cache, SLICE("half.test"), NULL, half - 1), first);
	second = leaf_get(cache, SLICE("half.test"), NULL, half);
	assert_ptr_not_equal(second, first);
	assert_int_not_equal(
		ASN1_INTEGER_cmp(X509_get0_serialNumber(first), X509_get0_serialNumber(second)), 0);
	/* At +60 days and +2 years, as after a long pause, it is still good. */
	for (uint64_t days = 60; days <= 730; days += 670) {
		clock_fake(1, NOW_US + days * DAY_US);
		assert_int_equal(verify(leaf_get(cache, SLICE("half.test"), NULL, clock_wall_us()),
					 "half.test", NULL),
			X509_V_OK);
	}
	/* The old one had ended by then. */
	assert_int_equal(verify(first, "half.test", NULL), X509_V_ERR_CERT_HAS_EXPIRED);
	clock_fake(1, NOW_US);
	X509_free(first);
}

static void test_leaf_is_minted_anew_when_the_clock_was_set_back(void **state)
{
	uint64_t day_back = NOW_US - LEAF_BACKDATE_H / 2 * 3600 * 1000000ULL;
	X509 *first = leaf_get(cache, SLICE("back.test"), NULL, NOW_US);

	X509_up_ref(first);
	assert_ptr_equal(leaf_get(cache, SLICE("back.test"), NULL, day_back), first);
	assert_ptr_not_equal(leaf_get(cache, SLICE("back.test"), NULL, day_back - 1), first);
	X509_free(first);
}

static void test_leaf_does_not_outlive_its_ca(void **state)
{
	time_t end = (time_t)NOW_S - 48 * 3600 + CA_DAYS * PKI_DAY;
	uint64_t late = (uint64_t)(end - 10 * PKI_DAY) * 1000000;
	X509 *x = leaf_get(cache, SLICE("late.test"), NULL, late);

	X509_up_ref(x);
	assert_int_equal(ASN1_TIME_cmp_time_t(X509_get0_notAfter(x), end), 0);
	assert_ptr_equal(leaf_get(cache, SLICE("late.test"), NULL, late + 5 * DAY_US - 1), x);
	assert_ptr_not_equal(leaf_get(cache, SLICE("late.test"), NULL, late + 5 * DAY_US), x);
	X509_free(x);
}

static void test_cache_holds_its_ceiling_and_drops_the_least_recently_used(void **state)
{
	struct leaf_cache *c = NULL;
	X509 *first;
	X509 *second;

	assert_int_equal(leaf_cache_new(ca, 2, &c), 0);
	first = leaf_get(c, SLICE("one.test"), NULL, NOW_US);
	second = leaf_get(c, SLICE("two.test"), NULL, NOW_US);
	X509_up_ref(second);
	assert_int_equal(leaf_count(c), 2);
	assert_ptr_equal(leaf_get(c, SLICE("one.test"), NULL, NOW_US), first);
	assert_non_null(leaf_get(c, SLICE("three.test"), NULL, NOW_US));
	assert_int_equal(leaf_count(c), 2);
	assert_ptr_equal(leaf_get(c, SLICE("one.test"), NULL, NOW_US), first);
	assert_ptr_not_equal(leaf_get(c, SLICE("two.test"), NULL, NOW_US), second);
	/* Whoever counted it up may still use it. */
	assert_int_equal(verify(second, "two.test", NULL), X509_V_OK);
	X509_free(second);
	leaf_cache_free(c);
}

static void test_leaves_of_every_kind_of_ca_verify(void **state)
{
	static const struct pki_spec specs[] = {
		{.cn = "p384",
			.constraints = "critical,CA:TRUE",
			.usage = "critical,keyCertSign",
			.key_type = "P-384",
			.from_s = -300 * PKI_DAY,
			.to_s = 3000 * PKI_DAY},
		{.cn = "rsa",
			.constraints = "critical,CA:TRUE",
			.usage = "critical,keyCertSign",
			.rsa_bits = 2048,
			.from_s = -300 * PKI_DAY,
			.to_s = 3000 * PKI_DAY},
	};
	struct ca *own = ca;

	for (size_t i = 0; i < ARRAY_LEN(specs); i++) {
		struct pki_cert c = pki_make(&specs[i], NULL);
		struct ca other = {.cert = c.cert, .key = c.key, .key_id_len = 20};
		struct leaf_cache *leaves = NULL;

		memcpy(other.key_id, ASN1_STRING_get0_data(X509_get0_subject_key_id(c.cert)), 20);
		ca = &other;
		clock_fake(1, (uint64_t)time(NULL) * 1000000);
		assert_int_equal(leaf_cache_new(ca, 4, &leaves), 0);
		assert_int_equal(verify(leaf_get(leaves, SLICE("read.test"), NULL, clock_wall_us()),
					 "read.test", NULL),
			X509_V_OK);
		leaf_cache_free(leaves);
		pki_free(&c);
	}
	ca = own;
	clock_fake(1, NOW_US);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_leaf_has_the_fields_strict_clients_want),
		cmocka_unit_test(test_leaf_is_valid_from_48_hours_ago_for_30_days),
		cmocka_unit_test(test_serials_are_positive_short_and_unique),
		cmocka_unit_test(test_strict_verification_accepts_leaves_for_their_name_only),
		cmocka_unit_test(test_strict_verification_accepts_leaves_for_their_address_only),
		cmocka_unit_test(test_encoding_of_a_leaf_carries_its_own_name_and_signature),
		cmocka_unit_test(test_all_leaves_have_one_key),
		cmocka_unit_test(test_second_request_gets_the_kept_leaf),
		cmocka_unit_test(test_leaf_is_minted_anew_at_half_of_its_life),
		cmocka_unit_test(test_leaf_is_minted_anew_when_the_clock_was_set_back),
		cmocka_unit_test(test_leaf_does_not_outlive_its_ca),
		cmocka_unit_test(test_cache_holds_its_ceiling_and_drops_the_least_recently_used),
		cmocka_unit_test(test_leaves_of_every_kind_of_ca_verify),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
