/* Names, questions and answers: what is read, what is refused, what is kept. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "dns/dns_msg.h"
#include "tests/unit/dns/wire.h"

static struct wire w;
static struct dns_answer a;

static struct dns_question question_of(const char *name, unsigned type, bool dnssec)
{
	struct dns_question q = {.type = (uint16_t)type, .class = 1, .dnssec = dnssec};

	assert_true(dns_name_from_text(slice_str(name), &q.name));
	return q;
}

/* --- names --- */

static void test_name_of_255_octets_is_read_and_256_is_not(void **state)
{
	struct dns_name n;
	uint8_t b[300] = {0};
	size_t i;

	/* Three labels of 63 and one of 61: 4 * 64 - 2 + 1. */
	for (i = 0; i < 4; i++)
		b[64 * i] = i < 3 ? 63 : 61;
	assert_int_equal(dns_name_read(slice_make((char *)b, sizeof(b)), 0, false, &n), 255);
	assert_int_equal(n.len, 255);
	b[192] = 62;
	assert_int_equal(dns_name_read(slice_make((char *)b, sizeof(b)), 0, false, &n), 0);
}

static void test_pointers_go_backwards_or_not_at_all(void **state)
{
	static const struct {
		const char *bytes;
		size_t len, at, end;
		const char *text;
	} rows[] = {
		{"\1a\0\xc0\0", 5, 3, 5, "a"}, {"\1a\0\1b\xc0\0", 7, 3, 7, "b.a"},
		{"\1a\0\1b\xc0\0\1c\xc0\3", 11, 7, 11, "c.b.a"},
		{"\xc0\0", 2, 0, 0, ""},          /* itself */
		{"\xc0\2\xc0\0", 4, 2, 0, ""},    /* each other */
		{"\1a\xc0\0", 4, 0, 0, ""},       /* its own beginning */
		{"\0\1b\xc0\1", 5, 1, 0, ""},     /* its own run */
		{"\xc0\4\0\0\1a\0", 7, 0, 0, ""}, /* forwards */
		{"\xc0", 1, 0, 0, ""},            /* half a pointer */
		{"\x40\0", 2, 0, 0, ""},          /* reserved 01 */
		{"\x80\0", 2, 0, 0, ""},          /* reserved 10 */
		{"\3ab", 3, 0, 0, ""},            /* past the end */
		{"\1a", 2, 0, 0, ""},             /* no root */
	};
	char text[DNS_NAME_TEXT_MAX];
	struct dns_name n;
	size_t i;

	/* Behind a header that would read as the root; pointers in the rows count from its end. */
	for (i = 0; i < ARRAY_LEN(rows); i++) {
		uint8_t b[DNS_HEADER_LEN + 32] = {0};
		struct slice s = slice_make((char *)b, DNS_HEADER_LEN + rows[i].len);
		size_t want = rows[i].end ? rows[i].end + DNS_HEADER_LEN : 0;
		size_t k;

		memcpy(b + DNS_HEADER_LEN, rows[i].bytes, rows[i].len);
		for (k = DNS_HEADER_LEN; k < s.len; k++)
			if (b[k] == 0xc0)
				b[k + 1] += DNS_HEADER_LEN;
		assert_int_equal(dns_name_read(s, rows[i].at + DNS_HEADER_LEN, true, &n), want);
		if (want == 0)
			continue;
		assert_true(dns_name_text(&n, text) > 0);
		assert_string_equal(text, rows[i].text);
		if (memchr(rows[i].bytes, 0xc0, rows[i].len))
			assert_int_equal(
				dns_name_read(s, rows[i].at + DNS_HEADER_LEN, false, &n), 0);
	}
	assert_int_equal(
		dns_name_read(slice_make("\0\0\0\0\0\0\0\0\0\0\0\0\0\xc0\x0c", 15), 13, true, &n),
		15);
	assert_int_equal(
		dns_name_read(slice_make("\0\0\0\0\0\0\0\0\0\0\0\0\0\xc0\x0b", 15), 13, true, &n),
		0);
}

static void test_only_plain_labels_have_a_host_name(void **state)
{
	static const struct {
		const char *wire, *host, *text;
	} rows[] = {
		{"\1A\4TeSt", "a.test", "a.test"},
		{"\4_dns\3x-y", "_dns.x-y", "_dns.x-y"},
		{"\3a.b\4test", NULL, "a\\046b.test"},
		{"\3a b\4test", NULL, "a\\032b.test"},
		{"\1*\4test", NULL, "*.test"},
		{"\2\303\274", NULL, "\\195\\188"},
		{"", "", "."},
	};
	char host[HOSTNAME_MAX + 1], text[DNS_NAME_TEXT_MAX];
	struct dns_name n;
	size_t i, len;

	for (i = 0; i < ARRAY_LEN(rows); i++) {
		struct slice s = slice_make(rows[i].wire, strlen(rows[i].wire) + 1);

		assert_int_equal(dns_name_read(s, 0, false, &n), s.len);
		assert_int_equal(dns_name_host(&n, host, &len), rows[i].host != NULL);
		if (rows[i].host)
			assert_string_equal(host, rows[i].host);
		assert_int_equal(dns_name_text(&n, text), strlen(rows[i].text));
		assert_string_equal(text, rows[i].text);
	}
}

static void test_names_compare_and_contain_by_label(void **state)
{
	static const struct {
		const char *name, *zone;
		bool within;
	} rows[] = {
		{"a.test", "test", true},
		{"a.test", "", true},
		{"A.TEST", "a.test", true},
		{"ba.test", "a.test", false},
		{"test", "a.test", false},
		{"", "", true},
	};
	struct dns_name n, z;
	size_t i;

	for (i = 0; i < ARRAY_LEN(rows); i++) {
		assert_true(dns_name_from_text(slice_str(rows[i].name), &n));
		assert_true(dns_name_from_text(slice_str(rows[i].zone), &z));
		assert_int_equal(dns_name_within(&n, &z), rows[i].within);
	}
	assert_false(dns_name_from_text(SLICE("a..b"), &n));
	/* A label that holds the bytes of another one. */
	assert_int_equal(dns_name_read(slice_make("\3x\1a\4test", 10), 0, false, &n), 10);
	assert_true(dns_name_from_text(SLICE("a.test"), &z));
	assert_false(dns_name_within(&n, &z));
}

/* --- questions --- */

static void test_question_with_opt_is_taken_apart(void **state)
{
	struct dns_question q;

	wire_init(&w, 7, DNS_RD | DNS_CD);
	wire_question(&w, "ReAd.test", DNS_HTTPS);
	wire_opt(&w, 1400, 0, true);
	assert_int_equal(dns_question_decode(wire_slice(&w), &q), 0);
	assert_int_equal(q.id, 7);
	assert_int_equal(q.type, DNS_HTTPS);
	assert_int_equal(q.udp_size, 1400);
	assert_true(q.edns && q.dnssec && q.has_name);
	assert_memory_equal(q.name.b, "\4ReAd\4test", 11);
}

static void test_two_additional_records_pass_and_three_do_not(void **state)
{
	struct dns_question q;

	wire_init(&w, 7, 0);
	wire_question(&w, "read.test", DNS_A);
	wire_rr(&w, DNS_ADDITIONAL, "key", 250, 0, wire_bytes("x", 1));
	wire_opt(&w, 1400, 0, false);
	assert_int_equal(dns_question_decode(wire_slice(&w), &q), 0);
	assert_true(q.edns);
	wire_rr(&w, DNS_ADDITIONAL, "key", 250, 0, wire_bytes("x", 1));
	assert_int_equal(dns_question_decode(wire_slice(&w), &q), E_SYNTAX);
	assert_int_equal(q.rcode, DNS_FORMERR);
	wire_init(&w, 7, 0);
	wire_question(&w, "read.test", DNS_A);
	wire_opt(&w, 1400, 0, false);
	wire_opt(&w, 1400, 0, false);
	assert_int_equal(dns_question_decode(wire_slice(&w), &q), E_SYNTAX);
}

static void test_what_goes_upstream_is_ours(void **state)
{
	struct dns_question q, again;
	uint8_t buf[DNS_QUESTION_MAX];
	size_t len;

	wire_init(&w, 7, DNS_RD | DNS_CD | DNS_AD | DNS_TC | DNS_AA | DNS_RA | 3);
	wire_question(&w, "read.test", DNS_A);
	wire_opt(&w, 4096, 0, true);
	/* An option of the client's: a way to say something to the resolver. */
	wire_add(&w, "\0\12\0\10cookies!", 12);
	w.b[w.len - 13] = 12;
	assert_int_equal(dns_question_decode(wire_slice(&w), &q), 0);
	len = dns_question_encode(&q, 99, true, 1232, buf);
	assert_int_equal(len, DNS_HEADER_LEN + 11 + 4 + 11);
	buf[2] &= 0x7f;
	assert_int_equal(dns_question_decode(slice_make((char *)buf, len), &again), 0);
	assert_int_equal(again.id, 99);
	assert_int_equal(again.flags, DNS_RD | DNS_CD | DNS_AD);
	assert_int_equal(again.udp_size, 1232);
	assert_true(again.dnssec);
	assert_int_equal(dns_question_encode(&q, 99, false, 1232, buf), DNS_HEADER_LEN + 11 + 4);
}

/* --- answers --- */

static void test_answer_keeps_the_aliases_and_what_was_asked(void **state)
{
	struct dns_question q = question_of("a.test", DNS_A, false);
	static const bool want[] = {true, true, true, true, false, false, false, false, false};
	size_t i;

	wire_init(&w, 1, DNS_QR);
	wire_question(&w, "a.test", DNS_A);
	wire_a(&w, "C.cdn.test", 5, "1.0.0.1"); /* before the alias that leads to it */
	wire_rr_name(&w, DNS_ANSWER, "b.cdn.test", DNS_CNAME, 60, "c.cdn.test");
	wire_rr_name(&w, DNS_ANSWER, "a.test", DNS_CNAME, 60, "b.cdn.test");
	wire_a(&w, "c.cdn.test", 0xffffffff, "1.0.0.2");
	wire_a(&w, "other.test", 5, "1.0.0.3");
	wire_a(&w, "c.cdn.test", 5, "2::1");
	wire_rr(&w, DNS_ANSWER, "c.cdn.test", DNS_TXT, 5, wire_bytes("\1x", 2));
	wire_rr_name(&w, DNS_AUTHORITY, "cdn.test", DNS_NS, 5, "ns.cdn.test");
	wire_rr(&w, DNS_ADDITIONAL, "ns.cdn.test", DNS_A, 5, wire_bytes("\1\0\0\4", 4));
	assert_int_equal(dns_answer_decode(wire_slice(&w), &a), 0);
	assert_int_equal(a.n, ARRAY_LEN(want));
	assert_int_equal(dns_answer_select(&a, &q), 0);
	for (i = 0; i < a.n; i++)
		assert_int_equal(a.v[i].keep, want[i]);
	assert_int_equal(a.n_chain, 3);
	assert_int_equal(a.v[3].ttl, 0); /* RFC 2181 8 */
	assert_int_equal(dns_answer_n_kept(&a, &q), 2);
	dns_answer_drop(&a, 0);
	assert_int_equal(dns_answer_n_kept(&a, &q), 1);
	assert_true(a.altered);
}

static void test_negative_answer_keeps_the_soa_of_its_zone(void **state)
{
	struct dns_question q = question_of("a.b.test", DNS_AAAA, false);

	wire_init(&w, 1, DNS_QR | DNS_NXDOMAIN);
	wire_question(&w, "a.b.test", DNS_AAAA);
	wire_soa(&w, DNS_AUTHORITY, "other.test", 60);
	wire_soa(&w, DNS_AUTHORITY, "b.test", 60);
	wire_soa(&w, DNS_AUTHORITY, "test", 60);
	assert_int_equal(dns_answer_decode(wire_slice(&w), &a), 0);
	assert_int_equal(dns_answer_select(&a, &q), 0);
	assert_false(a.v[0].keep);
	assert_true(a.v[1].keep);
	assert_false(a.v[2].keep);
}

static void chain(size_t n)
{
	char from[32], to[32];
	size_t i;

	wire_init(&w, 1, DNS_QR);
	wire_question(&w, "n0.test", DNS_A);
	for (i = 0; i < n; i++) {
		(void)snprintf(from, sizeof(from), "n%zu.test", i);
		(void)snprintf(to, sizeof(to), "n%zu.test", i + 1);
		wire_rr_name(&w, DNS_ANSWER, from, DNS_CNAME, 60, to);
	}
	assert_int_equal(dns_answer_decode(wire_slice(&w), &a), 0);
}

static void test_aliases_end(void **state)
{
	struct dns_question q = question_of("n0.test", DNS_A, false);

	chain(DNS_CHAIN_MAX - 1);
	assert_int_equal(dns_answer_select(&a, &q), 0);
	assert_int_equal(a.n_chain, DNS_CHAIN_MAX);
	chain(DNS_CHAIN_MAX);
	assert_int_equal(dns_answer_select(&a, &q), E_LIMIT);
	wire_init(&w, 1, DNS_QR);
	wire_question(&w, "n0.test", DNS_A);
	wire_rr_name(&w, DNS_ANSWER, "n0.test", DNS_CNAME, 60, "n0.test");
	assert_int_equal(dns_answer_decode(wire_slice(&w), &a), 0);
	assert_int_equal(dns_answer_select(&a, &q), E_LIMIT);
	wire_init(&w, 1, DNS_QR);
	wire_question(&w, "n0.test", DNS_A);
	wire_rr_name(&w, DNS_ANSWER, "n0.test", DNS_CNAME, 60, "x.test");
	wire_rr_name(&w, DNS_ANSWER, "n0.test", DNS_CNAME, 60, "y.test");
	assert_int_equal(dns_answer_decode(wire_slice(&w), &a), 0);
	assert_int_equal(dns_answer_select(&a, &q), E_SYNTAX);
}

static void test_signatures_come_only_when_asked_for_and_go_with_their_set(void **state)
{
	static const uint8_t rrsig[19] = {0, DNS_A};
	struct dns_question q = question_of("a.test", DNS_A, true);
	size_t i;

	for (i = 0; i < 2; i++) {
		q.dnssec = i == 0;
		wire_init(&w, 1, DNS_QR);
		wire_question(&w, "a.test", DNS_A);
		wire_a(&w, "a.test", 5, "1.0.0.1");
		wire_rr(&w, DNS_ANSWER, "a.test", DNS_RRSIG, 5, wire_bytes(rrsig, sizeof(rrsig)));
		wire_rr_name(&w, DNS_ANSWER, "test", DNS_DNAME, 5, "x.test");
		wire_rr_name(&w, DNS_AUTHORITY, "a.test", DNS_NSEC, 5, "b.test");
		assert_int_equal(dns_answer_decode(wire_slice(&w), &a), 0);
		assert_int_equal(dns_answer_select(&a, &q), 0);
		assert_true(a.v[0].keep);
		assert_int_equal(a.v[1].keep, q.dnssec);
		assert_int_equal(a.v[2].keep, q.dnssec);
		assert_int_equal(a.v[3].keep, q.dnssec);
		dns_answer_drop(&a, 0);
		assert_false(a.v[1].keep);
	}
}

static void test_broken_answers_are_refused(void **state)
{
	static const uint8_t addr[16] = {1};
	static const struct {
		unsigned type;
		const char *rdata;
		size_t len;
	} rows[] = {
		{DNS_A, "\1\2\3", 3}, {DNS_A, "\1\2\3\4\5", 5}, {DNS_AAAA, "\1\2\3\4", 4},
		{DNS_CNAME, "\1a", 2}, {DNS_CNAME, "\1a\0x", 4}, {DNS_MX, "\0\1", 2},
		{DNS_SOA, "\0\0\0\0", 4}, {DNS_SRV, "\0\0\0\0\0\0", 6}, {35, "\0\0\0\0\5a", 6},
		{DNS_RRSIG, "\0\1", 2}, {DNS_HTTPS, "\0\1\0\0\1\0\5h3", 9},
		{DNS_OPT, "", 0}, /* in the answer section */
	};
	size_t i;

	for (i = 0; i < ARRAY_LEN(rows); i++) {
		wire_init(&w, 1, DNS_QR);
		wire_question(&w, "a.test", rows[i].type);
		wire_rr(&w, DNS_ANSWER, "", rows[i].type, 5,
			wire_bytes(rows[i].rdata, rows[i].len));
		assert_int_equal(dns_answer_decode(wire_slice(&w), &a), E_SYNTAX);
	}
	wire_init(&w, 1, DNS_QR);
	wire_question(&w, "a.test", DNS_A);
	wire_rr(&w, DNS_ANSWER, "a.test", DNS_AAAA, 5, wire_bytes(addr, sizeof(addr)));
	assert_int_equal(dns_answer_decode(wire_slice(&w), &a), 0);
	/* Every shorter one, one byte more, no question, a query. */
	for (i = 0; i < w.len; i++)
		assert_int_equal(dns_answer_decode(slice_first(wire_slice(&w), i), &a), E_SYNTAX);
	wire_add(&w, "x", 1);
	assert_int_equal(dns_answer_decode(wire_slice(&w), &a), E_SYNTAX);
	w.len--;
	w.b[2] &= 0x7f;
	assert_int_equal(dns_answer_decode(wire_slice(&w), &a), E_SYNTAX);
}

static void test_records_at_the_limit(void **state)
{
	size_t i;

	wire_init(&w, 1, DNS_QR);
	wire_question(&w, "a.test", DNS_A);
	for (i = 0; i < DNS_RECORDS_MAX; i++)
		wire_a(&w, "", 5, "1.0.0.1");
	assert_int_equal(dns_answer_decode(wire_slice(&w), &a), 0);
	wire_a(&w, "", 5, "1.0.0.1");
	assert_int_equal(dns_answer_decode(wire_slice(&w), &a), E_LIMIT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_name_of_255_octets_is_read_and_256_is_not),
		cmocka_unit_test(test_pointers_go_backwards_or_not_at_all),
		cmocka_unit_test(test_only_plain_labels_have_a_host_name),
		cmocka_unit_test(test_names_compare_and_contain_by_label),
		cmocka_unit_test(test_question_with_opt_is_taken_apart),
		cmocka_unit_test(test_two_additional_records_pass_and_three_do_not),
		cmocka_unit_test(test_what_goes_upstream_is_ours),
		cmocka_unit_test(test_answer_keeps_the_aliases_and_what_was_asked),
		cmocka_unit_test(test_negative_answer_keeps_the_soa_of_its_zone),
		cmocka_unit_test(test_aliases_end),
		cmocka_unit_test(test_signatures_come_only_when_asked_for_and_go_with_their_set),
		cmocka_unit_test(test_broken_answers_are_refused),
		cmocka_unit_test(test_records_at_the_limit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
