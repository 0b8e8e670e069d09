/* What `egressctl vault list` prints: names and places, visible text only. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "ctl/vault_print.h"

static void assert_printed(const char *state_text, const char *want)
{
	json_t *state = json_loads(state_text, 0, NULL);
	struct strbuf out;

	assert_non_null(state);
	strbuf_init(&out, 1u << 20);
	vault_print(state, "/v.yaml", &out);
	assert_string_equal(strbuf_cstr(&out), want);
	strbuf_fini(&out);
	json_decref(state);
}

static void test_every_binding_is_printed_with_its_match(void **state)
{
	assert_printed("{\"credentials\":[{\"name\":\"anthropic\",\"sourceType\":\"inline\"},"
		       "{\"name\":\"git\",\"sourceType\":\"inline\"}],"
		       "\"bindings\":[{\"name\":\"model\",\"match\":{\"schemes\":[\"https\"],"
		       "\"hosts\":[\"api.test\",\"*.api.test\"],\"methods\":[\"GET\",\"POST\"],"
		       "\"paths\":[\"/v1/*\"]},\"auth\":{\"type\":\"apiKey\",\"name\":"
		       "\"X-Api-Key\"}},{\"name\":\"repo\",\"match\":{\"schemes\":[\"https\"],"
		       "\"hosts\":[\"git.test\"],\"methods\":[\"GET\"],\"paths\":[\"/a\"]},"
		       "\"auth\":{\"type\":\"basic\"}}]}",
		"file      /v.yaml\n"
		"revision  known to the running egress only\n"
		"\n"
		"credentials: 2\n"
		"  anthropic  inline\n"
		"  git        inline\n"
		"\n"
		"bindings: 2\n"
		"  model\n"
		"    auth     apiKey X-Api-Key\n"
		"    schemes  https\n"
		"    hosts    api.test *.api.test\n"
		"    methods  GET POST\n"
		"    paths    /v1/*\n"
		"  repo\n"
		"    auth     basic\n"
		"    schemes  https\n"
		"    hosts    git.test\n"
		"    methods  GET\n"
		"    paths    /a\n");
}

static void test_an_empty_vault_is_printed_too(void **state)
{
	assert_printed("{\"credentials\":[],\"bindings\":[]}",
		"file      /v.yaml\nrevision  known to the running egress only\n\n"
		"credentials: 0\n\nbindings: 0\n");
}

static void test_names_cannot_move_the_cursor(void **state)
{
	assert_printed("{\"credentials\":[{\"name\":\"a\\u001b[2J\\u202e\"}],\"bindings\":[]}",
		"file      /v.yaml\nrevision  known to the running egress only\n\n"
		"credentials: 1\n  a\\u001b[2J\\u202e -\n\nbindings: 0\n");
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_binding_is_printed_with_its_match),
		cmocka_unit_test(test_an_empty_vault_is_printed_too),
		cmocka_unit_test(test_names_cannot_move_the_cursor),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
