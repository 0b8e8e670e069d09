/* Slots: taken and given back, what a new start makes of them, and how few pages they touch. */
#include "audit/slot.h"
#include "tests/unit/audit/trail.h"

#define ID "0123456789abcdef"
#define PAGE 4096

static struct slots *slots_of(void **area)
{
	*area = trail_area(slot_area_size());
	return slot_new(*area, 0);
}

static void slots_done(struct slots *s, void *area)
{
	slot_free(s);
	munmap(area, slot_area_size());
}

static struct audit_slot *take(struct slots *s, uint64_t serial)
{
	struct audit_event e = trail_event("http://docs.test/");

	e.up = serial;
	return slot_take(s, &e, &(struct slot_mark){serial, ID, SLICE_EMPTY}, false);
}

/* One of the spare slots. */
static struct audit_slot *take_spare(struct slots *s, uint64_t serial)
{
	struct audit_event e = trail_event("/");

	return slot_take(s, &e, &(struct slot_mark){serial, ID, SLICE_EMPTY}, true);
}

static void test_slots_are_taken_up_to_the_limit_and_the_spare_ones_on_request(void **state)
{
	void *area;
	struct slots *s = slots_of(&area);

	for (uint64_t i = 1; i <= AUDIT_SLOTS; i++)
		assert_non_null(take(s, i));
	assert_null(take(s, 9999));
	for (uint64_t i = 1; i <= SLOT_SPARE; i++)
		assert_non_null(take_spare(s, 10000 + i));
	assert_null(take_spare(s, 20000));
	assert_int_equal(slot_count(s), SLOT_ALL);
	slots_done(s, area);
}

static void test_slot_given_back_last_is_taken_first(void **state)
{
	void *area;
	struct slots *s = slots_of(&area);
	struct audit_slot *a = take(s, 1);
	struct audit_slot *b = take(s, 2);

	slot_release(s, a);
	slot_release(s, b);
	assert_ptr_equal(take(s, 3), b);
	assert_ptr_equal(take(s, 4), a);
	slots_done(s, area);
}

static void test_few_pages_are_touched(void **state)
{
	static unsigned char in[SLOT_SIZE / PAGE * (SLOT_ALL + 2)];
	void *area;
	struct slots *s = slots_of(&area);
	size_t pages = 0;

	for (uint64_t i = 1; i < 3000; i += 3) {
		struct audit_slot *a = take(s, i);
		struct audit_slot *b = take(s, i + 1);

		slot_release(s, a);
		a = take(s, i + 2);
		slot_release(s, b);
		slot_release(s, a);
	}
	slot_free(s);
	s = slot_new(area, 0);
	assert_int_equal(mincore(area, slot_area_size(), in), 0);
	for (size_t i = 0; i < slot_area_size() / PAGE; i++)
		pages += in[i] & 1;
	assert_true(pages >= 3 && pages <= 4); /* the head and two slots */
	slots_done(s, area);
}

static void test_update_replaces_what_a_crash_line_says(void **state)
{
	struct audit_event e = trail_event("http://docs.test/other");
	void *area;
	struct slots *s = slots_of(&area);
	struct audit_slot *slot = take(s, 5);

	e.up = 6;
	slot_update(slot, &e);
	assert_int_equal(slot_rec(slot)->up, 6);
	e.up = 7;
	slot_update(slot, &e);
	assert_int_equal(slot_rec(slot)->up, 7);
	assert_string_equal(slot_id(slot), ID);
	assert_int_equal(slot_serial(slot), 5);
	assert_null(slot_ended(s));
	slots_done(s, area);
}

static void test_ended_slots_are_a_queue_also_after_a_new_start(void **state)
{
	struct audit_event e = trail_event("/");
	void *area;
	struct slots *s = slots_of(&area);
	struct audit_slot *a = take(s, 1);
	struct audit_slot *b = take(s, 2);
	struct audit_slot *c = take(s, 3);

	slot_end(s, c, &e);
	slot_end(s, a, &e);
	slot_end(s, b, &e);
	assert_ptr_equal(slot_ended(s), c);
	slot_release(s, c);
	assert_ptr_equal(slot_ended(s), a);
	slot_free(s);
	s = slot_new(area, 0);
	assert_int_equal(slot_count(s), 2);
	assert_int_equal(slot_serial(slot_ended(s)), 1);
	assert_int_equal(slot_rec(slot_ended(s))->verdict, AUDIT_ALLOWED);
	slot_release(s, slot_ended(s));
	assert_int_equal(slot_serial(slot_ended(s)), 2);
	slot_release(s, slot_ended(s));
	assert_null(slot_ended(s));
	slots_done(s, area);
}

static void test_open_slots_become_interrupted_after_ended_ones_by_age(void **state)
{
	struct audit_event e = trail_event("/");
	void *area;
	struct slots *s = slots_of(&area);
	struct audit_slot *a = take(s, 10);
	static const uint64_t want[] = {12, 10, 11, 13};

	(void)take(s, 11);
	slot_end(s, take(s, 12), &e);
	slot_release(s, a);
	a = take(s, 13); /* younger, in the first place */
	(void)a;
	(void)take(s, 10);
	slot_free(s);
	s = slot_new(area, 0);
	for (size_t i = 0; i < ARRAY_LEN(want); i++) {
		struct audit_slot *slot = slot_ended(s);

		assert_int_equal(slot_serial(slot), want[i]);
		assert_int_equal(slot_rec(slot)->verdict, i == 0 ? AUDIT_ALLOWED : AUDIT_FAILED);
		assert_int_equal(
			slot_rec(slot)->reason, i == 0 ? REASON_ALLOWED : REASON_INTERRUPTED);
		slot_release(s, slot);
	}
	assert_null(slot_ended(s));
	slots_done(s, area);
}

static void test_slot_whose_line_was_committed_is_free_after_a_new_start(void **state)
{
	void *area;
	struct slots *s = slots_of(&area);

	(void)take(s, 1);
	(void)take(s, 2);
	slot_free(s);
	s = slot_new(area, 1);
	assert_int_equal(slot_count(s), 1);
	assert_int_equal(slot_serial(slot_ended(s)), 2);
	slots_done(s, area);
}

static void test_record_that_is_half_written_does_not_count(void **state)
{
	struct audit_event e = trail_event("http://docs.test/");
	void *area;
	struct slots *s = slots_of(&area);
	struct audit_slot *slot = take(s, 1);
	struct event_rec *now;

	e.up = 2;
	slot_update(slot, &e);
	now = (struct event_rec *)(uintptr_t)slot_rec(slot);
	/* What a killed slot_update leaves: the other record is in pieces. */
	memset(now - 1, 0xff, sizeof(*now));
	slot_free(s);
	s = slot_new(area, 0);
	assert_int_equal(slot_rec(slot_ended(s))->up, 2);
	assert_int_equal(slot_rec(slot_ended(s))->reason, REASON_INTERRUPTED);
	slots_done(s, area);
}

static void test_context_of_the_beginning_stays_to_the_crash_line(void **state)
{
	struct audit_event e = trail_event("http://docs.test/");
	char text[AUDIT_CONTEXT_MAX];
	struct slice whole = slice_make(text, sizeof(text));
	void *area;
	struct slots *s = slots_of(&area);
	struct audit_slot *a, *b;

	memset(text, 'c', sizeof(text));
	a = slot_take(s, &e, &(struct slot_mark){1, ID, whole}, false);
	b = slot_take(s, &e, &(struct slot_mark){2, ID, SLICE("{\"run\":\"2\"}")}, false);
	slot_update(a, &e);
	assert_true(slice_eq(slot_context(b), SLICE("{\"run\":\"2\"}")));
	slot_free(s);
	s = slot_new(area, 0);
	assert_true(slice_eq(slot_context(slot_ended(s)), whole));
	slot_release(s, slot_ended(s));
	assert_true(slice_eq(slot_context(slot_ended(s)), SLICE("{\"run\":\"2\"}")));
	/* The one before leaves nothing to the next. */
	assert_int_equal(slot_context(take(s, 3)).len, 0);
	slots_done(s, area);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			test_slots_are_taken_up_to_the_limit_and_the_spare_ones_on_request),
		cmocka_unit_test(test_slot_given_back_last_is_taken_first),
		cmocka_unit_test(test_few_pages_are_touched),
		cmocka_unit_test(test_update_replaces_what_a_crash_line_says),
		cmocka_unit_test(test_ended_slots_are_a_queue_also_after_a_new_start),
		cmocka_unit_test(test_open_slots_become_interrupted_after_ended_ones_by_age),
		cmocka_unit_test(test_slot_whose_line_was_committed_is_free_after_a_new_start),
		cmocka_unit_test(test_context_of_the_beginning_stays_to_the_crash_line),
		cmocka_unit_test(test_record_that_is_half_written_does_not_count),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
