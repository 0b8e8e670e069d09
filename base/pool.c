/* Pieces cut from blocks one after the other, and lists of those that were put back, by size.
 *
 * Blocks grow, so that a small table costs little; the heap takes the large ones from the system
 * and gives them back whole. Before it: map, leases, addr_cache. */
#include "base/pool.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define POOL_CHECKED
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define POOL_CHECKED
#endif
#ifdef POOL_CHECKED
#include <sanitizer/asan_interface.h>
#endif
#include <stdint.h>
#include <stdlib.h>

#include "base/arena.h"

/* What nobody has may not be touched: the sanitizer does not see it by itself. */
#ifdef POOL_CHECKED
#define POOL_HIDE(p, len) ASAN_POISON_MEMORY_REGION(p, len)
#define POOL_SHOW(p, len) ASAN_UNPOISON_MEMORY_REGION(p, len)
#else
#define POOL_HIDE(p, len) ((void)(p), (void)(len))
#define POOL_SHOW(p, len) ((void)(p), (void)(len))
#endif

#define POOL_ALIGN 16
#define POOL_SIZES (POOL_PIECE_MAX / POOL_ALIGN)
#define POOL_BLOCK_FIRST 1024
#define POOL_BLOCK_MAX (256 * 1024)
/* Below it there is nothing to gain. */
#define POOL_SPARSE_MIN (64 * 1024)

struct pool_block {
	_Alignas(POOL_ALIGN) struct pool_block *older;
	size_t len;
	char bytes[] __attribute__((aligned(POOL_ALIGN)));
};

struct pool_hole {
	struct pool_hole *next;
};

struct pool {
	struct pool_block *blocks;
	char *next;
	size_t left;
	size_t cut;  /* bytes of all pieces, in use or put back */
	size_t used; /* of those in use */
	struct pool_hole *holes[POOL_SIZES];
};

struct pool *pool_new(void)
{
	return xcalloc(1, sizeof(struct pool));
}

void pool_free(struct pool *p)
{
	if (!p)
		return;
	while (p->blocks) {
		struct pool_block *b = p->blocks;

		p->blocks = b->older;
		POOL_SHOW(b->bytes, b->len);
		free(b);
	}
	free(p);
}

static void pool_grow(struct pool *p)
{
	size_t len = p->blocks ? 2 * p->blocks->len : POOL_BLOCK_FIRST;
	struct pool_block *b;

	if (len > POOL_BLOCK_MAX)
		len = POOL_BLOCK_MAX;
	b = xmalloc(sizeof(*b) + len);
	b->older = p->blocks;
	b->len = len;
	POOL_HIDE(b->bytes, len);
	p->blocks = b;
	p->next = b->bytes;
	p->left = len;
}

static size_t pool_round(size_t len)
{
	return len ? (len + POOL_ALIGN - 1) / POOL_ALIGN * POOL_ALIGN : POOL_ALIGN;
}

void *pool_get(struct pool *p, size_t len)
{
	struct pool_hole **holes;
	void *piece;

	if (len > POOL_PIECE_MAX)
		return xmalloc(len);
	len = pool_round(len);
	holes = &p->holes[len / POOL_ALIGN - 1];
	p->used += len;
	piece = *holes;
	if (piece) {
		POOL_SHOW(piece, len);
		*holes = (*holes)->next;
		return piece;
	}
	/* What is left of a block is less than a piece: not worth a list. */
	if (p->left < len)
		pool_grow(p);
	piece = p->next;
	POOL_SHOW(piece, len);
	p->next += len;
	p->left -= len;
	p->cut += len;
	return piece;
}

void pool_put(struct pool *p, void *piece, size_t len)
{
	struct pool_hole *hole = piece;

	if (len > POOL_PIECE_MAX || !piece) {
		free(piece);
		return;
	}
	len = pool_round(len);
	hole->next = p->holes[len / POOL_ALIGN - 1];
	p->holes[len / POOL_ALIGN - 1] = hole;
	p->used -= len;
	POOL_HIDE(piece, len);
}

bool pool_is_sparse(const struct pool *p)
{
	return p->cut >= POOL_SPARSE_MIN && p->used < p->cut / 2;
}
