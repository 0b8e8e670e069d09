/* Asks the platform for sandboxes and the sidecar of each for its status, many at a time. Before
 * it: main; after it: platform, and status_cmd prints a status. */
#include "ctl/sandboxes_cmd.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <event2/event.h>

#include "base/arena.h"
#include "base/clock.h"
#include "ctl/platform.h"
#include "ctl/status_cmd.h"
#include "ctl/text.h"

#define ROWS_MAX 10000    /* sandboxes shown */
#define ROWS_AT_A_TIME 32 /* whose sidecars are asked */
#define ROWS_TEXT_MAX (64u << 20)

static const char sandboxes_help[] =
	"NAME\n"
	"      egressctl sandboxes - the sandboxes of a platform, and what their egress does\n"
	"      egressctl sandbox ID - one of them in full\n"
	"\n"
	"USAGE\n"
	"      egressctl sandboxes [OPTION]...\n"
	"      egressctl sandbox [OPTION]... ID\n"
	"\n"
	"DESCRIPTION\n"
	"      Asks an OpenSandbox server for its sandboxes, and the sidecar of each that runs\n"
	"      for its status: state, expiry, mode of the policy, write hosts, revision of the\n"
	"      vault, reads and refusals since its start, and when the last one was.\n"
	"\n"
	"OPTIONS\n" PLATFORM_HELP
	"          --json                an object a line: `sandbox` as the server tells it,\n"
	"                                `status` as the sidecar does, `error` where it does not\n"
	"      -h, --help                print this text\n"
	"\n"
	"EXIT CODES\n"
	"      0   printed\n"
	"      1   there is no such sandbox, or a sidecar did not answer\n"
	"      2   wrong usage or settings, or the server cannot be asked\n";

struct rows;

struct row {
	struct rows *all;
	struct lifecycle_sandbox s; /* in doc */
	json_t *doc, *status;
	struct sidecar *sidecar;
	char why[160];
};

/* The loop ends when nothing is under way any more, so nobody keeps a handle of it. */
struct rows {
	struct platform platform;
	const char *id; /* that was asked for; NULL: all */
	unsigned page;
	struct row *v[ROWS_MAX];
	size_t n, next, running;
	enum command_exit code;
};

static void rows_step(struct rows *all);

static void row_end(struct row *r, const char *why)
{
	(void)snprintf(r->why, sizeof(r->why), "%s", why);
	if (why[0])
		r->all->code = COMMAND_NO;
	r->all->running--;
	rows_step(r->all);
}

static void on_row_status(const struct fetch_answer *a, void *arg)
{
	struct row *r = arg;
	struct errmsg msg = {""};

	if (a->err == 0 && a->status == 200)
		r->status = json_loadb(a->content.p, a->content.len, JSON_REJECT_DUPLICATES, NULL);
	row_end(r, r->status ? "" : lifecycle_why(a, &msg));
}

static void on_row_endpoint(const struct fetch_answer *a, void *arg)
{
	static const struct sidecar_question q = {.method = "GET", .path = "/status"};
	struct row *r = arg;
	struct errmsg msg = {""};

	if (lifecycle_api_check(a, &msg) < 0 ||
		sidecar_new(&r->all->platform, a->content, &r->sidecar, &msg) < 0)
		row_end(r, msg.text);
	else
		(void)sidecar_ask(&r->all->platform, r->sidecar, &q, on_row_status, r);
}

/* One that stands still, or is none yet or any more, has no sidecar that answers. */
static bool row_answers(const struct row *r)
{
	return r->s.state == LIFECYCLE_RUNNING || r->s.state == LIFECYCLE_UNKNOWN ||
		r->s.state == LIFECYCLE_PAUSING || r->s.state == LIFECYCLE_STOPPING;
}

static void rows_step(struct rows *all)
{
	while (all->next < all->n && all->running < ROWS_AT_A_TIME) {
		struct row *r = all->v[all->next++];

		if (!row_answers(r))
			continue;
		(void)lifecycle_api_get(
			&all->platform.api, r->s.id, LIFECYCLE_SIDECAR, on_row_endpoint, r);
		all->running++;
	}
	if (all->running == 0)
		event_base_loopbreak(all->platform.caller.base);
}

static void rows_failed(struct rows *all, const char *why, int status)
{
	command_complain("%s: %s", all->id ? all->id : "the list of sandboxes", why);
	all->code = all->id && status == 404 ? COMMAND_NO : COMMAND_WRONG;
	event_base_loopbreak(all->platform.caller.base);
}

static void rows_add(struct rows *all, const struct lifecycle_list *l)
{
	for (size_t i = 0; i < l->n && all->n < ROWS_MAX; i++) {
		struct row *r = xcalloc(1, sizeof(*r));

		r->all = all;
		r->s = l->v[i];
		r->doc = json_incref(
			all->id ? l->root : json_array_get(json_object_get(l->root, "items"), i));
		all->v[all->n++] = r;
	}
}

static void on_rows(const struct fetch_answer *a, void *arg)
{
	struct lifecycle_list l;
	struct rows *all = arg;
	struct errmsg msg = {""};

	if (lifecycle_api_check(a, &msg) < 0 ||
		(all->id ? lifecycle_sandbox_decode(a->content, slice_str(all->id), &l, &msg)
			 : lifecycle_page_decode(a->content, &l, &msg)) < 0) {
		rows_failed(all, msg.text, a->status);
		return;
	}
	rows_add(all, &l);
	if (l.more && l.n > 0 && all->n < ROWS_MAX)
		(void)platform_list(&all->platform, ++all->page, on_rows, all);
	else
		rows_step(all);
	lifecycle_list_fini(&l);
}

static const char *row_text(const json_t *doc, const char *name)
{
	const char *text = json_string_value(json_object_get(doc, name));

	return text ? text : "-";
}

static void row_column(struct strbuf *out, const json_t *number, size_t width)
{
	char text[24] = "-";

	if (json_is_integer(number))
		(void)snprintf(text, sizeof(text), "%lld", (long long)json_integer_value(number));
	text_column(out, slice_str(text), width);
}

static void row_print(const struct row *r, struct strbuf *out)
{
	const json_t *audit = json_object_get(r->status, "audit");
	const json_t *hosts = json_object_get(r->status, "writeHosts");
	const char *mode = row_text(json_object_get(r->status, "policy"), "mode");
	struct strbuf list;

	strbuf_init(&list, ROWS_TEXT_MAX);
	for (size_t i = 0; i < json_array_size(hosts); i++)
		strbuf_printf(
			&list, "%s%s", i ? "," : "", json_string_value(json_array_get(hosts, i)));
	text_column(out, r->s.id, 20);
	text_column(out, r->s.state_text, 10);
	text_column(out, slice_first(slice_str(row_text(r->doc, "expiresAt")), 19), 19);
	text_column(out, slice_str(mode), 9);
	text_column(out, list.len ? strbuf_slice(&list) : SLICE("-"), 24);
	row_column(out, json_object_get(json_object_get(r->status, "vault"), "revision"), 5);
	row_column(out, json_object_get(audit, "reads"), 8);
	row_column(out, json_object_get(audit, "refusals"), 8);
	(void)text_visible(out, slice_str(r->why[0] ? r->why : row_text(audit, "last")));
	strbuf_char(out, '\n');
	strbuf_fini(&list);
}

static void row_line(struct strbuf *out, const char *name, const char *text)
{
	strbuf_printf(out, "%-12s", name);
	(void)text_visible(out, slice_str(text));
	strbuf_char(out, '\n');
}

static void row_print_full(const struct row *r, struct strbuf *out)
{
	char pair[LIFECYCLE_METADATA_BYTES + 2];
	const char *name;
	json_t *value;

	row_line(out, "id", row_text(r->doc, "id"));
	row_line(out, "state", row_text(json_object_get(r->doc, "status"), "state"));
	row_line(out, "expires", row_text(r->doc, "expiresAt"));
	json_object_foreach(r->s.metadata, name, value)
	{
		(void)snprintf(pair, sizeof(pair), "%s=%s", name, json_string_value(value));
		row_line(out, "metadata", pair);
	}
	if (r->why[0])
		row_line(out, "sidecar", r->why);
	if (r->status)
		status_print(r->status, out);
}

static void row_print_json(const struct row *r, struct strbuf *out)
{
	json_t *doc = json_pack("{s:O, s:O*, s:s*}", "sandbox", r->doc, "status", r->status,
		"error", r->why[0] ? r->why : NULL);
	char *text = doc ? json_dumps(doc, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;

	strbuf_str(out, text ? text : "{}");
	strbuf_char(out, '\n');
	free(text);
	json_decref(doc);
}

static void rows_print(const struct rows *all, bool as_json)
{
	struct strbuf out;

	strbuf_init(&out, ROWS_TEXT_MAX);
	if (!as_json && !all->id)
		strbuf_printf(&out, "%-20s %-10s %-19s %-9s %-24s %-5s %-8s %-8s %s\n", "ID",
			"STATE", "EXPIRES", "POLICY", "WRITE HOSTS", "VAULT", "READS", "REFUSED",
			"LAST");
	for (size_t i = 0; i < all->n; i++) {
		if (as_json)
			row_print_json(all->v[i], &out);
		else if (all->id)
			row_print_full(all->v[i], &out);
		else
			row_print(all->v[i], &out);
	}
	(void)fwrite(strbuf_cstr(&out), 1, out.len, stdout);
	strbuf_fini(&out);
}

static enum command_exit rows_run(const struct platform_options *o, const char *id, bool as_json)
{
	struct rows *all = xcalloc(1, sizeof(*all));
	struct errmsg msg = {""};
	enum command_exit code;

	all->id = id;
	all->page = 1;
	if (platform_open(&all->platform, o, &msg) < 0) {
		command_complain("%s", msg.text);
		all->code = COMMAND_WRONG;
	} else {
		if (id)
			(void)lifecycle_api_get(
				&all->platform.api, slice_str(id), "", on_rows, all);
		else
			(void)platform_list(&all->platform, all->page, on_rows, all);
		event_base_dispatch(all->platform.caller.base);
		if (all->code != COMMAND_WRONG)
			rows_print(all, as_json);
	}
	for (size_t i = 0; i < all->n; i++) {
		sidecar_free(&all->platform, all->v[i]->sidecar);
		json_decref(all->v[i]->doc);
		json_decref(all->v[i]->status);
		free(all->v[i]);
	}
	platform_close(&all->platform);
	code = all->code;
	free(all);
	return command_flush(code);
}

static enum command_exit rows_cmd(int argc, char **argv, const char *name, bool one)
{
	static const struct option longs[] = {
		PLATFORM_LONGS,
		{"json", no_argument, NULL, 'j'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	struct platform_options o = {.url = NULL};
	bool as_json = false;
	int c;

	optind = 0;
	while ((c = command_option(argc, argv, ":h", longs, name)) != -1) {
		if (c == 'h')
			return command_help(sandboxes_help);
		if (c == 'j')
			as_json = true;
		else if (platform_option(&o, c, optarg) <= 0)
			return COMMAND_WRONG;
	}
	if (argc - optind != (one ? 1 : 0) || (one && !lifecycle_id_ok(slice_str(argv[optind])))) {
		command_complain("expected %s: see `%s --help`",
			one ? "the id of a sandbox" : "options alone", name);
		return COMMAND_WRONG;
	}
	return rows_run(&o, one ? argv[optind] : NULL, as_json);
}

enum command_exit sandboxes_cmd_run(int argc, char **argv)
{
	return rows_cmd(argc, argv, "egressctl sandboxes", false);
}

enum command_exit sandbox_cmd_run(int argc, char **argv)
{
	return rows_cmd(argc, argv, "egressctl sandbox", true);
}
