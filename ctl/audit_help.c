/* What `egressctl audit ... --help` prints. The formats are described in docs/audit-log.md. */
#include "ctl/audit_help.h"

#define HELP_API                                                                          \
	"          --api HOST:PORT  ask a running egress, for the lines that it has in\n" \
	"                           memory (the last 4 MiB), with the token of\n"         \
	"                           OPENSANDBOX_EGRESS_TOKEN\n"

#define HELP_FILE                                                                             \
	"          --file FILE      the audit file; its rotated parts (FILE.1, FILE.2 ...)\n" \
	"                           are found beside it\n"                                    \
	"      -c, --config FILE    take the audit file from this configuration\n"            \
	"      -h, --help           print this text\n"                                        \
	"\n"                                                                                  \
	"      Without --file: the file that EGRESS_AUDIT or `audit` of the configuration\n"  \
	"      names, else $XDG_STATE_HOME/egress/audit.jsonl, else\n"                        \
	"      ~/.local/state/egress/audit.jsonl.\n"                                          \
	"\n"

#define HELP_ASK                                                                               \
	"      Where that is not there, and the environment has OPENSANDBOX_EGRESS_TOKEN or\n" \
	"      OPENSANDBOX_EGRESS_HTTP_ADDR, as in the sidecar's container: --api with the\n"  \
	"      address of the latter, else 127.0.0.1:18080.\n"                                 \
	"\n"

#define HELP_COLOR                                                                           \
	"ENVIRONMENT\n"                                                                      \
	"      NO_COLOR             if set and not empty: no colours. Without a terminal,\n" \
	"                           or where TERM is not set or `dumb`, there are none\n"    \
	"                           either\n"                                                \
	"\n"

const char audit_help[] =
	"NAME\n"
	"      egressctl audit - read the audit trail of egress\n"
	"\n"
	"USAGE\n"
	"      egressctl audit tail [-n N] [-f] [--json] [--file FILE | --api HOST:PORT]\n"
	"      egressctl audit query [FILTER]... [--format table|csv|json]\n"
	"            [--file FILE | --api HOST:PORT]\n"
	"      egressctl audit verify [--json] [FILE]...\n"
	"      egressctl audit context [NAME=VALUE]...\n"
	"\n"
	"COMMANDS\n"
	"      tail     the last lines, and those that follow\n"
	"      query    the lines that filters let through, as table, CSV or JSON\n"
	"      verify   whether a line was changed, removed, added or moved\n"
	"      context  show or change the labels of the lines to come\n"
	"\n"
	"      Each has a --help of its own.\n";

const char audit_help_tail[] =
	"NAME\n"
	"      egressctl audit tail - the last lines of the audit trail\n"
	"\n"
	"USAGE\n"
	"      egressctl audit tail [-n N] [-f] [--json]\n"
	"            [--file FILE | --config FILE | --api HOST:PORT]\n"
	"\n"
	"DESCRIPTION\n"
	"      Prints time, verdict, kind, method, status, URL and reason of each line.\n"
	"      Control characters in a text are shown as \\uNNNN.\n"
	"\n"
	"OPTIONS\n"
	"      -n, --lines N        how many lines (10), at most 1000000\n"
	"      -f, --follow         go on with each new line, also after the file was\n"
	"                           rotated\n"
	"          --json           the lines as they stand in the file\n" HELP_API HELP_FILE
		HELP_ASK HELP_COLOR "EXIT CODES\n"
	"      0   all lines were read\n"
	"      1   a line cannot be read; stderr says why\n"
	"      2   wrong usage, or the file cannot be read\n"
	"\n"
	"EXAMPLES\n"
	"      egressctl audit tail -f\n"
	"      egressctl audit tail -n 1000 --json | jq 'select(.verdict == \"blocked\")'\n";

const char audit_help_query[] =
	"NAME\n"
	"      egressctl audit query - search the audit trail\n"
	"\n"
	"USAGE\n"
	"      egressctl audit query [--since T] [--until T] [--host H] [--verdict V]\n"
	"            [--kind K] [--reason R] [--method M] [--uid N] [--context NAME=VALUE]\n"
	"            [--limit N] [--format table|csv|json]\n"
	"            [--file FILE | --config FILE | --api HOST:PORT]\n"
	"\n"
	"DESCRIPTION\n"
	"      Reads the rotated files from the oldest on, then the newest, and prints the\n"
	"      lines that every filter lets through, in the order in which they were\n"
	"      written.\n"
	"\n"
	"FILTERS\n"
	"          --since T        started at T or later\n"
	"          --until T        started before T\n"
	"                           T: 2026-01-31, 2026-01-31T08:00:00Z, or how long ago:\n"
	"                           90s, 10m, 2h, 1d\n"
	"          --host H         this host; *.example.com: every host below it\n"
	"          --verdict V      allowed, blocked, failed, open\n"
	"          --kind K         read, write, tunnel, flow, dns, policy, vault, context,\n"
	"                           lifecycle, guard, start, stop, gap\n"
	"          --reason R       as docs/audit-log.md lists them\n"
	"          --method M       GET, POST, ...\n"
	"          --uid N          Linux user of the client\n"
	"          --context N=V    the context has the label N with the value V\n"
	"\n"
	"OPTIONS\n"
	"          --limit N        stop after N lines\n"
	"          --format F       table; csv (RFC 4180, a header row; a cell that a\n"
	"                           spreadsheet would take for a formula gets an apostrophe\n"
	"                           in front); json (the lines as they stand in the "
	"file)\n" HELP_API HELP_FILE HELP_ASK HELP_COLOR "EXIT CODES\n"
	"      0   all lines were read\n"
	"      1   a line cannot be parsed; stderr names file and line, the others are\n"
	"          printed\n"
	"      2   wrong usage, or a file cannot be read\n"
	"\n"
	"EXAMPLES\n"
	"      egressctl audit query --since 1h --verdict blocked\n"
	"      egressctl audit query --kind read --since 2026-01-01 --format csv >reads.csv\n"
	"      egressctl audit query --api :18080 --context run=r-81 --format json\n";

const char audit_help_verify[] =
	"NAME\n"
	"      egressctl audit verify - check number and chain of each line\n"
	"\n"
	"USAGE\n"
	"      egressctl audit verify [--json] [--file FILE | --config FILE] [FILE]...\n"
	"\n"
	"DESCRIPTION\n"
	"      Every line has a number without holes and the SHA-256 of the line before it.\n"
	"      A line that was changed, removed, added or moved breaks that. Each FILE is\n"
	"      read with its rotated parts, from the oldest on. The first line of all is\n"
	"      taken as it is, since older files may have been removed. Lines removed at\n"
	"      the very end leave no trace: compare the last number with one that you know.\n"
	"\n"
	"OPTIONS\n"
	"          --json           one JSON object for each FILE\n" HELP_FILE "EXIT CODES\n"
	"      0   every FILE is whole\n"
	"      1   a FILE is broken; the first bad line is named\n"
	"      2   wrong usage, or a file cannot be read\n"
	"\n"
	"EXAMPLES\n"
	"      egressctl audit verify\n"
	"      egressctl audit verify collected/*/audit.jsonl\n";
