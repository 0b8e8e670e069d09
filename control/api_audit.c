/* The handlers of /audit and /audit/context, and the two readers of what callers send. */
#include "control/api_audit.h"

#include <errno.h>
#include <stdio.h>

#include "base/strbuf.h"

/* --- GET /audit --- */

static int audit_query_one(
	struct slice name, struct slice value, struct api_audit_query *q, struct errmsg *msg)
{
	uint64_t n;
	bool number = slice_to_u64(value, &n);

	if (slice_eq(name, SLICE("after"))) {
		if (q->has_after)
			return errmsg_set(msg, E_VALUE, "after: given twice");
		if (!number)
			return errmsg_set(msg, E_VALUE,
				"after: \"%.*s\": expected the seq of a line, or 0",
				SLICE_FMT(slice_first(value, 40)));
		q->has_after = true;
		q->after = n;
		return 0;
	}
	if (!slice_eq(name, SLICE("limit")))
		return errmsg_set(msg, E_VALUE, "\"%.*s\": expected after or limit",
			SLICE_FMT(slice_first(name, 40)));
	if (q->limit != 0)
		return errmsg_set(msg, E_VALUE, "limit: given twice");
	if (!number || n == 0 || n > API_AUDIT_LINES_MAX)
		return errmsg_set(msg, E_VALUE,
			"limit: \"%.*s\": expected a number of lines from 1 to %d",
			SLICE_FMT(slice_first(value, 40)), API_AUDIT_LINES_MAX);
	q->limit = (uint32_t)n;
	return 0;
}

int api_audit_query_decode(struct slice query, struct api_audit_query *q, struct errmsg *msg)
{
	struct slice rest = query;
	int ret = 0;

	*q = (struct api_audit_query){.limit = 0};
	while (ret == 0 && rest.len > 0) {
		struct slice value = slice_cut(&rest, '&');
		struct slice name = slice_cut(&value, '=');

		if (name.len > 0 || value.len > 0)
			ret = audit_query_one(name, value, q, msg);
	}
	if (q->limit == 0)
		q->limit = API_AUDIT_LINES_DEFAULT;
	return ret;
}

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

static int audit_labels(json_t *labels, struct context *c, struct errmsg *msg)
{
	struct context_label list[CONTEXT_LABELS_MAX + 1];
	const char *name;
	json_t *value;
	size_t n = 0;

	json_object_foreach(labels, name, value)
	{
		if (!json_is_string(value))
			return errmsg_set(msg, E_VALUE, "label \"%.60s\": expected a string", name);
		/* One too many is enough for E_LIMIT. */
		if (n < ARRAY_LEN(list))
			list[n++] = (struct context_label){slice_str(name),
				slice_make(json_string_value(value), json_string_length(value))};
	}
	return context_set(c, list, n, msg);
}

int api_audit_context_decode(struct slice body, struct context *c, struct errmsg *msg)
{
	json_t *doc, *labels;
	json_error_t error;
	int ret;

	if (body.len > API_AUDIT_CONTEXT_BODY_MAX)
		return errmsg_set(
			msg, E_LIMIT, "expected at most %u bytes", API_AUDIT_CONTEXT_BODY_MAX);
	doc = json_loadb(body.p, body.len, JSON_REJECT_DUPLICATES, &error);
	if (!doc)
		return errmsg_set(msg, E_SYNTAX, "line %d, column %d: %s", error.line, error.column,
			error.text);
	labels = json_object_get(doc, "labels");
	if (!json_is_object(doc) || json_object_size(doc) > (labels ? 1 : 0) ||
		(labels && !json_is_object(labels)))
		ret = errmsg_set(msg, E_VALUE,
			"expected {\"labels\": {\"name\": \"value\"}}, or {} for none");
	else
		ret = audit_labels(labels, c, msg);
	json_decref(doc);
	return ret;
}

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

void api_audit_context_run(struct audit *a, struct api_call *call)
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
