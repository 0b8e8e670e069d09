/* The steps of `egressctl policy check`. Comes after policy_cmd's options; before its output. */
#include "ctl/policy_verdict.h"

#include <stdlib.h>

#include "base/arena.h"
#include "proxy/h1.h"
#include "proxy/intercept.h"
#include "proxy/reply.h"
#include "proxy/rewrite.h"

/* The proxy's view of one question. `px` only lends its configuration to intercept. */
struct verdict_run {
	const struct policy_question *q;
	struct policy_answer *out;
	struct proxy px;
	struct h1_head head;
	struct request_target form;
	struct strbuf text;
	bool https;
};

static bool verdict_has_break(struct slice s)
{
	for (size_t i = 0; i < s.len; i++)
		if (s.p[i] == '\r' || s.p[i] == '\n')
			return true;
	return false;
}

/* Line breaks would make more of the request than its author wrote. */
static int verdict_check_question(const struct policy_question *q, struct errmsg *msg)
{
	if (q->method.len == 0 || verdict_has_break(q->method) || verdict_has_break(q->url))
		return errmsg_set(msg, E_VALUE, "expected METHOD and URL without line breaks");
	for (size_t i = 0; i < q->n_fields; i++) {
		struct slice f = slice_str(q->field[i]);

		if (verdict_has_break(f))
			return errmsg_set(msg, E_VALUE, "a field with a line break");
		if (slice_ieq(slice_first(f, slice_find_char(f, ':')), SLICE("host")))
			return errmsg_set(
				msg, E_VALUE, "a Host field: expected none, it comes from the URL");
	}
	return 0;
}

/* Fragments stay with the client. */
static struct slice verdict_url(const struct policy_question *q)
{
	return slice_first(q->url, slice_find_char(q->url, '#'));
}

static int verdict_read_url(struct verdict_run *run, struct errmsg *msg)
{
	struct slice url = verdict_url(run->q);
	struct policy_answer *out = run->out;

	if (request_target_decode(run->q->method, url, &run->form) < 0 ||
		(run->form.form != TARGET_ABSOLUTE && run->form.form != TARGET_AUTHORITY))
		return errmsg_set(msg, E_VALUE,
			slice_eq(run->q->method, SLICE("CONNECT"))
				? "\"%.*s\": expected host:port"
				: "\"%.*s\": expected http:// or https://, a host, and a path "
				  "without spaces",
			SLICE_FMT(slice_first(run->q->url, 100)));
	run->https = run->form.form == TARGET_ABSOLUTE && run->form.https;
	out->target = run->form.authority;
	if (!out->target.has_port) {
		out->target.has_port = true;
		out->target.port = run->https ? 443 : 80;
	}
	if (out->target.is_addr && run->q->has_address &&
		!netaddr_eq(&out->target.addr, &run->q->address))
		return errmsg_set(msg, E_VALUE, "--address: the URL names another address");
	return 0;
}

static void verdict_compose(struct verdict_run *run)
{
	const struct policy_question *q = run->q;
	char host[AUTHORITY_TEXT_MAX];
	size_t n = authority_text(&run->form.authority, run->https ? 443 : 80, host);
	struct strbuf *b = &run->text;

	strbuf_add(b, q->method);
	strbuf_char(b, ' ');
	strbuf_add(b, verdict_url(q));
	strbuf_str(b, " HTTP/1.1\r\nHost: ");
	strbuf_add(b, slice_make(host, n));
	strbuf_str(b, "\r\n");
	for (size_t i = 0; i < q->n_fields; i++) {
		strbuf_str(b, q->field[i]);
		strbuf_str(b, "\r\n");
	}
	if (q->content)
		strbuf_str(b, "Content-Length: 1\r\n");
	strbuf_str(b, "\r\n");
}

/* False if the head is refused before anything is decided. */
static bool verdict_read_head(struct verdict_run *run)
{
	enum h1_error error = H1_OK;
	size_t scanned = 0;
	ssize_t n;

	verdict_compose(run);
	n = h1_head_end(strbuf_slice(&run->text), &scanned, &error);
	if (n > 0)
		error = h1_request_decode(
			slice_first(strbuf_slice(&run->text), (size_t)n), &run->head);
	else if (n == E_LIMIT || run->text.full)
		error = H1_HEAD_TOO_LARGE;
	if (error == H1_OK && n > 0)
		return true;
	run->out->verdict = POLICY_VERDICT_BLOCKED;
	run->out->step = POLICY_STEP_HEAD;
	run->out->reason = error == H1_HEAD_TOO_LARGE || error == H1_TOO_MANY_FIELDS ||
			error == H1_TARGET_TOO_LONG
		? REASON_HEAD_TOO_LARGE
		: REASON_MALFORMED;
	run->out->detail = h1_error_text(error);
	return false;
}

/* The CONNECT of a client, and whether its TLS is opened. */
static void verdict_connect(struct verdict_run *run)
{
	struct policy_answer *out = run->out;
	struct admission tunnel;

	out->step = POLICY_STEP_CONNECT;
	admit_connect(&run->px.config, &out->target, &out->admission);
	out->reason = out->admission.reason;
	if (!out->admission.allow)
		return;
	out->reason = intercept_connect(&run->px, &out->target, &out->admission);
	if (!reason_allows(out->reason) || out->target.port == 80)
		return;
	tunnel = out->admission;
	if (intercept_check(&run->px, &out->target, &tunnel) == INTERCEPT_PASS) {
		out->unread = true;
		out->admission = tunnel;
		out->reason = tunnel.reason;
	}
}

static void verdict_request(struct verdict_run *run)
{
	struct policy_answer *out = run->out;
	bool only_h2c = false;
	struct admit_request r = {
		.target = &out->target,
		.pinned = run->https ? &out->target : NULL,
		.head = &run->head,
		.form = &run->form,
		.upgrade = rewrite_upgrade(&run->head.fields, &only_h2c) && !only_h2c,
	};

	out->step = POLICY_STEP_REQUEST;
	admit_request(&run->px.config, &r, &out->admission);
	out->reason = out->admission.reason;
}

/* What is left to the address that the name resolves to. */
static void verdict_address(struct verdict_run *run)
{
	const struct proxy_config *c = &run->px.config;
	struct policy_answer *out = run->out;
	const struct netaddr *a = out->target.is_addr ? &out->target.addr : &run->q->address;

	if (out->target.is_addr || run->q->has_address) {
		out->step = POLICY_STEP_ADDRESS;
		out->reason = admit_address(c, c->policy, &out->target, &out->admission, a);
	} else if (c->read_only && out->admission.write &&
		read_only_needs_address(
			c->write_hosts, c->private_names, authority_name(&out->target))) {
		if (out->reason == REASON_WRITE_HOST)
			out->uncertain = true;
		else
			out->verdict = POLICY_VERDICT_DEPENDS;
	}
}

/* Which binding would lend its key. Asked whatever the verdict is: both are the operator's. */
static void verdict_binding(struct verdict_run *run)
{
	const struct authority *t = &run->out->target;
	struct vault_report_request r = {
		.https = run->https,
		.port = t->port,
		.host = authority_name(t),
		.method = run->q->method,
		.path = run->form.path,
	};

	if (run->q->vault && !run->out->unread && !t->is_addr)
		run->out->match = vault_report_find(run->q->vault, &r, &run->out->binding);
}

static void verdict_run_steps(struct verdict_run *run)
{
	struct policy_answer *out = run->out;
	bool connect = run->form.form == TARGET_AUTHORITY;

	if (!verdict_read_head(run))
		return;
	if (connect || run->https)
		verdict_connect(run);
	else
		out->reason = REASON_ALLOWED;
	if (reason_allows(out->reason) && !connect && !out->unread)
		verdict_request(run);
	if (!connect)
		verdict_binding(run);
	out->verdict = POLICY_VERDICT_ALLOWED;
	if (reason_allows(out->reason))
		verdict_address(run);
	if (!reason_allows(out->reason))
		out->verdict = POLICY_VERDICT_BLOCKED;
	(void)policy_rule_text(run->px.config.policy, out->admission.verdict.rule, out->rule);
}

int policy_verdict_find(const struct proxy_config *c, const struct policy_question *q,
	struct policy_answer *out, struct errmsg *msg)
{
	struct verdict_run *run;
	int ret;

	*out = (struct policy_answer){.admission.verdict.rule = POLICY_DEFAULT_RULE};
	ret = verdict_check_question(q, msg);
	if (ret < 0)
		return ret;
	run = xcalloc(1, sizeof(*run));
	run->q = q;
	run->out = out;
	run->px.config = *c;
	strbuf_init(&run->text, 2 * H1_HEAD_MAX);
	ret = verdict_read_url(run, msg);
	if (ret == 0)
		verdict_run_steps(run);
	strbuf_fini(&run->text);
	free(run);
	return ret;
}

bool policy_verdict_remedy(const struct policy_answer *a, struct strbuf *out)
{
	const char *remedy = reply_remedy(a->reason);

	if (!remedy)
		return false;
	strbuf_str(out, remedy);
	return true;
}
