/* Memory of one exchange: allocate, never free singly, drop everything at once. */
#pragma once

#include "base/slice.h"

#define ARENA_FIRST 512 /* bytes inside the struct: most exchanges need no more */
#define ARENA_BLOCK 4096

struct arena_block;

struct arena {
	struct arena_block *blocks;
	char *next;
	size_t left;
	_Alignas(16) char first[ARENA_FIRST];
};

void arena_init(struct arena *a);
/* Frees everything; the arena is as after arena_init. */
void arena_fini(struct arena *a);

/* Aligned to 16, not zeroed, never NULL (no memory ends the process). */
void *arena_alloc(struct arena *a, size_t len);
/* A copy with a NUL behind it (not counted in the length). */
struct slice arena_dup(struct arena *a, struct slice s);

/* malloc, calloc and realloc that end the process when there is no memory. */
void *xmalloc(size_t len);
void *xcalloc(size_t n, size_t len);
void *xrealloc(void *p, size_t len);
char *xstrdup(const char *s);
