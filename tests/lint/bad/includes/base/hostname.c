/* Right: this is idn2's place. */
#include "base/hostname.h"

#include <errno.h>

#include <idn2.h>
