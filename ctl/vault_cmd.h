/* `egressctl vault`: list. */
#pragma once

#include "ctl/command.h"

enum command_exit vault_cmd_run(int argc, char **argv);
