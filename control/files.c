/* Opening, copying and replacing files by fixed role. Called by the supervisor only; what it opens
 * goes to the worker as a descriptor. */
#include "control/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/strbuf.h"
#include "control/files_int.h"

#define FILES_PATH_MAX 4096
/* A worker that was just killed may hold its lock for a moment: 10 tries of 50 ms. */
#define FILES_LOCK_TRIES 10
#define FILES_LOCK_WAIT_NS 50000000

static int files_fail(struct errmsg *msg, const char *path, int err, const char *expected)
{
	return errmsg_set(msg, -err, "%s: %s: expected %s", path, err_text(-err), expected);
}

int files_write_all(int fd, struct slice text)
{
	ssize_t n;

	while (text.len > 0) {
		n = write(fd, text.p, text.len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		text = slice_from(text, (size_t)n);
	}
	return 0;
}

int files_snapshot_text(struct slice text, int *fd)
{
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;
	int ret;

	*fd = memfd_create("egress-file", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (*fd < 0)
		return -errno;
	ret = files_write_all(*fd, text);
	if (ret == 0 && fcntl(*fd, F_ADD_SEALS, seals) < 0)
		ret = -errno;
	if (ret < 0) {
		(void)close(*fd);
		*fd = -1;
	}
	return ret;
}

int files_snapshot(const char *path, size_t max, bool regular, int *fd)
{
	struct strbuf text;
	struct stat st;
	int from;
	int ret;

	*fd = -1;
	from = open(path, O_RDONLY | O_CLOEXEC | (regular ? O_NONBLOCK : 0));
	if (from < 0)
		return -errno;
	strbuf_init(&text, max);
	if (fstat(from, &st) < 0)
		ret = -errno;
	else if (regular && !S_ISREG(st.st_mode))
		ret = -EINVAL;
	else
		ret = strbuf_read_fd(&text, from);
	if (ret == 0)
		ret = files_snapshot_text(strbuf_slice(&text), fd);
	strbuf_fini(&text);
	(void)close(from);
	return ret;
}

static bool files_is_regular(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

static int files_lock(int fd)
{
	const struct timespec wait = {0, FILES_LOCK_WAIT_NS};
	int tries;

	for (tries = 0; tries < FILES_LOCK_TRIES; tries++) {
		if (flock(fd, LOCK_EX | LOCK_NB) == 0)
			return 0;
		if (errno != EWOULDBLOCK)
			return -errno;
		(void)nanosleep(&wait, NULL);
	}
	return -EWOULDBLOCK;
}

int files_open_audit(const char *path, int *fd, struct errmsg *msg)
{
	int ret;

	/* O_NONBLOCK: a FIFO in its place must not hang us; it means nothing to a regular file. */
	*fd = open(path,
		O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600);
	if (*fd < 0)
		return files_fail(msg, path, errno,
			"a file that can be appended to, no link, in a directory that is there");
	if (!files_is_regular(*fd)) {
		ret = errmsg_set(msg, -EINVAL, "%s: expected a regular file", path);
		goto fail;
	}
	ret = files_lock(*fd);
	if (ret < 0) {
		ret = errmsg_set(msg, ret,
			"%s: in use by another process: expected an audit file of its own", path);
		goto fail;
	}
	return 0;
fail:
	(void)close(*fd);
	*fd = -1;
	return ret;
}

int files_rotate_audit(const char *path, struct errmsg *msg)
{
	char from[FILES_PATH_MAX + FILES_NAME_MAX];
	char to[FILES_PATH_MAX + FILES_NAME_MAX];
	int i;

	if (strlen(path) >= FILES_PATH_MAX)
		return files_fail(msg, "audit file", ENAMETOOLONG, "a shorter path");
	for (i = FILES_AUDIT_KEEP; i > 0; i--) {
		(void)snprintf(to, sizeof(to), "%s.%d", path, i);
		if (i > 1)
			(void)snprintf(from, sizeof(from), "%s.%d", path, i - 1);
		else
			(void)snprintf(from, sizeof(from), "%s", path);
		if (rename(from, to) < 0 && errno != ENOENT)
			return files_fail(msg, from, errno, "a name that can be changed");
	}
	return 0;
}

bool files_is_same(const char *path, int fd)
{
	struct stat a;
	struct stat b;

	return lstat(path, &a) == 0 && fstat(fd, &b) == 0 && a.st_dev == b.st_dev &&
		a.st_ino == b.st_ino;
}

/* mkdir -p for the directory part of path. What exists is left as it is. */
static int files_make_dirs(const char *path)
{
	char *copy = xstrdup(path);
	char *p;
	int ret = 0;

	for (p = strchr(copy + 1, '/'); p && ret == 0; p = strchr(p + 1, '/')) {
		*p = '\0';
		if (mkdir(copy, 0700) < 0 && errno != EEXIST)
			ret = -errno;
		*p = '/';
	}
	free(copy);
	return ret;
}

/* The directory of path, not through a link at its end; *name is the part behind it. */
int files_open_dir(const char *path, const char **name)
{
	const char *slash = strrchr(path, '/');
	char *dir;
	int fd;

	*name = slash ? slash + 1 : path;
	if (slash == path)
		dir = xstrdup("/");
	else
		dir = xstrdup(slash ? path : ".");
	if (slash && slash != path)
		dir[slash - path] = '\0';
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		fd = -errno;
	free(dir);
	return fd;
}

int files_random_name(char name[FILES_NAME_MAX])
{
	uint64_t r[2];

	if (getrandom(r, sizeof(r), 0) != (ssize_t)sizeof(r))
		return -errno;
	(void)snprintf(name, FILES_NAME_MAX, ".egress-%08x%016llx", (unsigned)r[0],
		(unsigned long long)r[1]);
	return 0;
}

/* Writes a new file in dir. mode is what it gets, whatever the umask. */
static int files_create_at(int dir, const char *name, struct slice text, mode_t mode)
{
	int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	int ret;

	if (fd < 0)
		return -errno;
	ret = files_write_all(fd, text);
	if (ret == 0 && fchmod(fd, mode) < 0)
		ret = -errno;
	if (close(fd) < 0 && ret == 0)
		ret = -errno;
	if (ret < 0)
		(void)unlinkat(dir, name, 0);
	return ret;
}

int files_replace(
	const char *path, struct slice text, mode_t mode, bool make_dirs, struct errmsg *msg)
{
	char temporary[FILES_NAME_MAX] = "";
	const char *name = "";
	int dir = -1;
	int ret = 0;

	if (make_dirs)
		ret = files_make_dirs(path);
	if (ret == 0)
		ret = dir = files_open_dir(path, &name);
	if (ret >= 0)
		ret = files_random_name(temporary);
	if (ret == 0)
		ret = files_create_at(dir, temporary, text, mode);
	if (ret == 0 && renameat(dir, temporary, dir, name) < 0) {
		ret = -errno;
		(void)unlinkat(dir, temporary, 0);
	}
	if (dir >= 0)
		(void)close(dir);
	if (ret < 0)
		return files_fail(msg, path, -ret, "a file in a directory that can be written to");
	return 0;
}

int files_remove(const char *path, struct errmsg *msg)
{
	const char *name;
	int dir = files_open_dir(path, &name);
	int ret = 0;

	if (dir < 0)
		ret = dir;
	else if (unlinkat(dir, name, 0) < 0)
		ret = -errno;
	if (dir >= 0)
		(void)close(dir);
	if (ret == 0 || ret == -ENOENT)
		return 0;
	return files_fail(msg, path, -ret, "a file that can be taken away");
}

int files_create_secret(const char *path, struct slice text, struct errmsg *msg)
{
	const char *name;
	int ret;
	int dir;

	dir = files_open_dir(path, &name);
	if (dir < 0)
		return files_fail(msg, path, -dir, "a file in a directory that exists");
	ret = files_create_at(dir, name, text, 0600);
	(void)close(dir);
	if (ret < 0)
		return files_fail(msg, path, -ret, "a file that can be made");
	return 0;
}

int files_open_secret(const char *path, int *fd, struct errmsg *msg)
{
	struct stat st;
	int ret;

	*fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (*fd < 0 && errno == ENOENT)
		return -ENOENT;
	if (*fd < 0)
		return files_fail(msg, path, errno, "a readable file");
	if (fstat(*fd, &st) < 0 || !S_ISREG(st.st_mode))
		ret = errmsg_set(msg, -EPERM,
			"%s: expected a regular file that only its owner can read (chmod 600)",
			path);
	else if (st.st_mode & 077)
		ret = errmsg_set(msg, -EPERM,
			"%s: mode %04o: expected a file that only its owner can read (chmod 600)",
			path, (unsigned)st.st_mode & 07777);
	else
		return 0;
	(void)close(*fd);
	*fd = -1;
	return ret;
}
