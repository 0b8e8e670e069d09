/* One request, one answer. Before it: a command; after it: the answer as text and as a tree. The
 * answer is read by the proxy's parser. */
#include "ctl/api_client.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/netaddr.h"
#include "ctl/environment.h"
#include "proxy/h1.h"
#include "proxy/request_target.h"

#define CLIENT_HEAD_MAX 4096 /* what is sent before the body: a token has 1 KiB at most */

int api_client_address(
	const char *text, struct sockaddr_storage *out, socklen_t *len, struct errmsg *msg)
{
	static const struct netaddr loopback6 = {.b = {[15] = 1}};
	static const struct netaddr loopback4 = {
		.b = {[10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1}};
	struct slice s = slice_str(text);
	struct authority a;
	char whole[64];
	int ret;

	if (s.len > 0 && s.p[0] == ':' && s.len < 8) {
		(void)snprintf(whole, sizeof(whole), "127.0.0.1%s", text);
		s = slice_str(whole);
	}
	ret = authority_decode(s, &a);
	if (ret == 0 && !a.is_addr && slice_eq(authority_name(&a), SLICE("localhost"))) {
		a.is_addr = true;
		a.addr = loopback4;
	}
	if (ret < 0 || !a.is_addr || !a.has_port)
		return errmsg_set(msg, E_VALUE,
			"\"%.60s\": expected an address and a port, like %s or [::1]:18080", text,
			API_CLIENT_ADDRESS);
	if (netaddr_class(&a.addr) == ADDR_UNSPECIFIED)
		a.addr = netaddr_is_v4(&a.addr) ? loopback4 : loopback6;
	*len = netaddr_to_sockaddr(&a.addr, a.port, out);
	return 0;
}

static int client_connect(const struct sockaddr_storage *to, socklen_t len)
{
	const struct timeval wait = {API_CLIENT_WAIT_S, 0};
	int fd = socket(to->ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int ret;

	if (fd < 0)
		return -errno;
	if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait)) < 0 ||
		setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait)) < 0 ||
		connect(fd, (const struct sockaddr *)to, len) < 0) {
		ret = errno == EINPROGRESS ? -ETIMEDOUT : -errno;
		(void)close(fd);
		return ret;
	}
	return fd;
}

static int client_send(int fd, struct slice s)
{
	while (s.len > 0) {
		ssize_t n = send(fd, s.p, s.len, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		/* Refused before it was read: the answer is there all the same. */
		if (n < 0)
			return errno == EPIPE || errno == ECONNRESET ? 0 : -errno;
		s = slice_from(s, (size_t)n);
	}
	return 0;
}

static int client_receive(int fd, struct strbuf *in)
{
	char part[16384];
	ssize_t n;

	do
		n = recv(fd, part, sizeof(part), 0);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == EAGAIN ? -ETIMEDOUT : -errno;
	if (n == 0)
		return E_EOF;
	strbuf_add(in, slice_make(part, (size_t)n));
	return in->full ? E_LIMIT : 0;
}

static int client_head(
	int fd, const char *method, struct strbuf *in, struct h1_head *head, struct strbuf *text)
{
	enum h1_error error = H1_OK;
	size_t scanned = 0;
	ssize_t n = E_MORE;
	int ret;

	while (n == E_MORE) {
		ret = client_receive(fd, in);
		if (ret < 0)
			return ret;
		n = h1_head_end(strbuf_slice(in), &scanned, &error);
	}
	if (n < 0)
		return (int)n;
	error = h1_response_decode(
		slice_first(strbuf_slice(in), (size_t)n), slice_str(method), head);
	if (error != H1_OK)
		return E_SYNTAX;
	strbuf_clear(text);
	strbuf_add(text, slice_first(strbuf_slice(in), (size_t)n));
	/* What is asked of it later is numbers alone. */
	strbuf_consume(in, (size_t)n);
	return 0;
}

static int client_body(int fd, const struct h1_head *head, struct strbuf *in, struct strbuf *out)
{
	struct h1_body body;
	struct slice content;
	int ret = 0;

	h1_body_init(&body, head->framing, head->length);
	while (ret == 0 && !h1_body_done(&body)) {
		struct slice rest = strbuf_slice(in);

		switch (h1_body_next(&body, &rest, &content)) {
		case H1_BODY_CONTENT:
			strbuf_add(out, content);
			strbuf_consume(in, in->len - rest.len);
			break;
		case H1_BODY_MORE:
			strbuf_clear(in);
			ret = client_receive(fd, in);
			if (ret == E_EOF && h1_body_close(&body))
				ret = 1;
			break;
		case H1_BODY_END:
			ret = 1;
			break;
		case H1_BODY_ERROR:
			ret = E_SYNTAX;
			break;
		}
	}
	h1_body_fini(&body);
	return ret < 0 ? ret : 0;
}

static int client_talk(int fd, const char *method, struct slice request, struct slice body,
	struct api_client_answer *out)
{
	struct h1_head head = {.status = 0};
	struct strbuf in;
	int ret;

	strbuf_init(&in, API_CLIENT_ANSWER_MAX);
	ret = client_send(fd, request);
	if (ret == 0)
		ret = client_send(fd, body);
	do {
		if (ret == 0)
			ret = client_head(fd, method, &in, &head, &out->head);
	} while (ret == 0 && head.status < 200);
	if (ret == 0) {
		out->status = head.status;
		ret = client_body(fd, &head, &in, &out->text);
	}
	strbuf_fini(&in);
	return ret;
}

int api_client_call(const struct api_client *c, const char *method, const char *path,
	struct slice body, struct api_client_answer *out, struct errmsg *msg)
{
	const char *token = environment_get(c->environ, "OPENSANDBOX_EGRESS_TOKEN");
	const char *address = c->address;
	struct sockaddr_storage to = {.ss_family = 0};
	struct strbuf request;
	socklen_t len = 0;
	int ret;
	int fd;

	*out = (struct api_client_answer){.status = 0};
	strbuf_init(&out->head, H1_HEAD_MAX);
	strbuf_init(&out->text, API_CLIENT_ANSWER_MAX);
	if (!address)
		address = environment_get(c->environ, "OPENSANDBOX_EGRESS_HTTP_ADDR");
	if (!address || !address[0])
		address = API_CLIENT_ADDRESS;
	ret = api_client_address(address, &to, &len, msg);
	if (ret < 0)
		return ret;
	strbuf_init(&request, CLIENT_HEAD_MAX);
	strbuf_printf(&request,
		"%s %s HTTP/1.1\r\nHost: egress\r\nConnection: close\r\nContent-Length: %zu\r\n",
		method, path, body.len);
	if (token && token[0])
		strbuf_printf(&request, "OPENSANDBOX-EGRESS-AUTH: %s\r\n", token);
	strbuf_str(&request, "\r\n");
	ret = request.full ? E_LIMIT : client_connect(&to, len);
	fd = ret;
	if (fd >= 0) {
		ret = client_talk(fd, method, strbuf_slice(&request), body, out);
		(void)close(fd);
	}
	strbuf_fini(&request);
	if (ret < 0)
		return errmsg_set(msg, ret, "%s: %s: expected the API of a running egress (--api)",
			address, err_text(ret));
	out->doc = json_loadb(out->text.p ? out->text.p : "", out->text.len, 0, NULL);
	return 0;
}

void api_client_answer_fini(struct api_client_answer *a)
{
	json_decref(a->doc);
	strbuf_fini(&a->head);
	strbuf_fini(&a->text);
	*a = (struct api_client_answer){.status = 0};
}

uint64_t api_client_number(const struct api_client_answer *a, const char *name)
{
	struct slice rest = strbuf_slice(&a->head);
	uint64_t n = 0;

	while (rest.len > 0) {
		struct slice line = slice_cut(&rest, '\n');
		struct slice value = slice_cut(&line, '\r');
		struct slice key = slice_cut(&value, ':');

		if (slice_ieq(key, slice_str(name)))
			return slice_to_u64(slice_trim(value), &n) ? n : 0;
	}
	return 0;
}

const char *api_client_message(const struct api_client_answer *a)
{
	const char *text = json_string_value(json_object_get(a->doc, "message"));

	return text ? text : "no reason was given";
}
