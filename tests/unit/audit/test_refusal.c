/* Refusals: the rate for each uid, summaries, and the half of the ring that stays free of them. */
#include "audit/refusal.h"
#include "tests/unit/audit/trail.h"

struct fixture {
	void *area;
	void *ring_area;
	struct ring *ring;
	struct refusals *refusals;
	uint64_t serial;
};

static void fixture_restart(struct fixture *f)
{
	refusal_free(f->refusals);
	ring_free(f->ring);
	f->ring = ring_new(f->ring_area);
	ring_cursor_open(f->ring, RING_FILE);
	f->refusals = refusal_new(f->area, f->ring, SLICE("box"));
}

static void fixture_init(struct fixture *f)
{
	*f = (struct fixture){
		.area = trail_area(refusal_area_size()),
		.ring_area = trail_area(ring_area_size()),
	};
	fixture_restart(f);
}

static void fixture_fini(struct fixture *f)
{
	refusal_free(f->refusals);
	ring_free(f->ring);
	munmap(f->area, refusal_area_size());
	munmap(f->ring_area, ring_area_size());
}

static void refuse(struct fixture *f, const char *host, uint32_t uid, uint64_t second)
{
	struct audit_event e = trail_refusal(host, uid);
	char id[AUDIT_ID_LEN + 1];

	(void)snprintf(id, sizeof(id), "%016llx", (unsigned long long)++f->serial);
	refusal_add(f->refusals, &e, f->serial, id, second);
}

/* All lines so far, to be freed. */
static char *lines(const struct fixture *f)
{
	struct iovec iov[2];
	char *text;

	if (ring_view(f->ring, 0, iov) == 0)
		return strdup("");
	text = calloc(1, iov[0].iov_len + 1);
	memcpy(text, iov[0].iov_base, iov[0].iov_len);
	return text;
}

static void test_refusals_up_to_the_rate_have_a_line_each(void **state)
{
	struct fixture f;
	char *text;

	fixture_init(&f);
	for (int i = 0; i < REFUSAL_RATE; i++)
		refuse(&f, "a.test", 1000, 7);
	assert_int_equal(refusal_promote(f.refusals, f.ring, 7, false), REFUSAL_RATE);
	assert_false(refusal_waiting(f.refusals));
	text = lines(&f);
	assert_int_equal(trail_count(text, "\"verdict\":\"blocked\""), REFUSAL_RATE);
	assert_int_equal(trail_count(text, "\"sandbox\":\"box\""), REFUSAL_RATE);
	assert_int_equal(trail_count(text, "\"count\""), 0);
	free(text);
	fixture_fini(&f);
}

static void test_past_the_rate_each_reason_host_and_uid_is_one_line_with_a_count(void **state)
{
	struct fixture f;
	char *text;

	fixture_init(&f);
	for (int i = 0; i < REFUSAL_RATE + 3; i++)
		refuse(&f, "a.test", 1000, 7);
	for (int i = 0; i < 4; i++)
		refuse(&f, "b.test", 1000, 7);
	refuse(&f, "c.test", 1000, 7);
	assert_int_equal(refusal_promote(f.refusals, f.ring, 7, false), REFUSAL_RATE);
	assert_true(refusal_waiting(f.refusals)); /* their second is not over */
	assert_int_equal(refusal_promote(f.refusals, f.ring, 8, false), 3);
	assert_false(refusal_waiting(f.refusals));
	text = lines(&f);
	assert_int_equal(trail_count(text, "\n"), REFUSAL_RATE + 3);
	assert_int_equal(trail_count(text, "\"count\":3,"), 1);
	assert_int_equal(trail_count(text, "\"count\":4,"), 1);
	assert_int_equal(trail_count(text, "\"host\":\"c.test\""), 1);
	free(text);
	fixture_fini(&f);
}

static void test_one_uid_does_not_use_up_the_rate_of_another(void **state)
{
	struct fixture f;

	fixture_init(&f);
	for (int i = 0; i < 2 * REFUSAL_RATE; i++)
		refuse(&f, "a.test", 1000, 7);
	for (int i = 0; i < REFUSAL_RATE; i++)
		refuse(&f, "a.test", 1001, 7);
	assert_int_equal(refusal_promote(f.refusals, f.ring, 7, false), 2 * REFUSAL_RATE);
	fixture_fini(&f);
}

static void test_rate_starts_anew_each_second(void **state)
{
	struct fixture f;

	fixture_init(&f);
	for (uint64_t second = 1; second <= 3; second++) {
		for (int i = 0; i < REFUSAL_RATE; i++)
			refuse(&f, "a.test", 1000, second);
	}
	assert_int_equal(refusal_promote(f.refusals, f.ring, 3, false), 3 * REFUSAL_RATE);
	assert_false(refusal_waiting(f.refusals));
	fixture_fini(&f);
}

static void test_uids_beyond_the_table_share_the_last_count(void **state)
{
	struct fixture f;

	fixture_init(&f);
	for (uint32_t uid = 0; uid < REFUSAL_UIDS + REFUSAL_RATE; uid++)
		refuse(&f, "a.test", uid, 7);
	assert_int_equal(
		refusal_promote(f.refusals, f.ring, 7, false), REFUSAL_UIDS + REFUSAL_RATE - 1);
	assert_true(refusal_waiting(f.refusals));
	fixture_fini(&f);
}

static void test_answer_names_the_id_of_the_summary(void **state)
{
	struct audit_event e = trail_refusal("a.test", 1000);
	char first[AUDIT_ID_LEN + 1] = "000000000000000a";
	char second[AUDIT_ID_LEN + 1] = "000000000000000b";
	struct fixture f;
	char *text;

	fixture_init(&f);
	refusal_count(f.refusals, &e, 1, first);
	refusal_count(f.refusals, &e, 2, second);
	assert_string_equal(first, "000000000000000a");
	assert_string_equal(second, "000000000000000a");
	assert_int_equal(refusal_promote(f.refusals, f.ring, 0, true), 1);
	text = lines(&f);
	assert_non_null(strstr(text, "\"id\":\"000000000000000a\""));
	assert_non_null(strstr(text, "\"count\":2,"));
	free(text);
	fixture_fini(&f);
}

static uint64_t total(const char *text)
{
	uint64_t n = trail_count(text, "\n") - trail_count(text, "\"count\":");

	while ((text = strstr(text, "\"count\":"))) {
		text += strlen("\"count\":");
		n += strtoull(text, NULL, 10);
	}
	return n;
}

static void test_too_many_different_summaries_are_counted_by_reason(void **state)
{
	struct fixture f;
	char host[32];
	char *text;

	fixture_init(&f);
	for (int i = 0; i < 10000; i++) {
		(void)snprintf(host, sizeof(host), "h%d.test", i);
		refuse(&f, host, 1000, 7);
	}
	(void)refusal_promote(f.refusals, f.ring, 8, false);
	assert_false(refusal_waiting(f.refusals));
	text = lines(&f);
	assert_int_equal(total(text), 10000);
	assert_true(trail_count(text, "\n") <= REFUSAL_RATE + REFUSAL_SUMS + 1);
	assert_int_equal(trail_count(text, "\"host\":null"), 1);
	free(text);
	fixture_fini(&f);
}

static void test_refusals_never_fill_more_than_half_of_the_ring(void **state)
{
	struct fixture f;
	uint64_t n = 0;
	uint64_t lines_before;

	fixture_init(&f);
	for (uint64_t second = 1; second < 400; second++) {
		for (int i = 0; i < REFUSAL_RATE; i++)
			refuse(&f, "a.test", 1000, second);
		n += refusal_promote(f.refusals, f.ring, second, false);
	}
	assert_true(refusal_waiting(f.refusals));
	assert_true(ring_used(f.ring) >= RING_HALF);
	assert_true(ring_used(f.ring) < RING_HALF + RING_LINE_MAX);
	assert_int_equal(refusal_promote(f.refusals, f.ring, 999, true), 0);
	/* Room comes back: all that was refused is on record. */
	lines_before = ring_seq(f.ring);
	assert_int_equal(lines_before, n);
	ring_cursor_set(f.ring, RING_FILE, ring_head(f.ring));
	n += refusal_promote(f.refusals, f.ring, 999, true);
	ring_cursor_set(f.ring, RING_FILE, ring_head(f.ring));
	n += refusal_promote(f.refusals, f.ring, 999, true);
	assert_false(refusal_waiting(f.refusals));
	assert_int_equal(ring_seq(f.ring), n);
	fixture_fini(&f);
}

static void test_staged_and_counted_refusals_survive_a_new_start(void **state)
{
	struct fixture f;
	char *text;

	fixture_init(&f);
	for (int i = 0; i < REFUSAL_RATE + 5; i++)
		refuse(&f, "a.test", 1000, 7);
	fixture_restart(&f);
	assert_true(refusal_waiting(f.refusals));
	assert_int_equal(refusal_promote(f.refusals, f.ring, 0, true), REFUSAL_RATE + 1);
	fixture_restart(&f);
	assert_false(refusal_waiting(f.refusals));
	text = lines(&f);
	assert_int_equal(total(text), REFUSAL_RATE + 5);
	free(text);
	fixture_fini(&f);
}

static void test_refusals_keep_the_context_that_they_came_in(void **state)
{
	struct fixture f;
	char *text;

	fixture_init(&f);
	refusal_set_context(f.refusals, SLICE("{\"run\":\"1\"}"));
	for (int i = 0; i < REFUSAL_RATE + 5; i++)
		refuse(&f, "a.test", 1000, 7);
	refusal_set_context(f.refusals, SLICE("{\"run\":\"2\"}"));
	for (int i = 0; i < 3; i++)
		refuse(&f, "a.test", 1000, 7);
	refusal_set_context(f.refusals, SLICE_EMPTY);
	refuse(&f, "a.test", 1000, 7);
	refuse(&f, "a.test", 1000, 7);
	fixture_restart(&f);
	assert_int_equal(refusal_promote(f.refusals, f.ring, 8, true), REFUSAL_RATE + 3);
	text = lines(&f);
	assert_int_equal(total(text), REFUSAL_RATE + 10);
	assert_int_equal(trail_count(text, ",\"context\":{\"run\":\"1\"},"), REFUSAL_RATE + 1);
	assert_int_equal(trail_count(text, ",\"context\":{\"run\":\"2\"},"), 1);
	assert_int_equal(trail_count(text, ",\"context\":null,"), 1);
	assert_int_equal(trail_count(text, "\"count\":5,"), 1);
	assert_int_equal(trail_count(text, "\"count\":3,"), 1);
	assert_int_equal(trail_count(text, "\"count\":2,"), 1);
	free(text);
	fixture_fini(&f);
}

static void test_summary_by_reason_alone_has_no_context(void **state)
{
	struct fixture f;
	char host[32];
	char *text;
	const char *rest;

	fixture_init(&f);
	refusal_set_context(f.refusals, SLICE("{\"run\":\"1\"}"));
	for (int i = 0; i < REFUSAL_RATE + 2000; i++) {
		(void)snprintf(host, sizeof(host), "h%d.test", i);
		refuse(&f, host, 1000, 7);
	}
	(void)refusal_promote(f.refusals, f.ring, 8, true);
	text = lines(&f);
	assert_int_equal(total(text), REFUSAL_RATE + 2000);
	rest = strstr(text, "\"context\":null,");
	assert_non_null(rest);
	assert_non_null(strstr(rest, "\"host\":null,"));
	assert_int_equal(trail_count(text, "\"context\":null,"), 1);
	free(text);
	fixture_fini(&f);
}

static void test_staging_ring_wraps(void **state)
{
	struct fixture f;

	fixture_init(&f);
	for (uint64_t second = 1; second < 60; second++) {
		for (int i = 0; i < REFUSAL_RATE; i++)
			refuse(&f, "a.test", 1000, second);
		assert_int_equal(refusal_promote(f.refusals, f.ring, second, false), REFUSAL_RATE);
		ring_cursor_set(f.ring, RING_FILE, ring_head(f.ring));
	}
	assert_true(refusal_tail(f.refusals) > 2 * REFUSAL_BYTES);
	fixture_fini(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refusals_up_to_the_rate_have_a_line_each),
		cmocka_unit_test(
			test_past_the_rate_each_reason_host_and_uid_is_one_line_with_a_count),
		cmocka_unit_test(test_one_uid_does_not_use_up_the_rate_of_another),
		cmocka_unit_test(test_rate_starts_anew_each_second),
		cmocka_unit_test(test_uids_beyond_the_table_share_the_last_count),
		cmocka_unit_test(test_answer_names_the_id_of_the_summary),
		cmocka_unit_test(test_too_many_different_summaries_are_counted_by_reason),
		cmocka_unit_test(test_refusals_never_fill_more_than_half_of_the_ring),
		cmocka_unit_test(test_staged_and_counted_refusals_survive_a_new_start),
		cmocka_unit_test(test_refusals_keep_the_context_that_they_came_in),
		cmocka_unit_test(test_summary_by_reason_alone_has_no_context),
		cmocka_unit_test(test_staging_ring_wraps),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
