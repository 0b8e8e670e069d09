/* Service records: what is valid, what of it a client gets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "dns/dns_svcb.h"

#define ROW(s) s, sizeof(s) - 1

static void test_broken_service_records_are_refused(void **state)
{
	static const struct {
		const char *p;
		size_t len;
		bool ok;
	} rows[] = {
		{ROW("\0\1\0"), true},                         /* no parameter */
		{ROW("\0\0\1a\0"), true},                      /* an alias */
		{ROW("\0\1"), false},                          /* no target */
		{ROW("\0\1\xc0\0"), false},                    /* a pointer */
		{ROW("\0\1\0\0\3\0\2\1\273"), true},           /* port */
		{ROW("\0\1\0\0\3\0\1\1"), false},              /* half a port */
		{ROW("\0\1\0\0\3\0\2\1"), false},              /* past the end */
		{ROW("\0\1\0\0\2\0\0"), true},                 /* no-default-alpn */
		{ROW("\0\1\0\0\2\0\1x"), false},               /* with a value */
		{ROW("\0\1\0\0\1\0\3\2h2"), true},             /* alpn */
		{ROW("\0\1\0\0\1\0\0"), false},                /* empty */
		{ROW("\0\1\0\0\1\0\1\0"), false},              /* an empty name */
		{ROW("\0\1\0\0\1\0\2\2h"), false},             /* a name past the end */
		{ROW("\0\1\0\0\0\0\2\0\1\0\1\0\3\2h2"), true}, /* mandatory */
		{ROW("\0\1\0\0\0\0\1\0"), false},              /* half a key */
		{ROW("\0\1\0\0\3\0\2\1\273\0\2\0\0"), false},  /* out of order */
		{ROW("\0\1\0\0\2\0\0\0\2\0\0"), false},        /* twice */
	};
	size_t i;

	for (i = 0; i < ARRAY_LEN(rows); i++)
		assert_int_equal(dns_svcb_is_valid(slice_make(rows[i].p, rows[i].len)), rows[i].ok);
}

static void test_ech_http3_hints_and_unknown_keys_are_left_out(void **state)
{
	static const struct {
		const char *in;
		size_t in_len;
		const char *out;
		size_t out_len;
	} rows[] = {
		{ROW("\0\1\0\0\1\0\6\2h2\2h3"), ROW("\0\1\0\0\1\0\3\2h2")},
		{ROW("\0\1\0\0\1\0\3\2h3"), ROW("\0\1\0")},
		{ROW("\0\1\0\0\1\0\6\5h3-29"), ROW("\0\1\0")},
		{ROW("\0\1\0\0\1\0\3\2h3\0\2\0\0"), ROW("")}, /* no protocol is left */
		{ROW("\0\1\0\0\1\0\3\2h2\0\2\0\0"), ROW("\0\1\0\0\1\0\3\2h2\0\2\0\0")},
		{ROW("\0\1\1a\0\0\3\0\2\37\220\0\4\0\4\1\2\3\4"), ROW("\0\1\1a\0\0\3\0\2\37\220")},
		{ROW("\0\1\0\0\5\0\2\1\2"), ROW("\0\1\0")}, /* ech */
		{ROW("\0\1\0\0\6\0\20"
		     "0123456789abcdef"),
			ROW("\0\1\0")},                           /* ipv6hint */
		{ROW("\0\1\0\0\7\0\1x"), ROW("\0\1\0")},          /* dohpath */
		{ROW("\0\1\0\377\0\0\1x"), ROW("\0\1\0")},        /* private use */
		{ROW("\0\1\0\0\0\0\2\0\5\0\5\0\1x"), ROW("")},    /* ech is mandatory */
		{ROW("\0\1\0\0\0\0\2\0\1\0\1\0\3\2h3"), ROW("")}, /* alpn is mandatory */
		{ROW("\0\1\0\0\0\0\2\0\3\0\3\0\2\0\1"), ROW("\0\1\0\0\0\0\2\0\3\0\3\0\2\0\1")},
	};
	uint8_t buf[64];
	bool altered;
	size_t i, n;

	for (i = 0; i < ARRAY_LEN(rows); i++) {
		altered = false;
		assert_true(dns_svcb_is_valid(slice_make(rows[i].in, rows[i].in_len)));
		n = dns_svcb_filter(slice_make(rows[i].in, rows[i].in_len), buf, &altered);
		assert_int_equal(n, rows[i].out_len);
		assert_memory_equal(buf, rows[i].out, n);
		if (n > 0)
			assert_int_equal(altered, n != rows[i].in_len);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_broken_service_records_are_refused),
		cmocka_unit_test(test_ech_http3_hints_and_unknown_keys_are_left_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
