/* Following a file across rotation. Before it: the command line; after it: audit_tail prints.
 *
 * Nothing is kept between reads but the offset of the next line: an incomplete line is read again,
 * since a writer that restarts cuts it off and writes another in its place. */
#include "ctl/file_follow.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"

/* Looks at a rename in progress; then the file counts as moved away. */
#define FOLLOW_LOST_MAX 4

static char *follow_name(const char *path, uint32_t older)
{
	char *name = NULL;
	int n = older ? asprintf(&name, "%s.%u", path, older) : asprintf(&name, "%s", path);

	REQUIRE(n >= 0);
	return name;
}

static int follow_open_file(const char *path, uint32_t older)
{
	char *name = follow_name(path, older);
	int fd = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

	if (fd < 0)
		fd = -errno;
	free(name);
	return fd;
}

static bool follow_is(const char *path, uint32_t older, const struct stat *want)
{
	char *name = follow_name(path, older);
	struct stat st;
	bool same = stat(name, &st) == 0 && st.st_dev == want->st_dev && st.st_ino == want->st_ino;

	free(name);
	return same;
}

static ssize_t follow_pread(int fd, char *buf, size_t len, off_t at)
{
	ssize_t n;

	do {
		n = pread(fd, buf, len, at);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

/* Finds the start of the last *n lines of fd, from the end; lowers *n by those that are there. */
static int follow_seek_back(int fd, char *buf, uint64_t *n, off_t *at)
{
	struct stat st;
	off_t end, newline = -1;

	if (fstat(fd, &st) < 0)
		return -errno;
	end = st.st_size;
	*at = end;
	/* A newline ends the line before it: the last line starts behind the last but one. */
	while (end > 0) {
		off_t from = end > FILE_FOLLOW_LINE_MAX ? end - FILE_FOLLOW_LINE_MAX : 0;
		ssize_t got = follow_pread(fd, buf, (size_t)(end - from), from);

		if (got < 0)
			return (int)got;
		for (off_t i = got - 1; i >= 0; i--) {
			if (buf[i] != '\n')
				continue;
			if (newline >= 0)
				(*n)--;
			newline = from + i;
			*at = newline + 1;
			if (*n == 0)
				return 0;
		}
		end = from;
	}
	if (newline >= 0)
		(*n)--;
	*at = 0;
	return 0;
}

static void follow_switch(struct file_follow *f, int fd)
{
	if (f->fd >= 0)
		(void)close(f->fd);
	f->fd = fd;
	f->at = 0;
	f->from = f->to = 0;
	f->inside = false;
	f->lost = 0;
}

int file_follow_open(struct file_follow *f, const char *path, uint64_t n, struct errmsg *msg)
{
	uint32_t older = 0;
	int ret;

	*f = (struct file_follow){.path = path, .fd = -1, .buf = xmalloc(FILE_FOLLOW_LINE_MAX)};
	for (;;) {
		int fd = follow_open_file(path, older);

		ret = fd < 0 ? fd : 0;
		/* No older file: what there is has to do. */
		if (ret == -ENOENT && older > 0)
			return 0;
		if (ret == 0) {
			follow_switch(f, fd);
			ret = follow_seek_back(fd, f->buf, &n, &f->at);
		}
		if (ret < 0 || n == 0 || ++older > FILE_FOLLOW_OLDER_MAX)
			break;
	}
	if (ret < 0) {
		(void)errmsg_set(msg, ret, "%s: %s", path, err_text(ret));
		file_follow_close(f);
	}
	return ret;
}

void file_follow_close(struct file_follow *f)
{
	if (f->fd >= 0)
		(void)close(f->fd);
	free(f->buf);
	f->fd = -1;
	f->buf = NULL;
}

/* Cuts a whole line off what was read. */
static bool follow_cut(struct file_follow *f, struct slice *line)
{
	struct slice all = slice_make(f->buf + f->from, f->to - f->from);
	size_t end = slice_find_char(all, '\n');

	if (end == all.len)
		return false;
	*line = slice_first(all, end);
	f->from += end + 1;
	f->at += (off_t)end + 1;
	return true;
}

static int follow_fill(struct file_follow *f)
{
	ssize_t n = follow_pread(f->fd, f->buf, FILE_FOLLOW_LINE_MAX, f->at);
	struct stat st;

	f->from = 0;
	f->to = n > 0 ? (size_t)n : 0;
	/* Cut to nothing and written anew from its start (copy and truncate). */
	if (n == 0 && fstat(f->fd, &st) == 0 && st.st_size < f->at)
		f->at = 0;
	return n < 0 ? (int)n : 0;
}

/* The next whole line of the open file. */
static int follow_line(struct file_follow *f, struct slice *line)
{
	bool inside;
	int ret;

	for (;;) {
		if (!follow_cut(f, line)) {
			ret = follow_fill(f);
			if (ret < 0)
				return ret;
			if (f->to == FILE_FOLLOW_LINE_MAX && !memchr(f->buf, '\n', f->to)) {
				inside = f->inside;
				f->inside = true;
				f->at += (off_t)f->to;
				f->to = 0;
				if (!inside)
					return E_LIMIT;
				continue;
			}
			if (!follow_cut(f, line))
				return 0;
		}
		if (!f->inside)
			return 1;
		f->inside = false;
	}
}

/* The number of the open file by now, 0 for the newest; -1 if none of the names is its own. */
static int follow_where(const struct file_follow *f, const struct stat *st)
{
	for (uint32_t i = 0; i <= FILE_FOLLOW_OLDER_MAX; i++)
		if (follow_is(f->path, i, st))
			return (int)i;
	return -1;
}

static uint32_t follow_oldest(const struct file_follow *f)
{
	uint32_t oldest = 0;

	for (uint32_t i = 1; i <= FILE_FOLLOW_OLDER_MAX; i++) {
		char *name = follow_name(f->path, i);

		if (access(name, F_OK) == 0)
			oldest = i;
		free(name);
	}
	return oldest;
}

/* The number of the file that came after the open one, or -1 if there is none yet. */
static int follow_next_number(struct file_follow *f, const struct stat *st)
{
	int where = follow_where(f, st);

	if (where >= 0) {
		f->lost = 0;
		return where - 1;
	}
	/* Removed as the oldest: all others are newer. */
	if (st->st_nlink == 0)
		return (int)follow_oldest(f);
	/* Between two names, or moved away by somebody else. */
	return ++f->lost < FOLLOW_LOST_MAX ? -1 : 0;
}

/* Opens the file that came after the open one. 1, or 0 if there is none with content yet: the
 * writer goes over to a new file after its name was made, so the old one is only complete once the
 * new one has content. */
static int follow_successor(struct file_follow *f, int *out)
{
	struct stat old, now, next;
	int number, fd;

	if (fstat(f->fd, &old) < 0)
		return -errno;
	number = follow_next_number(f, &old);
	if (number < 0)
		return 0;
	fd = follow_open_file(f->path, (uint32_t)number);
	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	/* Another rotation may have moved both while we looked. */
	if (fstat(fd, &next) < 0 || next.st_size == 0 || fstat(f->fd, &now) < 0 ||
		now.st_nlink != old.st_nlink ||
		(f->lost == 0 && now.st_nlink > 0 &&
			!follow_is(f->path, (uint32_t)number + 1, &old))) {
		(void)close(fd);
		return 0;
	}
	*out = fd;
	return 1;
}

int file_follow_next(struct file_follow *f, struct slice *line)
{
	int next = -1, ret;

	for (;;) {
		ret = follow_line(f, line);
		if (ret != 0)
			return ret;
		ret = follow_successor(f, &next);
		if (ret <= 0)
			return ret;
		/* What was written between the two looks. */
		ret = follow_line(f, line);
		if (ret != 0) {
			(void)close(next);
			return ret;
		}
		follow_switch(f, next);
	}
}

int file_follow_torn(struct file_follow *f, struct slice *rest)
{
	int ret = follow_fill(f);

	*rest = slice_make(f->buf, f->to);
	return ret;
}
