/* `egressctl policy get|set|allow|deny|rm`. Before it: policy_cmd picks the command; after it:
 * api_client, and the running egress decides. */
#include "ctl/policy_edit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ctl/api_client.h"
#include "ctl/text.h"

#define EDIT_DOC_MAX (1u << 20) /* the API takes no more */
#define EDIT_TEXT_MAX (64u << 20)
#define EDIT_PORTS_MAX 256

#define EDIT_OPTIONS                                                                       \
	"OPTIONS\n"                                                                        \
	"          --api HOST:PORT   where egress listens; default: the variable\n"        \
	"                            OPENSANDBOX_EGRESS_HTTP_ADDR, else 127.0.0.1:18080\n" \
	"          --json            the answer as it came\n"
#define EDIT_END                                                  \
	"      -h, --help            print this text\n"           \
	"\n"                                                      \
	"ENVIRONMENT\n"                                           \
	"      OPENSANDBOX_EGRESS_TOKEN   the token of the API\n" \
	"\n"                                                      \
	"EXIT CODES\n"                                            \
	"      0   done\n"                                        \
	"      1   egress refused it; stderr says why\n"          \
	"      2   wrong usage, or egress cannot be reached\n"

static const char edit_help_get[] =
	"NAME\n"
	"      egressctl policy get - the policy of a running egress\n"
	"\n"
	"USAGE\n"
	"      egressctl policy get [OPTION]...\n"
	"\n"
	"DESCRIPTION\n"
	"      Prints the rules as they were given, in their order. The operator's rule\n"
	"      files are not among them; `egressctl status` counts those.\n"
	"\n" EDIT_OPTIONS EDIT_END;

static const char edit_help_set[] =
	"NAME\n"
	"      egressctl policy set - replace the policy of a running egress\n"
	"\n"
	"USAGE\n"
	"      egressctl policy set [OPTION]... FILE\n"
	"\n"
	"DESCRIPTION\n"
	"      FILE holds an OpenSandbox policy document in JSON; - is the standard input.\n"
	"      An empty one denies everything.\n"
	"\n" EDIT_OPTIONS EDIT_END "\n"
	"EXAMPLE\n"
	"      egressctl policy get --json | jq .policy >policy.json\n"
	"      egressctl policy set policy.json\n";

static const char edit_help_allow[] =
	"NAME\n"
	"      egressctl policy allow, deny - put rules in front of the policy\n"
	"\n"
	"USAGE\n"
	"      egressctl policy allow|deny [OPTION]... TARGET...\n"
	"\n"
	"DESCRIPTION\n"
	"      TARGET is a host name, *.NAME for all names below one, an address or an\n"
	"      address block. A rule for the same target that is there is replaced.\n"
	"\n" EDIT_OPTIONS "          --ports LIST      for these ports only, with commas\n" EDIT_END
	"\n"
	"EXAMPLE\n"
	"      egressctl policy allow pypi.org '*.pypi.org'\n"
	"      egressctl policy allow --ports 5432 10.0.0.7\n";

static const char edit_help_rm[] =
	"NAME\n"
	"      egressctl policy rm - take rules out of the policy\n"
	"\n"
	"USAGE\n"
	"      egressctl policy rm [OPTION]... TARGET...\n"
	"\n"
	"DESCRIPTION\n"
	"      Removes every rule for one of the targets, in whatever spelling. A target\n"
	"      without a rule is no error.\n"
	"\n" EDIT_OPTIONS EDIT_END;

struct edit {
	const char *help;
	const char *name;
	bool takes_ports;
	struct api_client client;
	bool as_json;
	json_t *ports; /* NULL: none were named */
};

/* --- the command line --- */

static json_t *edit_ports(const char *text)
{
	struct slice rest = slice_str(text);
	json_t *ports = json_array();

	while (rest.p) {
		struct slice item = slice_cut(&rest, ',');
		uint64_t port;

		if (!slice_to_u64(item, &port) || port == 0 || port > UINT16_MAX ||
			json_array_size(ports) == EDIT_PORTS_MAX) {
			command_complain("--ports \"%.60s\": expected ports from 1 to 65535", text);
			json_decref(ports);
			return NULL;
		}
		json_array_append_new(ports, json_integer((json_int_t)port));
	}
	return ports;
}

/* -1: go on, from optind; else the exit code. */
static int edit_options(struct edit *e, int argc, char **argv)
{
	static const struct option longs[] = {
		{"api", required_argument, NULL, 'a'},
		{"json", no_argument, NULL, 'j'},
		{"help", no_argument, NULL, 'h'},
		{"ports", required_argument, NULL, 'p'},
		{NULL, 0, NULL, 0},
	};
	int c;

	e->client.environ = environ;
	optind = 0;
	while ((c = command_option(argc, argv, ":h", longs, e->name)) != -1) {
		if (c == 'h')
			return command_help(e->help);
		if (c == 'p' && !e->takes_ports) {
			command_complain("--ports: only for allow and deny");
			return COMMAND_WRONG;
		}
		if (c == 'a')
			e->client.address = optarg;
		else if (c == 'j')
			e->as_json = true;
		else if (c == 'p' && !e->ports)
			e->ports = edit_ports(optarg);
		else
			return COMMAND_WRONG;
		if (c == 'p' && !e->ports)
			return COMMAND_WRONG;
	}
	return -1;
}

/* --- asking --- */

static enum command_exit edit_print_answer(
	const struct edit *e, const struct api_client_answer *a, void (*print)(const json_t *doc))
{
	if (a->status < 200 || a->status >= 300) {
		command_complain("refused (%d): %s", a->status, api_client_message(a));
		return COMMAND_NO;
	}
	if (e->as_json || !a->doc)
		(void)fwrite(a->text.p ? a->text.p : "", 1, a->text.len, stdout);
	else
		print(a->doc);
	return command_flush(COMMAND_OK);
}

static enum command_exit edit_call(
	struct edit *e, const char *method, struct slice body, void (*print)(const json_t *doc))
{
	struct api_client_answer answer;
	struct errmsg msg = {""};
	enum command_exit code = COMMAND_WRONG;

	if (api_client_call(&e->client, method, "/policy", body, &answer, &msg) < 0)
		command_complain("%s", msg.text);
	else
		code = edit_print_answer(e, &answer, print);
	api_client_answer_fini(&answer);
	return code;
}

static void edit_print_rule(struct strbuf *out, size_t i, const json_t *rule)
{
	const char *action = json_string_value(json_object_get(rule, "action"));
	const char *target = json_string_value(json_object_get(rule, "target"));
	const json_t *ports = json_object_get(rule, "ports");
	const json_t *port;
	size_t k;

	strbuf_printf(out, "%4zu  %-6s", i + 1, action ? action : "?");
	(void)text_visible(out, slice_str(target ? target : ""));
	json_array_foreach(ports, k, port)
	{
		strbuf_printf(out, "%s%" JSON_INTEGER_FORMAT, k ? "," : "  ports ",
			json_integer_value(port));
	}
	strbuf_char(out, '\n');
}

static void edit_print_policy(const json_t *doc)
{
	const json_t *policy = json_object_get(doc, "policy");
	const char *action = json_string_value(json_object_get(policy, "defaultAction"));
	const json_t *rule;
	struct strbuf out;
	size_t i;

	strbuf_init(&out, EDIT_TEXT_MAX);
	json_array_foreach(json_object_get(policy, "egress"), i, rule)
	{
		edit_print_rule(&out, i, rule);
	}
	strbuf_printf(&out, "      %-6severything else\n", action ? action : "?");
	(void)fwrite(strbuf_cstr(&out), 1, out.len, stdout);
	strbuf_fini(&out);
}

static void edit_print_change(const json_t *doc)
{
	const char *mode = json_string_value(json_object_get(doc, "mode"));
	const char *reason = json_string_value(json_object_get(doc, "reason"));

	(void)printf(
		"policy: %s%s%s\n", mode ? mode : "?", reason ? ": " : "", reason ? reason : "");
}

/* Takes the reference. NULL: jansson makes no text of what is no UTF-8. */
static enum command_exit edit_send(struct edit *e, const char *method, json_t *doc)
{
	char *text = doc ? json_dumps(doc, JSON_COMPACT) : NULL;
	enum command_exit code = COMMAND_WRONG;

	if (text)
		code = edit_call(e, method, slice_str(text), edit_print_change);
	else
		command_complain("a target is not UTF-8");
	free(text);
	json_decref(doc);
	return code;
}

enum command_exit policy_edit_get(int argc, char **argv)
{
	struct edit e = {.help = edit_help_get, .name = "egressctl policy get"};
	int code = edit_options(&e, argc, argv);

	if (code >= 0)
		return (enum command_exit)code;
	if (optind < argc) {
		command_complain("unexpected \"%.60s\": see `%s --help`", argv[optind], e.name);
		return COMMAND_WRONG;
	}
	return edit_call(&e, "GET", SLICE_EMPTY, edit_print_policy);
}

static int edit_read(const char *path, struct strbuf *text)
{
	if (strcmp(path, "-") == 0)
		return strbuf_read_fd(text, STDIN_FILENO);
	return strbuf_read_file(text, path);
}

enum command_exit policy_edit_set(int argc, char **argv)
{
	struct edit e = {.help = edit_help_set, .name = "egressctl policy set"};
	int code = edit_options(&e, argc, argv);
	struct strbuf text;
	int ret;

	if (code >= 0)
		return (enum command_exit)code;
	if (argc - optind != 1) {
		command_complain("expected one FILE: see `%s --help`", e.name);
		return COMMAND_WRONG;
	}
	strbuf_init(&text, EDIT_DOC_MAX);
	ret = edit_read(argv[optind], &text);
	if (ret < 0) {
		command_complain("%s: %s: expected a readable file of 1 MiB at most", argv[optind],
			err_text(ret));
		code = COMMAND_WRONG;
	} else {
		code = edit_call(&e, "PUT", strbuf_slice(&text), edit_print_change);
	}
	strbuf_fini(&text);
	return (enum command_exit)code;
}

static json_t *edit_rules(const char *action, json_t *ports, int n, char **targets)
{
	json_t *rules = json_array();

	for (int i = 0; i < n; i++) {
		json_t *rule = json_pack("{s:s, s:s}", "action", action, "target", targets[i]);

		if (ports && rule)
			json_object_set(rule, "ports", ports);
		if (json_array_append_new(rules, rule) < 0) {
			json_decref(rules);
			return NULL;
		}
	}
	return rules;
}

static enum command_exit edit_add(const char *action, int argc, char **argv)
{
	struct edit e = {.help = edit_help_allow, .takes_ports = true};
	char name[32];
	int code;
	json_t *rules;

	(void)snprintf(name, sizeof(name), "egressctl policy %s", action);
	e.name = name;
	code = edit_options(&e, argc, argv);
	if (code < 0 && optind == argc) {
		command_complain("expected a TARGET: see `%s --help`", e.name);
		code = COMMAND_WRONG;
	}
	if (code < 0) {
		rules = edit_rules(action, e.ports, argc - optind, argv + optind);
		code = edit_send(&e, "PATCH", rules);
	}
	json_decref(e.ports);
	return (enum command_exit)code;
}

enum command_exit policy_edit_allow(int argc, char **argv)
{
	return edit_add("allow", argc, argv);
}

enum command_exit policy_edit_deny(int argc, char **argv)
{
	return edit_add("deny", argc, argv);
}

enum command_exit policy_edit_rm(int argc, char **argv)
{
	struct edit e = {.help = edit_help_rm, .name = "egressctl policy rm"};
	int code = edit_options(&e, argc, argv);
	json_t *targets;

	if (code >= 0)
		return (enum command_exit)code;
	if (optind == argc) {
		command_complain("expected a TARGET: see `%s --help`", e.name);
		return COMMAND_WRONG;
	}
	targets = json_array();
	for (int i = optind; i < argc; i++) {
		if (json_array_append_new(targets, json_string(argv[i])) < 0) {
			json_decref(targets);
			return edit_send(&e, "DELETE", NULL);
		}
	}
	return edit_send(&e, "DELETE", targets);
}
