/* From the settings to what proxy and vault decide by. One mapping, for the worker that serves and
 * for `egressctl`, which must judge as it does. */
#pragma once

#include "control/settings.h"
#include "proxy/proxy.h"

/* Borrows from s. What no setting holds (the vault) is left empty. */
struct proxy_config settings_proxy_config(const struct settings *s);

struct vault_rules;
/* What a vault's document is checked against (vault/vault.h). Borrows from s. */
struct vault_rules settings_vault_rules(const struct settings *s);
