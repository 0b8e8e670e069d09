/* `egressctl status`: what a running egress says about itself. */
#pragma once

#include "ctl/command.h"

enum command_exit status_cmd_run(int argc, char **argv);
