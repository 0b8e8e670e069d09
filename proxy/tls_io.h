/* The worker-wide buffers, and the BIO by which OpenSSL reads and writes through them.
 *
 * One recv() fills `in` and serves as many SSL_read() as it holds; what SSL_write() makes gathers
 * in `out` and leaves by one send(). So an idle connection owns no buffer, and a request costs two
 * reads and two writes (design 6). A buffer belongs to one connection at a time: whoever needs it
 * makes the one before put its bytes away (conn.c). */
#pragma once

#include <stdbool.h>

#include <openssl/ssl.h>

#include "base/attr.h"
#include "base/err.h"

struct conn;
struct secmem;

#define IO_RECORD 16384          /* plaintext of a full TLS record (RFC 8446 5.1) */
#define IO_IN_BYTES (4 * 16640)  /* four full records, so a download reads 64 KiB at once */
#define IO_OUT_BYTES (5 * 16640) /* what IO_IN_BYTES becomes when it leaves, and a head */
#define IO_PLAIN_BYTES IO_RECORD /* one SSL_read */

struct io {
	struct conn *in_owner;
	size_t in_pos, in_len;
	struct conn *out_owner;
	size_t out_len;
	struct conn *scratch_owner;
	size_t scratch_len;
	BIO_METHOD *method;
	struct secmem *secmem;
	char *scratch; /* IO_RECORD: head and first content, sent by one SSL_write */
	char *plain;   /* IO_PLAIN_BYTES: what the last read gave */
	char in[IO_IN_BYTES];
	char out[IO_OUT_BYTES];
};

/* secmem: where scratch and plain lie, because both may hold a key; NULL: ordinary memory. */
CHECKED int io_new(struct secmem *secmem, struct io **out);
void io_free(struct io *io);

/* Puts a BIO that reads and writes through c under ssl. */
void io_attach(struct io *io, SSL *ssl, struct conn *c);

/* conn.c's side of the BIO. True when the peer sent its FIN. */
bool conn_raw_ended(const struct conn *c);
/* Read: bytes > 0; 0 at the end of the stream; -EAGAIN; or an error. */
ssize_t conn_raw_read(struct conn *c, char *buf, size_t len);
/* Takes all of it. */
void conn_raw_write(struct conn *c, const char *p, size_t len);
