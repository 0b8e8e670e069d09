/* Which files of the system are read at all (control/sources.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "control/sources.h"

/* Where a sandbox shares our namespace it may write /etc/hosts: that file is not even opened. */
static void test_hosts_count_in_mode_proxy_only(void **state)
{
	static const struct {
		const char *mode;
		bool hosts;
	} rows[] = {
		{"OPENSANDBOX_EGRESS_MODE=proxy", true},
		{"OPENSANDBOX_EGRESS_MODE=dns", false},
		{"OPENSANDBOX_EGRESS_MODE=dns+nft", false},
		{"OPENSANDBOX_EGRESS_MODE=prox", false},
		{"A=b", false},
	};

	assert_int_equal(access(SOURCES_HOSTS, R_OK), 0);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		const char *env[] = {rows[i].mode, NULL};
		struct errmsg msg = {""};
		struct roles r;

		assert_int_equal(
			sources_open(NULL, (char *const *)(const void *)env, false, &r, &msg), 0);
		if ((r.fd[ROLE_HOSTS] >= 0) != rows[i].hosts)
			fail_msg("%s", rows[i].mode);
		roles_fini(&r);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hosts_count_in_mode_proxy_only),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
