/* The command line of `egressctl policy`. Before it: main; after it: policy_verdict. */
#include "ctl/policy_cmd.h"

#include <stdio.h>
#include <unistd.h>

#include <jansson.h>

#include "audit/event_json.h"
#include "base/log.h"
#include "control/settings_proxy.h"
#include "control/sources.h"
#include "ctl/policy_edit.h"
#include "ctl/policy_verdict.h"
#include "ctl/text.h"

#define POLICY_FIELDS_MAX FIELDS_MAX
#define POLICY_TEXT_MAX 16384

static const char policy_help[] =
	"NAME\n"
	"      egressctl policy - ask and change the policy of egress\n"
	"\n"
	"USAGE\n"
	"      egressctl policy check [OPTION]... METHOD URL\n"
	"      egressctl policy get|set|allow|deny|rm [OPTION]... [ARGUMENT]...\n"
	"\n"
	"COMMANDS\n"
	"      check    the verdict about one request, by the settings\n"
	"      get      the policy of a running egress\n"
	"      set      replace it\n"
	"      allow    put rules in front of it that allow targets\n"
	"      deny     put rules in front of it that deny targets\n"
	"      rm       take the rules for targets out of it\n"
	"\n"
	"      Each has a --help of its own.\n";

static const char policy_help_check[] =
	"NAME\n"
	"      egressctl policy check - the verdict about one request, without sending it\n"
	"\n"
	"USAGE\n"
	"      egressctl policy check [--config FILE] [--json] [-H 'NAME: VALUE']...\n"
	"            [--content] [--address IP] METHOD URL\n"
	"\n"
	"DESCRIPTION\n"
	"      Says what `egress` with the same environment and configuration would decide:\n"
	"      verdict, reason, rule, what would allow it, and, where there is a vault file,\n"
	"      the binding that would lend its key. Nothing is sent or looked up.\n"
	"      The verdict is allowed, blocked, or depends: then the address decides to\n"
	"      which the name resolves; give it with --address.\n"
	"\n"
	"OPTIONS\n"
	"      -c, --config FILE         configuration of egress; variables win over it\n"
	"      -H, --header NAME:VALUE   a field of the request, up to 128 times\n"
	"          --content             the request has content\n"
	"          --address IP          the name resolves to this address\n"
	"          --json                one JSON object\n"
	"      -h, --help                print this text\n"
	"\n"
	"EXIT CODES\n"
	"      0   allowed\n"
	"      1   blocked, or it depends on an address that was not given\n"
	"      2   wrong usage or configuration\n"
	"\n"
	"EXAMPLES\n"
	"      egressctl policy check --config egress.yaml GET https://pypi.org/simple/\n"
	"      egressctl policy check --content POST https://api.example.com/v1/messages\n"
	"      egressctl policy check --address 10.0.0.7 PUT http://store.internal/key\n"
	"      egressctl policy check CONNECT ssh.example.com:22\n";

static const char *const policy_verdicts[] = {
	[POLICY_VERDICT_ALLOWED] = "allowed",
	[POLICY_VERDICT_BLOCKED] = "blocked",
	[POLICY_VERDICT_DEPENDS] = "depends",
};

struct policy_check {
	const char *config_path;
	bool json;
	struct policy_question q;
	const char *field[POLICY_FIELDS_MAX];
};

/* What the verdict does not say by itself. NULL: nothing. */
static const char *policy_note(const struct policy_answer *a)
{
	if (a->verdict == POLICY_VERDICT_DEPENDS)
		return "it depends on the address that the name resolves to: give it with "
		       "--address";
	if (a->match == VAULT_REPORT_AMBIGUOUS)
		return "more than one binding applies: such a request is refused";
	if (a->match == VAULT_REPORT_PATH)
		return "the path can be read in two ways: with a binding it is refused";
	if (a->verdict == POLICY_VERDICT_BLOCKED)
		return NULL;
	if (a->uncertain)
		return "unless the name resolves to a private address";
	if (a->unread)
		return "TLS to this host is not decrypted: no request in it is judged";
	if (a->step == POLICY_STEP_CONNECT)
		return "the requests inside are judged one by one";
	return NULL;
}

static const char *policy_reason_text(const struct policy_answer *a)
{
	/* Nothing has been allowed before the address is known. */
	return a->verdict == POLICY_VERDICT_DEPENDS
		? "a write, and only some addresses may be written to"
		: reason_text(a->reason);
}

static void policy_print_binding(const struct policy_answer *a, struct strbuf *out)
{
	strbuf_str(out, "binding   ");
	if (a->match == VAULT_REPORT_BINDING)
		(void)text_visible(out, a->binding);
	else
		strbuf_str(out, "none");
	strbuf_char(out, '\n');
}

static void policy_print(const struct policy_answer *a, bool vault)
{
	const char *note = policy_note(a);
	struct strbuf out, remedy;

	strbuf_init(&out, POLICY_TEXT_MAX);
	strbuf_init(&remedy, POLICY_TEXT_MAX);
	strbuf_printf(&out, "verdict   %s\n", policy_verdicts[a->verdict]);
	if (a->verdict == POLICY_VERDICT_DEPENDS)
		strbuf_printf(&out, "reason    %s\n", policy_reason_text(a));
	else
		strbuf_printf(
			&out, "reason    %s: %s\n", reason_name(a->reason), policy_reason_text(a));
	if (a->detail)
		strbuf_printf(&out, "detail    %s\n", a->detail);
	strbuf_printf(&out, "target    %s, port %u\n", a->target.name, a->target.port);
	if (a->step != POLICY_STEP_HEAD) {
		strbuf_printf(&out, "kind      %s\n", event_kind_name(a->admission.kind));
		strbuf_printf(&out, "rule      %s\n", a->rule);
	}
	if (vault)
		policy_print_binding(a, &out);
	if (a->verdict == POLICY_VERDICT_BLOCKED) {
		strbuf_printf(&out, "status    %d%s\n", reason_status(a->reason),
			a->step == POLICY_STEP_CONNECT ? " to CONNECT" : "");
		if (policy_verdict_remedy(a, &remedy))
			strbuf_printf(&out, "to allow  %s\n", strbuf_cstr(&remedy));
	}
	if (note)
		strbuf_printf(&out, "note      %s\n", note);
	(void)fwrite(strbuf_cstr(&out), 1, out.len, stdout);
	strbuf_fini(&remedy);
	strbuf_fini(&out);
}

static json_t *policy_text_or_null(const char *s)
{
	return s ? json_string(s) : json_null();
}

static void policy_print_json(const struct policy_answer *a)
{
	bool blocked = a->verdict == POLICY_VERDICT_BLOCKED;
	bool decided = a->verdict != POLICY_VERDICT_DEPENDS;
	bool judged = a->step != POLICY_STEP_HEAD;
	struct strbuf remedy;
	json_t *doc;

	strbuf_init(&remedy, POLICY_TEXT_MAX);
	if (!blocked || !policy_verdict_remedy(a, &remedy))
		strbuf_clear(&remedy);
	doc = json_pack("{s:s, s:o, s:s, s:o, s:s, s:i, s:o, s:o, s:o, s:o, s:o, s:o}", "verdict",
		policy_verdicts[a->verdict], "reason",
		policy_text_or_null(decided ? reason_name(a->reason) : NULL), "text",
		policy_reason_text(a), "detail", policy_text_or_null(a->detail), "host",
		a->target.name, "port", (int)a->target.port, "kind",
		policy_text_or_null(judged ? event_kind_name(a->admission.kind) : NULL), "rule",
		policy_text_or_null(judged ? a->rule : NULL), "binding",
		a->match == VAULT_REPORT_BINDING ? json_stringn(a->binding.p, a->binding.len)
						 : json_null(),
		"status", blocked ? json_integer(reason_status(a->reason)) : json_null(),
		"to_allow", policy_text_or_null(remedy.len > 0 ? strbuf_cstr(&remedy) : NULL),
		"note", policy_text_or_null(policy_note(a)));
	REQUIRE(doc != NULL);
	(void)json_dumpf(doc, stdout, JSON_COMPACT);
	(void)putchar('\n');
	json_decref(doc);
	strbuf_fini(&remedy);
}

static int policy_check_ask(struct policy_check *check, const struct settings *s,
	struct policy_answer *a, struct errmsg *msg)
{
	struct proxy_config c = settings_proxy_config(s);
	int ret = vault_report_new(s, &check->q.vault, msg);

	if (ret < 0)
		return ret;
	c.vault = vault_report_vault(check->q.vault);
	return policy_verdict_find(&c, &check->q, a, msg);
}

static enum command_exit policy_check_run(struct policy_check *check)
{
	struct settings *s = NULL;
	struct policy_answer a = {.verdict = POLICY_VERDICT_BLOCKED};
	struct errmsg msg = {""};
	int ret;

	log_setup(LOG_LEVEL_WARN, STDERR_FILENO, "egressctl");
	ret = sources_load(check->config_path, environ, &s, &msg);
	if (ret == 0)
		ret = policy_check_ask(check, s, &a, &msg);
	if (ret < 0)
		command_complain("%s", msg.text[0] ? msg.text : err_text(ret));
	else if (check->json)
		policy_print_json(&a);
	else
		policy_print(&a, check->q.vault != NULL);
	vault_report_free(check->q.vault);
	settings_free(s);
	if (ret < 0)
		return COMMAND_WRONG;
	return command_flush(a.verdict == POLICY_VERDICT_ALLOWED ? COMMAND_OK : COMMAND_NO);
}

/* False after a complaint. */
static bool policy_check_option(struct policy_check *check, int c, const char *text)
{
	switch (c) {
	case 'c':
		check->config_path = text;
		return true;
	case 'j':
		check->json = true;
		return true;
	case 'C':
		check->q.content = true;
		return true;
	case 'H':
		if (check->q.n_fields == POLICY_FIELDS_MAX) {
			command_complain("more than %d fields", POLICY_FIELDS_MAX);
			return false;
		}
		check->field[check->q.n_fields++] = text;
		return true;
	case 'a':
		check->q.has_address = true;
		if (netaddr_parse(slice_str(text), &check->q.address))
			return true;
		command_complain("--address \"%.60s\": expected an IP address", text);
		return false;
	default:
		return false;
	}
}

static enum command_exit policy_cmd_check(int argc, char **argv)
{
	static const char name[] = "egressctl policy check";
	static const struct option longs[] = {
		{"config", required_argument, NULL, 'c'},
		{"json", no_argument, NULL, 'j'},
		{"header", required_argument, NULL, 'H'},
		{"content", no_argument, NULL, 'C'},
		{"address", required_argument, NULL, 'a'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	struct policy_check check = {.config_path = NULL};
	int c;

	optind = 0;
	while ((c = command_option(argc, argv, ":c:H:h", longs, name)) != -1) {
		if (c == 'h')
			return command_help(policy_help_check);
		if (c == '?' || !policy_check_option(&check, c, optarg))
			return COMMAND_WRONG;
	}
	if (argc - optind != 2) {
		command_complain("expected METHOD and URL: see `%s --help`", name);
		return COMMAND_WRONG;
	}
	check.q.field = check.field;
	check.q.method = slice_str(argv[optind]);
	check.q.url = slice_str(argv[optind + 1]);
	return policy_check_run(&check);
}

static const struct command policy_commands[] = {
	{"check", policy_cmd_check},
	{"get", policy_edit_get},
	{"set", policy_edit_set},
	{"allow", policy_edit_allow},
	{"deny", policy_edit_deny},
	{"rm", policy_edit_rm},
	{NULL, NULL},
};

enum command_exit policy_cmd_run(int argc, char **argv)
{
	return command_run(policy_commands, "egressctl policy", policy_help, argc, argv);
}
