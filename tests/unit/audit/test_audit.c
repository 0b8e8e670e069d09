/* The whole trail: lines in order, room, floods, new starts. What a crash leaves is in
 * test_audit_crash. */
#include <event2/event.h>

#include "base/log.h"
#include "tests/unit/audit/trail.h"

struct fixture {
	void *area;
	struct audit *audit;
	struct trail_file file;
};

static void fixture_open(struct fixture *f, bool with_file)
{
	struct errmsg msg = {.text = ""};
	int fd = with_file ? trail_file_open(&f->file) : -1;
	int ret = audit_open(f->area, SLICE("box"), fd, false, &f->audit, &msg);

	assert_string_equal(msg.text, "");
	assert_int_equal(ret, 0);
}

static void fixture_init(struct fixture *f)
{
	clock_fake(5000000, UINT64_C(1767323045678901));
	*f = (struct fixture){.area = trail_area(audit_area_size())};
	trail_file_init(&f->file);
}

static void fixture_fini(struct fixture *f)
{
	munmap(f->area, audit_area_size());
	trail_file_fini(&f->file);
}

/* Ends the worker in good order and gives what the file holds, to be freed. */
static char *fixture_close(struct fixture *f)
{
	size_t len;

	audit_close(f->audit);
	f->audit = NULL;
	return trail_read(f->file.path, &len);
}

/* As kill -9 does: nothing is written, the descriptor goes. The handle is forgotten on purpose. */
static void fixture_kill(struct fixture *f)
{
	static struct audit *lost[64];
	static size_t n;

	assert_true(n < ARRAY_LEN(lost));
	lost[n++] = f->audit; /* reachable, so that it is no leak */
	f->audit = NULL;
}

static struct audit_slot *begin(struct fixture *f, const char *url)
{
	struct audit_event e = trail_event(url);

	return audit_begin(f->audit, &e);
}

static void end(struct fixture *f, struct audit_slot *s, const char *url)
{
	struct audit_event e = trail_event(url);

	e.status = 200;
	audit_end(f->audit, s, &e);
}

static void note(struct fixture *f, enum audit_kind kind)
{
	struct audit_event e = {.kind = kind, .uid = AUDIT_UID_NONE, .start_us = clock_wall_us()};

	audit_note(f->audit, &e, NULL);
}

static void test_exchange_is_one_line_with_the_id_of_its_slot(void **state)
{
	struct fixture f;
	struct audit_slot *s;
	char id[AUDIT_ID_LEN + 1];
	char want[64];
	char *text;

	fixture_init(&f);
	fixture_open(&f, true);
	s = begin(&f, "http://docs.test/a");
	assert_int_equal(strlen(audit_slot_id(s)), AUDIT_ID_LEN);
	(void)snprintf(id, sizeof(id), "%s", audit_slot_id(s));
	assert_int_equal(audit_seq(f.audit), 0);
	end(&f, s, "http://docs.test/a");
	assert_int_equal(audit_seq(f.audit), 1);
	text = fixture_close(&f);
	(void)snprintf(want, sizeof(want), "\"id\":\"%s\",\"sandbox\":\"box\"", id);
	assert_int_equal(trail_count(text, want), 1);
	assert_int_equal(trail_count(text, "\n"), 1);
	trail_verify(f.file.path, 1, 1);
	free(text);
	fixture_fini(&f);
}

static void test_ids_do_not_repeat(void **state)
{
	static char ids[2000][AUDIT_ID_LEN + 1];
	struct fixture f;

	fixture_init(&f);
	fixture_open(&f, true);
	for (int i = 0; i < 1000; i++) {
		struct audit_slot *s = begin(&f, "/");
		struct audit_event e = trail_refusal("a.test", 1);

		memcpy(ids[2 * i], audit_slot_id(s), sizeof(ids[0]));
		end(&f, s, "/");
		clock_fake(5000000 + (uint64_t)i * 100000, 0);
		audit_note(f.audit, &e, ids[2 * i + 1]);
		if (i == 500) {
			free(fixture_close(&f));
			fixture_open(&f, true);
		}
	}
	qsort(ids, ARRAY_LEN(ids), sizeof(ids[0]), (int (*)(const void *, const void *))strcmp);
	for (size_t i = 1; i < ARRAY_LEN(ids); i++)
		assert_string_not_equal(ids[i - 1], ids[i]);
	free(fixture_close(&f));
	trail_verify(f.file.path, 1, 2000);
	fixture_fini(&f);
}

static void test_lines_stand_in_the_order_of_the_ends(void **state)
{
	struct fixture f;
	struct audit_slot *a;
	struct audit_slot *b;
	char *text;

	fixture_init(&f);
	fixture_open(&f, true);
	note(&f, AUDIT_START);
	a = begin(&f, "http://docs.test/a");
	b = begin(&f, "http://docs.test/b");
	end(&f, b, "http://docs.test/b");
	end(&f, a, "http://docs.test/a");
	note(&f, AUDIT_STOP);
	text = fixture_close(&f);
	assert_true(strstr(text, "\"start\"") < strstr(text, "docs.test/b"));
	assert_true(strstr(text, "docs.test/b") < strstr(text, "docs.test/a"));
	assert_true(strstr(text, "docs.test/a") < strstr(text, "\"stop\""));
	free(text);
	fixture_fini(&f);
}

static void test_long_one_has_an_open_line_and_a_last_one_with_the_same_id(void **state)
{
	struct audit_event e = trail_event("http://docs.test/stream");
	struct fixture f;
	struct audit_slot *s;
	char id[AUDIT_ID_LEN + 1];
	char *text;

	fixture_init(&f);
	fixture_open(&f, true);
	s = begin(&f, "http://docs.test/stream");
	memcpy(id, audit_slot_id(s), sizeof(id));
	e.down = 77;
	audit_still_open(f.audit, s, &e);
	end(&f, s, "http://docs.test/stream");
	text = fixture_close(&f);
	assert_int_equal(trail_count(text, id), 2);
	assert_int_equal(trail_count(text, "\"verdict\":\"open\""), 1);
	assert_int_equal(trail_count(text, "\"down\":77,"), 1);
	assert_true(strstr(text, "\"open\"") < strstr(text, "\"status\":200"));
	free(text);
	fixture_fini(&f);
}

/* A ring that nobody drains: begin stops in time, end never fails, nothing is lost. */
static void test_full_ring_refuses_new_exchanges_and_keeps_what_ends(void **state)
{
	static struct audit_slot *slots[1000];
	struct fixture f;
	uint64_t n = 0;
	char *text;

	fixture_init(&f);
	fixture_open(&f, true);
	for (size_t i = 0; i < ARRAY_LEN(slots); i++)
		slots[i] = begin(&f, "http://docs.test/held");
	for (;;) {
		struct audit_slot *s = begin(&f, "http://docs.test/fill");

		if (!s)
			break;
		end(&f, s, "http://docs.test/fill");
		n++;
	}
	assert_int_equal(audit_seq(f.audit), n); /* lines, not waiting slots */
	for (size_t i = 0; i < ARRAY_LEN(slots); i++)
		end(&f, slots[i], "http://docs.test/held");
	note(&f, AUDIT_POLICY);
	assert_null(begin(&f, "http://docs.test/late"));
	text = fixture_close(&f);
	assert_int_equal(trail_count(text, "docs.test/held"), ARRAY_LEN(slots));
	assert_int_equal(trail_count(text, "docs.test/fill"), n);
	assert_int_equal(trail_count(text, "\"kind\":\"policy\""), 1);
	assert_int_equal(trail_count(text, "docs.test/late"), 0);
	trail_verify(f.file.path, 1, n + ARRAY_LEN(slots) + 1);
	free(text);
	fixture_fini(&f);
}

static void test_notes_beyond_the_spare_slots_are_counted(void **state)
{
	struct fixture f;
	struct audit_slot *s;
	uint64_t total;
	char *text;
	const char *p;

	fixture_init(&f);
	fixture_open(&f, true);
	while ((s = begin(&f, "http://docs.test/fill")))
		end(&f, s, "http://docs.test/fill");
	for (int i = 0; i < 5000; i++)
		note(&f, AUDIT_POLICY);
	text = fixture_close(&f);
	total = trail_count(text, "\"kind\":\"policy\"");
	p = strstr(text, "\"count\":");
	assert_non_null(p);
	assert_int_equal(total - 1 + trail_number(p, "\"count\":"), 5000);
	free(text);
	fixture_fini(&f);
}

static void test_no_slot_is_left_for_one_more_than_the_limit(void **state)
{
	static struct audit_slot *slots[AUDIT_SLOTS];
	struct fixture f;

	fixture_init(&f);
	fixture_open(&f, true);
	for (size_t i = 0; i < ARRAY_LEN(slots); i++) {
		slots[i] = begin(&f, "/");
		assert_non_null(slots[i]);
	}
	assert_null(begin(&f, "/"));
	end(&f, slots[7], "/");
	assert_non_null(slots[7] = begin(&f, "/"));
	for (size_t i = 0; i < ARRAY_LEN(slots); i++)
		end(&f, slots[i], "/");
	free(fixture_close(&f));
	trail_verify(f.file.path, 1, AUDIT_SLOTS + 1);
	fixture_fini(&f);
}

static void test_flood_of_refusals_does_not_stop_reads(void **state)
{
	struct audit_event e = trail_refusal("a.test", 1000);
	struct fixture f;
	uint64_t refused = 0;
	uint64_t read = 0;
	uint64_t counted = 0;
	char *text;
	const char *p;

	fixture_init(&f);
	fixture_open(&f, true);
	/* Nothing is drained meanwhile. */
	for (uint64_t second = 0; second < 300; second++) {
		struct audit_slot *s;

		clock_fake(second * 1000000, 0);
		for (int i = 0; i < 100; i++, refused++)
			audit_note(f.audit, &e, NULL);
		s = begin(&f, "http://docs.test/read");
		assert_non_null(s);
		end(&f, s, "http://docs.test/read");
		read++;
	}
	text = fixture_close(&f);
	assert_int_equal(trail_count(text, "docs.test/read"), read);
	for (p = text; *p; p++) {
		if (strncmp(p, "\"count\":", 8) == 0)
			counted += strtoull(p + 8, NULL, 10) - 1;
	}
	assert_int_equal(trail_count(text, "\"verdict\":\"blocked\"") + counted, refused);
	free(text);
	fixture_fini(&f);
}

static void test_summary_is_written_by_the_loop_when_its_second_is_over(void **state)
{
	struct event_base *base = event_base_new();
	struct audit_event e = trail_refusal("a.test", 1000);
	struct fixture f;
	char *text;

	fixture_init(&f);
	fixture_open(&f, true);
	audit_start(f.audit, base);
	for (int i = 0; i < 60; i++)
		audit_note(f.audit, &e, NULL);
	assert_int_equal(audit_seq(f.audit), 50);
	assert_true(event_base_loop(base, EVLOOP_NONBLOCK) >= 0);
	assert_int_equal(audit_seq(f.audit), 50);
	clock_fake(6000000, 0);
	while (audit_seq(f.audit) < 51)
		assert_true(event_base_loop(base, EVLOOP_ONCE) >= 0);
	text = fixture_close(&f);
	assert_int_equal(trail_count(text, "\"count\":10,"), 1);
	free(text);
	event_base_free(base);
	fixture_fini(&f);
}

static void test_open_exchanges_of_a_killed_worker_are_interrupted(void **state)
{
	struct audit_event e = trail_event("http://docs.test/b");
	struct fixture f;
	struct audit_slot *s;
	char *text;

	fixture_init(&f);
	fixture_open(&f, true);
	end(&f, begin(&f, "http://docs.test/done"), "http://docs.test/done");
	(void)begin(&f, "http://docs.test/a");
	s = begin(&f, "http://docs.test/b");
	e.up = 4711;
	audit_update(f.audit, s, &e);
	fixture_kill(&f);
	fixture_open(&f, true);
	note(&f, AUDIT_START);
	text = fixture_close(&f);
	assert_int_equal(trail_count(text, "\n"), 4);
	assert_int_equal(trail_count(text, "\"verdict\":\"failed\",\"reason\":\"interrupted\""), 2);
	assert_int_equal(trail_count(text, "\"up\":4711,"), 1);
	assert_true(strstr(text, "docs.test/a") < strstr(text, "docs.test/b"));
	trail_verify(f.file.path, 1, 4);
	free(text);
	fixture_fini(&f);
}

static void test_counts_outlive_the_worker(void **state)
{
	struct audit_event e = trail_refusal("a.test", 1000);
	struct audit_counts c;
	struct fixture f;

	fixture_init(&f);
	fixture_open(&f, true);
	assert_int_equal(audit_counts(f.audit).last_us, 0);
	end(&f, begin(&f, "http://docs.test/a"), "http://docs.test/a");
	/* Most of them become one line. */
	for (int i = 0; i < 200; i++)
		audit_note(f.audit, &e, NULL);
	clock_fake(6000000, 77);
	note(&f, AUDIT_START);
	fixture_kill(&f);
	fixture_open(&f, true);
	c = audit_counts(f.audit);
	assert_int_equal(c.reads, 1);
	assert_int_equal(c.refusals, 200);
	assert_int_equal(c.last_us, 77);
	free(fixture_close(&f));
	fixture_fini(&f);
}

static void test_killed_worker_with_a_full_ring_loses_nothing(void **state)
{
	static struct audit_slot *slots[300];
	struct fixture f;
	uint64_t n = 0;
	struct audit_slot *s;
	char *text;

	fixture_init(&f);
	fixture_open(&f, true);
	for (size_t i = 0; i < ARRAY_LEN(slots); i++)
		slots[i] = begin(&f, "http://docs.test/open");
	while ((s = begin(&f, "http://docs.test/fill"))) {
		end(&f, s, "http://docs.test/fill");
		n++;
	}
	for (size_t i = 0; i < 100; i++)
		end(&f, slots[i], "http://docs.test/ended");
	fixture_kill(&f);
	fixture_open(&f, true);
	text = fixture_close(&f);
	assert_int_equal(trail_count(text, "docs.test/fill"), n);
	assert_int_equal(trail_count(text, "docs.test/ended"), 100);
	assert_int_equal(trail_count(text, "\"interrupted\""), 200);
	trail_verify(f.file.path, 1, n + 300);
	free(text);
	fixture_fini(&f);
}

/* The write happened, the cursor did not move: the file says where to go on. */
static void test_lines_in_the_file_beyond_the_cursor_are_not_repeated(void **state)
{
	struct fixture f;
	void *copy = trail_area(audit_area_size());
	char *text;
	size_t len;

	fixture_init(&f);
	fixture_open(&f, true);
	for (int i = 0; i < 10; i++)
		end(&f, begin(&f, "/"), "/");
	memcpy(copy, f.area, audit_area_size());
	text = fixture_close(&f);
	free(text);
	memcpy(f.area, copy, audit_area_size());
	/* And the last line is torn. */
	text = trail_read(f.file.path, &len);
	for (size_t cut = 1; cut < 200; cut += 13) {
		trail_write(f.file.path, text, len - cut);
		memcpy(f.area, copy, audit_area_size());
		fixture_open(&f, true);
		free(fixture_close(&f));
		trail_verify(f.file.path, 1, 10);
	}
	free(text);
	munmap(copy, audit_area_size());
	fixture_fini(&f);
}

static void test_new_area_goes_on_from_the_file_and_says_that_there_is_a_gap(void **state)
{
	struct fixture f;
	char *text;

	fixture_init(&f);
	fixture_open(&f, true);
	end(&f, begin(&f, "/"), "/");
	free(fixture_close(&f));
	munmap(f.area, audit_area_size());
	f.area = trail_area(audit_area_size());
	fixture_open(&f, true);
	end(&f, begin(&f, "/"), "/");
	note(&f, AUDIT_STOP);
	text = fixture_close(&f);
	assert_int_equal(trail_count(text, "\"kind\":\"gap\""), 1);
	trail_verify(f.file.path, 1, 4);
	free(text);
	/* After an ordered stop nothing is missing. */
	munmap(f.area, audit_area_size());
	f.area = trail_area(audit_area_size());
	fixture_open(&f, true);
	note(&f, AUDIT_START);
	text = fixture_close(&f);
	assert_int_equal(trail_count(text, "\"kind\":\"gap\""), 1);
	trail_verify(f.file.path, 1, 5);
	free(text);
	fixture_fini(&f);
}

static void test_empty_new_file_takes_what_the_old_one_lacks(void **state)
{
	struct fixture f;
	char old[80];

	fixture_init(&f);
	fixture_open(&f, true);
	end(&f, begin(&f, "/"), "/");
	free(fixture_close(&f));
	fixture_open(&f, true);
	end(&f, begin(&f, "/"), "/");
	(void)snprintf(old, sizeof(old), "%s.1", f.file.path);
	assert_int_equal(rename(f.file.path, old), 0);
	audit_set_file(f.audit, trail_file_open(&f.file));
	free(fixture_close(&f));
	trail_verify(f.file.path, 1, 2);
	fixture_fini(&f);
}

static void test_area_of_another_layout_and_foreign_file_are_refused(void **state)
{
	struct fixture f;
	struct errmsg msg;
	uint64_t wrong = 12345;
	int fd;

	fixture_init(&f);
	memcpy(f.area, &wrong, sizeof(wrong));
	assert_int_equal(audit_open(f.area, SLICE("box"), -1, false, &f.audit, &msg), E_VALUE);
	memset(f.area, 0, sizeof(wrong));
	trail_write(f.file.path, "127.0.0.1 localhost\n", 20);
	fd = trail_file_open(&f.file);
	assert_int_equal(audit_open(f.area, SLICE("box"), fd, false, &f.audit, &msg), E_SYNTAX);
	close(fd);
	fixture_fini(&f);
}

static void test_without_a_sink_exchanges_go_on(void **state)
{
	struct fixture f;

	fixture_init(&f);
	fixture_open(&f, false);
	for (int i = 0; i < 20000; i++) {
		struct audit_slot *s = begin(&f, "/");

		assert_non_null(s);
		end(&f, s, "/");
	}
	assert_int_equal(audit_seq(f.audit), 20000);
	audit_close(f.audit);
	audit_close(NULL);
	trail_write(f.file.path, "", 0);
	fixture_fini(&f);
}

static struct context label(const char *text)
{
	struct context c = {.len = (uint16_t)strlen(text)};

	memcpy(c.text, text, c.len);
	return c;
}

static void set_label(struct fixture *f, const char *text)
{
	struct context c = label(text);

	assert_int_equal(audit_set_context(f->audit, &c, 7), 0);
	assert_true(slice_eq(audit_context(f->audit), slice_str(text)));
}

static void test_lines_carry_the_context_in_force_when_their_slot_was_filled(void **state)
{
	struct audit_event stream = trail_event("http://docs.test/stream");
	struct audit_event refusal = trail_refusal("a.test", 1);
	struct fixture f;
	struct audit_slot *a, *b, *c;
	char *text;

	fixture_init(&f);
	fixture_open(&f, true);
	assert_int_equal(audit_context(f.audit).len, 0);
	a = begin(&f, "http://docs.test/a");
	set_label(&f, "{\"run\":\"1\"}");
	b = begin(&f, "http://docs.test/b");
	c = begin(&f, "http://docs.test/killed");
	(void)c;
	audit_note(f.audit, &refusal, NULL);
	set_label(&f, "{\"run\":\"2\"}");
	audit_update(f.audit, b, &stream);
	audit_still_open(f.audit, b, &stream);
	end(&f, b, "http://docs.test/b");
	end(&f, a, "http://docs.test/a");
	note(&f, AUDIT_POLICY);
	fixture_kill(&f);
	fixture_open(&f, true);
	assert_true(slice_eq(audit_context(f.audit), SLICE("{\"run\":\"2\"}")));
	note(&f, AUDIT_START);
	set_label(&f, "");
	note(&f, AUDIT_STOP);
	text = fixture_close(&f);
	assert_int_equal(trail_count(text, "\n"), 11);
	/* context, open, its end, refusal; killed */
	assert_int_equal(trail_count(text, "\"context\":{\"run\":\"1\"},"), 5);
	/* context, policy, start */
	assert_int_equal(trail_count(text, "\"context\":{\"run\":\"2\"},"), 3);
	/* a; context, stop */
	assert_int_equal(trail_count(text, "\"context\":null,"), 3);
	assert_int_equal(trail_count(text, "\"rule\":\"cleared\""), 1);
	assert_int_equal(trail_count(text, "\"kind\":\"context\",\"verdict\":\"allowed\""), 3);
	assert_int_equal(trail_count(text, "\"uid\":7,"), 3);
	trail_verify(f.file.path, 1, 11);
	free(text);
	fixture_fini(&f);
}

static void test_line_that_waited_for_room_keeps_its_context(void **state)
{
	struct context late = label("{\"run\":\"late\"}");
	struct fixture f;
	struct audit_slot *s;
	char *text;

	fixture_init(&f);
	fixture_open(&f, true);
	set_label(&f, "{\"run\":\"1\"}");
	while ((s = begin(&f, "http://docs.test/fill")))
		end(&f, s, "http://docs.test/fill");
	note(&f, AUDIT_POLICY);
	/* Without room for its line a change is refused, and changes nothing. */
	assert_int_equal(audit_set_context(f.audit, &late, 7), E_FULL);
	assert_true(slice_eq(audit_context(f.audit), SLICE("{\"run\":\"1\"}")));
	text = fixture_close(&f);
	assert_int_equal(trail_count(text, "\"context\":{\"run\":\"1\"},\"kind\":\"policy\""), 1);
	assert_int_equal(trail_count(text, "late"), 0);
	free(text);
	fixture_fini(&f);
}

/* The whole trail by pages, to be freed. */
static char *read_pages(const struct audit *a, uint64_t after, uint32_t max_lines, size_t bytes)
{
	char *text = calloc(1, TRAIL_TEXT_MAX);
	size_t at = 0;
	int n;

	do {
		struct strbuf page;

		strbuf_init(&page, bytes);
		n = audit_read(a, after, max_lines, &page);
		assert_true(n >= 0 && (uint32_t)n <= max_lines);
		assert_true(page.len <= bytes && !page.full);
		assert_int_equal(n, trail_count(strbuf_cstr(&page), "\n"));
		memcpy(text + at, strbuf_cstr(&page), page.len);
		at += page.len;
		after += (uint64_t)n;
		strbuf_fini(&page);
	} while (n > 0);
	return text;
}

static void test_pages_of_any_size_are_the_file(void **state)
{
	struct fixture f;
	struct strbuf out;
	char url[900];
	char *file, *whole, *pages;
	size_t len;

	fixture_init(&f);
	fixture_open(&f, true);
	for (size_t i = 0; i < 300; i++) {
		memset(url, 'u', sizeof(url));
		url[i * 3] = '\0';
		end(&f, begin(&f, url), url);
	}
	whole = read_pages(f.audit, 0, 1000, 1u << 20);
	for (uint32_t n = 1; n < 300; n = n * 3 + 1) {
		pages = read_pages(f.audit, 0, n, 32768);
		assert_string_equal(pages, whole);
		free(pages);
	}
	strbuf_init(&out, 32768);
	assert_int_equal(audit_read(f.audit, 300, 10, &out), 0);
	assert_int_equal(audit_read(f.audit, 301, 10, &out), E_VALUE);
	assert_int_equal(audit_read(f.audit, UINT64_MAX, 10, &out), E_VALUE);
	assert_int_equal(out.len, 0);
	strbuf_fini(&out);
	/* Nothing was taken away from the sinks. */
	free(fixture_close(&f));
	file = trail_read(f.file.path, &len);
	assert_string_equal(file, whole);
	free(file);
	free(whole);
	fixture_fini(&f);
}

static void test_lines_that_are_gone_are_an_error_and_not_a_gap(void **state)
{
	struct fixture f;
	struct strbuf out;
	uint64_t oldest;
	char *text;

	fixture_init(&f);
	fixture_open(&f, false);
	assert_int_equal(audit_oldest(f.audit), 1);
	strbuf_init(&out, 32768);
	assert_int_equal(audit_read(f.audit, 0, 10, &out), 0);
	/* Without a sink lines are written over at once. */
	for (int i = 0; i < 20000; i++)
		end(&f, begin(&f, "http://docs.test/"), "http://docs.test/");
	oldest = audit_oldest(f.audit);
	assert_true(oldest > 1 && oldest < audit_seq(f.audit));
	assert_int_equal(audit_read(f.audit, 0, 10, &out), -ENOENT);
	assert_int_equal(audit_read(f.audit, oldest - 2, 10, &out), -ENOENT);
	assert_int_equal(out.len, 0);
	text = read_pages(f.audit, oldest - 1, 100, 32768);
	assert_int_equal(trail_count(text, "\n"), audit_seq(f.audit) - oldest + 1);
	assert_int_equal(trail_number(text, "\"seq\":"), oldest);
	free(text);
	strbuf_fini(&out);
	audit_close(f.audit);
	trail_write(f.file.path, "", 0);
	fixture_fini(&f);
}

int main(void)
{
	int log = open("/dev/null", O_WRONLY | O_CLOEXEC);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_exchange_is_one_line_with_the_id_of_its_slot),
		cmocka_unit_test(test_ids_do_not_repeat),
		cmocka_unit_test(test_lines_stand_in_the_order_of_the_ends),
		cmocka_unit_test(test_long_one_has_an_open_line_and_a_last_one_with_the_same_id),
		cmocka_unit_test(test_full_ring_refuses_new_exchanges_and_keeps_what_ends),
		cmocka_unit_test(test_notes_beyond_the_spare_slots_are_counted),
		cmocka_unit_test(test_no_slot_is_left_for_one_more_than_the_limit),
		cmocka_unit_test(test_flood_of_refusals_does_not_stop_reads),
		cmocka_unit_test(test_summary_is_written_by_the_loop_when_its_second_is_over),
		cmocka_unit_test(test_open_exchanges_of_a_killed_worker_are_interrupted),
		cmocka_unit_test(test_counts_outlive_the_worker),
		cmocka_unit_test(test_killed_worker_with_a_full_ring_loses_nothing),
		cmocka_unit_test(test_lines_in_the_file_beyond_the_cursor_are_not_repeated),
		cmocka_unit_test(test_new_area_goes_on_from_the_file_and_says_that_there_is_a_gap),
		cmocka_unit_test(test_empty_new_file_takes_what_the_old_one_lacks),
		cmocka_unit_test(test_area_of_another_layout_and_foreign_file_are_refused),
		cmocka_unit_test(test_without_a_sink_exchanges_go_on),
		cmocka_unit_test(test_lines_carry_the_context_in_force_when_their_slot_was_filled),
		cmocka_unit_test(test_line_that_waited_for_room_keeps_its_context),
		cmocka_unit_test(test_pages_of_any_size_are_the_file),
		cmocka_unit_test(test_lines_that_are_gone_are_an_error_and_not_a_gap),
	};

	log_setup(LOG_LEVEL_ERROR, log, "test");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
