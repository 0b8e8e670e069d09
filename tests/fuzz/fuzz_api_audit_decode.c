/* Queries and labels of /audit: what is accepted is within its limits, and labels become an object
 * of strings that is read back as itself. covers: control/api_audit_decode.c audit/context.c */
#include <stdio.h>

#include "control/api_audit.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len);

static void query_check(struct slice in)
{
	struct api_audit_query q;
	struct errmsg msg = {""};
	int ret = api_audit_query_decode(in, &q, &msg);

	REQUIRE(ret == 0 || (ret == E_VALUE && msg.text[0]));
	REQUIRE(ret < 0 || (q.limit > 0 && q.limit <= API_AUDIT_LINES_MAX));
	REQUIRE(ret < 0 || q.has_after || q.after == 0);
}

static void labels_check(struct slice in)
{
	struct context c = {.len = 7}, again = {.len = 0};
	struct errmsg msg = {""};
	char body[AUDIT_CONTEXT_MAX + 16];
	int ret = api_audit_context_decode(in, &c, &msg);
	int n;

	if (ret < 0) {
		REQUIRE(msg.text[0] && c.len == 7);
		return;
	}
	REQUIRE(c.len <= AUDIT_CONTEXT_MAX);
	n = snprintf(body, sizeof(body), "{\"labels\":%.*s}", c.len > 0 ? c.len : 2,
		c.len > 0 ? c.text : "{}");
	/* No newline and no control character gets into a line. */
	for (int i = 0; i < n; i++)
		REQUIRE((unsigned char)body[i] >= 0x20 && body[i] != 0x7f);
	REQUIRE(api_audit_context_decode(slice_make(body, (size_t)n), &again, &msg) == 0);
	REQUIRE(again.len == c.len && (c.len == 0 || memcmp(again.text, c.text, c.len) == 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t len)
{
	struct slice in = slice_make((const char *)p, len);

	query_check(in);
	labels_check(in);
	return 0;
}
