/*
 * Stands in for execd, OpenSandbox's program in the sandbox, whose image is not on any package
 * mirror. Of execd's API it has what creating a sandbox and calling the sidecar needs: /ping, and
 * /proxy/PORT/PATH, which goes to that port of this network namespace with PATH decoded once. One
 * process a connection, one request a connection. bootstrap.sh starts it as `execd serve`. As the
 * entry point of its own image it is started with other arguments, and waits to be copied. `execd
 * sidecar` is an egress sidecar that does nothing and is ready at once, against which a real one is
 * measured.
 */
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	EXECD_PORT = 44772,
	SIDECAR_PORT = 18080,
	BACKLOG = 128,
	HEAD_MAX = 64 << 10,
	PIECE = 64 << 10,
};

/* A request: `head` holds what was read, of which `head_len` bytes are start line and fields. */
struct request {
	char *method, *target, *fields;
	char head[HEAD_MAX + 1];
	size_t len, head_len;
	char peer[INET_ADDRSTRLEN];
};

static bool send_all(int fd, const char *data, size_t len)
{
	ssize_t n;

	while (len > 0) {
		n = write(fd, data, len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		data += n;
		len -= (size_t)n;
	}
	return true;
}

static void answer(int fd, const char *status, const char *body)
{
	char text[512];
	int len = snprintf(text, sizeof(text),
		"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n"
		"Connection: close\r\n\r\n%s",
		status, strlen(body), body);

	if (len > 0 && (size_t)len < sizeof(text))
		send_all(fd, text, (size_t)len);
}

/* Reads up to the empty line, and takes the start line apart. */
static bool request_read(int fd, struct request *r)
{
	char *end = NULL;
	char *version;
	ssize_t n;

	while (end == NULL) {
		if (r->len == HEAD_MAX)
			return false;
		n = read(fd, r->head + r->len, HEAD_MAX - r->len);
		if (n <= 0)
			return false;
		r->len += (size_t)n;
		r->head[r->len] = '\0';
		end = strstr(r->head, "\r\n\r\n");
	}
	r->head_len = (size_t)(end - r->head) + 4;
	r->method = r->head;
	r->target = strchr(r->head, ' ');
	r->fields = strstr(r->head, "\r\n") + 2;
	if (r->target == NULL || r->target > r->fields)
		return false;
	*r->target++ = '\0';
	version = strchr(r->target, ' ');
	if (version == NULL || version > r->fields)
		return false;
	*version = '\0';
	return true;
}

/* Percent decoding of the path, once, as execd's router does it; the query stays as it is. */
static void path_decode(char *path)
{
	char *to = path;
	char digits[3] = "";

	while (*path != '\0' && *path != '?') {
		if (path[0] == '%' && isxdigit((unsigned char)path[1]) &&
			isxdigit((unsigned char)path[2])) {
			memcpy(digits, path + 1, 2);
			*to++ = (char)strtol(digits, NULL, 16);
			path += 3;
		} else {
			*to++ = *path++;
		}
	}
	memmove(to, path, strlen(path) + 1);
}

static bool is_field(const char *line, const char *name)
{
	size_t len = strlen(name);

	return strncasecmp(line, name, len) == 0 && line[len] == ':';
}

/* The head for the port: the client's fields but those of this hop, and those that a proxy adds.
 * One piece, since small ones wait for each other. */
static size_t head_write(char *out, size_t size, const struct request *r, const char *path)
{
	const char *line = r->fields;
	const char *end = r->head + r->head_len - 2;
	const char *next;
	FILE *f = fmemopen(out, size, "w");
	long len;

	if (f == NULL)
		return 0;
	fprintf(f, "%s ", r->method);
	for (; *path != '\0'; path++) {
		if (*path == ' ')
			fputs("%20", f); /* it would end the target; execd encodes it again */
		else
			fputc(*path, f);
	}
	fputs(" HTTP/1.1\r\n", f);
	for (; line < end; line = next) {
		next = strstr(line, "\r\n") + 2;
		if (!is_field(line, "Connection") && !is_field(line, "Keep-Alive"))
			fwrite(line, 1, (size_t)(next - line), f);
	}
	fprintf(f, "X-Forwarded-For: %s\r\nX-Forwarded-Proto: http\r\nConnection: close\r\n\r\n",
		r->peer);
	len = ftell(f);
	fclose(f);
	return len > 0 && (size_t)len < size ? (size_t)len : 0;
}

static int port_connect(int port)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
		.sin_port = htons((uint16_t)port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	int on = 1;

	if (fd < 0 || setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) < 0 ||
		connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
		return -1;
	return fd;
}

/* Content one way, the answer the other, until the server closes. */
static void relay(int client, int server)
{
	struct pollfd p[2] = {{.fd = client, .events = POLLIN}, {.fd = server, .events = POLLIN}};
	static char piece[PIECE];
	ssize_t n;

	while (poll(p, 2, -1) > 0) {
		if (p[1].revents != 0) {
			n = read(server, piece, sizeof(piece));
			if (n <= 0 || !send_all(client, piece, (size_t)n))
				return;
		}
		if (p[0].revents != 0) {
			n = read(client, piece, sizeof(piece));
			if (n < 0 || (n > 0 && !send_all(server, piece, (size_t)n)))
				return;
			if (n == 0) {
				shutdown(server, SHUT_WR);
				p[0].fd = -1;
			}
		}
	}
}

static void proxy(int client, struct request *r, int port, char *path)
{
	static char out[2 * HEAD_MAX];
	int server = port_connect(port);
	size_t len;

	if (server < 0) {
		answer(client, "502 Bad Gateway", "{\"message\":\"nothing listens there\"}");
		return;
	}
	path_decode(path);
	len = head_write(out, sizeof(out), r, *path != '\0' ? path : "/");
	if (len > 0 && send_all(server, out, len) &&
		send_all(server, r->head + r->head_len, r->len - r->head_len))
		relay(client, server);
	close(server);
}

static void serve(int fd, const char *peer)
{
	static struct request r;
	char *path;
	long port;

	snprintf(r.peer, sizeof(r.peer), "%s", peer);
	if (!request_read(fd, &r))
		return;
	if (strcmp(r.target, "/ping") == 0 || strcmp(r.target, "/proxy/44772/ping") == 0 ||
		strcmp(r.target, "/healthz") == 0) {
		answer(fd, "200 OK", "{\"status\":\"ok\"}");
		return;
	}
	if (strncmp(r.target, "/proxy/", 7) == 0) {
		port = strtol(r.target + 7, &path, 10);
		if (port > 0 && port < 65536 && port != EXECD_PORT &&
			(*path == '/' || *path == '\0')) {
			proxy(fd, &r, (int)port, path);
			return;
		}
	}
	answer(fd, "404 Not Found", "{\"message\":\"the stand-in does not have this\"}");
}

static int listener_open(int port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	int on = 1;

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
		bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, BACKLOG) < 0) {
		perror("execd stand-in");
		exit(1);
	}
	return fd;
}

int main(int argc, char **argv)
{
	struct sockaddr_in peer;
	char text[INET_ADDRSTRLEN];
	socklen_t len;
	int l, fd;
	bool sidecar = argc > 1 && strcmp(argv[1], "sidecar") == 0;

	if (!sidecar && (argc < 2 || strcmp(argv[1], "serve") != 0)) {
		while (true)
			pause();
	}
	signal(SIGTERM, _exit); /* process 1 has no default for it */
	signal(SIGPIPE, SIG_IGN);
	signal(SIGCHLD, SIG_IGN);
	l = listener_open(sidecar ? SIDECAR_PORT : EXECD_PORT);
	while (true) {
		len = sizeof(peer);
		fd = accept(l, (struct sockaddr *)&peer, &len);
		if (fd < 0)
			continue;
		if (fork() == 0) {
			close(l);
			inet_ntop(AF_INET, &peer.sin_addr, text, sizeof(text));
			serve(fd, text);
			_exit(0);
		}
		close(fd);
	}
}
