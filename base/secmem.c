/* Locked memory for keys: one region between two guard pages, and a first-fit allocator in it.
 *
 * The vault keeps values, rendered fields and search tables here, the proxy the scratch in which a
 * request with a key is composed, and what a search holds back. Headers lie in the region too and
 * carry a mark, so that a write past the end of a block is noticed when blocks are walked. */
#include "base/secmem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/strbuf.h"

#define SECMEM_ALIGN 16
#define SECMEM_USED UINT64_C(0x7365636d656d5f75)
#define SECMEM_FREE UINT64_C(0x7365636d656d5f66)
#define SECMEM_STATUS_MAX 16384 /* /proc/self/status has about 1.5 KiB */

struct secmem_block {
	uint64_t mark;
	uint64_t len; /* of what follows, a multiple of SECMEM_ALIGN */
};

_Static_assert(sizeof(struct secmem_block) == SECMEM_ALIGN, "blocks follow each other aligned");

struct secmem {
	char *base; /* first byte behind the guard page */
	size_t size;
	size_t page;
	size_t used;
	char *first_free; /* no free block lies before it */
	char *top;        /* nothing was ever given out from here on */
	bool locked;
};

static size_t secmem_page(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

/* What this process has locked already counts against its limit: the secret area, for one. */
static size_t secmem_locked_already(void)
{
	struct strbuf text;
	struct slice rest, line;
	uint64_t kib = 0;

	strbuf_init(&text, SECMEM_STATUS_MAX);
	if (strbuf_read_file(&text, "/proc/self/status") == 0) {
		rest = strbuf_slice(&text);
		while (rest.p) {
			line = slice_cut(&rest, '\n');
			if (!slice_starts(line, SLICE("VmLck:")) || !slice_ends(line, SLICE(" kB")))
				continue;
			line = slice_strip(slice_from(slice_first(line, line.len - 3), 6));
			if (!slice_to_u64(line, &kib))
				kib = 0;
		}
	}
	strbuf_fini(&text);
	return kib < SIZE_MAX / 1024 ? (size_t)kib * 1024 : SIZE_MAX;
}

size_t secmem_size_for(size_t min, size_t max)
{
	size_t page = secmem_page();
	size_t locked = secmem_locked_already();
	struct rlimit lim;
	size_t size = max;

	if (getrlimit(RLIMIT_MEMLOCK, &lim) != 0)
		lim.rlim_cur = 0;
	if (lim.rlim_cur != RLIM_INFINITY) {
		size_t left = lim.rlim_cur > locked ? (size_t)lim.rlim_cur - locked : 0;

		size = left < max ? left : max;
	}
	size = size / page * page;
	min = (min + page - 1) / page * page;
	return size > min ? size : min;
}

/* Maps fd over the region, which is reserved already. Not inherited: a child of a fork has no
 * business with keys, and would take the wipe of its parent's for its own. */
static int secmem_map(struct secmem *m, int fd)
{
	if (ftruncate(fd, (off_t)m->size) != 0 ||
		mmap(m->base, m->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) ==
			MAP_FAILED ||
		madvise(m->base, m->size, MADV_DONTDUMP) != 0 ||
		madvise(m->base, m->size, MADV_DONTFORK) != 0)
		return -errno;
	return 0;
}

static int secmem_map_secret(struct secmem *m)
{
	int fd = (int)syscall(SYS_memfd_secret, (unsigned int)O_CLOEXEC);
	int ret;

	if (fd < 0)
		return -errno;
	ret = secmem_map(m, fd);
	close(fd);
	m->locked = ret == 0;
	return ret;
}

static int secmem_map_memfd(struct secmem *m)
{
	int fd = memfd_create("secmem", MFD_CLOEXEC);
	int ret;

	if (fd < 0)
		return -errno;
	ret = secmem_map(m, fd);
	close(fd);
	if (ret < 0)
		return ret;
	/* Not mlock(): the sanitizers turn that into nothing. */
	m->locked = mlock2(m->base, m->size, 0) == 0;
	return 0;
}

static struct secmem_block *secmem_block(char *at)
{
	return (void *)at;
}

int secmem_new(size_t size, struct secmem **out)
{
	size_t page = secmem_page();
	struct secmem *m;
	char *whole;
	int ret;

	*out = NULL;
	if (size == 0 || size > SIZE_MAX / 2)
		return -EINVAL;
	size = (size + page - 1) / page * page;
	whole = mmap(NULL, size + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (whole == MAP_FAILED)
		return -errno;
	m = xcalloc(1, sizeof(*m));
	m->base = whole + page;
	m->size = size;
	m->page = page;
	ret = secmem_map_secret(m);
	if (ret < 0)
		ret = secmem_map_memfd(m);
	if (ret < 0) {
		munmap(whole, size + 2 * page);
		free(m);
		return ret;
	}
	m->first_free = m->base;
	m->top = m->base;
	*secmem_block(m->base) = (struct secmem_block){SECMEM_FREE, size - SECMEM_ALIGN};
	*out = m;
	return m->locked ? 0 : SECMEM_DEGRADED;
}

void secmem_close(struct secmem *m)
{
	if (!m)
		return;
	/* Whoever still has a block would read from pages that are gone. */
	REQUIRE(m->used == 0);
	/* Pages that were never used stay so: each would have to be made first. */
	explicit_bzero(m->base, (size_t)(m->top - m->base));
	munmap(m->base - m->page, m->size + 2 * m->page);
	free(m);
}

/* The block behind this one, or the end of the region. */
static char *secmem_next(const struct secmem *m, char *at)
{
	const struct secmem_block *b = secmem_block(at);

	REQUIRE(b->mark == SECMEM_USED || b->mark == SECMEM_FREE);
	REQUIRE(b->len <= (size_t)(m->base + m->size - at) - SECMEM_ALIGN);
	return at + SECMEM_ALIGN + b->len;
}

/* Joins the free blocks that follow a free one. Their headers become free bytes, which are zero. */
static void secmem_join(struct secmem *m, char *at)
{
	struct secmem_block *b = secmem_block(at);
	char *end = m->base + m->size;
	char *next = secmem_next(m, at);

	while (next < end && secmem_block(next)->mark == SECMEM_FREE) {
		char *behind = secmem_next(m, next);

		explicit_bzero(next, SECMEM_ALIGN);
		next = behind;
	}
	b->len = (size_t)(next - at) - SECMEM_ALIGN;
}

static void secmem_take(struct secmem *m, char *at, size_t need)
{
	struct secmem_block *b = secmem_block(at);

	if (b->len > need) {
		/* Both are multiples of the alignment: what is left has room for a header. */
		char *rest = at + SECMEM_ALIGN + need;

		*secmem_block(rest) =
			(struct secmem_block){SECMEM_FREE, b->len - need - SECMEM_ALIGN};
		b->len = need;
	}
	b->mark = SECMEM_USED;
	m->used += SECMEM_ALIGN + b->len;
	if (at + SECMEM_ALIGN + b->len > m->top)
		m->top = at + SECMEM_ALIGN + b->len;
}

void *secmem_alloc(struct secmem *m, size_t len)
{
	char *end = m->base + m->size;
	bool first = true;
	size_t need;

	if (len > m->size)
		return NULL;
	need = len ? (len + SECMEM_ALIGN - 1) & ~(size_t)(SECMEM_ALIGN - 1) : SECMEM_ALIGN;
	for (char *at = m->first_free; at < end; at = secmem_next(m, at)) {
		if (secmem_block(at)->mark != SECMEM_FREE)
			continue;
		secmem_join(m, at);
		if (secmem_block(at)->len >= need) {
			secmem_take(m, at, need);
			if (first)
				m->first_free = secmem_next(m, at);
			return at + SECMEM_ALIGN;
		}
		if (first)
			m->first_free = at;
		first = false;
	}
	return NULL;
}

void secmem_release(struct secmem *m, void *p)
{
	struct secmem_block *b;
	char *at;

	if (!p)
		return;
	REQUIRE(secmem_holds(m, p) && (uintptr_t)p % SECMEM_ALIGN == 0);
	at = (char *)p - SECMEM_ALIGN;
	b = secmem_block(at);
	REQUIRE(at >= m->base && b->mark == SECMEM_USED);
	(void)secmem_next(m, at);
	explicit_bzero(p, b->len);
	b->mark = SECMEM_FREE;
	m->used -= SECMEM_ALIGN + b->len;
	if (at < m->first_free)
		m->first_free = at;
	secmem_join(m, at);
}

size_t secmem_used(const struct secmem *m)
{
	return m->used;
}

size_t secmem_size(const struct secmem *m)
{
	return m->size;
}

bool secmem_is_locked(const struct secmem *m)
{
	return m->locked;
}

bool secmem_holds(const struct secmem *m, const void *p)
{
	uintptr_t at = (uintptr_t)p;

	return at >= (uintptr_t)m->base && at - (uintptr_t)m->base < m->size;
}
