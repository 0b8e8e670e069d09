/* The shared areas that outlive a worker, and documents kept in them.
 *
 * The supervisor makes an area and holds it for life; each worker maps it. A cell is a fixed part
 * of an area that holds one document of changing length as two copies: a write goes over the older
 * one, and a copy that was not finished loses to the other. */
#pragma once

#include "base/slice.h"

/* state_create: the area works, but its pages could not be locked in memory. */
#define STATE_DEGRADED 1

/* Makes a zeroed area of len bytes; *fd is close-on-exec. name is for /proc/PID/maps.
 *
 * secret: memfd_secret where the kernel has it and RLIMIT_MEMLOCK lets a worker map it. Else a
 * memfd whose pages this process locks and keeps mapped until it ends, so that they stay in memory
 * between two workers. A memfd is sealed against resizing; memfd_secret knows no seals, but its
 * size can be set once only.
 *
 * 0, STATE_DEGRADED, or a negated errno. */
CHECKED int state_create(const char *name, size_t len, bool secret, int *fd);

/* Maps the whole area, shared and left out of core dumps. -EINVAL if its size is not len.
 * There is no unmap: an area is mapped until the process ends. */
CHECKED int state_map(int fd, size_t len, void **ptr);

/* One store to an area: whoever maps it after a kill sees it only with all that was written before,
 * and never what was written after it without it. Enough for one thread at a time. */
static inline void state_store(uint64_t *p, uint64_t v)
{
	__atomic_store_n(p, v, __ATOMIC_RELEASE);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

/* Bytes of a region that can hold documents of up to doc_max bytes. */
size_t state_cell_size(size_t doc_max);

/* Replaces the document. E_LIMIT if it is longer than the region allows: nothing is changed then.
 * region is aligned to 8 bytes; a region of zeros is an empty cell. */
CHECKED int state_cell_write(void *region, size_t region_len, struct slice doc);

/* Wipes the copy that is not the newest: for documents that may not stay when another has taken
 * their place. A write that follows such a wipe leaves nothing of an older one either. */
void state_cell_wipe_older(void *region, size_t region_len);

/* The newest whole document, borrowed from the region until the next write but one. False if there
 * is none. */
CHECKED bool state_cell_read(const void *region, size_t region_len, struct slice *doc);
