/* Right. */
#include "base/b.h"

#include <errno.h>
#include <string.h>

#include <idn2.h>

#include "base/a.h"
#include "base/c.h"
