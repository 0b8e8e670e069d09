/* The command line of `egressctl status`. Before it: main; after it: api_client asks /status. */
#include "ctl/status_cmd.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ctl/api_client.h"
#include "ctl/text.h"

#define STATUS_TEXT_MAX (16u << 20)

static const char status_help[] =
	"NAME\n"
	"      egressctl status - what a running egress says about itself\n"
	"\n"
	"USAGE\n"
	"      egressctl status [--api HOST:PORT] [--json]\n"
	"\n"
	"DESCRIPTION\n"
	"      Prints health, mode, policy, write hosts, vault, what OpenSandbox says of the\n"
	"      sandbox, audit trail and what an operator should look at.\n"
	"\n"
	"OPTIONS\n"
	"          --api HOST:PORT   where egress listens; default: the variable\n"
	"                            OPENSANDBOX_EGRESS_HTTP_ADDR, else 127.0.0.1:18080\n"
	"          --json            the answer as it came\n"
	"      -h, --help            print this text\n"
	"\n"
	"ENVIRONMENT\n"
	"      OPENSANDBOX_EGRESS_TOKEN   the token of the API\n"
	"\n"
	"EXIT CODES\n"
	"      0   it works, perhaps with less than it should have\n"
	"      1   it does not work, or refused to say\n"
	"      2   wrong usage, or egress cannot be reached\n";

static const char *status_text(const json_t *doc, const char *name)
{
	const char *text = json_string_value(json_object_get(doc, name));

	return text ? text : "";
}

static long long status_number(const json_t *doc, const char *name)
{
	return (long long)json_integer_value(json_object_get(doc, name));
}

static void status_line(struct strbuf *out, const char *name, const char *text)
{
	strbuf_printf(out, "%-12s", name);
	(void)text_visible(out, slice_str(text));
	strbuf_char(out, '\n');
}

static void status_health(struct strbuf *out, const json_t *health)
{
	const char *name;
	json_t *part;

	strbuf_printf(out, "%-12s%s", "health", status_text(health, "state"));
	if (status_text(health, "cause")[0]) {
		strbuf_str(out, ": ");
		(void)text_visible(out, slice_str(status_text(health, "cause")));
	}
	strbuf_char(out, '\n');
	json_object_foreach(json_object_get(health, "parts"), name, part)
	{
		if (strcmp(status_text(part, "state"), "ok") == 0)
			continue;
		strbuf_printf(out, "  %-10s%s: ", name, status_text(part, "state"));
		(void)text_visible(out, slice_str(status_text(part, "cause")));
		strbuf_char(out, '\n');
	}
}

static void status_policy(struct strbuf *out, const json_t *policy)
{
	strbuf_printf(out,
		"%-12s%s, revision %lld: %lld rules, default %s; rule files: %lld deny, %lld "
		"allow\n",
		"policy", status_text(policy, "mode"), status_number(policy, "revision"),
		status_number(policy, "rules"), status_text(policy, "defaultAction"),
		status_number(policy, "denyAlways"), status_number(policy, "allowAlways"));
}

static void status_list(struct strbuf *out, const char *name, const json_t *list)
{
	const json_t *item;
	size_t i;

	json_array_foreach(list, i, item)
	{
		status_line(out, i == 0 ? name : "", json_string_value(item));
	}
}

static void status_lifecycle(struct strbuf *out, const json_t *life)
{
	const char *until = status_text(life, "expiresAt"), *failure = status_text(life, "failure");

	if (!json_is_object(life))
		return;
	strbuf_printf(out, "%-12s%s, expires %s: %s (%s); last seen %s\n", "lifecycle",
		status_text(life, "state"), *until ? until : "never", status_text(life, "enforced"),
		status_text(life, "cause"),
		*status_text(life, "lastSuccess") ? status_text(life, "lastSuccess") : "never");
	if (!*failure)
		return;
	strbuf_printf(out, "%-12slast failure %s: ", "", status_text(life, "lastFailure"));
	(void)text_visible(out, slice_str(failure));
	strbuf_char(out, '\n');
}

void status_print(const json_t *doc, struct strbuf *out)
{
	const json_t *vault = json_object_get(doc, "vault");

	status_health(out, json_object_get(doc, "health"));
	status_line(out, "version", status_text(doc, "version"));
	status_line(out, "instance", status_text(doc, "instance"));
	if (status_text(doc, "sandbox")[0])
		status_line(out, "sandbox", status_text(doc, "sandbox"));
	strbuf_printf(out, "%-12s%s, %lld s ago\n", "started", status_text(doc, "started"),
		status_number(doc, "uptimeSeconds"));
	strbuf_printf(out, "%-12s%s%s\n", "mode", status_text(doc, "mode"),
		json_is_true(json_object_get(doc, "readOnly")) ? ", read-only" : "");
	status_policy(out, json_object_get(doc, "policy"));
	status_list(out, "write hosts", json_object_get(doc, "writeHosts"));
	if (json_is_object(vault))
		strbuf_printf(
			out, "%-12srevision %lld\n", "vault", status_number(vault, "revision"));
	else
		status_line(out, "vault", "none");
	status_lifecycle(out, json_object_get(doc, "lifecycle"));
	strbuf_printf(out, "%-12s%lld lines; since the start %lld reads, %lld refusals\n", "audit",
		status_number(json_object_get(doc, "audit"), "seq"),
		status_number(json_object_get(doc, "audit"), "reads"),
		status_number(json_object_get(doc, "audit"), "refusals"));
	status_list(out, "warning", json_object_get(doc, "warnings"));
}

static enum command_exit status_answer(const struct api_client_answer *a, bool as_json)
{
	const char *state = status_text(json_object_get(a->doc, "health"), "state");
	struct strbuf out;

	if (a->status != 200) {
		command_complain("refused (%d): %s", a->status, api_client_message(a));
		return COMMAND_NO;
	}
	strbuf_init(&out, STATUS_TEXT_MAX);
	if (as_json)
		(void)fwrite(a->text.p ? a->text.p : "", 1, a->text.len, stdout);
	else
		status_print(a->doc, &out);
	(void)fwrite(strbuf_cstr(&out), 1, out.len, stdout);
	strbuf_fini(&out);
	return command_flush(strcmp(state, "ok") == 0 || strcmp(state, "degraded") == 0
			? COMMAND_OK
			: COMMAND_NO);
}

enum command_exit status_cmd_run(int argc, char **argv)
{
	static const char name[] = "egressctl status";
	static const struct option longs[] = {
		{"api", required_argument, NULL, 'a'},
		{"json", no_argument, NULL, 'j'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	struct api_client client = {.environ = environ};
	struct api_client_answer answer;
	struct errmsg msg = {""};
	enum command_exit code = COMMAND_WRONG;
	bool as_json = false;
	int c;

	optind = 0;
	while ((c = command_option(argc, argv, ":h", longs, name)) != -1) {
		if (c == 'h')
			return command_help(status_help);
		if (c == '?')
			return COMMAND_WRONG;
		if (c == 'a')
			client.address = optarg;
		else
			as_json = true;
	}
	if (optind < argc) {
		command_complain("unexpected \"%.60s\": see `%s --help`", argv[optind], name);
		return COMMAND_WRONG;
	}
	if (api_client_call(&client, "GET", "/status", SLICE_EMPTY, &answer, &msg) < 0)
		command_complain("%s", msg.text);
	else
		code = status_answer(&answer, as_json);
	api_client_answer_fini(&answer);
	return code;
}
