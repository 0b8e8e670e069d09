/* Mutations (reference 1.5 to 1.7): what is in force afterwards, and what a refusal says and
 * leaves. U numbers are lines of the conformance catalogue. */
#include <errno.h>

#include "tests/unit/vault/fixture.h"
#include "vault/vault_int.h"

#define CREDENTIAL(name, value) "{'name':'" name "','source':{'value':'" value "'}}"
#define BINDING(name, host, key)                                           \
	"{'name':'" name "','match':{'hosts':['" host "'],'paths':['/v1']" \
	"},'auth':{'type':'bearer','credential':'" key "'}}"

/* Two keys, one of them used twice; one binding with everything that a copy must not lose. */
static const char base[] = "{'credentials':[" CREDENTIAL("k", "sk-first-0001") "," CREDENTIAL(
	"m", "sk-other-0002") "],"
			      "'bindings':[" BINDING("b", "api.test",
				      "k") ","
					   "{'name':'s','match':{'hosts':['s.test','*.t.test'],'"
					   "methods':['get'],'paths':['/a','/b/*']},"
					   "'auth':{'type':'customHeaders','headers':[{'name':'x-"
					   "one','credential':'k'},"
					   "{'name':'x-two','credential':'m'}],'substitutions':[{'"
					   "credential':'m',"
					   "'placeholder':'ph-model-1','in':['query:q','header','"
					   "json:/a/b']}]}}]}";

static int patch(struct fixture *f, const char *text)
{
	char *doc = fixture_quotes(text);
	int ret;

	f->msg.text[0] = '\0';
	ret = vault_patch(f->vault, slice_str(doc), &f->rules, &f->msg);
	free(doc);
	return ret;
}

static void must_patch(struct fixture *f, const char *text)
{
	if (patch(f, text) < 0)
		fail_msg("%s", f->msg.text);
}

/* The blob, with keys; freed by the caller. */
static char *blob_of(struct fixture *f)
{
	size_t len;
	char *blob = vault_encode(f->vault, &len);
	char *copy = xmalloc(len + 1);

	memcpy(copy, blob, len);
	copy[len] = '\0';
	secmem_release(f->mem, blob);
	return copy;
}

static void assert_blob(struct fixture *f, const char *part, bool there)
{
	char *blob = blob_of(f);
	char *want = fixture_quotes(part);

	if ((strstr(blob, want) != NULL) != there)
		fail_msg("%s in %s", there ? part : "unwanted", blob);
	free(blob);
	free(want);
}

/* Each is refused with this text, and nothing has changed. */
static const struct {
	const char *doc;
	int ret;
	const char *want;
} refusals[] = {
	/* 1.7: names */
	{"{'credentials':{'delete':['x']}}", E_VALUE, "credential \"x\" does not exist"},
	{"{'credentials':{'replace':[" CREDENTIAL("x", "v") "]}}", E_VALUE,
		"credential \"x\" does not exist"},
	{"{'credentials':{'add':[" CREDENTIAL("k", "v") "]}}", E_VALUE,
		"credential \"k\" already exists"},
	{"{'credentials':{'delete':['  ']}}", E_VALUE, "credential delete name cannot be blank"},
	{"{'credentials':{'add':[" CREDENTIAL("x", "v") "," CREDENTIAL(" x ", "w") "]}}", E_VALUE,
		"duplicate credential add name \"x\""},
	{"{'credentials':{'add':[" CREDENTIAL("m", "v") "],'delete':['m']}}", E_VALUE,
		"credential \"m\" mentioned by multiple operations"},
	{"{'credentials':{'replace':[" CREDENTIAL("k", "v") "],'delete':['k']}}", E_VALUE,
		"credential \"k\" mentioned by multiple operations"},
	{"{'credentials':{'replace':[" CREDENTIAL("k", "v") "," CREDENTIAL("k", "w") "]}}", E_VALUE,
		"credential \"k\" mentioned by multiple operations"},
	{"{'credentials':{'delete':['k',' k']}}", E_VALUE,
		"credential \"k\" mentioned by multiple operations"},
	{"{'bindings':{'delete':['x']}}", E_VALUE, "binding \"x\" does not exist"},
	{"{'bindings':{'replace':[" BINDING("x", "x.test", "k") "]}}", E_VALUE,
		"binding \"x\" does not exist"},
	{"{'bindings':{'add':[" BINDING("b", "x.test", "k") "]}}", E_VALUE,
		"binding \"b\" already exists"},
	{"{'bindings':{'delete':['']}}", E_VALUE, "binding delete name cannot be blank"},
	{"{'bindings':{'add':[" BINDING("x", "x.test", "k") "," BINDING("x", "y.test", "k") "]}}",
		E_VALUE, "duplicate binding add name \"x\""},
	{"{'bindings':{'add':[" BINDING("b", "x.test", "k") "],'delete':['b']}}", E_VALUE,
		"binding \"b\" mentioned by multiple operations"},
	/* U27: what a surviving binding uses; the order of the operations is fixed */
	{"{'credentials':{'delete':['k']}}", E_VALUE,
		"binding \"b\" references unknown credential \"k\""},
	{"{'credentials':{'delete':['m']}}", E_VALUE,
		"binding \"s\" references unknown credential \"m\""},
	{"{'bindings':{'add':[" BINDING("x", "x.test", "nope") "]}}", E_VALUE,
		"binding \"x\" references unknown credential \"nope\""},
	/* of the whole candidate: with what stays */
	{"{'bindings':{'add':[" BINDING("x", "api.test", "m") "]}}", E_VALUE,
		"bindings \"b\" and \"x\" can match the same request"},
	{"{'bindings':{'add':[{'name':'x','match':{'hosts':['x.test'],'schemes':['http']},"
	 "'auth':{'type':'passthrough'}}]}}",
		E_VALUE, "scheme \"http\" is refused"},
	{"{'credentials':{'replace':[" CREDENTIAL("k", "two\\nlines") "]}}", E_VALUE,
		"credential \"k\": its value cannot stand in a header"},
	{"{'credentials':{'add':[" CREDENTIAL("x", "ph-model-1") "]}}", E_VALUE,
		"credential \"x\": its value is also a placeholder"},
	{"{'credentials':{'add':[{'name':'x','source':{'type':'file','value':'/k'}}]}}", E_VALUE,
		"credential \"x\": unsupported credential source type \"file\""},
	/* documents that are none */
	{"", E_SYNTAX, "not valid JSON"},
	{"[]", E_SYNTAX, "an object was expected"},
	{"{} {}", E_SYNTAX, "not valid JSON"},
	{"{'expectedRevision':1,'expectedRevision':1}", E_SYNTAX, "stands there twice"},
	{"{'expectedRevision':'1'}", E_SYNTAX, "expectedRevision: a whole number was expected"},
	{"{'expectedRevision':1.0}", E_SYNTAX, "expectedRevision: a whole number was expected"},
	{"{'expectedRevision':99999999999999999999}", E_SYNTAX, "not valid JSON"},
	{"{'revision':1}", E_UNKNOWN, "unknown field \"revision\""},
	{"{'credentials':[]}", E_SYNTAX, "credentials: an object was expected"},
	{"{'credentials':{'remove':[]}}", E_UNKNOWN, "credentials: unknown field \"remove\""},
	{"{'credentials':{'add':{}}}", E_SYNTAX, "credentials: add: a list was expected"},
	{"{'credentials':{'delete':[1]}}", E_SYNTAX,
		"credentials: delete: a list of names was expected"},
	{"{'bindings':{'delete':[{}]}}", E_SYNTAX,
		"bindings: delete: a list of names was expected"},
	{"{'credentials':{'add':[{'name':'x','revision':1,'source':{'value':'v'}}]}}", E_UNKNOWN,
		"unknown field \"revision\""},
	/* U16, 1.6: which revision the caller saw */
	{"{'expectedRevision':2}", -ESTALE, "expectedRevision 2 does not match current revision 1"},
	{"{'expectedRevision':0}", -ESTALE, "expectedRevision 0 does not match current revision 1"},
	{"{'expectedRevision':-1}", -ESTALE,
		"expectedRevision -1 does not match current revision 1"},
	/* 1.5: what cannot be read is told first, what does not fit last */
	{"{'expectedRevision':7,'credentials':{'delete':['x']}}", -ESTALE, "expectedRevision 7 "},
	{"{'expectedRevision':7,'credentials':{'remove':['x']}}", E_UNKNOWN, "unknown field"},
};

static void test_refused_mutation_says_why_and_changes_nothing(void **arg)
{
	struct fixture f;
	char *before;

	fixture_open(&f);
	fixture_load(&f, base);
	before = blob_of(&f);
	for (size_t i = 0; i < ARRAY_LEN(refusals); i++) {
		size_t used = secmem_used(f.mem);
		char *after;

		assert_int_equal(patch(&f, refusals[i].doc), refusals[i].ret);
		if (!strstr(f.msg.text, refusals[i].want))
			fail_msg("wanted \"%s\", got \"%s\"", refusals[i].want, f.msg.text);
		after = blob_of(&f);
		assert_string_equal(before, after);
		assert_int_equal(secmem_used(f.mem), used);
		free(after);
	}
	free(before);
	fixture_close(&f);
}

/* Each is taken: revision 2 has the one text and not the other. */
static const struct {
	const char *doc, *has, *has_not;
} changes[] = {
	{"{}", "{'revision':2,", "'revision':3"},
	{"{'expectedRevision':null,'credentials':null,'bindings':null}", "{'revision':2,", "x"},
	{"{'expectedRevision':1}", "{'revision':2,", "zzz"},
	{"{'credentials':{'add':null,'replace':null,'delete':null}}", "{'revision':2,", "zzz"},
	{"{'credentials':{'add':[" CREDENTIAL(" x ", "v") "]}}",
		"{'name':'x','source':{'type':'inline','value':'v'},'revision':2}", "zzz"},
	{"{'credentials':{'replace':[" CREDENTIAL("k", "sk-new-0003") "]}}",
		"{'name':'k','source':{'type':'inline','value':'sk-new-0003'},'revision':2}",
		"sk-first-0001"},
	/* the same value is a replacement, too */
	{"{'credentials':{'replace':[" CREDENTIAL("k", "sk-first-0001") "]}}",
		"{'name':'k','source':{'type':'inline','value':'sk-first-0001'},'revision':2},"
		"{'name':'m','source':{'type':'inline','value':'sk-other-0002'},'revision':1}",
		"zzz"},
	/* U27 */
	{"{'credentials':{'delete':['k','m']},'bindings':{'delete':['b','s']}}",
		"{'revision':2,'credentials':[],'bindings':[]}", "sk-"},
	/* the whole object is another one */
	{"{'bindings':{'replace':[{'name':'s','match':{'hosts':['s.test']},"
	 "'auth':{'type':'passthrough'}}]}}",
		"{'name':'s','match':{'schemes':['https'],'hosts':['s.test']},"
		"'auth':{'type':'passthrough'}}",
		"ph-model-1"},
	/* deletes come first, adds last: the place of what goes is free */
	{"{'bindings':{'delete':['b'],'add':[" BINDING("x", "api.test", "m") "]}}", "'name':'x'",
		"'name':'b'"},
	{"{'credentials':{'delete':['k'],'add':[" CREDENTIAL("x",
		 "v") "]},"
		      "'bindings':{'replace':[" BINDING("b", "api.test", "x") "],'delete':['s']}}",
		"'credential':'x'", "sk-first-0001"},
};

static void test_mutation_is_in_force_as_a_whole(void **arg)
{
	for (size_t i = 0; i < ARRAY_LEN(changes); i++) {
		struct fixture f;

		fixture_open(&f);
		fixture_load(&f, base);
		must_patch(&f, changes[i].doc);
		assert_int_equal(vault_revision(f.vault), 2);
		assert_blob(&f, changes[i].has, true);
		assert_blob(&f, changes[i].has_not, false);
		fixture_close(&f);
	}
}

/* What is not named is the same to the byte, and works. */
static void test_what_is_not_named_stays(void **arg)
{
	struct vault_view *before;
	struct vault_view *after;
	const struct binding *b;
	struct fixture f;
	char *first;
	char *second;

	fixture_open(&f);
	fixture_load(&f, base);
	first = blob_of(&f);
	before = vault_view_get(f.vault);
	must_patch(&f, "{}");
	second = blob_of(&f);
	/* but for the number */
	assert_string_equal(first + strlen("{\"revision\":1"), second + strlen("{\"revision\":2"));
	free(first);
	free(second);
	must_patch(&f, "{'credentials':{'replace':[" CREDENTIAL("m", "sk-later-0004") "]}}");
	after = vault_view_get(f.vault);
	b = fixture_bound(after, "x.t.test", "/b/c");
	assert_true(slice_eq(binding_field(b, 0).value, SLICE("sk-first-0001")));
	assert_true(slice_eq(binding_field(b, 1).value, SLICE("sk-later-0004")));
	/* 1.6: who began with the view before keeps it to the end */
	b = fixture_bound(before, "x.t.test", "/b/c");
	assert_true(slice_eq(binding_field(b, 1).value, SLICE("sk-other-0002")));
	/* a value that did not change is in memory once */
	assert_ptr_equal(binding_field(fixture_bound(before, "api.test", "/v1"), 0).value.p,
		binding_field(fixture_bound(after, "api.test", "/v1"), 0).value.p);
	vault_view_unref(before);
	assert_int_equal(vault_revision(f.vault), 3);
	/* the copy does not lean on the view that is gone */
	b = fixture_bound(after, "s.test", "/a");
	assert_true(slice_eq(binding_name(b), SLICE("s")));
	vault_view_unref(after);
	fixture_close(&f);
}

/* U16: the rules of scope hold for what a mutation brings. */
static void test_scope_is_demanded_of_a_mutation(void **arg)
{
	struct fixture f;

	fixture_open(&f);
	f.rules.require_scoped_match = true;
	fixture_load(&f,
		"{'credentials':[" CREDENTIAL(
			"k", "sk-first-0001") "],'bindings':[{'name':'b',"
					      "'match':{'hosts':['api.test'],'methods':['GET'],'"
					      "paths':['/v1']},"
					      "'auth':{'type':'bearer','credential':'k'}}]}");
	assert_int_equal(
		patch(&f, "{'bindings':{'add':[" BINDING("x", "x.test", "k") "]}}"), E_VALUE);
	assert_string_equal(f.msg.text,
		"binding \"x\": match.methods must be explicit when scoped-match enforcement is "
		"enabled");
	assert_int_equal(
		patch(&f, "{'bindings':{'replace':[" BINDING("b", "x.test", "k") "]}}"), E_VALUE);
	assert_int_equal(vault_revision(f.vault), 1);
	assert_blob(&f, "api.test", true);
	/* what was explicit is, in the copy */
	must_patch(&f, "{}");
	fixture_close(&f);
}

/* 1.10: every mutation is judged by the policy in force, also for what it does not name. */
static void test_mutation_is_judged_by_the_policy_in_force(void **arg)
{
	struct fixture f;

	fixture_open(&f);
	fixture_load(&f, base);
	fixture_set_policy(&f, "{'egress':[{'action':'allow','target':'api.test'}]}");
	assert_int_equal(patch(&f, "{}"), E_VALUE);
	assert_string_equal(
		f.msg.text, "binding \"s\" host \"s.test\" is not allowed by egress policy");
	must_patch(&f, "{'bindings':{'delete':['s']}}");
	assert_int_equal(
		patch(&f, "{'bindings':{'add':[" BINDING("x", "x.test", "k") "]}}"), E_VALUE);
	assert_int_equal(vault_revision(f.vault), 2);
	fixture_close(&f);
}

/* 1.5: 404 for what is absent, but 400 for what cannot be read. */
static void test_mutation_and_deletion_need_a_vault(void **arg)
{
	struct fixture f;

	fixture_open(&f);
	assert_int_equal(patch(&f, "{}"), -ENOENT);
	assert_string_equal(f.msg.text, "credential vault not found");
	assert_int_equal(patch(&f, "{'expectedRevision':1}"), -ENOENT);
	assert_int_equal(patch(&f, "{'credentials':{'delete':['k']}}"), -ENOENT);
	assert_int_equal(patch(&f, "{"), E_SYNTAX);
	assert_int_equal(vault_delete(f.vault, &f.msg), -ENOENT);
	assert_string_equal(f.msg.text, "credential vault not found");
	assert_false(vault_exists(f.vault));
	fixture_close(&f);
}

/* U6: revision 1 again, another view, the new value; the view before lives with who has it. */
static void test_vault_after_a_deletion_begins_anew(void **arg)
{
	struct vault_view *before;
	struct vault_view *after;
	struct fixture f;
	char *doc = fixture_quotes("{'credentials':[" CREDENTIAL(
		"k", "sk-new-0003") "],"
				    "'bindings':[" BINDING("b", "api.test", "k") "]}");

	fixture_open(&f);
	fixture_load(&f, base);
	must_patch(&f, "{}");
	before = vault_view_get(f.vault);
	assert_int_equal(vault_delete(f.vault, &f.msg), 0);
	assert_false(vault_exists(f.vault));
	assert_int_equal(vault_revision(f.vault), 0);
	assert_null(vault_view_get(f.vault));
	assert_null(vault_state_json(f.vault));
	assert_int_equal(vault_create(f.vault, slice_str(doc), &f.rules, &f.msg), 0);
	after = vault_view_get(f.vault);
	assert_ptr_not_equal(before, after);
	assert_int_equal(vault_view_revision(after), 1);
	assert_true(slice_eq(binding_field(fixture_bound(before, "api.test", "/v1"), 0).value,
		SLICE("sk-first-0001")));
	assert_true(slice_eq(binding_field(fixture_bound(after, "api.test", "/v1"), 0).value,
		SLICE("sk-new-0003")));
	vault_view_unref(before);
	vault_view_unref(after);
	free(doc);
	fixture_close(&f);
}

/* 1.5: a document that cannot be read is that also where a vault exists. */
static void test_create_tells_unreadable_before_existing(void **arg)
{
	struct fixture f;

	fixture_open(&f);
	fixture_load(&f, base);
	assert_int_equal(vault_create(f.vault, SLICE("{"), &f.rules, &f.msg), E_SYNTAX);
	assert_int_equal(vault_create(f.vault, SLICE("{\"x\":1}"), &f.rules, &f.msg), E_UNKNOWN);
	assert_int_equal(vault_create(f.vault, SLICE("{\"credentials\":[{\"name\":\"\"}]}"),
				 &f.rules, &f.msg),
		-EEXIST);
	assert_int_equal(vault_create(f.vault, SLICE("{}"), &f.rules, &f.msg), -EEXIST);
	assert_string_equal(f.msg.text, "credential vault already exists");
	assert_int_equal(vault_revision(f.vault), 1);
	fixture_close(&f);
}

/* Wherever memory ends, the mutation is refused and nothing of it stays. */
static void test_every_shortage_of_memory_is_clean(void **arg)
{
	size_t refused = 0;

	for (size_t taken = 0; taken < 60; taken++) {
		void *rest[60];
		struct fixture f;
		size_t used;
		int ret;

		fixture_open_sized(&f, 65536);
		fixture_load(&f, base);
		for (size_t i = 0; i < taken; i++)
			rest[i] = secmem_alloc(f.mem, 1000);
		used = secmem_used(f.mem);
		ret = patch(&f,
			"{'credentials':{'replace':[" CREDENTIAL(
				"k", "sk-new-0003") "],"
						    "'add':[" CREDENTIAL("x", "v-v-v-v-v-v") "]}}");
		assert_true(ret == 0 || ret == E_FULL);
		refused += ret == E_FULL;
		if (ret < 0)
			assert_int_equal(secmem_used(f.mem), used);
		for (size_t i = 0; i < taken; i++)
			secmem_release(f.mem, rest[i]);
		fixture_close(&f);
	}
	assert_in_range(refused, 1, 59);
}

/* 1,000 names of each kind in one mutation, on 1,000: no quadratic work. */
static void test_a_thousand_of_each_are_mutated_at_once(void **arg)
{
	static char doc[500000];
	struct vault_view *view;
	struct fixture f;
	size_t len;

	fixture_open_sized(&f, FIXTURE_MEM_LARGE);
	fixture_load(&f, "{}");
	for (int round = 0; round < 2; round++) {
		const char *op = round ? "replace" : "add";

		len = (size_t)snprintf(doc, sizeof(doc), "{'credentials':{'%s':[", op);
		for (int i = 0; i < 1000; i++)
			len += (size_t)snprintf(doc + len, sizeof(doc) - len,
				"%s{'name':'k%d','source':{'value':'key-%d-%04d'}}", i ? "," : "",
				i, round, i);
		len += (size_t)snprintf(doc + len, sizeof(doc) - len, "]},'bindings':{'%s':[", op);
		for (int i = 0; i < 1000; i++)
			len += (size_t)snprintf(doc + len, sizeof(doc) - len,
				"%s{'name':'b%d','match':{'hosts':['h%d.test']},"
				"'auth':{'type':'bearer','credential':'k%d'}}",
				i ? "," : "", i, i, i);
		(void)snprintf(doc + len, sizeof(doc) - len, "]}}");
		must_patch(&f, doc);
	}
	view = vault_view_get(f.vault);
	assert_true(slice_eq(binding_field(fixture_bound(view, "h999.test", "/"), 0).value,
		SLICE("key-1-0999")));
	vault_view_unref(view);
	fixture_close(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refused_mutation_says_why_and_changes_nothing),
		cmocka_unit_test(test_mutation_is_in_force_as_a_whole),
		cmocka_unit_test(test_what_is_not_named_stays),
		cmocka_unit_test(test_scope_is_demanded_of_a_mutation),
		cmocka_unit_test(test_mutation_is_judged_by_the_policy_in_force),
		cmocka_unit_test(test_mutation_and_deletion_need_a_vault),
		cmocka_unit_test(test_vault_after_a_deletion_begins_anew),
		cmocka_unit_test(test_create_tells_unreadable_before_existing),
		cmocka_unit_test(test_every_shortage_of_memory_is_clean),
		cmocka_unit_test(test_a_thousand_of_each_are_mutated_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
