/* `egressctl policy`: check. */
#pragma once

#include "ctl/command.h"

enum command_exit policy_cmd_run(int argc, char **argv);
