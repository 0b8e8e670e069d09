/* What RLIMIT_MEMLOCK leaves for keys. Asked by the supervisor before it makes the areas, by the
 * child that hands a vault over, and by the worker before it makes its own memory. */
#include "control/areas.h"

#include <sys/resource.h>

/* The limit; SIZE_MAX for none. */
static size_t area_limit(void)
{
	struct rlimit lim;

	if (getrlimit(RLIMIT_MEMLOCK, &lim) < 0)
		return 0;
	return lim.rlim_cur == RLIM_INFINITY ? SIZE_MAX : (size_t)lim.rlim_cur;
}

void area_raise_limit(void)
{
	struct rlimit lim;

	if (getrlimit(RLIMIT_MEMLOCK, &lim) < 0 || lim.rlim_cur == lim.rlim_max)
		return;
	lim.rlim_cur = lim.rlim_max;
	/* Refused: the limit stays as it was, which area_lock_fits sees. */
	(void)setrlimit(RLIMIT_MEMLOCK, &lim);
}

bool area_lock_fits(void)
{
	return area_limit() >= AREA_LOCKED_FIXED + AREA_WORK_MIN;
}

size_t area_work_len(void)
{
	size_t left;

	if (!area_lock_fits())
		return AREA_WORK_MIN;
	left = area_limit() - AREA_LOCKED_FIXED;
	return left < AREA_WORK_MAX ? left / AREA_PAGE * AREA_PAGE : AREA_WORK_MAX;
}
