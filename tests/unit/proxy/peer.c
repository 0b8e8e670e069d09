/* Scripted clients and origins of the loop tests. See bed.h. */
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <openssl/err.h>

#include "base/err.h"
#include "tests/unit/policy/fixture.h"
#include "tests/unit/proxy/bed.h"

/* A test waits no longer than this for bytes of the same process. */
#define BED_WAIT_MS 3000

static struct session *peer_open(
	struct bed *b, struct peer *p, const struct netaddr *orig, uint16_t port)
{
	static const struct sockaddr_storage nobody = {.ss_family = AF_UNIX};
	int fds[2];

	assert_int_equal(
		socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
	memset(p, 0, offsetof(struct peer, in));
	p->fd = fds[0];
	return session_new(b->px, fds[1], &nobody, orig, port);
}

struct session *peer_client(struct bed *b, struct peer *p)
{
	return peer_open(b, p, NULL, 0);
}

struct session *peer_redirected(struct bed *b, struct peer *p, const char *addr, uint16_t port)
{
	struct netaddr a = fixture_addr(addr);

	return peer_open(b, p, &a, port);
}

void peer_accept_on(struct bed *b, struct peer *p, int listen_fd)
{
	int on = 1;

	memset(p, 0, offsetof(struct peer, in));
	for (int i = 0; i < BED_WAIT_MS; i++) {
		struct pollfd wait = {listen_fd, POLLIN, 0};

		bed_turn(b);
		p->fd = accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (p->fd >= 0) {
			/* what is sent leaves now, not after the other end's delayed ACK */
			(void)setsockopt(p->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
			return;
		}
		(void)poll(&wait, 1, 1);
	}
	fail_msg("nobody connected");
}

void peer_accept(struct bed *b, struct peer *p)
{
	peer_accept_on(b, p, b->listen_fd);
	bed_turn(b);
}

bool peer_nobody_connects(struct bed *b)
{
	struct pollfd wait = {b->listen_fd, POLLIN, 0};

	bed_settle(b);
	return poll(&wait, 1, 0) == 0;
}

void peer_tls_finish(struct bed *b, struct peer *p)
{
	for (int i = 0; i < BED_WAIT_MS; i++) {
		struct pollfd wait = {p->fd, POLLIN, 0};
		int ok = SSL_do_handshake(p->ssl);

		if (ok == 1)
			break;
		if (SSL_get_error(p->ssl, ok) != SSL_ERROR_WANT_READ)
			fail_msg("handshake: %s", ERR_reason_error_string(ERR_peek_error()));
		bed_turn(b);
		(void)poll(&wait, 1, 1);
	}
	assert_true(SSL_is_init_finished(p->ssl));
	bed_turn(b);
}

void peer_tls_start(struct peer *p, const char *name)
{
	char host[HOSTNAME_MAX + 1];

	p->ssl = SSL_new(bed_client_ctx());
	if (name) {
		assert_true(slice_to_cstr(slice_str(name), host, sizeof(host)));
		assert_int_equal(SSL_set_tlsext_host_name(p->ssl, host), 1);
		assert_int_equal(SSL_set1_host(p->ssl, name), 1);
	}
	assert_int_equal(SSL_set_fd(p->ssl, p->fd), 1);
	SSL_set_connect_state(p->ssl);
}

void peer_tls_connect(struct bed *b, struct peer *p, const char *name)
{
	peer_tls_start(p, name);
	peer_tls_finish(b, p);
}

void peer_tls_accept(struct bed *b, struct peer *p)
{
	p->ssl = SSL_new(bed_origin_ctx());
	assert_int_equal(SSL_set_fd(p->ssl, p->fd), 1);
	SSL_set_accept_state(p->ssl);
	peer_tls_finish(b, p);
}

static ssize_t peer_write(struct peer *p, const char *bytes, size_t len)
{
	int n;

	if (!p->ssl)
		return send(p->fd, bytes, len, MSG_NOSIGNAL);
	SSL_set_mode(p->ssl, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	n = SSL_write(p->ssl, bytes, (int)len);
	if (n <= 0)
		errno = SSL_get_error(p->ssl, n) == SSL_ERROR_WANT_WRITE ? EAGAIN : EPIPE;
	return n;
}

static bool peer_is_local(int fd)
{
	int domain = 0;
	socklen_t len = sizeof(domain);

	return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 && domain == AF_UNIX;
}

/* What was sent through a socket pair is there at once; through TCP, a moment later. */
static void peer_settle(struct bed *b, int fd)
{
	if (peer_is_local(fd))
		bed_turn(b);
	else
		bed_settle(b);
}

void peer_send_bytes(struct bed *b, struct peer *p, const char *bytes, size_t len)
{
	int tries = 0;

	while (len > 0 && tries++ < BED_WAIT_MS) {
		ssize_t n = peer_write(p, bytes, len);

		if (n > 0) {
			bytes += n;
			len -= (size_t)n;
		} else if (errno != EAGAIN) {
			fail_msg("send: %s", err_text(-errno));
		}
		bed_turn(b);
	}
	assert_int_equal(len, 0);
	peer_settle(b, p->fd);
}

void peer_send_raw(struct bed *b, struct peer *p, const char *bytes, size_t len)
{
	assert_int_equal(send(p->fd, bytes, len, MSG_NOSIGNAL), len);
	peer_settle(b, p->fd);
}

void peer_send(struct bed *b, struct peer *p, const char *text)
{
	peer_send_bytes(b, p, text, strlen(text));
}

static int peer_read(struct peer *p, char *buf, size_t len)
{
	int n;

	if (!p->ssl) {
		n = (int)recv(p->fd, buf, len, 0);
		if (n == 0)
			p->ended = true;
		else if (n < 0 && errno != EAGAIN)
			p->broken = true;
		return n;
	}
	n = SSL_read(p->ssl, buf, (int)len);
	if (n > 0)
		return n;
	switch (SSL_get_error(p->ssl, n)) {
	case SSL_ERROR_WANT_READ:
		break;
	case SSL_ERROR_ZERO_RETURN:
		p->ended = true;
		break;
	default:
		p->broken = true;
		break;
	}
	ERR_clear_error();
	return n;
}

void peer_receive(struct peer *p)
{
	while (!p->ended && !p->broken && p->len < PEER_IN_MAX) {
		int n = peer_read(p, p->in + p->len, PEER_IN_MAX - p->len);

		if (n <= 0)
			break;
		p->len += (size_t)n;
	}
	p->in[p->len] = '\0';
}

static void peer_drop(struct peer *p, size_t n)
{
	memmove(p->in, p->in + n, p->len - n);
	p->len -= n;
	p->in[p->len] = '\0';
}

/* Waits until there are len bytes, or none can come. */
static void peer_wait(struct bed *b, struct peer *p, size_t len)
{
	for (int i = 0; i < BED_WAIT_MS; i++) {
		struct pollfd wait = {p->fd, POLLIN, 0};

		bed_turn(b);
		peer_receive(p);
		if (p->len >= len || p->ended || p->broken)
			return;
		(void)poll(&wait, 1, 1);
	}
}

void peer_expect_bytes(struct bed *b, struct peer *p, const char *bytes, size_t len)
{
	while (len > 0) {
		size_t n = len < PEER_IN_MAX ? len : PEER_IN_MAX;

		peer_wait(b, p, n);
		if (p->len < n || memcmp(p->in, bytes, n) != 0)
			fail_msg("wanted: %.*s\ncame: %s%s", (int)n, bytes, p->in,
				p->ended            ? "(end)"
					: p->broken ? "(broken)"
						    : "");
		peer_drop(p, n);
		bytes += n;
		len -= n;
	}
}

void peer_expect(struct bed *b, struct peer *p, const char *text)
{
	peer_expect_bytes(b, p, text, strlen(text));
}

char *peer_until(struct bed *b, struct peer *p, const char *end)
{
	size_t at = 0, n = 0;
	char *text;

	do {
		peer_wait(b, p, ++n);
		n = p->len;
		at = slice_find(slice_make(p->in, p->len), slice_str(end));
	} while (at == p->len && !p->ended && !p->broken && p->len < PEER_IN_MAX && n > 0);
	if (at == p->len)
		fail_msg("no %s in: %s%s", end, p->in,
			p->ended            ? "(end)"
				: p->broken ? "(broken)"
					    : "");
	n = at + strlen(end);
	text = xmalloc(n + 1);
	memcpy(text, p->in, n);
	text[n] = '\0';
	peer_drop(p, n);
	return text;
}

void peer_expect_head(struct bed *b, struct peer *p, const char *begin)
{
	char *head = peer_until(b, p, "\r\n\r\n");

	if (!slice_starts(slice_str(head), slice_str(begin)))
		fail_msg("wanted: %s\ncame: %s", begin, head);
	free(head);
}

void peer_expect_answer(struct bed *b, struct peer *p, const char *begin, const char *body)
{
	peer_expect_head(b, p, begin);
	peer_expect(b, p, body);
}

void peer_expect_nothing(struct bed *b, struct peer *p)
{
	peer_settle(b, p->fd);
	peer_receive(p);
	if (p->len > 0 || p->ended || p->broken)
		fail_msg("came: %s%s", p->in, p->ended ? "(end)" : p->broken ? "(broken)" : "");
}

void peer_expect_end(struct bed *b, struct peer *p)
{
	peer_wait(b, p, 1);
	if (p->len > 0 || !p->ended)
		fail_msg("no end, but: %s%s", p->in, p->broken ? "(broken)" : "");
}

void peer_expect_broken(struct bed *b, struct peer *p)
{
	peer_wait(b, p, 1);
	if (p->len > 0 || !p->broken)
		fail_msg("not broken, but: %s%s", p->in, p->ended ? "(end)" : "");
}

void peer_shutdown(struct bed *b, struct peer *p)
{
	if (p->ssl)
		(void)SSL_shutdown(p->ssl);
	ERR_clear_error();
	(void)shutdown(p->fd, SHUT_WR);
	peer_settle(b, p->fd);
}

void peer_close(struct bed *b, struct peer *p)
{
	bool local = p->fd < 0 || peer_is_local(p->fd);

	SSL_free(p->ssl);
	p->ssl = NULL;
	if (p->fd >= 0)
		close(p->fd);
	p->fd = -1;
	if (local)
		bed_turn(b);
	else
		bed_settle(b);
}

void peer_reset(struct bed *b, struct peer *p)
{
	struct linger now = {1, 0};

	(void)setsockopt(p->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	peer_close(b, p);
}
