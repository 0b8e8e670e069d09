/* Error codes have texts, and messages are cut at their size. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/err.h"

static void test_each_code_has_its_own_text(void **state)
{
	static const struct {
		int code;
		const char *text;
	} rows[] = {
#define X(name, text) {name, text},
		ERR_TABLE(X)
#undef X
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		assert_string_equal(err_text(rows[i].code), rows[i].text);
		assert_true(rows[i].code > ERR_BASE && rows[i].code < ERR_END);
	}
}

static void test_errno_and_unknown_codes_have_a_text(void **state)
{
	assert_string_equal(err_text(-ENOENT), "No such file or directory");
	assert_string_equal(err_text(0), "no error");
	assert_string_equal(err_text(ERR_BASE), "an unknown error code");
	assert_string_equal(err_text(ERR_BASE - 1), "an unknown error code");
	assert_string_equal(err_text(ENOENT), "an unknown error code");
	assert_non_null(strstr(err_text(ERR_END), "Unknown error"));
}

static void test_message_is_written_and_code_returned(void **state)
{
	struct errmsg m;

	assert_int_equal(errmsg_set(&m, E_VALUE, "port %d", 70000), E_VALUE);
	assert_string_equal(m.text, "port 70000");
	assert_int_equal(errmsg_set(NULL, -EINVAL, "%s", "x"), -EINVAL);
	assert_int_equal(errmsg_prefix(NULL, -EINVAL, "%s", "x"), -EINVAL);
}

static void test_prefix_stands_before_message(void **state)
{
	struct errmsg m;

	errmsg_set(&m, E_VALUE, "not a port");
	assert_int_equal(errmsg_prefix(&m, E_SYNTAX, "rule %d", 3), E_SYNTAX);
	assert_string_equal(m.text, "rule 3: not a port");
	errmsg_prefix(&m, E_SYNTAX, "policy");
	assert_string_equal(m.text, "policy: rule 3: not a port");
}

static void test_long_messages_are_cut(void **state)
{
	struct errmsg m;
	char text[sizeof(m.text) + 1];

	memset(text, 'a', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	errmsg_set(&m, E_VALUE, "%s", text);
	assert_int_equal(strlen(m.text), sizeof(m.text) - 1);

	/* The end of the message gives way to the prefix. */
	errmsg_prefix(&m, E_VALUE, "p");
	assert_int_equal(strlen(m.text), sizeof(m.text) - 1);
	assert_memory_equal(m.text, "p: aaa", 6);

	/* A prefix that fills the text leaves room for its separator and nothing else. */
	errmsg_set(&m, E_VALUE, "m");
	errmsg_prefix(&m, E_VALUE, "%s", text);
	assert_int_equal(strlen(m.text), sizeof(m.text) - 1);
	assert_memory_equal(m.text + sizeof(m.text) - 4, "a: ", 4);

	/* One byte less, and the message is still there. */
	text[sizeof(m.text) - 4] = '\0';
	errmsg_set(&m, E_VALUE, "m");
	errmsg_prefix(&m, E_VALUE, "%s", text);
	assert_memory_equal(m.text + sizeof(m.text) - 4, ": m", 4);
}

static void test_broken_requirement_names_itself_and_aborts(void **state)
{
	char text[256] = "";
	int ends[2];
	int status;
	ssize_t n;
	pid_t pid;

	assert_int_equal(pipe(ends), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		if (dup2(ends[1], STDERR_FILENO) < 0 || signal(SIGABRT, SIG_DFL) == SIG_ERR)
			_exit(1);
		REQUIRE(text[0] == 'x');
		_exit(0);
	}
	(void)close(ends[1]);
	n = read(ends[0], text, sizeof(text) - 1);
	(void)close(ends[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	assert_true(n > 0);
	assert_non_null(strstr(text, "text[0] == 'x'"));
	assert_non_null(strstr(text, "test_err.c:"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_code_has_its_own_text),
		cmocka_unit_test(test_errno_and_unknown_codes_have_a_text),
		cmocka_unit_test(test_message_is_written_and_code_returned),
		cmocka_unit_test(test_prefix_stands_before_message),
		cmocka_unit_test(test_long_messages_are_cut),
		cmocka_unit_test(test_broken_requirement_names_itself_and_aborts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
