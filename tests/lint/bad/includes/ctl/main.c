/* The tool knows no DNS. */
#include <ares.h>   /* BAD */
#include <cmocka.h> /* BAD */

#include "dns/resolver.h" /* BAD */
#include "proxy/h1.h"
