/* Health (control/health): the worst part decides, and the first of those gives the cause. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "control/health.h"

static void test_what_is_missing_is_told_before_that_the_start_waits(void **state)
{
	struct health h;

	health_init(&h);
	for (int i = 0; i < HEALTH_PART_MAX; i++) {
		if (i == HEALTH_START)
			continue;
		health_set(&h, (enum health_part)i, HEALTH_FAILED, "part %d", i);
		assert_string_not_equal(health_cause(&h), "starting");
		health_ok(&h, (enum health_part)i);
	}
	assert_string_equal(health_cause(&h), "starting");
}

static void test_starting_is_when_nothing_else_is_known(void **state)
{
	struct health h;

	health_init(&h);
	assert_true(health_starting(&h));
	health_set(&h, HEALTH_RESOLVERS, HEALTH_DEGRADED, "slow");
	assert_true(health_starting(&h));
	health_set(&h, HEALTH_RESOLVERS, HEALTH_FAILED, "no answer");
	assert_false(health_starting(&h));
	health_ok(&h, HEALTH_RESOLVERS);
	health_set(&h, HEALTH_START, HEALTH_FAILED, "self-test: open");
	assert_false(health_starting(&h));
	health_ok(&h, HEALTH_START);
	assert_false(health_starting(&h));
}

static void test_worst_part_gives_state_and_cause(void **state)
{
	struct health h;

	health_init(&h);
	assert_int_equal(health_state(&h), HEALTH_FAILED);
	assert_string_equal(health_cause(&h), "starting");
	health_ok(&h, HEALTH_START);
	assert_int_equal(health_state(&h), HEALTH_OK);
	assert_string_equal(health_cause(&h), "");
	health_set(&h, HEALTH_MEMORY, HEALTH_DEGRADED, "not locked");
	assert_int_equal(health_state(&h), HEALTH_DEGRADED);
	assert_string_equal(health_cause(&h), "not locked");
	health_set(&h, HEALTH_RESOLVERS, HEALTH_FAILED, "no answer from %s", "192.0.2.1");
	health_set(&h, HEALTH_GUARD, HEALTH_FAILED, "gone");
	assert_int_equal(health_state(&h), HEALTH_FAILED);
	assert_string_equal(health_cause(&h), "gone");
	health_ok(&h, HEALTH_GUARD);
	assert_string_equal(health_cause(&h), "no answer from 192.0.2.1");
	health_ok(&h, HEALTH_RESOLVERS);
	assert_int_equal(health_state(&h), HEALTH_DEGRADED);
	health_ok(&h, HEALTH_MEMORY);
	assert_int_equal(health_state(&h), HEALTH_OK);
}

static void test_json_lists_the_parts_that_there_are(void **state)
{
	struct health h;
	json_t *doc;
	char *text;

	health_init(&h);
	health_ok(&h, HEALTH_START);
	health_set(&h, HEALTH_CA_FILE, HEALTH_FAILED, "gone");
	doc = health_json(&h);
	text = json_dumps(doc, JSON_COMPACT);
	assert_string_equal(text,
		"{\"state\":\"failed\",\"cause\":\"gone\",\"parts\":{"
		"\"ca_file\":{\"state\":\"failed\",\"cause\":\"gone\"},\"start\":{\"state\":\"ok\"}"
		"}}");
	free(text);
	json_decref(doc);
}

static void test_cause_is_cut(void **state)
{
	char cause[HEALTH_CAUSE_MAX + 1];
	struct health h;

	memset(cause, 'x', sizeof(cause));
	cause[HEALTH_CAUSE_MAX] = '\0';
	health_init(&h);
	health_set(&h, HEALTH_START, HEALTH_FAILED, "%s", cause);
	assert_int_equal(strlen(health_cause(&h)), HEALTH_CAUSE_MAX - 1);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_is_missing_is_told_before_that_the_start_waits),
		cmocka_unit_test(test_starting_is_when_nothing_else_is_known),
		cmocka_unit_test(test_worst_part_gives_state_and_cause),
		cmocka_unit_test(test_json_lists_the_parts_that_there_are),
		cmocka_unit_test(test_cause_is_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
