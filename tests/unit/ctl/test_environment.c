/* Which audit file is meant. */
#include <unistd.h>

#include "ctl/environment.h"
#include "tests/unit/ctl/fixture.h"

static void test_the_first_variable_of_a_name_counts(void **state)
{
	char *env[] = {"AB=0", "A=1", "A=2", "B", NULL};

	assert_string_equal(environment_get(env, "A"), "1");
	assert_null(environment_get(env, "B"));
	assert_null(environment_get(env, "C"));
}

static void test_the_audit_file_is_found_without_being_named(void **state)
{
	static const struct {
		char *env[5];
		const char *want; /* NULL: refused */
	} cases[] = {
		{{"EGRESS_AUDIT=/a/b.jsonl", "XDG_STATE_HOME=/state", "HOME=/home"}, "/a/b.jsonl"},
		{{"EGRESS_AUDIT=stdout,/a/b.jsonl"}, "/a/b.jsonl"},
		{{"EGRESS_AUDIT=stdout", "XDG_STATE_HOME=/state", "HOME=/home"},
			"/state/egress/audit.jsonl"},
		{{"EGRESS_AUDIT=", "XDG_STATE_HOME=/state"}, "/state/egress/audit.jsonl"},
		{{"XDG_STATE_HOME=state", "HOME=/home"}, "/home/.local/state/egress/audit.jsonl"},
		{{"HOME=/home", "EGRESS_AUDITS=1", "AGENTIC_WRITE_HOSTS=http://x"},
			"/home/.local/state/egress/audit.jsonl"},
		{{"HOME=home"}, NULL},
		{{NULL}, NULL},
		{{"EGRESS_AUDIT=syslog", "HOME=/home"}, NULL},
	};

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		struct errmsg msg = {""};
		char *path = NULL;
		int ret = environment_audit_path(NULL, cases[i].env, &path, &msg);

		assert_int_equal(ret < 0, cases[i].want == NULL);
		if (cases[i].want)
			assert_string_equal(path, cases[i].want);
		else
			assert_true(msg.text[0] != '\0');
		free(path);
	}
}

static void config_file(char path[32], const char *text)
{
	int fd;

	(void)snprintf(path, 32, "/tmp/egress-env-XXXXXX");
	fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
}

static void test_the_configuration_names_it_and_the_environment_wins(void **state)
{
	char *env[] = {"HOME=/home", NULL};
	char *over[] = {"EGRESS_AUDIT=/over.jsonl", NULL};
	struct errmsg msg = {""};
	char config[32], *path = NULL;

	config_file(config, "mode: dns\naudit: /from/yaml.jsonl\n");
	assert_int_equal(environment_audit_path(config, env, &path, &msg), 0);
	assert_string_equal(path, "/from/yaml.jsonl");
	free(path);
	assert_int_equal(environment_audit_path(config, over, &path, &msg), 0);
	assert_string_equal(path, "/over.jsonl");
	free(path);
	unlink(config);
	assert_true(environment_audit_path(config, env, &path, &msg) < 0);
	assert_non_null(strstr(msg.text, config));
	config_file(config, "adit: /x\n");
	assert_true(environment_audit_path(config, env, &path, &msg) < 0);
	assert_non_null(strstr(msg.text, "adit"));
	unlink(config);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_first_variable_of_a_name_counts),
		cmocka_unit_test(test_the_audit_file_is_found_without_being_named),
		cmocka_unit_test(test_the_configuration_names_it_and_the_environment_wins),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
