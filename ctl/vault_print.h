/* What a vault holds, for people: names and where each goes. There is no value in what it gets. */
#pragma once

#include <jansson.h>

#include "base/strbuf.h"

/* state: control/vault_report.h's JSON, decoded. file: where it was read from. */
void vault_print(const json_t *state, const char *file, struct strbuf *out);
