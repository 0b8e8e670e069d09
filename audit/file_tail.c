/* Finds the last whole line of an audit file and removes what follows it. */
#include "audit/file_tail.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"

/* A whole line with the newline before it, and a torn one behind it. */
#define FILE_TAIL_BYTES (2 * RING_LINE_MAX + 2)
#define FILE_TAIL_START "{\"v\":1,\"seq\":"

static int file_tail_load(int fd, uint64_t from, char *buf, size_t len)
{
	size_t at = 0;

	while (at < len) {
		ssize_t n = pread(fd, buf + at, len - at, (off_t)(from + at));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		at += (size_t)n;
	}
	return 0;
}

/* What a killed worker leaves: the start of a line. What a power cut leaves: zeros. */
static bool file_tail_torn(struct slice s)
{
	const struct slice start = SLICE(FILE_TAIL_START);
	size_t i = 0;

	while (i < s.len && s.p[i] == '\0')
		i++;
	if (i == s.len)
		return true;
	return slice_starts(s, slice_first(start, s.len));
}

static int file_tail_foreign(struct errmsg *msg)
{
	return errmsg_set(msg, E_SYNTAX,
		"the audit file does not end like an audit trail: move it away, or name another");
}

static int file_tail_parse(struct slice line, struct file_tail *t, struct errmsg *msg)
{
	struct slice prev;

	if (!ring_line_parse(line, &t->seq, &prev))
		return file_tail_foreign(msg);
	ring_sha_hex(line, t->hash);
	t->stopped = slice_find(line, SLICE(",\"kind\":\"stop\",")) < line.len;
	return 0;
}

static int file_tail_find(
	int fd, uint64_t size, struct slice s, struct file_tail *t, struct errmsg *msg)
{
	size_t end = slice_rfind_char(s, '\n');
	struct slice torn = end == s.len ? s : slice_from(s, end + 1);
	struct slice line;
	size_t start;

	/* A line that does not even start in what was read is longer than any of ours. */
	if (!file_tail_torn(torn) || (end == s.len && size > s.len))
		return file_tail_foreign(msg);
	if (end < s.len) {
		line = slice_first(s, end);
		start = slice_rfind_char(line, '\n');
		line = start == line.len ? line : slice_from(line, start + 1);
		if (file_tail_parse(line, t, msg) < 0)
			return E_SYNTAX;
	}
	if (torn.len > 0 && ftruncate(fd, (off_t)(size - torn.len)) != 0)
		return errmsg_set(msg, -errno, "the audit file's torn last line cannot be cut: %s",
			err_text(-errno));
	return 0;
}

int file_tail_read(int fd, struct file_tail *t, struct errmsg *msg)
{
	struct stat st;
	uint64_t size;
	size_t len;
	char *buf;
	int ret;

	*t = (struct file_tail){0};
	memset(t->hash, '0', sizeof(t->hash));
	if (fstat(fd, &st) != 0)
		return errmsg_set(msg, -errno, "the audit file: %s", err_text(-errno));
	if (!S_ISREG(st.st_mode) || st.st_size <= 0)
		return 0;
	size = (uint64_t)st.st_size;
	len = size < FILE_TAIL_BYTES ? (size_t)size : FILE_TAIL_BYTES;
	buf = xmalloc(len);
	ret = file_tail_load(fd, size - len, buf, len);
	if (ret < 0)
		(void)errmsg_set(msg, ret, "the audit file cannot be read: %s", err_text(ret));
	else
		ret = file_tail_find(fd, size, slice_make(buf, len), t, msg);
	free(buf);
	return ret;
}
