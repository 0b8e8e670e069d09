/* Not sorted, and groups in the wrong order. */
#include "base/c.h"

#include <string.h>
#include <errno.h> /* BAD */

#include "base/b.h"
#include "base/a.h" /* BAD */

#include <idn2.h> /* BAD */
