/* Answers: status line, fields, JSON. Before it: a handler, or api.c where no handler is asked;
 * after it: api_conn sends what is in c->out. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/arena.h"
#include "base/clock.h"
#include "control/api_int.h"

#define API_PHRASE_MAX 400
#define API_MESSAGE_MAX 1024

static const char *api_phrase(int status)
{
	static const struct {
		int status;
		const char *phrase;
	} rows[] = {
		{200, "OK"},
		{201, "Created"},
		{204, "No Content"},
		{301, "Moved Permanently"},
		{400, "Bad Request"},
		{401, "Unauthorized"},
		{403, "Forbidden"},
		{404, "Not Found"},
		{405, "Method Not Allowed"},
		{408, "Request Timeout"},
		{409, "Conflict"},
		{410, "Gone"},
		{412, "Precondition Failed"},
		{413, "Content Too Large"},
		{417, "Expectation Failed"},
		{426, "Upgrade Required"},
		{431, "Request Header Fields Too Large"},
		{500, "Internal Server Error"},
		{503, "Service Unavailable"},
	};

	for (size_t i = 0; i < ARRAY_LEN(rows); i++)
		if (rows[i].status == status)
			return rows[i].phrase;
	return "Status";
}

/* What RFC 9112 4 allows in a reason phrase, in ASCII. */
static void api_write_phrase(struct strbuf *out, const char *phrase)
{
	size_t n = 0;

	for (; *phrase && n < API_PHRASE_MAX; phrase++) {
		if (*phrase < 0x20 || *phrase > 0x7e)
			continue;
		strbuf_char(out, *phrase);
		n++;
	}
}

static void api_write_date(struct strbuf *out)
{
	time_t now = (time_t)(clock_wall_us() / 1000000);
	char text[40];
	struct tm tm;

	if (gmtime_r(&now, &tm) &&
		strftime(text, sizeof(text), "%a, %d %b %Y %H:%M:%S GMT", &tm) > 0)
		strbuf_printf(out, "Date: %s\r\n", text);
}

struct api_reply {
	int status;
	const char *phrase; /* NULL: the usual one */
	const char *type;
	const char *fields; /* whole lines, or "" */
	struct slice body;
	bool is_head;
};

static void api_write(struct api_conn *c, const struct api_reply *r)
{
	struct strbuf *out = &c->out;

	strbuf_printf(out, "HTTP/1.1 %d ", r->status);
	api_write_phrase(out, r->phrase ? r->phrase : api_phrase(r->status));
	strbuf_str(out, "\r\n");
	api_write_date(out);
	/* RFC 9110 8.6: 204 has no length. */
	if (r->status != 204)
		strbuf_printf(
			out, "Content-Type: %s\r\nContent-Length: %zu\r\n", r->type, r->body.len);
	strbuf_printf(
		out, "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n%s", r->fields);
	if (c->api->instance)
		strbuf_printf(out, "X-Egress-Instance: %s\r\n", c->api->instance);
	if (c->api->draining)
		c->keep_alive = false;
	if (!c->keep_alive)
		strbuf_str(out, "Connection: close\r\n");
	else if (c->http_1_0)
		strbuf_str(out, "Connection: keep-alive\r\n");
	strbuf_str(out, "\r\n");
	if (!r->is_head)
		strbuf_add(out, r->body);
}

/* jansson writes `<`, `>` and `&` as they are; those, like the two line separators, come only
 * inside texts. */
static void api_json_text(json_t *doc, struct strbuf *out)
{
	static const char separators[] = "\xe2\x80";
	char *plain = json_dumps(doc, JSON_COMPACT);

	REQUIRE(plain != NULL);
	for (const char *p = plain; *p; p++) {
		if (*p == '<' || *p == '>' || *p == '&') {
			strbuf_printf(out, "\\u%04x", (unsigned)*p);
		} else if (strncmp(p, separators, 2) == 0 && (p[2] == '\xa8' || p[2] == '\xa9')) {
			strbuf_str(out, p[2] == '\xa8' ? "\\u2028" : "\\u2029");
			p += 2;
		} else {
			strbuf_char(out, *p);
		}
	}
	strbuf_char(out, '\n');
	free(plain);
}

static void api_error_text(struct strbuf *out, const char *code, const char *message)
{
	/* What a caller wrote may be cut in the middle of a character. */
	json_t *text = json_string(message);
	json_t *doc = json_pack("{s:s, s:o}", "code", code, "message",
		text ? text : json_string("the message is not UTF-8"));

	api_json_text(doc, out);
	json_decref(doc);
}

void api_write_error(struct api_conn *c, int status, const char *code, const char *message,
	const char *fields, bool is_head)
{
	struct strbuf body;

	strbuf_init(&body, API_ANSWER_MAX);
	api_error_text(&body, code, message);
	api_write(c,
		&(struct api_reply){
			status, NULL, "application/json", fields, strbuf_slice(&body), is_head});
	strbuf_fini(&body);
}

void api_call_free(struct api_call *call)
{
	strbuf_fini(&call->query);
	strbuf_fini(&call->below);
	api_body_fini(&call->body);
	free(call);
}

static void api_call_reply(struct api_call *call, struct api_reply *r)
{
	struct api_conn *c = call->conn;

	r->is_head = call->is_head;
	api_call_free(call);
	if (!c)
		return; /* nobody is there to read it */
	c->call = NULL;
	api_write(c, r);
	api_conn_send(c);
}

void api_answer(
	struct api_call *call, int status, const char *phrase, const char *type, struct slice body)
{
	api_call_reply(call, &(struct api_reply){status, phrase, type, "", body, false});
}

void api_answer_fields(
	struct api_call *call, int status, const char *type, const char *fields, struct slice body)
{
	api_call_reply(call, &(struct api_reply){status, NULL, type, fields, body, false});
}

void api_answer_json(struct api_call *call, int status, const char *phrase, json_t *doc)
{
	struct strbuf body;

	strbuf_init(&body, API_ANSWER_MAX);
	api_json_text(doc, &body);
	json_decref(doc);
	api_answer(call, status, phrase, "application/json", strbuf_slice(&body));
	strbuf_fini(&body);
}

void api_fail(struct api_call *call, int status, const char *code, const char *fmt, ...)
{
	char message[API_MESSAGE_MAX];
	struct strbuf body;
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(message, sizeof(message), fmt, ap);
	va_end(ap);
	strbuf_init(&body, API_ANSWER_MAX);
	api_error_text(&body, code, message);
	api_answer(call, status, NULL, "application/json", strbuf_slice(&body));
	strbuf_fini(&body);
}

void api_refuse(struct api_conn *c, int status, const char *code, const char *message)
{
	c->keep_alive = false;
	api_write_error(c, status, code, message, "", false);
}

void api_refuse_busy(struct api_conn *c)
{
	c->keep_alive = false;
	api_write_error(c, 503, "busy",
		"other content with keys is being read: there is no locked memory for this now",
		"Retry-After: 1\r\n", false);
}
