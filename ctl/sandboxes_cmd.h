/* `egressctl sandboxes` and `egressctl sandbox ID`. */
#pragma once

#include "ctl/command.h"

enum command_exit sandboxes_cmd_run(int argc, char **argv);
enum command_exit sandbox_cmd_run(int argc, char **argv);
