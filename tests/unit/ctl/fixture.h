/* What the tests of this folder share: cmocka, and a line of the audit trail as the trail writes
 * it. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "audit/event_json.h"
#include "base/arena.h"
#include "base/strbuf.h"

#define FIXTURE_TIME_US UINT64_C(1767323045678901) /* 2026-01-02T03:04:05.678901Z */
#define FIXTURE_PREV "0000000000000000000000000000000000000000000000000000000000000000"

static inline struct audit_event fixture_event(void)
{
	struct audit_event e = {
		.kind = AUDIT_READ,
		.verdict = AUDIT_ALLOWED,
		.reason = REASON_ALLOWED,
		.method = SLICE("GET"),
		.url = SLICE("https://docs.test/a"),
		.host = SLICE("docs.test"),
		.via = SLICE("connect"),
		.alpn = SLICE("http/1.1"),
		.rule = SLICE("rule 1: allow docs.test"),
		.user_agent = SLICE("curl/7"),
		.port = 443,
		.status = 200,
		.uid = 1000,
		.up = 100,
		.down = 2000,
		.ms = 7,
		.start_us = FIXTURE_TIME_US,
	};

	return e;
}

/* Without newline; the caller frees. */
static inline char *fixture_line(const struct audit_event *e)
{
	static char body[EVENT_JSON_MAX];
	struct event_rec *r = malloc(sizeof(*r));
	char *line = NULL;
	size_t n;

	assert_non_null(r);
	event_rec_set(r, e);
	n = event_json_body(body, r, "00000000000000a1", SLICE("box"), SLICE_EMPTY);
	free(r);
	assert_true(asprintf(&line, "{\"v\":1,\"seq\":5,%.*s,\"prev\":\"" FIXTURE_PREV "\"}",
			    (int)n, body) > 0);
	return line;
}

static inline void fixture_text(const struct strbuf *b, const char *want)
{
	char *got = xcalloc(1, b->len + 1);

	memcpy(got, strbuf_slice(b).p, b->len);
	assert_string_equal(got, want);
	free(got);
}
