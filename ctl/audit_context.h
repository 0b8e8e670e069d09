/* `egressctl audit context`: the labels that lines of a running egress carry. */
#pragma once

#include "ctl/command.h"

enum command_exit audit_context_run(int argc, char **argv);
