/* Connections. The worker-wide buffers and the BIO are tls_io's; who reads and writes here is
 * session, the HTTP drivers and tunnel. */
#include "proxy/conn.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <event2/event.h>
#include <openssl/bio.h>
#include <openssl/err.h>

#include "base/arena.h"
#include "proxy/tls.h"

static void on_conn_read(evutil_socket_t fd, short what, void *arg)
{
	struct conn *c = arg;

	c->drained = false;
	c->ops->on_readable(c->arg);
}

/* Bytes in `in` that nobody read move to their connection, because the buffer is needed. */
static void conn_release_in(struct io *io)
{
	struct conn *c = io->in_owner;
	size_t n = io->in_len - io->in_pos;

	if (c && n > 0) {
		REQUIRE(c->held_pos == c->held_len);
		free(c->held);
		c->held = xmalloc(n);
		memcpy(c->held, io->in + io->in_pos, n);
		c->held_pos = 0;
		c->held_len = n;
	}
	io->in_owner = NULL;
	io->in_pos = io->in_len = 0;
}

static ssize_t conn_recv(struct conn *c, char *buf, size_t len)
{
	ssize_t n;

	if (c->ended)
		return 0;
	if (c->drained)
		return -EAGAIN;
	do
		n = recv(c->fd, buf, len, MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n < 0) {
		c->drained = true;
		if (errno == EAGAIN)
			return -EAGAIN;
		c->error = c->error ? c->error : -errno;
		return c->error;
	}
	if (n == 0)
		c->ended = true;
	else if ((size_t)n < len)
		c->drained = true;
	return n;
}

static size_t conn_take_held(struct conn *c, char *buf, size_t len)
{
	size_t n = c->held_len - c->held_pos;

	if (n > len)
		n = len;
	memcpy(buf, c->held + c->held_pos, n);
	c->held_pos += n;
	if (c->held_pos == c->held_len) {
		free(c->held);
		c->held = NULL;
		c->held_pos = c->held_len = 0;
	}
	return n;
}

ssize_t conn_raw_read(struct conn *c, char *buf, size_t len)
{
	struct io *io = c->io;
	ssize_t n;

	if (c->held_len > c->held_pos)
		return (ssize_t)conn_take_held(c, buf, len);
	if (io->in_owner != c || io->in_pos == io->in_len) {
		conn_release_in(io);
		n = conn_recv(c, io->in, sizeof(io->in));
		if (n <= 0)
			return n;
		io->in_owner = c;
		io->in_len = (size_t)n;
	}
	n = (ssize_t)(io->in_len - io->in_pos);
	if ((size_t)n > len)
		n = (ssize_t)len;
	memcpy(buf, io->in + io->in_pos, (size_t)n);
	io->in_pos += (size_t)n;
	return n;
}

/* In clear, what waits is the request itself; with a key in it, nothing of it may stay behind. */
static void conn_free_pending(struct conn *c)
{
	if (c->keyed && !c->ssl && c->pending)
		explicit_bzero(c->pending, c->pending_cap);
	free(c->pending);
	c->pending = NULL;
}

static void conn_pend(struct conn *c, const char *p, size_t len)
{
	if (c->error)
		return;
	if (c->pending_len + len > c->pending_cap) {
		size_t cap = c->pending_len + len + 4096;
		char *room = xmalloc(cap);

		if (c->pending_len > 0)
			memcpy(room, c->pending, c->pending_len);
		conn_free_pending(c);
		c->pending = room;
		c->pending_cap = cap;
	}
	memcpy(c->pending + c->pending_len, p, len);
	c->pending_len += len;
	event_add(&c->write_event, NULL);
}

/* Sends what it can of iov, keeps the rest. */
static void conn_send(struct conn *c, struct iovec *iov, size_t n_iov)
{
	const int flags = MSG_DONTWAIT | MSG_NOSIGNAL;
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = n_iov};
	ssize_t n = 0;

	if (c->error)
		return;
	if (!conn_backlogged(c)) {
		do
			n = n_iov == 1 ? send(c->fd, iov->iov_base, iov->iov_len, flags)
				       : sendmsg(c->fd, &msg, flags);
		while (n < 0 && errno == EINTR);
		if (n < 0 && errno != EAGAIN) {
			c->error = -errno;
			return;
		}
		if (n < 0)
			n = 0;
	}
	for (size_t i = 0; i < n_iov; i++) {
		size_t sent = (size_t)n < iov[i].iov_len ? (size_t)n : iov[i].iov_len;

		n -= (ssize_t)sent;
		if (sent < iov[i].iov_len)
			conn_pend(c, (char *)iov[i].iov_base + sent, iov[i].iov_len - sent);
	}
}

/* Sends what gathered in `out`, whoever it belongs to. */
static void conn_release_out(struct io *io)
{
	struct conn *c = io->out_owner;
	struct iovec iov = {io->out, io->out_len};

	io->out_owner = NULL;
	io->out_len = 0;
	if (c && iov.iov_len > 0)
		conn_send(c, &iov, 1);
}

void conn_raw_write(struct conn *c, const char *p, size_t len)
{
	struct io *io = c->io;

	if (io->out_owner != c || io->out_len + len > sizeof(io->out))
		conn_release_out(io);
	if (len > sizeof(io->out)) {
		struct iovec iov = {(char *)(uintptr_t)p, len};

		conn_send(c, &iov, 1);
		return;
	}
	memcpy(io->out + io->out_len, p, len);
	io->out_len += len;
	io->out_owner = c;
}

/* One piece of plaintext, at most a record, onto its way: encrypted into `out`, or into the socket.
 */
static void conn_emit(struct conn *c, const char *p, size_t len)
{
	struct iovec iov = {(char *)(uintptr_t)p, len};

	if (c->error)
		return;
	if (!c->ssl)
		conn_send(c, &iov, 1);
	else if (SSL_write(c->ssl, p, (int)len) <= 0) {
		ERR_clear_error();
		c->error = E_TLS;
	}
	if (c->keyed && p == c->io->scratch)
		explicit_bzero(c->io->scratch, len);
}

static void conn_release_scratch(struct io *io)
{
	struct conn *c = io->scratch_owner;
	size_t n = io->scratch_len;

	io->scratch_owner = NULL;
	io->scratch_len = 0;
	if (c && n > 0)
		conn_emit(c, io->scratch, n);
}

void conn_write(struct conn *c, struct slice s)
{
	struct io *io = c->io;
	size_t n;

	if (io->scratch_owner != c) {
		conn_release_scratch(io);
		io->scratch_owner = c;
	}
	if (!c->ssl && s.len >= IO_RECORD / 2) {
		/* in clear nothing is gained by copying: the head and this leave in one call */
		struct iovec iov[2] = {
			{io->scratch, io->scratch_len}, {(char *)(uintptr_t)s.p, s.len}};

		io->scratch_len = 0;
		conn_send(c, iov, 2);
		if (c->keyed)
			explicit_bzero(io->scratch, iov[0].iov_len);
		return;
	}
	while (s.len > 0) {
		if (io->scratch_len == 0 && s.len >= IO_RECORD) {
			conn_emit(c, s.p, IO_RECORD);
			s = slice_from(s, IO_RECORD);
			continue;
		}
		n = IO_RECORD - io->scratch_len;
		if (n > s.len)
			n = s.len;
		memcpy(io->scratch + io->scratch_len, s.p, n);
		io->scratch_len += n;
		s = slice_from(s, n);
		if (io->scratch_len == IO_RECORD) {
			io->scratch_len = 0;
			conn_emit(c, io->scratch, IO_RECORD);
		}
	}
}

int conn_flush(struct conn *c)
{
	struct io *io = c->io;

	if (io->scratch_owner == c)
		conn_release_scratch(io);
	if (io->out_owner == c)
		conn_release_out(io);
	conn_spare(c);
	if (c->error)
		return c->error;
	return conn_backlogged(c) ? -EAGAIN : 0;
}

bool conn_backlogged(const struct conn *c)
{
	return c->pending_len > c->pending_pos;
}

static void on_conn_write(evutil_socket_t fd, short what, void *arg)
{
	struct conn *c = arg;
	ssize_t n;

	if (!c->connecting && conn_backlogged(c)) {
		n = send(c->fd, c->pending + c->pending_pos, c->pending_len - c->pending_pos,
			MSG_DONTWAIT | MSG_NOSIGNAL);
		if (n > 0)
			c->pending_pos += (size_t)n;
		else if (n < 0 && errno != EAGAIN && errno != EINTR)
			c->error = c->error ? c->error : -errno;
		if (conn_backlogged(c) && !c->error)
			return;
		conn_free_pending(c);
		c->pending_pos = c->pending_len = c->pending_cap = 0;
	}
	event_del(&c->write_event);
	c->connecting = false;
	c->ops->on_drained(c->arg);
}

void conn_init(struct conn *c, int fd, struct io *io, struct event_base *base,
	const struct conn_ops *ops, void *arg)
{
	memset(c, 0, sizeof(*c));
	c->fd = fd;
	c->io = io;
	c->ops = ops;
	c->arg = arg;
	event_assign(&c->read_event, base, fd, EV_READ | EV_PERSIST, on_conn_read, c);
	event_assign(&c->write_event, base, fd, EV_WRITE | EV_PERSIST, on_conn_write, c);
}

void conn_move(struct conn *from, struct conn *to, struct event_base *base,
	const struct conn_ops *ops, void *arg)
{
	struct io *io = from->io;

	REQUIRE(!from->reading);
	*to = *from;
	to->ops = ops;
	to->arg = arg;
	event_del(&from->write_event);
	event_assign(&to->read_event, base, to->fd, EV_READ | EV_PERSIST, on_conn_read, to);
	event_assign(&to->write_event, base, to->fd, EV_WRITE | EV_PERSIST, on_conn_write, to);
	if (conn_backlogged(to))
		event_add(&to->write_event, NULL);
	if (to->ssl)
		BIO_set_data(SSL_get_rbio(to->ssl), to);
	if (io->in_owner == from)
		io->in_owner = to;
	if (io->out_owner == from)
		io->out_owner = to;
	if (io->scratch_owner == from)
		io->scratch_owner = to;
	memset(from, 0, sizeof(*from));
	from->fd = -1;
	from->io = io;
}

void conn_fini(struct conn *c)
{
	struct io *io = c->io;

	if (c->fd < 0)
		return;
	if (io->in_owner == c) {
		io->in_owner = NULL;
		io->in_pos = io->in_len = 0;
	}
	if (io->out_owner == c) {
		io->out_owner = NULL;
		io->out_len = 0;
	}
	if (io->scratch_owner == c) {
		if (c->keyed)
			explicit_bzero(io->scratch, io->scratch_len);
		io->scratch_owner = NULL;
		io->scratch_len = 0;
	}
	event_del(&c->read_event);
	event_del(&c->write_event);
	conn_free_pending(c);
	SSL_free(c->ssl);
	c->ssl = NULL;
	free(c->held);
	c->held = NULL;
	close(c->fd);
	c->fd = -1;
}

void conn_set_tls(struct conn *c, SSL *ssl)
{
	REQUIRE(!c->ssl);
	c->ssl = ssl;
	io_attach(c->io, ssl, c);
}

/* Each byte that was read is wiped. When TLS frees a buffer of itself it wipes all 16 KiB once
 * more, for an answer of 1 KiB, too. So it keeps its buffers, and they are freed without that. */
void conn_set_keyed(struct conn *c, bool keyed)
{
	c->keyed = keyed;
	if (!keyed || !c->ssl || c->wipes)
		return;
	c->wipes = true;
	SSL_set_options(c->ssl, SSL_OP_CLEANSE_PLAINTEXT);
	SSL_clear_mode(c->ssl, SSL_MODE_RELEASE_BUFFERS);
}

void conn_spare(struct conn *c)
{
	uint64_t options;

	/* In the middle of a record OpenSSL before 3.0.14 frees what it still needs
	 * (CVE-2024-4741). */
	if (!c->wipes || !c->whole || SSL_has_pending(c->ssl))
		return;
	options = SSL_get_options(c->ssl);
	SSL_clear_options(c->ssl, SSL_OP_CLEANSE_PLAINTEXT);
	SSL_free_buffers(c->ssl);
	SSL_set_options(c->ssl, options);
}

/* Keeps the text of a failure, and empties OpenSSL's queue, which the next call would trip over. */
static void conn_tls_failed(struct conn *c)
{
	c->failure = tls_error_text(c->ssl, &c->bad_certificate);
}

int conn_handshake(struct conn *c)
{
	int ok = SSL_do_handshake(c->ssl);
	int why = ok == 1 ? SSL_ERROR_NONE : SSL_get_error(c->ssl, ok);
	int flushed = conn_flush(c); /* also an alert, when it failed */

	if (ok == 1)
		return flushed < 0 && flushed != -EAGAIN ? flushed : 0;
	if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE)
		return c->error ? c->error : -EAGAIN;
	conn_tls_failed(c);
	if (c->error)
		return c->error;
	return c->ended ? -ECONNRESET : E_TLS;
}

void conn_want_read(struct conn *c)
{
	if (c->reading)
		return;
	c->reading = true;
	event_add(&c->read_event, NULL);
}

void conn_pause(struct conn *c)
{
	if (!c->reading)
		return;
	c->reading = false;
	event_del(&c->read_event);
}

void conn_resume(struct conn *c)
{
	conn_want_read(c);
	if (conn_buffered(c))
		event_active(&c->read_event, EV_READ, 0);
}

void conn_want_connect(struct conn *c)
{
	c->connecting = true;
	event_add(&c->write_event, NULL);
}

ssize_t conn_read(struct conn *c, char *buf, size_t len)
{
	int n;

	/* nothing new since the last short read: not worth asking TLS */
	if (c->drained && !conn_buffered(c)) {
		conn_spare(c);
		return -EAGAIN; /* a failure of the socket makes an event of its own */
	}
	if (!c->ssl) {
		ssize_t got;

		if (c->held_len > c->held_pos)
			return (ssize_t)conn_take_held(c, buf, len);
		got = conn_recv(c, buf, len);
		return got == 0 ? E_EOF : got;
	}
	n = SSL_read(c->ssl, buf, (int)len);
	c->whole = n > 0;
	if (n > 0)
		return n;
	switch (SSL_get_error(c->ssl, n)) {
	case SSL_ERROR_WANT_READ:
	case SSL_ERROR_WANT_WRITE:
		return c->error ? c->error : -EAGAIN;
	case SSL_ERROR_ZERO_RETURN:
		c->tls_ended = true;
		return E_EOF;
	default:
		conn_tls_failed(c);
		if (c->error)
			return c->error;
		return c->ended ? E_EOF : E_TLS;
	}
}

int conn_peek(struct conn *c, size_t max, struct slice *in)
{
	size_t left = c->held_len - c->held_pos;
	ssize_t n = -EAGAIN;

	REQUIRE(!c->ssl);
	if (left < max) {
		n = conn_recv(c, c->io->plain, max - left < IO_RECORD ? max - left : IO_RECORD);
		if (n > 0) {
			char *p = xmalloc(left + (size_t)n);

			if (left > 0)
				memcpy(p, c->held + c->held_pos, left);
			memcpy(p + left, c->io->plain, (size_t)n);
			free(c->held);
			c->held = p;
			c->held_pos = 0;
			c->held_len = left + (size_t)n;
		}
	}
	*in = slice_make(c->held ? c->held + c->held_pos : "", c->held_len - c->held_pos);
	if (n == 0)
		return E_EOF;
	return n < 0 && n != -EAGAIN ? (int)n : 0;
}

void conn_unread(struct conn *c, struct slice bytes)
{
	size_t left = c->held_len - c->held_pos;
	char *p;

	REQUIRE(!c->ssl && c->io->in_owner != c);
	if (bytes.len == 0)
		return;
	p = xmalloc(bytes.len + left);
	memcpy(p, bytes.p, bytes.len);
	if (left > 0)
		memcpy(p + bytes.len, c->held + c->held_pos, left);
	free(c->held);
	c->held = p;
	c->held_pos = 0;
	c->held_len = bytes.len + left;
}

bool conn_buffered(const struct conn *c)
{
	return c->held_len > c->held_pos ||
		(c->io->in_owner == c && c->io->in_pos < c->io->in_len) ||
		(c->ssl && SSL_pending(c->ssl) > 0);
}

bool conn_raw_ended(const struct conn *c)
{
	return c->ended;
}

bool conn_clean_end(const struct conn *c)
{
	return c->ssl ? c->tls_ended : c->ended;
}

void conn_shutdown(struct conn *c)
{
	if (c->io->scratch_owner == c)
		conn_release_scratch(c->io); /* before close_notify, not behind it */
	if (c->ssl && !c->error && SSL_is_init_finished(c->ssl)) {
		SSL_shutdown(c->ssl);
		ERR_clear_error();
	}
	/* A FIN now would go before what is pending only if the kernel had taken it already; when
	 * something waits, closing the socket later sends it. */
	if (conn_flush(c) == 0)
		shutdown(c->fd, SHUT_WR);
}
