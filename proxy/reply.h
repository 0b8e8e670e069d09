/* Answers of our own: refusals that teach, and failures that say which step failed. Only this file
 * refuses; nothing an origin sent ever gets into one. */
#pragma once

#include "proxy/exchange.h"

/* Answers ex with its reason (ex->reason, ex->detail), status from the reason table; writes the
 * audit line first, so that X-Egress-Decision names it. The exchange is over afterwards (ops->end).
 */
void reply_send(struct exchange *ex);

/* What would allow what was refused for this reason, as our answers and `egressctl policy check`
 * say it. NULL: nothing, the request itself has to be another. */
const char *reply_remedy(enum reason r);
