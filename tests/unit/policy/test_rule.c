/* One rule from its texts: what is taken, in which normal form, and what is refused with which
 * advice. */
#include "policy/policy.h"

#include "policy/policy_int.h"
#include "tests/unit/policy/fixture.h"

static void test_names_and_wildcards_get_a_normal_form(void **state)
{
	static const struct {
		const char *target;
		enum rule_kind kind;
		const char *normal;
	} cases[] = {
		{"read.test", RULE_NAME, "read.test"},
		{"  Read.TEST\t", RULE_NAME, "read.test"},
		{"read.test.", RULE_NAME, "read.test"},
		{"localhost", RULE_NAME, "localhost"},
		{"_dmarc.read.test", RULE_NAME, "_dmarc.read.test"},
		{"XN--BCHER-KVA.test", RULE_NAME, "xn--bcher-kva.test"},
		{"b\xc3\xbc"
		 "cher.test",
			RULE_NAME, "xn--bcher-kva.test"},
		{"*.wild.test", RULE_WILDCARD, "wild.test"},
		{"*.Wild.Test.", RULE_WILDCARD, "wild.test"},
		{"*.test", RULE_WILDCARD, "test"},
		{"*.b\xc3\xbc"
		 "cher.test",
			RULE_WILDCARD, "xn--bcher-kva.test"},
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct errmsg msg = {""};
		struct rule r;

		if (rule_make(SLICE("allow"), slice_str(cases[i].target), NULL, 0, &r, &msg) < 0)
			fail_msg("%s", msg.text);
		assert_int_equal(r.kind, cases[i].kind);
		assert_string_equal(r.target, cases[i].normal);
		rule_fini(&r);
	}
}

static void test_addresses_and_blocks_get_a_normal_form(void **state)
{
	static const struct {
		const char *target;
		const char *addr;
		uint8_t len;
	} cases[] = {
		{"10.77.0.2", "10.77.0.2", 128},
		{" 10.77.0.2 ", "10.77.0.2", 128},
		{"::ffff:10.77.0.2", "10.77.0.2", 128},
		{"2001:DB8::1", "2001:db8::1", 128},
		{"10.77.3.2/8", "10.0.0.0", 104},
		{"0.0.0.0/0", "0.0.0.0", 96},
		{"fd00:1::5/32", "fd00:1::", 32},
		{"::/0", "::", 0},
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct rule r = {.kind = RULE_ANY};
		char text[NETADDR_TEXT_MAX];

		assert_int_equal(
			rule_make(SLICE("deny"), slice_str(cases[i].target), NULL, 0, &r, NULL), 0);
		assert_int_equal(r.kind, RULE_CIDR);
		netaddr_text(&r.cidr.addr, text);
		assert_string_equal(text, cases[i].addr);
		assert_int_equal(r.cidr.len, cases[i].len);
		assert_null(r.target);
		rule_fini(&r);
	}
}

static void test_written_target_is_trimmed_and_kept(void **state)
{
	struct rule r;

	assert_int_equal(rule_make(SLICE("allow"), SLICE(" Read.TEST. \n"), NULL, 0, &r, NULL), 0);
	assert_string_equal(r.written, "Read.TEST.");
	rule_fini(&r);
	assert_null(r.written);
}

static void test_target_that_cannot_match_is_refused_with_advice(void **state)
{
	static const struct {
		const char *target;
		const char *message; /* its beginning after the quoted target */
	} cases[] = {
		{"http://x", "a URL; write the host name: \"x\""},
		{"https://u:p@x.test:8443/a?b", "a URL; write the host name: \"x.test\""},
		{"http://", "a URL; write the host name"},
		{"x.test:443", "a port; write \"x.test\" alone, ports belong"},
		{"x.test:", "a port; write \"x.test\" alone"},
		{"x.test/path", "a path; write the host name alone: \"x.test\""},
		{"x.test:80/path", "a path; write the host name alone: \"x.test\""},
		{"10.0.0.0/33", "a broken address block"},
		{"10.0.0.0/", "a broken address block"},
		{"10.0.0/8", "a broken address block"},
		{"2001:db8::/129", "a broken address block"},
		{"/8", "a broken address block"},
		{"fe80::1%eth0", "an address with a zone"},
		{"fe80::1%eth0/64", "an address with a zone"},
		{"b%C3%BCcher.test", "a percent sign"},
		{"[::1]", "brackets"},
		{"[::1]:443", "brackets"},
		{"user@x.test", "a user before the host"},
		{"1::2::3", "a broken IPv6 address"},
		{":443", "a broken IPv6 address"},
		{"a b", "white space inside"},
		{"a.test,b.test", "not a host name: "},
		{"a.test\tb.test", "white space inside"},
		{"*", "a bare \"*\"; write \"*.example.com\""},
		{"*.", "no name after \"*.\""},
		{"*wild.test", "a \"*\" may stand only once, in front"},
		{"a.*.test", "a \"*\" may stand only once, in front"},
		{"**.wild.test", "a \"*\" may stand only once, in front"},
		{"*.*.test", "a \"*\" may stand only once, in front"},
		{"*..wild.test", "a \"*\" may stand only once, in front"},
		{" .wild.test", "a dot in front; write \"*.example.com\""},
		{"read.test..", "not a host name: "},
		{"read..test", "not a host name: "},
		{".", "a dot in front"},
		{"a!b.test", "not a host name: "},
		{"010.0.0.1", "an address in an unusual spelling; write \"8.0.0.1\""},
		{"0x7f000001", "an address in an unusual spelling; write \"127.0.0.1\""},
		{"2130706433", "an address in an unusual spelling; write \"127.0.0.1\""},
		{"127.1", "an address in an unusual spelling; write \"127.0.0.1\""},
		{"10.0.0.1.", "an address in an unusual spelling; write \"10.0.0.1\""},
		{"1.2.3.999", "a broken address; write four numbers"},
		{"1.2.3.4.5", "a broken address; write four numbers"},
		{"*.0.0.1", "an address in an unusual spelling"},
		{"*.10.0.0.1", "an address in an unusual spelling"},
		{"x.\xff", "not a host name: "},
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct slice target = slice_strip(slice_str(cases[i].target));
		char quoted[RULE_QUOTE_MAX];
		char want[300];
		struct errmsg msg = {""};
		struct rule r;

		assert_int_equal(rule_make(SLICE("deny"), target, NULL, 0, &r, &msg), E_VALUE);
		assert_null(r.written);
		(void)snprintf(want, sizeof(want), "egress target \"%s\": %s",
			rule_quote(target, quoted), cases[i].message);
		if (strncmp(msg.text, want, strlen(want)) != 0)
			fail_msg("got \"%s\", want \"%s\"", msg.text, want);
	}
}

static void test_action_is_allow_or_deny_in_any_case(void **state)
{
	static const struct {
		const char *action;
		int ret;
		bool allow;
	} cases[] = {
		{"allow", 0, true},
		{" Allow ", 0, true},
		{"DENY", 0, false},
		{"", 0, false},
		{"  ", 0, false},
		{"log", E_VALUE, false},
		{"allowed", E_VALUE, false},
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct errmsg msg = {""};
		struct rule r;

		assert_int_equal(
			rule_make(slice_str(cases[i].action), SLICE("a.test"), NULL, 0, &r, &msg),
			cases[i].ret);
		assert_int_equal(r.allow, cases[i].allow);
		if (cases[i].ret < 0)
			assert_non_null(strstr(msg.text,
				"egress target \"a.test\": unsupported "
				"action \""));
		rule_fini(&r);
	}
}

static void test_empty_target_needs_ports(void **state)
{
	static const uint16_t ports[] = {8080};
	struct errmsg msg = {""};
	struct rule r;

	assert_int_equal(rule_make(SLICE("allow"), SLICE("  "), NULL, 0, &r, &msg), E_VALUE);
	assert_string_equal(msg.text, "egress target cannot be empty");
	assert_int_equal(rule_make(SLICE("allow"), SLICE(" "), ports, 1, &r, &msg), 0);
	assert_int_equal(r.kind, RULE_ANY);
	assert_string_equal(r.written, "");
	rule_fini(&r);
}

static void test_ports_are_sorted_bounded_and_unique(void **state)
{
	uint16_t ports[POLICY_RULE_PORTS_MAX + 1];
	struct errmsg msg = {""};
	struct rule r;

	for (size_t i = 0; i < ARRAY_LEN(ports); i++)
		ports[i] = (uint16_t)(65535 - i);
	assert_int_equal(
		rule_make(SLICE("allow"), SLICE("a.test"), ports, POLICY_RULE_PORTS_MAX, &r, &msg),
		0);
	assert_int_equal(r.n_ports, POLICY_RULE_PORTS_MAX);
	assert_int_equal(r.ports[0], 65535 - 255);
	assert_int_equal(r.ports[255], 65535);
	rule_fini(&r);
	assert_int_equal(
		rule_make(SLICE("allow"), SLICE("a.test"), ports, ARRAY_LEN(ports), &r, &msg),
		E_LIMIT);
	assert_string_equal(
		msg.text, "egress target \"a.test\": too many ports (257), max 256 per rule");
	ports[1] = ports[0];
	assert_int_equal(rule_make(SLICE("allow"), SLICE("a.test"), ports, 2, &r, &msg), E_VALUE);
	assert_string_equal(msg.text, "egress target \"a.test\": duplicate port 65535");
	ports[1] = 0;
	assert_int_equal(rule_make(SLICE("allow"), SLICE("a.test"), ports, 2, &r, &msg), E_VALUE);
	assert_string_equal(msg.text, "egress target \"a.test\": port 0 out of range 1-65535");
}

static void test_label_and_name_lengths_are_limited(void **state)
{
	char label[66];
	char name[256];
	struct rule r;

	memset(label, 'a', sizeof(label));
	assert_int_equal(rule_make(SLICE("allow"), slice_make(label, 63), NULL, 0, &r, NULL), 0);
	rule_fini(&r);
	assert_int_equal(
		rule_make(SLICE("allow"), slice_make(label, 64), NULL, 0, &r, NULL), E_VALUE);
	for (size_t i = 0; i < sizeof(name); i++)
		name[i] = i % 2 ? '.' : 'a';
	assert_int_equal(rule_make(SLICE("allow"), slice_make(name, 253), NULL, 0, &r, NULL), 0);
	rule_fini(&r);
	assert_int_equal(
		rule_make(SLICE("allow"), slice_make(name, 255), NULL, 0, &r, NULL), E_VALUE);
}

static void test_quoted_text_is_short_printable_and_whole(void **state)
{
	char buf[RULE_QUOTE_MAX];
	char text[400];

	assert_string_equal(rule_quote(SLICE("a\"b\x01\x7f"), buf), "a?b??");
	memset(text, 'a', sizeof(text));
	assert_int_equal(strlen(rule_quote(slice_make(text, 128), buf)), 128);
	assert_int_equal(strlen(rule_quote(slice_make(text, 129), buf)), 131);
	assert_string_equal(buf + 128, "...");
	/* The cut would fall into the middle of a two-byte character. */
	memcpy(text + 127, "\xc3\xbc", 2);
	assert_int_equal(strlen(rule_quote(slice_make(text, sizeof(text)), buf)), 130);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names_and_wildcards_get_a_normal_form),
		cmocka_unit_test(test_addresses_and_blocks_get_a_normal_form),
		cmocka_unit_test(test_written_target_is_trimmed_and_kept),
		cmocka_unit_test(test_target_that_cannot_match_is_refused_with_advice),
		cmocka_unit_test(test_action_is_allow_or_deny_in_any_case),
		cmocka_unit_test(test_empty_target_needs_ports),
		cmocka_unit_test(test_ports_are_sorted_bounded_and_unique),
		cmocka_unit_test(test_label_and_name_lengths_are_limited),
		cmocka_unit_test(test_quoted_text_is_short_printable_and_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
