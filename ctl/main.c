/* The program `egressctl`, for operators and auditors: picks the command. Each is a file of its
 * own. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ctl/audit_cmd.h"
#include "ctl/policy_cmd.h"
#include "ctl/sandboxes_cmd.h"
#include "ctl/status_cmd.h"
#include "ctl/vault_cmd.h"
#include "ctl/watch_cmd.h"

static const char main_help[] =
	"NAME\n"
	"      egressctl - read the audit trail of egress, ask and change its policy\n"
	"\n"
	"USAGE\n"
	"      egressctl status [OPTION]...\n"
	"      egressctl audit tail|query|verify|context [OPTION]...\n"
	"      egressctl policy check [OPTION]... METHOD URL\n"
	"      egressctl policy get|set|allow|deny|rm [OPTION]... [ARGUMENT]...\n"
	"      egressctl vault list [OPTION]...\n"
	"      egressctl sandboxes|sandbox [OPTION]... [ID]\n"
	"      egressctl watch --out DIR [OPTION]...\n"
	"      egressctl --help | --version\n"
	"\n"
	"COMMANDS\n"
	"      status          what a running egress says about itself\n"
	"      audit tail      the last lines of the audit trail, and those that follow\n"
	"      audit query     the lines that filters let through, as table, CSV or JSON\n"
	"      audit verify    whether a line was changed, removed, added or moved\n"
	"      audit context   the labels of lines to come, of a running egress\n"
	"      policy check    the verdict about one request, without sending it\n"
	"      policy get      the policy of a running egress; set, allow, deny, rm change it\n"
	"      vault list      credentials and bindings of the vault file, without values\n"
	"      sandboxes       those of a platform as a table; sandbox ID shows one in full\n"
	"      watch           follow the sandboxes of a platform: trails, policies, alarms\n"
	"\n"
	"      Each has a --help of its own.\n"
	"\n"
	"EXIT CODES\n"
	"      0   all is well: every line read, the trail whole, the request allowed\n"
	"      1   the answer is no: a line cannot be read, the trail is broken, the request\n"
	"          is blocked\n"
	"      2   wrong usage or settings, or a file cannot be read\n";

static enum command_exit main_version(void)
{
	return command_help("egressctl " EGRESS_VERSION "\n");
}

/* A file that is opened must not become descriptor 1 and be written to. */
static void main_open_std(void)
{
	int fd;

	do {
		fd = open("/dev/null", O_RDWR);
	} while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		(void)close(fd);
}

int main(int argc, char **argv)
{
	static const struct command commands[] = {
		{"audit", audit_cmd_run},
		{"policy", policy_cmd_run},
		{"sandbox", sandbox_cmd_run},
		{"sandboxes", sandboxes_cmd_run},
		{"status", status_cmd_run},
		{"vault", vault_cmd_run},
		{"watch", watch_cmd_run},
		{NULL, NULL},
	};

	main_open_std();
	/* Whoever started us may ignore it; `| head` must end us all the same. */
	(void)signal(SIGPIPE, SIG_DFL);
	if (argc > 1 && (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0))
		return main_version();
	return command_run(commands, "egressctl", main_help, argc, argv);
}
