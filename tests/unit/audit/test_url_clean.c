/* Cleaning of URLs: userinfo, secret parameters, length. */
#include "audit/url_clean.h"
#include "tests/unit/audit/trail.h"

struct row {
	const char *in, *want;
};

static void check(const struct row *rows, size_t n)
{
	char buf[URL_CLEAN_MAX + 1];

	for (size_t i = 0; i < n; i++) {
		size_t len = url_clean(slice_str(rows[i].in), buf);

		buf[len] = '\0';
		assert_string_equal(buf, rows[i].want);
	}
}

static void test_ordinary_urls_stay_as_they_are(void **state)
{
	static const struct row rows[] = {
		{"", ""},
		{"/", "/"},
		{"/a/b;v=1/c?x=1&y=&z#top", "/a/b;v=1/c?x=1&y=&z#top"},
		{"https://docs.test/a@b?m=c@d", "https://docs.test/a@b?m=c@d"},
		{"docs.test:443", "docs.test:443"},
		{"https://[2001:db8::1]:8443/", "https://[2001:db8::1]:8443/"},
		{"/?tokens=abc&xtoken=1&keyboard=2", "/?tokens=abc&xtoken=1&keyboard=2"},
		{"/token=abc", "/token=abc"},
		{"/?token", "/?token"},
		{"/?=abc&&&", "/?=abc&&&"},
		{"?;#&?", "?;#&?"},
	};

	check(rows, ARRAY_LEN(rows));
}

static void test_userinfo_is_dropped(void **state)
{
	static const struct row rows[] = {
		{"https://user:pw@read.test/", "https://read.test/"},
		{"https://user@read.test", "https://read.test"},
		{"https://a:b@c:d@read.test/x@y", "https://read.test/x@y"},
		{"https://@read.test/", "https://read.test/"},
		{"user:pw@read.test:443", "read.test:443"},
		{"/fetch?url=https://user:pw@read.test/", "/fetch?url=https://read.test/"},
		{"https://proxy.test/https://user:pw@read.test/",
			"https://proxy.test/https://read.test/"},
		{"https://user:pw@", "https://"},
		{"https://", "https://"},
	};

	check(rows, ARRAY_LEN(rows));
}

static void test_secret_values_are_masked_with_their_length(void **state)
{
	static const struct row rows[] = {
		{"/v1/x?api_key=ph-model-0001", "/v1/x?api_key=<13>"},
		{"/?token=box-secret&X-Amz-Signature=abcd&sig=x&password=p",
			"/?token=<10>&X-Amz-Signature=<4>&sig=<1>&password=<1>"},
		{"/?a=1&TOKEN=abc&b=2", "/?a=1&TOKEN=<3>&b=2"},
		{"/?%74oken=abc&api%5Fkey=abcd", "/?%74oken=<3>&api%5Fkey=<4>"},
		{"/?token=", "/?token=<0>"},
		{"/?token=a=b=c", "/?token=<5>"},
		{"/?token=abc;def&x=1", "/?token=<7>&x=1"},
		{"/?x=1;token=abc", "/?x=1;token=<3>"},
		{"/cb#access_token=abc&state=1", "/cb#access_token=<3>&state=1"},
		{"/a;jsessionid=abc/b;x=1", "/a;jsessionid=<3>/b;x=1"},
		{"/a;jsessionid=abc?x=1", "/a;jsessionid=<3>?x=1"},
		{"/?next=/cb?code=abc", "/?next=/cb?code=<3>"},
		{"/?token=https://u:p@h/", "/?token=<14>"},
		{"/?token=a?b", "/?token=<3>"},
		{"/?token=a#b", "/?token=<1>#b"},
		{"https://u:p@h/?key=%41", "https://h/?key=<3>"},
	};

	check(rows, ARRAY_LEN(rows));
}

static void test_every_name_of_the_list_is_masked(void **state)
{
	static const char *const names[] = {
#define X(name) name,
		URL_SECRET_TABLE(X)
#undef X
	};

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		char url[128];
		char buf[URL_CLEAN_MAX];
		size_t len;

		assert_true(strlen(names[i]) <= URL_SECRET_NAME_MAX);
		(void)snprintf(url, sizeof(url), "http://h/?a=1&%s=S3cr3t&b=2", names[i]);
		len = url_clean(slice_str(url), buf);
		assert_int_equal(slice_find(slice_make(buf, len), SLICE("S3cr3t")), len);
		assert_true(slice_ends(slice_make(buf, len), SLICE("=<6>&b=2")));
	}
}

static void test_names_at_the_length_limit_and_past_it_are_no_secrets(void **state)
{
	char name[URL_SECRET_NAME_MAX + 1];

	memset(name, 'k', sizeof(name));
	assert_false(url_secret_name(slice_make(name, URL_SECRET_NAME_MAX)));
	assert_false(url_secret_name(slice_make(name, URL_SECRET_NAME_MAX + 1)));
	assert_false(url_secret_name(SLICE("")));
	assert_true(url_secret_name(SLICE("Client_Secret")));
	assert_false(url_secret_name(SLICE("toke%6")));
}

static void test_url_at_the_limit_is_whole_and_one_past_is_cut(void **state)
{
	char url[AUDIT_URL_MAX + 1];
	char buf[URL_CLEAN_MAX];
	char hex[RING_HEX_LEN];
	char want[URL_CUT_MARK_MAX + 1];
	size_t len;

	memset(url, 'a', sizeof(url));
	url[0] = '/';
	assert_int_equal(url_clean(slice_make(url, AUDIT_URL_MAX), buf), AUDIT_URL_MAX);
	assert_memory_equal(buf, url, AUDIT_URL_MAX);
	len = url_clean(slice_make(url, AUDIT_URL_MAX + 1), buf);
	ring_sha_hex(slice_make(url, AUDIT_URL_MAX + 1), hex);
	(void)snprintf(want, sizeof(want), "\xe2\x80\xa6[len=1025 sha256=%.64s]", hex);
	assert_int_equal(len, AUDIT_URL_MAX + strlen(want));
	assert_memory_equal(buf, url, AUDIT_URL_MAX);
	assert_memory_equal(buf + AUDIT_URL_MAX, want, strlen(want));
}

static void test_cut_is_not_inside_a_character(void **state)
{
	char url[AUDIT_URL_MAX + 8];
	char buf[URL_CLEAN_MAX];
	size_t len;

	for (size_t shift = 0; shift < 4; shift++) {
		memset(url, 'a', sizeof(url));
		memcpy(url + AUDIT_URL_MAX - shift, "\xf0\x9f\x98\x80", 4);
		len = url_clean(slice_make(url, sizeof(url)), buf);
		assert_int_equal(slice_find(slice_make(buf, len), SLICE("\xe2\x80\xa6")),
			AUDIT_URL_MAX - shift);
	}
}

static void test_length_and_hash_of_a_cut_url_are_of_its_clean_form(void **state)
{
	static char url[40000];
	static char clean[40000];
	char buf[URL_CLEAN_MAX];
	char hex[RING_HEX_LEN];
	char want[URL_CUT_MARK_MAX + 1];
	size_t n = 0;
	size_t m = 0;
	size_t len;

	n += (size_t)snprintf(url + n, sizeof(url) - n, "https://u:pw@h/?");
	m += (size_t)snprintf(clean + m, sizeof(clean) - m, "https://h/?");
	for (int i = 0; i < 2000; i++) {
		n += (size_t)snprintf(url + n, sizeof(url) - n, "token=abc&x=%d&", i);
		m += (size_t)snprintf(clean + m, sizeof(clean) - m, "token=<3>&x=%d&", i);
	}
	len = url_clean(slice_make(url, n), buf);
	ring_sha_hex(slice_make(clean, m), hex);
	(void)snprintf(want, sizeof(want), "\xe2\x80\xa6[len=%zu sha256=%.64s]", m, hex);
	assert_memory_equal(buf, clean, AUDIT_URL_MAX);
	assert_int_equal(len, AUDIT_URL_MAX + strlen(want));
	assert_memory_equal(buf + AUDIT_URL_MAX, want, strlen(want));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ordinary_urls_stay_as_they_are),
		cmocka_unit_test(test_userinfo_is_dropped),
		cmocka_unit_test(test_secret_values_are_masked_with_their_length),
		cmocka_unit_test(test_every_name_of_the_list_is_masked),
		cmocka_unit_test(test_names_at_the_length_limit_and_past_it_are_no_secrets),
		cmocka_unit_test(test_url_at_the_limit_is_whole_and_one_past_is_cut),
		cmocka_unit_test(test_cut_is_not_inside_a_character),
		cmocka_unit_test(test_length_and_hash_of_a_cut_url_are_of_its_clean_form),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
