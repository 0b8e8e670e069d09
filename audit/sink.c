/* Writing committed lines out: file and stdout, each with its cursor in the ring. */
#include "audit/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <event2/event.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/state.h"

#define SINK_POLL_MS 100

struct sink_out {
	int fd;
	enum ring_cursor cursor;
	size_t part; /* bytes behind the cursor that are written: the start of a line */
	bool polled; /* a write could block, so poll comes first */
	bool failed;
	uint64_t retry_ms;
	struct log_rate rate;
};

struct sink {
	struct ring *ring;
	struct sink_out file;
	struct sink_out out;
	uint64_t *torn;
	int out_flags; /* to give back, -1: not changed */
	uint32_t n_new;
	uint64_t file_bytes;
	uint64_t rotate_bytes;
	bool rotating;
	void (*rotate)(void *arg);
	void *rotate_arg;
	struct event *timer;
	struct event *writable;
	void (*drained)(void *arg);
	void *drained_arg;
};

static uint64_t sink_file_size(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && st.st_size > 0 ? (uint64_t)st.st_size : 0;
}

static void sink_out_open(struct sink *s, struct sink_out *o, int fd, enum ring_cursor c)
{
	*o = (struct sink_out){.fd = fd, .cursor = c};
	o->rate = (struct log_rate){.burst = 1, .every_ms = 60 * 1000};
	if (fd >= 0)
		ring_cursor_open(s->ring, c);
}

/* O_NONBLOCK belongs to the open file, which stdout shares with others: a terminal stays as it is,
 * and a write to it is asked for by poll. */
static void sink_stdout_prepare(struct sink *s)
{
	struct stat st;
	int flags;

	s->out_flags = -1;
	if (s->out.fd < 0)
		return;
	if (fstat(s->out.fd, &st) != 0 || S_ISREG(st.st_mode))
		return;
	if (!S_ISFIFO(st.st_mode) && !S_ISSOCK(st.st_mode)) {
		s->out.polled = true;
		return;
	}
	flags = fcntl(s->out.fd, F_GETFL);
	if (flags >= 0 && !(flags & O_NONBLOCK) &&
		fcntl(s->out.fd, F_SETFL, flags | O_NONBLOCK) == 0)
		s->out_flags = flags;
}

struct sink *sink_new(struct ring *ring, int fd_file, int fd_stdout, uint64_t *torn)
{
	struct sink *s = xcalloc(1, sizeof(*s));

	s->ring = ring;
	s->torn = torn;
	sink_out_open(s, &s->file, fd_file, RING_FILE);
	sink_out_open(s, &s->out, fd_stdout, RING_STDOUT);
	sink_stdout_prepare(s);
	if (fd_file >= 0)
		s->file_bytes = sink_file_size(fd_file);
	return s;
}

void sink_free(struct sink *s)
{
	if (!s)
		return;
	if (s->timer)
		event_free(s->timer);
	if (s->writable)
		event_free(s->writable);
	if (s->out_flags >= 0 && fcntl(s->out.fd, F_SETFL, s->out_flags) != 0)
		log_debug("sink", "stdout stays non-blocking: %s", err_text(-errno));
	if (s->file.fd >= 0)
		close(s->file.fd);
	free(s);
}

static uint64_t sink_left(const struct sink *s, const struct sink_out *o)
{
	return o->fd < 0 ? 0 : ring_head(s->ring) - ring_cursor(s->ring, o->cursor) - o->part;
}

/* n bytes went out: the cursor moves to the last line that is whole. */
static void sink_advance(struct sink *s, struct sink_out *o, size_t n)
{
	uint64_t cursor = ring_cursor(s->ring, o->cursor);
	size_t whole = ring_whole(s->ring, cursor, o->part + n);

	o->part = o->part + n - whole;
	ring_cursor_set(s->ring, o->cursor, cursor + whole);
}

static void sink_fail(struct sink *s, struct sink_out *o, int code)
{
	uint32_t left_out;

	o->failed = true;
	o->retry_ms = clock_mono_ms() + SINK_RETRY_MS;
	if (log_rate_ok(&o->rate, clock_mono_ms(), &left_out))
		log_error("sink",
			"the audit trail cannot be written to %s: %s; lines are kept and "
			"it is tried again each second",
			o == &s->file ? "its file" : "stdout", err_text(code));
}

static bool sink_writable(const struct sink_out *o, int wait_ms)
{
	struct pollfd p = {.fd = o->fd, .events = POLLOUT};

	return poll(&p, 1, wait_ms) > 0;
}

/* One write of all that is left; E_MORE when the descriptor takes no more now. */
static int sink_write(struct sink *s, struct sink_out *o)
{
	struct iovec iov[2];
	ssize_t n;
	int pieces;

	pieces = ring_view(s->ring, ring_cursor(s->ring, o->cursor) + o->part, iov);
	if (o->polled) {
		if (!sink_writable(o, 0))
			return E_MORE;
		/* What a writable terminal takes without blocking. */
		if (iov[0].iov_len > PIPE_BUF)
			iov[0].iov_len = PIPE_BUF;
		pieces = 1;
	}
	n = writev(o->fd, iov, pieces);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return E_MORE;
	if (n <= 0)
		return n < 0 ? -errno : -EIO;
	sink_advance(s, o, (size_t)n);
	if (o->failed)
		log_info("sink", "the audit trail is written again");
	o->failed = false;
	return 0;
}

static void sink_drain_file(struct sink *s)
{
	while (sink_left(s, &s->file) > 0) {
		uint64_t before = sink_left(s, &s->file);
		int ret;

		if (s->file.failed && clock_mono_ms() < s->file.retry_ms)
			return;
		ret = sink_write(s, &s->file);
		if (ret == 0)
			s->file_bytes += before - sink_left(s, &s->file);
		else if (ret != E_MORE)
			sink_fail(s, &s->file, ret);
		if (ret != 0)
			return;
	}
}

static void sink_drain_stdout(struct sink *s)
{
	while (sink_left(s, &s->out) > 0) {
		int ret;

		if (s->out.failed && clock_mono_ms() < s->out.retry_ms)
			return;
		if (*s->torn && s->out.part == 0) {
			/* A former worker left half a line, which comes again. */
			if (s->out.polled && !sink_writable(&s->out, 0))
				return;
			if (write(s->out.fd, "\n", 1) != 1)
				return;
			state_store(s->torn, 0);
		}
		/* Before the write: it may be the last thing that we do. */
		state_store(s->torn, 1);
		ret = sink_write(s, &s->out);
		state_store(s->torn, s->out.part > 0);
		if (ret != 0 && ret != E_MORE)
			sink_fail(s, &s->out, ret);
		if (ret != 0)
			return;
	}
}

bool sink_drain(struct sink *s)
{
	sink_drain_file(s);
	sink_drain_stdout(s);
	s->n_new = 0;
	return sink_left(s, &s->file) == 0 && sink_left(s, &s->out) == 0;
}

bool sink_finish(struct sink *s)
{
	uint64_t end = clock_mono_ms() + SINK_CLOSE_MS;

	s->file.retry_ms = 0;
	/* Rounds are counted too: a clock that stands still must not keep us here. */
	for (int i = 0; i < SINK_CLOSE_MS / SINK_POLL_MS; i++) {
		bool progress;

		do {
			uint64_t before = sink_left(s, &s->out);

			if (sink_drain(s))
				return true;
			progress = sink_left(s, &s->out) < before && clock_mono_ms() < end;
		} while (progress);
		if (sink_left(s, &s->out) == 0 || s->out.failed || clock_mono_ms() >= end)
			break;
		(void)sink_writable(&s->out, SINK_POLL_MS);
	}
	return false;
}

void sink_set_file(struct sink *s, int fd)
{
	struct sink_out *o = &s->file;

	if (o->fd >= 0) {
		if (o->part > 0 && ftruncate(o->fd, (off_t)(s->file_bytes - o->part)) != 0)
			log_warn("sink", "the old audit file ends in half a line: %s",
				err_text(-errno));
		close(o->fd);
	}
	o->fd = fd;
	o->part = 0;
	o->failed = false;
	s->rotating = false;
	s->file_bytes = fd >= 0 ? sink_file_size(fd) : 0;
	if (fd >= 0)
		ring_cursor_open(s->ring, RING_FILE);
	else
		ring_cursor_close(s->ring, RING_FILE);
}

void sink_on_rotate(struct sink *s, uint64_t max_bytes, void (*cb)(void *arg), void *arg)
{
	s->rotate_bytes = max_bytes;
	s->rotate = cb;
	s->rotate_arg = arg;
	s->rotating = false;
}

static void sink_arm(struct sink *s, uint32_t ms)
{
	struct timeval tv = {.tv_sec = ms / 1000, .tv_usec = (suseconds_t)(ms % 1000) * 1000};

	REQUIRE(event_add(s->timer, &tv) == 0);
}

/* A round: drain, let the owner refill the ring, and come back while something is left. */
static void sink_round(struct sink *s)
{
	bool done = sink_drain(s);

	if (s->rotate && !s->rotating && s->file.fd >= 0 && s->file_bytes > s->rotate_bytes) {
		s->rotating = true;
		s->rotate(s->rotate_arg);
	}
	if (s->drained)
		s->drained(s->drained_arg);
	if (done)
		return;
	if (sink_left(s, &s->out) > 0 && !s->out.failed && event_add(s->writable, NULL) != 0)
		log_debug("sink", "stdout cannot be waited for");
	if (!event_pending(s->timer, EV_TIMEOUT, NULL))
		sink_arm(s, s->file.failed || s->out.failed ? SINK_RETRY_MS : SINK_EVERY_MS);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct sink *s = arg;

	sink_round(s);
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
	struct sink *s = arg;

	sink_round(s);
}

void sink_start(struct sink *s, struct event_base *base, void (*drained)(void *arg), void *arg)
{
	s->drained = drained;
	s->drained_arg = arg;
	s->timer = event_new(base, -1, 0, on_timer, s);
	s->writable = event_new(base, s->out.fd, EV_WRITE, on_writable, s);
	REQUIRE(s->timer && s->writable);
	sink_wake(s, s->n_new);
}

void sink_wake(struct sink *s, uint32_t n)
{
	bool many = s->n_new + n >= SINK_LINES && s->n_new < SINK_LINES;

	s->n_new += n;
	if (!s->timer)
		return;
	if (many)
		event_active(s->timer, EV_TIMEOUT, 0);
	else if (!event_pending(s->timer, EV_TIMEOUT, NULL))
		sink_arm(s, SINK_EVERY_MS);
}
