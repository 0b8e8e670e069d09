/* `egressctl audit`: tail, query, verify. */
#pragma once

#include "ctl/command.h"

enum command_exit audit_cmd_run(int argc, char **argv);
