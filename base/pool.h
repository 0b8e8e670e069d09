/* Small pieces of memory for one table, apart from the heap: thousands that come and go at once
 * would leave the few that stay scattered there, each holding a page.
 *
 * A piece that is put back serves the next of its size. Memory leaves with the whole pool, after
 * what stays was copied into another one; pool_is_sparse says when that pays. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/attr.h"

#define POOL_PIECE_MAX 512 /* longer ones come from the heap, one by one */

struct pool;

struct pool *pool_new(void);
/* With all pieces up to POOL_PIECE_MAX; the longer ones must have been put back. */
void pool_free(struct pool *p);

/* Aligned to 16, not zeroed, never NULL. */
void *pool_get(struct pool *p, size_t len);
/* len: as it was asked for. piece may be NULL. */
void pool_put(struct pool *p, void *piece, size_t len);

/* Most of a large pool is holes. */
bool pool_is_sparse(const struct pool *p);
