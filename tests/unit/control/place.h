/* A directory of its own for each test, and files in it. For tests that read and write files. */
#pragma once

#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

struct place {
	char dir[64];
	char path[128];  /* dir/file */
	char other[128]; /* dir/other */
};

static inline int place_up(void **state)
{
	struct place *p = calloc(1, sizeof(*p));

	(void)snprintf(p->dir, sizeof(p->dir), "/tmp/egress-place-XXXXXX");
	if (!mkdtemp(p->dir))
		return -1;
	(void)snprintf(p->path, sizeof(p->path), "%s/file", p->dir);
	(void)snprintf(p->other, sizeof(p->other), "%s/other", p->dir);
	*state = p;
	return 0;
}

static inline int place_remove(const char *path, const struct stat *st, int what, struct FTW *ftw)
{
	return remove(path);
}

static inline int place_down(void **state)
{
	struct place *p = *state;

	(void)nftw(p->dir, place_remove, 8, FTW_DEPTH | FTW_PHYS);
	free(p);
	return 0;
}

static inline void place_put_bytes(const char *path, const char *text, size_t len, mode_t mode)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, len), (ssize_t)len);
	assert_int_equal(fchmod(fd, mode), 0);
	(void)close(fd);
}

static inline void place_put(const char *path, const char *text, mode_t mode)
{
	place_put_bytes(path, text, strlen(text), mode);
}

#define PLACE_TEST(name) cmocka_unit_test_setup_teardown(name, place_up, place_down)
