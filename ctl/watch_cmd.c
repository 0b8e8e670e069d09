/* The command line of `egressctl watch`. Before it: main; after it: watch. */
#include "ctl/watch_cmd.h"

#include <inttypes.h>
#include <stdio.h>

#include "ctl/watch.h"

static const char watch_help[] =
	"NAME\n"
	"      egressctl watch - follow the sandboxes of a platform from outside\n"
	"\n"
	"USAGE\n"
	"      egressctl watch --out DIR [--once] [OPTION]...\n"
	"\n"
	"DESCRIPTION\n"
	"      Lists the sandboxes of an OpenSandbox server, finds the sidecar of each, and\n"
	"      - collects every line of its audit trail once, in DIR/audit/ID.jsonl. A trail\n"
	"        that does not go on from there has a file of its own, ID~2.jsonl;\n"
	"      - keeps the policy and the vault in force that DIR/wanted/*.yaml want;\n"
	"      - raises an alarm, once until it is over, for each of these:\n"
	"        traffic-while-paused, chain (the trail does not verify), lost-lines,\n"
	"        foreign-sidecar (not ours, or too old), policy-differs.\n"
	"      It may be killed and started again at any time. One at a time works in DIR.\n"
	"      SIGHUP reads DIR/wanted and the API key again; SIGTERM ends it.\n"
	"\n"
	"OPTIONS\n"
	"      -o, --out DIR             where everything is kept; made if it is not there\n"
	"          --once                look at each sandbox once, then end\n" PLATFORM_HELP
	"          --webhook URL         gets a POST for each alarm\n"
	"          --interval SECONDS    from one look at a quiet trail to the next: 5\n"
	"          --trail-max MIB       of one sandbox's trail, all its files: 4096. What comes\n"
	"                                after that is not kept, which is alarm lost-lines\n"
	"      -h, --help                print this text\n"
	"\n"
	"WANTED\n"
	"      select: {metadata: {agent: reviewer}}\n"
	"      policy: {defaultAction: deny, egress: [{action: allow, target: pypi.org}]}\n"
	"      vault: reviewer-keys.json\n"
	"\n"
	"      The first file by name whose selection fits counts. `vault` may be left out; its\n"
	"      file is the body of POST /credential-vault, and only its owner may read it.\n"
	"\n"
	"EXIT CODES\n"
	"      0   --once: no alarm; else: it was asked to end\n"
	"      1   --once: an alarm\n"
	"      2   wrong usage or settings; --once: the server cannot be asked\n";

enum {
	WATCH_ONCE = 1000, /* above every letter */
	WATCH_WEBHOOK,
	WATCH_INTERVAL,
	WATCH_TRAIL_MAX,
};

static bool watch_number(const char *option, const char *text, uint64_t max, uint64_t *out)
{
	if (slice_to_u64(slice_str(text), out) && *out > 0 && *out <= max)
		return true;
	command_complain("%s \"%.60s\": expected 1 to %" PRIu64, option, text, max);
	return false;
}

static bool watch_option(struct watch_options *o, int c, const char *text)
{
	uint64_t n = 0;
	bool good = true;

	if (c == 'o')
		o->dir = text;
	else if (c == WATCH_ONCE)
		o->once = true;
	else if (c == WATCH_WEBHOOK)
		o->webhook = text;
	else if (c == WATCH_INTERVAL)
		good = watch_number("--interval", text, 3600, &n);
	else if (c == WATCH_TRAIL_MAX)
		good = watch_number("--trail-max", text, 1u << 20, &n);
	else
		return platform_option(&o->platform, c, text) > 0;
	if (good && c == WATCH_INTERVAL)
		o->interval_ms = (uint32_t)n * 1000;
	if (good && c == WATCH_TRAIL_MAX)
		o->trail_max = n << 20;
	return good;
}

enum command_exit watch_cmd_run(int argc, char **argv)
{
	static const char name[] = "egressctl watch";
	static const struct option longs[] = {
		{"out", required_argument, NULL, 'o'},
		{"once", no_argument, NULL, WATCH_ONCE},
		PLATFORM_LONGS,
		{"webhook", required_argument, NULL, WATCH_WEBHOOK},
		{"interval", required_argument, NULL, WATCH_INTERVAL},
		{"trail-max", required_argument, NULL, WATCH_TRAIL_MAX},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	struct watch_options o = {.interval_ms = WATCH_INTERVAL_S * 1000,
		.trail_max = (uint64_t)WATCH_TRAIL_MIB << 20};
	struct request_target url;
	int c;

	optind = 0;
	while ((c = command_option(argc, argv, ":o:h", longs, name)) != -1) {
		if (c == 'h')
			return command_help(watch_help);
		if (!watch_option(&o, c, optarg))
			return COMMAND_WRONG;
	}
	if (o.webhook && request_target_decode_url(slice_str(o.webhook), &url) < 0) {
		command_complain("--webhook \"%.100s\": expected a URL", o.webhook);
		return COMMAND_WRONG;
	}
	if (optind < argc || !o.dir) {
		command_complain("%s%.60s: see `%s --help`",
			optind < argc ? "unexpected " : "expected --out DIR",
			optind < argc ? argv[optind] : "", name);
		return COMMAND_WRONG;
	}
	/* Else something would always be due again. */
	if (o.once)
		o.interval_ms = WATCH_ONCE_MS;
	return watch_run(&o);
}
