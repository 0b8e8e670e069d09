/* The commands that ask or change the policy of a running egress. */
#pragma once

#include "ctl/command.h"

enum command_exit policy_edit_get(int argc, char **argv);
enum command_exit policy_edit_set(int argc, char **argv);
enum command_exit policy_edit_allow(int argc, char **argv);
enum command_exit policy_edit_deny(int argc, char **argv);
enum command_exit policy_edit_rm(int argc, char **argv);
