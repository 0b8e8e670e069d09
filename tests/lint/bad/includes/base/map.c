/* Looks up. */
#include <idn2.h>       /* BAD */
#include <math.h>
#include <curl/curl.h>  /* BAD */

#include "policy/policy.h" /* BAD */
#include "hostname.h"      /* BAD */
