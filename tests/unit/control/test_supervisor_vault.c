/* The supervisor and the vault file (control/supervisor_vault): when it is read again, and when the
 * descriptor is given up. */
#include <errno.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/log.h"
#include "control/supervisor_int.h"
#include "control/vault_feed.h"
#include "tests/unit/control/place.h"

struct bed {
	struct supervisor s;
	struct settings set;
	uint64_t now_ms;
	int log;
};

static void bed_up(struct bed *b, const char *vault_file)
{
	memset(b, 0, sizeof(*b));
	b->set.vault_file = vault_file ? strdup(vault_file) : NULL;
	b->s.settings = &b->set;
	b->now_ms = 1000;
	clock_fake(b->now_ms * 1000, 1);
	roles_init(&b->s.roles);
	b->log = memfd_create("log", MFD_CLOEXEC);
	log_setup(LOG_LEVEL_INFO, b->log, "test");
}

static void bed_down(struct bed *b)
{
	log_setup(LOG_LEVEL_INFO, STDERR_FILENO, "test");
	(void)close(b->log);
	roles_fini(&b->s.roles);
	vault_feed_watch_free(b->s.vault_watch);
	free(b->set.vault_file);
}

static size_t log_lines(const struct bed *b)
{
	char text[8192];
	ssize_t n = pread(b->log, text, sizeof(text), 0);
	size_t lines = 0;

	assert_true(n >= 0);
	for (ssize_t i = 0; i < n; i++)
		lines += text[i] == '\n';
	return lines;
}

static void bed_read(struct bed *b)
{
	struct errmsg msg = {""};

	if (supervisor_vault_read(&b->s, &b->set, &b->s.roles.fd[ROLE_VAULT], &msg) < 0)
		fail_msg("%s", msg.text);
}

/* The next look, two seconds later. */
static bool bed_look(struct bed *b)
{
	assert_int_equal(supervisor_vault_due(&b->s), b->now_ms + SUPERVISOR_VAULT_MS);
	b->now_ms += SUPERVISOR_VAULT_MS;
	clock_fake(b->now_ms * 1000, 1);
	return supervisor_vault_look(&b->s);
}

static void assert_document(const struct bed *b, const char *want)
{
	struct vault_feed feed;

	assert_int_equal(vault_feed_open(b->s.roles.fd[ROLE_VAULT], &feed), 0);
	assert_true(slice_eq(feed.doc, slice_str(want)));
	vault_feed_close(&feed);
}

static void test_without_a_vault_file_nothing_is_read_or_watched(void **state)
{
	struct bed b;

	bed_up(&b, NULL);
	bed_read(&b);
	assert_int_equal(b.s.roles.fd[ROLE_VAULT], -1);
	assert_int_equal(supervisor_vault_due(&b.s), UINT64_MAX);
	bed_down(&b);
}

static void test_changed_file_is_read_once_it_stands_still(void **state)
{
	struct place *p = *state;
	struct bed b;

	bed_up(&b, p->path);
	place_put(p->path, "a: 1\n", 0600);
	bed_read(&b);
	assert_document(&b, "{\"a\":1}");
	assert_false(bed_look(&b));
	assert_false(bed_look(&b));
	place_put(p->path, "a: 22\n", 0600);
	assert_false(bed_look(&b));
	place_put(p->path, "a: 333\n", 0600);
	assert_false(bed_look(&b));
	assert_true(bed_look(&b));
	assert_document(&b, "{\"a\":333}");
	assert_false(bed_look(&b));
	assert_int_equal(log_lines(&b), 0);
	bed_down(&b);
}

static void test_bad_file_is_told_once_and_read_again_when_it_is_mended(void **state)
{
	struct place *p = *state;
	struct bed b;

	bed_up(&b, p->path);
	place_put(p->path, "a: 1\n", 0600);
	bed_read(&b);
	place_put(p->path, "a: [\n", 0600);
	assert_false(bed_look(&b));
	assert_false(bed_look(&b));
	assert_int_equal(log_lines(&b), 1);
	assert_false(bed_look(&b));
	assert_false(bed_look(&b));
	assert_int_equal(log_lines(&b), 1);
	assert_int_equal(remove(p->path), 0);
	assert_false(bed_look(&b));
	assert_false(bed_look(&b));
	assert_int_equal(log_lines(&b), 2);
	place_put(p->path, "a: 2\n", 0644);
	assert_false(bed_look(&b));
	assert_false(bed_look(&b));
	assert_int_equal(log_lines(&b), 3);
	/* only the mode changes */
	assert_int_equal(chmod(p->path, 0600), 0);
	assert_false(bed_look(&b));
	assert_true(bed_look(&b));
	assert_document(&b, "{\"a\":2}");
	bed_down(&b);
}

static void test_source_file_is_watched_like_the_vault_file(void **state)
{
	struct place *p = *state;
	char text[400];
	struct bed b;

	(void)snprintf(text, sizeof(text),
		"credentials: [{name: k, source: {type: file, path: %s}}]\n", p->other);
	bed_up(&b, p->path);
	place_put(p->path, text, 0600);
	place_put(p->other, "one\n", 0600);
	bed_read(&b);
	place_put(p->other, "three\n", 0600);
	assert_false(bed_look(&b));
	assert_true(bed_look(&b));
	assert_document(&b,
		"{\"credentials\":[{\"name\":\"k\",\"source\":{\"type\":\"inline\","
		"\"value\":\"three\"}}]}");
	bed_down(&b);
}

static void test_settings_that_are_refused_leave_the_watch_alone(void **state)
{
	struct place *p = *state;
	struct settings other = {.vault_file = p->other};
	struct errmsg msg = {""};
	struct bed b;
	int fd;

	bed_up(&b, p->path);
	place_put(p->path, "a: 1\n", 0600);
	bed_read(&b);
	assert_int_equal(supervisor_vault_read(&b.s, &other, &fd, &msg), -ENOENT);
	assert_int_equal(fd, -1);
	assert_non_null(strstr(msg.text, p->other));
	place_put(p->path, "a: 22\n", 0600);
	assert_false(bed_look(&b));
	assert_true(bed_look(&b));
	assert_document(&b, "{\"a\":22}");
	bed_down(&b);
}

static void test_vault_that_is_configured_no_more_is_not_watched(void **state)
{
	struct place *p = *state;
	struct settings none = {.vault_file = NULL};
	struct errmsg msg = {""};
	struct bed b;
	int fd;

	bed_up(&b, p->path);
	place_put(p->path, "a: 1\n", 0600);
	bed_read(&b);
	assert_int_equal(supervisor_vault_read(&b.s, &none, &fd, &msg), 0);
	assert_int_equal(fd, -1);
	assert_int_equal(supervisor_vault_due(&b.s), UINT64_MAX);
	bed_down(&b);
}

static void test_descriptor_is_kept_until_the_worker_has_dealt_with_all(void **state)
{
	struct place *p = *state;
	struct bed b;

	bed_up(&b, p->path);
	place_put(p->path, "a: 1\n", 0600);
	bed_read(&b);
	/* no worker: nothing is on its way */
	supervisor_vault_sent(&b.s);
	assert_int_equal(b.s.vault_sent, 0);
	b.s.worker = 1;
	supervisor_vault_sent(&b.s);
	supervisor_vault_ready(&b.s); /* the one of START; another is on its way */
	assert_true(b.s.roles.fd[ROLE_VAULT] >= 0);
	supervisor_vault_sent(&b.s);
	supervisor_vault_taken(&b.s);
	assert_true(b.s.roles.fd[ROLE_VAULT] >= 0);
	supervisor_vault_taken(&b.s);
	assert_int_equal(b.s.roles.fd[ROLE_VAULT], -1);
	bed_read(&b);
	supervisor_vault_ready(&b.s);
	assert_int_equal(b.s.roles.fd[ROLE_VAULT], -1);
	bed_down(&b);
}

static void test_unlocked_memory_is_refused_only_for_a_vault_and_only_when_asked(void **state)
{
	static const struct {
		const char *vault;
		bool require;
		bool locked;
		bool refused;
	} rows[] = {
		{"/v", true, false, true},
		{"/v", true, true, false},
		{"/v", false, false, false},
		{NULL, true, false, false},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		struct errmsg msg = {""};
		struct bed b;
		int ret;

		bed_up(&b, rows[i].vault);
		b.set.require_locked_memory = rows[i].require;
		ret = supervisor_vault_locked(&b.s, rows[i].locked, &msg);
		assert_int_equal(ret < 0, rows[i].refused);
		if (ret < 0)
			assert_non_null(strstr(msg.text, "RLIMIT_MEMLOCK"));
		bed_down(&b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_without_a_vault_file_nothing_is_read_or_watched),
		PLACE_TEST(test_changed_file_is_read_once_it_stands_still),
		PLACE_TEST(test_bad_file_is_told_once_and_read_again_when_it_is_mended),
		PLACE_TEST(test_source_file_is_watched_like_the_vault_file),
		PLACE_TEST(test_settings_that_are_refused_leave_the_watch_alone),
		PLACE_TEST(test_vault_that_is_configured_no_more_is_not_watched),
		PLACE_TEST(test_descriptor_is_kept_until_the_worker_has_dealt_with_all),
		cmocka_unit_test(
			test_unlocked_memory_is_refused_only_for_a_vault_and_only_when_asked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
