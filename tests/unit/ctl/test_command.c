/* Command tables and the nearest name. */
#include "ctl/command.h"

#include "tests/unit/ctl/fixture.h"

static void test_slips_find_the_name_that_was_meant(void **state)
{
	static const char *const names[] = {"tail", "query", "verify", "follow", NULL};
	static const struct {
		const char *typed, *want;
	} cases[] = {
		{"tail", "tail"},
		{"tial", "tail"},
		{"tai", "tail"},
		{"ta", "tail"},
		{"taill", "tail"},
		{"qurey", "query"},
		{"verfiy", "verify"},
		{"ver", "verify"},
		{"fllow", "follow"},
		{"x", NULL},
		{"report", NULL},
		{"", NULL},
		{"a word that is much longer than any name of a command", NULL},
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		const char *got = command_nearest(cases[i].typed, names);

		if (!cases[i].want)
			assert_null(got);
		else
			assert_string_equal(got ? got : "(none)", cases[i].want);
	}
}

static enum command_exit on_run(int argc, char **argv)
{
	return argc == 2 && strcmp(argv[0], "run") == 0 && strcmp(argv[1], "x") == 0 ? COMMAND_NO
										     : COMMAND_OK;
}

static enum command_exit on_other(int argc, char **argv)
{
	return COMMAND_OK;
}

static const struct command table[] = {{"other", on_other}, {"run", on_run}, {NULL, NULL}};

static void test_the_named_row_runs_with_its_arguments(void **state)
{
	char program[] = "p", run[] = "run", x[] = "x", runs[] = "runs", option[] = "--x";
	char *good[] = {program, run, x, NULL};
	char *unknown[] = {program, runs, x, NULL};
	char *wrong[] = {program, option, NULL};

	assert_int_equal(command_run(table, "p", "help", 3, good), COMMAND_NO);
	assert_int_equal(command_run(table, "p", "help", 3, unknown), COMMAND_WRONG);
	assert_int_equal(command_run(table, "p", "help", 2, wrong), COMMAND_WRONG);
	assert_int_equal(command_run(table, "p", "help\n", 1, good), COMMAND_WRONG);
}

static void test_options_are_read_and_wrong_ones_end_it(void **state)
{
	static const struct option longs[] = {
		{"file", required_argument, NULL, 'F'}, {NULL, 0, NULL, 0}};
	static const struct {
		const char *arg;
		int want;
	} cases[] = {
		{"-n5", 'n'},
		{"--file=x", 'F'},
		{"-n", '?'},
		{"--file", '?'},
		{"--flie", '?'},
		{"-z", '?'},
		{"word", -1},
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		char program[] = "p", arg[16];
		char *argv[] = {program, arg, NULL};

		(void)snprintf(arg, sizeof(arg), "%s", cases[i].arg);
		optind = 0;
		assert_int_equal(command_option(2, argv, ":n:", longs, "p"), cases[i].want);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_slips_find_the_name_that_was_meant),
		cmocka_unit_test(test_the_named_row_runs_with_its_arguments),
		cmocka_unit_test(test_options_are_read_and_wrong_ones_end_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
