/* The last lines of the audit trail and those to come, for people or as they are. */
#include "ctl/audit_tail.h"

#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "audit/audit_file.h"
#include "ctl/audit_print.h"
#include "ctl/audit_query.h"
#include "ctl/audit_remote.h"
#include "ctl/file_follow.h"

/* The writer's sink drains every 100 ms; a person does not see the difference. */
#define TAIL_POLL_MS 150
#define TAIL_REMOTE_MS 1000

static bool tail_line(const struct audit_tail *t, struct slice line, struct strbuf *out)
{
	struct audit_record r = {.root = NULL};
	struct errmsg msg;
	bool good = true;

	if (audit_line_is_note(line))
		return true;
	if (t->json) {
		strbuf_add(out, line);
		strbuf_char(out, '\n');
		return true;
	}
	if (audit_record_decode(line, &r, &msg) < 0) {
		command_complain("%s: %s: %.*s", t->path ? t->path : "egress", msg.text,
			(int)slice_first(line, 80).len, line.p);
		good = false;
	} else {
		audit_print_table_row(out, &r, t->color);
	}
	audit_record_fini(&r);
	return good;
}

/* Everything that is there. *bad: a line could not be read. 0, a negated errno, or E_EOF when
 * stdout takes no more. */
static int tail_drain(
	const struct audit_tail *t, struct file_follow *f, struct strbuf *out, bool *bad)
{
	struct slice line;
	int ret;

	while ((ret = file_follow_next(f, &line)) != 0) {
		if (ret == 1) {
			*bad |= !tail_line(t, line, out);
		} else if (ret == E_LIMIT) {
			command_complain("%s: a line longer than any of an audit trail", t->path);
			*bad = true;
		} else {
			break;
		}
		if (fwrite(strbuf_cstr(out), 1, out->len, stdout) != out->len)
			return E_EOF;
		strbuf_clear(out);
	}
	if (ret == 0 &&
		(fwrite(strbuf_cstr(out), 1, out->len, stdout) != out->len || fflush(stdout) != 0))
		return E_EOF;
	strbuf_clear(out);
	return ret;
}

/* True when it is time to look again, false when nobody reads us any more. */
static bool tail_wait(int ms)
{
	struct pollfd p = {.fd = STDOUT_FILENO};

	return poll(&p, 1, ms) <= 0 || (p.revents & (POLLERR | POLLNVAL)) == 0;
}

/* A last line without newline, when nobody waits for the rest of it. */
static int tail_torn(
	const struct audit_tail *t, struct file_follow *f, struct strbuf *out, bool *bad)
{
	struct slice rest;
	int ret = file_follow_torn(f, &rest);

	if (ret < 0 || rest.len == 0)
		return ret;
	*bad = true;
	command_complain("%s: the last line does not end in a newline: it is being written, or was "
			 "cut off",
		t->path);
	if (t->json) {
		strbuf_add(out, rest);
		strbuf_char(out, '\n');
	}
	return fwrite(strbuf_cstr(out), 1, out->len, stdout) == out->len ? 0 : E_EOF;
}

/* As tail_drain. */
static int tail_remote_drain(const struct audit_tail *t, struct audit_remote *r, struct strbuf *out,
	bool *bad, struct errmsg *msg)
{
	struct audit_line line;
	int ret;

	while ((ret = audit_remote_next(r, &line, msg)) > 0) {
		*bad |= !tail_line(t, line.text, out);
		if (fwrite(strbuf_cstr(out), 1, out->len, stdout) != out->len)
			return E_EOF;
		strbuf_clear(out);
	}
	return fflush(stdout) == 0 ? ret : E_EOF;
}

/* What a later try may mend: an answer that says no is none of that. */
static bool tail_may_return(int ret)
{
	return ret != E_EOF && ret != E_VALUE && ret != E_SYNTAX;
}

static enum command_exit tail_remote(const struct audit_tail *t)
{
	struct audit_remote r;
	struct errmsg msg = {""};
	struct strbuf out;
	bool bad = false;
	int ret = audit_remote_open(&r, t->api, t->lines, &msg);

	strbuf_init(&out, AUDIT_PRINT_MAX);
	if (ret == 0 && !t->json) {
		audit_print_table_head(&out);
		(void)fwrite(strbuf_cstr(&out), 1, out.len, stdout);
		strbuf_clear(&out);
	}
	while (ret == 0) {
		ret = tail_remote_drain(t, &r, &out, &bad, &msg);
		if (!t->follow)
			break;
		if (ret < 0 && tail_may_return(ret)) {
			command_complain("%s", msg.text);
			ret = 0;
		}
		if (!tail_wait(TAIL_REMOTE_MS))
			break;
	}
	strbuf_fini(&out);
	audit_remote_close(&r);
	if (ret < 0 && ret != E_EOF) {
		command_complain("%s", msg.text);
		return COMMAND_WRONG;
	}
	return command_flush(bad ? COMMAND_NO : COMMAND_OK);
}

static enum command_exit tail_file(const struct audit_tail *t)
{
	struct file_follow f;
	struct errmsg msg = {""};
	struct strbuf out;
	bool bad = false;
	int ret;

	ret = file_follow_open(&f, t->path, t->lines, &msg);
	if (ret < 0) {
		audit_query_complain(t->path, &msg, ret);
		return COMMAND_WRONG;
	}
	strbuf_init(&out, AUDIT_PRINT_MAX);
	if (!t->json)
		audit_print_table_head(&out);
	do {
		ret = tail_drain(t, &f, &out, &bad);
	} while (ret == 0 && t->follow && tail_wait(TAIL_POLL_MS));
	if (ret == 0 && !t->follow)
		ret = tail_torn(t, &f, &out, &bad);
	strbuf_fini(&out);
	file_follow_close(&f);
	if (ret < 0 && ret != E_EOF) {
		command_complain("%s: %s", t->path, err_text(ret));
		return COMMAND_WRONG;
	}
	return command_flush(bad ? COMMAND_NO : COMMAND_OK);
}

enum command_exit audit_tail_run(const struct audit_tail *t)
{
	return t->path ? tail_file(t) : tail_remote(t);
}
