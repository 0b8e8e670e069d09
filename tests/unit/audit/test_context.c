/* Labels to text: order, escapes, and the limit. */
#include "audit/context.h"
#include "tests/unit/audit/trail.h"

static void test_labels_are_an_object_in_their_order(void **state)
{
	static const struct context_label labels[] = {
		{SLICE("run"), SLICE("r-1")},
		{SLICE("a"), SLICE("")},
		{SLICE("\xc3\xa9\"\\"), SLICE("x\n\x7f\xe2\x80\xae")},
	};
	static const struct {
		size_t n;
		const char *want;
	} rows[] = {
		{0, ""},
		{1, "{\"run\":\"r-1\"}"},
		{2, "{\"run\":\"r-1\",\"a\":\"\"}"},
		{3, "{\"run\":\"r-1\",\"a\":\"\",\"\xc3\xa9\\\"\\\\\":\"x\\u000a\\u007f\\u202e\"}"},
	};
	struct context c = {.len = 7};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
		assert_int_equal(context_set(&c, labels, rows[i].n, NULL), 0);
		assert_true(slice_eq(slice_make(c.text, c.len), slice_str(rows[i].want)));
	}
}

static void test_limit_counts_the_text_as_it_stands_in_a_line(void **state)
{
	char value[32 * AUDIT_CONTEXT_MAX];
	struct context_label labels[CONTEXT_LABELS_MAX + 1];
	struct context c = {.len = 1, .text = "k"};
	struct errmsg msg = {.text = ""};
	/* {"a":""} */
	size_t room = AUDIT_CONTEXT_MAX - 8;

	memset(value, 'v', sizeof(value));
	labels[0] = (struct context_label){SLICE("a"), slice_make(value, room + 1)};
	assert_int_equal(context_set(&c, labels, 1, &msg), E_LIMIT);
	assert_non_null(strstr(msg.text, "512 bytes"));
	assert_int_equal(c.len, 1); /* refused: nothing is changed */
	labels[0].value.len = sizeof(value);
	assert_int_equal(context_set(&c, labels, 1, &msg), E_LIMIT);
	/* Far more than there is room for before the limit is looked at. */
	memset(value, 1, sizeof(value));
	assert_int_equal(context_set(&c, labels, 1, &msg), E_LIMIT);
	memset(value, 'v', sizeof(value));
	labels[0].value.len = room;
	assert_int_equal(context_set(&c, labels, 1, &msg), 0);
	assert_int_equal(c.len, AUDIT_CONTEXT_MAX);
	/* An escape takes six. */
	value[0] = '\n';
	assert_int_equal(context_set(&c, labels, 1, &msg), E_LIMIT);
	labels[0].value.len = room - 5;
	assert_int_equal(context_set(&c, labels, 1, &msg), 0);
	assert_int_equal(c.len, AUDIT_CONTEXT_MAX);
	/* As many as fit. */
	for (size_t i = 0; i < ARRAY_LEN(labels); i++)
		labels[i] = (struct context_label){SLICE("a"), SLICE("")};
	assert_int_equal(context_set(&c, labels, CONTEXT_LABELS_MAX, &msg), 0);
	assert_int_equal(context_set(&c, labels, CONTEXT_LABELS_MAX + 1, &msg), E_LIMIT);
}

static void test_name_is_not_empty(void **state)
{
	static const struct context_label labels[] = {
		{SLICE("a"), SLICE("b")}, {SLICE(""), SLICE("b")}};
	struct context c = {.len = 1, .text = "k"};

	assert_int_equal(context_set(&c, labels, 2, NULL), E_VALUE);
	assert_int_equal(c.len, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_labels_are_an_object_in_their_order),
		cmocka_unit_test(test_limit_counts_the_text_as_it_stands_in_a_line),
		cmocka_unit_test(test_name_is_not_empty),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
