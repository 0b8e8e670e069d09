/* Before it: who asks OpenSandbox, and counts its failures. (The webhook waits as the replaced
 * image does.) */
#include "base/backoff.h"

#include <stdlib.h>

uint64_t backoff_ms(uint64_t first_ms, unsigned n)
{
	uint64_t ms = first_ms;

	while (n-- > 0 && ms < BACKOFF_MAX_MS)
		ms *= 2;
	if (ms > BACKOFF_MAX_MS)
		ms = BACKOFF_MAX_MS;
	return ms * (100 - BACKOFF_JITTER_PERCENT) / 100 +
		arc4random_uniform((uint32_t)(ms * 2 * BACKOFF_JITTER_PERCENT / 100));
}
