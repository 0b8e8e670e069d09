/* The command line of `egressctl audit context`. Before it: audit_cmd; after it: api_client. */
#include "ctl/audit_context.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "ctl/api_client.h"
#include "ctl/text.h"

#define CONTEXT_PATH "/audit/context"
#define CONTEXT_TEXT_MAX 65536 /* 512 bytes, every one an escape, and more */

static const char context_help[] =
	"NAME\n"
	"      egressctl audit context - labels of the lines to come\n"
	"\n"
	"USAGE\n"
	"      egressctl audit context [--api HOST:PORT] [--json] [NAME=VALUE]...\n"
	"      egressctl audit context [--api HOST:PORT] [--json] --clear\n"
	"\n"
	"DESCRIPTION\n"
	"      Every line of the audit trail carries the labels that were in force when what\n"
	"      it tells of began: which run, which conversation. With NAME=VALUE these are\n"
	"      the labels from now on, in place of those before; without, the ones in force\n"
	"      are printed. Together they take at most 512 bytes in a line.\n"
	"\n"
	"OPTIONS\n"
	"          --clear           no labels\n"
	"          --api HOST:PORT   where egress listens; default: the variable\n"
	"                            OPENSANDBOX_EGRESS_HTTP_ADDR, else 127.0.0.1:18080\n"
	"          --json            the answer as it came\n"
	"      -h, --help            print this text\n"
	"\n"
	"ENVIRONMENT\n"
	"      OPENSANDBOX_EGRESS_TOKEN   the token of the API\n"
	"\n"
	"EXIT CODES\n"
	"      0   done\n"
	"      1   egress refused it; stderr says why\n"
	"      2   wrong usage, or egress cannot be reached\n"
	"\n"
	"EXAMPLES\n"
	"      egressctl audit context run=r-81 conversation=c-7\n"
	"      egressctl audit query --context run=r-81\n";

/* {"labels": ...} of the arguments; the caller frees. NULL after a complaint. */
static char *context_body(int argc, char **argv)
{
	json_t *labels = json_object();
	char *text = NULL;
	int i;

	for (i = 0; i < argc; i++) {
		const char *equals = strchr(argv[i], '=');
		size_t len = equals ? (size_t)(equals - argv[i]) : 0;
		char *name = strndup(argv[i], len);
		bool twice = json_object_get(labels, name) != NULL;
		bool good = len > 0 && !twice &&
			json_object_set_new(labels, name, json_string(equals + 1)) == 0;

		free(name);
		if (good)
			continue;
		command_complain("\"%.60s\": %s", argv[i],
			twice ? "this name is there twice" : "expected NAME=VALUE, in UTF-8");
		break;
	}
	if (i == argc) {
		json_t *doc = json_pack("{s:O}", "labels", labels);

		text = json_dumps(doc, JSON_COMPACT);
		json_decref(doc);
	}
	json_decref(labels);
	return text;
}

static void context_print(const json_t *doc)
{
	struct strbuf out;
	const char *name;
	json_t *value;

	strbuf_init(&out, CONTEXT_TEXT_MAX);
	json_object_foreach(json_object_get(doc, "labels"), name, value)
	{
		(void)text_visible(&out, slice_str(name));
		strbuf_char(&out, '=');
		(void)text_visible(
			&out, slice_make(json_string_value(value), json_string_length(value)));
		strbuf_char(&out, '\n');
	}
	(void)fwrite(strbuf_cstr(&out), 1, out.len, stdout);
	strbuf_fini(&out);
}

/* body NULL: only asked. */
static enum command_exit context_call(const struct api_client *client, const char *body, bool json)
{
	struct api_client_answer answer;
	struct errmsg msg = {""};
	enum command_exit code = COMMAND_WRONG;

	if (api_client_call(client, body ? "PUT" : "GET", CONTEXT_PATH, slice_str(body ? body : ""),
		    &answer, &msg) < 0) {
		command_complain("%s", msg.text);
	} else if (answer.status != 200) {
		command_complain("refused (%d): %s", answer.status, api_client_message(&answer));
		code = COMMAND_NO;
	} else if (json) {
		(void)fwrite(strbuf_cstr(&answer.text), 1, answer.text.len, stdout);
		code = command_flush(COMMAND_OK);
	} else {
		context_print(answer.doc);
		code = command_flush(COMMAND_OK);
	}
	api_client_answer_fini(&answer);
	return code;
}

enum command_exit audit_context_run(int argc, char **argv)
{
	static const char name[] = "egressctl audit context";
	static const struct option longs[] = {
		{"api", required_argument, NULL, 'a'},
		{"clear", no_argument, NULL, 'C'},
		{"json", no_argument, NULL, 'j'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	struct api_client client = {.environ = environ};
	enum command_exit code;
	bool json = false, clear = false;
	char *body = NULL;
	int c;

	optind = 0;
	while ((c = command_option(argc, argv, ":h", longs, name)) != -1) {
		if (c == 'h')
			return command_help(context_help);
		if (c == '?')
			return COMMAND_WRONG;
		if (c == 'a')
			client.address = optarg;
		json |= c == 'j';
		clear |= c == 'C';
	}
	if (clear && optind < argc) {
		command_complain("--clear and \"%.60s\": expected one of them", argv[optind]);
		return COMMAND_WRONG;
	}
	if (clear || optind < argc) {
		body = context_body(argc - optind, argv + optind);
		if (!body)
			return COMMAND_WRONG;
	}
	code = context_call(&client, body, json);
	free(body);
	return code;
}
