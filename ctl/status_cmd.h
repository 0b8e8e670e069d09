/* `egressctl status`: what a running egress says about itself. */
#pragma once

#include <jansson.h>

#include "base/strbuf.h"
#include "ctl/command.h"

enum command_exit status_cmd_run(int argc, char **argv);
/* Appends a status as people read it. doc: the answer of GET /status, from outside. */
void status_print(const json_t *doc, struct strbuf *out);
