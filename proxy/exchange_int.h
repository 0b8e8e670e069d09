/* Shared by exchange.c and exchange_request.c alone. */
#pragma once

#include "proxy/exchange.h"

void exchange_move(struct exchange *ex, enum exchange_state to);
/* The rule that the verdict names, as text for the line and the answer. */
void exchange_set_rule(struct exchange *ex);
/* Allowed, as far as the address lets it: finds a connection and goes. */
void exchange_start(struct exchange *ex);
