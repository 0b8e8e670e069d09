/* Every spelling of an address gives one value, and every address one class. */
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/netaddr.h"

/* The text of what netaddr_parse_host finds; "name" or "invalid" if it is no address. */
static const char *host_text(struct slice s, char buf[NETADDR_TEXT_MAX])
{
	struct netaddr a;

	switch (netaddr_parse_host(s, &a)) {
	case HOST_NAME:
		return "name";
	case HOST_INVALID:
		return "invalid";
	case HOST_ADDRESS:
		(void)netaddr_text(&a, buf);
		return buf;
	}
	return "?";
}

static const struct {
	const char *in, *out;
} spellings[] = {
	/* One value, many spellings. */
	{"127.0.0.1", "127.0.0.1"},
	{"127.0.0.1.", "127.0.0.1"},
	{"2130706433", "127.0.0.1"},
	{"2130706433.", "127.0.0.1"},
	{"0x7f000001", "127.0.0.1"},
	{"0X7F000001", "127.0.0.1"},
	{"0x7f.1", "127.0.0.1"},
	{"0x7f.0.0.0x1", "127.0.0.1"},
	{"0177.0.0.1", "127.0.0.1"},
	{"0177.0x0.00.1", "127.0.0.1"},
	{"017700000001", "127.0.0.1"},
	{"127.1", "127.0.0.1"},
	{"127.1.", "127.0.0.1"},
	{"127.0.1", "127.0.0.1"},
	{"127.0x000001", "127.0.0.1"},
	{"00000000000000000000000000000177.1", "127.0.0.1"},
	{"0x00000000000000000000000000007f.1", "127.0.0.1"},
	{"010.1.2.3", "8.1.2.3"},
	{"0", "0.0.0.0"},
	{"0x", "0.0.0.0"},
	{"1.0x", "1.0.0.0"},
	/* The limits of each part. */
	{"255.255.255.255", "255.255.255.255"},
	{"4294967295", "255.255.255.255"},
	{"4294967296", "invalid"},
	{"1.16777215", "1.255.255.255"},
	{"1.16777216", "invalid"},
	{"1.2.65535", "1.2.255.255"},
	{"1.2.65536", "invalid"},
	{"1.2.3.256", "invalid"},
	{"256.1", "invalid"},
	{"99999999999999999999999", "invalid"},
	{"0xfffffffffffffffffffff", "invalid"},
	/* Ends in a number, yet no address. */
	{"1.2.3.999", "invalid"},
	{"1.2.3.4.5", "invalid"},
	{"1.2.3.4.5.", "invalid"},
	{"08", "invalid"},
	{"1.2.3.08", "invalid"},
	{"1..2", "invalid"},
	{".1", "invalid"},
	{"read.test.1", "invalid"},
	{"read.test.0x1f", "invalid"},
	{"a.0x", "invalid"},
	{"-1.2", "invalid"},
	{"+1.2", "invalid"},
	{" 1.2.3.4", "invalid"},
	{"1.2.3.4,5", "name"},
	/* Names. */
	{"read.test", "name"},
	{"1.2.3.4.test", "name"},
	{"1.2.3.0xg", "name"},
	{"1e3", "name"},
	{"0b1", "name"},
	{"0xg", "name"},
	{"1a", "name"},
	{"1.2.3.4..", "name"},
	{".", "name"},
	/* IPv6 only in brackets. */
	{"[::1]", "::1"},
	{"[2A0E:77::66]", "2a0e:77::66"},
	{"[0:0:0:0:0:0:0:1]", "::1"},
	{"[::ffff:10.0.0.1]", "10.0.0.1"},
	{"[::ffff:a00:1]", "10.0.0.1"},
	{"[0:0:0:0:0:ffff:a4d:2]", "10.77.0.2"},
	{"[::FFFF:0A4D:0002]", "10.77.0.2"},
	{"[64:ff9b::10.77.0.2]", "64:ff9b::a4d:2"},
	{"::1", "invalid"},
	{"2a0e:77::66", "invalid"},
	{"2a0e:77::66:443", "invalid"},
	{"[2a0e:77::10", "invalid"},
	{"2a0e:77::10]", "invalid"},
	{"[]", "invalid"},
	{"[", "invalid"},
	{"]", "invalid"},
	{"[[::1]]", "invalid"},
	{"[::1].", "invalid"},
	{"[::1]x", "invalid"},
	{"[g::1]", "invalid"},
	{"[1.2.3.4]", "invalid"},
	{"[read.test]", "invalid"},
	{"[::1%25eth0]", "invalid"},
	{"[fe80::1%eth0]", "invalid"},
	{"[fe80::1%25eth0]", "invalid"},
	{"[::ffff:010.0.0.1]", "invalid"},
	{"[::ffff:1.2.3]", "invalid"},
	{"[::00001]", "invalid"},
	{"[1::2::3]", "invalid"},
	{"[1:2:3:4:5:6:7]", "invalid"},
	{"[1:2:3:4:5:6:7:8:9]", "invalid"},
	{"[ ::1]", "invalid"},
	{"fe80::1%eth0", "invalid"},
	{"127.0.0.1%25", "invalid"},
	{"%31%32%37.0.0.1", "invalid"},
	{"b%C3%BCcher.test", "invalid"},
	{"127.0.0.1:80", "invalid"},
	{"", "invalid"},
};

static void test_host_spellings_have_one_form(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(spellings); i++) {
		char buf[NETADDR_TEXT_MAX];

		assert_string_equal(host_text(slice_str(spellings[i].in), buf), spellings[i].out);
	}
}

static void test_host_with_a_nul_is_no_address(void **state)
{
	char buf[NETADDR_TEXT_MAX];

	assert_string_equal(host_text(slice_make("127.0.0.1\0", 10), buf), "name");
	assert_string_equal(host_text(slice_make("127.0.0.1\0.1", 12), buf), "invalid");
	assert_string_equal(host_text(slice_make("[::1\0]", 6), buf), "invalid");
	assert_string_equal(host_text(slice_make(NULL, 0), buf), "invalid");
}

static void test_strict_form_takes_canonical_spellings_only(void **state)
{
	static const struct {
		const char *in, *out;
	} rows[] = {
		{"10.1.2.3", "10.1.2.3"},
		{"0.0.0.0", "0.0.0.0"},
		{"255.255.255.255", "255.255.255.255"},
		{"::", "::"},
		{"2001:DB8::1", "2001:db8::1"},
		{"::ffff:1.2.3.4", "1.2.3.4"},
		{"ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255",
			"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"},
		{"", NULL},
		{"10.1.2", NULL},
		{"10.1.2.3.", NULL},
		{"10.1.2.03", NULL},
		{"010.1.2.3", NULL},
		{"0x7f.0.0.1", NULL},
		{"256.0.0.1", NULL},
		{"10.1.2.3 ", NULL},
		{" 10.1.2.3", NULL},
		{"2130706433", NULL},
		{"[::1]", NULL},
		{"fe80::1%eth0", NULL},
		{"::1/128", NULL},
		{":", NULL},
		{":::", NULL},
		{"0000000000000000000000000000000000000000000000000000::1", NULL},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		char buf[NETADDR_TEXT_MAX];
		struct netaddr a;
		bool ok = netaddr_parse(slice_str(rows[i].in), &a);

		assert_int_equal(ok, rows[i].out != NULL);
		if (ok) {
			assert_int_equal(netaddr_text(&a, buf), strlen(rows[i].out));
			assert_string_equal(buf, rows[i].out);
		}
	}
}

static void test_text_follows_rfc_5952(void **state)
{
	static const char *const rows[] = {
		"::1",
		"2001:db8::1:0:0:1",
		"2001:db8:0:1:1:1:1:1",
		"2001:0:0:1::1",
		"1::",
		"1:2:3:4:5:6:7:8",
		"fe80::abcd",
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		char buf[NETADDR_TEXT_MAX];
		struct netaddr a;

		assert_true(netaddr_parse(slice_str(rows[i]), &a));
		(void)netaddr_text(&a, buf);
		assert_string_equal(buf, rows[i]);
	}
}

static const struct {
	const char *text;
	enum addr_class class;
} classes[] = {
	{"10.0.0.0", ADDR_PRIVATE},
	{"10.255.255.255", ADDR_PRIVATE},
	{"9.255.255.255", ADDR_PUBLIC},
	{"11.0.0.0", ADDR_PUBLIC},
	{"172.15.255.255", ADDR_PUBLIC},
	{"172.16.0.0", ADDR_PRIVATE},
	{"172.31.255.255", ADDR_PRIVATE},
	{"172.32.0.0", ADDR_PUBLIC},
	{"192.167.255.255", ADDR_PUBLIC},
	{"192.168.0.0", ADDR_PRIVATE},
	{"192.168.255.255", ADDR_PRIVATE},
	{"192.169.0.0", ADDR_PUBLIC},
	{"126.255.255.255", ADDR_PUBLIC},
	{"127.0.0.0", ADDR_LOOPBACK},
	{"127.255.255.255", ADDR_LOOPBACK},
	{"128.0.0.0", ADDR_PUBLIC},
	{"169.253.255.255", ADDR_PUBLIC},
	{"169.254.0.0", ADDR_LINK_LOCAL},
	{"169.254.169.254", ADDR_LINK_LOCAL},
	{"169.254.255.255", ADDR_LINK_LOCAL},
	{"169.255.0.0", ADDR_PUBLIC},
	{"168.63.129.15", ADDR_PUBLIC},
	{"168.63.129.16", ADDR_METADATA},
	{"168.63.129.17", ADDR_PUBLIC},
	{"100.63.255.255", ADDR_PUBLIC},
	{"100.64.0.0", ADDR_SHARED},
	{"100.127.255.255", ADDR_SHARED},
	{"100.128.0.0", ADDR_PUBLIC},
	{"0.0.0.0", ADDR_UNSPECIFIED},
	{"0.255.255.255", ADDR_UNSPECIFIED},
	{"1.0.0.0", ADDR_PUBLIC},
	{"191.255.255.255", ADDR_PUBLIC},
	{"192.0.0.0", ADDR_RESERVED},
	{"192.0.0.255", ADDR_RESERVED},
	{"192.0.1.0", ADDR_PUBLIC},
	{"192.0.2.1", ADDR_PUBLIC},
	{"198.18.0.1", ADDR_PUBLIC},
	{"198.51.100.1", ADDR_PUBLIC},
	{"203.0.113.1", ADDR_PUBLIC},
	{"223.255.255.255", ADDR_PUBLIC},
	{"224.0.0.0", ADDR_MULTICAST},
	{"239.255.255.255", ADDR_MULTICAST},
	{"240.0.0.0", ADDR_RESERVED},
	{"255.255.255.255", ADDR_RESERVED},
	{"::", ADDR_UNSPECIFIED},
	{"::1", ADDR_LOOPBACK},
	{"::2", ADDR_UNSPECIFIED},
	{"fbff:ffff::", ADDR_PUBLIC},
	{"fc00::", ADDR_PRIVATE},
	{"fdff::1", ADDR_PRIVATE},
	{"fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", ADDR_PRIVATE},
	{"fe00::", ADDR_PUBLIC},
	{"fd00:ec2::253", ADDR_PRIVATE},
	{"fd00:ec2::254", ADDR_METADATA},
	{"fd20:ce::254", ADDR_METADATA},
	{"fd20:ce::255", ADDR_PRIVATE},
	{"fd00:c1::a9fe:a9fe", ADDR_METADATA},
	{"fd00:c1::a9fe:a9ff", ADDR_PRIVATE},
	{"fd00:42::42", ADDR_METADATA},
	{"fd00:42::43", ADDR_PRIVATE},
	{"fe7f:ffff::", ADDR_PUBLIC},
	{"fe80::1", ADDR_LINK_LOCAL},
	{"febf:ffff::", ADDR_LINK_LOCAL},
	{"fec0::1", ADDR_LINK_LOCAL},
	{"feff:ffff::", ADDR_LINK_LOCAL},
	{"ff02::1", ADDR_MULTICAST},
	{"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", ADDR_MULTICAST},
	{"2001:db8::1", ADDR_PUBLIC},
	{"2a0e:77::66", ADDR_PUBLIC},
	{"100::1", ADDR_PUBLIC},
	{"ff:ffff::1", ADDR_RESERVED},
	{"64:ff9b:1::1", ADDR_RESERVED},
	{"64:ff9b:1:ffff::1", ADDR_RESERVED},
	{"2001:1::1", ADDR_PUBLIC},
	{"2000:ffff::1", ADDR_PUBLIC},
};

static void test_each_address_has_its_class(void **state)
{
	for (size_t i = 0; i < ARRAY_LEN(classes); i++) {
		struct netaddr a;

		assert_true(netaddr_parse(slice_str(classes[i].text), &a));
		if (netaddr_class(&a) != classes[i].class)
			fail_msg("%s is %s", classes[i].text, addr_class_text(netaddr_class(&a)));
	}
}

/* Ways to carry an IPv4 address inside an IPv6 one. */
static const struct {
	const char *prefix;
	size_t at;
	uint8_t mask;
	bool public_inside_is_public;
} carriers[] = {
	{"64:ff9b::", 12, 0, true},
	{"2002::", 2, 0, true},
	{"2002::1234:5678", 2, 0, true},
	{"::", 12, 0, false},
	{"::ffff:0:0:0", 12, 0, false},
	{"2001::", 12, 0xff, false},
	{"2001:0:102:304::", 12, 0xff, false},
};

static void test_embedded_address_is_never_private_or_better_than_itself(void **state)
{
	for (size_t c = 0; c < ARRAY_LEN(carriers); c++) {
		for (size_t i = 0; i < ARRAY_LEN(classes); i++) {
			enum addr_class want = classes[i].class;
			struct netaddr inner;
			struct netaddr a;

			assert_true(netaddr_parse(slice_str(classes[i].text), &inner));
			if (!netaddr_is_v4(&inner))
				continue;
			assert_true(netaddr_parse(slice_str(carriers[c].prefix), &a));
			for (size_t k = 0; k < 4; k++)
				a.b[carriers[c].at + k] = inner.b[12 + k] ^ carriers[c].mask;
			if (want == ADDR_PRIVATE ||
				(want == ADDR_PUBLIC && !carriers[c].public_inside_is_public))
				want = ADDR_RESERVED;
			if (netaddr_class(&a) != want)
				fail_msg("%s in %s is %s", classes[i].text, carriers[c].prefix,
					addr_class_text(netaddr_class(&a)));
		}
	}
}

static void test_mapped_address_is_the_ipv4_address(void **state)
{
	struct netaddr mapped;
	struct netaddr plain;

	assert_true(netaddr_parse(SLICE("::ffff:10.0.0.1"), &mapped));
	assert_true(netaddr_parse(SLICE("10.0.0.1"), &plain));
	assert_true(netaddr_eq(&mapped, &plain));
	assert_true(netaddr_is_v4(&mapped));
	assert_int_equal(netaddr_class(&mapped), ADDR_PRIVATE);
	assert_true(netaddr_parse(SLICE("10.0.0.2"), &plain));
	assert_false(netaddr_eq(&mapped, &plain));
}

static void test_each_class_has_a_text(void **state)
{
	for (int c = 0; c < ADDR_CLASS_MAX; c++)
		assert_true(strlen(addr_class_text((enum addr_class)c)) > 0);
	assert_string_equal(addr_class_text(ADDR_SHARED), "shared address space");
	assert_string_equal(addr_class_text(ADDR_CLASS_MAX), "unknown");
}

static void test_blocks_are_read_and_masked(void **state)
{
	static const struct {
		const char *in, *addr;
		uint8_t len;
	} rows[] = {
		{"10.1.2.3/8", "10.0.0.0", 104},
		{"10.1.2.3/32", "10.1.2.3", 128},
		{"10.1.2.3/31", "10.1.2.2", 127},
		{"10.1.2.3/0", "0.0.0.0", 96},
		{"255.255.255.255/9", "255.128.0.0", 105},
		{"2001:db8:ffff::1/33", "2001:db8:8000::", 33},
		{"2001:db8::1/128", "2001:db8::1", 128},
		{"2001:db8::1/0", "::", 0},
		{"::ffff:10.1.2.3/104", "10.0.0.0", 104},
		{"::ffff:10.1.2.3/96", "0.0.0.0", 96},
		{"::ffff:10.1.2.3/95", NULL, 0},
		{"10.1.2.3/33", NULL, 0},
		{"::1/129", NULL, 0},
		{"10.1.2.3", NULL, 0},
		{"10.1.2.3/", NULL, 0},
		{"/8", NULL, 0},
		{"10.1.2.3/08", NULL, 0},
		{"10.1.2.3/-1", NULL, 0},
		{"10.1.2.3/8/8", NULL, 0},
		{"10.1.2/8", NULL, 0},
		{"0x7f.0.0.1/8", NULL, 0},
		{"10.0.0.0/255.0.0.0", NULL, 0},
		{"fe80::1%eth0/64", NULL, 0},
		{"[::1]/128", NULL, 0},
		{"10.1.2.3/18446744073709551617", NULL, 0},
		{"", NULL, 0},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		char buf[NETADDR_TEXT_MAX];
		struct netcidr c;
		bool ok = netcidr_parse(slice_str(rows[i].in), &c);

		assert_int_equal(ok, rows[i].addr != NULL);
		if (ok) {
			(void)netaddr_text(&c.addr, buf);
			assert_string_equal(buf, rows[i].addr);
			assert_int_equal(c.len, rows[i].len);
		}
	}
}

static void test_block_holds_its_addresses_and_no_others(void **state)
{
	static const struct {
		const char *block, *addr;
		bool inside;
	} rows[] = {
		{"10.0.0.0/8", "10.0.0.0", true},
		{"10.0.0.0/8", "10.255.255.255", true},
		{"10.0.0.0/8", "11.0.0.0", false},
		{"10.0.0.0/8", "9.255.255.255", false},
		{"10.0.0.0/8", "::ffff:10.1.2.3", true},
		{"10.0.0.0/8", "::10.1.2.3", false},
		{"10.1.2.3/32", "10.1.2.3", true},
		{"10.1.2.3/32", "10.1.2.2", false},
		{"10.1.2.0/25", "10.1.2.127", true},
		{"10.1.2.0/25", "10.1.2.128", false},
		{"0.0.0.0/0", "255.255.255.255", true},
		{"0.0.0.0/0", "2001:db8::1", false},
		{"::/0", "2001:db8::1", true},
		{"::/0", "10.0.0.1", false},
		{"::/95", "10.0.0.1", false},
		{"2001:db8::/33", "2001:db8:7fff::", true},
		{"2001:db8::/33", "2001:db8:8000::", false},
		{"2001:db8::1/128", "2001:db8::1", true},
		{"2001:db8::1/128", "2001:db8::", false},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct netcidr c;
		struct netaddr a;

		assert_true(netcidr_parse(slice_str(rows[i].block), &c));
		assert_true(netaddr_parse(slice_str(rows[i].addr), &a));
		assert_int_equal(netcidr_contains(&c, &a), rows[i].inside);
	}
}

static void test_kernel_form_goes_there_and_back(void **state)
{
	static const struct {
		const char *text;
		int family;
		socklen_t len;
	} rows[] = {
		{"10.1.2.3", AF_INET, sizeof(struct sockaddr_in)},
		{"::ffff:10.1.2.3", AF_INET, sizeof(struct sockaddr_in)},
		{"2001:db8::1", AF_INET6, sizeof(struct sockaddr_in6)},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct sockaddr_storage ss;
		struct netaddr a;
		struct netaddr back;
		uint16_t port = 0;

		assert_true(netaddr_parse(slice_str(rows[i].text), &a));
		assert_int_equal(netaddr_to_sockaddr(&a, 443, &ss), rows[i].len);
		assert_int_equal(ss.ss_family, rows[i].family);
		assert_true(netaddr_from_sockaddr((struct sockaddr *)&ss, &back, &port));
		assert_true(netaddr_eq(&a, &back));
		assert_int_equal(port, 443);
	}
}

static void test_mapped_sockaddr_becomes_ipv4(void **state)
{
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(80)};
	struct sockaddr other = {.sa_family = AF_UNIX};
	char buf[NETADDR_TEXT_MAX];
	struct netaddr a;
	uint16_t port;

	assert_int_equal(inet_pton(AF_INET6, "::ffff:10.1.2.3", &v6.sin6_addr), 1);
	assert_true(netaddr_from_sockaddr((struct sockaddr *)&v6, &a, &port));
	(void)netaddr_text(&a, buf);
	assert_string_equal(buf, "10.1.2.3");
	assert_false(netaddr_from_sockaddr(&other, &a, &port));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_host_spellings_have_one_form),
		cmocka_unit_test(test_host_with_a_nul_is_no_address),
		cmocka_unit_test(test_strict_form_takes_canonical_spellings_only),
		cmocka_unit_test(test_text_follows_rfc_5952),
		cmocka_unit_test(test_each_address_has_its_class),
		cmocka_unit_test(test_embedded_address_is_never_private_or_better_than_itself),
		cmocka_unit_test(test_mapped_address_is_the_ipv4_address),
		cmocka_unit_test(test_each_class_has_a_text),
		cmocka_unit_test(test_blocks_are_read_and_masked),
		cmocka_unit_test(test_block_holds_its_addresses_and_no_others),
		cmocka_unit_test(test_kernel_form_goes_there_and_back),
		cmocka_unit_test(test_mapped_sockaddr_becomes_ipv4),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
