/* Memory that is dropped all at once, and the allocators that never return NULL.
 *
 * An exchange owns an arena: its strings live in it and die with it. Ceilings on what comes from
 * outside are checked before memory is asked for, so running out means that the machine is out of
 * memory, and the process ends. */
#include "base/arena.h"

#include <stdio.h>
#include <stdlib.h>

#define ARENA_ALIGN 16

struct arena_block {
	_Alignas(ARENA_ALIGN) struct arena_block *older;
	char bytes[] __attribute__((aligned(ARENA_ALIGN)));
};

NORETURN static void arena_no_memory(size_t len)
{
	(void)fprintf(stderr, "out of memory: %zu bytes\n", len);
	abort();
}

void *xmalloc(size_t len)
{
	void *p = malloc(len ? len : 1);

	if (!p)
		arena_no_memory(len);
	return p;
}

void *xcalloc(size_t n, size_t len)
{
	void *p = n && len ? calloc(n, len) : calloc(1, 1);

	if (!p)
		arena_no_memory(len);
	return p;
}

void *xrealloc(void *p, size_t len)
{
	void *moved = realloc(p, len ? len : 1);

	if (!moved)
		arena_no_memory(len);
	return moved;
}

char *xstrdup(const char *s)
{
	size_t size = strlen(s) + 1;

	return memcpy(xmalloc(size), s, size);
}

void arena_init(struct arena *a)
{
	a->blocks = NULL;
	a->next = a->first;
	a->left = sizeof(a->first);
}

void arena_fini(struct arena *a)
{
	while (a->blocks) {
		struct arena_block *b = a->blocks;

		a->blocks = b->older;
		free(b);
	}
	arena_init(a);
}

static char *arena_block_add(struct arena *a, size_t len)
{
	struct arena_block *b = xmalloc(sizeof(*b) + len);

	b->older = a->blocks;
	a->blocks = b;
	return b->bytes;
}

void *arena_alloc(struct arena *a, size_t len)
{
	const size_t whole = ARENA_BLOCK - sizeof(struct arena_block);
	size_t need;
	char *p;

	if (len > SIZE_MAX / 2)
		arena_no_memory(len);
	/* Every piece is a multiple of the alignment, so the next one starts aligned. */
	need = len ? (len + ARENA_ALIGN - 1) & ~(size_t)(ARENA_ALIGN - 1) : ARENA_ALIGN;
	if (need > a->left) {
		/* A large piece gets a block of its own and leaves the rest of the current one
		 * in use. */
		if (need > whole / 4)
			return arena_block_add(a, need);
		a->next = arena_block_add(a, whole);
		a->left = whole;
	}
	p = a->next;
	a->next += need;
	a->left -= need;
	return p;
}

struct slice arena_dup(struct arena *a, struct slice s)
{
	char *p;

	if (s.len >= SIZE_MAX / 2)
		arena_no_memory(s.len);
	p = arena_alloc(a, s.len + 1);
	if (s.len > 0)
		memcpy(p, s.p, s.len);
	p[s.len] = '\0';
	return slice_make(p, s.len);
}
