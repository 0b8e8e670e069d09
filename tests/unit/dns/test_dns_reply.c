/* What a client gets to read: compression, its own letters, sizes, OPT, refusals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "dns/dns_reply.h"
#include "tests/unit/dns/wire.h"

static struct wire w;
static struct dns_answer a, back;
static uint8_t out[DNS_MSG_MAX];

static struct dns_question question_of(const char *name, unsigned type)
{
	struct dns_question q = {.type = (uint16_t)type, .class = 1, .has_name = true, .id = 5};

	wire_init(&w, 5, DNS_RD);
	wire_question(&w, name, type);
	assert_int_equal(dns_question_decode(wire_slice(&w), &q), 0);
	return q;
}

static size_t encode(const struct dns_reply *r)
{
	size_t len = dns_reply_encode(r, out);

	assert_true(len <= dns_reply_max(r->question, r->tcp));
	assert_int_equal(dns_answer_decode(slice_make((char *)out, len), &back), 0);
	return len;
}

static void test_sizes(void **state)
{
	struct dns_question q = {.edns = false, .udp_size = 4000};

	assert_int_equal(dns_reply_max(&q, false), 512);
	assert_int_equal(dns_reply_max(&q, true), DNS_MSG_MAX);
	q.edns = true;
	assert_int_equal(dns_reply_max(&q, false), 4000);
	q.udp_size = DNS_UDP_MAX + 1;
	assert_int_equal(dns_reply_max(&q, false), DNS_UDP_MAX);
	q.udp_size = 511;
	assert_int_equal(dns_reply_max(&q, false), 512);
	q.udp_size = 0;
	assert_int_equal(dns_reply_max(&q, false), 512);
}

static void test_refusal_has_soa_and_error_and_the_clients_letters(void **state)
{
	struct dns_question q = question_of("BaD.test", DNS_A);
	struct dns_reply r = {.question = &q,
		.rcode = DNS_NXDOMAIN,
		.soa = true,
		.ede = DNS_EDE_BLOCKED,
		.text = SLICE("no")};

	encode(&r);
	assert_memory_equal(out + 12, "\3BaD\4test", 10);
	assert_int_equal(back.rcode, DNS_NXDOMAIN);
	assert_int_equal(back.flags, DNS_QR | DNS_RD | DNS_NXDOMAIN);
	assert_int_equal(back.n, 1);
	assert_int_equal(back.v[0].type, DNS_SOA);
	assert_false(back.edns);
	q.edns = true;
	q.udp_size = 512;
	encode(&r);
	assert_true(back.edns);
	assert_memory_equal(out + back.msg.len - 8, "\0\17\0\4\0\17no", 8);
}

static void test_longest_refusal_fits(void **state)
{
	struct dns_question q =
		question_of("a23456789012345678901234567890123456789012345678901234567890123."
			    "b23456789012345678901234567890123456789012345678901234567890123."
			    "c23456789012345678901234567890123456789012345678901234567890123."
			    "d234567890123456789012345678901234567890123456789012345678901",
			DNS_A);
	char text[300];
	struct dns_reply r = {.question = &q,
		.rcode = DNS_NXDOMAIN,
		.soa = true,
		.ede = DNS_EDE_BLOCKED,
		.text = {text, sizeof(text)}};

	memset(text, 'x', sizeof(text));
	q.edns = true;
	encode(&r);
	assert_int_equal(back.n, 1);
	assert_true(back.edns);
}

static void test_badvers_has_its_upper_bits_in_opt(void **state)
{
	struct dns_question q = question_of("a.test", DNS_A);
	struct dns_reply r = {.question = &q, .rcode = DNS_BADVERS, .ede = DNS_EDE_NONE};

	q.edns = true;
	encode(&r);
	assert_int_equal(back.rcode, DNS_BADVERS);
	assert_int_equal(back.flags & DNS_RCODE, 0);
}

/* An answer with the records of the caller, asked by A for `name` and all kept. */
static void take(struct dns_question *q)
{
	size_t i;

	assert_int_equal(dns_answer_decode(wire_slice(&w), &a), 0);
	assert_int_equal(dns_answer_select(&a, q), 0);
	for (i = 0; i < a.n; i++)
		a.v[i].keep = true;
}

static void test_answer_is_compressed_and_reads_the_same(void **state)
{
	struct dns_question q = question_of("WWW.example.test", DNS_A);
	struct dns_reply r = {.question = &q, .answer = &a, .ede = DNS_EDE_NONE};
	static const uint8_t srv[] = "\0\1\0\2\1\273\3www\7example\4test";
	static const uint8_t naptr[] = "\0\1\0\2\1u\1v\1w\3www\7example\4test";
	struct dns_name name;
	size_t len;

	wire_init(&w, 9, DNS_QR | DNS_RA | DNS_AD | DNS_AA);
	wire_question(&w, "www.example.test", DNS_A);
	wire_rr_name(&w, DNS_ANSWER, "www.example.test", DNS_CNAME, 60, "cdn.example.test");
	wire_a(&w, "cdn.example.test", 60, "1.0.0.1");
	wire_rr(&w, DNS_ANSWER, "cdn.example.test", DNS_SRV, 60, wire_bytes(srv, sizeof(srv)));
	wire_rr(&w, DNS_ANSWER, "cdn.example.test", 35, 60, wire_bytes(naptr, sizeof(naptr)));
	wire_rr(&w, DNS_ANSWER, "cdn.example.test", DNS_TXT, 60, wire_bytes("\2hi", 3));
	wire_rr(&w, DNS_ANSWER, "cdn.example.test", DNS_HTTPS, 60,
		wire_bytes("\0\1\0\0\5\0\1x", 8));
	wire_soa(&w, DNS_AUTHORITY, "example.test", 60);
	take(&q);
	len = encode(&r);
	assert_int_equal(back.n, 7);
	assert_true(len < w.len);
	assert_int_equal(back.v[0].rdata_len, 6); /* a label and a pointer */
	assert_int_equal(out[back.v[0].owner], 0xc0);
	assert_int_equal(back.v[2].rdata_len, sizeof(srv)); /* RFC 2782: written out */
	assert_memory_equal(out + back.v[2].rdata, srv, sizeof(srv));
	assert_memory_equal(out + back.v[3].rdata, naptr, sizeof(naptr));
	assert_int_equal(back.v[5].rdata_len, 3);
	assert_true(dns_name_read(back.msg, back.v[1].owner, true, &name) > 0);
	assert_memory_equal(name.b, "\3cdn\7example\4test", 18);
	/* Owners get the client's letters back. */
	assert_true(dns_name_read(back.msg, back.v[0].owner, true, &name) > 0);
	assert_memory_equal(name.b, "\3WWW\7example\4test", 18);
	assert_int_equal(back.flags & (DNS_RA | DNS_AD | DNS_AA), DNS_RA);
}

/* A name must not be shortened by a part of itself, of which the end is still to be written. */
static void test_name_that_repeats_itself_is_written_whole(void **state)
{
	struct dns_question q = question_of("a.test", DNS_CNAME);
	struct dns_reply r = {.question = &q, .answer = &a, .ede = DNS_EDE_NONE};

	wire_init(&w, 9, DNS_QR);
	wire_question(&w, "a.test", DNS_CNAME);
	wire_rr_name(&w, DNS_ANSWER, "a.test", DNS_CNAME, 60, "xx.xx.xx.xx");
	take(&q);
	memset(out, 0, sizeof(out));
	encode(&r);
	assert_int_equal(back.v[0].rdata_len, 13);
	assert_memory_equal(out + back.v[0].rdata, "\2xx\2xx\2xx\2xx", 13);
}

static void test_ad_is_told_to_those_who_ask_and_not_of_altered_answers(void **state)
{
	struct dns_question q = question_of("a.test", DNS_A);
	struct dns_reply r = {.question = &q, .answer = &a, .ede = DNS_EDE_NONE};

	wire_init(&w, 9, DNS_QR | DNS_AD);
	wire_question(&w, "a.test", DNS_A);
	wire_a(&w, "a.test", 60, "1.0.0.1");
	wire_a(&w, "a.test", 60, "1.0.0.2");
	take(&q);
	q.flags |= DNS_AD;
	encode(&r);
	assert_int_equal(back.flags & DNS_AD, DNS_AD);
	dns_answer_drop(&a, 0);
	encode(&r);
	assert_int_equal(back.flags & DNS_AD, 0);
}

static void test_what_does_not_fit_is_left_out_whole_with_tc(void **state)
{
	struct dns_question q = question_of("a.test", DNS_A);
	struct dns_reply r = {.question = &q, .answer = &a, .ede = DNS_EDE_NONE};
	/* 24 bytes of header and question, 16 of each record. */
	size_t fits = (512 - 24) / 16;
	size_t i;

	wire_init(&w, 9, DNS_QR);
	wire_question(&w, "a.test", DNS_A);
	for (i = 0; i < fits; i++)
		wire_a(&w, "a.test", 60, "1.0.0.1");
	take(&q);
	encode(&r);
	assert_int_equal(back.n, fits);
	assert_int_equal(back.flags & DNS_TC, 0);
	wire_a(&w, "a.test", 60, "1.0.0.1");
	take(&q);
	encode(&r);
	assert_int_equal(back.n, fits);
	assert_int_equal(back.flags & DNS_TC, DNS_TC);
	r.tcp = true;
	encode(&r);
	assert_int_equal(back.n, fits + 1);
	assert_int_equal(back.flags & DNS_TC, 0);
	/* An authority that does not fit is no truncation (RFC 2181 9). */
	r.tcp = false;
	a.v[fits].keep = false;
	a.v[fits].section = DNS_AUTHORITY;
	a.v[fits].keep = true;
	encode(&r);
	assert_int_equal(back.n, fits);
	assert_int_equal(back.flags & DNS_TC, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_refusal_has_soa_and_error_and_the_clients_letters),
		cmocka_unit_test(test_longest_refusal_fits),
		cmocka_unit_test(test_badvers_has_its_upper_bits_in_opt),
		cmocka_unit_test(test_answer_is_compressed_and_reads_the_same),
		cmocka_unit_test(test_name_that_repeats_itself_is_written_whole),
		cmocka_unit_test(test_ad_is_told_to_those_who_ask_and_not_of_altered_answers),
		cmocka_unit_test(test_what_does_not_fit_is_left_out_whole_with_tc),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
