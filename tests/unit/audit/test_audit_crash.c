/* A worker that is killed between any two instructions. A child works on the trail one instruction
 * at a time; whenever the area or the file has changed, a copy of both is given to a new start, and
 * the lines that come out are compared with what the child had done by then. */
#include <sched.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "audit/refusal.h"
#include "audit/slot.h"
#include "tests/unit/audit/trail.h"

#define PAGE 4096
#define STEPS_MAX 4000000
#define MADE_MAX 16
#define FILE_MAX (128u << 10)
#define PAGES_MAX 64
#define URL_FIRST "\"url\":\"http://docs.test/x\",\"host\":\"docs.test\","
#define URL_UPDATED "\"url\":\"http://docs.test/updated\",\"host\":\"docs.test\","

/* What the child has done, told after each call came back. */
struct made {
	char id[AUDIT_ID_LEN + 1];
	uint64_t up;    /* at least what an interrupted line has to say */
	uint64_t ended; /* the exchange has its line */
	uint64_t run;   /* label in force when it began */
};

struct progress {
	uint64_t n;
	uint64_t n_refused; /* notes of refusals, those before the first step included */
	uint64_t n_runs;    /* changes of the label, which counts them */
	uint64_t busy;      /* a call that adds one is under way */
	struct made made[MADE_MAX];
};

/* The parts of the area that the child touches. */
struct part {
	size_t at, len;
};

struct fixture {
	char *area; /* the child's */
	char *seen; /* as it was at the last check */
	char *copy; /* for the new start */
	struct part part[3];
	size_t page[PAGES_MAX]; /* offsets of the pages that change after the child has stopped */
	size_t n_pages;
	struct progress *progress;
	struct trail_file file;
	struct trail_file copy_file;
	uint64_t file_size;
	uint64_t n_checks;
	char context[64]; /* of the new start */
};

static size_t pages(size_t n)
{
	return (n + PAGE - 1) / PAGE * PAGE;
}

static void fixture_init(struct fixture *f)
{
	size_t ring = PAGE + pages(slot_area_size());
	size_t refusals = ring + pages(ring_area_size());

	clock_fake(5000000, UINT64_C(1767323045678901));
	*f = (struct fixture){
		.area = trail_area(audit_area_size()),
		.seen = trail_area(audit_area_size()),
		.copy = trail_area(audit_area_size()),
		.progress = trail_area(sizeof(*f->progress)),
		.part =
			{
				{0, 11 * PAGE}, /* the head, and four slots */
				{ring, 12 * PAGE},
				{refusals, refusal_area_size() - REFUSAL_BYTES + 8 * PAGE},
			},
	};
	trail_file_init(&f->file);
	trail_file_init(&f->copy_file);
	close(trail_file_open(&f->file));
}

static void fixture_fini(struct fixture *f)
{
	munmap(f->area, audit_area_size());
	munmap(f->seen, audit_area_size());
	munmap(f->copy, audit_area_size());
	munmap(f->progress, sizeof(*f->progress));
	trail_file_fini(&f->file);
	trail_file_fini(&f->copy_file);
}

static bool fixture_changed(struct fixture *f)
{
	struct stat st;

	assert_int_equal(stat(f->file.path, &st), 0);
	if ((uint64_t)st.st_size != f->file_size) {
		f->file_size = (uint64_t)st.st_size;
		return true;
	}
	for (size_t i = 0; i < f->n_pages; i++) {
		if (memcmp(f->area + f->page[i], f->seen + f->page[i], PAGE) != 0)
			return true;
	}
	return false;
}

/* A new worker on the copies; returns the file's text. */
static char *fixture_recover(struct fixture *f)
{
	struct audit *a;
	struct errmsg msg = {.text = ""};
	char *text = malloc(FILE_MAX);
	FILE *file;
	size_t len;
	int ret;

	ret = audit_open(f->copy, SLICE_EMPTY, trail_file_open(&f->copy_file), false, &a, &msg);
	assert_string_equal(msg.text, "");
	assert_int_equal(ret, 0);
	assert_true(slice_to_cstr(audit_context(a), f->context, sizeof(f->context)));
	audit_close(a);
	file = fopen(f->copy_file.path, "re");
	assert_non_null(file);
	len = fread(text, 1, FILE_MAX - 1, file);
	text[len] = '\0';
	(void)fclose(file);
	return text;
}

/* The line that holds what, which occurs once. */
static struct slice line_with(const char *text, const char *what)
{
	const char *p = strstr(text, what);
	const char *end;

	assert_non_null(p);
	assert_int_equal(trail_count(p, what), 1);
	end = strchr(p, '\n');
	while (p > text && p[-1] != '\n')
		p--;
	return slice_make(p, (size_t)(end - p));
}

static bool line_has(struct slice line, const char *what)
{
	return slice_find(line, slice_str(what)) < line.len;
}

static uint64_t refused(const char *text)
{
	uint64_t n = trail_count(text, "\"verdict\":\"blocked\"");

	for (; *text; text++) {
		if (strncmp(text, "\"count\":", 8) == 0)
			n += strtoull(text + 8, NULL, 10) - 1;
	}
	return n;
}

static void fixture_check_lines(const struct fixture *f, const char *text)
{
	const struct progress *p = f->progress;
	uint64_t n = refused(text);
	char id[32];
	char up[32];
	char run[64];

	/* One may be on record whose call has not come back. */
	assert_true(n == p->n_refused || (p->busy && n == p->n_refused + 1));
	for (uint64_t i = 0; i < p->n; i++) {
		struct slice line;

		(void)snprintf(id, sizeof(id), "\"id\":\"%s\"", p->made[i].id);
		(void)snprintf(up, sizeof(up), "\"up\":%llu,", (unsigned long long)p->made[i].up);
		(void)snprintf(run, sizeof(run), ",\"context\":{\"run\":\"%llu\"},",
			(unsigned long long)p->made[i].run);
		line = line_with(text, id);
		assert_true(line_has(line, run));
		if (line_has(line, "\"status\":200,"))
			continue;
		assert_int_equal(p->made[i].ended, 0);
		assert_true(line_has(line, "\"reason\":\"interrupted\""));
		/* What was last told, or what an update wrote that has not come back; whole. */
		assert_true(line_has(line, up) || line_has(line, "\"up\":200,"));
		assert_true(
			line_has(line, line_has(line, "\"up\":200,") ? URL_UPDATED : URL_FIRST));
		assert_true(line_has(line, "\"user_agent\":\"agent\",\"prev\""));
	}
	n = trail_count(text, "\"kind\":\"read\",\"verdict\":\"allowed\"") +
		trail_count(text, "\"reason\":\"interrupted\"");
	assert_true(n == p->n || (p->busy && n == p->n + 1));
	assert_int_equal(trail_count(text, "\"verdict\":\"allowed\"") -
			trail_count(text, "\"kind\":\"context\""),
		trail_count(text, "\"status\":200,"));
}

/* The label is whole, the one before or the one after the change; after it, it is on record. */
static void fixture_check_runs(const struct fixture *f, const char *text)
{
	const struct progress *p = f->progress;
	uint64_t n = trail_count(text, "\"kind\":\"context\"");
	unsigned long long now = 0;
	char want[64];

	assert_true(n == p->n_runs || (p->busy && n == p->n_runs + 1));
	assert_int_equal(sscanf(f->context, "{\"run\":\"%llu\"}", &now), 1);
	assert_true(now == p->n_runs || (p->busy && now == p->n_runs + 1));
	assert_true(now >= n);
	(void)snprintf(want, sizeof(want), "{\"run\":\"%llu\"}", now);
	assert_string_equal(f->context, want);
}

static void fixture_check(struct fixture *f)
{
	struct audit_verify v;
	char *text;
	char *again;
	size_t len;

	f->n_checks++;
	for (size_t i = 0; i < ARRAY_LEN(f->part); i++) {
		memcpy(f->seen + f->part[i].at, f->area + f->part[i].at, f->part[i].len);
		memcpy(f->copy + f->part[i].at, f->area + f->part[i].at, f->part[i].len);
	}
	text = malloc(FILE_MAX);
	{
		FILE *file = fopen(f->file.path, "re");

		assert_non_null(file);
		len = fread(text, 1, FILE_MAX - 1, file);
		(void)fclose(file);
	}
	trail_write(f->copy_file.path, text, len);
	free(text);
	text = fixture_recover(f);
	assert_int_equal(audit_verify(f->copy_file.path, false, &v, NULL), 0);
	assert_string_equal(audit_break_text(v.what), audit_break_text(AUDIT_BREAK_NONE));
	assert_int_equal(v.first_seq, 1);
	fixture_check_lines(f, text);
	fixture_check_runs(f, text);
	/* A second start has nothing to add. */
	again = fixture_recover(f);
	assert_string_equal(again, text);
	free(again);
	free(text);
}

static struct audit *child_open(struct fixture *f)
{
	struct audit *a;

	if (audit_open(f->area, SLICE_EMPTY, trail_file_open(&f->file), false, &a, NULL) != 0)
		_exit(2);
	return a;
}

static void child_busy(struct fixture *f, uint64_t busy)
{
	__atomic_store_n(&f->progress->busy, busy, __ATOMIC_SEQ_CST);
}

static void child_refuse(struct fixture *f, struct audit *a)
{
	struct audit_event e = trail_refusal("a.test", 1000);

	child_busy(f, 1);
	audit_note(a, &e, NULL);
	f->progress->n_refused++;
	child_busy(f, 0);
}

static void child_label(struct fixture *f, struct audit *a)
{
	struct context c;

	child_busy(f, 1);
	c.len = (uint16_t)snprintf(c.text, sizeof(c.text), "{\"run\":\"%llu\"}",
		(unsigned long long)f->progress->n_runs + 1);
	if (audit_set_context(a, &c, 1000) != 0)
		_exit(5);
	__atomic_store_n(&f->progress->n_runs, f->progress->n_runs + 1, __ATOMIC_SEQ_CST);
	child_busy(f, 0);
}

static struct audit_slot *child_begin(struct fixture *f, struct audit *a, struct audit_event *e)
{
	struct progress *p = f->progress;
	struct audit_slot *s;

	*e = trail_event("http://docs.test/x");
	e->user_agent = SLICE("agent");
	e->up = 100;
	child_busy(f, 1);
	s = audit_begin(a, e);
	if (!s)
		_exit(3);
	p->made[p->n].up = 100;
	p->made[p->n].run = p->n_runs;
	memcpy(p->made[p->n].id, audit_slot_id(s), AUDIT_ID_LEN + 1);
	__atomic_store_n(&p->n, p->n + 1, __ATOMIC_SEQ_CST);
	child_busy(f, 0);
	return s;
}

static void child_end(struct fixture *f, struct audit *a, struct audit_slot *s, uint64_t which)
{
	struct audit_event e = trail_event("http://docs.test/end");

	e.status = 200;
	audit_end(a, s, &e);
	__atomic_store_n(&f->progress->made[which].ended, 1, __ATOMIC_SEQ_CST);
}

/* The life of two workers, the first of which is lost with an exchange open. */
static void child_run(struct fixture *f, bool traced)
{
	struct audit *a = child_open(f);
	struct audit_event e;
	struct audit_slot *s;

	child_label(f, a);
	/* From here on refusals are summarised. */
	for (int i = 0; i < REFUSAL_RATE; i++)
		child_refuse(f, a);
	if (traced && ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
		_exit(4);
	(void)raise(SIGSTOP);
	s = child_begin(f, a, &e);
	e.up = 200;
	e.url = SLICE("http://docs.test/updated");
	audit_update(a, s, &e);
	__atomic_store_n(&f->progress->made[0].up, 200, __ATOMIC_SEQ_CST);
	child_label(f, a);
	(void)child_begin(f, a, &e);
	child_end(f, a, s, 0);
	child_refuse(f, a);
	a = child_open(f);
	(void)child_begin(f, a, &e);
	child_refuse(f, a);
	audit_close(a);
	_exit(0);
}

/* Starts the child, which stops once it has prepared the trail. */
static pid_t child_start(struct fixture *f, bool traced)
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (pid == 0)
		child_run(f, traced);
	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	assert_true(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
	return pid;
}

/* A run at full speed, to learn which pages to look at after each instruction. */
static void fixture_learn(struct fixture *f)
{
	pid_t pid = child_start(f, false);
	int status;

	for (size_t i = 0; i < ARRAY_LEN(f->part); i++)
		memcpy(f->seen + f->part[i].at, f->area + f->part[i].at, f->part[i].len);
	assert_int_equal(kill(pid, SIGCONT), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	for (size_t at = 0; at < audit_area_size(); at += PAGE) {
		bool in_part = false;

		if (memcmp(f->area + at, f->seen + at, PAGE) == 0)
			continue;
		for (size_t i = 0; i < ARRAY_LEN(f->part); i++)
			in_part |= at - f->part[i].at < f->part[i].len;
		/* Else the parts above would be too small. */
		assert_true(in_part && f->n_pages < PAGES_MAX);
		f->page[f->n_pages++] = at;
	}
	memset(f->progress, 0, sizeof(*f->progress));
	munmap(f->area, audit_area_size());
	f->area = trail_area(audit_area_size());
	memset(f->seen, 0, f->part[2].at + f->part[2].len);
	trail_write(f->file.path, "", 0);
}

static void test_kill_at_any_instruction_neither_loses_nor_repeats_a_line(void **state)
{
	struct fixture f;
	uint64_t steps = 0;
	cpu_set_t one;
	int status;
	pid_t pid;

	fixture_init(&f);
	/* Both take turns: on one processor that is several times faster. */
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
	fixture_learn(&f);
	pid = child_start(&f, true);
	for (; steps < STEPS_MAX; steps++) {
		if (fixture_changed(&f))
			fixture_check(&f);
		assert_int_equal(ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL), 0);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		if (WIFEXITED(status))
			break;
		assert_true(WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP);
	}
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	print_message("%llu instructions, %llu states checked\n", (unsigned long long)steps,
		(unsigned long long)f.n_checks);
	assert_int_equal(f.progress->n, 3);
	assert_int_equal(f.progress->n_runs, 2);
	assert_true(f.n_checks > 200);
	assert_true(f.file_size > 0);
	fixture_check(&f);
	fixture_fini(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kill_at_any_instruction_neither_loses_nor_repeats_a_line),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
