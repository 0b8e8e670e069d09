/* Temporary file, fsync, rename. Before it: the supervisor has a text from the worker; after it:
 * the file has its name, or never existed. */
#include "control/file_stage.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/strbuf.h"
#include "control/files_int.h"

#define STAGE_TEXT_MAX (64u << 20) /* of what is read back: more than a policy has */

_Static_assert(sizeof(((struct file_stage *)NULL)->temporary) == FILES_NAME_MAX, "a random name");

void file_stage_init(struct file_stage *f)
{
	*f = (struct file_stage){.dir = -1, .fd = -1};
}

static void stage_close(struct file_stage *f)
{
	if (f->fd >= 0)
		(void)close(f->fd);
	if (f->dir >= 0)
		(void)close(f->dir);
	free(f->path);
	file_stage_init(f);
}

void file_stage_discard(struct file_stage *f)
{
	if (f->dir >= 0 && f->temporary[0])
		(void)unlinkat(f->dir, f->temporary, 0);
	stage_close(f);
}

static const char *stage_name(const struct file_stage *f)
{
	const char *slash = strrchr(f->path, '/');

	return slash ? slash + 1 : f->path;
}

/* Who may read the file stays as it is. */
static int stage_rights(const struct file_stage *f)
{
	struct stat st;
	mode_t mode = 0600;

	if (fstatat(f->dir, stage_name(f), &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode)) {
		mode = st.st_mode & 07777;
		/* Not ours to give away: then it is ours from here on. */
		if (fchown(f->fd, st.st_uid, st.st_gid) < 0)
			mode &= 0700;
	}
	return fchmod(f->fd, mode) < 0 ? -errno : 0;
}

static int stage_write(struct file_stage *f, struct slice text)
{
	const char *name;
	int ret;

	f->dir = files_open_dir(f->path, &name);
	if (f->dir < 0)
		return f->dir;
	ret = files_random_name(f->temporary);
	if (ret < 0)
		return ret;
	f->fd = openat(
		f->dir, f->temporary, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (f->fd < 0) {
		ret = -errno;
		f->temporary[0] = '\0';
		return ret;
	}
	ret = files_write_all(f->fd, text);
	if (ret == 0)
		ret = stage_rights(f);
	if (ret == 0 && fsync(f->fd) < 0)
		ret = -errno;
	return ret;
}

int file_stage_write(struct file_stage *f, const char *path, struct slice text, struct errmsg *msg)
{
	int ret;

	file_stage_discard(f);
	f->path = xstrdup(path);
	ret = stage_write(f, text);
	if (ret == 0)
		return 0;
	(void)errmsg_set(msg, ret, "%s: %s: expected a file in a directory that can be written to",
		path, err_text(ret));
	file_stage_discard(f);
	return ret;
}

static int stage_overwrite(const struct file_stage *f)
{
	struct strbuf text;
	int to;
	int ret;

	to = openat(f->dir, stage_name(f), O_WRONLY | O_TRUNC | O_NOFOLLOW | O_CLOEXEC);
	if (to < 0)
		return -errno;
	strbuf_init(&text, STAGE_TEXT_MAX);
	ret = strbuf_pread_fd(&text, f->fd);
	if (ret == 0)
		ret = files_write_all(to, strbuf_slice(&text));
	if (ret == 0 && fsync(to) < 0)
		ret = -errno;
	strbuf_fini(&text);
	if (close(to) < 0 && ret == 0)
		ret = -errno;
	return ret;
}

int file_stage_commit(struct file_stage *f, struct errmsg *msg)
{
	int ret = 0;

	if (f->dir < 0)
		return errmsg_set(msg, E_VALUE, "nothing was written");
	if (renameat(f->dir, f->temporary, f->dir, stage_name(f)) == 0) {
		f->temporary[0] = '\0';
		/* The name has to be on the disk, too; where that cannot be asked for, it is. */
		(void)fsync(f->dir);
	} else {
		ret = errno == EBUSY ? stage_overwrite(f) : -errno;
	}
	if (ret < 0)
		(void)errmsg_set(msg, ret,
			"%s: %s: expected a file in a directory that can be written to", f->path,
			err_text(ret));
	file_stage_discard(f);
	return ret;
}
