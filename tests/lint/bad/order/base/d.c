/* No line between groups, and one twice. */
#include "base/d.h"

#include <errno.h>
#include <idn2.h> /* BAD */

#include "base/a.h"
#include "base/a.h" /* BAD */
