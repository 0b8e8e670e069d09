/* Areas that outlive a worker: memfds made by the supervisor, and two-copy cells inside them.
 *
 * A worker can be killed between any two stores. It is one thread, so the stores that happened are
 * a prefix of the program's order, as long as the compiler keeps that order: hence state_store. */
#include "base/state.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/err.h"

#define STATE_SUM_SEED 0x9e3779b97f4a7c15ULL
#define STATE_SUM_MUL 0xff51afd7ed558ccdULL /* odd, so that no step loses information */

struct state_copy {
	uint64_t gen; /* 0: not valid; else the higher one is newer */
	uint64_t len;
	uint64_t sum; /* over gen, len and the bytes */
	char bytes[];
};

static int state_create_secret(size_t len)
{
	struct rlimit lim;
	int fd;

	/* A worker without privileges has to map it, and there is no lesser way to do that. */
	if (getrlimit(RLIMIT_MEMLOCK, &lim) != 0 || lim.rlim_cur < len)
		return -ENOMEM;
	fd = (int)syscall(SYS_memfd_secret, (unsigned int)O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)len) != 0) {
		int ret = -errno;

		close(fd);
		return ret;
	}
	return fd;
}

static int state_create_memfd(const char *name, size_t len)
{
	int fd;
	int ret;

	fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)len) != 0 ||
		fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
		ret = -errno;
		close(fd);
		return ret;
	}
	return fd;
}

int state_create(const char *name, size_t len, bool secret, int *fd)
{
	void *ptr = NULL;
	int ret;

	if (secret) {
		ret = state_create_secret(len);
		if (ret >= 0) {
			*fd = ret;
			return 0;
		}
	}
	ret = state_create_memfd(name, len);
	if (ret < 0)
		return ret;
	*fd = ret;
	if (!secret)
		return 0;
	/* Locks end with the mapping, so this one stays. */
	ret = state_map(*fd, len, &ptr);
	if (ret < 0) {
		close(*fd);
		*fd = -1;
		return ret;
	}
	return mlock(ptr, len) == 0 ? 0 : STATE_DEGRADED;
}

int state_map(int fd, size_t len, void **ptr)
{
	struct stat st;
	void *p;

	if (fstat(fd, &st) != 0)
		return -errno;
	if (st.st_size < 0 || (uint64_t)st.st_size != len)
		return -EINVAL;
	p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return -errno;
	if (madvise(p, len, MADV_DONTDUMP) != 0) {
		int ret = -errno;

		munmap(p, len);
		return ret;
	}
	*ptr = p;
	return 0;
}

static uint64_t state_sum_step(uint64_t h, uint64_t word)
{
	h = (h ^ word) * STATE_SUM_MUL;
	return h ^ (h >> 32);
}

/* A checksum of our own: it has to notice a torn write, not an enemy. */
static uint64_t state_sum(uint64_t gen, struct slice doc)
{
	uint64_t h = state_sum_step(state_sum_step(STATE_SUM_SEED, gen), doc.len);
	uint64_t word;

	for (; doc.len >= sizeof(word); doc = slice_from(doc, sizeof(word))) {
		memcpy(&word, doc.p, sizeof(word));
		h = state_sum_step(h, word);
	}
	if (doc.len > 0) {
		word = 0;
		memcpy(&word, doc.p, doc.len);
		h = state_sum_step(h, word);
	}
	return h;
}

/* Bytes of one copy of the two, header included, in whole words. */
static size_t state_copy_size(size_t region_len)
{
	return region_len / 2 / sizeof(uint64_t) * sizeof(uint64_t);
}

static bool state_copy_valid(const struct state_copy *c, size_t size)
{
	return c->gen != 0 && c->len <= size - sizeof(*c) &&
		c->sum == state_sum(c->gen, slice_make(c->bytes, c->len));
}

/* The newest valid copy: 0 or 1, or -1 if there is none. */
static int state_cell_newest(const char *region, size_t size)
{
	const struct state_copy *a = (const void *)region;
	const struct state_copy *b = (const void *)(region + size);

	if (!state_copy_valid(a, size))
		return state_copy_valid(b, size) ? 1 : -1;
	if (!state_copy_valid(b, size))
		return 0;
	return b->gen > a->gen ? 1 : 0;
}

size_t state_cell_size(size_t doc_max)
{
	size_t copy = sizeof(struct state_copy) + doc_max;

	return 2 * ((copy + sizeof(uint64_t) - 1) / sizeof(uint64_t) * sizeof(uint64_t));
}

int state_cell_write(void *region, size_t region_len, struct slice doc)
{
	size_t size = state_copy_size(region_len);
	struct state_copy *c;
	uint64_t gen = 1;
	int newest;

	if (size < sizeof(*c) || doc.len > size - sizeof(*c))
		return E_LIMIT;
	newest = state_cell_newest(region, size);
	if (newest >= 0) {
		c = (void *)((char *)region + (size_t)newest * size);
		gen = c->gen + 1;
	}
	c = (void *)((char *)region + (newest == 0 ? size : 0));
	state_store(&c->gen, 0);
	if (doc.len > 0)
		memcpy(c->bytes, doc.p, doc.len);
	c->len = doc.len;
	c->sum = state_sum(gen, doc);
	state_store(&c->gen, gen);
	return 0;
}

void state_cell_wipe_older(void *region, size_t region_len)
{
	size_t size = state_copy_size(region_len);
	struct state_copy *c;
	int newest;
	size_t len;

	if (size < sizeof(*c))
		return;
	newest = state_cell_newest(region, size);
	if (newest < 0)
		return;
	c = (void *)((char *)region + (newest == 0 ? size : 0));
	/* one that was not finished may have any length; pages that nobody touched stay so */
	len = c->len <= size - sizeof(*c) ? (size_t)c->len : size - sizeof(*c);
	state_store(&c->gen, 0);
	explicit_bzero(c->bytes, len);
}

bool state_cell_read(const void *region, size_t region_len, struct slice *doc)
{
	size_t size = state_copy_size(region_len);
	const struct state_copy *c;
	int newest;

	if (size < sizeof(*c))
		return false;
	newest = state_cell_newest(region, size);
	if (newest < 0)
		return false;
	c = (const void *)((const char *)region + (size_t)newest * size);
	*doc = slice_make(c->bytes, c->len);
	return true;
}
