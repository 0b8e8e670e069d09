/* What settings say about policy and writing (control/settings_policy, settings.c): which source
 * counts, what switches the rule on, what may pass through. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/unit/control/load.h"

static void test_write_hosts_switch_the_rule_on_even_when_empty(void **state)
{
	static const struct {
		const char *env;
		const char *yaml;
		bool read_only;
		size_t hosts;
	} rows[] = {
		{NULL, NULL, false, 0},
		{"AGENTIC_WRITE_HOSTS=", NULL, true, 0},
		{"AGENTIC_WRITE_HOSTS= , ", NULL, true, 0},
		{"AGENTIC_WRITE_HOSTS=a.test *.b.test,.c.test", NULL, true, 3},
		{NULL, "write_hosts: []\n", true, 0},
		{NULL, "write_hosts:\n", true, 0},
		{NULL, "write_hosts: [a.test, b.test]\n", true, 2},
		{NULL, "write_hosts: a.test b.test\n", true, 2},
		{"AGENTIC_WRITE_HOSTS=", "write_hosts: [a.test]\n", true, 0},
		{"AGENTIC_WRITE_HOSTS=a.test", "read_only: false\n", false, 1},
		{"EGRESS_READ_ONLY=on", "read_only: false\n", true, 0},
		{"EGRESS_READ_ONLY=off", "write_hosts: [a.test]\n", false, 1},
	};
	size_t i;

	for (i = 0; i < ARRAY_LEN(rows); i++) {
		struct load l = {.yaml = rows[i].yaml, .env = {rows[i].env}};
		struct settings *s = must_load(&l);

		assert_int_equal(s->read_only, rows[i].read_only);
		assert_int_equal(write_hosts_count(s->write_hosts), rows[i].hosts);
		settings_free(s);
	}
}

static void test_write_hosts_without_the_rule_or_policy_warn(void **state)
{
	struct load off = {.env = {"AGENTIC_WRITE_HOSTS=a.test", "EGRESS_READ_ONLY=off"}};
	struct load denied = {.env = {"AGENTIC_WRITE_HOSTS=a.test b.test",
				      "OPENSANDBOX_EGRESS_RULES={\"egress\":[{\"action\":\"allow\","
				      "\"target\":\"a.test\"}]}"}};
	struct outcome o;

	load_env(&off, false, false, &o);
	assert_int_equal(o.ret, 0);
	assert_non_null(strstr(o.log, "write hosts have no effect"));
	settings_free(o.s);
	load_env(&denied, false, false, &o);
	assert_int_equal(o.ret, 0);
	assert_non_null(strstr(o.log, "write host b.test is not allowed by policy"));
	settings_free(o.s);
}

static void test_pass_through_under_the_rule_lists_write_hosts_only(void **state)
{
	static const struct {
		const char *write;
		const char *pass;
		bool good;
	} rows[] = {
		{"a.test", "a.test", true},
		{"a.test", "b.test", false},
		{"a.test", "x.a.test", false},
		{"a.test", "*.a.test", false},
		{"a.test", ".a.test", false},
		{"*.a.test", "a.test", false},
		{"*.a.test", "x.a.test", true},
		{"*.a.test", "*.a.test", true},
		{"*.a.test", "*.b.a.test", true},
		{"*.a.test", ".b.a.test", true},
		{"*.a.test", ".a.test", false},
		{"*.b.a.test", "*.a.test", false},
		{".a.test", ".a.test", true},
		{".a.test", "*.a.test", true},
		{".a.test", "a.test", true},
		{".a.test", "*.xa.test", false},
	};
	size_t i;

	for (i = 0; i < ARRAY_LEN(rows); i++) {
		char write[64];
		char pass[64];
		struct load l = {.env = {write, pass}};
		struct outcome o;

		(void)snprintf(write, sizeof(write), "AGENTIC_WRITE_HOSTS=%s", rows[i].write);
		(void)snprintf(pass, sizeof(pass), "EGRESS_PASS_THROUGH=%s", rows[i].pass);
		load_env(&l, false, false, &o);
		if ((o.ret == 0) != rows[i].good)
			fail_msg("%s %s: %s", write, pass, o.msg.text);
		if (!rows[i].good)
			assert_non_null(strstr(o.msg.text, "EGRESS_PASS_THROUGH: "));
		settings_free(o.s);
		/* Without the rule anything may be listed. */
		l.env[2] = "EGRESS_READ_ONLY=off";
		load_env(&l, false, false, &o);
		assert_int_equal(o.ret, 0);
		settings_free(o.s);
	}
}

static void test_policy_comes_from_file_then_variable_then_yaml(void **state)
{
	static const char yaml[] = "policy:\n  egress:\n    - {action: allow, target: y.test}\n";
	static const char var[] = "OPENSANDBOX_EGRESS_RULES={\"egress\":[{\"action\":\"allow\","
				  "\"target\":\"v.test\"}]}";
	static const char file[] = "{\"egress\":[{\"action\":\"allow\",\"target\":\"f.test\"}]}";
	static const char path[] = "OPENSANDBOX_EGRESS_POLICY_FILE=/p";
	const struct {
		struct load l;
		const char *target; /* NULL: no rule */
		const char *log;
	} rows[] = {
		{{yaml, file, NULL, .env = {PROXY, RESOLVERS, CERT, var, path}}, "f.test", NULL},
		{{yaml, NULL, NULL, .env = {PROXY, RESOLVERS, CERT, var, path}}, "v.test", NULL},
		{{yaml, "", NULL, .env = {PROXY, RESOLVERS, CERT, var, path}}, "v.test",
			"/p: empty"},
		{{yaml, " \n", NULL, .env = {PROXY, RESOLVERS, CERT, var, path}}, "v.test",
			"/p: empty"},
		{{yaml, "{", NULL, .env = {PROXY, RESOLVERS, CERT, var, path}}, "v.test", "/p: "},
		{{yaml, "{", NULL, .env = {PROXY, RESOLVERS, CERT, path}}, "y.test", "/p: "},
		{{yaml, "null", NULL, .env = {PROXY, RESOLVERS, CERT, var, path}}, NULL, NULL},
		{{yaml, NULL, NULL, .env = {PROXY, RESOLVERS, CERT}}, "y.test", NULL},
		{{"policy:\n", NULL, NULL, .env = {PROXY, RESOLVERS, CERT}}, NULL, NULL},
		{{yaml, NULL, NULL, .env = {PROXY, RESOLVERS, CERT, "OPENSANDBOX_EGRESS_RULES= "}},
			NULL, NULL},
		{{NULL, NULL, NULL, .env = {PROXY, RESOLVERS, CERT}}, NULL, "everything is denied"},
	};
	size_t i;

	for (i = 0; i < ARRAY_LEN(rows); i++) {
		struct outcome o;

		load_env(&rows[i].l, true, false, &o);
		assert_int_equal(o.ret, 0);
		assert_int_equal(policy_n_rules(o.s->policy), rows[i].target ? 1 : 0);
		assert_false(policy_default_allow(o.s->policy));
		if (rows[i].target)
			assert_string_equal(policy_rule(o.s->policy, 0)->written, rows[i].target);
		if (rows[i].log ? !strstr(o.log, rows[i].log) : o.log[0] != '\0')
			fail_msg("row %zu: logged \"%s\"", i, o.log);
		settings_free(o.s);
	}
}

static void test_wrong_rule_in_yaml_is_named_by_its_line(void **state)
{
	struct load l = {.yaml = "read_only: true\n"
				 "policy:\n"
				 "  defaultAction: deny\n"
				 "  egress:\n"
				 "    - {action: allow, target: a.test}\n"
				 "    - action: allow\n"
				 "      target: http://b.test\n",
		.env = {PROXY, RESOLVERS, CERT}};
	struct outcome o;

	load_env(&l, true, false, &o);
	assert_true(o.ret < 0);
	assert_non_null(strstr(o.msg.text, "egress.yaml:6: policy: egress[1]"));
	l.yaml = "policy:\n  defaultAction: maybe\n";
	load_env(&l, true, false, &o);
	assert_true(o.ret < 0);
	assert_non_null(strstr(o.msg.text, "egress.yaml:1: policy: "));
}

static void test_policy_path_is_read_from_the_environment_alone(void **state)
{
	char *const none[] = {(char[]){"A=b"}, NULL};
	char *const empty[] = {(char[]){"OPENSANDBOX_EGRESS_POLICY_FILE="}, NULL};
	char *const set[] = {(char[]){"OPENSANDBOX_EGRESS_POLICY_FILE=/p"}, NULL};

	assert_null(settings_policy_path(none));
	assert_null(settings_policy_path(empty));
	assert_string_equal(settings_policy_path(set), "/p");
}

#define CEILING "EGRESS_POLICY_CEILING_FILE=/c"

static void test_ceiling_is_over_policy_and_rule_files(void **state)
{
	static const char *const texts[] = {
		"defaultAction: deny\negress:\n  - {action: allow, target: a.test}\n",
		" {\"egress\":[{\"action\":\"allow\",\"target\":\"a.test\"}]}",
	};

	for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
		struct load l = {.ceiling = texts[i],
			.allow = "b.test\n",
			.env = {PROXY, RESOLVERS, CERT, CEILING,
				"OPENSANDBOX_EGRESS_RULES={\"defaultAction\":\"allow\"}"}};
		struct outcome o;

		load_env(&l, true, false, &o);
		if (o.ret < 0)
			fail_msg("%s", o.msg.text);
		assert_true(policy_check_name(o.s->policy, SLICE("a.test"), 443).allow);
		assert_false(policy_check_name(o.s->policy, SLICE("b.test"), 443).allow);
		assert_false(policy_check_name(o.s->policy, SLICE("c.test"), 443).allow);
		assert_false(policy_default_allow(o.s->policy));
		assert_true(policy_default_allow(o.s->user_policy));
		assert_non_null(strstr(o.log,
			"policy: default action: allow: above the operator's ceiling (default "
			"action: deny); it counts as far as the ceiling goes"));
		settings_free(o.s);
	}
}

/* It must never mean that everything may be allowed. */
static void test_ceiling_that_cannot_be_used_is_an_error(void **state)
{
	static const struct {
		const char *text, *want;
	} rows[] = {
		{NULL, "EGRESS_POLICY_CEILING_FILE: /c: No such file"},
		{"", "EGRESS_POLICY_CEILING_FILE: /c: empty: expected a policy document"},
		{" \n", "/c: empty"},
		{"{", "EGRESS_POLICY_CEILING_FILE: /c: "},
		{"egress:\n  - {action: permit, target: a.test}\n", "/c: egress"},
		{"a: [\n", "expected YAML"},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct load l = {.ceiling = rows[i].text, .env = {PROXY, RESOLVERS, CERT, CEILING}};
		struct outcome o;

		load_env(&l, true, false, &o);
		if (o.ret == 0)
			fail_msg("row %zu is taken", i);
		if (!strstr(o.msg.text, rows[i].want))
			fail_msg("row %zu: %s", i, o.msg.text);
	}
}

static void test_path_of_the_ceiling_is_known_before_the_rest(void **state)
{
	char *const env[] = {(char[]){"EGRESS_POLICY_CEILING_FILE=/e"}, NULL};
	char *const none[] = {NULL};
	int yaml = text_fd("policy_ceiling: /y\nunknown: 1\n");
	int broken = text_fd("policy_ceiling: [\n");
	struct settings_source src = {.config_path = "c",
		.config_fd = yaml,
		.policy_fd = -1,
		.resolv_conf_fd = -1,
		.environ = none};
	char *path = settings_ceiling_path(&src);

	assert_string_equal(path, "/y");
	free(path);
	src.environ = env;
	path = settings_ceiling_path(&src);
	assert_string_equal(path, "/e");
	free(path);
	src.environ = none;
	src.config_fd = broken;
	assert_null(settings_ceiling_path(&src));
	(void)close(yaml);
	(void)close(broken);
}

static void test_rule_files_stand_before_the_policy(void **state)
{
	struct load l = {.deny = "bad.test\n",
		.allow = "# us\ngood.test\n10.1.2.3\n",
		.log_skip = "*.noise.test\n",
		.env = {PROXY, RESOLVERS, CERT,
			"OPENSANDBOX_EGRESS_RULES={\"egress\":[{\"action\":\"deny\",\"target\":"
			"\"good.test\"}]}"}};
	struct outcome o;

	load_env(&l, true, false, &o);
	if (o.ret < 0)
		fail_msg("%s", o.msg.text);
	assert_int_equal(policy_n_rules(o.s->policy), 4);
	assert_int_equal(policy_n_deny_always(o.s->policy), 1);
	assert_int_equal(policy_n_allow_always(o.s->policy), 2);
	assert_int_equal(policy_n_rules(o.s->user_policy), 1);
	assert_true(policy_check_name(o.s->policy, SLICE("good.test"), 443).allow);
	assert_true(policy_check_name(o.s->log_skip, SLICE("a.noise.test"), 0).allow);
	assert_false(policy_check_name(o.s->log_skip, SLICE("noise.test"), 0).allow);
	assert_string_equal(o.s->rules_dir, "/var/egress/rules");
	settings_drop_policy(o.s);
	assert_null(o.s->policy);
	settings_free(o.s);
}

static void test_bad_line_of_a_rule_file_is_named(void **state)
{
	static const struct {
		struct load l;
		const char *want;
	} rows[] = {
		{{.deny = "a.test\nhttp://x\n"}, "/r/deny.always: line 2: target \"http://x\""},
		{{.allow = "*\n"}, "/r/allow.always: line 1: "},
		{{.log_skip = "10.0.0.1\n"}, "/r/log_skip.always: line 1: "},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct load l = rows[i].l;
		struct outcome o;

		l.env[0] = "EGRESS_RULES_DIR=/r";
		load_env(&l, false, false, &o);
		assert_int_equal(o.ret, E_VALUE);
		if (strncmp(o.msg.text, rows[i].want, strlen(rows[i].want)) != 0)
			fail_msg("%s", o.msg.text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_write_hosts_switch_the_rule_on_even_when_empty),
		cmocka_unit_test(test_write_hosts_without_the_rule_or_policy_warn),
		cmocka_unit_test(test_pass_through_under_the_rule_lists_write_hosts_only),
		cmocka_unit_test(test_policy_comes_from_file_then_variable_then_yaml),
		cmocka_unit_test(test_wrong_rule_in_yaml_is_named_by_its_line),
		cmocka_unit_test(test_ceiling_is_over_policy_and_rule_files),
		cmocka_unit_test(test_ceiling_that_cannot_be_used_is_an_error),
		cmocka_unit_test(test_path_of_the_ceiling_is_known_before_the_rest),
		cmocka_unit_test(test_rule_files_stand_before_the_policy),
		cmocka_unit_test(test_bad_line_of_a_rule_file_is_named),
		cmocka_unit_test(test_policy_path_is_read_from_the_environment_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
