/* Request targets and authorities. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "proxy/request_target.h"

/* name NULL: refused. */
static const struct {
	const char *text;
	const char *name;
	uint16_t port; /* 0: none */
	bool is_addr;
} authorities[] = {
	{"read.test", "read.test", 0, false},
	{"read.test:443", "read.test", 443, false},
	{"read.test:1", "read.test", 1, false},
	{"read.test:65535", "read.test", 65535, false},
	{"localhost", "localhost", 0, false},
	{"_dmarc.read.test", "_dmarc.read.test", 0, false},
	/* C65 */
	{"read.test:22", "read.test", 22, false},
	{"read.test:8443", "read.test", 8443, false},
	{"read.test:0", NULL, 0, false},
	{"read.test:65536", NULL, 0, false},
	{"read.test:443443", NULL, 0, false},
	{"read.test:18446744073709551617", NULL, 0, false},
	{"read.test:-1", NULL, 0, false},
	{"read.test:+1", NULL, 0, false},
	{"read.test:https", NULL, 0, false},
	{"read.test: 443", NULL, 0, false},
	{"read.test :443", NULL, 0, false},
	{"read.test:443 ", NULL, 0, false},
	{" read.test:443", NULL, 0, false},
	{"read.test:0443", NULL, 0, false},
	{"read.test:00", NULL, 0, false},
	{"read.test:", NULL, 0, false},
	{"read.test:443:443", NULL, 0, false},
	{"", NULL, 0, false},
	{":443", NULL, 0, false},
	{":", NULL, 0, false},
	{"/", NULL, 0, false},
	{"read.test/", NULL, 0, false},
	{"http://read.test/", NULL, 0, false},
	{"read.test:443/", NULL, 0, false},
	{"read.test?", NULL, 0, false},
	{"read.test#", NULL, 0, false},
	{"*", NULL, 0, false},
	{"*.read.test", NULL, 0, false},
	/* userinfo is not part of an authority here */
	{"user@read.test", NULL, 0, false},
	{"user:password@read.test", NULL, 0, false},
	{"read.test:443@deny.test", NULL, 0, false},
	{"@read.test", NULL, 0, false},
	/* C67 */
	{"[::ffff:10.77.0.2]:8081", "10.77.0.2", 8081, true},
	{"[::ffff:a4d:2]:8081", "10.77.0.2", 8081, true},
	{"[0:0:0:0:0:ffff:a4d:2]", "10.77.0.2", 0, true},
	{"[0000:0000:0000:0000:0000:FFFF:0A4D:0002]", "10.77.0.2", 0, true},
	{"[::ffff:0:a4d:2]", "::ffff:0:a4d:2", 0, true},
	{"[64:ff9b::a4d:2]", "64:ff9b::a4d:2", 0, true},
	{"[2002:0a4d:0002::]", "2002:a4d:2::", 0, true},
	{"[::1]", "::1", 0, true},
	{"[::1]:1", "::1", 1, true},
	{"[::]", "::", 0, true},
	{"[2a0e:77::66]:443", "2a0e:77::66", 443, true},
	{"[2A0E:0077::0066]:443", "2a0e:77::66", 443, true},
	{"[fe80::1%25eth0]:80", NULL, 0, false},
	{"[fe80::1%eth0]:80", NULL, 0, false},
	{"2a0e:77::66:443", NULL, 0, false},
	{"2a0e:77::66", NULL, 0, false},
	{"::1", NULL, 0, false},
	{"[2a0e:77::10", NULL, 0, false},
	{"[", NULL, 0, false},
	{"[]", NULL, 0, false},
	{"[]:443", NULL, 0, false},
	{"[g::1]:443", NULL, 0, false},
	{"[::1]x", NULL, 0, false},
	{"[::1]443", NULL, 0, false},
	{"[::1]:", NULL, 0, false},
	{"[::1]:0", NULL, 0, false},
	{"[::1]]:443", NULL, 0, false},
	{"[[::1]]:443", NULL, 0, false},
	{"[read.test]:443", NULL, 0, false},
	{"[v1.x]:443", NULL, 0, false},
	{"::1]:443", NULL, 0, false},
	{"10.77.0.2", "10.77.0.2", 0, true},
	{"10.77.0.2:8081", "10.77.0.2", 8081, true},
	{"0x0a.77.0.2", "10.77.0.2", 0, true},
	{"10.5046274", "10.77.0.2", 0, true},
	{"172818434:80", "10.77.0.2", 80, true},
	{"012.77.0.2", "10.77.0.2", 0, true},
	{"1.2.3.999", NULL, 0, false},
	/* C71 */
	{"XN--BCHER-KVA.test", "xn--bcher-kva.test", 0, false},
	{"READ.TEST", "read.test", 0, false},
	{"Read.Test.:80", "read.test", 80, false},
	{"read.test.", "read.test", 0, false},
	{"read.test..", NULL, 0, false},
	{".read.test", NULL, 0, false},
	{"read..test", NULL, 0, false},
	{".", NULL, 0, false},
	{"b\xc3\xbc"
	 "cher.test",
		NULL, 0, false},
	{"b%C3%BCcher.test", NULL, 0, false},
	{"read%2etest", NULL, 0, false},
	{"read\xe3\x80\x82test", NULL, 0, false},
	{"read\xef\xbc\x8etest", NULL, 0, false},
	{"\xef\xbd\x92"
	 "ead.test",
		NULL, 0, false},
	{"re\xd0\xb0"
	 "d.test",
		NULL, 0, false},
};

static void test_authorities_have_one_form(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(authorities); i++) {
		struct authority a;
		const char *want = authorities[i].name ? authorities[i].name : "";
		int ret = authority_decode(slice_str(authorities[i].text), &a);

		if ((ret == 0) != (*want != '\0'))
			fail_msg("%s: returns %d", authorities[i].text, ret);
		if (ret < 0)
			continue;
		if (strcmp(a.name, want) != 0 || a.name_len != strlen(a.name) ||
			a.port != authorities[i].port || a.has_port != (authorities[i].port != 0) ||
			a.is_addr != authorities[i].is_addr)
			fail_msg("%s: %s port %u", authorities[i].text, a.name, a.port);
	}
}

static void test_authority_with_nul_is_refused(void **state)
{
	struct authority a;

	assert_true(authority_decode(SLICE("read.test\0"), &a) < 0);
	assert_true(authority_decode(SLICE("read\0.test"), &a) < 0);
	assert_true(authority_decode(SLICE("read.test:4\0"), &a) < 0);
	assert_true(authority_decode(SLICE("[::1\0]"), &a) < 0);
}

static void test_names_are_taken_up_to_the_limit(void **state)
{
	char text[HOSTNAME_MAX + 2];
	struct authority a;

	memset(text, 'a', sizeof(text));
	for (size_t i = LABEL_MAX; i < sizeof(text); i += LABEL_MAX + 1)
		text[i] = '.';
	assert_int_equal(authority_decode(slice_make(text, HOSTNAME_MAX), &a), 0);
	assert_int_equal(a.name_len, HOSTNAME_MAX);
	assert_true(authority_decode(slice_make(text, HOSTNAME_MAX + 1), &a) < 0);
	text[LABEL_MAX] = 'a';
	assert_true(authority_decode(slice_make(text, LABEL_MAX + 1), &a) < 0);
	assert_int_equal(authority_decode(slice_make(text, LABEL_MAX), &a), 0);
}

static const struct {
	const char *a, *b;
	uint16_t default_port;
	bool same;
} pairs[] = {
	{"read.test", "READ.test.", 443, true},
	{"read.test", "read.test:443", 443, true},
	{"read.test", "read.test:443", 80, false},
	{"read.test:443", "read.test:443", 80, true},
	{"read.test:443", "read.test:444", 443, false},
	{"read.test", "deny.test", 443, false},
	{"read.test", "xread.test", 443, false},
	{"10.77.0.2", "[::ffff:a4d:2]:80", 80, true},
	{"10.77.0.2", "10.77.0.3", 80, false},
	{"[2a0e::1]", "[2A0E:0::1]", 80, true},
	{"[2a0e::1]", "[2a0e::2]", 80, false},
	{"10.77.0.2", "172818434", 80, true},
};

static void test_authorities_are_compared_with_the_default_port(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(pairs); i++) {
		struct authority a, b;

		assert_int_equal(authority_decode(slice_str(pairs[i].a), &a), 0);
		assert_int_equal(authority_decode(slice_str(pairs[i].b), &b), 0);
		if (authority_same(&a, &b, pairs[i].default_port) != pairs[i].same ||
			authority_same(&b, &a, pairs[i].default_port) != pairs[i].same)
			fail_msg("%s, %s", pairs[i].a, pairs[i].b);
	}
}

static const struct {
	const char *in;
	uint16_t default_port;
	const char *out;
} texts[] = {
	{"Read.Test.", 443, "read.test"},
	{"read.test:443", 443, "read.test"},
	{"read.test:443", 80, "read.test:443"},
	{"read.test:65535", 80, "read.test:65535"},
	{"[::ffff:10.77.0.2]:81", 80, "10.77.0.2:81"},
	{"[2a0e:77:0::66]", 80, "[2a0e:77::66]"},
	{"[2a0e:77::66]:80", 80, "[2a0e:77::66]"},
	{"[2a0e:77::66]:443", 80, "[2a0e:77::66]:443"},
};

static void test_authority_text_leaves_the_default_port_out(void **state)
{
	char longest[HOSTNAME_MAX + 8], text[AUTHORITY_TEXT_MAX];
	struct authority a;

	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		assert_int_equal(authority_decode(slice_str(texts[i].in), &a), 0);
		assert_int_equal(
			authority_text(&a, texts[i].default_port, text), strlen(texts[i].out));
		assert_string_equal(text, texts[i].out);
	}
	memset(longest, 'a', HOSTNAME_MAX);
	for (size_t i = LABEL_MAX; i < HOSTNAME_MAX; i += LABEL_MAX + 1)
		longest[i] = '.';
	memcpy(longest + HOSTNAME_MAX, ":65535", 7);
	assert_int_equal(authority_decode(slice_str(longest), &a), 0);
	assert_int_equal(authority_text(&a, 80, text), HOSTNAME_MAX + 6);
	assert_string_equal(text, longest);
}

#define O TARGET_ORIGIN
#define A TARGET_ABSOLUTE
#define C TARGET_AUTHORITY
#define S TARGET_ASTERISK
#define REFUSED NULL, NULL, NULL, NULL, -1, false, false

static const struct {
	const char *method, *target;
	const char *authority; /* as authority_text() with default port 0 */
	const char *path_query, *path, *query;
	int form; /* -1: refused */
	bool https, userinfo;
} targets[] = {
	{"GET", "/", "", "/", "/", "", O, false, false},
	{"GET", "/a/b?c=d&e", "", "/a/b?c=d&e", "/a/b", "c=d&e", O, false, false},
	{"GET", "/a?", "", "/a?", "/a", "", O, false, false},
	{"GET", "/a?b?c", "", "/a?b?c", "/a", "b?c", O, false, false},
	{"POST", "/../a/%2e%2e/;x=1", "", "/../a/%2e%2e/;x=1", "/../a/%2e%2e/;x=1", "", O, false,
		false},
	{"GET", "/\xc3\xbc?\xff", "", "/\xc3\xbc?\xff", "/\xc3\xbc", "\xff", O, false, false},
	{"GET", "/a\\b\"<>^`{|}", "", "/a\\b\"<>^`{|}", "/a\\b\"<>^`{|}", "", O, false, false},
	{"GET", "/http://deny.test/", "", "/http://deny.test/", "/http://deny.test/", "", O, false,
		false},
	{"OPTIONS", "*", "", "*", "*", "", S, false, false},
	{"OPTIONS", "/", "", "/", "/", "", O, false, false},
	{"GET", "*", REFUSED},
	{"options", "*", REFUSED},
	{"OPTIONS", "**", REFUSED},
	{"OPTIONS", "*?a", REFUSED},
	{"GET", "", REFUSED},
	{"GET", "a", REFUSED},
	{"GET", "?a", REFUSED},
	{"GET", "\\a", REFUSED},
	{"GET", "/a#b", REFUSED},
	{"GET", "/a b", REFUSED},
	{"GET", "/a\tb", REFUSED},
	{"GET", "/a\x01", REFUSED},
	{"GET", "/a\x7f", REFUSED},
	{"GET", "/a\r", REFUSED},
	/* absolute-form */
	{"GET", "http://read.test/", "read.test", "/", "/", "", A, false, false},
	{"GET", "HTTP://READ.test./A", "read.test", "/A", "/A", "", A, false, false},
	{"GET", "https://read.test/a?b", "read.test", "/a?b", "/a", "b", A, true, false},
	{"GET", "HttpS://read.test:8443/", "read.test:8443", "/", "/", "", A, true, false},
	{"GET", "http://read.test", "read.test", "/", "/", "", A, false, false},
	{"GET", "http://read.test:80", "read.test:80", "/", "/", "", A, false, false},
	{"OPTIONS", "http://read.test", "read.test", "*", "*", "", A, false, false},
	{"OPTIONS", "http://read.test/", "read.test", "/", "/", "", A, false, false},
	{"OPTIONS", "http://read.test:81", "read.test:81", "*", "*", "", A, false, false},
	{"GET", "http://[2a0e::1]:81/x", "[2a0e::1]:81", "/x", "/x", "", A, false, false},
	{"GET", "http://0x7f.1/x", "127.0.0.1", "/x", "/x", "", A, false, false},
	{"GET", "http://read.test//deny.test/", "read.test", "//deny.test/", "//deny.test/", "", A,
		false, false},
	{"GET", "http://read.test/@deny.test", "read.test", "/@deny.test", "/@deny.test", "", A,
		false, false},
	{"GET", "http://read.test?x", REFUSED},
	{"GET", "http://read.test?x@deny.test/", REFUSED},
	{"GET", "http://read.test#x", REFUSED},
	{"GET", "http://read.test\\x", REFUSED},
	{"GET", "http://read.test:/", REFUSED},
	{"GET", "http://read.test:080/", REFUSED},
	{"GET", "http://re%61d.test/", REFUSED},
	{"GET",
		"http://re\xc3\xa4"
		"d.test/",
		REFUSED},
	{"GET", "http://[::1%25lo]/", REFUSED},
	/* userinfo is dropped and reported */
	{"GET", "http://user:pass@read.test/", "read.test", "/", "/", "", A, false, true},
	{"GET", "http://user@read.test:81/", "read.test:81", "/", "/", "", A, false, true},
	{"GET", "http://@read.test/", "read.test", "/", "/", "", A, false, true},
	{"GET", "http://a%40b:!$&'()*+,;=-._~@read.test/", "read.test", "/", "/", "", A, false,
		true},
	{"GET", "http://read.test@deny.test/", "deny.test", "/", "/", "", A, false, true},
	{"GET", "http://deny.test:80@read.test/", "read.test", "/", "/", "", A, false, true},
	{"GET", "http://a@b@read.test/", REFUSED},
	{"GET", "http://deny.test\\@read.test/", REFUSED},
	{"GET", "http://\xc3\xbc@read.test/", REFUSED},
	{"GET", "http://user@/", REFUSED},
	{"GET", "http://[::1]@read.test/", REFUSED},
	/* C50 (6) */
	{"GET", "ftp://read.test/", REFUSED},
	{"GET", "http:read.test/", REFUSED},
	{"GET", "http:/read.test/", REFUSED},
	{"GET", "http:///", REFUSED},
	{"GET", "http://", REFUSED},
	{"GET", "https://:443/", REFUSED},
	{"GET", "//deny.test/", "", "//deny.test/", "//deny.test/", "", O, false, false},
	{"GET", "ws://read.test/", REFUSED},
	{"GET", "httpx://read.test/", REFUSED},
	{"GET", "httpss://read.test/", REFUSED},
	{"GET", "read.test:443", REFUSED},
	/* C65 */
	{"CONNECT", "read.test:443", "read.test:443", "", "", "", C, false, false},
	{"CONNECT", "READ.TEST.:443", "read.test:443", "", "", "", C, false, false},
	{"CONNECT", "read.test:22", "read.test:22", "", "", "", C, false, false},
	{"CONNECT", "[2a0e:77::66]:443", "[2a0e:77::66]:443", "", "", "", C, false, false},
	{"CONNECT", "[::ffff:10.77.0.2]:8081", "10.77.0.2:8081", "", "", "", C, false, false},
	{"CONNECT", "read.test", REFUSED},
	{"CONNECT", "read.test:", REFUSED},
	{"CONNECT", "read.test:0", REFUSED},
	{"CONNECT", "read.test:0443", REFUSED},
	{"CONNECT", "", REFUSED},
	{"CONNECT", ":443", REFUSED},
	{"CONNECT", "/", REFUSED},
	{"CONNECT", "*", REFUSED},
	{"CONNECT", "http://read.test/", REFUSED},
	{"CONNECT", "http://read.test:443", REFUSED},
	{"CONNECT", "user@read.test:443", REFUSED},
	{"CONNECT", "read.test:443/", REFUSED},
	{"CONNECT", "read.test:443#", REFUSED},
	{"CONNECT", "2a0e:77::66:443", REFUSED},
	{"CONNECT", "[fe80::1%25eth0]:80", REFUSED},
	{"connect", "read.test:443", REFUSED},
};

static void test_targets_are_read_by_method(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(targets); i++) {
		struct request_target t;
		char text[AUTHORITY_TEXT_MAX];
		int ret = request_target_decode(
			slice_str(targets[i].method), slice_str(targets[i].target), &t);

		if ((ret == 0) != (targets[i].form >= 0))
			fail_msg("%s %s: returns %d", targets[i].method, targets[i].target, ret);
		if (ret < 0)
			continue;
		assert_int_equal(t.form, targets[i].form);
		authority_text(&t.authority, 0, text);
		assert_string_equal(text, targets[i].authority);
		assert_true(slice_eq(t.path_query, slice_str(targets[i].path_query)));
		assert_true(slice_eq(t.path, slice_str(targets[i].path)));
		assert_true(slice_eq(t.query, slice_str(targets[i].query)));
		assert_int_equal(t.https, targets[i].https);
		assert_int_equal(t.userinfo, targets[i].userinfo);
	}
}

static void test_target_with_nul_is_refused(void **state)
{
	struct request_target t;

	assert_true(request_target_decode(SLICE("GET"), SLICE("/\0"), &t) < 0);
	assert_true(request_target_decode(SLICE("GET"), SLICE("/?\0"), &t) < 0);
	assert_true(request_target_decode(SLICE("GET"), SLICE("http://a\0/"), &t) < 0);
}

static void test_url_has_a_port_and_no_user(void **state)
{
	static const struct {
		const char *url;
		uint16_t port; /* 0: refused */
	} rows[] = {
		{"http://read.test", 80},
		{"https://read.test/a?b", 443},
		{"https://read.test:80/", 80},
		{"http://[::1]:8080/", 8080},
		{"http://user@read.test/", 0},
		{"http://@read.test/", 0},
		{"ftp://read.test/", 0},
		{"read.test:80", 0},
		{"/a", 0},
		{"*", 0},
		{"", 0},
	};
	struct request_target t;

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		assert_int_equal(request_target_decode_url(slice_str(rows[i].url), &t) == 0,
			rows[i].port != 0);
		if (rows[i].port)
			assert_int_equal(t.authority.has_port ? t.authority.port : 0, rows[i].port);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_authorities_have_one_form),
		cmocka_unit_test(test_authority_with_nul_is_refused),
		cmocka_unit_test(test_names_are_taken_up_to_the_limit),
		cmocka_unit_test(test_authorities_are_compared_with_the_default_port),
		cmocka_unit_test(test_authority_text_leaves_the_default_port_out),
		cmocka_unit_test(test_targets_are_read_by_method),
		cmocka_unit_test(test_target_with_nul_is_refused),
		cmocka_unit_test(test_url_has_a_port_and_no_user),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
