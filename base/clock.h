/* Time. Tests set it by hand. */
#pragma once

#include <stdbool.h>

#include "base/attr.h"

/* Monotonic, counts while the machine is suspended (CLOCK_BOOTTIME). */
uint64_t clock_mono_ms(void);
uint64_t clock_mono_us(void);
/* Microseconds since 1970 UTC. */
uint64_t clock_wall_us(void);

/* "2026-01-02T03:04:05.678901Z" (RFC 3339) with a NUL: 28 bytes. */
#define CLOCK_TEXT_MAX 28
void clock_text(uint64_t wall_us, char buf[CLOCK_TEXT_MAX]);
/* The reverse (RFC 3339): any fraction, of which six digits count, and any offset; also the date
 * alone. False if it is not a time. */
CHECKED bool clock_parse(const char *text, uint64_t *wall_us);

/* For tests: from now on the clocks stand at these values until set again. */
void clock_fake(uint64_t mono_us, uint64_t wall_us);
