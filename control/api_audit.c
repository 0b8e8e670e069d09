/* The handlers of /audit and /audit/context. Before them: api.c, and api_audit_decode.c, which
 * reads what callers send; after them: audit/audit.h. */
#include "control/api_audit.h"

#include <errno.h>
#include <stdio.h>

#include "base/strbuf.h"

/* --- GET /audit --- */

/* What a collector needs beside the lines: is there more, and how far back can it ask. */
static void audit_fields(const struct audit *a, char *buf, size_t size)
{
	(void)snprintf(buf, size, "X-Egress-Audit-Oldest: %llu\r\nX-Egress-Audit-Last: %llu\r\n",
		(unsigned long long)audit_oldest(a), (unsigned long long)audit_seq(a));
}

/* Not a silent gap: who asks has to say with which line it wants to go on. */
static void audit_fail(const struct audit *a, struct api_call *call, uint64_t after, int ret)
{
	unsigned long long oldest = audit_oldest(a), last = audit_seq(a);
	char fields[160], message[256];
	struct strbuf body;

	audit_fields(a, fields, sizeof(fields));
	if (ret == -ENOENT)
		(void)snprintf(message, sizeof(message),
			"lines %llu to %llu are not in memory any more: only a file or stdout has "
			"them; go on with after=%llu",
			(unsigned long long)after + 1, oldest - 1, oldest - 1);
	else
		(void)snprintf(message, sizeof(message),
			"the last line is %llu: there never was a line %llu of this trail; begin "
			"anew with after=%llu",
			last, (unsigned long long)after, oldest - 1);
	strbuf_init(&body, sizeof(message) + 64);
	strbuf_printf(&body, "{\"code\":\"%s\",\"message\":\"%s\"}\n",
		ret == -ENOENT ? "lines_gone" : "other_trail", message);
	api_answer_fields(
		call, ret == -ENOENT ? 410 : 409, "application/json", fields, strbuf_slice(&body));
	strbuf_fini(&body);
}

void api_audit_run(const struct audit *a, struct api_call *call)
{
	struct api_audit_query q;
	struct errmsg msg = {""};
	struct strbuf lines;
	char fields[160];
	int ret = api_audit_query_decode(api_call_query(call), &q, &msg);

	if (ret < 0) {
		api_fail(call, 400, "invalid_query", "%s", msg.text);
		return;
	}
	if (!q.has_after)
		q.after = audit_oldest(a) - 1;
	strbuf_init(&lines, API_AUDIT_BYTES_MAX);
	ret = audit_read(a, q.after, q.limit, &lines);
	if (ret < 0) {
		audit_fail(a, call, q.after, ret);
	} else {
		audit_fields(a, fields, sizeof(fields));
		api_answer_fields(call, 200, "application/x-ndjson", fields, strbuf_slice(&lines));
	}
	strbuf_fini(&lines);
}

/* --- /audit/context --- */

static void audit_context_answer(const struct audit *a, struct api_call *call, bool changed)
{
	struct slice labels = audit_context(a);
	struct strbuf body;

	strbuf_init(&body, AUDIT_CONTEXT_MAX + 128);
	strbuf_str(&body, "{\"labels\":");
	strbuf_add(&body, labels.len > 0 ? labels : SLICE("{}"));
	if (changed)
		strbuf_printf(&body, ",\"seq\":%llu", (unsigned long long)audit_seq(a));
	strbuf_str(&body, "}\n");
	api_answer(call, 200, NULL, "application/json", strbuf_slice(&body));
	strbuf_fini(&body);
}

void api_audit_context_run(struct audit *a, struct api_call *call,
	void (*complete)(struct context *c, void *arg), void *arg)
{
	struct context c = {.len = 0};
	struct errmsg msg = {""};
	int ret = 0;

	if (slice_eq(api_call_method(call), SLICE("GET"))) {
		audit_context_answer(a, call, false);
		return;
	}
	ret = api_audit_context_decode(api_call_body(call), &c, &msg);
	if (ret == 0)
		complete(&c, arg);
	if (ret == 0)
		ret = audit_set_context(a, &c, api_call_uid(call));
	if (ret == 0)
		audit_context_answer(a, call, true);
	else if (ret == E_FULL)
		api_fail(call, 503, "overloaded", "the audit trail has no room for the change");
	else if (ret == E_LIMIT)
		api_fail(call, 413, "context_too_large", "%s", msg.text);
	else
		api_fail(call, 400, "invalid_context", "%s", msg.text);
}
