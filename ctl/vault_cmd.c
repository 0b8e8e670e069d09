/* The command line of `egressctl vault`. Before it: main; after it: control/vault_report, which
 * loads the file as the worker does. */
#include "ctl/vault_cmd.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "control/sources.h"
#include "control/vault_report.h"
#include "ctl/vault_print.h"

#define VAULT_TEXT_MAX (16u << 20) /* a document of 1 MiB, every byte escaped, and more */

static const char vault_help[] = "NAME\n"
				 "      egressctl vault - what the vault of egress holds\n"
				 "\n"
				 "USAGE\n"
				 "      egressctl vault list [OPTION]...\n"
				 "\n"
				 "COMMANDS\n"
				 "      list    credentials and bindings, without values\n";

static const char vault_help_list[] =
	"NAME\n"
	"      egressctl vault list - credentials and bindings of the vault file\n"
	"\n"
	"USAGE\n"
	"      egressctl vault list [--config FILE] [--json]\n"
	"\n"
	"DESCRIPTION\n"
	"      Reads the vault file that `egress` with the same environment and\n"
	"      configuration would read (EGRESS_VAULT_FILE, `vault`), checks it as egress\n"
	"      does, and prints names, and for each binding its hosts, methods, paths and\n"
	"      how it authenticates. No value is ever printed.\n"
	"\n"
	"OPTIONS\n"
	"      -c, --config FILE   configuration of egress; variables win over it\n"
	"          --json          one JSON object\n"
	"      -h, --help          print this text\n"
	"\n"
	"EXIT CODES\n"
	"      0   printed\n"
	"      1   no vault file is configured\n"
	"      2   wrong usage or configuration, or a vault that egress would refuse\n"
	"\n"
	"EXAMPLE\n"
	"      EGRESS_VAULT_FILE=vault.yaml egressctl vault list --config egress.yaml\n";

static enum command_exit vault_list_print(
	const struct vault_report *report, const char *file, bool as_json)
{
	char *text = vault_report_json(report);
	struct strbuf out;
	json_t *state;

	if (as_json) {
		(void)puts(text);
	} else {
		state = json_loads(text, JSON_ALLOW_NUL, NULL);
		strbuf_init(&out, VAULT_TEXT_MAX);
		vault_print(state, file, &out);
		(void)fwrite(strbuf_cstr(&out), 1, out.len, stdout);
		strbuf_fini(&out);
		json_decref(state);
	}
	free(text);
	return command_flush(COMMAND_OK);
}

static enum command_exit vault_list_run(const char *config_path, bool as_json)
{
	struct vault_report *report = NULL;
	struct settings *s = NULL;
	struct errmsg msg = {""};
	enum command_exit code;
	int ret;

	log_setup(LOG_LEVEL_WARN, STDERR_FILENO, "egressctl");
	ret = sources_load(config_path, environ, &s, &msg);
	if (ret == 0)
		ret = vault_report_new(s, &report, &msg);
	if (ret < 0) {
		command_complain("%s", msg.text[0] ? msg.text : err_text(ret));
		code = COMMAND_WRONG;
	} else if (!report) {
		command_complain("no vault: EGRESS_VAULT_FILE and `vault` are not set");
		code = COMMAND_NO;
	} else {
		code = vault_list_print(report, s->vault_file, as_json);
	}
	vault_report_free(report);
	settings_free(s);
	return code;
}

static enum command_exit vault_cmd_list(int argc, char **argv)
{
	static const char name[] = "egressctl vault list";
	static const struct option longs[] = {
		{"config", required_argument, NULL, 'c'},
		{"json", no_argument, NULL, 'j'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	const char *config_path = NULL;
	bool as_json = false;
	int c;

	optind = 0;
	while ((c = command_option(argc, argv, ":c:h", longs, name)) != -1) {
		if (c == 'h')
			return command_help(vault_help_list);
		if (c == '?')
			return COMMAND_WRONG;
		if (c == 'c')
			config_path = optarg;
		else
			as_json = true;
	}
	if (optind < argc) {
		command_complain("unexpected \"%.60s\": see `%s --help`", argv[optind], name);
		return COMMAND_WRONG;
	}
	return vault_list_run(config_path, as_json);
}

static const struct command vault_commands[] = {
	{"list", vault_cmd_list},
	{NULL, NULL},
};

enum command_exit vault_cmd_run(int argc, char **argv)
{
	return command_run(vault_commands, "egressctl vault", vault_help, argc, argv);
}
