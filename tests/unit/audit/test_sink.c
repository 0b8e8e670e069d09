/* Sinks: one write for many lines, partial and failing writes, stdout that does not read, rotation.
 * writev is wrapped, so that a disk can be full and a write short; poll, so that waiting only moves
 * the clock. */
#include <errno.h>
#include <poll.h>
#include <sys/stat.h>

#include <event2/event.h>

#include "audit/sink.h"
#include "base/log.h"
#include "tests/unit/audit/trail.h"

#define BODY "\"ts\":\"x\""

static struct {
	size_t max;   /* bytes that a write takes at most, 0: no limit */
	size_t space; /* bytes that fit in all; after them ENOSPC */
	unsigned calls;
} disk;

ssize_t __real_writev(int fd, const struct iovec *iov, int n);
ssize_t __wrap_writev(int fd, const struct iovec *iov, int n);

ssize_t __wrap_writev(int fd, const struct iovec *iov, int n)
{
	struct iovec one = iov[0];
	ssize_t ret;

	disk.calls++;
	if (disk.space == 0) {
		errno = ENOSPC;
		return -1;
	}
	if (disk.max > 0 && one.iov_len > disk.max)
		one.iov_len = disk.max;
	if (one.iov_len > disk.space)
		one.iov_len = disk.space;
	if (one.iov_len == iov[0].iov_len)
		ret = __real_writev(fd, iov, n);
	else
		ret = __real_writev(fd, &one, 1);
	if (ret > 0 && disk.space < SIZE_MAX)
		disk.space -= (size_t)ret;
	return ret;
}

static uint64_t now_ms;

int __real_poll(struct pollfd *p, nfds_t n, int timeout);
int __wrap_poll(struct pollfd *p, nfds_t n, int timeout);

int __wrap_poll(struct pollfd *p, nfds_t n, int timeout)
{
	int ret = __real_poll(p, n, 0);

	if (ret == 0) {
		now_ms += (uint64_t)timeout;
		clock_fake(now_ms * 1000, 0);
	}
	return ret;
}

struct fixture {
	void *area;
	struct ring *ring;
	struct sink *sink;
	struct trail_file file;
	uint64_t torn;
	int pipe[2];
	unsigned rounds;
	unsigned rotations;
};

static void fixture_init(struct fixture *f, bool file, bool out)
{
	*f = (struct fixture){.area = trail_area(ring_area_size()), .pipe = {-1, -1}};
	memset(&disk, 0, sizeof(disk));
	disk.space = SIZE_MAX;
	now_ms = 5000;
	clock_fake(5000000, 0);
	f->ring = ring_new(f->area);
	trail_file_init(&f->file);
	if (out)
		assert_int_equal(pipe2(f->pipe, O_CLOEXEC), 0);
	f->sink = sink_new(f->ring, file ? trail_file_open(&f->file) : -1, f->pipe[1], &f->torn);
}

static void fixture_fini(struct fixture *f)
{
	sink_free(f->sink);
	ring_free(f->ring);
	munmap(f->area, ring_area_size());
	trail_file_fini(&f->file);
	if (f->pipe[0] >= 0)
		close(f->pipe[0]);
	if (f->pipe[1] >= 0)
		close(f->pipe[1]);
}

static void commit(struct fixture *f, unsigned n)
{
	struct ring_source src = {0};

	for (unsigned i = 0; i < n; i++)
		ring_commit(f->ring, SLICE(BODY), &src);
}

static void test_many_lines_are_one_write(void **state)
{
	struct fixture f;

	fixture_init(&f, true, false);
	commit(&f, 1000);
	assert_true(sink_drain(f.sink));
	assert_int_equal(disk.calls, 1);
	assert_int_equal(ring_used(f.ring), 0);
	assert_true(sink_drain(f.sink));
	assert_int_equal(disk.calls, 1);
	trail_verify(f.file.path, 1, 1000);
	fixture_fini(&f);
}

static void test_cursor_moves_over_whole_lines_only(void **state)
{
	struct fixture f;

	fixture_init(&f, true, false);
	for (size_t max = 1; max < 400; max += 7) {
		commit(&f, 3);
		disk.max = max;
		assert_true(sink_drain(f.sink));
	}
	trail_verify(f.file.path, 1, ring_seq(f.ring));
	fixture_fini(&f);
}

static void test_full_disk_loses_nothing_and_is_tried_each_second(void **state)
{
	struct fixture f;
	unsigned before;

	fixture_init(&f, true, false);
	commit(&f, 10);
	disk.space = 0;
	assert_false(sink_drain(f.sink));
	before = disk.calls;
	clock_fake(5999000, 5999000);
	assert_false(sink_drain(f.sink));
	assert_int_equal(disk.calls, before);
	clock_fake(6000000, 6000000);
	assert_false(sink_drain(f.sink));
	assert_int_equal(disk.calls, before + 1);
	commit(&f, 10);
	assert_true(ring_used(f.ring) > 0);
	disk.space = SIZE_MAX;
	clock_fake(7000000, 7000000);
	assert_true(sink_drain(f.sink));
	trail_verify(f.file.path, 1, 20);
	fixture_fini(&f);
}

static void test_disk_that_fills_up_inside_a_line_ends_with_whole_lines(void **state)
{
	struct fixture f;
	uint64_t first;

	fixture_init(&f, true, false);
	commit(&f, 1);
	first = ring_head(f.ring);
	commit(&f, 1);
	disk.space = first + 20;
	assert_false(sink_drain(f.sink));
	assert_int_equal(ring_cursor(f.ring, RING_FILE), first);
	disk.space = SIZE_MAX;
	clock_fake(9000000, 9000000);
	assert_true(sink_drain(f.sink));
	trail_verify(f.file.path, 1, 2);
	fixture_fini(&f);
}

static void pipe_fill(int fd)
{
	static const char junk[4096];
	int flags = fcntl(fd, F_GETFL);

	assert_int_equal(fcntl(fd, F_SETFL, flags | O_NONBLOCK), 0);
	while (write(fd, junk, sizeof(junk)) > 0)
		;
}

/* Reads what is there; returns the number of bytes. */
static size_t pipe_read(int fd, char *buf, size_t size)
{
	int flags = fcntl(fd, F_GETFL);
	size_t at = 0;
	ssize_t n;

	assert_int_equal(fcntl(fd, F_SETFL, flags | O_NONBLOCK), 0);
	while (at < size - 1 && (n = read(fd, buf + at, size - 1 - at)) > 0)
		at += (size_t)n;
	buf[at] = '\0';
	return at;
}

static void test_stdout_that_does_not_read_blocks_nobody(void **state)
{
	static char buf[1 << 20];
	struct fixture f;

	fixture_init(&f, true, true);
	pipe_fill(f.pipe[1]);
	commit(&f, 5);
	assert_false(sink_drain(f.sink));
	trail_verify(f.file.path, 1, 5);
	assert_int_equal(ring_cursor(f.ring, RING_STDOUT), 0);
	assert_true(ring_used(f.ring) > 0);
	(void)pipe_read(f.pipe[0], buf, sizeof(buf));
	assert_true(sink_drain(f.sink));
	(void)pipe_read(f.pipe[0], buf, sizeof(buf));
	assert_int_equal(trail_count(buf, "\n"), 5);
	fixture_fini(&f);
}

static void test_stdout_gets_what_fits_and_the_rest_later(void **state)
{
	static char buf[1 << 20];
	struct fixture f;
	size_t n = 0;

	fixture_init(&f, false, true);
	commit(&f, 2000); /* more than a pipe holds */
	assert_false(sink_drain(f.sink));
	assert_int_equal(f.torn, 1);
	for (int i = 0; i < 100; i++) {
		n += pipe_read(f.pipe[0], buf + n, sizeof(buf) - n);
		if (sink_drain(f.sink))
			break;
	}
	n += pipe_read(f.pipe[0], buf + n, sizeof(buf) - n);
	assert_int_equal(f.torn, 0);
	assert_int_equal(ring_head(f.ring), n);
	assert_int_equal(trail_count(buf, "\n"), 2000);
	fixture_fini(&f);
}

static void test_half_a_line_on_stdout_is_ended_by_the_next_worker(void **state)
{
	static char buf[1 << 16];
	struct fixture f;

	fixture_init(&f, false, true);
	commit(&f, 1);
	f.torn = 1;
	assert_true(sink_drain(f.sink));
	assert_int_equal(f.torn, 0);
	(void)pipe_read(f.pipe[0], buf, sizeof(buf));
	assert_int_equal(buf[0], '\n');
	assert_int_equal(buf[1], '{');
	assert_int_equal(trail_count(buf, "\n"), 2);
	fixture_fini(&f);
}

static void test_pipe_is_blocking_again_afterwards(void **state)
{
	struct fixture f;

	fixture_init(&f, false, true);
	assert_true(fcntl(f.pipe[1], F_GETFL) & O_NONBLOCK);
	sink_free(f.sink);
	assert_false(fcntl(f.pipe[1], F_GETFL) & O_NONBLOCK);
	f.sink = NULL;
	fixture_fini(&f);
}

static void test_finish_gives_up_on_a_stdout_that_never_reads(void **state)
{
	struct fixture f;

	fixture_init(&f, true, true);
	pipe_fill(f.pipe[1]);
	commit(&f, 5);
	assert_false(sink_finish(f.sink));
	assert_int_equal(now_ms, 5000 + SINK_CLOSE_MS);
	trail_verify(f.file.path, 1, 5);
	fixture_fini(&f);
}

static void on_rotate(void *arg)
{
	struct fixture *f = arg;

	f->rotations++;
}

static void on_drained(void *arg)
{
	struct fixture *f = arg;

	f->rounds++;
}

static void test_64_lines_are_written_at_once_and_63_wait(void **state)
{
	struct event_base *base = event_base_new();
	struct fixture f;

	fixture_init(&f, true, false);
	sink_start(f.sink, base, on_drained, &f);
	commit(&f, SINK_LINES - 1);
	for (int i = 0; i < SINK_LINES - 1; i++)
		sink_wake(f.sink, 1);
	assert_true(event_base_loop(base, EVLOOP_NONBLOCK) >= 0);
	assert_int_equal(disk.calls, 0);
	commit(&f, 1);
	sink_wake(f.sink, 1);
	assert_true(event_base_loop(base, EVLOOP_NONBLOCK) >= 0);
	assert_int_equal(disk.calls, 1);
	assert_int_equal(f.rounds, 1);
	trail_verify(f.file.path, 1, SINK_LINES);
	sink_free(f.sink);
	f.sink = NULL;
	event_base_free(base);
	fixture_fini(&f);
}

static void test_fewer_lines_are_written_by_the_timer(void **state)
{
	struct event_base *base = event_base_new();
	struct fixture f;

	fixture_init(&f, true, false);
	sink_start(f.sink, base, on_drained, &f);
	commit(&f, 1);
	sink_wake(f.sink, 1);
	commit(&f, 1);
	sink_wake(f.sink, 1);
	while (f.rounds < 1)
		assert_true(event_base_loop(base, EVLOOP_ONCE) >= 0);
	assert_int_equal(disk.calls, 1);
	trail_verify(f.file.path, 1, 2);
	sink_free(f.sink);
	f.sink = NULL;
	event_base_free(base);
	fixture_fini(&f);
}

static void test_full_pipe_is_waited_for_by_an_event(void **state)
{
	static char buf[1 << 20];
	struct event_base *base = event_base_new();
	struct fixture f;
	size_t n = 0;

	fixture_init(&f, false, true);
	sink_start(f.sink, base, on_drained, &f);
	commit(&f, 2000);
	sink_wake(f.sink, 2000);
	for (int i = 0; i < 50 && ring_used(f.ring) > 0; i++) {
		assert_true(event_base_loop(base, EVLOOP_NONBLOCK) >= 0);
		n += pipe_read(f.pipe[0], buf + n, sizeof(buf) - n);
	}
	n += pipe_read(f.pipe[0], buf + n, sizeof(buf) - n);
	assert_int_equal(ring_used(f.ring), 0);
	assert_int_equal(n, ring_head(f.ring));
	sink_free(f.sink);
	f.sink = NULL;
	event_base_free(base);
	fixture_fini(&f);
}

static void test_rotation_is_asked_for_once_and_goes_on_in_the_new_file(void **state)
{
	struct event_base *base = event_base_new();
	struct fixture f;
	char old[80];

	fixture_init(&f, true, false);
	sink_on_rotate(f.sink, 5000, on_rotate, &f);
	sink_start(f.sink, base, NULL, NULL);
	for (int i = 0; i < 4; i++) {
		commit(&f, SINK_LINES);
		sink_wake(f.sink, SINK_LINES);
		assert_true(event_base_loop(base, EVLOOP_NONBLOCK) >= 0);
	}
	assert_int_equal(f.rotations, 1);
	(void)snprintf(old, sizeof(old), "%s.1", f.file.path);
	assert_int_equal(rename(f.file.path, old), 0);
	sink_set_file(f.sink, trail_file_open(&f.file));
	commit(&f, 10);
	assert_true(sink_drain(f.sink));
	trail_verify(f.file.path, 1, 4 * SINK_LINES + 10);
	sink_free(f.sink);
	f.sink = NULL;
	event_base_free(base);
	fixture_fini(&f);
}

static void test_half_a_line_moves_to_the_new_file_as_a_whole(void **state)
{
	struct fixture f;
	char old[80];
	struct stat st;
	uint64_t first;

	fixture_init(&f, true, false);
	commit(&f, 1);
	first = ring_head(f.ring);
	commit(&f, 1);
	disk.space = first + 20;
	assert_false(sink_drain(f.sink));
	(void)snprintf(old, sizeof(old), "%s.1", f.file.path);
	assert_int_equal(rename(f.file.path, old), 0);
	assert_int_equal(stat(old, &st), 0);
	assert_int_equal(st.st_size, first + 20);
	disk.space = SIZE_MAX;
	sink_set_file(f.sink, trail_file_open(&f.file));
	assert_true(sink_drain(f.sink));
	assert_int_equal(stat(old, &st), 0);
	assert_int_equal(st.st_size, first);
	trail_verify(f.file.path, 1, 2);
	fixture_fini(&f);
}

int main(void)
{
	int log = open("/dev/null", O_WRONLY | O_CLOEXEC);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_many_lines_are_one_write),
		cmocka_unit_test(test_cursor_moves_over_whole_lines_only),
		cmocka_unit_test(test_full_disk_loses_nothing_and_is_tried_each_second),
		cmocka_unit_test(test_disk_that_fills_up_inside_a_line_ends_with_whole_lines),
		cmocka_unit_test(test_stdout_that_does_not_read_blocks_nobody),
		cmocka_unit_test(test_stdout_gets_what_fits_and_the_rest_later),
		cmocka_unit_test(test_half_a_line_on_stdout_is_ended_by_the_next_worker),
		cmocka_unit_test(test_pipe_is_blocking_again_afterwards),
		cmocka_unit_test(test_finish_gives_up_on_a_stdout_that_never_reads),
		cmocka_unit_test(test_64_lines_are_written_at_once_and_63_wait),
		cmocka_unit_test(test_fewer_lines_are_written_by_the_timer),
		cmocka_unit_test(test_full_pipe_is_waited_for_by_an_event),
		cmocka_unit_test(test_rotation_is_asked_for_once_and_goes_on_in_the_new_file),
		cmocka_unit_test(test_half_a_line_moves_to_the_new_file_as_a_whole),
	};

	log_setup(LOG_LEVEL_ERROR, log, "test");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
