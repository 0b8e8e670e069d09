/* Appends to the newest file of a copied trail. Before it: whoever asks GET /audit; after it:
 * audit_file reads and verifies what is here. */
#include "audit/audit_copy.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "audit/file_tail.h"
#include "base/arena.h"

static char *copy_path(const struct audit_copy *c, uint32_t number)
{
	char *path = NULL;
	int ret;

	ret = number > 1 ? asprintf(&path, "%s~%u.jsonl", c->base, number)
			 : asprintf(&path, "%s.jsonl", c->base);
	REQUIRE(ret >= 0);
	return path;
}

static int copy_open_file(const struct audit_copy *c, int flags, struct errmsg *msg)
{
	char *path = copy_path(c, c->number);
	int fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd < 0 && errno != ENOENT)
		fd = errmsg_set(msg, -errno, "%s: %s", path, err_text(-errno));
	else if (fd < 0)
		fd = -ENOENT;
	free(path);
	return fd;
}

static uint64_t copy_bytes(const struct audit_copy *c)
{
	uint64_t bytes = 0;

	for (uint32_t i = 1; i <= c->number; i++) {
		char *path = copy_path(c, i);
		struct stat st;

		if (lstat(path, &st) == 0)
			bytes += (uint64_t)st.st_size;
		free(path);
	}
	return bytes;
}

int audit_copy_open(struct audit_copy *c, const char *base, uint64_t max, struct errmsg *msg)
{
	struct file_tail tail;
	bool found = true;
	int fd, ret;

	*c = (struct audit_copy){.base = xstrdup(base), .number = 1, .max = max};
	while (found && c->number < AUDIT_COPY_FILES_MAX) {
		char *path = copy_path(c, c->number + 1);

		found = access(path, F_OK) == 0;
		c->number += found;
		free(path);
	}
	fd = copy_open_file(c, O_RDWR, msg);
	if (fd == -ENOENT)
		return 0;
	if (fd < 0)
		return fd;
	ret = file_tail_read(fd, &tail, msg);
	(void)close(fd);
	if (ret < 0)
		return errmsg_prefix(msg, ret, "%s", base);
	c->seq = tail.seq;
	memcpy(c->hash, tail.hash, sizeof(c->hash));
	c->bytes = copy_bytes(c);
	/* One that was full stays so, though a shorter page would fit. */
	if (c->bytes + AUDIT_COPY_PAGE_MAX > max)
		c->max = c->bytes;
	return 0;
}

void audit_copy_close(struct audit_copy *c)
{
	free(c->base);
	*c = (struct audit_copy){.base = NULL};
}

/* The length of those at the front that continue the trail; hash and *seq move with them. */
static size_t copy_good(
	struct slice lines, uint64_t *seq, char hash[RING_HEX_LEN], enum audit_break *what)
{
	struct slice rest = lines;

	*what = AUDIT_BREAK_NONE;
	while (rest.len > 0) {
		size_t end = slice_find_char(rest, '\n');
		struct audit_line line = {.text = slice_first(rest, end), .torn = end == rest.len};

		/* A longer one would not be found again as the last one. */
		if (end > RING_LINE_MAX || !ring_line_parse(line.text, &line.seq, &line.prev))
			line.seq = 0;
		*what = audit_line_check(&line, *seq, hash);
		if (*what != AUDIT_BREAK_NONE)
			break;
		*seq = line.seq;
		ring_sha_hex(line.text, hash);
		rest = slice_from(rest, end + 1);
	}
	return lines.len - rest.len;
}

/* A new file's name is on the disk when its folder is. */
static int copy_sync_folder(const struct audit_copy *c)
{
	const char *slash = strrchr(c->base, '/');
	char *dir = NULL;
	int fd, ret = 0;

	REQUIRE(asprintf(&dir, "%.*s.", slash ? (int)(slash + 1 - c->base) : 0, c->base) >= 0);
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	/* EINVAL: where that cannot be asked for, it is. */
	if (fd < 0 || (fsync(fd) < 0 && errno != EINVAL))
		ret = -errno;
	if (fd >= 0)
		(void)close(fd);
	free(dir);
	return ret;
}

/* All of it on the disk, or as before. */
static int copy_write(int fd, struct slice s)
{
	off_t start = lseek(fd, 0, SEEK_END);
	int ret = start < 0 ? -errno : 0;

	while (ret == 0 && s.len > 0) {
		ssize_t n = write(fd, s.p, s.len);

		if (n >= 0)
			s = slice_from(s, (size_t)n);
		else if (errno != EINTR)
			ret = -errno;
	}
	if (ret == 0 && fdatasync(fd) < 0)
		ret = -errno;
	/* What stays if this fails too is cut at the next start. */
	if (ret < 0 && start >= 0 && ftruncate(fd, start) < 0)
		ret = -errno;
	return ret;
}

static int copy_append(struct audit_copy *c, struct slice lines, struct errmsg *msg)
{
	int fd = copy_open_file(c, O_WRONLY | O_CREAT, msg);
	int ret;

	if (fd < 0)
		return fd;
	/* Also for a file that was there: who made it may have been killed before this. */
	ret = c->named ? 0 : copy_sync_folder(c);
	if (ret == 0)
		ret = copy_write(fd, lines);
	(void)close(fd);
	if (ret < 0)
		return errmsg_set(msg, ret, "%s: %s", c->base, err_text(ret));
	c->named = true;
	c->bytes += lines.len;
	return 0;
}

int audit_copy_add(
	struct audit_copy *c, struct slice *lines, enum audit_break *what, struct errmsg *msg)
{
	char hash[RING_HEX_LEN];
	uint64_t seq = c->seq;
	size_t len;
	int ret = 0;

	memcpy(hash, c->hash, sizeof(hash));
	len = copy_good(*lines, &seq, hash, what);
	if (len == 0)
		return 0;
	c->full = c->full || c->bytes + len > c->max;
	if (!c->full)
		ret = copy_append(c, slice_first(*lines, len), msg);
	if (ret < 0)
		return ret;
	*lines = slice_from(*lines, len);
	c->seq = seq;
	memcpy(c->hash, hash, sizeof(hash));
	return 0;
}

int audit_copy_begin(struct audit_copy *c, struct errmsg *msg)
{
	if (c->seq == 0)
		return 0;
	if (c->number == AUDIT_COPY_FILES_MAX)
		return errmsg_set(
			msg, E_LIMIT, "%s: %d files of one trail", c->base, AUDIT_COPY_FILES_MAX);
	c->number++;
	c->seq = 0;
	c->named = false;
	return 0;
}
