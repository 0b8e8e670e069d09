/* Streams the audit files through filter and printer. audit/audit_file reads the lines. */
#include "ctl/audit_query.h"

#include <errno.h>
#include <stdio.h>

#include "audit/audit_file.h"
#include "ctl/audit_print.h"
#include "ctl/audit_remote.h"

void audit_query_complain(const char *path, const struct errmsg *msg, int code)
{
	if (path && code == -ENOENT)
		command_complain(
			"%s: there is no such audit file: name another with --file FILE, "
			"--config FILE or EGRESS_AUDIT, or ask a running egress with --api",
			path);
	else
		command_complain("%s", msg->text[0] ? msg->text : err_text(code));
}

static void query_print(const struct audit_query *q, struct strbuf *out,
	const struct audit_record *r, struct slice line)
{
	switch (q->format) {
	case AUDIT_FORMAT_TABLE:
		audit_print_table_row(out, r, q->color);
		break;
	case AUDIT_FORMAT_CSV:
		audit_print_csv_row(out, r);
		break;
	case AUDIT_FORMAT_JSON:
		strbuf_add(out, line);
		strbuf_char(out, '\n');
		break;
	}
}

static void query_print_head(const struct audit_query *q, struct strbuf *out)
{
	switch (q->format) {
	case AUDIT_FORMAT_TABLE:
		audit_print_table_head(out);
		break;
	case AUDIT_FORMAT_CSV:
		audit_print_csv_head(out);
		break;
	case AUDIT_FORMAT_JSON:
		break;
	}
}

/* False if stdout does not take it. */
static bool query_write(struct strbuf *out)
{
	bool good = fwrite(strbuf_cstr(out), 1, out->len, stdout) == out->len;

	strbuf_clear(out);
	return good;
}

static void query_complain_line(const struct audit_line *line, const struct errmsg *msg)
{
	command_complain("%s:%llu: %s", line->path, (unsigned long long)line->number,
		line->torn ? audit_break_text(AUDIT_BREAK_TORN) : msg->text);
}

/* 1 if the line was printed, 0 if it was not asked for, E_SYNTAX if it cannot be parsed. */
static int query_line(
	const struct audit_query *q, const struct audit_line *line, struct strbuf *out)
{
	struct audit_record r;
	struct errmsg msg;
	int ret;

	ret = audit_record_decode(line->text, &r, &msg);
	if (ret < 0) {
		query_complain_line(line, &msg);
	} else if (audit_filter_match(&q->filter, &r)) {
		query_print(q, out, &r, line->text);
		ret = 1;
	}
	audit_record_fini(&r);
	return ret;
}

/* One of the two is open. */
struct query_source {
	struct audit_file *file;
	struct audit_remote remote;
	struct errmsg msg; /* why the remote one failed */
};

static int query_next(struct query_source *s, struct audit_line *line)
{
	return s->file ? audit_file_next(s->file, line)
		       : audit_remote_next(&s->remote, line, &s->msg);
}

/* 0, 1 if a line could not be parsed, or a negated errno. */
static int query_lines(const struct audit_query *q, struct query_source *s)
{
	struct audit_line line;
	struct strbuf out;
	uint64_t printed = 0;
	bool bad = false;
	int ret = 0;

	strbuf_init(&out, AUDIT_PRINT_MAX);
	query_print_head(q, &out);
	while (query_write(&out) && (q->limit == 0 || printed < q->limit)) {
		ret = query_next(s, &line);
		if (ret <= 0)
			break;
		ret = query_line(q, &line, &out);
		if (ret < 0)
			bad = true;
		else
			printed += (uint64_t)ret;
		ret = 0;
	}
	strbuf_fini(&out);
	return ret < 0 ? ret : bad;
}

enum command_exit audit_query_run(const struct audit_query *q)
{
	struct query_source s = {.msg = {""}};
	int ret;

	if (q->path)
		ret = audit_file_open(q->path, true, &s.file, &s.msg);
	else
		ret = audit_remote_open(&s.remote, q->api, AUDIT_REMOTE_ALL, &s.msg);
	if (ret < 0) {
		audit_query_complain(q->path, &s.msg, ret);
		audit_remote_close(&s.remote);
		return COMMAND_WRONG;
	}
	ret = query_lines(q, &s);
	audit_file_close(s.file);
	audit_remote_close(&s.remote);
	if (ret < 0) {
		if (q->path)
			command_complain("%s: %s", q->path, err_text(ret));
		else
			command_complain("%s", s.msg.text);
		return COMMAND_WRONG;
	}
	return command_flush(ret > 0 ? COMMAND_NO : COMMAND_OK);
}
