/* The command line of `egressctl audit`. After it: audit_tail, audit_query, audit_context,
 * audit/audit_file. */
#include "ctl/audit_cmd.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "audit/audit_file.h"
#include "base/clock.h"
#include "ctl/api_client.h"
#include "ctl/audit_context.h"
#include "ctl/audit_help.h"
#include "ctl/audit_print.h"
#include "ctl/audit_query.h"
#include "ctl/audit_tail.h"
#include "ctl/environment.h"
#include "ctl/text.h"

#define TAIL_LINES_DEFAULT 10
#define VERIFY_TEXT_MAX 65536 /* two paths with every byte escaped */

static enum command_exit audit_usage(const char *path, const char *what)
{
	command_complain("unexpected \"%.60s\": see `%s --help`", what, path);
	return COMMAND_WRONG;
}

static bool audit_number(const char *option, const char *text, uint64_t max, uint64_t *out)
{
	if (slice_to_u64(slice_str(text), out) && *out <= max)
		return true;
	command_complain("%s \"%.60s\": expected a number from 0 to %llu", option, text,
		(unsigned long long)max);
	return false;
}

/* The path to read: owned, NULL after a complaint. */
static char *audit_path(const char *file, const char *config)
{
	struct errmsg msg = {""};
	char *path = NULL;

	if (file)
		return strdup(file);
	if (environment_audit_path(config, environ, &path, &msg) < 0)
		command_complain("%s", msg.text);
	return path;
}

/* Where lines come from, as options name it. */
struct audit_from {
	const char *file, *config;
	struct api_client api;
	char *path; /* owned; NULL: ask api */
};

/* The environment is that of a running egress, as in its container. */
static bool audit_beside_egress(void)
{
	return environment_get(environ, "OPENSANDBOX_EGRESS_TOKEN") ||
		environment_get(environ, "OPENSANDBOX_EGRESS_HTTP_ADDR");
}

/* Without an option: the file, if there is one; else the egress that this environment belongs to.
 * False after a complaint. */
static bool audit_find(struct audit_from *from)
{
	from->api.environ = environ;
	if (from->api.address) {
		if (from->file || from->config)
			command_complain("--api and --file or --config: expected one of them");
		return !from->file && !from->config;
	}
	from->path = audit_path(from->file, from->config);
	if (from->path && !from->file && !from->config && audit_beside_egress() &&
		access(from->path, F_OK) < 0) {
		free(from->path);
		from->path = NULL;
		return true;
	}
	return from->path != NULL;
}

static bool audit_wants_color(void)
{
	return audit_print_color(isatty(STDOUT_FILENO) == 1, environ);
}

static enum command_exit audit_cmd_tail(int argc, char **argv)
{
	static const char name[] = "egressctl audit tail";
	static const struct option longs[] = {
		{"lines", required_argument, NULL, 'n'},
		{"follow", no_argument, NULL, 'f'},
		{"json", no_argument, NULL, 'j'},
		{"file", required_argument, NULL, 'F'},
		{"api", required_argument, NULL, 'a'},
		{"config", required_argument, NULL, 'c'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	struct audit_tail t = {.lines = TAIL_LINES_DEFAULT};
	struct audit_from from = {.file = NULL};
	enum command_exit code;
	int c;

	optind = 0;
	while ((c = command_option(argc, argv, ":n:fc:h", longs, name)) != -1) {
		if (c == 'h')
			return command_help(audit_help_tail);
		if (c == '?' ||
			(c == 'n' &&
				!audit_number("--lines", optarg, AUDIT_TAIL_LINES_MAX, &t.lines)))
			return COMMAND_WRONG;
		t.follow |= c == 'f';
		t.json |= c == 'j';
		from.file = c == 'F' ? optarg : from.file;
		from.config = c == 'c' ? optarg : from.config;
		from.api.address = c == 'a' ? optarg : from.api.address;
	}
	if (optind < argc)
		return audit_usage(name, argv[optind]);
	if (!audit_find(&from))
		return COMMAND_WRONG;
	t.path = from.path;
	t.api = &from.api;
	t.color = audit_wants_color();
	code = audit_tail_run(&t);
	free(from.path);
	return code;
}

static int audit_query_format(const char *text, struct audit_query *q, struct errmsg *msg)
{
	if (strcmp(text, "table") == 0)
		q->format = AUDIT_FORMAT_TABLE;
	else if (strcmp(text, "csv") == 0)
		q->format = AUDIT_FORMAT_CSV;
	else if (strcmp(text, "json") == 0)
		q->format = AUDIT_FORMAT_JSON;
	else
		return errmsg_set(msg, E_VALUE, "\"%.60s\": expected table, csv or json", text);
	return 0;
}

enum query_option {
	QUERY_SINCE = 1000, /* above every letter */
	QUERY_UNTIL,
	QUERY_HOST,
	QUERY_VERDICT,
	QUERY_KIND,
	QUERY_REASON,
	QUERY_METHOD,
	QUERY_UID,
	QUERY_CONTEXT,
	QUERY_LIMIT,
	QUERY_FORMAT,
	QUERY_FILE,
	QUERY_API,
};

static const struct option query_longs[] = {
	{"since", required_argument, NULL, QUERY_SINCE},
	{"until", required_argument, NULL, QUERY_UNTIL},
	{"host", required_argument, NULL, QUERY_HOST},
	{"verdict", required_argument, NULL, QUERY_VERDICT},
	{"kind", required_argument, NULL, QUERY_KIND},
	{"reason", required_argument, NULL, QUERY_REASON},
	{"method", required_argument, NULL, QUERY_METHOD},
	{"uid", required_argument, NULL, QUERY_UID},
	{"context", required_argument, NULL, QUERY_CONTEXT},
	{"limit", required_argument, NULL, QUERY_LIMIT},
	{"format", required_argument, NULL, QUERY_FORMAT},
	{"file", required_argument, NULL, QUERY_FILE},
	{"api", required_argument, NULL, QUERY_API},
	{"config", required_argument, NULL, 'c'},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

/* One filter or format. */
static int audit_query_option(struct audit_query *q, int c, const char *text, struct errmsg *msg)
{
	struct audit_filter *f = &q->filter;

	switch (c) {
	case QUERY_SINCE:
		return audit_filter_time(text, clock_wall_us(), &f->since_us, msg);
	case QUERY_UNTIL:
		return audit_filter_time(text, clock_wall_us(), &f->until_us, msg);
	case QUERY_HOST:
		return audit_filter_host(text, f, msg);
	case QUERY_VERDICT:
		return audit_filter_verdict(text, f, msg);
	case QUERY_KIND:
		return audit_filter_kind(text, f, msg);
	case QUERY_REASON:
		return audit_filter_reason(text, f, msg);
	case QUERY_METHOD:
		f->method = slice_str(text);
		return 0;
	case QUERY_UID:
		f->has_uid = true;
		if (slice_to_u64(slice_str(text), &f->uid) && f->uid < AUDIT_UID_NONE)
			return 0;
		return errmsg_set(msg, E_VALUE, "\"%.60s\": expected the number of a user", text);
	case QUERY_CONTEXT:
		return audit_filter_context(text, f, msg);
	case QUERY_LIMIT:
		if (slice_to_u64(slice_str(text), &q->limit) && q->limit > 0)
			return 0;
		return errmsg_set(
			msg, E_VALUE, "\"%.60s\": expected a number of lines, from 1", text);
	case QUERY_FORMAT:
		return audit_query_format(text, q, msg);
	default:
		return 0;
	}
}

static const char *audit_query_option_name(int c)
{
	for (size_t i = 0; query_longs[i].name; i++)
		if (query_longs[i].val == c)
			return query_longs[i].name;
	return "";
}

static enum command_exit audit_cmd_query(int argc, char **argv)
{
	static const char name[] = "egressctl audit query";
	struct audit_query q = {.color = audit_wants_color()};
	struct audit_from from = {.file = NULL};
	struct errmsg msg = {""};
	enum command_exit code;
	int c;

	optind = 0;
	while ((c = command_option(argc, argv, ":c:h", query_longs, name)) != -1) {
		if (c == 'h')
			return command_help(audit_help_query);
		if (c == '?')
			return COMMAND_WRONG;
		if (audit_query_option(&q, c, optarg, &msg) < 0) {
			command_complain("--%s %s", audit_query_option_name(c), msg.text);
			return COMMAND_WRONG;
		}
		from.file = c == QUERY_FILE ? optarg : from.file;
		from.config = c == 'c' ? optarg : from.config;
		from.api.address = c == QUERY_API ? optarg : from.api.address;
	}
	if (optind < argc)
		return audit_usage(name, argv[optind]);
	if (!audit_find(&from))
		return COMMAND_WRONG;
	q.path = from.path;
	q.api = &from.api;
	code = audit_query_run(&q);
	free(from.path);
	return code;
}

static void audit_verify_print(const char *path, const struct audit_verify *v)
{
	struct strbuf out;

	strbuf_init(&out, VERIFY_TEXT_MAX);
	if (v->what == AUDIT_BREAK_NONE) {
		(void)text_visible(&out, slice_str(path));
		strbuf_printf(&out, ": whole: %llu lines", (unsigned long long)v->lines);
		if (v->lines > 0)
			strbuf_printf(&out, ", seq %llu to %llu", (unsigned long long)v->first_seq,
				(unsigned long long)v->last_seq);
	} else {
		(void)text_visible(&out, slice_str(v->path));
		strbuf_printf(&out, ":%llu: broken: %s", (unsigned long long)v->number,
			audit_break_text(v->what));
		if (v->seq > 0)
			strbuf_printf(&out, " (seq %llu after %llu)", (unsigned long long)v->seq,
				(unsigned long long)v->last_seq);
	}
	(void)puts(strbuf_cstr(&out));
	strbuf_fini(&out);
}

static void audit_verify_print_json(const char *path, const struct audit_verify *v)
{
	bool whole = v->what == AUDIT_BREAK_NONE;
	json_t *doc = json_pack("{s:s, s:b, s:I, s:I, s:I}", "file", path, "whole", whole, "lines",
		(json_int_t)v->lines, "first_seq", (json_int_t)v->first_seq, "last_seq",
		(json_int_t)v->last_seq);

	/* A path that is not UTF-8 has no JSON text. */
	if (!doc)
		doc = json_pack("{s:b, s:I}", "whole", whole, "lines", (json_int_t)v->lines);
	if (doc && !whole)
		(void)json_object_set_new(doc, "break",
			json_pack("{s:s, s:I, s:I, s:s}", "file", v->path, "line",
				(json_int_t)v->number, "seq", (json_int_t)v->seq, "what",
				audit_break_text(v->what)));
	if (doc)
		(void)json_dumpf(doc, stdout, JSON_COMPACT);
	(void)putchar('\n');
	json_decref(doc);
}

static enum command_exit audit_verify_one(const char *path, bool json)
{
	struct audit_verify *v = malloc(sizeof(*v));
	struct errmsg msg = {""};
	enum command_exit code;
	int ret;

	REQUIRE(v != NULL);
	ret = audit_verify(path, true, v, &msg);
	if (ret < 0) {
		audit_query_complain(path, &msg, ret);
		code = COMMAND_WRONG;
	} else {
		if (json)
			audit_verify_print_json(path, v);
		else
			audit_verify_print(path, v);
		code = v->what == AUDIT_BREAK_NONE ? COMMAND_OK : COMMAND_NO;
	}
	free(v);
	return code;
}

static enum command_exit audit_cmd_verify(int argc, char **argv)
{
	static const char name[] = "egressctl audit verify";
	static const struct option longs[] = {
		{"json", no_argument, NULL, 'j'},
		{"file", required_argument, NULL, 'F'},
		{"config", required_argument, NULL, 'c'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	const char *file = NULL, *config = NULL;
	enum command_exit code = COMMAND_OK, one;
	bool json = false;
	char *path;
	int c;

	optind = 0;
	while ((c = command_option(argc, argv, ":c:h", longs, name)) != -1) {
		if (c == 'h')
			return command_help(audit_help_verify);
		if (c == '?')
			return COMMAND_WRONG;
		json |= c == 'j';
		file = c == 'F' ? optarg : file;
		config = c == 'c' ? optarg : config;
	}
	if (optind == argc || file) {
		path = audit_path(file, config);
		if (!path)
			return COMMAND_WRONG;
		code = audit_verify_one(path, json);
		free(path);
	}
	/* The worst of them counts. */
	for (int i = optind; i < argc; i++) {
		one = audit_verify_one(argv[i], json);
		code = one > code ? one : code;
	}
	return command_flush(code);
}

static const struct command audit_commands[] = {
	{"context", audit_context_run},
	{"tail", audit_cmd_tail},
	{"query", audit_cmd_query},
	{"verify", audit_cmd_verify},
	{NULL, NULL},
};

enum command_exit audit_cmd_run(int argc, char **argv)
{
	return command_run(audit_commands, "egressctl audit", audit_help, argc, argv);
}
