/* A command line as tables: main and each group of commands pick a row by its name. Below it: the
 * commands themselves, each in a file of its own. */
#pragma once

#include <getopt.h>
#include <stdbool.h>

#include "base/attr.h"

/* Exit codes of every command. */
enum command_exit {
	COMMAND_OK = 0,
	COMMAND_NO = 1,    /* the answer is no: refused, broken, a line that cannot be read */
	COMMAND_WRONG = 2, /* wrong usage or settings, or the system failed */
};

/* argv[0] is the command's own name. */
struct command {
	const char *name;
	enum command_exit (*run)(int argc, char **argv);
};

/* The end of a table has no name. Runs the row that argv[1] names; `--help` prints help. path: what
 * stands before argv[1], for messages ("egressctl audit"). */
enum command_exit command_run(
	const struct command *table, const char *path, const char *help, int argc, char **argv);

/* `egressctl: what went wrong` on stderr; bytes that are not printable ASCII are escaped. */
void command_complain(const char *fmt, ...) PRINTF(1, 2);
/* Prints help, and says whether that went well. */
enum command_exit command_help(const char *text);
/* Flushes stdout; complains and returns COMMAND_WRONG if something could not be written. */
enum command_exit command_flush(enum command_exit code);

/* The row of names (ended by NULL) that is nearest to what was typed, or NULL if none is near. */
const char *command_nearest(const char *typed, const char *const *names);

/* getopt_long with messages of our own. Short options start with ':'. Returns the option, -1 at the
 * end, or '?' when it has complained. Start with optind = 0. */
int command_option(
	int argc, char **argv, const char *shorts, const struct option *longs, const char *path);
