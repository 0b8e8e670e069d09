/* From the settings to what the proxy decides by. One mapping, for the worker that serves and for
 * `egressctl policy check`, which must judge as it does. */
#pragma once

#include "control/settings.h"
#include "proxy/proxy.h"

/* Borrows from s. What no setting holds (the vault) is left empty. */
struct proxy_config settings_proxy_config(const struct settings *s);
