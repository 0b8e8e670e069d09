/* The operator's log: one line for each event, written by one write(2), so lines of several
 * processes on one pipe do not mix. A line that cannot be written at once is dropped.
 *
 * This is the one file with mutable state of the process: a log that needs a handle is not there
 * where it is needed most. */
#include "base/log.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"

#define LOG_LINE_MAX 2048   /* below PIPE_BUF, so a pipe takes all of it or nothing */
#define LOG_DETAIL_MAX 1024 /* before escaping */
#define LOG_PREFIX_MAX 128  /* time, level, who and module, all of them ours */

_Static_assert(LOG_LINE_MAX <= PIPE_BUF, "a line must be written to a pipe as a whole");

struct log_state {
	enum log_level level;
	int fd;
	const char *who;
};

static struct log_state log_state = {LOG_LEVEL_INFO, STDERR_FILENO, "egress"};

static const char *log_level_text(enum log_level level)
{
	switch (level) {
	case LOG_LEVEL_ERROR:
		return "error";
	case LOG_LEVEL_WARN:
		return "warn";
	case LOG_LEVEL_INFO:
		return "info";
	case LOG_LEVEL_DEBUG:
		return "debug";
	}
	return "unknown";
}

void log_setup(enum log_level level, int fd, const char *who)
{
	log_state = (struct log_state){level, fd, who};
}

bool log_enabled(enum log_level level)
{
	return level <= log_state.level;
}

/* Escapes s into line at offset len, and returns the new length. Three bytes stay free for the mark
 * of a cut, and one for the newline. */
static size_t log_escape(char line[LOG_LINE_MAX], size_t len, struct slice s, bool *cut)
{
	static const char hex[] = "0123456789abcdef";

	for (size_t i = 0; i < s.len; i++) {
		unsigned char c = (unsigned char)s.p[i];
		bool plain = c >= 0x20 && c < 0x7f && c != '\\';

		if (len + (plain ? 1 : 4) > LOG_LINE_MAX - 4) {
			*cut = true;
			break;
		}
		if (plain) {
			line[len++] = (char)c;
			continue;
		}
		line[len++] = '\\';
		line[len++] = 'x';
		line[len++] = hex[c >> 4];
		line[len++] = hex[c & 15];
	}
	return len;
}

static size_t log_prefix(
	char line[LOG_LINE_MAX], const char *when, enum log_level level, const char *module)
{
	int n = snprintf(line, LOG_PREFIX_MAX, "%s %s %s %s: ", when, log_level_text(level),
		log_state.who, module);

	if (n < 0)
		return 0;
	return n < LOG_PREFIX_MAX ? (size_t)n : LOG_PREFIX_MAX - 1;
}

/* A pipe nobody reads would block the caller, and one that is closed would send SIGPIPE: poll tells
 * both beforehand, also where the descriptor is not O_NONBLOCK. */
static void log_write(const char *line, size_t len)
{
	struct pollfd pfd = {.fd = log_state.fd, .events = POLLOUT};

	if (poll(&pfd, 1, 0) != 1 || pfd.revents != POLLOUT)
		return;
	/* What did not fit is lost: a log is no reason to wait. */
	(void)!write(log_state.fd, line, len);
}

void log_line(enum log_level level, const char *module, const char *fmt, ...)
{
	const int saved = errno;
	char line[LOG_LINE_MAX];
	char detail[LOG_DETAIL_MAX];
	char when[CLOCK_TEXT_MAX];
	bool cut = false;
	va_list ap;
	size_t len;
	int n;

	if (!log_enabled(level))
		return;
	va_start(ap, fmt);
	n = vsnprintf(detail, sizeof(detail), fmt, ap);
	va_end(ap);
	if (n < 0)
		n = 0;
	if ((size_t)n >= sizeof(detail)) {
		cut = true;
		n = (int)sizeof(detail) - 1;
	}
	clock_text(clock_wall_us(), when);
	len = log_prefix(line, when, level, module);
	len = log_escape(line, len, slice_make(detail, (size_t)n), &cut);
	for (int i = 0; i < 3 && cut; i++)
		line[len++] = '.';
	line[len++] = '\n';
	log_write(line, len);
	errno = saved;
}

bool log_rate_ok(struct log_rate *r, uint64_t now_ms, uint32_t *left_out)
{
	const uint32_t burst = r->burst ? r->burst : 1;
	const uint32_t every_ms = r->every_ms ? r->every_ms : 1;

	*left_out = 0;
	if (r->used > 0 && now_ms >= r->next_ms) {
		uint64_t passed = 1 + (now_ms - r->next_ms) / every_ms;

		r->used -= passed < r->used ? (uint32_t)passed : r->used;
		r->next_ms += passed * every_ms;
	}
	if (r->used >= burst) {
		r->left_out += r->left_out < UINT32_MAX;
		return false;
	}
	if (r->used == 0)
		r->next_ms = now_ms + every_ms;
	r->used++;
	*left_out = r->left_out;
	r->left_out = 0;
	return true;
}
