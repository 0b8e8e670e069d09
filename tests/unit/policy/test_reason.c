/* The reason table: names are unique tokens, texts exist, status codes are ours. */
#include "policy/reason.h"

#include "tests/unit/policy/fixture.h"

static void test_every_reason_has_a_name_and_a_text(void **state)
{
	for (int r = 0; r < REASON_MAX; r++) {
		const char *name = reason_name((enum reason)r);

		assert_true(strlen(name) > 0);
		assert_int_equal(strspn(name, "abcdefghijklmnopqrstuvwxyz_"), strlen(name));
		assert_true(strlen(reason_text((enum reason)r)) > 0);
		for (int other = 0; other < r; other++)
			assert_string_not_equal(name, reason_name((enum reason)other));
	}
}

static void test_status_is_none_or_an_error(void **state)
{
	for (int r = 0; r < REASON_MAX; r++) {
		int status = reason_status((enum reason)r);

		assert_true(status == 0 || (status >= 400 && status <= 504));
	}
}

static void test_status_of_known_reasons(void **state)
{
	static const struct {
		enum reason reason;
		int status;
		const char *name;
	} cases[] = {
		{REASON_ALLOWED, 0, "allowed"},
		{REASON_METHOD_NOT_READ, 403, "method_not_read"},
		{REASON_MALFORMED, 400, "malformed"},
		{REASON_EXPECTATION, 417, "expectation_failed"},
		{REASON_CONNECT_TIMEOUT, 504, "connect_timeout"},
		{REASON_SHUTDOWN, 0, "shutdown"},
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		assert_int_equal(reason_status(cases[i].reason), cases[i].status);
		assert_string_equal(reason_name(cases[i].reason), cases[i].name);
	}
	assert_string_equal(reason_text(REASON_HOST_NOT_LISTED), "no rule allows this host");
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_reason_has_a_name_and_a_text),
		cmocka_unit_test(test_status_is_none_or_an_error),
		cmocka_unit_test(test_status_of_known_reasons),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
