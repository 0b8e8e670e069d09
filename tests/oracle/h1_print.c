/* Prints how our parsers read HTTP/1.1 requests, for h1_nginx.py to compare with another reader.
 *
 * Without arguments stdin is one stream of requests. With --frames it is any number of streams,
 * each after its length in four bytes, and a blank line ends the output for each. A stream is read
 * until it ends, a request is refused or incomplete, or the connection would be closed.
 *
 * --lenient is the negative control: a reader that makes the classic mistakes in front of ours. */
#include <stdio.h>
#include <unistd.h>

#include "base/err.h"
#include "proxy/h1.h"
#include "proxy/request_target.h"

#define INPUT_MAX (1U << 26)

struct message {
	struct h1_head head;
	struct request_target target;
	struct authority host;
	struct slice host_value;
	uint64_t content_len;
	size_t consumed;
	const char *refused; /* why; or NULL */
	bool complete;
};

/* Bytes other than visible ASCII, and '%', in hexadecimal. */
static void print_text(const char *name, struct slice s)
{
	printf(" %s=", name);
	for (size_t i = 0; i < s.len; i++) {
		uint8_t c = (uint8_t)s.p[i];

		if (c > ' ' && c < 0x7f && c != '%')
			putchar(c);
		else
			printf("%%%02x", c);
	}
}

/* The identity of the request: target and Host have to be readable too. */
static void message_identity(struct message *m)
{
	const struct field *host = fields_find(&m->head.fields, FIELD_HOST);

	m->host_value = host ? host->value : SLICE_EMPTY;
	m->host.name_len = 0;
	m->host.is_addr = false;
	if (request_target_decode(m->head.method, m->head.target, &m->target) < 0)
		m->refused = h1_error_text(H1_TARGET);
	else if (m->host_value.len > 0 && authority_decode(m->host_value, &m->host) < 0)
		m->refused = "a malformed Host";
}

static void message_body(struct message *m, struct slice in, size_t head_len)
{
	struct slice rest = slice_from(in, head_len), content;
	enum h1_body_result result;
	struct h1_body body;

	m->content_len = 0;
	h1_body_init(&body, m->head.framing, m->head.length);
	while ((result = h1_body_next(&body, &rest, &content)) == H1_BODY_CONTENT)
		m->content_len += content.len;
	if (result == H1_BODY_ERROR)
		m->refused = h1_error_text(body.error);
	m->complete = result == H1_BODY_END;
	m->consumed = in.len - rest.len;
	h1_body_fini(&body);
}

/* The head as a reader sees it that takes LF for a line end, unfolds lines, removes blanks before
 * a colon and lets the last Content-Length win. Returns the length of what it read. */
static size_t lenient_head(struct slice in, struct strbuf *out)
{
	struct slice rest = in;
	size_t length_at = 0, length_len = 0;

	while (rest.p) {
		struct slice line = slice_cut(&rest, '\n');
		size_t colon;

		if (!rest.p)
			return 0; /* not complete */
		line = slice_ends(line, SLICE("\r")) ? slice_first(line, line.len - 1) : line;
		colon = slice_find_char(line, ':');
		if (line.len > 0 && (line.p[0] == ' ' || line.p[0] == '\t') && out->len > 2) {
			out->len -= 2;
			strbuf_char(out, ' ');
			strbuf_add(out, slice_trim(line));
		} else if (out->len > 0 && colon < line.len) {
			struct slice name = slice_trim(slice_first(line, colon));
			size_t at = out->len;

			strbuf_add(out, name);
			strbuf_add(out, slice_from(line, colon));
			if (slice_ieq(name, SLICE("content-length"))) {
				/* Earlier ones become a field that nobody knows. */
				if (length_len > 0)
					out->p[length_at] = 'X';
				length_at = at;
				length_len = name.len;
			}
		} else {
			strbuf_add(out, line);
		}
		strbuf_str(out, "\r\n");
		if (line.len == 0 && out->len > 2)
			return in.len - rest.len;
	}
	return 0;
}

static void message_decode(struct message *m, struct slice in, struct strbuf *lenient)
{
	struct slice head_in = in;
	size_t scanned = 0, head_len = 0;
	enum h1_error e;
	ssize_t n;

	m->refused = NULL;
	m->complete = false;
	m->consumed = 0;
	if (lenient) {
		strbuf_clear(lenient);
		head_len = lenient_head(in, lenient);
		if (head_len == 0)
			return;
		head_in = strbuf_slice(lenient);
	}
	n = h1_head_end(head_in, &scanned, &e);
	if (n == E_MORE)
		return;
	if (n >= 0) {
		e = h1_request_decode(slice_first(head_in, (size_t)n), &m->head);
		head_len = lenient ? head_len : (size_t)n;
	}
	if (e != H1_OK) {
		m->refused = h1_error_text(e);
		return;
	}
	message_identity(m);
	if (!m->refused)
		message_body(m, in, head_len);
}

static void message_print(const struct message *m)
{
	static const char *const framings[] = {"none", "length", "chunked", "close"};
	bool absolute = m->target.form == TARGET_ABSOLUTE;
	const struct authority *a = absolute ? &m->target.authority : &m->host;

	printf("accepted");
	print_text("method", m->head.method);
	print_text("target", m->head.target);
	print_text("path", m->target.path_query);
	print_text("host", m->host_value);
	print_text("name", authority_name(a));
	printf(" framing=%s content=%llu consumed=%zu keep_alive=%d\n", framings[m->head.framing],
		(unsigned long long)m->content_len, m->consumed, m->head.keep_alive);
}

static void stream_print(struct slice in, struct strbuf *lenient)
{
	static struct message m;

	while (in.len > 0) {
		message_decode(&m, in, lenient);
		if (m.refused) {
			(void)fputs("refused", stdout);
			print_text("why", slice_str(m.refused));
			putchar('\n');
			return;
		}
		if (!m.complete) {
			puts("incomplete");
			return;
		}
		message_print(&m);
		if (!m.head.keep_alive)
			return;
		in = slice_from(in, m.consumed);
	}
}

static void frames_print(struct slice in, struct strbuf *lenient)
{
	while (in.len >= 4) {
		const uint8_t *p = (const uint8_t *)in.p;
		size_t len = (size_t)p[0] << 24 | (size_t)p[1] << 16 | (size_t)p[2] << 8 | p[3];
		struct slice stream = slice_first(slice_from(in, 4), len);

		stream_print(stream, lenient);
		putchar('\n');
		in = slice_from(in, 4 + stream.len);
	}
}

int main(int argc, char **argv)
{
	struct strbuf in, head, *lenient = NULL;
	bool frames = false;
	int ret;

	strbuf_init(&in, INPUT_MAX);
	strbuf_init(&head, INPUT_MAX);
	for (int i = 1; i < argc; i++) {
		if (slice_eq(slice_str(argv[i]), SLICE("--lenient"))) {
			lenient = &head;
		} else if (slice_eq(slice_str(argv[i]), SLICE("--frames"))) {
			frames = true;
		} else {
			(void)fprintf(
				stderr, "usage: %s [--lenient] [--frames] <REQUESTS\n", argv[0]);
			return 2;
		}
	}
	ret = strbuf_read_fd(&in, STDIN_FILENO);
	if (ret < 0) {
		(void)fprintf(stderr, "stdin: %s\n", err_text(ret));
		return 1;
	}
	if (frames)
		frames_print(strbuf_slice(&in), lenient);
	else
		stream_print(strbuf_slice(&in), lenient);
	strbuf_fini(&in);
	strbuf_fini(&head);
	return 0;
}
