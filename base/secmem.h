/* Memory for keys: locked, left out of core dumps, not inherited, wiped when given back.
 *
 * One region of fixed size (memfd_secret where the kernel has it, else a locked memfd), divided by
 * a small allocator of its own, so that no key ever lies in the ordinary heap. Not OpenSSL's secure
 * heap: a full one of that breaks every TLS handshake (design 6). */
#pragma once

#include "base/slice.h"

/* secmem_new: it works, but the pages could not be locked (RLIMIT_MEMLOCK, or refused). */
#define SECMEM_DEGRADED 1

struct secmem;

/* The largest size that RLIMIT_MEMLOCK lets this process lock, at most max, at least min (and then
 * degraded when min cannot be locked). Rounded to pages. */
size_t secmem_size_for(size_t min, size_t max);

/* 0, SECMEM_DEGRADED, or a negated errno. */
CHECKED int secmem_new(size_t size, struct secmem **out);
/* Wipes all of it and gives it back. Nothing may be allocated any more. */
void secmem_close(struct secmem *m);

/* Aligned to 16, zeroed. NULL when there is no room: the caller refuses what it was asked, it does
 * not end the process. */
void *secmem_alloc(struct secmem *m, size_t len);
/* Wipes and gives back. Accepts NULL. */
void secmem_release(struct secmem *m, void *p);
size_t secmem_used(const struct secmem *m);
size_t secmem_size(const struct secmem *m);
bool secmem_is_locked(const struct secmem *m);
/* Does p point into it? */
bool secmem_holds(const struct secmem *m, const void *p);
