/* DIR/wanted: what is read, whom it fits, and when a policy is the wanted one. */
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ctl/watch_wanted.h"
#include "tests/unit/ctl/fixture.h"

#define POLICY "policy: {defaultAction: deny, egress: [{action: allow, target: Docs.test}]}\n"

struct place {
	char dir[32];
};

static void place_init(struct place *p)
{
	*p = (struct place){.dir = "/tmp/egress-wanted-XXXXXX"};
	assert_non_null(mkdtemp(p->dir));
}

static void place_fini(struct place *p)
{
	static const char *const names[] = {
		"a.yaml", "b.yaml", "c.yaml", ".c.yaml", "notes.txt", "keys.json"};
	char path[80];

	for (size_t i = 0; i < ARRAY_LEN(names); i++) {
		(void)snprintf(path, sizeof(path), "%s/%s", p->dir, names[i]);
		(void)unlink(path);
	}
	assert_int_equal(rmdir(p->dir), 0);
}

static void put(const struct place *p, const char *name, const char *text, mode_t mode)
{
	char path[80];
	FILE *f;

	(void)snprintf(path, sizeof(path), "%s/%s", p->dir, name);
	f = fopen(path, "w");
	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
	assert_int_equal(chmod(path, mode), 0);
}

static const struct wanted *find(const struct wanted *w, const char *metadata)
{
	json_t *doc = metadata ? json_loads(metadata, 0, NULL) : NULL;
	const struct wanted *found = wanted_find(w, doc);

	json_decref(doc);
	return found;
}

static void test_the_first_that_fits_counts(void **state)
{
	struct wanted *w = NULL;
	struct errmsg msg = {""};
	struct place p;

	place_init(&p);
	put(&p, "b.yaml", "select: {metadata: {agent: reviewer}}\n" POLICY, 0600);
	put(&p, "a.yaml", "select: {metadata: {agent: reviewer, task: '7'}}\n" POLICY, 0600);
	put(&p, ".c.yaml", "no\n", 0600);
	put(&p, "notes.txt", "no\n", 0600);
	assert_int_equal(wanted_load(p.dir, &w, &msg), 0);
	assert_string_equal(find(w, "{\"agent\":\"reviewer\",\"task\":\"7\"}")->name, "a.yaml");
	assert_string_equal(find(w, "{\"agent\":\"reviewer\",\"task\":\"8\"}")->name, "b.yaml");
	assert_null(find(w, "{\"agent\":\"writer\"}"));
	assert_null(find(w, "{\"agent\":\"writer\",\"task\":\"7\"}"));
	assert_null(find(w, "{}"));
	assert_null(find(w, NULL));
	put(&p, "c.yaml", "select: {metadata: {}}\n" POLICY, 0600);
	assert_int_equal(wanted_load(p.dir, &w, &msg), 0);
	assert_string_equal(find(w, NULL)->name, "c.yaml");
	wanted_free(w);
	place_fini(&p);
}

static void test_without_a_folder_nothing_is_wanted(void **state)
{
	struct wanted *w = NULL;

	assert_int_equal(wanted_load("/nonexistent", &w, NULL), 0);
	assert_null(w);
}

static void test_wrong_files_are_named_and_change_nothing(void **state)
{
	static const struct {
		const char *text, *part;
	} rows[] = {
		{POLICY, "select"},
		{"select: {metadata: {}}\n", "policy"},
		{"select: {metadata: {a: 1}}\n" POLICY, "quotes"},
		{"select: {metadata: [a]}\n" POLICY, "select"},
		{"select: {metadata: {}}\nvault: {a: b}\n" POLICY, "vault"},
		{"select: {metadata: {}}\nvaults: x\n" POLICY, "vaults"},
		{"select: {metadata: {}}\npolicy: {defaultAction: perhaps}\n", "perhaps"},
		{"select: [\n", "a.yaml"},
	};
	struct wanted *w = NULL;
	const struct wanted *before;
	struct errmsg msg;
	struct place p;

	place_init(&p);
	put(&p, "a.yaml", "select: {metadata: {}}\n" POLICY, 0600);
	assert_int_equal(wanted_load(p.dir, &w, &msg), 0);
	before = w;
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		put(&p, "a.yaml", rows[i].text, 0600);
		msg.text[0] = '\0';
		assert_true(wanted_load(p.dir, &w, &msg) < 0);
		assert_non_null(strstr(msg.text, rows[i].part));
		assert_non_null(strstr(msg.text, "a.yaml"));
		assert_ptr_equal(w, before);
	}
	wanted_free(w);
	place_fini(&p);
}

static void test_a_policy_is_compared_by_what_it_says(void **state)
{
	static const struct {
		const char *answer;
		bool same;
	} rows[] = {
		{"{\"policy\":{\"defaultAction\":\"deny\",\"egress\":[{\"target\":\"Docs.test\","
		 "\"action\":\"allow\"}]}}",
			true},
		{"{\"status\":\"ok\",\"policy\":{\"egress\":[{\"action\":\"allow\","
		 "\"target\":\"Docs.test\"}]}}",
			true},
		{"{\"policy\":{\"defaultAction\":\"allow\",\"egress\":[{\"action\":\"allow\","
		 "\"target\":\"Docs.test\"}]}}",
			false},
		{"{\"policy\":{\"defaultAction\":\"deny\",\"egress\":[]}}", false},
		{"{\"policy\":{\"egress\":[{\"action\":\"allow\",\"target\":\"Docs.test\"},"
		 "{\"action\":\"allow\",\"target\":\"evil.test\"}]}}",
			false},
		{"{\"policy\":null}", false},
		{"{}", false},
		{"", false},
	};
	struct wanted *w = NULL;
	struct errmsg msg;
	struct place p;

	place_init(&p);
	put(&p, "a.yaml", "select: {metadata: {}}\n" POLICY, 0600);
	assert_int_equal(wanted_load(p.dir, &w, &msg), 0);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		assert_int_equal(wanted_is_policy(w, slice_str(rows[i].answer)), rows[i].same);
	assert_true(wanted_is_policy(w,
		slice_str("{\"policy\":{\"egress\":[{\"action\":\"allow\","
			  "\"target\":\"Docs.test\"}]}}")));
	wanted_free(w);
	place_fini(&p);
}

static void test_a_vault_is_its_owners_alone(void **state)
{
	static const mode_t wrong[] = {0640, 0620, 0604, 0602};
	char stamp[WANTED_STAMP_MAX], other[WANTED_STAMP_MAX];
	struct wanted *w = NULL;
	struct errmsg msg;
	struct strbuf text;
	struct place p;

	place_init(&p);
	put(&p, "a.yaml", "select: {metadata: {}}\nvault: keys.json\n" POLICY, 0600);
	assert_int_equal(wanted_load(p.dir, &w, &msg), 0);
	strbuf_init(&text, WANTED_FILE_MAX);
	assert_int_equal(wanted_vault(w, "i-1", &text, stamp, &msg), -ENOENT);
	for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
		put(&p, "keys.json", "{}", wrong[i]);
		assert_int_equal(wanted_vault(w, "i-1", &text, stamp, &msg), E_VALUE);
		assert_int_equal(text.len, 0);
	}
	put(&p, "keys.json", "{\"a\":1}", 0600);
	assert_int_equal(wanted_vault(w, "i-1", &text, stamp, &msg), 0);
	assert_string_equal(strbuf_cstr(&text), "{\"a\":1}");
	strbuf_clear(&text);
	assert_int_equal(wanted_vault(w, "i-1", &text, other, &msg), 0);
	assert_string_equal(stamp, other);
	strbuf_clear(&text);
	assert_int_equal(wanted_vault(w, "i-2", &text, other, &msg), 0);
	assert_string_not_equal(stamp, other);
	strbuf_clear(&text);
	put(&p, "keys.json", "{\"a\":2}", 0600);
	assert_int_equal(wanted_vault(w, "i-1", &text, other, &msg), 0);
	assert_string_not_equal(stamp, other);
	strbuf_fini(&text);
	wanted_free(w);
	place_fini(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_first_that_fits_counts),
		cmocka_unit_test(test_without_a_folder_nothing_is_wanted),
		cmocka_unit_test(test_wrong_files_are_named_and_change_nothing),
		cmocka_unit_test(test_a_policy_is_compared_by_what_it_says),
		cmocka_unit_test(test_a_vault_is_its_owners_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
