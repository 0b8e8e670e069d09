/* What callers of /audit and /audit/context send, as values. Pure. After it: api_audit.c. */
#include "control/api_audit.h"

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
