/* Own header is not first. */
#include <errno.h> /* BAD */

#include "base/a.h"
