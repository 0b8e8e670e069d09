/* `egressctl watch`. */
#pragma once

#include "ctl/command.h"

enum command_exit watch_cmd_run(int argc, char **argv);
