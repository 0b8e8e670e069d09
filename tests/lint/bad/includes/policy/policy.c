/* Own private header is fine; a higher folder is not. */
#include "policy/policy.h"

#include <jansson.h> /* BAD */

#include "audit/audit.h" /* BAD */
#include "base/hostname.h"
#include "policy/rule_int.h"
