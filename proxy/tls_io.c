/* The BIO between OpenSSL and the worker-wide buffers. See tls_io.h; conn.c moves the bytes between
 * the buffers and the sockets. */
#include "proxy/tls_io.h"

#include <errno.h>
#include <limits.h>

#include <openssl/bio.h>

#include "base/arena.h"
#include "base/secmem.h"

static int on_bio_read(BIO *bio, char *buf, int len)
{
	ssize_t n = conn_raw_read(BIO_get_data(bio), buf, (size_t)len);

	BIO_clear_retry_flags(bio);
	if (n == -EAGAIN) {
		BIO_set_retry_read(bio);
		return -1;
	}
	return n < 0 ? -1 : (int)n;
}

static int on_bio_write(BIO *bio, const char *p, int len)
{
	BIO_clear_retry_flags(bio);
	conn_raw_write(BIO_get_data(bio), p, (size_t)len);
	return len;
}

static long on_bio_ctrl(BIO *bio, int cmd, long arg, void *p)
{
	if (cmd == BIO_CTRL_EOF)
		return conn_raw_ended(BIO_get_data(bio));
	/* Flushing is conn_flush's, once an event; everything else does not apply. */
	return cmd == BIO_CTRL_FLUSH || cmd == BIO_CTRL_DUP ? 1 : 0;
}

static void io_free_plain(struct io *io)
{
	if (io->secmem) {
		secmem_release(io->secmem, io->scratch);
		secmem_release(io->secmem, io->plain);
	} else {
		free(io->scratch);
		free(io->plain);
	}
}

int io_new(struct secmem *secmem, struct io **out)
{
	struct io *io = xcalloc(1, sizeof(*io));

	io->secmem = secmem;
	io->scratch = secmem ? secmem_alloc(secmem, IO_RECORD) : xmalloc(IO_RECORD);
	io->plain = secmem ? secmem_alloc(secmem, IO_PLAIN_BYTES) : xmalloc(IO_PLAIN_BYTES);

	io->method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "egress");
	if (!io->method || !io->scratch || !io->plain) {
		io_free_plain(io);
		BIO_meth_free(io->method);
		free(io);
		return -ENOMEM;
	}
	BIO_meth_set_read(io->method, on_bio_read);
	BIO_meth_set_write(io->method, on_bio_write);
	BIO_meth_set_ctrl(io->method, on_bio_ctrl);
	*out = io;
	return 0;
}

void io_free(struct io *io)
{
	if (!io)
		return;
	io_free_plain(io);
	BIO_meth_free(io->method);
	free(io);
}

void io_attach(struct io *io, SSL *ssl, struct conn *c)
{
	BIO *bio = BIO_new(io->method);

	REQUIRE(bio != NULL);
	BIO_set_data(bio, c);
	BIO_set_init(bio, 1);
	SSL_set_bio(ssl, bio, bio);
}
