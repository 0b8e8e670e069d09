/* How long to wait before what failed is tried again. */
#pragma once

#include <stdint.h>

#define BACKOFF_MAX_MS 60000
#define BACKOFF_JITTER_PERCENT 20

/* first_ms, doubled n times up to BACKOFF_MAX_MS, give or take BACKOFF_JITTER_PERCENT at random, so
 * that many who failed together do not come back together. */
uint64_t backoff_ms(uint64_t first_ms, unsigned n);
