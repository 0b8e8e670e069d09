/* The worker's vault (control/worker_vault): what is in force after each message and after a crash,
 * and the report for `egressctl` (control/vault_report), which loads the same way. */
#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "base/arena.h"
#include "base/log.h"
#include "base/state.h"
#include "control/areas.h"
#include "control/vault_feed.h"
#include "control/vault_report.h"
#include "control/worker_vault.h"
#include "policy/policy_json.h"
#include "tests/unit/control/place.h"
#include "vault/vault.h"

#define KEY "sk-Pl4nt3d-0123456789"
#define CREDENTIAL "{\"name\":\"k\",\"source\":{\"value\":\"" KEY "\"}}"
#define BINDING(name, host)                                                               \
	"{\"name\":\"" name "\",\"match\":{\"hosts\":[\"" host "\"]},\"auth\":{\"type\":" \
	"\"bearer\",\"credential\":\"k\"}}"
#define DOC(name, host) "{\"credentials\":[" CREDENTIAL "],\"bindings\":[" BINDING(name, host) "]}"
#define GOOD DOC("model", "api.test")
#define OTHER DOC("other", "api.test")
#define DENIED DOC("model", "no.test")
#define BAD "{\"bad\":\"" KEY "\"}"

struct bed {
	uint8_t *area;
	struct settings set;
	struct worker_vault v;
};

static struct policy *policy_of(const char *text)
{
	struct errmsg msg = {""};
	struct policy *p = NULL;

	if (policy_json_decode(slice_str(text), 0, &p, &msg) < 0)
		fail_msg("%s", msg.text);
	return p;
}

static void bed_up(struct bed *b)
{
	struct errmsg msg = {""};

	memset(b, 0, sizeof(*b));
	b->area = xcalloc(1, AREA_VAULT_LEN);
	b->set.vault_file = xstrdup("/v.yaml");
	b->set.policy = policy_of("{\"egress\":[{\"action\":\"allow\",\"target\":\"api.test\"}]}");
	assert_int_equal(write_hosts_decode(SLICE_EMPTY, &b->set.write_hosts, &msg), 0);
	assert_int_equal(write_hosts_decode(SLICE_EMPTY, &b->set.pass_through, &msg), 0);
	assert_int_equal(worker_vault_init(&b->v, b->area, &msg), 0);
}

static void bed_down(struct bed *b)
{
	worker_vault_fini(&b->v);
	free(b->area);
	free(b->set.vault_file);
	policy_unref(b->set.policy);
	write_hosts_free(b->set.write_hosts);
	write_hosts_free(b->set.pass_through);
}

static int feed_of(const char *doc)
{
	int fd;

	assert_int_equal(vault_feed_put(slice_str(doc), &fd), 0);
	return fd;
}

static int take(struct bed *b, const char *doc)
{
	struct errmsg msg = {""};
	int fd = feed_of(doc);
	int ret = worker_vault_take(&b->v, fd, &b->set, &msg);
	struct vault_feed again;

	if (strstr(msg.text, "Pl4nt"))
		fail_msg("quoted: %s", msg.text);
	assert_int_equal(ret < 0, msg.text[0] != '\0');
	assert_int_equal(vault_feed_open(fd, &again), 0);
	assert_int_equal(again.doc.len, 0);
	vault_feed_close(&again);
	(void)close(fd);
	return ret;
}

/* The worker dies, and the next one has the area. */
static int restart(struct bed *b, const char *doc, struct errmsg *msg)
{
	int fd = doc ? feed_of(doc) : -1;
	int ret;

	worker_vault_fini(&b->v);
	assert_int_equal(worker_vault_init(&b->v, b->area, msg), 0);
	ret = worker_vault_start(&b->v, fd, &b->set, msg);
	if (fd >= 0)
		(void)close(fd);
	return ret;
}

static void must_restart(struct bed *b, const char *doc)
{
	struct errmsg msg = {""};

	if (restart(b, doc, &msg) < 0)
		fail_msg("%s", msg.text);
}

/* revision 0: there is none. binding: of a request to api.test, or NULL. */
static void assert_in_force(const struct bed *b, uint64_t revision, const char *binding)
{
	struct vault_view *view = vault_view_get(b->v.vault);
	struct binding_request r = {.https = true,
		.port = 443,
		.host = SLICE("api.test"),
		.method = SLICE("GET"),
		.path = SLICE("/x")};
	const struct binding *found = NULL;

	assert_int_equal(vault_exists(b->v.vault), revision > 0);
	if (revision > 0)
		assert_int_equal(vault_revision(b->v.vault), revision);
	if (binding) {
		assert_int_equal(vault_view_match(view, &r, &found), BINDING_ONE);
		assert_true(slice_eq(binding_name(found), slice_str(binding)));
	} else if (view) {
		assert_int_equal(vault_view_match(view, &r, &found), BINDING_NONE);
	}
	vault_view_unref(view);
}

static void test_same_revision_is_there_after_a_crash(void **state)
{
	struct bed b;

	bed_up(&b);
	must_restart(&b, NULL);
	assert_in_force(&b, 0, NULL);
	must_restart(&b, GOOD);
	assert_in_force(&b, 1, "model");
	must_restart(&b, NULL);
	assert_in_force(&b, 1, "model");
	assert_int_equal(take(&b, OTHER), 0);
	assert_in_force(&b, 2, "other");
	must_restart(&b, NULL);
	assert_in_force(&b, 2, "other");
	must_restart(&b, NULL);
	assert_in_force(&b, 2, "other");
	bed_down(&b);
}

static void test_refused_document_leaves_the_one_before(void **state)
{
	static const char *const rows[] = {BAD, DENIED, "{", "[]", "{\"credentials\":[3]}"};
	struct bed b;

	bed_up(&b);
	assert_int_equal(take(&b, GOOD), 0);
	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		assert_true(take(&b, rows[i]) < 0);
		assert_in_force(&b, 1, "model");
	}
	must_restart(&b, NULL);
	assert_in_force(&b, 1, "model");
	bed_down(&b);
}

static void test_bad_document_at_the_start_is_an_error_unless_one_is_kept(void **state)
{
	struct errmsg msg = {""};
	struct bed b;

	bed_up(&b);
	assert_true(restart(&b, DENIED, &msg) < 0);
	assert_non_null(strstr(msg.text, "/v.yaml: "));
	assert_non_null(strstr(msg.text, "no.test"));
	assert_int_equal(take(&b, GOOD), 0);
	log_setup(LOG_LEVEL_ERROR, open("/dev/null", O_WRONLY | O_CLOEXEC), "test");
	must_restart(&b, DENIED);
	log_setup(LOG_LEVEL_INFO, STDERR_FILENO, "test");
	assert_in_force(&b, 1, "model");
	bed_down(&b);
}

/* The one before took it, wiped it, and died before it could say so. */
static void test_document_that_was_taken_and_wiped_changes_nothing(void **state)
{
	struct bed b;

	bed_up(&b);
	assert_int_equal(take(&b, ""), 0);
	assert_in_force(&b, 0, NULL);
	assert_int_equal(take(&b, GOOD), 0);
	must_restart(&b, "");
	assert_in_force(&b, 1, "model");
	bed_down(&b);
}

static void test_document_from_a_message_wins_over_the_kept_one(void **state)
{
	struct bed b;

	bed_up(&b);
	assert_int_equal(take(&b, GOOD), 0);
	must_restart(&b, OTHER);
	assert_in_force(&b, 2, "other");
	bed_down(&b);
}

static void test_policy_that_takes_a_bound_host_away_is_refused(void **state)
{
	struct errmsg msg = {""};
	struct bed b;

	bed_up(&b);
	assert_int_equal(take(&b, GOOD), 0);
	assert_int_equal(worker_vault_settings(&b.v, &b.set, true, &msg), 0);
	policy_unref(b.set.policy);
	b.set.policy = policy_of("{}");
	assert_true(worker_vault_settings(&b.v, &b.set, true, &msg) < 0);
	assert_non_null(strstr(msg.text, "api.test"));
	assert_in_force(&b, 1, "model");
	bed_down(&b);
}

static void test_vault_goes_with_its_setting(void **state)
{
	struct errmsg msg = {""};
	struct bed b;

	bed_up(&b);
	assert_int_equal(worker_vault_settings(&b.v, &b.set, true, &msg), 0);
	assert_in_force(&b, 0, NULL);
	assert_int_equal(take(&b, GOOD), 0);
	free(b.set.vault_file);
	b.set.vault_file = NULL;
	assert_int_equal(worker_vault_settings(&b.v, &b.set, true, &msg), 0);
	assert_in_force(&b, 2, NULL);
	must_restart(&b, NULL);
	assert_in_force(&b, 2, NULL);
	bed_down(&b);
}

static int write_op(struct bed *b, enum worker_vault_op op, const char *doc)
{
	struct errmsg msg = {""};
	int ret = worker_vault_write(&b->v, op, slice_str(doc), &b->set, &msg);

	if (strstr(msg.text, "Pl4nt"))
		fail_msg("quoted: %s", msg.text);
	assert_int_equal(ret < 0, msg.text[0] != '\0');
	return ret;
}

static bool area_has(const struct bed *b, const char *text)
{
	return memmem(b->area, AREA_VAULT_LEN, text, strlen(text)) != NULL;
}

#define ROTATE "{\"credentials\":{\"replace\":[{\"name\":\"k\",\"source\":{\"value\":\"sk-2\"}}]}}"

/* Each write is kept when it returns: the next worker has it. */
static void test_writes_of_the_api_are_there_after_a_crash(void **state)
{
	struct bed b;

	bed_up(&b);
	free(b.set.vault_file);
	b.set.vault_file = NULL;
	assert_int_equal(write_op(&b, WORKER_VAULT_PATCH, "{}"), -ENOENT);
	assert_int_equal(write_op(&b, WORKER_VAULT_DELETE, ""), -ENOENT);
	assert_int_equal(write_op(&b, WORKER_VAULT_CREATE, GOOD), 0);
	must_restart(&b, NULL);
	assert_in_force(&b, 1, "model");
	assert_int_equal(write_op(&b, WORKER_VAULT_CREATE, OTHER), -EEXIST);
	assert_int_equal(write_op(&b, WORKER_VAULT_PATCH, BAD), E_UNKNOWN);
	assert_int_equal(write_op(&b, WORKER_VAULT_PATCH, "{\"expectedRevision\":5}"), -ESTALE);
	must_restart(&b, NULL);
	assert_in_force(&b, 1, "model");
	assert_int_equal(write_op(&b, WORKER_VAULT_PATCH, ROTATE), 0);
	must_restart(&b, NULL);
	assert_in_force(&b, 2, "model");
	assert_int_equal(write_op(&b, WORKER_VAULT_DELETE, ""), 0);
	assert_in_force(&b, 0, NULL);
	must_restart(&b, NULL);
	assert_in_force(&b, 0, NULL);
	assert_int_equal(write_op(&b, WORKER_VAULT_CREATE, OTHER), 0);
	must_restart(&b, NULL);
	assert_in_force(&b, 1, "other");
	bed_down(&b);
}

/* What was replaced or deleted is not even in the area any more. */
static void test_area_has_no_key_that_was_taken_away(void **state)
{
	struct bed b;

	bed_up(&b);
	assert_int_equal(write_op(&b, WORKER_VAULT_CREATE, GOOD), 0);
	assert_true(area_has(&b, KEY));
	assert_int_equal(write_op(&b, WORKER_VAULT_PATCH, ROTATE), 0);
	assert_false(area_has(&b, KEY));
	assert_true(area_has(&b, "sk-2"));
	assert_int_equal(write_op(&b, WORKER_VAULT_DELETE, ""), 0);
	assert_false(area_has(&b, "sk-2"));
	bed_down(&b);
}

/* Design 7: a reload is no reason for a vault of the API to go; one that the policy no longer fits
 * is refused. */
static void test_vault_of_the_api_stays_over_a_reload(void **state)
{
	struct errmsg msg = {""};
	struct bed b;

	bed_up(&b);
	free(b.set.vault_file);
	b.set.vault_file = NULL;
	assert_int_equal(write_op(&b, WORKER_VAULT_CREATE, GOOD), 0);
	assert_int_equal(worker_vault_settings(&b.v, &b.set, false, &msg), 0);
	assert_in_force(&b, 1, "model");
	policy_unref(b.set.policy);
	b.set.policy = policy_of("{}");
	assert_true(worker_vault_settings(&b.v, &b.set, false, &msg) < 0);
	assert_in_force(&b, 1, "model");
	bed_down(&b);
}

/* n credentials with names that are no ASCII: each two bytes are kept as six. */
static char *document_that_grows(size_t n)
{
	struct strbuf text;
	char *copy;

	strbuf_init(&text, VAULT_DOC_MAX);
	strbuf_str(&text, "{\"credentials\":[");
	for (size_t i = 0; i < n; i++) {
		strbuf_printf(&text, "%s{\"name\":\"%zu", i ? "," : "", i);
		for (size_t k = 0; k < 120; k++)
			strbuf_str(&text, "\xc3\xa9");
		strbuf_str(&text, "\",\"source\":{\"value\":\"v\"}}");
	}
	strbuf_str(&text, "]}");
	assert_false(text.full);
	copy = xstrdup(strbuf_cstr(&text));
	strbuf_fini(&text);
	return copy;
}

static void test_document_that_cannot_be_kept_is_refused(void **state)
{
	char *large = document_that_grows(2100);
	char *small = document_that_grows(1800);
	struct bed b;

	bed_up(&b);
	/* with nothing before it, and with something */
	assert_int_equal(take(&b, large), -EFBIG);
	assert_in_force(&b, 0, NULL);
	assert_int_equal(take(&b, GOOD), 0);
	assert_int_equal(take(&b, large), -EFBIG);
	assert_in_force(&b, 1, "model");
	must_restart(&b, NULL);
	assert_in_force(&b, 1, "model");
	assert_int_equal(take(&b, small), 0);
	must_restart(&b, NULL);
	assert_in_force(&b, 2, NULL);
	bed_down(&b);
	free(large);
	free(small);
}

static void test_write_that_cannot_be_kept_is_refused(void **state)
{
	char *large = document_that_grows(2100);
	struct bed b;

	bed_up(&b);
	assert_int_equal(write_op(&b, WORKER_VAULT_CREATE, large), -EFBIG);
	assert_in_force(&b, 0, NULL);
	assert_int_equal(write_op(&b, WORKER_VAULT_CREATE, GOOD), 0);
	must_restart(&b, NULL);
	assert_in_force(&b, 1, "model");
	bed_down(&b);
	free(large);
}

/* Of 64 KiB, as older container hosts give it; root without rights, since root may lock all. */
static void test_unlocked_memory_serves_unless_that_is_forbidden(void **state)
{
	const struct rlimit lim = {64u << 10, 64u << 10};
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		struct errmsg msg = {""};
		struct bed b;

		if (setrlimit(RLIMIT_MEMLOCK, &lim) < 0 ||
			(geteuid() == 0 && (setgid(65534) < 0 || setuid(65534) < 0)))
			_exit(2);
		memset(&b, 0, sizeof(b));
		b.area = xcalloc(1, AREA_VAULT_LEN);
		b.set.policy = policy_of("{\"defaultAction\":\"allow\"}");
		if (write_hosts_decode(SLICE_EMPTY, &b.set.write_hosts, &msg) < 0 ||
			write_hosts_decode(SLICE_EMPTY, &b.set.pass_through, &msg) < 0)
			_exit(3);
		if (worker_vault_init(&b.v, b.area, &msg) < 0 || secmem_is_locked(b.v.mem))
			_exit(4);
		if (take(&b, GOOD) < 0 || vault_revision(b.v.vault) != 1)
			_exit(5);
		b.set.require_locked_memory = true;
		if (take(&b, OTHER) != -ENOMEM || vault_revision(b.v.vault) != 1)
			_exit(6);
		if (write_op(&b, WORKER_VAULT_PATCH, "{}") != -ENOMEM ||
			vault_revision(b.v.vault) != 1)
			_exit(7);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* --- the report --- */

static void test_report_names_and_matches_and_shows_no_value(void **state)
{
	struct place *p = *state;
	struct vault_report_request q = {.https = true,
		.port = 443,
		.host = SLICE("api.test"),
		.method = SLICE("GET"),
		.path = SLICE("/")};
	struct vault_report *r;
	struct errmsg msg = {""};
	struct slice name;
	struct bed b;
	char *text;

	bed_up(&b);
	free(b.set.vault_file);
	b.set.vault_file = xstrdup(p->path);
	place_put(p->path, GOOD, 0600);
	if (vault_report_new(&b.set, &r, &msg) < 0)
		fail_msg("%s", msg.text);
	text = vault_report_json(r);
	assert_non_null(strstr(text, "\"name\":\"k\""));
	assert_non_null(strstr(text, "\"name\":\"model\""));
	assert_null(strstr(text, "Pl4nt"));
	assert_null(strstr(text, "revision"));
	free(text);
	assert_non_null(vault_report_vault(r));
	assert_int_equal(vault_report_find(r, &q, &name), VAULT_REPORT_BINDING);
	assert_true(slice_eq(name, SLICE("model")));
	q.host = SLICE("x.test");
	assert_int_equal(vault_report_find(r, &q, &name), VAULT_REPORT_NONE);
	assert_int_equal(name.len, 0);
	vault_report_free(r);
	bed_down(&b);
}

static void test_report_of_a_bad_file_is_an_error_and_of_none_is_none(void **state)
{
	struct place *p = *state;
	struct vault_report *r;
	struct errmsg msg = {""};
	struct bed b;

	bed_up(&b);
	free(b.set.vault_file);
	b.set.vault_file = NULL;
	assert_int_equal(vault_report_new(&b.set, &r, &msg), 0);
	assert_null(r);
	assert_null(vault_report_vault(r));
	vault_report_free(r);
	b.set.vault_file = xstrdup(p->path);
	assert_int_equal(vault_report_new(&b.set, &r, &msg), -ENOENT);
	place_put(p->path, DENIED, 0600);
	assert_true(vault_report_new(&b.set, &r, &msg) < 0);
	assert_non_null(strstr(msg.text, p->path));
	assert_non_null(strstr(msg.text, "no.test"));
	assert_null(r);
	bed_down(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_same_revision_is_there_after_a_crash),
		cmocka_unit_test(test_refused_document_leaves_the_one_before),
		cmocka_unit_test(test_bad_document_at_the_start_is_an_error_unless_one_is_kept),
		cmocka_unit_test(test_document_that_was_taken_and_wiped_changes_nothing),
		cmocka_unit_test(test_document_from_a_message_wins_over_the_kept_one),
		cmocka_unit_test(test_policy_that_takes_a_bound_host_away_is_refused),
		cmocka_unit_test(test_vault_goes_with_its_setting),
		cmocka_unit_test(test_document_that_cannot_be_kept_is_refused),
		cmocka_unit_test(test_writes_of_the_api_are_there_after_a_crash),
		cmocka_unit_test(test_area_has_no_key_that_was_taken_away),
		cmocka_unit_test(test_vault_of_the_api_stays_over_a_reload),
		cmocka_unit_test(test_write_that_cannot_be_kept_is_refused),
		cmocka_unit_test(test_unlocked_memory_serves_unless_that_is_forbidden),
		PLACE_TEST(test_report_names_and_matches_and_shows_no_value),
		PLACE_TEST(test_report_of_a_bad_file_is_an_error_and_of_none_is_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
