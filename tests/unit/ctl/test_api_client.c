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

int main(void)
{
	static const struct CMUnitTest tests[] = {cmocka_unit_test(test_addresses)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
