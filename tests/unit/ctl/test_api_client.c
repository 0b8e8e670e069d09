/* Where egressctl looks for a running egress (ctl/api_client). */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/netaddr.h"
#include "ctl/api_client.h"

static void test_addresses(void **state)
{
	static const struct {
		const char *text;
		const char *addr; /* NULL: refused */
		uint16_t port;
	} rows[] = {
		{"127.0.0.1:18080", "127.0.0.1", 18080},
		{"10.1.2.3:7", "10.1.2.3", 7},
		{"[::1]:7", "::1", 7},
		{":18080", "127.0.0.1", 18080},
		{"localhost:7", "127.0.0.1", 7},
		/* what egress listens on is reached by loopback */
		{"0.0.0.0:7", "127.0.0.1", 7},
		{"[::]:7", "::1", 7},
		{"", NULL, 0},
		{":", NULL, 0},
		{":0", NULL, 0},
		{":65536", NULL, 0},
		{"127.0.0.1", NULL, 0},
		{"host.test:7", NULL, 0},
		{"http://127.0.0.1:7", NULL, 0},
		{"::1:7", NULL, 0},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct sockaddr_storage ss;
		char text[NETADDR_TEXT_MAX];
		struct errmsg msg = {""};
		struct netaddr a;
		uint16_t port = 0;
		socklen_t len;
		int ret = api_client_address(rows[i].text, &ss, &len, &msg);

		if (!rows[i].addr) {
			assert_int_equal(ret, E_VALUE);
			assert_non_null(strstr(msg.text, "expected an address and a port"));
			continue;
		}
		if (ret < 0)
			fail_msg("%s: %s", rows[i].text, msg.text);
		assert_true(netaddr_from_sockaddr((struct sockaddr *)&ss, &a, &port));
		(void)netaddr_text(&a, text);
		assert_string_equal(text, rows[i].addr);
		assert_int_equal(port, rows[i].port);
	}
}

static void test_number_of_a_field(void **state)
{
	static const struct {
		const char *name;
		uint64_t want;
	} rows[] = {
		{"X-Last", 17},
		{"x-last", 17},
		{"X-Las", 0},
		{"X-Text", 0},
		{"X-Most", UINT64_MAX},
		{"X-More", 0},
		{"HTTP/1.1 200 OK", 0},
		{"", 0},
	};
	struct api_client_answer a = {.status = 200};

	strbuf_init(&a.head, 1000);
	strbuf_str(&a.head,
		"HTTP/1.1 200 OK\r\nX-Last:17\r\nX-Text: a\r\nX-Most:  18446744073709551615 \r\n"
		"X-More: 18446744073709551616\r\nX-Last: 18\r\n\r\n");
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		assert_int_equal(api_client_number(&a, rows[i].name), rows[i].want);
	api_client_answer_fini(&a);
	assert_int_equal(api_client_number(&a, "X-Last"), 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_addresses),
		cmocka_unit_test(test_number_of_a_field),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
